"""Expressions with a syntax of their own, which have no row in the table of functions: AND, IS NULL, COALESCE, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL
from server.sql.expressions import Call, Expression
from server.sql.functions.arrays import element_at, elements_between
from server.sql.functions.table import (
    SYNTAX,
    Function,
    Nulls,
    types_of,
)


def _syntax(name: str, spark: str, nulls: Nulls = Nulls.STRICT, arguments: str = "any any") -> Function:
    return Function(name, types_of(arguments), BOOL, spark, nulls=nulls)


AND = _syntax("AND", "({*:AND})")
OR = _syntax("OR", "({*:OR})")
NOT = _syntax("NOT", "(NOT {0})")
IS_NULL = _syntax("IS NULL", "({0} IS NULL)", Nulls.NEVER)
IS_NOT_NULL = _syntax("IS NOT NULL", "({0} IS NOT NULL)", Nulls.NEVER)
IS_TRUE = _syntax("IS TRUE", "({0} IS TRUE)", Nulls.NEVER)
IS_FALSE = _syntax("IS FALSE", "({0} IS FALSE)", Nulls.NEVER)
IS_DISTINCT = _syntax("IS DISTINCT FROM", "(NOT ({0} <=> {1}))", Nulls.NEVER)
COALESCE = _syntax("coalesce", "coalesce({*})", Nulls.MAYBE)
GREATEST = _syntax("greatest", "greatest({*})", Nulls.MAYBE)
LEAST = _syntax("least", "least({*})", Nulls.MAYBE)
GROUPING = Function("grouping", (), BOOL, None, nulls=Nulls.NEVER)
SUBSCRIPT = Function(
    "subscript", types_of("anyarray int4"), BOOL, "get({0}, {1} - 1)", nulls=Nulls.OPTIONAL, python=element_at
)
SLICE = Function(
    *("slice", types_of("anyarray int4 int4"), BOOL),
    "IF({0} IS NULL OR {1} IS NULL OR {2} IS NULL, NULL, "
    "slice({0}, greatest({1}, 1), greatest(least({2}, size({0})) - greatest({1}, 1) + 1, 0)))",
    python=elements_between,
)


def _required(value: Any, holds: bool | None, error: str) -> Any:
    """The value, unless a condition is false; then the error, which is a SQLSTATE, a colon and the message."""
    if holds is False:
        state, _, message = error.partition(":")
        raise PgError(SqlState(state), message)
    return value


REQUIRED = Function(
    *("required", types_of("any bool text"), BOOL, "IF({1}, {0}, IF({1} IS NULL, {0}, raise_error({2})))"),
    nulls=Nulls.MAYBE,
    python=_required,
)


def _present(value: Any, error: str) -> Any:
    """The value, unless it is NULL; then the error, as `_required` has it."""
    return _required(value, value is not None, error)


PRESENT = Function(
    *("present", types_of("any text"), BOOL, "IF({0} IS NULL, raise_error({1}), {0})"),
    nulls=Nulls.MAYBE,
    python=_present,
)

SYNTAX.update({function.name: [function] for function in (SUBSCRIPT, SLICE, REQUIRED, PRESENT)})


def conjuncts(condition: Expression) -> Sequence[Expression]:
    """The operands of a chain of AND."""
    return condition.arguments if isinstance(condition, Call) and condition.function is AND else (condition,)
