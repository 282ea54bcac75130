"""Converts primitive values of a column, as `cursor` returns them, to the Arrow type of the column's SQL type.

Each conversion returns the array and a mask of values that have no form in the SQL type, or None if all have one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.avro.columns import UNAVAILABLE, Meaning
from protocol.columnar.buffers import fixed_values, string_parts, validity
from protocol.pgwire.datetime_output import DATE_INFINITY, DATE_MINUS_INFINITY, INFINITY, MINUS_INFINITY
from protocol.pgwire.errors import PgError
from protocol.pgwire.json_values import parse_jsonb
from protocol.pgwire.types import BARE_NUMERIC_SCALE, NUMERIC_PRECISION_MAX, parse_type

Mask = NDArray[np.bool_]
Converted = tuple[pa.Array, Mask | None]

_DECIMAL_BYTES = 16
_UNAVAILABLE = UNAVAILABLE.decode()
_SCALE_MIN = 2 - NUMERIC_PRECISION_MAX  # of variable scales: the product then has at most 76 digits
_PLUS_US, _MINUS_US = 9_223_372_036_825_200_000, -9_223_372_036_832_400_000
"""Debezium's infinite timestamps in microseconds, even after a conversion from milliseconds. They are those of
PostgreSQL's JDBC driver, and finite for PostgreSQL (year 294247). Nanoseconds have the limits of int64."""
_INFINITE_DATES = {
    -2_147_472_692: DATE_INFINITY,  # of changes: PostgreSQL's int32 plus the days from 1970 to 2000, which overflows
    -2_147_472_691: DATE_MINUS_INFINITY,
    -622_191_234: DATE_INFINITY,  # of snapshots and arrays: the driver's milliseconds as days, which overflow
    -622_191_233: DATE_INFINITY,  # the same, if Java's time zone is east of UTC
    -625_821_272: DATE_MINUS_INFINITY,
    -625_821_271: DATE_MINUS_INFINITY,
}
"""Debezium's infinite dates. All are before 4713 BC, PostgreSQL's first year."""
_INFINITE_TEXTS = {
    "infinity": INFINITY,
    "-infinity": MINUS_INFINITY,
    "+292269055-12-02T23:00:00.000000Z": MINUS_INFINITY,  # in arrays
}
"""Debezium's infinite values of timestamptz."""
_FIRST_DAY = -2_440_588  # 4713-11-24 BC
_UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


def converted(raw: pa.Array, meaning: Meaning) -> Converted:
    """The values of a column. NULLs remain NULL. Not for nested values and decimals of variable scale."""
    target = parse_type(meaning.type).arrow
    match meaning.kind:
        case "same" if target == pa.binary():
            return raw, None
        case "same" if raw.type == target:
            return raw, None
        case "same" | "date":
            return _integers(raw, target)
        case "text":
            return _text(raw)
        case "json":
            return _one_by_one(*_text(raw), _jsonb)
        case "uuid":
            text, wrong = _text(raw)
            text = pc.utf8_lower(text)
            return text, _either(wrong, pc.invert(pc.match_substring_regex(text, _UUID)), text)
        case "zoned timestamp":
            return _zoned(*_text(raw))
        case "decimal":
            return _decimals(raw, target)
        case kind:
            return _in_microseconds(raw, kind, target)


def decimals_of_variable_scale(scales: pa.Array, values: pa.Array) -> Converted:
    """Values of Debezium's VariableScaleDecimal as numeric: rounded half away from zero to its scale in Arrow."""
    target = parse_type("numeric").arrow
    found, wrong = pa.nulls(len(values), target), np.zeros(len(values), np.bool_)
    scale = fixed_values(scales, np.int64) if len(scales) else np.empty(0, np.int64)
    valid = np.asarray(values.is_valid())
    for own in np.unique(scale[valid]).tolist():
        rows = np.flatnonzero(valid & (scale == own))
        if not _SCALE_MIN <= own <= NUMERIC_PRECISION_MAX:
            wrong[rows] = True
            continue
        whole, odd = _decimals(values.take(pa.array(rows)), pa.decimal128(NUMERIC_PRECISION_MAX, max(own, 0)))
        part, overflow = _rescaled(whole, own)
        wrong[rows] = overflow if odd is None else overflow | odd
        mask = np.zeros(len(values), np.bool_)
        mask[rows] = True
        found = pc.replace_with_mask(found, pa.array(mask), part)
    return found, wrong if wrong.any() else None


def _rescaled(values: pa.Array, scale: int) -> tuple[pa.Array, Mask]:
    """Values with a scale as bare numeric, and which of them have too many digits."""
    target = parse_type("numeric").arrow
    try:
        if scale > BARE_NUMERIC_SCALE:
            values = pc.round(values, BARE_NUMERIC_SCALE, "half_towards_infinity")
        # A cast from decimal128 to decimal128 can overflow without an error.
        values = values.cast(pa.decimal256(NUMERIC_PRECISION_MAX, values.type.scale))
        if scale < 0:
            values = pc.multiply(values, pa.scalar(10**-scale, pa.decimal256(-scale + 1, 0)))
        return values.cast(target), np.zeros(len(values), np.bool_)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, target), np.ones(1, np.bool_)
    parts = [_rescaled(values.slice(i, 1), scale) for i in range(len(values))]
    return pa.concat_arrays([part for part, _ in parts]), np.concatenate([wrong for _, wrong in parts])


def _integers(raw: pa.Array, target: pa.DataType) -> Converted:
    """Numbers as `target`: exact, or out of range."""
    if pa.types.is_date32(target):
        days, wrong = _integers(raw, pa.int32())
        return _with_infinite_days(days).view(pa.date32()), wrong
    if pa.types.is_int32(target) and pa.types.is_int64(raw.type):
        values = fixed_values(raw, np.int64) if len(raw) else np.empty(0, np.int64)
        narrow = values.astype(np.int32)
        wrong = narrow != values
        found = pa.Array.from_buffers(target, len(raw), [validity(raw), pa.py_buffer(narrow)], raw.null_count)
        return found, _valid(wrong, raw)
    return raw.cast(target, safe=False), None


def _with_infinite_days(days: pa.Array) -> pa.Array:
    values = fixed_values(days, np.int32) if len(days) else np.empty(0, np.int32)
    if not len(values) or values.min() >= _FIRST_DAY:
        return days
    found = values.copy()
    for given, infinite in _INFINITE_DATES.items():
        found[values == given] = infinite
    return pa.Array.from_buffers(days.type, len(days), [validity(days), pa.py_buffer(found)], days.null_count)


_MILLISECONDS_MAX = (1 << 63) // 1000 - 1


def _in_microseconds(raw: pa.Array, kind: str, target: pa.DataType) -> Converted:
    values = fixed_values(raw, np.int64) if len(raw) else np.empty(0, np.int64)
    name, _, unit = kind.partition(" ")
    wrong = np.zeros(len(values), np.bool_)
    if unit == "ms":
        wrong = (values > _MILLISECONDS_MAX) | (values < -_MILLISECONDS_MAX)
        values = values * 1000
    elif unit == "ns":
        limits = np.iinfo(np.int64)
        values = np.select([values == limits.max, values == limits.min], [values, values], values // 1000)
    if name == "timestamp" and len(values) and (values.max() >= _PLUS_US or values.min() <= _MINUS_US):
        infinite = [values == _PLUS_US, values == _MINUS_US]
        values = np.select(infinite, [np.int64(INFINITY), np.int64(MINUS_INFINITY)], values)
    if name == "time":
        wrong = wrong | (values < 0) | (values > 86_400_000_000)
    buffers = [validity(raw), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(target, len(raw), buffers, raw.null_count), _valid(wrong, raw)


def _text(raw: pa.Array) -> Converted:
    """Bytes as text. Wrong: invalid UTF-8, and the character 0, which PostgreSQL's text cannot contain."""
    if not pa.types.is_binary(raw.type):
        return raw.cast(pa.string()), None
    text = raw.view(pa.string())
    offsets, data = string_parts(raw) if len(raw) else (np.zeros(1, np.int32), np.empty(0, np.uint8))
    try:
        text.validate(full=True)
        if (data[offsets[0] : offsets[-1]] != 0).all():
            return text, None
    except pa.ArrowInvalid:
        pass
    values = raw.to_pylist()
    wrong = np.fromiter((value is not None and not _is_text(value) for value in values), np.bool_, len(raw))
    return pa.array([None if bad else v for bad, v in zip(wrong, values, strict=True)], pa.binary()).view(
        pa.string()
    ), wrong


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def _one_by_one(text: pa.Array, wrong: Mask | None, parse: Any) -> Converted:
    found: list[str | None] = []
    odd = np.zeros(len(text), np.bool_) if wrong is None else wrong.copy()
    for row, value in enumerate(text.to_pylist()):
        try:
            found.append(None if value is None else parse(value))
        except PgError:
            found.append(None)
            odd[row] = True
    return pa.array(found, pa.string()), odd if odd.any() else None


def _jsonb(text: str) -> str:
    """The normal form of JSON. Debezium's placeholder for an unavailable value is kept."""
    return text if text == _UNAVAILABLE else parse_jsonb(text)


def _zoned(text: pa.Array, wrong: Mask | None) -> Converted:
    target = pa.timestamp("us", "UTC")
    try:
        return text.cast(target), wrong
    except pa.ArrowInvalid:
        infinite = pc.is_in(text, pa.array(_INFINITE_TEXTS))
        if pc.any(infinite).as_py():
            finite, wrong = _zoned(pc.if_else(infinite, pa.scalar(None, pa.string()), text), wrong)
            for given, value in _INFINITE_TEXTS.items():
                finite = pc.if_else(pc.equal(text, given), pa.scalar(value, pa.int64()).cast(target), finite)
            return finite, wrong
        if len(text) == 1:
            return pa.nulls(1, target), np.ones(1, np.bool_)
    parts = [_zoned(text.slice(i, 1), None) for i in range(len(text))]
    odd = np.concatenate([np.zeros(1, np.bool_) if bad is None else bad for _, bad in parts])
    return pa.concat_arrays([part for part, _ in parts]), odd if wrong is None else odd | wrong


def _decimals(raw: pa.Array, target: pa.DataType) -> Converted:
    """Big-endian two's complement numbers, unscaled. Wrong: more digits than the precision."""
    count = len(raw)
    if count == 0:
        return pa.nulls(0, target), None
    offsets, data = string_parts(raw)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    valid = np.asarray(raw.is_valid())
    lengths = np.where(valid, lengths, 0)
    data = np.append(data, np.uint8(0))
    negative = (lengths > 0) & (data[np.minimum(starts, len(data) - 1)] >= 0x80)
    fill = np.where(negative, 0xFF, 0).astype(np.uint8)
    digits = np.empty((count, _DECIMAL_BYTES), np.uint8)
    digits[:] = fill[:, None]
    longest = min(int(lengths.max()), _DECIMAL_BYTES)
    for place in range(longest):
        has = lengths > place
        digits[:, place] = np.where(has, data[np.where(has, starts + lengths - 1 - place, len(data) - 1)], fill)
    buffers = [validity(raw), pa.py_buffer(digits)]
    found = pa.Array.from_buffers(pa.decimal128(NUMERIC_PRECISION_MAX, target.scale), count, buffers, raw.null_count)
    wrong = lengths > _DECIMAL_BYTES
    if target.precision < NUMERIC_PRECISION_MAX or longest == _DECIMAL_BYTES:
        limit = pa.scalar(10**target.precision - 1, pa.decimal256(76, 0))
        wide = pa.Array.from_buffers(pa.decimal128(NUMERIC_PRECISION_MAX, 0), count, buffers, raw.null_count)
        beyond = pc.greater(pc.abs(wide.cast(pa.decimal256(76, 0), safe=False)), limit)
        wrong = wrong | np.asarray(beyond.fill_null(False))
    if wrong.any():
        found = pc.if_else(pa.array(wrong), pa.scalar(None, found.type), found)
    return found.cast(target, safe=False), _valid(wrong, raw)


def _either(wrong: Mask | None, odd: pa.Array, like: pa.Array) -> Mask | None:
    mask: Mask = np.asarray(odd.fill_null(False))
    return _valid(mask if wrong is None else mask | wrong, like)


def _valid(wrong: Mask, array: pa.Array) -> Mask | None:
    if not wrong.any():
        return None
    wrong = wrong & np.asarray(array.is_valid())
    return wrong if wrong.any() else None
