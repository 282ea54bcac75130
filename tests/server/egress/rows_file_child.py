"""`python -m tests.server.egress.rows_file_child DIRECTORY COUNT`: random changes, which sinks write to files.

The files are `upsert` and `debezium` in DIRECTORY. The table keeps all history. The process ends when COUNT changes are
in both.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from catalog.ids import ObjectId
from catalog.objects.sinks import Sink
from catalog.source_definition import Encoding, Envelope, Format
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from tests.kafka.sinks import TABLE
from tests.server.egress.child import running
from tests.server.egress.postgres.child import SCHEMA, follow

FILES = {ObjectId("u20"): Envelope.UPSERT, ObjectId("u21"): Envelope.DEBEZIUM}


def sinks_of(directory: Path) -> list[Sink]:
    return [
        Sink(
            id,
            SCHEMA,
            str(envelope),
            TABLE.id,
            "file",
            {"path": str(directory / envelope)},
            Format(Encoding("json"), envelope=envelope),
            key=("n",),
        )
        for id, envelope in FILES.items()
    ]


async def define(coordinator: Coordinator, directory: Path) -> None:
    """Creates the table and the sinks, if they do not exist."""
    before = coordinator.state
    if TABLE.id not in before.items:
        after = replace(before, version=before.version + 1)
        for item in (TABLE, *sinks_of(directory)):
            after = after.with_item(item)
        await coordinator.commit(Request(catalog=(before, after)))


async def main(directory: Path, count: int) -> None:
    coordinator, sinks = running(directory / "data")
    await coordinator.start()
    await define(coordinator, directory)
    await follow(coordinator, sinks, count)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
