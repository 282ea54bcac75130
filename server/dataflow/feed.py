"""The changes of one relation, one timestamp after another, shared by everyone who subscribes to it.

A feed keeps its latest changes as entries until every reader has taken them. A reader is a place in that history,
so waiting costs no copy for each of them; an entry also keeps its encoded forms, so that equal readers share bytes.
Beyond `MEMORY_BYTES_MAX` the oldest entries go to files that are mapped into memory and have no names any more: what
waits for slow readers takes disk, and nothing is left behind, however the process ends.

Invariant: when `upper` is u, every change at a time in (start, u) is, or was, an entry, and none at u or later is.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import structlog

from catalog import updates
from catalog.objects import ObjectId, Timestamp
from protocol.pgwire.errors import PgError
from server.failures import told
from server.frontiers import Frontiers, Pulse

MEMORY_BYTES_MAX = 64 * 1024 * 1024  # of a feed's waiting entries; the rest is on disk
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Encoded:
    """Rows as bytes for the wire, and how many they are."""

    rows: int
    data: bytes


@dataclass(slots=True)
class Entry:
    """Consolidated changes of one time. `encoded`: their rows for the wire, by everything that shapes them."""

    time: Timestamp
    changes: pa.Table
    encoded: dict[Hashable, Encoded] = field(default_factory=dict)
    on_disk: bool = False

    @property
    def bytes(self) -> int:
        return int(self.changes.nbytes)

    def move_to_disk(self, directory: Path | None) -> None:
        """OSError when there is no room; the entry stays as it was."""
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            with pa.ipc.new_file(file, self.changes.schema) as writer:
                writer.write_table(self.changes)
            file.flush()
            self.changes = pa.ipc.open_file(pa.memory_map(file.name)).read_all()
        self.on_disk = True
        self.encoded.clear()


class Reader:
    """One reader's place in a feed. Close it, or the feed keeps what it has not read.

    `waiting_bytes` is what it has yet to take. Beyond `limit` it is `overrun`: it loses its place, and `on_overrun` is
    called, which may not be where it reads: a client that does not read keeps its session waiting at the socket.
    """

    __slots__ = ("_feed", "limit", "next", "on_close", "on_overrun", "overrun", "waiting_bytes")

    def __init__(self, feed: Feed, next: int) -> None:
        self._feed = feed
        self.next = next
        self.waiting_bytes = 0
        self.limit: int | None = None
        self.overrun = False
        self.on_overrun: Callable[[], None] | None = None
        self.on_close: Callable[[], None] | None = None

    def take(self) -> list[Entry]:
        """The entries since the last call, in order of time."""
        entries = self._feed.entries_from(self.next)
        if entries:
            self._feed.moves(self, self.next + len(entries))
        self.waiting_bytes = 0
        return entries

    def came(self, bytes: int) -> None:
        """An entry of that size was appended to the feed."""
        self.waiting_bytes += bytes
        if self.limit is not None and self.waiting_bytes > self.limit and not self.overrun:
            self.overrun = True
            self._feed.leave(self)
            if self.on_overrun is not None:
                self.on_overrun()

    def waiting(self) -> list[Entry]:
        """The entries that `take` would give."""
        return self._feed.entries_from(self.next)

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
        self._directory = directory
        self._moving: asyncio.Task[None] | None = None
        self.failure: PgError | None = None
        self.abandoned: Callable[[], None] | None = None
        self.moved = Pulse()
        self.kept_bytes = 0
        """Of the entries that some reader has not taken yet."""
        self._entries: deque[Entry] = deque()
        self._first = 0  # the number of the oldest entry that is kept
        self._readers: set[Reader] = set()
        self._places: Counter[int] = Counter()  # how many readers stand at which entry's number

    def append(self, time: Timestamp, changes: pa.Table) -> None:
        """Changes at `time`, which is at or beyond `upper`. Nobody sees them before `advance` has passed them."""
        if not self._readers:
            self._first += 1
            return
        entry = Entry(time, changes)
        self._entries.append(entry)
        size = entry.bytes
        self.kept_bytes += size
        for reader in list(self._readers):
            reader.came(size)
        if self._moving is None and self._bytes_in_memory() > MEMORY_BYTES_MAX:
            self._moving = asyncio.create_task(self._move_to_disk())

    def _bytes_in_memory(self) -> int:
        return sum(entry.bytes for entry in self._entries if not entry.on_disk)

    async def _move_to_disk(self) -> None:
        """The oldest entries first. Without room they stay in memory, and the next append tries again."""
        try:
            while self._bytes_in_memory() > MEMORY_BYTES_MAX:
                oldest = next(entry for entry in self._entries if not entry.on_disk)
                await asyncio.to_thread(oldest.move_to_disk, self._directory)
        except OSError as error:
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
        reader = Reader(self, self._first + len(self._entries))
        self._readers.add(reader)
        self._places[reader.next] += 1
        return reader

    def leave(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
            self._left(reader.next)
            if not self._readers and self.abandoned is not None:
                self.abandoned()

    def entries_from(self, number: int) -> list[Entry]:
        """Those of that number and later; an entry's number is its place in the feed's whole history."""
        return list(islice(self._entries, number - self._first, None))

    def moves(self, reader: Reader, place: int) -> None:
        """A reader has taken the entries up to that number."""
        left, reader.next = reader.next, place
        if reader in self._readers:
            self._places[place] += 1
            self._left(left)

    def _left(self, place: int) -> None:
        """A reader stands there no more: lets go of what every reader has taken, with no look at the readers."""
        self._places[place] -= 1
        if not self._places[place]:
            del self._places[place]
        while self._entries and self._first not in self._places:
            self.kept_bytes -= self._entries.popleft().bytes
            self._first += 1


class Computation(Protocol):
    """What a query's feed needs of the outside: its rows at a time, by Spark."""

    @property
    def inputs(self) -> frozenset[ObjectId]: ...

    @property
    def fingerprint(self) -> str:
        """Equal for queries that mean the same over the same objects."""
        ...

    async def rows(self, as_of: Timestamp) -> pa.Table: ...

    def change_times(self, lower: int, upper: int) -> list[Timestamp]:
        """The times in [lower, upper) at which an input changed."""
        ...


class QueryFeed(Feed):
    """A dataflow: the query computed at each time at which an input changed, and the last result subtracted.

    `run` is its task. It holds its inputs' history from the time that it has reached.
    """

    def __init__(
        self, computation: Computation, frontiers: Frontiers, as_of: Timestamp, directory: Path | None = None
    ) -> None:
        """NotReadable if an input cannot be read at `as_of`."""
        super().__init__(as_of, directory)
        self._computation = computation
        self._frontiers = frontiers
        self._holder = frontiers.hold(computation.inputs, as_of)
        self.hydrated = False
        self.rows: pa.Table = None  # at upper - 1, once hydrated

    @property
    def inputs(self) -> frozenset[ObjectId]:
        return self._computation.inputs

    async def run(self) -> None:
        """Until cancelled or failed. Cancel safety: the inputs' history is let go."""
        try:
            await self._hydrate()
            while True:
                await self._frontiers.reached(self._computation.inputs, self.upper)
                await self._catch_up(self._frontiers.least_upper(self._computation.inputs))
        except Exception as error:
            self.fail(told(error))
        finally:
            self._holder.release()

    async def _hydrate(self) -> None:
        as_of = self.upper
        await self._frontiers.reached(self._computation.inputs, as_of)
        self.rows = await self._computation.rows(as_of)
        self.hydrated = True
        self.advance(Timestamp(as_of + 1))

    async def _catch_up(self, upper: Timestamp) -> None:
        for time in self._computation.change_times(self.upper, upper):
            rows = await self._computation.rows(time)
            changes = await asyncio.to_thread(updates.difference, rows, self.rows)
            if changes.num_rows:
                self.append(time, changes)
            self.rows = rows
            self._holder.advance(time)
            self.advance(Timestamp(time + 1))
        self._holder.advance(upper - 1)
        self.advance(upper)
