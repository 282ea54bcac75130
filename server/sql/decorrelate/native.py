"""The subqueries and outer joins that Spark supports as written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.pgwire.types import JSONB
from server.sql.casts import find_cast, has_fitted_elements, is_utc
from server.sql.columns import free_columns, ids, named, names_any
from server.sql.expressions import (
    Aggregate,
    Call,
    Cast,
    Expression,
    Quantified,
    SortKey,
    Subquery,
    SubqueryKind,
    WindowCall,
    transform,
    walk,
    walk_all,
)
from server.sql.functions.table import Form
from server.sql.infinities import has_infinities
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import Filter, Join, JoinKind, Project, Relation, Scan


def is_native(subquery: Subquery, node: Relation) -> bool:
    """Whether Spark supports the subquery in an expression of `node`.

    If it is correlated, outer columns may occur only in WHERE conditions over inner and cross joins, and not together
    with inner columns in what Python computes: Spark would do so in the condition of a semi, anti or single join.
    """
    if subquery.kind in (SubqueryKind.ANY, SubqueryKind.ALL):
        return False
    if not isinstance(node, (Project, Filter, AggregateNode)):
        return subquery.kind is SubqueryKind.SCALAR and not free_columns(subquery.relation)
    outer = {column.id for column in free_columns(subquery.relation)}
    if not outer:
        return True
    inner = subquery.relation
    if isinstance(inner, Project) and _is_inner(inner.expressions, outer):
        inner = inner.input
    if isinstance(inner, AggregateNode) and not inner.keys and _is_inner(inner.calls, outer):
        inner = inner.input
    return _is_simple(inner, outer)


def _is_simple(node: Relation, outer: set[int]) -> bool:
    match node:
        case Scan():
            return True
        case Filter(input=input, predicate=predicate):
            allowed = not has_subquery(predicate) and not _mixes_in_python(predicate, outer)
            return allowed and _is_simple(input, outer)
        case Project(input=input, expressions=expressions):
            return _is_inner(expressions, outer) and _is_simple(input, outer)
        case Join(kind=JoinKind.INNER | JoinKind.CROSS, lateral=False, condition=condition, left=left, right=right):
            return (
                (condition is None or _is_inner(condition, outer))
                and _is_simple(left, outer)
                and _is_simple(right, outer)
            )
    return False


def _is_inner(part: Any, outer: set[int]) -> bool:
    """Whether an expression, or a tuple of them, has neither outer columns nor subqueries."""
    return not names_any(part, outer) and not has_subquery(part)


def needs_lateral(join: Join) -> bool:
    """Whether it is an outer join in whose condition Python computes with columns of both sides. Spark rejects it."""
    outer = join.kind in (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)
    return outer and join.condition is not None and _mixes_in_python(join.condition, ids(join.left.columns))


def _mixes_in_python(predicate: Expression, outer: set[int]) -> bool:
    """Whether a Python function takes both outer and other columns."""
    for node in walk(predicate):
        if _calls_python(node):
            columns = named(node)
            if columns & outer and columns - outer:
                return True
    return False


def calls_python(expression: Expression) -> bool:
    """Whether the Spark SQL of an expression calls a Python function, or may do so."""
    return any(map(_calls_python, walk(expression)))


def _calls_python(node: Any) -> bool:
    """As `calls_python`, for a node without its children."""
    match node:
        case Call(function=function, arguments=arguments, timezone=timezone):
            return not is_utc(timezone) or not _form(function.spark, arguments)
        case Cast(operand=operand, type=target, timezone=timezone):
            rule = find_cast(operand.type.without_modifiers, target.without_modifiers)
            return not is_utc(timezone) or rule is None or rule.spark is None
        case Quantified(call=call):
            return any(map(_calls_python, walk(call)))
    return False


def in_lambdas(part: Any) -> list[Subquery]:
    """The subqueries in expressions that would be rendered inside a higher-order function, where Spark rejects them.

    Subqueries nested in these subqueries are not included.
    """
    found: list[Subquery] = []

    def collect(node: Any) -> Any | None:
        if isinstance(node, Subquery):
            found.append(node)
            return node
        return None

    def search(node: Any) -> Any | None:
        if isinstance(node, Subquery):
            for operand in node.operands:
                transform(operand, search)
            return node
        if _uses_lambda(node):
            transform(node, collect)
            return node
        return None

    for item in flat(part):
        transform(item, search)
    return found


def _uses_lambda(node: Any) -> bool:
    """Whether the Spark SQL of an expression contains its arguments inside a higher-order function."""
    match node:
        case Call(function=function, arguments=arguments, timezone=timezone):
            return not is_utc(timezone) or bool(function.guarded) or _form_uses_lambda(function.spark, arguments)
        case Cast(operand=operand, type=target, timezone=timezone):
            rule = find_cast(operand.type.without_modifiers, target.without_modifiers)
            if rule is None:
                return False
            if not is_utc(timezone) or has_infinities(operand.type) or has_fitted_elements(target):
                return True
            return _form_uses_lambda(rule.spark, (operand,))
        case Aggregate(function=function, arguments=arguments):
            # values of a group that are ordered, or passed to Python, are sorted with a comparison lambda
            return _form_uses_lambda(function.spark, arguments) or "{a}" in _form(function.spark, arguments)
        case WindowCall(call=call):
            return _uses_lambda(call)
        case SortKey(expression=expression):
            return expression.type.element is not None or expression.type == JSONB
        case Quantified():
            return True
    return False


def _form(spark: str | Form | None, arguments: Sequence[Expression]) -> str:
    """The Spark SQL of a function with subqueries as arguments; "" if it has no form in Spark SQL."""
    return (spark(arguments, ["(SELECT 1)"] * len(arguments)) if callable(spark) else spark) or ""


def _form_uses_lambda(spark: str | Form | None, arguments: Sequence[Expression]) -> bool:
    """Whether a form contains a lambda. Without a form, a Python UDF is called and its result unpacked by a lambda."""
    form = _form(spark, arguments)
    return not form or "->" in form


def has_subquery(part: Any) -> bool:
    """Whether an expression, or a tuple of them, contains a subquery."""
    return any(isinstance(node, Subquery) for node in walk_all(part))


def flat(part: Any) -> list[Any]:
    """The nodes in a tuple of nodes or tuples."""
    if isinstance(part, tuple):
        return [inner for item in part for inner in flat(item)]
    return [] if part is None else [part]
