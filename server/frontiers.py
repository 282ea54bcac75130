"""What can be read, and what keeps it readable: every collection's `since` and `upper`, and the holders.

- `upper` (exclusive): times before it are final. All tables share one, moved by the committer alone; every
  materialized view has its own, moved by its dataflow.
- `since` (inclusive): times from it on can be read. It follows `upper` at the distance of the retention window, but
  never passes a holder: a running SELECT, a subscription, a dataflow over its inputs.

Pure: no clock, no disk. `moved` is how others await a movement. One rule in one place: `since` is the least of what
the holders and the window allow, and never less than the floor, the time at which history begins on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from catalog.objects import ObjectId, Timestamp

RETENTION_MS = 1_000


class Pulse:
    """A condition that many await and one fires. Each wait ends with the next firing."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Cancel safety: nothing is lost; a later wait sees later firings."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    def fire(self) -> None:
        if self._next is not None:
            self._next.set_result(None)
            self._next = None


class Holder:
    """Keeps the `since` of some collections at or before `time` until released. Moves only forward."""

    __slots__ = ("_frontiers", "collections", "time")

    def __init__(self, frontiers: Frontiers, collections: frozenset[ObjectId], time: Timestamp) -> None:
        self._frontiers = frontiers
        self.collections = collections
        self.time = time

    def advance(self, time: int) -> None:
        """Times before `time` are no longer needed."""
        self.time = Timestamp(max(self.time, time))

    def release(self) -> None:
        self._frontiers.holders.discard(self)


class NotReadable(Exception):
    """A time before the `since` of `collection` was asked for; `since` is the earliest readable time."""

    def __init__(self, collection: ObjectId, since: Timestamp) -> None:
        super().__init__(f"{collection} cannot be read before {since}")
        self.collection = collection
        self.since = since


class Frontiers:
    """The frontiers of all collections. System tables are no collections: they are always readable."""

    def __init__(self) -> None:
        self.tables_upper = Timestamp(0)
        self.view_uppers: dict[ObjectId, Timestamp] = {}
        self.floors: dict[ObjectId, Timestamp] = {}
        self.holders: set[Holder] = set()
        self.moved = Pulse()

    def upper(self, id: ObjectId) -> Timestamp:
        return self.view_uppers.get(id, self.tables_upper)

    def since(self, id: ObjectId) -> Timestamp:
        """The least time at which `id` can be read."""
        window = self.upper(id) - 1 - RETENTION_MS
        held = min((h.time for h in self.holders if id in h.collections), default=window)
        return Timestamp(max(self.floors.get(id, 0), min(window, held)))

    def hold(self, ids: Iterable[ObjectId], time: int) -> Holder:
        """A new holder. NotReadable if one of the collections cannot be read at `time` any more."""
        collections = frozenset(id for id in ids if id in self.floors)
        for id in collections:
            if time < self.since(id):
                raise NotReadable(id, self.since(id))
        holder = Holder(self, collections, Timestamp(time))
        self.holders.add(holder)
        return holder

    def greatest_since(self, ids: Iterable[ObjectId]) -> Timestamp:
        """The least time at which all of `ids` can be read."""
        return max((self.since(id) for id in ids if id in self.floors), default=Timestamp(0))

    def least_upper(self, ids: Iterable[ObjectId]) -> Timestamp:
        """All of `ids` are final before this time. Without any collection: the tables' upper."""
        return min((self.upper(id) for id in ids if id in self.floors), default=self.tables_upper)

    async def reached(self, ids: frozenset[ObjectId], time: int) -> None:
        """Returns when all of `ids` are final at `time`: least upper > time."""
        while self.least_upper(ids) <= time:
            await self.moved.wait()

    def created(self, id: ObjectId, since: Timestamp, upper: Timestamp | None) -> None:
        """A collection exists; `upper` is a materialized view's, None for a table."""
        self.floors[id] = since
        if upper is not None:
            self.view_uppers[id] = upper

    def dropped(self, id: ObjectId) -> None:
        self.floors.pop(id, None)
        self.view_uppers.pop(id, None)

    def compacted(self, id: ObjectId, since: Timestamp) -> None:
        """History before `since` is gone from disk."""
        if id in self.floors:
            self.floors[id] = max(self.floors[id], since)

    def table(self) -> Mapping[ObjectId, tuple[Timestamp, Timestamp]]:
        """(since, upper) of every collection."""
        return {id: (self.since(id), self.upper(id)) for id in self.floors}
