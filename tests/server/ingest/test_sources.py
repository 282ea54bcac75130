"""Sources of the catalog are read exactly once: over kills, restarts, and changes of what they fill."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from time import sleep

import fastavro
import pytest

from catalog import source_state
from catalog.drops import without_item
from catalog.ids import ObjectId
from catalog.objects.sources import Subsource
from catalog.store import FILE
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.avro_form import schema_text
from protocol.pgwire.types import parse_type
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.ingest.sources import Sources
from tests.server.ingest.child import opened
from tests.server.ingest.source_child import define, items
from tests.server.slow_engine import PassingEngine

KILLS = 4
COUNTER, KEYS, AUCTION, ORGANIZATIONS, BIDS = (ObjectId(f"u{n}") for n in range(10, 15))


async def rows(coordinator: Coordinator, id: ObjectId) -> list[tuple[object, ...]]:
    found = await coordinator.reads.rows(id, coordinator.latest_time())
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


async def until(coordinator: Coordinator, condition: Callable[[], bool]) -> None:
    """Waits for a condition. The frontier moves with each commit, and every few milliseconds without one."""
    while not condition():
        await coordinator.frontiers.moved.wait()


def ticks(directory: Path) -> int:
    """The sum of the committed ticks, 0 if there are none."""
    try:
        with closing(sqlite3.connect(f"file:{directory / FILE}?mode=ro", uri=True)) as connection:
            query = "SELECT sum(CAST(value AS INTEGER)) FROM source_state WHERE key <> 'start'"
            ((total,),) = connection.execute(query).fetchall()
            return total or 0
    except sqlite3.OperationalError:
        return 0


@pytest.mark.crash
def test_counts_are_exact_although_the_server_is_killed(tmp_path: Path) -> None:
    count = 20_000
    command = [sys.executable, "-m", "tests.server.ingest.source_child", str(tmp_path), str(count)]
    reached = 0
    for _ in range(KILLS):
        with subprocess.Popen(command) as child:
            while child.poll() is None and ticks(tmp_path) < reached + count // (KILLS + 1):
                sleep(0.002)
            child.kill()
        reached = ticks(tmp_path)
    assert reached < 4 * count, "it was finished before the last kill"
    subprocess.run(command, check=True, timeout=120)

    async def check() -> None:
        coordinator = opened(tmp_path)
        await coordinator.start()
        assert await rows(coordinator, COUNTER) == [(n,) for n in range(1, count + 1)]
        assert len(await rows(coordinator, ORGANIZATIONS)) == 100
        assert [key for _, key, _ in await rows(coordinator, KEYS)] == list(range(13))
        bids = [row[0] for row in await rows(coordinator, BIDS)]
        assert bids == list(range(1, count - -(-count // 11) + 1))
        await coordinator.close()

    asyncio.run(check())


def file_of(lines: list[str], encoding: str) -> bytes:
    """Messages of JSON as a file."""
    if encoding == "json":
        return "".join(f"{line}\n" for line in lines).encode()
    schema = fastavro.parse_schema(json.loads(schema_text([EncodedColumn("n", parse_type("int8"), False)])))
    messages = [next(iter(message.values())) for message in map(json.loads, lines)]
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, messages, codec="deflate", sync_interval=100)
    return buffer.getvalue()


@pytest.mark.crash
@pytest.mark.parametrize("encoding", ["json", pytest.param("avro", marks=pytest.mark.long)])
def test_histories_are_exact_although_the_server_is_killed(tmp_path: Path, encoding: str) -> None:
    """Each of 20 files has all messages of some times, twice, in random order; files are read in any order of times."""
    random, times, rows_per_time = Random(1), 400, 50
    lines: list[str] = []
    for time in range(times):
        numbers = range(time * rows_per_time, (time + 1) * rows_per_time)
        updates = [f'{{"data": {{"n": {n}}}, "time": {time}, "diff": 1}}' for n in numbers]
        gone = [n - rows_per_time for n in numbers[::7] if time]
        updates += [f'{{"data": {{"n": {n}}}, "time": {time}, "diff": -1}}' for n in gone]
        upper = [time + 1] if time + 1 < times else []
        counts = [{"time": time, "count": len(updates)}]
        progress = json.dumps({"com.materialize.cdc.progress": {"lower": [time], "upper": upper, "counts": counts}})
        lines += 2 * [*(f'{{"array": [{update}]}}' for update in updates), progress]
    shuffled = sorted(range(len(lines)), key=lambda place: place + random.randrange(4_000))
    (tmp_path / "files").mkdir()
    for number in range(20):
        part = shuffled[number * len(lines) // 20 : (number + 1) * len(lines) // 20]
        file = tmp_path / f"files/{(number * 7) % 20:02}.{encoding}"
        file.write_bytes(file_of([lines[place] for place in part], encoding))
    arguments = [str(tmp_path / "data"), f"{tmp_path}/files/*", encoding]
    command = [sys.executable, "-m", "tests.server.ingest.changes_child", *arguments]
    kills = 0
    for _ in range(KILLS):
        begun = frontier(tmp_path / "data")
        with subprocess.Popen(command) as child:
            while child.poll() is None and frontier(tmp_path / "data") == begun:
                sleep(0.002)
            kills += child.poll() is None
            child.kill()
    assert kills
    subprocess.run(command, check=True, timeout=120)

    async def check() -> None:
        coordinator = opened(tmp_path / "data")
        await coordinator.start()
        found = [n for (n,) in await rows(coordinator, ObjectId("u10"))]
        last = (times - 1) * rows_per_time
        assert found == [n for n in range(times * rows_per_time) if n >= last or n % rows_per_time % 7]
        await coordinator.close()

    asyncio.run(check())


def frontier(directory: Path) -> int:
    """The committed upstream frontier, 0 if there is none."""
    try:
        with closing(sqlite3.connect(f"file:{directory / FILE}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT CAST(value AS TEXT) FROM source_state WHERE key = 'frontier'").fetchall()
            return int(found[0][0]) if found else 0
    except sqlite3.OperationalError:
        return 0


async def test_counts_are_exact_although_the_collections_change(tmp_path: Path) -> None:
    """Each change replaces the ingestion, at any point of its commits."""
    coordinator = opened(tmp_path)
    await coordinator.start()
    created = items(10**9)
    await define(coordinator, created)
    sources = Sources(coordinator, PassingEngine())
    sources.start()
    for number in range(20):
        before = coordinator.state
        part = Subsource(
            ObjectId(f"u{100 + number}"),
            created[3].schema_id,
            f"part{number}",
            created[3].columns,  # type: ignore[attr-defined]
            "organizations",
            source=AUCTION,
        )
        after = replace(before.with_item(part), version=before.version + 1)
        await coordinator.commit(Request(catalog=(before, after)))
        await until(coordinator, lambda n=number: sources.running[AUCTION].rows > n * 100)  # type: ignore[misc]
    await until(coordinator, lambda: f"u{119}" in source_state.load(coordinator.store, AUCTION))
    await sources.close()
    bids = [row[0] for row in await rows(coordinator, BIDS)]
    assert bids == list(range(1, len(bids) + 1))
    assert bids
    for id in (ORGANIZATIONS, *(ObjectId(f"u{100 + number}") for number in range(20))):
        assert [row[0] for row in await rows(coordinator, id)] == list(range(1, 101))
    await coordinator.close()


async def test_a_dropped_source_is_no_longer_read(tmp_path: Path) -> None:
    coordinator = opened(tmp_path)
    await coordinator.start()
    await define(coordinator, items(10**9))
    sources = Sources(coordinator, PassingEngine())
    sources.start()
    await until(coordinator, lambda: sources.running[AUCTION].rows > 0)
    before = coordinator.state
    after = replace(without_item(before, AUCTION), version=before.version + 1)
    assert {ORGANIZATIONS, BIDS}.isdisjoint(after.items)
    await coordinator.commit(Request(catalog=(before, after)))
    await until(coordinator, lambda: AUCTION not in sources.running)
    assert source_state.load(coordinator.store, AUCTION) == {}
    assert sources.running.keys() == {COUNTER, KEYS}
    await sources.close()
    assert not sources.running
    await coordinator.close()
