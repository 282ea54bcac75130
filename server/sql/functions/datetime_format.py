"""to_char of dates, times and intervals, to_date, to_timestamp: PostgreSQL's templates (formatting.c), locale C.

nodes(format)        parses a template: patterns with their modifiers, separators, other characters
written(fields, ..)  to_char
read(text, format)   to_date and to_timestamp: reads the fields and combines them in a `Moment`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fmod
from typing import NamedTuple

from protocol.pgwire.datetime_output import civil_from_days
from protocol.pgwire.errors import PgError, SqlState
from server.sql.cached_texts import cached_by_length
from server.sql.functions.number_format import ordinal

DAY_US = 86_400_000_000
_EPOCH = 2_440_588  # the Julian day of 1970-01-01
_PATTERNS = (  # a pattern precedes its own prefixes
    *("A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "CC", "DAY", "DDD", "DD", "DY", "Day", "Dy", "D"),
    *("FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "FX", "HH24", "HH12", "HH", "IDDD", "ID", "IW"),
    *("IYYY", "IYY", "IY", "I", "J", "MI", "MM", "MONTH", "MON", "MS", "Month", "Mon", "OF", "P.M.", "PM", "Q"),
    *("RM", "SSSSS", "SSSS", "SS", "TZH", "TZM", "TZ", "US", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y"),
)
_ALL_PATTERNS = (*_PATTERNS, *(p.lower() for p in _PATTERNS if p not in ("Day", "Dy", "Month", "Mon")))
_WORDS = ("A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "P.M.", "PM", "DAY", "DY", "MONTH", "MON", "RM")
_WIDER = ("HH", "HH12", "HH24", "MI", "SS", "MM", "YYYY", "YYY", "YY", "IYYY", "IYY", "IY")  # wider if negative
_NOT_DIGITS = frozenset((*_WORDS, "TZ", "FX", "OF", "TZH"))
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ROMAN = ("XII", "XI", "X", "IX", "VIII", "VII", "VI", "V", "IV", "III", "II", "I")
_THOUSANDS = re.compile(r"\s*([+-]?\d+),\s*(\d{1,3}|[+-]\d{1,2})", re.ASCII)
_ISO = ("IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I")
_GREGORIAN = ("DDD", "DD", "D", "MM", "MONTH", "MON", "RM", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y")


class Node(NamedTuple):
    """A `pattern` in upper case and as `spelled`, or a `character` (a space, a separator or another)."""

    pattern: str
    spelled: str
    character: str = ""
    fill: bool = False
    translated: bool = False
    ordinal: str = ""

    @property
    def is_separator(self) -> bool:
        """Whether it is a space, or neither a letter nor a digit."""
        return self.character.isspace() or (self.character.isascii() and " " < self.character < "\x7f"
                                            and not self.character.isalnum())  # fmt: skip


@cached_by_length((100, 1_024), (10_000, 16), (100_000, 2), length=len)
def nodes(format: str) -> tuple[Node, ...]:
    out: list[Node] = []
    at = 0
    while at < len(format):
        prefix = format[at : at + 2] if format[at : at + 2] in ("FM", "fm", "TM", "tm") else ""
        start = at + len(prefix)
        spelled = next((p for p in _ALL_PATTERNS if format.startswith(p, start)), None)
        at = start
        if spelled is not None:
            at += len(spelled)
            suffix = format[at : at + 2] if format[at : at + 2] in ("TH", "th", "SP") else ""
            at += len(suffix)
            kind = prefix.upper()
            pattern = spelled.upper()
            out.append(Node(pattern, spelled, "", kind == "FM", kind == "TM", suffix if suffix != "SP" else ""))
        elif at < len(format) and format[at] == '"':
            at += 1
            while at < len(format) and format[at] != '"':
                at += format[at] == "\\" and at + 1 < len(format)
                out.append(Node("", "quoted", format[at]))
                at += 1
            at += 1
        elif at < len(format):
            at += format.startswith('\\"', at)
            out.append(Node("", "", format[at]))
            at += 1
    return tuple(out)


# -- the calendar ---------------------------------------------------------------------------------------------------


def julian(year: int, month: int, day: int) -> int:
    """The Julian day. Month and day may be out of range. Year 0 is 1 BC."""
    if month > 2:
        month, year = month + 1, year + 4800
    else:
        month, year = month + 13, year + 4799
    century = year // 100
    return year * 365 - 32167 + year // 4 - century + century // 4 + 7834 * month // 256 + day


def calendar(julian_day: int) -> tuple[int, int, int]:
    """Year, month and day of a Julian day."""
    return civil_from_days(julian_day - _EPOCH)


def _week_start(year: int, week: int) -> int:
    """The Julian day of an ISO week's Monday."""
    fourth = julian(year, 1, 4)
    return (week - 1) * 7 + fourth - fourth % 7


def _iso(year: int, month: int, day: int) -> tuple[int, int, int]:
    """ISO year, week and day of that year."""
    today = julian(year, month, day)
    iso_year = year if today >= _week_start(year, 1) else year - 1
    days = today - _week_start(iso_year, 1)
    if days >= 51 * 7 and today >= _week_start(year + 1, 1):
        iso_year, days = year + 1, today - _week_start(year + 1, 1)
    return iso_year, _quotient(days, 7)[0] + 1, days + 1


def _days_of(year: int) -> Sequence[int]:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


# -- to_char --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of a timestamp, or of an interval (may be negative). `offset_s`: east of UTC; `year` 0 is 1 BC."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    us: int
    weekday: int  # 0 is Sunday
    day_of_year: int
    is_interval: bool = False
    zone: str = ""
    offset_s: int = 0

    @property
    def shown_year(self) -> int:
        return self._shown(self.year)

    def _shown(self, year: int) -> int:
        return year if self.is_interval or year > 0 else 1 - year

    @property
    def iso(self) -> tuple[int, int, int]:
        year, week, day = _iso(self.year, self.month, self.day)
        return self._shown(year), week, day


def fields_of(us: int, zone: str = "", offset_s: int = 0) -> Fields:
    """`us`: local time, in microseconds since 1970."""
    days, rest = divmod(us, DAY_US)
    year, month, day = calendar(days + _EPOCH)
    seconds, fraction = divmod(rest, 1_000_000)
    first = julian(year, 1, 1)
    return Fields(
        *(year, month, day, seconds // 3600, seconds // 60 % 60, seconds % 60, fraction),
        *((days + _EPOCH + 1) % 7, days + _EPOCH - first + 1, False, zone, offset_s),
    )


def interval_fields(months: int, days: int, us: int) -> Fields:
    year, month = _quotient(months, 12)
    hour, rest = _quotient(us, 3_600_000_000)
    minute, rest = _quotient(rest, 60_000_000)
    second, fraction = _quotient(rest, 1_000_000)
    return Fields(year, month, days, hour, minute, second, fraction, 0, months * 30 + days, True)


def _quotient(value: int, by: int) -> tuple[int, int]:
    """The quotient, truncated towards zero, and the remainder."""
    quotient = abs(value) // by * (1 if value >= 0 else -1)
    return quotient, value - quotient * by


def written(fields: Fields, format: str) -> str:
    return "".join(node.character or _pattern(fields, node) for node in nodes(format))


def _padded(value: int, width: int, node: Node) -> str:
    """Pads with zeros, unless the pattern has FM."""
    digits = f"{value:0{0 if node.fill else width}d}"
    return digits + _ordinal(digits, node)


def _ordinal(digits: str, node: Node) -> str:
    return ordinal(digits, node.ordinal) if node.ordinal else ""


def _cased(word: str, node: Node, width: int) -> str:
    """A name in the letter case of its pattern."""
    if node.spelled.islower():
        word = word.lower()
    elif node.spelled.isupper():
        word = word.upper()
    return word if node.fill or node.translated else word.ljust(width)


_MOMENT_ONLY = frozenset(
    ("TZ", "TZH", "TZM", "OF", "A.D.", "B.C.", "AD", "BC", "MONTH", "MON", "DAY", "DY", "D", "ID")
)  # fmt: skip


def _pattern(f: Fields, node: Node) -> str:
    pattern = node.pattern
    if f.is_interval and pattern in _MOMENT_ONLY:
        raise PgError(
            SqlState.INVALID_DATETIME_FORMAT,
            "invalid format specification for an interval value",
            hint="Intervals are not tied to specific calendar dates.",
        )
    if pattern in _NUMBERS:
        width, value_of = _NUMBERS[pattern]
        value = value_of(f)
        signed = f.hour if pattern.startswith("HH") else f.shown_year if pattern.endswith("Y") else value
        return _padded(value, width + (signed < 0 and pattern in _WIDER), node)
    match pattern:
        case "A.M." | "P.M." | "AM" | "PM":
            half = "P" if fmod(f.hour, 24) >= 12 else "A"
            return _cased(f"{half}.M." if "." in pattern else f"{half}M", node, 0)
        case "A.D." | "B.C." | "AD" | "BC":
            era = "BC" if f.year <= 0 else "AD"
            return _cased(f"{era[0]}.{era[1]}." if "." in pattern else era, node, 0)
        case "MONTH":
            return _cased(_MONTHS[f.month - 1], node, 9)
        case "MON":
            return _cased(_MONTHS[f.month - 1][:3], node, 3)
        case "DAY":
            return _cased(_DAYS[f.weekday], node, 9)
        case "DY":
            return _cased(_DAYS[f.weekday][:3], node, 3)
        case "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" | "MS" | "US":
            digits = {"MS": 3, "US": 6}.get(pattern) or int(pattern[2])
            fraction = _quotient(f.us, 10 ** (6 - digits))[0]
            return f"{fraction:0{digits}d}" + _ordinal(str(fraction), node)
        case "TZ":
            return f.zone.lower() if node.spelled == "tz" else f.zone
        case "TZH":
            return f"{'+' if f.offset_s >= 0 else '-'}{abs(f.offset_s) // 3600:02}"
        case "TZM":
            return f"{abs(f.offset_s) % 3600 // 60:02}"
        case "OF":
            hours, rest = divmod(abs(f.offset_s), 3600)
            return f"{'+' if f.offset_s >= 0 else '-'}{hours:0{0 if node.fill else 2}d}" + (
                f":{rest // 60:02}" if rest else ""
            )
        case "CC":
            return _century(f, node)
        case "Y,YYY":
            thousands, rest = _quotient(f.shown_year, 1000)
            return f"{thousands},{rest:03}" + _ordinal(str(rest), node)
        case "Q":
            quarter = _quotient(f.month - 1, 3)[0] + 1
            return f"{quarter}{_ordinal(str(quarter), node)}" if f.month else ""
        case "RM":
            if not f.month and not f.year:
                return ""
            if f.month == 0:  # an interval of whole years
                index = 0 if f.year >= 0 else 11
                return _cased(_ROMAN[index], node._replace(translated=False), 4)
            index = -f.month - 1 if f.month < 0 else 12 - f.month
            return _cased(_ROMAN[index], node._replace(translated=False), 4)
    return ""  # FX


def _century(f: Fields, node: Node) -> str:
    if f.is_interval:
        century = _quotient(f.year, 100)[0]
    else:
        century = (f.year - 1) // 100 + 1 if f.year > 0 else _quotient(f.year, 100)[0] - 1
    return _padded(century, 2 + (century < 0) if abs(century) <= 99 else 0, node)


def _half_day(f: Fields) -> int:
    rest = _quotient(f.hour, 12)[1]
    return rest if rest else 12


_NUMBERS: dict[str, tuple[int, Callable[[Fields], int]]] = {
    "HH": (2, _half_day), "HH12": (2, _half_day), "HH24": (2, lambda f: f.hour), "MI": (2, lambda f: f.minute),
    "SS": (2, lambda f: f.second), "SSSS": (0, lambda f: f.hour * 3600 + f.minute * 60 + f.second),
    "SSSSS": (0, lambda f: f.hour * 3600 + f.minute * 60 + f.second), "MM": (2, lambda f: f.month),
    "DDD": (3, lambda f: f.day_of_year), "IDDD": (3, lambda f: f.iso[2]), "DD": (2, lambda f: f.day),
    "D": (0, lambda f: f.weekday + 1), "ID": (0, lambda f: f.weekday or 7),
    "WW": (2, lambda f: _quotient(f.day_of_year - 1, 7)[0] + 1), "IW": (2, lambda f: f.iso[1]),
    "YYYY": (4, lambda f: f.shown_year), "YYY": (3, lambda f: _quotient(f.shown_year, 1000)[1]),
    "YY": (2, lambda f: _quotient(f.shown_year, 100)[1]), "Y": (1, lambda f: _quotient(f.shown_year, 10)[1]),
    "IYYY": (4, lambda f: f.iso[0]), "IYY": (3, lambda f: _quotient(f.iso[0], 1000)[1]),
    "IY": (2, lambda f: _quotient(f.iso[0], 100)[1]), "I": (1, lambda f: _quotient(f.iso[0], 10)[1]),
    "W": (0, lambda f: _quotient(f.day - 1, 7)[0] + 1), "J": (0, lambda f: julian(f.year, f.month, f.day)),
}  # fmt: skip


# -- to_date and to_timestamp ---------------------------------------------------------------------------------------


def _invalid(message: str) -> PgError:
    return PgError(SqlState.INVALID_DATETIME_FORMAT, message)


class Moment(NamedTuple):
    """The result of reading. `us`: time of day; `offset_s`: of the zone in the text, or None.

    `decimals`: of the seconds, as in the template (FF3); a timestamp is rounded to them.
    """

    days: int
    us: int
    offset_s: int | None
    decimals: int = 6


def read(text: str, format: str) -> Moment:
    """22007 if the text does not match the template, 22008 if a field is out of range."""
    reader = _Reader(text, nodes(format))
    reader.run()
    return reader.moment()


class _Reader:
    """DCH_from_char and do_to_timestamp."""

    def __init__(self, text: str, template: Sequence[Node]) -> None:
        self.text, self.template = text, template
        self.at = 0
        self.exact = False  # FX
        self.skipped = 0  # characters of the text skipped in excess of the template's
        self.found: dict[str, int] = {}
        self.is_iso: bool | None = None
        self.year_digits = 0
        self.is_12_hours = False
        self.decimals = 6

    @property
    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _skip_spaces(self) -> None:
        while self._next and self._next in " \t\n\v\f\r":
            self.at += 1
            self.skipped += 1

    def run(self) -> None:
        for index, node in enumerate(self.template):
            if self.at >= len(self.text):
                break
            if not self.exact and node.pattern != "FX" and (node.pattern or index == 0):
                self._skip_spaces()
            if node.pattern:
                self._field(index, node)
                if not self.exact:
                    self.skipped = 0
                    self._skip_spaces()
            elif self.exact:
                self.at += 1
            elif node.is_separator and node.spelled != "quoted":
                self.skipped -= 1
                if self._next and Node("", "", self._next).is_separator:
                    self.at += 1
                    self.skipped += 1
            elif self.skipped > 0:
                self.skipped -= 1
            else:
                self.at += 1

    def _set(self, name: str, value: int, node: Node) -> None:
        if self.found.get(name, 0) not in (0, value):
            raise _invalid(f'conflicting values for "{node.spelled}" field in formatting string')
        self.found[name] = value

    def _word(self, words: Sequence[str], node: Node) -> int:
        rest = self.text[self.at :].lower()
        for i, word in enumerate(words):
            if rest.startswith(word.lower()):
                self.at += len(word)
                return i
        raise _invalid(f'invalid value "{self.text[self.at :].split(" ")[0]}" for "{node.spelled}"')

    def _ends_number(self, index: int) -> bool:
        """Whether the next element of the template cannot be a digit."""
        if self.template[index].ordinal or index + 1 == len(self.template):
            return True
        following = self.template[index + 1]
        return following.pattern in _NOT_DIGITS if following.pattern else not following.character.isdigit()

    def _integer(self, name: str, index: int, digits: int) -> int:
        """Reads a number and stores it as `name`. Returns how many characters it took."""
        node, start = self.template[index], self.at
        begin = start
        while self.text[begin : begin + 1] and self.text[begin] in " \t\n\v\f\r":
            begin += 1
        limit = None if node.fill or self._ends_number(index) else digits
        if limit is not None and len(self.text) - begin < limit:
            raise _invalid(f'source string too short for "{node.spelled}" formatting field')
        end = begin
        stop = len(self.text) if limit is None else begin + limit
        while end < stop and (self.text[end] in "0123456789" or (end == begin and self.text[end] in "+-")):
            end += 1
        if end == begin or self.text[begin:end] in ("+", "-"):
            raise _invalid(f'invalid value "{self.text[begin : begin + digits]}" for "{node.spelled}"')
        if limit is not None and end - begin < limit:
            raise _invalid(f'invalid value "{self.text[begin : begin + limit]}" for "{node.spelled}"')
        value = int(self.text[begin:end])
        if not -(1 << 31) <= value < 1 << 31:
            message = f'value for "{node.spelled}" in source string is out of range'
            raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, message)
        self.at = end
        if name:
            self._set(name, value, node)
        return end - start

    def _field(self, index: int, node: Node) -> None:
        pattern = node.pattern
        if pattern in _ISO or pattern in _GREGORIAN:
            is_iso = pattern in _ISO
            if self.is_iso not in (None, is_iso):
                raise _invalid("invalid combination of date conventions")
            self.is_iso = is_iso
        match pattern:
            case "FX":
                self.exact = True
                return
            case "A.M." | "P.M." | "AM" | "PM":
                halves = ("a.m.", "p.m.") if "." in pattern else ("am", "pm")
                self._set("pm", self._word(halves, node), node)
                self.is_12_hours = True
                return
            case "A.D." | "B.C." | "AD" | "BC":
                eras = ("a.d.", "b.c.") if "." in pattern else ("ad", "bc")
                self._set("bc", self._word(eras, node), node)
                return
            case "TZ" | "OF":
                message = f'formatting field "{node.spelled}" is only supported in to_char'
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
            case "TZH":
                sign = -1 if self._next == "-" or (self.skipped > 0 and self.text[self.at - 1 : self.at] == "-") else 1
                if self._next in ("+", " "):
                    sign = 1
                self.at += self._next in ("+", "-", " ")
                self.found["zone sign"] = sign
                self._integer("zone hour", index, 2)
                return
            case "MONTH" | "MON":
                months = _MONTHS if pattern == "MONTH" else tuple(m[:3] for m in _MONTHS)
                self._set("month", self._word(months, node) + 1, node)
                return
            case "DAY" | "DY":
                days = _DAYS if pattern == "DAY" else tuple(d[:3] for d in _DAYS)
                self._set("weekday", self._word(days, node), node)  # before the conversion to 1-based, as in PostgreSQL
                self.found["weekday"] += 1
                return
            case "RM":
                self._set("month", 12 - self._word(_ROMAN, node), node)
                return
            case "HH" | "HH12":
                self.is_12_hours = True
                self._integer("hour", index, 2)
            case "MS":
                length = self._integer("ms", index, 3)
                self.found["ms"] *= {1: 100, 2: 10}.get(length, 1)
            case "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6":
                if pattern != "US":
                    self.decimals = int(pattern[2])
                length = self._integer("us", index, 6 if pattern == "US" else self.decimals)
                self.found["us"] *= 10 ** max(6 - length, 0)
            case "TZM":
                self.found.setdefault("zone sign", 1)
                self._integer("zone minute", index, 2)
                return
            case "ID":
                self._integer("weekday", index, 1)
                self.found["weekday"] = self.found["weekday"] + 1 if self.found["weekday"] < 7 else 1
            case "Y,YYY":
                self._thousands(node)
            case "YYYY" | "YYY" | "YY" | "Y" | "IYYY" | "IYY" | "IY" | "I":
                self.year_digits = len(pattern)
                length = self._integer("year", index, len(pattern))
                if len(pattern) < 4 and length < 4:
                    self.found["year"] = _near_2020(self.found["year"])
            case _:
                name, digits = _READ[pattern]
                self._integer(name, index, digits)
        if node.ordinal:
            self.at = min(self.at + 2, len(self.text))

    def _thousands(self, node: Node) -> None:
        match = _THOUSANDS.match(self.text, self.at)
        if match is None:
            raise _invalid('invalid input string for "Y,YYY"')
        self._set("year", int(match[1]) * 1000 + int(match[2]), node)
        self.year_digits = 4
        self.at = match.end()

    # -- the moment -------------------------------------------------------------------------------------------------

    def _out_of_range(self) -> PgError:
        message = f'date/time field value out of range: "{self.text}"'
        return PgError(SqlState.DATETIME_FIELD_OVERFLOW, message)

    def moment(self) -> Moment:
        get = self.found.get
        hour, minute, second, fraction = self._clock()
        year, month, day, known = self._date()
        if "month" in known and not 1 <= month <= 12:
            raise self._out_of_range()
        if "day" in known and not 1 <= day <= 31:
            raise self._out_of_range()
        if known >= {"year", "month", "day"} and day > _days_of(year)[month - 1]:
            raise self._out_of_range()
        if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= fraction < 1_000_000):
            raise self._out_of_range()
        us = (hour * 3600 + minute * 60 + second) * 1_000_000 + fraction
        if not -4713 <= year <= 5_874_897:
            raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, f'date out of range: "{self.text}"')
        offset = None
        if "zone sign" in self.found:
            hours, minutes = get("zone hour", 0), get("zone minute", 0)
            if not 0 <= hours <= 15 or not 0 <= minutes < 60:
                message = f'time zone displacement out of range: "{self.text}"'
                raise PgError(SqlState.INVALID_TIME_ZONE_DISPLACEMENT_VALUE, message)
            offset = self.found["zone sign"] * (hours * 3600 + minutes * 60)
        return Moment(julian(year, month, day) - _EPOCH, us, offset, self.decimals)

    def _clock(self) -> tuple[int, int, int, int]:
        """Hour, minute, second and microseconds; not yet range-checked."""
        get = self.found.get
        hour = minute = second = 0
        if get("second of day"):
            hour, rest = _quotient(self.found["second of day"], 3600)
            minute, second = _quotient(rest, 60)
        second, minute, hour = get("second") or second, get("minute") or minute, get("hour") or hour
        if self.is_12_hours:
            if not 1 <= hour <= 12:
                raise _invalid(f'hour "{hour}" is invalid for the 12-hour clock')
            hour = hour % 12 + (12 if get("pm") else 0)
        return hour, minute, second, get("ms", 0) * 1000 + get("us", 0)

    def _date(self) -> tuple[int, int, int, set[str]]:
        """Year, month, day, and the names of those that the text determines."""
        get = self.found.get
        year, month, day, known = 0, 1, 1, set[str]()
        century = -get("century", 0) if get("bc") else get("century", 0)
        if get("year"):
            known.add("year")
            year = self.found["year"]
            if century and self.year_digits <= 2:
                year = _quotient(year, 100)[1]
                if not year:
                    year = century * 100 + (century < 0)
                elif century >= 0:
                    year += (century - 1) * 100
                else:
                    year = (century + 1) * 100 - year + 1
            else:
                year = -year if get("bc") else year
                year += year < 0
        elif century:
            known.add("year")
            year = (century - 1) * 100 + 1 if century >= 0 else century * 100 + 1
        if get("julian"):
            year, month, day = calendar(self.found["julian"])
            known = {"year", "month", "day"}
        day_of_year = get("day of year", 0)
        if get("week"):
            if self.is_iso:
                weekday = get("weekday", 0)
                shift = 0 if not weekday else 6 if weekday == 1 else weekday - 2
                year, month, day = calendar(_week_start(year, self.found["week"]) + shift)
                known = {"year", "month", "day"}
            else:
                day_of_year = (self.found["week"] - 1) * 7 + 1
        of_month = (self.found["week of month"] - 1) * 7 + 1 if get("week of month") else get("day", 0)
        if of_month:
            day = of_month
            known.add("day")
        if get("month"):
            month = self.found["month"]
            known.add("month")
        if day_of_year and (month <= 1 or day <= 1):
            if not year and not get("bc"):
                raise _invalid("cannot calculate day of year without year information")
            if self.is_iso:
                year, month, day = calendar(_week_start(year, 1) - 1 + day_of_year)
                return year, month, day, {"year", "month", "day"}
            ends = [sum(_days_of(year)[:i]) for i in range(13)]
            found = next((i for i in range(1, 13) if day_of_year <= ends[i]), 13)
            month = found if month <= 1 else month
            day = day_of_year - ends[found - 1] if day <= 1 else day
            known |= {"month", "day"}
        return year, month, day, known


def _near_2020(year: int) -> int:
    if year < 70:
        return year + 2000
    if year < 100:
        return year + 1900
    return year + 2000 if year < 520 else year + 1000 if year < 1000 else year


_READ: dict[str, tuple[str, int]] = {
    "HH24": ("hour", 2), "MI": ("minute", 2), "SS": ("second", 2), "SSSS": ("second of day", 4),
    "SSSSS": ("second of day", 5), "MM": ("month", 2), "DDD": ("day of year", 3), "IDDD": ("day of year", 3),
    "DD": ("day", 2), "D": ("weekday", 1), "WW": ("week", 2), "IW": ("week", 2), "Q": ("", 1), "CC": ("century", 2),
    "W": ("week of month", 1), "J": ("julian", 1),
}  # fmt: skip
