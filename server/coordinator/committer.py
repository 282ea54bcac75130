"""Group commit: the requests that wait when the committer becomes free share one timestamp and one SQLite transaction.

One task runs a loop: take the waiting requests, get a timestamp, check each request against the commits since it read,
write all of them in one transaction, advance the tables' `upper`, acknowledge. An acknowledged write is on disk, and
`upper` is greater than its timestamp. A request that changes the catalog is the first of its group, because changes of
tables are computed for the definitions before it, or after it.

While nothing is written, empty commits advance `upper` with the clock. They write to disk only to extend the timestamp
reservation. The first ones follow a write after CLOSE_S, the others every `interval_s`. A client that notes the time of
its acknowledgement therefore soon receives progress beyond it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import structlog

from catalog import holds, layout, persistence, source_state, updates
from catalog.batches import Batch, Payload
from catalog.collection_errors import CollectionError, CollectionErrors
from catalog.holds import HoldPosition
from catalog.ids import ObjectId, Timestamp
from catalog.log import Frontiers as DurableFrontiers
from catalog.log import Log
from catalog.objects.catalog_object import Item
from catalog.objects.holds import Hold
from catalog.objects.indexes import Index
from catalog.objects.relations import Retained, WrittenCollection
from catalog.objects.tables import Table
from catalog.objects.views import MaterializedView, View
from catalog.oracle import Oracle
from catalog.rebasing import rebased
from catalog.state import CatalogState
from catalog.store import MustEnd, Store
from protocol.pgwire.enums import without_name
from protocol.pgwire.errors import PgError
from server.coordinator.holds import Advance, Holds, Moves, Overdue
from server.coordinator.key_conflicts import Keys, RecentWrites, Write
from server.coordinator.key_counts import KeyCounts
from server.coordinator.key_indexes import Duplicate, KeyChanges, KeyIndexes, enforced_keys, has_same_keys
from server.coordinator.payloads import shared_payloads
from server.coordinator.row_buffer import Inconvertible, RowBuffer, payloads_of
from server.coordinator.snapshot_cache import layout_of
from server.sql.index_keys import is_computed
from server.timeline.frontiers import Frontiers

GROUP_MAX = 1_000  # requests in one transaction; bounds its duration, and so the latency of its first request
CLOSE_S = (0.002, 0.004, 0.014)
"""Pauses before the empty commits after a write. The later ones are for acknowledgements that arrive late."""
GATHER_S = 0.002  # how long ADVANCE requests wait for others to share a transaction; no reader depends on them

log = structlog.get_logger()


class Conflict(Exception):
    """Data that the request depends on has changed since it was read. Read again and retry.

    `relation`: what has changed, or None if it is the catalog.
    """

    def __init__(self, relation: ObjectId | None = None) -> None:
        super().__init__(relation)
        self.relation = relation


@dataclass(frozen=True, slots=True)
class Commit:
    """A request that is on disk. `replaced`: the positions of holds before their `advances`."""

    time: Timestamp
    replaced: Mapping[ObjectId, HoldPosition] = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """Changes to be committed together.

    `rows`: few inserted rows by table (`RowBuffer.is_few`). Those of a group's requests share payloads.
    `changes`: few changes of collections in `unchanged` (`few_changes`). Those of a group's requests share payloads.
    `unchanged`: collections that were read, and the times. None of them may have been written since.
    `keys`: those of `unchanged` of which only the rows with these keys were read; other rows may have been written.
    `tables`: the written tables, as the changes were computed for them. They may not have been altered since.
    `key_changes`: the changes of enforced keys by table. Those that are missing are computed by the committer.
    `new_keys`: the rows of enforced keys that `catalog` adds to a table in `unchanged`, without the request's changes.
    `catalog`: the states before and after DDL. If the state before is not the current one any more, the committer
    applies the difference to the current one, unless both changes might concern the same thing.
    `history_starts`: the times at which the history of new materialized views, indexes and holds starts, if they are
    not that of the commit. The requester holds the required history until the commit is done.
    `advances`, `overdue`: moves of holds.
    `source_state`: the state of sources after the changes in `writes`.
    `errors`: collections whose error changes; None: they can be read again.
    `not_before`: the least timestamp of the commit. It may be ahead of the clock; later commits are then after it.
    """

    writes: Sequence[tuple[ObjectId, Payload]] = ()
    rows: Mapping[ObjectId, RowBuffer] = field(default_factory=dict)
    changes: Mapping[ObjectId, pa.Table] = field(default_factory=dict)
    unchanged: Mapping[ObjectId, Timestamp] = field(default_factory=dict)
    keys: Mapping[ObjectId, Keys] = field(default_factory=dict)
    tables: Mapping[ObjectId, Table] = field(default_factory=dict)
    key_changes: Mapping[ObjectId, KeyChanges] = field(default_factory=dict)
    new_keys: Mapping[str, KeyCounts] = field(default_factory=dict)
    catalog: tuple[CatalogState, CatalogState] | None = None
    history_starts: Mapping[ObjectId, Timestamp] = field(default_factory=dict)
    advances: Sequence[Advance] = ()
    overdue: Sequence[Overdue] = ()
    source_state: Mapping[ObjectId, source_state.State] = field(default_factory=dict)
    errors: Mapping[ObjectId, CollectionError | None] = field(default_factory=dict)
    not_before: int = 0
    done: asyncio.Future[Commit] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def written(self) -> set[ObjectId]:
        """The collections that the request changes."""
        return {*self.rows, *self.changes, *(id for id, _ in self.writes), *self.errors}

    def each_write(self) -> Iterator[tuple[ObjectId, pa.Table | RowBuffer | None]]:
        """The changes of the request, by collection. None: the error changes."""
        yield from ((id, payload.table) for id, payload in self.writes)
        yield from self.rows.items()
        yield from self.changes.items()
        yield from ((id, None) for id in self.errors)

    @property
    def retracts_unread(self) -> list[ObjectId]:
        """The collections from which the request retracts rows that it had not read."""
        writes = ((id, payload.table) for id, payload in self.writes if id not in self.unchanged)
        return [id for id, table in writes if updates.has_retractions(table)]

    @property
    def only_moves_holds(self) -> bool:
        """Whether no reader depends on the request, so that it may wait for others."""
        return bool(self.advances or self.overdue) and not (self.written or self.source_state) and self.catalog is None


@dataclass(slots=True)
class _Group:
    """The accepted requests of one commit, and the positions of holds that each replaces.

    `state`: the catalog after them. `history_starts`, `rows`, `changes`: as in `Request`; the
    last two of all requests, by collection.
    `errors`: the new errors of collections.
    """

    state: CatalogState
    moves: Moves
    accepted: list[Request] = field(default_factory=list)
    replaced: list[Mapping[ObjectId, HoldPosition]] = field(default_factory=list)
    history_starts: dict[ObjectId, Timestamp] = field(default_factory=dict)
    rows: dict[ObjectId, list[RowBuffer]] = field(default_factory=dict)
    changes: dict[ObjectId, list[pa.Table]] = field(default_factory=dict)
    errors: dict[ObjectId, CollectionError | None] = field(default_factory=dict)


Listener = Callable[[Timestamp, Sequence[tuple[Batch, Payload]]], None]


class Committer:
    """Owns the tables' `upper` and the current `CatalogState`. Calls `listeners` after every commit, in order."""

    def __init__(
        self,
        store: Store,
        log_: Log,
        errors: CollectionErrors,
        oracle: Oracle,
        state: CatalogState,
        frontiers: Frontiers,
        holds: Holds,
        *,
        clock_ms: Callable[[], int],
        interval_s: float,
    ) -> None:
        self._store = store
        self._log = log_
        self._errors = errors
        self._oracle = oracle
        self._frontiers = frontiers
        self._holds = holds
        self._clock_ms = clock_ms
        self._interval_s = interval_s
        self._queue: list[Request] = []
        self._wake = asyncio.Event()
        self._empty_commits = len(CLOSE_S)  # since the last write
        self._last_write: dict[ObjectId, Timestamp] = {}
        self._recent_writes = RecentWrites()
        self.key_indexes: KeyIndexes | None = None
        """The indexes of enforced keys. None: keys are not checked."""
        self._unread: dict[ObjectId, Timestamp] = {}
        found = store.read("SELECT value FROM meta WHERE key = 'unread'")
        self._unread_before_start = Timestamp(found[0][0] if found else 0)  # of any collection
        self.state = state
        self.listeners: list[Listener] = []
        self.announced: list[Listener] = []
        """Called with each commit that wrote, before the tables' `upper` passes its time. Must not raise."""
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def commit(self, request: Request) -> Commit:
        """Returns when the request is on disk and readable. Conflict, PgError, or SQLite's error.

        Cancel safety: a queued request is committed even if the caller is cancelled.
        """
        return await asyncio.shield(self.submit(request))

    def submit(self, request: Request) -> asyncio.Future[Commit]:
        """Queues a request. The result is that of `commit`. Do not cancel it."""
        self._queue.append(request)
        self._wake.set()
        return request.done

    async def run(self) -> None:
        """Commits until cancelled. After a `MustEnd` it sets `failed` and returns, and the server must end."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue:  # while idle, an empty commit advances the frontier
                pause_s = CLOSE_S[self._empty_commits] if self._empty_commits < len(CLOSE_S) else self._interval_s
                timer = loop.call_later(pause_s, self._wake.set)
                await self._wake.wait()
                timer.cancel()
            if self._queue and all(request.only_moves_holds for request in self._queue):
                await asyncio.sleep(GATHER_S)
            self._wake.clear()
            await self._commit_or_fail(self._next_group())
            if self.failed.done():
                return

    def _next_group(self) -> list[Request]:
        """Removes the first requests of the queue, up to the next one that changes the catalog."""
        queue = self._queue
        ends = (at for at, request in enumerate(queue[1:GROUP_MAX], 1) if request.catalog is not None)
        end = next(ends, GROUP_MAX)
        self._queue = queue[end:]
        return queue[:end]

    async def _commit_or_fail(self, group: list[Request]) -> None:
        """Commits the requests, or fails those that are not done. Sets `failed` after a `MustEnd`."""
        try:
            await self._commit_group(group)
        except Inconvertible as error:
            if len(group) == 1:
                _fail(group, error.__cause__ or error)
            else:  # one request must not fail the others
                for request in group:
                    if not (request.done.done() or self.failed.done()):
                        await self._commit_or_fail([request])
        except Exception as error:
            _fail(group, error)
            if isinstance(error, MustEnd):
                self.failed.set_result(error)

    def has_read_retractions(self, collection: ObjectId, lower: int) -> bool:
        """Whether all retractions at times >= `lower` were of rows that had been read.

        If so, they have made no multiplicity negative.
        """
        return lower > self._unread.get(collection, self._unread_before_start)

    def save_unread(self, tx: sqlite3.Connection, time: Timestamp) -> None:
        """Stores, in a transaction, that it retracts rows at `time` that were not read. Then call `note_unread`."""
        tx.execute(
            "INSERT INTO meta VALUES ('unread', ?) ON CONFLICT (key) DO UPDATE SET value = max(value, ?)", (time, time)
        )

    def note_unread(self, id: ObjectId, time: Timestamp) -> None:
        """Records what `save_unread` has stored, after its transaction."""
        self._unread[id] = max(time, self._unread.get(id, time))

    async def close_times(self) -> None:
        """Advances the frontier once by an empty commit, so that there is a timestamp to read at after a start."""
        await self._commit_group([])

    async def _commit_group(self, requests: list[Request]) -> None:
        time = self._oracle.next(max([self._clock_ms(), *(request.not_before for request in requests)]))
        group = self._accept(requests, time)
        try:
            written = await self._write(group, time)
        except BaseException:
            group.moves.roll_back()
            if self.key_indexes is not None:
                self.key_indexes.discard()
            raise
        has_changes = bool(written or group.errors)
        self._empty_commits = 0 if has_changes else self._empty_commits + 1
        self._log.committed(written)
        if self.key_indexes is not None:
            self.key_indexes.committed()
        for id, error in group.errors.items():
            self._errors.committed(id, time, error)
            self._wrote(id, time, Write(None))
        for batch, payload in written:
            self._wrote(batch.collection, time, Write(payload.table))
        group.moves.commit()
        if group.state is not self.state:
            self._adopt(self.state, group, time)
        for listener in self.announced if has_changes else ():
            listener(time, written)
        self._frontiers.tables_upper = Timestamp(time + 1)
        for listener in self.listeners:
            try:
                listener(time, written)
            except Exception as error:  # the commit is on disk, so its requests must not fail
                log.error("commit listener failed", time=time, error=str(error), exc_info=error)
        self._frontiers.moved.fire()
        commit = Commit(time)
        for request, replaced in zip(group.accepted, group.replaced, strict=True):
            if not request.done.cancelled():
                request.done.set_result(Commit(time, replaced) if replaced else commit)

    def _wrote(self, id: ObjectId, time: Timestamp, write: Write) -> None:
        self._last_write[id] = time
        self._recent_writes.add(id, time, write)

    async def _write(self, group: _Group, time: Timestamp) -> list[tuple[Batch, Payload]]:
        """Writes the group in one transaction, if there is anything to write. Returns the written batches."""
        old, new, positions = self.state, group.state, group.moves.positions
        extension = self._oracle.extension()
        writes = [write for request in group.accepted for write in request.writes]
        for id, buffers in group.rows.items():
            writes += [(id, payload) for payload in payloads_of(self._log, buffers, layout_of(new.items[id]))]
        for id, tables in group.changes.items():
            writes += [(id, payload) for payload in shared_payloads(self._log, tables, layout_of(new.items[id]))]
        unread = {id for request in group.accepted for id in request.retracts_unread}
        sources = [
            (id, state) for request in group.accepted for id, state in request.source_state.items() if id in new.items
        ]
        is_more = bool(positions or sources or group.errors or unread) or extension is not None or new is not old
        if not (writes or is_more):
            return []
        if len(writes) == 1 and not is_more:
            ((id, payload),) = writes
            if (batch := await self._log.insert_alone(id, time, payload)) is not None:
                return [(batch, payload)]

        def act(tx: sqlite3.Connection) -> list[Batch]:
            if extension is not None:
                tx.execute("UPDATE meta SET value = ? WHERE key = 'reserved_until'", (extension,))
            holds.save(tx, positions.items())
            if new is not old:
                persistence.save(tx, old, new)
                self._save_items(tx, old, group, time)
            for source, state in sources:
                source_state.save(tx, source, state)
            for id, error in group.errors.items():
                self._errors.save(tx, id, time, error)
            if unread:
                self.save_unread(tx, time)
            return [self._log.insert(tx, collection, time, payload) for collection, payload in writes]

        batches = await self._store.transaction(act)
        self._unread.update(dict.fromkeys(unread, time))
        if extension is not None:
            self._oracle.extended(extension)
        return [(batch, payload) for batch, (_, payload) in zip(batches, writes, strict=True)]

    def _accept(self, requests: list[Request], time: Timestamp) -> _Group:
        """Returns the requests that are still valid, in order. The others fail with Conflict or a hold's PgError."""
        group = _Group(self.state, moves := Moves(self._holds))
        written: dict[ObjectId, list[Write]] | None = None
        if any(request.unchanged for request in requests):
            written = {}
        for request in requests:
            try:
                self._check(request, group.state, written or {})
                replaced = {advance.hold: moves.advance(group.state, advance) for advance in request.advances}
                for overdue in request.overdue:
                    moves.advance_overdue(group.state, overdue)
                self._check_keys(request, group.state)
            except (Conflict, Duplicate, PgError) as error:
                request.done.set_exception(error)
                request.done.exception()
                continue
            group.accepted.append(request)
            group.replaced.append(replaced)
            if written is not None:
                for id, write in request.each_write():
                    written.setdefault(id, []).append(Write(write))
            for id, buffer in request.rows.items():
                group.rows.setdefault(id, []).append(buffer)
            for id, table in request.changes.items():
                group.changes.setdefault(id, []).append(table)
            group.errors.update(request.errors)
            group.history_starts.update(request.history_starts)
            if request.catalog is not None:
                before, after = group.state, request.catalog[1]
                group.state = _with_times(before, after, time)
                if written is not None:
                    for id in altered_tables(before, after):
                        written.setdefault(id, []).append(Write(None))
        return group

    def _check(self, request: Request, state: CatalogState, written: Mapping[ObjectId, Sequence[Write]]) -> None:
        """Conflict if the request is invalidated by earlier commits or by the group's earlier requests."""
        for id, read_at in request.unchanged.items():
            if id not in state.items or self._has_changed(id, read_at, request.keys.get(id), written.get(id, ())):
                raise Conflict(id)
        if request.catalog is not None:
            before, after = request.catalog
            if before.version != state.version:
                moved = rebased(before, after, state)
                if moved is None:
                    raise Conflict
                _check_tables(request, {id: state.items[id] for id in state.changed_items(before)})
                for id in request.written & before.items.keys():
                    if id not in state.items or not (
                        has_same_keys(before, state, id) or enforced_keys(before, id) == enforced_keys(state, id)
                    ):
                        raise Conflict(id)
                request.catalog = (state, moved)
            state = request.catalog[1]
        else:
            _check_tables(request, state.items)
        for id in (*request.written, *request.source_state):
            if id not in state.items:
                raise Conflict(id)

    def _check_keys(self, request: Request, state: CatalogState) -> None:
        """Duplicate if two rows would have the same enforced key. Conflict if an index is not loaded."""
        keys, catalog = self.key_indexes, request.catalog
        if keys is None:
            return
        if catalog is not None:
            state = catalog[1]
        changes: dict[ObjectId, list[pa.Table | RowBuffer]] = {}
        for id, write in request.each_write():
            if write is not None and keys.of(state, id):
                changes.setdefault(id, []).append(write)
        if changes or request.new_keys or catalog is not None:
            new = catalog[1].items.keys() - catalog[0].items.keys() if catalog is not None else ()
            arguments = (state, request.key_changes, changes, request.new_keys, new)
            if (missing := keys.stage(*arguments, alters=catalog is not None)) is not None:
                raise Conflict(missing)

    def last_write(self, id: ObjectId) -> int:
        """The time of the latest commit that wrote to a collection since the start, or 0."""
        return self._last_write.get(id, 0)

    def changed(self, unchanged: Mapping[ObjectId, Timestamp], keys: Mapping[ObjectId, Keys]) -> ObjectId | None:
        """One of the collections that were read at these times and have been written since. `keys`: as in `Request`."""
        for id, read_at in unchanged.items():
            if id not in self.state.items or self._has_changed(id, read_at, keys.get(id), ()):
                return id
        return None

    def _has_changed(self, id: ObjectId, read_at: Timestamp, keys: Keys | None, written: Sequence[Write]) -> bool:
        """Whether what was read of a collection has been written since, or is in `written`."""
        is_newer = self._last_write.get(id, 0) > read_at
        if keys is None:
            return is_newer or bool(written)
        return (is_newer and self._recent_writes.touch(id, read_at, keys)) or any(w.touches(keys) for w in written)

    def _save_items(self, tx: sqlite3.Connection, old: CatalogState, group: _Group, time: Timestamp) -> None:
        """Writes the frontiers and times of new items, and deletes those of dropped items."""
        new = group.state
        for id in new.items.keys() - old.items.keys():
            start = group.history_starts.get(id, time)
            match new.items[id]:
                case WrittenCollection(has_upstream_times=True):
                    self._log.create(tx, id, DurableFrontiers(Timestamp(0), Timestamp(0)))
                case WrittenCollection():
                    self._log.create(tx, id, DurableFrontiers(time, None))
                case MaterializedView():
                    self._log.create(tx, id, DurableFrontiers(start, start))
                case Hold():
                    holds.save(tx, [(id, HoldPosition(start))])
                case _:
                    pass
        gone = old.items.keys() - new.items.keys()
        holds.drop(tx, gone)
        source_state.drop(tx, gone)
        self._errors.drop(tx, gone)
        for id in gone:
            self._log.drop(tx, id)

    def _adopt(self, old: CatalogState, group: _Group, time: Timestamp) -> None:
        """Applies the new catalog, which is on disk, to frontiers and holds."""
        new = self.state = group.state
        changed = new.changed_items(old)
        created = [new.items[id] for id in changed if id not in old.items]
        for item in created:
            match item:
                case WrittenCollection(has_upstream_times=True):
                    self._frontiers.created(item.id, Timestamp(0), Timestamp(0), item.retain_ms)
                    self._frontiers.upstream_times.add(item.id)
                case WrittenCollection():
                    self._frontiers.created(item.id, time, None, item.retain_ms)
                case MaterializedView():
                    start = group.history_starts.get(item.id, time)
                    self._frontiers.created(item.id, start, start, item.retain_ms)
        readable: dict[ObjectId, Timestamp] = {}  # new indexes do not change it
        for item in created:
            if isinstance(item, Index):
                if isinstance(new.items[item.on], View):
                    since = group.history_starts.get(item.id, time)
                else:
                    if item.on not in readable:
                        readable[item.on] = self._frontiers.readable(item.on)
                    since = readable[item.on]
                index_created(self._frontiers, new, item, since)
        for item in created:
            if isinstance(item, Hold):
                self._holds.created(item, HoldPosition(group.history_starts.get(item.id, time)))
        for id in altered_tables(old, new):
            self._wrote(id, time, Write(None))
        for id in changed:
            before, after = old.items.get(id), new.items[id]
            if isinstance(after, Table) and after.numbering is not None and after.numbering.readable_from:
                self._frontiers.readable_from[id] = Timestamp(after.numbering.readable_from)
            if isinstance(before, Retained) and isinstance(after, Retained) and after.retain_ms != before.retain_ms:
                self._frontiers.retain(id, after.retain_ms)
        for id in old.items.keys() - new.items.keys():
            if isinstance(item := old.items[id], Hold):
                self._holds.dropped(item)
            self._frontiers.dropped(id)
            self._log.dropped(id)
            self._errors.dropped(id)
            self._last_write.pop(id, None)
            self._recent_writes.forget(id)
            self._unread.pop(id, None)
        if self.key_indexes is not None:
            self.key_indexes.adopt(new, changed)


def _check_tables(request: Request, items: Mapping[ObjectId, Item]) -> None:
    """Conflict if one of `items` is a table for which the request's changes were not computed."""
    for id, table in request.tables.items():
        current = items.get(id)
        if isinstance(current, Table) and not current.accepts_rows_of(table):
            raise Conflict(id)


def altered_tables(old: CatalogState, new: CatalogState) -> list[ObjectId]:
    """The tables of which the columns have changed, other than by name."""
    return [
        id
        for id in new.changed_items(old)
        if isinstance(after := new.items[id], Table)
        and isinstance(before := old.items.get(id), Table)
        and is_altered(before, after)
    ]


def is_altered(before: Table, after: Table) -> bool:
    """Whether what was computed for a definition of a table may be wrong for another one."""
    if before.columns is after.columns and before.numbering is after.numbering:
        return False
    columns = [[(without_name(c.type), c.nullable) for c in table.columns] for table in (before, after)]
    return before.numbering != after.numbering or columns[0] != columns[1]


def _with_times(before: CatalogState, state: CatalogState, time: Timestamp) -> CatalogState:
    """The state with the time of its commit in the tables that the commit has rewritten."""
    for id in state.changed_items(before):
        item = state.items[id]
        if isinstance(item, Table) and item.numbering is not None and item.numbering.readable_from == layout.NOW:
            state = state.with_item(replace(item, numbering=replace(item.numbering, readable_from=time)))
    return state


def index_created(frontiers: Frontiers, state: CatalogState, index: Index, since: Timestamp) -> None:
    """Registers an index. The history of its inputs begins at `since`."""
    if isinstance(state.items[index.on], View):
        frontiers.view_index_created(index.id, state.collections(index.depends_on), since, index.retain_ms)
    else:
        computed = is_computed(index, state)
        frontiers.index_created(index.id, index.on, since, index.retain_ms, computed=computed)


def _fail(group: Sequence[Request], error: BaseException) -> None:
    log.error("commit failed", error=str(error), requests=len(group), exc_info=error)
    for request in group:
        if not request.done.done():
            request.done.set_exception(error)
            request.done.exception()  # avoids "exception was never retrieved" if the caller was cancelled
