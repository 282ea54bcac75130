"""`python -m tests.server.egress.postgres.child DIRECTORY PORT COUNT`: COUNT random changes, which two sinks follow.

The sinks write the tables `keyed` and `rows`. The table keeps all history.
"""

from __future__ import annotations

import asyncio
import random
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.connections import Connection
from catalog.objects.sinks import Sink
from catalog.objects.tables import Table
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.payloads import prepare_payloads
from server.egress.sinks import Sinks
from tests.server.egress.child import running

SCHEMA = ObjectId("u2")
TABLE = Table(ObjectId("u10"), SCHEMA, "t", (Column("n", "int8"), Column("v", "text")), retain_ms=0)
SINKS = {ObjectId("u12"): "keyed", ObjectId("u13"): "rows"}


def items(port: int) -> list[Table | Connection | Sink]:
    options = {"host": "127.0.0.1", "port": str(port), "database": "postgres"}
    connection = Connection(ObjectId("u11"), SCHEMA, "pg", "postgres", options, {})
    sinks = [
        Sink(
            id,
            SCHEMA,
            name,
            TABLE.id,
            "postgres",
            {"schema": "public", "table": name},
            None,
            connection=connection.id,
            key=("n",) if name == "keyed" else (),
            identity=name,
        )
        for id, name in SINKS.items()
    ]
    return [TABLE, connection, *sinks]


async def define(coordinator: Coordinator, port: int) -> None:
    before = coordinator.state
    if TABLE.id not in before.items:
        after = replace(before, version=before.version + 1)
        for item in items(port):
            after = after.with_item(item)
        await coordinator.commit(Request(catalog=(before, after)))


async def change(coordinator: Coordinator, rows: dict[int, str | None], choice: random.Random) -> None:
    """Commits a change of a few rows."""
    changes: list[tuple[int, str | None, int]] = []
    for n in {choice.randrange(200) for _ in range(choice.randint(1, 5))}:
        if n in rows:
            changes.append((n, rows.pop(n), -1))
        if choice.random() < 0.7:
            rows[n] = choice.choice((None, "", f"v{choice.randrange(10)}"))
            changes.append((n, rows[n], 1))
    n_s, values, diffs = zip(*changes, strict=True) if changes else ((), (), ())
    schema = pa.schema([*updates.rows_schema([pa.int64(), pa.string()]), updates.DIFF_FIELD])
    table = pa.table([list(n_s), list(values), list(diffs)], schema=schema)
    consolidated = updates.consolidate(table)
    if consolidated.num_rows:
        writes = await prepare_payloads(coordinator.log, {TABLE.id: [consolidated]})
        await coordinator.commit(Request(writes=writes, unchanged={TABLE.id: coordinator.latest_time()}))


async def follow(coordinator: Coordinator, sinks: Sinks, count: int) -> None:
    """Starts the sinks, commits `count` changes, and closes all when every sink has written them."""
    sinks.start()
    found = await coordinator.reads.rows(TABLE.id, coordinator.latest_time())
    rows = dict(zip(found["c0"].to_pylist(), found["c1"].to_pylist(), strict=True))
    choice = random.Random()
    for _ in range(count):
        await change(coordinator, rows, choice)
    time = coordinator.latest_time()
    while any((sink.frontier or 0) <= time for sink in sinks.running.values()):
        await coordinator.frontiers.moved.wait()
    await sinks.close()
    await coordinator.close()


async def main(directory: Path, port: int, count: int) -> None:
    coordinator, sinks = running(directory / "data")
    await coordinator.start()
    await define(coordinator, port)
    await follow(coordinator, sinks, count)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
