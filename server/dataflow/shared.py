"""Arrangements of collections, shared by all operators that look rows up by the same columns.

An operator has a lease: a time at which it looks. The arrangement is brought to a time by whoever needs it there first,
from the log; what is later than an operator's own time is not seen by it. Nothing is kept behind the earliest lease,
and an arrangement without leases is gone. One by the same columns that has more of them, as an index has, serves too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from catalog import updates
from catalog.objects import ObjectId, Timestamp
from server.dataflow.arrangement import Arrangement, Arranger
from server.dataflow.computation import Inputs
from server.dataflow.picked import PickedArrangement
from server.dataflow.run import ByKey, Sorting
from server.dataflow.threads import to_the_end

Key = tuple[ObjectId, tuple[int, ...], Sorting]


@dataclass(eq=False)
class _Shared:
    key: Key
    arrangement: Arrangement
    leases: set[Lease] = field(default_factory=set)
    filled: bool = False  # with the rows at a first time
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class Lease:
    """One operator's use of an arrangement. Release it, or nothing behind its time is let go."""

    owner: SharedArrangements
    key: Key
    schema: pa.Schema
    shared: _Shared
    time: Timestamp

    @cached_property
    def arrangement(self) -> Arrangement:
        """What the operator asks: the shared arrangement, or of one that has more columns those that it wants."""
        (_, has, _), (_, wanted, sorting) = self.shared.key, self.key
        if has == wanted:
            return self.shared.arrangement
        columns = [self.shared.arrangement.schema.names[has.index(place)] for place in wanted]
        return PickedArrangement(self.shared.arrangement, columns, self.schema, sorting)

    async def reach(self, inputs: Inputs, time: Timestamp) -> None:
        """Takes in what happened up to `time`; the caller holds the collection's history from the lease's time on.

        Cancel safety: the arrangement has some of it, and the next call goes on there.
        """
        id = self.key[0]
        async with self.shared.lock:
            if not self.shared.filled:
                start = min(lease.time for lease in self.shared.leases)  # whose owner holds the history from there on
                await self._insert(updates.with_diff(await inputs.rows(id, start), 1), start)
                self.shared.filled = True
            times = inputs.change_times(id, self.arrangement.upper, time + 1)
            for at in times:
                await self._insert(await inputs.changes(id, at, at + 1), at)

    async def _insert(self, changes: pa.Table, time: Timestamp) -> None:
        _, places, _ = self.shared.key
        columns = [*(changes.column(place) for place in places), changes[updates.DIFF]]
        names = [*self.shared.arrangement.schema.names, updates.DIFF]
        await to_the_end(self.shared.arrangement.insert(pa.table(columns, names=names), int(time)))

    def advance(self, time: Timestamp) -> None:
        """The operator will not look at earlier times any more."""
        self.time = time
        self.arrangement.advance(min(lease.time for lease in self.shared.leases))

    def spoil(self) -> None:
        """Releases it, because an insert has failed: nobody else gets the arrangement."""
        self.owner.spoilt(self)
        self.release()

    def release(self) -> None:
        """May be called twice."""
        self.owner.released(self)


class SharedArrangements:
    """Those of one server. `arranger` makes them, and those that are not shared."""

    def __init__(self, arranger: Arranger) -> None:
        self.arranger = arranger
        self._known: dict[Key, _Shared] = {}

    def lease(self, key: Key, schema: pa.Schema, as_of: Timestamp) -> Lease:
        """A lease at `as_of`, of an arrangement that can be asked for that time."""
        shared = next((self._known[k] for k in self._serving(key) if self._known[k].arrangement.since <= as_of), None)
        if shared is None:
            shared = self._known[key] = _Shared(key, self.arranger.arrangement(key[2], schema, as_of))
        lease = Lease(self, key, schema, shared, as_of)
        shared.leases.add(lease)
        return lease

    def _serving(self, key: Key) -> Iterator[Key]:
        """The keys of arrangements that have what one of `key` would have: first its own."""
        if key in self._known:
            yield key
        by = _by(key)
        for known in self._known if by is not None else ():
            if known != key and known[0] == key[0] and {*known[1]} >= {*key[1]} and _by(known) == by:
                yield known

    def released(self, lease: Lease) -> None:
        shared = lease.shared
        shared.leases.discard(lease)
        if not shared.leases:
            shared.arrangement.close()
            self.spoilt(lease)

    def spoilt(self, lease: Lease) -> None:
        """Whoever has a lease keeps it; there are no new ones."""
        if self._known.get(lease.shared.key) is lease.shared:
            del self._known[lease.shared.key]

    def __len__(self) -> int:
        return len(self._known)


def _by(key: Key) -> tuple[int, ...] | None:
    """The collection's columns by whose hash an arrangement is sorted; None for one that has an order."""
    _, places, sorting = key
    return tuple(places[int(name[1:])] for name in sorting.columns) if isinstance(sorting, ByKey) else None
