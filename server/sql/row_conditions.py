"""Conditions over a row of Python scalars: AND, OR, NOT, IS NULL and IN, over what `constant` evaluates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from protocol.pgwire.errors import PgError
from server.sql.constant import Bindings, Evaluate, compiled_expression
from server.sql.expressions import Call, Column, ColumnRef, Expression, InList
from server.sql.functions import resolve, syntax
from server.sql.functions.table import Function


def compiled_condition(expression: Expression, row: Mapping[int, int]) -> Evaluate | None:
    """The function that evaluates a condition, as `constant.compiled_expression`; None if it cannot be evaluated so."""
    match expression:
        case Call(function=function, arguments=arguments) if function in _LOGIC:
            found = [compiled_condition(argument, row) for argument in arguments]
            operands = [operand for operand in found if operand is not None]
            return _LOGIC[function](operands) if len(operands) == len(found) else None
        case InList(operand=operand, items=items):
            return _in_list(operand, items, row)
    return compiled_expression(expression, row)


def _and(operands: Sequence[Evaluate]) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        result: bool | None = True
        for operand in operands:
            value = operand(bindings, row)
            if value is False:
                return False
            result = None if value is None else result
        return result

    return evaluate


def _or(operands: Sequence[Evaluate]) -> Evaluate:
    def evaluate(bindings: Bindings, row: tuple[Any, ...]) -> Any:
        result: bool | None = False
        for operand in operands:
            value = operand(bindings, row)
            if value is True:
                return True
            result = None if value is None else result
        return result

    return evaluate


def _applied(function: Callable[[Any], bool | None]) -> Callable[[Sequence[Evaluate]], Evaluate]:
    def made(operands: Sequence[Evaluate]) -> Evaluate:
        (operand,) = operands
        return lambda bindings, row: function(operand(bindings, row))

    return made


_LOGIC: Mapping[Function, Callable[[Sequence[Evaluate]], Evaluate]] = {
    syntax.AND: _and,
    syntax.OR: _or,
    syntax.NOT: _applied(lambda value: None if value is None else not value),
    syntax.IS_NULL: _applied(lambda value: value is None),
    syntax.IS_NOT_NULL: _applied(lambda value: value is not None),
    syntax.IS_TRUE: _applied(lambda value: value is True),
    syntax.IS_FALSE: _applied(lambda value: value is False),
}


def _in_list(operand: Expression, items: Sequence[Expression], row: Mapping[int, int]) -> Evaluate | None:
    """operand IN (items): an OR of equalities, with the operator's rules for the type."""
    value = compiled_condition(operand, row)
    try:
        resolved = resolve.resolve_operator("=", (operand.type.without_modifiers,) * 2)
    except PgError:
        return None
    if value is None or resolved is None:
        return None
    left = Column(-1, "", operand.type, operand.nullable)
    equalities = []
    for item in items:
        call = Call(resolved.function, (ColumnRef(left), item), InList.type, True)
        equality = compiled_expression(call, {**row, left.id: len(row)})
        if equality is None:
            return None
        equalities.append(equality)
    test = _or(equalities)
    return lambda bindings, cells: test(bindings, (*cells, value(bindings, cells)))
