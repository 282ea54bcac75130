"""`python -m tests.server.egress.child DIRECTORY COUNT FILE`: COUNT writes to a table with a sink into a file."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.sinks import Sink
from catalog.objects.tables import Table
from catalog.source_definition import Encoding, Envelope, Format
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.payloads import prepare_payloads
from server.egress.sinks import Sinks
from tests.polling import HANG_S
from tests.server.ingest.child import opened

SCHEMA = ObjectId("u2")
TABLE = Table(ObjectId("u10"), SCHEMA, "t", (Column("n", "int8"), Column("v", "text")), retain_ms=1)


def sink_of(path: Path, *, with_snapshot: bool = True) -> Sink:
    format = Format(Encoding("avro" if path.suffix == ".avro" else "json"), envelope=Envelope.MATERIALIZE)
    return Sink(ObjectId("u11"), SCHEMA, "s", TABLE.id, "file", {"path": str(path)}, format, with_snapshot)


async def define(coordinator: Coordinator, *items: Table | Sink) -> None:
    before = coordinator.state
    after = replace(before, version=before.version + 1)
    for item in items:
        if item.id not in before.items:
            after = after.with_item(item)
    if after.items != before.items:
        await coordinator.commit(Request(catalog=(before, after)))


async def write(coordinator: Coordinator, *changes: tuple[int, str | None, int]) -> None:
    """Commits changes of rows."""
    n, v, diff = zip(*changes, strict=True)
    schema = pa.schema([*updates.rows_schema([pa.int64(), pa.string()]), updates.DIFF_FIELD])
    rows = pa.table([list(n), list(v), list(diff)], schema=schema)
    await coordinator.commit(Request(writes=await prepare_payloads(coordinator.log, {TABLE.id: [rows]})))


def running(directory: Path) -> tuple[Coordinator, Sinks]:
    """A coordinator that has not started, and its sinks."""
    coordinator = opened(directory)
    sinks = Sinks(coordinator, progress_s=0.05)
    coordinator.restoring.append(sinks.hold)
    return coordinator, sinks


async def until_stalled(coordinator: Coordinator, sinks: Sinks, id: ObjectId) -> str:
    """The error of a sink, as soon as it has one."""
    async with asyncio.timeout(HANG_S):
        while (error := sinks.running[id].error) is None:
            await coordinator.frontiers.moved.wait()
    return error


async def main(directory: Path, count: int, name: str) -> None:
    coordinator, sinks = running(directory / "data")
    await coordinator.start()
    await define(coordinator, TABLE, sink_of(directory / name))
    sinks.start()
    written = (await coordinator.reads.rows(TABLE.id, coordinator.latest_time())).num_rows
    for number in range(written, count):
        await write(coordinator, (number, "x" * (number % 50), 1))
    time = coordinator.latest_time()
    while (sinks.running[ObjectId("u11")].frontier or 0) <= time:
        await coordinator.frontiers.moved.wait()
    await sinks.close()
    await coordinator.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
