"""Plans that need no Spark because they return rows of one relation unchanged: all rows, or those with given keys.

Examples are `SELECT * FROM t` and `SELECT a, b FROM t WHERE id = $1 AND kind IN ('x', 'y')`. A plan with a condition
that is none of `key_conditions.py`, or whose column must be cast, is computed by Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from catalog.ids import ObjectId
from server.sql.constant import Bindings
from server.sql.functions.syntax import conjuncts
from server.sql.key_conditions import KeyCondition, key_conditions, numbers_of, selected
from server.sql.relations import Filter, Project, Relation, Scan


@dataclass(frozen=True, slots=True)
class DirectScan:
    """The columns with the numbers `columns`, of the rows of `source` that match all `keys`."""

    source: ObjectId
    columns: tuple[int, ...]
    keys: tuple[KeyCondition, ...] = ()

    def rows(self, table: pa.Table, bindings: Bindings) -> pa.Table:
        """Selects from `table`, all rows of the relation at one timestamp. The columns keep their names."""
        wanted = [(key.column, key.column_values(bindings)) for key in self.keys]
        return selected(table, wanted).select(list(self.columns))


def direct_scan(relation: Relation) -> DirectScan | None:
    """The plan as a DirectScan; None if Spark is needed."""
    match relation:
        case Scan(id=id, columns=columns):
            return DirectScan(id, tuple(range(len(columns))))
        case Filter(input=Scan(id=id, columns=columns), predicate=predicate):
            conditions = conjuncts(predicate)
            keys = key_conditions(conditions, numbers_of(columns))
            if len(keys) < len(conditions) or any(key.is_cast for key in keys):
                return None
            return DirectScan(id, tuple(range(len(columns))), tuple(keys))
        case Project(input=input, expressions=expressions):
            below = direct_scan(input)
            if below is None:
                return None
            numbers = [number for number in map(numbers_of(input.columns), expressions) if number is not None]
            if len(numbers) < len(expressions):
                return None
            return DirectScan(below.source, tuple(below.columns[number] for number in numbers), below.keys)
    return None
