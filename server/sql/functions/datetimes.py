"""Dates, times and timestamps (chapter 9.9): operators, time zones, make_*. `datetime_fields` has their fields.

Ports of src/backend/utils/adt/{date,timestamp}.c, version 16. Spark forms are for UTC. In a session with another time
zone, a row of the function table that depends on the zone is computed in Python.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from datetime import timedelta, tzinfo
from datetime import timezone as fixed_zone
from functools import partial
from itertools import product
from typing import Any

from protocol.pgwire.datetime_input import DATE_END, DATE_MIN, zone_abbreviation
from protocol.pgwire.datetime_output import (
    INFINITY,
    MINUS_INFINITY,
    civil_from_days,
    days_from_civil,
    days_in_month,
    interval_text,
)
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.timezones import SECOND_US, Abbreviation, local_offset, offset_at, zone
from protocol.pgwire.types import DATE, TIMESTAMP, scalar
from server.sql.casts import DAY_US, date_to_timestamp, find_cast, in_range, instant, local_time, rounded_seconds
from server.sql.expressions import Expression, Literal
from server.sql.functions.intervals import from_parts, has_only_time, interval, negated, out_of_range, parts
from server.sql.functions.table import (
    COMPARISONS,
    FUNCTIONS,
    LIKE_FINITE,
    OPERATORS,
    Form,
    Infinite,
    Nulls,
    fail,
    let,
    no_infinity,
    row,
    same_infinity,
)
from server.sql.infinities import is_infinite, spark_is_infinite

OVERFLOW = SqlState.DATETIME_FIELD_OVERFLOW
_TIMESTAMP_MIN = DATE_MIN * DAY_US
_TIMESTAMP_END = days_from_civil(294_277, 1, 1) * DAY_US  # PostgreSQL's limit; Arrow's is a few decades earlier

# -- comparison -----------------------------------------------------------------------------------------------------

_INSTANTS: dict[str, Callable[[int, tzinfo], int]] = {
    "date": lambda value, where: value * DAY_US - local_offset(where, value * DAY_US) * SECOND_US,
    "timestamp": lambda value, where: value - local_offset(where, value) * SECOND_US,
    "timestamptz": lambda value, where: value,
}


def _sign_of_infinity(type: str, value: int) -> int:
    """1 for infinity, -1 for -infinity, 0 for a finite value."""
    return (value > 0) - (value < 0) if is_infinite(scalar(type), value) else 0


def _mixed(left: str, right: str, finite: Callable[..., bool], compare: Callable[..., bool]) -> Callable[..., bool]:
    """A comparison of two types, of which `finite` compares the finite values. A date may be after all timestamps."""

    def python(a: int, b: int, **timezone: str) -> bool:
        signs = _sign_of_infinity(left, a), _sign_of_infinity(right, b)
        return compare(*signs) if signs != (0, 0) else finite(a, b, **timezone)

    return python


def _comparison(symbol: str, left: str, right: str) -> Callable[..., bool]:
    compare = COMPARISONS[symbol]
    if left == right:
        return compare
    if "timestamptz" not in (left, right):
        days = tuple(DAY_US if side == "date" else 1 for side in (left, right))
        return _mixed(left, right, lambda a, b: compare(a * days[0], b * days[1]), compare)

    def zoned(a: int, b: int, timezone: str) -> bool:
        where = zone(timezone)
        return compare(_INSTANTS[left](a, where), _INSTANTS[right](b, where))

    return _mixed(left, right, zoned, compare)


def _compared(symbol: str, left: str, right: str) -> str | Form:
    """Spark casts a date to a timestamp by itself, but not an infinite one."""
    if (left == "date") == (right == "date"):
        return f"({{0}} {symbol} {{1}})"
    position, other = (0, scalar(right)) if left == "date" else (1, scalar(left))
    cast = find_cast(DATE, other)
    assert cast is not None
    template = (cast.spark or "").replace("{t}", "TIMESTAMP_NTZ" if other == TIMESTAMP else "TIMESTAMP_LTZ")

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        both = list(texts)
        both[position] = let(texts[position], lambda name: template.replace("{0}", name), "c")
        return f"({both[0]} {symbol} {both[1]})"

    return form


for _symbol in COMPARISONS:
    for _a, _b in (*product(_INSTANTS, repeat=2), ("time", "time")):
        row(OPERATORS, _symbol, f"{_a} {_b}", "bool", _compared(_symbol, _a, _b), infinite=LIKE_FINITE,
            zoned=(_a == "timestamptz") != (_b == "timestamptz"), python=_comparison(_symbol, _a, _b))  # fmt: skip


# -- addition and subtraction ---------------------------------------------------------------------------------------


def _date(days: int) -> int:
    if not DATE_MIN <= days < DATE_END:
        raise PgError(OVERFLOW, "date out of range")
    return days


def _moved_date(symbol: str, date: int, count: int) -> Form:
    """Checks the range: Spark's date_add() overflows silently."""
    error = fail(OVERFLOW, "date out of range")
    body = f"IF({{r}} NOT BETWEEN {DATE_MIN}L AND {DATE_END - 1}L, {error}, date_from_unix_date(CAST({{r}} AS INT)))"
    return lambda args, texts: let(
        f"CAST(unix_date({texts[date]}) AS BIGINT) {symbol} {texts[count]}", lambda r: body.replace("{r}", r)
    )


row(OPERATORS, "+", "date int4", "date", _moved_date("+", 0, 1), python=lambda date, days: _date(date + days),
    infinite=same_infinity(0, "date", "date"))  # fmt: skip
row(OPERATORS, "+", "int4 date", "date", _moved_date("+", 1, 0), python=lambda days, date: _date(date + days),
    infinite=same_infinity(1, "date", "date"))  # fmt: skip
row(OPERATORS, "-", "date int4", "date", _moved_date("-", 0, 1), python=lambda date, days: _date(date - days),
    infinite=same_infinity(0, "date", "date"))  # fmt: skip
row(OPERATORS, "-", "date date", "int4", "datediff({0}, {1})", python=operator.sub,
    infinite=no_infinity(OVERFLOW, "cannot subtract infinite dates"))  # fmt: skip


def _possible(us: int) -> int:
    """An intermediate result must fit in PostgreSQL's own type."""
    if not _TIMESTAMP_MIN <= us < _TIMESTAMP_END:
        raise PgError(OVERFLOW, "timestamp out of range")
    return us


def _months_later(us: int, months: int) -> int:
    """The same day of another month, or that month's last day."""
    days, of_day = divmod(us, DAY_US)
    year, month, day = civil_from_days(days)
    more, month = divmod(month - 1 + months, 12)
    year, month = year + more, month + 1
    return _possible(days_from_civil(year, month, min(day, days_in_month(year, month))) * DAY_US + of_day)


def moved(us: int, span: Any) -> int:
    """timestamp_pl_interval()."""
    months, days, rest = parts(span)
    if months:
        us = _months_later(us, months)
    if days:
        us = _possible(us + days * DAY_US)
    return in_range(us + rest)


def moved_in(us: int, span: Any, where: tzinfo) -> int:
    """timestamptz_pl_interval(): months and days are counted in the zone's local time."""
    months, days, rest = parts(span)
    if months:
        local = _months_later(us + offset_at(where, us) * SECOND_US, months)
        us = _possible(local - local_offset(where, local) * SECOND_US)
    if days:
        local = us + offset_at(where, us) * SECOND_US + days * DAY_US
        us = _possible(local - local_offset(where, local) * SECOND_US)
    return in_range(us + rest)


def _moved(symbol: str, point: int, span: int, type: str) -> Form:
    """Adds an interval that is constant when the query is planned and is not very long, or has no months and days."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        value = args[span]
        if not isinstance(value, Literal):
            return _moved_by_time(symbol, texts[point], texts[span], type) if has_only_time(value) else ""
        if value.value is None:
            return ""
        months, days, us = parts(value.value if symbol == "+" else negated(value.value))
        reach = (abs(months) * 31 + abs(days) + 1) * DAY_US + abs(us)
        if reach > 1_000_000 * DAY_US:
            return ""
        steps = "{r}"
        if months:
            steps += f" + make_ym_interval(0, {months})"
        if days:
            steps += f" + make_dt_interval({days}, 0, 0, 0)"
        if us:
            steps += f" + make_dt_interval(0, 0, 0, CAST({us}L AS DECIMAL(18,0)) * 0.000001BD)"
        low, high = _TIMESTAMP_MIN + reach, (1 << 63) - 1 - reach
        beyond = f"unix_micros(CAST({{r}} AS TIMESTAMP_LTZ)) NOT BETWEEN {low}L AND {high}L"
        body = f"IF({beyond}, {fail(OVERFLOW, 'timestamp out of range')}, {steps})"
        return let(f"CAST({texts[point]} AS {type})", lambda r: body.replace("{r}", r))

    return form


def _moved_by_time(symbol: str, point: str, span: str, type: str) -> str:
    point = f"CAST({point} AS {type})"
    operation = "try_add" if symbol == "+" else "try_subtract"
    us = f"{operation}(unix_micros(CAST({point} AS TIMESTAMP_LTZ)), ({span}).us)"
    absent = f"({point}) IS NULL OR ({span}).us IS NULL"
    error = fail(OVERFLOW, "timestamp out of range")
    return let(
        f"IF({absent}, NULL, coalesce({us}, {_TIMESTAMP_MIN - 1}L))",
        lambda r: f"IF({r} < {_TIMESTAMP_MIN}L OR {r} = {INFINITY}L, {error}, CAST(timestamp_micros({r}) AS {type}))",
    )


def _signed(symbol: str, span: Any) -> Any:
    return span if symbol == "+" else negated(span)


def _operations(symbol: str) -> tuple[Callable[..., int], Callable[..., int], Callable[..., int], Callable[..., int]]:
    return (
        lambda date, span: moved(date_to_timestamp(date), _signed(symbol, span)),
        lambda us, span: moved(us, _signed(symbol, span)),
        lambda us, span, timezone: moved_in(us, _signed(symbol, span), zone(timezone)),
        lambda time, span: (time + parts(_signed(symbol, span))[2]) % DAY_US,
    )


def _swapped(python: Callable[..., int]) -> Callable[..., int]:
    return lambda span, value, **zone: python(value, span, **zone)


for _symbol in "+-":
    _to_date, _to_timestamp, _to_timestamptz, _to_time = _operations(_symbol)
    for _type, _result, _spark, _python in (
        ("date", "timestamp", "TIMESTAMP_NTZ", _to_date),
        ("timestamp", "timestamp", "TIMESTAMP_NTZ", _to_timestamp),
        ("timestamptz", "timestamptz", "TIMESTAMP_LTZ", _to_timestamptz),
        ("time", "time", "", _to_time),
    ):
        _zoned = _type == "timestamptz"
        row(OPERATORS, _symbol, f"{_type} interval", _result, _moved(_symbol, 0, 1, _spark) if _spark else None,
            python=_python, zoned=_zoned, infinite=same_infinity(0, _type, _result))  # fmt: skip
        if _symbol == "+":
            row(OPERATORS, _symbol, f"interval {_type}", _result, _moved(_symbol, 1, 0, _spark) if _spark else None,
                python=_swapped(_python), zoned=_zoned, infinite=same_infinity(1, _type, _result))  # fmt: skip
row(OPERATORS, "+", "date time", "timestamp", infinite=same_infinity(0, "date", "timestamp"),
    python=lambda date, time: in_range(date_to_timestamp(date) + time))  # fmt: skip
row(OPERATORS, "+", "time date", "timestamp", infinite=same_infinity(1, "date", "timestamp"),
    python=lambda time, date: in_range(date_to_timestamp(date) + time))  # fmt: skip
row(OPERATORS, "-", "time time", "interval", python=lambda a, b: interval(0, 0, a - b))


def _difference(a: int, b: int) -> Any:
    """Whole days and the remainder."""
    if abs(a - b) >= 1 << 63:
        raise out_of_range()
    sign = -1 if a < b else 1
    days, us = divmod(abs(a - b), DAY_US)
    return interval(0, sign * days, sign * us)


def _spark_difference(args: Sequence[Expression], texts: Sequence[str]) -> str:
    a, b = (f"unix_micros(CAST({text} AS TIMESTAMP_LTZ))" for text in texts)
    us = f"IF({texts[0]} IS NULL OR {texts[1]} IS NULL, NULL, coalesce(try_subtract({a}, {b}), "
    us += f"{fail(OVERFLOW, 'interval out of range')}))"
    return let(us, lambda r: f"IF({r} IS NULL, NULL, {from_parts('0', f'{r} div {DAY_US}L', f'{r} % {DAY_US}L')})")


for _type in ("timestamp", "timestamptz"):
    row(OPERATORS, "-", f"{_type} {_type}", "interval", _spark_difference, python=_difference,
        infinite=no_infinity(OVERFLOW, "cannot subtract infinite timestamps"))  # fmt: skip


def _age(a: int, b: int) -> Any:
    """timestamp_age(): calendar years, months and days."""
    sign = 1
    later, earlier = a, b
    if a < b:
        sign, later, earlier = -1, b, a
    (later_days, later_us), (earlier_days, earlier_us) = divmod(later, DAY_US), divmod(earlier, DAY_US)
    year, month, day = civil_from_days(later_days)
    from_year, from_month, from_day = civil_from_days(earlier_days)
    months, days, us = (year - from_year) * 12 + month - from_month, day - from_day, later_us - earlier_us
    if us < 0:
        us, days = us + DAY_US, days - 1
    while days < 0:
        days, months = days + days_in_month(from_year, from_month), months - 1
    return interval(sign * months, sign * days, sign * us)


_NO_AGE = no_infinity(OVERFLOW, "timestamp out of range")
row(FUNCTIONS, "age", "timestamp timestamp", "interval", python=_age, infinite=_NO_AGE)
row(FUNCTIONS, "age", "timestamptz timestamptz", "interval", zoned=True, infinite=_NO_AGE,
    python=lambda a, b, timezone: _age(local_time(a, zone(timezone)), local_time(b, zone(timezone))))  # fmt: skip


def _binned(stride: Any, source: int, origin: int) -> int:
    months, days, us = parts(stride)
    if months:
        message = "timestamps cannot be binned into intervals containing months or years"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
    size = days * DAY_US + us
    if size <= 0:
        raise PgError(OVERFLOW, "stride must be greater than zero")
    if abs(source - origin) >= 1 << 63:
        raise out_of_range()
    return in_range(origin + (source - origin) // size * size)


def _infinitely_binned(stride: Any, source: int, origin: int) -> int:
    if not is_infinite(TIMESTAMP, source):
        raise PgError(OVERFLOW, "origin out of range")
    return source


def _is_finite(type: str) -> tuple[str, Callable[[int], bool]]:
    return f"(NOT {spark_is_infinite(scalar(type), '{0}')})", lambda value: not is_infinite(scalar(type), value)


for _type in ("timestamp", "timestamptz"):
    row(FUNCTIONS, "date_bin", f"interval {_type} {_type}", _type, python=_binned,
        infinite=Infinite(_infinitely_binned))  # fmt: skip
for _type in ("timestamp", "timestamptz", "date"):
    _spark_finite, _python_finite = _is_finite(_type)
    row(FUNCTIONS, "isfinite", _type, "bool", _spark_finite, python=_python_finite, infinite=LIKE_FINITE)


# -- time zones -----------------------------------------------------------------------------------------------------


def named_zone(name: str) -> tzinfo:
    """The time zone for an abbreviation, a zone name or a POSIX offset. 22023"""
    found = offset_zone(name)
    return found.zone if isinstance(found, Abbreviation) else found


def offset_zone(name: str) -> tzinfo | Abbreviation:
    """Like `named_zone`, but an abbreviation whose offset has changed over time has the offset valid at each time."""
    if (abbreviation := zone_abbreviation(name)) is not None:
        return abbreviation
    try:
        return zone(name)
    except LookupError:
        message = f'time zone "{name}" not recognized'
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message) from None


def _interval_zone(value: Any) -> tzinfo:
    months, days, us = parts(value)
    if months or days:
        message = f'interval time zone "{interval_text(months, days, us)}" must not include months or days'
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
    seconds = int(us / SECOND_US)
    if abs(seconds) >= 86_400:
        message = "a time zone a day or more away from UTC is not supported"
        hint = "Add the interval to the timestamp instead."
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
    return fixed_zone(timedelta(seconds=seconds))


for _type, _zone_of in (("text", offset_zone), ("interval", _interval_zone)):
    row(FUNCTIONS, "timezone", f"{_type} timestamp", "timestamptz",
        infinite=same_infinity(1, "timestamp", "timestamptz"),
        python=lambda where, us, _zone_of=_zone_of: instant(us, _zone_of(where)))  # fmt: skip
    row(FUNCTIONS, "timezone", f"{_type} timestamptz", "timestamp",
        infinite=same_infinity(1, "timestamptz", "timestamp"),
        python=lambda where, us, _zone_of=_zone_of: local_time(us, _zone_of(where)))  # fmt: skip
_SAME_INSTANT = same_infinity(0, "timestamptz", "timestamptz")


def _same_in(us: int, span: Any, where: str) -> int:
    named_zone(where)  # 22023, as for finite timestamps
    return us


row(FUNCTIONS, "date_add", "timestamptz interval", "timestamptz", _moved("+", 0, 1, "TIMESTAMP_LTZ"), zoned=True,
    infinite=_SAME_INSTANT, python=lambda us, span, timezone: moved_in(us, span, zone(timezone)))  # fmt: skip
row(FUNCTIONS, "date_add", "timestamptz interval text", "timestamptz", infinite=Infinite(_same_in),
    python=lambda us, span, where: moved_in(us, span, named_zone(where)))  # fmt: skip
row(FUNCTIONS, "date_subtract", "timestamptz interval", "timestamptz", _moved("-", 0, 1, "TIMESTAMP_LTZ"), zoned=True,
    infinite=_SAME_INSTANT, python=lambda us, span, timezone: moved_in(us, negated(span), zone(timezone)))  # fmt: skip
row(FUNCTIONS, "date_subtract", "timestamptz interval text", "timestamptz", infinite=Infinite(_same_in),
    python=lambda us, span, where: moved_in(us, negated(span), named_zone(where)))  # fmt: skip


# -- construction ---------------------------------------------------------------------------------------------------


def _made_date(year: int, month: int, day: int) -> int:
    """A negative year is BC."""
    astronomical = year + 1 if year < 0 else year
    valid = year and 1 <= month <= 12 and 1 <= day <= 31 and -4_713 <= astronomical <= 5_874_898
    if not valid or day > days_in_month(astronomical, month):
        raise PgError(OVERFLOW, f"date field value out of range: {year}-{month:02d}-{day:02d}")
    days = days_from_civil(astronomical, month, day)
    if not DATE_MIN <= days < DATE_END:
        raise PgError(OVERFLOW, f"date out of range: {year}-{month:02d}-{day:02d}")
    return days


def _made_time(hour: int, minute: int, second: float) -> int:
    us = round(second * 1e6) if abs(second) < SECOND_US else -1
    in_bounds = 0 <= hour <= 24 and 0 <= minute < 60 and 0 <= us <= 60 * SECOND_US
    total = (hour * 60 + minute) * 60 * SECOND_US + us
    if not in_bounds or total > DAY_US:
        raise PgError(OVERFLOW, f"time field value out of range: {hour}:{minute:02d}:{second:02g}")
    return total


def _made_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> int:
    days, of_day = _made_date(year, month, day), _made_time(hour, minute, second)
    return in_range(days * DAY_US + of_day, f"timestamp out of range: {year}-{month:02d}-{day:02d}")


def _given_zone(name: str) -> tzinfo | Abbreviation:
    """parse_sane_timezone(): a numeric offset is positive east of Greenwich and must have a sign."""
    if name[:1].isdigit():
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f'invalid input syntax for type numeric time zone: "{name}"',
            hint='Numeric time zones must have "-" or "+" as first character.',
        )
    if name[:1] in ("+", "-"):
        try:
            return fixed_zone(-(zone(name).utcoffset(None) or timedelta()))
        except LookupError:
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'numeric time zone "{name}" out of range') from None
    return offset_zone(name)


row(FUNCTIONS, "make_date", "int4 int4 int4", "date", python=_made_date)
row(FUNCTIONS, "make_time", "int4 int4 float8", "time", python=_made_time)
row(FUNCTIONS, "make_timestamp", "int4 int4 int4 int4 int4 float8", "timestamp", python=_made_timestamp)
row(FUNCTIONS, "make_timestamptz", "int4 int4 int4 int4 int4 float8", "timestamptz", zoned=True,
    python=lambda *fields, timezone: instant(_made_timestamp(*fields), zone(timezone)))  # fmt: skip
row(FUNCTIONS, "make_timestamptz", "int4 int4 int4 int4 int4 float8 text", "timestamptz",
    python=lambda *fields: instant(_made_timestamp(*fields[:6]), _given_zone(fields[6])))  # fmt: skip


def _from_epoch(seconds: float) -> int:
    if math.isnan(seconds):
        raise PgError(OVERFLOW, "timestamp cannot be NaN")
    if math.isinf(seconds):
        return INFINITY if seconds > 0 else MINUS_INFINITY
    if not _TIMESTAMP_MIN <= seconds * 1e6 < _TIMESTAMP_END:
        raise PgError(OVERFLOW, f'timestamp out of range: "{seconds:g}"')
    since_2000 = seconds - 946_684_800  # so that rounding is the same as in PostgreSQL
    return in_range(round(since_2000 * 1e6) + 946_684_800 * SECOND_US)


row(FUNCTIONS, "to_timestamp", "float8", "timestamptz", python=_from_epoch)


# -- precision ------------------------------------------------------------------------------------------------------

for _type, _infinite in (
    ("time", None),
    ("timestamp", same_infinity(0, "timestamp", "timestamp")),
    ("timestamptz", _SAME_INSTANT),
    ("interval", None),
):
    row(FUNCTIONS, _type, f"{_type} int4", _type, python=partial(rounded_seconds, _type), infinite=_infinite)


# -- OVERLAPS -------------------------------------------------------------------------------------------------------


def _overlap(start: Any, end: Any, other_start: Any, other_end: Any) -> bool | None:
    """overlaps_timestamp(): the result may be known although an end is NULL."""
    periods = []
    for low, high in ((start, end), (other_start, other_end)):
        if low is None and high is None:
            return None
        if low is None or (high is not None and low > high):
            low, high = high, low
        periods.append((low, high))
    (first, first_end), (second, second_end) = sorted(periods, key=lambda period: period[0])
    if first == second:
        return None if first_end is None or second_end is None else True
    if first_end is None:
        return None
    if second < first_end:
        return True
    return None if second_end is None else False


def _overlap_of(kind: str, ends: tuple[str, str]) -> Callable[..., bool | None]:
    """Each end is a point in time, or an interval after the start."""

    def overlap(*points: Any, timezone: str = "UTC") -> bool | None:
        values = list(points)
        for index, end in zip((1, 3), ends, strict=True):
            if end == "interval" and values[index] is not None:
                start, span = values[index - 1], values[index]
                values[index] = None if start is None else later(start, span, timezone)
        return _overlap(*values)

    def later(start: int, span: Any, timezone: str) -> int:
        if kind == "time":
            return _to_time_plus(start, span)
        if is_infinite(TIMESTAMP, start):
            return start
        return moved_in(start, span, zone(timezone)) if kind == "timestamptz" else moved(start, span)

    return overlap


def _to_time_plus(time: int, span: Any) -> int:
    return (time + parts(span)[2]) % DAY_US


for _type in ("timestamptz", "timestamp", "time"):
    for _ends in ((_a, _b) for _a in (_type, "interval") for _b in (_type, "interval")):
        row(FUNCTIONS, "overlaps", f"{_type} {_ends[0]} {_type} {_ends[1]}", "bool", nulls=Nulls.MAYBE,
            zoned=_type == "timestamptz" and "interval" in _ends, infinite=LIKE_FINITE,
            python=_overlap_of(_type, _ends))  # fmt: skip
