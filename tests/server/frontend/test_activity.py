"""pg_stat_activity: what sessions do, as PostgreSQL shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_server import ServerThread

Connection = psycopg.Connection[Any]
SHOWN = (
    "SELECT state, query, application_name, wait_event_type, xact_start IS NULL, query_start IS NULL, "
    "state_change IS NULL, backend_start IS NULL, client_addr IS NULL, usename = current_user, "
    "datname = current_database(), backend_type FROM pg_stat_activity WHERE pid = %s"
)
STEPS = [
    "SELECT 1",
    "SET application_name = 'tests'",
    "BEGIN",
    "SELECT 2; SELECT 3",
    "SELECT 1 / 0",
    "ROLLBACK",
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
    "COMMIT",
    "SELECT * FROM missing",
    f"SELECT '{'é' * 300}'",
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack, dsn: str, **options: Any) -> Connection:
    return stack.enter_context(psycopg.connect(dsn, autocommit=True, **options))


def waiting(watcher: Connection, pid: int) -> tuple[Any, ...]:
    """The row of a session when it waits for its client. PostgreSQL sends its answer a moment before."""
    deadline = time.monotonic() + 10
    while (row := watcher.execute(SHOWN, [pid]).fetchone()) is None or row[3] != "Client":
        assert time.monotonic() < deadline, row
    return row


def test_states_are_those_of_postgresql(stack: ExitStack, postgres: str, passing_server: ServerThread) -> None:
    observed = []
    for dsn in (postgres, passing_server.dsn()):
        watched, watcher = connected(stack, dsn), connected(stack, dsn)
        pid, rows = watched.info.backend_pid, []
        for step in STEPS:
            with suppress(psycopg.Error):
                watched.execute(step.encode(), prepare=False)
            rows.append((step, waiting(watcher, pid)))
        watched.execute("SELECT %s::int", [7], prepare=True)
        rows.append(("prepared", waiting(watcher, pid)))
        for _ in range(3):  # these are answered in one step
            watched.execute("SELECT %s::int + 1", [7], prepare=True)
        rows.append(("prepared again", waiting(watcher, pid)))
        observed.append(rows)
    theirs, ours = observed
    for their_row, our_row in zip(theirs, ours, strict=True):
        assert our_row == their_row


def test_a_session_that_waits_for_a_lock(stack: ExitStack, passing_server: ServerThread) -> None:
    holder, waiter, watcher = (connected(stack, passing_server.dsn()) for _ in range(3))
    holder.execute("CREATE TABLE t (a int)")
    holder.execute("BEGIN; LOCK TABLE t")
    waiting = threading.Thread(target=waiter.execute, args=["BEGIN; LOCK TABLE t; COMMIT"])
    waiting.start()
    query = "SELECT state, wait_event_type, wait_event, query FROM pg_stat_activity WHERE pid = %s"
    deadline = time.monotonic() + 30
    while (row := watcher.execute(query, [waiter.info.backend_pid]).fetchone()) is None or row[1] != "Lock":
        assert time.monotonic() < deadline, row
    assert row == ("active", "Lock", "relation", "BEGIN; LOCK TABLE t; COMMIT")
    holder.execute("COMMIT")
    waiting.join()


def test_secrets_are_not_shown(stack: ExitStack, passing_server: ServerThread) -> None:
    watched, watcher = (connected(stack, passing_server.dsn()) for _ in range(2))
    query = "SELECT query FROM pg_stat_activity WHERE pid = %s"
    for statement, shown in (
        ("CREATE ROLE someone LOGIN Password 'hunter2'", "CREATE ROLE someone LOGIN Password ..."),
        ("CREATE SECRET own AS 'hunter2'", "CREATE SECRET ..."),
        (f"SELECT '{'x' * 2_000}'", f"SELECT '{'x' * 2_000}"[:1_023]),
    ):
        watched.execute(statement.encode())
        assert watcher.execute(query, [watched.info.backend_pid]).fetchone() == (shown,)


def test_other_roles_see_no_statements(stack: ExitStack, passing_server: ServerThread) -> None:
    boss = connected(stack, passing_server.dsn())
    boss.execute("CREATE USER ann; CREATE USER bob; CREATE ROLE team; GRANT bob TO ann")
    ann, bob = (connected(stack, passing_server.dsn(), user=name) for name in ("ann", "bob"))
    hidden = ("<insufficient privilege>", None, None)
    query = "SELECT query, state, client_addr FROM pg_stat_activity WHERE pid = %s"
    bob.execute("SELECT 'of bob'")
    assert ann.execute(query, [boss.info.backend_pid]).fetchone() == hidden
    assert bob.execute(query, [ann.info.backend_pid]).fetchone() == hidden
    assert str(ann.execute("SELECT query FROM pg_stat_activity WHERE usename = 'bob'").fetchone()) != str(hidden[:1])
    assert boss.execute(query, [bob.info.backend_pid]).fetchone() != hidden
    with pytest.raises(errors.InsufficientPrivilege):
        bob.execute("SELECT pg_cancel_backend(%s)", [boss.info.backend_pid])
