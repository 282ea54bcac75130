"""Codes and counts of keys, compared with plain Python."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from protocol.columnar.hashing import key_hashes
from protocol.columnar.scalar_hashing import row_hash
from server.coordinator import key_counts
from server.coordinator.key_codes import KeyLayout
from server.coordinator.key_counts import KeyCounts, Run, changes_of
from server.coordinator.key_indexes import OwnKeys, changes_in, first_duplicate, violation

INTS = st.integers(-(2**63), 2**63 - 1)
SCALARS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-2, 2) | INTS,
    pa.int16(): st.integers(-2, 2),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=20) | st.sampled_from(["", "a", "a" * 300, "\0", "\0\0"]),
    pa.binary(): st.binary(max_size=20),
    pa.timestamp("us", "UTC"): st.integers(-3, 3),
    pa.time64("us"): st.integers(0, 3),
    pa.date32(): st.integers(-3, 3),
}
OTHERS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
    pa.decimal128(38, 18): st.sampled_from([Decimal("1.0"), Decimal("1.00"), Decimal("-1"), Decimal(2**64)]),
}


def normal(value: Any) -> Any:
    """A value that is equal where PostgreSQL's are."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


@given(st.data())
def test_codes_are_equal_where_keys_are(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from([*SCALARS, *OTHERS]), min_size=1, max_size=3))
    nulls_distinct = data.draw(st.booleans())
    row = st.tuples(*(st.none() | {**SCALARS, **OTHERS}[type] for type in types))
    rows = data.draw(st.lists(row, min_size=1, max_size=12))
    table = pa.table(
        [pa.array([row[number] for row in rows], type) for number, type in enumerate(types)],
        names=[f"c{number}" for number in range(len(types))],
    )
    layout = KeyLayout(tuple(range(len(types))), tuple(types), nulls_distinct)
    codes = layout.codes(table)
    kept = list(range(len(rows))) if codes.rows is None else codes.rows.tolist()
    assert kept == [at for at, row in enumerate(rows) if not nulls_distinct or None not in row]
    keys = [tuple(map(normal, rows[at])) for at in kept]
    assert [[a == b for a in codes.to_list()] for b in codes.to_list()] == [[a == b for a in keys] for b in keys]
    if layout.has_scalars:
        expected = dict(zip(kept, codes.to_list(), strict=True))
        assert [layout.code(row) for row in rows] == [expected.get(at) for at in range(len(rows))]


@given(st.lists(st.tuples(*SCALARS.values()), min_size=1, max_size=5))
def test_hashes_of_single_rows_are_those_of_columns(rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array(column, type) for column, type in zip(zip(*rows, strict=True), SCALARS, strict=True)]
    names = [str(number) for number in range(len(columns))]
    assert [row_hash(row) for row in rows] == key_hashes(pa.table(columns, names=names), names).tolist()


CHANGES = st.lists(st.lists(st.tuples(st.integers(0, 12), st.sampled_from((1, 1, -1))), max_size=10), max_size=8)


@given(CHANGES, st.booleans(), st.integers(1, 20), st.booleans())
def test_counts_are_sums(changes: list[list[tuple[int, int]]], is_wide: bool, few: int, merge: bool) -> None:
    """Keys are words, or texts whose 64-bit hashes often collide, so that only their second hashes differ."""
    layout = KeyLayout((0,), (pa.string() if is_wide else pa.int64(),))
    counts, expected = KeyCounts(layout.is_narrow), Counter[int]()
    before = key_counts.FEW_KEYS, key_counts.RECENT_MAX
    key_counts.FEW_KEYS, key_counts.RECENT_MAX = few, few
    codes = {}
    try:
        for part in changes:
            values = [str(key) if is_wide else key for key, _ in part]
            table = pa.table([pa.array(values, layout.types[0])], names=["c0"])
            found = layout.codes(table)
            if is_wide:
                found = type(found)(found.hashes % np.uint64(3), found.checks, found.rows)
            codes.update(zip((key for key, _ in part), found.to_list(), strict=True))
            diffs = np.array([diff for _, diff in part], np.int64)
            counts.add(changes_of([(found, diffs)]))
            expected.update({key: 0 for key, _ in part})
            for key, diff in part:
                expected[key] += diff
            while merge and (runs := counts.mergeable()):
                counts.replace(runs, Run.merged(runs))
    finally:
        key_counts.FEW_KEYS, key_counts.RECENT_MAX = before
    for key, code in codes.items():
        assert counts.count(code) == expected[key]
    asked = Run.of_counts(dict.fromkeys(codes.values(), 1), layout.is_narrow)
    by_code = {code: expected[key] for key, code in codes.items()}
    high = asked.hashes.tolist()
    low = asked.checks.tolist() if asked.checks is not None else None
    names = high if low is None else [one << 64 | other for one, other in zip(high, low, strict=True)]
    assert counts.counts(asked).tolist() == [by_code[code] for code in names]


ROWS = st.lists(st.integers(0, 8), max_size=6)


@given(ROWS, ROWS, st.lists(ROWS, max_size=3), st.booleans())
def test_the_first_duplicate_is_that_of_a_loop(
    base: list[int], own: list[int], parts: list[list[int]], is_wide: bool
) -> None:
    layout = KeyLayout((0,), (pa.string() if is_wide else pa.int64(),))

    def table(values: list[int]) -> pa.Table:
        return pa.table([pa.array([str(v) if is_wide else v for v in values], layout.types[0])], names=["c0"])

    theirs, mine = KeyCounts(layout.is_narrow), OwnKeys(KeyCounts(layout.is_narrow))
    theirs.add(changes_in(layout, [table(sorted(set(base)))]))
    mine.add(changes_in(layout, [table(sorted(set(own) - set(base)))]), 0)
    seen, expected = set(base) | set(own), None
    for number, part in enumerate(parts):
        for position, key in enumerate(part):
            if key in seen and expected is None:
                expected = number, position
            seen.add(key)
    tables = [table(part) for part in parts]
    found = violation(theirs, mine.counts, changes_in(layout, tables))
    assert (found is not None) == (expected is not None)
    assert first_duplicate(layout, theirs, mine.counts, tables) == expected
