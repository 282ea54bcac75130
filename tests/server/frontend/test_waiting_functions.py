"""Advisory locks and pg_sleep() do what they do in PostgreSQL, and waits for them end."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import Any

import asyncpg
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import errors

from server.session_state import advisory_locks
from tests.examples import examples
from tests.fix_server import Connect
from tests.polling import HANG_S
from tests.server.execution.test_write import done

Connection = psycopg.Connection[Any]

FUNCTIONS = [
    f"pg_{function}{shared}"
    for function in ("advisory_lock", "advisory_xact_lock", "try_advisory_lock", "try_advisory_xact_lock")
    for shared in ("", "_shared")
] + ["pg_advisory_unlock", "pg_advisory_unlock_shared"]
CALLS = st.builds("SELECT {}({})".format, st.sampled_from(FUNCTIONS), st.sampled_from(("1", "1", "2", "1, 1")))
STEPS = st.one_of(
    *[CALLS] * 6,
    st.sampled_from(("BEGIN", "SAVEPOINT s", "ROLLBACK TO s", "COMMIT", "ROLLBACK", "SELECT 1 / 0", "DISCARD ALL")),
    st.just("SELECT pg_advisory_unlock_all()"),
)


@pytest.fixture
def connect(connect: Connect) -> Connect:
    return partial(connect, prepare_threshold=None)


def test_advisory_locks_are_as_in_postgresql(postgres: str, connect: Connect) -> None:
    """A lock that would have to wait fails, because of `lock_timeout`."""
    ours = [connect(), connect()]
    with ExitStack() as opened:
        theirs = [
            opened.enter_context(psycopg.connect(postgres, autocommit=True, prepare_threshold=None)) for _ in ours
        ]

        @examples(100)
        @given(st.lists(st.tuples(st.integers(0, 1), STEPS), min_size=1, max_size=14))
        def compare(steps: list[tuple[int, str]]) -> None:
            for connection in (*theirs, *ours):
                connection.execute("ROLLBACK")
                connection.execute("SELECT pg_advisory_unlock_all()")
            for number, step in steps:
                for connection in (theirs[number], ours[number]):
                    connection.execute("SET lock_timeout = '20ms'") if connection.info.transaction_status == 0 else None
                assert done(ours[number], step) == done(theirs[number], step), step

        compare()


def test_functions_that_wait_are_called_as_in_postgresql(postgres: str, connect: Connect) -> None:
    ours = connect()
    ours.execute("CREATE TABLE waited (a bool, b int)")
    with psycopg.connect(postgres, autocommit=True) as theirs:
        theirs.execute("CREATE TEMPORARY TABLE waited (a bool, b int)")
        for statement in (
            "SELECT pg_advisory_lock(NULL), pg_try_advisory_lock(1, NULL), pg_sleep(NULL)",
            "SELECT pg_advisory_lock('7'), pg_advisory_unlock(7) AS x, pg_advisory_unlock(7) AS y",
            "SELECT pg_try_advisory_lock(9223372036854775807), pg_catalog.pg_advisory_unlock_all()",
            "SELECT pg_advisory_lock(1.5)",
            "SELECT pg_advisory_lock(1::bigint, 2::bigint)",
            "SELECT pg_advisory_lock()",
            "SELECT pg_advisory_unlock_all(1)",
            "SELECT pg_sleep('x')",
            "SELECT pg_sleep(-1), pg_sleep('NaN'), pg_sleep(0), pg_sleep_for('-1 day'), pg_sleep_for('1 ms')",
            "SELECT pg_sleep_until(now() - interval '1 second')::text",
            "SELECT length(upper('a' || pg_sleep(0)::text))",
            "SELECT a FROM (SELECT pg_try_advisory_lock(length('abc') + 1) AS a) AS s",
            "SELECT pg_advisory_unlock(4), pg_advisory_unlock(4)",
            "VALUES (pg_try_advisory_lock(1)), (pg_advisory_unlock(1)), (pg_advisory_unlock(1))",
            "INSERT INTO waited VALUES (pg_try_advisory_lock(5), 1), (pg_advisory_unlock(6), 2) RETURNING *",
            "SELECT pg_advisory_unlock(5), pg_typeof(pg_advisory_unlock(5))",
        ):
            assert done(ours, statement) == done(theirs, statement), statement
    ours.execute("SELECT pg_try_advisory_lock(%s), pg_advisory_unlock(%s)", (3, 3))
    for statement in (
        "SELECT pg_try_advisory_lock(b) FROM waited",
        "SELECT pg_sleep(1) FROM waited",
        "SELECT 1 FROM waited WHERE pg_try_advisory_lock(1)",
        "SELECT pg_sleep(x) FROM (VALUES (1), (2)) AS v (x)",
        "SELECT pg_sleep(1) FROM (VALUES (1), (2)) AS v (x)",
        "SELECT CASE WHEN true THEN pg_try_advisory_lock(1) END",
        "SELECT pg_sleep((SELECT 1))",
        "SELECT NOT pg_try_advisory_lock(1)",
        "CREATE MATERIALIZED VIEW w AS SELECT pg_try_advisory_lock(1)",
        "SUBSCRIBE (SELECT pg_try_advisory_lock(1))",
        "UPDATE waited SET a = pg_try_advisory_lock(1)",
    ):
        with pytest.raises(errors.FeatureNotSupported) as refused:
            ours.execute(statement.encode())
        assert "pg_" in str(refused.value), statement
    assert ours.execute("SELECT pg_advisory_unlock(1)").fetchone() == (False,), "nothing was locked"


def test_waits_end_by_timeout_cancellation_disconnection_and_unlocking(connect: Connect) -> None:
    ours, other, watching = connect(), connect(), connect()
    ours.execute("SELECT pg_advisory_lock(1)")
    for statement in ("SELECT pg_advisory_lock(1)", "SELECT pg_sleep(60)", "SELECT pg_sleep('infinity')"):
        other.execute("SET statement_timeout = '50ms'")
        with pytest.raises(errors.QueryCanceled, match="statement timeout"):
            other.execute(statement.encode())
        other.execute("SET statement_timeout = 0")
        threading.Timer(0.1, other.cancel_safe).start()
        with pytest.raises(errors.QueryCanceled, match="user request"):
            other.execute(statement.encode())
    other.execute("SET lock_timeout = '50ms'")
    with pytest.raises(errors.LockNotAvailable, match="canceling statement due to lock timeout"):
        other.execute("SELECT pg_advisory_lock(1)")
    lost = connect()
    lost.pgconn.send_query(b"SELECT pg_advisory_lock(1)")
    time.sleep(0.2)
    lost.pgconn.finish()
    waiting = threading.Thread(daemon=True, target=lambda: watching.execute("SELECT pg_advisory_lock(1)"))
    waiting.start()
    time.sleep(0.1)
    assert waiting.is_alive()
    ours.close()
    waiting.join(HANG_S)
    assert not waiting.is_alive(), "a session that ends unlocks, and neither the lost nor the cancelled waits are left"
    began = time.monotonic()
    other.execute("SELECT pg_sleep(0.2)")
    assert 0.2 <= time.monotonic() - began < 5


def test_deadlocks_of_tables_and_numbers_are_found(connect: Connect) -> None:
    ours, other = connect(), connect()
    ours.execute("CREATE TABLE locked (a int)")
    ours.execute("SELECT pg_advisory_lock(1)")
    other.execute("BEGIN; DELETE FROM locked")
    waiting = threading.Thread(daemon=True, target=lambda: other.execute("SELECT pg_advisory_xact_lock(1)"))
    waiting.start()
    time.sleep(0.2)
    with pytest.raises(errors.DeadlockDetected):
        ours.execute("DELETE FROM locked")
    ours.execute("SELECT pg_advisory_unlock_all()")
    waiting.join(HANG_S)
    assert not waiting.is_alive()
    other.execute("COMMIT")
    ours.execute("BEGIN; SELECT pg_advisory_xact_lock(2); INSERT INTO locked VALUES (1); COMMIT")
    assert other.execute("SELECT a FROM locked").fetchall() == [(1,)]
    assert other.execute("SELECT pg_try_advisory_lock(2)").fetchone() == (True,)


def test_a_session_holds_a_limited_number_of_locks(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 100
    monkeypatch.setattr(advisory_locks, "LOCKS_MAX", count)
    ours, other = connect(), connect()
    with ours.pipeline():
        for number in range(count):
            ours.execute("SELECT pg_advisory_lock(%s::bigint)", (number,))
    ours.execute("SELECT pg_advisory_lock(1)")
    with pytest.raises(errors.OutOfMemory):
        ours.execute("SELECT pg_advisory_lock(-1)")
    ours.execute("SELECT pg_advisory_unlock_all()")
    assert other.execute(f"SELECT pg_try_advisory_lock({count - 1}), pg_try_advisory_lock(-1)".encode()).fetchone() == (
        True,
        True,
    )


async def test_the_default_pool_of_asyncpg(dsn: str) -> None:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            assert await connection.fetchval("SELECT pg_try_advisory_lock($1)", 77)
            assert await connection.fetchval("SELECT pg_advisory_lock_shared($1, $2)", 7, 8) in (None, "")
            await connection.execute("SET application_name = 'changed'")
        async with pool.acquire() as connection:
            assert await connection.fetchval("SHOW application_name") != "changed"
            assert not await connection.fetchval("SELECT pg_advisory_unlock(77)"), "the reset has unlocked it"
            assert await connection.fetchval("SELECT 1") == 1


def test_lock_table_makes_writers_wait(postgres: str, connect: Connect) -> None:
    ours = [connect(), connect()]
    with ExitStack() as opened:
        theirs = [
            opened.enter_context(psycopg.connect(postgres, autocommit=True, prepare_threshold=None)) for _ in ours
        ]
        theirs[0].execute("DROP TABLE IF EXISTS locked_by_name, locked_too")
        for connections in (theirs, ours):
            connections[0].execute("CREATE TABLE locked_by_name (a int); CREATE TABLE locked_too (a int)")
            for connection in connections:
                connection.execute("SET lock_timeout = '50ms'")
        for number, statement in (
            (0, "LOCK locked_by_name"),
            (0, "BEGIN"),
            (0, "LOCK TABLE ONLY locked_by_name, locked_too IN SHARE ROW EXCLUSIVE MODE NOWAIT"),
            (1, "INSERT INTO locked_by_name VALUES (1)"),
            (1, "DELETE FROM locked_too"),
            (1, "SELECT * FROM locked_too"),
            (1, "BEGIN"),
            (1, "LOCK locked_too IN ACCESS SHARE MODE NOWAIT"),
            (1, "LOCK locked_too NOWAIT"),
            (1, "ROLLBACK"),
            (0, "INSERT INTO locked_by_name VALUES (1)"),
            (0, "SAVEPOINT s"),
            (0, "LOCK locked_by_name IN EXCLUSIVE MODES"),
            (0, "ROLLBACK TO s"),
            (0, "LOCK nowhere"),
            (0, "ROLLBACK"),
            (1, "INSERT INTO locked_by_name VALUES (2)"),
            (1, "TABLE locked_by_name"),
        ):
            assert done(ours[number], statement) == done(theirs[number], statement), statement
        theirs[0].execute("DROP TABLE locked_by_name, locked_too")
    with pytest.raises(errors.LockNotAvailable, match='could not obtain lock on relation "locked_too"'):
        ours[0].execute("BEGIN; LOCK locked_too")
        ours[1].execute("BEGIN; LOCK locked_too NOWAIT")


def test_functions_with_an_effect_can_be_called_in_from(connect: Connect) -> None:
    """psycopg 2 calls every function in FROM (`callproc`)."""
    session = connect()
    begun = time.monotonic()
    assert session.execute("SELECT * FROM pg_sleep(0.2)").fetchall() == [("",)]
    assert time.monotonic() - begun >= 0.2
    assert session.execute("SELECT * FROM pg_try_advisory_lock(1) AS locked").fetchall() == [(True,)]
    assert connect().execute("SELECT locked FROM pg_try_advisory_lock(1) AS locked").fetchall() == [(False,)]
    assert session.execute("SELECT s.* FROM setseed(0.5) AS s").fetchall() == [("",)]
    several = "ROWS FROM (pg_sleep(0), setseed(0))"
    for refused in ("pg_sleep(0) WITH ORDINALITY", several, "(VALUES (1)) v, pg_sleep(0)"):
        with pytest.raises(errors.FeatureNotSupported):
            session.execute(f"SELECT * FROM {refused}".encode())
