"""The messages of a subscription before its position in a feed: the snapshot at AS OF and the changes after it.

They are produced in the background, up to AHEAD_BYTES ahead of the consumer, and buffered on disk. So a slow
client takes little memory, however large its snapshot is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.stream.feed import Entry
from server.runtime.errors import to_pg_error
from server.timeline.frontiers import Pulse

AHEAD_BYTES = 8 << 20  # produced ahead of the consumer; the last chunk can exceed it


class SnapshotStream:
    """Entries in order of time, produced by a task. The owner calls `start`, and `close` to release the holds."""

    def __init__(self, entries: AsyncGenerator[Entry], release: Callable[[], None]) -> None:
        """`release` is called at the end, after errors and cancellations, too. It may be called twice."""
        self.failure: PgError | None = None
        self.moved = Pulse()
        self._entries = entries
        self._release = release
        self._ready: deque[Entry] = deque()
        self._ready_bytes = 0
        self._taken = asyncio.Event()
        self._complete = False  # all entries have been produced
        self._task: asyncio.Task[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether all entries have been produced and taken."""
        return not self._ready and self._complete

    def start(self) -> None:
        """Starts the task that produces the entries."""
        self._task = asyncio.create_task(self._make())
        self._task.add_done_callback(self._ended)

    async def started(self) -> None:
        """Returns when AHEAD_BYTES of entries, or all, can be taken. Raises the failure if there are none."""
        assert self._task is not None
        while not self._complete and self.failure is None and self._ready_bytes < AHEAD_BYTES:
            await self.moved.wait()
        if self.failure is not None and not self._ready:
            raise self.failure

    async def _make(self) -> None:
        try:
            async with aclosing(self._entries) as entries:
                async for entry in entries:
                    self._ready.append(entry)
                    self._ready_bytes += entry.bytes
                    self.moved.fire()
                    while self._ready_bytes >= AHEAD_BYTES:
                        self._taken.clear()
                        await self._taken.wait()
            self._complete = True
        except Exception as error:
            self.failure = to_pg_error(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Called when the task has ended. A task that was cancelled counts as failed: its entries are incomplete."""
        self._release()
        if not self._complete and self.failure is None:
            self.failure = PgError(SqlState.QUERY_CANCELED, "the subscription was closed")
        self.moved.fire()

    def take(self) -> list[Entry]:
        """Takes the entries produced so far. If there are none, raises the failure, if any."""
        if not self._ready and self.failure is not None:
            raise self.failure
        entries = list(self._ready)
        self._ready.clear()
        self._ready_bytes = 0
        self._taken.set()
        return entries

    def close(self) -> None:
        """Cancels the task and drops the entries. May be called twice."""
        self._ready.clear()
        if self._task is not None:
            self._task.cancel()
        self._release()
