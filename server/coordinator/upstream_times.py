"""Writes to collections that have the timestamps of their source (option TIMESTAMPS = 'upstream').

Such a collection has an `upper` of its own: the frontier of its history. Each change is in the log at its own time:

    collection at t = sum of the upstream updates at times <= t        for since <= t < upper
    upper <= the tables' `upper`

So another server that reads the same history has the same rows at the same timestamps. `since` is at least the time of
the first change: a history that a sink wrote begins with the rows at one time, and does not contain what was before. A
history that has ended (frontier `END`) does not change any more, and `upper` is then that of the tables.

A statement that reads such a collection and writes a table does not conflict with changes at later times. Otherwise it
could fail forever, because it has to wait for the time at which it reads, and changes arrive meanwhile.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from catalog import source_state, updates
from catalog.batches import Batch, Payload
from catalog.ids import ObjectId, Timestamp
from catalog.log import Dropped, Log
from catalog.spans import Spans
from catalog.store import Store
from protocol.cdcv2.messages import END, TIME, Integers
from server.coordinator.committer import Committer, Conflict, Request
from server.coordinator.log_writer import LogWriter
from server.runtime.threads import to_the_end
from server.timeline.frontiers import Frontiers

AHEAD_MS_MAX = 60_000  # how far the times of a source may be ahead of the server's clock
TIMES_MAX = 1 << 16  # of a batch of the log


class AheadOfClock(Exception):
    """The error for changes at times that the server's clock will not reach soon. `ahead_ms`: how far ahead."""

    def __init__(self, ahead_ms: int) -> None:
        super().__init__(f"{ahead_ms} ms ahead of the clock")
        self.ahead_ms = ahead_ms


class UpstreamTimes:
    """Writes changes at the times of their source. Each collection has one writer."""

    def __init__(
        self,
        store: Store,
        log: Log,
        committer: Committer,
        frontiers: Frontiers,
        writer: LogWriter,
        clock_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._log = log
        self._committer = committer
        self._frontiers = frontiers
        self._writer = writer
        self._clock_ms = clock_ms

    def resume(self, id: ObjectId, frontier: int) -> None:
        """Called when a source continues at a committed frontier."""
        if frontier == END and id in self._frontiers.floors:
            self._frontiers.follow(id, frozenset())
            self._writer.advance(id, self._frontiers.upper(id))

    async def write(
        self, id: ObjectId, source: ObjectId, tables: Sequence[pa.Table], frontier: int, state: source_state.State
    ) -> None:
        """Commits changes (c0, c1, ..., TIME, DIFF), all at times before `frontier`, and the source's state after them.

        The changes of each time are consolidated. Returns when they are on disk and readable.

        AheadOfClock, before anything is written. Conflict if the collection was dropped.

        Cancel safety: a commit that has begun is completed before CancelledError is raised.
        """
        changes = _by_time(tables)
        times = changes[TIME].to_numpy() if changes is not None else np.array([], np.int64)
        upper = Timestamp(frontier if frontier != END else (int(times[-1]) + 1 if len(times) else 0))
        upper = max(upper, self._frontiers.view_uppers.get(id, upper))
        await self._reach(upper)
        since = Timestamp(0)
        if upper and not self._frontiers.view_uppers.get(id):
            since = Timestamp(int(times[0]) if len(times) else upper - 1)
        payloads = [] if changes is None else await asyncio.to_thread(self._payloads, changes, times)

        async def write() -> None:
            written = await self._commit(id, source, (since, upper), payloads, state)
            self._frontiers.compacted(id, since)
            are_read = not written or self._committer.has_read_retractions(id, written[0][0].first_time)
            self._writer.written(id, upper, written, are_read=are_read)
            self.resume(id, frontier)

        await to_the_end(write())

    async def _reach(self, upper: Timestamp) -> None:
        """Returns when the tables' `upper` is at least `upper`.

        The server's timestamps may have to pass its clock for this: those of a server that was killed are ahead of its
        clock after a restart, by the reservation of the oracle.
        """
        while self._frontiers.tables_upper < upper:
            if (ahead_ms := upper - 1 - self._clock_ms()) > AHEAD_MS_MAX:
                raise AheadOfClock(ahead_ms)
            await self._committer.commit(Request(not_before=upper - 1))

    def _payloads(self, changes: pa.Table, times: Integers) -> list[tuple[Timestamp, Payload]]:
        """Payloads in order of time, each with the greatest of its times. Blocks while large ones are written."""
        rows = changes.drop_columns([TIME])
        begins = np.flatnonzero(np.diff(times, prepend=-1))
        found = []
        for first in range(0, len(begins), TIMES_MAX):
            own = begins[first : first + TIMES_MAX]
            last = first + TIMES_MAX
            end = int(begins[last]) if last < len(begins) else len(times)
            payload = self._log.prepare(rows.slice(int(own[0]), end - int(own[0])))
            if len(own) > 1:
                ends = np.append(own[1:], end) - own[0]
                payload = replace(payload, spans=Spans(times[own], ends.astype(np.int64)))
            found.append((Timestamp(int(times[end - 1])), payload))
        return found

    async def _commit(
        self,
        id: ObjectId,
        source: ObjectId,
        frontiers: tuple[Timestamp, Timestamp],
        payloads: Sequence[tuple[Timestamp, Payload]],
        state: source_state.State,
    ) -> list[tuple[Batch, Payload]]:
        """Writes everything in one transaction. `frontiers`: `since` and `upper` after it."""
        since, upper = frontiers
        unread = [time for time, payload in payloads if updates.has_retractions(payload.table)]

        def act(tx: sqlite3.Connection) -> list[Batch]:
            if not tx.execute("SELECT 1 FROM collections WHERE id = ?", (id,)).fetchall():
                raise Dropped(id)
            self._log.begin_history(tx, id, since)
            self._log.advance_upper(tx, id, upper)
            source_state.save(tx, source, state)
            if unread:
                self._committer.save_unread(tx, unread[-1])
            return [self._log.insert(tx, id, time, payload) for time, payload in payloads]

        try:
            with self._log.discarding(payload for _, payload in payloads):
                batches = await self._store.transaction(act)
        except Dropped:
            raise Conflict from None
        if unread:
            self._committer.note_unread(id, unread[-1])
        return [(batch, payload) for batch, (_, payload) in zip(batches, payloads, strict=True)]


def _by_time(tables: Sequence[pa.Table]) -> pa.Table | None:
    """The changes in order of time; None if there are none."""
    tables = [table for table in tables if table.num_rows]
    if not tables:
        return None
    found = pa.concat_tables(tables)
    times = found[TIME].to_numpy()
    return found if (np.diff(times) >= 0).all() else found.take(pa.array(np.argsort(times, kind="stable")))
