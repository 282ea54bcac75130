"""Sinks into files: the file has the history of the collection, over restarts and kills."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from catalog.objects import ObjectId
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.json_form import JsonDecoder
from protocol.cdcv2.reader import Reader
from protocol.pgwire.errors import PgError
from protocol.pgwire.types import parse_type
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.egress import sink_task
from server.egress.file.changes_file import ChangesFile
from server.egress.file.kind import FileSink
from server.egress.file.output import FileOutput
from server.egress.sink_task import SinkStatus, SinkTask
from server.egress.sinks import Sinks
from tests.server.egress.child import TABLE, define, running, sink_of, write

KILLS = 4
SINK = ObjectId("u11")


def read_back(path: Path) -> tuple[int, list[tuple[Any, ...]]]:
    """The frontier that the file says, and the updates before it: columns, time, diff."""
    decoder = JsonDecoder([EncodedColumn(c.name, parse_type(c.type)) for c in TABLE.columns])
    found = decoder.decode(pa.array(path.read_bytes().splitlines(), pa.binary()))
    assert not found.failed.any()
    reader = Reader(decoder.schema)
    batch = reader.receive(found.updates, found.statements)
    assert reader.open_updates == 0
    assert batch is not None
    return batch.frontier, [tuple(row.values()) for row in batch.updates.to_pylist()]


async def until_written(coordinator: Coordinator, sinks: Sinks) -> int:
    """Waits until the sink has written everything that is committed. Returns its frontier."""
    time = coordinator.latest_time()
    while (frontier := sinks.running[SINK].frontier or 0) <= time:
        await coordinator.frontiers.moved.wait()
    return frontier


async def test_a_file_has_the_snapshot_and_each_change_at_its_time(tmp_path: Path) -> None:
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    sinks.start()
    await define(coordinator, TABLE)
    await write(coordinator, (1, "a", 2), (2, None, 1))
    await define(coordinator, sink_of(tmp_path / "f"))
    await until_written(coordinator, sinks)
    await write(coordinator, (1, "a", -1), (3, 'quote"\n', 1))
    changed = coordinator.log.times(TABLE.id, 0, 2**62)[-1]
    frontier = await until_written(coordinator, sinks)
    found_frontier, found = read_back(tmp_path / "f")
    as_of = found[0][2]
    assert sorted(found, key=repr) == sorted(
        [(1, "a", as_of, 2), (2, None, as_of, 1), (1, "a", changed, -1), (3, 'quote"\n', changed, 1)], key=repr
    )
    assert as_of < changed < frontier <= found_frontier
    task = sinks.running[SINK]
    assert (task.status, task.error, task.written.updates) == (SinkStatus.RUNNING, None, 4)
    await sinks.close()
    await coordinator.close()


async def test_a_file_without_snapshot_has_the_changes_alone(tmp_path: Path) -> None:
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    sinks.start()
    await define(coordinator, TABLE)
    await write(coordinator, (1, "a", 2))
    await define(coordinator, sink_of(tmp_path / "f", with_snapshot=False))
    await until_written(coordinator, sinks)
    await write(coordinator, (2, "b", 1))
    await until_written(coordinator, sinks)
    assert [(n, v, diff) for n, v, _, diff in read_back(tmp_path / "f")[1]] == [(2, "b", 1)]
    await sinks.close()
    await coordinator.close()


async def test_a_sink_holds_the_history_that_it_has_not_written(tmp_path: Path) -> None:
    """Without RETAIN HISTORY, and although the sink cannot write for a while, over a restart."""
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    sinks.start()
    await define(coordinator, TABLE, sink_of(tmp_path / "f"))
    frontier = await until_written(coordinator, sinks)
    await sinks.close()
    times = []
    for number in range(3):
        await write(coordinator, (number, "x", 1))
        times.append(coordinator.log.times(TABLE.id, 0, 2**62)[-1])
    await coordinator.close()
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    held = coordinator.frontiers.since(TABLE.id)
    assert held <= frontier + 10**3
    assert held < times[0]
    sinks.start()
    assert sinks.running[SINK].held_at < times[0]
    await until_written(coordinator, sinks)
    assert [time for _, _, time, _ in read_back(tmp_path / "f")[1]] == times
    assert coordinator.frontiers.since(TABLE.id) > times[-1]
    await sinks.close()
    await coordinator.close()


async def test_a_missing_file_stalls_its_sink_and_a_dropped_sink_ends(tmp_path: Path) -> None:
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    await define(coordinator, TABLE, sink_of(tmp_path / "f"))
    sinks.start()
    await until_written(coordinator, sinks)
    await sinks.close()
    (tmp_path / "f").unlink()
    sinks = Sinks(coordinator)
    sinks.hold()
    sinks.start()
    while sinks.running[SINK].status is not SinkStatus.STALLED:
        await coordinator.frontiers.moved.wait()
    assert sinks.running[SINK].error == f'file "{tmp_path}/f" of a sink does not exist'
    before = coordinator.state
    after = replace(before.without_item(SINK), version=before.version + 1)
    await coordinator.commit(Request(catalog=(before, after)))
    while SINK in sinks.running:
        await coordinator.frontiers.moved.wait()
    await sinks.close()
    await coordinator.close()


async def test_a_sink_continues_after_an_unexpected_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_task, "RETRY_S", 0.01)
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    await define(coordinator, TABLE, sink_of(tmp_path / "f"))
    sinks.start()
    await until_written(coordinator, sinks)
    sync, failures = ChangesFile.sync, iter((RuntimeError("a fault"),))
    seen: list[tuple[SinkStatus, str | None]] = []

    def fails_once(file: ChangesFile) -> None:
        for failure in failures:
            raise failure
        sync(file)

    monkeypatch.setattr(ChangesFile, "sync", fails_once)
    monkeypatch.setattr(SinkTask, "_report", lambda task, *status: seen.append(status))
    await write(coordinator, (1, "a", 1))
    changed = coordinator.log.times(TABLE.id, 0, 2**62)[-1]
    await until_written(coordinator, sinks)
    assert seen == [(SinkStatus.STALLED, "internal error: a fault"), (SinkStatus.RUNNING, None)]
    assert read_back(tmp_path / "f")[1] == [(1, "a", changed, 1)]
    await sinks.close()
    await coordinator.close()


def test_an_incomplete_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for content, kept in ((b"", b""), (b"torn", b""), (b"a\nb\n", b"a\nb\n"), (b"a\n" + b"x" * 200_000, b"a\n")):
        path.write_bytes(content)
        file = ChangesFile(path)
        file.open(is_new=False)
        file.append([b"new"])
        file.sync()
        file.close()
        assert path.read_bytes() == kept + b"new\n"
    path.unlink()
    with pytest.raises(PgError, match="does not exist"):
        ChangesFile(path).open(is_new=False)


@pytest.mark.crash
def test_nothing_is_omitted_although_the_server_is_killed(tmp_path: Path) -> None:
    count, path = 1_500, tmp_path / "changes.json"
    command = [sys.executable, "-m", "tests.server.egress.child", str(tmp_path), str(count)]
    kills = 0
    for number in range(KILLS):
        with subprocess.Popen(command) as child:
            while child.poll() is None and lines(path) < (number + 1) * 200:
                sleep(0.002)
            kills += child.poll() is None
            child.kill()
    assert kills
    subprocess.run(command, check=True, timeout=120)
    _, found = read_back(path)
    assert sorted((n, v, diff) for n, v, _, diff in found) == [(n, "x" * (n % 50), 1) for n in range(count)]

    async def check() -> None:
        coordinator, _ = running(tmp_path / "data")
        await coordinator.start()
        rows = await coordinator.reads.rows(TABLE.id, coordinator.latest_time())
        assert rows.num_rows == count
        await coordinator.close()

    asyncio.run(check())


async def test_a_later_change_of_the_catalog_does_not_interrupt_the_close_of_a_dropped_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, may_close, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    close = FileOutput.close

    async def slow(self: FileOutput) -> None:
        closing.set()
        await may_close.wait()
        await close(self)
        closed.set()

    monkeypatch.setattr(FileOutput, "close", slow)
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    sinks.start()
    await define(coordinator, TABLE, sink_of(tmp_path / "f"))
    await until_written(coordinator, sinks)
    before = coordinator.state
    after = replace(before.without_item(SINK), version=before.version + 1)
    await coordinator.commit(Request(catalog=(before, after)))
    await asyncio.wait_for(closing.wait(), 10)
    await define(coordinator, replace(TABLE, id=ObjectId("u12"), name="other"))
    may_close.set()
    await asyncio.wait_for(closed.wait(), 10)
    await sinks.close()
    await coordinator.close()


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize(
    ("error", "logged"), [(ConnectionRefusedError("refused"), "refused"), (TimeoutError(), "timeout")]
)
async def test_a_system_that_cannot_be_reached_when_a_sink_is_dropped_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, logged: str
) -> None:
    async def dropped(_: FileSink, definition: object) -> None:
        raise error

    monkeypatch.setattr(FileSink, "dropped", dropped)
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    sinks.start()
    await define(coordinator, TABLE)
    await define(coordinator, sink_of(tmp_path / "f"))
    await until_written(coordinator, sinks)
    before = coordinator.state
    with capture_logs() as logs:
        await coordinator.commit(Request(catalog=(before, before.without_item(SINK, cascade=False))))
        while not any(entry["event"] == "dropped sink not cleaned up" for entry in logs):
            assert not any("failed" in entry["event"] for entry in logs), logs
            await asyncio.sleep(0.01)
    (entry,) = (entry for entry in logs if entry["event"] == "dropped sink not cleaned up")
    assert entry["error"] == logged
    await sinks.close()
    await coordinator.close()
