"""Conditions: conjunctions, equality of columns, and which conditions may be evaluated for more rows."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.types import BOOL, INT8
from server.sql.expressions import Call, Case, Cast, Column, ColumnRef, Expression, InList, Literal, SessionValue
from server.sql.functions import syntax
from server.sql.functions.syntax import conjuncts
from server.sql.functions.table import INTEGERS, OPERATORS, Function, Nulls
from server.sql.relations import Filter, Relation

_ABOVE = next(f for f in OPERATORS[">"] if f.arguments == (INT8, INT8))
_SAME = Function("<=>", (), BOOL, "({0} <=> {1})", nulls=Nulls.NEVER)
_SAFE_CALLS = frozenset(
    id(f)
    for f in (
        *(syntax.AND, syntax.OR, syntax.NOT, syntax.IS_NULL, syntax.IS_NOT_NULL, syntax.IS_TRUE, syntax.IS_FALSE),
        *(syntax.IS_DISTINCT, syntax.COALESCE, syntax.GREATEST, syntax.LEAST),
        *(f for name in ("=", "<>", "<", "<=", ">", ">=") for f in OPERATORS[name]),
    )
)
_WIDTH = {"int2": 1, "int4": 2, "int8": 3, "float8": 4}


def all_of(conditions: Sequence[Expression]) -> Expression | None:
    """The conditions joined by AND; None if there are none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Call(syntax.AND, tuple(conditions), BOOL, any(c.nullable for c in conditions))


def parts(condition: Expression | None) -> list[Expression]:
    """The conjuncts of a condition, flattened. Empty for None and for the literal true."""
    if condition is None or condition == Literal(True, BOOL):
        return []
    found = conjuncts(condition)
    return [condition] if len(found) == 1 else [part for one in found for part in parts(one)]


def filtered(relation: Relation, conditions: Sequence[Expression]) -> Relation:
    condition = all_of(conditions)
    return relation if condition is None else Filter(relation, condition)


def above_zero(column: Column) -> Expression:
    """The condition that a bigint is greater than 0."""
    return Call(_ABOVE, (ColumnRef(column), Literal(0, INT8)), BOOL, False)


def same(pairs: Sequence[tuple[Column, Column]]) -> Expression:
    """The condition that columns are pairwise equal, with NULL equal to NULL."""
    tests: list[Expression] = [Call(_SAME, (ColumnRef(a), ColumnRef(b)), BOOL, False) for a, b in pairs]
    return all_of(tests) or Literal(True, BOOL)


def never_fails(expression: Expression) -> bool:
    """Whether the expression raises no error for any values of its columns. False if that is not known.

    Only such an expression may be evaluated for rows for which the query as written does not evaluate it.
    """
    match expression:
        case Literal() | ColumnRef() | SessionValue():
            return True
        case Call(function=function, arguments=arguments):
            return (id(function) in _SAFE_CALLS or function.name == "<=>") and all(map(never_fails, arguments))
        case Case(branches=branches, default=default):
            return all(never_fails(e) for branch in branches for e in branch) and never_fails(default)
        case InList(operand=operand, items=items):
            return never_fails(operand) and all(map(never_fails, items))
        case Cast(operand=operand, type=type):
            source, target = operand.type.name, type.name
            wider = (
                _WIDTH.get(source, 9) <= _WIDTH.get(target, 0)
                or (source in INTEGERS and target == "numeric" and type.precision is None)
                or (source == target == "numeric" and type.precision is None and type.scale == operand.type.scale)
                or (source in ("text", "varchar") and target == "text")
            )
            return wider and never_fails(operand)
    return False
