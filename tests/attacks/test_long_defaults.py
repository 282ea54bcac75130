"""ALTER TABLE ... ADD COLUMN with a long default, of which each existing row would have a copy at each read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.attacks.clients import resident_bytes, watched
from tests.fix_server import ServerProcess

pytestmark = pytest.mark.attacks

ROWS = 2_000
GROWTH_MAX = 64 << 20


@pytest.fixture
def table(own_server: ServerProcess) -> Iterator[psycopg.Connection[Any]]:
    """A session on a server with a table that has rows."""
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write("".join(f"{k}\n" for k in range(ROWS)))
        yield connection
        connection.execute("DROP TABLE t")


def test_values_of_added_columns_take_bounded_memory(own_server: ServerProcess, table: psycopg.Connection[Any]) -> None:
    """It would take 200 MB at each read. Writing it to the rows is an UPDATE, which needs Spark here."""
    before = resident_bytes(own_server.process.pid)
    with watched(own_server):
        table.execute("SET statement_timeout = '1s'")
        with pytest.raises(errors.QueryCanceled):
            table.execute(f"ALTER TABLE t ADD COLUMN v text DEFAULT '{'x' * 100_000}'".encode())
        table.execute("RESET statement_timeout")
        assert len(table.execute("SELECT k FROM t").fetchall()) == ROWS
    assert resident_bytes(own_server.process.pid) - before < GROWTH_MAX
