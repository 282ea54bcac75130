"""kill -9 of the server and of PostgreSQL while sinks write.

At any moment, each table has the rows of the collection as of its frontier, and in the end the latest ones.
TIDEWIRE_EXAMPLES=<factor> multiplies the number of seeds, of which TIDEWIRE_SEED=<number> is the first.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest

from catalog.ids import Timestamp
from tests.examples import seeds
from tests.fix_postgres import PostgresServer
from tests.server.egress.child import running
from tests.server.egress.postgres.child import SINKS, TABLE

pytestmark = pytest.mark.crash

Rows = list[tuple[Any, ...]]


@pytest.fixture
def target() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.stop()


def seen(dsn: str) -> dict[str, tuple[int, Rows]]:
    """The frontier and the rows of each table that a sink has begun, read at one moment each."""
    found = {}
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        exists = connection.execute("SELECT to_regclass('tidewire.sinks') IS NOT NULL").fetchone()
        for name in SINKS.values() if exists == (True,) else ():
            row = connection.execute("SELECT frontier FROM tidewire.sinks WHERE id = %s", (name,)).fetchone()
            if row is not None:
                rows = connection.execute(f"SELECT n, v FROM {name}".encode()).fetchall()
                found[name] = (row[0], sorted(rows, key=repr))
            connection.rollback()
    return found


@contextmanager
def killed_at_exit(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end, also by an error, for which Popen alone would wait for its end."""
    with subprocess.Popen(command) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("seed", seeds(2))
def test_the_tables_equal_the_collection_as_of_their_frontiers(
    tmp_path: Path, target: PostgresServer, seed: int
) -> None:
    choice = random.Random(seed)
    command = [sys.executable, "-m", "tests.server.egress.postgres.child", str(tmp_path), str(target.port)]
    states: dict[tuple[str, int], Rows] = {}
    killed = {"server": 0, "postgres": 0}
    for victim in ("server", "postgres", "server", "postgres", "server"):
        with killed_at_exit([*command, "1000000"]) as child:
            before = {name: frontier for name, (frontier, _) in seen(target.dsn).items()}
            advanced: set[str] = set()
            end = monotonic() + choice.random()
            while len(advanced) < len(SINKS) or monotonic() < end:
                assert child.poll() is None
                for name, (frontier, rows) in seen(target.dsn).items():
                    assert states.setdefault((name, frontier), rows) == rows, (name, frontier)
                    if frontier > before.get(name, 0):
                        advanced.add(name)
                sleep(0.01)
            killed[victim] += 1
            if victim == "postgres":
                target.kill()
                target.start()
                again = {name: frontier for name, (frontier, _) in seen(target.dsn).items()}
                while any(frontier <= again[name] for name, (frontier, _) in seen(target.dsn).items()):
                    assert child.poll() is None
                    sleep(0.01)
    subprocess.run([*command, "10"], check=True, timeout=120)
    last = seen(target.dsn)

    async def check() -> None:
        coordinator, _ = running(tmp_path / "data")
        await coordinator.start()

        async def rows_at(time: Timestamp) -> Rows:
            found = await coordinator.reads.rows(TABLE.id, time)
            return sorted(zip(found["c0"].to_pylist(), found["c1"].to_pylist(), strict=True), key=repr)

        for (name, frontier), rows in states.items():
            assert rows == await rows_at(Timestamp(frontier - 1)), (name, frontier)
        latest = await rows_at(coordinator.latest_time())
        assert [rows for _, rows in last.values()] == [latest, latest]
        await coordinator.close()

    asyncio.run(check())
    assert len({frontier for _, frontier in states}) >= 10
    assert killed == {"server": 3, "postgres": 2}
