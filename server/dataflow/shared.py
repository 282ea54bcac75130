"""Arrangements of collections, shared by all operators that look rows up by the same columns.

An operator has a lease: a time at which it looks. The arrangement is brought to a time by whoever needs it there first,
from the log; what is later than an operator's own time is not seen by it. Nothing is kept behind the earliest lease,
and an arrangement without leases is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pyarrow as pa

from catalog import updates
from catalog.objects import ObjectId, Timestamp
from server.dataflow.arrangement import Arrangement, Arranger
from server.dataflow.computation import Inputs
from server.dataflow.run import Sorting
from server.dataflow.threads import to_the_end

Key = tuple[ObjectId, tuple[int, ...], Sorting]


@dataclass(eq=False)
class _Shared:
    arrangement: Arrangement
    leases: set[Lease] = field(default_factory=set)
    filled: bool = False  # with the rows at a first time
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(eq=False)
class Lease:
    """One operator's use of an arrangement. Release it, or nothing behind its time is let go."""

    owner: SharedArrangements
    key: Key
    shared: _Shared
    time: Timestamp

    @property
    def arrangement(self) -> Arrangement:
        return self.shared.arrangement

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
        _, places, _ = self.key
        columns = [*(changes.column(place) for place in places), changes[updates.DIFF]]
        names = [*self.arrangement.schema.names, updates.DIFF]
        await to_the_end(self.arrangement.insert(pa.table(columns, names=names), int(time)))

    def advance(self, time: Timestamp) -> None:
        """The operator will not look at earlier times any more."""
        self.time = time
        self.arrangement.advance(min(lease.time for lease in self.shared.leases))

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
        shared = self._known.get(key)
        if shared is None or shared.arrangement.since > as_of:
            shared = self._known[key] = _Shared(self.arranger.arrangement(key[2], schema, as_of))
        lease = Lease(self, key, shared, as_of)
        shared.leases.add(lease)
        return lease

    def released(self, lease: Lease) -> None:
        shared = lease.shared
        shared.leases.discard(lease)
        if not shared.leases:
            shared.arrangement.close()
            if self._known.get(lease.key) is shared:
                del self._known[lease.key]

    def __len__(self) -> int:
        return len(self._known)
