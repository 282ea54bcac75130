"""Consolidation on disk equals consolidation in memory, over every type that a column can have."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from catalog import spill
from catalog import updates as u
from tests.catalog.strategies import ARROW_TYPES, changes_tables, pairs, plain, rows_tables
from tests.examples import examples

each_type = pytest.mark.parametrize("type", ARROW_TYPES, ids=str)
few = examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes everything exceed the memory budget."""
    monkeypatch.setattr(spill, "MEMORY_BYTES_MAX", 0)
    monkeypatch.setattr(spill, "PARTITION_BYTES", 64)


def outside(tables: list[pa.Table], directory: Path) -> list[pa.Table]:
    return [piece for piece in spill.consolidated(tables, directory) if piece is not None]


@pytest.mark.usefixtures("small")
@each_type
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_consolidation_on_disk_equals_consolidation_in_memory(
    type: pa.DataType, data: st.DataObject, tmp_path: Path
) -> None:
    types = (type, pa.int64())
    tables = [data.draw(rows_tables(types)), data.draw(changes_tables(types)), data.draw(rows_tables(types))]
    expected = u.consolidate(pa.concat_tables([u.as_changes(table) for table in tables]))
    found = outside(tables, tmp_path)
    whole = pa.concat_tables([expected.slice(0, 0), *found])
    assert Counter(pairs(whole)) == Counter(pairs(expected))
    assert all(piece.schema == expected.schema for piece in found)
    assert not list(tmp_path.iterdir()), "a file has a name"


@pytest.mark.usefixtures("small")
@few
@given(
    first=st.lists(st.integers(-5, 60), max_size=80),
    is_sorted=st.booleans(),
    later=st.lists(st.tuples(st.integers(-5, 60), st.sampled_from([-1, 1, 2])), max_size=6),
)
def test_rows_in_any_order_of_a_column_are_consolidated(
    first: list[int], is_sorted: bool, later: list[tuple[int, int]], tmp_path: Path
) -> None:
    values = sorted(first) if is_sorted else first
    rows = pa.table({"c0": pa.array([str(n) for n in values], pa.string()), "c1": pa.array(values, pa.int64())})
    keys = [n for n, _ in later]
    changed = pa.table({"c0": pa.array([str(n) for n in keys], pa.string()), "c1": pa.array(keys, pa.int64())})
    changes = changed.append_column(u.DIFF_FIELD, pa.array([diff for _, diff in later], pa.int64()))
    expected = u.consolidate(pa.concat_tables([u.as_changes(rows), changes]))
    found = pa.concat_tables([expected.slice(0, 0), *outside([rows, changes], tmp_path)])
    assert Counter(pairs(found)) == Counter(pairs(expected))


@pytest.mark.parametrize("copies", [1, 3])
def test_rows_in_the_order_of_a_column_are_not_written_to_disk(
    copies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("a file")

    monkeypatch.setattr(spill, "MEMORY_BYTES_MAX", 0)
    monkeypatch.setattr(spill, "PARTITION_BYTES", 10_000)
    monkeypatch.setattr(spill, "Partitions", refused)
    rows = pa.table({"c0": np.zeros(9_000, np.int64), "c1": np.repeat(np.arange(9_000 // copies), copies)})
    some = np.random.default_rng(1).choice(9_000, 40, replace=False)
    gone = u.with_diff(rows.take(pa.array(some)), -1)
    found = outside([rows, gone], tmp_path)
    assert len([piece for piece in found if piece is not None]) > 10
    expected = u.consolidate(pa.concat_tables([u.as_changes(rows), gone]))
    assert Counter(pairs(pa.concat_tables(found))) == Counter(pairs(expected))


def test_the_first_rows_do_not_wait_for_the_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES_MAX", 0)
    monkeypatch.setattr(spill, "PARTITION_BYTES", 10_000)
    values = np.random.default_rng(1).permutation(9_000)
    rows = pa.table({"c0": [f"a long prefix {n}" for n in values.tolist()]})
    work = spill.consolidated([pa.concat_tables([rows, rows.slice(0, 100)])], tmp_path)
    first = next(piece for piece in work if piece is not None)
    assert first.num_rows
    assert not list(tmp_path.iterdir())
    expected = {f"a long prefix {n}": 1 for n in values.tolist()} | dict.fromkeys(rows["c0"].to_pylist()[:100], 2)
    rest = [piece for piece in work if piece is not None]
    assert {row[0]: diff for row, diff in pairs(pa.concat_tables([first, *rest]))} == expected
    assert first.num_rows + sum(piece.num_rows for piece in rest) == len(expected)


@each_type
@few
@given(data=st.data())
def test_equal_rows_have_equal_hashes(type: pa.DataType, data: st.DataObject) -> None:
    """`tests/catalog/test_hashing.py` tests that other rows have other hashes."""
    table = data.draw(rows_tables((type,)))
    again = pa.concat_tables([table.slice(table.num_rows // 2), table.slice(0, table.num_rows // 2)])
    hashes = np.concatenate([spill.hashes_of(table), spill.hashes_of(again)])
    both = pa.concat_tables([table, again])
    assert len(set(hashes.tolist())) <= len(pairs(u.consolidate(u.with_diff(both, 1))))


def test_rows_are_distributed_evenly() -> None:
    count = 64_000
    rows = pa.table({"c0": np.arange(count), "c1": [f"{'same' * 9}{n}" for n in range(count)]})
    shares = np.bincount(spill.hashes_of(rows) >> np.uint64(58), minlength=64)
    assert abs(shares - count / 64).max() < 200, shares


def test_hashes_of_long_values_depend_on_their_ends() -> None:
    values = ["a" * 5_000, "a" * 4_999 + "b", "b" + "a" * 4_999, "a" * 5_001, "", None]
    assert len(set(spill.hashes_of(pa.table({"c0": values})).tolist())) == len(values)


def test_many_copies_of_a_row_take_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    consolidate = u.consolidate

    def measured(table: pa.Table) -> pa.Table:
        nonlocal largest
        largest = max(largest, table.num_rows)
        return consolidate(table)

    monkeypatch.setattr(u, "consolidate", measured)
    monkeypatch.setattr(spill, "SLICE_BYTES", 100_000)
    rows = pa.table({"c0": np.zeros(1_000_000, np.int64)})
    monkeypatch.setattr(spill, "MEMORY_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(spill, "PARTITION_BYTES", 100_000)
    found = [piece for piece in outside([rows], tmp_path) if piece.num_rows]
    assert [pairs(piece) for piece in found] == [[((0,), 1_000_000)]]
    assert largest < 20_000


@pytest.mark.usefixtures("small")
def test_an_abandoned_consolidation_leaves_no_file(tmp_path: Path) -> None:
    rows = pa.table({"c0": np.arange(1_000)})
    work = spill.partitioned([rows], tmp_path)
    assert next(work) is None
    assert list(tmp_path.iterdir())
    work.close()
    assert not list(tmp_path.iterdir())


def test_rows_that_fit_into_memory_are_not_written_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("a file")

    monkeypatch.setattr(spill, "Partitions", refused)
    rows = pa.table({"c0": [1, 1]})
    (piece,) = spill.consolidated([rows], tmp_path)
    assert piece is not None
    assert pairs(piece) == [((1,), 2)]


@pytest.mark.parametrize("going", [1, 40])
def test_changes_are_applied_part_by_part(going: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES_MAX", 2_000)
    monkeypatch.setattr(spill, "SLICE_BYTES", 1_000)
    old = pa.table({"c0": pa.array(np.arange(1_000) % 700), "c1": pa.array([str(n % 350) for n in range(1_000)])})
    changes = pa.concat_tables([u.with_diff(old.slice(100, going), -1), u.with_diff(old.slice(7, 2), 1)])
    found = spill.applied(old, changes, tmp_path)
    assert Counter(plain(found)) == Counter(plain(u.apply(old, changes)))
    assert not list(tmp_path.iterdir()), "a file has a name"
    with pytest.raises(u.NegativeCount):
        spill.applied(old, u.with_diff(old.slice(0, 1), -3), tmp_path)


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3)))
def test_distinct_returns_the_number_of_distinct_values(values: list[int]) -> None:
    assert spill.distinct(np.array(values, np.uint64)) == len(set(values))


@pytest.mark.usefixtures("small")
def test_temporary_files_leave_space_for_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are refused as long as less than a tenth of the filesystem, at most a gigabyte, is free."""
    free = 0

    def statvfs(_: object) -> SimpleNamespace:
        return SimpleNamespace(f_blocks=1000, f_frsize=1 << 24, f_bavail=free)

    table = pa.table({"a": range(1000)})
    monkeypatch.setattr(os, "statvfs", statvfs)
    free = 63
    for work in (
        lambda: spill.collected(iter([table, table]), tmp_path),
        lambda: list(spill.partitioned([table], tmp_path)),
    ):
        with pytest.raises(OSError, match="No space left on device") as caught:
            work()
        assert caught.value.errno == errno.ENOSPC
    free = 64
    assert spill.collected(iter([table, table]), tmp_path).num_rows == 2000
    assert not list(tmp_path.iterdir()), "a file has a name"
