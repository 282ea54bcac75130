"""The coordinator: the current catalog, the frontiers, the log, and the dataflows over them.

The coordinator owns the state that outlives a session. It opens the data directory, runs the committer and compaction,
and maintains one dataflow for each materialized view and one feed for each distinct subscribed query. Sessions use it
to read rows at a timestamp, to commit, and to subscribe. The catalog is committed first. The dataflows are then derived
from the catalog, at start and after every DDL statement.
"""

from __future__ import annotations

import asyncio
import functools
import shutil
import sqlite3
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog

from catalog import holds, persistence, updates
from catalog.directory import DIRECTORY_MODE
from catalog.hashing import Hashes
from catalog.log import Batch, Dropped, Log, Payload
from catalog.objects import (
    CatalogState,
    Collection,
    Hold,
    Index,
    MaterializedView,
    ObjectId,
    SystemTable,
    Table,
    Timestamp,
    View,
)
from catalog.oracle import RESERVATION_MS, Oracle
from catalog.payloads import Payloads
from catalog.store import Store, StoreError, Undecided
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.activity import Activity
from server.coordinator.backpressure import Backpressure
from server.coordinator.committer import Committer, Request, index_created
from server.coordinator.compaction import compact
from server.coordinator.holds import DOWNTIME_GRACE_MS, Holds, Overdue
from server.coordinator.locks import TableLocks
from server.coordinator.snapshot_cache import SnapshotCache, collection_schema
from server.coordinator.system_table_history import SystemTableHistory
from server.dataflow.arrangements.arrangement import Storage
from server.dataflow.arrangements.file_arrangement import SERVER, Executors
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.plan.maintenance_strategy import MaintenanceStrategy, maintenance_strategy
from server.dataflow.runtime.computation import Computation
from server.dataflow.runtime.failed_plan import FailedPlan
from server.dataflow.runtime.incremental import computation_of
from server.dataflow.runtime.index import ComputedIndex, IndexDataflow, LogIndex
from server.dataflow.runtime.view import ViewDataflow
from server.dataflow.stream.feed import CollectionFeed, Feed, QueryFeed, Reader
from server.runtime import shutdown
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.metrics import Metrics
from server.settings import milliseconds, of_the_system
from server.spark import Engine
from server.sql.index_keys import index_keys, is_computed
from server.sql.plan import QueryPlan
from server.timeline.frontiers import Frontiers

LOOK_S = 0.05  # interval between two checks of the lag of dataflows

log = structlog.get_logger()

Plans = Callable[["Coordinator", MaterializedView | Index], Computation]


async def _no_changes(_: Timestamp) -> list[pa.Table]:
    return []


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _forget_downtime(tx: sqlite3.Connection) -> None:
    tx.execute("UPDATE meta SET value = 0 WHERE key = 'downtime'")


@dataclass(frozen=True, slots=True)
class SystemSource:
    """The source of a system table's rows. `revision` changes whenever the rows may have changed."""

    rows: Callable[[Coordinator], pa.Table]
    revision: Callable[[Coordinator], object]


@dataclass(frozen=True, slots=True)
class Joined:
    """A reader of a feed, the relation at `as_of`, and the changes after `as_of` that precede the reader.

    `tables` are rows or changes whose sum is the relation at `as_of`. `times` are the times of the changes between
    `as_of` and the reader's first entry. `changes` returns the changes of one of them, until `release` is called.
    """

    feed: Feed
    reader: Reader
    as_of: Timestamp
    tables: list[pa.Table]
    times: list[Timestamp]
    changes: Callable[[Timestamp], Awaitable[list[pa.Table]]]
    release: Callable[[], None]


class _Followed:
    """The inputs of dataflows: logged collections, and system tables, which have history while they are followed."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.is_logged = coordinator.is_logged
        self.rows = coordinator.rows_followed
        self.changes = coordinator.changes
        self.change_times = coordinator.change_times
        self.check = coordinator.check_counts
        self.lines = coordinator.lines


class Coordinator:
    """Owns the state that outlives a session. One per server process. Call `start` before use, `close` at the end."""

    def __init__(
        self,
        directory: Path,
        *,
        interval_s: float,
        system_tables: Mapping[ObjectId, SystemSource],
        plan_view: Plans,
        clock: Callable[[], int] = clock_ms,
    ) -> None:
        """StoreError if the directory cannot be used.

        `plan_view` returns the computation of a materialized view or an index. The columns of an index's computation
        are those of the relation, followed by the keys that are expressions.
        """
        self.store = Store(directory)
        self._directory = directory
        self._waiting = directory / "waiting"  # temporary files; those of an earlier server are removed
        shutil.rmtree(self._waiting, ignore_errors=True)
        self._waiting.mkdir(mode=DIRECTORY_MODE)
        self._storage = Storage(self._waiting)
        self._arrangements = SharedArrangements(self._storage)
        self._executors: Executors | None = None
        self.log = Log(self.store, Payloads(directory / "payloads"), self._waiting, self._description)
        self.frontiers = Frontiers()
        self.holds = Holds(self.frontiers)
        self.contents = SnapshotCache(self.log, self._waiting)
        self.locks = TableLocks()
        self.activity = Activity()
        self.metrics = Metrics()
        self.backpressure = Backpressure(self.metrics)
        self.following = SystemTableHistory(
            self.frontiers,
            lambda id: system_tables[id].rows(self),
            lambda id: system_tables[id].revision(self),
        )
        self._system_tables = system_tables
        self._plan_view = plan_view
        self.interval_s = interval_s
        ((reserved_until,),) = self.store.read("SELECT value FROM meta WHERE key = 'reserved_until'")
        # The last server was up at this time. It may have been up longer, but not until `reserved_until`.
        self._was_up_until = max(reserved_until - RESERVATION_MS, 0)
        self._committer = Committer(
            self.store,
            self.log,
            Oracle(reserved_until),
            persistence.load(self.store),
            self.frontiers,
            self.holds,
            clock_ms=clock,
            interval_s=interval_s,
        )
        self._committer.listeners.append(self._committed)
        self._collection_feeds: dict[ObjectId, CollectionFeed] = {}
        self._query_feeds: set[QueryFeed] = set()
        self._shared_feeds: dict[str, QueryFeed] = {}  # by fingerprint; new subscriptions may join these
        self._views: dict[ObjectId, ViewDataflow] = {}
        self._indexes: dict[ObjectId, tuple[IndexDataflow, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._state_seen = self.state

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Restores frontiers and holds, starts the dataflows, and closes a first timestamp, which reads can use.

        The order matters: all read holds are in place before any `since` advances. A materialized view resumes at the
        end of its log, although the first timestamp to be closed may be hours later.
        """
        items = self.state.items
        for id, item in items.items():
            if isinstance(item, Table | MaterializedView):
                durable = self.log.durable[id]
                self.frontiers.created(id, durable.since, durable.upper, item.retain_ms)
        for item in items.values():
            if isinstance(item, Index):
                inputs = self.state.collections(item.uses, through=(View,))
                since = max((self.log.durable[input].since for input in inputs), default=Timestamp(0))
                index_created(self.frontiers, self.state, item, since)
        for id, place in holds.load(self.store).items():
            hold = items[id]
            assert isinstance(hold, Hold)
            self.holds.created(hold, place)
        self._derive()
        await self._committer.close_times()
        downtime_ms = await self.store.transaction(self._add_downtime)
        self._spawn(self._committer.run(), "committer")
        self._spawn(compact(self.store, self.log, self.frontiers, self.metrics, self.interval_s), "compaction")
        self._spawn(self._watch_lag(downtime_ms), "lag of holds")
        self._spawn(self._watch_dataflows(), "lag of dataflows")

    def _add_downtime(self, tx: sqlite3.Connection) -> int:
        """Adds the downtime before this start to the stored total, and returns the total in milliseconds.

        The total is reset when a server has been up for DOWNTIME_GRACE_MS.
        """
        ((counted,),) = tx.execute("SELECT value FROM meta WHERE key = 'downtime'").fetchall()
        new = self.latest_time() - self._was_up_until if self._was_up_until else 0
        tx.execute("UPDATE meta SET value = ? WHERE key = 'downtime'", (counted + new,))
        return int(counted) + new

    async def _watch_lag(self, downtime_ms: int) -> None:
        """Advances overdue holds once per interval, all of them in one transaction. Runs until cancelled."""
        begun = time.monotonic()
        while True:
            await asyncio.sleep(self.interval_s)
            uptime_ms = int((time.monotonic() - begun) * 1_000)
            if downtime_ms and uptime_ms >= DOWNTIME_GRACE_MS:
                await self.store.transaction(_forget_downtime)
                downtime_ms = 0
            overdue = self.holds.overdue(self.state, uptime_ms, downtime_ms)
            if overdue:
                await self._catch_up(overdue)

    async def _catch_up(self, overdue: list[Overdue]) -> None:
        before = dict(self.holds.places)
        try:
            await self.commit(Request(overdue=overdue))
        except Exception as error:  # the committer logs the cause; the next check finds the overdue holds again
            raise_if_cancelled()
            log.error("holds that lag stay where they are", holds=len(overdue), error=str(error))
            return
        for move in overdue:
            place, hold = self.holds.places.get(move.hold), self.state.items.get(move.hold)
            if hold is None or place is None or place.at != move.to:
                continue  # the owner advanced it first
            self.metrics.holds_moved.inc()
            name = ".".join(self.state.full_name(hold))
            lost = {"before": before[move.hold].at, "at": place.at}
            log.warning("hold moved by its MAX LAG", hold=name, id=move.hold, **lost)

    async def _watch_dataflows(self) -> None:
        """Updates backpressure every LOOK_S. Runs until cancelled."""
        while True:
            sources = {id: view.inputs for id, view in self._views.items()}
            delay_s = milliseconds(self.setting("dataflow_lag_delay_max")) / 1_000
            self.backpressure.look(self.running, sources, self._lag_max, delay_s)
            await asyncio.sleep(LOOK_S)

    @property
    def _lag_max(self) -> int:
        return int(self.setting("dataflow_lag_bytes_max"))

    def setting(self, name: str) -> str:
        """The value of a server-wide variable."""
        return of_the_system(name, self.state.settings)

    def _keeps_too_much(self, view: ViewDataflow) -> bool:
        return 0 < self._lag_max < self.backpressure.lag(view).weight

    async def close(self) -> None:
        """Stops the dataflows and the committer, and closes the store. Acknowledged commits are on disk."""
        await shutdown.cancel_all(self._tasks)
        if self._executors is not None:
            self._executors.close()
            await asyncio.to_thread(self._executors.join)
        await asyncio.to_thread(self._storage.close)
        await asyncio.to_thread(self.store.close)

    @property
    def failed(self) -> asyncio.Future[BaseException]:
        """Done when the server must end: another server opened the data directory, or a commit's outcome is unknown."""
        return self._committer.failed

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed", task=task.get_name(), error=str(error), exc_info=error)

    # -- catalog and writes -------------------------------------------------------------------------------------

    @property
    def state(self) -> CatalogState:
        return self._committer.state

    def _description(self, id: ObjectId) -> str:
        """An object as error messages name it, such as `table "materialize.public.t"`."""
        item = self.state.items.get(id)
        return f'{item.kind} "{".".join(self.state.full_name(item))}"' if item is not None else id

    async def commit(self, request: Request) -> Timestamp:
        """Like `Committer.commit`. Removes the payload files of a request that failed."""
        try:
            return await self._committer.commit(request)
        except Undecided:
            raise  # only the next start can tell whether the commit is on disk; if not, it removes the files
        except Exception:
            for _, payload in request.writes:
                self.log.discard(payload)
            raise

    def _committed(self, time: Timestamp, written: Sequence[tuple[Batch, Payload]]) -> None:
        if self.state is not self._state_seen:
            self._derive()
        self.following.closed(time)
        if written:
            self.metrics.commits.inc()
            self.metrics.rows_written.inc(sum(payload.table.num_rows for _, payload in written))
        self._append(written)
        for id, feed in self._collection_feeds.items():
            feed.closed(self.frontiers.upper(id))

    def _append(self, written: Sequence[tuple[Batch, Payload]]) -> None:
        self.backpressure.written(written)
        feeds = self._collection_feeds
        touched: dict[ObjectId, list[pa.Table]] = {}
        for batch, payload in written:
            if batch.collection in feeds:
                touched.setdefault(batch.collection, []).append(payload.table)
                time = batch.time
        for id, tables in touched.items():
            check = None if self._committer.has_read(id, time) else functools.partial(self._check_counts, id)
            feeds[id].committed(time, tables, check)

    def _derive(self) -> None:
        """Starts and ends dataflows to match the catalog."""
        old, new = self._state_seen, self.state
        self._state_seen = new
        for id in old.items.keys() - new.items.keys():
            if (view := self._views.pop(id, None)) is not None and view.task is not None:
                view.task.cancel()
            if id in self._indexes:
                self._indexes.pop(id)[1].cancel()
            self.contents.forget(id)
            self._end_feeds(id, ".".join(old.full_name(old.items[id])))
        for id, item in new.items.items():
            if isinstance(item, MaterializedView) and id not in self._views:
                self._start_view(item)
        for id, item in new.items.items():
            if isinstance(item, Index) and id not in self._indexes:
                self._start_index(item)

    def _start_index(self, index: Index) -> None:
        item = self.state.items[index.on]
        assert isinstance(item, Table | MaterializedView | View)
        keys = index_keys(item.columns, index.keys)
        computed = [key.type.arrow for key in keys if not isinstance(key, int)]
        width = len(item.columns)
        places = iter(range(width, width + len(computed)))
        key = [number if isinstance(number, int) else next(places) for number in keys]
        schema = updates.rows_schema([*collection_schema(item).types, *computed])
        dataflow: IndexDataflow
        if is_computed(index, self.state):

            def again() -> None:
                self._indexes.pop(index.id)[1].cancel()
                self._start_index(index)

            computation, arranger = self._planned(index), self._arrangements.arranger
            dataflow = ComputedIndex(
                *(index, schema, key, width, computation, self.frontiers, arranger, self._keeps_too_much, again),
                self.metrics,
            )
            self.backpressure.begins(dataflow.dataflow)
        else:
            dataflow = LogIndex(index, schema, key, _Followed(self), self.frontiers, self._arrangements)
        self._indexes[index.id] = (dataflow, self._spawn(dataflow.run(), f"index {index.id}"))

    def _planned(self, item: MaterializedView | Index) -> Computation:
        """Returns the computation of a view or index.

        If planning fails, returns a `FailedPlan`, which plans again at every change of the inputs and reports the
        error through its dataflow. The commit that created the object is on disk, and other dataflows are not affected.
        """

        def plan() -> Computation:
            return self._plan_view(self, item)

        try:
            return plan()
        except Exception:
            return FailedPlan(plan, self.state.collections(item.uses), _Followed(self))

    def _end_feeds(self, id: ObjectId, name: str) -> None:
        error = PgError(SqlState.UNDEFINED_OBJECT, f"relation '{name}' was dropped")
        if (feed := self._collection_feeds.pop(id, None)) is not None:
            feed.fail(error)
        for query_feed in [f for f in self._query_feeds if id in f.inputs]:
            query_feed.fail(error)

    def _start_view(self, view: MaterializedView) -> None:
        async def stored(as_of: Timestamp) -> pa.Table:
            return await self.contents.rows(view, as_of)

        async def write(time: Timestamp, changes: pa.Table | None, upper: Timestamp) -> None:
            await self._write_view(view.id, time, changes, upper)

        def failed(error: PgError) -> None:
            self._view_failed(view, error)

        dataflow = ViewDataflow(
            view,
            self._planned(view),
            self.frontiers,
            stored,
            write,
            failed,
            self._keeps_too_much,
            self.metrics,
        )
        self.backpressure.begins(dataflow)
        dataflow.task = self._spawn(dataflow.run(), f"view {view.id}")
        self._views[view.id] = dataflow

    def _view_failed(self, view: MaterializedView, error: PgError) -> None:
        """Ends subscriptions that depend on a failed view and have reached its `upper`."""
        upper = self.frontiers.upper(view.id)
        stuck = {view.id}
        while more := {id for id, other in self._views.items() if stuck & other.inputs} - stuck:
            stuck |= more
        for id in stuck & self._collection_feeds.keys():
            if self._collection_feeds[id].upper >= upper:
                self._collection_feeds.pop(id).fail(error)
        for feed in [f for f in self._query_feeds if stuck & f.inputs and f.upper >= upper]:
            feed.fail(error)

    def _error_of(self, ids: Iterable[ObjectId], as_of: Timestamp) -> PgError | None:
        """Returns the error that keeps one of the relations, or a view that it reads, from reaching `as_of`, if any."""
        for id in ids:
            view = self._views.get(id)
            if view is not None and self.frontiers.upper(id) <= as_of:
                error = view.error if as_of < view.seen else None
                error = error or self._error_of(view.inputs, as_of)
                if error is not None:
                    return error
        return None

    async def _write_view(self, id: ObjectId, time: Timestamp, changes: pa.Table | None, upper: Timestamp) -> None:
        """Writes a view's changes to the log. Without changes, `upper` advances in memory only (see `catalog.log`)."""
        written: list[tuple[Batch, Payload]] = []
        if changes is not None:
            payload = await asyncio.to_thread(self.log.prepare, changes)
            try:
                batch = await self.store.transaction(lambda tx: self._insert_view(tx, id, time, payload, upper))
            except Dropped:
                self.log.discard(payload)
                return
            except Undecided:
                raise
            except Exception:
                self.log.discard(payload)
                raise
            written.append((batch, payload))
            self.log.committed(written)
            self._append(written)
        if id in self.frontiers.view_uppers:
            self.frontiers.view_uppers[id] = max(upper, self.frontiers.view_uppers[id])
        if (feed := self._collection_feeds.get(id)) is not None:
            feed.closed(upper)
        self.frontiers.moved.fire()

    def _insert_view(
        self, tx: sqlite3.Connection, id: ObjectId, time: Timestamp, payload: Payload, upper: Timestamp
    ) -> Batch:
        self.log.advance_upper(tx, id, upper)
        return self.log.insert(tx, id, time, payload)

    # -- reading ------------------------------------------------------------------------------------------------

    def latest_time(self) -> Timestamp:
        """The greatest closed timestamp, which strict serializable reads use."""
        return Timestamp(self.frontiers.tables_upper - 1)

    def computation(
        self, plan: QueryPlan, engine: Engine, maintenance: MaintenanceStrategy | None = None
    ) -> Computation:
        """Returns the computation that maintains a query over the log and the system tables. 0A000 if there is none.

        `maintenance` is the result of `maintenance_strategy`, if the caller has it.
        """
        maintenance = maintenance or maintenance_strategy(plan, self.sizes(plan.inputs))
        return computation_of(plan, maintenance, engine, _Followed(self), self._arrangements)

    def sizes(self, ids: Iterable[ObjectId]) -> dict[ObjectId, int]:
        """Returns the number of log rows per collection. Relations that are not in the log are omitted."""
        return {id: self.lines(id) for id in ids if self.is_logged(id)}

    def arrange_in(self, directory: Path, engine: Engine) -> None:
        """Stores large arrangements in `directory`, where Spark's executors probe them. Call it before `start`.

        Several servers may share the directory. StoreError if it cannot be used.
        """
        id = self._directory / "arrangements"  # contains the name of this server's subdirectory
        try:
            if not id.exists():
                id.write_text(f"tidewire-{uuid.uuid4().hex}")
            own = directory / id.read_text()
            self._executors = Executors(own, engine, self._storage, lambda: self.arrangement_probing)
        except OSError as error:
            raise StoreError(
                f'could not use the arrangement directory "{directory}": {error.strerror}',
                "Choose another with --arrangement-directory, or leave it out.",
            ) from error
        self._arrangements.arranger = self._executors

    @property
    def arrangement_probing(self) -> str:
        """Where arrangements that are created from now on are probed: `auto`, `server` or `executors`."""
        if self._executors is None:
            return SERVER
        return self.setting("arrangement_probing")

    @property
    def reaches_executors(self) -> bool:
        """Whether an arrangement directory is configured."""
        return self._executors is not None

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        """Returns the rows of a collection or system table at `as_of`. The caller holds it, or it is the latest time.

        Waits until `as_of < upper`. PgError if the relation was dropped, or is a materialized view that fails.
        """
        item = self.state.items.get(id)
        match item:
            case SystemTable():
                return self.system_rows(id)
            case Table() | MaterializedView():
                await self._final(item, as_of)
                rows = await self.contents.rows(item, as_of)
                if id not in self.state.items:
                    raise PgError(SqlState.UNDEFINED_TABLE, f'relation "{item.name}" was dropped')
                return rows
            case _:
                raise PgError(SqlState.UNDEFINED_TABLE, f'relation "{id}" was dropped')

    async def indexed_rows(self, index: ObjectId, codes: Hashes | None, as_of: Timestamp) -> pa.Table | None:
        """Like `IndexDataflow.rows`. Waits until `as_of < upper` of the index's relation. The caller holds `as_of`."""
        dataflow, _ = self._indexes.get(index, (None, None))
        if dataflow is None:
            return None
        item = self.state.items.get(dataflow.index.on)
        if isinstance(item, Table | MaterializedView):
            await self._final(item, as_of)
            await self.check_counts(item.id, 1, as_of)
        return await dataflow.rows(codes, as_of)

    def system_rows(self, id: ObjectId) -> pa.Table:
        """Returns a system table's current rows. 0A000 for PostgreSQL's catalogs, which only sessions can read."""
        source = self._system_tables.get(id)
        if source is None:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f'"{self.state.items[id].name}" can only be read by SELECT',
                hint="Use mz_objects, mz_columns and the other tables of mz_catalog here.",
            )
        return source.rows(self)

    async def rows_followed(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        """Like `rows`, for a dataflow: the rows of a system table are those at `as_of`, too."""
        return self.following.rows(id, as_of) if id in self.following else await self.rows(id, as_of)

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        """The times in [lower, upper) at which a collection, or a followed system table, changed."""
        return self.following.times(id, lower, upper) if id in self.following else self.log.times(id, lower, upper)

    def lines(self, id: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        """Returns the number of log rows of a collection in [lower, upper), 0 for a relation that is not in the log.

        `upper` None means all times from `lower` on. The number for all times approximates the number of rows.
        """
        return self.log.lines(id, lower, upper) if self.is_logged(id) else 0

    async def _final(self, item: Collection, as_of: Timestamp) -> None:
        while self.frontiers.upper(item.id) <= as_of:
            if (error := self._error_of([item.id], as_of)) is not None:
                raise error
            if item.id not in self.state.items:
                raise PgError(SqlState.UNDEFINED_TABLE, f'relation "{item.name}" was dropped')
            await self.frontiers.moved.wait()

    async def check_counts(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        """NegativeCount if a row of a collection has a negative multiplicity at `time`.

        The caller holds `time` and knows that no multiplicity was negative before `lower`. The rows are read only if a
        transaction retracted rows that it had not read, at `lower` or later.
        """
        item = self.state.items.get(id)
        if isinstance(item, Table) and not self._committer.has_read(id, lower):
            await self.contents.rows(item, time)

    async def _check_counts(self, id: ObjectId, time: Timestamp) -> None:
        holder = self.frontiers.hold({id}, time)
        try:
            await self.check_counts(id, time, time)
        finally:
            holder.release()

    def is_logged(self, id: ObjectId) -> bool:
        """Whether the relation is a collection of the log."""
        return isinstance(self.state.items.get(id), Table | MaterializedView)

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        """Returns a logged collection's consolidated changes in [lower, upper). The caller holds `lower - 1`."""
        item = self.state.items.get(id)
        if not isinstance(item, Table | MaterializedView):
            raise PgError(SqlState.UNDEFINED_TABLE, f'relation "{id}" was dropped')
        await self._final(item, Timestamp(upper - 1))
        return await asyncio.to_thread(self.log.changes, id, lower, upper, collection_schema(item))

    # -- watching ------------------------------------------------------------------------------------------------

    @property
    def dataflows(self) -> dict[str, int]:
        """The number of dataflows by kind."""
        return {"materialized view": len(self._views), "query": len(self._query_feeds)}

    @property
    def running(self) -> dict[str, ViewDataflow | QueryFeed]:
        """The dataflows by id. Those of materialized views and computed indexes have the object's id."""
        queries = {feed.id: feed for feed in self._query_feeds}
        computed = (index.dataflow for index in self.indexes.values() if isinstance(index, ComputedIndex))
        return {**{str(view.view.id): view for view in (*self._views.values(), *computed)}, **queries}

    @property
    def indexes(self) -> dict[ObjectId, IndexDataflow]:
        """The dataflow of each index."""
        return {id: dataflow for id, (dataflow, _) in self._indexes.items()}

    def running_query(self, fingerprint: str) -> QueryFeed | None:
        """The dataflow of a subscribed query that new subscriptions may join."""
        return self._shared_feeds.get(fingerprint)

    @property
    def computations(self) -> list[Computation]:
        """The computations of all dataflows."""
        return [dataflow.computation for dataflow in self.running.values()]

    @property
    def buffered_bytes(self) -> int:
        """The bytes of changes that the slowest reader of each feed has not taken."""
        return sum(feed.buffered_bytes for feed in (*self._collection_feeds.values(), *self._query_feeds))

    # -- subscribing --------------------------------------------------------------------------------------------

    async def join_collection(self, id: ObjectId, as_of: Timestamp) -> Joined:
        """Subscribes to the log's changes of a collection. The caller holds it at `as_of` until this returns."""
        item = self.state.items[id]
        assert isinstance(item, Table | MaterializedView)
        schema = collection_schema(item)
        feed = self._collection_feeds.get(id)
        if feed is None or feed.failure is not None:
            feed = self._collection_feeds[id] = CollectionFeed(self.frontiers.upper(id), self._waiting)
            feed.abandoned = lambda: self._forget_feed(id, feed)
        holder = self.frontiers.hold({id}, as_of)
        reader = feed.join()
        upper = feed.upper

        async def changes(time: Timestamp) -> list[pa.Table]:
            found = await asyncio.to_thread(self.log.tables, id, time, time + 1)
            if any(map(updates.takes_away, found)):
                await self.check_counts(id, as_of + 1, time)
            holder.advance(time)
            return found

        try:
            await self._final(item, as_of)
            tables = await asyncio.to_thread(self.log.tables, id, 0, as_of + 1)
            if id not in self.state.items:
                raise PgError(SqlState.UNDEFINED_TABLE, f'relation "{item.name}" was dropped')
        except BaseException:
            reader.close()
            holder.release()
            raise
        times = self.log.times(id, as_of + 1, upper)
        if times:
            holder.advance(times[0] - 1)
        else:
            holder.release()  # `tables` has all that is to be sent, so a slow client holds no history
        return Joined(feed, reader, as_of, [schema.empty_table(), *tables], times, changes, holder.release)

    def _forget_feed(self, id: ObjectId, feed: Feed) -> None:
        if self._collection_feeds.get(id) is feed:
            del self._collection_feeds[id]

    async def join_query(self, computation: Computation, as_of: Timestamp, *, exact: bool) -> Joined:
        """Subscribes to the changes of a query.

        Joins the running dataflow of an equal query if that can serve `as_of`, else starts a dataflow. Without `exact`,
        any time from `as_of` on may be chosen, so that every running dataflow can be joined. NotReadable if an input
        cannot be read at `as_of`.
        """
        if (error := self._error_of(computation.inputs, as_of)) is not None:
            raise error
        feed = self._shared_feeds.get(computation.fingerprint)
        if feed is None or feed.failure is not None or (exact and feed.upper - 1 > as_of):
            feed = self._start_query(computation, as_of)
        reader = feed.join()
        try:
            while not feed.hydrated or feed.upper <= as_of:
                if feed.failure is not None:
                    raise feed.failure
                await feed.moved.wait()
        except BaseException:
            reader.close()
            raise
        tables = [feed.rows]
        if exact:
            tables += [updates.negate(entry.changes) for entry in reader.waiting() if entry.time > as_of]
        else:
            reader.take()  # `feed.rows` includes these changes
            as_of = Timestamp(feed.upper - 1)
        return Joined(feed, reader, as_of, tables, [], _no_changes, lambda: None)

    def _start_query(self, computation: Computation, as_of: Timestamp) -> QueryFeed:
        let_go = self.following.follow(computation.inputs & self._system_tables.keys())
        try:
            feed = QueryFeed(computation, self.frontiers, as_of, self._waiting, self.metrics)
        except BaseException:
            let_go()
            raise
        self.backpressure.begins(feed)
        task = self._spawn(feed.run(), "dataflow")
        task.add_done_callback(lambda _: let_go())
        self._query_feeds.add(feed)
        running = self._shared_feeds.get(computation.fingerprint)
        if running is None or running.failure is not None:
            self._shared_feeds[computation.fingerprint] = feed

        def abandoned() -> None:
            task.cancel()
            self._query_feeds.discard(feed)
            if self._shared_feeds.get(computation.fingerprint) is feed:
                del self._shared_feeds[computation.fingerprint]

        feed.abandoned = abandoned
        return feed
