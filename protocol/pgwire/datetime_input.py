"""Input of dates, times and timestamps, one value at a time.

A port of the input part of src/backend/utils/adt/datetime.c (version 16). `datetime_text`
splits the text into fields; `_Moment` interprets each field by its kind and by the fields before it. Examples:
`2020-01-31T10:20:30.5+05:30`, `Jan 31 2020 BC`, `1/31/2020 4:00 pm Europe/Berlin`, `J2451187`, `20200131 102030`.
Unlike PostgreSQL it refuses `now`, `today`, ..., which depend on the clock. Results are integers with the units listed
in types.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

from protocol.pgwire.datetime_output import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    DAY_US,
    INFINITY,
    MINUS_INFINITY,
    civil_from_days,
    days_from_civil,
    days_in_month,
)
from protocol.pgwire.datetime_text import (
    IGNORED,
    MONTHS,
    OF_THE_CLOCK,
    WEEKDAYS,
    WORDS,
    BadText,
    bad_syntax,
    bounded,
    clock_of,
    field_overflow,
    fields_of,
    fraction_us,
    to_pg_error,
)
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.timezones import SECOND_US, Abbreviation, local_offset, zone

DATE_MIN, DATE_END = days_from_civil(-4713, 11, 24), days_from_civil(5874898, 1, 1)
POSTGRES_EPOCH_DAYS = 10_957  # 2000-01-01
_INSTANT_MIN = DATE_MIN * DAY_US
_ABBREVIATIONS = {
    name: offset
    for offset, names in {
        -36000: "hst taht",
        -34200: "mart",
        -32400: "akst gamt",
        -28800: "akdt pst",
        -25200: "mst pdt",
        -21600: "cst galt mdt",
        -18000: "act cdt cot est pet",
        -14400: "amt ast bot edt",
        -12600: "nft nst",
        -10800: "adt bra brt clst gft pmst pyst uyt wgt",
        -9000: "ndt",
        -7200: "brst fnt pmdt uyst wgst",
        -3600: "azot egt fnst",
        0: "azost egst gmt uct ut utc wet z zulu",
        3600: "bst cet met mez wat wetdst",
        7200: "bdst cest cetdst eet ist mest mesz metdst sast",
        10800: "eat eest eetdst fet idt",
        12600: "irt",
        14400: "msd mut ret sct",
        16200: "aft",
        18000: "must mvt pkt tft tjt uzt",
        20700: "npt",
        21600: "almt bdt btt kgst pkst uzst xjt yekst",
        23400: "mmt",
        25200: "almst cxt ict wast",
        28800: "awst bnt bort cct hkt myt pht wadt",
        31500: "acwst",
        32400: "awsst jayt jst kst pwt ulast wdt",
        34200: "acst cast",
        36000: "aest chut ddut kdt ligt mpt pgt trut yapt",
        37800: "acdt acsst cadt lhst sadt",
        39600: "aedt aesst pont vut",
        43200: "fjt gilt mht nzst nzt tvt wakt wft",
        45900: "chast",
        46800: "fjst nzdt tot",
        49500: "chadt",
    }.items()
    for name in names.split()
}  # timezonesets/Default of PostgreSQL 16
_CHANGING = {
    name: zone
    for zone, names in {
        "America/Argentina/Buenos_Aires": "arst art",
        "America/Asuncion": "pyt",
        "America/Caracas": "vet",
        "America/Guyana": "gyt",
        "America/Santiago": "clt",
        "Antarctica/Davis": "davt",
        "Antarctica/Mawson": "mawt",
        "Asia/Anadyr": "anast anat",
        "Asia/Ashgabat": "tmt",
        "Asia/Baku": "azst azt",
        "Asia/Bishkek": "kgt",
        "Asia/Colombo": "lkt",
        "Asia/Irkutsk": "irkst irkt",
        "Asia/Kamchatka": "petst pett",
        "Asia/Krasnoyarsk": "krast krat",
        "Asia/Magadan": "magst magt",
        "Asia/Novosibirsk": "novst novt",
        "Asia/Omsk": "omsst omst",
        "Asia/Singapore": "sgt",
        "Asia/Tbilisi": "gest get",
        "Asia/Ulaanbaatar": "ulat",
        "Asia/Vladivostok": "vlast vlat",
        "Asia/Yakutsk": "yakst yakt",
        "Asia/Yekaterinburg": "yekt",
        "Asia/Yerevan": "amst",
        "Atlantic/Stanley": "fkst fkt",
        "Australia/Lord_Howe": "lhdt",
        "Europe/Moscow": "msk",
        "Europe/Volgograd": "volt",
        "Indian/Chagos": "iot",
        "Pacific/Easter": "easst east",
        "Pacific/Fakaofo": "tkt",
        "Pacific/Kiritimati": "lint",
        "Pacific/Kosrae": "kost",
        "Pacific/Niue": "nut",
        "Pacific/Rarotonga": "ckt",
    }.items()
    for name in names.split()
}  # abbreviations in that file whose offset depends on the history of a zone


SUMMER_ABBREVIATIONS = frozenset(
    name
    for names in (
        "acdt acsst adt aedt aesst akdt almst awsst azost bdst brst bst cadt cdt cest cetdst chadt clst edt eest",
        "eetdst egst fjst fnst idt kdt kgst mdt mest mesz metdst msd must ndt nzdt pdt pkst pmdt pyst sadt ulast uyst",
        "uzst wadt wdt wetdst wgst yekst",
    )
    for name in names.split()
)
"""The abbreviations of `_ABBREVIATIONS` that denote summer time."""


def abbreviations() -> Iterator[str]:
    """All abbreviations of time zones, in lower case."""
    yield from _ABBREVIATIONS
    yield from _CHANGING


@cache
def _changing(name: str) -> Abbreviation:
    return Abbreviation(name, _CHANGING[name])


def zone_abbreviation(name: str) -> tzinfo | Abbreviation | None:
    """The time zone that an abbreviation denotes; None if it is not an abbreviation."""
    name = name.lower()
    if name in _CHANGING:
        return _changing(name)
    offset = _ABBREVIATIONS.get(name)
    return None if offset is None else timezone(timedelta(seconds=offset))


_YEAR, _MONTH, _DAY, _TIME, _ZONE, _HALF, _ERA, _WEEKDAY, _SUMMER = (1 << bit for bit in range(9))
_DATE = _YEAR | _MONTH | _DAY


@dataclass(slots=True)
class _Moment:
    """The result of the fields read so far: the variables of DecodeDateTime()."""

    known: int = 0
    year: int = 0
    month: int = 0
    day: int = 0
    of_year: int | None = None
    us: int = 0
    hour: int = 0
    offset: int | None = None
    zone: tzinfo | Abbreviation | None = None
    half: str = ""
    bc: bool = False
    short_year: bool = False
    month_by_name: bool = False
    awaits: str = ""
    special: str = ""
    order: str = "MDY"

    def take(self, what: int) -> None:
        if what & self.known:
            raise bad_syntax()
        self.known |= what

    @property
    def has_date(self) -> bool:
        return self.known & _DATE == _DATE

    def set_time(self, hour: int, minute: int, second: int, us: int) -> None:
        total = ((hour * 60 + minute) * 60 + second) * SECOND_US + us
        if hour > 24 or minute > 59 or second > 60 or total > DAY_US:
            raise field_overflow()
        self.take(_TIME)
        self.hour, self.us = hour, total

    def read(self, kind: str, text: str, time_only: bool) -> None:
        if kind == "time":
            self._expect("time")
            self.set_time(*clock_of(text))
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
            raise bad_syntax()
        self.awaits = ""

    def _read_date_or_zone(self, text: str, time_only: bool) -> None:
        if self.awaits == "julian":
            raise bad_syntax()
        if not time_only and not self.awaits and self.known & (_MONTH | _DAY) != _MONTH | _DAY:
            self._read_date(text)
        elif self.awaits or text[0].isdecimal():  # hhmmss-zz
            self._expect("time")
            clock, minus, displacement = text.partition("-")
            if not minus or self.known & _TIME:
                raise bad_syntax()
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
            raise BadText(SqlState.INVALID_PARAMETER_VALUE, message.replace("{", "{{").replace("}", "}}")) from None

    def _read_date(self, text: str) -> None:
        """DecodeDate(): a date in one field, with any separators."""
        if not any(character.isalnum() for character in text[-2:]):
            raise bad_syntax()
        parts = re.findall(r"[0-9]+|[a-z]+", text)
        for part in [p for p in parts if p.isalpha() and p not in IGNORED]:
            if part not in MONTHS:
                raise bad_syntax()
            self.take(_MONTH)
            self.month, self.month_by_name = MONTHS[part], True
        for part in [p for p in parts if not p.isalpha()]:
            self._read_number_alone(part)
        if self.known & ~_ZONE != _DATE:
            raise bad_syntax()

    def _read_number(self, text: str, time_only: bool) -> None:
        whole, point, _ = text.partition(".")
        if self.awaits == "julian":
            self.awaits = ""
            self.take(_DATE)
            self.year, self.month, self.day = civil_from_days(bounded(whole) - 2_440_588)
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
            self.set_time(int(whole[:2]), int(whole[2:4]), int(whole[4:] or 0), fraction_us(point + fraction))
        else:
            raise bad_syntax()

    def _read_number_alone(self, text: str) -> None:
        """DecodeNumber(): a year, month or day, depending on its length and on the fields read before."""
        whole, point, _ = text.partition(".")
        if point and len(whole) > 2:
            return self._read_run_together(text, time_only=True)
        value, length, known = bounded(whole), len(text), self.known & _DATE
        if length == 3 and known == _YEAR and 1 <= value <= 366:
            self.take(_MONTH | _DAY)
            self.of_year = value
            return None
        if known == _DATE:
            return self._read_run_together(text)
        long = length >= 3
        if known == _YEAR | _MONTH and self.month_by_name and long and self.short_year:
            self.take(_DAY)  # the number read as the year was the day
            self.day, self.year, self.short_year = self.year, value, False
            return None
        if known == 0:
            what = _YEAR if long else {"YMD": _YEAR, "DMY": _DAY, "MDY": _MONTH}[self.order]
        elif known == _MONTH and self.month_by_name:
            what = _YEAR if long or self.order == "YMD" else _DAY
        else:
            what = {_YEAR: _MONTH, _MONTH: _DAY, _YEAR | _MONTH: _DAY, _DAY: _MONTH, _MONTH | _DAY: _YEAR}.get(known, 0)
        if not what:
            raise bad_syntax()
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
        elif word in _CHANGING:
            self.take(_ZONE)
            self.zone = _changing(word)
        elif word in IGNORED:
            return
        elif time_only and (word in MONTHS or word in WEEKDAYS):
            raise bad_syntax()
        elif word in MONTHS:
            if self.known & _MONTH and not self.month_by_name and not self.known & _DAY and 1 <= self.month <= 31:
                self.day = self.month
                self.known |= _DAY
            else:
                self.take(_MONTH)
            self.month, self.month_by_name = MONTHS[word], True
        elif word in WEEKDAYS:
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
        elif word in ("epoch", "infinity", "+infinity", "-infinity") or word in OF_THE_CLOCK:
            self.take(_DATE | _TIME | _ZONE if word not in OF_THE_CLOCK - {"now"} else _DATE)
            self.special = word
        elif word == "dst":
            self.take(_SUMMER)
        elif word == "allballs":
            self.take(_TIME | _ZONE)
            self.offset = 0
        elif word in WORDS:
            raise bad_syntax()
        else:
            self.take(_ZONE)
            try:
                self.zone = zone(word)
            except LookupError:
                raise bad_syntax() from None

    def finish(self, *, time_only: bool) -> None:
        """Checks after the last field: ValidateDate(), AM and PM."""
        if self.awaits:
            raise bad_syntax()
        if self.special in OF_THE_CLOCK:
            message = 'date/time value "{text}" is not supported here: it would depend on the time of reading'
            raise BadText(SqlState.FEATURE_NOT_SUPPORTED, message, "Use now() or current_date.")
        if self.special:
            return
        self._validate_date()
        if self.known & _SUMMER:  # "MET DST"
            if self.offset is None:
                raise bad_syntax()
            self.offset += 3600
        if self.half and self.hour > 12:
            raise field_overflow()
        if self.half == "am" and self.hour == 12:
            self.us -= 12 * 3600 * SECOND_US
        elif self.half == "pm" and self.hour != 12:
            self.us += 12 * 3600 * SECOND_US
        if not (self.known & _TIME if time_only else self.has_date):
            raise bad_syntax()
        if isinstance(self.zone, ZoneInfo) and not self.has_date:  # its offset depends on the day
            raise bad_syntax()

    def _validate_date(self) -> None:
        if self.known & _YEAR:
            if self.year <= 0 and not self.short_year:
                raise field_overflow()
            if self.bc:
                if self.year <= 0:
                    raise field_overflow()
                self.year = 1 - self.year
            elif self.short_year:
                self.year += 2000 if self.year < 70 else 1900
        if self.of_year is not None:
            _, self.month, self.day = civil_from_days(days_from_civil(self.year, 1, 1) + self.of_year - 1)
        order = 'Perhaps you need a different "datestyle" setting.'
        if self.known & _MONTH and not 1 <= self.month <= 12:
            raise field_overflow(order)
        if self.known & _DAY and not 1 <= self.day <= 31:
            raise field_overflow(order)
        if self.has_date and self.day > days_in_month(self.year, self.month):
            raise field_overflow()

    @property
    def days(self) -> int:
        return days_from_civil(self.year, self.month, self.day)


_DISPLACEMENT = re.compile(r"([+-])(\d+)(?::(\d*)(?::(\d*))?)?$", re.ASCII)


def _displacement(text: str) -> int:
    """DecodeTimezone(): +hh, +hhmm, +hh:mm or +hh:mm:ss in seconds, positive east of Greenwich."""
    match = _DISPLACEMENT.match(text)
    if match is None:
        raise bad_syntax()
    sign, first, second, third = match.groups()
    hours, minutes, seconds = bounded(first), bounded(second or "0"), bounded(third or "0")
    if second is None and len(first) > 2:
        hours, minutes = divmod(hours, 100)
    if hours > 15 or minutes > 59 or seconds > 59:
        raise BadText(SqlState.INVALID_TIME_ZONE_DISPLACEMENT_VALUE, 'time zone displacement out of range: "{text}"')
    total = (hours * 60 + minutes) * 60 + seconds
    return -total if sign == "-" else total


_SIZE_MAX, _INSTANT_SIZE_MAX = 129, 153  # MAXDATELEN + 1, MAXDATELEN + MAXDATEFIELDS


def _moment(text: str, order: str = "MDY", *, time_only: bool = False, size_max: int = _SIZE_MAX) -> _Moment:
    moment = _Moment(order=order)
    fields = fields_of(text, size_max)
    # A date may precede a time. It only determines the day for a zone's offset.
    dated = len(fields) >= 2 and fields[0][0] == "date" and (fields[1][0] == "time" or fields[-1][0] == "date")
    for index, (kind, value) in enumerate(fields):
        moment.read(kind, value, time_only and not (dated and index == 0))
    moment.finish(time_only=time_only)
    return moment


_SPECIAL_DATES = {
    "epoch": 0,
    "infinity": DATE_INFINITY,
    "+infinity": DATE_INFINITY,
    "-infinity": DATE_MINUS_INFINITY,
}
_SPECIAL_TIMESTAMPS = {"epoch": 0, "infinity": INFINITY, "+infinity": INFINITY, "-infinity": MINUS_INFINITY}


def parse_date(text: str, order: str = "MDY") -> int:
    """Days since 1970-01-01. `order`: of DateStyle. Raises PgError 22007, 22008, 22023."""
    try:
        moment = _moment(text, order)
    except BadText as bad:
        raise to_pg_error(bad, "date", text) from None
    if moment.special:
        return _SPECIAL_DATES[moment.special]
    days = moment.days
    if not DATE_MIN <= days < DATE_END:
        raise _out_of_range("date", text)
    return days


def parse_time(text: str) -> int:
    """Microseconds since midnight; 24:00:00 is allowed. A zone is ignored. Raises PgError as `parse_date`."""
    try:
        moment = _moment(text, time_only=True)
        if moment.special:
            raise bad_syntax()
    except BadText as bad:
        raise to_pg_error(bad, "time", text) from None
    return moment.us


def parse_timestamp(text: str, order: str = "MDY") -> int:
    """Microseconds since 1970-01-01 00:00. A zone is ignored. `order` and PgError as in `parse_date`."""
    return _parse_instant(text, "timestamp", None, order)


def parse_timestamptz(text: str, timezone: str = "UTC", order: str = "MDY") -> int:
    """Microseconds since 1970-01-01 00:00 UTC. Text without a zone is local time of `timezone`."""
    return _parse_instant(text, "timestamp with time zone", timezone, order)


def _parse_instant(text: str, type: str, timezone: str | None, order: str) -> int:
    try:
        moment = _moment(text, order, size_max=_INSTANT_SIZE_MAX)
    except BadText as bad:
        raise to_pg_error(bad, type, text) from None
    if moment.special:
        return _SPECIAL_TIMESTAMPS[moment.special]
    us = moment.days * DAY_US + moment.us
    if timezone is not None:
        offset = moment.offset
        if offset is None:
            offset = local_offset(moment.zone or zone(timezone), us)
        us -= offset * SECOND_US
    if not _INSTANT_MIN <= us < INFINITY:
        raise _out_of_range("timestamp", text)
    return us


def _out_of_range(what: str, text: str) -> PgError:
    return PgError(SqlState.DATETIME_FIELD_OVERFLOW, f'{what} out of range: "{text}"')
