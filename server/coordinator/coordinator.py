"""The coordinator: assembles the state that outlives a session, and starts and stops it.

The catalog is committed first. The dataflows are then derived from the catalog, at start and after every DDL statement.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import structlog

from catalog import holds, lost_times, persistence
from catalog.batches import Batch, Payload
from catalog.collection_errors import CollectionErrors
from catalog.directory import DIRECTORY_MODE
from catalog.drops import without_temporary
from catalog.ids import ObjectId, Timestamp
from catalog.layout import Layout
from catalog.log import Log
from catalog.objects.holds import Hold
from catalog.objects.indexes import Index
from catalog.objects.namespaces import Schema, is_temporary, temporary_schema_name
from catalog.objects.relations import Collection, DerivedRelation, WrittenCollection
from catalog.objects.sequences import Sequence
from catalog.objects.tables import Table
from catalog.objects.views import View
from catalog.oracle import RESERVATION_MS, Oracle
from catalog.payloads import Payloads
from catalog.state import CatalogState
from catalog.store import Store, explained
from server.coordinator.activity import Activity
from server.coordinator.arrangements import Arrangements
from server.coordinator.backpressure import Backpressure
from server.coordinator.catalog_dataflows import CatalogDataflows
from server.coordinator.clock import WatchedClock, clock_ms
from server.coordinator.collection_feeds import CollectionFeeds
from server.coordinator.committer import Commit, Committer, Conflict, Request, index_created
from server.coordinator.compaction import compact, compact_errors
from server.coordinator.computations import Computations
from server.coordinator.dataflows import Dataflows
from server.coordinator.hold_lag import HoldLag
from server.coordinator.holds import Holds
from server.coordinator.indexes import Indexes
from server.coordinator.key_conflicts import Keys
from server.coordinator.key_indexes import KeyIndexes
from server.coordinator.key_values import key_tables
from server.coordinator.locks import TableLocks
from server.coordinator.log_writer import LogWriter
from server.coordinator.notifications import Notifications
from server.coordinator.queries import Queries
from server.coordinator.reads import DataflowInputs, Reads, error_of
from server.coordinator.sequences import Sequences
from server.coordinator.snapshot_cache import SnapshotCache, layout_of
from server.coordinator.subscriptions import Subscriptions
from server.coordinator.system_table_history import SystemTableHistory, SystemTableRows
from server.coordinator.tasks import BackgroundTasks
from server.coordinator.upstream_times import UpstreamTimes
from server.coordinator.views import Views
from server.dataflow.runtime.row_batches import RowBatches
from server.runtime.metrics import Metrics
from server.settings.parsers import milliseconds
from server.settings.variables import system_value
from server.spark import Engine
from server.timeline.frontiers import Frontiers

log = structlog.get_logger()

MEASURE_S = 0.05  # interval between two measurements of the lag of dataflows


@dataclass(frozen=True, slots=True)
class SystemSource:
    """The source of a system table's rows. `revision` changes whenever the rows may have changed."""

    rows: Callable[[Coordinator], pa.Table]
    revision: Callable[[Coordinator], object]


class Coordinator:
    """The state that outlives a session. One per server process. Call `start` before use, `close` at the end."""

    def __init__(
        self,
        directory: Path,
        *,
        engine: Engine,
        metrics: Metrics,
        interval_s: float,
        system_tables: Mapping[ObjectId, SystemSource],
        arrangement_directory: Path | None = None,
        clock: Callable[[], int] = clock_ms,
    ) -> None:
        """`directory`: the data directory. StoreError if it, or the arrangement directory, cannot be used."""
        self.engine = engine
        self.metrics = metrics
        self.interval_s = interval_s
        self.store = store = Store(directory)
        scratch = directory / "waiting"  # temporary files; those of an earlier server are removed
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=DIRECTORY_MODE)
        self.scratch = scratch
        self.log = Log(store, Payloads(directory / "payloads"), scratch, self._description, self._layout)
        self.errors = errors = CollectionErrors(store)
        self.frontiers = frontiers = Frontiers()
        self.holds = Holds(frontiers)
        self.locks = TableLocks()
        self.definitions = asyncio.Lock()
        """Held by a statement while no other one may begin to change the catalog."""
        self.sequences = Sequences(store)
        self.notifications = Notifications()
        self.row_batches = RowBatches(engine)
        self.activity = Activity()
        self.backpressure = Backpressure(metrics)
        ((reserved_until,),) = store.read("SELECT value FROM meta WHERE key = 'reserved_until'")
        self.lost_times = lost_times.load(store)
        # The last server was up at this time. It may have been up longer, but not until `reserved_until`.
        self._was_up_until = max(reserved_until - RESERVATION_MS, 0)
        watched_clock = WatchedClock(clock)
        self._committer = committer = Committer(
            store,
            self.log,
            errors,
            Oracle(reserved_until),
            persistence.load(store),
            frontiers,
            self.holds,
            clock_ms=watched_clock,
            interval_s=interval_s,
        )
        committer.listeners.append(self._committed)
        self._state_seen = self.state
        self.catalog_changed: list[Callable[[], None]] = []
        """Called after each commit that changed the catalog, when the dataflows are adapted to it."""
        self.restoring: list[Callable[[], None]] = []
        """Called by `start` when all frontiers exist and before any `since` advances: takes further holds."""
        self._tasks = tasks = BackgroundTasks()
        self.key_indexes = KeyIndexes(
            self.log, frontiers, tasks, self.latest_time, committer.last_write, partial(key_tables, engine)
        )
        committer.key_indexes = self.key_indexes
        snapshots = SnapshotCache(self.log, scratch)
        self.system_tables = SystemTableHistory(
            frontiers,
            {id: SystemTableRows(partial(s.rows, self), partial(s.revision, self)) for id, s in system_tables.items()},
        )
        self.arrangements = Arrangements(scratch, frontiers)
        if arrangement_directory is not None:
            name, setting = directory / "arrangements", partial(self.setting, "arrangement_probing")
            self.arrangements.use_directory(arrangement_directory, name, engine, setting)
        self.dataflows = dataflows = Dataflows(frontiers, self.backpressure, tasks, metrics, frozenset(system_tables))
        committer.announced.append(self._announced)
        self.reads = reads = Reads(committer, self.log, errors, frontiers, snapshots, self.system_tables, dataflows)
        self.inputs = inputs = DataflowInputs(reads, self.log, self.system_tables)
        self.computations = Computations(committer, engine, reads, inputs, self.arrangements.shared)
        self.feeds = feeds = CollectionFeeds(committer, frontiers, reads, scratch)
        self.queries = Queries(dataflows, frontiers, self.system_tables, scratch)
        writer = LogWriter(store, self.log, frontiers, feeds, self.backpressure, dataflows.resting)
        self.upstream_times = UpstreamTimes(store, self.log, committer, frontiers, writer, watched_clock)
        """Writes sources with the timestamps of their upstream."""
        views = Views(dataflows, self.computations, frontiers, writer, snapshots, feeds, self.queries)
        self.indexes = Indexes(dataflows, self.computations, tasks, frontiers, reads, inputs, self.arrangements)
        self._catalog_dataflows = CatalogDataflows(
            committer, dataflows, views, self.indexes, snapshots, self.arrangements.shared, feeds, self.queries
        )
        self.subscriptions = Subscriptions(committer, self.log, frontiers, reads, dataflows, feeds, self.queries)
        self._hold_lag = HoldLag(store, committer, self.holds, metrics, interval_s=interval_s)

    async def start(self) -> None:
        """Restores frontiers and holds, starts the dataflows, and closes a first timestamp, which reads can use.

        The order matters: all read holds are in place before any `since` advances. A materialized view resumes at the
        end of its log, although the first timestamp to be closed may be hours later.

        StoreError or MustEnd if the first commits fail, for example on a full disk.
        """
        items = self.state.items
        for id, item in items.items():
            if isinstance(item, Collection):
                durable = self.log.durable[id]
                self.frontiers.created(id, durable.since, durable.upper, item.retain_ms)
                if isinstance(item, WrittenCollection) and item.has_upstream_times:
                    self.frontiers.upstream_times.add(id)
                if isinstance(item, Table) and item.numbering is not None and item.numbering.readable_from:
                    self.frontiers.readable_from[id] = Timestamp(item.numbering.readable_from)
        for item in items.values():
            if isinstance(item, Index):
                inputs = self.state.collections(item.depends_on)
                since = max((self.log.durable[input].since for input in inputs), default=Timestamp(0))
                index_created(self.frontiers, self.state, item, since)
        for id, position in holds.load(self.store).items():
            hold = items[id]
            assert isinstance(hold, Hold)
            self.holds.created(hold, position)
        for restore in self.restoring:
            restore()
        self._catalog_dataflows.start()
        try:
            await self._committer.close_times()
            await self._hold_lag.add_downtime(self.latest_time() - self._was_up_until if self._was_up_until else 0)
            if self.lost_times.is_new:
                await self.store.transaction(partial(lost_times.end, time=self.latest_time()))
                self.lost_times = lost_times.load(self.store)
        except sqlite3.DatabaseError as error:
            raise explained(self.store.directory, error) from error
        self._tasks.start(self._committer.run(), "committer")
        errors = partial(compact_errors, self.store, self.errors, self.frontiers, self._errors_kept)
        passes = compact(self.store, self.log, self.frontiers, self.metrics, self.interval_s, errors)
        self._tasks.start(passes, "compaction")
        self._tasks.start(self._hold_lag.run(), "lag of holds")
        self._tasks.start(self._measure_lag(), "lag of dataflows")
        await self._drop_temporary(lambda _: True)  # of the sessions of the last server

    def drop_temporary(self, process_id: int) -> None:
        """Drops the temporary objects of a session that has ended."""
        name = temporary_schema_name(process_id)
        dropped = self._drop_temporary(lambda schema: schema.name == name)
        self._tasks.start(dropped, f"temporary objects of session {process_id}")

    async def _drop_temporary(self, selected: Callable[[Schema], bool]) -> None:
        """Drops the selected schemas of temporary objects."""
        while gone := [schema for schema in self.state.schemas.values() if is_temporary(schema) and selected(schema)]:
            before = self.state
            after = without_temporary(before, [schema.id for schema in gone])
            try:
                await self.commit(Request(catalog=(before, after)))
            except Conflict:
                continue  # the catalog has changed meanwhile

    async def _measure_lag(self) -> None:
        """Updates backpressure every MEASURE_S. Runs until cancelled."""
        while True:
            if self.backpressure.may_have_changed:
                running = self.dataflows.running
                sources = {id: view.inputs for id, view in self.dataflows.views.items()}
                delay_s = milliseconds(self.setting("dataflow_lag_delay_max")) / 1_000
                self.backpressure.measure(running, sources, int(self.setting("dataflow_lag_bytes_max")), delay_s)
            await asyncio.sleep(MEASURE_S)

    async def close(self) -> None:
        """Stops the dataflows and the committer, and closes the store. Acknowledged commits are on disk."""
        await self._tasks.stop()
        await self.sequences.close()
        await self.arrangements.close()
        await asyncio.to_thread(self.store.close)

    @property
    def failed(self) -> asyncio.Future[BaseException]:
        """Done when the server must end: another server opened the data directory, or a commit's outcome is unknown."""
        return self._committer.failed

    @property
    def state(self) -> CatalogState:
        return self._committer.state

    def setting(self, name: str) -> str:
        """The value of a server-wide variable."""
        return system_value(name, self.state.settings)

    def latest_time(self) -> Timestamp:
        """The greatest closed timestamp, which strict serializable reads use."""
        return Timestamp(self.frontiers.tables_upper - 1)

    def read_time(self, ids: Iterable[ObjectId]) -> Timestamp:
        """The time at which a query of these relations reads, unless it names one.

        It is the latest time. If one of the relations is computed from a source with the timestamps of its upstream,
        it is the latest time that needs no waiting, because the source may lag behind the tables. Until the source has
        closed a time, it is the latest time.
        """
        frontiers, latest = self.frontiers, self.latest_time()
        if not frontiers.upstream_times:
            return latest
        ids = tuple(ids)
        if frontiers.upstream_times.isdisjoint(self.state.collections(ids, through=DerivedRelation)):
            return latest
        upper = frontiers.least_upper(ids)
        return Timestamp(frontiers.next_readable(ids, min(latest, upper - 1))) if upper else latest

    @property
    def buffered_bytes(self) -> int:
        """The bytes of changes that the slowest reader of each feed has not taken."""
        return self.feeds.buffered_bytes + self.queries.buffered_bytes + self.subscriptions.buffered_bytes

    def _description(self, id: ObjectId) -> str:
        """An object as error messages name it, such as `table "materialize.public.t"`."""
        item = self.state.items.get(id)
        return f'{item.kind} "{".".join(self.state.full_name(item))}"' if item is not None else id

    def _layout(self, id: ObjectId) -> Layout | None:
        return layout_of(self.state.items.get(id))

    def changed(self, unchanged: Mapping[ObjectId, Timestamp], keys: Mapping[ObjectId, Keys]) -> ObjectId | None:
        """As `Committer.changed`."""
        return self._committer.changed(unchanged, keys)

    async def commit(self, request: Request) -> Commit:
        """Like `Committer.commit`. Removes the payload files of a request that failed."""
        with self.log.discarding(payload for _, payload in request.writes):
            return await self._committer.commit(request)

    def submit(self, request: Request) -> asyncio.Future[Commit]:
        """Like `Committer.submit`, for a request without payload files."""
        return self._committer.submit(request)

    def _announced(self, time: Timestamp, written: Items[tuple[Batch, Payload]]) -> None:
        """Wakes the dataflows that a commit to tables may concern, before it becomes visible."""
        for id in self._errors_changed(time):
            self.dataflows.resting.written(id, (), all=True)
        tables: dict[ObjectId, list[pa.Table]] = {}
        for batch, payload in written:
            tables.setdefault(batch.collection, []).append(payload.table)
        resting = self.dataflows.resting
        for id, changes in tables.items():
            try:
                # A retraction of a row that was not read may be invalid. Every reader of the table then fails.
                resting.written(id, changes, all=not self._committer.has_read_retractions(id, time))
            except Exception as error:  # the commit is on disk, so it must not fail
                log.error(
                    "changes not compared with conditions of dataflows", table=id, error=str(error), exc_info=error
                )
                resting.written(id, (), all=True)

    def _committed(self, time: Timestamp, written: Items[tuple[Batch, Payload]]) -> None:
        if self.state is not self._state_seen:
            before, self._state_seen = self._state_seen, self.state
            self._catalog_dataflows.follow(before)
            self.sequences.forget(self._is_sequence)
            for listener in self.catalog_changed:
                listener()
            if _access(before) != _access(self.state) or _has_changed_views(before, self.state):
                for check in list(self.activity.subscription_checks.values()):
                    check()
        self.system_tables.closed(time)
        if written:
            self.metrics.commits.inc()
            self.metrics.rows_written.inc(sum(payload.table.num_rows for _, payload in written))
        self.backpressure.written(written)
        for id in self._errors_changed(time):
            if (error := self.errors.at(id, time)) is not None:
                self.feeds.end(id, time, error_of(error))
        self.feeds.append(written)
        self.feeds.close_times()
        self.dataflows.resting.close_times()

    def _is_sequence(self, id: ObjectId, generation: int) -> bool:
        item = self.state.items.get(id)
        return isinstance(item, Sequence) and item.generation == generation

    def _errors_changed(self, time: Timestamp) -> list[ObjectId]:
        """The collections whose error the commit at `time`, the latest, has changed."""
        return [id for id in self.errors.collections if self.errors.times(id, time, time + 1)]

    def _errors_kept(self, id: ObjectId) -> Timestamp:
        """The least time at which a collection, or a materialized view that reads it, can be read."""
        floors = self.frontiers.floors
        return min(
            self.frontiers.log_start(reader) for reader in self.dataflows.dependent_views(id) if reader in floors
        )


def _has_changed_views(before: CatalogState, after: CatalogState) -> bool:
    """Whether a view was dropped or has another definition."""
    dropped = before.items.keys() - after.items.keys()
    changed = [id for id in after.changed_items(before) if id in before.items]
    return any(isinstance(before.items[id], View) for id in (*dropped, *changed))


def _access(state: CatalogState) -> tuple[object, ...]:
    """The parts of the catalog that determine privileges. Most changes of definitions leave all of them unchanged."""
    return (state.roles, state.memberships, state.owners, state.privileges, state.column_privileges)
