"""Subscriptions that have not started: a known first progress is there at once, and waiting for the rest is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog import updates
from catalog.ids import Timestamp
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.stream.feed import Entry, Feed
from server.dataflow.stream.snapshot_stream import SnapshotStream
from server.dataflow.stream.subscription import Bounds, Message, PendingSubscription, Progress, Subscription

SNAPSHOT = updates.with_diff(pa.table({"c0": [1]}), 1)


async def started(feed: Feed, computed: asyncio.Event) -> Subscription:
    await computed.wait()

    async def entries() -> AsyncGenerator[Entry]:
        yield Entry(Timestamp(5), SNAPSHOT, shared=False)

    snapshot_stream = SnapshotStream(entries(), lambda: None)
    snapshot_stream.start()
    await snapshot_stream.started()
    bounds = Bounds(None, snapshot=True, progress=True)
    return Subscription(feed, feed.join(), snapshot_stream, Timestamp(5), bounds, 1 << 30)


def pending_from(starting: Coroutine[Any, Any, Subscription]) -> PendingSubscription:
    return PendingSubscription(asyncio.create_task(starting), Progress(5))


async def rest(stream: Subscription) -> list[Progress | int]:
    """The messages up to the progress that closes the snapshot; of rows their time."""
    messages: list[Message] = []
    while Progress(6) not in messages:
        messages += await stream.next()
    return [message.time if isinstance(message, Entry) else message for message in messages]


async def test_a_computed_query_begins_with_its_progress(tmp_path: Path) -> None:
    computed = asyncio.Event()
    computed.set()
    pending = pending_from(started(Feed(Timestamp(6), tmp_path), computed))
    stream = await pending.started_within(60)
    assert isinstance(stream, Subscription)
    assert await rest(stream) == [Progress(5), 5, Progress(6)]
    stream.close()


async def test_waiting_for_the_computation_is_bounded(tmp_path: Path) -> None:
    computed = asyncio.Event()
    pending = pending_from(started(Feed(Timestamp(6), tmp_path), computed))
    assert await pending.started_within(0.01) is pending
    assert pending.ready() == [Progress(5)]
    assert pending.ready() == []
    computed.set()
    assert await pending.next() == []
    stream = pending.started
    assert stream is not None
    assert await rest(stream) == [5, Progress(6)]
    stream.close()


async def test_the_first_progress_waits_until_its_time_is_known(tmp_path: Path) -> None:
    computed = asyncio.Event()
    starting = asyncio.create_task(started(Feed(Timestamp(6), tmp_path), computed))
    pending = PendingSubscription(starting, None)
    assert await pending.started_within(0.01) is pending
    assert pending.ready() == []
    computed.set()
    assert await pending.next() == []
    stream = pending.started
    assert stream is not None
    assert await rest(stream) == [Progress(5), 5, Progress(6)]
    stream.close()


async def test_an_error_of_the_computation_is_raised() -> None:
    async def failing() -> Subscription:
        raise PgError(SqlState.DIVISION_BY_ZERO, "division by zero")

    with pytest.raises(PgError, match="division by zero"):
        await pending_from(failing()).started_within(60)


async def test_cancelling_the_wait_cancels_the_computation(tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def waiting() -> Subscription:
        try:
            return await started(Feed(Timestamp(6), tmp_path), asyncio.Event())
        finally:
            cancelled.set()

    wait = asyncio.create_task(pending_from(waiting()).started_within(60))
    await asyncio.sleep(0.01)
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    await cancelled.wait()
