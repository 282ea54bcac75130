"""Expressions with a syntax of their own, which have no row in the table of functions: AND, IS NULL, COALESCE, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.nested_lists import flattened, sizes
from protocol.pgwire.types import BOOL, PgType
from server.sql.expressions import Call, Expression
from server.sql.functions.arrays import element_at, elements_between
from server.sql.functions.sort_forms import spark_sizes
from server.sql.functions.table import (
    SYNTAX,
    Function,
    Nulls,
    fail,
    let,
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
FLATTEN = Function(
    *("flatten", types_of("anyarray"), BOOL),
    lambda args, texts: "flatten(" * (args[0].type.dimensions - 1) + texts[0] + ")" * (args[0].type.dimensions - 1),
    typed=True,
    python=lambda value, types: flattened(value, types[0].dimensions),
)
SUBSCRIPT = Function(
    "subscript", types_of("anyarray int4"), BOOL, "get({0}, {1} - 1)", nulls=Nulls.OPTIONAL, python=element_at
)
SLICE = Function(
    *("slice", types_of("anyarray int4 int4"), BOOL),
    "IF({0} IS NULL OR {1} IS NULL OR {2} IS NULL, NULL, "
    "slice({0}, greatest({1}, 1), greatest(least({2}, size({0})) - greatest({1}, 1) + 1, 0)))",
    python=elements_between,
)


def _slices(array: list[Any], *bounds: int, types: Sequence[PgType]) -> list[Any]:
    """array[m:n][k:l]..."""
    if len(bounds) == 2:
        return elements_between(array, *bounds)
    parts = (_slices(item, *bounds[2:], types=types) for item in elements_between(array, *bounds[:2]))
    return [part for part in parts if part]


def _spark_slices(args: Sequence[Expression], texts: Sequence[str]) -> str:
    def part(array: str, bounds: Sequence[str]) -> str:
        first, last = bounds[:2]
        size = f"greatest(least({last}, size({array})) - greatest({first}, 1) + 1, 0)"
        outer = f"slice({array}, greatest({first}, 1), {size})"
        inner = f"e{len(bounds)}"
        if len(bounds) == 2:
            return outer
        return f"filter(transform({outer}, {inner} -> {part(inner, bounds[2:])}), {inner} -> size({inner}) > 0)"

    names = [f"v{number}" for number in range(len(texts))]

    def whole(values: str) -> str:
        array, *bounds = (f"{values}.{name}" for name in names)
        absent = " OR ".join(f"{values}.{name} IS NULL" for name in names)
        return f"IF({absent}, NULL, {part(array, bounds)})"

    fields = ", ".join(f"'{name}', {text}" for name, text in zip(names, texts, strict=True))
    return let(f"named_struct({fields})", whole, "s")


SLICES = Function(
    *("slices", types_of("anyarray int4"), BOOL, _spark_slices), variadic=True, typed=True, python=_slices
)


def joined(arrays: list[Any], types: Sequence[PgType]) -> list[Any]:
    """ARRAY[a, b] of arrays. 2202E if they have different lengths."""
    shapes = {sizes(array or (), types[0].dimensions - 1) for array in arrays}
    if len(shapes) > 1:
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, UNEQUAL_ARRAYS)
    return [] if shapes == {()} else arrays


UNEQUAL_ARRAYS = "multidimensional arrays must have array expressions with matching dimensions"


def _spark_joined(args: Sequence[Expression], texts: Sequence[str]) -> str:
    depth = args[0].type.dimensions - 1
    fault = fail(SqlState.ARRAY_SUBSCRIPT_ERROR, UNEQUAL_ARRAYS)

    def checked(arrays: str) -> str:
        shapes = f"array_distinct(transform({arrays}, a -> {spark_sizes('a', depth)}))"
        filled = f"IF(size(get({arrays}, 0)) > 0, {arrays}, slice({arrays}, 1, 0))"
        return f"IF(size({shapes}) > 1, {fault}, {filled})"

    return let(texts[0], checked, "arrays")


JOINED = Function(*("joined", types_of("anyarray"), BOOL, _spark_joined), typed=True, python=joined)
"""Checks the lengths of the arrays in an array of arrays. An array of empty arrays is empty."""


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

SYNTAX.update(
    {function.name: [function] for function in (FLATTEN, SUBSCRIPT, SLICE, SLICES, JOINED, REQUIRED, PRESENT)}
)


def conjuncts(condition: Expression) -> Sequence[Expression]:
    """The operands of a chain of AND."""
    return condition.arguments if isinstance(condition, Call) and condition.function is AND else (condition,)
