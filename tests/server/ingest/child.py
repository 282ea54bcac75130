"""`python -m tests.server.ingest.child DIRECTORY COUNT`: ingests numbers until all are written."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.ingest.ingestion import Ingestion
from server.runtime.metrics import Metrics
from tests.server.ingest.numbers import PARTS, TABLE, Numbers
from tests.server.slow_engine import PassingEngine


def opened(directory: Path) -> Coordinator:
    return Coordinator(directory, engine=PassingEngine(), metrics=Metrics(), interval_s=0.01, system_tables={})


async def define(coordinator: Coordinator) -> None:
    """Creates the source's table, if it does not exist."""
    before = coordinator.state
    if TABLE.id not in before.items:
        after = replace(before.with_item(TABLE), version=before.version + 1)
        await coordinator.commit(Request(catalog=(before, after)))


async def main(directory: Path, count: int) -> None:
    coordinator = opened(directory)
    await coordinator.start()
    await define(coordinator)
    ingestion = Ingestion(TABLE.id, Numbers(count), coordinator)
    task = asyncio.create_task(ingestion.run())
    while (await coordinator.reads.rows(TABLE.id, coordinator.latest_time())).num_rows < PARTS * count:
        await coordinator.frontiers.moved.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await coordinator.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
