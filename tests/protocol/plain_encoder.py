"""The row-by-row equivalent of protocol.pgwire.encode, written from PostgreSQL's manual without Arrow and NumPy.

Values are the Python scalars of the table in types.py. Floats are printed by trying numbers of digits, dates with
Python's calendar and whole cycles of 400 years, and so on. It shares only the types and options with the encoder.
"""

from __future__ import annotations

import ipaddress
import math
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from protocol.pgwire.copy_options import CopyFormat, CopyOptions, Header
from protocol.pgwire.encode import OutputStyle
from protocol.pgwire.types import PgType

DAY_US = 86_400_000_000
EPOCH = datetime(1970, 1, 1)


# ---- text


def text(type: PgType, value: Any, style: OutputStyle) -> str:
    if type.element is not None:
        shown = element if type.dimensions == 1 else text
        return "{" + ",".join(shown(type.item, item, style) for item in value) + "}"
    name = type.name
    if name == "bool":
        return "t" if value else "f"
    if name in ("float4", "float8"):
        return float_text(value, single=name == "float4")
    if name == "numeric":
        return numeric_text(type, value)
    if name == "bytea":
        return bytea_text(value, style)
    if name in _LIMITS and value in _LIMITS[name]:
        return "infinity" if value > 0 else "-infinity"
    if name == "date":
        year, month_day, era = civil(value)
        return f"{year}-{month_day}{era}"
    if name == "time":
        return clock(value)
    if name in ("timestamp", "timestamptz"):
        return instant_text(value, style.timezone if name == "timestamptz" else None)
    if name == "interval":
        return interval_text(*value)
    if name in ("inet", "cidr"):
        return network_text(value, is_cidr=name == "cidr")
    if name in ("macaddr", "macaddr8"):
        return ":".join(f"{byte:02x}" for byte in value)
    return str(value)


_LIMITS = {"date": (-1 << 31, (1 << 31) - 1), **dict.fromkeys(("timestamp", "timestamptz"), (-1 << 63, (1 << 63) - 1))}


def element(type: PgType, value: Any, style: OutputStyle) -> str:
    if value is None:
        return "NULL"
    shown = text(type, value, style)
    if shown == "" or shown.upper() == "NULL" or any(c in '"\\{}, \t\n\r\v\f' for c in shown):
        return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return shown


def network_text(value: bytes, *, is_cidr: bool) -> str:
    """Python's text of an address, but with the octets of an IPv4 address at the end of an IPv6 address."""
    size = len(value) // 2 - 1
    bits, address = value[size + 1], value[-size:]
    shown = ipaddress.ip_address(address).compressed
    is_mapped = address[:12] == bytes(10) + b"\xff\xff"
    if size == 16 and (is_mapped or (address[:12] == bytes(12) and any(address[12:14]))):
        shown = ("::ffff:" if is_mapped else "::") + ".".join(str(byte) for byte in address[12:])
    return f"{shown}/{bits}" if is_cidr or bits < 8 * size else shown


def float_text(value: float, *, single: bool) -> str:
    """The shortest digits strictly between the midpoints to the neighbouring floats; of several, the nearest to the
    value."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return sign + "0"
    exact = abs(Fraction(value))
    low, high = ((exact + Fraction(neighbour)) / 2 for neighbour in neighbours(abs(value), single))
    for count in range(1, 18):
        power = math.floor(math.log10(abs(value))) - count + 1
        for exponent in (power - 1, power, power + 1):
            unit = Fraction(10) ** exponent
            floor = exact // unit
            if not 10 ** (count - 1) <= floor < 10**count:
                continue
            inside = [d for d in (floor, floor + 1) if low < d * unit < high]
            if inside:
                digits = min(inside, key=lambda d: (abs(d * unit - exact), d % 2))
                return sign + layout(str(digits), exponent + len(str(digits)) - 1, 6 if single else 15)
    raise AssertionError(value)


def neighbours(size: float, single: bool) -> tuple[Fraction, Fraction]:
    if not single:
        above = math.nextafter(size, math.inf)
        return Fraction(math.nextafter(size, 0)), Fraction(2) ** 1024 if math.isinf(above) else Fraction(above)
    bits = struct.unpack("<i", struct.pack("<f", size))[0]
    below, above = (struct.unpack("<f", struct.pack("<i", bits + step))[0] for step in (-1, 1))
    return Fraction(below), Fraction(2) ** 128 if math.isinf(above) else Fraction(above)


def layout(digits: str, exponent: int, fixed_below: int) -> str:
    digits = digits.rstrip("0")
    if not -4 <= exponent < fixed_below:
        mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return whole + ("." + fraction if fraction else "")


def numeric_text(type: PgType, value: Decimal | int) -> str:
    shown = f"{Decimal(value):.{type.scale}f}"
    bare = type.precision is None and type.scale == 18
    return shown.rstrip("0").rstrip(".") if bare else shown


def bytea_text(value: bytes, style: OutputStyle) -> str:
    if style.bytea_output == "hex":
        return "\\x" + value.hex()
    return "".join("\\\\" if b == 92 else chr(b) if 32 <= b < 127 else f"\\{b:03o}" for b in value)


def civil(days: int) -> tuple[str, str, str]:
    cycles = (days - 11_322) // 146_097  # day 11322 is 2001-01-01
    date = EPOCH + timedelta(days=days - cycles * 146_097)
    year = date.year + 400 * cycles
    return f"{year if year > 0 else 1 - year:04d}", f"{date:%m-%d}", "" if year > 0 else " BC"


def clock(us: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return shown + (f".{fraction:06d}".rstrip("0") if fraction else "")


def instant_text(us: int, zone: str | None) -> str:
    offset = ""
    if zone is not None:
        seconds = offset_seconds(us, zone)
        us += seconds * 1_000_000
        hours, minutes, rest = abs(seconds) // 3600, abs(seconds) // 60 % 60, abs(seconds) % 60
        offset = ("-" if seconds < 0 else "+") + f"{hours:02d}"
        offset += (f":{minutes:02d}" if minutes or rest else "") + (f":{rest:02d}" if rest else "")
    year, month_day, era = civil(us // DAY_US)
    return f"{year}-{month_day} {clock(us % DAY_US)}{offset}{era}"


def offset_seconds(us: int, zone: str) -> int:
    where = UTC if zone == "UTC" else timezone(timedelta(hours=-3)) if zone == "+03" else ZoneInfo(zone)
    second = us // 1_000_000
    while second >= 253_402_300_800 - 86_400:
        second -= 146_097 * 86_400
    second = max(second, -62_135_596_800 + 86_400)
    offset = (EPOCH.replace(tzinfo=UTC) + timedelta(seconds=second)).astimezone(where).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def interval_text(months: int, days: int, ns: int) -> str:
    shown, negative = [], False
    years, months = int(months / 12), int(math.fmod(months, 12))
    for count, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if count:
            plus = "+" if negative and count > 0 else ""
            shown.append(f"{plus}{count} {unit}{'' if count == 1 else 's'}")
            negative = count < 0
    if ns or not shown:
        shown.append(("-" if ns < 0 else "+" if negative else "") + clock(abs(ns) // 1000))
    return " ".join(shown)


# ---- binary


def binary(type: PgType, value: Any) -> bytes:
    if type.element is not None:
        lengths, items = [len(value)], value
        for _ in range(type.dimensions - 1):
            lengths.append(len(items[0]) if items else 0)
            items = [item for part in items for item in part]
        head = struct.pack(">iii", type.dimensions if items else 0, None in items, type.element.oid)
        bounds = b"".join(struct.pack(">ii", length, 1) for length in lengths) if items else b""
        return head + bounds + b"".join(sized(None if v is None else binary(type.element, v)) for v in items)
    name = type.name
    if name in ("int2", "int4", "int8", "float4", "float8", "time"):
        format = {"int2": "h", "int4": "i", "int8": "q", "float4": "f", "float8": "d", "time": "q"}[name]
        return struct.pack(">" + format, value)
    if name == "bool":
        return bytes([value])
    if name == "date":
        return struct.pack(">i", value if value in _LIMITS[name] else value - 10_957)
    if name in ("timestamp", "timestamptz"):
        return struct.pack(">q", value if value in _LIMITS[name] else value - 10_957 * DAY_US)
    if name == "interval":
        months, days, ns = value
        return struct.pack(">qii", ns // 1000, days, months)
    if name == "bytea":
        return bytes(value)
    if name == "uuid":
        return bytes.fromhex(value.replace("-", ""))
    if name in ("inet", "cidr"):
        size = len(value) // 2 - 1
        return bytes([2 if size == 4 else 3, value[size + 1], name == "cidr", size]) + value[-size:]
    if name in ("macaddr", "macaddr8"):
        return bytes(value)
    if name == "numeric":
        return numeric_binary(type, Decimal(value))
    return b"\x01" * (name == "jsonb") + str(value).encode()


def numeric_binary(type: PgType, value: Decimal) -> bytes:
    whole, _, fraction = f"{value.copy_abs():.{type.scale}f}".partition(".")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    digits = whole + fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int(digits[at : at + 4]) for at in range(0, len(digits), 4)]
    weight = len(whole) // 4 - 1
    while groups and groups[0] == 0:
        groups, weight = groups[1:], weight - 1
    while groups and groups[-1] == 0:
        groups.pop()
    sign = 0x4000 if value < 0 else 0
    scale = type.scale
    if type.precision is None and scale == 18:
        scale = len(numeric_text(type, value).partition(".")[2])
    return struct.pack(f">hhHh{len(groups)}h", len(groups), weight if groups else 0, sign, scale, *groups)


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


# ---- messages


def message(tag: bytes, payload: bytes) -> bytes:
    return tag + struct.pack(">i", len(payload) + 4) + payload


def data_rows(
    types: Sequence[PgType], formats: Sequence[int], rows: Sequence[Sequence[Any]], style: OutputStyle
) -> bytes:
    messages = []
    for row in rows:
        values = [
            None if value is None else binary(type, value) if format else text(type, value, style).encode()
            for type, format, value in zip(types, formats, row, strict=True)
        ]
        messages.append(message(b"D", struct.pack(">h", len(row)) + b"".join(map(sized, values))))
    return b"".join(messages)


def copy_rows(
    types: Sequence[PgType],
    options: CopyOptions,
    style: OutputStyle,
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
) -> bytes:
    """A complete COPY TO: header, rows and trailer."""
    if options.format is CopyFormat.BINARY:
        payloads = [
            struct.pack(">h", len(row))
            + b"".join(sized(None if v is None else binary(t, v)) for t, v in zip(types, row, strict=True))
            for row in rows
        ]
        payloads.append(b"\xff\xff")
        payloads[0] = b"PGCOPY\n\xff\r\n\0" + bytes(8) + payloads[0]
        return b"".join(message(b"d", payload) for payload in payloads)
    lines = [
        [
            options.null
            if value is None
            else field(
                text(type, value, style), options, "*" in options.force_quote or name in options.force_quote, types
            )
            for type, value, name in zip(types, row, names, strict=True)
        ]
        for row in rows
    ]
    if options.header is not Header.NONE:
        lines.insert(0, [field(name, options, False, types) for name in names])
    return b"".join(message(b"d", options.delimiter.join(line).encode() + b"\n") for line in lines)


def field(value: str, options: CopyOptions, force: bool, types: Sequence[PgType]) -> str:
    if options.format is CopyFormat.TEXT:
        letters = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
        return "".join(letters.get(c) or ("\\" + c if c == options.delimiter else c) for c in value)
    quote, escape = options.quote, options.escape
    special = any(c in (options.delimiter, quote, "\n", "\r") for c in value)
    if force or special or value == options.null or (len(types) == 1 and value == "\\."):
        return quote + "".join(escape + c if c in (quote, escape) else c for c in value) + quote
    return value
