"""The changes of one relation, one timestamp after another, shared by everyone who subscribes to it.

A feed keeps its latest changes as entries until every reader has taken them. A reader is a place in that history,
so waiting costs no copy for each of them; an entry also keeps its encoded forms, so that equal readers share bytes.

Invariant: when `upper` is u, every change at a time in (start, u) is, or was, an entry, and none at u or later is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import pyarrow as pa

from catalog import updates
from catalog.objects import ObjectId, Timestamp
from protocol.pgwire.errors import PgError
from server.failures import told
from server.frontiers import Frontiers, Pulse


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

    @property
    def bytes(self) -> int:
        return int(self.changes.nbytes)


class Reader:
    """One reader's place in a feed. Close it, or the feed keeps what it has not read."""

    __slots__ = ("_feed", "next")

    def __init__(self, feed: Feed, next: int) -> None:
        self._feed = feed
        self.next = next

    def take(self) -> list[Entry]:
        """The entries since the last call, in order of time."""
        entries = self._feed.entries_from(self.next)
        self.next += len(entries)
        self._feed.trim()
        return entries

    def waiting(self) -> list[Entry]:
        """The entries that `take` would give."""
        return self._feed.entries_from(self.next)

    @property
    def waiting_bytes(self) -> int:
        """What this reader has yet to take."""
        return sum(entry.bytes for entry in self.waiting())

    def close(self) -> None:
        self._feed.leave(self)


class Feed:
    """History and readers. Its owner appends entries and moves `upper`; `failure` ends the feed for everyone.

    `abandoned` is called when the last reader has left.
    """

    def __init__(self, upper: Timestamp) -> None:
        self.upper = upper
        self.failure: PgError | None = None
        self.abandoned: Callable[[], None] | None = None
        self.moved = Pulse()
        self._entries: deque[Entry] = deque()
        self._first = 0  # the number of the oldest entry that is kept
        self._readers: set[Reader] = set()

    def append(self, time: Timestamp, changes: pa.Table) -> None:
        """Changes at `time`, which is at or beyond `upper`. Nobody sees them before `advance` has passed them."""
        if self._readers:
            self._entries.append(Entry(time, changes))
        else:
            self._first += 1

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
        return reader

    def leave(self, reader: Reader) -> None:
        if reader in self._readers:
            self._readers.remove(reader)
            self.trim()
            if not self._readers and self.abandoned is not None:
                self.abandoned()

    def entries_from(self, number: int) -> list[Entry]:
        """Those of that number and later; an entry's number is its place in the feed's whole history."""
        return list(islice(self._entries, number - self._first, None))

    def trim(self) -> None:
        """Lets go of what every reader has taken."""
        needed = min((reader.next for reader in self._readers), default=self._first + len(self._entries))
        while self._first < needed:
            self._entries.popleft()
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

    def __init__(self, computation: Computation, frontiers: Frontiers, as_of: Timestamp) -> None:
        """NotReadable if an input cannot be read at `as_of`."""
        super().__init__(as_of)
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
