"""`python -m tests.server.ingest.changes_child DIRECTORY PATTERN FORMAT`: CDCv2 messages of files, until they end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from catalog import source_state
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.sources import Source
from catalog.source_definition import Encoding, Envelope, Format
from protocol.cdcv2.messages import END
from server.ingest.sources import Sources
from tests.server.ingest.child import opened
from tests.server.ingest.source_child import define
from tests.server.slow_engine import PassingEngine

COLUMNS = (Column("n", "int8", False),)
ID = ObjectId("u10")


def source(pattern: str, encoding: str) -> Source:
    options = {"path": pattern, "poll interval": "10ms"}
    format = Format(Encoding(encoding), envelope=Envelope.MATERIALIZE)
    return Source(
        *(ID, ObjectId("u2"), "changes", COLUMNS, pattern),
        system="file",
        options=options,
        format=format,
        given=COLUMNS if encoding == "json" else (),
    )


async def main(directory: Path, pattern: str, encoding: str) -> None:
    coordinator = opened(directory)
    await coordinator.start()
    await define(coordinator, [source(pattern, encoding)])
    sources = Sources(coordinator, PassingEngine())
    sources.start()
    while source_state.load(coordinator.store, ID).get("frontier") != b"%d" % END:
        await coordinator.frontiers.moved.wait()
    await sources.close()
    await coordinator.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
