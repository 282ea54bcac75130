"""Evaluation of constants and of queries over system catalogs: in which process it happens, its limits and its end."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.evaluation.evaluator import WORKERS_MAX, Evaluator
from server.pg_catalog.engine import CatalogEngine, Undescribed
from server.pg_catalog.rows import no_rows
from server.sql.constant import Bindings, Constant, NotCheap, compiled
from server.sql.functions.table import TABLES
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, plan_query
from server.workers import pool
from server.workers.fork_server import ForkServer
from server.workers.messages import REQUEST, Call, framed
from server.workers.worker import Serve
from tests.polling import HANG_S
from tests.server.states import empty_state

pytestmark = pytest.mark.slow

CONTEXT = PlanContext(empty_state(), "materialize", ("public",), "materialize")


def constant(text: str) -> Constant:
    planned = plan_query(parse_query(text), CONTEXT, None)
    assert planned.constant is not None
    return planned.constant


def expensive(text: str = "SELECT repeat('a', 3)") -> Constant:
    made = constant(text)
    assert not made.is_cheap
    return made


async def evaluated(text: str, bindings: Bindings | None = None) -> list[dict[str, Any]]:
    evaluator = Evaluator()
    try:
        return (await evaluator.evaluate(constant(text), bindings or Bindings())).to_pylist()
    finally:
        await evaluator.close()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT 1 + 2, 'a' || 'b', 7 / 2.0, date '2020-01-01' + 1",
        "SELECT now(), current_user, current_setting('TimeZone')",
        "SELECT upper('a'), length('abc'), '12'::int, array[1, 2]",
        "VALUES (1, 'x'), (2, 'y')",
    ],
)
def test_cheap_constants_are_evaluated_on_the_event_loop(text: str) -> None:
    assert constant(text).is_cheap


@pytest.mark.parametrize(
    "text",
    [
        "SELECT repeat('a', 2)",
        "SELECT 'aab' ~ '^(a+)+$'",
        "SELECT 'aab' SIMILAR TO '(a+)+'",
        "SELECT regexp_replace('aab', '(a*)*b', 'x')",
        "SELECT string_to_array('a,b', ',')",
        "SELECT to_char(1, '9')",
        "SELECT array_fill(1, array[2])",
        "SELECT replace('aaa', 'a', 'bbb')",
        "SELECT lpad('a', 3), rpad('b', 4)",
        "SELECT ''::char(10000000)",
        "SELECT 2::numeric ^ 100::numeric",
        "SELECT pg_cancel_backend(1 + 1)",  # a second call would send a second signal
    ],
)
def test_potentially_expensive_constants_are_not_evaluated_on_the_event_loop(text: str) -> None:
    with pytest.raises(NotCheap):
        constant(text).evaluate(Bindings())


@pytest.mark.parametrize("text", ["SELECT $1::text || 'x'", "SELECT upper($1::text)", "SELECT $1::text::int[]"])
def test_long_values_make_a_cheap_constant_expensive(text: str) -> None:
    made = plan_query(parse_query(text), CONTEXT, [None]).constant
    assert made is not None
    assert made.is_cheap
    with pytest.raises(NotCheap):
        made.evaluate(Bindings(("x" * 5_000,)))


async def test_a_worker_returns_the_same_rows_as_the_event_loop() -> None:
    texts = [
        "SELECT repeat('ab', 3), lpad('x', 3, '-'), 'aab' ~ '^a+b$'",
        "SELECT string_to_array('1,2,', ','), to_char(1234.5, '9,999.99')",
        "SELECT interval '1 day 2 hours' * length(repeat('x', 3)), date '2020-02-29' + length(repeat('x', 1))",
        "SELECT regexp_match('foobar', '(o+)(b)'), null::int + length(repeat('x', 3))",
        "SELECT (array[1, 2, 3])[length(repeat('x', 2))]",
    ]
    evaluator = Evaluator()
    try:
        for text in texts:
            made = expensive(text)
            unbounded = compiled(made.relation, bounded=False)
            assert unbounded is not None
            assert (await evaluator.evaluate(made, Bindings())).to_batches()[0].equals(unbounded.evaluate(Bindings()))
    finally:
        await evaluator.close()


def test_every_function_can_be_sent_to_a_worker() -> None:
    for table in TABLES.values():
        for rows in table.values():
            for function in rows:
                assert pickle.loads(pickle.dumps(function)) is function


async def test_a_worker_calls_the_server_for_functions_of_the_session() -> None:
    calls: list[tuple[str, Any]] = []

    def call(function: str, argument: Any) -> bool:
        calls.append((function, argument))
        return True

    bindings = Bindings(signal=call, privilege_function=call, settings={"TimeZone": "Mars/Olympus"})
    rows = await evaluated(
        "SELECT pg_cancel_backend(length(repeat('x', 3))), has_schema_privilege(repeat('public', 1), 'usage'), "
        "current_setting(repeat('timezone', 1))",
        bindings,
    )
    assert list(rows[0].values()) == [True, True, "Mars/Olympus"]
    assert calls == [("pg_cancel_backend", 3), ("has_schema_privilege", ["public", "usage"])]


async def test_a_worker_returns_sqlstate_and_message_of_an_error() -> None:
    with pytest.raises(PgError) as caught:
        await evaluated("SELECT 'a' ~ repeat('(', 1)")
    assert caught.value.sqlstate == SqlState.INVALID_REGULAR_EXPRESSION
    assert caught.value.message == "invalid regular expression: parentheses () not balanced"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT length(repeat('x', 1000000000))",
        "SELECT md5(repeat('x', 400000000))",
        "SELECT array_length(array_fill(1, array[100000000]), 1)",
        "SELECT length(replace(repeat('a', 10000000), 'a', repeat('b', 100)))",
        "SELECT repeat('x', 100000000)",  # the result is larger than a worker may return
    ],
)
async def test_an_expression_that_needs_too_much_memory_is_53200(text: str) -> None:
    with pytest.raises(PgError) as caught:
        await evaluated(text)
    assert caught.value.sqlstate == SqlState.OUT_OF_MEMORY


def large_answers() -> Serve:
    """A service of workers that answers each request with so many bytes."""

    def serve(request: bytes, call: Call) -> bytes:
        return bytes(int(request))

    return serve


async def test_an_answer_of_which_memory_holds_no_second_copy_is_53200() -> None:
    workers = pool.WorkerPool("tests.server.evaluation.test_evaluation:large_answers", 1, memory_bytes=256 << 20)
    try:
        with pytest.raises(PgError) as caught:
            await workers.run(framed(REQUEST, b"150000000"))
    finally:
        await workers.close()
    assert caught.value.sqlstate == SqlState.OUT_OF_MEMORY


async def test_after_a_cancelled_close_the_processes_still_end() -> None:
    """Even if no thread was free to wait for them. Otherwise a process would remain, at least as a zombie."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    workers = pool.WorkerPool("tests.server.evaluation.test_evaluation:large_answers", 1)
    await workers.run(framed(REQUEST, b"1"))
    (worker,) = [child for child in psutil.Process().children(recursive=True) if child.name() == "test_evaluation"]
    release = threading.Event()
    occupied = asyncio.create_task(asyncio.to_thread(release.wait))
    closing = asyncio.create_task(workers.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    release.set()
    await workers.close()
    assert not worker.is_running()
    assert await workers.run(framed(REQUEST, b"2")) == bytes(2)
    await workers.close()
    await occupied


class Slow:
    """An object whose unpickling writes the worker's process id and then blocks the worker."""

    def __init__(self, directory: Path) -> None:
        self._fifo = directory / "pid"
        os.mkfifo(self._fifo)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _occupy, (str(self._fifo),)

    async def worker(self) -> int:
        """Returns the worker's process id when the worker is blocked."""
        return int(await asyncio.to_thread(self._fifo.read_text))


def _occupy(fifo: str) -> None:
    Path(fifo).write_text(str(os.getpid()))
    signal.pause()


def _await_end(pid: int) -> None:
    """Waits until the process does not exist."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return


async def test_cancelling_an_evaluation_ends_its_worker_and_no_other(tmp_path: Path) -> None:
    evaluator = Evaluator()
    try:
        slow = Slow(tmp_path)
        task = asyncio.create_task(evaluator.evaluate(expensive(), Bindings((slow,))))
        pid = await slow.worker()
        assert (await evaluator.evaluate(expensive(), Bindings())).to_pylist() == [{"c0": "aaa"}]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(asyncio.to_thread(_await_end, pid), HANG_S)
        assert (await evaluator.evaluate(expensive(), Bindings())).to_pylist() == [{"c0": "aaa"}]
    finally:
        await evaluator.close()


async def test_an_evaluation_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "REQUEST_S_MAX", 1.0)
    evaluator = Evaluator()
    try:
        with pytest.raises(PgError) as caught:
            await evaluator.evaluate(expensive(), Bindings((Slow(tmp_path),)))
        assert caught.value.sqlstate == SqlState.PROGRAM_LIMIT_EXCEEDED
    finally:
        await evaluator.close()


@pytest.mark.long
async def test_evaluations_that_take_long_make_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "REQUEST_S_MAX", 600.0)
    evaluator = Evaluator()
    directories = [tmp_path / str(number) for number in range(WORKERS_MAX + 2)]
    for directory in directories:
        directory.mkdir()
    slow = [Slow(directory) for directory in directories]
    tasks = [asyncio.create_task(evaluator.evaluate(expensive(), Bindings((each,)))) for each in slow]
    try:
        for _ in range(3):
            assert (await evaluator.evaluate(expensive(), Bindings())).to_pylist() == [{"c0": "aaa"}]
        assert [task for task in tasks if task.done()] == [], "they run again, or wait for it"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await evaluator.close()


async def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    evaluator = Evaluator()
    try:
        slow = Slow(tmp_path)
        task = asyncio.create_task(evaluator.evaluate(expensive(), Bindings((slow,))))
        os.kill(await slow.worker(), signal.SIGKILL)
        with pytest.raises(PgError) as caught:
            await task
        assert caught.value.sqlstate == SqlState.OUT_OF_MEMORY
        assert (await evaluator.evaluate(expensive(), Bindings())).to_pylist() == [{"c0": "aaa"}]
    finally:
        await evaluator.close()


async def test_many_literal_rows_need_no_worker() -> None:
    rows = await evaluated("VALUES " + ", ".join(f"({i}, 'x')" for i in range(10_000)))
    assert rows[0] == {"c0": 0, "c1": "x"}
    assert rows[-1] == {"c0": 9_999, "c1": "x"}
    assert len(rows) == 10_000


# -- system catalogs ------------------------------------------------------------------------------------------------


async def test_the_columns_of_a_system_catalog_query_are_known_after_describe() -> None:
    engine = CatalogEngine(no_rows)
    try:
        sql = 'SELECT relname, 1 AS one FROM pg."pg_class"'
        with pytest.raises(Undescribed):
            engine.columns(sql)
        await engine.describe(sql)
        assert engine.columns(sql) == [("relname", "VARCHAR"), ("one", "INTEGER")]
    finally:
        await engine.close()


async def test_a_query_over_system_catalogs_that_needs_much_memory_writes_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # DuckDB would write them here
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    fork_server = ForkServer()
    monkeypatch.setattr(pool, "FORK_SERVER", fork_server)
    engine = CatalogEngine(no_rows)
    try:
        with pytest.raises(PgError) as caught:
            await engine.run("SELECT list(i) FROM range(100000000) AS t (i) GROUP BY i % 1000000", 1, no_rows, {})
        assert caught.value.sqlstate == SqlState.OUT_OF_MEMORY
        (worker,) = [child for child in psutil.Process().children(recursive=True) if child.cwd() == str(tmp_path)][1:]
        assert worker.name() == "pg_catalog"
        assert os.listdir(tmp_path) == []
    finally:
        await engine.close()
        fork_server.close()


async def test_rows_of_system_catalogs_are_sent_once_for_each_revision() -> None:
    engine = CatalogEngine(no_rows)
    asked: list[str] = []

    def rows(schema: str, name: str) -> pa.Table:
        asked.append(name)
        return no_rows(schema, name)

    try:
        for revision in (1, 1, 2):
            found = await engine.run("SELECT count(*) AS n FROM pg.pg_namespace", revision, rows, {})
            assert found.to_pylist() == [{"n": 0}]
        assert asked.count("pg_namespace") == 2
    finally:
        await engine.close()


@pytest.mark.parametrize(
    "sql", ["SELECT length(repeat('x', 1000000000)) AS n", "SELECT * FROM unnest(range(200000000))"]
)
async def test_describing_a_query_over_system_catalogs_has_a_memory_limit(sql: str) -> None:
    engine = CatalogEngine(no_rows)
    try:
        with pytest.raises(PgError) as caught:
            await engine.describe(sql)
            await engine.run(sql, 1, no_rows, {})
        assert caught.value.sqlstate == SqlState.OUT_OF_MEMORY
    finally:
        await engine.close()
