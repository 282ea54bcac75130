"""Snapshots that do not fit into memory: computed in parts, in the envelope's order, as fast as they are read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from catalog import spill, updates
from catalog.ids import Timestamp
from protocol.pgwire.errors import PgError
from protocol.pgwire.types import FLOAT8, INT4, TEXT
from server.dataflow.stream import snapshot_stream as snapshot_streams
from server.dataflow.stream.consolidation import consolidated, ordered
from server.dataflow.stream.envelope import DiffEnvelope, Envelope, KeyedEnvelope
from server.dataflow.stream.feed import Entry, Feed
from server.dataflow.stream.order import SortColumns, SortKey
from server.dataflow.stream.snapshot_stream import SnapshotStream
from server.dataflow.stream.subscription import Bounds, Progress, Subscription
from server.sql.plan import Field
from tests.examples import examples
from tests.polling import HANG_S

RELATION = (Field("k", INT4, True), Field("v", TEXT, True), Field("w", FLOAT8, False))
few = examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])

rows = st.tuples(
    st.one_of(st.none(), st.integers(0, 9)),
    st.one_of(st.none(), st.sampled_from(["", "a", "b"])),
    st.sampled_from([0.0, 1.5, float("nan")]),
)
updates_of_a_time = st.lists(st.tuples(rows, st.sampled_from([1, 1, 1, -1, 2])), max_size=60)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing fits into memory, and a partition has only a few rows."""
    monkeypatch.setattr(spill, "MEMORY_BYTES_MAX", 0)
    monkeypatch.setattr(spill, "PARTITION_BYTES", 200)
    monkeypatch.setattr(spill, "SLICE_BYTES", 300)
    return


def table_of(given: list[tuple[Any, int]]) -> pa.Table:
    columns = [pa.array([row[i] for row, _ in given], f.type.arrow) for i, f in enumerate(RELATION)]
    table = pa.table(columns, schema=updates.rows_schema([f.type.arrow for f in RELATION]))
    return table.append_column(updates.DIFF_FIELD, pa.array([diff for _, diff in given], pa.int64()))


async def shown(envelope: Envelope, pieces: AsyncGenerator[pa.Table]) -> list[str]:
    """Returns each output row as text, in which NaN equals NaN."""
    found = []
    async with aclosing(pieces) as all_pieces:
        async for piece in all_pieces:
            table = await envelope.rows(Entry(Timestamp(7), piece))
            found += [str(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    return found


async def at_once(changes: pa.Table) -> AsyncGenerator[pa.Table]:
    yield updates.consolidate(changes)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("keys", [(0,), (1, 0), (2, 1, 0)])
@few
@given(given_updates=updates_of_a_time)
def test_envelopes_of_parts_equal_the_envelope_of_all_rows(
    keys: tuple[int, ...], given_updates: list[Any], tmp_path: Path
) -> None:
    envelope = KeyedEnvelope(RELATION, keys, before=True, progress=False)
    changes = table_of(given_updates)
    expected = asyncio.run(shown(envelope, at_once(changes)))
    assert asyncio.run(shown(envelope, ordered([changes], tmp_path, envelope))) == expected


@pytest.mark.usefixtures("small")
@few
@given(given_updates=updates_of_a_time)
def test_without_an_order_each_row_is_returned_once(given_updates: list[Any], tmp_path: Path) -> None:
    envelope = DiffEnvelope(RELATION, progress=False)
    changes = table_of(given_updates)
    expected = asyncio.run(shown(envelope, at_once(changes)))
    assert Counter(asyncio.run(shown(envelope, ordered([changes], tmp_path, envelope)))) == Counter(expected)


class BySum(DiffEnvelope):
    """An order by a computed key and a column, with many ties."""

    def __init__(self, *, needs_all_rows: bool) -> None:
        super().__init__(RELATION, progress=False)
        self._needs_all_rows = needs_all_rows

    @property
    def sorts(self) -> bool:
        return True

    @property
    def needs_all_rows(self) -> bool:
        return self._needs_all_rows

    async def sort_columns(self, changes: pa.Table) -> tuple[pa.Table, SortColumns]:
        parity = pa.chunked_array([pa.array(changes[updates.DIFF].to_numpy() % 2)])
        return changes, [(parity, SortKey(descending=True)), (changes["c0"], SortKey(nulls_first=True))]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("needs_all_rows", [False, True])
@few
@given(given_updates=updates_of_a_time)
def test_parts_are_in_order(needs_all_rows: bool, given_updates: list[Any], tmp_path: Path) -> None:
    async def run() -> None:
        last: tuple[int, int] | None = None
        count = 0
        async with aclosing(
            ordered([table_of(given_updates)], tmp_path, BySum(needs_all_rows=needs_all_rows))
        ) as pieces:
            async for piece in pieces:
                count += 1
                keys = [
                    (-(diff % 2), -1 if k is None else k)
                    for diff, k in zip(piece[updates.DIFF].to_pylist(), piece["c0"].to_pylist(), strict=True)
                ]
                assert last is None or last < min(keys)
                last = max(keys)
        assert count <= 1 or not needs_all_rows

    asyncio.run(run())


@pytest.mark.usefixtures("small")
def test_a_cancelled_consolidation_leaves_no_file(tmp_path: Path) -> None:
    async def run() -> None:
        tables = [pa.table({"c0": np.arange(5_000)})]
        async with aclosing(consolidated(tables, tmp_path, sampled=True)) as pieces:
            await anext(pieces)
        work = asyncio.create_task(anext(consolidated(tables, tmp_path, sampled=True)))
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(run())
    deadline = monotonic() + 30  # a step that runs in a thread is not interrupted
    while list(tmp_path.iterdir()):
        assert monotonic() < deadline
        sleep(0.01)


def subscription(
    feed: Feed, entries: AsyncGenerator[Entry], released: list[str] | None = None, limit: int = 1 << 30
) -> Subscription:
    snapshot_stream = SnapshotStream(entries, lambda: (released if released is not None else []).append("released"))
    snapshot_stream.start()
    bounds = Bounds(None, snapshot=True, progress=True)
    return Subscription(feed, feed.join(), snapshot_stream, Timestamp(5), bounds, limit)


def changes(first: int, rows: int = 1_000) -> pa.Table:
    return updates.with_diff(pa.table({"c0": np.arange(first, first + rows)}), 1)


async def test_a_cancelled_snapshot_is_an_error_and_not_empty() -> None:
    released: list[str] = []

    async def entries() -> AsyncGenerator[Entry]:
        yield Entry(Timestamp(5), changes(0), shared=False)

    snapshot_stream = SnapshotStream(entries(), lambda: released.append("released"))
    snapshot_stream.start()
    assert snapshot_stream._task is not None
    snapshot_stream._task.cancel()  # before its first step
    with pytest.raises(PgError, match="the subscription was closed"):
        await snapshot_stream.started()
    assert not snapshot_stream.finished
    assert released


def test_a_snapshot_is_computed_as_it_is_read_and_changes_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_streams, "AHEAD_BYTES", 40_000)
    made = 0

    async def entries() -> AsyncGenerator[Entry]:
        nonlocal made
        for number in range(20):
            made += 1
            yield Entry(Timestamp(5), changes(number * 1_000), shared=False)

    async def run() -> None:
        feed, released = Feed(Timestamp(6), tmp_path), list[str]()
        stream = subscription(feed, entries(), released)
        found: list[int] = []
        taken = 0
        assert await stream.next() == [Progress(5)]
        for time in range(6, 16):  # commits while the snapshot is read
            feed.append(Timestamp(time), changes(time * 1_000 + 20_000))
            feed.advance(Timestamp(time + 1))
        while not stream.is_live:
            messages = await stream.next()
            assert messages
            for message in messages:
                if isinstance(message, Entry):
                    found += message.changes["c0"].to_pylist()
                    taken += 1
            assert made <= taken + 4
        assert found == [*range(20_000), *range(26_000, 36_000)]
        assert messages[-1] == Progress(16)
        assert released == ["released"]
        stream.close()

    asyncio.run(run())


def test_entries_that_wait_during_the_snapshot_do_not_count(tmp_path: Path) -> None:
    async def entries() -> AsyncGenerator[Entry]:
        yield Entry(Timestamp(5), changes(0), shared=False)

    async def run() -> None:
        feed = Feed(Timestamp(6), tmp_path)
        stream = subscription(feed, entries(), limit=20_000)
        errors: list[Any] = []
        stream.interrupt = errors.append
        for time in range(6, 26):
            feed.append(Timestamp(time), changes(0))
            feed.advance(Timestamp(time + 1))
        count = 0
        while count < 5:
            count += sum(isinstance(message, Entry) for message in await stream.next(16_000))
        feed.append(Timestamp(26), changes(0))
        assert not errors
        feed.append(Timestamp(27), changes(0, 2_000))
        assert len(errors) == 1
        assert "No progress" in errors[0].hint or "last progress" in errors[0].hint
        stream.close()

    asyncio.run(run())


def test_the_error_of_a_snapshot_follows_its_rows(tmp_path: Path) -> None:
    async def entries() -> AsyncGenerator[Entry]:
        yield Entry(Timestamp(5), changes(0), shared=False)
        raise OSError(28, "No space left on device")

    async def run() -> None:
        feed, released = Feed(Timestamp(6), tmp_path), list[str]()
        stream = subscription(feed, entries(), released)
        count = 0
        with pytest.raises(PgError, match="could not write: no space left"):
            while True:
                count += sum(isinstance(message, Entry) for message in await stream.next())
        assert count == 1
        assert released
        stream.close()
        assert not feed._readers

    asyncio.run(run())


def test_closing_a_subscription_stops_its_snapshot(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def entries() -> AsyncGenerator[Entry]:
        try:
            while True:
                yield Entry(Timestamp(5), changes(0, 1_000_000), shared=False)
        finally:
            ended.set()

    async def run() -> None:
        feed, released = Feed(Timestamp(6), tmp_path), list[str]()
        stream = subscription(feed, entries(), released)
        while not any(isinstance(message, Entry) for message in await stream.next()):
            pass
        stream.close()
        assert released
        async with asyncio.timeout(HANG_S):
            await ended.wait()

    asyncio.run(run())
    deadline = monotonic() + 30  # a step that runs in a thread is not interrupted
    while list(tmp_path.iterdir()):
        assert monotonic() < deadline
        sleep(0.01)
