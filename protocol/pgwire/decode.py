"""Decodes values in PostgreSQL's text or binary format: single parameters and whole columns.

A column is cast by Arrow if a check of all bytes and lengths shows that the cast cannot differ from PostgreSQL's input
functions. All other columns are decoded value by value by `scalars`, which also reports all errors: a failure of the
fast path only causes the use of the slow path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.buffers import fixed_values, joined, string_array, string_parts, validity
from protocol.pgwire.binary_columns import NIBBLE, POSTGRES_EPOCH_US, UUID_DASHES, fixed_column
from protocol.pgwire.datetime_input import DATE_END, DATE_MIN, POSTGRES_EPOCH_DAYS
from protocol.pgwire.datetime_output import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    DAY_US,
    INFINITE_DATES,
    INFINITE_TIMESTAMPS,
    INFINITY,
    MINUS_INFINITY,
)
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle
from protocol.pgwire.network import parsed_column
from protocol.pgwire.scalars import column_of, parse_binary, parse_text
from protocol.pgwire.timezones import SECOND_US, local_offset, offsets_at, zone
from protocol.pgwire.types import NUMERIC_PRECISION_MAX, PgType
from protocol.pgwire.utf8 import decode_utf8

TEXT_FORMAT, BINARY_FORMAT = 0, 1

_YEAR_1_DAYS = -719_162
_JUST_DIGITS = b"0123456789"


class BadValue(Exception):
    """The value in row `row` (0-based) of the array is invalid; `error` is the reason."""

    def __init__(self, row: int, error: PgError) -> None:
        super().__init__(f"row {row}: {error.message}")
        self.row, self.error = row, error


def decode_parameter(
    type: PgType, format: int, data: bytes | None, *, timezone: str = "UTC", style: InputStyle = DEFAULT_INPUT
) -> Any:
    """A parameter's bytes (None is NULL) as the Python scalar of its type; `format` is 0 text or 1 binary.

    Raises PgError. For binary data that is too long (22P03) the message is "incorrect binary data format"; the caller
    appends the parameter's number as PostgreSQL does.
    """
    if data is None:
        return None
    if format == BINARY_FORMAT:
        return parse_binary(type, data)
    if format != TEXT_FORMAT:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"unsupported format code: {format}")
    return parse_text(type, decode_utf8(data), timezone=timezone, style=style)


def parse_text_column(
    type: PgType, strings: pa.Array, *, timezone: str = "UTC", style: InputStyle = DEFAULT_INPUT
) -> pa.Array:
    """Converts a string array to `type.arrow`; nulls stay null. Raises BadValue for the first invalid row."""
    if strings.null_count == len(strings):
        return pa.nulls(len(strings), type.arrow)
    fast = _enum_labels if type.enum is not None else _FAST.get(type.name)
    if fast is not None:
        try:
            parsed = fast(type, strings, timezone)
        except pa.ArrowInvalid:
            parsed = None
        if parsed is not None:
            return parsed
    return _one_by_one(type, strings, lambda text: parse_text(type, text, timezone=timezone, style=style))


def direct_type(type: PgType) -> pa.DataType | None:
    """The Arrow type as which Arrow's CSV parser reads values without NUL bytes, if it refuses every text that
    PostgreSQL reads otherwise, except hexadecimal numbers that it reads as negative ones. None if there is none.
    """
    if type.name in ("text", "varchar"):
        return type.arrow if type.length is None else None
    return type.arrow if type.name in ("int2", "int4", "int8") else None


def parse_binary_column(type: PgType, values: pa.Array) -> pa.Array:
    """Converts a binary array to `type.arrow`; nulls stay null. Raises BadValue for the first invalid row."""
    if values.null_count == len(values):
        return pa.nulls(len(values), type.arrow)
    parsed = None
    if type.name in _FROM_FIXED:
        parsed = _fixed_values(type, values)
    elif type.name in ("text", "varchar", "bpchar"):
        try:
            parsed = _strings(type, values.cast(pa.string()), "")
        except pa.ArrowInvalid:  # not UTF-8
            parsed = None
    elif type.enum is not None:
        try:
            parsed = type.enum.position_column(values.cast(pa.string()))
        except pa.ArrowInvalid:  # not UTF-8
            parsed = None
    return parsed if parsed is not None else _one_by_one(type, values, lambda data: parse_binary(type, data))


def _one_by_one(type: PgType, given: pa.Array, parse: Callable[[Any], Any]) -> pa.Array:
    parsed: list[Any] = []
    for row, value in enumerate(given.to_pylist()):
        try:
            parsed.append(None if value is None else parse(value))
        except PgError as error:
            raise BadValue(row, error) from None
    return column_of(type, parsed)


# ---- text: each function returns None or raises ArrowInvalid if a value needs the slow path


class _Bytes:
    """A set of bytes. `hold` tests whether the text of an array consists of them only."""

    def __init__(self, members: bytes) -> None:
        self._outside = np.ones(256, bool)
        self._outside[list(members)] = False

    def hold(self, strings: pa.Array) -> bool:
        offsets, values = string_parts(strings)
        return not self._outside[values[offsets[0] : offsets[-1]]].any()


_INTEGER = _Bytes(_JUST_DIGITS + b"-")
_DECIMAL = _Bytes(_JUST_DIGITS + b"-.")
_FLOAT = _Bytes(_JUST_DIGITS + b"-+.eE")
_CLOCK = _Bytes(_JUST_DIGITS + b":.")
_INSTANT = _Bytes(_JUST_DIGITS + b"-: .T")
_ZONED_INSTANT = _Bytes(_JUST_DIGITS + b"-: .T+Z")
_UUID = _Bytes(b"0123456789abcdef-")
_NOT_NUL = _Bytes(bytes(range(1, 256)))


def _lengths(strings: pa.Array) -> NDArray[np.int32]:
    """Byte lengths of the values that are not null."""
    lengths: NDArray[np.int32] = pc.binary_length(strings).drop_null().to_numpy()
    return lengths


def _booleans(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    which = pc.index_in(strings, value_set=_BOOLEAN_WORDS)
    if which.null_count != strings.null_count:
        return None
    return pc.less(which, 2)


_BOOLEAN_WORDS = pa.array(["t", "true", "f", "false"])


def _integers(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    return strings.cast(type.arrow) if _INTEGER.hold(strings) else None


def _floats(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    if not _FLOAT.hold(strings):
        return None
    parsed = strings.cast(type.arrow)
    values = fixed_values(parsed, np.float64 if type.name == "float8" else np.float32)
    # Infinity here is overflow; a zero may be underflow, which is an error in PostgreSQL, too.
    odd = ~np.isfinite(values) | (values == 0)
    if not odd.any():
        return parsed
    odd_texts = strings.filter(pa.array(odd)).drop_null()
    return parsed if pc.all(pc.match_substring_regex(odd_texts, r"^[+-]?[0.]+$"), min_count=0).as_py() else None


def _numerics(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    if not _DECIMAL.hold(strings):
        return None
    lengths, points = pc.binary_length(strings), pc.find_substring(strings, ".")
    whole = pc.if_else(pc.less(points, 0), lengths, points)
    # Arrow does not notice an overflow of 128 bits: some numbers of 22 digits and more would become other ones.
    longest = max(pc.max(lengths).as_py(), pc.max(whole).as_py() + type.arrow.scale)
    return strings.cast(type.arrow) if longest <= NUMERIC_PRECISION_MAX else None


_Fast = Callable[[PgType, pa.Array, str], pa.Array | None]


def _or_infinite(infinite: dict[int, str], fast: _Fast) -> _Fast:
    """`fast`, for dates or timestamps of which some may be the names of the `infinite` ones."""
    numbers, names = pa.array([*infinite]), pa.array([*infinite.values()])

    def parsed(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
        found = fast(type, strings, timezone)  # None if there are letters
        if found is not None:
            return found
        which = pc.index_in(strings, value_set=names)
        if which.null_count == len(strings):
            return None
        rest = pc.if_else(pc.is_valid(which), None, strings)
        found = pa.nulls(len(rest), type.arrow) if rest.null_count == len(rest) else fast(type, rest, timezone)
        if found is None:
            return None
        width = pa.int32() if type.name == "date" else pa.int64()
        return pc.coalesce(numbers.cast(width).take(which), found.view(width)).view(type.arrow)

    return parsed


def _date_texts(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    if not _INSTANT.hold(strings) or not (_lengths(strings) == 10).all():
        return None
    parsed = strings.cast(type.arrow)
    return parsed if pc.min(parsed.view(pa.int32())).as_py() >= _YEAR_1_DAYS else None


def _time_texts(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    lengths = _lengths(strings)
    if not _CLOCK.hold(strings) or not ((lengths == 8) | (lengths > 9)).all():
        return None
    return joined(pa.scalar("1970-01-01 "), strings).cast(pa.timestamp("us")).view(pa.int64()).view(type.arrow)


def _timestamps(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    lengths = _lengths(strings)
    if not _INSTANT.hold(strings) or not ((lengths == 10) | (lengths == 16) | (lengths == 19) | (lengths > 20)).all():
        return None
    parsed = strings.cast(pa.timestamp("us"))
    return parsed if pc.min(parsed.view(pa.int64())).as_py() >= _YEAR_1_DAYS * DAY_US else None


def _timestamptzs(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    if not _ZONED_INSTANT.hold(strings) or (_lengths(strings) < 19).any():
        return _local_timestamps(type, strings, timezone)
    try:
        parsed = strings.cast(type.arrow)  # refuses values without an offset
    except pa.ArrowInvalid:
        return _local_timestamps(type, strings, timezone)
    if pc.any(pc.match_substring_regex(strings, r"[+-](1[6-9]|2\d)(:?\d\d)?$")).as_py():
        return None  # offsets that Arrow accepts and PostgreSQL rejects
    return parsed if pc.min(parsed.view(pa.int64())).as_py() >= (_YEAR_1_DAYS + 1) * DAY_US else None


def _local_timestamps(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    naive = _timestamps(type, strings, timezone)
    if naive is None:
        return None
    local, where = fixed_values(pc.fill_null(naive, 0), np.int64), zone(timezone)
    offsets = offsets_at(where, local - DAY_US)
    near_change = offsets != offsets_at(where, local + DAY_US)
    offsets[near_change] = [local_offset(where, us) for us in local[near_change].tolist()]
    utc = local - offsets * SECOND_US
    return pa.Array.from_buffers(type.arrow, len(strings), [validity(strings), pa.py_buffer(utc)], strings.null_count)


def _strings(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    if not _NOT_NUL.hold(strings):
        return None
    if type.length is None:
        return strings
    if pc.max(pc.utf8_length(strings)).as_py() > type.length:
        return None
    return pc.utf8_rpad(strings, type.length) if type.name == "bpchar" else strings


def _enum_labels(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    assert type.enum is not None
    return type.enum.position_column(strings)


def _uuids(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    if not _UUID.hold(strings) or not (_lengths(strings) == 36).all():
        return None
    offsets, values = string_parts(strings.drop_null())
    dashes = values[offsets[0] : offsets[-1]].reshape(-1, 36) == ord("-")
    return strings if (dashes == UUID_DASHES).all() else None


def _byteas(type: PgType, strings: pa.Array, timezone: str) -> pa.Array | None:
    """Hex format only: every value is \\x and pairs of digits."""
    lengths = _lengths(strings)
    if (lengths % 2).any() or not pc.all(pc.starts_with(strings, "\\x")).as_py():
        return None
    digits = pc.binary_slice(pc.fill_null(strings, "\\x").view(pa.binary()), 2)
    offsets, values = string_parts(digits)
    nibbles = NIBBLE[values[offsets[0] : offsets[-1]]]
    if (nibbles > 15).any():
        return None
    data = nibbles[0::2] << 4 | nibbles[1::2]
    return string_array((offsets - offsets[0]) // np.int32(2), data, strings).view(pa.binary())


_FAST: dict[str, Callable[[PgType, pa.Array, str], pa.Array | None]] = {
    "bool": _booleans,
    "int2": _integers,
    "int4": _integers,
    "int8": _integers,
    "float4": _floats,
    "float8": _floats,
    "numeric": _numerics,
    "text": _strings,
    "varchar": _strings,
    "bpchar": _strings,
    "date": _or_infinite(INFINITE_DATES, _date_texts),
    "time": _time_texts,
    "timestamp": _or_infinite(INFINITE_TIMESTAMPS, _timestamps),
    "timestamptz": _or_infinite(INFINITE_TIMESTAMPS, _timestamptzs),
    "uuid": _uuids,
    "bytea": _byteas,
    "inet": lambda type, strings, timezone: parsed_column(strings, is_cidr=False),
    "cidr": lambda type, strings, timezone: parsed_column(strings, is_cidr=True),
}

# ---- binary, fixed width: None if a value has another width or is out of range


def _fixed_values(type: PgType, values: pa.Array) -> pa.Array | None:
    sent = fixed_column(type)
    if sent is None:
        return None
    given = values.drop_null() if values.null_count else values
    dtype, _ = sent
    offsets, data = string_parts(given)
    if (np.diff(offsets) != dtype.itemsize).any():
        return None
    native = _FROM_FIXED[type.name](data[offsets[0] : offsets[-1]].view(dtype))
    if native is None:
        return None
    if not values.null_count:
        return pa.array(native).view(type.arrow)
    missing = np.asarray(values.is_null())
    spread = np.zeros(len(values), native.dtype)
    spread[~missing] = native
    return pa.array(spread, mask=missing).view(type.arrow)


def _native(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(values.dtype.newbyteorder("="))


def _truths(values: NDArray[Any]) -> NDArray[Any]:
    truths: NDArray[np.bool_] = values != 0
    return truths


def _dates(values: NDArray[Any]) -> NDArray[Any] | None:
    given = values.astype(np.int64)
    infinite = (given == DATE_INFINITY) | (given == DATE_MINUS_INFINITY)
    days = np.where(infinite, given, given + POSTGRES_EPOCH_DAYS)
    return days.astype(np.int32) if (infinite | (days >= DATE_MIN) & (days < DATE_END)).all() else None


def _times(values: NDArray[Any]) -> NDArray[Any] | None:
    return _native(values) if ((values >= 0) & (values <= DAY_US)).all() else None


def _instants(values: NDArray[Any]) -> NDArray[Any] | None:
    inside = (values >= DATE_MIN * DAY_US - POSTGRES_EPOCH_US) & (values < INFINITY - POSTGRES_EPOCH_US)
    if inside.all():
        return _native(values) + POSTGRES_EPOCH_US
    if not (inside | (values == INFINITY) | (values == MINUS_INFINITY)).all():
        return None
    return np.where(inside, _native(values) + POSTGRES_EPOCH_US, _native(values))


_FROM_FIXED: dict[str, Callable[[NDArray[Any]], NDArray[Any] | None]] = {
    "bool": _truths,
    "int2": _native,
    "int4": _native,
    "int8": _native,
    "float4": _native,
    "float8": _native,
    "date": _dates,
    "time": _times,
    "timestamp": _instants,
    "timestamptz": _instants,
}
