"""Entries of a feed: spilled to disk while they wait, deleted when all readers have them. Slow readers are dropped."""

from __future__ import annotations

import asyncio
import random
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from catalog import updates
from catalog.ids import Timestamp
from catalog.updates import DIFF
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.stream import feed as feeds
from server.dataflow.stream.collection_feed import CollectionFeed
from server.dataflow.stream.feed import Entry, Feed
from server.dataflow.stream.query_feed import QueryFeed


def changes(rows: int, first: int = 0) -> pa.Table:
    return updates.with_diff(pa.table({"c0": np.arange(first, first + rows)}), 1)


async def settled(feed: Feed) -> None:
    while feed._spilling is not None:
        await feed._spilling


def test_waiting_entries_are_spilled_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MEMORY_BYTES_MAX", 50_000)

    async def run() -> None:
        feed = Feed(Timestamp(0), tmp_path)
        reader = feed.join()
        for time in range(20):
            feed.append(Timestamp(time), changes(1_000 + time))
        await settled(feed)
        assert feed.memory_bytes == sum(entry.bytes for entry in reader.untaken()[-3:])
        assert not list(tmp_path.iterdir())  # noqa: ASYNC240
        for time, entry in enumerate(reader.take()):
            assert entry.time == time
            assert entry.changes.equals(changes(1_000 + time))
        assert feed.memory_bytes == feed.buffered_bytes == 0
        assert not feed._entries

    asyncio.run(run())


@pytest.mark.parametrize("readers", [1, 2])
def test_changes_are_freed_when_all_readers_have_taken_them(readers: int) -> None:
    feed = Feed(Timestamp(0))
    reading = [feed.join() for _ in range(readers)]
    freed: list[int] = []
    for time in range(10):
        feed.append(Timestamp(time), changes(10))
        weakref.finalize(feed._entries[time].changes, freed.append, time)
        for number, reader in enumerate(reading):
            if number == 0 or time % 2:
                reader.take()
    assert sorted(freed) == list(range(10))
    feed.append(Timestamp(10), changes(10))
    weakref.finalize(feed._entries[10].changes, freed.append, 10)
    for reader in reading:
        reader.close()
    assert sorted(freed) == list(range(11))


async def test_a_query_feed_is_released_while_it_writes() -> None:
    """The last reader does not read, and is overrun by the changes."""
    feed = QueryFeed(Timestamp(0))
    feed.abandoned = feed.release
    reader = feed.join()
    await feed.begin(Timestamp(0), changes(10).drop_columns([DIFF]), None)
    reader.bound(100)
    await feed.write([(Timestamp(1), changes(1_000))])
    assert reader.overrun
    assert await feed.rows() is None


def test_a_failing_disk_delays_no_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MEMORY_BYTES_MAX", 10_000)

    async def run() -> None:
        feed = Feed(Timestamp(0), tmp_path / "gone")
        reader = feed.join()
        for time in range(5):
            feed.append(Timestamp(time), changes(1_000))
            await settled(feed)
        assert feed.memory_bytes == feed.buffered_bytes
        (tmp_path / "gone").mkdir()
        feed.append(Timestamp(5), changes(1_000))
        await settled(feed)
        assert feed.memory_bytes < 10_000
        assert [entry.time for entry in reader.take()] == list(range(6))

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(20))
def test_byte_counts_equal_the_sums_of_the_entries(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For random actions of readers, also while entries are being spilled."""
    monkeypatch.setattr(feeds, "MEMORY_BYTES_MAX", 20_000)
    monkeypatch.setattr(feeds, "MOVED_BYTES", 8_000)
    chance = random.Random(seed)

    async def run() -> None:
        feed = Feed(Timestamp(0), tmp_path)
        readers = {feed.join(): 0 for _ in range(3)}
        keeper = feed.join()
        for time in range(300):
            feed.append(Timestamp(time), changes(chance.randrange(1, 500), time))
            reader = chance.choice(list(readers))
            match chance.randrange(4):
                case 0:
                    for entry in reader.take(chance.choice([None, 1, 3_000])):
                        assert entry.time == readers[reader], seed
                        assert entry.changes["c0"][0].as_py() == entry.time, seed
                        readers[reader] += 1
                case 1:
                    keeper.take(count=chance.randrange(10))
                case 2:
                    await asyncio.sleep(0)
                case _ if chance.random() < 0.1:
                    reader.close()
                    del readers[reader]
                    readers[feed.join()] = time + 1
            kept = feed._entries
            assert feed.buffered_bytes == sum(entry.bytes for entry in kept.values()), seed
            assert min(kept, default=feed.end) == min(r.next for r in (*readers, keeper)), seed
            assert all(r.buffered_bytes == sum(e.bytes for e in r.untaken()) for r in readers), seed
        await settled(feed)
        on_disk = sum(feed._entries[number].bytes for number in feed._on_disk)
        assert feed.memory_bytes == feed.buffered_bytes - on_disk <= 20_000, seed
        for reader in (*readers, keeper):
            reader.close()
        assert (feed.memory_bytes, feed.buffered_bytes, feed._on_disk) == (0, 0, set()), seed

    asyncio.run(run())


def test_a_reader_beyond_its_limit_is_dropped() -> None:
    async def run() -> None:
        feed, reported = Feed(Timestamp(0)), []
        slow, fast = feed.join(), feed.join()
        slow.on_overrun = lambda: reported.append("slow")
        for time in range(10):  # no limit yet, as while a snapshot is read
            feed.append(Timestamp(time), changes(1_000))
            fast.take()
        slow.bound(Entry(Timestamp(0), changes(1_000)).bytes)
        feed.append(Timestamp(10), changes(1_000))
        assert not reported
        feed.append(Timestamp(11), changes(1))
        assert reported == ["slow"]
        fast.take()
        assert slow.overrun
        assert not feed._entries

    asyncio.run(run())


def test_a_large_commit_is_consolidated_in_a_thread_and_keeps_its_order(tmp_path: Path) -> None:
    async def run() -> None:
        feed = CollectionFeed(Timestamp(0), tmp_path)
        reader = feed.join()
        large = pa.table({"c0": np.arange(100_000) % 50_000})
        feed.committed(Timestamp(1), [large])
        feed.closed(Timestamp(2))
        feed.committed(Timestamp(2), [changes(1)])
        feed.closed(Timestamp(3))
        assert feed.upper == 0
        assert reader.is_at_end
        while feed.upper < 3:
            await feed.moved.wait()
        first, second = reader.take()
        assert (first.time, first.changes.num_rows, second.time) == (1, 50_000, 2)
        feed.committed(Timestamp(3), [changes(1)])
        feed.closed(Timestamp(4))
        assert feed.upper == 4

    asyncio.run(run())


@pytest.mark.parametrize("failing", [None, 3])
def test_the_times_of_a_commit_are_appended_together(failing: int | None) -> None:
    """A reader never sees an entry before all times of its commit can be final. After an error, those before it are."""

    async def check(time: Timestamp) -> None:
        await asyncio.sleep(0)
        assert reader.is_at_end
        assert feed.upper == 0
        if time == failing:
            raise PgError(SqlState.DATA_EXCEPTION, "the count of a row is negative")

    feed = CollectionFeed(Timestamp(0))
    reader = feed.join()

    async def run() -> None:
        for time in (1, 2, 3, 4):
            feed.committed(Timestamp(time), [changes(time)], None if time == 1 else check)
        feed.closed(Timestamp(5))
        await feed.moved.wait()

    asyncio.run(run())
    assert [(entry.time, entry.changes.num_rows) for entry in reader.take()] == [(n, n) for n in range(1, failing or 5)]
    assert feed.upper == (failing or 5)
    assert (feed.failure is None) == (failing is None)
