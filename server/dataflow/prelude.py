"""What comes before a reader's place in a feed: the snapshot at AS OF, and the changes between it and the feed.

It is made in the background, a little ahead of whoever takes it, and what has been made waits on disk (`pieces`): a
client that reads slowly costs little memory, however large its snapshot is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from protocol.pgwire.errors import PgError
from server.dataflow.feed import Entry
from server.failures import told
from server.frontiers import Pulse

AHEAD_BYTES = 8 << 20  # made ahead of who takes it; one piece more may be under way


class Prelude:
    """Entries in order of time. `start` it, and close it, or what makes them holds what it reads."""

    def __init__(self, entries: AsyncGenerator[Entry], release: Callable[[], None]) -> None:
        """`release` is called at the end, however it comes; it may be called twice."""
        self.failure: PgError | None = None
        self.moved = Pulse()
        self._entries = entries
        self._release = release
        self._ready: deque[Entry] = deque()
        self._ready_bytes = 0
        self._taken = asyncio.Event()
        self._complete = False  # everything has been made
        self._task: asyncio.Task[None] | None = None

    @property
    def finished(self) -> bool:
        """Everything has been taken."""
        return not self._ready and self._complete

    def start(self) -> None:
        """Begins to make them."""
        self._task = asyncio.create_task(self._make())
        self._task.add_done_callback(self._ended)

    async def begun(self) -> None:
        """Returns when some of it can be taken, all of it if it is little. Raises what it failed with."""
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
            self.failure = told(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """However it ended: one that did not come to its end is not taken for one that had nothing to give."""
        self._release()
        if not self._complete and self.failure is None:
            self.failure = told(RuntimeError("the snapshot was not made to its end"))
        self.moved.fire()

    def take(self) -> list[Entry]:
        """What has been made. Raises what the making failed with, once the entries before it have been taken."""
        if not self._ready and self.failure is not None:
            raise self.failure
        entries = list(self._ready)
        self._ready.clear()
        self._ready_bytes = 0
        self._taken.set()
        return entries

    def close(self) -> None:
        """Gives up the rest. May be called twice."""
        self._ready.clear()
        if self._task is not None:
            self._task.cancel()
        self._release()
