"""Broadcasts: one task writes to all subscribers without a backlog. Slow or cancelled ones do not affect the others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalog import updates
from catalog.ids import Timestamp
from protocol.pgwire.connection import Connection
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT8
from server.dataflow.stream import broadcast as broadcasts
from server.dataflow.stream.collection_feed import CollectionFeed
from server.dataflow.stream.encoding import Data
from server.dataflow.stream.envelope import DiffEnvelope
from server.dataflow.stream.feed import Entry, Feed
from server.dataflow.stream.snapshot_stream import SnapshotStream
from server.dataflow.stream.subscription import Bounds, Subscription
from server.session_state.results import SubscriptionRows
from server.session_state.sender import Sender
from server.sql.plan import Field
from tests.polling import HANG_S

ENVELOPE = DiffEnvelope((Field("n", INT8, True),), progress=True)


def changes(first: int, rows: int = 3) -> pa.Table:
    return updates.with_diff(pa.table({"c0": np.arange(first, first + rows)}), 1)


def encode(rows: pa.Table) -> bytes:
    return "".join(f"{row}\n" for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)).encode()


async def nothing() -> AsyncGenerator[Entry]:
    return
    yield


class Socket:
    """A transport that can be full."""

    def __init__(self) -> None:
        self.taken = b""
        self.writes = 0
        self.write_s = 0.0  # duration of a write
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        return not self._room.is_set()

    def fill(self) -> None:
        self._room.clear()

    def empty(self) -> None:
        self._room.set()

    def write(self, data: Data) -> None:
        sleep(self.write_s)
        self.taken += data
        self.writes += 1

    async def drained(self) -> None:
        await self._room.wait()

    def close(self) -> None: ...
    def limit_input(self, waiting: int) -> None: ...
    def abort_if_stuck(self, seconds: float) -> None: ...


class Crowd:
    """Subscribers of one feed, each with a socket and a task that sends."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.sockets: list[Socket] = []
        self.subscriptions: list[Subscription] = []
        self.tasks: list[asyncio.Task[int]] = []

    def add(self, limit: int = 1 << 30, feed: Feed | None = None) -> Socket:
        """`feed`: another feed of the group."""
        feed = feed or self.feed
        snapshot_stream = SnapshotStream(nothing(), lambda: None)
        snapshot_stream.start()
        as_of = Timestamp(feed.upper - 1)
        bounds = Bounds(None, snapshot=True, progress=True)
        stream = Subscription(feed, feed.join(), snapshot_stream, as_of, bounds, limit)
        socket = Socket()
        rows = SubscriptionRows(stream, ENVELOPE)
        self.sockets.append(socket)
        self.subscriptions.append(stream)
        self.tasks.append(asyncio.create_task(rows.send("key", encode, Sender(Connection(), socket))))
        return socket

    def commit(self, time: int, rows: int = 3) -> None:
        self.feed.append(Timestamp(time), changes(time * 100, rows))
        self.feed.advance(Timestamp(time + 1))

    @property
    def live(self) -> int:
        return sum(len(broadcast._members) for broadcast in broadcasts.running(self.feed.group).values())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANG_S):
            while not condition():  # noqa: ASYNC110 (waits for turns of the event loop)
                await asyncio.sleep(0)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for stream in self.subscriptions:
            stream.close()
        assert not self.feed._readers
        assert not broadcasts.running(self.feed.group)
        assert self.feed.buffered_bytes == 0


def crowded(scenario: Callable[[Crowd], Awaitable[None]], directory: Path) -> None:
    async def run() -> None:
        crowd = Crowd(Feed(Timestamp(10), directory))
        await scenario(crowd)
        await crowd.end()

    asyncio.run(run())


def progressed(time: int) -> bytes:
    return f"({time}, True, None, None)\n".encode()


def expected(time: int, rows: int = 3) -> bytes:
    return "".join(f"({time}, False, 1, {n})\n" for n in range(time * 100, time * 100 + rows)).encode()


def test_all_get_the_same_bytes_from_one_task(tmp_path: Path) -> None:
    async def scenario(crowd: Crowd) -> None:
        for _ in range(300):
            crowd.add()
        for time in range(10, 15):
            await crowd.until(lambda: crowd.live == 300)
            writes = [socket.writes for socket in crowd.sockets]
            crowd.commit(time)
            await crowd.until(lambda time=time: crowd.sockets[-1].taken.endswith(progressed(time + 1)))
            assert [socket.writes for socket in crowd.sockets] == [n + 1 for n in writes]
        reported = (
            progressed(9) + progressed(10) + b"".join(expected(time) + progressed(time + 1) for time in range(10, 15))
        )
        assert {socket.taken for socket in crowd.sockets} == {reported}

    crowded(scenario, tmp_path)


def test_progress_waits_for_a_commit_after_a_long_round(tmp_path: Path) -> None:
    async def scenario(crowd: Crowd) -> None:
        socket = crowd.add()
        await crowd.until(lambda: crowd.live == 1)
        socket.write_s = 1.0  # so that progress would wait for two seconds
        crowd.commit(10)
        await crowd.until(lambda: socket.taken.endswith(expected(10) + progressed(11)))
        socket.write_s = 0.0
        crowd.feed.advance(Timestamp(12))
        crowd.feed.advance(Timestamp(13))
        for _ in range(100):
            await asyncio.sleep(0)
        crowd.commit(13)
        await crowd.until(lambda: socket.taken.endswith(progressed(14)))
        assert socket.taken.endswith(progressed(11) + expected(13) + progressed(14))
        crowd.feed.advance(Timestamp(15))
        await crowd.until(lambda: socket.taken.endswith(progressed(15)))

    crowded(scenario, tmp_path)


def test_a_commit_with_several_times_that_are_checked(tmp_path: Path) -> None:
    """As a source with the times of its upstream writes: the checks of the times await each other."""

    async def check(_: Timestamp) -> None:
        await asyncio.sleep(choice.choice((0, 0, 0.001)))

    choice = random.Random(1)

    async def run() -> None:
        feed = CollectionFeed(Timestamp(10), tmp_path)
        crowd = Crowd(feed)
        socket = crowd.add()
        await crowd.until(lambda: crowd.live == 1)
        for first in range(10, 160, 3):  # a commit is checked while the broadcast writes the one before
            for time in range(first, first + 3):
                feed.committed(Timestamp(time), [changes(time * 100)], check)
            feed.closed(Timestamp(first + 3))
        await crowd.until(lambda: socket.taken.endswith(progressed(160)))
        assert streams(socket.taken)[0] == b"".join(map(expected, range(10, 160))).decode().splitlines()
        await crowd.end()

    asyncio.run(run())


def streams(text: bytes) -> tuple[list[str], list[int]]:
    """Returns the updates that a socket received, as text, and the times of its progress messages."""
    lines = text.decode().splitlines()
    return [line for line in lines if "False" in line], [
        int(line[1:].split(",")[0]) for line in lines if "True" in line
    ]


@pytest.mark.parametrize("seed", range(30))
def test_each_stream_is_complete_for_sockets_that_are_full_at_random(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcasts, "BYTES_MAX", 2_000)
    monkeypatch.setattr(broadcasts, "WRITES_MAX", 3)
    chance = random.Random(seed)

    async def scenario(crowd: Crowd) -> None:
        begun = {crowd.add(): 10 for _ in range(8)}
        rows = {}
        for time in range(10, 80):
            if chance.random() < 0.8:
                rows[time] = chance.choice([1, 2, 3, 90])  # 90 rows are too many for a broadcast
                crowd.commit(time, rows[time])
            else:
                crowd.feed.advance(Timestamp(time + 1))
            socket = chance.choice(crowd.sockets)
            chance.choice([socket.fill, socket.empty, socket.empty])()
            if chance.random() < 0.1:
                begun[crowd.add()] = time + 1
            for _ in range(chance.choice([0, 0, 1, 3, 10])):
                await asyncio.sleep(0)
        for socket in crowd.sockets:
            socket.empty()
        await crowd.until(
            lambda: (
                crowd.live == len(crowd.sockets) and all(streams(socket.taken)[1][-1] == 80 for socket in crowd.sockets)
            )
        )
        for socket in crowd.sockets:
            data, progress = streams(socket.taken)
            wanted = [
                f"({time}, False, 1, {n})"
                for time, count in rows.items()
                if time >= begun[socket]
                for n in range(time * 100, time * 100 + count)
            ]
            assert data == wanted, seed
            assert progress == sorted(set(progress)), seed

    crowded(scenario, tmp_path)


def test_a_cancelled_subscriber_receives_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcasts, "WRITES_MAX", 1)

    async def scenario(crowd: Crowd) -> None:
        for _ in range(5):
            crowd.add()
        await crowd.until(lambda: crowd.live == 5)
        crowd.commit(10)
        await crowd.until(lambda: crowd.sockets[0].taken.endswith(progressed(11)))
        crowd.tasks[4].cancel()  # during the round of writes
        before = crowd.sockets[4].taken
        await crowd.until(crowd.tasks[4].done)
        await crowd.until(lambda: crowd.sockets[3].taken.endswith(progressed(11)))
        crowd.commit(11)
        await crowd.until(lambda: crowd.sockets[3].taken.endswith(progressed(12)))
        assert crowd.sockets[4].taken == before
        assert crowd.live == 4

    crowded(scenario, tmp_path)


def test_each_subscriber_receives_the_error_of_the_feed(tmp_path: Path) -> None:
    async def scenario(crowd: Crowd) -> None:
        for _ in range(5):
            crowd.add()
        await crowd.until(lambda: crowd.live == 5)
        crowd.commit(10)
        crowd.feed.fail(PgError(SqlState.UNDEFINED_OBJECT, "relation 't' was dropped"))
        ends: list[Any] = await asyncio.gather(*crowd.tasks, return_exceptions=True)
        assert [str(end) for end in ends] == ["relation 't' was dropped"] * 5
        assert all(socket.taken.endswith(progressed(11)) for socket in crowd.sockets)

    crowded(scenario, tmp_path)


def test_the_overrun_error_names_the_last_broadcast_progress(tmp_path: Path) -> None:
    async def scenario(crowd: Crowd) -> None:
        crowd.add(limit=0)
        (stream,) = crowd.subscriptions
        errors: list[PgError] = []
        stream.interrupt = errors.append
        await crowd.until(lambda: crowd.live == 1)
        crowd.commit(10)
        await crowd.until(lambda: crowd.sockets[0].taken.endswith(progressed(11)))
        crowd.sockets[0].fill()
        crowd.commit(11)
        await crowd.until(lambda: crowd.live == 0)
        assert not errors
        crowd.commit(12)
        assert errors
        assert errors[0].hint is not None
        _, progress = streams(crowd.sockets[0].taken)
        assert f"before this error is {progress[-1]}:" in errors[0].hint

    crowded(scenario, tmp_path)


@pytest.mark.parametrize("seed", range(10))
def test_each_stream_of_a_group_is_complete_and_idle_members_get_progress_at_intervals(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcasts, "AT_ONCE_MAX", 3)
    monkeypatch.setattr(broadcasts, "WRITES_MAX", 3)
    monkeypatch.setattr(broadcasts, "PROGRESS_S", 3_600.0)
    chance = random.Random(seed)

    async def scenario(crowd: Crowd) -> None:
        feeds = [Feed(Timestamp(10), tmp_path, crowd.feed.group) for _ in range(20)]
        socket_of = {number: crowd.add(feed=feed) for number, feed in enumerate(feeds)}
        second = crowd.add(feed=feeds[0])
        await crowd.until(lambda: crowd.live == 21)
        wanted: dict[int, list[str]] = {number: [] for number in socket_of}
        for time in range(10, 60):
            before = {number: socket.writes for number, socket in socket_of.items()}
            touched = chance.sample(range(20), chance.choice([0, 1, 1, 2, 20]))
            for number in touched:
                feeds[number].append(Timestamp(time), changes(time * 100 + number))
                first = time * 100 + number
                wanted[number] += [f"({time}, False, 1, {n})" for n in range(first, first + 3)]
            crowd.feed.group.advance(Timestamp(time + 1))
            for number in touched:
                await crowd.until(
                    lambda number=number, time=time: socket_of[number].taken.endswith(progressed(time + 1))
                )
            assert [number for number in socket_of if socket_of[number].writes > before[number]] == sorted(touched)
            assert all(socket_of[number].writes == before[number] + 1 for number in touched)
        crowd.feed.group.advance(Timestamp(60 + seed))
        monkeypatch.setattr(broadcasts, "PROGRESS_S", 0.0)  # the last progress is due
        crowd.feed.group.advance(Timestamp(90))
        await crowd.until(lambda: all(socket.taken.endswith(progressed(90)) for socket in crowd.sockets))
        assert second.taken == socket_of[0].taken
        for number, socket in socket_of.items():
            data, progress = streams(socket.taken)
            assert data == wanted[number], seed
            assert progress == sorted(set(progress)), seed

    crowded(scenario, tmp_path)


def test_idle_members_get_progress_without_a_further_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcasts, "AT_ONCE_MAX", 0)
    monkeypatch.setattr(broadcasts, "PROGRESS_S", 0.01)

    async def scenario(crowd: Crowd) -> None:
        other = crowd.add(feed=Feed(Timestamp(10), tmp_path, crowd.feed.group))
        crowd.add()
        await crowd.until(lambda: crowd.live == 2)
        crowd.commit(10)
        await crowd.until(lambda: other.taken.endswith(progressed(11)))

    crowded(scenario, tmp_path)
