"""The keys of unique indexes that have an expression or a condition, over the columns of their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from catalog.ids import ObjectId
from catalog.objects.columns import Column as CatalogColumn
from protocol.pgwire.types import INT8, PgType
from server.sql.cached_texts import cached_by_length
from server.sql.constant import Bindings, Evaluate
from server.sql.expressions import Column, ColumnRef, Expression, walk
from server.sql.index_keys import bound_columns, index_condition, index_keys
from server.sql.plan import QueryPlan, column_factory, relation_plan
from server.sql.relations import Filter, Project, Relation, Scan
from server.sql.row_expressions import compiled_row_expression

ROWS = ObjectId("rows")
"""The relation that `ComputedKey.plan` reads. It exists only in this plan."""
_BINDINGS = Bindings()


@dataclass(frozen=True)
class ComputedKey:
    """A key over some columns of a table: `numbers` are the columns' numbers, from 0.

    `values` and `condition` are over `columns`. A row for which the condition is not true has no key.
    """

    numbers: tuple[int, ...]
    columns: tuple[Column, ...]
    values: tuple[Expression, ...]
    condition: Expression | None

    @property
    def types(self) -> tuple[PgType, ...]:
        """The types of the values."""
        return tuple(value.type for value in self.values)

    @cached_property
    def plan(self) -> QueryPlan:
        """The values of each row of ROWS that has a key, and the row's number.

        The columns of ROWS are `columns`, and a number of the row.
        """
        number = Column(max((column.id for column in self.columns), default=0) + 1, "", INT8, False)
        relation: Relation = Scan(ROWS, (*self.columns, number))
        if self.condition is not None:
            relation = Filter(relation, self.condition)
        values = (*self.values, ColumnRef(number))
        made = column_factory(relation)
        return relation_plan(Project(relation, tuple(map(made, values)), values))

    @cached_property
    def _evaluators(self) -> tuple[Evaluate | None, tuple[Evaluate, ...]] | None:
        row = {column.id: number for number, column in enumerate(self.columns)}
        values = [compiled_row_expression(value, row) for value in self.values]
        condition = None if self.condition is None else compiled_row_expression(self.condition, row)
        found = tuple(value for value in values if value is not None)
        if len(found) < len(values) or (condition is None and self.condition is not None):
            return None
        return condition, found

    @property
    def is_cheap(self) -> bool:
        """Whether `value_of` works."""
        return self._evaluators is not None

    def value_of(self, row: Sequence[Any]) -> tuple[Any, ...] | None:
        """The key of a row of Python scalars, which are those of `columns`; None if it has none. NotCheap, PgError."""
        assert self._evaluators is not None
        condition, values = self._evaluators
        cells = tuple(row)
        if condition is not None and condition(_BINDINGS, cells) is not True:
            return None
        return tuple([value(_BINDINGS, cells) for value in values])


@cached_by_length(
    (500, 1_024),
    (10_000, 128),
    length=lambda columns, keys, condition: len(columns) + sum(map(len, keys)) + len(condition),
)
def computed_key(columns: tuple[CatalogColumn, ...], keys: tuple[str, ...], condition: str) -> ComputedKey | None:
    """The key of an index; None if it consists of columns and has no condition. PgError if an expression is invalid."""
    found = index_keys(columns, keys)
    if not condition and all(isinstance(key, int) for key in found):
        return None
    bound, test = bound_columns(columns), index_condition(columns, condition)
    values = tuple(ColumnRef(bound[key]) if isinstance(key, int) else key for key in found)
    used = {n.column.id for e in (*values, test) if e is not None for n in walk(e) if isinstance(n, ColumnRef)}
    numbers = tuple(number for number, column in enumerate(bound) if column.id in used)
    return ComputedKey(numbers, tuple(bound[number] for number in numbers), values, test)
