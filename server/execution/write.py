"""INSERT, UPDATE, DELETE, TRUNCATE and COPY FROM: changes that the transaction keeps until the committer applies them.

A statement that reads no relation only computes its rows. A statement that reads relations locks its target and what
it reads, reads at the latest time, and has the committer check that nothing was written since. In an implicit
transaction it commits itself and is executed again if that check fails. An UPDATE or DELETE of rows with given keys
locks only these keys, and only rows with these keys are checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.batches import Payload
from catalog.ids import ObjectId
from catalog.objects.relations import DerivedRelation
from catalog.objects.tables import Table
from catalog.objects.views import View
from catalog.roles import Privilege
from protocol.pgwire.copy_in import CopyDecoder
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.authorization import privileges
from server.coordinator.key_conflicts import Keys
from server.coordinator.reads import AlteredError
from server.coordinator.row_buffer import RowBuffer, table_of
from server.coordinator.snapshot_cache import collection_schema, layout_of
from server.dataflow.runtime.spark_rows import shaped
from server.execution.ddl.define import change_catalog
from server.execution.ddl.sequences import restarted
from server.execution.insert_on_conflict import insert_on_conflict
from server.execution.planning import default_values
from server.execution.row_rules import check_rows, first_violation, met, with_generated
from server.execution.second_digits import rounded_seconds
from server.execution.select import (
    RepeatedRow,
    check_table_unaltered,
    check_write_unaltered,
    depend_on_all,
    keys_of,
    latest_time,
    lock_at_once,
    relation_rows_at,
    repeated_row,
    rows_at,
    rows_without_inputs,
    unlocked_rows,
)
from server.runtime.offload import in_decoding_thread, offload
from server.runtime.trace import step
from server.session_state.constraints import check_not_null, check_violation, first_null, null_violation
from server.session_state.context import Context
from server.session_state.key_checks import check_keys, check_row_keys, load_keys
from server.session_state.results import Result, TableRows
from server.session_state.transaction import Mode
from server.sql.constant import Bindings, NotCheap
from server.sql.grammar.statements.merges import MergeAction
from server.sql.grammar.statements.parts import Expr
from server.sql.plan import QueryPlan
from server.sql.row_rules import RowCondition, RowRules, copy_condition, rules_of, violated
from server.sql.writes.added_rows import AddedRows
from server.sql.writes.plan import MergeColumns, WritePlan
from server.sql.writes.statements import plan_defaults

RETRIES_MAX = 10
CHECK_BYTES = 8 * 1024 * 1024  # the size of the rows whose CHECK constraints COPY checks together
DECODED_BYTES_MAX = 8 * 1024  # more data of COPY is decoded in a thread: lines may be empty, so that each byte is a row
COPY_CHUNK_BYTES = 64 * 1024 * 1024  # per COPY; rows beyond this size are written to a file


async def write(context: Context, plan: WritePlan, verb: str, parameters: tuple[object, ...]) -> Result:
    """Executes a planned INSERT, UPDATE or DELETE. PgError 42501 if the role lacks a privilege."""
    if plan.added is not None:
        await load_keys(context, plan.table)
    if plan.added is not None and (result := insert_constants(context, plan, plan.added, parameters)) is not None:
        return result
    if (conflict := plan.conflict) is not None:
        return await retried(context, lambda _: insert_on_conflict(context, plan, conflict, parameters))
    check_write_unaltered(context, plan)
    privileges.require_write(context.state, context.role, plan, verb)
    table = context.state.items[plan.table]
    assert isinstance(table, Table)
    if not plan.query.inputs:
        await context.enter(Mode.WRITE, verb)
        if plan.literals is None:
            rows = await rows_without_inputs(context, plan.query, parameters)
            check_table_unaltered(context, table)
        else:
            row = await repeated_row(context, plan.query)
            rows = await row.rows(len(next(iter(plan.literals.values()))))
            check_table_unaltered(context, table)
            rows = await asyncio.to_thread(_with_literals, rows, plan.literals)
            if plan.rules is not None:
                rows = await with_generated(context, plan.rules, rows)
        return await apply_rows(context, plan, table, verb, rows)

    if plan.skips_locked:
        return await retried(context, lambda _: _write_unlocked(context, plan, table, verb, parameters))

    async def attempt(number: int) -> Result:
        keys = _keys(plan, parameters) if number == 0 else None
        return await _read_then_write(context, plan, table, verb, parameters, keys)

    return await retried(context, attempt)


async def retried(context: Context, attempt: Callable[[int], Awaitable[Result]]) -> Result:
    """Executes a statement. If it is alone in its transaction, executes it again after a serialization failure.

    `attempt` gets the number of the attempt, from 0.
    """
    for number in range(RETRIES_MAX):
        try:
            return await attempt(number)
        except PgError as error:
            retry = error.sqlstate is SqlState.SERIALIZATION_FAILURE and not context.transaction.is_shared
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
    check_write_unaltered(context, plan)
    require_insert(context, plan)
    return add_constants(context, plan, added, parameters)


def require_insert(context: Context, plan: WritePlan) -> None:
    """PgError 42501 if the role lacks a privilege for an INSERT of constant rows."""
    if plan.target.levels or not privileges.is_superuser(context.state, context.role):
        privileges.require_write(context.state, context.role, plan, "INSERT")


def add_constants(context: Context, plan: WritePlan, added: AddedRows, parameters: tuple[object, ...]) -> Result | None:
    """As `insert_constants`, after `require_insert`."""
    transaction = context.transaction
    if not transaction.can_enter(Mode.WRITE):
        return None
    transaction.enter(Mode.WRITE, "INSERT")
    with step("evaluate") as evaluating:
        bindings = context.short_bindings(plan.query, parameters, None)
        try:
            rows = added.constant.evaluate_rows(bindings)
        except NotCheap:
            return None
        try:
            broken = [rule for row in rows if (rule := violated(added.conditions, bindings, row)) is not None]
        except NotCheap:
            if bindings.volatile is not None:
                bindings.volatile.undo()
            return None
        evaluating.rows = len(rows)
    with step("write", plan.table) as writing:
        for row in rows:
            if None in row and any(row[number] is None for number in added.required):
                table = _table_of(context, plan)
                check_not_null(context, table, table_of(rows, added.schema), plan.given)  # raises
        if broken:
            row = next(row for row in rows if violated(added.conditions, bindings, row) is not None)
            raise check_violation(
                context, _table_of(context, plan), broken[0], table_of([row], added.schema), plan.given
            )
        if not check_row_keys(context, plan.table, rows, added.schema):
            if bindings.volatile is not None:
                bindings.volatile.undo()
            return None
        buffer = transaction.rows.get(plan.table)
        if buffer is None:
            transaction.writes_to(context.state.items[plan.table])
            buffer = transaction.rows[plan.table] = RowBuffer(added.schema, context.coordinator.scratch)
        buffer.add(rows)
        writing.rows = len(rows)
    return Result(f"INSERT 0 {len(rows)}")


def _table_of(context: Context, plan: WritePlan) -> Table:
    table = context.state.items[plan.table]
    assert isinstance(table, Table)
    return table


def _with_literals(rows: pa.Table, literals: Mapping[int, pa.ChunkedArray]) -> pa.Table:
    """The rows with the literals as columns."""
    columns = [literals.get(number, column).cast(column.type) for number, column in enumerate(rows.columns)]
    return pa.table(columns, names=rows.column_names)


async def _end(context: Context) -> None:
    """Commits a statement that reads what it writes, unless others may belong to its transaction."""
    if not context.transaction.is_shared and not context.ends_at_sync:
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
    await context.enter(Mode.WRITE, verb)
    rows = await rows_to_write(context, plan.query, parameters, table.id, keys)
    check_write_unaltered(context, plan)
    result = await apply_rows(context, plan, table, verb, rows)
    await _end(context)
    return result


async def _write_unlocked(
    context: Context, plan: WritePlan, table: Table, verb: str, parameters: tuple[object, ...]
) -> Result:
    """Writes rows that no other session has locked."""
    await context.enter(Mode.WRITE, verb)
    assert plan.old is not None
    number = table.primary_key_column
    assert number is not None
    read = context.state.collections(plan.query.inputs, through=DerivedRelation)
    await context.lock(read - {table.id})
    rows = await unlocked_rows(context, plan.query, parameters, plan.old.start + number, waits=True)
    check_write_unaltered(context, plan)
    result = await apply_rows(context, plan, table, verb, rows)
    await _end(context)
    return result


async def rows_to_write(
    context: Context, query: QueryPlan, parameters: tuple[object, ...], table: ObjectId | None, keys: Keys | None = None
) -> pa.Table:
    """The rows of a query that reads relations, for a statement that writes them, at the latest time.

    The transaction locks what the query reads, and depends on it. `table`: the table to write, which is locked, too;
    None for a new one. `keys`: the only rows of `table`, the only relation that is read.
    """
    read = context.state.collections(query.inputs, through=DerivedRelation)
    written = frozenset() if table is None else frozenset((table,))
    await context.admit(written)
    await lock_at_once(context, query)
    await context.lock(written | read, keys)
    with latest_time(context, query) as time:
        rows = await rows_at(context, query, time, parameters)
    depend_on_all(context, read, time, keys)
    return rows


async def apply_rows(context: Context, plan: WritePlan, table: Table, verb: str, rows: pa.Table) -> Result:
    """Adds the computed rows to the transaction. Their columns are [old row] [new row] [returning], each optional."""
    schema = collection_schema(table)
    tables = []
    if plan.merge is not None:
        return await _merged(context, plan, plan.merge, table, rows)
    with step("write", table.id) as writing:
        if plan.old is not None:
            tables.append(updates.with_diff(_part(rows, plan.old, schema), -1))
        if plan.new is not None:
            new = _part(rows, plan.new, schema)
            check_not_null(context, table, new, plan.given)
            if plan.rules is not None:
                await check_rows(context, table, plan.rules, new, plan.given)
            tables.append(new)
        if rows.num_rows:
            await check_keys(context, table, tables, None if plan.old is None or plan.new is None else plan.assigned)
            await context.add_changes(table, tables)
        writing.rows = rows.num_rows
    tag = "INSERT 0 {}" if verb == "INSERT" else f"{verb} {{}}"
    if plan.returning is None:
        return Result(tag.format(rows.num_rows))
    return Result(tag, _returned(plan, plan.returning, rows))


def _returned(plan: WritePlan, returning: slice, rows: pa.Table) -> TableRows:
    fields = plan.query.columns[returning]
    shown = updates.rows_schema([field.type.arrow for field in fields])
    return TableRows(fields, _part(rows, returning, shown))


async def _merged(context: Context, plan: WritePlan, merge: MergeColumns, table: Table, rows: pa.Table) -> Result:
    """Adds the changes of a MERGE. PgError 21000 if a row is changed twice."""
    assert plan.old is not None
    assert plan.new is not None
    schema = collection_schema(table)
    clauses = rows.column(merge.clause).to_numpy()
    actions = {
        action: np.isin(clauses, [number for number, own in enumerate(merge.actions, 1) if own is action])
        for action in MergeAction
    }
    before = actions[MergeAction.UPDATE] | actions[MergeAction.DELETE]
    after = actions[MergeAction.UPDATE] | actions[MergeAction.INSERT]
    changed = rows.column(merge.target).filter(pa.array(before))
    if len(changed.unique()) < len(changed):
        raise PgError(
            SqlState.CARDINALITY_VIOLATION,
            "MERGE command cannot affect row a second time",
            hint="Ensure that not more than one source row matches any one target row.",
        )
    old = updates.with_diff(_part(rows.filter(pa.array(before)), plan.old, schema), -1)
    new = _part(rows.filter(pa.array(after)), plan.new, schema)
    check_not_null(context, table, new, plan.given)
    if plan.rules is not None:
        await check_rows(context, table, plan.rules, new, plan.given)
    if rows.num_rows:
        await check_keys(context, table, [old, new])
        await context.add_changes(table, [part for part in (old, new) if part.num_rows])
    if plan.returning is None:
        return Result(f"MERGE {rows.num_rows}")
    return Result("MERGE {}", _returned(plan, plan.returning, rows))


def _part(rows: pa.Table, columns: slice, schema: pa.Schema) -> pa.Table:
    return shaped(rows.select(range(*columns.indices(rows.num_columns))), schema)


async def truncate(context: Context, tables: list[Table], *, restarts: bool = False) -> Result:
    """Deletes all rows of the tables. PgError 42501 if the role lacks the privilege.

    `restarts`: the sequences that their columns own begin again, if the transaction commits.
    """
    for table in tables:
        privileges.require(context.state, context.role, table.id, Privilege.TRUNCATE)
    await context.enter(Mode.WRITE, "TRUNCATE TABLE")
    if restarts and (after := restarted(context, context.state, tables)) is not context.state:
        change_catalog(context, after)
    transaction = context.transaction
    ids = frozenset(table.id for table in tables)
    await context.admit(ids)
    await context.lock(ids)
    time = context.read_times.hold_latest(ids) if transaction.is_shared else context.coordinator.latest_time()
    for table in tables:
        rows = await relation_rows_at(context, table.id, time)
        check_table_unaltered(context, table)
        if rows.num_rows:
            removed = [updates.with_diff(rows, -1)]
            await check_keys(context, table, removed)
            await context.add_changes(table, removed)
    depend_on_all(context, ids, time)
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
        defaults: RepeatedRow | None,
        decoder: CopyDecoder,
        rules: RowRules | None,
        condition: RowCondition | None,
    ) -> None:
        """`positions`: table column numbers of the input's columns. `defaults`: those of the other columns, if any."""
        self._defaults = defaults
        self._defaults_of: dict[int, RepeatedRow] = {}  # of columns with the marker of the option DEFAULT
        self._context = context
        self._table = table
        self._positions = positions
        self._decoder = decoder
        self._batches: list[pa.RecordBatch] = []
        self._rules = rules
        self._condition = condition
        self._met: list[pa.BooleanArray] = []  # whether rows meet the condition, in the order of the data
        self._unchecked: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0
        self._added = 0  # the number of rows that meet the condition and are checked
        self._payloads: list[Payload] = []

    @property
    def rows(self) -> int:
        """The number of rows so far."""
        return self._rows

    async def feed(self, data: bytes) -> None:
        """PgError for malformed data; the error names line and column. Do not call it again after a cancellation."""
        await self._decode(len(data), self._decoder.feed, data)

    async def finish(self) -> Result:
        await self._decode(0, self._decoder.finish)
        await self._check()
        rows = [payload.table for payload in self._payloads]
        if self._batches:
            rows.append(pa.Table.from_batches(self._batches))
        if rows:
            await check_keys(self._context, self._table, rows, located=partial(self._located, shows_text=False))
        if self._batches:
            await self._context.add_changes(self._table, [pa.Table.from_batches(self._batches)])
        check_table_unaltered(self._context, self._table)
        for payload in self._payloads:
            self._context.transaction.writes_to(self._table)
            self._context.transaction.payloads.append((self._table.id, payload))
        self._payloads = []
        return Result(f"COPY {self._added}")

    async def _decode(self, added: int, decode: Callable[..., list[pa.RecordBatch]], *data: bytes) -> None:
        if self._decoder.gathered + added > DECODED_BYTES_MAX:
            await self._take(await in_decoding_thread(decode, *data))
        else:
            await self._take(decode(*data))

    def abandon(self) -> None:
        for payload in self._payloads:
            self._context.coordinator.log.discard(payload)

    async def _take(self, batches: list[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = await self._complete(batch)
            self._rows += rows.num_rows
            if self._rules is None and self._condition is None:
                self._add(rows)
            else:
                self._unchecked.append(rows)
        if sum(batch.nbytes for batch in self._unchecked) > CHECK_BYTES:
            await self._check()
        if self._bytes > COPY_CHUNK_BYTES:
            batches, self._batches, self._bytes = self._batches, [], 0
            log, layout = self._context.coordinator.log, layout_of(self._table)
            self._payloads.append(await asyncio.to_thread(log.prepare_stream, batches[0].schema, batches, layout))

    async def _check(self) -> None:
        """Adds the unchecked rows that meet the condition, with generated columns, and checks them."""
        if not self._unchecked:
            return
        rows, self._unchecked = pa.Table.from_batches(self._unchecked), []
        if self._condition is not None:
            self._met.append(await met(self._context, self._condition, rows))
            rows = rows.filter(self._met[-1])
        if self._rules is not None:
            rows = await with_generated(self._context, self._rules, rows)
            null = first_null(self._table, rows)
            before = rows if null is None else rows.slice(0, null[0])
            if (violated := await first_violation(self._context, self._rules, before)) is not None:
                number, rule = violated
                error = check_violation(self._context, self._table, rule, rows.slice(number, 1), self._positions)
                raise self._located(error, self._added + number, shows_text=True)
        for batch in rows.combine_chunks().to_batches():
            self._add(batch)

    def _add(self, rows: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([rows])
        if (null := first_null(self._table, table)) is not None:
            error = null_violation(self._context, self._table, table, null, self._positions)
            raise self._located(error, self._added + null[0], shows_text=True)
        self._batches.append(rows)
        self._bytes += rows.nbytes
        self._added += rows.num_rows

    def _located(self, error: PgError, number: int, *, shows_text: bool) -> PgError:
        """As `CopyDecoder.located`, by the number of an added row."""
        omitted = 0
        for each in self._met:
            if number < each.true_count:
                number = int(np.flatnonzero(each.to_numpy(zero_copy_only=False))[number])
                break
            number -= each.true_count
            omitted += len(each)
        return self._decoder.located(error, omitted + number, shows_text=shows_text)

    async def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The table's columns in order. Columns that are not copied contain their defaults."""
        schema = collection_schema(self._table)
        others = None if self._defaults is None else (await self._defaults.rows(batch.num_rows)).combine_chunks()
        columns = []
        for number, type in enumerate(schema.types):
            if number in self._positions:
                values = await self._with_defaults(batch, number)
                declared = parse_type(self._table.columns[number].type)
                digits = (declared.element or declared).second_digits
                columns.append(values if digits is None else rounded_seconds(values, digits))
            else:
                assert others is not None
                columns.append(pa.concat_arrays(others.column(number).cast(type).chunks))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    async def _with_defaults(self, batch: pa.RecordBatch, number: int) -> pa.Array:
        """The values of a column of the table, with its default where the data has the marker of the option DEFAULT."""
        width, index = len(self._positions), self._positions.index(number)
        values = batch.column(index)
        if batch.num_columns == width or not (count := batch.column(width + index).true_count):
            return values
        if number not in self._defaults_of:
            self._defaults_of[number] = await _defaults(self._context, self._table, frozenset((number,)))
        defaults = (await self._defaults_of[number].rows(count)).column(number).cast(values.type).combine_chunks()
        marked = batch.column(width + index).to_numpy(zero_copy_only=False)
        places = np.where(marked, len(values) + np.cumsum(marked) - 1, np.arange(len(values)))
        return pa.concat_arrays([values, defaults]).take(pa.array(places))


async def copy_from(
    context: Context, table: Table, positions: tuple[int, ...], decoder: CopyDecoder, condition: Expr | None
) -> CopyIn:
    """Begins COPY table FROM STDIN. PgError 42501 if the role lacks INSERT."""
    privileges.require_columns(context.state, context.role, table.id, Privilege.INSERT, positions)
    await context.enter(Mode.WRITE, "COPY FROM")
    others = frozenset(range(len(table.columns))).difference(positions)
    planning = context.plan_context()
    chosen = None
    if condition is not None:
        chosen = await offload(condition.text, copy_condition, planning, table, condition)
    rules = await offload("", rules_of, table, planning)
    defaults = await _defaults(context, table, others) if others else None
    return CopyIn(context, table, positions, defaults, decoder, rules, chosen)


async def _defaults(context: Context, table: Table, numbers: frozenset[int]) -> RepeatedRow:
    """The defaults of these columns, and NULL in the others."""
    plan = await offload("", plan_defaults, default_values(table), numbers, context.plan_context())
    return await repeated_row(context, plan)


def table_for_writing(context: Context, id: ObjectId, name: str, verb: str) -> Table:
    """The table with that id. PgError 42809 if the item is not a table."""
    item = context.state.items[id]
    if not isinstance(item, Table):
        hint = "Use INSERT, or copy to the table that the view reads." if isinstance(item, View) else None
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'cannot {verb} {item.kind} "{name}"', hint=hint)
    return item
