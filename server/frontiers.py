"""What can be read, and what keeps it readable: every collection's `since` and `upper`, and the holders.

- `upper` (exclusive): times before it are final. All tables share one, moved by the committer alone; every
  materialized view has its own, moved by its dataflow.
- `since` (inclusive): times from it on can be read. It follows `upper` at the distance of the retention window, but
  never passes a holder: a hold, a running SELECT, a subscription, a dataflow over its inputs.

An index has a `since` of its own. A relation can be read at a time if it, or an index on it, can; so its log begins at
the least of their `since` (`readable`), and a hold on an index keeps the history there that queries by way of the index
need. An index on a view has no log to be read by: it is made again from the logs of what the view reads, and these
begin where it does, too (`kept`). What Spark computes of an index has an `upper` of its own.

Pure: no clock, no disk. `moved` is how others await a movement. One rule in one place: `since` is the least of what
the holders and the window allow, and never less than the floor, the time at which history begins on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

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
        for id in collections:
            frontiers.holders_of.setdefault(id, set()).add(self)

    def advance(self, time: int) -> None:
        """Times before `time` are no longer needed."""
        self.time = Timestamp(max(self.time, time))

    def release(self) -> None:
        """May be called twice."""
        self._frontiers.holders.discard(self)
        for id in self.collections:
            self._let_go(id)
        self.collections = frozenset()

    def dropped(self, id: ObjectId, instead: ObjectId | None) -> None:
        """One of the collections is no more; what it kept, `instead` keeps from now on."""
        self._let_go(id)
        self.collections -= {id}
        if instead is not None:
            self.collections |= {instead}
            self._frontiers.holders_of.setdefault(instead, set()).add(self)

    def _let_go(self, id: ObjectId) -> None:
        holders = self._frontiers.holders_of.get(id)
        if holders is not None:
            holders.discard(self)
            if not holders:
                del self._frontiers.holders_of[id]


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
        self.holders_of: dict[ObjectId, set[Holder]] = {}
        self._retention_ms: dict[ObjectId, int] = {}  # of those that say; the others have RETENTION_MS
        self._relations: dict[ObjectId, ObjectId] = {}  # of indexes
        self._indexes: dict[ObjectId, set[ObjectId]] = {}  # of relations
        self._made_from: dict[ObjectId, frozenset[ObjectId]] = {}  # of indexes on views
        self.moved = Pulse()

    def upper(self, id: ObjectId) -> Timestamp:
        own = id if id in self.view_uppers else self._relations.get(id, id)
        return self.view_uppers.get(own, self.tables_upper)

    def retained(self, id: ObjectId) -> Timestamp:
        """What `since` would be without holders: what the retention window alone keeps, as far as it is there."""
        return self._retained_at(id, self.upper(id))

    def _retained_at(self, id: ObjectId, upper: int) -> Timestamp:
        retention_ms = self._retention_ms.get(id, RETENTION_MS)
        window = upper - 1 - retention_ms if retention_ms else 0
        return Timestamp(max(self.floors.get(id, 0), window))

    def since(self, id: ObjectId) -> Timestamp:
        """The least time at which `id` can be read, by itself."""
        return self.since_at(id, self.upper(id))

    def since_at(self, id: ObjectId, upper: int) -> Timestamp:
        """What `since` is when `upper` is there: where what has no rows yet is to begin."""
        retained = self._retained_at(id, upper)
        held = min((holder.time for holder in self.holders_of.get(id, ())), default=retained)
        return Timestamp(max(self.floors.get(id, 0), min(retained, held)))

    def readable(self, id: ObjectId) -> Timestamp:
        """The least time at which `id` can be read, by itself or by way of an index on it."""
        return min(map(self.since, self.ways(id)))

    def kept(self, id: ObjectId) -> Timestamp:
        """Where the log of `id` begins: where it is readable, and what indexes on views are made from."""
        made = (self.since(index) for index, inputs in self._made_from.items() if id in inputs)
        return min((self.readable(id), *made))

    def hold(self, ids: Iterable[ObjectId], time: int) -> Holder:
        """A new holder. NotReadable if one of the collections cannot be read at `time` any more.

        Where a collection can be read only by way of an index, the index is held.
        """
        collections = []
        for id in ids:
            if id in self.floors:
                through = next((known for known in self.ways(id) if self.since(known) <= time), None)
                if through is None:
                    raise NotReadable(id, self.readable(id))
                collections.append(through)
        return self._held(collections, Timestamp(time))

    def take_over(self, ids: Iterable[ObjectId], time: Timestamp) -> Holder:
        """A new holder at a time whose history is there, because it is on disk or because another holder keeps it.

        `since` may go back to it: that of an index that begins under a hold, or after a restart.
        """
        ids = tuple(ids)
        for id in ids:
            if time < self.floors[id]:
                raise NotReadable(id, self.floors[id])
        return self._held(ids, time)

    def _held(self, ids: Iterable[ObjectId], time: Timestamp) -> Holder:
        holder = Holder(self, frozenset(ids), time)
        self.holders.add(holder)
        return holder

    def ways(self, id: ObjectId) -> Iterator[ObjectId]:
        """What `id` can be read by: itself first."""
        yield id
        yield from self._indexes.get(id, ())

    def greatest_since(self, ids: Iterable[ObjectId]) -> Timestamp:
        """The least time at which all of `ids` can be read."""
        return max((self.readable(id) for id in ids if id in self.floors), default=Timestamp(0))

    def greatest_retained(self, ids: Iterable[ObjectId]) -> Timestamp:
        """The least time that all of `ids` keep without holders."""
        return max((self.retained(id) for id in ids if id in self.floors), default=Timestamp(0))

    def least_upper(self, ids: Iterable[ObjectId]) -> Timestamp:
        """All of `ids` are final before this time. Without any collection: the tables' upper."""
        return min((self.upper(id) for id in ids if id in self.floors), default=self.tables_upper)

    async def reached(self, ids: frozenset[ObjectId], time: int) -> None:
        """Returns when all of `ids` are final at `time`: least upper > time."""
        while self.least_upper(ids) <= time:
            await self.moved.wait()

    def created(self, id: ObjectId, since: Timestamp, upper: Timestamp | None, retention_ms: int | None = None) -> None:
        """A collection exists, with history from `since` on; `upper` is a materialized view's, None for a table."""
        self.floors[id] = since
        if upper is not None:
            self.view_uppers[id] = upper
        if retention_ms is not None:
            self._retention_ms[id] = retention_ms

    def index_created(
        self, id: ObjectId, on: ObjectId, since: Timestamp, retention_ms: int | None, *, computed: bool = False
    ) -> None:
        """An index on a collection exists, whose log has history from `since` on. `computed`: by Spark."""
        self.created(id, since, since if computed else None, retention_ms)
        self._relations[id] = on
        self._indexes.setdefault(on, set()).add(id)

    def view_index_created(
        self, id: ObjectId, inputs: frozenset[ObjectId], since: Timestamp, retention_ms: int | None
    ) -> None:
        """An index on a view exists, which reads these collections; their logs have history from `since` on."""
        self.created(id, since, since, retention_ms)
        self._made_from[id] = inputs

    def index_reached(self, id: ObjectId, upper: Timestamp) -> None:
        """What is computed of an index is final before `upper`."""
        if id in self.view_uppers:
            self.view_uppers[id] = max(upper, self.view_uppers[id])
            self.moved.fire()

    def retain(self, id: ObjectId, retention_ms: int | None) -> None:
        """How much history is kept without holders; 0: all, None: RETENTION_MS. A longer window fills with time."""
        self.floors[id] = self.since(id)
        self._retention_ms.pop(id, None)
        if retention_ms is not None:
            self._retention_ms[id] = retention_ms

    def dropped(self, id: ObjectId) -> None:
        relation = self._relations.pop(id, None)
        if relation in self._indexes:
            self._indexes[relation].discard(id)
        else:
            relation = None  # which was dropped with it
        self._indexes.pop(id, None)
        self._made_from.pop(id, None)
        for holder in list(self.holders_of.get(id, ())):
            holder.dropped(id, relation)
        self.floors.pop(id, None)
        self.view_uppers.pop(id, None)
        self._retention_ms.pop(id, None)

    def compacted(self, id: ObjectId, since: Timestamp) -> None:
        """History before `since` is gone from disk."""
        made = (index for index, inputs in self._made_from.items() if id in inputs)
        for known in (*self.ways(id), *made):
            if known in self.floors:
                self.floors[known] = max(self.floors[known], since)

    def table(self) -> Mapping[ObjectId, tuple[Timestamp, Timestamp]]:
        """(since, upper) of every collection."""
        return {id: (self.since(id), self.upper(id)) for id in self.floors}
