"""Writes of collections with an `upper` of their own to the log. Tables are written by the committer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence

import pyarrow as pa

from catalog.batches import Batch, Payload
from catalog.ids import ObjectId, Timestamp
from catalog.log import Dropped, Log
from catalog.store import Store
from server.coordinator.backpressure import Backpressure
from server.coordinator.collection_feeds import CollectionFeeds
from server.dataflow.runtime.resting import Resting
from server.runtime.threads import to_the_end
from server.timeline.frontiers import Frontiers


class LogWriter:
    """Writes changes of materialized views, and makes changes known to frontiers, feeds and backpressure."""

    def __init__(
        self,
        store: Store,
        log: Log,
        frontiers: Frontiers,
        feeds: CollectionFeeds,
        backpressure: Backpressure,
        resting: Resting,
    ) -> None:
        self._store = store
        self._log = log
        self._frontiers = frontiers
        self._feeds = feeds
        self._backpressure = backpressure
        self._resting = resting

    async def write(self, id: ObjectId, changes: Sequence[tuple[Timestamp, pa.Table]]) -> None:
        """Writes changes at ascending times, and the `upper` after them, in one transaction.

        Nothing is written if the view was dropped.

        Cancel safety: what has reached the disk has been made visible. A dataflow that is restarted continues after it.
        """
        await to_the_end(self._write(id, changes))

    async def _write(self, id: ObjectId, changes: Sequence[tuple[Timestamp, pa.Table]]) -> None:
        upper = Timestamp(changes[-1][0] + 1)
        payloads: list[Payload] = []

        def prepare() -> None:
            payloads.extend(map(self._log.prepare, (table for _, table in changes)))

        def act(tx: sqlite3.Connection) -> list[Batch]:
            self._log.advance_upper(tx, id, upper)
            return [self._log.insert(tx, id, at, own) for (at, _), own in zip(changes, payloads, strict=True)]

        try:
            with self._log.discarding(payloads):
                await asyncio.to_thread(prepare)
                batches = await self._store.transaction(act)
        except Dropped:
            return
        self.written(id, upper, list(zip(batches, payloads, strict=True)), are_read=True)

    def written(
        self, id: ObjectId, upper: Timestamp, written: Sequence[tuple[Batch, Payload]], *, are_read: bool
    ) -> None:
        """Makes changes that are on disk visible, and advances `upper`.

        `are_read`: whether all retractions are of rows that had been read (`Committer.has_read_retractions`).
        """
        self._log.committed(written)
        self._backpressure.written(written)
        self._feeds.append(written)
        for _, payload in written:
            self._resting.written(id, [payload.table], all=not are_read)
        self.advance(id, upper)

    def advance(self, id: ObjectId, upper: Timestamp) -> None:
        """Advances the `upper` of a collection, in memory only (see `catalog.log`)."""
        if id in self._frontiers.view_uppers:
            self._frontiers.view_uppers[id] = max(upper, self._frontiers.view_uppers[id])
        moved = {id} | self._frontiers.followers(id)
        self._feeds.close_times(moved)
        self._resting.close_times(moved)
        self._frontiers.moved.fire()
