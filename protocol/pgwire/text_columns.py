"""Converts Arrow columns to PostgreSQL's text output with column operations.

`text_column(type, style)` returns the function for one type; nulls stay null. Ordinary values are cast by Arrow, then
corrected. The few that Arrow prints differently (floats with exponents, years outside 1 to 9999) are selected by a mask
and printed one by one. Escapes and quotes are inserted into the values buffer, after a search of the whole buffer.
Arguments of these functions have the Arrow type of their PgType (see `plain_column`), may be slices, and must have at
least one row and less than 2 GiB of text. The encoder splits batches accordingly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.buffers import (
    Bytes,
    fixed_values,
    joined,
    offsets_of,
    patched,
    string_array,
    string_parts,
    validity,
)
from protocol.pgwire.datetime_output import (
    DAY_US,
    INFINITE_DATES,
    INFINITE_TIMESTAMPS,
    MONTHS,
    WEEKDAYS,
    date_text,
    interval_text,
    interval_text_iso_8601,
    interval_text_sql,
    interval_text_verbose,
    timestamp_text,
)
from protocol.pgwire.floats import float4_column, float8_column
from protocol.pgwire.network import cidr_texts, inet_texts, mac_texts
from protocol.pgwire.timezones import SECOND_US, Int64s, abbreviations_at, offset_text, offsets_at, zone
from protocol.pgwire.types import INT2VECTOR, NETWORK_TYPES, OIDVECTOR, PgType

TextColumn = Callable[[pa.Array], pa.Array]

_STRING, _BINARY = pa.string(), pa.binary()
_CAST = pc.CastOptions.unsafe(_STRING)
_TRIM_ZEROS, _TRIM_POINT = pc.TrimOptions("0"), pc.TrimOptions(".")
_YEAR_1_US, _YEAR_10000_US = -62_135_596_800 * SECOND_US, 253_402_300_800 * SECOND_US
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), "<u2")
INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("ns", "<i8")])


class OutputStyle(NamedTuple):
    """The session settings that affect output. Clients can share encoded bytes only if their styles are equal.

    `timezone` is a name that `timezones.zone` accepts, `bytea_output` is "hex" or "escape".
    `interval_style` is a key of INTERVAL_STYLES. `date_style` is a style (ISO, SQL, Postgres or German) and an order of
    day, month and year, as DateStyle has them. extra_float_digits is always 1.
    """

    timezone: str = "UTC"
    bytea_output: str = "hex"
    interval_style: str = "postgres"
    date_style: str = "ISO, MDY"

    @property
    def dates(self) -> tuple[str, bool]:
        """The style of dates, and whether the day precedes the month."""
        style, order = self.date_style.split(", ")
        return style, order == "DMY"


INTERVAL_STYLES: dict[str, Callable[[int, int, int], str]] = {
    "postgres": interval_text,
    "postgres_verbose": interval_text_verbose,
    "iso_8601": interval_text_iso_8601,
    "sql_standard": interval_text_sql,
}
"""The text of an interval of months, days and microseconds, by the values of IntervalStyle."""


DEFAULT_STYLE = OutputStyle()

# ---- escapes and quotes


class Escapes:
    """Inserts `prefix` before each `special` byte, and replaces the byte if it is in `letters`.

    A column without special bytes is returned unchanged.
    """

    def __init__(self, special: bytes, prefix: str, letters: dict[str, str] | None = None) -> None:
        self._marked = np.zeros(256, bool)
        self._marked[list(special)] = True
        self._below = 1 + max((byte for byte in special if byte < 32), default=-1)
        self._others = [byte for byte in special if byte >= 32]
        self._prefix = ord(prefix)
        self._letter = np.arange(256, dtype=np.uint8)
        for byte, letter in (letters or {}).items():
            self._letter[ord(byte)] = ord(letter)

    def may_occur(self, values: Bytes) -> bool:
        """A fast test whether a byte needs the prefix. It may return True if there is none, never False if there is."""
        if not len(values):
            return False
        return bool(self._below and values.min() < self._below) or any((values == byte).any() for byte in self._others)

    def __call__(self, array: pa.Array) -> pa.Array:
        offsets, buffer = string_parts(array)
        values = buffer[offsets[0] : offsets[-1]]
        if not self.may_occur(values):
            return array
        found = np.flatnonzero(self._marked[values])
        if not len(found):
            return array
        wider = np.insert(values, found, self._prefix)
        wider[found + np.arange(1, len(found) + 1)] = self._letter[values[found]]
        starts = offsets - offsets[0]
        return string_array((starts + np.searchsorted(found, starts)).astype(np.int32), wider, array)


def copy_escapes(delimiter: str) -> Escapes:
    """The escapes of COPY text: CopyAttributeOutText() of src/backend/commands/copyto.c."""
    letters = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v"}
    return Escapes("".join({*letters, "\\", delimiter}).encode(), "\\", letters)


class CsvQuotes:
    """CSV quoting: CopyAttributeOutCSV() of copyto.c. `force` quotes every value that is not NULL."""

    def __init__(self, delimiter: str, quote: str, escape: str, null: str, *, force: bool, alone: bool) -> None:
        self._marks = Escapes("".join({delimiter, quote, "\n", "\r"}).encode(), escape)
        self._doubled = Escapes("".join({quote, escape}).encode(), escape)
        self._needing = [*{delimiter, quote, "\n", "\r"}]
        self._equal = pa.array([null, "\\."] if alone else [null])  # a line with only \. would end the data
        self._quote = pa.scalar(quote)
        self._force = force

    def __call__(self, array: pa.Array) -> pa.Array:
        if self._force:
            return self._quoted(array)
        need = pc.is_in(array, value_set=self._equal)
        offsets, buffer = string_parts(array)
        if self._marks.may_occur(buffer[offsets[0] : offsets[-1]]):
            for mark in self._needing:
                need = pc.or_(need, pc.match_substring(array, mark))
        if not pc.any(need).as_py():
            return array
        return pc.if_else(need, self._quoted(array), array)

    def _quoted(self, array: pa.Array) -> pa.Array:
        return joined(self._quote, self._doubled(array), self._quote)


# ---- one function per type


def plain_column(array: pa.Array, type: PgType) -> pa.Array:
    """`array` in the Arrow type of its PgType. Dictionaries, views, large and narrow types are cast.

    Integers are accepted for a numeric with scale 0 (such as mz_timestamp) and not cast.
    Raises pa.ArrowInvalid when the values do not fit.
    """
    if array.type == type.arrow or (type.name == "numeric" and type.scale == 0 and pa.types.is_integer(array.type)):
        return array
    if pa.types.is_dictionary(array.type):
        return plain_column(array.dictionary_decode(), type)
    if isinstance(array, pa.ExtensionArray):
        return plain_column(array.storage, type)
    return array.cast(type.arrow)


def text_column(type: PgType, style: OutputStyle) -> TextColumn:
    """The function that converts a column of `type` to a string array as PostgreSQL prints it."""
    if type in (INT2VECTOR, OIDVECTOR):
        return _vector_text
    if type.element is not None:
        quotes = type.dimensions == 1 and type.element.name not in _NEVER_QUOTED
        return partial(_array_text, quotes, text_column(type.item, style))
    if type.name == "timestamptz":
        return partial(_timestamptz_text, style)
    if type.name in ("date", "timestamp") and style.dates[0] != "ISO":
        return partial(_styled_date_text if type.name == "date" else _styled_timestamp_text, style)
    if type.name == "interval":
        return partial(_interval_text, INTERVAL_STYLES[style.interval_style])
    if type.name == "bytea":
        return _bytea_hex if style.bytea_output == "hex" else _bytea_escape
    if type.name == "numeric":
        return partial(_numeric_text, type)
    if type.enum is not None:
        return type.enum.label_column
    return _TEXT_OF.get(type.name, _as_it_is)


def value_text(column: pa.ChunkedArray, row: int, type: PgType, style: OutputStyle) -> str | None:
    """One value of a column of `type` as PostgreSQL prints it; None for NULL."""
    value = column.slice(row, 1).combine_chunks()
    value = value.chunk(0) if isinstance(value, pa.ChunkedArray) else value
    if value.null_count:
        return None
    text: str = text_column(type, style)(plain_column(value, type)).cast(pa.string())[0].as_py()
    return text


def _as_it_is(array: pa.Array) -> pa.Array:
    return array


def _cast(array: pa.Array) -> pa.Array:
    if pa.types.is_integer(array.type) and not array.null_count:
        values = fixed_values(array, array.type.to_pandas_dtype())
        if (values == values[0]).all():  # the times and diffs of a subscription are often all the same
            return pa.repeat(pa.scalar(str(values[0]), _STRING), len(values))
    return pc.cast(array, options=_CAST)


def _vector_text(array: pa.Array) -> pa.Array:
    return pc.binary_join(array.cast(pa.list_(pa.string())), " ")


def _bool_text(array: pa.Array) -> pa.Array:
    return pc.if_else(array, "t", "f")


def _patched(
    array: pa.Array,
    text: pa.Array,
    values: NDArray[Any],
    infinite: dict[int, str],
    odd: NDArray[np.bool_],
    of: Callable[[NDArray[np.intp]], list[str]],
) -> pa.Array:
    """`patched`, for dates or timestamps with these numbers. The names of `infinite` ones do not need `of`."""
    if not odd.any():
        return text
    for value, name in infinite.items():
        found = values == value
        if found.any():
            text = patched(array, text, found, lambda rows, name=name: [name] * len(rows))  # type: ignore[misc]
            odd = odd & ~found
    return patched(array, text, odd, of)


def _date_text(array: pa.Array) -> pa.Array:
    days = fixed_values(array, np.int32)
    odd = (days < _YEAR_1_US // DAY_US) | (days >= _YEAR_10000_US // DAY_US)
    return _patched(
        array, _cast(array), days, INFINITE_DATES, odd, lambda rows: [date_text(day) for day in days[rows].tolist()]
    )


def _without_zeros(text: pa.Array) -> pa.Array:
    """Removes trailing zeros of a fraction, and the point if no digit is left."""
    return pc.call_function("ascii_rtrim", [pc.call_function("ascii_rtrim", [text], _TRIM_ZEROS)], _TRIM_POINT)


def _time_text(array: pa.Array) -> pa.Array:
    us = fixed_values(array, np.int64)
    text = _without_zeros(_cast(array))
    return patched(array, text, us == DAY_US, lambda rows: ["24:00:00"] * len(rows))


def _timestamp_text(array: pa.Array) -> pa.Array:
    us = fixed_values(array, np.int64)
    text = _without_zeros(_cast(array))
    if us.min() >= _YEAR_1_US and us.max() < _YEAR_10000_US:
        return text
    odd = (us < _YEAR_1_US) | (us >= _YEAR_10000_US)
    return _patched(
        array,
        text,
        us,
        INFINITE_TIMESTAMPS,
        odd,
        lambda rows: [timestamp_text(value) for value in us[rows].tolist()],
    )


def _timestamptz_text(style: OutputStyle, array: pa.Array) -> pa.Array:
    utc = fixed_values(array, np.int64)
    offsets = offsets_at(
        zone(style.timezone), np.where(np.asarray(array.is_valid()), utc, 0) if array.null_count else utc
    )
    local = utc + offsets * SECOND_US
    if style.dates[0] != "ISO":
        names = abbreviations_at(zone(style.timezone), utc // SECOND_US, offsets)
        naive = pa.Array.from_buffers(pa.timestamp("us"), len(array), [validity(array), pa.py_buffer(local)])
        return _styled_timestamp_text(style, naive, joined(pa.scalar(" "), names), utc)
    kinds, which = np.unique(offsets, return_inverse=True)
    texts = [offset_text(seconds) for seconds in kinds.tolist()]
    naive = pa.Array.from_buffers(pa.timestamp("us"), len(array), [validity(array), pa.py_buffer(local)])
    suffix = pa.scalar(texts[0]) if len(texts) == 1 else pa.array(texts).take(pa.array(which))
    text = joined(_without_zeros(_cast(naive)), suffix)
    odd = (utc < _YEAR_1_US + DAY_US) | (utc >= _YEAR_10000_US - DAY_US)  # even if local time overflows int64
    return _patched(
        array,
        text,
        utc,
        INFINITE_TIMESTAMPS,
        odd,
        lambda rows: [
            timestamp_text(instant + offset * SECOND_US, offset_text(offset))
            for instant, offset in zip(utc[rows].tolist(), offsets[rows].tolist(), strict=True)
        ],
    )


# ---- DateStyle other than ISO


def _date_parts(style: OutputStyle, iso: pa.Array, days: Int64s) -> tuple[pa.Array, pa.Array | None]:
    """The parts of texts in the style ISO before the time of day, and the years after it or None."""
    name, day_first = style.dates
    year, month, day = (pc.utf8_slice_codeunits(iso, start, stop) for start, stop in ((0, 4), (5, 7), (8, 10)))
    if name == "Postgres":
        weekday = pa.array(WEEKDAYS).take(pa.array((days + 4) % 7))
        months = pc.fill_null(pc.index_in(month, value_set=_MONTH_NUMBERS), 0)
        month = pa.array(MONTHS).take(months)
        first, second = (day, month) if day_first else (month, day)
        return joined(weekday, pa.scalar(" "), first, pa.scalar(" "), second), year
    separator = pa.scalar("/" if name == "SQL" else ".")
    first, second = (day, month) if day_first or name == "German" else (month, day)
    return joined(first, separator, second, separator, year), None


_MONTH_NUMBERS = pa.array([f"{month:02d}" for month in range(1, 13)])


def _styled_date_text(style: OutputStyle, array: pa.Array) -> pa.Array:
    name, day_first = style.dates
    days = fixed_values(array, np.int32)
    odd = (days < _YEAR_1_US // DAY_US) | (days >= _YEAR_10000_US // DAY_US)
    iso = _cast(array)
    year, month, day = (pc.utf8_slice_codeunits(iso, start, stop) for start, stop in ((0, 4), (5, 7), (8, 10)))
    first, second = (day, month) if day_first or name == "German" else (month, day)
    separator = pa.scalar({"SQL": "/", "Postgres": "-", "German": "."}[name])
    return _patched(
        array,
        joined(first, separator, second, separator, year),
        days,
        INFINITE_DATES,
        odd,
        lambda rows: [date_text(value, name, day_first=day_first) for value in days[rows].tolist()],
    )


def _styled_timestamp_text(
    style: OutputStyle, array: pa.Array, zones: pa.Array | None = None, utc: Int64s | None = None
) -> pa.Array:
    """The text of local times. `zones`: what follows each of them. `utc`: the instants, if these may be infinite."""
    name, day_first = style.dates
    us = fixed_values(array, np.int64)
    given = us if utc is None else utc
    iso = _cast(array)
    date, year = _date_parts(style, iso, us // DAY_US)
    time = _without_zeros(pc.utf8_slice_codeunits(iso, 11))
    parts = [date, pa.scalar(" "), time, *([] if year is None else [pa.scalar(" "), year])]
    odd = (us < _YEAR_1_US) | (us >= _YEAR_10000_US) | (given < _YEAR_1_US) | (given >= _YEAR_10000_US)

    def each(rows: Int64s) -> list[str]:
        ends = [""] * len(rows) if zones is None else zones.take(pa.array(rows)).to_pylist()
        values = zip(us[rows].tolist(), ends, strict=True)
        return [timestamp_text(value, end, name, day_first=day_first) for value, end in values]

    text = joined(*parts, *([] if zones is None else [zones]))
    return _patched(array, text, given, INFINITE_TIMESTAMPS, odd, each)


def _interval_text(style: Callable[[int, int, int], str], array: pa.Array) -> pa.Array:
    kinds, which = np.unique(fixed_values(array, INTERVAL), return_inverse=True)
    texts = pa.array([style(months, days, ns // 1000) for months, days, ns in kinds.tolist()], _STRING)
    return texts.take(pa.array(which, mask=np.asarray(array.is_null()) if array.null_count else None))


def _numeric_text(type: PgType, array: pa.Array) -> pa.Array:
    scale = type.scale or 0
    # Arrow prints an exponent only if at least six zeros follow the point, which needs scale > 6.
    text = _cast(array) if scale <= 6 else _unscaled_text(array, scale)
    return _without_zeros(text) if type.hides_zeros else text


def _unscaled_text(array: pa.Array, scale: int) -> pa.Array:
    buffers = array.buffers()
    whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), buffers, array.null_count, array.offset)
    digits = _cast(whole)
    minus = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0").view(_BINARY)
    head, tail = pc.binary_slice(digits, 0, -scale), pc.binary_slice(digits, -scale)
    return joined(minus, head.view(_STRING), pa.scalar("."), tail.view(_STRING))


def _bytea_hex(array: pa.Array) -> pa.Array:
    offsets, values = string_parts(array)
    first, last = offsets[0], offsets[-1]
    return joined(pa.scalar("\\x"), string_array((offsets - first) * np.int32(2), _HEX[values[first:last]], array))


_OCTAL = np.array([list(b"\\%03o" % byte) for byte in range(256)], np.uint8)
_OCTAL[32:127, 0] = np.arange(32, 127)
_OCTAL[92, 1] = 92
_OCTAL_LENGTH = np.where((np.arange(256) >= 32) & (np.arange(256) < 127), 1, 4).astype(np.int32)
_OCTAL_LENGTH[92] = 2


def _bytea_escape(array: pa.Array) -> pa.Array:
    """Printable bytes unchanged, backslashes doubled, other bytes as a backslash and three octal digits."""
    offsets, values = string_parts(array)
    values = values[offsets[0] : offsets[-1]]
    lengths = _OCTAL_LENGTH[values]
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    wider = _OCTAL[values][np.arange(4) < lengths[:, None]]
    return string_array(ends[offsets - offsets[0]], wider, array)


_NEVER_QUOTED = NETWORK_TYPES | {"bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "uuid", "time"}
_ELEMENT_NEEDS_QUOTES = r'["\\{},\s\x0b]|^$|^(?i:null)$'
_ELEMENT_ESCAPES = Escapes(b'"\\', "\\")


def _array_text(quotes: bool, element: TextColumn, array: pa.Array) -> pa.Array:
    """array_out(): {a,"b c",NULL}."""
    offsets = offsets_of(array)
    first, last = int(offsets[0]), int(offsets[-1])
    text = element(array.values.slice(first, last - first)) if last > first else pa.array([], _STRING)
    if quotes:
        need = pc.match_substring_regex(text, _ELEMENT_NEEDS_QUOTES)
        if pc.any(need).as_py():
            text = pc.if_else(need, joined(pa.scalar('"'), _ELEMENT_ESCAPES(text), pa.scalar('"')), text)
    lists = pa.Array.from_buffers(
        pa.list_(_STRING),
        len(array),
        [validity(array), pa.py_buffer(offsets - offsets[0])],
        array.null_count,
        children=[pc.fill_null(text, "NULL")],
    )
    return joined(pa.scalar("{"), pc.binary_join(lists, ","), pa.scalar("}"))


_TEXT_OF: dict[str, TextColumn] = {
    "bool": _bool_text,
    "int2": _cast,
    "int4": _cast,
    "oid": _cast,
    "int8": _cast,
    "float4": float4_column,
    "float8": float8_column,
    "date": _date_text,
    "time": _time_text,
    "timestamp": _timestamp_text,
    "inet": inet_texts,
    "cidr": cidr_texts,
    "macaddr": mac_texts,
    "macaddr8": mac_texts,
}
