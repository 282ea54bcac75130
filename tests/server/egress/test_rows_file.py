"""Sinks with ENVELOPE UPSERT and DEBEZIUM into files: each change once, also when the server is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from catalog.ids import Timestamp
from catalog.source_definition import Envelope
from server.coordinator.coordinator import Coordinator
from server.egress.file import rows_file
from server.egress.sinks import Sinks
from server.ingest.files import frontier_lines
from server.ingest.upstream import UpstreamError
from tests.kafka.sinks import replayed, until_written, upserted
from tests.server.egress.child import running, until_stalled, write
from tests.server.egress.histories import by_key, history, rows_of, upserts
from tests.server.egress.postgres.test_kills import killed_at_exit
from tests.server.egress.rows_file_child import FILES, define

UPSERT, DEBEZIUM = FILES
KILLS = 6


def read(path: Path) -> tuple[int, list[tuple[Any, Any]]]:
    """The last frontier of a file, and the keys and values before it. Later lines are not valid."""
    frontier, found, closed = 0, [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        message = json.loads(line)
        if "frontier" in message:
            ((frontier,), closed) = message["frontier"], len(found)
        else:
            found.append((message["key"], message["value"]))
    return frontier, found[:closed]


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[tuple[Coordinator, Sinks]]:
    coordinator, sinks = running(directory / "data")
    await coordinator.start()
    await define(coordinator, directory)
    sinks.start()
    try:
        yield coordinator, sinks
    finally:
        await sinks.close()
        await coordinator.close()


async def test_the_files_have_the_changes_of_rows(tmp_path: Path) -> None:
    async with started(tmp_path) as (coordinator, sinks):
        await write(coordinator, (1, "a", 1), (2, None, 1))
        await until_written(coordinator, sinks, UPSERT)
        await until_written(coordinator, sinks, DEBEZIUM)
        await write(coordinator, (1, "a", -1), (1, "b", 1), (2, None, -1))
        frontiers = [await until_written(coordinator, sinks, id) for id in FILES]
        written = sinks.running[UPSERT].written
        assert written.messages == 4
        assert 0 < written.bytes <= (tmp_path / "upsert").stat().st_size
    (first, found), (second, images) = (read(tmp_path / envelope) for envelope in FILES.values())
    assert [first >= frontiers[0], second >= frontiers[1]] == [True, True]
    assert by_key(found) == {
        '{"n": 1}': [{"n": 1, "v": "a"}, {"n": 1, "v": "b"}],
        '{"n": 2}': [{"n": 2, "v": None}, None],
    }
    assert replayed(images) == {(1, "b"): 1}


@pytest.mark.parametrize("block", [frontier_lines.READ_BYTES, 70])
async def test_what_is_after_the_last_frontier_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """The end is as after a crash. `block`: of the search for the last frontier."""
    monkeypatch.setattr(frontier_lines, "READ_BYTES", block)
    for number in range(4):
        for path in (tmp_path / envelope for envelope in FILES.values() if number):
            lost = [b'{"key":{"n":9},"value":null}\n', b'{"key":{"n":9},"value":"\\n{\\"frontier\\":[9]}"}\n' * 9]
            lost += [b'{"frontier":[99999999999999', b'x{"frontier":[99999999999999]}\n']
            with path.open("ab") as file:
                file.write(b"".join(lost[:number]) + lost[number])
        async with started(tmp_path) as (coordinator, sinks):
            await write(coordinator, (number, "a", 1))
            for id in FILES:
                await until_written(coordinator, sinks, id)
    for envelope in FILES.values():
        assert [key["n"] for key, _ in read(tmp_path / envelope)[1]] == [0, 1, 2, 3]


async def test_a_file_that_lost_changes_stalls_its_sink(tmp_path: Path) -> None:
    async with started(tmp_path) as (coordinator, sinks):
        await write(coordinator, (1, "a", 1))
        for id in FILES:
            await until_written(coordinator, sinks, id)
        await asyncio.sleep(1.1)  # the server commits the frontier at most once a second
        await write(coordinator, (2, "a", 1))
        for id in FILES:
            await until_written(coordinator, sinks, id)
    (tmp_path / "upsert").write_bytes((tmp_path / "upsert").read_bytes().splitlines(keepends=True)[0])
    (tmp_path / "debezium").unlink()
    async with started(tmp_path) as (coordinator, sinks):
        assert "has the frontier " in await until_stalled(coordinator, sinks, UPSERT)
        assert "does not exist" in await until_stalled(coordinator, sinks, DEBEZIUM)
    assert not (tmp_path / "debezium").exists()


async def test_one_server_at_a_time_writes_a_file(tmp_path: Path) -> None:
    """The other one has a copy of the data directory."""
    async with started(tmp_path) as (coordinator, sinks):
        await write(coordinator, (1, "a", 1))
        await until_written(coordinator, sinks, UPSERT)
        other = rows_file.RowsFile(sinks.running[UPSERT].definition, sinks.running[UPSERT].written)
        with pytest.raises(UpstreamError, match="another server writes to file"):
            await other.open(Timestamp(1))
        await other.close()


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(int(os.environ.get("TIDEWIRE_EXAMPLES", "1"))))
def test_each_change_is_in_the_files_once_although_the_server_is_killed(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    command = [sys.executable, "-m", "tests.server.egress.rows_file_child", str(tmp_path)]
    path = tmp_path / "debezium"
    for _ in range(KILLS):
        before, deadline = path.stat().st_size if path.exists() else 0, monotonic() + 30
        with killed_at_exit([*command, "1000000"]) as child:
            while not path.exists() or path.stat().st_size <= before:
                assert child.poll() is None
                assert monotonic() < deadline
                sleep(0.01)
            sleep(choice.random())
        check(tmp_path)
    subprocess.run([*command, "10"], check=True, timeout=60)
    assert len({time for _, _, time, _ in check(tmp_path)}) > 50


def check(directory: Path) -> list[tuple[Any, Any, int, int]]:
    """The files have the changes at times before their frontiers, once each. Returns all changes."""
    changes = asyncio.run(history(directory))
    for envelope in FILES.values():
        frontier, found = read(directory / envelope)
        closed = [change for change in changes if change[2] < frontier]
        assert len(found) == len(upserts(closed))
        if envelope is Envelope.UPSERT:
            assert by_key(found) == by_key(upserts(closed))
            rows = {n: v for n, v, _ in rows_of(closed)}
            assert {value["n"]: value["v"] for value in upserted(found).values()} == rows
        else:
            assert replayed(found) == {(n, v): count for n, v, count in rows_of(closed)}
    return changes
