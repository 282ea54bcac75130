"""Selections: the rows of a relation that have given values in some columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.updates import DIFF, DIFF_FIELD
from server.sql.constant import Bindings
from server.sql.direct_scan import DirectScan
from server.sql.key_conditions import EXACT


@dataclass(frozen=True, slots=True)
class Shape:
    """The part of a selection that does not depend on the values.

    `keys`: the columns with given values. `columns`: the columns of the result. `width`: the number of columns of the
    relation.
    """

    keys: tuple[int, ...]
    columns: tuple[int, ...]
    width: int

    @property
    def names(self) -> list[str]:
        return [f"c{key}" for key in self.keys]

    @property
    def keeps_rows_distinct(self) -> bool:
        """Whether distinct rows with the same key have distinct results."""
        return {*self.keys, *self.columns} == {*range(self.width)}

    def result(self, table: pa.Table) -> pa.Table:
        """The columns of the result, of rows or changes with one key.

        Changes are consolidated, with retractions first: most clients that apply them in order keep one row per key.
        """
        columns = table.select(self.columns).rename_columns([f"c{i}" for i in range(len(self.columns))])
        if DIFF not in table.column_names:
            return columns
        changes = columns.append_column(DIFF_FIELD, table[DIFF])
        if not self.keeps_rows_distinct:
            changes = updates.consolidate(changes)
        if not updates.has_retractions(changes):
            return changes
        return changes.take(pa.array(np.argsort(changes[DIFF].to_numpy() > 0, kind="stable")))


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows with `values` in the columns `shape.keys`."""

    shape: Shape
    values: tuple[pa.Scalar, ...]

    def rows(self, table: pa.Table) -> pa.Table:
        """The result for rows or changes of the relation."""
        for key, value in zip(self.shape.keys, self.values, strict=True):  # after the first key few rows are left
            table = table.filter(pc.equal(table.column(key), value))
        return self.shape.result(table)


def selection_of(scan: DirectScan, width: int) -> Selection | None:
    """The selection that returns the rows of a scan. None if a key has several values, or a type not in `EXACT`.

    `width`: the number of columns of the relation.
    """
    values: dict[int, pa.Scalar] = {}
    for key in scan.keys:
        found = key.column_values(Bindings())
        if key.type.representation not in EXACT or len(found) != 1 or key.column in values:
            return None
        values[key.column] = found[0]
    if not values:
        return None
    keys = tuple(sorted(values))
    return Selection(Shape(keys, scan.columns, width), tuple(values[key] for key in keys))
