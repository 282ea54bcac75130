"""Text output of dates, times and intervals, one value at a time, in the styles of DateStyle and IntervalStyle.

Days and microseconds count from 1970-01-01 in the proleptic Gregorian calendar; year 0 is 1 BC.
All int64 microseconds and all int32 days can be printed, including years outside 1 to 9999, Python's limits.
The least and the greatest int32 and int64 are the dates and timestamps -infinity and infinity.
"""

from __future__ import annotations

DAY_US = 86_400_000_000
DATE_INFINITY, DATE_MINUS_INFINITY = (1 << 31) - 1, -1 << 31
INFINITY, MINUS_INFINITY = (1 << 63) - 1, -1 << 63
"""The dates and timestamps infinity and -infinity: the limits of their integers, so that these have the right order."""
INFINITE_DATES = {DATE_INFINITY: "infinity", DATE_MINUS_INFINITY: "-infinity"}
INFINITE_TIMESTAMPS = {INFINITY: "infinity", MINUS_INFINITY: "-infinity"}


def civil_from_days(days: int) -> tuple[int, int, int]:
    """(year, month, day) of a day count; years <= 0 are BC. (H. Hinnant, "chrono-compatible algorithms")"""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def days_from_civil(year: int, month: int, day: int) -> int:
    """The day count of a date; `day` may exceed the length of the month."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def days_in_month(year: int, month: int) -> int:
    next_month = (year + 1, 1) if month == 12 else (year, month + 1)
    return days_from_civil(*next_month, 1) - days_from_civil(year, month, 1)


WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def weekday_of(days: int) -> int:
    """The day of the week, from 0 for Sunday."""
    return (days + 4) % 7


def date_text(days: int, style: str = "ISO", *, day_first: bool = False) -> str:
    """EncodeDateOnly() of a finite date.

    `style`: ISO, SQL, Postgres or German. `day_first`: the day precedes the month.
    """
    year, month, day = civil_from_days(days)
    era = "" if year > 0 else " BC"
    shown = f"{year if year > 0 else 1 - year:04d}"
    if style == "ISO":
        return f"{shown}-{month:02d}-{day:02d}{era}"
    first, second = (day, month) if day_first or style == "German" else (month, day)
    separator = {"SQL": "/", "Postgres": "-", "German": "."}[style]
    return f"{first:02d}{separator}{second:02d}{separator}{shown}{era}"


def time_text(us: int) -> str:
    """hh:mm:ss with as many decimals as necessary; 24:00:00 is allowed."""
    seconds, fraction = divmod(us, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_decimals(fraction)}"


def timestamp_text(us: int, offset: str = "", style: str = "ISO", *, day_first: bool = False) -> str:
    """EncodeDateTime() of a finite timestamp.

    `offset`: what is appended for a timestamptz. The other parameters are those of `date_text`.
    """
    days, of_day = divmod(us, DAY_US)
    date = date_text(days, style, day_first=day_first)
    era = " BC" if date.endswith(" BC") else ""
    if style == "Postgres":
        year, month, day = civil_from_days(days)
        name, number = MONTHS[month - 1], f"{day:02d}"
        first = f"{number} {name}" if day_first else f"{name} {number}"
        shown = f"{year if year > 0 else 1 - year:04d}"
        return f"{WEEKDAYS[weekday_of(days)]} {first} {time_text(of_day)} {shown}{offset}{era}"
    return f"{date.removesuffix(' BC')} {time_text(of_day)}{offset}{era}"


def interval_text(months: int, days: int, us: int) -> str:
    """EncodeInterval() of src/backend/utils/adt/datetime.c, style postgres: 1 year 2 mons -3 days +04:05:06.789."""
    parts: list[str] = []
    after_negative = False
    years, left = divmod(abs(months), 12)
    sign = -1 if months < 0 else 1
    for value, unit in ((sign * years, "year"), (sign * left, "mon"), (days, "day")):
        if value:
            parts.append(f"{'+' if after_negative and value > 0 else ''}{value} {unit}{'' if value == 1 else 's'}")
            after_negative = value < 0
    if us or not parts:
        parts.append(f"{'-' if us < 0 else '+' if after_negative else ''}{time_text(abs(us))}")
    return " ".join(parts)


def interval_text_sql(months: int, days: int, us: int) -> str:
    """EncodeInterval(), style sql_standard: 1-2, 3 4:05:06.789, -4:05:06, or with signs +1-2 -3 +4:05:06."""
    years, mons, hours, minutes, seconds_us = _fields(months, us)
    values = (months, days, us)
    negative, positive = any(value < 0 for value in values), any(value > 0 for value in values)
    seconds, fraction = divmod(abs(seconds_us), 1_000_000)
    clock = f"{abs(hours)}:{abs(minutes):02d}:{seconds:02d}{_decimals(fraction)}"
    if not negative and not positive:
        return "0"
    if (negative and positive) or (months and (days or us)):
        year_sign, day_sign, time_sign = ("-" if value < 0 else "+" for value in values)
        return f"{year_sign}{abs(years)}-{abs(mons)} {day_sign}{abs(days)} {time_sign}{clock}"
    sign = "-" if negative else ""
    if months:
        return f"{sign}{abs(years)}-{abs(mons)}"
    return f"{sign}{abs(days)} {clock}" if days else f"{sign}{clock}"


def interval_text_iso_8601(months: int, days: int, us: int) -> str:
    """EncodeInterval(), style iso_8601: P1Y2M-3DT4H5M6.789S."""
    years, mons, hours, minutes, seconds_us = _fields(months, us)
    date = "".join(f"{value}{unit}" for value, unit in ((years, "Y"), (mons, "M"), (days, "D")) if value)
    time = "".join(f"{value}{unit}" for value, unit in ((hours, "H"), (minutes, "M")) if value)
    if seconds_us:
        time += f"{_seconds(seconds_us)}S"
    return f"P{date}{'T' if time else ''}{time}" if date or time else "PT0S"


def interval_text_verbose(months: int, days: int, us: int) -> str:
    """EncodeInterval(), style postgres_verbose: @ 1 year 2 mons -3 days 4 hours 5 mins 6.789 secs [ago]."""
    years, mons, hours, minutes, seconds_us = _fields(months, us)
    sign, parts = 0, []  # the sign of the first field; it is 1 or -1 as soon as there is one
    for value, unit in ((years, "year"), (mons, "mon"), (days, "day"), (hours, "hour"), (minutes, "min")):
        if value:
            sign = sign or (-1 if value < 0 else 1)
            parts.append(f"{sign * value} {unit}{'' if sign * value == 1 else 's'}")
    if seconds_us:
        sign = sign or (-1 if seconds_us < 0 else 1)
        parts.append(f"{_seconds(sign * seconds_us)} sec{'' if abs(seconds_us) == 1_000_000 else 's'}")
    return f"@ {' '.join(parts) or '0'}{' ago' if sign < 0 else ''}"


def _fields(months: int, us: int) -> tuple[int, int, int, int, int]:
    """Years, months, hours, minutes and the microseconds of the seconds, truncated towards zero as in C."""
    years, mons = divmod(abs(months), 12)
    minutes, seconds_us = divmod(abs(us), 60_000_000)
    hours, minutes = divmod(minutes, 60)
    date, time = -1 if months < 0 else 1, -1 if us < 0 else 1
    return date * years, date * mons, time * hours, time * minutes, time * seconds_us


def _seconds(us: int) -> str:
    """A signed number of seconds with as many decimals as necessary."""
    seconds, fraction = divmod(abs(us), 1_000_000)
    return f"{'-' if us < 0 else ''}{seconds}{_decimals(fraction)}"


def _decimals(us: int) -> str:
    return f".{us:06d}".rstrip("0") if us else ""
