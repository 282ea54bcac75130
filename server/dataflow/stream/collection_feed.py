"""The feed of a collection: the changes that commits wrote to the log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pyarrow as pa

from catalog import updates
from catalog.ids import Timestamp
from protocol.pgwire.errors import PgError
from server.dataflow.stream.consolidation import RESIDENT_BYTES, consolidated
from server.dataflow.stream.feed import Entry, Feed
from server.runtime.errors import to_pg_error

THREAD_ROWS = 8_192  # from this number of rows on a commit's changes are consolidated in a thread

Check = Callable[[Timestamp], Awaitable[None]]  # raises if the collection is invalid at the time
_Commit = tuple[Timestamp, list[pa.Table], Check | None]


class CollectionFeed(Feed):
    """The log's changes. Large commits are consolidated in a thread; later commits are queued meanwhile.

    A commit can have changes at several times. They are appended together when `closed` is called after them, so that
    there is no await between the first of them and `advance`.
    """

    def __init__(self, upper: Timestamp, directory: Path | None = None) -> None:
        super().__init__(upper, directory)
        self._open: list[_Commit] = []  # since the last `closed`
        self._arrived: deque[tuple[Timestamp, list[_Commit]]] = deque()
        self._working: asyncio.Task[None] | None = None

    def committed(self, time: Timestamp, tables: list[pa.Table], check: Check | None = None) -> None:
        """Takes what one commit wrote at a time, as rows or changes. The next `closed` appends it, after `check`."""
        self._open.append((time, tables, check))

    def closed(self, upper: Timestamp) -> None:
        """Called when all commits before `upper` were passed to `committed`. Advances `upper` after appending them."""
        commits, self._open = self._open, []
        if self._working is None and not any(map(_takes_long, commits)):
            for time, tables, _ in commits:
                changes = updates.consolidate(pa.concat_tables([updates.as_changes(table) for table in tables]))
                if changes.num_rows:
                    self.append(time, changes)
            self.advance(upper)
            return
        self._arrived.append((upper, commits))
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    def ends(self, time: Timestamp, error: PgError) -> None:
        """Ends the feed at `time` with an error. Readers get the entries before it, and progress up to it."""

        async def check(_: Timestamp) -> None:
            raise error

        self.closed(time)
        if self._working is None:
            self.fail(error)
        else:
            self._arrived.append((time, [(time, [], check)]))

    async def _entries_of(self, time: Timestamp, tables: list[pa.Table]) -> list[tuple[Entry, bool]]:
        """The entries of a commit, each with whether it is on disk."""
        entries = [Entry(time, changes) async for changes in consolidated(tables, self.directory)]
        return [(entry, entry.bytes > RESIDENT_BYTES) for entry in entries]

    async def _converted(
        self, commits: Sequence[_Commit]
    ) -> tuple[list[tuple[Entry, bool]], tuple[Timestamp, PgError] | None]:
        """The entries of the commits before the first one that fails, and the time and the error of that one."""
        entries: list[tuple[Entry, bool]] = []
        for time, tables, check in commits:
            try:
                if check is not None:
                    await check(time)
                entries += await self._entries_of(time, tables)
            except Exception as error:
                return entries, (time, to_pg_error(error))
        return entries, None

    async def _work(self) -> None:
        """Appends the commits that have arrived, in their order. Ends when there are none, or when one fails."""
        try:
            while self._arrived:
                upper, commits = self._arrived[0]
                entries, failure = await self._converted(commits)
                for entry, on_disk in entries:  # without an await until `advance`
                    self.add(entry, on_disk=on_disk)
                if failure is not None:
                    end, error = failure
                    self.advance(end)
                    self.fail(error)
                    return
                self.advance(upper)
                self._arrived.popleft()
        except Exception as error:  # of appending: readers must not wait for ever
            self.fail(to_pg_error(error))
        finally:
            self._working = None


def _takes_long(commit: _Commit) -> bool:
    _, tables, check = commit
    return check is not None or sum(table.num_rows for table in tables) >= THREAD_ROWS
