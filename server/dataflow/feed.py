"""The changes of one relation, one timestamp after another, shared by everyone who subscribes to it.

A feed keeps its latest changes as entries until every reader has taken them. A reader is a place in that history,
so waiting costs no copy for each of them; an entry also keeps its encoded forms, so that equal readers share bytes.
Beyond `MEMORY_BYTES_MAX` the oldest entries go to files as `catalog.spill` writes them: what waits for slow readers
takes disk, and nothing is left behind, however the process ends.

Invariant: when `upper` is u, every change at a time in (start, u) is, or was, an entry, and none at u or later is.
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
from server.counts import Counts
from server.dataflow.accumulated import Accumulated
from server.dataflow.computation import Computation, Ticks, advanced
from server.dataflow.encoded import Encoded
from server.dataflow.hydration import watched
from server.dataflow.pieces import RESIDENT_BYTES, consolidated
from server.failures import told
from server.frontiers import Frontiers, Pulse

if TYPE_CHECKING:
    from server.dataflow.broadcast import Broadcast

MEMORY_BYTES_MAX = 32 * 1024 * 1024  # of entries in memory; half of what may wait, for Arrow needs more than nbytes
MOVED_BYTES = 8 * 1024 * 1024  # of entries that go into one file
THREAD_ROWS = 8_192  # from this size on a commit's changes are consolidated in a thread
log = structlog.get_logger()

Check = Callable[[Timestamp], Awaitable[None]]  # raises what is wrong with a collection at a time


@dataclass(slots=True)
class Entry:
    """Consolidated changes of one time, or a part of them. `encoded`: their rows for the wire, by all that shapes them.

    `shared`: several readers take it, so that it pays to keep what it was encoded to. `bytes` is its size in memory.
    """

    time: Timestamp
    changes: pa.Table
    shared: bool = True
    encoded: dict[Hashable, asyncio.Task[Encoded]] = field(default_factory=dict)
    bytes: int = 0

    def __post_init__(self) -> None:
        self.bytes = int(self.changes.nbytes)


async def move_to_disk(entries: Sequence[Entry], directory: Path | None) -> None:
    """All into one file. OSError when there is no room; the entries stay as they were."""
    batches = [entry.changes.combine_chunks().to_batches() for entry in entries]
    every = (batch for own in batches for batch in own)
    reader = await asyncio.to_thread(spill.mapped, entries[0].changes.schema, every, directory)
    number = 0
    for entry, own in zip(entries, batches, strict=True):
        entry.changes = pa.Table.from_batches([reader.get_batch(number + n) for n in range(len(own))], reader.schema)
        entry.encoded.clear()
        number += len(own)


class Reader:
    """One reader's place in a feed. Close it, or the feed keeps what it has not read.

    Beyond its limit it is `overrun`: it loses its place, and `on_overrun` is called, which may not be where it reads: a
    client that does not read keeps its session waiting at the socket.
    """

    __slots__ = ("_counted", "_feed", "limit", "next", "on_close", "on_overrun", "overrun", "passed")

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.next = feed.end
        self.passed = feed.appended_bytes
        """Bytes that were appended to the feed before this place."""
        self._counted = 0
        self.limit: int | None = None
        self.overrun = False
        self.on_overrun: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None

    @property
    def is_at_end(self) -> bool:
        return self.next == self._feed.end

    @property
    def waiting_bytes(self) -> int:
        """What it has yet to take, of what the limit counts."""
        return self._feed.appended_bytes - max(self.passed, self._counted)

    def bound(self, limit: int) -> None:
        """From now on no more than `limit` bytes of what comes may wait for it."""
        self._counted = self._feed.appended_bytes
        self.limit = limit
        self._feed.least_limit = min(self._feed.least_limit, limit)

    def take(self, bytes_max: int | None = None, *, count: int | None = None) -> list[Entry]:
        """The next entries, in order of time: all, `count`, or up to so many bytes, at least one if there is one."""
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
        """After an append."""
        if self.limit is not None and self.waiting_bytes > self.limit and not self.overrun:
            self.overrun = True
            self._feed.leave(self)
            if self.on_overrun is not None:
                self.on_overrun()

    def waiting(self) -> list[Entry]:
        """The entries that `take` would give."""
        return list(self._feed.entries_from(self.next))

    def close(self) -> None:
        """May be called twice; `on_close` is called once."""
        self._feed.leave(self)
        if self.on_close is not None:
            closed, self.on_close = self.on_close, None
            closed()


class Feed:
    """History and readers. Its owner appends entries and moves `upper`; `failure` ends the feed for everyone.

    `abandoned` is called when the last reader has left.
    """

    def __init__(self, upper: Timestamp, directory: Path | None = None) -> None:
        """`directory` takes what waits on disk; None: the system's for temporary files."""
        self.upper = upper
        self.directory = directory
        self.broadcasts: dict[Hashable, Broadcast] = {}
        """By what shapes their bytes."""
        self._moving: asyncio.Task[None] | None = None
        self.failure: PgError | None = None
        self.abandoned: Callable[[], None] | None = None
        self.moved = Pulse()
        self.end = 0
        """The number of the next entry; an entry's number is its place in the feed's whole history."""
        self.appended_bytes = 0
        """Of all entries that ever were."""
        self.kept_bytes = 0
        """Of the entries that some reader has not taken yet."""
        self.memory_bytes = 0
        """Of those that are in memory."""
        self.least_limit = 1 << 63
        """No reader's limit was ever less: none can be overrun before so much waits for somebody."""
        self._entries: dict[int, Entry] = {}  # those that are kept, by number
        self._on_disk: set[int] = set()  # the numbers of those that are
        self._in_memory: deque[tuple[int, Entry]] = deque()  # the oldest first; some may have been let go of
        self._first = 0  # the number of the oldest entry that is kept
        self._readers: set[Reader] = set()
        self._places: Counter[int] = Counter()  # how many readers stand at which entry's number

    def append(self, time: Timestamp, changes: pa.Table) -> None:
        """Changes at `time`, which is at or beyond `upper`. Nobody sees them before `advance` has passed them."""
        self._add(Entry(time, changes), on_disk=False)

    def _add(self, entry: Entry, *, on_disk: bool) -> None:
        number, self.end = self.end, self.end + 1
        self.appended_bytes += entry.bytes
        if not self._readers:
            self._first = self.end
            return
        self._entries[number] = entry
        self.kept_bytes += entry.bytes
        if on_disk:
            self._on_disk.add(number)
        else:
            self._in_memory.append((number, entry))
            self.memory_bytes += entry.bytes
        if self.kept_bytes > self.least_limit:
            for reader in list(self._readers):
                reader.check()
        if self._moving is None and self.memory_bytes > MEMORY_BYTES_MAX:
            self._moving = asyncio.create_task(self._move_to_disk())

    async def _move_to_disk(self) -> None:
        """The oldest entries first. Without room they stay in memory, and the next append tries again."""
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
        """All times before `upper` are final."""
        if upper > self.upper:
            self.upper = upper
            self.moved.fire()

    def fail(self, error: PgError) -> None:
        """Ends the feed: readers are told once they have taken what came before."""
        self.failure = error
        self.moved.fire()

    def join(self) -> Reader:
        """A reader of everything from now on: changes at times >= the present upper."""
        reader = Reader(self)
        self._stands(reader)
        return reader

    def rejoin(self, reader: Reader, beside: Reader) -> None:
        """A reader that had left takes the place of another one, which has not."""
        reader.next, reader.passed = beside.next, beside.passed
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
        """Those of that number and later."""
        return (self._entries[n] for n in range(number, self.end))

    def moves(self, reader: Reader, place: int, passed: int) -> None:
        """A reader has taken the entries up to that number."""
        left, reader.next, reader.passed = reader.next, place, passed
        if reader in self._readers:
            self._places[place] += 1
            self._left(left)

    def _left(self, place: int) -> None:
        """A reader stands there no more: lets go of what every reader has taken, with no look at the readers."""
        self._places[place] -= 1
        if not self._places[place]:
            del self._places[place]
        while self._entries and self._first not in self._places:
            entry = self._entries.pop(self._first)
            self.kept_bytes -= entry.bytes
            if self._first in self._on_disk:
                self._on_disk.remove(self._first)
            else:
                self.memory_bytes -= entry.bytes
            self._first += 1


class CollectionFeed(Feed):
    """The log's changes as they are. Large commits are consolidated beside the loop, and what follows them waits."""

    def __init__(self, upper: Timestamp, directory: Path | None = None) -> None:
        super().__init__(upper, directory)
        self._arrived: deque[tuple[Timestamp, list[pa.Table] | None, Check | None]] = deque()
        self._working: asyncio.Task[None] | None = None

    def committed(self, time: Timestamp, tables: list[pa.Table], check: Check | None = None) -> None:
        """What one commit wrote, as rows or changes. `check` is awaited before anybody is told of it."""
        if check is None and self._working is None and sum(table.num_rows for table in tables) < THREAD_ROWS:
            changes = updates.consolidate(pa.concat_tables([updates.as_changes(table) for table in tables]))
            if changes.num_rows:
                self.append(time, changes)
            return
        self._arrived.append((time, tables, check))
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    def closed(self, upper: Timestamp) -> None:
        """All commits before `upper` have been told."""
        if self._working is None:
            self.advance(upper)
        else:
            self._arrived.append((upper, None, None))

    async def _entries_of(self, time: Timestamp, tables: list[pa.Table]) -> AsyncIterator[tuple[Entry, bool]]:
        """With each, whether it lies on disk."""
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
                    for entry, on_disk in entries:  # all at once: nobody joins in the midst of a time
                        self._add(entry, on_disk=on_disk)
                self._arrived.popleft()
        except Exception as error:
            self.fail(told(error))
        finally:
            self._working = None


_numbers = itertools.count(1)


class QueryFeed(Feed):
    """A dataflow: a query's rows at one time, then its changes at each time at which they change.

    `run` is its task. It holds its inputs' history from the time that it has reached.
    """

    def __init__(
        self,
        computation: Computation,
        frontiers: Frontiers,
        as_of: Timestamp,
        directory: Path | None = None,
        counts: Counts | None = None,
    ) -> None:
        """NotReadable if an input cannot be read at `as_of`. `counts`: the server's."""
        super().__init__(as_of, directory)
        self.id = f"q{next(_numbers)}"
        self.computation = computation
        self._frontiers = frontiers
        self._holder = frontiers.hold(computation.inputs, as_of)
        self._accumulated: Accumulated | None = None
        self._counts = counts or Counts()
        self.ticks = Ticks(self._counts.ticks)

    @property
    def inputs(self) -> frozenset[ObjectId]:
        return self.computation.inputs

    @property
    def hydrated(self) -> bool:
        return self._accumulated is not None

    @property
    def rows(self) -> pa.Table:
        """At upper - 1, once hydrated."""
        assert self._accumulated is not None
        return self._accumulated.rows

    @property
    def next_time(self) -> Timestamp:
        """What its inputs did before is taken, and no longer held."""
        return Timestamp(self._holder.time + 1)

    @property
    def can_catch_up(self) -> bool:
        return self.hydrated and self.failure is None

    async def _present(self) -> pa.Table:
        return self.rows

    async def run(self) -> None:
        """Until cancelled or failed. Cancel safety: the inputs' history is let go."""
        try:
            await self._hydrate()
            while True:
                await self._frontiers.reached(self.inputs, self.upper)
                await self._catch_up(self._frontiers.least_upper(self.inputs))
        except Exception as error:
            self.fail(told(error))
        finally:
            self._holder.release()
            self.computation.close()

    async def _hydrate(self) -> None:
        as_of = self.upper
        await self._frontiers.reached(self.inputs, as_of)
        async with watched(self.computation.hydration, as_of, self._counts, dataflow=self.id):
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
