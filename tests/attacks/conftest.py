"""Fixtures of the attacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.fix_server import ServerProcess, server_without_spark
from tests.server.authentication.certificates import Authority


@pytest.fixture
def connection(server: ServerProcess) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without Spark. Its log must have no error at the end."""
    server = server_without_spark(tmp_path_factory.mktemp("data"))
    yield server
    assert '"level": "error"' not in server.log_path.read_text()
    assert server.stop() == 0


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without Spark, with TLS on both ports. Its log must have no error at the end."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = Authority(directory).server()
    server = server_without_spark(directory / "data", "--tls-cert", str(certificate), "--tls-key", str(key))
    yield server
    assert '"level": "error"' not in server.log_path.read_text()
    assert server.stop() == 0
