"""Arrangements of collections, shared by all operators that look up rows by the same columns.

An operator has a lease with a time, at which it reads. The first lease that needs a later time inserts the updates from
the log; reads at an earlier time do not see them. The arrangement's `since` is the least time of its leases. Without
leases the arrangement is closed. A lease may also use an arrangement by the same key with additional columns, such as
that of an index.

A new lease of an existing arrangement may be the first to need updates between the last inserted ones and its time. The
other leases, whose owners hold this history, may be released before it inserts them. It therefore holds the history
itself until its first `reach`: the log could otherwise merge these updates with earlier ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from server.dataflow.arrangements.arrangement import Arrangement, Arranger
from server.dataflow.arrangements.projected_arrangement import ProjectedArrangement
from server.dataflow.arrangements.run import ByKey, Sorting
from server.dataflow.arrangements.times import Times
from server.dataflow.inputs import Inputs
from server.runtime.threads import to_the_end
from server.timeline.frontiers import Holder

INSERTED_ROWS = 1 << 16  # changes of several times are inserted together, about so many at once

Key = tuple[ObjectId, tuple[int, ...], Sorting]


@dataclass(eq=False)
class _Shared:
    """An arrangement of a collection and the operators that use it."""

    key: Key
    arrangement: Arrangement
    leases: set[Lease] = field(default_factory=set)
    times: Times = field(default_factory=Times)
    """Those of the leases."""
    filled: bool = False  # whether the rows at its first time are inserted
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    inserting: asyncio.Task[None] | None = None  # the last insert

    @property
    def complete_at(self) -> Timestamp:
        """The last time at which it has all updates, once its rows are inserted."""
        if self.filled:
            return Timestamp(self.arrangement.upper - 1)
        return self.times.least


@dataclass(eq=False)
class Lease:
    """One operator's use of an arrangement. Until it is released, the arrangement keeps history from `time` on.

    `holder`: keeps the collection's history that the first `reach` inserts.
    """

    owner: SharedArrangements
    key: Key
    schema: pa.Schema
    shared: _Shared
    time: Timestamp
    holder: Holder | None

    @cached_property
    def arrangement(self) -> Arrangement:
        """The shared arrangement, or a projection of it if it has more columns than the operator needs."""
        (_, has, _), (_, wanted, sorting) = self.shared.key, self.key
        if has == wanted:
            return self.shared.arrangement
        columns = [self.shared.arrangement.schema.names[has.index(position)] for position in wanted]
        return ProjectedArrangement(self.shared.arrangement, columns, self.schema, sorting)

    async def reach(self, inputs: Inputs, time: Timestamp) -> None:
        """Inserts the updates up to and including `time`. The caller holds the collection's history since `self.time`.

        After a failed insert the arrangement gets no further leases.

        Cancel safety: some of the updates are inserted; the next call continues after them.
        """
        id = self.key[0]
        async with self.shared.lock:
            if self.shared.inserting is not None:  # its caller may have been cancelled twice
                await asyncio.wait([self.shared.inserting])
            if not self.shared.filled:
                start = self.shared.complete_at
                self.shared.arrangement.advance(start)  # there will be no rows before, so no lease may begin there
                await self._insert(updates.with_diff(await inputs.rows(id, start), 1), start)
            times = inputs.change_times(id, self.arrangement.upper, time + 1)
            parts: list[pa.Table] = []
            rows: list[int] = []
            for number, at in enumerate(times, 1):
                parts.append(await inputs.changes(id, at, at + 1))
                rows.append(parts[-1].num_rows)
                if sum(rows) > INSERTED_ROWS or number == len(times):
                    of_rows = np.repeat(times[number - len(rows) : number], rows) if len(rows) > 1 else None
                    await self._insert(pa.concat_tables(parts), at, of_rows)
                    parts, rows = [], []
        self.release_history()

    async def _insert(self, changes: pa.Table, time: Timestamp, times: NDArray[np.int64] | None = None) -> None:
        _, positions, _ = self.shared.key
        columns = [*(changes.column(position) for position in positions), changes[updates.DIFF]]
        names = [*self.shared.arrangement.schema.names, updates.DIFF]

        async def insert() -> None:  # continues if the caller is cancelled
            try:
                await self.shared.arrangement.insert(pa.table(columns, names=names), int(time), times)
            except Exception:  # the arrangement may be incomplete
                self.owner.invalidated(self)
                raise
            self.shared.filled = True

        self.shared.inserting = asyncio.create_task(insert())
        await to_the_end(self.shared.inserting)

    def release_history(self) -> None:
        """Releases the history up to `time`, whose updates are inserted or not needed."""
        if self.holder is not None:
            self.holder.release()
            self.holder = None

    def advance(self, time: Timestamp) -> None:
        """Called when the operator will not read at times before `time` any more."""
        self.shared.times.remove(self.time)
        self.shared.times.add(time)
        self.time = time
        self.arrangement.advance(self.shared.times.least)

    def invalidate(self) -> None:
        """Releases the lease after a failed insert: the arrangement gets no further leases."""
        self.owner.invalidated(self)
        self.release()

    def release(self) -> None:
        """Ends the use of the arrangement by this operator. May be called twice."""
        self.owner.released(self)


class SharedArrangements:
    """The shared arrangements of a server, made by `arranger`. Operators also use it for unshared arrangements."""

    def __init__(self, arranger: Arranger, hold: Callable[[ObjectId, int], Holder]) -> None:
        """`hold` keeps a collection's history from a time on (`Frontiers.hold_log`)."""
        self.arranger = arranger
        self._hold = hold
        self.restoring = asyncio.Lock()
        """Held while a dataflow builds its state again."""
        self._known: dict[Key, _Shared] = {}

    def lease(self, key: Key, schema: pa.Schema, as_of: Timestamp) -> Lease:
        """A lease at `as_of`, of an existing arrangement with `since <= as_of` or a new one."""
        shared = next((self._known[k] for k in self._serving(key) if self._known[k].arrangement.since <= as_of), None)
        holder = None
        if shared is None:
            shared = self._known[key] = _Shared(key, self.arranger.arrangement(key[2], schema, as_of))
        elif shared.complete_at < as_of:
            holder = self._hold(key[0], shared.complete_at)
        lease = Lease(self, key, schema, shared, as_of, holder)
        shared.leases.add(lease)
        shared.times.add(lease.time)
        return lease

    def _serving(self, key: Key) -> Iterator[Key]:
        """The keys of existing arrangements that can serve `key`: first `key` itself."""
        if key in self._known:
            yield key
        by = _by(key)
        for known in self._known if by is not None else ():
            if known != key and known[0] == key[0] and {*known[1]} >= {*key[1]} and _by(known) == by:
                yield known

    def released(self, lease: Lease) -> None:
        lease.release_history()
        shared = lease.shared
        if lease in shared.leases:
            shared.leases.remove(lease)
            shared.times.remove(lease.time)
        if not shared.leases:
            shared.arrangement.close()
            self.invalidated(lease)

    def invalidated(self, lease: Lease) -> None:
        """Ends the sharing of an arrangement: existing leases remain valid, and there are no new ones."""
        if self._known.get(lease.shared.key) is lease.shared:
            del self._known[lease.shared.key]

    def forget(self, collection: ObjectId) -> None:
        """As `invalidated`, for all arrangements of a collection."""
        for key in [key for key in self._known if key[0] == collection]:
            del self._known[key]

    def __len__(self) -> int:
        return len(self._known)


def _by(key: Key) -> tuple[int, ...] | None:
    """The positions of the collection's columns by whose hash an arrangement is sorted; None if not `ByKey`."""
    _, positions, sorting = key
    return tuple(positions[int(name[1:])] for name in sorting.columns) if isinstance(sorting, ByKey) else None
