"""Parsers of the values of variables.

A parser takes the text of SET and returns the text that SHOW prints. It raises `Invalid`, or ValueError whose message
becomes the HINT. The functions without the prefix `parse_` return a parser.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from protocol.pgwire.errors import SqlState
from protocol.pgwire.interval_input import parse_interval
from protocol.pgwire.timezones import zone


class Invalid(ValueError):
    """A value that a variable refuses. `{name}` in `message`, and in `detail`, is replaced by the variable's name."""

    def __init__(
        self,
        message: str | None = None,
        *,
        detail: str | None = None,
        sqlstate: SqlState = SqlState.INVALID_PARAMETER_VALUE,
    ) -> None:
        """`message` None: that of an invalid value."""
        super().__init__(message)
        self.message, self.detail, self.sqlstate = message, detail, sqlstate


def one_of(*values: str, **synonyms: str) -> Callable[[str], str]:
    """One of some words, case-insensitively. `synonyms` have the value that each of them means."""

    def parse(text: str) -> str:
        word = text.lower()
        for value in values:
            if value.lower() == synonyms.get(word, word):
                return value
        raise ValueError(f"Available values: {', '.join(values)}.")

    return parse


def parse_boolean(text: str) -> str:
    """As PostgreSQL's parse_bool: also accepts the first letters of a word, if they are unambiguous."""
    word = text.lower()
    if word and (word in ("on", "1") or "true".startswith(word) or "yes".startswith(word)):
        return "on"
    if word and (word in ("of", "off", "0") or "false".startswith(word) or "no".startswith(word)):
        return "off"
    raise Invalid('parameter "{name}" requires a Boolean value')


def only(accepted: str, message: str, sqlstate: SqlState) -> Callable[[str], str]:
    """A boolean that has one value. `message` and `sqlstate`: the error for the other value."""

    def parse(text: str) -> str:
        if parse_boolean(text) != accepted:
            raise Invalid(message, sqlstate=sqlstate)
        return accepted

    return parse


INT_MAX = 2**31 - 1
_UNITS_MS = {"us": 1 / 1_000, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_KB = {"B": 1 / 1_024, "kB": 1, "MB": 1_024, "GB": 1_024**2, "TB": 1_024**3}
_QUANTITY = re.compile(
    r"\s*+([-+]?)(0[xX][0-9a-fA-F]++|(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?)\s*+([a-zA-Z]*+)\s*+"
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A parser of an integer in `unit`, like PostgreSQL's parse_int. Returns it in the largest unit that fits."""

    least: int
    greatest: int
    unit: str = ""
    units: Mapping[str, float] = field(default_factory=dict)
    int_max: int = INT_MAX

    def __call__(self, text: str) -> str:
        match = _QUANTITY.fullmatch(text)
        if match is None or (match[3] and not self.units):
            raise Invalid
        if match[3] and match[3] not in self.units:
            *firsts, last = (f'"{name}"' for name in self.units)
            raise ValueError(f"Valid units for this parameter are {', '.join(firsts)}, and {last}.")
        number = _number(match[2])
        number *= self.units[match[3]] if match[3] else 1
        if number > self.int_max:
            raise ValueError("Value exceeds integer range.")
        total = round(-number if match[1] == "-" else number)
        shown_unit = f" {self.unit}" if self.unit else ""
        if not self.least <= total <= self.greatest:
            raise Invalid(
                f'{total}{shown_unit} is outside the valid range for parameter "{{name}}" '
                f"({self.least} .. {self.greatest})"
            )
        if not total:
            return "0"
        for name, size in reversed([*self.units.items()]):
            if size >= 1 and total % int(size) == 0:
                return f"{total // int(size)}{name}"
        return str(total)

    def count(self, text: str) -> str:
        """The number of units of a text that the parser has returned, as pg_settings shows it."""
        match = re.fullmatch(r"(-?\d+)([a-zA-Z]*)", text)
        assert match is not None
        return str(int(match[1]) * int(self.units[match[2]])) if match[2] else match[1]


def _number(digits: str) -> float:
    """Returns a number of `_QUANTITY` without its sign; infinity for a hexadecimal number of at least 18 digits."""
    if digits[:2] in ("0x", "0X"):
        return float(int(digits, 16)) if len(digits) < 20 else float("inf")
    return float(digits)


def milliseconds_between(least: int, greatest: int) -> Quantity:
    return Quantity(least, greatest, "ms", _UNITS_MS)


parse_milliseconds = milliseconds_between(0, INT_MAX)


def kilobytes(least: int) -> Quantity:
    return Quantity(least, INT_MAX, "kB", _UNITS_KB)


@functools.lru_cache(64)
def milliseconds(text: str) -> int:
    """Returns the number of milliseconds of a value that `parse_milliseconds` has returned."""
    match = re.fullmatch(r"(\d+)([a-z]*)", text)
    assert match is not None
    return int(match[1]) * int(_UNITS_MS[match[2] or "ms"])


def auto_or(parse: Callable[[str], str]) -> Callable[[str], str]:
    """The word auto, or what `parse` accepts."""
    return lambda text: "auto" if text.lower() == "auto" else parse(text)


def integer(least: int, greatest: int) -> Quantity:
    return Quantity(least, greatest, int_max=max(INT_MAX, greatest))


def parse_cost(text: str) -> str:
    """A number that is not negative, as PostgreSQL's parse_real reads and shows it."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[3]:
        raise Invalid
    number = _number(match[2])
    if match[1] == "-" and number:
        raise Invalid(f'-{number:g} is outside the valid range for parameter "{{name}}" (0 .. 1.79769e+308)')
    return f"{number:g}"


def parse_tablespace(text: str) -> str:
    if text not in ("", "pg_default"):
        raise Invalid(detail=f'Tablespace "{text}" does not exist.')
    return text


def parse_access_method(text: str) -> str:
    if not text:
        raise Invalid(detail="{name} cannot be empty.")
    if text != "heap":
        raise Invalid(detail=f'Table access method "{text}" does not exist.')
    return text


_ZONE_INTERVAL = re.compile(r"interval *'([^']*)'", re.IGNORECASE)
_ZONE_OFFSET_S_MAX = 16 * 3_600
"""Greater offsets from UTC are refused: Spark has none above 18 hours."""


def _zone_offset_us(text: str) -> float | None:
    """Returns the offset from UTC of a number of hours or of INTERVAL '...'; None for the name of a time zone."""
    interval = _ZONE_INTERVAL.fullmatch(text)
    if interval is not None:
        value = parse_interval(interval[1])
        for part, number in (("months", value.months), ("days", value.days)):
            if number:
                raise Invalid(detail=f"Cannot specify {part} in time zone interval.")
        return float(value.nanoseconds / 1_000)
    try:
        return float(text) * 3_600_000_000
    except ValueError:
        return None


def parse_time_zone(text: str) -> str:
    """As PostgreSQL's check_timezone(): an offset becomes a POSIX zone, such as `<+05:30>-05:30`."""
    offset_us = _zone_offset_us(text)
    if offset_us is not None:
        if not abs(offset_us) < _ZONE_OFFSET_S_MAX * 1_000_000:
            raise Invalid(detail="UTC timezone offset is out of range.")
        seconds = int(offset_us / 1_000_000)
        minutes, second = divmod(abs(seconds), 60)
        shown = f"{minutes // 60:02}"
        shown += (f":{minutes % 60:02}" if seconds % 3_600 else "") + (f":{second:02}" if second else "")
        return f"<{'-' if seconds < 0 else '+'}{shown}>{'+' if seconds < 0 else '-'}{shown}"
    try:
        zone(text)
    except LookupError:
        raise ValueError("") from None
    return "UTC" if text.upper() == "UTC" else text


_ORDERS = {"ymd": "YMD", "dmy": "DMY", "mdy": "MDY", "us": "MDY"}


def parse_date_style(text: str) -> str:
    """As PostgreSQL's check_datestyle(). A part that the text does not name is "", and kept by `with_date_style`."""
    styles, orders = set[str](), set[str]()
    for word in (word.strip().strip('"').lower() for word in text.split(",")):
        if word in ("iso", "sql"):
            styles.add(word.upper())
        elif word.startswith("postgres"):
            styles.add("Postgres")
        elif word.startswith("german"):
            styles.add("German")
        elif word in _ORDERS:
            orders.add(_ORDERS[word])
        elif word.startswith(("euro", "noneuro")):
            orders.add("DMY" if word.startswith("euro") else "MDY")
        elif word == "default":
            styles, orders = styles or {"ISO"}, orders or {"MDY"}
        else:
            raise Invalid(detail=f'Unrecognized key word: "{word}".')
    if len(styles) > 1 or len(orders) > 1:
        raise Invalid(detail='Conflicting "datestyle" specifications.')
    order = next(iter(orders), "DMY" if "German" in styles else "")
    return f"{next(iter(styles), '')}, {order}"


def with_date_style(before: str, given: str) -> str:
    """The value of DateStyle after a SET, of which `parse_date_style` returned `given`."""
    parts = zip(before.split(", "), given.split(", "), strict=True)
    return ", ".join(new or old for old, new in parts)


def parse_encoding(text: str) -> str:
    """UTF8. As in PostgreSQL's pg_char_to_encoding, only letters and digits count: asyncpg sends 'utf-8' in quotes."""
    if re.sub("[^a-z0-9]", "", text.lower()) not in ("utf8", "unicode"):
        raise ValueError("Only UTF8 is supported.")
    return "UTF8"


MESSAGE_LEVELS = ("debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error")
"""The values of client_min_messages, from the least to the most severe."""


def parse_message_level(text: str) -> str:
    aliases = {"debug": "debug2", "info": "notice"}
    return aliases.get(text.lower()) or one_of(*MESSAGE_LEVELS)(text)


ISOLATION_LEVELS = ("serializable", "repeatable read", "read committed", "read uncommitted", "strict serializable")


def parse_isolation_level(text: str) -> str:
    level = one_of(*ISOLATION_LEVELS)(text)
    # The SQL standard allows a stronger level than requested.
    return level if level == "strict serializable" else "serializable"
