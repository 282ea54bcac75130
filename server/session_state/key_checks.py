"""Checks the enforced keys of a table's new rows, and reports duplicates in PostgreSQL's words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from catalog.ids import ObjectId
from catalog.objects.tables import Table
from catalog.roles import Privilege
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.text_columns import value_text
from server.authorization import privileges
from server.coordinator.key_codes import Codes
from server.coordinator.key_counts import FEW_KEYS, Changes, KeyCounts
from server.coordinator.key_indexes import EnforcedKey, OwnKeys, changes_in, first_duplicate, is_many, violation
from server.coordinator.key_values import cheap_key_tables, key_tables, position_of, row_changes
from server.coordinator.row_buffer import table_of
from server.session_state.deferral import Deferral
from server.session_state.session_state import SessionState


async def check_keys(
    context: SessionState,
    table: Table,
    tables: Sequence[pa.Table],
    assigned: AbstractSet[int] | None = None,
    located: Callable[[PgError, int], PgError] = lambda error, row: error,
) -> None:
    """Compares the keys of a statement's rows and changes with those of all rows, before the transaction adds them.

    `assigned`: the columns that an UPDATE assigns, by their numbers. PgError 23505. `located` adds to an error the
    origin of the row with this number, counted over all of `tables`.
    """
    keys = await load_keys(context, table.id)
    if not keys:
        return
    own = await own_keys(context, table, keys)
    many = is_many(tables)
    checked: list[tuple[OwnKeys, Changes, int]] = []
    for at, key in enumerate(keys):
        if assigned is not None and assigned.isdisjoint(key.inputs):
            continue
        values = await key_tables(context.coordinator.engine, key, tables)
        if many:
            changes = await asyncio.to_thread(changes_in, key.layout, values)
        else:
            changes = changes_in(key.layout, values)
        mine = own[key.id]
        if context.transaction.defers(key):
            checked.append((mine, changes, -1))
            continue
        base, version = _base(context, table.id, key)
        if many:
            code = await asyncio.to_thread(violation, base.snapshot(), mine.counts, changes)
        else:
            code = violation(base, mine.counts, changes)
        if code is not None:
            compared = []
            for later in [key for key in keys[at:] if not context.transaction.defers(key)]:
                values = await key_tables(context.coordinator.engine, later, tables)
                base, _ = _base(context, table.id, later)
                compared.append(_Compared(later, base.snapshot(), own[later.id].counts.snapshot(), values))
            found = await asyncio.to_thread(_first_duplicate, compared)
            row = sum(part.num_rows for part in tables[: found.table]) + found.row
            raise located(duplicate_key(context, table, found.key, found.values, found.position), row)
        checked.append((mine, changes, version))
    for mine, changes, version in checked:
        mine.add(changes, version)


async def check_deferred(context: SessionState, deferral: Deferral) -> None:
    """Compares the keys that the transaction defers and `deferral` does not, in all of its changes. PgError 23505."""
    transaction, engine = context.transaction, context.coordinator.engine
    for id in transaction.written:
        table = context.state.items[id]
        assert isinstance(table, Table)
        for key in await load_keys(context, id):
            if transaction.defers(key) and not deferral.includes(key):
                values = await key_tables(engine, key, transaction.tables_of(id))
                base, _ = _base(context, id, key)
                found = await asyncio.to_thread(first_duplicate, key.layout, base.snapshot(), None, values)
                if found is not None:
                    number, position = found
                    raise duplicate_key(context, table, key, values[number], position)


class _Compared(NamedTuple):
    """A key, the rows of others by it, the transaction's earlier changes, and the key tables of the new rows."""

    key: EnforcedKey
    base: KeyCounts
    own: KeyCounts
    tables: Sequence[pa.Table]


class _FirstDuplicate(NamedTuple):
    """The first new row that has the key of another row.

    `table`, `row`: the number of its table, and its position there. `values`, `position`: a key table, and the position
    of its key there.
    """

    table: int
    row: int
    key: EnforcedKey
    values: pa.Table
    position: int


def _first_duplicate(compared: Sequence[_Compared]) -> _FirstDuplicate:
    """There must be a duplicate of one of the keys."""
    found = []
    for number, (key, base, own, tables) in enumerate(compared):
        if (duplicate := first_duplicate(key.layout, base, own, tables)) is not None:
            table, position = duplicate
            found.append((table, position_of(key, tables[table], position), number, position))
    table, row, number, position = min(found)
    key, _, _, tables = compared[number]
    return _FirstDuplicate(table, row, key, tables[table], position)


async def load_keys(context: SessionState, table: ObjectId) -> Sequence[EnforcedKey]:
    """The enforced keys of a table. Returns when their indexes are in memory."""
    indexes = context.coordinator.key_indexes
    keys = indexes.of(context.state, table)
    missing = [key for key in keys if _find_base(context, table, key) is None]
    if missing:
        await indexes.load(table, missing)
    return keys


def _find_base(context: SessionState, table: ObjectId, key: EnforcedKey) -> tuple[KeyCounts, int] | None:
    if (created := context.transaction.new_keys.get(key.id)) is not None:
        return created, 0
    if (index := context.coordinator.key_indexes.index(key)) is not None:
        return index.counts, index.version
    if table not in context.coordinator.state.items:  # the transaction has created it
        return KeyCounts(key.layout.is_narrow), 0
    return None


def _base(context: SessionState, table: ObjectId, key: EnforcedKey) -> tuple[KeyCounts, int]:
    """The committed rows of each key, and the version of the index."""
    found = _find_base(context, table, key)
    assert found is not None
    return found


async def own_keys(context: SessionState, table: Table, keys: Sequence[EnforcedKey]) -> dict[str, OwnKeys]:
    """The changes of keys by the transaction so far. They are computed again after ROLLBACK TO SAVEPOINT."""
    transaction = context.transaction
    own = transaction.key_changes.get(table.id)
    if own is not None and all(key.id in own for key in keys):
        return own
    own = {key.id: OwnKeys(KeyCounts(key.layout.is_narrow)) for key in keys}
    tables = transaction.tables_of(table.id)
    for key in keys if tables else ():
        values = await key_tables(context.coordinator.engine, key, tables)
        changes = await asyncio.to_thread(changes_in, key.layout, values)
        own[key.id].add(changes, -1)
    transaction.key_changes[table.id] = own
    return own


def check_row_keys(context: SessionState, id: ObjectId, rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> bool:
    """As `check_keys` for few rows of Python scalars. Returns False if that would have to wait."""
    keys = context.coordinator.key_indexes.of(context.state, id)
    if not keys:
        return True
    transaction = context.transaction
    own = transaction.key_changes.get(id)
    if own is None:
        if id in transaction.written:
            return False
        own = {key.id: OwnKeys(KeyCounts(key.layout.is_narrow)) for key in keys}
    checked: list[tuple[OwnKeys, Changes, int]] = []
    table: pa.Table | None = None
    for key in keys:
        found = _find_base(context, id, key)
        if found is None or key.id not in own or transaction.defers(key):
            return False
        base, version = found
        mine = own[key.id]
        layout = key.layout
        changes: Changes
        if key.computed is not None:
            computed = row_changes(key, rows)
            if computed is None:
                return False
            changes = computed
        elif layout.has_scalars:
            changes = layout.row_counts(rows)
        else:
            table = table if table is not None else table_of(rows, schema)
            changes = changes_in(layout, [table])
        if violation(base, mine.counts, changes) is not None:
            table = table if table is not None else table_of(rows, schema)
            item = context.state.items[id]
            assert isinstance(item, Table)
            compared = []
            for other in keys:
                known, tables = _find_base(context, id, other), cheap_key_tables(other, [table])
                if known is not None and tables is not None:
                    compared.append(_Compared(other, known[0], own[other.id].counts, tables))
            first = _first_duplicate(compared)
            raise duplicate_key(context, item, first.key, first.values, first.position)
        checked.append((mine, changes, version))
    for mine, changes, version in checked:
        mine.add(changes, version)
    transaction.key_changes[id] = own
    return True


async def prepare_commit(context: SessionState) -> None:
    """Computes the changes of keys that ROLLBACK TO SAVEPOINT has removed, so that the committer need not."""
    transaction = context.transaction
    for id in transaction.written:
        item = context.state.items.get(id)
        keys = context.coordinator.key_indexes.of(context.state, id)
        if keys and isinstance(item, Table):
            await own_keys(context, item, keys)


async def are_taken(context: SessionState, table: Table, key: EnforcedKey, codes: Codes) -> NDArray[np.bool_]:
    """Whether a row has each of the codes, with the changes of the transaction. The key's index is in memory."""
    own = (await own_keys(context, table, [key]))[key.id].counts
    base, _ = _base(context, table.id, key)
    if len(codes) <= FEW_KEYS:
        return np.array([base.count(code) + own.count(code) > 0 for code in codes.to_list()], np.bool_)

    def counted(base: KeyCounts, own: KeyCounts) -> NDArray[np.bool_]:
        return (base.counts_of(codes.hashes, codes.checks) + own.counts_of(codes.hashes, codes.checks)) > 0

    return await asyncio.to_thread(counted, base.snapshot(), own.snapshot())


def duplicate_key(context: SessionState, table: Table, key: EnforcedKey, values: pa.Table, position: int) -> PgError:
    """The error for a row that has the key of another one, by its key table.

    Only a role that may read the columns of the key gets values; as in PostgreSQL, those of the table if an expression
    is part of the key.
    """
    state, role = context.state, context.role
    columns = privileges.columns_with(state, role, table.id, Privilege.SELECT)
    may_read = privileges.has(state, role, table.id, Privilege.SELECT) or (
        key.columns is not None and columns.issuperset(key.columns)
    )
    return _duplicate(context, table, key, _shown(context, key, values, position) if may_read else None)


def _duplicate(context: SessionState, table: Table, key: EnforcedKey, shown: str | None) -> PgError:
    return PgError(
        SqlState.UNIQUE_VIOLATION,
        f'duplicate key value violates unique constraint "{key.name}"',
        detail=None if shown is None else f"Key {shown} already exists.",
        schema_name=context.state.schemas[table.schema_id].name,
        table_name=table.name,
        constraint_name=key.name,
    )


def not_unique(context: SessionState, table: Table, key: EnforcedKey, values: pa.Table, position: int) -> PgError:
    """The error for an existing row that has the key of another one, by its key table, when the key is created."""
    return PgError(
        SqlState.UNIQUE_VIOLATION,
        f'could not create unique index "{key.name}"',
        detail=f"Key {_shown(context, key, values, position)} is duplicated.",
        schema_name=context.state.schemas[table.schema_id].name,
        table_name=table.name,
        constraint_name=key.name,
    )


def committed_duplicate(
    context: SessionState, id: ObjectId, key: EnforcedKey, code: int, tables: Sequence[pa.Table] | None
) -> PgError:
    """The error for a transaction that another one has preceded.

    `tables`: the key tables of what it wrote; None if they are not known.
    """
    item = context.state.items[id]
    assert isinstance(item, Table)
    if tables is None:
        return _duplicate(context, item, key, None)
    for table in tables:
        codes = key.layout.codes(table)
        found = [at for at, own in enumerate(codes.to_list()) if own == code]
        for at in found:
            position = at if codes.rows is None else int(codes.rows[at])
            if updates.DIFF not in table.column_names or table[updates.DIFF][position].as_py() > 0:
                return duplicate_key(context, item, key, table, position)
    raise AssertionError("no row with the key")


def _shown(context: SessionState, key: EnforcedKey, values: pa.Table, position: int) -> str:
    texts = []
    for number, type in zip(key.layout.columns, key.types, strict=True):
        text = value_text(values.column(number), position, type, context.settings.output_style)
        texts.append("null" if text is None else text)
    return f"({', '.join(key.texts)})=({', '.join(texts)})"
