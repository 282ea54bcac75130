"""`tidewire top` shows what the system tables contain."""

from __future__ import annotations

import asyncio
import io
from datetime import timedelta

import asyncpg
import psycopg
import pytest
from rich.console import Console

from server.top.reading import Reading, read
from server.top.screen import screen
from server.top.top import Unreachable, show, show_once
from tests.fix_server import ServerThread


def printed(before: Reading | None, now: Reading) -> str:
    console = Console(width=140, file=io.StringIO(), force_terminal=False)
    console.print(screen("here:1/db", before, now))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def reading(taken_s: float, steps: int, **tables: list[dict[str, object]]) -> Reading:
    names = (
        "arrangements",
        "holds",
        "held",
        "sources",
        "source_counts",
        "sinks",
        "sink_counts",
        "sessions",
        "activity",
    )
    dataflow = {
        "id": "d1",
        "object_id": "u2",
        "steps": steps,
        "mean_step_ms": 3.2,
        "error": None,
        "write_frontier": 5_000,
    }
    return Reading(
        taken_s,
        {
            **{name: [] for name in (*names, "subscriptions", "hydrations")},
            "objects": [
                {"id": "u1", "name": "t", "type": "table"},
                {"id": "u2", "name": "v", "type": "materialized-view"},
            ],
            "frontiers": [
                {"object_id": "u1", "read_frontier": 4_000, "write_frontier": 6_500},
                {"object_id": "u2", "read_frontier": 4_000, "write_frontier": 5_000},
            ],
            "dataflows": [dataflow],
            "lags": [{"dataflow_id": "d1", "commits": 3}],
            **tables,
        },
    )


def test_objects_have_their_lag_and_the_rates_between_two_readings() -> None:
    lines = printed(reading(10.0, 100), reading(12.0, 350)).splitlines()
    assert lines[0] == "here:1/db  0 sessions, 0 subscriptions, 1 dataflows"
    (view,) = [line.split("  ") for line in lines if line.startswith("v ")]
    cells = [cell.strip() for cell in view if cell.strip()]
    assert cells == ["v", "materialized-view", "1.5 s", "1.0 s", "3 commits", "125", "3 ms", "0 B"]


def test_holds_sources_and_sinks_have_their_status() -> None:
    text = printed(
        None,
        reading(
            1.0,
            1,
            holds=[{"id": "u9", "name": "h", "at": 2_000, "max_lag": timedelta(hours=3), "status": "ok"}],
            held=[{"hold_id": "u9", "on_id": "u1"}],
            sources=[{"id": "u5", "name": "s", "type": "kafka", "status": "stalled", "error": "broker down"}],
        ),
    )
    (hold,) = [line.split() for line in text.splitlines() if line.startswith("h ")]
    assert hold[:5] == ["h", "t", "4.5", "s", "3.0"]
    assert "kafka source" in text
    assert "stalled: broker down" in text


def test_sessions_show_their_statements() -> None:
    session = {"id": "s", "connection_id": 7}
    activity = {"pid": 7, "usename": "ann", "application_name": "", "client_addr": None, "state": "active"}
    now = reading(1.0, 1, sessions=[session], activity=[{**activity, "query": "SELECT *\n  FROM t"}])
    (line,) = [line.split() for line in printed(None, now).splitlines() if line.strip().startswith("7 ")]
    assert line == ["7", "ann", "-", "-", "active", "-", *["SELECT", "*", "FROM", "t"]]


def test_names_have_neither_markup_nor_control_characters() -> None:
    objects = [{"id": "u1", "name": "[bold]\x1b[2Jt", "type": "table"}, {"id": "u2", "name": "v", "type": "view"}]
    assert "[bold]\ufffd[2Jt" in printed(None, reading(1.0, 1, objects=objects))


def test_the_tables_of_a_server_are_shown(server: ServerThread, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE readings_{'x' * 50} (a int)")
        connection.execute(f"CREATE HOLD mine_{'y' * 50} ON readings_{'x' * 50}")
        console = Console(width=80, file=io.StringIO())
        asyncio.run(show_once(dsn, console))
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
    assert f"readings_{'x' * 50}" in text
    assert f"mine_{'y' * 50}" in text
    assert "materialize" in text


def test_tables_that_the_role_may_not_read_are_named(server: ServerThread, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as boss:
        boss.execute("CREATE USER watcher")

        async def watched() -> Reading:
            connection = await asyncpg.connect(dsn, user="watcher")
            try:
                return await read(connection)
            finally:
                await connection.close()

        try:
            now = asyncio.run(watched())
        finally:
            boss.execute("DROP ROLE watcher")
    assert "mz_internal.mz_arrangements" in now.hidden
    assert "only superusers" in printed(None, now)


def test_a_server_that_cannot_be_reached_is_reported() -> None:
    with pytest.raises(Unreachable, match="could not connect"):
        asyncio.run(show("postgres://x@127.0.0.1:1/x", 1.0, Console(file=io.StringIO())))
