"""Plans that need no Spark because they return rows of one relation unchanged: all rows, or those with given keys.

Examples are `SELECT * FROM t` and `SELECT a, b FROM t WHERE id = $1 AND kind IN ('x', 'y')`. A plan with a condition
that is none of `key_conditions.py`, or whose column must be cast, is computed by Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from catalog.objects import ObjectId
from server.sql.constant import Bindings
from server.sql.expressions import ColumnRef
from server.sql.functions.syntax import conjuncts
from server.sql.key_conditions import KeyCondition, key_conditions
from server.sql.relations import Filter, Project, Relation, Scan


@dataclass(frozen=True, slots=True)
class DirectScan:
    """The columns with the numbers `columns`, of the rows of `source` that match all `keys`."""

    source: ObjectId
    columns: tuple[int, ...]
    keys: tuple[KeyCondition, ...] = ()

    def rows(self, table: pa.Table, bindings: Bindings) -> pa.Table:
        """Selects from `table`, all rows of the relation at one timestamp. The columns keep their names."""
        for key in self.keys:  # after the first key few rows are left
            table = table.filter(_is_one_of(table.column(key.column), key.column_values(bindings)))
        return table.select(list(self.columns))


def direct_scan(relation: Relation) -> DirectScan | None:
    """The plan as a DirectScan; None if Spark is needed."""
    match relation:
        case Scan(id=id, columns=columns):
            return DirectScan(id, tuple(range(len(columns))))
        case Filter(input=Scan(id=id, columns=columns), predicate=predicate):
            numbers = {column.id: number for number, column in enumerate(columns)}
            conditions = conjuncts(predicate)
            keys = key_conditions(conditions, lambda e: numbers.get(e.column.id) if isinstance(e, ColumnRef) else None)
            if len(keys) < len(conditions) or any(key.is_cast for key in keys):
                return None
            return DirectScan(id, tuple(range(len(columns))), tuple(keys))
        case Project(input=input, expressions=expressions):
            below = direct_scan(input)
            if below is None:
                return None
            numbers = {column.id: number for column, number in zip(input.columns, below.columns, strict=True)}
            selected = tuple(numbers[e.column.id] for e in expressions if isinstance(e, ColumnRef))
            return DirectScan(below.source, selected, below.keys) if len(selected) == len(expressions) else None
    return None


def _is_one_of(column: pa.ChunkedArray, wanted: pa.Array) -> pa.ChunkedArray:
    if len(wanted) == 1 and not pa.types.is_floating(wanted.type):
        return pc.equal(column, wanted[0])
    if pa.types.is_floating(wanted.type):
        nan = pa.scalar(float("nan"), wanted.type)
        column = pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, wanted.type)))  # 0.0 for -0.0
    return pc.is_in(column, value_set=wanted)
