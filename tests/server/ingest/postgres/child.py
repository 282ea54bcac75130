"""`python -m tests.server.ingest.postgres.child DIRECTORY DSN`: runs the source over a database until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from server.ingest import ingestion
from tests.server.ingest.postgres.harness import definition, running


async def main(directory: Path, dsn: str) -> None:
    ingestion.READ_BYTES_MAX = 50_000  # transactions of a few hundred rows are written to files
    async with running(directory, definition(dsn)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
