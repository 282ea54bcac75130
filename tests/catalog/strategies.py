"""Random rows of every Arrow type that `protocol.pgwire.types` maps to, and their values row by row.

Rows are drawn from a small pool, so that some of them are equal. Tables have chunks of different lengths, sliced from
longer ones, so that offsets are seldom zero. Dates and times are drawn and read as the integers that represent them.
"""

from __future__ import annotations

import struct
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from catalog import updates as u
from protocol.pgwire import types as pg

PG_TYPES = (
    *pg.SCALAR_TYPES,
    pg.MZ_TIMESTAMP,
    pg.numeric(10, 2),
    *(pg.array_of(t) for t in pg.SCALAR_TYPES),
    pg.array_of(pg.numeric(5, 1)),
)
ARROW_TYPES: tuple[pa.DataType, ...] = tuple(dict.fromkeys(t.arrow for t in PG_TYPES))

Row = tuple[object, ...]
_EXACT = Context(prec=50)
_NANS = [
    float(np.array([bits], np.uint64).view(np.float64)[0])
    for bits in (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001)
]
_FLOATS = st.one_of(st.sampled_from([0.0, -0.0, 1.5, float("inf"), *_NANS]), st.floats(width=32))


def _ints(type: pa.DataType) -> st.SearchStrategy[object]:
    bits = type.bit_width
    return st.one_of(st.integers(-2, 2), st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1))


def _present(type: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_boolean(type):
        return st.booleans()
    if pa.types.is_floating(type):
        return _FLOATS
    if pa.types.is_decimal(type):
        digits = st.integers(-(10**type.precision) + 1, 10**type.precision - 1) | st.integers(-2, 2)
        return digits.map(lambda n: Decimal(n).scaleb(-type.scale, _EXACT))
    if pa.types.is_string(type):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    if pa.types.is_binary(type):
        return st.binary(max_size=3)
    if pa.types.is_interval(type):
        parts = st.integers(-2, 2)
        return st.builds(lambda m, d, n: pa.MonthDayNano([m, d, n * 1000]), parts, parts, parts)
    if pa.types.is_list(type):
        return st.lists(values(type.value_type), max_size=3)
    if pa.types.is_time64(type):
        return st.integers(0, 86_400_000_000 - 1)
    return _ints(type)


def values(type: pa.DataType) -> st.SearchStrategy[object]:
    """A value of the type in the form that pa.array() accepts, or None."""
    return st.none() | _present(type)


@st.composite
def rows_tables(draw: st.DrawFn, types: tuple[pa.DataType, ...], max_size: int = 12) -> pa.Table:
    """Rows of these types, some of them equal. The table is chunked, has offsets, and may be empty."""
    pool = draw(st.lists(st.tuples(*map(values, types)), min_size=1, max_size=4))
    rows = draw(st.lists(st.sampled_from(pool), max_size=max_size))
    schema = u.rows_schema(types)
    before, after = pool[: draw(st.integers(0, 3))], pool[: draw(st.integers(0, 1))]
    cut = draw(st.none() | st.integers(0, len(rows)))
    pieces = []
    for part in (rows,) if cut is None else (rows[:cut], rows[cut:]):
        columns = zip(*before, *part, *after, strict=True) if [*before, *part, *after] else ([] for _ in types)
        whole = pa.table([pa.array(list(c), t) for c, t in zip(columns, types, strict=True)], schema=schema)
        pieces.append(whole.slice(len(before), len(part)))
    return pa.concat_tables(pieces)


@st.composite
def changes_tables(draw: st.DrawFn, types: tuple[pa.DataType, ...]) -> pa.Table:
    """Changes of such rows. They may be unconsolidated and have diffs of 0."""
    rows = draw(rows_tables(types))
    diffs = draw(st.lists(st.integers(-2, 2), min_size=rows.num_rows, max_size=rows.num_rows))
    return rows.append_column(u.DIFF_FIELD, pa.array(diffs, pa.int64()))


def pairs(changes: pa.Table) -> list[tuple[Row, int]]:
    """The changes, row by row. Rows are hashable values that are equal exactly when the Arrow rows are equal."""
    return list(zip(plain(u.rows_of(changes)), changes[u.DIFF].to_pylist(), strict=True))


def plain(rows: pa.Table) -> list[Row]:
    """The rows as hashable values that are equal exactly when the Arrow rows are equal."""
    columns = [rows[i].cast(_storage(field.type)).to_pylist() for i, field in enumerate(rows.schema)]
    return [tuple(map(_key, row)) for row in zip(*columns, strict=True)]


def _storage(type: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type):
        return pa.list_(_storage(type.value_type))
    if pa.types.is_date32(type):
        return pa.int32()
    if pa.types.is_time64(type) or pa.types.is_timestamp(type):
        return pa.int64()
    return type


def _key(value: object) -> object:
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack(">d", value)  # distinguishes -0.0 from 0.0
    if isinstance(value, list):
        return tuple(map(_key, value))
    return value
