"""Targets of sinks that accept a connection and then block: the sink says so, and can be dropped at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from server.egress import sink_task
from tests.attacks.liar import Liar
from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.polling import until
from tests.server.slow_engine import PassingEngine

pytestmark = pytest.mark.attacks

PROMPT_S = 5.0
"""For DROP SINK and the end of the server, on a machine that others use."""


@pytest.fixture
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    monkeypatch.setattr(sink_task, "PATIENCE_S", 0.2)
    server = ServerThread(tmp_path, PassingEngine(), interval_s=0.02)
    yield server
    server.stop()


@pytest.fixture
def target(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of the PostgreSQL, with an empty table `t`."""
    with own_schema(postgres, "blocked") as session:
        session.execute("CREATE TABLE t (a int)")
        yield session
        session.execute("DROP SCHEMA tidewire CASCADE")


@pytest.fixture
def liar(target: psycopg.Connection[Any]) -> Iterator[Liar]:
    liar = Liar(target.info.port)
    yield liar
    liar.close()


@pytest.fixture
def sql(own_server: ServerThread, target: psycopg.Connection[Any], liar: Liar) -> Iterator[psycopg.Connection[Any]]:
    """A session of the server, with a sink that has written one row."""
    with psycopg.connect(own_server.dsn(), autocommit=True) as sql:
        address = f"HOST '127.0.0.1', PORT {liar.port}, USER postgres, DATABASE '{target.info.dbname}'"
        sql.execute(f"CREATE CONNECTION c TO POSTGRES ({address})".encode())
        sql.execute("CREATE TABLE t (a int)")
        sql.execute("INSERT INTO t VALUES (1)")
        sql.execute("CREATE SINK s FROM t INTO POSTGRES CONNECTION c TABLE blocked.t")
        until(lambda: target.execute("SELECT * FROM t").fetchall() == [(1,)])
        until(lambda: status(sql) == ("running", None))
        yield sql


def status(sql: psycopg.Connection[Any]) -> tuple[str, str | None]:
    (row,) = sql.execute("SELECT * FROM mz_internal.mz_sink_statuses").fetchall()  # without Spark: no expressions
    return row[3], row[4]


BLOCKED = ("stalled", "the external system has not answered for 0 s")


def test_a_write_that_waits_for_a_lock_is_reported(
    sql: psycopg.Connection[Any], target: psycopg.Connection[Any]
) -> None:
    with target.transaction():
        target.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        sql.execute("INSERT INTO t VALUES (2)")
        until(lambda: status(sql) == BLOCKED)
    until(lambda: status(sql) == ("running", None))
    assert target.execute("SELECT * FROM t ORDER BY a").fetchall() == [(1,), (2,)]


def test_a_dropped_sink_leaves_no_session_that_waits_for_a_lock(
    sql: psycopg.Connection[Any], target: psycopg.Connection[Any]
) -> None:
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidewire'"
    with target.transaction():
        target.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        sql.execute("INSERT INTO t VALUES (2)")
        until(lambda: status(sql) == BLOCKED)
        begun = time.monotonic()
        sql.execute("DROP SINK s")
        assert time.monotonic() - begun < PROMPT_S
        until(lambda: target.execute("SELECT * FROM tidewire.sinks").fetchall() == [])
        with psycopg.connect(target.info.dsn, autocommit=True) as other:  # statistics do not change in a transaction
            until(lambda: other.execute(sessions.encode()).fetchall() == [(0,)])
        assert time.monotonic() - begun < PROMPT_S
    assert target.execute("SELECT * FROM t").fetchall() == [(1,)]


def test_a_target_that_does_not_answer(sql: psycopg.Connection[Any], liar: Liar, own_server: ServerThread) -> None:
    liar.hears_commands = False
    sql.execute("INSERT INTO t VALUES (2)")
    until(lambda: status(sql) == BLOCKED)
    begun = time.monotonic()
    own_server.stop()
    assert time.monotonic() - begun < PROMPT_S
