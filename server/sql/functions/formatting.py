"""to_char, to_number, to_date and to_timestamp(text, text) (chapter 9.8).

`number_format` and `datetime_format` parse their templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from protocol.pgwire.datetime_input import DATE_END, DATE_MIN
from protocol.pgwire.datetime_output import INFINITY
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.timezones import SECOND_US, local_offset, offset_at, zone
from server.sql.expressions import Expression, Literal
from server.sql.functions import datetime_format, number_format
from server.sql.functions.table import FUNCTIONS, Infinite, Nulls, let, quote, row

_FIRST_US = -210_866_803_200_000_000  # 4714-11-24 BC, in microseconds since 1970
_YEAR_2000_US = 946_684_800_000_000


def _timestamp_char(us: int, format: str) -> str | None:
    """NULL if the template is empty."""
    return datetime_format.written(datetime_format.fields_of(us), format) if format else None


def _timestamptz_char(us: int, format: str, *, timezone: str) -> str | None:
    if not format:
        return None
    where = zone(timezone)
    offset = offset_at(where, us)
    seconds = min(max(us // SECOND_US, -62_135_510_400), 253_402_214_400)  # clamped for the abbreviation of far years
    name = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).astimezone(where).tzname() or ""
    return datetime_format.written(datetime_format.fields_of(us + offset * SECOND_US, name, offset), format)


def _interval_char(value: Any, format: str) -> str | None:
    if not format:
        return None
    months, days, nanoseconds = value
    return datetime_format.written(datetime_format.interval_fields(months, days, nanoseconds // 1000), format)


def _to_date(text: str, format: str) -> int:
    days = datetime_format.read(text, format).days
    if not DATE_MIN <= days < DATE_END:
        raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, f'date out of range: "{text}"')
    return days


def _rounded(us: int, unit: int) -> int:
    """To a multiple of `unit`; halves are rounded away from 2000-01-01, PostgreSQL's epoch."""
    since = us - _YEAR_2000_US
    rounded = (abs(since) + unit // 2) // unit * unit
    return _YEAR_2000_US + (rounded if since >= 0 else -rounded)


def _to_timestamp(text: str, format: str, *, timezone: str) -> int:
    moment = datetime_format.read(text, format)
    local = moment.days * datetime_format.DAY_US + moment.us
    offset = moment.offset_s if moment.offset_s is not None else local_offset(zone(timezone), local)
    us = _rounded(local - offset * SECOND_US, 10 ** (6 - moment.decimals))
    if not _FIRST_US <= us < INFINITY:
        raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, f'timestamp out of range: "{text}"')
    return us


_SPARK_FIELDS = {  # the number and its least digits
    "YYYY": ("IF(year({t}) > 0, year({t}), 1 - year({t}))", 4),
    "MM": ("month({t})", 2),
    "DD": ("day({t})", 2),
    "DDD": ("dayofyear({t})", 3),
    "HH24": ("hour({t})", 2),
    "HH12": ("(hour({t}) + 11) % 12 + 1", 2),
    "HH": ("(hour({t}) + 11) % 12 + 1", 2),
    "MI": ("minute({t})", 2),
    "SS": ("CAST(second({t}) AS INT)", 2),
}
_SPARK_FRACTIONS = {"MS": "SSS", "US": "SSSSSS"}


def _spark_char(args: Sequence[Expression], texts: Sequence[str]) -> str:
    """to_char of a timestamp with a constant template of numeric fields and other characters."""
    template = args[1].value if isinstance(args[1], Literal) else None
    parts = [_spark_part(node) for node in datetime_format.nodes(template)] if template else []
    if not parts or None in parts:
        return ""
    return let(texts[0], lambda t: f"concat({', '.join(parts)})".replace("{t}", t))  # type: ignore[arg-type]


def _spark_part(node: datetime_format.Node) -> str | None:
    """Spark SQL for a part of a template, over {t}; None if only Python computes it."""
    if node.character:
        return None if "{" in node.character else quote(node.character)
    if node.ordinal or node.translated:
        return None
    if node.pattern in _SPARK_FRACTIONS:
        return f"date_format({{t}}, '{_SPARK_FRACTIONS[node.pattern]}')"
    if node.pattern not in _SPARK_FIELDS:
        return None
    number, digits = _SPARK_FIELDS[node.pattern]
    text = f"CAST({number} AS STRING)"
    return text if node.fill else f"IF({number} < {10 ** (digits - 1)}, lpad({text}, {digits}, '0'), {text})"


row(FUNCTIONS, "to_char", "int4 text", "text", python=number_format.format_integer)
row(FUNCTIONS, "to_char", "int8 text", "text", python=lambda value, format: number_format.format_integer(
    value, format, bits=63))  # fmt: skip
row(FUNCTIONS, "to_char", "float4 text", "text", python=lambda value, format: number_format.format_float(
    value, format, certain_digits=6))  # fmt: skip
row(FUNCTIONS, "to_char", "float8 text", "text", python=number_format.format_float)
row(FUNCTIONS, "to_char", "numeric text", "text", python=number_format.format_numeric)
row(FUNCTIONS, "to_char", "interval text", "text", python=_interval_char, nulls=Nulls.OPTIONAL)
_NO_TEXT = Infinite(lambda us, format, **timezone: None, lambda args, texts: "CAST(NULL AS STRING)")
row(FUNCTIONS, "to_char", "timestamp text", "text", _spark_char, python=_timestamp_char, nulls=Nulls.OPTIONAL,
    infinite=_NO_TEXT)  # fmt: skip
row(FUNCTIONS, "to_char", "timestamptz text", "text", _spark_char, python=_timestamptz_char, nulls=Nulls.OPTIONAL,
    infinite=_NO_TEXT, zoned=True)  # fmt: skip
row(FUNCTIONS, "to_number", "text text", "numeric", python=number_format.read, nulls=Nulls.OPTIONAL)
row(FUNCTIONS, "to_date", "text text", "date", python=_to_date)
row(FUNCTIONS, "to_timestamp", "text text", "timestamptz", python=_to_timestamp, zoned=True)
