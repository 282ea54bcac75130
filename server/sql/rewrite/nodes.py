"""Helper functions of the passes for decomposing and building relations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from protocol.pgwire.types import BOOL
from server.sql.decorrelate import joined_columns
from server.sql.expressions import (
    Call,
    Case,
    Cast,
    Column,
    ColumnRef,
    Expression,
    InList,
    Literal,
    SessionValue,
    transform,
    walk,
)
from server.sql.functions import syntax
from server.sql.functions.syntax import conjuncts
from server.sql.functions.table import INTEGERS, OPERATORS
from server.sql.relations import Filter, Join, JoinKind, Project, Recursive, Relation, SetOperation, Unnest, Window


def inputs_of(node: Relation) -> tuple[Relation, ...]:
    """The inputs of a node, left to right. A Recursive counts as having none."""
    match node:
        case Join(left=left, right=right) | SetOperation(left=left, right=right):
            return (left, right)
        case Recursive():
            return ()
    below = getattr(node, "input", None)
    return () if below is None else (below,)


def with_inputs(node: Relation, inputs: Sequence[Relation]) -> Relation:
    """The node with other inputs. Columns that it passes through are replaced by those of the new inputs."""
    if all(new is old for new, old in zip(inputs, inputs_of(node), strict=True)):
        return node
    match node:
        case Join():
            return joined(node.kind, inputs[0], inputs[1], node.condition)
        case SetOperation():
            return replace(node, left=inputs[0], right=inputs[1])
        case Window() | Unnest():
            added = node.columns[len(node.input.columns) :]
            return replace(node, input=inputs[0], columns=(*inputs[0].columns, *added))
    with_input: Any = node
    changed: Relation = replace(with_input, input=inputs[0])
    return changed


def bottom_up(node: Relation, change: Callable[[Relation], Relation]) -> Relation:
    """Applies `change` to every node, inputs first."""
    return change(with_inputs(node, [bottom_up(below, change) for below in inputs_of(node)]))


def joined(kind: JoinKind, left: Relation, right: Relation, condition: Expression | None) -> Join:
    if kind is JoinKind.CROSS and condition is not None:
        kind = JoinKind.INNER
    elif kind is JoinKind.INNER and condition is None:
        kind = JoinKind.CROSS
    return Join(kind, left, right, condition, joined_columns(kind, left, right))


def only(relation: Relation, columns: Sequence[Column]) -> Relation:
    """The relation with only these of its columns."""
    if [c.id for c in relation.columns] == [c.id for c in columns]:
        return relation
    return Project(relation, tuple(columns), tuple(map(ColumnRef, columns)))


def ids(columns: Iterable[Column]) -> set[int]:
    return {column.id for column in columns}


def named(part: Any) -> set[int]:
    """The ids of the columns that an expression, or a tuple of them, names."""
    if part is None:
        return set()
    if isinstance(part, tuple):
        return {id for item in part for id in named(item)}
    return {node.column.id for node in walk(part) if isinstance(node, ColumnRef)}


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


def with_values(expression: Expression, values: dict[int, Expression]) -> Expression:
    """The expression with column references replaced by `values`, which are keyed by column id."""

    def change(node: Any) -> Any | None:
        return values.get(node.column.id) if isinstance(node, ColumnRef) else None

    return transform(expression, change)


_SAFE_CALLS = frozenset(
    id(f)
    for f in (
        *(syntax.AND, syntax.OR, syntax.NOT, syntax.IS_NULL, syntax.IS_NOT_NULL, syntax.IS_TRUE, syntax.IS_FALSE),
        *(syntax.IS_DISTINCT, syntax.COALESCE, syntax.GREATEST, syntax.LEAST),
        *(f for name in ("=", "<>", "<", "<=", ">", ">=") for f in OPERATORS[name]),
    )
)
_WIDTH = {"int2": 1, "int4": 2, "int8": 3, "float8": 4}


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
