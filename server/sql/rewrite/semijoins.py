"""Turns EXISTS and IN in WHERE into SEMI and ANTI joins.

This is possible if the inner query names outer columns only in conditions of its WHERE, which become conditions of the
join. NOT IN with possible NULLs also needs to know whether the inner query has rows and whether it has NULLs (see
`_not_in`). If it is correlated or has several operands, it becomes an ANTI join whose condition counts as true where it
is NULL. `decorrelate` handles all other subqueries.
"""

from __future__ import annotations

from protocol.pgwire.types import BOOL, INT8
from server.sql.columns import NewColumns, free_columns, ids, named, with_values
from server.sql.conditions import all_of, filtered, parts
from server.sql.expressions import Aggregate, Call, ColumnRef, Expression, Literal, Subquery, SubqueryKind, walk
from server.sql.functions import syntax
from server.sql.functions.aggregates import COUNT_ROWS
from server.sql.functions.table import OPERATORS
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import Distinct, Filter, JoinKind, Project, Relation, Sort, bottom_up, joined, only


def semijoined(relation: Relation) -> Relation:
    new = NewColumns(relation)
    return bottom_up(relation, lambda node: _changed(node, new))


def _changed(node: Relation, new: NewColumns) -> Relation:
    if not isinstance(node, Filter):
        return node
    below, kept = node.input, []
    for condition in parts(node.predicate):
        found = _joined(below, condition, new)
        if found is None:
            kept.append(condition)
        else:
            below = found
    return node if below is node.input else filtered(below, kept)


def _joined(outer: Relation, condition: Expression, new: NewColumns) -> Relation | None:
    kind = JoinKind.SEMI
    while isinstance(condition, Call) and condition.function is syntax.NOT:
        condition = condition.arguments[0]
        kind = JoinKind.ANTI if kind is JoinKind.SEMI else JoinKind.SEMI
    if not isinstance(condition, Subquery) or condition.kind not in (SubqueryKind.EXISTS, SubqueryKind.IN):
        return None
    inner, tests = without_outer(semijoined(condition.relation), ids(outer.columns))
    if condition.kind is SubqueryKind.IN:
        assert condition.test is not None
        held = zip(condition.holders, condition.operands, strict=True)
        tests = [*tests, with_values(condition.test, {holder.id: operand for holder, operand in held})]
    whole = all_of(tests)
    if free_columns(inner) or any(isinstance(n, Subquery) for t in tests for n in walk(t)):
        return None
    if not named(whole) <= ids((*outer.columns, *inner.columns)):
        return None
    if kind is JoinKind.ANTI and condition.kind is SubqueryKind.IN and whole is not None and whole.nullable:
        if len(tests) == 1 == len(condition.operands) and not free_columns(condition.relation):
            return _not_in(outer, inner, condition.operands[0], whole, new)
        whole = Call(syntax.COALESCE, (whole, Literal(True, BOOL)), BOOL, False)
    return joined(kind, outer, inner, whole or Literal(True, BOOL))


def without_outer(relation: Relation, outer: set[int]) -> tuple[Relation, list[Expression]]:
    """Removes the topmost conditions that name columns of `outer`, and returns the relation and these conditions.

    The relation's output includes the columns that the removed conditions name.
    """
    match relation:
        case Project(input=input, columns=columns, expressions=expressions):
            below, tests = without_outer(input, outer)
            wanted = named(tuple(tests)) - ids(columns)
            extra = tuple(c for c in below.columns if c.id in wanted)
            refs = tuple(map(ColumnRef, extra))
            return Project(below, (*columns, *extra), (*expressions, *refs)), tests
        case Filter(input=input, predicate=predicate):
            below, tests = without_outer(input, outer)
            of_both = [c for c in parts(predicate) if named(c) & outer]
            return filtered(below, [c for c in parts(predicate) if not named(c) & outer]), [*tests, *of_both]
        case Distinct(input=input) | Sort(input=input):
            return without_outer(input, outer)
    return relation, []


def _not_in(outer: Relation, inner: Relation, operand: Expression, test: Expression, new: NewColumns) -> Relation:
    """Uncorrelated operand NOT IN (inner) as an ANTI join by the key and a cross join with counts of `inner`.

    A row passes if it has no match, `inner` has no NULL, and (operand IS NOT NULL or `inner` is empty).
    """
    (value,) = inner.columns
    is_null = Call(syntax.IS_NULL, (ColumnRef(value),), BOOL, False)
    calls = (Aggregate(COUNT_ROWS, (), INT8, False), Aggregate(COUNT_ROWS, (), INT8, False, filter=is_null))
    counts = tuple(new.column("count", call) for call in calls)
    none = next(f for f in OPERATORS["="] if f.arguments == (INT8, INT8))
    flags = tuple(Call(none, (ColumnRef(c), Literal(0, INT8)), BOOL, False) for c in counts)
    empty, known = (new.column(name, flag) for name, flag in zip(("empty", "known"), flags, strict=True))
    state = Project(AggregateNode(inner, (), calls, counts), (empty, known), flags)
    whole = joined(JoinKind.CROSS, joined(JoinKind.ANTI, outer, inner, test), state, None)
    is_value = Call(syntax.IS_NOT_NULL, (operand,), BOOL, False)
    passes = Call(syntax.OR, (is_value, ColumnRef(empty)), BOOL, False)
    return only(filtered(whole, [ColumnRef(known), passes]), outer.columns)
