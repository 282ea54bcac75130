"""Equal values have equal hashes and others have different ones; order codes never contradict the order."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.columnar.hashing import (
    LONG_BYTES,
    are_among,
    distinct_hashes,
    key_codes,
    key_hashes,
    order_codes,
    quick_hashes,
)
from tests.examples import examples

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int2": (pa.int16(), st.integers(-(1 << 15), (1 << 15) - 1)),
    "int4": (pa.int32(), st.integers(-5, 5)),
    "int8": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "float4": (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan])),
    "float8": (pa.float64(), st.floats()),
    "numeric": (pa.decimal128(38, 6), st.decimals(-(10**20), 10**20, places=6)),
    "text": (pa.string(), st.text("ab\0é☃", max_size=20)),
    "long text": (pa.string(), st.integers(LONG_BYTES - 2, LONG_BYTES + 2).map(lambda n: "x" * n)),
    "bytea": (pa.binary(), st.binary(max_size=20)),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "timestamptz": (pa.timestamp("us", "UTC"), st.integers(-(1 << 55), 1 << 55)),
    "array": (pa.list_(pa.int32()), st.lists(st.one_of(st.none(), st.integers(-2, 2)), max_size=3)),
    "interval": (pa.month_day_nano_interval(), st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(-2, 2))),
}
ORDERED = [name for name in TYPES if name not in ("array", "interval")]


def canonical(value: Any) -> Any:
    """A Python value that is equal for values that are equal in SQL."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(value)
    return value


def column(draw: st.DrawFn, name: str) -> tuple[list[Any], pa.Array]:
    """Values with NULLs; in half of the cases as a slice of a larger array."""
    type, values = TYPES[name]
    drawn = draw(st.lists(st.one_of(st.none(), values), max_size=12))
    array = pa.array([*drawn[:1], *drawn], type).slice(len(drawn[:1])) if draw(st.booleans()) else pa.array(drawn, type)
    return drawn, array


@examples(100)
@given(st.lists(st.integers(0, 12)), st.sets(st.integers(0, 12)))
def test_which_hashes_are_among_others(hashes: list[int], sought: set[int]) -> None:
    found = are_among(np.array(hashes, np.uint64), np.array(sorted(sought), np.uint64))
    assert found.tolist() == [each in sought for each in hashes]


@pytest.mark.parametrize("name", TYPES)
@examples(30)
@given(data=st.data())
def test_equal_values_have_equal_quick_hashes(name: str, data: st.DataObject) -> None:
    values, array = data.draw(st.composite(column)(name))
    found = quick_hashes(pa.chunked_array([array, array.slice(1)])).tolist()
    assert found[: len(values)][1:] == found[len(values) :]
    by_value: dict[Any, int] = {}
    for value, hash in zip(map(canonical, values), found, strict=False):
        assert by_value.setdefault(value, hash) == hash


def test_quick_hashes_depend_on_the_length_and_the_end() -> None:
    values = ["", "a", "b", "a" * 7, "a" * 8, "a" * 9, "a" * 8 + "b", "\0", "b" + "a" * 8, None]
    hashes = quick_hashes(pa.chunked_array([pa.array(values)])).tolist()
    assert hashes[5] == hashes[8]
    assert len(set(hashes)) == len(values) - 1


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_hashes_are_equal_exactly_for_equal_values(name: str, data: st.DataObject) -> None:
    values, array = data.draw(st.composite(column)(name))
    hashes = key_hashes(pa.table([array], ["c0"]), ["c0"])
    assert hashes.dtype == np.uint64
    seen: dict[Any, int] = {}
    for value, hash in zip(values, hashes.tolist(), strict=True):
        assert seen.setdefault(canonical(value), hash) == hash
    assert len(set(seen.values())) == len(seen)


@given(st.lists(st.tuples(st.integers(0, 2), st.text("ab", max_size=2)), max_size=20))
def test_the_hash_of_several_columns_depends_on_their_order(rows: list[tuple[int, str]]) -> None:
    table = pa.table(
        [pa.array([a for a, _ in rows], pa.int64()), pa.array([b for _, b in rows], pa.string())], ["a", "b"]
    )
    hashes = key_hashes(table, ["a", "b"]).tolist()
    assert len(set(hashes)) == len(set(rows))
    assert key_hashes(table, ["b", "a"]).tolist() != hashes or not rows
    assert len(set(key_hashes(table, []).tolist())) <= 1


@pytest.mark.slow
def test_32_bits_of_a_hash_are_enough_for_lookups() -> None:
    codes = key_codes(pa.table({"a": np.arange(1_000_000)}), ["a"])
    assert codes.dtype == np.uint32
    assert len(np.unique(codes)) > 999_500  # by chance about 116 are shared


def behind(a: Any, b: Any, descending: bool, nulls_first: bool) -> int:
    """PostgreSQL's order of two values, as `cmp`."""
    if a is None or b is None:
        both = (a is None) - (b is None)
        return -both if nulls_first else both
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    if isinstance(a, float):
        a, b = (math.isnan(a), 0.0 if math.isnan(a) else a), (math.isnan(b), 0.0 if math.isnan(b) else b)
    return ((a > b) - (a < b)) * (-1 if descending else 1)


@pytest.mark.parametrize("name", ORDERED)
@given(data=st.data(), descending=st.booleans(), nulls_first=st.booleans())
def test_codes_never_contradict_the_order(name: str, data: st.DataObject, descending: bool, nulls_first: bool) -> None:
    values, array = data.draw(st.composite(column)(name))
    codes = order_codes(array, descending=descending, nulls_first=nulls_first).tolist()
    order = sorted(
        range(len(values)), key=cmp_to_key(lambda i, j: behind(values[i], values[j], descending, nulls_first))
    )
    assert [codes[i] for i in order] == sorted(codes)


def test_codes_of_integers_are_exact() -> None:
    values = [-(1 << 63), -1, 0, 1, (1 << 63) - 1]
    assert len(set(order_codes(pa.array(values, pa.int64())).tolist())) == len(values)


def test_types_without_an_order_code_have_one_code() -> None:
    assert set(order_codes(pa.array([[1], [2, 3]], pa.list_(pa.int32()))).tolist()) == {0}


def test_numerics_may_share_a_code_but_keep_their_order() -> None:
    close = [Decimal("1.0000000000000000000000000001"), Decimal("1.0000000000000000000000000002")]
    codes = order_codes(pa.array(close, pa.decimal128(38, 28))).tolist()
    assert codes[0] <= codes[1]


def test_hashes_do_not_depend_on_the_width_of_a_number() -> None:
    for wide, narrow in ((pa.int64(), pa.int16()), (pa.int64(), pa.int32()), (pa.float64(), pa.float32())):
        tables = [pa.table({"a": pa.array([0, 1, -5, None], type)}) for type in (wide, narrow)]
        first, second = (key_hashes(table, ("a",)) for table in tables)
        assert (first == second).all(), narrow


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@examples(30)
@given(values=st.lists(st.integers(0, 9) | st.integers(0, (1 << 32) - 1), max_size=40))
def test_distinct_hashes_are_ascending(dtype: type[Any], values: list[int]) -> None:
    found = distinct_hashes(np.array(values, dtype))
    assert found.dtype == dtype
    assert found.tolist() == sorted(set(values))


@examples(30)
@given(values=st.lists(st.binary(max_size=40) | st.binary(min_size=LONG_BYTES, max_size=LONG_BYTES + 8), max_size=30))
def test_the_hash_of_a_string_does_not_depend_on_the_other_rows(values: list[bytes]) -> None:
    together = key_hashes(pa.table([pa.array(values, pa.binary())], ["c0"]), ["c0"])
    alone = [key_hashes(pa.table([pa.array([value], pa.binary())], ["c0"]), ["c0"])[0] for value in values]
    assert together.tolist() == alone
