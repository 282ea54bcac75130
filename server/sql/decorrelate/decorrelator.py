"""Rewrites the nodes of a plan that have subqueries in their expressions, LATERAL joins and some outer joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from protocol.pgwire.types import BOOL
from server.sql.columns import NewColumns, free_columns
from server.sql.conditions import all_of, same
from server.sql.decorrelate.domain import Domain
from server.sql.decorrelate.limits import needs_numbers, numbered_limit
from server.sql.decorrelate.native import flat, has_subquery, in_lambdas, needs_lateral
from server.sql.decorrelate.pushdown import not_supported, pushed
from server.sql.decorrelate.values import SubqueryValues
from server.sql.expressions import ColumnRef, Expression, Literal, Subquery, transform, walk
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import (
    DistinctOn,
    Filter,
    Join,
    JoinKind,
    Limit,
    Project,
    Relation,
    SetKind,
    SetOperation,
    Sort,
    Unnest,
    Values,
    Window,
    exactly,
    joined,
)


class Decorrelator:
    """`keeps`: whether a subquery in an expression of a node, which Spark supports as written, is left unchanged.

    `crosses`: as in `SubqueryValues`.
    """

    def __init__(self, root: Relation, keeps: Callable[[Subquery, Relation], bool], *, crosses: bool = False) -> None:
        self._keeps = keeps
        self._new = NewColumns(root)
        self._values = SubqueryValues(self._new, crosses=crosses)

    def relation(self, node: Relation) -> Relation:
        """The node and all nodes below it, rewritten."""
        changed = self._without_subqueries(node)
        if isinstance(changed, Join) and needs_lateral(changed):
            changed = self._made_lateral(changed)
        if isinstance(changed, Join) and changed.lateral:
            changed = self._lateral(changed)

        def inside(part: Any) -> Any | None:
            return self.relation(part) if part is not changed and isinstance(part, Relation) else None

        return transform(changed, inside)

    # -- nodes with subqueries --------------------------------------------------------------------------------------

    def _without_subqueries(self, node: Relation) -> Relation:
        """The node with the non-native subqueries in its own expressions rewritten."""
        match node:
            case Values(rows=rows) if has_subquery(rows):
                return self._without_subqueries(self._projected_rows(node))
            case Limit(input=Project() as project) if self._to_rewrite(project.expressions, project):
                return self._without_subqueries(replace(project, input=replace(node, input=project.input)))
            case Limit() if needs_numbers(node):
                return self._without_subqueries(numbered_limit(node, self._new))
            case Join(kind=JoinKind.INNER | JoinKind.CROSS, condition=condition) if self._to_rewrite(condition, node):
                assert condition is not None
                bare = joined(JoinKind.CROSS, node.left, node.right, None, lateral=node.lateral)
                return self._without_subqueries(exactly(Filter(bare, condition), node.columns))
            case Join(condition=condition) if self._to_rewrite(condition, node):
                return self._outer_join(node)
            case Project(input=input, expressions=expressions) if self._to_rewrite(expressions, node):
                below, changed = self._attached(input, expressions, node)
                return Project(below, node.columns, changed)
            case Filter(input=input, predicate=predicate) if self._to_rewrite(predicate, node):
                below, (test,) = self._attached(input, (predicate,), node)
                return exactly(Filter(below, test), node.columns)
            case Sort(input=input, keys=keys) if self._to_rewrite(keys, node):
                below, changed = self._attached(input, keys, node)
                return exactly(Sort(below, changed), node.columns)
            case Window(input=input, calls=calls) if self._to_rewrite(calls, node):
                below, window = self._attached(input, calls, node)
                added = node.columns[len(input.columns) :]
                return exactly(Window(below, window, (*below.columns, *added)), node.columns)
            case AggregateNode(input=input, keys=keys, calls=calls) if self._to_rewrite((keys, calls), node):
                below, changed = self._attached(input, (*keys, *calls), node)
                return replace(node, input=below, keys=changed[: len(keys)], calls=changed[len(keys) :])
            case Unnest(input=input, arrays=arrays) if self._to_rewrite(arrays, node):
                below, changed = self._attached(input, arrays, node)
                added = node.columns[len(input.columns) :]
                unnested = replace(node, input=below, arrays=changed, columns=(*below.columns, *added))
                return exactly(unnested, node.columns)
            case DistinctOn(input=input, keys=keys, order=order) if self._to_rewrite((keys, order), node):
                below, changed = self._attached(input, (*keys, *order), node)
                return exactly(DistinctOn(below, changed[: len(keys)], changed[len(keys) :]), node.columns)
        return node

    def _projected_rows(self, node: Values) -> Relation:
        """VALUES as a union of one-row projections, because Spark does not support subqueries in VALUES."""
        branches: list[Relation] = []
        for row in node.rows:
            columns = node.columns
            if len(node.rows) > 1:
                columns = tuple(self._new.column(c.name, ColumnRef(c)) for c in columns)
            branches.append(Project(Values((), ((),)), columns, row))
        result = branches[0]
        for number, branch in enumerate(branches[1:], 2):
            last = number == len(branches)
            columns = node.columns if last else tuple(self._new.column(c.name, ColumnRef(c)) for c in node.columns)
            result = SetOperation(SetKind.UNION, True, result, branch, columns)
        return result

    def _to_rewrite(self, part: Any, owner: Relation) -> list[Subquery]:
        """The subqueries in expressions that must be rewritten, excluding those nested in other subqueries."""
        found: list[Subquery] = []
        in_lambda = in_lambdas(part) if has_subquery(part) else []

        def search(node: Any) -> Any | None:
            if not isinstance(node, Subquery):
                return None
            if node not in in_lambda and self._keeps(node, owner):
                return None if any(map(has_subquery, node.operands)) else node
            if node not in found:
                found.append(node)
            return node

        for item in flat(part):
            transform(item, search)
        return found

    def _attached(
        self, input: Relation, expressions: tuple[Any, ...], owner: Relation
    ) -> tuple[Relation, tuple[Any, ...]]:
        """The input extended by columns with the subqueries' values, and the expressions rewritten to use them.

        The expressions may also be sort keys or window calls.
        """
        values: list[tuple[Subquery, Expression]] = []
        for subquery in self._to_rewrite(expressions, owner):
            if subquery.operands and has_subquery(subquery.operands):
                input, operands = self._attached(input, subquery.operands, owner)
            else:
                operands = subquery.operands
            input, value = self._values.value(input, replace(subquery, operands=operands))
            values.append((subquery, value))

        def change(node: Any) -> Any | None:
            return next((value for known, value in values if known == node), None)

        return input, tuple(transform(e, change) for e in expressions)

    def _outer_join(self, node: Join) -> Relation:
        """Computes each subquery in an outer join's condition on the side whose columns it names.

        0A000 if it names columns of both sides.
        """
        assert node.condition is not None
        sides = [node.left, node.right]
        condition = node.condition
        for subquery in self._to_rewrite(condition, node):
            needed = self._needed(subquery)
            number = next((i for i, side in enumerate(sides) if needed <= {c.id for c in side.columns}), None)
            if number is None or (node.lateral and number == 1):
                raise not_supported(
                    "a subquery in the condition of an outer join that names columns of both sides",
                    hint="Compute the subquery as a column of one side, in a subquery in FROM.",
                )
            sides[number], (condition,) = self._attached_one(sides[number], subquery, condition)
        return exactly(joined(node.kind, sides[0], sides[1], condition, lateral=node.lateral), node.columns)

    def _attached_one(self, side: Relation, subquery: Subquery, condition: Expression) -> tuple[Relation, tuple[Any]]:
        side, value = self._values.value(side, subquery)
        return side, (transform(condition, lambda node: value if node == subquery else None),)

    @staticmethod
    def _needed(subquery: Subquery) -> set[int]:
        named = {n.column.id for operand in subquery.operands for n in walk(operand) if isinstance(n, ColumnRef)}
        return named | {c.id for c in free_columns(subquery.relation)}

    # -- outer joins ------------------------------------------------------------------------------------------------

    @staticmethod
    def _made_lateral(node: Join) -> Relation:
        """L LEFT JOIN R ON c = L LEFT JOIN LATERAL (R WHERE c) ON true. The sides of a RIGHT JOIN are exchanged.

        0A000 for a FULL JOIN.
        """
        assert node.condition is not None
        if node.kind is JoinKind.FULL or (node.kind is JoinKind.RIGHT and node.lateral):
            raise not_supported(
                f"a {node.kind} JOIN with this condition",
                hint="Use LEFT JOIN, and add the other rows of the right side with UNION ALL and NOT EXISTS.",
            )
        left, right = (node.left, node.right) if node.kind is JoinKind.LEFT else (node.right, node.left)
        made = joined(JoinKind.LEFT, left, Filter(right, node.condition), None, lateral=True)
        return made if node.kind is JoinKind.LEFT else exactly(made, node.columns)

    # -- LATERAL ----------------------------------------------------------------------------------------------------

    def _lateral(self, node: Join) -> Relation:
        known = {c.id for c in node.left.columns}
        outer = [c for c in free_columns(node.right) if c.id in known]
        if not outer:
            return replace(node, lateral=False)
        if node.kind in (JoinKind.RIGHT, JoinKind.FULL):
            raise not_supported(
                f"LATERAL in a {node.kind} JOIN", hint="Use LEFT JOIN LATERAL, with the sides exchanged."
            )
        is_true = node.condition is None or node.condition == Literal(True, BOOL)
        if isinstance(node.right, Unnest) and node.right.input == Values((), ((),)):
            added = node.right.columns
            if is_true:
                nulls = node.columns[len(node.left.columns) :]
                outer_too = node.kind is JoinKind.LEFT
                columns = (*node.left.columns, *(nulls if outer_too else added))
                return replace(node.right, input=node.left, columns=columns, outer=outer_too)
            if node.kind is not JoinKind.LEFT:
                assert node.condition is not None
                rows = replace(node.right, input=node.left, columns=(*node.left.columns, *added))
                return Filter(rows, node.condition)
        right, carried = pushed(node.right, Domain(node.left, outer, self._new), self._new)
        equal = same(list(zip(outer, carried, strict=True)))
        condition = equal if node.condition is None or is_true else all_of([node.condition, equal])
        return exactly(joined(node.kind, node.left, right, condition), node.columns)
