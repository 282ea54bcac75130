"""Net changes beside a row-by-row equivalent."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from server.egress.postgres.net_changes import KeyViolation, net_changes

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
