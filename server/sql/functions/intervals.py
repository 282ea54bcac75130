"""Intervals (chapter 9.9): arithmetic, order, justification. Ports of src/backend/utils/adt/timestamp.c, version 16.

In Spark an interval is a struct {months, days, us}. Intervals are compared by `interval_length`: a month counts as 30
days and a day as 24 hours, so that '1 mon' equals '30 days'.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.interval_input import interval_of, parse_interval
from protocol.pgwire.types import INTERVAL, NUMERIC_PRECISION_MAX, bare_numeric
from server.sql.casts import DAY_US
from server.sql.expressions import Call, Expression, Literal
from server.sql.functions.table import COMPARISONS, FUNCTIONS, OPERATORS, SYNTAX, Form, Function, Nulls, fail, let, row

MONTH_DAYS = 30
_INT32, _INT64 = 1 << 31, 1 << 63


def out_of_range() -> PgError:
    return PgError(SqlState.DATETIME_FIELD_OVERFLOW, "interval out of range")


def parts(value: Any) -> tuple[int, int, int]:
    """Months, days, microseconds."""
    months, days, nanoseconds = value
    return months, days, nanoseconds // 1_000


def interval(months: int, days: int, us: int) -> Any:
    """The Python scalar. 22008 if months or days are out of range."""
    if not (-_INT32 <= days < _INT32 and -_INT32 <= months < _INT32):
        raise out_of_range()
    return interval_of(months, days, us)


def length(value: Any) -> int:
    """The interval in microseconds; a month counts as 30 days."""
    months, days, us = parts(value)
    return (months * MONTH_DAYS + days) * DAY_US + us


def interval_length(text: str) -> str:
    """`length` in Spark SQL, a DECIMAL(38,0)."""
    days = f"CAST(({text}).months AS BIGINT) * {MONTH_DAYS} + ({text}).days"
    return f"CAST(CAST({days} AS DECIMAL(18,0)) * {DAY_US}BD + ({text}).us AS DECIMAL(38,0))"


def from_parts(months: str, days: str, us: str) -> str:
    """Spark SQL for an interval; the arguments are SQL of BIGINTs."""
    struct = f"named_struct('months', {months}, 'days', {days}, 'us', {us})"
    return f"CAST({struct} AS STRUCT<months: INT, days: INT, us: BIGINT>)"


# -- order ----------------------------------------------------------------------------------------------------------


def _comparison(symbol: str) -> tuple[Callable[[Sequence[Expression], Sequence[str]], str], Callable[[Any, Any], bool]]:
    compare = COMPARISONS[symbol]
    return (
        lambda args, texts: f"({interval_length(texts[0])} {symbol} {interval_length(texts[1])})",
        lambda a, b: compare(length(a), length(b)),
    )


for _symbol in COMPARISONS:
    _spark, _python = _comparison(_symbol)
    row(OPERATORS, _symbol, "interval interval", "bool", _spark, python=_python)


# -- arithmetic -----------------------------------------------------------------------------------------------------


def negated(value: Any) -> Any:
    months, days, us = parts(value)
    return interval(-months, -days, -us)


def _added(a: Any, b: Any) -> Any:
    return interval(*map(operator.add, parts(a), parts(b)))


def _to_int32(value: float) -> int:
    if not -_INT32 <= value < _INT32:  # also rejects NaN
        raise out_of_range()
    return int(value)


def _microsecond(seconds: float) -> float:
    """TSROUND()."""
    return _rint(seconds * 1e6) / 1e6


def _rint(value: float) -> float:
    return float(round(value)) if math.isfinite(value) else value


def _scaled(value: Any, scale: Callable[[float], float]) -> Any:
    """interval_mul() and interval_div(): fractions of months become days, fractions of days become seconds."""
    months, days, us = parts(value)
    new_months, new_days = _to_int32(scale(months)), _to_int32(scale(days))
    month_rest = _microsecond((scale(months) - new_months) * MONTH_DAYS)
    seconds = _microsecond((scale(days) - new_days + month_rest - int(month_rest)) * 86_400)
    if abs(seconds) >= 86_400:
        new_days += int(seconds / 86_400)
        seconds -= int(seconds / 86_400) * 86_400
    new_us = _rint(scale(us) + seconds * 1e6)
    if not -_INT64 <= new_us < _INT64:
        raise out_of_range()
    return interval(new_months, new_days + int(month_rest), int(new_us))


def _multiplied(value: Any, factor: float) -> Any:
    return _scaled(value, lambda part: part * factor)


def divided(value: Any, divisor: float) -> Any:
    if divisor == 0:
        raise PgError(SqlState.DIVISION_BY_ZERO, "division by zero")
    return _scaled(value, lambda part: part / divisor)


def _spark_multiplied(span: int) -> Form:
    """An interval constant without months and days, argument `span`, times a number."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        value = args[span]
        if not isinstance(value, Literal) or not has_only_time(value):
            return ""
        us = f"rint(CAST({parts(value.value)[2]}L AS DOUBLE) * {texts[1 - span]})"
        limit = f"CAST({_INT64}BD AS DOUBLE)"

        def result(r: str) -> str:
            product = from_parts("0", "0", f"CAST({r} AS BIGINT)")
            error = fail(SqlState.DATETIME_FIELD_OVERFLOW, "interval out of range")
            in_range = f"{r} >= -{limit} AND {r} < {limit}"
            return f"CASE WHEN {r} IS NULL THEN NULL WHEN {in_range} THEN {product} ELSE {error} END"

        return let(us, result)

    return form


def has_only_time(expression: Expression) -> bool:
    """Whether an interval certainly has no months and days."""
    match expression:
        case Literal(value=value):
            return value is not None and parts(value)[:2] == (0, 0)
        case Call(function=function, arguments=arguments) if function in _MULTIPLICATIONS:
            return any(argument.type == INTERVAL and has_only_time(argument) for argument in arguments)
    return False


row(OPERATORS, "+", "interval interval", "interval", python=_added)
row(OPERATORS, "-", "interval interval", "interval", python=lambda a, b: _added(a, negated(b)))
row(OPERATORS, "-", "interval", "interval", python=negated)
row(OPERATORS, "*", "interval float8", "interval", _spark_multiplied(0), python=_multiplied)
row(OPERATORS, "*", "float8 interval", "interval", _spark_multiplied(1), python=lambda factor, value: _multiplied(
    value, factor))  # fmt: skip
_MULTIPLICATIONS = tuple(OPERATORS["*"][-2:])
row(OPERATORS, "/", "interval float8", "interval", python=divided)


# -- aggregates and extremes ----------------------------------------------------------------------------------------


def extreme(function: str, texts: Sequence[str], step: int = 0) -> str:
    """Spark SQL for `function` of intervals by their length.

    Of equal lengths the first in `texts` is chosen if `step` is 1 (least) or -1 (greatest). With `step` 0, for
    aggregates, the choice among equal lengths is deterministic.
    """
    keyed = (
        f"IF({t} IS NULL, NULL, named_struct('t', {interval_length(t)}, 'place', {step * i}, 'v', {t}))"
        for i, t in enumerate(texts)
    )
    return f"({function.replace('{}', ', '.join(keyed))}).v"


def _of_several(name: str, choose: Callable[..., Any]) -> Function:
    def spark(args: Sequence[Expression], texts: Sequence[str]) -> str:
        return extreme(f"{name}({{}})", texts, 1 if choose is min else -1)

    def python(*values: Any) -> Any:
        return choose((v for v in values if v is not None), key=length, default=None)

    return Function(name, (INTERVAL,), INTERVAL, spark, nulls=Nulls.MAYBE, python=python)


EXTREMES = {"greatest": _of_several("greatest", max), "least": _of_several("least", min)}
SYNTAX.update({name: [function] for name, function in EXTREMES.items()})
_LENGTH = Function("length", (INTERVAL,), bare_numeric(0), lambda args, texts: interval_length(texts[0]))


def length_of(expression: Expression) -> Call:
    """A number with the order and equality of the interval."""
    return Call(_LENGTH, (expression,), bare_numeric(0), expression.nullable, NUMERIC_PRECISION_MAX)


_US_MAX = (_INT64 - 1) // 1_000
_SUM_BOUNDS = {"months": (-_INT32, _INT32 - 1), "days": (-_INT32, _INT32 - 1), "us": (-_US_MAX, _US_MAX)}
_SUMS = ", ".join(f"'{part}', sum(CAST({{0}}.{part} AS DECIMAL(28,0))){{f}}" for part in _SUM_BOUNDS)


def _bounded(name: str) -> str:
    """Spark SQL for a field of the sum s; raises an error if it is out of range."""
    least, most = _SUM_BOUNDS[name]
    error = fail(SqlState.DATETIME_FIELD_OVERFLOW, "interval out of range")
    return f"IF(s.{name} NOT BETWEEN {least}BD AND {most}BD, {error}, CAST(s.{name} AS BIGINT))"


def _let(name: str, value: str, form: str) -> str:
    return f"get(transform(array({value}), {name} -> {form}), 0)"


def _divided_sum() -> str:
    """Spark SQL for the sum divided by the number of values, like interval_div()."""
    quotient = {part: f"(CAST({_bounded(part)} AS DOUBLE) / s.n)" for part in _SUM_BOUNDS}
    whole = {part: f"CAST({quotient[part]} AS BIGINT)" for part in ("months", "days")}
    rest = f"(rint(({quotient['months']} - {whole['months']}) * {MONTH_DAYS} * 1e6D) / 1e6D)"
    seconds = f"rint(({quotient['days']} - {whole['days']} + m - CAST(m AS BIGINT)) * 86400 * 1e6D) / 1e6D"
    more = "IF(abs(e) >= 86400, CAST(e / 86400 AS BIGINT), 0L)"
    days = f"{whole['days']} + {more} + CAST(m AS BIGINT)"
    us = f"CAST(rint({quotient['us']} + (e - {more} * 86400) * 1e6D) AS BIGINT)"
    return _let("m", rest, _let("e", seconds, from_parts(whole["months"], days, us)))


_ALL_SUMS = f"named_struct({_SUMS}, 'n', count({{0}}){{f}})"
SUM = _let("s", _ALL_SUMS, f"IF(s.n = 0, NULL, {from_parts(*map(_bounded, _SUM_BOUNDS))})")
AVERAGE = _let("s", _ALL_SUMS, f"IF(s.n = 0, NULL, {_divided_sum()})")


# -- justification --------------------------------------------------------------------------------------------------


def _carried(small: int, large: int, size: int) -> tuple[int, int]:
    """Moves whole `size`s from `small` to `large`, then gives both the same sign where possible."""
    quotient = abs(small) // size * _sign(small)
    small, large = small - quotient * size, large + quotient
    if large > 0 > small:
        return small + size, large - 1
    if large < 0 < small:
        return small - size, large + 1
    return small, large


def _sign(value: int) -> int:
    return -1 if value < 0 else 1


def justified_hours(value: Any) -> Any:
    months, days, us = parts(value)
    us, days = _carried(us, days, DAY_US)
    return interval(months, days, us)


def _justified_days(value: Any) -> Any:
    months, days, us = parts(value)
    days, months = _carried(days, months, MONTH_DAYS)
    return interval(months, days, us)


def _justified(value: Any) -> Any:
    """interval_justify_interval(): hours to days, days to months; all fields get the same sign."""
    months, days, us = parts(value)
    whole = abs(us) // DAY_US * _sign(us)
    days, us = days + whole, us - whole * DAY_US
    whole = abs(days) // MONTH_DAYS * _sign(days)
    months, days = months + whole, days - whole * MONTH_DAYS
    if months > 0 and (days < 0 or (days == 0 and us < 0)):
        days, months = days + MONTH_DAYS, months - 1
    elif months < 0 and (days > 0 or (days == 0 and us > 0)):
        days, months = days - MONTH_DAYS, months + 1
    if days > 0 and us < 0:
        us, days = us + DAY_US, days - 1
    elif days < 0 and us > 0:
        us, days = us - DAY_US, days + 1
    return interval(months, days, us)


row(FUNCTIONS, "justify_hours", "interval", "interval", python=justified_hours)
row(FUNCTIONS, "justify_days", "interval", "interval", python=_justified_days)
row(FUNCTIONS, "justify_interval", "interval", "interval", python=_justified)
row(FUNCTIONS, "isfinite", "interval", "bool", "IF({0} IS NULL, NULL, true)", python=lambda value: True)


# -- construction ---------------------------------------------------------------------------------------------------

MAKE_INTERVAL = ("years", "months", "weeks", "days", "hours", "mins", "secs")
"""The names of make_interval()'s arguments. Each defaults to 0."""


def _made(
    years: int = 0, months: int = 0, weeks: int = 0, days: int = 0, hours: int = 0, mins: int = 0, secs: float = 0.0
) -> Any:
    if not abs(secs) < 2**63:  # also rejects NaN
        raise out_of_range()
    us = (hours * 3_600 + mins * 60) * 1_000_000 + round(secs * 1e6)
    return interval(years * 12 + months, weeks * 7 + days, us)


def positional(arguments: list[exp.Expr]) -> list[exp.Expr]:
    """The positional arguments of a call like make_interval(days => 3). 42601, 42883"""
    named = [a for a in arguments if isinstance(a, exp.Kwarg)]
    if not named:
        return arguments
    plain = [a for a in arguments if not isinstance(a, exp.Kwarg)]
    if arguments[: len(plain)] != plain:
        raise PgError(SqlState.SYNTAX_ERROR, "positional argument cannot follow named argument")
    given = {a.this.name.lower(): a.expression for a in named}
    if len(given) < len(named):
        raise PgError(SqlState.SYNTAX_ERROR, "argument name used more than once")
    rest = MAKE_INTERVAL[len(plain) :]
    if not given.keys() <= set(rest):
        raise PgError(SqlState.UNDEFINED_FUNCTION, "function make_interval has no such arguments")
    return plain + [given.get(name) or exp.Literal.number(0) for name in rest]


for _count in range(len(MAKE_INTERVAL) + 1):
    _arguments = ["int4"] * min(_count, 6) + ["float8"] * (_count == 7)
    row(FUNCTIONS, "make_interval", " ".join(_arguments), "interval", python=_made)


_CUTS = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1}


def with_fields(text: str, fields: str) -> Any:
    """INTERVAL 'text' YEAR TO MONTH etc.: the last field is the unit of a bare number and the smallest field kept."""
    least = fields.rpartition(" ")[2]
    found = parse_interval(text, least.lower(), minutes_first=fields == "MINUTE TO SECOND")
    months, days, us = parts(found)
    if least in _CUTS:
        return interval(months, days, us - _remainder(us, _CUTS[least]))
    if least == "DAY":
        return interval(months, days, 0)
    return interval(months - (_remainder(months, 12) if least == "YEAR" else 0), 0, 0)


def _remainder(value: int, size: int) -> int:
    return abs(value) % size * _sign(value)
