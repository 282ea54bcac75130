"""Transaction blocks that begin or end within a query string or a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from server.execution import select
from server.session_state.context import Context
from tests.fix_server import ServerThread


@pytest.fixture
def connection(passing_server: ServerThread) -> Iterator[psycopg.Connection]:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
        yield connection


def rows(connection: psycopg.Connection) -> list[int]:
    return sorted(row[0] for row in connection.execute("SELECT k FROM t"))


@pytest.mark.parametrize(
    "before",
    ["INSERT INTO t VALUES (2)", "SELECT 1; INSERT INTO t VALUES (2)", "DELETE FROM t", "TRUNCATE t", "DROP TABLE t"],
)
def test_statements_before_begin_in_a_query_string_belong_to_the_block(
    connection: psycopg.Connection, before: str
) -> None:
    connection.execute("INSERT INTO t VALUES (1)")
    connection.execute(f"{before}; BEGIN".encode())
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    connection.execute("ROLLBACK")
    assert rows(connection) == [1]
    connection.execute(f"{before}; BEGIN; COMMIT".encode())
    if before != "DROP TABLE t":
        assert rows(connection) == ([1, 2] if "INSERT" in before else [])


def test_a_block_includes_the_inserts_before_its_begin(connection: psycopg.Connection) -> None:
    connection.execute("INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2)")
    connection.execute("INSERT INTO t VALUES (3)")
    connection.execute("ROLLBACK; INSERT INTO t VALUES (4); BEGIN; INSERT INTO t VALUES (5); COMMIT")
    assert rows(connection) == [4, 5]


def test_inserts_before_begin_in_a_pipeline_belong_to_the_block(connection: psycopg.Connection) -> None:
    with connection.pipeline():
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (2)")
        connection.execute("ROLLBACK")
    assert rows(connection) == []


@pytest.mark.parametrize("before", ["DELETE FROM t", "TRUNCATE t"])
def test_deletes_before_begin_in_a_pipeline_belong_to_the_block(connection: psycopg.Connection, before: str) -> None:
    connection.execute("INSERT INTO t VALUES (1)")
    with connection.pipeline():
        connection.execute(before.encode())
        connection.execute("BEGIN")
        connection.execute("ROLLBACK")
    assert rows(connection) == [1]
    with connection.pipeline():
        connection.execute(before.encode())
    assert rows(connection) == []


@pytest.mark.parametrize("statement", ["DELETE FROM t", "TRUNCATE t"])
def test_a_statement_sees_earlier_inserts_of_its_query_string_or_pipeline(
    connection: psycopg.Connection, statement: str
) -> None:
    connection.execute(f"INSERT INTO t VALUES (1); {statement}".encode())
    assert rows(connection) == []
    with connection.pipeline():
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute(statement.encode())
        connection.execute(statement.encode())
    assert rows(connection) == []


def test_rollback_reverts_a_setting_made_before_begin(connection: psycopg.Connection) -> None:
    connection.execute("SET application_name = 'before'")
    connection.execute("SET application_name = 'within'; BEGIN")
    connection.execute("ROLLBACK")
    assert connection.execute("SHOW application_name").fetchone() == ("before",)
    connection.execute("SET application_name = 'within'; BEGIN; COMMIT")
    assert connection.execute("SHOW application_name").fetchone() == ("within",)


def test_each_select_of_a_query_string_has_a_read_hold(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[frozenset[str]] = []
    rows_at = select.rows_at

    async def recorded(context: Context, *args: Any) -> Any:
        assert context.transaction.holder is not None
        held.append(context.transaction.holder.collections)
        return await rows_at(context, *args)

    monkeypatch.setattr(select, "rows_at", recorded)
    connection.execute("CREATE TABLE u (k int)")
    connection.execute("SELECT * FROM t; SELECT * FROM u")
    assert [len(collections) for collections in held] == [1, 2]


def test_reads_before_begin_do_not_make_the_block_read_only(connection: psycopg.Connection) -> None:
    connection.execute("SELECT * FROM t; BEGIN; INSERT INTO t VALUES (1); COMMIT")
    assert rows(connection) == [1]


def test_an_error_before_begin_rolls_back_all_statements(connection: psycopg.Connection) -> None:
    with pytest.raises(errors.UndefinedTable):
        connection.execute("INSERT INTO t VALUES (1); SELECT * FROM missing; BEGIN")
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert rows(connection) == []
