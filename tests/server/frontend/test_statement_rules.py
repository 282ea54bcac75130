"""Rules of the protocol and of transactions for single statements."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import asyncpg
import psycopg
import pytest
from psycopg import errors

from protocol.pgwire.messages.frontend import Bind, Describe, Execute, Parse, Sync
from server.frontend import session as session_module
from server.frontend.session import Session
from tests.fix_server import ServerThread
from tests.server.frontend.raw_client import query, raw_client


@pytest.fixture
def connection(passing_server: ServerThread) -> Iterator[psycopg.Connection]:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE t (k int)")
        connection.execute("INSERT INTO t VALUES (1)")
        yield connection


def refused(connection: psycopg.Connection, sql: str, sqlstate: str, words: str) -> None:
    with pytest.raises(psycopg.Error, match=words) as refusal:
        connection.execute(sql.encode())
    assert refusal.value.sqlstate == sqlstate


@pytest.mark.parametrize("query", ["SELECT k FROM t", "SUBSCRIBE t"])
def test_the_first_fetch_of_a_cursor_is_described(connection: psycopg.Connection, query: str) -> None:
    """A client that asks for binary results binds and describes the portal of its FETCH."""
    with connection.transaction():
        connection.execute(f"DECLARE c CURSOR FOR {query}".encode())
        cursor = connection.cursor(binary=True)
        row = cursor.execute("FETCH 1 c").fetchone()
        assert row is not None
        assert row[-1] == 1
        assert cursor.description is not None


def test_a_prepared_fetch_works_for_a_later_cursor_of_the_same_name(
    passing_server: ServerThread, connection: psycopg.Connection
) -> None:
    fetch = b"".join(message.serialize() for message in (Bind("", "f"), Describe("P", ""), Execute("", 0), Sync()))
    with raw_client(passing_server.port) as client:
        client.start("materialize", "materialize")
        for columns in ("k", "k, 'x'"):
            client.exchange(query(f"BEGIN; DECLARE c CURSOR FOR SELECT {columns} FROM (VALUES (1)) v(k)"))
            if columns == "k":
                client.exchange(
                    Parse("f", "FETCH 1 c").serialize() + Describe("S", "f").serialize() + Sync().serialize()
                )
            answer = client.exchange(fetch)
            assert [code for code, _ in answer] == ["2", "T", "D", "C", "Z"]
            client.exchange(query("COMMIT"))


def test_a_prepared_select_whose_result_type_has_changed_is_refused(
    passing_server: ServerThread, connection: psycopg.Connection
) -> None:
    words = "cached plan must not change result type"
    connection.execute("PREPARE p AS SELECT * FROM t")
    connection.execute("SELECT * FROM t", prepare=True)
    with psycopg.connect(passing_server.dsn(), autocommit=True) as other:
        other.execute("DROP TABLE t")
        other.execute("CREATE TABLE t (k text)")
    refused(connection, "EXECUTE p", "0A000", words)
    with pytest.raises(errors.FeatureNotSupported, match=words):
        connection.execute("SELECT * FROM t", prepare=True)
    with connection.transaction(), pytest.raises(errors.FeatureNotSupported, match=words):
        connection.execute("SELECT * FROM t", prepare=True)


async def test_asyncpg_prepares_a_statement_again_whose_result_type_has_changed(passing_server: ServerThread) -> None:
    """asyncpg and pgjdbc tell this error from others with its SQLSTATE by the routine that PostgreSQL reports."""
    connection = await asyncpg.connect(passing_server.dsn())
    try:
        await connection.execute("CREATE TABLE changing (k int)")
        assert await connection.fetchrow("SELECT * FROM changing") is None
        await connection.execute("ALTER TABLE changing ADD COLUMN v text")
        await connection.execute("INSERT INTO changing VALUES (1, 'x')")
        assert tuple(await connection.fetchrow("SELECT * FROM changing")) == (1, "x")
        await connection.execute("ALTER TABLE changing DROP COLUMN v")
        with pytest.raises(asyncpg.InvalidCachedStatementError):
            async with connection.transaction():
                await connection.fetchrow("SELECT * FROM changing")
        assert tuple(await connection.fetchrow("SELECT * FROM changing")) == (1,)
    finally:
        await connection.execute("DROP TABLE IF EXISTS changing")
        await connection.close()


def test_a_row_description_precedes_a_runtime_error(
    passing_server: ServerThread, connection: psycopg.Connection
) -> None:
    connection.execute("INSERT INTO t VALUES (0)")
    with raw_client(passing_server.port) as client:
        client.start("materialize", "materialize")
        answer = client.exchange(query("SELECT k + 1 FROM t"))
        assert [code for code, _ in answer] == ["T", "E", "Z"]
        answer = client.exchange(query("SELECT missing FROM t"))
        assert [code for code, _ in answer] == ["E", "Z"]


@pytest.mark.parametrize("sql", ["SELECT 1; DISCARD ALL", "DISCARD ALL; SELECT 1", "BEGIN; DISCARD ALL"])
def test_discard_all_must_be_the_only_statement(connection: psycopg.Connection, sql: str) -> None:
    refused(connection, sql, "25001", "DISCARD ALL cannot run inside a transaction block")
    connection.execute("ROLLBACK")
    connection.execute("DISCARD ALL")


@pytest.mark.parametrize("second", ["SELECT * FROM t", "SUBSCRIBE t UP TO 1", "INSERT INTO t VALUES (2)"])
def test_a_query_string_with_subscribe_can_have_no_other_statement(connection: psycopg.Connection, second: str) -> None:
    refused(
        connection,
        f"SUBSCRIBE (SELECT 1); {second}",
        "25000",
        "SUBSCRIBE in transactions must be the only read statement",
    )
    assert connection.execute("SELECT * FROM t").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "sql", ["CREATE MATERIALIZED VIEW v AS SELECT * FROM t", "CREATE TABLE u (k int)", "CREATE HOLD g ON t"]
)
def test_nothing_can_be_created_after_create_hold_in_a_block(connection: psycopg.Connection, sql: str) -> None:
    connection.execute("BEGIN; CREATE HOLD h ON t")
    with pytest.raises(psycopg.Error) as refusal:
        connection.execute(sql.encode())
    assert refusal.value.sqlstate == "25000"
    connection.execute("ROLLBACK")
    connection.execute("BEGIN; CREATE TABLE u (k int); CREATE HOLD h ON u; COMMIT")


def test_mz_timestamps_can_be_written_and_cast(connection: psycopg.Connection) -> None:
    instant = "2024-01-01 00:00:00.5+00"
    milliseconds = Decimal(1_704_067_200_500)
    for sql, value in {
        f"'{instant}'::mz_timestamp": milliseconds,
        "'1704067200500'::mz_catalog.mz_timestamp": milliseconds,
        f"CAST('{instant}'::timestamptz AS mz_catalog.mz_timestamp)": milliseconds,
        "'2024-01-01'::date::mz_timestamp": milliseconds - 500,
        "1704067200500::mz_timestamp": milliseconds,
    }.items():
        assert connection.execute(f"SELECT {sql}".encode()).fetchone() == (value,), sql
        same = f"SELECT ({sql})::timestamptz = {sql.replace('mz_catalog.', '')}::timestamptz"
        assert connection.execute(f"SELECT ({sql})::timestamptz::text".encode()).fetchone() is not None, same
    assert connection.execute(f"SELECT ('{instant}'::mz_timestamp)::timestamptz = '{instant}'::timestamptz").fetchone()
    shown = connection.execute("SELECT mz_now()::timestamptz::text, mz_now()::timestamp::text AS OF 1000").fetchone()
    assert shown == ("1970-01-01 00:00:01+00", "1970-01-01 00:00:01")
    refused(connection, "SELECT 'x'::mz_timestamp", "22P02", 'invalid input syntax for type mz_timestamp: "x"')
    refused(connection, "SELECT (-5)::mz_timestamp", "22003", "out of range for type mz_timestamp")
    refused(connection, "SELECT 5::numeric::timestamptz", "42846", "cannot cast type numeric")


@pytest.mark.parametrize("function", ["now()", "current_user", "current_timestamp", "version()"])
def test_functions_of_the_session_are_refused_with_as_of(connection: psycopg.Connection, function: str) -> None:
    refused(connection, f"SELECT {function} AS OF 1", "0A000", "unmaterializable function")
    assert connection.execute("SELECT mz_now() AS OF 1").fetchone() == (1,)


def test_a_long_pipeline_does_not_block_other_sessions(
    passing_server: ServerThread, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session handles a limited number of messages per turn, however many have arrived."""
    turns = 0
    pump = Session._pump

    def counted(session: Session) -> None:
        nonlocal turns
        turns += 1
        pump(session)

    monkeypatch.setattr(Session, "_pump", counted)
    monkeypatch.setattr(session_module, "TURN_S", 0.0)
    count = 100
    one = b"".join(message.serialize() for message in (Parse("", "SELECT 1"), Bind("", ""), Execute("")))
    with raw_client(passing_server.port) as client:
        client.start("materialize", "materialize")
        turns = 0
        answers = client.exchange(one * count + Sync().serialize())
    assert [code for code, _ in answers] == ["1", "2", "D", "C"] * count + ["Z"]
    assert turns > count


def test_a_query_string_of_many_statements_can_be_cancelled(connection: psycopg.Connection) -> None:
    connection.execute("SET statement_timeout = '20ms'")
    with pytest.raises(errors.QueryCanceled, match="statement timeout"):
        connection.execute(b"SELECT 1;" * 10_000)
    assert connection.execute("SELECT 1").fetchone() == (1,)
