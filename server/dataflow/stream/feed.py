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
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import structlog

from catalog import spill
from catalog.ids import Timestamp
from protocol.pgwire.errors import PgError
from server.dataflow.stream.encoding import Encoded
from server.timeline.frontiers import Pulse

MEMORY_BYTES_MAX = 32 * 1024 * 1024  # of entries in memory, by nbytes: Arrow's buffers take up to twice as much
MOVED_BYTES = 8 * 1024 * 1024  # of entries that are moved into one file
log = structlog.get_logger()


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
            self._feed.move(self, self.next + len(entries), self.passed + size)
        return entries

    def check(self) -> None:
        """Called after each append: detects an overrun."""
        if self.limit is not None and self.buffered_bytes > self.limit and not self.overrun:
            self.overrun = True
            self._feed.leave(self)
            if self.on_overrun is not None:
                self.on_overrun()

    def untaken(self) -> list[Entry]:
        """The entries that `take` would return, without taking them."""
        return list(self._feed.entries_from(self.next))

    def close(self) -> None:
        """May be called twice; `on_close` is called once."""
        self._feed.leave(self)
        if self.on_close is not None:
            closed, self.on_close = self.on_close, None
            closed()


class FeedGroup:
    """The feeds whose `upper` advances together: a feed by itself, or the feeds of a `PartitionedFeed`.

    `failure` ends the feeds for all readers.
    """

    __slots__ = ("_watchers", "failure", "moved", "upper")

    def __init__(self, upper: Timestamp) -> None:
        self.upper = upper
        self.failure: PgError | None = None
        self.moved = Pulse()
        self._watchers: list[dict[Feed, None]] = []

    def watch(self, appended: dict[Feed, None]) -> None:
        """Adds to `appended` each feed to which an entry is appended, until `unwatch`."""
        self._watchers.append(appended)

    def unwatch(self, appended: dict[Feed, None]) -> None:
        self._watchers = [watcher for watcher in self._watchers if watcher is not appended]

    def appended(self, feed: Feed) -> None:
        """Called when an entry is appended to a feed."""
        for watcher in self._watchers:
            watcher[feed] = None

    def advance(self, upper: Timestamp) -> None:
        """Makes all times before `upper` final, unless the feeds have failed."""
        if upper > self.upper and self.failure is None:
            self.upper = upper
            self.moved.fire()

    def fail(self, error: PgError) -> None:
        """Ends the feeds with an error, which readers get after the entries before it."""
        self.failure = error
        self.moved.fire()


class Feed:
    """Entries and readers. The owner appends entries and advances `upper`; `failure` ends the feed for all readers.

    `abandoned` is called when the last reader has left.
    """

    def __init__(self, upper: Timestamp, directory: Path | None = None, group: FeedGroup | None = None) -> None:
        """`directory`: for entries on disk; None: the system's directory for temporary files.

        `group`: a group with this `upper`; None: the feed is in a group of its own.
        """
        self.group = FeedGroup(upper) if group is None else group
        self.directory = directory
        self._spilling: asyncio.Task[None] | None = None
        self.abandoned: Callable[[], None] | None = None
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
        self._in_memory: deque[tuple[int, Entry]] = deque()  # oldest first, of the kept entries
        self._first = 0  # the number of the oldest kept entry
        self._readers: set[Reader] = set()
        self._readers_at: Counter[int] = Counter()  # the number of readers by position

    @property
    def upper(self) -> Timestamp:
        return self.group.upper

    @property
    def moved(self) -> Pulse:
        """Fires when `upper` advances and when the feed fails."""
        return self.group.moved

    @property
    def failure(self) -> PgError | None:
        return self.group.failure

    def append(self, time: Timestamp, changes: pa.Table) -> None:
        """Appends changes at `time >= upper`. The caller then calls `advance` beyond `time` without awaiting before."""
        self.add(Entry(time, changes), on_disk=False)

    def add(self, entry: Entry, *, on_disk: bool) -> None:
        """As `append`, of an entry whose changes may be in a mapped file already."""
        number, self.end = self.end, self.end + 1
        self.appended_bytes += entry.bytes
        if not self._readers:
            self._first = self.end
            return
        self._entries[number] = entry
        self.group.appended(self)
        self.buffered_bytes += entry.bytes
        if on_disk:
            self._on_disk.add(number)
        else:
            self._in_memory.append((number, entry))
            self.memory_bytes += entry.bytes
        if self.buffered_bytes > self.least_limit:
            for reader in list(self._readers):
                reader.check()
        if self._spilling is None and self.memory_bytes > MEMORY_BYTES_MAX:
            self._spilling = asyncio.create_task(self._move_to_disk())

    async def _move_to_disk(self) -> None:
        """Moves entries to disk, the oldest first. If the disk is full they stay in memory; the next append retries."""
        run: list[tuple[int, Entry]] = []
        try:
            while self.memory_bytes > MEMORY_BYTES_MAX:
                run, size = [], 0
                while self._in_memory and size < min(MOVED_BYTES, self.memory_bytes - MEMORY_BYTES_MAX):
                    run.append(self._in_memory.popleft())
                    size += run[-1][1].bytes
                await move_to_disk([entry for _, entry in run], self.directory)
                moved, run = run, []
                self.memory_bytes -= sum(entry.bytes for number, entry in moved if number in self._entries)
                self._on_disk.update(number for number, _ in moved if number in self._entries)
        except OSError as error:
            self._in_memory.extendleft(kept for kept in reversed(run) if kept[0] in self._entries)
            log.warning("changes that wait for subscribers not moved to disk", reason=str(error))
        finally:
            self._spilling = None

    def advance(self, upper: Timestamp) -> None:
        """Makes all times before `upper` final."""
        self.group.advance(upper)

    def fail(self, error: PgError) -> None:
        """Ends the feed with an error, which readers get after the entries before it."""
        self.group.fail(error)

    def join(self) -> Reader:
        """A new reader at the end of the feed: of changes at times >= the current `upper`."""
        reader = Reader(self)
        self._add_reader(reader)
        return reader

    def rejoin(self, reader: Reader, joined: Reader) -> None:
        """Adds a reader that has left the feed again, at the position of the reader `joined`, which has not left."""
        reader.next, reader.passed = joined.next, joined.passed
        if reader not in self._readers:
            self._add_reader(reader)

    def _add_reader(self, reader: Reader) -> None:
        self._readers.add(reader)
        self._readers_at[reader.next] += 1

    def leave(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
            self._left(reader.next)
            if not self._readers and self.abandoned is not None:
                self.abandoned()

    def entries_from(self, number: int) -> Iterator[Entry]:
        """The entries from this number on."""
        return (self._entries[n] for n in range(number, self.end))

    def move(self, reader: Reader, position: int, passed: int) -> None:
        """Moves a reader to a position. `passed`: as `Reader.passed`."""
        left, reader.next, reader.passed = reader.next, position, passed
        if reader in self._readers:
            self._readers_at[position] += 1
            self._left(left)

    def _left(self, position: int) -> None:
        """Called when a reader has left a position: drops entries that all readers have taken, in amortized O(1)."""
        self._readers_at[position] -= 1
        if not self._readers_at[position]:
            del self._readers_at[position]
        while self._entries and self._first not in self._readers_at:
            entry = self._entries.pop(self._first)
            self.buffered_bytes -= entry.bytes
            if self._first in self._on_disk:
                self._on_disk.remove(self._first)
            else:
                self.memory_bytes -= entry.bytes
            self._first += 1
        while self._in_memory and self._in_memory[0][0] < self._first:
            self._in_memory.popleft()
