"""`tidewire.aio.subscribe` with a server: the batches that it returns, and the interruptions that it survives."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

import tidewire
from tests.client.conftest import Execute
from tests.client.proxy import Proxy
from tests.client.test_sync import QUICK, TOTAL, budgets, pinned, write_history
from tests.polling import HANG_S
from tidewire import Change, KeyChange, Progress, Retry, Snapshot, aio

pytestmark = pytest.mark.usefixtures("released")


async def changed(batches: AsyncIterator[Any], count: int) -> list[Any]:
    """The next batches other than Progress."""
    found: list[Any] = []
    while len(found) < count:
        batch = await anext(batches)
        if not isinstance(batch, Progress):
            found.append(batch)
    return found


async def test_snapshot_then_updates(dsn: str, table: str, execute: Execute) -> None:
    execute("INSERT INTO t VALUES (1, 10), (2, 20), (2, 20)")
    async with aio.subscribe(dsn, table) as batches:
        snapshot = await anext(batches)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.columns == ("k", "v")
        assert sorted(snapshot.changes) == [Change((1, 10), 1), Change((2, 20), 2)]
        execute("INSERT INTO t VALUES (3, 30)")
        (update,) = await changed(batches, 1)
        assert update.changes == [Change((3, 30), 1)]
        assert batches.token == update.token


async def test_a_snapshot_of_many_fetches_is_one_batch(dsn: str, table: str, execute: Execute) -> None:
    execute("INSERT INTO t VALUES " + ", ".join(f"({k}, 0)" for k in range(2500)))
    async with aio.subscribe(dsn, table, key=("k",)) as batches:
        snapshot = await anext(batches)
        assert len(snapshot.rows) == 2500  # type: ignore[union-attr]


async def test_envelope_and_values(dsn: str, execute: Execute) -> None:
    execute("CREATE TABLE v (k int, n numeric(5,1), b bytea)")
    execute("INSERT INTO v VALUES (1, 1.5, '\\x00')")
    async with aio.subscribe(dsn, "v", key=("k",), envelope="debezium") as batches:
        snapshot = await anext(batches)
        assert snapshot.key_changes == [  # type: ignore[union-attr]
            KeyChange("insert", (1,), None, (Decimal("1.5"), b"\0"))
        ]


async def test_a_stream_ends_at_up_to(dsn: str) -> None:
    batches = [batch async for batch in aio.subscribe(dsn, "SELECT 1 AS one")]
    assert [batch.changes for batch in batches] == [[Change((1,), 1)]]  # type: ignore[union-attr]


async def test_a_token_that_is_too_old(dsn: str, execute: Execute) -> None:
    execute("CREATE TABLE r (k int)")
    token = tidewire.Token(tidewire.Query("r").fingerprint, 1000)
    with pytest.raises(tidewire.TokenTooOld):
        await anext(aio.subscribe(dsn, "r", token=token))
    async with aio.subscribe(dsn, "r", token=token, on_too_old="reset") as batches:
        snapshot = await anext(batches)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.reset


async def test_errors_of_the_server_are_raised_immediately(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        await anext(aio.subscribe(dsn, "missing"))
    with pytest.raises(ValueError):
        await anext(aio.subscribe("nonsense://", "missing"))
    assert not caplog.records, "it was tried again"


async def test_attempts_are_bounded() -> None:
    with pytest.raises(OSError) as raised:
        await anext(aio.subscribe("postgresql://127.0.0.1:9/none", "t", retry=Retry(attempts=2, first_s=0.001)))
    assert raised.value.__notes__ == ["tidewire gave up after 2 attempts to reconnect"]


async def test_callbacks_may_be_awaited(dsn: str, table: str, execute: Execute) -> None:
    seen: list[object] = []
    subscription = aio.subscribe(dsn, table, key=("k",))

    async def on_snapshot(snapshot: Snapshot) -> None:
        await asyncio.sleep(0)
        seen.append(dict(snapshot.rows))
        execute("INSERT INTO t VALUES (1, 10)")

    async def on_update(update: tidewire.Update) -> None:
        seen.append(dict(update.rows))
        await subscription.aclose()

    await subscription.run(on_snapshot, on_update)
    assert seen == [{}, {(1,): (10,)}]


async def test_a_cancelled_wait_loses_no_batch(dsn: str, table: str, execute: Execute) -> None:
    async with aio.subscribe(dsn, table, key=("k",)) as batches:
        await anext(batches)
        updates: list[Any] = []
        cancelled = 0
        for k in range(5):
            try:
                async with asyncio.timeout(0.02):
                    while True:
                        updates += await changed(batches, 1)
            except TimeoutError:
                cancelled += 1
            execute(f"INSERT INTO t VALUES ({k}, 0)")
        updates += await changed(batches, 5 - len(updates))
        assert [update.changes for update in updates] == [[Change((k, 0), 1)] for k in range(5)]
        assert cancelled == 5


async def test_a_cancelled_task_leaves_no_connection(dsn: str, table: str) -> None:
    first = asyncio.Event()

    async def follow() -> None:
        async for _ in aio.subscribe(dsn, table):
            first.set()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = asyncio.create_task(follow())
        await asyncio.wait_for(first.wait(), HANG_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()
    assert len(asyncio.all_tasks()) == 1


async def test_an_iteration_that_is_left_leaves_no_connection(dsn: str, table: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async for batch in aio.subscribe(dsn, table):
            assert isinstance(batch, Snapshot)
            break
        gc.collect()


async def test_close_ends_the_iteration_of_another_task(dsn: str, table: str) -> None:
    batches = aio.subscribe(dsn, table)
    await anext(batches)

    async def follow() -> list[Any]:
        return [batch async for batch in batches]

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    await batches.aclose()
    assert all(isinstance(batch, Progress) for batch in await asyncio.wait_for(task, HANG_S))


async def test_close_ends_the_wait_for_another_attempt() -> None:
    batches = aio.subscribe("postgresql://127.0.0.1:9/none", "t", retry=Retry(first_s=60, longest_s=60))
    asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(batches.aclose()))
    assert [batch async for batch in batches] == []


async def test_a_statement_cancelled_by_the_server_is_raised_and_can_be_resumed(
    dsn: str, table: str, execute: Execute
) -> None:
    async with aio.subscribe(dsn, table) as batches:
        await anext(batches)
        await anext(batches)
        pid = batches._connection.get_server_pid()
        execute(f"SELECT pg_cancel_backend({pid})")
        with pytest.raises(asyncpg.QueryCanceledError):
            await changed(batches, 1)
        execute("INSERT INTO t VALUES (1, 10)")
        (update,) = await changed(batches, 1)
        assert update.changes == [Change((1, 10), 1)]


@pytest.mark.parametrize("seed", range(3))
async def test_a_connection_that_breaks_at_any_byte_loses_no_change(
    dsn: str, table: str, execute: Execute, seed: int
) -> None:
    dice = random.Random(seed)
    execute("INSERT INTO t VALUES " + ", ".join(f"({k}, 0)" for k in range(1, 51)))
    with pinned(dsn), Proxy(dsn, budgets(dice)) as proxy:
        times: list[int] = []
        sums: list[int] = []
        async with aio.subscribe(proxy.dsn, table, key=("k",), retry=QUICK) as batches:
            async for batch in batches:
                if isinstance(batch, Progress):
                    continue
                if isinstance(batch, Snapshot):
                    writer = asyncio.create_task(asyncio.to_thread(write_history, execute, random.Random(seed)))
                times.append(batch.time)
                sums.append(sum(v for (v,) in batch.rows.values()))
                if (0,) in batch.rows:
                    break
        await writer
        cuts = proxy.broken
    assert cuts > 3, "the test did not test"
    assert times == sorted(set(times))
    assert sums == [*range(0, TOTAL + 1, 2), TOTAL]


async def test_a_silent_connection_is_considered_lost(dsn: str, table: str, caplog: pytest.LogCaptureFixture) -> None:
    """AS OF the future: nothing follows the first progress."""
    batches = aio.subscribe(dsn, table, as_of=2**60, silence_s=0.05, retry=Retry(attempts=1, first_s=0.0))
    with pytest.raises(TimeoutError):
        await anext(batches)
    assert "attempt 1" in caplog.text


async def test_a_consumer_that_requests_no_batch_receives_no_rows(dsn: str, table: str, execute: Execute) -> None:
    async with aio.subscribe(dsn, table) as batches:
        await anext(batches)
        for k in range(10):
            execute("INSERT INTO t VALUES " + ", ".join(f"({k}, {v})" for v in range(1000)))
        assert not batches._stream.reader._received
        (update,) = await changed(batches, 1)
        assert len(update.changes) == 1000


class FakeHolding:
    """A substitute for the connection that executes ALTER HOLD."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.terminated = False

    async def execute(self, statement: str, timeout: float | None) -> None:
        self.statements.append(statement)

    def terminate(self) -> None:
        self.terminated = True


async def test_a_hold_is_advanced_by_acknowledgements(dsn: str, table: str) -> None:
    batches = aio.subscribe(dsn, table, hold="h", hold_every_s=0.0)
    fake = batches._holding = FakeHolding()
    async with batches:
        received = [await anext(batches) for _ in range(4)]
    assert fake.statements == [f"ALTER HOLD h ADVANCE TO {batch.progress - 1}" for batch in received[:-1]]
    assert fake.terminated
