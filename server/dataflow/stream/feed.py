"""Feeds: the changes of one relation in order of timestamp, shared by all subscriptions to it.

A feed keeps changes as entries until every reader has taken them. A reader is a position in this sequence, so buffering
needs no copy per reader. An entry also keeps its encoded forms, so that readers with the same encoding share the bytes.
Beyond `MEMORY_BYTES_MAX` the oldest entries are moved to unlinked files (`catalog.spill`): slow readers take disk space
instead of memory, and no files are left however the process ends.

Invariant: the changes at all times since the feed's start and before `upper` are or were entries, and no others are:
the owner calls `append` and then `advance` without an await in between.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog

from catalog import spill, updates
from catalog.objects import ObjectId, Timestamp
from protocol.pgwire.errors import PgError
from server.dataflow.runtime.computation import Computation, Ticks, advanced
from server.dataflow.runtime.hydration import watched
from server.dataflow.stream.accumulated import Accumulated
from server.dataflow.stream.consolidation import RESIDENT_BYTES, consolidated
from server.dataflow.stream.encoding import Encoded
from server.runtime.errors import to_pg_error
from server.runtime.metrics import Metrics
from server.timeline.frontiers import Frontiers, Pulse

if TYPE_CHECKING:
    from server.dataflow.stream.broadcast import Broadcast

MEMORY_BYTES_MAX = 32 * 1024 * 1024  # of entries in memory, by nbytes: Arrow's buffers take up to twice as much
MOVED_BYTES = 8 * 1024 * 1024  # of entries that are moved into one file
THREAD_ROWS = 8_192  # from this number of rows on a commit's changes are consolidated in a thread
log = structlog.get_logger()

Check = Callable[[Timestamp], Awaitable[None]]  # raises if the collection is invalid at the time


@dataclass(slots=True)
class Entry:
    """Consolidated changes of one time, or a part of them.

    `encoded`: the encoded rows by envelope and format. `shared`: several readers take the entry, so that it is worth
    keeping its encoded rows. `bytes`: the size of the changes in memory.
    """

    time: Timestamp
    changes: pa.Table
    shared: bool = True
    encoded: dict[Hashable, asyncio.Task[Encoded]] = field(default_factory=dict)
    bytes: int = 0

    def __post_init__(self) -> None:
        self.bytes = int(self.changes.nbytes)


async def move_to_disk(entries: Sequence[Entry], directory: Path | None) -> None:
    """Moves the entries' changes into one file. OSError if the disk is full; the entries are then unchanged."""
    batches = [entry.changes.combine_chunks().to_batches() for entry in entries]
    every = (batch for own in batches for batch in own)
    reader = await asyncio.to_thread(spill.mapped, entries[0].changes.schema, every, directory)
    number = 0
    for entry, own in zip(entries, batches, strict=True):
        entry.changes = pa.Table.from_batches([reader.get_batch(number + n) for n in range(len(own))], reader.schema)
        entry.encoded.clear()
        number += len(own)


class Reader:
    """One reader's position in a feed. Until it is closed, the feed keeps the entries that it has not taken.

    A reader with more than `limit` bytes to take is `overrun`: it loses its position and `on_overrun` is called, from
    the task that appends to the feed. The reader's own task may be blocked by a client that does not read.
    """

    __slots__ = ("_counted", "_feed", "limit", "next", "on_close", "on_overrun", "overrun", "passed")

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.next = feed.end
        self.passed = feed.appended_bytes
        """Bytes that were appended to the feed before this position."""
        self._counted = 0
        self.limit: int | None = None
        self.overrun = False
        self.on_overrun: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None

    @property
    def is_at_end(self) -> bool:
        return self.next == self._feed.end

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the entries that the reader has not taken and that count toward `limit`."""
        return self._feed.appended_bytes - max(self.passed, self._counted)

    def bound(self, limit: int) -> None:
        """Limits the bytes of entries appended from now on that the reader has not taken."""
        self._counted = self._feed.appended_bytes
        self.limit = limit
        self._feed.least_limit = min(self._feed.least_limit, limit)

    def take(self, bytes_max: int | None = None, *, count: int | None = None) -> list[Entry]:
        """Takes the next entries in order of time: at most `count` and `bytes_max`, at least one if there is one."""
        entries: list[Entry] = []
        size = 0
        for entry in self._feed.entries_from(self.next):
            if len(entries) == count or (entries and bytes_max is not None and size + entry.bytes > bytes_max):
                break
            entries.append(entry)
            size += entry.bytes
        if entries:
            self._feed.moves(self, self.next + len(entries), self.passed + size)
        return entries

    def check(self) -> None:
        """Called after each append: detects an overrun."""
        if self.limit is not None and self.buffered_bytes > self.limit and not self.overrun:
            self.overrun = True
            self._feed.leave(self)
            if self.on_overrun is not None:
                self.on_overrun()

    def waiting(self) -> list[Entry]:
        """The entries that `take` would return, without taking them."""
        return list(self._feed.entries_from(self.next))

    def close(self) -> None:
        """May be called twice; `on_close` is called once."""
        self._feed.leave(self)
        if self.on_close is not None:
            closed, self.on_close = self.on_close, None
            closed()


class Feed:
    """Entries and readers. The owner appends entries and advances `upper`; `failure` ends the feed for all readers.

    `abandoned` is called when the last reader has left.
    """

    def __init__(self, upper: Timestamp, directory: Path | None = None) -> None:
        """`directory`: for entries on disk; None: the system's directory for temporary files."""
        self.upper = upper
        self.directory = directory
        self.broadcasts: dict[Hashable, Broadcast] = {}
        """The broadcasts of this feed, by envelope and format."""
        self._moving: asyncio.Task[None] | None = None
        self.failure: PgError | None = None
        self.abandoned: Callable[[], None] | None = None
        self.moved = Pulse()
        self.end = 0
        """The number of the next entry. Entries are numbered from 0 in the order of appending."""
        self.appended_bytes = 0
        """Bytes of all entries ever appended."""
        self.buffered_bytes = 0
        """Bytes of the entries that some reader has not taken yet."""
        self.memory_bytes = 0
        """Bytes of the kept entries that are in memory."""
        self.least_limit = 1 << 63
        """The least limit of any reader so far. While `buffered_bytes` does not exceed it, no reader can be overrun."""
        self._entries: dict[int, Entry] = {}  # the kept entries, by number
        self._on_disk: set[int] = set()  # the numbers of the entries on disk
        self._in_memory: deque[tuple[int, Entry]] = deque()  # oldest first; some may not be kept any more
        self._first = 0  # the number of the oldest kept entry
        self._readers: set[Reader] = set()
        self._places: Counter[int] = Counter()  # the number of readers by position

    def append(self, time: Timestamp, changes: pa.Table) -> None:
        """Appends changes at `time >= upper`. The caller then calls `advance` beyond `time` without awaiting before."""
        self._add(Entry(time, changes), on_disk=False)

    def _add(self, entry: Entry, *, on_disk: bool) -> None:
        number, self.end = self.end, self.end + 1
        self.appended_bytes += entry.bytes
        if not self._readers:
            self._first = self.end
            return
        self._entries[number] = entry
        self.buffered_bytes += entry.bytes
        if on_disk:
            self._on_disk.add(number)
        else:
            self._in_memory.append((number, entry))
            self.memory_bytes += entry.bytes
        if self.buffered_bytes > self.least_limit:
            for reader in list(self._readers):
                reader.check()
        if self._moving is None and self.memory_bytes > MEMORY_BYTES_MAX:
            self._moving = asyncio.create_task(self._move_to_disk())

    async def _move_to_disk(self) -> None:
        """Moves entries to disk, the oldest first. If the disk is full they stay in memory; the next append retries."""
        run: list[tuple[int, Entry]] = []
        try:
            while self.memory_bytes > MEMORY_BYTES_MAX:
                run, size = [], 0
                while self._in_memory and size < min(MOVED_BYTES, self.memory_bytes - MEMORY_BYTES_MAX):
                    number, entry = self._in_memory.popleft()
                    if number in self._entries:
                        run.append((number, entry))
                        size += entry.bytes
                await move_to_disk([entry for _, entry in run], self.directory)
                moved, run = run, []
                self.memory_bytes -= sum(entry.bytes for number, entry in moved if number in self._entries)
                self._on_disk.update(number for number, _ in moved if number in self._entries)
        except OSError as error:
            self._in_memory.extendleft(reversed(run))
            log.warning("waiting changes stay in memory", reason=str(error))
        finally:
            self._moving = None

    def advance(self, upper: Timestamp) -> None:
        """Makes all times before `upper` final."""
        if upper > self.upper:
            self.upper = upper
            self.moved.fire()

    def fail(self, error: PgError) -> None:
        """Ends the feed with an error, which readers get after the entries before it."""
        self.failure = error
        self.moved.fire()

    def join(self) -> Reader:
        """A new reader at the end of the feed: of changes at times >= the current `upper`."""
        reader = Reader(self)
        self._stands(reader)
        return reader

    def rejoin(self, reader: Reader, joined: Reader) -> None:
        """Adds a reader that has left the feed again, at the position of the reader `joined`, which has not left."""
        reader.next, reader.passed = joined.next, joined.passed
        if reader not in self._readers:
            self._stands(reader)

    def _stands(self, reader: Reader) -> None:
        self._readers.add(reader)
        self._places[reader.next] += 1

    def leave(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
            self._left(reader.next)
            if not self._readers and self.abandoned is not None:
                self.abandoned()

    def entries_from(self, number: int) -> Iterator[Entry]:
        """The entries from this number on."""
        return (self._entries[n] for n in range(number, self.end))

    def moves(self, reader: Reader, place: int, passed: int) -> None:
        """Moves a reader to the position `place`."""
        left, reader.next, reader.passed = reader.next, place, passed
        if reader in self._readers:
            self._places[place] += 1
            self._left(left)

    def _left(self, place: int) -> None:
        """Called when a reader has left a position: drops entries that all readers have taken, in amortized O(1)."""
        self._places[place] -= 1
        if not self._places[place]:
            del self._places[place]
        while self._entries and self._first not in self._places:
            entry = self._entries.pop(self._first)
            self.buffered_bytes -= entry.bytes
            if self._first in self._on_disk:
                self._on_disk.remove(self._first)
            else:
                self.memory_bytes -= entry.bytes
            self._first += 1


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
                        self._add(entry, on_disk=on_disk)
                self._arrived.popleft()
        except Exception as error:
            self.fail(to_pg_error(error))
        finally:
            self._working = None


_numbers = itertools.count(1)


class QueryFeed(Feed):
    """The dataflow of a subscribed query: its rows at one time, then its changes at each later time.

    `run` is its task. It holds its inputs' history from its current time on.
    """

    def __init__(
        self,
        computation: Computation,
        frontiers: Frontiers,
        as_of: Timestamp,
        directory: Path | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """NotReadable if an input cannot be read at `as_of`. `metrics`: the server's."""
        super().__init__(as_of, directory)
        self.id = f"q{next(_numbers)}"
        self.computation = computation
        self._frontiers = frontiers
        self._holder = frontiers.hold(computation.inputs, as_of)
        self._accumulated: Accumulated | None = None
        self._metrics = metrics or Metrics()
        self.ticks = Ticks(self._metrics.step_seconds)

    @property
    def inputs(self) -> frozenset[ObjectId]:
        return self.computation.inputs

    @property
    def hydrated(self) -> bool:
        return self._accumulated is not None

    @property
    def rows(self) -> pa.Table:
        """The rows at `upper - 1`. Requires `hydrated`."""
        assert self._accumulated is not None
        return self._accumulated.rows

    @property
    def next_time(self) -> Timestamp:
        """Changes of the inputs at this time and later are held, earlier ones are not."""
        return Timestamp(self._holder.time + 1)

    @property
    def can_catch_up(self) -> bool:
        return self.hydrated and self.failure is None

    async def _present(self) -> pa.Table:
        return self.rows

    async def run(self) -> None:
        """Runs until cancelled or failed. Cancel safety: the hold on the inputs is released."""
        try:
            await self._hydrate()
            while True:
                await self._frontiers.reached(self.inputs, self.upper)
                await self._catch_up(self._frontiers.least_upper(self.inputs))
        except Exception as error:
            self.fail(to_pg_error(error))
        finally:
            self._holder.release()
            self.computation.close()

    async def _hydrate(self) -> None:
        as_of = self.upper
        await self._frontiers.reached(self.inputs, as_of)
        async with watched(self.computation.hydration, as_of, self._metrics, dataflow=self.id):
            rows = await self.computation.hydrate(as_of)
        self._accumulated = Accumulated(rows)
        self.advance(Timestamp(as_of + 1))

    async def _catch_up(self, upper: Timestamp) -> None:
        assert self._accumulated is not None
        while times := self.computation.times(self.upper, upper):
            async for time, changes in advanced(self.computation, times, self._present, self.ticks):
                if isinstance(changes, Exception):
                    raise changes
                if changes.num_rows:
                    self.append(time, changes)
                self._accumulated.add(changes)
                self._holder.advance(time)
                self.advance(Timestamp(time + 1))
        self._holder.advance(upper - 1)
        self.advance(upper)
