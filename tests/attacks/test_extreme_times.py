"""Times at and beyond the ends of their range: an error, or a wait that statement_timeout and a cancel request end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from catalog.ids import TIMESTAMP_MAX
from tests.attacks.clients import meanwhile, watched
from tests.fix_server import ServerProcess, server_without_spark
from tests.polling import until

pytestmark = pytest.mark.attacks

ENDS_S = 8.0
"""How long a statement may take, on a busy machine: after its timeout of TIMEOUT, or to be refused."""
TIMEOUT = "200ms"

VALID = [
    *map(str, (TIMESTAMP_MAX, TIMESTAMP_MAX - 1, 2**63, 2**63 - 1)),
    *("'18446744073709551615'", "1e19::numeric", "timestamptz '294247-01-10'"),
]
NINES = "9" * 5_000  # more digits than Python converts
INVALID = [
    *(str(TIMESTAMP_MAX + 1), "-1", "NULL", "1.5", "'-1'", "''", "'x'", "1e131071::numeric", "'NaN'::numeric"),
    *(NINES, f"'{NINES}'", f"'{'9' * 1_000_000}'", "repeat('9', 1000000)", "'٩'::text || repeat('٩', 5000)"),
    *("'infinity'::timestamptz", "'-infinity'::timestamptz", "date '4713-01-01 BC'", "'infinity'"),
    *("true", "'{1}'::int[]", "1/0"),
]
REFUSED = ("22003", "22007", "22008", "22012", "22023", "22P02", "0A000", "42846", "54000", "22000")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = server_without_spark(tmp_path_factory.mktemp("times"))
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        connection.execute("CREATE HOLD held ON t")
    yield server
    assert '"level": "error"' not in server.log_path.read_text()
    assert server.stop() == 0
    again = server_without_spark(server.directory)  # nothing that cannot be read is on the disk
    with psycopg.connect(again.dsn, autocommit=True) as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == [(1,)]
    assert again.stop() == 0


@pytest.fixture
def sql(server: ServerProcess) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '30s'")
        yield connection


READS = {
    "select": "SELECT * FROM t AS OF {}",
    "subscribe": "SUBSCRIBE t AS OF {}",
    "at least": "SUBSCRIBE t AS OF AT LEAST {}",
    "query": "SUBSCRIBE (SELECT a FROM t) AS OF {}",
    "both": "SUBSCRIBE t AS OF {0} UP TO 18446744073709551615",
    "explain": "EXPLAIN TIMESTAMP FOR SELECT * FROM t AS OF {}",
}
WRITES = {
    "hold": "CREATE HOLD h ON t AT {}",
    "advance": "ALTER HOLD held ADVANCE TO {}",
    "sink": "CREATE SINK k FROM t INTO FILE 'PATH' FORMAT JSON WITH (AS OF {})",
}


def outcome(sql: psycopg.Connection[Any], statement: str) -> str:
    """The SQLSTATE of a statement. It must not run for ENDS_S."""
    begun = time.monotonic()

    def guard(done: threading.Event) -> None:
        if not done.wait(2 * ENDS_S):
            sql.cancel()

    with meanwhile(guard):
        try:
            sql.execute(statement.encode())
            found = "00000"
        except psycopg.Error as error:
            found = error.sqlstate or ""
    assert time.monotonic() - begun < ENDS_S, (statement[:100], found)
    return found


@pytest.mark.parametrize("form", READS.values(), ids=READS)
@pytest.mark.parametrize("at", VALID)
def test_a_read_of_the_far_future_waits(
    server: ServerProcess, sql: psycopg.Connection[Any], form: str, at: str
) -> None:
    sql.execute(f"SET statement_timeout = '{TIMEOUT}'".encode())
    with watched(server):
        found = outcome(sql, form.format(at))
    assert found in (("00000",) if "EXPLAIN" in form else ("57014", "00000") if "UP TO" in form else ("57014",))


@pytest.mark.parametrize("form", [*READS.values(), "SUBSCRIBE t UP TO {}"], ids=[*READS, "up to"])
def test_a_time_that_does_not_exist_is_refused(server: ServerProcess, sql: psycopg.Connection[Any], form: str) -> None:
    with watched(server):
        for at in INVALID:
            assert outcome(sql, form.format(at)) in REFUSED, at[:100]


@pytest.mark.parametrize("form", WRITES.values(), ids=WRITES)
def test_no_time_of_the_future_is_stored(
    server: ServerProcess, sql: psycopg.Connection[Any], form: str, tmp_path: Path
) -> None:
    with watched(server):
        for at in [*VALID, *INVALID]:
            assert outcome(sql, form.format(at).replace("PATH", str(tmp_path / "sink"))) in REFUSED, at[:100]


def test_many_waits_for_the_future_hold_nothing(server: ServerProcess, sql: psycopg.Connection[Any]) -> None:
    """They neither keep the history of the table, nor delay others, and can be cancelled."""

    def frontiers() -> dict[str, int]:
        return {row[0]: int(row[1]) for row in sql.execute("SELECT * FROM mz_internal.mz_frontiers").fetchall()}

    others = frontiers()
    sql.execute("CREATE TABLE free (a int); INSERT INTO free VALUES (1)")
    (id,) = frontiers().keys() - others.keys()

    def wait(_: threading.Event) -> None:
        with psycopg.connect(server.dsn, autocommit=True) as waiting, pytest.raises(errors.QueryCanceled):
            waiting.execute("SET statement_timeout = '40s'")
            waiting.execute(f"SUBSCRIBE free AS OF {TIMESTAMP_MAX - 1}".encode())

    with watched(server), meanwhile(*[wait] * 30):
        active = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SUBSCRIBE free%'"
        until(lambda: len(sql.execute(active.encode()).fetchall()) == 30)
        before = frontiers()[id]
        sql.execute("INSERT INTO free VALUES (2)")
        until(lambda: frontiers()[id] > before)
        for (pid,) in sql.execute(active.encode()).fetchall():
            sql.execute(f"SELECT pg_cancel_backend({pid})".encode())
    sql.execute("DROP TABLE free")
