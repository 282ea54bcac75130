"""The outputs of SUBSCRIBE compared with simple row-by-row ones: envelopes, order, progress."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.ids import Timestamp
from protocol.pgwire.types import BOOL, FLOAT8, INT4, INTERVAL, TEXT, PgType, array_of
from server.dataflow.stream.envelope import DiffEnvelope, Envelope, KeyedEnvelope
from server.dataflow.stream.feed import Entry
from server.dataflow.stream.order import THREAD_ROWS, SortKey, codes, sorted_rows
from server.dataflow.stream.subscription import Progress
from server.sql.plan import Field

RELATION = (Field("k", INT4, True), Field("v", TEXT, True), Field("w", FLOAT8, False))
Row = tuple[Any, ...]

rows = st.tuples(
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.sampled_from(["", "a", "b"])),
    st.sampled_from([0.0, 1.5, float("-inf")]),
)
consolidated = st.dictionaries(rows, st.sampled_from([1, 1, 1, -1, -1, 2, -2]), max_size=8)


def changes_of(batch: dict[Row, int]) -> pa.Table:
    columns = [pa.array([row[i] for row in batch], f.type.arrow) for i, f in enumerate(RELATION)]
    table = pa.table(columns, schema=updates.rows_schema([f.type.arrow for f in RELATION]))
    return table.append_column(updates.DIFF_FIELD, pa.array(list(batch.values()), pa.int64()))


def shown(envelope: Envelope, message: Any) -> list[Row]:
    table = asyncio.run(envelope.rows(message))
    assert table.schema == envelope.schema
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def plain(batch: dict[Row, int], keys: tuple[int, ...], before: bool) -> list[Row]:
    """Returns the rows of a keyed envelope, computed separately for each key."""
    values = [i for i in range(len(RELATION)) if i not in keys]
    groups: dict[Row, list[tuple[Row, int]]] = defaultdict(list)
    for row, diff in batch.items():
        groups[tuple(row[i] for i in keys)].append((tuple(row[i] for i in values), diff))
    nulls = (None,) * len(values)
    out = []
    for key in sorted(groups, key=lambda key: [(part is None, part) for part in key]):
        match sorted(groups[key], key=lambda update: update[1]):
            case [(new, 1)]:
                state, old = ("insert" if before else "upsert"), nulls
            case [(old, -1)]:
                state, new = "delete", nulls
            case [(old, -1), (new, 1)]:
                state = "upsert"
            case _:
                state, old, new = "key_violation", nulls, nulls
        out.append((state, *key, *(old if before else ()), *new))
    return out


@pytest.mark.parametrize("keys", [(0,), (1,), (1, 0), (2, 1, 0)])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("progress", [False, True])
@given(batch=consolidated)
def test_envelopes(keys: tuple[int, ...], before: bool, progress: bool, batch: dict[Row, int]) -> None:
    envelope = KeyedEnvelope(RELATION, keys, before=before, progress=progress)
    head: Row = (7, False) if progress else (7,)
    expected = [(*head, *row) for row in plain(batch, keys, before)]
    assert shown(envelope, Entry(Timestamp(7), changes_of(batch))) == expected


@pytest.mark.parametrize("before", [False, True])
def test_an_envelope_of_many_rows(before: bool) -> None:
    """An envelope of many rows is computed in a thread, with the same result."""
    batch: dict[Row, int] = {(i % 7_000, str(i), 0.0): 1 - 2 * (i % 3 % 2) for i in range(THREAD_ROWS + 1)}
    envelope = KeyedEnvelope(RELATION, (0,), before=before, progress=False)
    expected = [(7, *row) for row in plain(batch, (0,), before)]
    assert {row[1] for row in expected} >= {"upsert", "delete", "key_violation"}
    assert shown(envelope, Entry(Timestamp(7), changes_of(batch))) == expected


def test_columns_of_the_envelopes() -> None:
    keys = (1, 0)
    upsert = KeyedEnvelope(RELATION, keys, before=False, progress=False)
    assert [(f.name, f.nullable) for f in upsert.fields] == [
        ("mz_timestamp", False), ("mz_state", False), ("v", True), ("k", True), ("w", True),
    ]  # fmt: skip
    debezium = KeyedEnvelope(RELATION, keys, before=True, progress=True)
    assert [(f.name, f.nullable) for f in debezium.fields] == [
        ("mz_timestamp", False), ("mz_progressed", False), ("mz_state", True), ("v", True), ("k", True),
        ("before_w", True), ("after_w", True),
    ]  # fmt: skip
    assert shown(debezium, Progress(5)) == [(5, True, None, None, None, None, None)]


def test_negative_zero_is_the_same_key_as_zero() -> None:
    envelope = KeyedEnvelope(RELATION, (2,), before=True, progress=False)
    batch = {(1, "a", 0.0): 1}
    table = pa.concat_tables([changes_of(batch), updates.negate(changes_of({(1, "b", -0.0): 1}))])
    assert shown(envelope, Entry(Timestamp(1), table)) == [(1, "upsert", 0.0, 1, "b", 1, "a")]


@given(batch=consolidated)
def test_default_output_is_the_changes(batch: dict[Row, int]) -> None:
    found = shown(DiffEnvelope(RELATION, progress=False), Entry(Timestamp(3), changes_of(batch)))
    assert Counter(found) == Counter((3, diff, *row) for row, diff in batch.items())


# -- order ----------------------------------------------------------------------------------------------------------

VALUES: dict[str, tuple[PgType, list[Any]]] = {
    "int": (INT4, [None, -5, 0, 7, 7]),
    "text": (TEXT, [None, "", "B", "a", "ä", "a"]),
    "float": (FLOAT8, [None, float("-inf"), -1.5, -0.0, 0.0, float("inf"), float("nan")]),
    "bool": (BOOL, [None, False, True]),
    "interval": (
        INTERVAL,
        [None, pa.MonthDayNano([0, 29, 0]), pa.MonthDayNano([1, 0, 0]), pa.MonthDayNano([0, 31, 0])],
    ),
    "array": (array_of(INT4), [None, [], [1], [1, 2], [1, None], [2]]),
}


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_codes_are_in_the_order_of_the_values(kind: str, data: st.DataObject) -> None:
    """`VALUES` lists each type's values in PostgreSQL's order, NULL first."""
    type, known = VALUES[kind]
    chosen = data.draw(st.lists(st.integers(0, len(known) - 1), max_size=12))
    key = SortKey(data.draw(st.booleans()), data.draw(st.booleans()))
    array = pa.array([known[i] for i in chosen], type.arrow)
    ranks = codes(array, key)

    def rank(number: int) -> int:
        return known.index(known[number]) if known[number] == known[number] else number

    def compare(a: int, b: int) -> int:
        if (a == 0) != (b == 0):
            return -1 if (a == 0) == key.nulls_first else 1
        return (
            (rank(a) > rank(b)) - (rank(a) < rank(b))
            if not key.descending
            else (rank(b) > rank(a)) - (rank(b) < rank(a))
        )

    expected = sorted(range(len(chosen)), key=cmp_to_key(lambda i, j: compare(chosen[i], chosen[j])))
    assert sorted_rows([ranks]).tolist() == expected


def test_rows_sort_by_the_first_column_first() -> None:
    first, second = np.array([1, 0, 1, 0]), np.array([0, 1, -1, 0])
    assert sorted_rows([first, second]).tolist() == [3, 1, 2, 0]
