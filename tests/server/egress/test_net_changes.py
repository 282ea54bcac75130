"""Net changes, compared with a row-by-row equivalent."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from protocol.cdcv2.messages import TIME
from server.egress.net_changes import NONE, KeyViolation, check_unique, net_changes, paired

Row = tuple[int | None, int | None, int | None]
values = st.one_of(st.none(), st.integers(0, 2))
rows = st.tuples(values, values, values)
changes = st.lists(st.tuples(rows, st.sampled_from((-2, -1, -1, 1, 1, 2))), max_size=60)


def table(changed: list[tuple[Row, int]]) -> pa.Table:
    columns = [pa.array([row[i] for row, _ in changed], pa.int64()) for i in range(3)]
    return pa.table([*columns, pa.array([diff for _, diff in changed], pa.int64())], ["c0", "c1", "c2", updates.DIFF])


def tuples(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def summed(changed: list[tuple[Row, int]]) -> dict[Row, int]:
    sums: Counter[Row] = Counter()
    for row, diff in changed:
        sums[row] += diff
    return {row: diff for row, diff in sums.items() if diff}


@given(changes)
def test_without_a_key(changed: list[tuple[Row, int]]) -> None:
    net = net_changes(table(changed), None)
    sums = summed(changed)
    assert Counter(tuples(net.inserted)) == Counter({row: diff for row, diff in sums.items() if diff > 0})
    assert sorted(tuples(net.staged), key=repr) == sorted(
        [(*row, -diff) for row, diff in sums.items() if diff < 0], key=repr
    )
    assert (net.deleted, net.updated) == (-sum(diff for diff in sums.values() if diff < 0), 0)


@given(changes)
def test_with_a_key(changed: list[tuple[Row, int]]) -> None:
    """The key is (c2, c0)."""
    sums = summed(changed)
    old: dict[tuple[object, ...], list[Row]] = {}
    new: dict[tuple[object, ...], list[Row]] = {}
    for row, diff in sums.items():
        (old if diff < 0 else new).setdefault((row[2], row[0]), []).extend([row] * abs(diff))
    is_violated = any(len(found) > 1 or None in key for among in (old, new) for key, found in among.items())
    try:
        net = net_changes(table(changed), (2, 0))
    except KeyViolation as violation:
        assert is_violated
        (key,) = tuples(violation.row)
        assert None in key or max(len(among.get(key, ())) for among in (old, new)) > 1
        return
    assert not is_violated
    staged = [(*row, *((new[key][0][1], True) if key in new else (None, False))) for key, (row,) in old.items()]
    assert sorted(tuples(net.staged), key=repr) == sorted(staged, key=repr)
    assert net.updated == len(old.keys() & new.keys())
    assert net.deleted == len(old) - net.updated
    inserted = [row for key, (row,) in new.items() if key not in old]
    assert sorted(tuples(net.inserted), key=repr) == sorted(inserted, key=repr)


OTHERS = [(number + 10, 0, 0) for number in range(updates.HASHED_ROWS_MIN)]
timed = st.lists(st.tuples(rows, st.integers(1, 3), st.sampled_from((-2, -1, -1, 1, 1, 2))), max_size=40)


def timed_table(changed: list[tuple[Row, int, int]]) -> pa.Table:
    """Changes as a downstream gets them: times ascend, and the changes of each are consolidated."""
    found = []
    for time in sorted({time for _, time, _ in changed}):
        sums = summed([(row, diff) for row, at, diff in changed if at == time])
        found += [(row, time, diff) for row, diff in sums.items()]
    columns = [pa.array([row[i] for row, _, _ in found], pa.int64()) for i in range(3)]
    columns += [pa.array([each[i] for each in found], pa.int64()) for i in (1, 2)]
    return pa.table(columns, ["c0", "c1", "c2", TIME, updates.DIFF])


def groups_of(changes: pa.Table, key: tuple[int, ...] | None) -> dict[Any, tuple[list[Row], list[Row]]]:
    """The old and new rows of each time and key. Without a key, of each row."""
    found: dict[Any, tuple[list[Row], list[Row]]] = {}
    for number, (*row, time, diff) in enumerate(tuples(changes)):
        group = found.setdefault((time, number if key is None else tuple(row[i] for i in key)), ([], []))
        group[diff > 0].extend([tuple(row)] * abs(diff))  # type: ignore[list-item, call-overload]
    return found


@given(timed, st.sampled_from([None, (0,), (2, 0)]))
def test_pairs_of_old_and_new_rows(changed: list[tuple[Row, int, int]], key: tuple[int, ...] | None) -> None:
    table = timed_table(changed)
    every = tuples(table.select([0, 1, 2]))
    pairs = paired(table, key, is_unique=False)
    found = [
        tuple(None if number == NONE else every[number] for number in pair)
        for pair in zip(pairs.before.tolist(), pairs.after.tolist(), strict=True)
    ]
    expected, latest = [], []
    for old, new in groups_of(table, key).values():
        of_group = list(zip_longest(old, new))
        expected += of_group
        latest.append(of_group[len(new) - 1] if new else of_group[0])
    assert found == expected
    last = pairs.latest()
    assert [None if n == NONE else every[n] for n in last.after.tolist()] == [new for _, new in latest]
    assert [None if n == NONE else every[n] for n in last.before.tolist()] == [old for old, _ in latest]


@given(timed)
def test_keys_that_are_not_unique_at_a_time(changed: list[tuple[Row, int, int]]) -> None:
    table, key = timed_table(changed), (2, 0)
    violated = {k[1] for k, (old, new) in groups_of(table, key).items() if max(len(old), len(new)) > 1}
    try:
        paired(table, key, is_unique=True)
    except KeyViolation as violation:
        (values,) = tuples(violation.row)
        assert values in violated
        return
    assert not violated


@given(st.lists(rows, max_size=60), st.sampled_from([0, updates.HASHED_ROWS_MIN]))
def test_keys_of_rows_that_are_not_unique(found: list[Row], others: int) -> None:
    """`others`: rows with distinct keys, so that rows are compared by hash first."""
    every = [*found, *OTHERS[:others]]
    table = pa.table([pa.array([row[i] for row in every], pa.int64()) for i in range(3)], ["c0", "c1", "c2"])
    counts = Counter((row[2], row[0]) for row in every)
    try:
        check_unique(table, (2, 0))
    except KeyViolation as violation:
        (values,) = tuples(violation.row)
        assert counts[values] > 1  # type: ignore[index]
        return
    assert max(counts.values(), default=1) == 1


def test_copies_of_a_row_are_found_before_memory_is_used_for_them() -> None:
    changes = pa.table([[1, 7], [5, 5], [1, 2**40]], ["c0", TIME, updates.DIFF])
    with pytest.raises(KeyViolation) as caught:
        paired(changes, (0,), is_unique=True)
    assert tuples(caught.value.row) == [(7,)]
