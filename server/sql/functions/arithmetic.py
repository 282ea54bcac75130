"""Numbers: the operators and functions of PostgreSQL's chapter 9.3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from protocol.pgwire.errors import SqlState
from protocol.pgwire.types import NUMERIC_PRECISION_MAX
from server.sql import decimals
from server.sql.decimals import Shape
from server.sql.expressions import Expression
from server.sql.functions.table import (
    FUNCTIONS,
    INTEGERS,
    OPERATORS,
    Form,
    fail,
    fitted,
    fixed,
    guarded,
    literal,
    row,
    same_shape,
    shape_of,
)


def _decimal(symbol: str, rule: Callable[[Shape, Shape], decimals.Operation]) -> Form:
    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        operation = rule(shape_of(args[0]), shape_of(args[1]))
        left = fitted(args[0], texts[0], operation.left)
        right = fitted(args[1], texts[1], operation.right)
        text = f"({left} {symbol} {right})"
        if symbol == "/" and operation.right.scale < (args[1].type.scale or 0):
            refusal = fail(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "division by a numeric of more than 9 decimals")
            text = f"IF({right} <> {texts[1]}, {refusal}, {text})"
        return text

    return form


def _decimal_shape(rule: Callable[[Shape, Shape], decimals.Operation]) -> Callable[[Sequence[Expression]], Shape]:
    return lambda args: rule(shape_of(args[0]), shape_of(args[1])).result


_WIDER = {(a, b): INTEGERS[max(i, j)] for i, a in enumerate(INTEGERS) for j, b in enumerate(INTEGERS)}
_SPARK_INTEGER = {"int2": "SMALLINT", "int4": "INT", "int8": "BIGINT"}

for (_a, _b), _wide in _WIDER.items():
    for _symbol in "+-*":
        row(OPERATORS, _symbol, f"{_a} {_b}", _wide, f"({{0}} {_symbol} {{1}})")
    row(OPERATORS, "/", f"{_a} {_b}", _wide, f"CAST(({{0}} div {{1}}) AS {_SPARK_INTEGER[_wide]})")
for _a in INTEGERS:
    row(OPERATORS, "%", f"{_a} {_a}", _a, "({0} % {1})")
    row(FUNCTIONS, "mod", f"{_a} {_a}", _a, "({0} % {1})")
    for _symbol in "&|":
        row(OPERATORS, _symbol, f"{_a} {_a}", _a, f"({{0}} {_symbol} {{1}})")
    row(OPERATORS, "#", f"{_a} {_a}", _a, "({0} ^ {1})")
    row(OPERATORS, "~", _a, _a, "(~ {0})")
    row(OPERATORS, "-", _a, _a, "(- {0})")
    row(FUNCTIONS, "abs", _a, _a, "abs({0})")
for _a, _b in product(("float4", "float8"), repeat=2):
    _wide = "float4" if (_a, _b) == ("float4", "float4") else "float8"
    for _symbol in "+-*/":
        row(OPERATORS, _symbol, f"{_a} {_b}", _wide, f"({{0}} {_symbol} {{1}})")
for _a in ("float4", "float8"):
    row(OPERATORS, "-", _a, _a, "(- {0})")
    row(FUNCTIONS, "abs", _a, _a, "abs({0})")
for _symbol, _rule in (
    ("+", decimals.add), ("-", decimals.add), ("*", decimals.multiply), ("/", decimals.divide),
    ("%", decimals.remainder),
):  # fmt: skip
    row(OPERATORS, _symbol, "numeric numeric", "numeric", _decimal(_symbol, _rule), shape=_decimal_shape(_rule))
row(FUNCTIONS, "mod", "numeric numeric", "numeric", _decimal("%", decimals.remainder),
     shape=_decimal_shape(decimals.remainder))  # fmt: skip
row(OPERATORS, "-", "numeric", "numeric", "(- {0})", shape=same_shape)
row(FUNCTIONS, "abs", "numeric", "numeric", "abs({0})", shape=same_shape)


def _power(args: Sequence[Expression], texts: Sequence[str]) -> str:
    base, exponent = texts
    refusals = (
        (f"{base} = 0 AND {exponent} < 0", "zero raised to a negative power is undefined"),
        (f"{base} < 0 AND {exponent} <> floor({exponent})",
         "a negative number raised to a non-integer power yields a complex result"),
    )  # fmt: skip
    text = finite("power({0}, {1})", "abs({0}) < {inf} AND abs({1}) < {inf}").format(base, exponent)
    for condition, message in refusals:
        text = guarded(condition, SqlState.INVALID_ARGUMENT_FOR_POWER_FUNCTION, message, text)
    return text


def finite(spark: str, finite_arguments: str) -> str:
    """Raises where finite arguments gave an infinite double, as PostgreSQL does."""
    infinity = "CAST('Infinity' AS DOUBLE)"
    overflow = f"{finite_arguments} AND abs({spark}) = {{inf}}".replace("{inf}", infinity)
    return guarded(overflow, SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow", spark)


_LOG_ARGUMENT = SqlState.INVALID_ARGUMENT_FOR_LOGARITHM


def _logarithm(spark: str) -> str:
    inner = guarded("{0} < 0", _LOG_ARGUMENT, "cannot take logarithm of a negative number", spark)
    return guarded("{0} = 0", _LOG_ARGUMENT, "cannot take logarithm of zero", inner)


def _round_scale(args: Sequence[Expression]) -> int:
    scale = literal(args[1], "a number of decimals")
    assert isinstance(scale, int)
    return min(max(scale, 0), 18)


def _check_round(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    _round_scale(args)
    return args


def _round_shape(args: Sequence[Expression]) -> Shape:
    whole = min(shape_of(args[0]).whole + 1, NUMERIC_PRECISION_MAX - _round_scale(args))
    return Shape(whole + _round_scale(args), _round_scale(args))


def _rounded(spark: str) -> Form:
    """round, floor or ceil of a numeric to a known number of decimals; trunc is towards zero."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        scale = literal(args[1], "a number of decimals")
        return f"CAST({spark.format(texts[0], scale)} AS {_round_shape(args)})"

    return form


def _whole_shape(args: Sequence[Expression]) -> Shape:
    return Shape(min(shape_of(args[0]).whole + 1, NUMERIC_PRECISION_MAX), 0)


def _to_whole(spark: str) -> Form:
    return lambda args, texts: f"CAST({spark.format(texts[0])} AS {_whole_shape(args)})"


_TRUNC = "IF({0} < 0, ceil({0}{1}), floor({0}{1}))"
# ceil and floor of a DOUBLE are BIGINT in Spark; beyond 2^52 a double is whole anyway
_FLOAT_WHOLE = "IF(abs({{0}}) < 4503599627370496D, CAST({0} AS DOUBLE), {{0}})"

for _name in ("power", "pow"):
    row(FUNCTIONS, _name, "float8 float8", "float8", _power)
    row(FUNCTIONS, _name, "numeric numeric", "numeric", None)
row(OPERATORS, "^", "float8 float8", "float8", _power)
row(OPERATORS, "^", "numeric numeric", "numeric", None)
row(FUNCTIONS, "sqrt", "float8", "float8", guarded(
    "{0} < 0", SqlState.INVALID_ARGUMENT_FOR_POWER_FUNCTION, "cannot take square root of a negative number",
    "sqrt({0})"))  # fmt: skip
row(OPERATORS, "|/", "float8", "float8", FUNCTIONS["sqrt"][0].spark)
row(FUNCTIONS, "exp", "float8", "float8", finite("exp({0})", "abs({0}) < {inf}"))
row(FUNCTIONS, "ln", "float8", "float8", _logarithm("ln({0})"))
for _name in ("log", "log10"):
    row(FUNCTIONS, _name, "float8", "float8", _logarithm("log10({0})"))
    row(FUNCTIONS, _name, "numeric", "numeric", None)
for _name in ("sqrt", "exp", "ln"):
    row(FUNCTIONS, _name, "numeric", "numeric", None)
row(FUNCTIONS, "sign", "float8", "float8", "signum({0})")
row(FUNCTIONS, "sign", "numeric", "numeric",
     "CASE WHEN {0} > 0 THEN 1BD WHEN {0} < 0 THEN -1BD WHEN {0} = 0 THEN 0BD END", shape=fixed(1))  # fmt: skip
row(FUNCTIONS, "round", "float8", "float8", "rint({0})")
row(FUNCTIONS, "round", "numeric", "numeric", _to_whole("round({0}, 0)"), shape=_whole_shape)
row(FUNCTIONS, "round", "numeric int4", "numeric", _rounded("round({0}, {1})"), shape=_round_shape,
     prepare=_check_round)  # fmt: skip
row(FUNCTIONS, "trunc", "float8", "float8", _FLOAT_WHOLE.format(_TRUNC.format("{0}", "")))
row(FUNCTIONS, "trunc", "numeric", "numeric", _to_whole(_TRUNC.format("{0}", "")), shape=_whole_shape)
row(FUNCTIONS, "trunc", "numeric int4", "numeric", _rounded(_TRUNC.format("{0}", ", {1}")), shape=_round_shape,
     prepare=_check_round)  # fmt: skip
for _name in ("ceil", "ceiling", "floor"):
    _spark = "floor({0})" if _name == "floor" else "ceil({0})"
    row(FUNCTIONS, _name, "float8", "float8", _FLOAT_WHOLE.format(_spark))
    row(FUNCTIONS, _name, "numeric", "numeric", _to_whole(_spark), shape=_whole_shape)
