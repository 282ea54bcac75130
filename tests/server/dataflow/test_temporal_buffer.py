"""The temporal buffer returns changes at their times, as a plain list does, and does not keep changes that cancel."""

from __future__ import annotations

import asyncio
from collections import Counter
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from server.dataflow.operators.temporal_buffer import TemporalBuffer
from server.dataflow.stream import accumulated as accumulated_module
from server.dataflow.stream.accumulated import Accumulated
from server.runtime import threads

SCHEMA = pa.schema([pa.field("c0", pa.int32()), updates.DIFF_FIELD])
change = st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(0, 20))


def table(rows: list[tuple[int, int, int]]) -> pa.Table:
    return pa.table({"c0": [r for r, _, _ in rows], "diff": [d for _, d, _ in rows]}, schema=SCHEMA)


def counted(changes: pa.Table) -> Counter[int]:
    total: Counter[int] = Counter()
    for row in changes.to_pylist():
        total[row["c0"]] += row["diff"]
    return Counter({row: count for row, count in total.items() if count})


@given(st.lists(st.lists(change, max_size=6), max_size=8))
def test_each_change_is_returned_at_its_time(steps: list[list[tuple[int, int, int]]]) -> None:
    buffer, plain = TemporalBuffer(SCHEMA), []
    for now, step in enumerate(steps):
        later = [(row, diff, now + 1 + wait) for row, diff, wait in step]
        buffer.insert(table(later), np.array([time for *_, time in later], np.int64))
        plain += later
        due = buffer.due(now)
        expected = [c for c in plain if c[2] <= now]
        assert counted(due) == counted(table(expected))
        buffer.drop(now)
        plain = [c for c in plain if c[2] > now]
        net = Counter[tuple[int, int]]()
        for row, diff, time in plain:
            net[row, time] += diff
        first = min((time for (_, time), diff in net.items() if diff), default=None)
        assert first is None or (buffer.next_time is not None and buffer.next_time <= first)
        assert buffer.rows <= len(plain)


def test_changes_that_cancel_are_not_kept() -> None:
    buffer = TemporalBuffer(SCHEMA)
    for diff in (1, -1) * 100:
        buffer.insert(table([(1, diff, 5)]), np.array([5]))
    assert buffer.rows <= 1


@pytest.mark.parametrize("thread_rows", [0, 8_192])
@given(steps=st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.integers(0, 4)), max_size=30))
def test_accumulated_changes_equal_a_counter(thread_rows: int, steps: list[tuple[list[int], int]]) -> None:
    """Rows are also read, and changes added, while changes are applied in a thread."""
    start = pa.table({"c0": [1, 2, 2]}, schema=pa.schema([("c0", pa.int32())]))

    async def accumulate() -> None:
        accumulated, plain = Accumulated(start), Counter([1, 2, 2])
        tasks = []
        for number, (step, action) in enumerate(steps):
            diff = -1 if number % 2 and all(plain[row] for row in step) and len(set(step)) == len(step) else 1
            accumulated.add(updates.consolidate(table([(row, diff, 0) for row in step])))
            for row in step:
                plain[row] += diff
            match action:
                case 0:
                    assert Counter(accumulated.rows["c0"].to_pylist()) == +plain
                case 1:
                    await accumulated.fold()
                    assert accumulated._buffered <= max(accumulated_module.FOLD_ROWS, accumulated._rows.num_rows)
                case 2:
                    assert Counter((await accumulated.current())["c0"].to_pylist()) == +plain
                case 3:
                    tasks.append(asyncio.create_task(accumulated.current()))
                    await asyncio.sleep(0)
        for task in tasks:
            await task
        assert accumulated._buffered == sum(changes.num_rows for changes in accumulated._changes)
        assert Counter(accumulated.rows["c0"].to_pylist()) == +plain

    with mock.patch.object(threads, "THREAD_ROWS", thread_rows), mock.patch.object(accumulated_module, "FOLD_ROWS", 2):
        asyncio.run(accumulate())
