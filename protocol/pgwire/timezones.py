"""Time zones: the UTC offset at an instant, and the UTC offset of a local time.

Names are those of the tz database (`zoneinfo`). Fixed offsets are spelled as in PostgreSQL's TimeZone setting, which is
POSIX: `+05:30` is west of Greenwich. (ISO offsets inside a value, positive east, are parsed by the caller.)
For columns, the transitions of each year are found by bisection and cached.
For years after Python's calendar the rules repeat, because the Gregorian calendar repeats every 400 years.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

SECOND_US = 1_000_000
_EPOCH = datetime(1970, 1, 1)
_DAY_S = 86_400
_CYCLE_S = 146_097 * _DAY_S  # 400 years
_FIRST_S = -62_135_596_800 + _DAY_S  # 0001-01-02
_LAST_S = 253_402_300_800 - _DAY_S  # 9999-12-31
_HISTORY_S = (-3_000_000_000, 2_145_916_800)  # 1874 to 2038: contains all changes of abbreviations in the tz database
_STEP_S = 14 * _DAY_S
_POSIX = re.compile(r"(?:[A-Za-z]{3,}|<[^>]+>)?([+-]?)(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?$")


@cache
def zone(name: str) -> tzinfo:
    """The zone with this name or POSIX offset. Names are case-insensitive. LookupError if there is none."""
    if name.upper() in ("UTC", "GMT", "Z", "ZULU", "UCT"):
        return UTC
    posix = _POSIX.match(name)
    if posix is not None:
        sign, hours, minutes, seconds = posix.groups()
        if int(hours) > 15 or int(minutes or 0) > 59 or int(seconds or 0) > 59:
            raise LookupError(name)
        west = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        return timezone(west if sign == "-" else -west)
    for spelling in (name, _spellings().get(name.lower(), name)):
        try:
            return ZoneInfo(spelling)
        except (LookupError, ValueError, OSError):
            continue
    raise LookupError(name)


@cache
def _spellings() -> dict[str, str]:
    """Maps lower-case names to the tz database's spelling. Zone names are case-insensitive in PostgreSQL."""
    return {name.lower(): name for name in available_timezones()}


class Abbreviation:
    """An abbreviation whose offset has changed over time, such as MSK.

    At an instant it has the offset of its latest use at or before the instant, or of its first use if there is none.
    If the tz database does not contain the abbreviation, it means the zone.
    See pg_interpret_timezone_abbrev() in src/timezone/localtime.c, version 16.
    """

    def __init__(self, name: str, zone: str) -> None:
        self.name, self.zone = name.upper(), ZoneInfo(zone)
        self._uses = [(start, offset) for start, used, offset in _changes(self.zone) if used == self.name]
        self._starts = [start for start, _ in self._uses]

    def offset_at(self, seconds: int) -> int | None:
        """The offset in seconds at an instant (s since 1970); None if the tz database lacks the abbreviation."""
        if not self._uses:
            return None
        return self._uses[max(bisect_right(self._starts, seconds) - 1, 0)][1]


def _changes(where: tzinfo) -> Iterator[tuple[int, str, int]]:
    """Each change of a zone in `_HISTORY_S`: the instant in s since 1970, the new abbreviation and the new offset.

    A change that is undone within `_STEP_S` may be missed; the tz database has none in these zones.
    """

    def at(seconds: int) -> tuple[str, int]:
        moment = datetime.fromtimestamp(seconds, where)
        return moment.tzname() or "", int((moment.utcoffset() or timedelta()).total_seconds())

    before = at(_HISTORY_S[0])
    for start in range(*_HISTORY_S, _STEP_S):
        low, high = start, start + _STEP_S  # the change is in (low, high]
        after = at(high)
        while before != after and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if at(middle) == before else (low, middle)
        if before != after:
            before = after
            yield high, *after


@cache
def _names(where: tzinfo) -> tuple[Int64s, list[str], dict[int, str]]:
    """The instants of a zone's changes, the abbreviations before and after them, and the recent ones by offset."""
    changes = [*_changes(where)]
    first = datetime.fromtimestamp(_HISTORY_S[0], where).tzname() or ""
    recent = {offset: name for _, name, offset in changes[-8:]}
    return np.array([at for at, _, _ in changes], np.int64), [first, *(name for _, name, _ in changes)], recent


def abbreviations_at(where: tzinfo, seconds: Int64s, offsets: Int64s) -> pa.Array:
    """The abbreviations of a zone at instants (s since 1970) at which it has the offsets."""
    if where is UTC:
        return pa.array(["UTC"]).take(pa.array(np.zeros(len(seconds), np.int64)))
    kinds, which = np.unique(offsets, return_inverse=True)
    if isinstance(where, timezone):
        return pa.array([offset_text(offset) for offset in kinds.tolist()]).take(pa.array(which))
    starts, names, recent = _names(where)
    found = pa.array(names).take(pa.array(np.searchsorted(starts, seconds, "right")))
    early = (seconds < _HISTORY_S[0]) & (offsets == _offset(where, _FIRST_S))
    if early.any():
        oldest = datetime.fromtimestamp(_FIRST_S, where).tzname() or ""
        found = pc.if_else(pa.array(early), oldest, found)
    late = seconds >= _HISTORY_S[1]
    if not late.any():
        return found
    repeated = pa.array([recent.get(offset, offset_text(offset)) for offset in kinds.tolist()]).take(pa.array(which))
    return pc.if_else(pa.array(late), repeated, found)


def offset_text(seconds: int) -> str:
    """An offset as PostgreSQL prints it after a timestamptz: +00, -03:30, +00:19:32."""
    sign, seconds = ("-", -seconds) if seconds < 0 else ("+", seconds)
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    return f"{sign}{hours:02d}" + (f":{minutes:02d}" if minutes or rest else "") + (f":{rest:02d}" if rest else "")


def local_offset(where: tzinfo | Abbreviation, local_us: int) -> int:
    """The offset in seconds of a local time (us since 1970-01-01 00:00 local).

    As in PostgreSQL, a skipped local time has the offset before the gap, a repeated one the offset after the change.
    """
    local = _EPOCH + timedelta(seconds=_within_calendar(local_us // SECOND_US))
    if isinstance(where, Abbreviation):
        offset = local_offset(where.zone, local_us)
        found = where.offset_at(local_us // SECOND_US - offset)
        return offset if found is None else found
    offsets = (where.utcoffset(local.replace(fold=fold, tzinfo=where)) for fold in (0, 1))
    return min(int(offset.total_seconds()) for offset in offsets if offset is not None)


def offset_at(where: tzinfo | Abbreviation, utc_us: int) -> int:
    """The offset in seconds at an instant (us since 1970-01-01 UTC)."""
    if isinstance(where, Abbreviation):
        found = where.offset_at(utc_us // SECOND_US)
        return offset_at(where.zone, utc_us) if found is None else found
    return _offset(where, _within_calendar(utc_us // SECOND_US))


def offsets_at(where: tzinfo, utc_us: Int64s) -> Int64s:
    """`offset_at` for every element."""
    if isinstance(where, timezone):
        return np.full(len(utc_us), offset_at(where, 0), np.int64)
    seconds = utc_us // SECOND_US
    outside = (seconds < _FIRST_S) | (seconds >= _LAST_S)
    if outside.any():
        far, which = np.unique(seconds[outside], return_inverse=True)
        seconds[outside] = np.array([_within_calendar(s) for s in far.tolist()])[which]
    years = np.unique(seconds.astype("M8[s]").astype("M8[Y]").astype(np.int64))
    changes = np.array([change for year in years.tolist() for change in _transitions(where, year)])
    starts, offsets = changes[:, 0], changes[:, 1]
    found: Int64s = offsets[np.searchsorted(starts, seconds, side="right") - 1]
    return found


def _within_calendar(seconds: int) -> int:
    """An instant within Python's calendar that has the same offset: shifted by 400-year cycles, or the first one."""
    if seconds < _FIRST_S:
        return _FIRST_S
    return seconds if seconds < _LAST_S else seconds - ((seconds - _LAST_S) // _CYCLE_S + 1) * _CYCLE_S


def _offset(where: tzinfo, seconds: int) -> int:
    offset = (_EPOCH.replace(tzinfo=UTC) + timedelta(seconds=seconds)).astimezone(where).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@lru_cache(maxsize=4096)
def _transitions(where: tzinfo, year: int) -> tuple[tuple[int, int], ...]:
    """(instant in s, offset from then on) for the start of `year` (counted from 1970) and every change within it."""
    start, end = np.array([year, year + 1]).astype("M8[Y]").astype("M8[s]").astype(np.int64).tolist()
    days = range(max(start, _FIRST_S), end + 1, _DAY_S)
    known = [_offset(where, min(day, _LAST_S)) for day in days]
    found = [(start, known[0])]
    for day, before, after in zip(days, known, known[1:], strict=False):
        low, high = day, day + _DAY_S  # the change is in (low, high]
        while before != after and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(where, middle) == before else (low, middle)
        if before != after:
            found.append((high, after))
    return tuple(found)
