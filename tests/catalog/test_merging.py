"""The sum of tables that a merge of the log computes equals their consolidation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from catalog import merging, spill
from catalog import updates as u
from tests.catalog.strategies import ARROW_TYPES, changes_tables, pairs, plain, rows_tables
from tests.examples import examples

Tables = list[pa.Table]


@pytest.mark.parametrize("type", ARROW_TYPES, ids=str)
@pytest.mark.parametrize("limit", [0, spill.MEMORY_BYTES_MAX])
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_sum_equals_the_consolidated_changes(
    type: pa.DataType, limit: int, data: st.DataObject, tmp_path: Path
) -> None:
    types = (type, pa.int64())
    shapes = st.sampled_from([rows_tables(types), changes_tables(types)])
    tables = [data.draw(data.draw(shapes)) for _ in range(data.draw(st.integers(1, 6)))]
    gathered = data.draw(st.sampled_from([1, 3, merging.GATHERED_ROWS]))
    bits = data.draw(st.sampled_from([1, merging.BITS_MAX]))
    with (
        mock.patch.multiple(spill, MEMORY_BYTES_MAX=limit, PARTITION_BYTES=64 if limit == 0 else spill.PARTITION_BYTES),
        mock.patch.multiple(merging, BITS_MIN=1, BITS_MAX=bits, COMPARED_BYTES_MAX=limit, GATHERED_ROWS=gathered),
    ):
        found = merging.summed(tables, tmp_path)
        whole = pa.concat_tables([found.schema.empty_table(), *found.tables()])
    expected = u.consolidate(pa.concat_tables([u.as_changes(table) for table in tables]))
    assert Counter(pairs(u.consolidate(u.as_changes(whole)))) == Counter(pairs(expected))
    assert found.is_rows == (u.DIFF not in whole.column_names)
    negative = {row for row, diff in pairs(u.as_changes(whole)) if diff < 0}
    assert len([row for row, _ in pairs(u.as_changes(whole)) if row in negative]) == len(negative)
    assert not list(tmp_path.iterdir()), "a file has a name"


def upserts(old: pa.Table, changed: list[int]) -> Tables:
    """The old rows, and the replacement of some of them."""
    going = old.take(pa.array(changed))
    coming = going.set_column(1, "c1", pa.array([f"new {n}" for n in changed]))
    return [old, pa.concat_tables([u.with_diff(going, -1), u.with_diff(coming, 1)])]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that are consolidated from now on."""
    found: list[int] = []
    consolidate = u.consolidate

    def measured(table: pa.Table) -> pa.Table:
        found.append(table.num_rows)
        return consolidate(table)

    monkeypatch.setattr(u, "consolidate", measured)
    return found


def test_few_rows_are_compared_and_the_others_keep_their_order(tmp_path: Path, compared: list[int]) -> None:
    old = pa.table({"c0": pa.array(np.arange(20_000)), "c1": [f"text {n}" for n in range(20_000)]})
    changed = np.random.default_rng(1).choice(20_000, 1_000, replace=False).tolist()
    found = merging.summed(upserts(old, changed), tmp_path)
    whole = pa.concat_tables(found.tables())
    assert found.is_rows
    assert sum(compared) < 2 * 1_000 + 20_000 // 8
    left = [n for n in range(20_000) if n not in set(changed)]
    assert set(left) <= set(whole["c0"].to_pylist())
    kept = whole["c0"].to_pylist()[:17_000]
    assert kept == sorted(kept)
    assert Counter(plain(whole)) == Counter(
        {**{(n, f"text {n}"): 1 for n in left}, **{(n, f"new {n}"): 1 for n in changed}}
    )


def test_updates_whose_rows_are_in_other_batches_are_not_compared(tmp_path: Path, compared: list[int]) -> None:
    """The retraction of an update equals no row of the merged tables, as in a merge of the newest batches."""
    count, changes = 20_000, []
    for start in range(0, count, count // 4):
        numbers = np.arange(start, start + count // 4)
        old, new = (pa.table({"c0": numbers, "c1": np.full(len(numbers), version)}) for version in (1, 2))
        changes.append(pa.concat_tables([u.with_diff(old, -1), u.with_diff(new, 1)]))
    found = merging.summed(changes, tmp_path)
    assert Counter(pairs(pa.concat_tables(found.tables()))) == Counter(pairs(pa.concat_tables(changes)))
    assert not found.is_rows
    assert sum(compared) < count // 4


@pytest.mark.parametrize("same", [False, True])
def test_many_rows_are_compared_by_ranges_of_their_hashes(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If most rows have the same hash, a range has too many rows, and they are partitioned on disk."""
    count = 20_000
    numbers = np.zeros(count, np.int64) if same else np.arange(count)
    old = pa.table({"c0": numbers, "c1": [f"text {n}" for n in range(count)]})
    tables = upserts(old, np.random.default_rng(1).permutation(count)[: count // 2].tolist())
    expected = Counter(plain(u.expand(u.consolidate(pa.concat_tables([u.as_changes(table) for table in tables])))))
    sizes: list[int] = []
    consolidate, partitioned = u.consolidate, spill.partitioned_slices
    on_disk: list[bool] = []

    def measured(table: pa.Table) -> pa.Table:
        sizes.append(table.num_rows)
        return consolidate(table)

    def divided(*args: Any) -> Any:
        on_disk.append(True)
        return partitioned(*args)

    monkeypatch.setattr(u, "consolidate", measured)
    monkeypatch.setattr(spill, "partitioned_slices", divided)
    monkeypatch.setattr(merging, "COMPARED_BYTES_MAX", 400_000)
    monkeypatch.setattr(merging, "_hashed_columns", lambda changes: ["c0"] if changes else [])
    found = merging.summed(tables, tmp_path)
    assert Counter(plain(pa.concat_tables(found.tables()))) == expected
    assert found.is_rows
    assert bool(on_disk) == same
    if not same:
        assert len(sizes) == merging.RANGES_MAX
        assert max(sizes) < 2 * count * 2 // merging.RANGES_MAX


def test_tables_without_retractions_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"c0": [1, 1, 2]})
    twice = rows.append_column(u.DIFF_FIELD, pa.array([1, 2, 1]))
    assert plain(pa.concat_tables(merging.summed([rows, rows], tmp_path).tables())) == plain(rows) * 2
    found = merging.summed([rows, twice], tmp_path)
    assert not found.is_rows
    assert pairs(pa.concat_tables(found.tables())) == [((1,), 1), ((1,), 1), ((2,), 1), ((1,), 1), ((1,), 2), ((2,), 1)]


def test_rows_of_a_negative_multiplicity_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"c0": [1, 2]})
    assert sorted(plain(pa.concat_tables(merging.rows([rows, u.with_diff(rows.slice(1), -1)], tmp_path)))) == [(1,)]
    with pytest.raises(u.NegativeCount):
        list(merging.rows([rows, u.with_diff(rows, -2)], tmp_path))
