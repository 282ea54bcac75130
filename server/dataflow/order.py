"""Putting Arrow rows in PostgreSQL's order: NaN above all numbers, text by bytes, NULLs where each key wants them.

A column becomes codes, small integers that compare as its values do; rows are then sorted and grouped by codes alone.
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
from server.failures import evaluation_error
from server.spark import Engine
from server.sql.expressions import walk
from server.sql.plan import QueryPlan
from server.sql.relations import Window

Codes = NDArray[np.int64]

THREAD_ROWS = 8_192  # from this size on rows are sorted in a thread, so that others are answered meanwhile


@dataclass(frozen=True, slots=True)
class SortKey:
    """How one column counts."""

    descending: bool = False
    nulls_first: bool = False


SortColumns = list[tuple[pa.ChunkedArray, SortKey]]
"""The columns that rows are sorted by, the first counts most."""


def codes(column: pa.Array | pa.ChunkedArray, key: SortKey = SortKey()) -> Codes:
    """One number for each row: less, equal or greater as the values are in the order of `key`."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_floating(array.type):
        array = pc.add(array, 0.0)  # 0 and -0 are one value
    ranks, values = _ranks(array)
    if key.descending:
        ranks = len(values) - 1 - ranks
    if array.null_count:
        ranks = np.where(np.asarray(array.is_null()), -1 if key.nulls_first else len(values), ranks)
    return ranks


def sorted_rows(columns: Sequence[Codes]) -> Codes:
    """The row numbers in the order of the first column of codes, then the second, ...; equal rows keep theirs."""
    return np.lexsort(list(reversed(columns))) if columns else np.arange(0)


def _ranks(array: pa.Array) -> tuple[Codes, Sequence[Any]]:
    """Each value's rank among the distinct ones (any number for NULL), and those in order."""
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
    """Arrow does not sort lists and intervals."""
    keys = [None if value is None else _comparable(value) for value in array.to_pylist()]
    values = sorted({key for key in keys if key is not None})
    rank = {value: number for number, value in enumerate(values)}
    return np.array([0 if key is None else rank[key] for key in keys], np.int64), values


def _comparable(value: Any) -> Any:
    """A Python value that compares as PostgreSQL compares: in an array NULL is greatest, a month has 30 days."""
    if isinstance(value, pa.MonthDayNano):
        return ((value.months * 30 + value.days) * 86_400_000_000_000 + value.nanoseconds,)
    if isinstance(value, list):
        return tuple((True,) if item is None else (False, _comparable(item)) for item in value)
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return value


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """WITHIN TIMESTAMP ORDER BY: a query over (diff, c0, c1, ...) that gives them and behind them what else is needed.

    `places`: where each key stands among the query's columns.
    """

    query: QueryPlan
    keys: tuple[SortKey, ...]
    places: tuple[int, ...]

    @property
    def form(self) -> tuple[str, tuple[SortKey, ...], tuple[int, ...]]:
        """Equal for orders that mean the same."""
        return self.query.fingerprint, self.keys, self.places

    @property
    def is_rowwise(self) -> bool:
        """Whether a row's keys depend on that row alone."""
        return not any(isinstance(node, Window) for node in walk(self.query.relation))


@dataclass(frozen=True, slots=True)
class Order:
    """An order with the engine that computes its expressions; columns and their numbers take none."""

    plan: OrderPlan
    engine: Engine

    async def arrange(self, changes: pa.Table) -> pa.Table:
        """The consolidated changes of one time in this order; ties by row, then diff."""
        columns, by = await self._keys(changes)
        if len(columns[0]) < THREAD_ROWS:
            return _arranged(changes, columns, by)
        return await asyncio.to_thread(_arranged, changes, columns, by)

    async def sort_columns(self, changes: pa.Table) -> tuple[pa.Table, SortColumns]:
        """The changes as `arrange` would have them, unsorted, and all columns that say how they are sorted."""
        columns, by = await self._keys(changes)
        table = _table(changes, columns)
        return table, [*by, *((column, SortKey()) for column in (*columns[1:], columns[0]))]

    async def _keys(self, changes: pa.Table) -> tuple[list[pa.ChunkedArray], SortColumns]:
        """Diff and the columns, as the query has them, and the columns that the clause names."""
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
        by = [(given[place], key) for place, key in zip(self.plan.places, self.plan.keys, strict=True)]
        return table.columns[: changes.num_columns], by


def _table(changes: pa.Table, columns: list[pa.ChunkedArray]) -> pa.Table:
    """`changes` made again of diff and columns."""
    diff, *others = columns
    return pa.table([*others, diff], names=changes.column_names).cast(changes.schema)


def _arranged(changes: pa.Table, columns: list[pa.ChunkedArray], by: SortColumns) -> pa.Table:
    diff, *others = columns
    order = sorted_rows([*(codes(column, key) for column, key in by), *map(codes, others), codes(diff)])
    return _table(changes, columns).take(pa.array(order))
