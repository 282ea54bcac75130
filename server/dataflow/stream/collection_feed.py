"""The feed of a collection: the changes that commits wrote to the log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pyarrow as pa

from catalog import updates
from catalog.objects import Timestamp
from protocol.pgwire.errors import PgError
from server.dataflow.stream.consolidation import RESIDENT_BYTES, consolidated
from server.dataflow.stream.feed import Entry, Feed
from server.runtime.errors import to_pg_error

THREAD_ROWS = 8_192  # from this number of rows on a commit's changes are consolidated in a thread

Check = Callable[[Timestamp], Awaitable[None]]  # raises if the collection is invalid at the time


class CollectionFeed(Feed):
    """The log's changes. Large commits are consolidated in a thread; later commits are queued meanwhile."""

    def __init__(self, upper: Timestamp, directory: Path | None = None) -> None:
        super().__init__(upper, directory)
        self._arrived: deque[tuple[Timestamp, list[pa.Table] | None, Check | None]] = deque()
        self._working: asyncio.Task[None] | None = None

    def committed(self, time: Timestamp, tables: list[pa.Table], check: Check | None = None) -> None:
        """Appends what one commit wrote, as rows or changes. `check` is awaited before the changes are appended."""
        if check is None and self._working is None and sum(table.num_rows for table in tables) < THREAD_ROWS:
            changes = updates.consolidate(pa.concat_tables([updates.as_changes(table) for table in tables]))
            if changes.num_rows:
                self.append(time, changes)
            return
        self._arrived.append((time, tables, check))
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    def closed(self, upper: Timestamp) -> None:
        """All commits before `upper` were passed to `committed`: advances `upper` when they are appended."""
        if self._working is None:
            self.advance(upper)
        else:
            self._arrived.append((upper, None, None))

    def ends(self, time: Timestamp, error: PgError) -> None:
        """The feed ends at `time` with an error: readers get the entries before it, and progress up to it."""

        async def check(_: Timestamp) -> None:
            raise error

        self.closed(time)
        if self._working is None:
            self.fail(error)
        else:
            self._arrived.append((time, None, check))

    async def _entries_of(self, time: Timestamp, tables: list[pa.Table]) -> AsyncIterator[tuple[Entry, bool]]:
        """The entries of a commit, each with whether it is on disk."""
        async for changes in consolidated(tables, self.directory):
            entry = Entry(time, changes)
            yield entry, entry.bytes > RESIDENT_BYTES

    async def _work(self) -> None:
        try:
            while self._arrived:
                time, tables, check = self._arrived[0]
                if check is not None:
                    await check(time)
                if tables is None:
                    self.advance(time)
                else:
                    entries = [entry async for entry in self._entries_of(time, tables)]
                    for entry, on_disk in entries:  # without an await: no reader joins between entries of one time
                        self.add(entry, on_disk=on_disk)
                self._arrived.popleft()
        except Exception as error:
            self.fail(to_pg_error(error))
        finally:
            self._working = None
