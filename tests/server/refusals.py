"""Statements that must fail."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest


def refused(connection: psycopg.Connection[Any], statement: str, state: str, message: str) -> None:
    """Executes a statement that must fail with this SQLSTATE and primary message."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == (state, message)
