"""Partitioned feeds: each selection's feed has exactly the changes that its condition selects."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.ids import Timestamp
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.stream import partitioned_feed
from server.dataflow.stream.feed import Feed, Reader
from server.dataflow.stream.partitioned_feed import Partitions
from server.dataflow.stream.selection import Selection, Shape
from tests.examples import examples
from tests.polling import HANG_S

NUMBERS, TEXTS = (None, 0, 1, 2, -(2**31)), (None, "", "a", "é", "a\0b")
SCHEMA = pa.schema([("c0", pa.int32()), ("c1", pa.string()), ("c2", pa.int64())])
row = st.tuples(st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.integers(0, 2))
history = st.lists(st.dictionaries(row, st.sampled_from((-2, -1, 1, 3)), max_size=12), max_size=6)
selection = st.one_of(
    st.builds(
        lambda value, columns: ((0,), (value,), columns),
        st.sampled_from(NUMBERS[1:]),
        st.sampled_from([(0, 1, 2), (2,), (1, 2), (2, 0, 0)]),
    ),
    st.builds(
        lambda number, text: ((0, 1), (number, text), (2, 1)), st.sampled_from(NUMBERS[1:]), st.sampled_from(TEXTS[1:])
    ),
)


def changes(rows: dict[tuple[Any, ...], int]) -> pa.Table:
    columns = [pa.array([r[i] for r in rows], field.type) for i, field in enumerate(SCHEMA)]
    return pa.table(columns, schema=SCHEMA).append_column(updates.DIFF_FIELD, pa.array([*rows.values()], pa.int64()))


def selected(of: tuple[Any, ...]) -> Selection:
    keys, values, columns = of
    return Selection(
        Shape(keys, columns, 3), tuple(pa.scalar(v, SCHEMA.field(k).type) for k, v in zip(keys, values, strict=True))
    )


def plainly(of: tuple[Any, ...], rows: dict[tuple[Any, ...], int]) -> Counter[tuple[Any, ...]]:
    """Row by row: the multiplicities of the selected rows."""
    keys, values, columns = of
    found: Counter[tuple[Any, ...]] = Counter()
    for one, diff in rows.items():
        if tuple(one[key] for key in keys) == values:
            found[tuple(one[column] for column in columns)] += diff
    return Counter({one: diff for one, diff in found.items() if diff})


def taken(reader: Reader) -> dict[int, Counter[tuple[Any, ...]]]:
    """The changes by time. Checks that each is consolidated, with its retractions first."""
    found = {}
    for entry in reader.take():
        lines = [tuple(line.values()) for line in entry.changes.to_pylist()]
        assert [line[-1] > 0 for line in lines] == sorted(line[-1] > 0 for line in lines)
        assert entry.time not in found
        found[entry.time] = Counter({line[:-1]: line[-1] for line in lines})
        assert len(found[entry.time]) == len(lines)
    return found


async def until(feed: Feed, upper: int) -> None:
    async with asyncio.timeout(HANG_S):
        while feed.upper < upper:
            await feed.moved.wait()


@pytest.mark.parametrize(("recent", "thread_rows"), [(0, 1 << 30), (1 << 30, 1 << 30), (1, 1)])
@examples(60)
@given(history=history, later=history, first=st.lists(selection, min_size=1), second=st.lists(selection))
def test_each_selection_gets_its_changes(
    recent: int,
    thread_rows: int,
    history: list[dict[Any, int]],
    later: list[dict[Any, int]],
    first: list[Any],
    second: list[Any],
) -> None:
    """With and without the index and threads. `second`: selections that join while entries are divided."""

    async def run() -> None:
        source, partitions = Feed(Timestamp(10)), Partitions()
        readers: list[tuple[Any, Reader, Feed, int]] = []

        def join(of: Any) -> None:
            feed = partitions.feed(source, selected(of))
            readers.append((of, feed.join(), feed, feed.upper))

        def commit(steps: list[dict[Any, int]]) -> None:
            for step in steps:
                if step:
                    source.append(source.upper, changes(step))
                    wanted[source.upper] = step
                source.advance(Timestamp(source.upper + 1))

        wanted: dict[int, dict[Any, int]] = {}
        for of in first:
            join(of)
        commit(history)
        await asyncio.sleep(0)
        for of in second:
            join(of)
        commit(later)
        for _, _, feed, _ in readers:
            await until(feed, source.upper)
        for of, reader, _, begun in readers:
            expected = {time: found for time, step in wanted.items() if time >= begun and (found := plainly(of, step))}
            assert taken(reader) == expected
        for _, reader, _, _ in readers:
            reader.close()
        assert not source._readers
        assert not partitions._known

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitioned_feed, "RECENT_MAX", recent)
        patch.setattr(partitioned_feed, "THREAD_ROWS", thread_rows)
        asyncio.run(run())


VALUES = [
    (pa.int16(), [1, 2]),
    (pa.int64(), [2**40, -1]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [datetime.date(2024, 2, 29), datetime.date(1, 1, 1)]),
    (pa.timestamp("us"), [datetime.datetime(2024, 2, 29, 1, 2, 3, 4), datetime.datetime(1, 1, 1)]),
    (pa.binary(16), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**100).bytes]),
    (pa.string(), ["x" * 1_000, "x" * 1_000 + "y"]),
]


@pytest.mark.parametrize(("type", "values"), VALUES)
def test_values_of_each_type_are_found(type: pa.DataType, values: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned_feed, "RECENT_MAX", -1)

    async def run() -> None:
        source, partitions = Feed(Timestamp(10)), Partitions()
        shape = Shape((0,), (0, 1), 2)
        feeds = [partitions.feed(source, Selection(shape, (pa.scalar(value, type),))) for value in values]
        readers = [feed.join() for feed in feeds]
        rows = pa.table([pa.array([*values, None, values[0]], type), pa.array(np.arange(4))], names=["c0", "c1"])
        source.append(Timestamp(10), updates.with_diff(rows, 1))
        source.advance(Timestamp(11))
        await until(feeds[0], 11)
        assert [[entry.changes["c1"].to_pylist() for entry in reader.take()] for reader in readers] == [[[0, 3]], [[1]]]
        for reader in readers:
            reader.close()

    asyncio.run(run())


def test_keys_with_the_same_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned_feed, "RECENT_MAX", 0)
    monkeypatch.setattr(partitioned_feed, "key_hashes", lambda table, _: np.full(table.num_rows, np.uint64(7)))

    async def run() -> None:
        source, partitions = Feed(Timestamp(10)), Partitions()
        feeds = [partitions.feed(source, selected(((0,), (value,), (2,)))) for value in (0, 1)]
        readers = [feed.join() for feed in feeds]
        source.append(Timestamp(10), changes({(0, "a", 5): 1, (1, "a", 6): 1, (2, "a", 7): 1}))
        source.advance(Timestamp(11))
        await until(feeds[0], 11)
        assert [taken(reader) for reader in readers] == [{10: Counter({(5,): 1})}, {10: Counter({(6,): 1})}]
        for reader in readers:
            reader.close()

    asyncio.run(run())


def test_the_failure_of_the_relation_follows_its_last_changes(tmp_path: Path) -> None:
    async def run() -> None:
        source, partitions = Feed(Timestamp(10), tmp_path), Partitions()
        feed = partitions.feed(source, selected(((0,), (1,), (2,))))
        reader = feed.join()
        source.append(Timestamp(10), changes({(1, "a", 5): 1}))
        source.advance(Timestamp(11))
        source.fail(PgError(SqlState.UNDEFINED_OBJECT, "relation 't' was dropped"))
        async with asyncio.timeout(HANG_S):
            while feed.failure is None:
                await feed.moved.wait()
        assert taken(reader) == {10: Counter({(5,): 1})}
        assert feed.failure.message == "relation 't' was dropped"
        reader.close()
        assert not source._readers

    asyncio.run(run())


def test_after_an_error_new_subscribers_get_new_feeds() -> None:
    async def run() -> None:
        source, partitions = Feed(Timestamp(10)), Partitions()
        broken = partitions.feed(source, selected(((0,), (1,), (2,))))
        reader = broken.join()
        source.append(Timestamp(10), changes({(1, "a", 5): 1}).drop_columns(["c0"]))  # not of this relation
        source.advance(Timestamp(11))
        async with asyncio.timeout(HANG_S):
            while broken.failure is None:
                await broken.moved.wait()
        again = partitions.feed(source, selected(((0,), (1,), (2,))))
        other = again.join()
        reader.close()
        source.append(Timestamp(11), changes({(1, "a", 6): 1}))
        source.advance(Timestamp(12))
        await until(again, 12)
        assert taken(other) == {11: Counter({(6,): 1})}
        other.close()
        assert not source._readers
        assert not partitions._known

    asyncio.run(run())
