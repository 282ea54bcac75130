"""SELECT: binds its clauses in PostgreSQL's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT8, UNKNOWN
from server.sql.bind.binder import Binder, query_form
from server.sql.bind.common_tables import with_common_tables
from server.sql.bind.distinct import check_distinct_on, distinct_on, distinct_rows
from server.sql.bind.from_clause import from_clause
from server.sql.bind.grouping import Grouping, is_aggregated
from server.sql.bind.grouping_sets import Groups, group_by
from server.sql.bind.inherited_order import ordered, with_keys, with_order
from server.sql.bind.limits import limited
from server.sql.bind.order import order_terms
from server.sql.bind.row_locks import check_row_locks, locked_key, row_locks
from server.sql.bind.select_list import Item, projection, select_list
from server.sql.bind.shapes import real_names
from server.sql.bind.windows import named_windows, windowed
from server.sql.columns import named
from server.sql.expressions import Column, ColumnRef, Expression, Literal, SortKey, Subquery, WindowCall, contains
from server.sql.relations import DistinctOn, Filter, Project, Relation, Sort, Unnest, only
from server.sql.scope import Scope, in_clause


@query_form(exp.Select)
def select(binder: Binder, tree: exp.Select, outer: Scope, keep_unknown: bool) -> Relation:
    """Binds the clauses in the same order as PostgreSQL, so that the first error is the same."""
    outer = with_common_tables(binder, tree, outer)
    for clause in ("into", "sample", "qualify", "connect", "match", "laterals", "pivots", "hint"):
        if tree.args.get(clause):
            raise binder.unsupported(
                f"{clause.upper()} in SELECT",
                tree,
                hint="Write the query without this clause, with a subquery in FROM if needed.",
            )
    level = binder.new_level()
    source = from_clause(binder, tree, replace(outer, level=level))
    scope = Scope(source.entries, outer.parent, outer.common_tables, real_names=real_names(tree), level=level)
    scope.windows = named_windows(binder, tree)
    sets: list[tuple[Column, Expression]] = []
    scope.sets = sets
    relation = source.relation
    where = tree.args.get("where")
    if where is not None:
        relation = Filter(relation, binder.condition(where.this, in_clause(scope, "WHERE"), "WHERE"))
    items = select_list(binder, tree.expressions, scope)
    distinct = tree.args.get("distinct")
    if not keep_unknown or (distinct is not None and distinct.args.get("on") is None):
        for item in items:
            item.expression = binder.default_unknown(item.expression)
    groups = group_by(binder, tree.args.get("group"), items, scope)
    having_tree = tree.args.get("having")
    inner = replace(scope, sets=None)
    having = binder.condition(having_tree.this, inner, "HAVING") if having_tree is not None else None
    if having is not None and contains(having, WindowCall):
        message = "window functions are not allowed in HAVING"
        raise PgError(SqlState.WINDOWING_ERROR, message, position=binder.at(having_tree))
    order = order_terms(binder, tree.args.get("order"), items, scope)
    on = distinct_on(binder, distinct, items, scope)

    has_sets = bool(sets)
    if groups is not None and has_sets:
        relation, sets = _expanded_below(binder, relation, groups, sets)
    clauses = _Clauses(items, order, on, having, sets)
    bound = clauses.expressions()
    inputs = frozenset(column.id for column in relation.columns)
    is_grouped = groups is not None or having is not None or any(is_aggregated(e, level, inputs) for e in bound)
    if tree.args.get("locks"):
        check_row_locks(tree, bound, aggregated=is_grouped, expanded=has_sets)
        binder.row_locks = locks = row_locks(binder, tree, source)
        if locks.key is not None and (key := locked_key(binder, locks.tables, source)) is not None:
            binder.locked_keys.add(key[1].id)
            if tree is binder.root and binder.adds_key:
                items.append(Item("", ColumnRef(key[1]), tree))
    if is_grouped:
        relation = _grouped(binder, relation, groups or Groups([], [()]), clauses, scope)
    relation, items, order = windowed(binder, relation, clauses.items, clauses.order)
    if clauses.sets:
        is_ordered = bool(order) and distinct is None
        relation, order = _expanded(binder, relation, clauses.sets, order, ordered=is_ordered)
    if clauses.on is not None:
        check_distinct_on(binder, clauses.on, order, tree)
        relation = DistinctOn(relation, tuple(clauses.on), tuple(order))
    if distinct is None or clauses.on is not None:
        relation = _ordered(binder, relation, items, order) if order else projection(binder, relation, items)
    else:
        relation = distinct_rows(binder, relation, items, order, tree)
    limit = limited(binder, relation, tree, scope)
    if known := binder.locked_keys:
        outputs = zip((item.expression for item in items), limit.columns, strict=False)
        known |= {column.id for e, column in outputs if isinstance(e, ColumnRef) and e.column.id in known}
    return limit


@dataclass(slots=True)
class _Clauses:
    """The bound clauses that may contain aggregates. `on`: DISTINCT ON. `sets`: the set-returning functions."""

    items: list[Item]
    order: list[SortKey]
    on: list[Expression] | None
    having: Expression | None
    sets: list[tuple[Column, Expression]]

    def expressions(self) -> list[Expression]:
        """The expressions of all clauses but HAVING."""
        found = [item.expression for item in self.items]
        found += [key.expression for key in self.order]
        found += self.on or []
        return found + [array for _, array in self.sets]


def _expanded_below(
    binder: Binder, relation: Relation, groups: Groups, sets: Sequence[tuple[Column, Expression]]
) -> tuple[Relation, list[tuple[Column, Expression]]]:
    """The relation expanded by the set-returning functions by whose rows it is grouped, and the other functions."""
    grouped = named(tuple(groups.keys))
    below = [(column, array) for column, array in sets if column.id in grouped]
    if below:
        relation, _ = _expanded(binder, relation, below, [], ordered=False)
    return relation, [(column, array) for column, array in sets if column.id not in grouped]


def _grouped(binder: Binder, relation: Relation, groups: Groups, clauses: _Clauses, scope: Scope) -> Relation:
    """Adds the aggregation and HAVING to the relation. Rewrites the other clauses over the aggregation's columns."""
    level = scope.level
    relation, keys = with_order(binder, relation)
    if keys:
        for item in clauses.items:
            item.expression = ordered(item.expression, level, keys)
        clauses.order = [replace(key, expression=ordered(key.expression, level, keys)) for key in clauses.order]
        if clauses.having is not None:
            clauses.having = ordered(clauses.having, level, keys)
    grouping = Grouping(binder, relation, groups, clauses.items, level, scope.entries)
    for item in clauses.items:
        item.expression = grouping.rewrite(item.expression)
    clauses.order = [replace(key, expression=grouping.rewrite(key.expression)) for key in clauses.order]
    if clauses.on is not None:
        clauses.on = [grouping.rewrite(expression) for expression in clauses.on]
    having = None if clauses.having is None else grouping.rewrite(clauses.having)
    clauses.sets = [(column, grouping.rewrite(array)) for column, array in clauses.sets]
    relation = grouping.node()
    return relation if having is None else Filter(relation, having)


def _ordered(binder: Binder, relation: Relation, items: Sequence[Item], order: Sequence[SortKey]) -> Relation:
    """The items over the sorted relation.

    Subqueries are computed below the sort, because Spark computes them by joins, which do not preserve an order.
    """
    if not any(contains(item.expression, Subquery) for item in items):
        return projection(binder, Sort(relation, tuple(order)), items)
    project = projection(binder, relation, [item for item in items if item.expression.type != UNKNOWN])
    below, keys = with_keys(binder, project, order)
    if len(project.columns) == len(items):
        return only(Sort(below, keys), project.columns)
    # A literal without a type may still be cast to the common type of a set operation.
    columns = iter(project.columns)
    typed = [i.expression if i.expression.type == UNKNOWN else ColumnRef(next(columns)) for i in items]
    return Project(
        Sort(below, keys), tuple(binder.new_column(i.name, e) for i, e in zip(items, typed, strict=True)), tuple(typed)
    )


def _expanded(
    binder: Binder,
    relation: Relation,
    sets: Sequence[tuple[Column, Expression]],
    order: list[SortKey],
    *,
    ordered: bool,
) -> tuple[Relation, list[SortKey]]:
    """The relation expanded by the select list's set-returning functions. `ordered`: in each call's order."""
    ordinality_column = binder.new_column("ordinality", Literal(1, INT8))
    arrays = tuple(array for _, array in sets)
    if any(contains(array, WindowCall) for array in arrays):
        raise binder.unsupported(
            "a window function inside a set-returning function",
            hint="Compute the window function in a subquery, and expand its column.",
        )
    columns = (*relation.columns, *(column for column, _ in sets), *((ordinality_column,) if ordered else ()))
    node = Unnest(relation, arrays, columns, ordered)
    return node, [*order, SortKey(ColumnRef(ordinality_column), False, False)] if ordered else order
