"""The rows of touched keys before and in each version: computed in one pass, and version by version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.ids import Timestamp
from catalog.updates import DIFF, DIFF_FIELD
from protocol.columnar import hashing
from server.dataflow.operators import versions
from server.dataflow.operators.operator import VERSION_FIELD, Step
from server.dataflow.operators.versions import (
    Touched,
    replacements,
    rows_by_version,
    signed_differences,
    touched_keys,
)
from server.dataflow.plan.nodes import VERSION, TopK
from tests.examples import examples

VERSIONS = 6
Row = tuple[Any, ...]

ROWS = st.tuples(
    st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "a", "b"]), st.sampled_from([None, 0, 1, 2, 5])
)
SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string()), ("c2", pa.int64())])


@st.composite
def histories(draw: st.DrawFn) -> tuple[Counter[Row], list[Counter[Row]]]:
    """Old rows, and the changes of each version; no multiplicity is ever negative."""
    present = Counter(draw(st.lists(ROWS, max_size=12)))
    old, found = Counter(present), []
    for _ in range(VERSIONS):
        changes = Counter(draw(st.lists(ROWS, max_size=3)))
        for row in draw(st.lists(st.sampled_from(sorted(present.elements(), key=repr)), max_size=3)) if present else []:
            if present[row] + changes[row] > 0:
                changes[row] -= 1
        present.update(changes)
        present = +present
        found.append(Counter({row: count for row, count in changes.items() if count}))
    return old, found


def table(rows: Sequence[tuple[Any, ...]], *more: pa.Field) -> pa.Table:
    schema = pa.schema([*SCHEMA, *more])
    columns = zip(*((*row, *rest) for row, *rest in rows), strict=True) if rows else [[]] * len(schema)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)], schema)


class StepTables(NamedTuple):
    """`before`: the old rows of the touched keys."""

    step: Step
    before: pa.Table
    changed: pa.Table
    touched: Sequence[Touched]


def as_tables(old: Counter[Row], changes: list[Counter[Row]], key: tuple[int, ...]) -> StepTables:
    before = table([(row, count) for row, count in old.items()], DIFF_FIELD)
    changed = table(
        [(row, version, count) for version, own in enumerate(changes, 1) for row, count in own.items()],
        VERSION_FIELD,
        DIFF_FIELD,
    )
    step = Step(Timestamp(1), tuple(Timestamp(time) for time in range(2, 2 + len(changes))))
    touched = touched_keys(step, [key], [changed])
    if key:  # a step looks up the rows of touched keys only
        names = tuple(f"c{position}" for position in key)
        hashes = np.unique(hashing.key_codes(changed, names))
        before = before.filter(pa.array(np.isin(hashing.key_codes(before, names), hashes)))
    return StepTables(step, before, changed, touched)


def found(
    old: Counter[Row], changes: list[Counter[Row]], key: tuple[int, ...], top_k: TopK | None, *, at_once: bool
) -> Counter[Row]:
    step, before, changed, touched = as_tables(old, changes, key)
    if not touched:
        return Counter()
    with mock.patch.object(versions, "PAIRS_PER_VERSION", 1 << 30 if at_once else -1):
        rows = rows_by_version(before, changed, key, touched, step, top_k)
    assert rows.column_names[-2:] == [VERSION, DIFF]
    result: Counter[Row] = Counter()
    for *row, count in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        assert count > 0
        result[tuple(row)] += count
    assert len(result) == rows.num_rows, "not consolidated"
    return result


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize("top_k", [None, TopK(2, True, False, 1), TopK(2, False, True, 2)])
@examples(30)
@given(history=histories(), key=st.sampled_from([(0,), (0, 1), ()]))
def test_one_pass_returns_the_same_as_version_by_version(
    history: tuple[Counter[Row], list[Counter[Row]]], key: tuple[int, ...], top_k: TopK | None, collide: bool
) -> None:
    mask = np.uint64(7 << 61) if collide else np.uint64((1 << 64) - 1)
    real = hashing.key_hashes
    with mock.patch.object(hashing, "key_hashes", lambda rows, names: real(rows, names) & mask):
        one_pass, each = (found(*history, key, top_k, at_once=at_once) for at_once in (True, False))
        every = found(*history, key, None, at_once=False)
        if top_k is None:
            assert one_pass == each
            return
        needed = first(every, key, top_k)
        assert needed <= each <= every
        assert needed <= one_pass <= every
        assert collide or one_pass == needed  # it has further rows of keys that share a hash


@pytest.mark.parametrize("collide", [False, True])
@examples(50)
@given(history=histories(), key=st.sampled_from([(0,), (0, 1)]), count=st.integers(1, VERSIONS))
def test_kept_results_are_replaced_as_recomputed_ones(
    history: tuple[Counter[Row], list[Counter[Row]]], key: tuple[int, ...], count: int, collide: bool
) -> None:
    """The query is the identity, whose results are the rows."""
    mask = np.uint64(7 << 61) if collide else np.uint64((1 << 64) - 1)
    real, (old, changes) = hashing.key_hashes, history
    with mock.patch.object(hashing, "key_hashes", lambda rows, names: real(rows, names) & mask):
        step, before, changed, touched = as_tables(old, changes[:count], key)
        if not changed.num_rows:
            return
        sides, after = (
            updates.expand(rows_by_version(before, changed, key, touched, step, None, with_before=with_before))
            for with_before in (True, False)
        )
        expected = signed_differences(sides, step, changed.schema)
        actual = replacements(after, before, key, touched, step, changed.schema)
    assert counted(actual) == counted(expected)


def counted(changes: pa.Table) -> Counter[Row]:
    """The diff of each row and version."""
    result: Counter[Row] = Counter()
    for row in zip(*(column.to_pylist() for column in changes.columns), strict=True):
        result[row[:-1]] += row[-1]
    return result


def first(rows: Counter[Row], key: tuple[int, ...], top_k: TopK) -> Counter[Row]:
    """The first rows of each key and version, and ties with the last of them."""
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        groups.setdefault((*(row[position] for position in key), row[-1]), []).append(row)

    def rank(row: Row) -> tuple[int, int]:
        value = row[top_k.column]
        if value is None:
            return (-1 if top_k.nulls_first else 1, 0)
        return (0, -value if top_k.descending else value)

    kept: Counter[Row] = Counter()
    for group in groups.values():
        copies = sorted(rank(row) for row in group for _ in range(rows[row]))
        last = copies[: top_k.count][-1]
        kept.update({row: rows[row] for row in group if rank(row) <= last})
    return kept


def test_a_negative_multiplicity_is_an_error() -> None:
    row = (1, "a", 2)
    with pytest.raises(updates.NegativeCount):
        found(Counter(), [Counter({row: -1}), Counter({row: 1}), *[Counter()] * 4], (0,), None, at_once=True)
