"""Sorting of Arrow rows in PostgreSQL's order: NaN above all numbers, text by bytes, NULLs first or last per key.

Each column is converted to codes, integers that compare as its values do. Rows are sorted and grouped by the codes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import updates
from protocol.pgwire.errors import PgError
from server.runtime.errors import evaluation_error
from server.spark import Engine
from server.sql.expressions import walk
from server.sql.plan import QueryPlan
from server.sql.relations import Window

Codes = NDArray[np.int64]

THREAD_ROWS = 8_192  # from this number on rows are sorted in a thread, to keep the event loop responsive


@dataclass(frozen=True, slots=True)
class SortKey:
    """The direction of one sort column."""

    descending: bool = False
    nulls_first: bool = False


SortColumns = list[tuple[pa.ChunkedArray, SortKey]]
"""The columns by which rows are sorted, the most significant first."""


def codes(column: pa.Array | pa.ChunkedArray, key: SortKey = SortKey()) -> Codes:
    """One integer per row, which compare as the values do in the order of `key`."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_floating(array.type):
        array = pc.add(array, 0.0)  # -0.0 becomes 0.0
    ranks, values = _ranks(array)
    if key.descending:
        ranks = len(values) - 1 - ranks
    if array.null_count:
        ranks = np.where(np.asarray(array.is_null()), -1 if key.nulls_first else len(values), ranks)
    return ranks


def sorted_rows(columns: Sequence[Codes]) -> Codes:
    """The row numbers sorted by the first column of codes, then the second, .... The sort is stable."""
    return np.lexsort(list(reversed(columns))) if columns else np.arange(0)


def _ranks(array: pa.Array) -> tuple[Codes, Sequence[Any]]:
    """The rank of each value among the distinct values (arbitrary for NULL), and the distinct values in order."""
    if pa.types.is_nested(array.type) or pa.types.is_interval(array.type):
        return _ranks_of_scalars(array)
    encoded = array.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    if len(order) == 0:
        return np.zeros(len(array), np.int64), ()
    return rank[pc.fill_null(encoded.indices, 0).to_numpy()], encoded.dictionary


def _ranks_of_scalars(array: pa.Array) -> tuple[Codes, Sequence[Any]]:
    """As `_ranks`, for lists and intervals, which Arrow does not sort."""
    keys = [None if value is None else _comparable(value) for value in array.to_pylist()]
    values = sorted({key for key in keys if key is not None})
    rank = {value: number for number, value in enumerate(values)}
    return np.array([0 if key is None else rank[key] for key in keys], np.int64), values


def _comparable(value: Any) -> Any:
    """A Python value that compares as in PostgreSQL: in an array NULL is greatest, a month has 30 days."""
    if isinstance(value, pa.MonthDayNano):
        return ((value.months * 30 + value.days) * 86_400_000_000_000 + value.nanoseconds,)
    if isinstance(value, list) and value and isinstance(value[0], list):
        flat, lengths = value, []
        while isinstance(flat[0], list):
            lengths.append(len(flat[0]))
            flat = [item for part in flat for item in part]
        return _comparable(flat), len(value), *lengths
    if isinstance(value, list):
        return tuple((True,) if item is None else (False, _comparable(item)) for item in value)
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return value


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """WITHIN TIMESTAMP ORDER BY: a query over (diff, c0, c1, ...) that returns these columns, then computed sort keys.

    `positions`: those of the keys among the query's columns.
    """

    query: QueryPlan
    keys: tuple[SortKey, ...]
    positions: tuple[int, ...]

    @property
    def form(self) -> tuple[str, tuple[SortKey, ...], tuple[int, ...]]:
        """A value that is the same for equivalent orders."""
        return self.query.fingerprint, self.keys, self.positions

    @property
    def is_rowwise(self) -> bool:
        """Whether the sort keys of a row depend on this row only."""
        return not any(isinstance(node, Window) for node in walk(self.query.relation))


@dataclass(frozen=True, slots=True)
class Order:
    """An order and the engine that computes its expressions. Plain columns need no engine."""

    plan: OrderPlan
    engine: Engine

    async def arrange(self, changes: pa.Table) -> pa.Table:
        """The consolidated changes of one time in this order. Ties are sorted by row, then diff."""
        columns, by = await self._keys(changes)
        if len(columns[0]) < THREAD_ROWS:
            return _arranged(changes, columns, by)
        return await asyncio.to_thread(_arranged, changes, columns, by)

    async def sort_columns(self, changes: pa.Table) -> tuple[pa.Table, SortColumns]:
        """The changes, unsorted, and all columns by which `arrange` sorts them."""
        columns, by = await self._keys(changes)
        table = _table(changes, columns)
        return table, [*by, *((column, SortKey()) for column in (*columns[1:], columns[0]))]

    async def _keys(self, changes: pa.Table) -> tuple[list[pa.ChunkedArray], SortColumns]:
        """The diff and the row's columns from the query's result, and the sort columns of the clause."""
        rows = updates.rows_of(changes)
        names = [f"c{i}" for i in range(rows.num_columns + 1)]
        table = pa.table([changes[updates.DIFF], *rows.columns], names=names)
        query = self.plan.query
        if query.direct_scan is not None:
            given = [table.column(number) for number in query.direct_scan.columns]
        else:
            (source,) = query.inputs
            try:
                table = await self.engine.run(query.spark_sql(), {source: table}, patient=True)
            except PgError as error:
                raise evaluation_error(error) from None
            given = table.columns
        by = [(given[i], key) for i, key in zip(self.plan.positions, self.plan.keys, strict=True)]
        return table.columns[: changes.num_columns], by


def _table(changes: pa.Table, columns: list[pa.ChunkedArray]) -> pa.Table:
    """A table with the schema of `changes` from these columns, the first of which is the diff."""
    diff, *others = columns
    return pa.table([*others, diff], names=changes.column_names).cast(changes.schema)


def _arranged(changes: pa.Table, columns: list[pa.ChunkedArray], by: SortColumns) -> pa.Table:
    diff, *others = columns
    order = sorted_rows([*(codes(column, key) for column, key in by), *map(codes, others), codes(diff)])
    return _table(changes, columns).take(pa.array(order))
