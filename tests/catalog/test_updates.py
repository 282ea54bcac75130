"""`catalog.updates`, compared with the same algebra written row by row, over every type that a column can have."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates as u
from tests.catalog.strategies import ARROW_TYPES, Row, changes_tables, pairs, plain, rows_tables
from tests.examples import examples

MIXED = (pa.int64(), pa.float64(), pa.list_(pa.string()))
each_type = pytest.mark.parametrize("type", ARROW_TYPES, ids=str)
few = examples(20)


@pytest.fixture(params=[0, u.FEW_ROWS], ids=["grouped by Arrow", "row by row"])
def _consolidation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(u, "FEW_ROWS", request.param)


both_ways = pytest.mark.usefixtures("_consolidation")


def consolidated(changes: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
    sums: dict[Row, int] = {}
    for row, diff in changes:
        sums[row] = sums.get(row, 0) + diff
    return [(row, diff) for row, diff in sums.items() if diff != 0]


@each_type
@few
@given(data=st.data())
def test_consolidate_adds_the_diffs_of_equal_rows_of_every_type(type: pa.DataType, data: st.DataObject) -> None:
    changes = data.draw(changes_tables((type,)))
    for rows_min in (u.HASHED_ROWS_MIN, 0):
        with patch.object(u, "HASHED_ROWS_MIN", rows_min), patch.object(u, "FEW_ROWS", 0):
            result = u.consolidate(changes)
            assert pairs(result) == consolidated(pairs(changes))
            assert result.schema == changes.schema
            assert pairs(u.consolidate(result)) == pairs(result)


@examples(50)
@given(
    st.sampled_from([count + more for count in u.SAMPLES_ROWS for more in (-1, 0, 2)]),
    st.lists(st.integers(0, 3), max_size=4),
    st.sampled_from([0, 1, 2]),
    st.integers(-1, 1),
)
def test_consolidate_with_a_column_of_distinct_values(count: int, repeated: list[int], at: int, diff: int) -> None:
    """Rows of which most differ in one column, at the beginning of which all values are distinct."""
    ids = [*range(count), *repeated]
    columns = [[number // 7 for number in ids], [str(number // 5) for number in ids]]
    columns.insert(at, ids)
    diffs = [1] * (count) + [diff] * len(repeated)
    changes = pa.table([*columns, pa.array(diffs, pa.int64())], names=["c0", "c1", "c2", u.DIFF])
    changes = changes.cast(pa.schema([*(changes.field(i) for i in range(3)), u.DIFF_FIELD]))
    assert pairs(u.consolidate(changes)) == consolidated(pairs(changes))


@each_type
@few
@given(data=st.data())
def test_few_rows_are_consolidated_like_many(type: pa.DataType, data: st.DataObject) -> None:
    changes = data.draw(changes_tables((type, pa.int64())))
    few_rows = u.consolidate(changes)
    with patch.object(u, "FEW_ROWS", 0):
        many_rows = u.consolidate(changes)
    assert pairs(few_rows) == pairs(many_rows) == consolidated(pairs(changes))
    assert few_rows.schema == many_rows.schema == changes.schema


@each_type
@pytest.mark.parametrize("numbers_max", [u.NUMBER_MAX, 1])
@few
@given(data=st.data())
def test_equal_rows_have_equal_numbers(numbers_max: int, type: pa.DataType, data: st.DataObject) -> None:
    table = data.draw(changes_tables((type, pa.int64(), pa.string())))
    with patch.object(u, "NUMBER_MAX", numbers_max):
        numbers = u.row_numbers(u.rows_of(table)).tolist()
    rows = [row for row, _ in pairs(table)]
    assert len({*numbers}) == len({*rows})
    assert len({*zip(numbers, rows, strict=True)}) == len({*rows})


@pytest.mark.parametrize("rows_min", [u.HASHED_ROWS_MIN, 0])
@given(changes=changes_tables(MIXED))
def test_consolidate_compares_all_columns(rows_min: int, changes: pa.Table) -> None:
    with patch.object(u, "HASHED_ROWS_MIN", rows_min), patch.object(u, "FEW_ROWS", 0):
        assert pairs(u.consolidate(changes)) == consolidated(pairs(changes))


def test_each_chunk_is_read_once_however_many_pairs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all chunks again for each block of pairs made the time quadratic."""
    gathered, rows_at = [], u.rows_at

    def watched(table: pa.Table, positions: np.ndarray) -> pa.Table:
        gathered.extend(column.num_chunks for column in table.columns)
        return rows_at(table, positions)

    monkeypatch.setattr(u, "rows_at", watched)
    monkeypatch.setattr(u, "COMPARED_ROWS", 100)
    parts = [pa.table({"k": range(first, first + 50), "s": ["s"] * 50}) for first in range(0, 2_000, 50)]
    old, new = pa.concat_tables(parts), pa.concat_tables(parts[10:])
    assert pairs(u.difference(new, old)) == [((k, "s"), -1) for k in range(500)]
    assert gathered
    assert set(gathered) == {1}


@each_type
@few
@given(data=st.data())
def test_expand_repeats_each_row_by_its_diff(type: pa.DataType, data: st.DataObject) -> None:
    changes = u.consolidate(data.draw(changes_tables((type,))))
    if any(diff < 0 for _, diff in pairs(changes)):
        with pytest.raises(u.NegativeCount):
            u.expand(changes)
    else:
        rows = u.expand(changes)
        assert plain(rows) == [row for row, diff in pairs(changes) for _ in range(diff)]
        assert rows.schema == u.rows_schema([type])


@each_type
@few
@given(data=st.data())
def test_difference_applied_to_the_old_rows_gives_the_new_rows(type: pa.DataType, data: st.DataObject) -> None:
    old, new = data.draw(rows_tables((type,))), data.draw(rows_tables((type,)))
    changes = u.difference(new, old)
    counts = Counter(plain(new))
    counts.subtract(plain(old))
    assert dict(pairs(changes)) == {row: n for row, n in counts.items() if n}
    assert len(set(plain(u.rows_of(changes)))) == changes.num_rows
    assert Counter(plain(u.apply(old, changes))) == Counter(plain(new))


@given(rows_tables(MIXED), st.data())
def test_apply_is_addition(rows: pa.Table, data: st.DataObject) -> None:
    changes = data.draw(changes_tables(MIXED))
    counts = Counter(plain(rows))
    for row, diff in pairs(changes):
        counts[row] += diff
    added = all(diff > 0 for _, diff in pairs(changes))
    if any(n < 0 for n in counts.values()):
        with pytest.raises(u.NegativeCount):
            u.apply(rows, changes)
    else:
        after = u.apply(rows, changes)
        assert Counter(plain(after)) == +counts
        if added:
            assert plain(after)[: rows.num_rows] == plain(rows)


@each_type
@few
@given(data=st.data())
def test_deleted_rows_are_found_among_many(type: pa.DataType, data: st.DataObject) -> None:
    types = (type, pa.string())
    drawn = data.draw(rows_tables(types))
    rows = pa.concat_tables([drawn] * 3 * u.SOUGHT_SHARE)
    going = rows.slice(0, 2)
    changes = pa.concat_tables([u.with_diff(data.draw(rows_tables(types)), 1), u.with_diff(going, -1)])
    counts = Counter(plain(rows))
    counts.subtract(plain(going))
    counts.update(row for row, diff in pairs(changes) if diff > 0)
    assert Counter(plain(u.apply(rows, changes))) == +counts
    found = plain(rows.filter(pa.array(u.like(rows, going))))
    assert Counter(row for row in plain(rows) if row in plain(going)) <= Counter(found)


def test_rows_that_change_often_have_few_chunks() -> None:
    rows = pa.table({"c0": pa.array(np.arange(1_000))})
    for number in range(2 * u.CHUNKS_MAX):
        rows = u.apply(rows, u.with_diff(rows.slice(0, 1), -1 if number % 2 else 1))
    assert rows.column(0).num_chunks <= u.CHUNKS_MAX
    assert rows.num_rows == 1_000


@given(rows_tables(MIXED), st.integers(-3, 3))
def test_rows_of_is_the_inverse_of_with_diff(rows: pa.Table, diff: int) -> None:
    changes = u.with_diff(rows, diff)
    assert [d for _, d in pairs(changes)] == [diff] * rows.num_rows
    assert plain(u.rows_of(changes)) == plain(rows)
    assert changes.schema.field(u.DIFF) == u.DIFF_FIELD


def test_consolidate_keeps_the_order_of_first_appearance() -> None:
    numbers = np.random.default_rng(1).integers(0, 3_000, 5_000)
    rows = pa.table({"c0": pa.array(numbers, pa.timestamp("us"), mask=numbers % 7 == 0)})
    changes = u.with_diff(rows, 1)
    assert pairs(u.consolidate(changes)) == consolidated(pairs(changes))


def test_empty_changes_cost_nothing() -> None:
    rows = pa.table({"c0": [1, 2]})
    assert u.apply(rows, u.with_diff(rows.slice(0, 0), 1)) is rows
    assert u.difference(rows, rows).num_rows == 0
    assert u.difference(rows, rows).schema == u.with_diff(rows, 1).schema


@both_ways
def test_all_nans_are_equal_and_the_two_zeros_are_not() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x8000000000000000, 0], np.uint64)
    rows = pa.table({"c0": pa.array(bits.view(np.float64))})
    assert [diff for _, diff in pairs(u.consolidate(u.with_diff(rows, 1)))] == [2, 1, 1]


@both_ways
def test_lists_with_equal_elements_and_other_bounds_are_different() -> None:
    lists = [["a"], ["a", None], [None, "a"], [], None, [None], ["a", None], None]
    rows = pa.table({"c0": pa.array(lists, pa.list_(pa.string()))})
    assert u.consolidate(u.with_diff(rows, 1))[u.DIFF].to_pylist() == [1, 2, 1, 1, 2, 1]


@both_ways
def test_a_null_list_may_have_hidden_elements() -> None:
    offsets, values = pa.array([0, 2, 4], pa.int32()), pa.array([1, 2, 3, 4])
    lists = pa.ListArray.from_arrays(offsets, values, mask=pa.array([True, True]))
    assert u.consolidate(u.with_diff(pa.table({"c0": lists}), 1))[u.DIFF].to_pylist() == [2]
