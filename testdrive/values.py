"""Prints values from PostgreSQL's binary format.

`printed` returns the form used in a script's rows. Most types have PostgreSQL's text form, computed here from the
binary format, so that scripts test the server's binary encoders. At the top level these types differ: bool is
true/false; bytea and "char" have bytes outside printable ASCII as `\\xc3`; timestamps have a fraction of 3 or 6 digits,
or none; timestamptz is in UTC with the suffix ` UTC`. Inside arrays and records all types have the text form.

Formats: PostgreSQL's `*_send` functions; PostgreSQL manual, "Message Data Types" and `src/backend/utils/adt`.
"""

from __future__ import annotations

import datetime
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal

NULL = "<null>"

_FIRST_USER_OID = 16384  # enums and the like, whose binary form is their text (PostgreSQL FirstNormalObjectId)
_EPOCH_DAYS = datetime.date(2000, 1, 1).toordinal()
_DAYS_400_YEARS = 146097
_DAY_US = 86_400_000_000


def printed(oid: int, data: bytes | None) -> str:
    """Returns a value's form in a script; `data` None is NULL. Raises ValueError for unknown types, invalid bytes."""
    if data is None:
        return NULL
    try:
        return _PRINTED[oid](data) if oid in _PRINTED else text_form(oid, data)
    except (ValueError, IndexError, struct.error) as error:
        raise ValueError(f"{data!r} cannot be printed as a value of type oid {oid}: {error}") from error


def text_form(oid: int, data: bytes) -> str:
    """Returns PostgreSQL's text output for TimeZone UTC, DateStyle ISO and IntervalStyle postgres."""
    if oid in _TEXT:
        return _TEXT[oid](data)
    if oid >= _FIRST_USER_OID:
        return data.decode()
    raise ValueError("the type is not known")


def _integer(layout: str) -> Callable[[bytes], str]:
    return lambda data: str(struct.unpack(layout, data)[0])


def _bool(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError(f"a bool is one byte, 0 or 1, not {data!r}")
    return data == b"\1"


def _float4(data: bytes) -> str:
    (value,) = struct.unpack("!f", data)
    shortest = next((s for p in range(9) if struct.pack("!f", float(s := f"{value:.{p}e}")) == data), str(value))
    return _float(value, shortest, plain_digits=6)


def _float8(data: bytes) -> str:
    (value,) = struct.unpack("!d", data)
    return _float(value, repr(value), plain_digits=15)


def _float(value: float, shortest: str, plain_digits: int) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    sign, digits, _ = Decimal(shortest).normalize().as_tuple()
    exponent = Decimal(shortest).adjusted() if value else 0
    minus = "-" if sign else ""
    if -4 <= exponent < plain_digits:
        return minus + f"{abs(Decimal(shortest)).normalize():f}"
    mantissa = "".join(map(str, digits))
    point = "." if len(mantissa) > 1 else ""
    return f"{minus}{mantissa[0]}{point}{mantissa[1:]}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def _numeric(data: bytes) -> str:
    count, weight, sign, scale = struct.unpack_from("!hhHh", data)
    if sign in (0xC000, 0xD000, 0xF000):
        return {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}[sign]
    groups = struct.unpack(f"!{count}h", data[8:])

    def group(position: int) -> str:
        index = weight - position
        return f"{groups[index]:04}" if 0 <= index < count else "0000"

    whole = "".join(group(position) for position in range(weight, -1, -1)).lstrip("0") or "0"
    fraction = "".join(group(-position) for position in range(1, (scale + 3) // 4 + 1))[:scale]
    return ("-" if sign else "") + whole + (f".{fraction}" if scale else "")


def _text(data: bytes) -> str:
    return data.decode()


def _jsonb(data: bytes) -> str:
    return data[1:].decode()  # the first byte is the format's version


def _uuid(data: bytes) -> str:
    return str(uuid.UUID(bytes=data))


def _ascii_escaped(data: bytes) -> str:
    names = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 39: "\\'", 92: "\\\\"}
    return "".join(names.get(b) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in data)


def _day(days: int) -> tuple[str, str]:
    """Converts days since 2000-01-01 to (`YYYY-MM-DD`, ` BC` or empty). Any year: the calendar repeats in 400 years."""
    cycles, ordinal = divmod(_EPOCH_DAYS + days - 1, _DAYS_400_YEARS)
    date = datetime.date.fromordinal(ordinal + 1)
    year = date.year + 400 * cycles
    shown, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04}-{date.month:02}-{date.day:02}", era


def _clock(microseconds: int, fraction_step: int = 1) -> str:
    seconds, fraction = divmod(microseconds, 1_000_000)
    digits = f"{fraction:06}"
    while digits.endswith("0" * fraction_step):
        digits = digits[:-fraction_step]
    shown = f".{digits}" if digits else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{shown}"


def _infinite(value: int, bits: int) -> str | None:
    return {2 ** (bits - 1) - 1: "infinity", -(2 ** (bits - 1)): "-infinity"}.get(value)


def _date(data: bytes) -> str:
    (days,) = struct.unpack("!i", data)
    return _infinite(days, 32) or "".join(_day(days))


def _time(data: bytes) -> str:
    return _clock(struct.unpack("!q", data)[0])


def _timestamp(data: bytes, fraction_step: int = 1, zone: str = "") -> str:
    (value,) = struct.unpack("!q", data)
    if infinite := _infinite(value, 64):
        return infinite
    days, time = divmod(value, _DAY_US)
    date, era = _day(days)
    return f"{date} {_clock(time, fraction_step)}{zone}{era}"


def _interval(data: bytes) -> str:
    microseconds, days, months = struct.unpack("!qii", data)
    years, months = (abs(months) // 12, abs(months) % 12) if months >= 0 else (-(-months // 12), -(-months % 12))
    parts: list[str] = []
    before_negative = False
    for amount, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if amount:
            plus = "+" if before_negative and amount > 0 else ""
            parts.append(f"{plus}{amount} {unit}{'' if amount == 1 else 's'}")
            before_negative = amount < 0
    if microseconds or not parts:
        sign = "-" if microseconds < 0 else "+" if before_negative else ""
        parts.append(sign + _clock(abs(microseconds)))
    return " ".join(parts)


def _array(data: bytes) -> str:
    dimensions, _, element_oid = struct.unpack_from("!iiI", data)
    bounds = [struct.unpack_from("!ii", data, 12 + 8 * i) for i in range(dimensions)]
    position = 12 + 8 * dimensions

    def level(depth: int) -> str:
        nonlocal position
        parts = []
        for _ in range(bounds[depth][0]):
            if depth + 1 < dimensions:
                parts.append(level(depth + 1))
                continue
            value, position = _sized(data, position)
            parts.append("NULL" if value is None else _array_element(text_form(element_oid, value)))
        return "{" + ",".join(parts) + "}"

    if not dimensions:
        return "{}"
    elements = level(0)
    if position != len(data):
        raise ValueError(f"an array of {position} bytes came in {len(data)}")
    lower = "".join(f"[{low}:{low + size - 1}]" for size, low in bounds)
    return ("" if all(low == 1 for _, low in bounds) else f"{lower}=") + elements


def _array_element(text: str) -> str:
    plain = text and text.upper() != "NULL" and not any(c in '{},"\\' or c in " \t\n\r\v\f" for c in text)
    return text if plain else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _record(data: bytes) -> str:
    (count,) = struct.unpack_from("!i", data)
    position, parts = 4, []
    for _ in range(count):
        (oid,) = struct.unpack_from("!I", data, position)
        value, position = _sized(data, position + 4)
        parts.append("" if value is None else _record_field(text_form(oid, value)))
    return "(" + ",".join(parts) + ")"


def _record_field(text: str) -> str:
    plain = text and not any(c in '(),"\\' or c in " \t\n\r\v\f" for c in text)
    return text if plain else '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def _sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    (length,) = struct.unpack_from("!i", data, position)
    position += 4
    return (None, position) if length < 0 else (data[position : position + length], position + length)


_TEXT: dict[int, Callable[[bytes], str]] = {
    16: lambda data: "t" if _bool(data) else "f",
    17: lambda data: "\\x" + data.hex(),
    18: _text,  # "char"
    19: _text,  # name
    20: _integer("!q"),
    21: _integer("!h"),
    23: _integer("!i"),
    **dict.fromkeys((26, 28, 2205, 2206), _integer("!I")),  # oid, xid, regclass, regtype
    **dict.fromkeys((25, 114, 705, 1042, 1043), _text),  # text, json, unknown, bpchar, varchar
    700: _float4,
    701: _float8,
    1700: _numeric,
    1082: _date,
    1083: _time,
    1114: _timestamp,
    1184: lambda data: _timestamp(data, zone="+00"),
    1186: _interval,
    2278: lambda data: "",  # void
    2249: _record,
    2950: _uuid,
    3802: _jsonb,
    # An array's binary format contains the element type. Arrays of json, bool, bytea, "char", name, int2, int4, text,
    # bpchar, varchar, int8, float4, float8, oid, timestamp, date, time, timestamptz, interval, numeric, uuid, jsonb:
    **dict.fromkeys((199, 1000, 1001, 1002, 1003, 1005, 1007, 1009, 1014, 1015, 1016), _array),
    **dict.fromkeys((1021, 1022, 1028, 1115, 1182, 1183, 1185, 1187, 1231, 2951, 3807), _array),
}
_PRINTED: dict[int, Callable[[bytes], str]] = {
    16: lambda data: "true" if _bool(data) else "false",
    17: _ascii_escaped,
    18: _ascii_escaped,
    1114: lambda data: _timestamp(data, fraction_step=3),
    1184: lambda data: _timestamp(data, fraction_step=3, zone=" UTC"),
}
