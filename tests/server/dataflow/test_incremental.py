"""A maintained query equals the query run from scratch, at every time of random histories."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from catalog import updates
from catalog.ids import ObjectId, Timestamp
from protocol.columnar import hashing
from protocol.pgwire.errors import PgError
from server.dataflow.arrangements import file_arrangement
from server.dataflow.arrangements.arrangement import Arranger, ServerArrangement, Storage
from server.dataflow.arrangements.file_arrangement import EXECUTORS, Executors, FileArrangement
from server.dataflow.operators import (
    accumulable_aggregate,
    distinct,
    distinct_values,
    join,
    operator,
    recompute,
    step_cost,
)
from server.dataflow.operators.temporal_buffer import TemporalBuffer
from server.dataflow.plan import nodes
from server.dataflow.runtime import incremental
from server.dataflow.runtime.computation import Computation
from server.runtime import threads
from server.runtime.errors import to_pg_error
from server.spark.engine import SparkEngine
from tests.polling import HANG_S
from tests.server.dataflow import histories
from tests.server.dataflow.histories import History, changes_table, followed, from_scratch, ids, planned, random_history

SEED = int(os.environ.get("TIDEWIRE_SEED", "1"))
TIMES = 6
Planted = Callable[[nodes.Node, pytest.MonkeyPatch], None]

QUERIES = [
    # linear
    "SELECT k + 1, upper(s) FROM t WHERE v > 0 OR s IS NULL",
    "SELECT s, k FROM t WHERE k = 2",
    "SELECT k, v FROM t UNION ALL SELECT k, w::int4 FROM u UNION ALL SELECT 9, 9",
    "SELECT k, x FROM t, unnest(ARRAY[k, v]) x WHERE s <> ''",
    "SELECT unnest(ARRAY[k, v]) AS x, count(*), max(s) FROM t GROUP BY x",
    # inner joins
    "SELECT t.s, u.w FROM t JOIN u ON t.k = u.k",
    "SELECT t.s, u.w, w.x FROM t, u, w WHERE t.k = u.k AND w.k = u.k AND w.x < t.v + 5",
    "SELECT a.s, b.s FROM t a JOIN t b ON a.k = b.v",
    "SELECT t.k, u.k, t.v / (t.k + u.k) FROM t, u WHERE t.k < u.k",
    "SELECT t.v, w.x FROM t JOIN w ON t.k = w.k AND t.v + 1 = w.x",
    "SELECT a.w, b.k FROM u a JOIN t b ON a.w = b.v",
    # outer, semi and anti joins
    "SELECT t.k, t.s, u.w * 2 FROM t LEFT JOIN u ON t.k = u.k AND u.f > 0",
    "SELECT t.k, t.s, u.w FROM t RIGHT JOIN u ON t.k = u.k WHERE u.f IS NOT NULL",
    "SELECT t.k, t.s, u.w, u.k FROM t FULL JOIN u ON t.k = u.k",
    "SELECT t.s, w.d FROM t LEFT JOIN w ON t.v < w.x",
    "SELECT t.s, u.w FROM t LEFT JOIN u ON t.k = u.k AND t.v > 0",
    "SELECT t.s, u.w FROM t LEFT JOIN u ON t.k = u.k AND t.v > u.w",
    "SELECT t.s, u.w FROM t FULL JOIN u ON t.k = u.k AND t.v = u.f",
    "SELECT t.s FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w > t.v)",
    "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.w > 0)",
    "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "SELECT * FROM t WHERE k IN (SELECT k FROM w)",
    "SELECT * FROM t WHERE k NOT IN (SELECT x FROM w WHERE x IS NOT NULL)",
    "SELECT s, k IN (SELECT x FROM w) FROM t",
    "SELECT * FROM t WHERE v NOT IN (SELECT x FROM w WHERE k > 2)",
    "SELECT t.s, u.w FROM t, w, u WHERE (t.k = w.k AND u.f > 0 AND u.k = w.k) OR (u.k = w.k AND t.k = w.k AND w.x > 1)",
    # aggregates
    "SELECT k, count(*), count(v), sum(v), avg(v) FROM t GROUP BY k",
    "SELECT count(*), sum(w), avg(w), sum(w) FILTER (WHERE f > 0) FROM u",
    "SELECT s, sum(k::int8) AS n FROM t GROUP BY s HAVING count(*) > 1",
    "SELECT k % 2, avg(v + 1), count(DISTINCT s) FROM t GROUP BY k % 2",
    "SELECT k, min(v), max(s), bool_and(v > 0), string_agg(s, ','), array_agg(v) FROM t GROUP BY k",
    "SELECT min(f), max(w), sum(f), avg(f) FROM u",
    "SELECT max(v) FROM t WHERE s <> 'a'",
    "SELECT min(d) FROM w",
    "SELECT k, count(*), min(v), max(v), min(v + 1) FILTER (WHERE s <> 'a'), sum(v), bool_or(v > 2) FROM t GROUP BY k",
    "SELECT k, max(f), min(w), avg(w), max(d2) FROM (SELECT *, f * 2 AS d2 FROM u) a GROUP BY k",
    "SELECT k, count(DISTINCT v), sum(DISTINCT v) FILTER (WHERE s <> 'a'), avg(v), count(DISTINCT s) FROM t GROUP BY k",
    "SELECT count(DISTINCT k), sum(DISTINCT v), max(v), min(s), count(*) FROM t",
    "SELECT k, count(DISTINCT v), count(DISTINCT v) FILTER (WHERE s = 'a'), count(DISTINCT v) FILTER (WHERE s <> 'a'), "
    "count(DISTINCT s) FILTER (WHERE v > 0), count(DISTINCT s) FILTER (WHERE v < 2), max(v), sum(v) FROM t GROUP BY k",
    "SELECT count(DISTINCT w) FILTER (WHERE f > 0), sum(DISTINCT w) FILTER (WHERE f > 0), avg(DISTINCT w), "
    "count(DISTINCT w) FILTER (WHERE k = 1), count(*) FILTER (WHERE f > 1) FROM u",
    "SELECT k, avg(DISTINCT w * 2) FILTER (WHERE f > 0), sum(DISTINCT w * 2), "
    "count(DISTINCT w * 2) FILTER (WHERE f < 4) FROM u GROUP BY k",
    "SELECT s, max(k), max(k + 0), min(DISTINCT v) FROM t GROUP BY s HAVING min(k) > 1",
    "SELECT k, s, count(*), grouping(k, s) FROM t GROUP BY ROLLUP (k, s)",
    # distinct, set operations
    "SELECT DISTINCT k, s FROM t",
    "SELECT DISTINCT ON (k) k, v, s FROM t ORDER BY k, v DESC, s",
    "SELECT k FROM t UNION SELECT k FROM u",
    "SELECT k FROM t INTERSECT SELECT k FROM u",
    "SELECT k FROM t INTERSECT ALL SELECT x FROM w",
    "SELECT k FROM t EXCEPT SELECT k FROM u",
    "SELECT k FROM t EXCEPT ALL SELECT x FROM w",
    # whole rows
    "SELECT DISTINCT t FROM t",
    "SELECT t, v, count(*) FROM t GROUP BY t, v",
    "SELECT (r).k, (r).w FROM (SELECT DISTINCT u AS r FROM t LEFT JOIN u ON t.k = u.k) q",
    "SELECT u, count(*) FROM t LEFT JOIN u ON t.k = u.k GROUP BY u",
    "SELECT ROW(k, s) FROM t UNION SELECT ROW(x, 'x') FROM w WHERE x > 0",
    "SELECT ROW(k, ROW(s)) FROM t INTERSECT ALL SELECT ROW(k, ROW(s)) FROM t WHERE v > 0",
    "SELECT (a).f2, (b).x FROM (SELECT ROW(v, s) a, k FROM t) q JOIN (SELECT w AS b, w.k FROM w) p ON p.k = q.k",
    "SELECT DISTINCT ON (t.k) t.k, u FROM t JOIN u ON t.k = u.k ORDER BY t.k, u DESC, t DESC",
    "SELECT t FROM t ORDER BY t LIMIT 3",
    "SELECT (r).f1, n FROM (SELECT r, rank() OVER (PARTITION BY r ORDER BY v) n FROM (SELECT ROW(k) r, v FROM t) p) q",
    "SELECT count(DISTINCT t) FROM t",
    "SELECT k, count(DISTINCT t), sum(v), count(DISTINCT ROW(v, s)) FILTER (WHERE v > 0) FROM t GROUP BY k",
    "SELECT t.s, count(*), count(DISTINCT u), count(DISTINCT t) FROM t LEFT JOIN u ON t.k = u.k GROUP BY t.s",
    "SELECT count(DISTINCT CASE WHEN v > 1 THEN t END), max(v) FROM t",
    "SELECT t, count(DISTINCT ROW(u, t.s)) FROM t LEFT JOIN u ON t.k = u.k GROUP BY t HAVING count(DISTINCT u) < 2",
    "SELECT DISTINCT CASE WHEN k > 2 THEN t END FROM t",
    "SELECT CASE WHEN a.v > b.v THEN a WHEN a.v < b.v THEN b END AS r, count(*) FROM t a JOIN t b ON a.k = b.k "
    "GROUP BY r",
    "SELECT coalesce(u, ROW(t.k, 0::numeric(10,2), 0::float8)), count(*) FROM t LEFT JOIN u ON t.k = u.k GROUP BY 1",
    "SELECT (r).k, r IS NULL, n FROM (SELECT CASE WHEN v IS NOT NULL THEN coalesce(CASE WHEN s <> 'a' THEN t END, t) "
    "END AS r, count(*) AS n FROM t GROUP BY 1) q",
    "SELECT r, rank() OVER (PARTITION BY r ORDER BY v) FROM (SELECT CASE WHEN k > 1 THEN ROW(k, s) END AS r, v "
    "FROM t) p",
    "SELECT r FROM (SELECT CASE WHEN k > 2 THEN ROW(k, CASE WHEN v > 1 THEN ROW(s) END) END AS r FROM t) p "
    "ORDER BY r DESC LIMIT 3",
    # windows and limits
    "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, s), sum(v) OVER (PARTITION BY k) FROM t",
    "SELECT v, rank() OVER (ORDER BY v) FROM t",
    "SELECT v, sum(v) OVER w, avg(k) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY v RANGE UNBOUNDED PRECEDING "
    "EXCLUDE CURRENT ROW)",
    "SELECT v, count(*) OVER w, max(k) OVER w FROM t WINDOW w AS (ORDER BY v GROUPS BETWEEN 1 PRECEDING AND 1 "
    "FOLLOWING EXCLUDE GROUP)",
    "SELECT * FROM (SELECT k, v, s, row_number() OVER (PARTITION BY k ORDER BY v DESC, s) AS n FROM t) a WHERE n <= 2",
    "SELECT * FROM (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM t) a WHERE n < 3 AND v IS NOT NULL",
    "SELECT s FROM (SELECT s, v, row_number() OVER (ORDER BY s NULLS FIRST) AS n FROM t) a WHERE 2 = n",
    "SELECT DISTINCT ON (s) s, v FROM t ORDER BY s, v DESC NULLS LAST",
    "SELECT t.v, l.x FROM t, LATERAL (SELECT x FROM w WHERE w.k = t.k ORDER BY d, x LIMIT 2 OFFSET 1) l",
    # subqueries with a LIMIT that name no column of the outer query: the DISTINCT of these columns has none
    "SELECT k, (SELECT w FROM u ORDER BY w DESC NULLS LAST LIMIT 1) FROM t",
    "SELECT t.k, l.x FROM t LEFT JOIN LATERAL (SELECT x FROM w ORDER BY d, x LIMIT 2 OFFSET 1) l ON true WHERE v > 1",
    "SELECT k FROM t WHERE v > (SELECT count(*) FROM u WHERE w > 1 HAVING count(*) > 2 LIMIT 1)",
    # an outer join of which no column of one side is read
    "SELECT (SELECT t.k FROM w ORDER BY 1 DESC LIMIT 1) FROM t LEFT JOIN u ON t.k < 2",
    "SELECT k, v, s FROM t ORDER BY v DESC NULLS LAST, k, s LIMIT 4",
    "SELECT k, v, s FROM t ORDER BY v, k, s LIMIT 3 OFFSET 2",
    # windows of windows, and aggregates of windows
    "SELECT k, session, count(*), max(v) FROM (SELECT k, v, sum(begins) OVER (PARTITION BY k ORDER BY v) AS session "
    "FROM (SELECT k, v, CASE WHEN v - lag(v) OVER (PARTITION BY k ORDER BY v) <= 1 THEN 0 ELSE 1 END AS begins FROM t) "
    "b) n GROUP BY k, session",
    "SELECT k, s, count(*), sum(n), min(DISTINCT v) FILTER (WHERE n > 1) FROM (SELECT k, s, v, "
    "rank() OVER (PARTITION BY k ORDER BY v) AS n FROM t) a WHERE n <= 2 GROUP BY s, k HAVING count(*) > 1",
    "SELECT s, n, sum(n) OVER (PARTITION BY s, k ORDER BY v) FROM (SELECT k, s, v, count(v) OVER (PARTITION BY k) AS n "
    "FROM t) a WHERE v IS NOT NULL",
    "SELECT k, sum(f), avg(w), max(n) FROM (SELECT k, f, w, row_number() OVER (PARTITION BY k ORDER BY w, f) AS n "
    "FROM u) a GROUP BY k",
    "SELECT * FROM (SELECT k, v, n, row_number() OVER (PARTITION BY k ORDER BY n DESC, v, s) AS m FROM (SELECT k, v, "
    "s, count(*) OVER (PARTITION BY k, s) AS n FROM t) a) b WHERE m <= 2",
    "WITH a AS (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM t) "
    "SELECT a.v, b.c FROM a JOIN (SELECT k, count(*) AS c FROM a WHERE n > 1 GROUP BY k) b ON a.k = b.k",
    # subqueries
    "SELECT k, (SELECT max(x) FROM w WHERE w.k = t.k) FROM t",
    "SELECT k FROM t WHERE v > (SELECT avg(x) FROM w)",
    "SELECT s, (SELECT count(*) + 1 FROM u WHERE u.k = t.k AND w > 0), (SELECT x FROM w WHERE w.k = t.k LIMIT 0) "
    "FROM t WHERE v >= (SELECT coalesce(min(x), 0) FROM w WHERE w.k = t.k AND t.v = w.x)",
    "SELECT t.k, l.w FROM t, LATERAL (SELECT w FROM u WHERE u.k = t.k ORDER BY w DESC NULLS LAST LIMIT 1) l",
    "SELECT s FROM t WHERE k NOT IN (SELECT a.k FROM (SELECT w, k FROM u ORDER BY w, k, f LIMIT 2) a)",
    # without columns
    "SELECT count(*) FROM t, u",
    "SELECT 1 FROM (SELECT count(*) FROM t WHERE v > 0) a, u",
    "SELECT row_number() OVER () FROM t",
    "SELECT count(*) FROM (SELECT 1 FROM t LIMIT 7) a",
    # nested
    "SELECT n, count(*) FROM (SELECT t.k, count(*) AS n FROM t JOIN u ON t.k = u.k GROUP BY t.k) a GROUP BY n",
    "WITH a AS (SELECT k, sum(v) AS n FROM t GROUP BY k) SELECT a.k, b.n FROM a LEFT JOIN a b ON a.n = b.k",
    "SELECT DISTINCT a.s FROM (SELECT s, k FROM t WHERE k IN (SELECT k FROM u)) a LEFT JOIN w ON w.k = a.k",
    "SELECT s, max(n) FROM (SELECT s, k, count(*) AS n FROM (SELECT DISTINCT * FROM t) d GROUP BY s, k) a GROUP BY s",
]


@pytest.fixture(params=["server", pytest.param("executors", marks=pytest.mark.ivm)])
def storage(request: pytest.FixtureRequest, engine: SparkEngine, tmp_path: Path) -> Iterator[Arranger]:
    """State in the server, or in files that executors probe. The files then contain later changes, too."""
    storage = Storage()
    if request.param == "server":
        yield storage
    else:
        with mock.patch.object(file_arrangement, "HEAD_BYTES_MAX", 0):
            executors = Executors(tmp_path / "runs", engine, storage, lambda: EXECUTORS)
            yield executors
            executors.close()
            executors.join()
    storage.close()


async def first_fault(
    sql: str, history: History, engine: SparkEngine, storage: Arranger, step: int, times: int = TIMES
) -> str | None:
    """Maintains a query, `step` timestamps a step. Describes the first time at which its rows are wrong, if any."""
    plan = planned(sql)
    computation = followed(plan, history, engine, storage)
    rows = await computation.hydrate(Timestamp(1))
    changes = [updates.with_diff(rows, 1)]
    for first in range(1, times + 1, step):
        taken = [Timestamp(time) for time in range(max(first, 2), min(first + step, times + 1))]
        parts = await computation.advance(taken) if taken else []
        if first == 1:
            fault = await _fault(sql, changes, history, engine, 1)
            if fault is not None:
                return fault
        for time, part in zip(taken, parts, strict=True):
            if updates.consolidate(part).num_rows != part.num_rows:
                return f"{sql} at {time}: not consolidated"
            changes.append(part)
            fault = await _fault(sql, changes, history, engine, time)
            if fault is not None:
                return fault
    return None


def _few_hashes(of: Callable[..., Any]) -> Callable[..., Any]:
    """Reduces hashes to three bits, so that unrelated keys collide."""
    return lambda rows, key: of(rows, key) & np.uint64(7 << 61)


async def _fault(sql: str, changes: list[pa.Table], history: History, engine: SparkEngine, time: int) -> str | None:
    expected = updates.consolidate(updates.with_diff(await from_scratch(planned(sql), history, engine, time), 1))
    wrong = updates.consolidate(pa.concat_tables([*changes, updates.negate(expected)]))
    if wrong.num_rows == 0:
        return None
    return f"{sql} at {time}: what was followed has, what was not followed lacks {wrong.to_pylist()[:5]}"


def _some(queries: Sequence[str]) -> Iterator[Any]:
    """Marks seven of eight queries `ivm`: `make test-ivm` runs these, CI two of them. Half of the rest is `long`."""
    for number, sql in enumerate(queries):
        marks = [pytest.mark.ivm] if number % 8 else []
        is_long = number % 16 == 8 or number % 8 in (2, 4, 5, 6, 7)
        yield pytest.param(sql, marks=[*marks, pytest.mark.long] if is_long else marks)


@pytest.mark.parametrize("sql", list(_some(QUERIES)))
def test_a_maintained_query_equals_the_query_from_scratch(
    sql: str, engine: SparkEngine, storage: Arranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, step, small_rows, skewed in ((SEED, 1, nodes.SMALL_ROWS, True), (SEED + 1, 3, 0, False)):
        monkeypatch.setattr(nodes, "SMALL_ROWS", small_rows)
        if seed != SEED and isinstance(storage, Storage):  # the patch does not reach executors
            monkeypatch.setattr(hashing, "key_hashes", _few_hashes(hashing.key_hashes))
        history = random_history(seed, TIMES, rows=24 if skewed else 12, skewed=skewed)
        fault = asyncio.run(first_fault(sql, history, engine, storage, step))
        assert fault is None, f"seed {seed}: {fault}"


PEERS = [
    "SELECT v, array_agg(s) OVER (PARTITION BY k ORDER BY v), array_agg(s) OVER (PARTITION BY k) FROM t",
    "SELECT k, s, last_value(s) OVER (ORDER BY k), first_value(v) OVER (ORDER BY k) FROM t",
    "SELECT k, string_agg(s, ',') OVER (PARTITION BY s ORDER BY k RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), "
    "first_value(v) OVER (ORDER BY k RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) FROM t",
    "SELECT v, nth_value(s, 2) OVER (PARTITION BY k ORDER BY v DESC), sum(v) OVER (PARTITION BY k ORDER BY v), "
    "array_agg(s) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN CURRENT ROW AND CURRENT ROW) FROM t",
]


@pytest.mark.parametrize("sql", PEERS)
def test_the_order_of_peers_does_not_depend_on_their_times(sql: str, engine: SparkEngine, storage: Storage) -> None:
    """The rows equal those of a new hydration. Frames have the same rows as from scratch, in any order."""

    async def follow(history: History) -> None:
        plan = planned(sql)
        computation = followed(plan, history, engine, storage)
        changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]
        for time in range(2, TIMES + 1):
            changes += await computation.advance([Timestamp(time)])
            recomputed = await followed(plan, history, engine, storage).hydrate(Timestamp(time))
            added = updates.consolidate(pa.concat_tables(changes))
            wrong = updates.consolidate(pa.concat_tables([added, updates.with_diff(recomputed, -1)]))
            assert wrong.num_rows == 0, wrong.to_pylist()[:5]
        scratch = await from_scratch(plan, history, engine, TIMES)
        assert frames(recomputed) == frames(scratch)

    def frames(rows: pa.Table) -> Counter[Any]:
        """Returns what does not depend on the order of peers: the sorted elements of each row's lists."""
        lists = [i for i, type in enumerate(rows.schema.types) if pa.types.is_list(type)]
        return Counter(tuple(str(sorted(map(str, row[f"c{i}"] or ()))) for i in lists) for row in rows.to_pylist())

    asyncio.run(follow(random_history(SEED, TIMES, rows=24, skewed=True)))


TEMPORAL = [
    "SELECT k, v FROM t WHERE mz_now() >= v AND mz_now() < k + 3",
    "SELECT s, count(*), max(v) FROM t WHERE v < mz_now() GROUP BY s",
    "SELECT t.k, w.x FROM t JOIN w ON t.k = w.k WHERE mz_now() BETWEEN t.v AND w.x + 2 AND t.s <> 'a'",
    "SELECT k FROM t WHERE mz_now() = v UNION ALL SELECT k FROM w WHERE mz_now() <= x AND k > 1",
    "SELECT * FROM (VALUES (2, 'a'), (5, 'b'), (NULL, 'c')) r(n, s) WHERE n <= mz_now()",
    "SELECT k FROM u WHERE k IN (SELECT k FROM t WHERE mz_now() > v::float8 - 0.5)",
    "SELECT 1 WHERE mz_now() >= 0 UNION ALL SELECT 2 WHERE mz_now() <= 4",
    "SELECT t.k FROM t, (SELECT WHERE mz_now() < 4) r",
]


async def first_fault_in_time(sql: str, history: History, engine: SparkEngine, storage: Arranger) -> str | None:
    """As `first_fault`, also at times at which no table changes."""
    computation = followed(planned(sql), history, engine, storage)
    changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]
    for time in range(1, TIMES + 6):
        if time > 1 and (times := computation.times(time, time + 1)):
            changes += await computation.advance(times)
        fault = await _fault(sql, changes, history, engine, time)
        if fault is not None:
            return fault
    return None


@pytest.mark.ivm
@pytest.mark.parametrize("seed", [SEED, SEED + 1])
@pytest.mark.parametrize("sql", TEMPORAL)
def test_a_temporal_filter_equals_the_query_from_scratch(
    sql: str, seed: int, engine: SparkEngine, storage: Arranger
) -> None:
    fault = asyncio.run(first_fault_in_time(sql, random_history(seed, TIMES), engine, storage))
    assert fault is None, f"seed {seed}: {fault}"


def history_of(**tables: list[list[tuple[tuple[Any, ...], int]]]) -> History:
    """Builds a history from the updates of each table at times 1, 2, ..."""
    return History(
        {
            ids()[name]: [(Timestamp(time), changes_table(name, lines)) for time, lines in enumerate(steps, 1)]
            for name, steps in tables.items()
        }
    )


def test_rows_that_never_coexist_raise_no_error(engine: SparkEngine, storage: Arranger) -> None:
    """At time 2, a row of t is inserted, and the row of u with which it would divide by zero is deleted."""
    t, u = (5, 1, "a"), (5, None, 1.0)
    history = history_of(t=[[], [(t, 1)], [(t, -1)]], u=[[(u, 1)], [(u, -1), ((6, None, 1.0), 1)], [(u, 1)]])
    for sql in ("SELECT 1 / (t.k - u.k) FROM t, u", "SELECT t.s FROM t JOIN u ON 1 / (t.k - u.k) < 5"):
        fault = asyncio.run(first_fault(sql, history, engine, storage, 1, times=3))
        assert fault is None


def test_a_failed_step_changes_no_state(engine: SparkEngine, storage: Arranger) -> None:
    """The next step covers the failed timestamps. Sums added twice or rows stored twice would change its result."""

    async def follow() -> None:
        rows = [[((1, v, "a"), 1)] for v in (3, 0, 4)]
        history = history_of(t=[*rows, [((1, 0, "a"), -1)]], u=[[((1, None, 0.0), 1)]])
        sql = "SELECT t.k, sum(v), min(12 / v), count(*) FROM t JOIN u ON t.k = u.k GROUP BY t.k"
        computation = followed(planned(sql), history, engine, storage)
        changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]
        for time in (2, 3):
            with pytest.raises(PgError, match="division by zero"):
                await computation.advance([Timestamp(time)])
        changes += await computation.advance([Timestamp(4)])
        assert await _fault(sql, changes, history, engine, 4) is None

    asyncio.run(follow())


@pytest.mark.parametrize("sql", ["SELECT DISTINCT k, s FROM t", "SELECT k, count(*) FROM t GROUP BY k"])
def test_a_thread_of_a_cancelled_step_changes_no_state(
    sql: str, engine: SparkEngine, storage: Arranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ends while the next step, which covers fewer times, has begun."""
    module = distinct if "DISTINCT" in sql else accumulable_aggregate
    entered, released, ended = threading.Event(), threading.Event(), threading.Event()

    async def in_slow_thread(work: Callable[..., Any], *arguments: Any) -> Any:
        def slow() -> Any:
            entered.set()
            assert released.wait(HANG_S)
            try:
                return work(*arguments)
            finally:
                ended.set()

        return await (asyncio.to_thread(slow) if work.__name__ == "_changes" else threads.in_thread(work, *arguments))

    async def follow() -> None:
        history = random_history(SEED, TIMES)
        computation = followed(planned(sql), history, engine, storage)
        changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]
        with monkeypatch.context() as patch:
            patch.setattr(module, "in_thread", in_slow_thread)
            step = asyncio.create_task(computation.advance([Timestamp(2), Timestamp(3), Timestamp(4)]))
            await asyncio.to_thread(entered.wait, 60)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
        released.set()
        await asyncio.to_thread(ended.wait, 60)
        for time in range(2, TIMES + 1):
            changes += await computation.advance([Timestamp(time)])
            assert await _fault(sql, changes, history, engine, time) is None

    asyncio.run(follow())


def test_state_is_rebuilt_after_a_full_disk(
    engine: SparkEngine, storage: Arranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow() -> None:
        history = history_of(t=[[((time % 3, time % 2, "a"), 1)] for time in range(1, TIMES + 1)])
        sql = "SELECT k, count(*), sum(n) FROM (SELECT k, v, count(*) AS n FROM t GROUP BY k, v) a GROUP BY k"
        computation = followed(planned(sql), history, engine, storage)
        changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]
        of = ServerArrangement if isinstance(storage, Storage) else FileArrangement
        insert = of.insert

        async def full(self: Any, changes: pa.Table, time: int) -> None:
            raise OSError(28, "No space left on device")

        for time in range(2, TIMES + 1):
            if time == 3:
                monkeypatch.setattr(of, "insert", full)
                with pytest.raises(OSError, match="No space"):
                    await computation.advance([Timestamp(time)])
                monkeypatch.setattr(of, "insert", insert)
            changes += await computation.advance([Timestamp(time)])
            assert await _fault(sql, changes, history, engine, time) is None

    asyncio.run(follow())


OVER_A_BAD_INPUT = [
    "SELECT k, v, s FROM t",
    "SELECT k FROM t WHERE v > 0",
    "SELECT k + 1 FROM t",
    "SELECT k FROM t UNION ALL SELECT 1",
    "SELECT x FROM t, unnest(ARRAY[k, v]) x",
    "SELECT t.s FROM t JOIN u ON t.k = u.k",
    "SELECT t.s, u.k FROM t LEFT JOIN u ON t.k = u.k",
    "SELECT k FROM u WHERE k IN (SELECT k FROM t)",
    "SELECT k, count(*) FROM t GROUP BY k",
    "SELECT sum(v) FROM t",
    "SELECT k, max(v) FROM t GROUP BY k",
    "SELECT DISTINCT k FROM t",
    "SELECT k FROM t EXCEPT ALL SELECT k FROM u",
    "SELECT k, rank() OVER (ORDER BY v) FROM t",
    "SELECT k, v FROM t ORDER BY v LIMIT 2",
    "SELECT k FROM t WHERE mz_now() > v::float8 - 5",
]


@pytest.mark.parametrize("other", [None, (1, 2, "b")], ids=["alone", "in a group with positive sums"])
@pytest.mark.parametrize("sql", OVER_A_BAD_INPUT)
def test_a_negative_multiplicity_is_an_error_at_its_time(
    sql: str, other: tuple[Any, ...] | None, engine: SparkEngine, storage: Arranger
) -> None:
    """The multiplicity of a row is -1 at time 2, and 2 at time 3."""

    async def follow() -> None:
        row = (1, 2, "a")
        others = [] if other is None else [(other, 3)]  # keeps the number of rows in the group positive
        history = history_of(
            t=[[(row, 1), *others], [(row, -2)], [(row, 3)]], u=[[((1, None, 0.0), 1), ((2, None, 0.0), 1)]]
        )
        computation = followed(planned(sql), history, engine, storage)
        changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]
        for times in ([2], [2, 3]):
            if len(times) <= computation._times_max:
                with pytest.raises(updates.NegativeCount) as raised:
                    await computation.advance([Timestamp(time) for time in times])
                error = to_pg_error(raised.value)
                assert (error.sqlstate, error.message) == ("22000", "the count of a row is negative")
        changes += await computation.advance([Timestamp(3)])
        assert await _fault(sql, changes, history, engine, 3) is None

    asyncio.run(follow())


def test_steps_with_many_changes_recompute_all_rows(
    engine: SparkEngine, storage: Arranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(seed: int) -> int:
        history = random_history(seed, TIMES)
        sql = "SELECT t.s, count(*), sum(u.w) FROM t LEFT JOIN u ON t.k = u.k GROUP BY t.s"
        computation = followed(planned(sql), history, engine, storage)
        changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]

        async def present() -> pa.Table:
            return updates.expand(updates.consolidate(pa.concat_tables(changes)))

        recomputed = 0
        for time in range(2, TIMES + 1):
            changes += await computation.advance([Timestamp(time)], present)
            recomputed += not computation.arrangements
            assert await _fault(sql, changes, history, engine, time) is None
        return recomputed

    monkeypatch.setattr(step_cost, "FEW_ROWS", 12)
    recomputed = [asyncio.run(follow(seed)) for seed in range(SEED, SEED + 3)]
    assert any(0 < count < TIMES - 1 for count in recomputed), recomputed


def test_a_step_takes_many_small_timestamps_and_few_large_ones(
    engine: SparkEngine, storage: Arranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental, "ROWS_MAX", 40)
    monkeypatch.setattr(incremental, "TIMES_MAX", 8)
    sizes = (1, *[1] * 20, 15, 15, 15, 50, 1)
    history = history_of(t=[[((number, number, "a"), 1) for number in range(size)] for size in sizes])
    computation = followed(planned("SELECT k, count(*) FROM t GROUP BY k"), history, engine, storage)
    assert asyncio.run(_taken(computation, len(sizes) + 1)) == [8, 8, 4, 2, 1, 1, 1]


async def _taken(computation: Computation, upper: int) -> list[int]:
    """The numbers of timestamps of the steps from time 2 on."""
    await computation.hydrate(Timestamp(1))
    lower, taken = 2, []
    while times := computation.times(lower, upper):
        await computation.advance(times)
        taken.append(len(times))
        lower = times[-1] + 1
    return taken


def test_too_expensive_steps_are_detected_before_rows_are_read(
    engine: SparkEngine, storage: Arranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At time 2 all rows change, and the log knows their number. At time 4 few rows change whose keys have all rows.

    At time 3 one row changes, after the state was restored.
    """
    sql = "SELECT t.s, u.w FROM t JOIN u ON t.k = u.k"
    read: list[str] = []

    async def follow() -> None:
        many = [((number % 7, number, "a"), 1) for number in range(300)]
        large = [((7, number, "a"), 1) for number in range(300)]
        replaced = [((7, number, "b"), 1) for number in range(300)]
        of_u = [((number, None, 0.0), 1) for number in range(8)]
        history = history_of(
            t=[[*many, *large], [*_negated(many), *_negated(large), *replaced], [((1, 1, "b"), 1)], []],
            u=[of_u, [], [], [*_negated(of_u), *(((number, 1, 0.0), 1) for number in range(8))]],
        )
        changes_of = history.changes

        async def changes_read(id: ObjectId, lower: int, upper: int) -> pa.Table:
            read.append("changes")
            return await changes_of(id, lower, upper)

        computation = followed(planned(sql), history, engine, storage)
        changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]
        probed = computation.arrangements[0][1].__class__.probe

        async def probe(self: Any, codes: Any, as_of: int) -> pa.Table:
            read.append("rows")
            return await probed(self, codes, as_of)

        monkeypatch.setattr(history, "rows", _rows_from(history, changes_of))
        monkeypatch.setattr(history, "changes", changes_read)
        monkeypatch.setattr(computation.arrangements[0][1].__class__, "probe", probe)

        async def present() -> pa.Table:
            return updates.expand(updates.consolidate(pa.concat_tables(changes)))

        def failed(error: Exception) -> None:
            raise error

        for time, has_state in ((2, False), (3, True), (4, False)):
            computation.restore_state(lambda: nullcontext(mock.Mock(time=Timestamp(2))), failed)
            async with asyncio.timeout(HANG_S):
                while not computation.has_state:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            read.clear()
            changes += await computation.advance([Timestamp(time)], present)
            assert computation.has_state == has_state
            # For files, the number is known only after reading.
            assert time == 3 or "rows" not in read or not isinstance(storage, Storage)
            assert time != 2 or not read, read
            assert await _fault(sql, changes, history, engine, time) is None

    monkeypatch.setattr(step_cost, "FEW_ROWS", 12)
    asyncio.run(follow())


def _negated(changes: list[tuple[tuple[Any, ...], int]]) -> list[tuple[tuple[Any, ...], int]]:
    return [(row, -diff) for row, diff in changes]


def _rows_from(history: History, changes_of: Callable[..., Any]) -> Callable[..., Any]:
    async def rows(id: ObjectId, as_of: Timestamp) -> pa.Table:
        return updates.expand(await changes_of(id, 0, as_of + 1))

    return rows


# -- planted errors are detected -------------------------------------------------------------------------------------


def _text(of: type[nodes.Node], old: str, new: str, name: str = "sql") -> Planted:
    def plant(node: nodes.Node, patch: pytest.MonkeyPatch) -> None:
        if isinstance(node, of):
            sql = getattr(node, name).small
            assert old in sql, sql
            object.__setattr__(node, name, nodes.Statement(sql.replace(old, new), ""))

    return plant


def _field(of: type[nodes.Node], name: str, change: Callable[[Any], Any]) -> Planted:
    def plant(node: nodes.Node, patch: pytest.MonkeyPatch) -> None:
        if isinstance(node, of):
            object.__setattr__(node, name, change(getattr(node, name)))

    return plant


def _code(of: Any, name: str, change: Callable[[Any], Any]) -> Planted:
    def plant(node: nodes.Node, patch: pytest.MonkeyPatch) -> None:
        if not getattr(getattr(of, name), "planted", False):
            changed = change(getattr(of, name))
            changed.planted = True
            patch.setattr(of, name, changed)

    return plant


def _last_only(versioned: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    return lambda changes, version: versioned(changes.slice(0, 0), version)


def _no_inserts(inserts: Callable[..., Any]) -> Callable[..., Any]:
    async def changed(*_: Any) -> list[Any]:
        return []

    return changed


def _first_input(union: Callable[..., Any]) -> Callable[..., Any]:
    return lambda codes: union(codes[:1])


def _each_copy(totals: Callable[..., Any]) -> Callable[..., Any]:
    def changed(*arguments: Any) -> Any:
        found = totals(*arguments)
        found.before = np.zeros_like(found.before)
        return found

    return changed


def _first_version(touched: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: touched(*arguments)[:1]


def _unsorted_gone(before: Callable[..., Any]) -> Callable[..., Any]:
    async def changed(self: Any, step: Any, number: int, codes: Any, changes: Any) -> pa.Table:
        return await before(self, step, number, codes, changes.slice(0, 0))

    return changed


def _nothing_gone(first: Callable[..., Any]) -> Callable[..., Any]:
    async def changed(self: Any, of: Any, key: Any, codes: Any, changes: Any, step: Any) -> pa.Table:
        return await first(self, of, key, codes, changes.slice(0, 0), step)

    return changed


def _nothing_first(first: Callable[..., Any]) -> Callable[..., Any]:
    async def changed(*arguments: Any) -> pa.Table:
        return (await first(*arguments)).slice(0, 0)

    return changed


def _needed_rows(*rows: nodes.Rows) -> Planted:
    return _field(nodes.Recompute, "needed_rows", lambda needed: rows if len(needed) == len(rows) else needed)


def _whatever_flips(alone: Callable[..., Any]) -> Callable[..., Any]:
    return lambda step, codes, number, needed, present: alone(
        step, codes, number, nodes.Rows.CHANGED if isinstance(needed, nodes.DistinctRows) else needed, present
    )


def _nothing_shown(rows: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    return lambda changes, needed: rows(changes, nodes.Rows.CHANGED)


def _nothing_before(rows: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    return lambda changes, needed: rows(changes, needed).slice(0, 0)


def _of_first_member(by_member: Callable[..., Any]) -> Callable[..., Any]:
    def changed(changes: pa.Table, subsets: int) -> Any:
        rows, members = by_member(changes, subsets)
        return rows, members * 0

    return changed


SUBSETS = "SELECT k, count(DISTINCT v), count(DISTINCT v) FILTER (WHERE s = 'a') FROM t GROUP BY k"
JOINED = "SELECT t.s, u.w FROM t JOIN u ON t.k = u.k"
PLANTED: list[tuple[str, Planted, str]] = [
    ("join does not read its state", _code(join, "versioned", _last_only), JOINED),
    ("join stores no changes", _code(operator.ArrangedInput, "inserts", _no_inserts), JOINED),
    ("join pair at the earlier time", _text(nodes.InnerJoin, "greatest(", "least("), JOINED),
    ("join uses the diff of one side", _text(nodes.InnerJoin, " * ", " + 0 * "), JOINED),
    ("sum ignores diffs", _text(nodes.AccumulableAggregate, " * x", " + 0 * x"),
     "SELECT k, sum(v) FROM t GROUP BY k"),
    ("sum of one version ignores diffs", _text(nodes.AccumulableAggregate, " * x", " + 0 * x", "one_version_sql"),
     "SELECT k, sum(v) FROM t GROUP BY k"),
    ("count counts NULLs", _text(nodes.AccumulableAggregate, "IS NOT NULL", "IS NULL"),
     "SELECT k, count(v) FROM t GROUP BY k"),
    ("count of one version counts NULLs",
     _text(nodes.AccumulableAggregate, "IS NOT NULL", "IS NULL", "one_version_sql"),
     "SELECT k, count(v) FROM t GROUP BY k"),
    ("rows before a version are not retracted",
     _text(nodes.AccumulableAggregate, "= 0L, 1L", "= 1L, 1L", "one_version_sql"),
     "SELECT k, count(v) FROM t GROUP BY k"),
    ("hydration counts NULLs", _field(nodes.AccumulableAggregate, "hydration_sql", lambda sql: nodes.Statement(
        sql.small.replace("IS NOT NULL", "IS NULL"), "")), "SELECT k, count(v) FROM t GROUP BY k"),
    ("hydration computes max for min", _field(nodes.AccumulableAggregate, "hydration_sql", lambda sql: nodes.Statement(
        sql.small.replace("min(", "max("), "")), "SELECT k, min(v) FROM t GROUP BY k"),
    ("groups stay", _text(nodes.AccumulableAggregate, "<> 0L)", "<> -1L)"), "SELECT k, count(*) FROM t GROUP BY k"),
    ("groups of one version stay", _text(nodes.AccumulableAggregate, "<> 0L)", "<> -1L)", "one_version_sql"),
     "SELECT k, count(*) FROM t GROUP BY k"),
    ("left join uses keys of one side", _code(recompute, "_all", _first_input),
     "SELECT t.k, u.w FROM t LEFT JOIN u ON t.k = u.k"),
    ("distinct values do not read their state", _code(distinct_values, "old_rows", lambda old: lambda a, codes, step:
        old(a, codes[:0], step)), SUBSETS),
    ("distinct values of subsets are counted together", _code(accumulable_aggregate, "_by_member", _of_first_member),
     SUBSETS),
    ("distinct does not read its state", _code(distinct, "old_rows", lambda old: lambda a, codes, step: old(
        a, codes[:0], step)), "SELECT DISTINCT k FROM t"),
    ("left join reads changed rows only", _needed_rows(nodes.Rows.CHANGED, nodes.Rows.CHANGED),
     "SELECT t.k, u.w FROM t LEFT JOIN u ON t.k = u.k"),
    ("left join with condition reads changed rows only", _needed_rows(nodes.Rows.CHANGED, nodes.Rows.CHANGED),
     "SELECT t.k, u.w FROM t LEFT JOIN u ON t.k = u.k AND u.w > t.v"),
    ("full join ignores appearing keys", _code(recompute, "_alone", _whatever_flips),
     "SELECT t.k, u.w FROM t FULL JOIN u ON t.k = u.k"),
    ("right join loses present keys", _code(recompute, "_rows_that_changed", _nothing_shown),
     "SELECT t.k, u.w FROM t RIGHT JOIN u ON t.k = u.k"),
    ("anti join loses retracted rows", _code(recompute, "_rows_that_changed", _nothing_before),
     "SELECT t.k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)"),
    ("sum of no rows has no row", _field(nodes.Recompute, "marked", lambda _: False),
     "SELECT sum(f) FROM u WHERE f > 9"),
    ("top-k ignores retractions", _code(recompute.RecomputeOperator, "_before", _unsorted_gone),
     "SELECT k, v, s FROM t ORDER BY v, k, s LIMIT 3"),
    ("top-k by key ignores retractions", _code(operator.ArrangedInput, "first", _nothing_gone),
     "SELECT k, min(v) FROM t GROUP BY k"),
    ("top-k reads no old rows", _code(operator.ArrangedInput, "first", _nothing_first),
     "SELECT DISTINCT ON (k) k, v FROM t ORDER BY k, v DESC"),
    ("max reads the wrong end", _field(nodes.AccumulableAggregate, "top_rows", lambda top_rows: tuple(
        (rows, dataclasses.replace(top_k, descending=not top_k.descending)) for rows, top_k in top_rows)),
     "SELECT b.k % 2, max(a.v * 20 + b.v * 5 + b.k) FROM t a, t b GROUP BY b.k % 2"),
    ("top-k reads too few rows", _field(nodes.Recompute, "top_k", lambda top_k: dataclasses.replace(top_k, count=1)),
     "SELECT * FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM t) a WHERE n <= 3"),
    ("a branch's changes go to all", _text(nodes.AccumulableAggregate, "= 1L", ">= 0L"),
     "SELECT k, sum(DISTINCT v), sum(v) FROM t GROUP BY k"),
    ("retractions are insertions", _code(distinct, "RunningTotals", lambda old: lambda rows, versions, diffs: old(
        rows, versions, np.abs(diffs))), "SELECT DISTINCT k FROM t"),
    ("rows change in the first version", _code(distinct, "RunningTotals", lambda old: lambda rows, versions, diffs: old(
        rows, np.minimum(versions, 1), diffs)), "SELECT DISTINCT k FROM t"),
    ("later versions are lost", _code(recompute, "touched_keys", _first_version),
     "SELECT t.k, u.w FROM t LEFT JOIN u ON t.k = u.k"),
    ("later versions of max are lost", _code(accumulable_aggregate, "touched_keys", _first_version),
     "SELECT k, max(v) FROM t GROUP BY k"),
    ("versions of sums are not added", _text(nodes.AccumulableAggregate, "UNBOUNDED PRECEDING", "CURRENT ROW"),
     "SELECT k, sum(v) FROM t GROUP BY k"),
    ("sums are retracted too late", _text(nodes.AccumulableAggregate, "lead(", "1 + lead("),
     "SELECT k, sum(v) FROM t GROUP BY k"),
    ("union lacks a branch", _field(nodes.Concat, "branches", lambda branches: branches[:1]),
     "SELECT k FROM t UNION ALL SELECT k FROM u"),
    ("filter is always true", _text(nodes.Linear, "WHERE", "WHERE true OR"), "SELECT k + 1 FROM t WHERE v > 0"),
    ("window ignores partitions", _text(nodes.Recompute, "PARTITION BY", "PARTITION BY true OR"),
     "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, s) FROM t"),
    ("left join is an inner join", _text(nodes.Recompute, "LEFT JOIN", "INNER JOIN"),
     "SELECT t.k, u.w FROM t LEFT JOIN u ON t.k = u.k"),
    ("full join is a left join", _text(nodes.Recompute, "FULL JOIN", "LEFT JOIN"),
     "SELECT t.k, u.w FROM t FULL JOIN u ON t.k = u.k"),
    ("semi join is an anti join", _text(nodes.Recompute, "LEFT SEMI", "LEFT ANTI"),
     "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)"),
    ("anti join uses keys of one side", _code(recompute, "_all", _first_input),
     "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)"),
    ("NOT IN mistakes NULLs", _text(nodes.InnerJoin, "IS NOT NULL) OR", "IS NOT NULL) AND"),
     "SELECT * FROM t WHERE v NOT IN (SELECT x FROM w WHERE k > 2)"),
    ("count distinct counts copies", _code(distinct, "RunningTotals", _each_copy),
     "SELECT k, count(DISTINCT s) FROM t GROUP BY k"),
    ("FILTER is always true", _text(nodes.Linear, "CASE WHEN", "CASE WHEN true OR"),
     "SELECT k, max(v) FILTER (WHERE s = 'a') FROM t GROUP BY k"),
    ("a grouping set is missing", _field(nodes.Concat, "branches", lambda branches: branches[1:]),
     "SELECT k, s, count(*) FROM t GROUP BY GROUPING SETS ((k), (s), ())"),
    ("distinct on returns second rows", _text(nodes.Recompute, "rank = 1", "rank = 2"),
     "SELECT DISTINCT ON (k) k, v, s FROM t ORDER BY k, v DESC, s"),
    ("INTERSECT is UNION", _text(nodes.Recompute, "INTERSECT", "UNION"),
     "SELECT k FROM t INTERSECT SELECT k FROM u"),
    ("EXCEPT uses keys of one side", _code(recompute, "_all", _first_input),
     "SELECT k FROM t EXCEPT SELECT k FROM u"),
    ("EXCEPT ALL ignores copies", _text(nodes.Recompute, "EXCEPT ALL", "EXCEPT"),
     "SELECT k FROM t EXCEPT ALL SELECT x FROM w"),
    ("unnest returns one element", _text(nodes.Linear, "posexplode(k0)", "posexplode(slice(k0, 1, 1))"),
     "SELECT k, x FROM t, unnest(ARRAY[k, v]) x WHERE s <> ''"),
    ("top-k with an offset is top-1", _field(nodes.Recompute, "top_k", lambda top_k: top_k and replace(top_k, count=1)),
     "SELECT k, v, s FROM t ORDER BY v, k, s LIMIT 3 OFFSET 2"),
]  # fmt: skip

TEMPORAL_PLANTED: list[tuple[str, Planted]] = [
    (
        "upper bound of time is ignored",
        _text(nodes.Temporal, "least(9223372036854775807L, ", "greatest(9223372036854775807L, "),
    ),
    ("lower bound of time is ignored", _text(nodes.Temporal, "greatest(0L, ", "least(0L, ")),
    ("temporal buffer stores nothing", _code(TemporalBuffer, "insert", lambda _: lambda self, changes, times: None)),
]


PLANTED += [(name, planted, TEMPORAL[0]) for name, planted in TEMPORAL_PLANTED]


@pytest.mark.ivm
@pytest.mark.parametrize(("planted", "sql"), [p[1:] for p in PLANTED], ids=[p[0] for p in PLANTED])
def test_an_error_planted_in_a_rule_is_detected(
    planted: Planted, sql: str, engine: SparkEngine, storage: Arranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of = histories.delta_plan

    def wrong(*arguments: Any) -> nodes.Node:
        root = plan_of(*arguments)
        for node in nodes.nodes_of(root):
            planted(node, monkeypatch)
        return root

    monkeypatch.setattr(histories, "delta_plan", wrong)

    async def faults() -> bool:
        for seed, step in itertools.product(range(SEED, SEED + 4), (3, 1)):
            history = random_history(seed, TIMES)
            try:
                if sql in TEMPORAL:
                    fault = await first_fault_in_time(sql, history, engine, storage)
                else:
                    fault = await first_fault(sql, history, engine, storage, step)
            except (PgError, updates.NegativeCount, pa.ArrowException):
                return True
            if fault is not None:
                return True
        return False

    assert asyncio.run(faults())
