"""Common parts of date, time and interval input: splits the text into fields and parses a time of day.

A port of ParseDateTime() and DecodeTime() of src/backend/utils/adt/datetime.c (version 16).
"""

from __future__ import annotations

import re

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.timezones import SECOND_US

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


class BadText(Exception):
    """A text is invalid or its value is out of range. `to_pg_error` converts it to a PgError."""

    def __init__(self, sqlstate: SqlState, message: str, hint: str | None = None) -> None:
        self.sqlstate, self.message, self.hint = sqlstate, message, hint


def bad_syntax() -> BadText:
    """Error 22007: invalid input syntax."""
    return BadText(SqlState.INVALID_DATETIME_FORMAT, 'invalid input syntax for type {type}: "{text}"')


def field_overflow(hint: str | None = None) -> BadText:
    """Error 22008: date/time field value out of range."""
    return BadText(SqlState.DATETIME_FIELD_OVERFLOW, 'date/time field value out of range: "{text}"', hint)


def to_pg_error(bad: BadText, type: str, text: str) -> PgError:
    """The PgError for the invalid input `text` of type `type`."""
    return PgError(bad.sqlstate, bad.message.format(type=type, text=text), hint=bad.hint)


_FIELD = re.compile(
    r"""\s*(?:
      (?P<time>   \d+:[\d:.]*)
    | (?P<date>   \d+(?:(?P<delimiter>[-/])\d+(?:(?P=delimiter)[\d/-]*)?
                     |\.\d+\.[\d.]*
                     |(?P<around>[-/.])(?!\d)(?:[A-Za-z0-9]|(?P=around))*))
    | (?P<number> \d+(?:\.\d+)?|\.\d*)
    | (?P<zone>   [+-]\s*\d[\d:.-]*)
    | (?P<sign>   [+-]\s*[A-Za-z]+)
    | (?P<word>   [A-Za-z]+)
    | [!"#$%&'()*,;<=>?@\[\\\]^_`{|}~/:]
    )""",
    re.VERBOSE | re.ASCII,
)
_GLUED = re.compile(r"[-+/_.:A-Za-z0-9]+", re.ASCII)


def fields_of(text: str, size_max: int) -> list[tuple[str, str]]:
    """ParseDateTime(): (kind, lower-case text) of each field; kinds are the groups of `_FIELD`.

    `size_max`: of PostgreSQL's buffer for the fields, in which each of them has a zero at its end.
    """
    found: list[tuple[str, str]] = []
    size = 0
    position, end = 0, len(text.rstrip(" \t\n\v\f\r"))
    while position < end:
        match = _FIELD.match(text, position, end)
        if match is None:
            raise bad_syntax()
        position = match.end()
        kind = match.lastgroup
        kind = "date" if kind in ("delimiter", "around") else kind
        if kind is None:
            continue
        value = match[kind].lower()
        if kind == "word" and position < end:
            after = text[position]
            if after in "-/." or ((after == "+" or after.isdecimal()) and value not in WORDS):
                glued = _GLUED.match(text, position, end)
                if glued is not None:
                    value, position, kind = value + glued[0].lower(), glued.end(), "date"
        if kind in ("zone", "sign"):
            value = re.sub(r"\s+", "", value)
        found.append((kind, value))
        size += len(value) + 1
        if size > size_max or len(found) > 25:
            raise bad_syntax()
    return found


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MONTH_NAMES = """
    jan january|feb february|mar march|apr april|may|jun june|jul july|aug august|sep sept september|oct october
    |nov november|dec december"""
MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES.split("|"), start=1) for name in names.split()}
WEEKDAYS = _words(
    "sun sunday mon monday tue tues tuesday wed weds wednesday thu thur thurs thursday fri friday sat saturday"
)
IGNORED = _words("at on")
OF_THE_CLOCK = _words("now today tomorrow yesterday")
_OTHER_WORDS = _words("infinity ad bc am pm allballs epoch d dow doy dst h isodow isoyear j jd julian m mm s t y")
WORDS = WEEKDAYS | IGNORED | OF_THE_CLOCK | _OTHER_WORDS | frozenset(MONTHS)


def bounded(digits: str) -> int:
    """The digits as a 32-bit number; 0 if there are none. Raises 22008 if it is out of range."""
    value = int(digits or 0)
    if value > INT32_MAX:
        raise field_overflow()
    return value


def fraction_us(text: str) -> int:
    """A fraction of a second such as `.5` in microseconds, rounded like rint()."""
    return round(float(f"0{text}0") * SECOND_US) if text else 0


_CLOCK = re.compile(r"(\d+):(\d*)(?::(\d*)(\.\d*)?|(\.\d*))?$", re.ASCII)


def clock_of(text: str, *, minutes_first: bool = False) -> tuple[int, int, int, int]:
    """DecodeTime(): hh:mm, hh:mm:ss, hh:mm:ss.ffffff or mm:ss.fff as (hour, minute, second, us).

    The hour is not checked. `minutes_first`: two numbers without a fraction are mm:ss.
    """
    match = _CLOCK.match(text)
    if match is None:
        raise bad_syntax()
    hour, minute, second = int(match[1]), bounded(match[2]), bounded(match[3] or "")
    us = fraction_us(match[4] or match[5] or "")
    if match[5] is not None or (minutes_first and match[3] is None):
        hour, minute, second = 0, hour, minute
    if hour > INT64_MAX or minute > 59 or second > 60:
        raise field_overflow()
    return hour, minute, second, us
