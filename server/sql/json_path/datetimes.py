"""The values of `.datetime()`: dates, times and timestamps, with or without a time zone (jsonpath_exec.c)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from protocol.pgwire.datetime_output import DAY_US, date_text
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.timezones import SECOND_US, zone
from server.sql.casts import instant

_DATE = r"(?P<year>\d{1,4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,6}))?"
_ZONE = r"(?: ?(?P<sign>[+-])(?P<zone_hour>\d{1,2})(?::(?P<zone_minute>\d{1,2}))?)?"
_TEXT = re.compile(rf" *{_DATE}(?:(?: +|T){_TIME}{_ZONE})? *", re.ASCII)
_TEXT_OF_TIME = re.compile(rf" *{_TIME}{_ZONE} *", re.ASCII)
_EPOCH = date(1970, 1, 1).toordinal()
_NAMES = {
    "date": "date",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """`us`: local microseconds since 1970, or since midnight. `offset`: of the time zone, in seconds; None without."""

    kind: str
    us: int
    offset: int | None = None

    @property
    def name(self) -> str:
        """The name that `.type()` returns."""
        return _NAMES[self.kind]

    def __str__(self) -> str:
        """The text in JSON, in ISO 8601."""
        days, us = divmod(self.us, DAY_US)
        parts = [date_text(days)] if self.kind in ("date", "timestamp", "timestamptz") else []
        if self.kind != "date":
            seconds, fraction = divmod(us, SECOND_US)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            parts.append(f"{clock}.{fraction:06}".rstrip("0") if fraction else clock)
        if self.offset is None:
            return "T".join(parts)
        minutes = abs(self.offset) // 60
        return f"{'T'.join(parts)}{'-' if self.offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def moment(text: str) -> Moment | None:
    """The value that a text denotes in one of the formats of ISO 8601 that PostgreSQL tries; None if it has none."""
    match = _TEXT.fullmatch(text) or _TEXT_OF_TIME.fullmatch(text)
    if match is None:
        return None
    found = match.groupdict()
    us = 0
    if found.get("year") is not None:
        try:
            us = (date(int(found["year"]), int(found["month"]), int(found["day"])).toordinal() - _EPOCH) * DAY_US
        except ValueError:
            return None
    if found["hour"] is None:
        return Moment("date", us)
    hour, minute, second = (int(found[part]) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    us += ((hour * 60 + minute) * 60 + second) * SECOND_US + int((found["fraction"] or "").ljust(6, "0"))
    kind = "time" if found.get("year") is None else "timestamp"
    if found["sign"] is None:
        return Moment(kind, us)
    zone_hour, zone_minute = int(found["zone_hour"]), int(found["zone_minute"] or 0)
    if zone_hour > 15 or zone_minute > 59:
        return None
    offset = (zone_hour * 60 + zone_minute) * 60
    return Moment(f"{kind}tz", us, -offset if found["sign"] == "-" else offset)


def compared(test: Callable[[Any, Any], bool], a: Moment, b: Moment, timezone: str | None) -> bool | None:
    """A comparison; None for a date and a time. `timezone`: the session's, for values without one.

    PgError 0A000 if only one of the values has a time zone and `timezone` is None.
    """
    times = [m.kind.startswith("time") and not m.kind.startswith("timestamp") for m in (a, b)]
    if times[0] != times[1]:
        return None
    if (a.offset is None) != (b.offset is None):
        local, zoned = (a, b) if a.offset is None else (b, a)
        if timezone is None:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"cannot convert value from {local.kind} to {zoned.kind} without time zone usage",
                hint="Use *_tz() function for time zone support.",
            )
        if times[0]:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "a comparison of times of which only one has a time zone is not supported",
                hint="Compare timestamps, or write the time zone of both times.",
            )
        keys = [_instant(m, timezone) for m in (a, b)]
        return test(*keys)
    if times[0] and a.offset is not None:  # equal times are ordered by their zones
        return test(*((_instant(m, "UTC"), -(m.offset or 0)) for m in (a, b)))
    return test(*(_instant(m, "UTC") for m in (a, b)))


def _instant(value: Moment, timezone: str) -> int:
    if value.offset is None:
        return instant(value.us, zone(timezone or "UTC"))
    return value.us - value.offset * SECOND_US
