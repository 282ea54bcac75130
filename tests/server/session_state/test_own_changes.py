"""The changes of a transaction that are read again: consolidated into few tables, each change a few times."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.ids import ObjectId
from server.session_state.transaction import MERGED_TABLES, Transaction
from server.settings.session_settings import Settings

ID = ObjectId("u1")
CHANGES = 32 * MERGED_TABLES


def change(key: int, diff: int) -> pa.Table:
    return pa.table({"c0": pa.array([key], pa.int64()), updates.DIFF: pa.array([diff], pa.int64())})


def sums(tables: list[pa.Table]) -> dict[int, int]:
    found: dict[int, int] = {}
    for table in tables:
        for row in updates.as_changes(table).to_pylist():
            found[row["c0"]] = found.get(row["c0"], 0) + row[updates.DIFF]
    return {key: diff for key, diff in found.items() if diff}


def test_many_changes_are_few_tables_of_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    consolidated = 0
    consolidate = updates.consolidate

    def counted(table: pa.Table) -> pa.Table:
        nonlocal consolidated
        consolidated += table.num_rows
        return consolidate(table)

    monkeypatch.setattr(updates, "consolidate", counted)
    transaction = Transaction(Settings())
    for key in range(CHANGES):
        transaction.add(ID, [change(key, 1)])
        if transaction.must_merge(ID):
            transaction.keep_merged(ID, transaction.merged(ID))
    tables = transaction.tables_of(ID)
    assert len(tables) <= math.log2(CHANGES / MERGED_TABLES) + 1
    assert max(table.column(0).num_chunks for table in tables) == 1
    assert sums(tables) == dict.fromkeys(range(CHANGES), 1)
    assert consolidated <= CHANGES * (math.log2(CHANGES / MERGED_TABLES) + 1)


CHANGED = st.tuples(st.integers(0, 3), st.sampled_from((-1, 1)))


@given(st.lists(CHANGED, min_size=2 * MERGED_TABLES, max_size=4 * MERGED_TABLES), st.integers(1, MERGED_TABLES))
def test_the_sum_of_changes_is_that_of_all_writes(changes: list[tuple[int, int]], every: int) -> None:
    transaction = Transaction(Settings())
    tables = [change(*each) for each in changes]
    for number, table in enumerate(tables):
        transaction.add(ID, [table])
        if number % every == 0 and transaction.must_merge(ID):
            transaction.keep_merged(ID, transaction.merged(ID))
    assert sums(transaction.tables_of(ID)) == sums(tables)
