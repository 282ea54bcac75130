"""Interval input: `1 year -2 days 04:05:06 ago`, `1-2`, `P1Y2M3DT4H`.

A port of DecodeInterval() and DecodeISO8601Interval() of src/backend/utils/adt/datetime.c (version 16), with
IntervalStyle postgres. `datetime_text` splits the text into fields; `_span` interprets each field by its unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from protocol.pgwire.datetime_output import DAY_US
from protocol.pgwire.datetime_text import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    BadText,
    bad_syntax,
    clock_of,
    fields_of,
    to_pg_error,
)
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.timezones import SECOND_US

_UNITS = {
    name[:10]: unit
    for unit, names in {
        "microsecond": "us usec usecs usecond useconds microsecond microseconds",
        "millisecond": "ms msec msecs msecond mseconds millisecond milliseconds",
        "second": "s sec secs second seconds",
        "minute": "m min mins minute minutes",
        "hour": "h hr hrs hour hours",
        "day": "d day days",
        "week": "w week weeks",
        "month": "mon mons month months",
        "quarter": "qtr quarter",
        "year": "y yr yrs year years",
        "decade": "dec decs decade decades",
        "century": "c cent century centuries",
        "millennium": "mil mils mill millennium millennia",
    }.items()
    for name in names.split()
}


def interval_unit(word: str) -> str | None:
    """The unit that a word of an interval's text denotes; None if it is not a unit. Ten letters are significant."""
    return _UNITS.get(word.lower()[:10])


_UNIT_US = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND_US,
    "minute": 60 * SECOND_US,
    "hour": 3600 * SECOND_US,
}
_UNIT_DAYS = {"day": 1, "week": 7}
_UNIT_YEARS = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}


@dataclass(slots=True)
class _Span:
    """The sum of the fields. Fractions of a unit are added to smaller units; a month has 30 days."""

    years: int = 0
    months: int = 0
    days: int = 0
    us: int = 0

    def add(self, unit: str, whole: int, fraction: float = 0.0) -> None:
        if unit in _UNIT_US:
            self.us += whole * _UNIT_US[unit]
            self._add_us(fraction * _UNIT_US[unit])
        elif unit in _UNIT_DAYS:
            self.days += whole * _UNIT_DAYS[unit]
            if unit == "day":
                self._add_us(fraction * DAY_US)
            else:
                self._add_days(fraction * _UNIT_DAYS[unit])
        elif unit == "month":
            self.months += whole
            self._add_days(fraction * 30)
        elif unit in _UNIT_YEARS:
            self.years += whole * _UNIT_YEARS[unit]
            self.months += round(fraction * _UNIT_YEARS[unit] * 12)
        else:
            raise bad_syntax()
        parts = (self.years, self.months, self.days)
        if min(parts) < INT32_MIN or max(parts) > INT32_MAX or not INT64_MIN <= self.us <= INT64_MAX:
            raise _span_overflow()

    def _add_days(self, days: float) -> None:
        self.days += int(days)
        self._add_us((days - int(days)) * DAY_US)

    def _add_us(self, us: float) -> None:
        rest = us - int(us)
        self.us += int(us) + (1 if rest > 0.5 else -1 if rest < -0.5 else 0)

    def value(self, sign: int) -> pa.MonthDayNano:
        if sign < 0 and (INT32_MIN in (self.years, self.months, self.days) or self.us == INT64_MIN):
            raise _span_overflow()
        return interval_of(sign * (self.years * 12 + self.months), sign * self.days, sign * self.us)


def _span_overflow() -> BadText:
    return BadText(SqlState.INTERVAL_FIELD_OVERFLOW, 'interval field value out of range: "{text}"')


_SIZE_MAX = 256  # of interval_in()'s buffer
_SIGNED = re.compile(r"([+-]?)(\d*)(\.\d*)?$", re.ASCII)
_YEARS_MONTHS = re.compile(r"([+-]?)(\d+)-(\d+)$", re.ASCII)


def _signed_number(text: str) -> tuple[int, float]:
    """Parses `-1.5` as (-1, -0.5)."""
    match = _SIGNED.match(text)
    if match is None:
        raise bad_syntax()
    sign = -1 if match[1] == "-" else 1
    whole = int(match[2] or 0)
    if whole > INT64_MAX:
        raise _span_overflow()
    return sign * whole, sign * float(f"0{match[3] or '.'}0")


def _span(text: str, default: str, *, minutes_first: bool, sql_signs: bool) -> pa.MonthDayNano:
    """DecodeInterval(): reads the fields in reverse order, so that a unit is known before its number."""
    span, seen, unit, sign_of_all = _Span(), set[str](), "", 1
    fields = fields_of(text, _SIZE_MAX)
    if sql_signs and fields and fields[0][1][0] == "-" and all(value[0] not in "+-" for _, value in fields[1:]):
        fields[0] = fields[0][0], fields[0][1][1:]
        sign_of_all = -1
    for kind, value in reversed(fields):
        if kind == "time" or (kind == "zone" and ":" in value):
            sign = -1 if value[0] == "-" else 1
            try:
                hour, minute, second, us = clock_of(value.lstrip("+-"), minutes_first=minutes_first)
            except BadText as bad:
                raise _span_overflow() if bad.sqlstate == SqlState.DATETIME_FIELD_OVERFLOW else bad from None
            span.us = 0  # a time replaces the microseconds from fractions of days, as in PostgreSQL
            span.add("microsecond", sign * (((hour * 60 + minute) * 60 + second) * SECOND_US + us))
            named, unit = {"hour", "minute", "second", "millisecond", "microsecond"}, "day"
        elif kind in ("number", "zone", "date"):
            years_months = _YEARS_MONTHS.match(value)
            if years_months is not None:
                sign = -1 if years_months[1] == "-" else 1
                years, months = int(years_months[2]), int(years_months[3])
                if months >= 12:
                    raise _span_overflow()
                span.add("month", sign * (years * 12 + months))
                named = {"month"}
                unit = "month"
            else:
                unit = unit or default
                whole, fraction = _signed_number(value)
                span.add(unit, whole, fraction)
                named = {unit}
                unit = "day" if unit == "hour" else unit  # 1 2 hours
                if unit == "second" and fraction:
                    named = {"second", "millisecond", "microsecond"}
        elif value == "ago":
            sign_of_all, unit = -sign_of_all, value
            continue
        elif value[:10] in _UNITS:
            unit = _UNITS[value[:10]]
            continue
        else:
            raise bad_syntax()
        if named & seen:
            raise bad_syntax()
        seen |= named
    if not seen:
        raise bad_syntax()
    return span.value(sign_of_all)


_ISO_PART = re.compile(r"([+-]?\d*(?:\.\d*)?)([A-Z])")
_ISO_UNITS = ({"Y": "year", "M": "month", "D": "day", "W": "week"}, {"H": "hour", "M": "minute", "S": "second"})
_ISO_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)$|([+-]?\d+)(?:-(\d+)(?:-(\d+))?)?$", re.ASCII)
_ISO_TIME = re.compile(r"(\d\d)(\d\d)(\d\d(?:\.\d*)?)$|(\d+)(?::(\d+)(?::(\d+(?:\.\d*)?))?)?$", re.ASCII)


def _float_parts(text: str) -> tuple[int, float]:
    """Parses `-1.5` as (-1, -0.5), with the rounding of PostgreSQL's ParseISO8601Number()."""
    value = float(text)
    if abs(value) > 1e15:
        raise _span_overflow()
    return int(value), value - int(value)


def _iso_span(text: str) -> pa.MonthDayNano:
    """DecodeISO8601Interval(): P1Y2M3DT4H5M6S, P0001-02-03T04:05:06, P00010203T040506."""
    if len(text) < 2 or text[0] != "P":
        raise bad_syntax()
    span = _Span()
    for part, units, whole_part in zip(text[1:].partition("T")[::2], _ISO_UNITS, (_ISO_DATE, _ISO_TIME), strict=True):
        whole = whole_part.match(part)
        if whole is not None:
            numbers = [number for number in whole.groups() if number is not None]
            for unit, number in zip(units.values(), numbers, strict=False):  # trailing ones may be omitted
                span.add(unit, *_float_parts(number))
            continue
        position = 0
        while position < len(part):
            match = _ISO_PART.match(part, position)
            if match is None or match[2] not in units or not re.search(r"\d", match[1]):
                raise bad_syntax()
            span.add(units[match[2]], *_float_parts(match[1]))
            position = match.end()
    return span.value(1)


def parse_interval(
    text: str, unit: str = "second", *, minutes_first: bool = False, sql_signs: bool = False
) -> pa.MonthDayNano:
    """Parses an interval. `unit`: the unit of a last number without one. `minutes_first`: 2:03 is 2 min 3 s.

    `sql_signs`: a minus of the first field applies to all fields, unless another one has a sign.

    Raises PgError 22007, 22015, or 22008 if the time part exceeds +-292 years (64-bit nanoseconds).
    """
    try:
        try:
            return _span(text, unit, minutes_first=minutes_first, sql_signs=sql_signs)
        except BadText as bad:
            if bad.sqlstate != SqlState.INVALID_DATETIME_FORMAT:
                raise
            return _iso_span(text)
    except BadText as bad:
        raise to_pg_error(bad, "interval", text) from None


def interval_of(months: int, days: int, us: int) -> pa.MonthDayNano:
    """The Arrow value. PgError 22008 if months or days exceed 32 bits, or `us` exceeds 64 bits of nanoseconds."""
    if not (INT32_MIN <= months <= INT32_MAX and INT32_MIN <= days <= INT32_MAX) or abs(us) * 1000 > INT64_MAX:
        raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, "interval out of range")
    return pa.MonthDayNano((months, days, us * 1000))
