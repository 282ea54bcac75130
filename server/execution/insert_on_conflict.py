"""INSERT ... ON CONFLICT: rows whose key exists are left out, or update the existing row.

The statement computes its rows, locks their keys, and finds the existing rows by key. It depends on them: if another
transaction has changed one of these keys, the commit fails with 40001 and the statement is executed again, as an UPDATE
by key (decision 036). If a key of ON CONFLICT turns out to be a duplicate at the commit, that is 40001, too, and never
23505.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from catalog.objects.relations import DerivedRelation
from catalog.objects.tables import Table
from protocol.columnar.gather import rows_at as gathered
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.coordinator.key_codes import Codes
from server.coordinator.key_conflicts import Keys
from server.coordinator.key_indexes import EnforcedKey
from server.coordinator.key_values import codes_of, key_tables
from server.coordinator.snapshot_cache import collection_schema
from server.dataflow.runtime.spark_rows import shaped
from server.execution.row_rules import check_rows
from server.execution.select import (
    check_table_unaltered,
    check_write_unaltered,
    lock_at_once,
    relation_rows_at,
    rows_at,
    rows_without_inputs,
)
from server.runtime.threads import THREAD_ROWS, in_thread
from server.session_state.constraints import check_not_null
from server.session_state.context import Context
from server.session_state.key_checks import are_taken, check_keys, load_keys
from server.session_state.results import Result, TableRows
from server.session_state.transaction import KEYS_MAX, Mode
from server.session_state.transaction_errors import serialization_failure
from server.sql.key_conditions import Wanted
from server.sql.plan import QueryPlan
from server.sql.row_rules import RowRules
from server.sql.writes.conflict import CONFLICTS, RETURNED, ConflictPlan
from server.sql.writes.plan import WritePlan

WANTED_MAX = 4_096  # with more keys, all rows of the table are read

Positions = NDArray[np.int64]
_NO_POSITIONS: Positions = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Matches:
    """The rows to be inserted, by their positions, in order; and those that conflict with an existing row, with it.

    `repeated`: conflicting rows with the key of an earlier row of the statement.
    """

    inserted: Positions
    conflicting: Positions
    existing: Positions
    repeated: bool


@dataclass(frozen=True, slots=True)
class _Updated:
    """The existing rows that DO UPDATE changes, before and after.

    `positions`: those of the rows that were to be inserted in their place.
    """

    before: pa.Table
    after: pa.Table
    positions: Positions


@dataclass(frozen=True, slots=True)
class _Execution:
    """One execution of a statement, after its locks were acquired. `time`: the time at which it reads."""

    context: Context
    conflict: ConflictPlan
    parameters: tuple[object, ...]
    table: Table
    keys: Sequence[EnforcedKey]
    time: Timestamp

    async def matches(self, new: pa.Table) -> tuple[_Matches, _Updated]:
        """Decides what happens to each row of `new`, and computes the updates."""
        if self.conflict.update is None:
            nothing = new.slice(0, 0)
            return await _free(self.context, self.table, self.keys, new), _Updated(nothing, nothing, _NO_POSITIONS)
        existing = new.slice(0, 0)
        has_plain_key = any(key.columns is not None for key in self.keys)
        if has_plain_key or await _conflicts(self.context, self.table, self.keys, new):
            wanted = _wanted(self.keys, new)
            existing = await relation_rows_at(self.context, self.table.id, self.time, wanted)
        check_table_unaltered(self.context, self.table)
        engine = self.context.coordinator.engine
        values = [(key, *(await key_tables(engine, key, [new, existing]))) for key in self.keys]
        matches = await _in_thread_if_many(values, new, existing)
        return matches, await self._updated(self.conflict.update, new, existing, matches)

    async def _updated(self, update: QueryPlan, new: pa.Table, existing: pa.Table, matches: _Matches) -> _Updated:
        """PgError 21000 if a row is affected twice."""
        schema = collection_schema(self.table)
        width = len(schema)
        if matches.repeated and len(matches.inserted) + len(matches.conflicting) < new.num_rows:
            raise _affected_twice()
        old = gathered(existing, matches.existing)
        columns = [*old.columns, *gathered(new, matches.conflicting).columns, pa.chunked_array([matches.conflicting])]
        given = pa.Table.from_arrays(columns, names=[f"c{number}" for number in range(2 * width + 1)])
        if given.num_rows == 0:
            return _Updated(old, schema.empty_table(), _NO_POSITIONS)
        rows = await rows_at(self.context, update, self.time, self.parameters, given={CONFLICTS: given})
        positions = rows.column(2 * width).to_numpy()
        order = np.argsort(positions)
        rows, positions = gathered(rows, order), positions[order]
        if matches.repeated:
            _check_affected_once(matches, positions)
        before = shaped(rows.select(range(width)), schema)
        return _Updated(before, shaped(rows.select(range(width, 2 * width)), schema), positions)

    async def add_changes(self, inserted: pa.Table, updated: _Updated) -> None:
        """Adds the changes to the transaction. The errors of constraints, as of `check_keys`.

        40001 instead of 23505 if a key of ON CONFLICT was committed by another transaction just now.
        """
        changes = [updates.with_diff(updated.before, -1), updated.after, inserted]
        if not updated.after.num_rows and not inserted.num_rows:
            return
        try:
            await check_keys(self.context, self.table, changes)
        except PgError as error:
            names = {key.name for key in self.keys}
            is_arbiter = error.sqlstate is SqlState.UNIQUE_VIOLATION and error.constraint_name in names
            is_committed = self.table.id in self.context.coordinator.state.items
            read = {self.table.id: self.time} if is_committed else {}
            if is_arbiter and self.context.coordinator.changed(read, {}) is not None:
                raise serialization_failure(self.context.state, self.table.id) from None
            raise
        await self.context.add_changes(self.table, [part for part in changes if part.num_rows])

    async def result(self, inserted: pa.Table, inserted_at: Positions, updated: _Updated) -> Result:
        """The command tag, and the rows of RETURNING in the order of the rows that were to be inserted."""
        count = inserted.num_rows + updated.after.num_rows
        returning = self.conflict.returning
        if returning is None:
            return Result(f"INSERT 0 {count}")
        order = np.argsort(np.concatenate([inserted_at, updated.positions]), kind="stable")
        xmax = np.repeat(np.array([0, 1], np.int64), [inserted.num_rows, updated.after.num_rows])
        changed = pa.concat_tables([inserted, updated.after])
        given = gathered(changed.append_column(f"c{changed.num_columns}", pa.array(xmax)), order)
        schema = updates.rows_schema([field.type.arrow for field in returning.columns])
        if count == 0:
            return Result("INSERT 0 {}", TableRows(returning.columns, schema.empty_table()))
        rows = await rows_at(self.context, returning, self.time, self.parameters, given={RETURNED: given})
        return Result("INSERT 0 {}", TableRows(returning.columns, shaped(rows, schema)))


async def insert_on_conflict(
    context: Context, plan: WritePlan, conflict: ConflictPlan, parameters: tuple[object, ...]
) -> Result:
    """Executes the statement once. PgError 42501 if the role lacks a privilege."""
    check_write_unaltered(context, plan)
    table = context.state.items[plan.table]
    assert isinstance(table, Table)
    privileges.require_write(context.state, context.role, plan, "INSERT")
    transaction, coordinator = context.transaction, context.coordinator
    await context.enter(Mode.WRITE, "INSERT")
    arbiters = conflict.keys_for(context.plan_context(), table, plan.query.parameters, parameters)
    keys = [key for key in await load_keys(context, table.id) if key.name in arbiters]
    rows, read = await _source(context, plan, parameters)
    new = shaped(rows, collection_schema(table))
    await _check_rows(context, table, new, plan, None if plan.rules is None else plan.rules.of_table)
    others = conflict.update.inputs if conflict.update is not None else frozenset()
    locked = None if read or others else _locked_keys(keys, new)
    read |= context.state.collections(others, through=DerivedRelation)
    await context.admit((table.id,))
    if conflict.update is not None:
        await lock_at_once(context, conflict.update)
    await context.lock(frozenset((table.id,)) | read, locked, adds=True)
    time = _hold(context, frozenset((table.id,)) | others)
    held = [id for id in (table.id, *others) if id in coordinator.frontiers.floors]
    holder = coordinator.frontiers.hold(held, time)
    try:
        execution = _Execution(context, conflict, parameters, table, keys, time)
        matches, updated = await execution.matches(new)
        inserted = gathered(new, matches.inserted)
        for changed in (inserted, updated.after):  # the rows that are left out need not be in the view
            await _check_rows(context, table, changed, plan, plan.rules)
        await execution.add_changes(inserted, updated)
        if table.id in coordinator.state.items:
            transaction.depend_on(table.id, time, locked)
        for id in read & coordinator.state.items.keys():
            transaction.depend_on(id, time)
        transaction.arbiters.update(key.id for key in keys)
        result = await execution.result(inserted, matches.inserted, updated)
    finally:
        holder.release()
    if not transaction.is_shared and not context.ends_at_sync:
        await context.commit()
    return result


async def _check_rows(context: Context, table: Table, rows: pa.Table, plan: WritePlan, rules: RowRules | None) -> None:
    """23502, 23514 and 44000: NOT NULL and CHECK constraints, and WITH CHECK OPTION."""
    check_not_null(context, table, rows, plan.given)
    if rules is not None:
        await check_rows(context, table, rules, rows, plan.given)


async def _source(
    context: Context, plan: WritePlan, parameters: tuple[object, ...]
) -> tuple[pa.Table, frozenset[ObjectId]]:
    """The rows that are to be inserted, and the collections that were read for them."""
    if not plan.query.inputs:
        return await rows_without_inputs(context, plan.query, parameters), frozenset()
    read = context.state.collections(plan.query.inputs, through=DerivedRelation)
    await context.admit((plan.table,))
    await lock_at_once(context, plan.query)
    await context.lock(frozenset((plan.table,)) | read)
    time = _hold(context, plan.query.inputs)
    holder = context.coordinator.frontiers.hold(plan.query.inputs, time)
    try:
        rows = await rows_at(context, plan.query, time, parameters)
    finally:
        holder.release()
    for id in read & context.coordinator.state.items.keys():
        context.transaction.depend_on(id, time)
    return rows, read


def _hold(context: Context, ids: frozenset[ObjectId]) -> Timestamp:
    """The time at which the statement reads."""
    known = frozenset(id for id in ids if id in context.coordinator.state.items)
    return context.read_times.hold_latest(known) if context.transaction.is_shared else context.coordinator.latest_time()


def _locked_keys(keys: Sequence[EnforcedKey], new: pa.Table) -> Keys | None:
    """The keys of the rows, of which no others are read. None: the whole table is locked."""
    if len(keys) != 1 or keys[0].columns is None or len(keys[0].columns) != 1 or not keys[0].layout.nulls_distinct:
        return None
    (column,) = keys[0].columns
    if new.num_rows > KEYS_MAX:
        return None
    return Keys.of(column, new.column(column).drop_null())


def _wanted(keys: Sequence[EnforcedKey], new: pa.Table) -> Wanted:
    """The existing rows that may have the key of a new one."""
    if len(keys) != 1 or not keys[0].layout.nulls_distinct or new.num_rows > WANTED_MAX or keys[0].columns is None:
        return ()
    found = []
    for number in keys[0].columns:
        values = new.column(number).drop_null().unique()
        if pa.types.is_floating(values.type):
            return ()
        found.append((number, values))
    return found


async def _free(context: Context, table: Table, keys: Sequence[EnforcedKey], new: pa.Table) -> _Matches:
    """DO NOTHING: the rows whose keys neither an existing row nor an earlier one of the statement has."""
    is_free = np.ones(new.num_rows, np.bool_)
    found: list[tuple[Positions, Positions]] = []
    for key in keys:
        codes, taken = await _taken(context, table, key, new)
        rows = codes.rows if codes.rows is not None else np.arange(len(codes))
        is_free[rows[taken]] = False
        found.append((rows, _numbers(codes)))
    accepted = is_free.copy()
    if len(found) == 1:
        ((rows, numbers),) = found
        accepted[rows] = False
        firsts = rows[np.unique(numbers, return_index=True)[1]]
        accepted[firsts] = is_free[firsts]
    else:
        accepted &= ~_repeated(new.num_rows, found, is_free)
    return _Matches(np.flatnonzero(accepted), _NO_POSITIONS, _NO_POSITIONS, False)


def _repeated(count: int, keys: Sequence[tuple[Positions, Positions]], is_free: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether an earlier row that is inserted has one of a row's keys. Only rows that share a key are compared.

    `keys`: for each key, the rows that have it, and numbers of their values.
    """
    shared: dict[int, list[tuple[int, int]]] = {}
    for at, (rows, numbers) in enumerate(keys):
        is_shared = np.bincount(numbers)[numbers] > 1 if len(numbers) else np.zeros(0, np.bool_)
        for row, number in zip(rows[is_shared].tolist(), numbers[is_shared].tolist(), strict=True):
            shared.setdefault(row, []).append((at, number))
    found = np.zeros(count, np.bool_)
    taken: set[tuple[int, int]] = set()
    for row in sorted(shared):
        if not is_free[row]:
            continue
        if taken.isdisjoint(shared[row]):
            taken.update(shared[row])
        else:
            found[row] = True
    return found


async def _taken(context: Context, table: Table, key: EnforcedKey, new: pa.Table) -> tuple[Codes, NDArray[np.bool_]]:
    """The codes of the rows, and for each whether an existing row has the same key."""
    (values,) = await key_tables(context.coordinator.engine, key, [new])
    codes = await in_thread(codes_of, key, values)
    return codes, await are_taken(context, table, key, codes)


async def _conflicts(context: Context, table: Table, keys: Sequence[EnforcedKey], new: pa.Table) -> bool:
    """Whether an existing row has a key of one of the rows."""
    for key in keys:
        _, taken = await _taken(context, table, key, new)
        if taken.any():
            return True
    return False


def _matches(keys: Sequence[tuple[EnforcedKey, pa.Table, pa.Table]], new: pa.Table) -> _Matches:
    """DO UPDATE: compares the rows to be inserted with the existing ones, and with each other.

    `keys`: each with the key tables of the new rows and of the existing ones.
    """
    conflicts = np.full(new.num_rows, -1, np.int64)  # the position of the existing row
    is_first = np.ones(new.num_rows, np.bool_)
    for key, own, others_of in keys:  # keys with the same parts
        mine, theirs = codes_of(key, own), codes_of(key, others_of)
        rows = mine.rows if mine.rows is not None else np.arange(len(mine))
        others = theirs.rows if theirs.rows is not None else np.arange(len(theirs))
        numbers = _numbers(mine, theirs)
        position = np.full(len(numbers) + 1, -1, np.int64)
        position[numbers[len(mine) :]] = others
        used = numbers[: len(mine)]
        conflicts[rows] = np.maximum(conflicts[rows], position[used])
        repeated = np.ones(len(rows), np.bool_)
        repeated[np.unique(used, return_index=True)[1]] = False
        is_first[rows[repeated]] = False
    conflicting = np.flatnonzero(conflicts >= 0)
    inserted = np.flatnonzero((conflicts < 0) & is_first)
    return _Matches(inserted, conflicting, conflicts[conflicting], not bool(is_first.all()))


def _numbers(*codes: Codes) -> Positions:
    """A number for each code, the same for equal codes and another for different ones."""
    hashes = np.concatenate([part.hashes for part in codes])
    numbers = np.unique(hashes, return_inverse=True)[1].astype(np.int64)
    checks = [part.checks for part in codes if part.checks is not None]
    if checks:
        others = np.unique(np.concatenate(checks), return_inverse=True)[1]
        numbers = np.unique(numbers * (len(numbers) + 1) + others, return_inverse=True)[1].astype(np.int64)
    return numbers


def _check_affected_once(matches: _Matches, numbers: Positions) -> None:
    """PgError 21000 if a later row conflicts with an existing one that the statement has already updated.

    A row that the condition of DO UPDATE excludes does not count as updated.
    """
    is_updated = np.isin(matches.conflicting, numbers)
    last: dict[int, bool] = {}
    for existing, updated in zip(matches.existing.tolist(), is_updated.tolist(), strict=True):
        if last.get(existing):
            raise _affected_twice()
        last[existing] = updated


def _affected_twice() -> PgError:
    return PgError(
        SqlState.CARDINALITY_VIOLATION,
        "ON CONFLICT DO UPDATE command cannot affect row a second time",
        hint="Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
    )


async def _in_thread_if_many(
    keys: Sequence[tuple[EnforcedKey, pa.Table, pa.Table]], new: pa.Table, existing: pa.Table
) -> _Matches:
    if new.num_rows + existing.num_rows > THREAD_ROWS:
        return await asyncio.to_thread(_matches, keys, new)
    return _matches(keys, new)
