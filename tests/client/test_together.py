"""Several queries whose changes are returned together: every batch is a state that the database had."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from dataclasses import replace
from typing import Any, NamedTuple

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidewire
from tests.client.conftest import Execute
from tests.client.proxy import Proxy
from tests.client.streams import History, columns, histories
from tests.client.test_sync import COMMITS, QUICK, TOTAL, FakeHolding, budgets, pinned, write_history
from tests.polling import HANG_S
from tidewire import Change, JointSnapshot, JointUpdate, KeyChange, Progress, Query, Retry, Token, WrongToken, aio
from tidewire.together import JointOptions, Merge

OPTIONS = JointOptions(
    row_types=None,
    as_of=None,
    up_to=None,
    token=None,
    rows=None,
    on_too_old="raise",
    retry=Retry(),
    hold=None,
    hold_every_s=1.0,
    auto_ack=True,
)
BOTH = {"all": Query("t", ("k",)), "sums": "SELECT count(*) AS n, sum(v) AS s FROM t"}


def applied(state: dict[Any, int], changes: list[Change[Any]]) -> dict[Any, int]:
    for row, diff in changes:
        state[row] = state.get(row, 0) + diff
    return {row: count for row, count in state.items() if count}


@given(
    history=histories(),
    nows=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    lives=st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=8),
)
def test_merged_streams_are_the_history_once_wherever_they_break(
    history: History, nows: list[int], lives: list[tuple[int, bool]]
) -> None:
    """Each life ends after this number of rows, by a lost connection of the stream that is behind or by the end of the
    process."""
    queries: dict[str, str | Query] = {"a": "t", "b": Query("t", ("k",)), "c": Query("t", ("k",), "debezium")}
    merge, received = Merge(queries, OPTIONS), []
    rows: dict[str, Any] = {}
    streams: dict[str, Any] = {}
    last = (10**6, False)
    for left, dies in [*lives, last]:
        while left and (behind := merge.behind()) is not None:
            left -= 1
            reader = merge.streams[behind].reader
            if behind not in streams:
                statement = reader.statement()
                reader.describe(columns(statement))
                now = min(nows[list(queries).index(behind)], history.end - 1)
                streams[behind] = history.stream(statement, now)
            row = next(streams[behind], None)
            if row is None:
                break
            reader.receive(row)
            while (batch := merge.next_batch()) is not None:
                received.append(batch)
                for name, part in batch.parts.items() if not isinstance(batch, Progress) else ():
                    if queries[name] != "t":
                        rows[name] = dict(part.rows)
                        assert rows[name] == {(k,): (v,) for k, v in history.at(batch.time).items()}
        if dies:
            token = None if merge.token is None else str(merge.token)
            merge, streams = Merge(queries, replace(OPTIONS, token=token, rows=rows if token else None)), {}
        elif (behind := merge.behind()) is not None:
            streams.pop(behind, None)

    first, *others = received
    assert isinstance(first, JointSnapshot)
    updates = [batch for batch in others if isinstance(batch, JointUpdate)]
    assert [batch.time for batch in updates] == [t for t in range(first.time + 1, history.end) if history.changes(t)]
    assert sorted(first.changes["a"]) == [Change(row, 1) for row in sorted(history.at(first.time).items())]
    assert sorted(first.parts["c"].key_changes) == [
        KeyChange("insert", (k,), None, (v,)) for k, v in sorted(history.at(first.time).items())
    ]
    for batch in updates:
        expected = sorted(Change((k, v), diff) for k, v, diff in history.changes(batch.time))
        assert sorted(batch.changes["a"]) == sorted(batch.changes["b"]) == expected
        assert set(batch.parts) == {"a", "b", "c"}
    tokens = [batch.progress for batch in received]
    assert tokens == sorted(set(tokens))
    assert tokens[-1] == history.end


def test_what_is_refused() -> None:
    for queries in ({}, {"a": Query("t", as_of=5)}, {"a": Query("t", up_to=5)}):
        with pytest.raises(ValueError, match=r"quer(y|ies)"):
            Merge(queries, OPTIONS)
    with pytest.raises(WrongToken, match="other queries"):
        tidewire.follow_together("", {"a": "t"}, token=Token(Query("t").fingerprint, 7))


def check_consistent(batches: list[Any]) -> list[int]:
    """Each state of the sums is that of all rows. Returns the sums."""
    state: dict[Any, int] = {}
    sums = []
    for batch in batches:
        state = applied(state, batch.changes["sums"])
        ((count, total),) = state
        rows = batch.parts["all"].rows
        assert (count, total or 0) == (len(rows), sum(v for (v,) in rows.values()))
        sums.append(total)
    times = [batch.time for batch in batches]
    assert times == sorted(set(times))
    return sums


@pytest.mark.usefixtures("released")
@pytest.mark.long
def test_two_views_of_a_table_are_seen_together_however_connections_break(
    dsn: str, table: str, execute: Execute
) -> None:
    execute("INSERT INTO t VALUES " + ", ".join(f"({k}, 0)" for k in range(1, 51)))
    execute("CREATE VIEW rows_of_t AS SELECT k, v FROM t")
    execute("CREATE MATERIALIZED VIEW sums_of_t AS SELECT count(*) AS n, sum(v) AS s FROM t")
    execute("SELECT * FROM sums_of_t")
    writer = threading.Thread(target=write_history, args=(execute, random.Random(1)))
    views: dict[str, str | Query] = {"all": Query("rows_of_t", ("k",)), "sums": "sums_of_t"}
    received: list[Any] = []
    with (
        pinned(dsn),
        Proxy(dsn, budgets(random.Random(2))) as proxy,
        tidewire.follow_together(proxy.dsn, views, retry=QUICK) as batches,
    ):
        for batch in batches:
            if isinstance(batch, JointSnapshot):
                writer.start()
            if not isinstance(batch, Progress):
                received.append(batch)
                # `rows` is one mapping for all batches
                part = batch.parts["all"]
                received[-1] = replace(batch, parts={**batch.parts, "all": replace(part, _table=dict(part.rows))})
                if (0,) in part.rows:
                    break
        writer.join()
        assert proxy.broken > 3, "the test did not test"
    assert check_consistent(received) == [*range(0, TOTAL + 1, 2), TOTAL]
    assert len(received) == COMMITS + 2


@pytest.mark.usefixtures("released")
async def test_an_asynchronous_iteration_resumes_by_one_token(dsn: str, table: str, execute: Execute) -> None:
    class Sums(NamedTuple):
        n: int
        s: int | None

    execute("INSERT INTO t VALUES (1, 10)")
    async with aio.follow_together(dsn, BOTH, row_types={"sums": Sums}) as batches:
        snapshot = await anext(batches)
        assert isinstance(snapshot, JointSnapshot)
        assert snapshot.changes == {"all": [Change((1, 10), 1)], "sums": [Change(Sums(1, 10), 1)]}
        assert {part.time for part in snapshot.parts.values()} == {snapshot.time}
        rows = {"all": dict(snapshot.parts["all"].rows)}
    await asyncio.to_thread(execute, "INSERT INTO t VALUES (2, 20)")
    async with aio.follow_together(dsn, BOTH, token=str(snapshot.token), rows=rows) as batches:
        async for batch in batches:
            if isinstance(batch, JointUpdate):
                break
        assert batch.changes["all"] == [Change((2, 20), 1)]  # type: ignore[union-attr]
        assert sorted(batch.changes["sums"]) == [Change((1, 10), -1), Change((2, 30), 1)]  # type: ignore[union-attr]
        assert batch.parts["all"].rows == {(1,): (10,), (2,): (20,)}  # type: ignore[union-attr]
        waiting = asyncio.ensure_future(anext(batches))
        while (batch := await waiting) is None or not isinstance(batch, Progress):
            waiting = asyncio.ensure_future(anext(batches))
        last = asyncio.create_task(exhausted(batches))
        await asyncio.sleep(0)
        await batches.aclose()
        await asyncio.wait_for(last, HANG_S)


async def exhausted(batches: aio.JointSubscription) -> None:
    async for _ in batches:
        pass


@pytest.mark.usefixtures("released")
def test_a_token_that_is_too_old_resets_all(dsn: str, execute: Execute) -> None:
    execute("CREATE TABLE r (k int)")
    execute("CREATE TABLE q (k int)")
    execute("INSERT INTO r VALUES (1)")
    tables = {"r": "r", "q": "q"}
    with tidewire.follow_together(dsn, tables) as batches:
        token = replace(next(batches).token, progress=1000)
    with pytest.raises(tidewire.TokenTooOld):
        next(tidewire.follow_together(dsn, tables, token=token))
    with tidewire.follow_together(dsn, tables, token=token, on_too_old="reset") as batches:
        snapshot = next(batches)
        assert isinstance(snapshot, JointSnapshot)
        assert snapshot.reset
        assert snapshot.changes == {"r": [Change((1,), 1)], "q": []}
        assert isinstance(next(batches), Progress)


@pytest.mark.usefixtures("released")
def test_one_hold_is_advanced_to_the_progress_of_all(dsn: str, table: str) -> None:
    batches = tidewire.follow_together(dsn, {"a": "t", "b": "SELECT v FROM t"}, hold="h", hold_every_s=0.0)
    fake: Any = FakeHolding([])
    batches._first._holding = fake
    with batches:
        received = list(itertools.islice(batches, 4))
    assert fake.statements == [f"ALTER HOLD h ADVANCE TO {batch.progress - 1}" for batch in received[:-1]]
    assert fake.closed


@pytest.mark.usefixtures("released")
def test_close_ends_the_iteration_of_another_thread_and_up_to_all_streams(dsn: str, table: str) -> None:
    batches = tidewire.follow_together(dsn, {"a": "t", "b": "t"})
    first, ended = threading.Event(), threading.Event()

    def follow() -> None:
        for _ in batches:
            first.set()
        ended.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert first.wait(HANG_S)
    batches.close()
    assert ended.wait(HANG_S)
    thread.join()
    with psycopg.connect(dsn, autocommit=True) as connection:
        ((now,),) = connection.execute("SELECT mz_now()::text::bigint").fetchall()
    bounded = tidewire.follow_together(dsn, {"a": "t", "b": "t"}, up_to=now + 300)
    snapshot, *others = bounded
    assert snapshot.changes == {"a": [], "b": []}  # type: ignore[union-attr]
    assert others[-1].progress == now + 300
    assert list(bounded) == []


@pytest.mark.usefixtures("released")
def test_a_query_that_reads_no_relation_is_in_the_snapshot(dsn: str, table: str, execute: Execute) -> None:
    queries: dict[str, str | Query] = {"one": "SELECT 1", "t": "t"}
    with tidewire.follow_together(dsn, queries) as batches:
        snapshot = next(batches)
        assert snapshot.changes == {"one": [Change((1,), 1)], "t": []}  # type: ignore[union-attr]
        execute("INSERT INTO t VALUES (1, 10)")
        update = next(batch for batch in batches if isinstance(batch, JointUpdate))
        assert update.changes == {"one": [], "t": [Change((1, 10), 1)]}
    with tidewire.follow_together(dsn, queries, token=snapshot.token) as batches:
        assert next(batch for batch in batches if isinstance(batch, JointUpdate)).changes == update.changes
    (only,) = tidewire.follow_together(dsn, {"one": "SELECT 1"})
    assert only.changes == {"one": [Change((1,), 1)]}  # type: ignore[union-attr]
