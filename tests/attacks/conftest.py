"""Fixtures of the attacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.fix_server import ServerProcess


@pytest.fixture
def connection(server: ServerProcess) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        yield connection
