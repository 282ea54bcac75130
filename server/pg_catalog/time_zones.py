"""The rows of pg_timezone_names and pg_timezone_abbrevs: the offsets of time zones at a given time.

Reading all zones takes tens of milliseconds: the functions are called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa

from protocol.pgwire.datetime_input import SUMMER_ABBREVIATIONS, abbreviations, zone_abbreviation
from protocol.pgwire.timezones import SECOND_US, Abbreviation, offset_at
from server.pg_catalog.static import BY_NAME, Row, schema_of

QUARTER_S = 900  # no zone changes within a quarter of an hour


def _interval(seconds: int) -> pa.MonthDayNano:
    return pa.MonthDayNano((0, 0, seconds * 1_000_000_000))


def _names(second: int) -> Iterator[Row]:
    for name in sorted(available_timezones()):
        moment = datetime.fromtimestamp(second, ZoneInfo(name))
        offset = moment.utcoffset() or timedelta()
        yield {
            "name": name,
            "abbrev": moment.tzname(),
            "utc_offset": _interval(round(offset.total_seconds())),
            "is_dst": bool(moment.dst()),
        }


def _abbreviations(second: int) -> Iterator[Row]:
    for name in sorted(abbreviations()):
        where = zone_abbreviation(name)
        assert where is not None
        is_dst = name in SUMMER_ABBREVIATIONS
        if isinstance(where, Abbreviation):
            is_dst = bool(datetime.fromtimestamp(second, where.zone).dst())
        yield {"abbrev": name.upper(), "utc_offset": _interval(offset_at(where, second * SECOND_US)), "is_dst": is_dst}


_ROWS: Mapping[str, Callable[[int], Iterator[Row]]] = {
    "pg_timezone_names": _names,
    "pg_timezone_abbrevs": _abbreviations,
}
TIME_ZONES = tuple(_ROWS)
"""The relations."""


@lru_cache(maxsize=2)
def _of_quarter(name: str, quarter: int) -> pa.Table:
    rows = list(_ROWS[name](quarter * QUARTER_S))
    return pa.Table.from_pylist(rows, schema_of(BY_NAME["pg_catalog", name]))


def zone_rows(name: str, us: int) -> pa.Table:
    """The rows of one of TIME_ZONES at a time in microseconds since 1970, rounded down to a quarter of an hour."""
    return _of_quarter(name, us // SECOND_US // QUARTER_S)
