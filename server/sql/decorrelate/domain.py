"""The domain of an inner query: the distinct combinations of the outer columns that it names."""

from __future__ import annotations

from collections.abc import Sequence

from server.sql.columns import NewColumns
from server.sql.expressions import Column, ColumnRef, name_of
from server.sql.relations import Distinct, Join, JoinKind, Project, Relation, Values


class Domain:
    """The distinct combinations of the columns `outer` of `input`."""

    def __init__(self, input: Relation, outer: Sequence[Column], new: NewColumns) -> None:
        self.outer = outer
        self._source = _smallest_source(input, {column.id for column in outer})
        self._new = new

    def relation(self) -> Relation:
        """The combinations as a relation, with new column ids on each call."""
        if not self.outer:
            return Values((), ((),))
        refs = tuple(ColumnRef(c) for c in self.outer)
        columns = tuple(self._new.column(f"outer.{name_of(ref)}", ref) for ref in refs)
        return Distinct(Project(self._source, columns, refs))


def _smallest_source(node: Relation, ids: set[int]) -> Relation:
    """The smallest input of nested joins that has these columns and every combination of their values in the join."""
    while isinstance(node, Join):
        sides = []
        if node.kind in (JoinKind.INNER, JoinKind.CROSS, JoinKind.LEFT):
            sides.append(node.left)
        if node.kind in (JoinKind.INNER, JoinKind.CROSS, JoinKind.RIGHT) and not node.lateral:
            sides.append(node.right)
        enough = next((side for side in sides if ids <= {column.id for column in side.columns}), None)
        if enough is None:
            break
        node = enough
    return node
