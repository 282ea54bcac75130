"""Which timestamps are readable: `since` and `upper` of every collection, and the holders that keep history.

- `upper` (exclusive): times `t < upper` are final. All tables share one `upper`, which only the committer advances.
  A source with the timestamps of its upstream has its own, which is not after that of the tables.
  Every materialized view has its own, which its dataflow advances. While the dataflow is at rest, it is the least
  `upper` of the view's inputs.
- `since` (inclusive): times `since <= t < upper` are readable. Holders are holds, running SELECTs, transaction blocks,
  subscriptions, and dataflows over their inputs:

      since = max(floor, min(upper - 1 - retention, the least time of a holder))

  The floor is the time at which the history on disk begins.

An index has its own `since`. A relation is readable at a time if it, or an index on it, is. Its log therefore begins at
the least of their `since` (`readable`), and a hold on an index keeps the history that queries through the index need.
An index on a view has no log to read. It is rebuilt from the logs of the view's inputs, which must therefore begin no
later than the index's `since` (`kept`). An index that Spark computes has its own `upper`.

No clock and no disk access. Use `moved` to wait until a frontier advances.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from catalog.ids import ObjectId, Timestamp

RETENTION_MS = 1_000


class Pulse:
    """A condition that one task fires and any number of tasks await. `wait` returns at the next `fire`."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Returns at the next `fire`. Cancel safety: other waiters are not affected."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    def fire(self) -> None:
        if self._next is not None:
            self._next.set_result(None)
            self._next = None


class Holder:
    """Keeps the `since` of some collections at or before `time` until it is released. `time` only increases."""

    __slots__ = ("_follows", "_frontiers", "_time", "collections")

    def __init__(self, frontiers: Frontiers, collections: frozenset[ObjectId], time: Timestamp) -> None:
        self._frontiers = frontiers
        self.collections = collections
        self._time = time
        self._follows: frozenset[ObjectId] | None = None
        for id in collections:
            frontiers.holders_of.setdefault(id, set()).add(self)

    @property
    def time(self) -> Timestamp:
        if self._follows is None:
            return self._time
        return Timestamp(max(self._time, self._frontiers.least_upper(self._follows) - 1))

    def advance(self, time: int) -> None:
        """Releases the times before `time`."""
        self._time = Timestamp(max(self.time, time))

    def follow(self, ids: frozenset[ObjectId] | None) -> None:
        """Lets `time` advance with the least `upper` of `ids`, to the time before it; with None no longer.

        A holder that follows tables only is not among `holders_of`: `since` is less than their `upper` anyway.
        """
        self._time = self.time
        self._follows = ids
        passive = ids is not None and self._frontiers.view_uppers.keys().isdisjoint(ids)
        for id in self.collections:
            self._let_go(id)
            (self._frontiers.passive_of if passive else self._frontiers.holders_of).setdefault(id, set()).add(self)

    def release(self) -> None:
        """Idempotent."""
        self._frontiers.holders.discard(self)
        for id in self.collections:
            self._let_go(id)
        self.collections = frozenset()

    def dropped(self, id: ObjectId, instead: ObjectId | None) -> None:
        """Removes a dropped collection. `instead`, if given, is held from now on in its place."""
        self._let_go(id)
        self.collections -= {id}
        if instead is not None:
            self.collections |= {instead}
            self._frontiers.holders_of.setdefault(instead, set()).add(self)

    def _let_go(self, id: ObjectId) -> None:
        for of in (self._frontiers.holders_of, self._frontiers.passive_of):
            if (holders := of.get(id)) is not None:
                holders.discard(self)
                if not holders:
                    del of[id]


class FullHolder:
    """Keeps the `since` of all collections except `excluded` at or before `time` until it is released.

    The cost does not depend on the number of collections. Those that are created later are held, too.
    """

    __slots__ = ("_frontiers", "excluded", "time")

    def __init__(self, frontiers: Frontiers, time: Timestamp, excluded: set[ObjectId]) -> None:
        self._frontiers = frontiers
        self.excluded = excluded
        self.time = time
        frontiers.holders.add(self)
        frontiers.full_holders.add(self)

    def advance(self, time: int) -> None:
        """Releases the times before `time`."""
        self.time = Timestamp(max(self.time, time))

    def release(self) -> None:
        """Idempotent."""
        self._frontiers.holders.discard(self)
        self._frontiers.full_holders.discard(self)


class NotReadable(Exception):
    """A time before the `since` of `collection` was requested. `since` is the earliest readable time."""

    def __init__(self, collection: ObjectId, since: Timestamp) -> None:
        super().__init__(f"{collection} cannot be read before {since}")
        self.collection = collection
        self.since = since


class Frontiers:
    """The frontiers of all collections. A system table has frontiers only while a dataflow follows it."""

    def __init__(self) -> None:
        self.tables_upper = Timestamp(0)
        self.view_uppers: dict[ObjectId, Timestamp] = {}
        self.floors: dict[ObjectId, Timestamp] = {}
        self.readable_from: dict[ObjectId, Timestamp] = {}
        """The tables whose rows before a time can be read by dataflows only: see `Numbering.readable_from`."""
        self.upstream_times: set[ObjectId] = set()
        """The sources with timestamps of their upstream, whose `upper` is in `view_uppers`."""
        self.holders: set[Holder | FullHolder] = set()
        self.full_holders: set[FullHolder] = set()
        self.holders_of: dict[ObjectId, set[Holder]] = {}
        self.passive_of: dict[ObjectId, set[Holder]] = {}  # those that do not affect `since` (see `Holder.follow`)
        self._retention_ms: dict[ObjectId, int] = {}  # where it is not RETENTION_MS
        self._relations: dict[ObjectId, ObjectId] = {}  # index -> its relation
        self._indexes: dict[ObjectId, set[ObjectId]] = {}  # relation -> its indexes
        self._view_inputs: dict[ObjectId, frozenset[ObjectId]] = {}  # index on a view -> the view's inputs
        self._following: dict[ObjectId, frozenset[ObjectId]] = {}  # view at rest -> its inputs
        self._followers: dict[ObjectId, set[ObjectId]] = {}  # collection -> the views at rest that read it
        self.moved = Pulse()

    def upper(self, id: ObjectId) -> Timestamp:
        own = id if id in self.view_uppers else self._relations.get(id, id)
        upper = self.view_uppers.get(own)
        if upper is None:
            return self.tables_upper
        return max(upper, self._followed_upper(own)) if own in self._following else upper

    def _followed_upper(self, id: ObjectId) -> Timestamp:
        """The least `upper` of the collections that a view follows, directly or through views. Visits each once."""
        found: set[ObjectId] = set()
        queue = [id]
        while queue:
            inputs = self._following[queue.pop()] - found
            found |= inputs
            queue += self._following.keys() & inputs
        return self.least_upper(found - self._following.keys())

    def follow(self, id: ObjectId, inputs: frozenset[ObjectId]) -> None:
        """Lets a view's `upper` advance with the least `upper` of its inputs, until `stop_following`."""
        self._following[id] = inputs
        for input in inputs:
            self._followers.setdefault(input, set()).add(id)

    def stop_following(self, id: ObjectId) -> None:
        """Fixes the `upper` of a view at its current value. Idempotent."""
        if id in self._following:
            self.view_uppers[id] = self.upper(id)
            for input in self._following.pop(id):
                self._followers[input].discard(id)
                if not self._followers[input]:
                    del self._followers[input]

    def followers(self, id: ObjectId) -> set[ObjectId]:
        """The views whose `upper` follows that of a collection, directly or through other views."""
        found: set[ObjectId] = set()
        queue = [id]
        while queue:
            more = self._followers.get(queue.pop(), set()) - found
            found |= more
            queue += more
        return found

    def retained(self, id: ObjectId) -> Timestamp:
        """`since` without holders: `max(floor, upper - 1 - retention)`."""
        return self._retained_at(id, self.upper(id))

    def _retained_at(self, id: ObjectId, upper: int) -> Timestamp:
        retention_ms = self._retention_ms.get(id, RETENTION_MS)
        window = upper - 1 - retention_ms if retention_ms else 0
        return Timestamp(max(self.floors.get(id, 0), window))

    def since(self, id: ObjectId) -> Timestamp:
        """The least time at which `id` itself is readable."""
        return self.since_at(id, self.upper(id))

    def since_at(self, id: ObjectId, upper: int) -> Timestamp:
        """`since` as it will be at the given `upper`."""
        retained = self._retained_at(id, upper)
        held = min((holder.time for holder in self._holders(id)), default=retained)
        return Timestamp(max(self.floors.get(id, 0), min(retained, held)))

    def _holders(self, id: ObjectId) -> Iterator[Holder | FullHolder]:
        """Those that affect `since` of `id`."""
        yield from self.holders_of.get(id, ())
        yield from (holder for holder in self.full_holders if id not in holder.excluded)

    def is_readable(self, id: ObjectId, time: int) -> bool:
        """Whether `readable(id) <= time`. Does not look at all holders, unless `time` is before what `id` retains."""
        return self._first_readable_through(id, time) is not None and time >= self.readable_from.get(id, 0)

    def _first_readable_through(self, id: ObjectId, time: int) -> ObjectId | None:
        """The first of `readable_through` of which `since` is not after `time`."""
        return next((known for known in self.readable_through(id) if self._is_readable_itself(known, time)), None)

    def _is_readable_itself(self, id: ObjectId, time: int) -> bool:
        """Whether `since(id) <= time`."""
        if time >= self.retained(id):
            return True
        return time >= self.floors.get(id, 0) and any(holder.time <= time for holder in self._holders(id))

    def readable(self, id: ObjectId) -> Timestamp:
        """The least time at which `id` is readable, directly or through an index on it."""
        return max(self._least_since(id), self.readable_from.get(id, Timestamp(0)))

    def _least_since(self, id: ObjectId) -> Timestamp:
        """As `readable`, without regard to `readable_from`: dataflows and compaction are not bound by it."""
        return min(map(self.since, self.readable_through(id)))

    def log_start(self, id: ObjectId) -> Timestamp:
        """The time from which the log must keep the history of `id`, for readers and for indexes on views over `id`."""
        of_view_indexes = (self.since(index) for index, inputs in self._view_inputs.items() if id in inputs)
        return min((self._least_since(id), *of_view_indexes))

    def hold(self, ids: Iterable[ObjectId], time: int) -> Holder:
        """Returns a new holder. NotReadable if one of the collections is not readable at `time`.

        If a collection is readable only through an index, the index is held.
        """
        collections = []
        for id in ids:
            if id in self.floors:
                through = self._first_readable_through(id, time)
                if through is None or time < self.readable_from.get(id, 0):
                    raise NotReadable(id, self.readable(id))
                collections.append(through)
        return self._new_holder(collections, Timestamp(time))

    def hold_all(self, time: Timestamp) -> FullHolder:
        """Returns a new holder of all collections that are readable at `time`."""
        # No collection has a greater `upper` than the tables, and none retains less than the time before its `upper`.
        is_latest = time >= self.tables_upper - 1
        excluded = set() if is_latest else {id for id in self.floors if not self._is_readable_itself(id, time)}
        return FullHolder(self, time, excluded)

    def hold_history(self, ids: Iterable[ObjectId], time: Timestamp) -> Holder:
        """Returns a new holder at a time whose history exists, on disk or because of another holder.

        `since` may decrease to that time, for an index whose history begins at a hold, or after a restart.
        """
        ids = tuple(ids)
        for id in ids:
            if time < self.floors[id]:
                raise NotReadable(id, self.floors[id])
        return self._new_holder(ids, time)

    def hold_log(self, id: ObjectId, time: int) -> Holder:
        """Returns a new holder of a collection's log from `time` on, or from where it is readable if that is later."""
        if id not in self.floors:
            return self._new_holder((), Timestamp(time))
        if self._first_readable_through(id, time) is None:
            time = max(time, self._least_since(id))
        return self._new_holder((id,), Timestamp(time))

    def copy_of(self, holder: Holder) -> Holder:
        """Returns a new holder of the same collections at the same time."""
        return self._new_holder(holder.collections, holder.time)

    def _new_holder(self, ids: Iterable[ObjectId], time: Timestamp) -> Holder:
        holder = Holder(self, frozenset(ids), time)
        self.holders.add(holder)
        return holder

    def readable_through(self, id: ObjectId) -> Iterator[ObjectId]:
        """Yields the objects through which `id` can be read: itself, then its indexes."""
        yield id
        yield from self._indexes.get(id, ())

    def greatest_since(self, ids: Iterable[ObjectId]) -> Timestamp:
        """The least time at which all of `ids` are readable."""
        return max((self.readable(id) for id in ids if id in self.floors), default=Timestamp(0))

    def next_readable(self, ids: Iterable[ObjectId], time: int) -> int:
        """The least time at or after `time` at which all of `ids` are readable."""
        known = [id for id in ids if id in self.floors]
        return time if all(self.is_readable(id, time) for id in known) else max(time, self.greatest_since(known))

    def greatest_retained(self, ids: Iterable[ObjectId]) -> Timestamp:
        """The least time that all of `ids` retain without holders."""
        return max((self.retained(id) for id in ids if id in self.floors), default=Timestamp(0))

    def least_upper(self, ids: Iterable[ObjectId]) -> Timestamp:
        """The least `upper` of `ids`; the tables' `upper` if none of them is a collection."""
        return min((self.upper(id) for id in ids if id in self.floors), default=self.tables_upper)

    async def reached(self, ids: frozenset[ObjectId], time: int) -> None:
        """Returns when `time < upper` for all of `ids`."""
        while self.least_upper(ids) <= time:
            await self.moved.wait()

    def created(self, id: ObjectId, since: Timestamp, upper: Timestamp | None, retention_ms: int | None = None) -> None:
        """Registers a collection with history from `since` on. `upper` is None for a table."""
        self.floors[id] = since
        if upper is not None:
            self.view_uppers[id] = upper
        if retention_ms is not None:
            self._retention_ms[id] = retention_ms

    def index_created(
        self, id: ObjectId, on: ObjectId, since: Timestamp, retention_ms: int | None, *, computed: bool = False
    ) -> None:
        """Registers an index on a collection whose history begins at `since`. `computed`: Spark computes its keys."""
        self.created(id, since, since if computed else None, retention_ms)
        self._relations[id] = on
        self._indexes.setdefault(on, set()).add(id)

    def view_index_created(
        self, id: ObjectId, inputs: frozenset[ObjectId], since: Timestamp, retention_ms: int | None
    ) -> None:
        """Registers an index on a view with these inputs, whose history begins at `since`."""
        self.created(id, since, since, retention_ms)
        self._view_inputs[id] = inputs

    def index_reached(self, id: ObjectId, upper: Timestamp) -> None:
        """Advances the `upper` of a computed index."""
        if id in self.view_uppers:
            self.view_uppers[id] = max(upper, self.view_uppers[id])
            self.moved.fire()

    def retain(self, id: ObjectId, retention_ms: int | None) -> None:
        """Sets the retention window. 0 retains everything, None means RETENTION_MS. `since` does not decrease."""
        self.floors[id] = self.since(id)
        self._retention_ms.pop(id, None)
        if retention_ms is not None:
            self._retention_ms[id] = retention_ms

    def dropped(self, id: ObjectId) -> None:
        relation = self._relations.pop(id, None)
        if relation in self._indexes:
            self._indexes[relation].discard(id)
        else:
            relation = None  # it was dropped, too
        self._indexes.pop(id, None)
        self._view_inputs.pop(id, None)
        for holder in [*self.holders_of.get(id, ()), *self.passive_of.get(id, ())]:
            holder.dropped(id, relation)
        for full in self.full_holders:
            if relation is not None and id not in full.excluded and full.time >= self.floors[id]:
                full.excluded.discard(relation)
            full.excluded.discard(id)
        self.stop_following(id)
        self.floors.pop(id, None)
        self.readable_from.pop(id, None)
        self.upstream_times.discard(id)
        self.view_uppers.pop(id, None)
        self._retention_ms.pop(id, None)

    def compacted(self, id: ObjectId, since: Timestamp) -> None:
        """Sets the floor: history before `since` is about to be removed from disk."""
        of_view_indexes = (index for index, inputs in self._view_inputs.items() if id in inputs)
        for known in (*self.readable_through(id), *of_view_indexes):
            if known in self.floors:
                self.floors[known] = max(self.floors[known], since)

    def table(self) -> Mapping[ObjectId, tuple[Timestamp, Timestamp]]:
        """Returns (since, upper) of every collection."""
        return {
            id: (max(self.since(id), self.readable_from.get(id, Timestamp(0))), self.upper(id)) for id in self.floors
        }
