"""Powers, roots, logarithms, trigonometry and number theory (chapter 9.3).

Numerics are computed with as many digits as PostgreSQL shows (its scale rules, numeric.c) and then stored with `SCALE`
decimals, because a column has one scale. Floats are computed by the C library, as in PostgreSQL; the results of Java's
exp, ln and power can differ in the last of 17 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import too_many_digits
from protocol.pgwire.types import BARE_NUMERIC_SCALE, NUMERIC_PRECISION_MAX
from server.sql.decimals import Shape
from server.sql.expressions import Expression, Literal
from server.sql.functions.arithmetic import finite, in_range
from server.sql.functions.table import FUNCTIONS, OPERATORS, fitted, fixed, guarded, row, shape_of

SCALE = 16
_EXACT = Context(prec=1200, rounding=ROUND_HALF_UP)
_SIGNIFICANT = 16  # PostgreSQL's minimum number of significant digits
_OVERFLOW, _UNDERFLOW = "value out of range: overflow", "value out of range: underflow"
_POWER, _LOGARITHM = SqlState.INVALID_ARGUMENT_FOR_POWER_FUNCTION, SqlState.INVALID_ARGUMENT_FOR_LOGARITHM
_planned = fixed(38, SCALE)

# -- numerics -------------------------------------------------------------------------------------------------------


def _scale(value: Decimal) -> int:
    return max(-int(value.as_tuple().exponent), 0)


def _weight(value: Decimal) -> int:
    """The weight of the first digit in base 10,000, PostgreSQL's internal base."""
    return value.adjusted() // 4 if value else 0


def _rounded(value: Decimal, scale: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-min(max(scale, 0), 1000)), context=_EXACT)


def _working(digits: int) -> Context:
    return Context(prec=max(digits, 0) + 30, rounding=ROUND_HALF_UP)


def _numeric_sqrt(value: Decimal) -> Decimal:
    if value < 0:
        raise PgError(_POWER, "cannot take square root of a negative number")
    scale = max(_SIGNIFICANT - (2 * (_weight(value) + 1) - 1), _scale(value), 0)
    return _rounded(value.sqrt(_working(scale + max(value.adjusted(), 0))), scale)


def _numeric_exp(value: Decimal) -> Decimal:
    weight = float(value) * 0.434294481903252
    if weight > 60:
        raise too_many_digits()
    scale = max(_SIGNIFICANT - int(max(weight, -2000)), _scale(value), 0)
    if weight < -1000:
        return _rounded(Decimal(0), scale)
    return _rounded(value.exp(_working(int(max(weight, 0)) + scale)), scale)


def _ln_weight(value: Decimal) -> int:
    """The approximate position of the first digit of ln(value)."""
    if Decimal("0.9") <= value <= Decimal("1.1"):
        rest = value - 1
        if not rest:
            return 0
        weight = _weight(rest)
        return weight * 4 + int(math.log10(int(abs(rest).scaleb(-4 * weight, _EXACT))))
    estimate = abs(float(value.ln(Context(prec=12))))
    return int(math.log10(estimate)) if estimate else 0


def _positive(value: Decimal | float) -> None:
    if value < 0:
        raise PgError(_LOGARITHM, "cannot take logarithm of a negative number")
    if value == 0:
        raise PgError(_LOGARITHM, "cannot take logarithm of zero")


def _numeric_ln(value: Decimal) -> Decimal:
    _positive(value)
    scale = max(_SIGNIFICANT - _ln_weight(value), _scale(value), 0)
    return _rounded(value.ln(_working(scale + 10)), scale)


def _numeric_log(base: Decimal, value: Decimal) -> Decimal:
    _positive(base)
    _positive(value)
    if base == 1:
        raise PgError(SqlState.DIVISION_BY_ZERO, "division by zero")
    scale = max(_SIGNIFICANT - (_ln_weight(value) - _ln_weight(base)), _scale(base), _scale(value), 0)
    context = _working(scale + 10)
    return _rounded(context.divide(value.ln(context), base.ln(context)), scale)


def _numeric_log10(value: Decimal) -> Decimal:
    return _numeric_log(Decimal(10), value)


def _numeric_power(base: Decimal, exponent: Decimal) -> Decimal:
    whole = exponent == exponent.to_integral_value()
    if not base and exponent < 0:
        raise PgError(_POWER, "zero raised to a negative power is undefined")
    if base < 0 and not whole:
        raise PgError(_POWER, "a negative number raised to a non-integer power yields a complex result")
    weight = float(exponent) * math.log10(abs(base)) if base else 0.0
    if weight > 60:
        raise too_many_digits()
    scale = max(_SIGNIFICANT - int(max(weight, -2000)), _scale(base), _scale(exponent), 0)
    if not exponent:
        return _rounded(Decimal(1), scale)
    if not base or weight < -1000:
        return _rounded(Decimal(0), scale)
    return _rounded(_working(int(abs(weight)) + scale + 10).power(base, exponent), scale)


def _factorial(value: int) -> Decimal:
    if value < 0:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "factorial of a negative number is undefined")
    if value > 33:
        raise too_many_digits()
    return Decimal(math.factorial(value))


def _numeric_div(left: Decimal, right: Decimal) -> Decimal:
    if not right:
        raise PgError(SqlState.DIVISION_BY_ZERO, "division by zero")
    return _EXACT.divide_int(left, right)


def _as_integers(*values: Decimal) -> tuple[int, tuple[int, ...]]:
    """The larger scale, and both values as integers in units of its last digit."""
    scale = max(map(_scale, values))
    return scale, tuple(int(value.scaleb(scale, _EXACT)) for value in values)


def _numeric_gcd(left: Decimal, right: Decimal) -> Decimal:
    scale, units = _as_integers(left, right)
    return Decimal(math.gcd(*units)).scaleb(-scale, _EXACT)


def _numeric_lcm(left: Decimal, right: Decimal) -> Decimal:
    scale, units = _as_integers(left, right)
    return Decimal(math.lcm(*units)).scaleb(-scale, _EXACT)


def _trim_scale(value: Decimal) -> Decimal:
    return _rounded(value, _min_scale(value))


def _min_scale(value: Decimal) -> int:
    return _scale(value.normalize(_EXACT))


def _known_scale(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    if not isinstance(args[0], Literal) and args[0].type.precision is None:
        message = "the scale of a numeric without a declared scale is not supported"
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            message,
            hint="Use min_scale(), or cast the value to numeric(precision, scale) first.",
        )
    return args


for _name, _python in (("sqrt", _numeric_sqrt), ("exp", _numeric_exp), ("ln", _numeric_ln), ("log", _numeric_log10),
                       ("log10", _numeric_log10)):  # fmt: skip
    row(FUNCTIONS, _name, "numeric", "numeric", shape=_planned, python=_python)
row(FUNCTIONS, "log", "numeric numeric", "numeric", shape=_planned, python=_numeric_log)
for _table, _name in ((FUNCTIONS, "power"), (FUNCTIONS, "pow"), (OPERATORS, "^")):
    row(_table, _name, "numeric numeric", "numeric", shape=_planned, python=_numeric_power)
row(FUNCTIONS, "factorial", "int8", "numeric", shape=fixed(38), python=_factorial)
row(FUNCTIONS, "div", "numeric numeric", "numeric", shape=fixed(38), python=_numeric_div)


def _larger_scale(args: Sequence[Expression]) -> int:
    return max(arg.type.scale or 0 for arg in args)


for _name, _python2 in (("gcd", _numeric_gcd), ("lcm", _numeric_lcm)):
    row(FUNCTIONS, _name, "numeric numeric", "numeric", shape=lambda args: fixed(38, _larger_scale(args))(args),
        python=_python2)  # fmt: skip
row(FUNCTIONS, "scale", "numeric", "int4", python=_scale, prepare=_known_scale)
row(FUNCTIONS, "min_scale", "numeric", "int4", python=_min_scale)


def _trimmed_shape(args: Sequence[Expression]) -> Shape:
    """That of a bare numeric, whose text has no trailing zeros, unless the digits of the argument do not fit in it."""
    shape = shape_of(args[0])
    fits = shape.scale <= BARE_NUMERIC_SCALE and shape.whole + BARE_NUMERIC_SCALE <= NUMERIC_PRECISION_MAX
    return Shape(shape.whole + BARE_NUMERIC_SCALE, BARE_NUMERIC_SCALE) if fits else shape


def _trimmed(args: Sequence[Expression], texts: Sequence[str]) -> str:
    return fitted(args[0], texts[0], _trimmed_shape(args))


row(FUNCTIONS, "trim_scale", "numeric", "numeric", _trimmed, shape=_trimmed_shape, python=_trim_scale)

# -- integers -------------------------------------------------------------------------------------------------------


def _integer_gcd(name: str) -> Callable[[int, int], int]:
    return lambda left, right: in_range(name, math.gcd(left, right))


def _integer_lcm(name: str) -> Callable[[int, int], int]:
    return lambda left, right: in_range(name, math.lcm(left, right))


for _name in ("int4", "int8"):
    row(FUNCTIONS, "gcd", f"{_name} {_name}", _name, python=_integer_gcd(_name))
    row(FUNCTIONS, "lcm", f"{_name} {_name}", _name, python=_integer_lcm(_name))

# -- floats ---------------------------------------------------------------------------------------------------------


def _input_out_of_range() -> PgError:
    return PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")


def _checked(result: float, *arguments: float) -> float:
    """22003 if finite arguments yield a result that is not finite."""
    if math.isinf(result) and all(map(math.isfinite, arguments)):
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, _OVERFLOW)
    return result


def _float_sqrt(value: float) -> float:
    if value < 0:
        raise PgError(_POWER, "cannot take square root of a negative number")
    return math.sqrt(value)


def _float_exp(value: float) -> float:
    try:
        result = math.exp(value)
    except OverflowError:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, _OVERFLOW) from None
    if result == 0 and math.isfinite(value):
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, _UNDERFLOW)
    return result


def _float_log(function: Callable[[float], float]) -> Callable[[float], float]:
    def python(value: float) -> float:
        _positive(value)
        return function(value)

    return python


def _float_power(base: float, exponent: float) -> float:
    if base == 0 and exponent < 0:
        raise PgError(_POWER, "zero raised to a negative power is undefined")
    if base < 0 and math.isfinite(exponent) and exponent != math.floor(exponent):
        raise PgError(_POWER, "a negative number raised to a non-integer power yields a complex result")
    try:
        result = math.pow(base, exponent)
    except (OverflowError, ValueError):
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, _OVERFLOW) from None
    if result == 0 and base != 0 and math.isfinite(base) and math.isfinite(exponent):
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, _UNDERFLOW)
    return result


_FINITE = "abs({0}) < {inf}"
_PYTHON_LN, _PYTHON_LOG10 = _float_log(math.log), _float_log(math.log10)


def _logarithm(spark: str) -> str:
    inner = guarded("{0} < 0", _LOGARITHM, "cannot take logarithm of a negative number", spark)
    return guarded("{0} = 0", _LOGARITHM, "cannot take logarithm of zero", inner)


def _power_form(args: Sequence[Expression], texts: Sequence[str]) -> str:
    base, exponent = texts
    refusals = (
        (f"{base} = 0 AND {exponent} < 0", "zero raised to a negative power is undefined"),
        (f"{base} < 0 AND abs({exponent}) < CAST('Infinity' AS DOUBLE) AND {exponent} <> floor({exponent})",
         "a negative number raised to a non-integer power yields a complex result"),
    )  # fmt: skip
    text = f"CASE WHEN {base} = 1 OR {exponent} = 0 THEN 1D WHEN {base} = -1 AND abs({exponent}) = " + (
        "CAST('Infinity' AS DOUBLE) THEN 1D ELSE power({0}, {1}) END"
    )
    text = finite(text, f"{_FINITE} AND abs({{1}}) < {{inf}}", "{0} <> 0").format(base, exponent)
    for condition, message in refusals:
        text = guarded(condition, _POWER, message, text)
    return text


_SQRT = guarded("{0} < 0", _POWER, "cannot take square root of a negative number", "sqrt({0})")
for _table, _name in ((FUNCTIONS, "power"), (FUNCTIONS, "pow"), (OPERATORS, "^")):
    row(_table, _name, "float8 float8", "float8", _power_form, python=_float_power)
for _table, _name in ((FUNCTIONS, "sqrt"), (OPERATORS, "|/")):
    row(_table, _name, "float8", "float8", _SQRT, python=_float_sqrt)
for _table, _name in ((FUNCTIONS, "cbrt"), (OPERATORS, "||/")):
    row(_table, _name, "float8", "float8", python=math.cbrt)
row(FUNCTIONS, "exp", "float8", "float8", finite("exp({0})", _FINITE, "true"), python=_float_exp)
row(FUNCTIONS, "ln", "float8", "float8", _logarithm("ln({0})"), python=_PYTHON_LN)
for _name in ("log", "log10"):
    row(FUNCTIONS, _name, "float8", "float8", _logarithm("log10({0})"), python=_PYTHON_LOG10)
row(FUNCTIONS, "pi", "", "float8", "3.141592653589793D", python=lambda: math.pi)

# -- trigonometry ---------------------------------------------------------------------------------------------------

_RADIANS = 0.0174532925199432957692  # one degree


def _circular(function: Callable[[float], float]) -> Callable[[float], float]:
    def python(value: float) -> float:
        if math.isinf(value):
            raise _input_out_of_range()
        return function(value)

    return python


def _cot(value: float) -> float:
    tangent = math.tan(value)
    return 1 / tangent if tangent else math.copysign(math.inf, tangent)


def _inverse(function: Callable[[float], float], low: float, high: float) -> Callable[[float], float]:
    def python(value: float) -> float:
        if not math.isnan(value) and not low <= value <= high:
            raise _input_out_of_range()
        return function(value)

    return python


def _hyperbolic(function: Callable[[float], float], negative: float) -> Callable[[float], float]:
    def python(value: float) -> float:
        try:
            return function(value)
        except OverflowError:
            return math.inf if value > 0 else negative

    return python


def _atanh(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) == 1 else math.atanh(value)


# Degrees: like PostgreSQL, scales by the C library's own values, so that sind(30) is exactly 0.5.
_SIN_30, _ONE_MINUS_COS_60 = math.sin(30 * _RADIANS), 1 - math.cos(60 * _RADIANS)
_ASIN_HALF, _ACOS_HALF, _ATAN_1 = math.asin(0.5), math.acos(0.5), math.atan(1.0)


def _sind_q1(degrees: float) -> float:
    return _cosd_to_60(90 - degrees) if degrees > 30 else _sind_to_30(degrees)


def _cosd_q1(degrees: float) -> float:
    return _sind_to_30(90 - degrees) if degrees > 60 else _cosd_to_60(degrees)


def _sind_to_30(degrees: float) -> float:
    return (math.sin(degrees * _RADIANS) / _SIN_30) / 2


def _cosd_to_60(degrees: float) -> float:
    return 1 - ((1 - math.cos(degrees * _RADIANS)) / _ONE_MINUS_COS_60) / 2


_TAN_45, _COT_45 = _sind_q1(45) / _cosd_q1(45), _cosd_q1(45) / _sind_q1(45)


def _quadrant(degrees: float) -> tuple[float, bool, bool, bool]:
    """The angle reduced to the first quadrant; whether it was negative, in the lower half, in the left half."""
    angle = math.fmod(degrees, 360)
    negative = angle < 0
    angle = -angle if negative else angle
    lower = angle > 180
    angle = 360 - angle if lower else angle
    left = angle > 90
    return (180 - angle if left else angle), negative, lower, left


def _sind(degrees: float) -> float:
    angle, negative, lower, _ = _quadrant(degrees)
    return -_sind_q1(angle) if negative != lower else _sind_q1(angle)


def _cosd(degrees: float) -> float:
    angle, _, _, left = _quadrant(degrees)
    return -_cosd_q1(angle) if left else _cosd_q1(angle)


def _ratio(over: Callable[[float], float], under: Callable[[float], float], unit: float) -> Callable[[float], float]:
    def python(degrees: float) -> float:
        angle, negative, lower, left = _quadrant(degrees)
        below = under(angle)
        ratio = (over(angle) / below if below else math.inf) / unit
        if (negative != lower) != left:
            ratio = -ratio
        return ratio if ratio else 0.0

    return python


def _asind_q1(value: float) -> float:
    return math.asin(value) / _ASIN_HALF * 30 if value <= 0.5 else 90 - math.acos(value) / _ACOS_HALF * 60


def _acosd_q1(value: float) -> float:
    return 90 - math.asin(value) / _ASIN_HALF * 30 if value <= 0.5 else math.acos(value) / _ACOS_HALF * 60


def _asind(value: float) -> float:
    return _asind_q1(value) if value >= 0 else -_asind_q1(-value)


def _acosd(value: float) -> float:
    return _acosd_q1(value) if value >= 0 else 90 + _asind_q1(-value)


for _name, _float in {
    "sin": _circular(math.sin), "cos": _circular(math.cos), "tan": _circular(math.tan), "cot": _circular(_cot),
    "asin": _inverse(math.asin, -1, 1), "acos": _inverse(math.acos, -1, 1), "atan": math.atan,
    "sinh": _hyperbolic(math.sinh, -math.inf), "cosh": _hyperbolic(math.cosh, math.inf), "tanh": math.tanh,
    "asinh": math.asinh, "acosh": _inverse(math.acosh, 1, math.inf), "atanh": _inverse(_atanh, -1, 1),
    "sind": _circular(_sind), "cosd": _circular(_cosd), "tand": _circular(_ratio(_sind_q1, _cosd_q1, _TAN_45)),
    "cotd": _circular(_ratio(_cosd_q1, _sind_q1, _COT_45)), "asind": _inverse(_asind, -1, 1),
    "acosd": _inverse(_acosd, -1, 1), "atand": lambda value: math.atan(value) / _ATAN_1 * 45,
    "degrees": lambda value: _checked(value / _RADIANS, value), "radians": lambda value: value * _RADIANS,
    "erf": math.erf, "erfc": math.erfc,
}.items():  # fmt: skip
    row(FUNCTIONS, _name, "float8", "float8", python=_float)
row(FUNCTIONS, "atan2", "float8 float8", "float8", python=math.atan2)
row(FUNCTIONS, "atan2d", "float8 float8", "float8", python=lambda y, x: math.atan2(y, x) / _ATAN_1 * 45)

# -- histograms -----------------------------------------------------------------------------------------------------

_BUCKET = SqlState.INVALID_ARGUMENT_FOR_WIDTH_BUCKET_FUNCTION


def _width_bucket(value: float | Decimal, low: float | Decimal, high: float | Decimal, count: int) -> int:
    if count <= 0:
        raise PgError(_BUCKET, "count must be greater than zero")
    if any(map(math.isnan, (value, low, high))):
        raise PgError(_BUCKET, "operand, lower bound, and upper bound cannot be NaN")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise PgError(_BUCKET, "lower and upper bounds must be finite")
    if low == high:
        raise PgError(_BUCKET, "lower bound cannot equal upper bound")
    if (value < low) if low < high else (value > low):
        return 0
    if (value >= high) if low < high else (value <= high):
        return in_range("int4", count + 1)
    if isinstance(value, Decimal):
        return _numeric_bucket(value, Decimal(low), Decimal(high), count)
    first, last = float(low), float(high)
    if math.isinf(last - first):
        value, first, last = value / 2, first / 2, last / 2
    part = (value - first) / (last - first)
    return min(int(count * part) + 1, count)


def _numeric_bucket(value: Decimal, low: Decimal, high: Decimal, count: int) -> int:
    """compute_bucket(): multiplies before it divides; the quotient is rounded like PostgreSQL's."""
    over, under = _EXACT.multiply(_EXACT.subtract(value, low), Decimal(count)), _EXACT.subtract(high, low)
    quotient = _rounded(_EXACT.divide(over, under), _division_scale(abs(over), abs(under)))
    return min(int(quotient) + 1, count)


def _division_scale(over: Decimal, under: Decimal) -> int:
    """select_div_scale(): the scale of the quotient of two non-negative numbers."""
    first, second = (int(value.scaleb(-4 * _weight(value), _EXACT)) for value in (over, under))
    weight = _weight(over) - _weight(under) - (first <= second)
    return max(_SIGNIFICANT - weight * 4, _scale(over), _scale(under), 0)


row(FUNCTIONS, "width_bucket", "float8 float8 float8 int4", "int4", python=_width_bucket)
row(FUNCTIONS, "width_bucket", "numeric numeric numeric int4", "int4", python=_width_bucket)
