"""SELECT: chooses a timestamp, acquires a hold, reads the inputs at that timestamp, computes with the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

import pyarrow as pa

from catalog import builtin, updates
from catalog.ids import ObjectId, Timestamp
from catalog.objects.relations import DerivedRelation
from catalog.objects.system_tables import SystemTable
from catalog.objects.tables import Table
from catalog.objects.views import View
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.coordinator.key_conflicts import Keys
from server.coordinator.locks import EXCLUSIVE, Unavailable
from server.coordinator.reads import altered_error
from server.dataflow.runtime.computation import LOOP_ROWS_MAX, compute
from server.dataflow.runtime.spark_rows import shaped, spark_rows
from server.execution.as_of import as_of_time
from server.execution.catalog_query.query import relation_rows
from server.execution.own_changes import changed_rows, is_changed
from server.execution.preparation import preparation_of
from server.execution.volatile import completed_rows, constant_rows, divided_rows
from server.execution.waiting import rows_after_waiting
from server.runtime.trace import step
from server.session_state.context import Context
from server.session_state.progress import reporting
from server.session_state.results import Result, TableRows
from server.session_state.transaction import KEYS_MAX, Mode
from server.session_state.transaction_errors import not_readable
from server.sql.constant import Bindings
from server.sql.grammar.statements.queries import AsOf
from server.sql.key_conditions import Wanted
from server.sql.plan import QueryPlan, column_factory, relation_plan
from server.sql.relations import RowLocks
from server.sql.volatile import Deferred, deferred
from server.sql.writes.plan import WritePlan
from server.timeline.frontiers import Holder, NotReadable

LOCK_ATTEMPTS_MAX = 20  # of SKIP LOCKED, while other statements lock or change the rows that it has chosen


async def select(context: Context, plan: QueryPlan, as_of: AsOf | None, parameters: tuple[object, ...]) -> Result:
    """Executes a planned SELECT. PgError 42501 if the role lacks a privilege."""
    privileges.require_query(context.state, context.role, plan)
    if as_of is not None:
        return Result("SELECT {}", TableRows(plan.columns, await _rows_as_of(context, plan, as_of, parameters)))
    if not plan.inputs:
        return Result("SELECT {}", TableRows(plan.columns, await rows_without_inputs(context, plan, parameters)))
    await context.enter(Mode.READ, "SELECT")
    if plan.row_locks is not None and context.transaction.read_only:
        message = "cannot execute SELECT FOR UPDATE in a read-only transaction"
        raise PgError(SqlState.READ_ONLY_SQL_TRANSACTION, message)
    if plan.keyed is not None:
        rows = await unlocked_rows(context, plan.keyed[0], parameters, plan.keyed[1])
        return Result("SELECT {}", TableRows(plan.columns, rows.select(range(len(plan.columns)))))
    locks = plan.row_locks
    if locks is not None and not await _lock_rows(context, plan, locks, Bindings(parameters)):
        schema = updates.rows_schema([field.type.arrow for field in plan.columns])
        return Result("SELECT {}", TableRows(plan.columns, schema.empty_table()))
    time = context.read_times.hold(plan.inputs)
    if context.transaction.is_shared:
        depend_on(context, plan, time, parameters)
    with reporting(context, lambda: preparation_of(context, plan)):
        rows = await rows_at(context, plan, time, parameters)
    return Result("SELECT {}", TableRows(plan.columns, rows))


async def _lock_rows(context: Context, plan: QueryPlan, wanted: RowLocks, bindings: Bindings) -> bool:
    """Locks rows for the rest of the transaction as an UPDATE of them would, and moves the read time to the latest one.

    All rows of a table are locked, unless they are searched by key. PgError 55P03 with NOWAIT. False with SKIP LOCKED
    if another session holds a lock.
    """
    await context.admit(wanted.tables)
    for table in sorted(wanted.tables):
        try:
            keys = keys_of(plan, table, bindings)
            await context.lock((table,), keys, nowait=wanted.nowait or wanted.skips)
        except Unavailable:
            if wanted.skips:
                return False
            raise _not_available(context, table) from None
    context.read_times.hold_latest(plan.inputs)
    return True


async def unlocked_rows(
    context: Context, query: QueryPlan, parameters: tuple[object, ...], number: int, *, waits: bool = False
) -> pa.Table:
    """The rows of a query with SKIP LOCKED, without the rows of its table that other sessions have locked.

    Locks the rows of the table with the primary keys in the column `number` of the result. The transaction depends on
    these rows, and not on those that it does not return. `waits`: for a lock of the whole table by another session;
    otherwise there are no rows then. PgError 55P03 after `lock_timeout`.
    """
    locks = query.row_locks
    assert locks is not None
    assert locks.key is not None
    (table,) = locks.tables
    await context.admit((table,))
    before = len(context.transaction.locked)
    try:
        await context.lock((table,), Keys(locks.key, frozenset()), nowait=not waits)
        # One session at a time, because all would choose the same rows.
        turn = await context.coordinator.locks.acquire((f"{table} turn",), EXCLUSIVE, context, context.lock_timeout_s)
        try:
            rows = await _locked_rows(context, query, parameters, table, locks.key, number)
        finally:
            context.coordinator.locks.release(turn, context)
    except Unavailable:
        rows = updates.rows_schema([field.type.arrow for field in query.columns]).empty_table()
    if not rows.num_rows:
        context.unlock_since(before)
    return rows


async def _locked_rows(
    context: Context, query: QueryPlan, parameters: tuple[object, ...], table: ObjectId, key: int, number: int
) -> pa.Table:
    """As `unlocked_rows`. Raises Unavailable if there are too many rows to lock each of them, or writers of others."""
    others = context.state.collections(query.inputs, through=DerivedRelation) - {table}
    before = len(context.transaction.locked)
    for _ in range(LOCK_ATTEMPTS_MAX):
        with latest_time(context, query) as time:
            taken = Keys(key, context.coordinator.locks.keys_of_others(table, key, context))
            given = {table: await _without(context, query, table, time, taken, parameters)} if taken.values else {}
            rows = await rows_at(context, query, time, parameters, given=given)
        keys: Keys | None = Keys.of(key, rows.column(number).drop_null())
        if keys is not None and len(keys.values) > KEYS_MAX:
            keys = None
        try:
            await context.lock((table,), keys, nowait=True)
        except Unavailable:
            if keys is None:
                raise
            continue
        if context.coordinator.changed({table: time}, {} if keys is None else {table: keys}) is None:
            depend_on_all(context, others, time)
            depend_on_all(context, (table,), time, keys)
            return rows
        context.unlock_since(before)
    raise Unavailable


async def _without(
    context: Context, query: QueryPlan, table: ObjectId, time: Timestamp, keys: Keys, parameters: tuple[object, ...]
) -> pa.Table:
    """The rows of a table that a query needs, except those with these keys."""
    rows = await relation_rows_at(context, table, time, wanted_rows(query, table, Bindings(parameters)))
    few = rows.num_rows <= LOOP_ROWS_MAX
    return keys.others(rows) if few else await asyncio.to_thread(keys.others, rows)


@contextmanager
def latest_time(context: Context, query: QueryPlan) -> Iterator[Timestamp]:
    """The latest time, at which the inputs of a query are held. It becomes the read time of a block."""
    coordinator = context.coordinator
    if context.transaction.is_shared:
        yield context.read_times.hold_latest(query.inputs)
        return
    time = coordinator.latest_time()
    try:
        holder = coordinator.frontiers.hold(query.inputs, time)
    except NotReadable as error:
        raise not_readable(context, error, time) from None
    try:
        yield time
    finally:
        holder.release()


def depend_on_all(context: Context, read: Iterable[ObjectId], time: Timestamp, keys: Keys | None = None) -> None:
    """Has the transaction depend on relations that were read. `keys`: only on these rows of the only relation."""
    for id in read:
        if id in context.coordinator.state.items:
            context.transaction.depend_on(id, time, keys)


async def lock_at_once(context: Context, plan: QueryPlan) -> None:
    """Locks the tables that a write reads in queries with FOR UPDATE NOWAIT, before it locks all others.

    PgError 55P03 if another session holds one of the locks.
    """
    if plan.row_locks is None or not plan.row_locks.nowait:
        return
    for table in sorted(plan.row_locks.tables):
        try:
            await context.lock((table,), nowait=True)
        except Unavailable:
            raise _not_available(context, table) from None


def _not_available(context: Context, table: ObjectId) -> PgError:
    message = f'could not obtain lock on row in relation "{context.state.items[table].name}"'
    return PgError(SqlState.LOCK_NOT_AVAILABLE, message)


async def rows_without_inputs(
    context: Context, plan: QueryPlan, parameters: tuple[object, ...], time: int | None = None
) -> pa.Table:
    """The rows of a query that reads no relation: constants by the evaluator, other expressions by the engine.

    `time`: the time of its AS OF.
    """
    bindings = context.bindings(parameters, mz_now=context.read_times.current if time is None else time)
    with step("evaluate" if plan.constant is not None else "spark") as computing:
        if plan.volatile is not None and plan.constant is not None:
            rows = await constant_rows(context, plan, bindings)
        elif plan.volatile is not None and plan.volatile.lower is not None:
            lower = await rows_without_inputs(context, plan.volatile.lower, parameters, time)
            rows = await completed_rows(context, plan, lower, bindings)
        elif plan.waits:
            rows = await rows_after_waiting(context, plan.relation, bindings)
        elif plan.constant is not None:
            rows = await context.evaluator.evaluate(plan.constant, bindings)
        else:
            schema = updates.rows_schema([field.type.arrow for field in plan.columns])
            rows = shaped(await spark_rows(plan, bindings, context.engine, {}), schema)
        computing.rows = rows.num_rows
    return rows


@dataclass(frozen=True, slots=True)
class RepeatedRow:
    """A row that is inserted repeatedly, with a value of its own for each volatile call."""

    context: Context
    plan: QueryPlan
    row: pa.Table
    divided: Deferred | None

    async def rows(self, count: int) -> pa.Table:
        """`count` rows, with columns c0, c1, ..."""
        columns = [pa.repeat(column[0], count) for column in self.row.columns]
        rows = pa.table(columns, names=self.row.column_names)
        if self.divided is None:
            return rows
        bindings = self.context.short_bindings(self.plan, (), None)
        return await divided_rows(self.context, self.divided, rows, self.plan, bindings)


async def repeated_row(context: Context, plan: QueryPlan) -> RepeatedRow:
    """The row of a query of one row that reads no relation and has no parameters."""
    if plan.volatile is None:
        return RepeatedRow(context, plan, await rows_without_inputs(context, plan, ()), None)
    divided = deferred(plan.relation, column_factory(plan.relation))
    if divided is None:
        return RepeatedRow(context, plan, await rows_without_inputs(context, plan, ()), None)
    lower = replace(relation_plan(divided.lower), uses_session=True)
    return RepeatedRow(context, plan, await rows_without_inputs(context, lower, ()), divided)


def depend_on(context: Context, plan: QueryPlan, time: Timestamp, parameters: tuple[object, ...]) -> None:
    """Has the transaction depend on the rows that a query reads at `time`, so that a later write of it is serializable.

    Of a table that the query itself scans, only the rows with its keys are needed.
    """
    transaction, bindings = context.transaction, Bindings(parameters)
    committed = context.coordinator.state.items
    through = context.state.collections(plan.inputs - plan.scanned, through=DerivedRelation)
    for relation in plan.scanned & plan.inputs:
        keys = keys_of(plan, relation, bindings) if relation not in through else None
        for id in context.state.collections((relation,), through=DerivedRelation):
            if id in committed:
                transaction.depend_on(id, time, keys if id == relation else None)
    for id in through & committed.keys():
        transaction.depend_on(id, time)


def keys_of(plan: QueryPlan, table: ObjectId, bindings: Bindings, but: Set[int] = frozenset()) -> Keys | None:
    """The keys of the rows that a query reads of a table: values of one column, which is not in `but`.

    None if it may read other rows, too.
    """
    if bindings.are_short:
        for key in plan.key_filters.get(table, ()):
            if key.column not in but:
                values = key.column_values(bindings)
                return Keys.of(key.column, values) if len(values) <= KEYS_MAX else None
    return None


async def rows_at(
    context: Context,
    plan: QueryPlan,
    time: Timestamp,
    parameters: tuple[object, ...],
    *,
    committed: bool = False,
    given: Mapping[ObjectId, pa.Table] = MappingProxyType({}),
) -> pa.Table:
    """The query's rows at `time`. The caller holds `time`. `committed`: without changes of the transaction itself.

    `given`: the rows of relations that exist only in the plan, or of which the query gets only some rows.
    """
    if plan.volatile is not None and plan.volatile.lower is not None:
        rows_below = await rows_at(context, plan.volatile.lower, time, parameters, committed=committed, given=given)
        return await completed_rows(context, plan, rows_below, context.short_bindings(plan, parameters, time))
    bindings = context.short_bindings(plan, parameters, time)
    views: dict[ObjectId, pa.Table] = {}
    for view in plan.scanned - plan.inputs - given.keys():
        changed = not committed and is_changed(context, view)
        found = None if changed else await _indexed(context, plan, view, bindings, time)
        if found is None:
            assert plan.expanded is not None
            return await rows_at(context, plan.expanded(), time, parameters, committed=committed, given=given)
        views[view] = found

    async def rows(id: ObjectId, as_of: Timestamp) -> pa.Table:
        if id in given:
            return given[id]
        check_unaltered(context, plan)
        if id in views:
            return views[id]
        if not committed and is_changed(context, id):
            return await changed_rows(context, id, as_of, wanted_rows(plan, id, bindings), rows_at)
        if id in plan.lookups and (found := await _indexed(context, plan, id, bindings, as_of)) is not None:
            return found
        if id not in builtin.PG_TABLES and (wanted := wanted_rows(plan, id, bindings)):
            return await context.coordinator.reads.rows(id, as_of, wanted)
        return await input_rows(context, id, as_of)

    return await compute(plan, bindings, context.engine, rows, time, batches=context.coordinator.row_batches)


def check_unaltered(context: Context, plan: QueryPlan) -> None:
    """AlteredError if a table of the query was altered since it was planned, for example while it waited for a lock."""
    for table in plan.tables:
        check_table_unaltered(context, table)


def check_write_unaltered(context: Context, plan: WritePlan) -> None:
    """As `check_unaltered`, also for the views that a statement writes through."""
    check_unaltered(context, plan.query)
    for level in plan.target.levels:
        current = context.state.items.get(level.view.id)
        if not isinstance(current, View) or current.written_as != level.view.written_as:
            raise altered_error(level.view.name)


def check_table_unaltered(context: Context, table: Table) -> None:
    """AlteredError if a table was altered since the caller got its definition."""
    current = context.state.items.get(table.id)
    if current is not table and isinstance(current, Table) and not current.accepts_rows_of(table):
        raise altered_error(table.name)


async def relation_rows_at(context: Context, id: ObjectId, time: Timestamp, wanted: Wanted = ()) -> pa.Table:
    """The rows of a collection at `time`, which the caller holds, with the transaction's own changes.

    `wanted`: only those.
    """
    if is_changed(context, id):
        return await changed_rows(context, id, time, wanted, rows_at)
    if wanted:
        return await context.coordinator.reads.rows(id, time, wanted)
    return await input_rows(context, id, time)


def wanted_rows(plan: QueryPlan, id: ObjectId, bindings: Bindings) -> Wanted:
    """The rows of a relation that a query needs; all if there are no conditions."""
    if not bindings.are_short:
        return ()
    return [(key.column, key.column_values(bindings)) for key in plan.key_filters.get(id, ())]


async def input_rows(context: Context, id: ObjectId, as_of: Timestamp) -> pa.Table:
    """The rows of a collection or system table at `as_of`. The caller holds `as_of`."""
    table = builtin.PG_TABLES.get(id)
    return await (relation_rows(context, table) if table is not None else context.coordinator.reads.rows(id, as_of))


async def _indexed(
    context: Context, plan: QueryPlan, id: ObjectId, bindings: Bindings, time: Timestamp
) -> pa.Table | None:
    """A relation's rows from an index: those of the plan's lookup, or all rows of a view. None if no index applies."""
    lookup = plan.lookups.get(id)
    if lookup is not None:
        codes = lookup.codes(bindings) if bindings.are_short else await asyncio.to_thread(lookup.codes, bindings)
        if codes is not None:
            return await context.coordinator.indexes.find(lookup.index, codes, time)
    for index in context.state.indexes_on(id) if id not in plan.inputs else ():
        if (found := await context.coordinator.indexes.find(index.id, None, time)) is not None:
            return found
    return None


async def _rows_as_of(context: Context, plan: QueryPlan, as_of: AsOf, parameters: tuple[object, ...]) -> pa.Table:
    frontiers = context.coordinator.frontiers
    time = await as_of_time(context, as_of, plan.inputs)
    if not plan.inputs:
        return await rows_without_inputs(context, plan, parameters, time)
    # A system table has no history. Its current rows are those at the latest time.
    system = [id for id in plan.inputs if isinstance(context.state.items.get(id), SystemTable)]
    latest = context.coordinator.latest_time()
    if system and as_of.at_least:
        time = max(time, latest)
    elif system and time < latest:
        raise not_readable(context, NotReadable(system[0], latest), time)
    holder = _held(context, plan, time)
    try:
        if system:  # collections are awaited where they are read; that wait ends if a view fails
            await frontiers.reached(frozenset(system), time)
        return await rows_at(context, plan, Timestamp(time), parameters, committed=True)
    finally:
        holder.release()


def _held(context: Context, plan: QueryPlan, time: int) -> Holder:
    """Like `hold_at`, for a plan. For views, holds indexes that are readable at `time` instead of the views' inputs."""
    frontiers, state = context.coordinator.frontiers, context.state
    views = plan.scanned - plan.inputs
    indexes = [[i.id for i in state.indexes_on(view) if i.id in frontiers.floors] for view in views]
    through = [next((id for id in ids if frontiers.is_readable(id, time)), None) for ids in indexes]
    if not views or None in through:
        return hold_at(context, plan.inputs, time)
    return hold_at(context, (plan.scanned & plan.inputs) | {id for id in through if id is not None}, time)


def hold_at(context: Context, inputs: frozenset[ObjectId], time: int) -> Holder:
    """A holder of the inputs at an explicit time. PgError 22000 if an input can no longer be read at that time."""
    if any(id not in context.coordinator.frontiers.floors and id.startswith("u") for id in inputs):
        raise _input_dropped()
    try:
        return context.coordinator.frontiers.hold(inputs, time)
    except NotReadable as error:
        raise not_readable(context, error, time) from None


def require_inputs(context: Context, inputs: frozenset[ObjectId]) -> None:
    """PgError 42P01 if one of the relations was dropped."""
    if not inputs <= context.state.items.keys():
        raise _input_dropped()


def _input_dropped() -> PgError:
    return PgError(SqlState.UNDEFINED_TABLE, "a relation of the query was dropped")
