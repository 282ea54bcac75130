"""Payloads of altered tables, compared with a plain model of a table."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import log as module
from catalog import merge_runs
from catalog import updates as u
from catalog.batches import Batch, Payload
from catalog.ids import ObjectId, Timestamp
from catalog.layout import Altered, Layout, Numbering, decoded, encoded
from catalog.log import Frontiers, Log
from catalog.payloads import Payloads
from catalog.store import Store
from tests.catalog.strategies import plain
from tests.examples import examples

T = ObjectId("u1")
VALUES = st.one_of(st.none(), st.integers(0, 2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.lists(VALUES, min_size=4, max_size=4)),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("add"), VALUES),
        st.tuples(st.just("drop"), st.integers(0, 9)),
        st.tuples(st.just("merge"), st.booleans()),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=14,
)


class Table:
    """A table of integers in a log, and the rows that it should have."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.numbering = Numbering.initial(1)
        self.rows: list[list[Any]] = []
        self.now = 1
        self.open()
        self.store.transact(lambda tx: self.log.create(tx, T, Frontiers(Timestamp(0), None)))

    def open(self) -> None:
        self.store = Store(self.directory)
        self.log = Log(self.store, Payloads(self.directory / "payloads"), None, str, lambda _: self.layout)

    @property
    def width(self) -> int:
        return len(self.numbering.numbers)

    @property
    def layout(self) -> Layout:
        return Layout(u.rows_schema([pa.int64()] * self.width), self.numbering)

    def write(self, row: list[Any], diff: int) -> None:
        self.now += 1
        rows = pa.table([pa.array([value], pa.int64()) for value in row], schema=self.layout.schema)
        payload = self.log.prepare(rows if diff == 1 else u.with_diff(rows, diff), self.layout)

        def act(tx: sqlite3.Connection) -> tuple[Batch, Payload]:
            return self.log.insert(tx, T, Timestamp(self.now), payload), payload

        self.log.committed([self.store.transact(act)])

    def do(self, step: str, value: Any) -> None:
        match step:
            case "insert":
                self.rows.append((value * 4)[: self.width])
                self.write(self.rows[-1], 1)
            case "delete" if self.rows:
                self.write(self.rows.pop(value % len(self.rows)), -1)
            case "add" if self.width < 6:
                self.numbering = Numbering.restored(self.numbering.added(pa.scalar(value, pa.int64())).stored())
                self.rows = [[*row, value] for row in self.rows]
            case "drop" if self.width > 1:
                at = value % self.width
                self.numbering = self.numbering.dropped(at)
                self.rows = [row[:at] + row[at + 1 :] for row in self.rows]
            case "merge":
                self.merge(value)
            case "reopen":
                self.store.close()
                self.open()

    def merge(self, history: bool) -> None:
        run = self.log.mergeable_history(T, 0, self.now + 1) if history else self.log.mergeable(T, self.now)
        if not run:
            return
        merged = self.log.merge_history(run) if history else self.log.merge(run)
        since = 0 if history else self.now
        batch = self.store.transact(lambda tx: self.log.replace(tx, run, merged, since))
        assert batch is not None
        self.log.replaced(run, batch, merged)


@examples(80)
@given(steps=STEPS, inline=st.sampled_from((1, 64 * 1024)))
def test_rows_have_the_columns_of_the_table(steps: list[tuple[str, Any]], inline: int, tmp_path_factory: Any) -> None:
    merges = mock.patch.multiple(merge_runs, MERGE_BATCHES=2, MERGE_ROWS=2)
    with mock.patch.multiple(module, INLINE_BYTES=inline, BATCH_ROWS=2), merges:
        table = Table(tmp_path_factory.mktemp("log"))
        for step, value in steps:
            table.do(step, value)
            found = table.log.rows(T, table.now, table.layout.schema, table.layout)
            assert found.schema == table.layout.schema
            assert Counter(plain(found)) == Counter(map(tuple, table.rows))
        table.store.close()


def test_a_reader_with_a_dropped_column_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.do("add", 7)
    before = table.layout
    table.do("drop", 0)
    table.do("insert", [1, 2])
    with pytest.raises(Altered):
        table.log.rows(T, table.now, before.schema, before)
    with pytest.raises(Altered):
        table.log.rows(T, table.now, u.rows_schema([pa.int64()]))
    table.store.close()


@pytest.mark.parametrize("value", [pa.scalar(None, pa.list_(pa.string())), pa.scalar(["a", None]), pa.scalar(1.5)])
def test_values_are_restored(value: pa.Scalar) -> None:
    assert decoded(encoded(value)).equals(value)
    assert decoded(encoded(value)).type == value.type


def test_the_long_values_of_added_columns_are_limited() -> None:
    """Short values and NULL are accepted always: a table has a limited number of columns."""
    text, number, null = pa.scalar("x" * 1_000), pa.scalar(10**12), pa.scalar(None, pa.list_(pa.string()))
    numbering, accepted = Numbering.initial(1), 0
    assert not numbering.accepts(pa.scalar("x" * 100_000))
    while numbering.accepts(text):
        numbering, accepted = numbering.added(text), accepted + 1
    assert 10 < accepted < 25
    for _ in range(500):
        assert numbering.accepts(number)
        assert numbering.accepts(null)
        numbering = numbering.added(number)
    assert not numbering.accepts(text)
    assert numbering.dropped(1).accepts(text)
