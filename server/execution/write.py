"""INSERT, UPDATE, DELETE, TRUNCATE and COPY FROM: changes that the transaction keeps until the committer applies them.

A statement that reads no relation only computes its rows. A statement that reads relations locks its target and what
it reads, reads at the latest time, and has the committer check that nothing was written since. In an implicit
transaction it commits itself and is executed again if that check fails. An UPDATE or DELETE of rows with given keys
locks only these keys, and only rows with these keys are checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import pyarrow as pa

from catalog import updates
from catalog.log import Payload
from catalog.objects import DerivedRelation, ObjectId, Table, Timestamp
from catalog.roles import Privilege
from protocol.pgwire.copy_in import CopyDecoder
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.coordinator.key_conflicts import Keys
from server.coordinator.reads import AlteredError, altered_error
from server.coordinator.row_buffer import RowBuffer, table_of
from server.coordinator.snapshot_cache import collection_schema, layout_of
from server.dataflow.runtime.computation import shaped
from server.execution.insert_on_conflict import insert_on_conflict
from server.execution.planning import default_values
from server.execution.select import check_unaltered, keys_of, relation_rows_at, rows_at, rows_without_inputs
from server.runtime.trace import step
from server.session_state.constraints import check_not_null
from server.session_state.context import Context, not_readable
from server.session_state.key_checks import check_keys, check_row_keys, load_keys
from server.session_state.results import Result, TableRows
from server.session_state.transaction import Mode
from server.sql.constant import Bindings, NotCheap
from server.sql.plan import QueryPlan
from server.sql.write_plan import AddedRows, WritePlan, plan_insert
from server.timeline.frontiers import NotReadable

RETRIES_MAX = 10
COPY_CHUNK_BYTES = 64 * 1024 * 1024  # per COPY; rows beyond this size are written to a file


async def write(context: Context, plan: WritePlan, verb: str, parameters: tuple[object, ...]) -> Result:
    """Executes a planned INSERT, UPDATE or DELETE. PgError 42501 if the role lacks a privilege."""
    if plan.added is not None:
        await load_keys(context, plan.table)
    if plan.added is not None and (result := insert_constants(context, plan, plan.added, parameters)) is not None:
        return result
    check_unaltered(context, plan.query)
    if (conflict := plan.conflict) is not None:
        return await retried(context, lambda _: insert_on_conflict(context, plan, conflict, parameters))
    _require(context, plan, Privilege(verb))
    table = context.state.items[plan.table]
    assert isinstance(table, Table)
    if not plan.query.inputs:
        await context.enter(Mode.WRITE, verb)
        rows = await rows_without_inputs(context, plan.query, parameters)
        _check_unaltered(context, table)
        if plan.literals is not None:
            rows = await asyncio.to_thread(_with_literals, rows, plan.literals)
        return await _changed(context, plan, table, verb, rows)

    async def attempt(number: int) -> Result:
        keys = _keys(plan, parameters) if number == 0 else None
        return await _read_then_write(context, plan, table, verb, parameters, keys)

    return await retried(context, attempt)


async def retried(context: Context, attempt: Callable[[int], Awaitable[Result]]) -> Result:
    """Executes a statement. If it ends its transaction, executes it again after a serialization failure.

    `attempt` gets the number of the attempt, from 0.
    """
    for number in range(RETRIES_MAX):
        try:
            return await attempt(number)
        except PgError as error:
            retry = error.sqlstate is SqlState.SERIALIZATION_FAILURE and not context.transaction.ends_later
            if isinstance(error, AlteredError) or not retry or number == RETRIES_MAX - 1:
                raise
    raise AssertionError("unreachable")


def insert_constants(
    context: Context, plan: WritePlan, added: AddedRows, parameters: tuple[object, ...]
) -> Result | None:
    """Executes an INSERT of constant rows. PgError 42501 if the role lacks a privilege.

    Returns None if it has to wait: then call `write`.
    """
    if not context.transaction.can_enter(Mode.WRITE):
        return None
    check_unaltered(context, plan.query)
    require_insert(context, plan)
    return add_constants(context, plan, added, parameters)


def require_insert(context: Context, plan: WritePlan) -> None:
    """PgError 42501 if the role lacks a privilege for an INSERT of constant rows."""
    if not privileges.is_superuser(context.state, context.role):
        _require(context, plan, Privilege.INSERT)


def add_constants(context: Context, plan: WritePlan, added: AddedRows, parameters: tuple[object, ...]) -> Result | None:
    """As `insert_constants`, after `require_insert`."""
    transaction = context.transaction
    if not transaction.can_enter(Mode.WRITE):
        return None
    transaction.enter(Mode.WRITE, "INSERT")
    with step("evaluate") as evaluating:
        bindings = Bindings(parameters)
        if plan.query.uses_session:
            bindings = context.bindings(parameters, mz_now=context.read_time)
        try:
            rows = added.constant.evaluate_rows(bindings)
        except NotCheap:
            return None
        evaluating.rows = len(rows)
    with step("write", plan.table) as writing:
        for row in rows:
            if None in row and any(row[number] is None for number in added.required):
                table = context.state.items[plan.table]
                assert isinstance(table, Table)
                check_not_null(table, table_of(rows, added.schema))  # raises
        if not check_row_keys(context, plan.table, rows, added.schema):
            return None
        buffer = transaction.rows.get(plan.table)
        if buffer is None:
            transaction.writes_to(context.state.items[plan.table])
            buffer = transaction.rows[plan.table] = RowBuffer(added.schema)
        buffer.add(rows)
        writing.rows = len(rows)
    return Result(f"INSERT 0 {len(rows)}")


def _with_literals(row: pa.Table, literals: Mapping[int, pa.ChunkedArray]) -> pa.Table:
    """A table's rows with the literals as columns. All other columns repeat their value in `row`."""
    count = len(next(iter(literals.values())))
    columns = [
        literals.get(number, pa.repeat(column[0], count)).cast(column.type) for number, column in enumerate(row.columns)
    ]
    return pa.table(columns, names=row.column_names)


def _require(context: Context, plan: WritePlan, privilege: Privilege) -> None:
    state, role = context.state, context.role
    privileges.require_names(state, role, (plan.table,))
    privileges.require(state, role, plan.table, privilege)
    if plan.reads_table:
        privileges.require(state, role, plan.table, Privilege.SELECT)
    privileges.require_query(state, role, plan.query)


async def _enter(context: Context, verb: str) -> None:
    """Declares a statement that reads what it writes. The effects of an implicit transaction are committed first."""
    transaction = context.transaction
    if transaction.has_effects and not transaction.ends_later:
        await context.commit()
    await context.enter(Mode.WRITE, verb)


async def _end(context: Context) -> None:
    """Commits such a statement, unless it belongs to a block or a BEGIN may follow before Sync."""
    if not context.transaction.ends_later and not context.ends_at_sync:
        await context.commit()


def _keys(plan: WritePlan, parameters: tuple[object, ...]) -> Keys | None:
    """The keys of the rows that an UPDATE or DELETE reads and changes.

    None if it reads others, has too many keys, or assigns their column, so that a row gets another key.
    """
    if plan.old is None or plan.query.inputs != {plan.table}:
        return None
    return keys_of(plan.query, plan.table, Bindings(parameters), plan.assigned)  # it compares with nothing else


async def _read_then_write(
    context: Context, plan: WritePlan, table: Table, verb: str, parameters: tuple[object, ...], keys: Keys | None
) -> Result:
    """`keys`: the only rows of the only relation that the statement reads. None: it may read any."""
    await _enter(context, verb)
    rows = await rows_to_write(context, plan.query, parameters, table.id, keys)
    _check_unaltered(context, table)
    result = await _changed(context, plan, table, verb, rows)
    await _end(context)
    return result


def _check_unaltered(context: Context, table: Table) -> None:
    """AlteredError if a table was altered since the statement that writes it began."""
    current = context.state.items.get(table.id)
    if current is not table and isinstance(current, Table) and not current.accepts_rows_of(table):
        raise altered_error(table.name)


async def rows_to_write(
    context: Context, query: QueryPlan, parameters: tuple[object, ...], table: ObjectId | None, keys: Keys | None = None
) -> pa.Table:
    """The rows of a query that reads relations, for a statement that writes them, at the latest time.

    The transaction locks what the query reads, and depends on it. `table`: the table to write, which is locked, too;
    None for a new one. `keys`: the only rows of `table`, the only relation that is read.
    """
    transaction, coordinator = context.transaction, context.coordinator
    read = context.state.collections(query.inputs, through=DerivedRelation)
    written = frozenset() if table is None else frozenset((table,))
    await context.admit(written)
    await context.lock(written | read, keys)
    if transaction.ends_later:
        time = context.hold_latest(query.inputs)
        rows = await rows_at(context, query, time, parameters)
    else:
        time = coordinator.latest_time()
        try:
            holder = coordinator.frontiers.hold(query.inputs, time)
        except NotReadable as error:
            raise not_readable(context, error, time) from None
        try:
            rows = await rows_at(context, query, time, parameters)
        finally:
            holder.release()
    _depend_on(context, read, time, keys)
    return rows


def _depend_on(context: Context, read: Iterable[ObjectId], time: Timestamp, keys: Keys | None) -> None:
    """`keys`: the only rows of the only relation that was read."""
    for id in read:
        if id in context.coordinator.state.items:
            context.transaction.depend_on(id, time, keys)


async def _changed(context: Context, plan: WritePlan, table: Table, verb: str, rows: pa.Table) -> Result:
    """Adds the computed rows to the transaction. Their columns are [old row] [new row] [returning], each optional."""
    schema = collection_schema(table)
    tables = []
    with step("write", table.id) as writing:
        if plan.old is not None:
            tables.append(updates.with_diff(_part(rows, plan.old, schema), -1))
        if plan.new is not None:
            new = _part(rows, plan.new, schema)
            check_not_null(table, new)
            tables.append(new)
        if rows.num_rows:
            await check_keys(context, table, tables, None if plan.old is None or plan.new is None else plan.assigned)
            await context.add_changes(table.id, tables)
        writing.rows = rows.num_rows
    tag = "INSERT 0 {}" if verb == "INSERT" else f"{verb} {{}}"
    if plan.returning is None:
        return Result(tag.format(rows.num_rows))
    fields = plan.query.columns[plan.returning]
    shown = updates.rows_schema([field.type.arrow for field in fields])
    return Result(tag, TableRows(fields, _part(rows, plan.returning, shown)))


def _part(rows: pa.Table, columns: slice, schema: pa.Schema) -> pa.Table:
    return shaped(rows.select(range(*columns.indices(rows.num_columns))), schema)


async def truncate(context: Context, tables: list[Table]) -> Result:
    """Deletes all rows of the tables. PgError 42501 if the role lacks the privilege."""
    for table in tables:
        privileges.require(context.state, context.role, table.id, Privilege.TRUNCATE)
    await _enter(context, "TRUNCATE TABLE")
    transaction = context.transaction
    ids = frozenset(table.id for table in tables)
    await context.admit(ids)
    await context.lock(ids)
    time = context.hold_latest(ids) if transaction.ends_later else context.coordinator.latest_time()
    for table in tables:
        rows = await relation_rows_at(context, table.id, time)
        if rows.num_rows:
            removed = [updates.with_diff(rows, -1)]
            await check_keys(context, table, removed)
            await context.add_changes(table.id, removed)
    _depend_on(context, ids, time, None)
    await _end(context)
    return Result("TRUNCATE TABLE")


class CopyIn:
    """Receives the data of COPY table FROM STDIN. Large inputs are written to files; `finish` returns the row count.

    No row is loaded unless `finish` returns and the transaction commits. `abandon` removes the files.
    """

    def __init__(
        self,
        context: Context,
        table: Table,
        positions: tuple[int, ...],
        defaults: tuple[object, ...],
        decoder: CopyDecoder,
    ) -> None:
        """`positions`: table column numbers of the input's columns; `defaults`: one value per table column."""
        self._defaults = defaults
        self._context = context
        self._table = table
        self._positions = positions
        self._decoder = decoder
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0
        self._payloads: list[Payload] = []

    async def feed(self, data: bytes) -> None:
        """PgError for malformed data; the error names line and column."""
        await self._take(self._decoder.feed(data))

    async def finish(self) -> Result:
        await self._take(self._decoder.finish())
        rows = [payload.table for payload in self._payloads]
        if self._batches:
            rows.append(pa.Table.from_batches(self._batches))
        if rows:
            await check_keys(self._context, self._table, rows)
        if self._batches:
            await self._context.add_changes(self._table.id, [pa.Table.from_batches(self._batches)])
        _check_unaltered(self._context, self._table)
        for payload in self._payloads:
            self._context.transaction.writes_to(self._table)
            self._context.transaction.payloads.append((self._table.id, payload))
        self._payloads = []
        return Result(f"COPY {self._rows}")

    def abandon(self) -> None:
        for payload in self._payloads:
            self._context.coordinator.log.discard(payload)

    async def _take(self, batches: list[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = self._complete(batch)
            check_not_null(self._table, pa.Table.from_batches([rows]))
            self._batches.append(rows)
            self._bytes += rows.nbytes
            self._rows += rows.num_rows
        if self._bytes > COPY_CHUNK_BYTES:
            batches, self._batches, self._bytes = self._batches, [], 0
            log, layout = self._context.coordinator.log, layout_of(self._table)
            self._payloads.append(await asyncio.to_thread(log.prepare_stream, batches[0].schema, batches, layout))

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The table's columns in order. Columns that are not copied contain their defaults."""
        schema = collection_schema(self._table)
        columns = [
            batch.column(self._positions.index(i))
            if i in self._positions
            else pa.repeat(pa.scalar(default, type), batch.num_rows)
            for i, (type, default) in enumerate(zip(schema.types, self._defaults, strict=True))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


async def copy_from(context: Context, table: Table, positions: tuple[int, ...], decoder: CopyDecoder) -> CopyIn:
    """Begins COPY table FROM STDIN. PgError 42501 if the role lacks INSERT."""
    privileges.require(context.state, context.role, table.id, Privilege.INSERT)
    await context.enter(Mode.WRITE, "COPY FROM")
    return CopyIn(context, table, positions, await _defaults(context, table, positions), decoder)


async def _defaults(context: Context, table: Table, positions: tuple[int, ...]) -> tuple[object, ...]:
    """The default of each column, as in INSERT ... DEFAULT VALUES. All None if every column is copied."""
    if len(positions) == len(table.columns):
        return (None,) * len(table.columns)
    plan = plan_insert(default_values(table), context.plan_context())
    rows = await rows_without_inputs(context, plan.query, ())
    return tuple(column[0].as_py() for column in rows.columns)


def table_for_writing(context: Context, id: ObjectId, name: str, verb: str) -> Table:
    """The table with that id. PgError 42809 if the item is not a table."""
    item = context.state.items[id]
    if not isinstance(item, Table):
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'cannot {verb} {item.kind} "{name}"')
    return item
