"""Group commit: whatever waits when the committer becomes free shares one timestamp and one SQLite transaction.

One task, one loop: take what waits, get a timestamp, check each request against what was committed since it read,
write all of them in one transaction, move the tables' upper, acknowledge. An acknowledged write is on disk, and
nobody is acknowledged before the frontier has moved past the write. While nothing is written the frontier moves all
the same, at least every `interval_s`, as an empty commit that touches the disk only to extend the reservation.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from catalog import persistence
from catalog.log import Batch, Log, Payload
from catalog.log import Frontiers as DurableFrontiers
from catalog.objects import CatalogState, MaterializedView, ObjectId, Table, Timestamp
from catalog.oracle import Oracle
from catalog.store import Fenced, Store
from server.frontiers import Frontiers

GROUP_MAX = 1_000  # requests in one transaction: bounds its length, and so the latency of the first of them

log = structlog.get_logger()


class Conflict(Exception):
    """Something that the request had read has changed since: read again, and retry."""


@dataclass(slots=True)
class Request:
    """What shall be committed together.

    `unchanged`: collections that were read, and at which time; none of them may have been written after it.
    `catalog`: the states before and after DDL; the one before must still be the present one.
    """

    writes: Sequence[tuple[ObjectId, Payload]] = ()
    unchanged: Mapping[ObjectId, Timestamp] = field(default_factory=dict)
    catalog: tuple[CatalogState, CatalogState] | None = None
    done: asyncio.Future[Timestamp] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


Listener = Callable[[Timestamp, Sequence[tuple[Batch, Payload]]], None]


class Committer:
    """Owns the tables' upper and the present `CatalogState`. `listeners` are told of every commit, in its order."""

    def __init__(
        self,
        store: Store,
        log_: Log,
        oracle: Oracle,
        state: CatalogState,
        frontiers: Frontiers,
        *,
        clock_ms: Callable[[], int],
        interval_s: float,
    ) -> None:
        self._store = store
        self._log = log_
        self._oracle = oracle
        self._frontiers = frontiers
        self._clock_ms = clock_ms
        self._interval_s = interval_s
        self._queue: list[Request] = []
        self._wake = asyncio.Event()
        self._last_write: dict[ObjectId, Timestamp] = {}
        self.state = state
        self.listeners: list[Listener] = []
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def commit(self, request: Request) -> Timestamp:
        """The timestamp at which the request is on disk and readable. Conflict, or what SQLite raised.

        Cancel safety: a request that was taken commits all the same, unknown to the cancelled caller.
        """
        self._queue.append(request)
        self._wake.set()
        return await asyncio.shield(request.done)

    async def run(self) -> None:
        """Commits until cancelled. A fence ends it: `failed` tells the server to leave."""
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass  # idle: the frontier moves on
            self._wake.clear()
            group, self._queue = self._queue[:GROUP_MAX], self._queue[GROUP_MAX:]
            if self._queue:
                self._wake.set()
            try:
                await self._commit_group(group)
            except Exception as error:
                log.error("commit failed", error=str(error), requests=len(group), exc_info=error)
                for request in group:
                    if not request.done.done():
                        request.done.set_exception(error)
                        request.done.exception()  # a cancelled waiter must not make this "never retrieved"
                if isinstance(error, Fenced):
                    self.failed.set_result(error)
                    return

    async def close_times(self) -> None:
        """Moves the frontier once, as an empty commit: at start, so that there is a time to read at."""
        await self._commit_group([])

    async def _commit_group(self, group: list[Request]) -> None:
        time = self._oracle.next(self._clock_ms())
        state, accepted = self._accept(group)
        extension = self._oracle.extension()
        # A write to a table that a later request of the group drops has nowhere to go.
        writes = [write for request in accepted for write in request.writes if write[0] in state.items]
        old = self.state
        written: list[tuple[Batch, Payload]] = []
        if writes or extension is not None or state is not old:

            def act(tx: sqlite3.Connection) -> list[Batch]:
                if extension is not None:
                    tx.execute("UPDATE meta SET value = ? WHERE key = 'reserved_until'", (extension,))
                if state is not old:
                    persistence.save(tx, old, state)
                    self._save_collections(tx, old, state, time)
                return [self._log.insert(tx, collection, time, payload) for collection, payload in writes]

            batches = await self._store.transaction(act)
            written = [(batch, payload) for batch, (_, payload) in zip(batches, writes, strict=True)]
            if extension is not None:
                self._oracle.extended(extension)
        self._log.committed(written)
        for batch, _ in written:
            self._last_write[batch.collection] = time
        if state is not old:
            self._adopt(old, state, time)
        self._frontiers.tables_upper = Timestamp(time + 1)
        for listener in self.listeners:
            listener(time, written)
        self._frontiers.moved.fire()
        for request in accepted:
            if not request.done.cancelled():
                request.done.set_result(time)

    def _accept(self, group: list[Request]) -> tuple[CatalogState, list[Request]]:
        """The requests that still hold, and the catalog after them; the others are told of the conflict."""
        state = self.state
        written: set[ObjectId] = set()
        accepted = []
        for request in group:
            stale = any(
                self._last_write.get(id, 0) > read_at or id in written or id not in state.items
                for id, read_at in request.unchanged.items()
            )
            gone = any(collection not in state.items for collection, _ in request.writes)
            if stale or gone or (request.catalog is not None and request.catalog[0].version != state.version):
                request.done.set_exception(Conflict())
                request.done.exception()
                continue
            if request.catalog is not None:
                state = request.catalog[1]
            written.update(collection for collection, _ in request.writes)
            accepted.append(request)
        return state, accepted

    def _save_collections(self, tx: sqlite3.Connection, old: CatalogState, new: CatalogState, time: Timestamp) -> None:
        for id in new.items.keys() - old.items.keys():
            match new.items[id]:
                case Table():
                    self._log.create(tx, id, DurableFrontiers(time, None))
                case MaterializedView():
                    self._log.create(tx, id, DurableFrontiers(time, time))
                case _:
                    pass
        for id in old.items.keys() - new.items.keys():
            self._log.drop(tx, id)

    def _adopt(self, old: CatalogState, new: CatalogState, time: Timestamp) -> None:
        self.state = new
        for id in new.items.keys() - old.items.keys():
            item = new.items[id]
            if isinstance(item, Table | MaterializedView):
                self._frontiers.created(id, time, time if isinstance(item, MaterializedView) else None)
        for id in old.items.keys() - new.items.keys():
            self._frontiers.dropped(id)
            self._log.dropped(id)
            self._last_write.pop(id, None)
