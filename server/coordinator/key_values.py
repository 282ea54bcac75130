"""The values of computed keys: of unique indexes that have an expression or a condition.

The keys of rows are compared as the columns of *key tables*. The key table of a key of columns is the table of the rows
itself. That of a computed key has the values of the key, the numbers of the rows that have one, and their diffs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import updates
from server.coordinator.key_codes import Codes
from server.coordinator.key_counts import Changes
from server.coordinator.key_indexes import EnforcedKey, changes_in
from server.dataflow.runtime.spark_rows import shaped
from server.spark import Runner
from server.sql.computed_keys import ROWS, ComputedKey
from server.sql.constant import Bindings, NotCheap
from server.sql.functions.worker import scalar_values

FEW_ROWS = 200  # more rows are computed by Spark
POSITION = "position"


async def key_tables(engine: Runner, key: EnforcedKey, tables: Sequence[pa.Table]) -> Sequence[pa.Table]:
    """The key tables of tables of rows or changes. PgError if an expression fails for a row."""
    if key.computed is None:
        return tables
    return [await _key_table(engine, key.computed, table) for table in tables]


def cheap_key_tables(key: EnforcedKey, tables: Sequence[pa.Table]) -> Sequence[pa.Table] | None:
    """As `key_tables`, on the event loop; None if that would take long."""
    if key.computed is None:
        return tables
    found = [_cheap_key_table(key.computed, table) for table in tables]
    return None if None in found else [table for table in found if table is not None]


def row_changes(key: EnforcedKey, rows: Sequence[tuple[Any, ...]]) -> Changes | None:
    """The changes of a computed key by new rows of Python scalars; None if it is not cheap."""
    assert key.computed is not None
    found = _values(key.computed, rows)
    if found is None:
        return None
    values, positions = found
    if key.layout.has_scalars:
        return key.layout.row_counts(values)
    return changes_in(key.layout, [_value_table(key.computed, values, positions, None)])


def _values(
    computed: ComputedKey, rows: Sequence[tuple[Any, ...]]
) -> tuple[Sequence[tuple[Any, ...]], Sequence[int]] | None:
    """The keys of rows of Python scalars, with the positions of the rows that have one; None if it is not cheap."""
    if not computed.is_cheap or len(rows) > FEW_ROWS:
        return None
    values, positions = [], []
    try:
        for position, row in enumerate(rows):
            if (value := computed.value_of([row[number] for number in computed.numbers])) is not None:
                values.append(value)
                positions.append(position)
    except NotCheap:
        return None
    return values, positions


def _value_table(
    computed: ComputedKey, values: Sequence[tuple[Any, ...]], positions: Sequence[int], table: pa.Table | None
) -> pa.Table:
    """The key table of these keys. `table`: as in `_named`."""
    columns = zip(*values, strict=True) if values else ((),) * len(computed.types)
    arrays = [pa.array(column, type.arrow) for column, type in zip(columns, computed.types, strict=True)]
    return _named([*arrays, pa.array(positions, pa.int64())], table)


def codes_of(key: EnforcedKey, table: pa.Table) -> Codes:
    """The codes of the keys of a key table, with the positions in the table of the rows."""
    codes = key.layout.codes(table)
    if key.computed is None:
        return codes
    positions: NDArray[np.int64] = table[POSITION].to_numpy()
    return Codes(codes.hashes, codes.checks, positions if codes.rows is None else positions[codes.rows])


def position_of(key: EnforcedKey, table: pa.Table, number: int) -> int:
    """The position, in the table of the rows, of a row of a key table."""
    return number if key.computed is None else table[POSITION][number].as_py()


async def _key_table(engine: Runner, computed: ComputedKey, table: pa.Table) -> pa.Table:
    if (found := _cheap_key_table(computed, table)) is not None:
        return found
    numbers = pa.chunked_array([np.arange(table.num_rows, dtype=np.int64)])
    columns = [*(table.column(number) for number in computed.numbers), numbers]
    names = [f"c{number}" for number in range(len(columns))]
    statement = await asyncio.to_thread(computed.plan.spark_sql, Bindings())
    found = await engine.run(statement, {ROWS: pa.Table.from_arrays(columns, names=names)})
    schema = updates.rows_schema([field.type.arrow for field in computed.plan.columns])
    return await asyncio.to_thread(lambda: _named(_in_order(shaped(found, schema)).columns, table))


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by(table.column_names[-1])


def _cheap_key_table(computed: ComputedKey, table: pa.Table) -> pa.Table | None:
    if not computed.is_cheap or table.num_rows > FEW_ROWS:
        return None
    cells = [
        scalar_values(column.type, table.column(number))
        for number, column in zip(computed.numbers, computed.columns, strict=True)
    ]
    known = dict(zip(computed.numbers, cells, strict=True))
    width = max(computed.numbers, default=-1) + 1
    empty = [None] * table.num_rows
    rows = list(zip(*(known.get(number, empty) for number in range(width)), strict=True)) or [()] * table.num_rows
    found = _values(computed, rows)
    return None if found is None else _value_table(computed, *found, table)


def _named(columns: Sequence[Any], table: pa.Table | None) -> pa.Table:
    """A key table of the values and the positions. `table`: of the rows, whose diffs are added."""
    names = [*(f"c{number}" for number in range(len(columns) - 1)), POSITION]
    if table is not None and updates.DIFF in table.column_names:
        columns, names = [*columns, table[updates.DIFF].take(columns[-1])], [*names, updates.DIFF]
    return pa.Table.from_arrays(list(columns), names=names)
