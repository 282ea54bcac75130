"""Numeric operators (chapter 9.3) and rounding functions; `mathematics` has the other functions."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from itertools import product
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import NUMERIC_PRECISION_MAX, scalar
from server.sql import decimals
from server.sql.decimals import Shape
from server.sql.expressions import ColumnRef, Expression, Literal
from server.sql.functions.table import (
    FUNCTIONS,
    INTEGERS,
    OPERATORS,
    Form,
    fail,
    fitted,
    fixed,
    guarded,
    row,
    same_shape,
    shape_of,
)

_EXACT = Context(prec=200, rounding=ROUND_HALF_UP)
_BITS = {"int2": 15, "int4": 31, "int8": 63}
_WIDER = {(a, b): INTEGERS[max(i, j)] for i, a in enumerate(INTEGERS) for j, b in enumerate(INTEGERS)}
_SPARK_INTEGER = {"int2": "SMALLINT", "int4": "INT", "int8": "BIGINT"}

# -- integers -------------------------------------------------------------------------------------------------------


def out_of_range(name: str) -> PgError:
    return PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, f"{scalar(name).display} out of range")


def _by_zero() -> PgError:
    return PgError(SqlState.DIVISION_BY_ZERO, "division by zero")


def in_range(name: str, value: int) -> int:
    if not -(1 << _BITS[name]) <= value < 1 << _BITS[name]:
        raise out_of_range(name)
    return value


def _wrapped(name: str, value: int) -> int:
    half = 1 << _BITS[name]
    return (value + half) % (2 * half) - half


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise _by_zero()
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise _by_zero()
    return left - right * _quotient(left, right)


def _ranged(name: str, function: Callable[..., int]) -> Callable[..., int]:
    return lambda *values: in_range(name, function(*values))


def _shifted(name: str, left: bool) -> Callable[[int, int], int]:
    bits = 63 if name == "int8" else 31  # the processor ignores the higher bits of the count
    if left:
        return lambda value, count: _wrapped(name, value << (count & bits))
    return lambda value, count: value >> (count & bits)


_SHIFTS = {
    "int2": ("CAST(shiftright(shiftleft(shiftleft(CAST({0} AS INT), {1}), 16), 16) AS SMALLINT)",
             "CAST(shiftright(CAST({0} AS INT), {1}) AS SMALLINT)"),
    **dict.fromkeys(("int4", "int8"), ("shiftleft({0}, {1})", "shiftright({0}, {1})")),
}  # fmt: skip

for (_a, _b), _wide in _WIDER.items():
    for _symbol, _operation in (("+", operator.add), ("-", operator.sub), ("*", operator.mul)):
        row(OPERATORS, _symbol, f"{_a} {_b}", _wide, f"({{0}} {_symbol} {{1}})", python=_ranged(_wide, _operation))
    row(OPERATORS, "/", f"{_a} {_b}", _wide, f"CAST(({{0}} div {{1}}) AS {_SPARK_INTEGER[_wide]})",
        python=_ranged(_wide, _quotient))  # fmt: skip
for _a in INTEGERS:
    row(OPERATORS, "%", f"{_a} {_a}", _a, "({0} % {1})", python=_remainder)
    row(FUNCTIONS, "mod", f"{_a} {_a}", _a, "({0} % {1})", python=_remainder)
    row(OPERATORS, "&", f"{_a} {_a}", _a, "({0} & {1})", python=operator.and_)
    row(OPERATORS, "|", f"{_a} {_a}", _a, "({0} | {1})", python=operator.or_)
    row(OPERATORS, "#", f"{_a} {_a}", _a, "({0} ^ {1})", python=operator.xor)
    row(OPERATORS, "~", _a, _a, "(~ {0})", python=operator.inv)
    row(OPERATORS, "-", _a, _a, "(- {0})", python=_ranged(_a, operator.neg))
    row(OPERATORS, "+", _a, _a, "{0}", python=operator.pos)
    for _symbol, _spark in zip(("<<", ">>"), _SHIFTS[_a], strict=True):
        row(OPERATORS, _symbol, f"{_a} int4", _a, _spark, python=_shifted(_a, _symbol == "<<"))
    for _table, _name in ((FUNCTIONS, "abs"), (OPERATORS, "@")):
        row(_table, _name, _a, _a, "abs({0})", python=_ranged(_a, abs))

# -- floats ---------------------------------------------------------------------------------------------------------

_INFINITY = "CAST('Infinity' AS DOUBLE)"
_OVERFLOW, _UNDERFLOW = "value out of range: overflow", "value out of range: underflow"


def finite(spark: str, finite_arguments: str, not_zero: str = "false") -> str:
    """Raises PostgreSQL's error where finite arguments yield an infinite double, or zero where `not_zero` holds."""
    limit = SqlState.NUMERIC_VALUE_OUT_OF_RANGE
    finite_arguments = finite_arguments.replace("{inf}", _INFINITY)
    checked = guarded(f"{finite_arguments} AND abs({spark}) = {_INFINITY}", limit, _OVERFLOW, spark)
    if not_zero == "false":
        return checked
    return guarded(f"{finite_arguments} AND {not_zero} AND ({spark}) = 0", limit, _UNDERFLOW, checked)


def _checked(a: str, b: str, result: str, symbol: str) -> str:
    """A float operation with PostgreSQL's errors. `a` and `b` are the names of its operands."""
    limit = SqlState.NUMERIC_VALUE_OUT_OF_RANGE
    finite_operands = f"abs({a}) < {_INFINITY}" + (f" AND abs({b}) < {_INFINITY}" if symbol != "/" else "")
    text = guarded(f"abs({result}) = {_INFINITY} AND {finite_operands}", limit, _OVERFLOW, result)
    if symbol in "*/":
        nonzero = f"{b} <> 0" if symbol == "*" else f"abs({b}) < {_INFINITY}"
        text = guarded(f"{result} = 0 AND {a} <> 0 AND {nonzero}", limit, _UNDERFLOW, text)
    return text


def _float_form(symbol: str, single: bool) -> Form:
    """Operands that are not names or literals are evaluated once, as a lambda variable."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        simple = all(isinstance(arg, (ColumnRef, Literal)) for arg in args)
        a, b = texts if simple else ("r.a", "r.b")
        if symbol == "/":  # NaN / 0 is NaN
            result = f"({a} / IF(isnan({a}) AND {b} = 0, CAST(1 AS {'FLOAT' if single else 'DOUBLE'}), {b}))"
        else:
            result = f"({a} {symbol} {b})"
        if single:
            result = f"CAST({result} AS FLOAT)"
        text = _checked(a, b, result, symbol)
        if simple:
            return text
        return f"get(transform(array(named_struct('a', {texts[0]}, 'b', {texts[1]})), r -> {text}), 0)"

    return form


def single(value: float) -> float:
    """The nearest float4; infinity if out of its range."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _float_python(symbol: str, is_single: bool) -> Callable[[float, float], float]:
    operation = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}[symbol]

    def python(left: float, right: float) -> float:
        if symbol == "/" and right == 0:
            if not math.isnan(left):
                raise _by_zero()
            return left
        result = operation(left, right)
        if is_single:
            result = single(result)
        if math.isinf(result) and not math.isinf(left) and (symbol == "/" or not math.isinf(right)):
            raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, _OVERFLOW)
        if result == 0 and left != 0 and ((symbol == "*" and right != 0) or (symbol == "/" and not math.isinf(right))):
            raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, _UNDERFLOW)
        return float(result)

    return python


for _a, _b in product(("float4", "float8"), repeat=2):
    _wide = "float4" if (_a, _b) == ("float4", "float4") else "float8"
    for _symbol in "+-*/":
        row(OPERATORS, _symbol, f"{_a} {_b}", _wide, _float_form(_symbol, _wide == "float4"),
            python=_float_python(_symbol, _wide == "float4"))  # fmt: skip
for _a in ("float4", "float8"):
    row(OPERATORS, "-", _a, _a, "(- {0})", python=operator.neg)
    row(OPERATORS, "+", _a, _a, "{0}", python=operator.pos)
    for _table, _name in ((FUNCTIONS, "abs"), (OPERATORS, "@")):
        row(_table, _name, _a, _a, "abs({0})", python=abs)

# -- numerics -------------------------------------------------------------------------------------------------------


_STEP_DIGITS = 5


def _long_division(args: Sequence[Expression], texts: Sequence[str]) -> str:
    """A quotient whose divisor has more decimals than `decimals.divide` keeps, computed five digits at a time.

    The steps truncate, and compute at least one digit more than the result has, so that the rounding is exact. A
    divisor with more whole digits than remain is rounded to 9 decimals instead, if that keeps at least 17 of its
    digits. 22003 if it has more decimals, and for a quotient with more whole digits than remain.
    """
    left, right = shape_of(args[0]), shape_of(args[1])
    operation = decimals.divide(left, right)
    scale = operation.result.scale
    steps = scale // _STEP_DIGITS + 1
    quotient = Shape(NUMERIC_PRECISION_MAX - 1, steps * _STEP_DIGITS)  # the type of a sum has a digit more
    remainder = Shape(NUMERIC_PRECISION_MAX - _STEP_DIGITS - 2, max(left.scale, right.scale))
    refusal = fail(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
    if quotient.whole < 1:
        return refusal
    weights = ", ".join(
        f"CAST('{Decimal(1).scaleb(-n * _STEP_DIGITS):f}' AS {Shape(quotient.scale + 1, quotient.scale)})"
        for n in range(1, steps + 1)
    )

    def state(q: str, r: str) -> str:
        return f"named_struct('q', CAST({q} AS {quotient}), 'r', CAST({r} AS {remainder}))"

    shifted = f"(s.r * CAST('{10**_STEP_DIGITS}' AS DECIMAL({_STEP_DIGITS + 1},0)))"
    digits = f"CAST(({shifted} div v.y) AS DECIMAL({_STEP_DIGITS},0))"
    first, following = state("v.x div v.y", "v.x % v.y"), state(f"s.q + {digits} * w", f"{shifted} % v.y")
    divided = f"aggregate(array({weights}), {first}, (s, w) -> {following}, s -> s.q)"
    # div is a BIGINT that overflows silently; a NULL is not too large, and its quotient is NULL
    is_large = f"abs(CAST(v.x AS DOUBLE)) >= abs(CAST(v.y AS DOUBLE)) * 1e{min(quotient.whole, 18)}"
    if remainder.whole > 7:
        rounded = f"({fitted(args[0], 'v.x', operation.left)} / {fitted(args[1], 'v.y', operation.right)})"
        divided = f"IF(abs(CAST(v.y AS DOUBLE)) >= 1e{remainder.whole}, {rounded}, {divided})"
    operands = f"named_struct('x', {texts[0]}, 'y', {texts[1]})"
    result = operation.result
    return f"CAST(transform(array({operands}), v -> IF({is_large}, {refusal}, {divided}))[0] AS {result})"


def _decimal(symbol: str, rule: Callable[[Shape, Shape], decimals.Operation]) -> Form:
    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        operation = rule(shape_of(args[0]), shape_of(args[1]))
        left = fitted(args[0], texts[0], operation.left)
        right = fitted(args[1], texts[1], operation.right)
        text = f"({left} {symbol} {right})"
        if symbol == "/" and operation.right.scale < (args[1].type.scale or 0):
            whole = Shape(NUMERIC_PRECISION_MAX, shape_of(args[1]).scale)  # Spark would compare fewer decimals
            text = f"IF(CAST({right} AS {whole}) <> {texts[1]}, {_long_division(args, texts)}, {text})"
        return text

    return form


def _decimal_shape(rule: Callable[[Shape, Shape], decimals.Operation]) -> Callable[[Sequence[Expression]], Shape]:
    return lambda args: rule(shape_of(args[0]), shape_of(args[1])).result


def _nonzero(operation: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Decimal, Decimal], Decimal]:
    def python(left: Decimal, right: Decimal) -> Decimal:
        if not right:
            raise _by_zero()
        return operation(left, right)

    return python


for _symbol, _rule, _decimal_python in (
    ("+", decimals.add, _EXACT.add), ("-", decimals.add, _EXACT.subtract), ("*", decimals.multiply, _EXACT.multiply),
    ("/", decimals.divide, _nonzero(_EXACT.divide)), ("%", decimals.remainder, _nonzero(_EXACT.remainder)),
):  # fmt: skip
    row(OPERATORS, _symbol, "numeric numeric", "numeric", _decimal(_symbol, _rule), shape=_decimal_shape(_rule),
        python=_decimal_python)  # fmt: skip
row(FUNCTIONS, "mod", "numeric numeric", "numeric", _decimal("%", decimals.remainder),
    shape=_decimal_shape(decimals.remainder), python=_nonzero(_EXACT.remainder))  # fmt: skip
row(OPERATORS, "-", "numeric", "numeric", "(- {0})", shape=same_shape, python=_EXACT.minus)
row(OPERATORS, "+", "numeric", "numeric", "{0}", shape=same_shape, python=lambda value: value)
for _table, _name in ((FUNCTIONS, "abs"), (OPERATORS, "@")):
    row(_table, _name, "numeric", "numeric", "abs({0})", shape=same_shape, python=abs)

# -- signs and rounding ---------------------------------------------------------------------------------------------


def _decimals_kept(args: Sequence[Expression]) -> int:
    """The scale of round(x, n): n if constant, else that of x. PostgreSQL's may be smaller, with an equal value."""
    count = args[1]
    if isinstance(count, Literal) and count.value is not None:
        return int(min(max(count.value, 0), 18))
    return args[0].type.scale or 0


def _round_shape(args: Sequence[Expression]) -> Shape:
    kept = _decimals_kept(args)
    whole = min(shape_of(args[0]).whole + 1, NUMERIC_PRECISION_MAX - kept)
    return Shape(whole + kept, kept)


def _rounded(spark: str) -> Form:
    """round, floor or ceil of a numeric to a constant number of decimals."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        count = args[1]
        if not isinstance(count, Literal) or count.value is None or not -38 < count.value <= 18:
            return ""
        return f"CAST({spark.format(texts[0], count.value)} AS {_round_shape(args)})"

    return form


def _to_decimals(rounding: str) -> Callable[[Decimal, int], Decimal]:
    def python(value: Decimal, count: int) -> Decimal:
        places = Decimal(1).scaleb(-min(max(count, -200), 100))
        if value.adjusted() < -count - 1 and rounding == ROUND_DOWN:
            return Decimal(0)
        return (
            value.quantize(places, rounding, _EXACT).quantize(Decimal(1), context=_EXACT)
            if count < 0
            else (value.quantize(places, rounding, _EXACT))
        )

    return python


def _whole_shape(args: Sequence[Expression]) -> Shape:
    return Shape(min(shape_of(args[0]).whole + 1, NUMERIC_PRECISION_MAX), 0)


def _to_whole(spark: str) -> Form:
    return lambda args, texts: f"CAST({spark.format(texts[0])} AS {_whole_shape(args)})"


def _whole_python(rounding: str) -> Callable[[Decimal], Decimal]:
    return lambda value: value.quantize(Decimal(1), rounding, _EXACT)


def _float_whole(function: Callable[[float], Any]) -> Callable[[float], float]:
    return lambda value: math.copysign(float(function(value)), value) if math.isfinite(value) else value


def _float_sign(value: float) -> float:
    return 1.0 if value > 0 else -1.0 if value < 0 else 0.0  # also for NaN


def _decimal_sign(value: Decimal) -> Decimal:
    return Decimal((value > 0) - (value < 0))


_TRUNC = "IF({0} < 0, ceil({0}{1}), floor({0}{1}))"
# Spark's ceil and floor of a DOUBLE return BIGINT. From 2^52 on every double is integral.
_FLOAT_WHOLE = "IF(abs({{0}}) < 4503599627370496D, CAST({0} AS DOUBLE), {{0}})"

row(FUNCTIONS, "sign", "float8", "float8", "CASE WHEN isnan({0}) OR {0} = 0 THEN 0D ELSE signum({0}) END",
    python=_float_sign)  # fmt: skip
row(FUNCTIONS, "sign", "numeric", "numeric",
    "CASE WHEN {0} > 0 THEN 1BD WHEN {0} < 0 THEN -1BD WHEN {0} = 0 THEN 0BD END",
    shape=fixed(1), python=_decimal_sign)  # fmt: skip
row(FUNCTIONS, "round", "float8", "float8", "rint({0})", python=_float_whole(round))
row(FUNCTIONS, "trunc", "float8", "float8", _FLOAT_WHOLE.format(_TRUNC.format("{0}", "")),
    python=_float_whole(math.trunc))  # fmt: skip
for _name, _spark, _rounding in (
    ("round", "round({0}{1})", ROUND_HALF_UP), ("trunc", _TRUNC, ROUND_DOWN),
):  # fmt: skip
    row(FUNCTIONS, _name, "numeric", "numeric", _to_whole(_spark.format("{0}", "")), shape=_whole_shape,
        python=_whole_python(_rounding))  # fmt: skip
    row(FUNCTIONS, _name, "numeric int4", "numeric", _rounded(_spark.format("{0}", ", {1}")), shape=_round_shape,
        python=_to_decimals(_rounding))  # fmt: skip
for _name, _rounding, _function in (
    ("ceil", ROUND_CEILING, math.ceil), ("ceiling", ROUND_CEILING, math.ceil), ("floor", ROUND_FLOOR, math.floor),
):  # fmt: skip
    _spark = "floor({0})" if _name == "floor" else "ceil({0})"
    row(FUNCTIONS, _name, "float8", "float8", _FLOAT_WHOLE.format(_spark), python=_float_whole(_function))
    row(FUNCTIONS, _name, "numeric", "numeric", _to_whole(_spark), shape=_whole_shape, python=_whole_python(_rounding))
