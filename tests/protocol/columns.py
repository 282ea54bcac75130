"""Hypothesis strategies for PgTypes, for their values, and for Arrow batches of them."""

from __future__ import annotations

import json
import struct
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from protocol.pgwire.json_values import parse_jsonb
from protocol.pgwire.network import IPV4, IPV6, Address, network_of, stored
from protocol.pgwire.scalars import column_of
from protocol.pgwire.types import (
    MZ_TIMESTAMP,
    SCALAR_TYPES,
    PgType,
    array_of,
    bare_numeric,
    numeric,
    parse_type,
)

INT64_MAX = (1 << 63) - 1
DAY_US = 86_400_000_000
DATE_MIN, DATE_MAX = -2_440_588 + 1, 2_145_031_948  # PostgreSQL's limits
TIMESTAMP_MIN = -210_866_803_200_000_000

NUMERICS = (
    numeric(10, 2),
    numeric(38, 18),
    numeric(38, 0),
    numeric(3, 3),
    numeric(9, 7),
    bare_numeric(16),
    MZ_TIMESTAMP,
)
ELEMENTS = (*SCALAR_TYPES, *NUMERICS, parse_type("varchar(7)"))
TYPES = (
    *ELEMENTS,
    *(array_of(element) for element in ELEMENTS),
    *(array_of(parse_type(name), dimensions) for name in ("int4", "text", "numeric(10,2)") for dimensions in (2, 3)),
)

# The bytes that COPY, arrays or quoting treat specially, and some that they must not change.
CHARACTERS = st.sampled_from([*"abNULnul\\\t\n\r\b\f\v\x01\x7f\"'{}, .|;é€😀"])
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=8),
    st.sampled_from(["", "NULL", "null", "\\.", "\\N", "N", " ", '"', "a b", "\\", "x" * 70]),
)
DOUBLES = st.one_of(
    st.floats(),
    st.integers(0, (1 << 64) - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]),
    st.integers(-(10**17), 10**17).map(float),
    st.builds(lambda digits, power: digits * 10.0**power, st.integers(-9999, 9999), st.integers(-8, 40)),
    st.integers(-1074, 1023).map(lambda power: 2.0**power),
    st.sampled_from(
        [1e23, 9007199254740993.0, 1e15, 1e14, 999999999999999.9, 1e-4, 9.999e-5, -0.0, 5e-324, 1.7976931348623157e308]
    ),
)
SINGLES = st.one_of(
    st.floats(width=32),
    st.integers(0, (1 << 32) - 1).map(lambda bits: struct.unpack("<f", struct.pack("<I", bits))[0]),
    st.integers(-(10**8), 10**8).map(lambda n: struct.unpack("<f", struct.pack("<f", n / 8))[0]),
)
UUIDS = st.uuids().map(str)
WORDS = st.sampled_from([0, 0, 0, 1, 0xFFFF]) | st.integers(0, 0xFFFF)
NUMBERS = {  # of IPv4 and of IPv6
    IPV4: st.integers(0, (1 << 32) - 1) | st.sampled_from([0, 10 << 24, 0xFFFFFFFF]),
    IPV6: st.lists(WORDS, min_size=8, max_size=8).map(lambda words: int("".join(f"{w:04x}" for w in words), 16))
    | st.integers(0, (1 << 128) - 1),
}
ADDRESSES = st.one_of(
    *(
        st.builds(Address, st.just(family), numbers, st.just(size) | st.integers(0, size))
        for (family, numbers), size in zip(NUMBERS.items(), (32, 128), strict=True)
    )
)
BLOBS = st.binary(max_size=6)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(CHARACTERS, max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("abé", max_size=2), inner, max_size=3),
    max_leaves=4,
)


def decimals(type: PgType) -> st.SearchStrategy[Decimal]:
    digits = type.precision or 38
    units = st.one_of(
        st.integers(-(10**digits) + 1, 10**digits - 1),
        st.integers(-99_999, 99_999),
        st.integers(0, digits - 1).map(lambda power: 10**power),
    ).filter(lambda unit: abs(unit) < 10**digits)
    return units.map(lambda unit: Decimal(unit).scaleb(-(type.scale or 0), context=_WIDE))


def values(type: PgType) -> st.SearchStrategy[Any]:
    """Scalars of the type, with its extreme values and without None."""
    if type.element is not None:
        return arrays(type) if type.dimensions > 1 else st.lists(st.none() | values(type.element), max_size=4)
    if type.name == "numeric":
        return decimals(type)
    if type.length is not None:
        return st.text(CHARACTERS, max_size=type.length)
    return _VALUES[type.name]


@st.composite
def arrays(draw: st.DrawFn, type: PgType) -> list[Any]:
    """An array of several dimensions, or an empty one."""
    lengths = draw(st.just([]) | st.lists(st.integers(1, 3), min_size=type.dimensions, max_size=type.dimensions))

    def part(lengths: list[int]) -> Any:
        return [part(lengths[1:]) for _ in range(lengths[0])] if lengths else draw(st.none() | values(scalar))

    scalar = type.element
    assert scalar is not None
    return part(lengths) if lengths else []  # type: ignore[no-any-return]


def instants(low: int) -> st.SearchStrategy[int]:
    return st.one_of(
        st.integers(low, INT64_MAX - 1),
        st.sampled_from([INT64_MAX, -INT64_MAX - 1]),  # infinity and -infinity
        st.integers(0, 4_102_444_800).map(lambda second: second * 1_000_000),
        st.integers(-62_135_596_800_000_000 - DAY_US, -62_135_596_800_000_000 + DAY_US),
        st.integers(253_402_300_800_000_000 - DAY_US, 253_402_300_800_000_000 + DAY_US),
    )


_WIDE = Context(prec=60)
_INTERVALS = st.builds(
    lambda months, days, us: pa.MonthDayNano((months, days, us * 1000)),
    st.integers(-(1 << 31) + 1, (1 << 31) - 1) | st.integers(-30, 30),
    st.integers(-(1 << 31) + 1, (1 << 31) - 1) | st.integers(-3, 3),
    st.integers(-(INT64_MAX // 1000), INT64_MAX // 1000) | st.integers(-(10**8), 10**8),
)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "bytea": BLOBS,
    "int2": st.integers(-(1 << 15), (1 << 15) - 1),
    "int4": st.integers(-(1 << 31), (1 << 31) - 1),
    "int8": st.integers(-(1 << 63), INT64_MAX),
    "text": TEXTS,
    "varchar": TEXTS,
    "bpchar": TEXTS,
    "json": JSON_VALUES.map(json.dumps),
    "jsonb": JSON_VALUES.map(lambda value: parse_jsonb(json.dumps(value))),
    "float4": SINGLES,
    "float8": DOUBLES,
    "date": st.integers(DATE_MIN, DATE_MAX)
    | st.integers(-719_170, -719_150)
    | st.integers(0, 30_000)
    | st.sampled_from([(1 << 31) - 1, -1 << 31]),  # infinity and -infinity
    "time": st.integers(0, DAY_US) | st.integers(0, 86_400).map(lambda second: second * 1_000_000),
    "timestamp": instants(TIMESTAMP_MIN),
    "timestamptz": instants(TIMESTAMP_MIN),
    "interval": _INTERVALS,
    "uuid": UUIDS,
    "inet": ADDRESSES.map(stored),
    "cidr": ADDRESSES.map(network_of).map(stored),
    "macaddr": st.binary(min_size=6, max_size=6),
    "macaddr8": st.binary(min_size=8, max_size=8),
}


@st.composite
def columns(draw: st.DrawFn, type: PgType, count: int) -> tuple[list[Any], pa.Array]:
    """Scalars with None, and an Arrow array of them, which may be a slice and of another Arrow type than the type's
    own."""
    dense = draw(st.booleans())
    scalar = values(type) if dense else st.none() | values(type)
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    filler = draw(st.lists(values(type), min_size=before + after, max_size=before + after))
    scalars = draw(st.lists(scalar, min_size=count, max_size=count))
    array = column_of(type, [*filler[:before], *scalars, *filler[before:]])
    if type.name in ("text", "json") and draw(st.booleans()):
        array = array.cast(draw(st.sampled_from([pa.large_string(), pa.string_view()])))
    elif type.name in ("text", "int4") and draw(st.booleans()):
        array = array.dictionary_encode()
    return scalars, array.slice(before, count)


@st.composite
def batches(draw: st.DrawFn, max_columns: int = 4) -> tuple[list[PgType], list[list[Any]], pa.RecordBatch]:
    """The types, the rows of scalars, and an Arrow batch of these rows."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=max_columns))
    count = draw(st.integers(0, 5))
    drawn = [draw(columns(type, count)) for type in types]
    rows = [[scalars[row] for scalars, _ in drawn] for row in range(count)]
    return types, rows, pa.record_batch([array for _, array in drawn], [f"c{i}" for i in range(len(types))])
