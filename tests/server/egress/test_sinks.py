"""Sinks into files: the file has the history of the collection, over restarts and kills."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from catalog.drops import without_item
from catalog.ids import ObjectId, Timestamp
from protocol.avro.container import parse_header
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.avro_form import AvroEncoder, schema_text
from protocol.cdcv2.json_form import JsonDecoder
from protocol.cdcv2.messages import Progress
from protocol.cdcv2.reader import Reader
from protocol.pgwire.errors import PgError
from protocol.pgwire.types import parse_type
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.egress import sink_task
from server.egress import sinks as sinks_module
from server.egress.file import changes_file
from server.egress.file.changes_file import ChangesFile, Container, Lines
from server.egress.file.kind import FileSink
from server.egress.file.output import FileOutput, avro_schema
from server.egress.sink_task import SinkStatus, SinkTask
from server.egress.sinks import Sinks
from server.ingest.upstream import UpstreamError
from tests.polling import HANG_S
from tests.server.egress.child import TABLE, define, running, sink_of, until_stalled, write

KILLS = 4
SINK = ObjectId("u11")


def decoded(path: Path) -> tuple[pa.Schema, pa.Table, Sequence[Progress]]:
    """The schema of the updates, the updates and the progress statements of a file. Avro is read with fastavro."""
    columns = [EncodedColumn(c.name, parse_type(c.type)) for c in TABLE.columns]
    json_decoder = JsonDecoder(columns)
    if path.suffix == ".avro":
        messages = list(fastavro.reader(io.BytesIO(path.read_bytes())))
        lines = [dump({"array" if isinstance(m, list) else "com.materialize.cdc.progress": m}) for m in messages]
    else:
        lines = path.read_bytes().splitlines()
    found = json_decoder.decode(pa.array(lines, pa.binary()))
    assert not found.failed.any()
    return json_decoder.schema, found.updates, found.statements


def dump(value: object) -> bytes:
    return json.dumps(value).encode()


def read_back(path: Path) -> tuple[int, list[tuple[Any, ...]]]:
    """The frontier that the file says, and the updates before it: columns, time, diff."""
    schema, updates, statements = decoded(path)
    reader = Reader(schema)
    batch = reader.receive(updates, statements)
    assert reader.open_updates == 0
    assert batch is not None
    return batch.frontier, [tuple(row.values()) for row in batch.updates.to_pylist()]


async def until_written(coordinator: Coordinator, sinks: Sinks) -> int:
    """Waits until the sink has written everything that is committed. Returns its frontier."""
    time = coordinator.latest_time()
    while (frontier := sinks.running[SINK].frontier or 0) <= time:
        await coordinator.frontiers.moved.wait()
    return frontier


@pytest.mark.parametrize("name", ["f", "f.avro"])
async def test_a_file_has_the_snapshot_and_each_change_at_its_time(tmp_path: Path, name: str) -> None:
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    sinks.start()
    await define(coordinator, TABLE)
    await write(coordinator, (1, "a", 2), (2, None, 1))
    await define(coordinator, sink_of(tmp_path / name))
    await until_written(coordinator, sinks)
    await write(coordinator, (1, "a", -1), (3, 'quote"\n', 1))
    changed = coordinator.log.times(TABLE.id, 0, 2**62)[-1]
    frontier = await until_written(coordinator, sinks)
    found_frontier, found = read_back(tmp_path / name)
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
    assert sinks.running[SINK].hint is not None
    before = coordinator.state
    after = replace(without_item(before, SINK), version=before.version + 1)
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
        file = Lines(path)
        file.open(is_new=False)
        file.append([b"new"])
        file.sync()
        file.close()
        assert path.read_bytes() == kept + b"new\n"
    path.unlink()
    with pytest.raises(PgError, match="does not exist"):
        Lines(path).open(is_new=False)


SCHEMA = schema_text([EncodedColumn("n", parse_type("int8"))])
MESSAGES = AvroEncoder([EncodedColumn("n", parse_type("int8"))])


def message(number: int) -> bytes:
    return MESSAGES.progress(Progress.of([number], [number + 1], []))


def lowers(path: Path) -> list[int]:
    """The numbers of the messages of a file, as fastavro reads it."""
    return [each["lower"][0] for each in fastavro.reader(io.BytesIO(path.read_bytes()))]


def append(path: Path, *numbers: int, is_new: bool) -> None:
    """Opens a container, appends a block of messages, and closes it."""
    file = Container(path, SCHEMA)
    try:
        file.open(is_new=is_new)
        assert file.append(map(message, numbers))[0] == len(numbers)
        file.sync()
    finally:
        file.close()


def create(path: Path, schema: str = SCHEMA) -> None:
    """Creates a container without messages."""
    file = Container(path, schema)
    file.open(is_new=True)
    file.close()


def test_a_container_continues_after_any_incomplete_block(tmp_path: Path) -> None:
    path = tmp_path / "f"
    append(path, 0, 1, is_new=True)
    append(path, 2, is_new=False)
    begin = path.stat().st_size
    append(path, 3, 4, is_new=False)
    content = path.read_bytes()
    for end in range(begin, len(content)):
        path.write_bytes(content[:end])
        append(path, 5, is_new=False)
        assert lowers(path) == [0, 1, 2, 5]
    torn = content[: begin + 3]
    for tail in (b"\0" * 100, b"\xff" * 30):  # what a crash of the machine may leave
        path.write_bytes(torn + tail)
        append(path, 5, is_new=False)
        assert lowers(path) == [0, 1, 2, 5]


def test_a_container_continues_after_an_incomplete_header(tmp_path: Path) -> None:
    path = tmp_path / "f"
    create(path)
    content = path.read_bytes()
    for begin in (*(content[:end] for end in range(0, len(content), 7)), b"\0" * 50, content):
        path.write_bytes(begin)
        append(path, 7, is_new=True)
        assert lowers(path) == [7]
    path.write_bytes(content[:-1])
    with pytest.raises(PgError, match="is damaged at byte 0: the header is missing"):
        append(path, 7, is_new=False)


def test_a_container_that_is_no_longer_that_of_the_sink_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "f"
    append(path, 1, is_new=True)
    append(path, 2, is_new=False)
    content = path.read_bytes()
    at = content.rindex(content[-16:], 0, -16)
    path.write_bytes(content[:at] + b"\0" + content[at + 1 :])
    with pytest.raises(PgError, match="the block is invalid, and others follow it"):
        append(path, 3, is_new=False)
    assert len(path.read_bytes()) == len(content)
    other = tmp_path / "other"
    create(other, schema_text([EncodedColumn("n", parse_type("text"))]))
    with pytest.raises(PgError, match="has another schema than the messages"):
        append(other, 3, is_new=False)
    other.write_text("n,v\n")
    with pytest.raises(PgError, match="does not begin as an Avro container file"):
        append(other, 3, is_new=True)
    with pytest.raises(PgError, match="does not exist"):
        append(tmp_path / "missing", 3, is_new=False)


def test_messages_share_blocks_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    append(path, *range(50_000), is_new=True)
    blocks = list(fastavro.block_reader(io.BytesIO(path.read_bytes())))
    assert sum(block.num_records for block in blocks) == 50_000
    assert 2 <= len(blocks) <= 10
    monkeypatch.setattr(changes_file, "BLOCK_BYTES_MAX", 1)
    with pytest.raises(PgError, match="is too long for an Avro file"):
        append(path, 1, is_new=False)


def test_a_large_block_is_found_when_a_container_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    append(path, *range(100), is_new=True)
    append(path, 100, is_new=False)
    monkeypatch.setattr(changes_file, "WRITE_BYTES", 50)
    append(path, 101, is_new=False)
    with path.open("ab") as file:
        file.write(b"\x02\x7f")
    append(path, 102, is_new=False)
    assert lowers(path) == list(range(103))


@pytest.mark.parametrize("name", ["f", "f.avro"])
@pytest.mark.parametrize("is_removed", [True, False])
async def test_a_file_that_is_removed_or_shortened_while_it_is_written_stalls_its_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_removed: bool
) -> None:
    monkeypatch.setattr(sink_task, "RETRY_S", 0.01)
    reports: list[str | None] = []
    monkeypatch.setattr(SinkTask, "_report", lambda task, status, error, hint=None: reports.append(error))
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    await define(coordinator, TABLE, sink_of(tmp_path / name))
    sinks.start()
    await write(coordinator, (1, "a", 1))
    frontier = await until_written(coordinator, sinks)
    path, kept = tmp_path / name, tmp_path / "kept"
    kept.write_bytes(path.read_bytes())
    if is_removed:
        path.unlink()
    else:
        with path.open("ab") as file:
            file.truncate(0)
    await write(coordinator, (2, "b", 1))
    async with asyncio.timeout(HANG_S):
        while len([error for error in reports if error]) < 2:
            await coordinator.frontiers.moved.wait()
    first, second, *_ = [error for error in reports if error is not None]
    if is_removed:
        assert first == f'file "{path}" of a sink was removed or replaced while the sink wrote to it'
        assert second == f'file "{path}" of a sink does not exist'
    else:
        assert first.startswith(f'file "{path}" of a sink was changed by another program: it has ')
        assert second.startswith(f'file "{path}" of a sink ')
        assert "has the frontier None" in second or "the header is missing" in second or "does not begin" in second
    assert (sinks.running[SINK].frontier or 0) < coordinator.log.times(TABLE.id, 0, 2**62)[-1]
    assert sinks.running[SINK].held_at < coordinator.log.times(TABLE.id, 0, 2**62)[-1]
    path.write_bytes(kept.read_bytes())
    await until_written(coordinator, sinks)
    assert read_back(path)[0] > frontier
    assert [row[:2] for row in read_back(path)[1]] == [(1, "a"), (2, "b")]
    await sinks.close()
    await coordinator.close()


@pytest.mark.parametrize("name", ["f", "f.avro"])
async def test_a_file_that_lost_messages_stalls_its_sink(tmp_path: Path, name: str) -> None:
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    await define(coordinator, TABLE, sink_of(tmp_path / name))
    sinks.start()
    await until_written(coordinator, sinks)
    before = (tmp_path / name).read_bytes()
    await write(coordinator, (1, "a", 1))
    await until_written(coordinator, sinks)
    await sinks.close()
    (tmp_path / name).write_bytes(before)
    sinks = Sinks(coordinator)
    sinks.hold()
    sinks.start()
    error = await until_stalled(coordinator, sinks, SINK)
    assert error.startswith(f'file "{tmp_path}/{name}" of a sink has the frontier ')
    assert (tmp_path / name).read_bytes() == before
    await sinks.close()
    await coordinator.close()


@pytest.mark.parametrize("name", ["f", "f.avro"])
@pytest.mark.parametrize("has_written", [True, False])
async def test_a_sink_that_continues_a_history_notices_an_empty_file(
    tmp_path: Path, name: str, has_written: bool
) -> None:
    """Also if it had written only the frontier at which it began."""
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    sink = sink_of(tmp_path / name)
    await define(coordinator, TABLE, replace(sink, options={**sink.options, "continue": "true"}, with_snapshot=False))
    sinks.start()
    while sinks.running[SINK].frontier is None:
        await coordinator.frontiers.moved.wait()
    if has_written:
        await write(coordinator, (1, "a", 1))
        await until_written(coordinator, sinks)
    definition = sinks.running[SINK].definition
    await sinks.close()
    (tmp_path / name).write_bytes(b"")
    if name == "f.avro":
        create(tmp_path / name, avro_schema(definition))
    before = (tmp_path / name).read_bytes()
    sinks = Sinks(coordinator)
    sinks.hold()
    sinks.start()
    error = await until_stalled(coordinator, sinks, SINK)
    assert error.startswith(f'file "{tmp_path}/{name}" of a sink has the frontier None, but the sink has ')
    assert (tmp_path / name).read_bytes() == before
    await sinks.close()
    await coordinator.close()


async def test_one_server_at_a_time_writes_a_file(tmp_path: Path) -> None:
    """The other one has a copy of the data directory."""
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    await define(coordinator, TABLE, sink_of(tmp_path / "f"))
    sinks.start()
    await until_written(coordinator, sinks)
    other = FileOutput(sinks.running[SINK].definition)
    with pytest.raises(UpstreamError, match="another server writes to file"):
        await other.open(Timestamp(1))
    await other.close()
    await sinks.close()
    await coordinator.close()


async def test_a_file_is_closed_after_its_last_write(tmp_path: Path) -> None:
    """A cancelled sink must not write to the number of a closed file, which may be that of another file by then."""
    begun, end = Event(), Event()

    def messages() -> Iterator[bytes]:
        yield b"1" * changes_file.WRITE_BYTES
        begun.set()
        assert end.wait(HANG_S)
        yield b"2"

    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    await define(coordinator, TABLE, sink_of(tmp_path / "f"))
    sinks.start()
    await until_written(coordinator, sinks)
    output = FileOutput(replace(sinks.running[SINK].definition, options={"path": str(tmp_path / "g")}))
    await output.open(None)
    appending = asyncio.create_task(output.append(messages()))
    await asyncio.to_thread(begun.wait, 20)
    appending.cancel()
    await asyncio.sleep(0.05)
    assert not appending.done()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await appending
    await output.close()
    assert (tmp_path / "g").read_bytes().endswith(b"1\n2\n")
    await sinks.close()
    await coordinator.close()


@pytest.mark.crash
@pytest.mark.parametrize("name", [pytest.param("changes.json", marks=pytest.mark.long), "changes.avro"])
def test_nothing_is_omitted_although_the_server_is_killed(tmp_path: Path, name: str) -> None:
    count, path = 1_500, tmp_path / name
    command = [sys.executable, "-m", "tests.server.egress.child", str(tmp_path), str(count), name]
    kills = 0
    for number in range(KILLS):
        with subprocess.Popen(command) as child:
            while child.poll() is None and messages_in(path) < (number + 1) * 200:
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
    after = replace(without_item(before, SINK), version=before.version + 1)
    await coordinator.commit(Request(catalog=(before, after)))
    await asyncio.wait_for(closing.wait(), HANG_S)
    await define(coordinator, replace(TABLE, id=ObjectId("u12"), name="other"))
    may_close.set()
    await asyncio.wait_for(closed.wait(), HANG_S)
    await sinks.close()
    await coordinator.close()


def messages_in(path: Path) -> int:
    """The number of lines, or of blocks, which have a message or a few."""
    content = path.read_bytes() if path.exists() else b""
    if path.suffix != ".avro":
        return content.count(b"\n")
    header = parse_header(content)
    return 0 if header is None else content.count(header.sync) - 1


@pytest.mark.parametrize("is_repeated", [True, False])
@pytest.mark.parametrize(
    ("error", "logged"), [(ConnectionRefusedError("refused"), "refused"), (TimeoutError(), "timeout")]
)
async def test_the_cleaning_up_after_a_dropped_sink_is_repeated_and_at_last_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, logged: str, is_repeated: bool
) -> None:
    attempts = itertools.count()
    succeeded = asyncio.Event()

    async def dropped(_: FileSink, definition: object) -> None:
        if next(attempts) == 0:
            raise error
        succeeded.set()

    monkeypatch.setattr(FileSink, "dropped", dropped)
    monkeypatch.setattr(sinks_module, "RETRY_S", 0.01 if is_repeated else sinks_module.DROP_TIMEOUT_S)
    coordinator, sinks = running(tmp_path / "data")
    await coordinator.start()
    sinks.start()
    await define(coordinator, TABLE)
    await define(coordinator, sink_of(tmp_path / "f"))
    await until_written(coordinator, sinks)
    before = coordinator.state
    with capture_logs() as logs:
        await coordinator.commit(Request(catalog=(before, without_item(before, SINK, cascade=False))))
        while not succeeded.is_set() and not any(entry["event"] == "dropped sink not cleaned up" for entry in logs):
            assert not any("failed" in entry["event"] for entry in logs), logs
            await asyncio.sleep(0.01)
    warned = [entry["error"] for entry in logs if entry["event"] == "dropped sink not cleaned up"]
    assert warned == ([] if is_repeated else [logged])
    await sinks.close()
    await coordinator.close()
