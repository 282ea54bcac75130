"""Dates, times, timestamps and intervals as PostgreSQL reads them, one value at a time.

A port of the input side of src/backend/utils/adt/datetime.c (version 16) with DateStyle ISO, MDY: the text is cut
into fields by their looks (`_fields`), then each field is given its meaning by its kind and by what is known already
(`_Moment`, `_span`): `2020-01-31T10:20:30.5+05:30`, `Jan 31 2020 BC`, `1/31/2020 4:00 pm Europe/Berlin`, `J2451187`,
`20200131 102030`, `1 year -2 days 04:05:06 ago`, `P1Y2M3DT4H`. Refused although PostgreSQL takes them: `infinity`,
which the columns cannot hold, and `now`, `today`, ..., which would read a clock.
Results are counts as types.py lists them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo
from zoneinfo import ZoneInfo

import pyarrow as pa

from protocol.pgwire.datetime_output import DAY_US, civil_from_days, days_from_civil, days_in_month
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.timezones import SECOND_US, local_offset, zone

_INT32_MAX, _INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
DATE_MIN, DATE_END = days_from_civil(-4713, 11, 24), days_from_civil(5874898, 1, 1)
POSTGRES_EPOCH_DAYS = 10_957  # 2000-01-01
_INSTANT_MIN = DATE_MIN * DAY_US


class _Bad(Exception):
    """A text that is not understood (`syntax`), or understood and out of range."""

    def __init__(self, sqlstate: SqlState, message: str, hint: str | None = None) -> None:
        self.sqlstate, self.message, self.hint = sqlstate, message, hint


def _syntax() -> _Bad:
    return _Bad(SqlState.INVALID_DATETIME_FORMAT, 'invalid input syntax for type {type}: "{text}"')


def _overflow(hint: str | None = None) -> _Bad:
    return _Bad(SqlState.DATETIME_FIELD_OVERFLOW, 'date/time field value out of range: "{text}"', hint)


def _told(bad: _Bad, type: str, text: str) -> PgError:
    return PgError(bad.sqlstate, bad.message.format(type=type, text=text), hint=bad.hint)


# ---- cutting the text

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


def _fields(text: str) -> list[tuple[str, str]]:
    """ParseDateTime(): (kind, lower-case text) of each field; kinds are the groups of `_FIELD`."""
    found: list[tuple[str, str]] = []
    position, end = 0, len(text.rstrip(" \t\n\v\f\r"))
    while position < end:
        match = _FIELD.match(text, position, end)
        if match is None:
            raise _syntax()
        position = match.end()
        kind = match.lastgroup
        kind = "date" if kind in ("delimiter", "around") else kind
        if kind is None:
            continue
        value = match[kind].lower()
        if kind == "word" and position < end:
            following = text[position]
            if following in "-/." or ((following == "+" or following.isdecimal()) and value not in _WORDS):
                glued = _GLUED.match(text, position, end)
                if glued is not None:
                    value, position, kind = value + glued[0].lower(), glued.end(), "date"
        if kind in ("zone", "sign"):
            value = re.sub(r"\s+", "", value)
        found.append((kind, value))
    if len(found) > 25:
        raise _syntax()
    return found


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MONTH_NAMES = """
    jan january|feb february|mar march|apr april|may|jun june|jul july|aug august|sep sept september|oct october
    |nov november|dec december"""
_MONTHS = {name: number for number, names in enumerate(_MONTH_NAMES.split("|"), start=1) for name in names.split()}
_WEEKDAYS = _words(
    "sun sunday mon monday tue tues tuesday wed weds wednesday thu thur thurs thursday fri friday sat saturday"
)
_IGNORED = _words("at on")
_OF_THE_CLOCK = _words("now today tomorrow yesterday")
_OTHER_WORDS = _words("infinity ad bc am pm allballs epoch d dow doy dst h isodow isoyear j jd julian m mm s t y")
_WORDS = _WEEKDAYS | _IGNORED | _OF_THE_CLOCK | _OTHER_WORDS | frozenset(_MONTHS)
_ABBREVIATIONS = {
    name: offset
    for offset, names in {
        -39600: "nut",
        -36000: "ckt hst taht",
        -34200: "mart",
        -32400: "akst gamt",
        -28800: "akdt pst",
        -25200: "mst pdt",
        -21600: "cst galt mdt",
        -18000: "act cdt cot easst east est pet",
        -14400: "amt ast bot edt gyt vet",
        -12600: "nft nst",
        -10800: "adt arst art bra brt clst clt fkst fkt gft pmst pyst pyt uyt wgt",
        -9000: "ndt",
        -7200: "brst fnt pmdt uyst wgst",
        -3600: "azot egt fnst",
        0: "azost egst gmt uct ut utc wet z zulu",
        3600: "bst cet met mez wat wetdst",
        7200: "bdst cest cetdst eet ist mest mesz metdst sast",
        10800: "eat eest eetdst fet idt msk volt",
        12600: "irt",
        14400: "amst azst azt gest get msd mut ret sct",
        16200: "aft",
        18000: "mawt must mvt pkt tft tjt tmt uzt yekt",
        19800: "lkt",
        20700: "npt",
        21600: "almt bdt btt iot kgst kgt omsst omst pkst uzst xjt yekst",
        23400: "mmt",
        25200: "almst cxt davt ict krast krat novst novt wast",
        28800: "awst bnt bort cct hkt irkst irkt myt pht sgt ulat wadt",
        31500: "acwst",
        32400: "awsst jayt jst kst pwt ulast wdt yakst yakt",
        34200: "acst cast",
        36000: "aest chut ddut kdt ligt mpt pgt trut vlast vlat yapt",
        37800: "acdt acsst cadt lhst sadt",
        39600: "aedt aesst kost lhdt magst magt pont vut",
        43200: "anast anat fjt gilt mht nzst nzt petst pett tvt wakt wft",
        45900: "chast",
        46800: "fjst nzdt tkt tot",
        49500: "chadt",
        50400: "lint",
    }.items()
    for name in names.split()
}  # timezonesets/Default of PostgreSQL 16


def zone_abbreviation(name: str) -> int | None:
    """The offset in seconds of a zone's abbreviation; None if it is none."""
    return _ABBREVIATIONS.get(name.lower())


# ---- a point in time

_YEAR, _MONTH, _DAY, _TIME, _ZONE, _HALF, _ERA, _WEEKDAY, _SUMMER = (1 << bit for bit in range(9))
_DATE = _YEAR | _MONTH | _DAY


@dataclass(slots=True)
class _Moment:
    """What the fields of a text have said so far: DecodeDateTime()'s variables."""

    known: int = 0
    year: int = 0
    month: int = 0
    day: int = 0
    of_year: int | None = None
    us: int = 0
    hour: int = 0
    offset: int | None = None
    zone: tzinfo | None = None
    half: str = ""
    bc: bool = False
    short_year: bool = False
    month_by_name: bool = False
    awaits: str = ""
    special: str = ""

    def take(self, what: int) -> None:
        if what & self.known:
            raise _syntax()
        self.known |= what

    @property
    def has_date(self) -> bool:
        return self.known & _DATE == _DATE

    def set_time(self, hour: int, minute: int, second: int, us: int) -> None:
        total = ((hour * 60 + minute) * 60 + second) * SECOND_US + us
        if hour > 24 or minute > 59 or second > 60 or total > DAY_US:
            raise _overflow()
        self.take(_TIME)
        self.hour, self.us = hour, total

    def read(self, kind: str, text: str, time_only: bool) -> None:
        if kind == "time":
            self._expect("time")
            self.set_time(*_clock(text))
        elif kind == "zone":
            self.take(_ZONE)
            self.offset = _displacement(text)
        elif kind == "date":
            self._read_date_or_zone(text, time_only)
        elif kind == "number":
            self._read_number(text, time_only)
        else:
            self._read_word(text, time_only)

    def _expect(self, awaited: str) -> None:
        if self.awaits not in ("", awaited):
            raise _syntax()
        self.awaits = ""

    def _read_date_or_zone(self, text: str, time_only: bool) -> None:
        if self.awaits == "julian":
            raise _syntax()
        if not time_only and not self.awaits and self.known & (_MONTH | _DAY) != _MONTH | _DAY:
            self._read_date(text)
        elif self.awaits or text[0].isdecimal():  # hhmmss-zz
            self._expect("time")
            clock, minus, displacement = text.partition("-")
            if not minus or self.known & _TIME:
                raise _syntax()
            self.take(_ZONE)
            self.offset = _displacement(minus + displacement)
            self._read_run_together(clock, time_only=time_only)
        else:
            self._set_zone(text)

    def _set_zone(self, name: str) -> None:
        self.take(_ZONE)
        try:
            self.zone = zone(name)
        except LookupError:
            message = f'time zone "{name}" not recognized'
            raise _Bad(SqlState.INVALID_PARAMETER_VALUE, message.replace("{", "{{").replace("}", "}}")) from None

    def _read_date(self, text: str) -> None:
        """DecodeDate(): a date in one field, parts apart by anything."""
        if not any(character.isalnum() for character in text[-2:]):
            raise _syntax()
        parts = re.findall(r"[0-9]+|[a-z]+", text)
        for part in [p for p in parts if p.isalpha() and p not in _IGNORED]:
            if part not in _MONTHS:
                raise _syntax()
            self.take(_MONTH)
            self.month, self.month_by_name = _MONTHS[part], True
        for part in [p for p in parts if not p.isalpha()]:
            self._read_number_alone(part)
        if self.known & ~_ZONE != _DATE:
            raise _syntax()

    def _read_number(self, text: str, time_only: bool) -> None:
        whole, point, _ = text.partition(".")
        if self.awaits == "julian":
            self.awaits = ""
            self.take(_DATE)
            self.year, self.month, self.day = civil_from_days(_bounded(whole) - 2_440_588)
            if point:
                self.set_time(0, 0, 0, round(float(text.removeprefix(whole)) * DAY_US))
        elif self.awaits or time_only:
            self._expect("time")
            self._read_run_together(text, time_only=True)
        elif point and not self.known & _DATE:
            self._read_date(text)
        elif (point and len(whole) > 2) or (len(text) >= 6 and not (self.has_date and self.known & _TIME)):
            self._read_run_together(text)
        else:
            self._read_number_alone(text)

    def _read_run_together(self, text: str, *, time_only: bool = False) -> None:
        """DecodeNumberField(): yyyymmdd, hhmmss, hhmm."""
        whole, point, fraction = text.partition(".")
        if not point and not self.has_date and not time_only and len(whole) >= 6:
            self.take(_DATE)
            self.year, self.month, self.day = int(whole[:-4]), int(whole[-4:-2]), int(whole[-2:])
            self.short_year = len(whole) == 6
        elif not self.known & _TIME and len(whole) in (4, 6):
            self.set_time(int(whole[:2]), int(whole[2:4]), int(whole[4:] or 0), _fraction(point + fraction))
        else:
            raise _syntax()

    def _read_number_alone(self, text: str) -> None:
        """DecodeNumber(): a year, month or day by its length and by what is known."""
        whole, point, _ = text.partition(".")
        if point and len(whole) > 2:
            return self._read_run_together(text, time_only=True)
        value, length, known = _bounded(whole), len(text), self.known & _DATE
        if length == 3 and known == _YEAR and 1 <= value <= 366:
            self.take(_MONTH | _DAY)
            self.of_year = value
            return None
        if known == _DATE:
            return self._read_run_together(text)
        long = length >= 3
        if known == _YEAR | _MONTH and self.month_by_name and long and self.short_year:
            self.take(_DAY)  # the first number was the day after all
            self.day, self.year, self.short_year = self.year, value, False
            return None
        if known == 0:
            what = _YEAR if long else _MONTH
        elif known == _MONTH and self.month_by_name:
            what = _YEAR if long else _DAY
        else:
            what = {_YEAR: _MONTH, _MONTH: _DAY, _YEAR | _MONTH: _DAY, _DAY: _MONTH, _MONTH | _DAY: _YEAR}.get(known, 0)
        if not what:
            raise _syntax()
        self.take(what)
        if what == _YEAR:
            self.year, self.short_year = value, length <= 2
        elif what == _MONTH:
            self.month = value
        else:
            self.day = value
        return None

    def _read_word(self, word: str, time_only: bool) -> None:
        if word in _ABBREVIATIONS:
            self.take(_ZONE)
            self.offset = _ABBREVIATIONS[word]
        elif word in _IGNORED:
            return
        elif time_only and (word in _MONTHS or word in _WEEKDAYS):
            raise _syntax()
        elif word in _MONTHS:
            if self.known & _MONTH and not self.month_by_name and not self.known & _DAY and 1 <= self.month <= 31:
                self.day = self.month
                self.known |= _DAY
            else:
                self.take(_MONTH)
            self.month, self.month_by_name = _MONTHS[word], True
        elif word in _WEEKDAYS:
            self.take(_WEEKDAY)
        elif word in ("am", "pm"):
            self.take(_HALF)
            self.half = word
        elif word in ("ad", "bc"):
            self.take(_ERA)
            self.bc = word == "bc"
        elif word in ("j", "jd", "julian") or (word == "t" and (self.has_date or time_only)):
            self._expect("nothing")
            self.awaits = "time" if word == "t" else "julian"
        elif word in ("epoch", "infinity", "+infinity", "-infinity") or word in _OF_THE_CLOCK:
            self.take(_DATE | _TIME | _ZONE if word not in _OF_THE_CLOCK - {"now"} else _DATE)
            self.special = word
        elif word == "dst":
            self.take(_SUMMER)
        elif word == "allballs":
            self.take(_TIME | _ZONE)
            self.offset = 0
        elif word in _WORDS:
            raise _syntax()
        else:
            self.take(_ZONE)
            try:
                self.zone = zone(word)
            except LookupError:
                raise _syntax() from None

    def finish(self, *, time_only: bool) -> None:
        """The checks after the last field: ValidateDate(), AM and PM."""
        if self.awaits:
            raise _syntax()
        if self.special in _OF_THE_CLOCK:
            message = 'date/time value "{text}" is not supported here: it would depend on the time of reading'
            raise _Bad(SqlState.FEATURE_NOT_SUPPORTED, message, "Use now() or current_date.")
        if self.special:
            return
        self._validate_date()
        if self.known & _SUMMER:  # "MET DST"
            if self.offset is None:
                raise _syntax()
            self.offset += 3600
        if self.half and self.hour > 12:
            raise _overflow()
        if self.half == "am" and self.hour == 12:
            self.us -= 12 * 3600 * SECOND_US
        elif self.half == "pm" and self.hour != 12:
            self.us += 12 * 3600 * SECOND_US
        if not (self.known & _TIME if time_only else self.has_date):
            raise _syntax()
        if isinstance(self.zone, ZoneInfo) and not self.has_date:  # its offset would depend on the day
            raise _syntax()

    def _validate_date(self) -> None:
        if self.known & _YEAR:
            if self.year <= 0 and not self.short_year:
                raise _overflow()
            if self.bc:
                if self.year <= 0:
                    raise _overflow()
                self.year = 1 - self.year
            elif self.short_year:
                self.year += 2000 if self.year < 70 else 1900
        if self.of_year is not None:
            _, self.month, self.day = civil_from_days(days_from_civil(self.year, 1, 1) + self.of_year - 1)
        order = 'Perhaps you need a different "datestyle" setting.'
        if self.known & _MONTH and not 1 <= self.month <= 12:
            raise _overflow(order)
        if self.known & _DAY and not 1 <= self.day <= 31:
            raise _overflow(order)
        if self.has_date and self.day > days_in_month(self.year, self.month):
            raise _overflow()

    @property
    def days(self) -> int:
        return days_from_civil(self.year, self.month, self.day)


def _bounded(digits: str) -> int:
    value = int(digits or 0)
    if value > _INT32_MAX:
        raise _overflow()
    return value


def _fraction(text: str) -> int:
    """`.5` in microseconds, rounded as rint() does."""
    return round(float(f"0{text}0") * SECOND_US) if text else 0


_CLOCK = re.compile(r"(\d+):(\d*)(?::(\d*)(\.\d*)?|(\.\d*))?$", re.ASCII)


def _clock(text: str) -> tuple[int, int, int, int]:
    """DecodeTime(): hh:mm, hh:mm:ss, hh:mm:ss.ffffff; mm:ss.fff too. The hour is not checked."""
    match = _CLOCK.match(text)
    if match is None:
        raise _syntax()
    hour, minute, second = int(match[1]), _bounded(match[2]), _bounded(match[3] or "")
    us = _fraction(match[4] or match[5] or "")
    if match[5] is not None:
        hour, minute, second = 0, hour, minute
    if hour > _INT64_MAX or minute > 59 or second > 60:
        raise _overflow()
    return hour, minute, second, us


_DISPLACEMENT = re.compile(r"([+-])(\d+)(?::(\d*)(?::(\d*))?)?$", re.ASCII)


def _displacement(text: str) -> int:
    """DecodeTimezone(): +hh, +hhmm, +hh:mm, +hh:mm:ss in seconds east."""
    match = _DISPLACEMENT.match(text)
    if match is None:
        raise _syntax()
    sign, first, second, third = match.groups()
    hours, minutes, seconds = _bounded(first), _bounded(second or "0"), _bounded(third or "0")
    if second is None and len(first) > 2:
        hours, minutes = divmod(hours, 100)
    if hours > 15 or minutes > 59 or seconds > 59:
        raise _Bad(SqlState.INVALID_TIME_ZONE_DISPLACEMENT_VALUE, 'time zone displacement out of range: "{text}"')
    total = (hours * 60 + minutes) * 60 + seconds
    return -total if sign == "-" else total


def _moment(text: str, *, time_only: bool = False) -> _Moment:
    moment = _Moment()
    fields = _fields(text)
    # A time may carry a date before it, which then only says which day a zone's offset is taken on.
    dated = len(fields) >= 2 and fields[0][0] == "date" and (fields[1][0] == "time" or fields[-1][0] == "date")
    for index, (kind, value) in enumerate(fields):
        moment.read(kind, value, time_only and not (dated and index == 0))
    moment.finish(time_only=time_only)
    return moment


def parse_date(text: str) -> int:
    """Days since 1970-01-01. Raises PgError 22007, 22008, 22023."""
    try:
        moment = _moment(text)
    except _Bad as bad:
        raise _told(bad, "date", text) from None
    if moment.special == "epoch":
        return 0
    days = None if moment.special else moment.days
    if days is None or not DATE_MIN <= days < DATE_END:
        raise _out_of_range("date", text, infinite=days is None)
    return days


def parse_time(text: str) -> int:
    """Microseconds since midnight, 24:00:00 included; a zone is read and dropped."""
    try:
        moment = _moment(text, time_only=True)
        if moment.special:
            raise _syntax()
    except _Bad as bad:
        raise _told(bad, "time", text) from None
    return moment.us


def parse_timestamp(text: str) -> int:
    """Microseconds since 1970-01-01 00:00; a zone is read and dropped."""
    return _parse_instant(text, "timestamp", None)


def parse_timestamptz(text: str, timezone: str = "UTC") -> int:
    """Microseconds since 1970-01-01 00:00 UTC; without a zone of its own the text means `timezone`'s local time."""
    return _parse_instant(text, "timestamp with time zone", timezone)


def _parse_instant(text: str, type: str, timezone: str | None) -> int:
    try:
        moment = _moment(text)
    except _Bad as bad:
        raise _told(bad, type, text) from None
    if moment.special == "epoch":
        return 0
    if moment.special:
        raise _out_of_range("timestamp", text, infinite=True)
    us = moment.days * DAY_US + moment.us
    if timezone is not None:
        offset = moment.offset
        if offset is None:
            offset = local_offset(moment.zone or zone(timezone), us)
        us -= offset * SECOND_US
    if not _INSTANT_MIN <= us <= _INT64_MAX:
        raise _out_of_range("timestamp", text, infinite=False)
    return us


def _out_of_range(what: str, text: str, *, infinite: bool) -> PgError:
    detail = "Infinite dates and timestamps cannot be stored." if infinite else None
    return PgError(SqlState.DATETIME_FIELD_OVERFLOW, f'{what} out of range: "{text}"', detail=detail)


# ---- a span of time

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
    """The unit that an interval's text calls so; None if it is none. Ten letters count."""
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
    """What the fields add up to; fractions of a unit flow into the smaller ones, a month being 30 days."""

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
            raise _syntax()
        if max(abs(self.years), abs(self.months), abs(self.days)) > _INT32_MAX or abs(self.us) > _INT64_MAX:
            raise _span_overflow()

    def _add_days(self, days: float) -> None:
        self.days += int(days)
        self._add_us((days - int(days)) * DAY_US)

    def _add_us(self, us: float) -> None:
        rest = us - int(us)
        self.us += int(us) + (1 if rest > 0.5 else -1 if rest < -0.5 else 0)

    def value(self, sign: int) -> pa.MonthDayNano:
        return interval_of(sign * (self.years * 12 + self.months), sign * self.days, sign * self.us)


def _span_overflow() -> _Bad:
    return _Bad(SqlState.INTERVAL_FIELD_OVERFLOW, 'interval field value out of range: "{text}"')


_SIGNED = re.compile(r"([+-]?)(\d*)(\.\d*)?$", re.ASCII)
_YEARS_MONTHS = re.compile(r"([+-]?)(\d+)-(\d+)$", re.ASCII)


def _signed_number(text: str) -> tuple[int, float]:
    """`-1.5` as (-1, -0.5)."""
    match = _SIGNED.match(text)
    if match is None:
        raise _syntax()
    sign = -1 if match[1] == "-" else 1
    whole = int(match[2] or 0)
    if whole > _INT64_MAX:
        raise _span_overflow()
    return sign * whole, sign * float(f"0{match[3] or '.'}0")


def _span(text: str, default: str) -> pa.MonthDayNano:
    """DecodeInterval(): from the last field to the first, so that a unit is known before its number."""
    span, seen, unit, sign_of_all = _Span(), set[str](), "", 1
    for kind, value in reversed(_fields(text)):
        if kind == "time" or (kind == "zone" and ":" in value):
            sign = -1 if value[0] == "-" else 1
            try:
                hour, minute, second, us = _clock(value.lstrip("+-"))
            except _Bad as bad:
                raise _span_overflow() if bad.sqlstate == SqlState.DATETIME_FIELD_OVERFLOW else bad from None
            span.us = 0  # a time replaces what fractions of days have given, as in PostgreSQL
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
            sign_of_all, unit = -1, value
            continue
        elif value[:10] in _UNITS:
            unit = _UNITS[value[:10]]
            continue
        else:
            raise _syntax()
        if named & seen:
            raise _syntax()
        seen |= named
    if not seen:
        raise _syntax()
    return span.value(sign_of_all)


_ISO_PART = re.compile(r"([+-]?\d*(?:\.\d*)?)([A-Z])")
_ISO_UNITS = ({"Y": "year", "M": "month", "D": "day", "W": "week"}, {"H": "hour", "M": "minute", "S": "second"})
_ISO_DATE = re.compile(r"(\d{4})(\d\d)(\d\d)$|([+-]?\d+)(?:-(\d+)(?:-(\d+))?)?$", re.ASCII)
_ISO_TIME = re.compile(r"(\d\d)(\d\d)(\d\d(?:\.\d*)?)$|(\d+)(?::(\d+)(?::(\d+(?:\.\d*)?))?)?$", re.ASCII)


def _float_parts(text: str) -> tuple[int, float]:
    """`-1.5` as (-1, -0.5), with the rounding of PostgreSQL's ParseISO8601Number()."""
    value = float(text)
    if abs(value) > 1e15:
        raise _span_overflow()
    return int(value), value - int(value)


def _iso_span(text: str) -> pa.MonthDayNano:
    """DecodeISO8601Interval(): P1Y2M3DT4H5M6S, P0001-02-03T04:05:06, P00010203T040506."""
    if len(text) < 2 or text[0] != "P":
        raise _syntax()
    span = _Span()
    for part, units, whole_part in zip(text[1:].partition("T")[::2], _ISO_UNITS, (_ISO_DATE, _ISO_TIME), strict=True):
        whole = whole_part.match(part)
        if whole is not None:
            numbers = [number for number in whole.groups() if number is not None]
            for unit, number in zip(units.values(), numbers, strict=False):  # the last may be left out
                span.add(unit, *_float_parts(number))
            continue
        position = 0
        for match in _ISO_PART.finditer(part):
            if match.start() != position or match[2] not in units or not re.search(r"\d", match[1]):
                raise _syntax()
            span.add(units[match[2]], *_float_parts(match[1]))
            position = match.end()
        if position != len(part):
            raise _syntax()
    return span.value(1)


def parse_interval(text: str, unit: str = "second") -> pa.MonthDayNano:
    """Raises PgError: 22007, 22015, and 22008 when hours and below pass +-292 years (nanoseconds in 64 bits).

    `unit`: of a last number without one.
    """
    try:
        try:
            return _span(text, unit)
        except _Bad as bad:
            if bad.sqlstate != SqlState.INVALID_DATETIME_FORMAT:
                raise
            return _iso_span(text)
    except _Bad as bad:
        raise _told(bad, "interval", text) from None


def interval_of(months: int, days: int, us: int) -> pa.MonthDayNano:
    """The Arrow value; 22008 when the months or, as nanoseconds, the microseconds do not fit."""
    if abs(months) > _INT32_MAX or abs(us) * 1000 > _INT64_MAX:
        raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, "interval out of range")
    return pa.MonthDayNano((months, days, us * 1000))
