"""Expressions over a row of Python scalars: those of `constant`, and AND, OR, NOT, IS NULL, IN, COALESCE and CASE.

CHECK constraints and computed keys are evaluated with them for few rows, with the same results as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from protocol.pgwire.errors import PgError
from protocol.pgwire.types import PgType
from server.sql.constant import Bindings, Evaluate, Positions, compiled_expression
from server.sql.expressions import Call, Case, Column, ColumnRef, Expression, InList
from server.sql.functions import resolve, syntax
from server.sql.functions.arrays import ordering
from server.sql.functions.table import Function

_Compile = Callable[[Expression, Positions], Evaluate]


def compiled_row_expression(expression: Expression, row: Positions) -> Evaluate | None:
    """The function that evaluates an expression, as `constant.compiled_expression`."""
    return compiled_expression(expression, row, _form)


def _form(expression: Expression, row: Positions, compiled: _Compile) -> Evaluate | None:
    match expression:
        case Call(function=function, arguments=arguments, type=type) if function in _CALLS:
            return _CALLS[function]([compiled(argument, row) for argument in arguments], type)
        case Case(branches=branches, default=default):
            pairs = [(compiled(condition, row), compiled(value, row)) for condition, value in branches]
            return _case(pairs, compiled(default, row))
        case InList():
            return _in_list(expression, row, compiled)
    return None


def _connective(decisive: bool) -> Callable[[Sequence[Evaluate], PgType], Evaluate]:
    """AND (`decisive` False) or OR (True): an operand that is `decisive` is the result."""

    def made(operands: Sequence[Evaluate], _: PgType) -> Evaluate:
        def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
            result: bool | None = not decisive
            for operand in operands:
                value = operand(bindings, row)
                if value is decisive:
                    return decisive
                result = None if value is None else result
            return result

        return evaluate

    return made


_or = _connective(True)


def _applied(function: Callable[[Any], bool | None]) -> Callable[[Sequence[Evaluate], PgType], Evaluate]:
    def made(operands: Sequence[Evaluate], _: PgType) -> Evaluate:
        (operand,) = operands
        return lambda bindings, row: function(operand(bindings, row))

    return made


def _coalesce(operands: Sequence[Evaluate], _: PgType) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        for operand in operands:
            if (value := operand(bindings, row)) is not None:
                return value
        return None

    return evaluate


def _extreme(choose: Callable[..., Any]) -> Callable[[Sequence[Evaluate], PgType], Evaluate]:
    """GREATEST or LEAST, which ignore NULL."""

    def made(operands: Sequence[Evaluate], type: PgType) -> Evaluate:
        key = ordering(type)

        def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
            values = [operand(bindings, row) for operand in operands]
            return choose((value for value in values if value is not None), key=key, default=None)

        return evaluate

    return made


_CALLS: Mapping[Function, Callable[[Sequence[Evaluate], PgType], Evaluate]] = {
    syntax.AND: _connective(False),
    syntax.OR: _or,
    syntax.NOT: _applied(lambda value: None if value is None else not value),
    syntax.IS_NULL: _applied(lambda value: value is None),
    syntax.IS_NOT_NULL: _applied(lambda value: value is not None),
    syntax.IS_TRUE: _applied(lambda value: value is True),
    syntax.IS_FALSE: _applied(lambda value: value is False),
    syntax.COALESCE: _coalesce,
    syntax.GREATEST: _extreme(max),
    syntax.LEAST: _extreme(min),
}


def _case(branches: Sequence[tuple[Evaluate, Evaluate]], default: Evaluate) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        for condition, value in branches:
            if condition(bindings, row) is True:
                return value(bindings, row)
        return default(bindings, row)

    return evaluate


def _in_list(expression: InList, row: Positions, compiled: _Compile) -> Evaluate | None:
    """operand IN (items): an OR of equalities, with the operator's rules for the type."""
    type = expression.operand.type
    try:
        resolved = resolve.resolve_operator("=", (type.without_modifiers,) * 2)
    except PgError:
        return None
    if resolved is None:
        return None
    value = compiled(expression.operand, row)
    left = Column(-1, "", type, expression.operand.nullable)
    calls = [Call(resolved.function, (ColumnRef(left), item), InList.type, True) for item in expression.items]
    test = _or([compiled(call, {**row, left.id: len(row)}) for call in calls], InList.type)
    return lambda bindings, cells: test(bindings, (*cells, value(bindings, cells)))
