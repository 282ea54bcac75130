"""A statement that is repeated over other small tables is planned once and gives the rows of a newly planned one."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.arrangements.run_files import answered
from server.runtime.trace import recorded, step
from server.spark.engine import SparkEngine
from tests.fix_spark import MEMORY_MB
from tests.server.spark.test_engine import every_type, until

pytestmark = pytest.mark.cluster("embedded", "local-cluster")

Views = Mapping[str, pa.Table]
QUERIES = [
    "SELECT c0 + 1 AS a, upper(c2) AS b, c3 / 2 AS c FROM {l} WHERE c1 <> 3 AND c2 LIKE '%1%'",
    "SELECT c1, sum(c0) AS s, min(c2) AS lo, max(c3) AS hi, avg(c0) AS mean, count(DISTINCT c2) AS d "
    "FROM (SELECT /*+ COALESCE(1) */ * FROM {l}) GROUP BY c1",
    "SELECT sum(c0) AS s, count(*) AS n FROM {l}",
    "SELECT c1, sort_array(collect_list(c2)) AS a, percentile(c0, 0.5) AS p FROM {l} GROUP BY c1",
    "SELECT /*+ SHUFFLE_HASH(r) */ l.c0, r.c2 FROM {l} l JOIN {r} r ON l.c1 = r.c1",
    "SELECT /*+ SHUFFLE_HASH(r) */ l.c0, r.c2 FROM {l} l LEFT JOIN {r} r ON l.c0 = r.c0 AND r.c1 > 1",
    "SELECT /*+ SHUFFLE_HASH(r) */ l.c0, r.c0 AS x FROM {l} l FULL JOIN {r} r ON l.c0 = r.c0",
    "SELECT l.c0 FROM {l} l LEFT SEMI JOIN {r} r ON l.c0 = r.c0",
    "SELECT l.c0 FROM {l} l LEFT ANTI JOIN {r} r ON l.c0 = r.c0",
    "SELECT a.c0, b.c0 AS x FROM {l} a JOIN {l} b ON a.c1 = b.c1 AND a.c0 < b.c0",
    "SELECT l.c0, r.c1 FROM {l} l CROSS JOIN {r} r WHERE l.c0 + r.c0 > 10",
    "SELECT c0, row_number() OVER (PARTITION BY c1 ORDER BY c0, c2, c3) AS n, sum(c0) OVER (PARTITION BY c1) AS s "
    "FROM {l}",
    "SELECT c1, c0, c2, c3 FROM {l} ORDER BY c0 DESC NULLS LAST, c1, c2, c3 LIMIT 7",
    "SELECT DISTINCT c1 FROM {l} UNION ALL SELECT c0 FROM {r}",
    "SELECT c0, x FROM {l} LATERAL VIEW explode(sequence(0, c1)) e AS x",
]
ELSEWHERE = [  # their plans need more than one task: a shuffle, a broadcast or a subquery
    "SELECT c1, c2, count(*) AS n FROM {l} GROUP BY GROUPING SETS ((c1), (c2), ())",
    "SELECT l.c0, r.c1 FROM {l} l LEFT JOIN {r} r ON l.c0 < r.c0",
    "SELECT c0, (SELECT max(c0) FROM {r}) AS m FROM {l}",
]


def table(rng: random.Random, rows: int) -> pa.Table:
    def maybe(value: object) -> object:
        return None if rng.random() < 0.1 else value

    columns = [
        pa.array([maybe(rng.randrange(20)) for _ in range(rows)], pa.int64()),
        pa.array([maybe(rng.randrange(5)) for _ in range(rows)], pa.int32()),
        pa.array([maybe(f"s{rng.randrange(12)}") for _ in range(rows)], pa.string()),
        pa.array([maybe(rng.random()) for _ in range(rows)], pa.float64()),
    ]
    return pa.table(columns, names=["c0", "c1", "c2", "c3"])


async def run(engine: SparkEngine, sql: str, views: Views) -> tuple[list[str], bool]:
    """Returns the rows, sorted as text, and whether the statement was planned."""
    with recorded(), step("spark") as running:
        rows = await engine.run(sql, views)
    return sorted(map(repr, rows.to_pylist())), running.parts["planning"] > 0


@pytest.mark.ivm
@pytest.mark.parametrize("sql", QUERIES + ELSEWHERE)
async def test_rows_equal_those_of_a_new_plan(engine: SparkEngine, sql: str) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    name = f"r{seed:x}"
    for turn, rows in enumerate((9, 30, 0, 200, 1, 40)):
        views = {f"{name}l": table(rng, rows), f"{name}r": table(rng, rows // 2)}
        text = sql.format(l=f"{name}l", r=f"{name}r")
        found, planned = await run(engine, text, views)
        expected, planned_again = await run(engine, f"{text} /* {turn} */", dict(views))
        assert found == expected, f"seed {seed}, turn {turn}"
        assert planned_again
        assert planned == (turn == 0 or sql in ELSEWHERE), f"seed {seed}, turn {turn}"


async def test_the_plans_of_long_statements_replace_those_that_were_not_used_longer(engine: SparkEngine) -> None:
    """Otherwise the plans would fill the memory."""
    views = {"long": table(random.Random(0), 5)}
    used, unused = ("SELECT c0 FROM long WHERE c1 > 1", "SELECT c0 FROM long WHERE c1 > 2")
    for sql in (used, used, unused, unused):
        await run(engine, sql, views)
    for number in range(MEMORY_MB * 1024 // 60_000 + 1):
        await run(engine, f"SELECT {number}, c0 FROM long /* {'x' * 60_000} */", views)
        assert not (await run(engine, used, views))[1]
    assert (await run(engine, unused, views))[1]


async def test_a_repeated_statement_returns_every_type(engine: SparkEngine) -> None:
    whole = every_type()
    for rows in [whole, whole.slice(1, 2), whole.slice(0, 0), pa.concat_tables([whole] * 3), whole] * 2:
        assert (await engine.run("SELECT * FROM repeated_types", {"repeated_types": rows})).equals(rows)


ELEMENTS: list[tuple[object, pa.DataType]] = [
    (7, pa.int32()), (7, pa.int64()), (1.5, pa.float64()), (True, pa.bool_()), ("x", pa.string()),
    (Decimal("1.50"), pa.decimal128(12, 2)), (Decimal(7), pa.decimal128(38, 0)), (date(2024, 1, 2), pa.date32()),
]  # fmt: skip


@pytest.mark.parametrize(("element", "type"), ELEMENTS, ids=str)
async def test_a_repeated_statement_reads_arrays_with_nulls(
    engine: SparkEngine, element: object, type: pa.DataType
) -> None:
    compared = "transform({}, e -> struct(e IS NULL AS n, e AS v))"
    a, b = compared.format("c0"), compared.format("c1")
    different = f"SELECT * FROM arrays WHERE {a} > {b} OR {a} < {b}"
    sql = f"SELECT c2, c0, p FROM ({different}) LATERAL VIEW posexplode(c0) u AS p, e"
    rows = pa.table(
        {
            "c0": pa.array([[None, element], [element, None], [None], [], None], pa.list_(type)),
            "c1": pa.array([[element], [element], [None], [element], [None]], pa.list_(type)),
            "c2": pa.array(range(5)),
        }
    )
    expected = [(0, [None, element], 0), (0, [None, element], 1), (1, [element, None], 0), (1, [element, None], 1)]
    for _ in range(3):
        found = (await engine.run(sql, {"arrays": rows})).to_pydict()
        assert sorted(zip(*found.values(), strict=True), key=repr) == expected


async def test_a_repeated_statement_returns_any_number_of_rows(engine: SparkEngine) -> None:
    """Arrow's vectors for a result are kept. They grow and shrink, and many rows are returned in several blocks."""
    rows = "repeated_n LATERAL VIEW explode(sequence(1, c0)) e AS x"
    sql = f"SELECT x, repeat('a', x % 50) AS t, array(x, NULL) AS a FROM {rows}"
    for count in (1, 3, 17, 5_000, 1, 150_000, 2, 40):
        found = await engine.run(sql, {"repeated_n": pa.table({"c0": pa.array([count], pa.int32())})})
        numbers = range(1, count + 1)
        assert found["x"].to_pylist() == [*numbers]
        assert found["t"].to_pylist() == ["a" * (x % 50) for x in numbers]
        assert found["a"].to_pylist() == [[x, None] for x in numbers]


async def test_an_error_after_many_rows_does_not_affect_the_next_result(engine: SparkEngine) -> None:
    sql = "SELECT 6 div (c0 - x) AS n FROM repeated_f LATERAL VIEW explode(sequence(1, 100)) e AS x"
    for divisor in (200, 300, 90, 400, 2, 500):
        views = {"repeated_f": pa.table({"c0": pa.array([divisor], pa.int64())})}
        if divisor <= 100:
            with pytest.raises(PgError, match="division by zero"):
                await engine.run(sql, views)
        else:
            assert (await engine.run(sql, views))["n"].to_pylist() == [0] * 100


async def test_volatile_functions_are_computed_each_time(engine: SparkEngine) -> None:
    views = {"repeated_t": pa.table({"c0": [1]})}
    for sql in ("SELECT now() FROM repeated_t", "SELECT uuid() FROM repeated_t", "SELECT rand() FROM repeated_t"):
        found = [(await engine.run(sql, views))[0][0].as_py() for _ in range(8)]
        assert len(set(found)) == 8, sql


async def test_other_statements_read_the_tables_of_a_repeated_statement(engine: SparkEngine) -> None:
    """This also holds for tables that the session already has, which are not sent again."""
    sql = "SELECT c0 + 1 AS c0 FROM repeated_v"
    for number in range(8):
        rows = pa.table({"c0": [number]})
        assert (await engine.run(sql, {"repeated_v": rows})).to_pylist() == [{"c0": number + 1}]
        other = await engine.run(f"SELECT c0 - {number} AS c0 FROM repeated_v", {"repeated_v": rows})
        assert other.to_pylist() == [{"c0": 0}]
        assert (await engine.run(sql, {"repeated_v": rows})).to_pylist() == [{"c0": number + 1}]
        large = pa.table({"c0": range(number, 200_000)})
        assert (await engine.run(sql, {"repeated_v": large})).num_rows == 200_000 - number


async def test_an_error_does_not_affect_later_repetitions(engine: SparkEngine) -> None:
    sql = "SELECT 6 div c0 AS c0 FROM repeated_e"
    for number in range(12):
        rows = pa.table({"c0": [number % 3]})
        if number % 3:
            assert (await engine.run(sql, {"repeated_e": rows})).to_pylist() == [{"c0": 6 // (number % 3)}]
        else:
            with pytest.raises(PgError) as raised:
                await engine.run(sql, {"repeated_e": rows})
            assert raised.value.sqlstate == SqlState.DIVISION_BY_ZERO


async def test_a_long_repeated_statement_can_be_cancelled(engine: SparkEngine) -> None:
    sql = (
        "SELECT /*+ SHUFFLE_HASH(b), SHUFFLE_HASH(c) */ sum(a.c0 * b.c0 * c.c0 % 7) AS s "
        "FROM repeated_c a JOIN repeated_c b ON a.c1 = b.c1 JOIN repeated_c c ON a.c1 = c.c1"
    )
    few, many = (pa.table({"c0": range(1, rows), "c1": [0] * (rows - 1)}) for rows in (3, 5_000))
    await run(engine, sql, {"repeated_c": few})
    doomed = asyncio.create_task(engine.run(sql, {"repeated_c": many}))
    await until(lambda: engine.running == 1)
    assert (await run(engine, sql, {"repeated_c": few.slice(0)}))[0] == ["{'s': 20}"]
    assert not doomed.done()
    doomed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doomed
    await until(lambda: engine.running == 0)


class Task:
    """A task for a Python worker: an expression over modules of Python and those that Spark's workers have."""

    def __init__(self, expression: str) -> None:
        self.expression = expression

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        imported = "*map(__import__, ('os', 'pyarrow', 'time', 'types'))"
        answer = f"types.SimpleNamespace(answer=lambda: pyarrow.table({{'n': [{self.expression}]}}))"
        return eval, (f"(lambda os, pyarrow, time, types: {answer})({imported})",)


def asked(*expressions: str) -> Views:
    tasks = pa.array([pickle.dumps(Task(expression)) for expression in expressions], pa.binary())
    return {"repeated_p": pa.table({"arm": range(len(expressions)), "task": tasks})}


async def answers_of(engine: SparkEngine, sql: str, views: Views) -> tuple[list[int], bool]:
    """Returns the answers of the tasks, sorted, and whether the statement was planned."""
    with recorded(), step("spark") as running:
        rows = await engine.run(sql, views)
    answers = [answered(answer.as_py()) for answer in rows["answer"]]
    return sorted(answer["n"][0].as_py() for answer in answers), running.parts["planning"] > 0


async def test_a_single_python_task_needs_no_spark_job_on_the_embedded_engine(
    engine: SparkEngine, engine_name: str
) -> None:
    one = "SELECT arm, arrangement_task(task) AS answer FROM repeated_p"
    two = " UNION ALL ".join(f"{one} WHERE arm = {arm}" for arm in range(2))
    for turn in range(5):
        numbers = [turn, turn + 10]
        planned = turn == 0 or engine_name != "embedded"
        assert await answers_of(engine, one, asked(*map(str, numbers))) == (numbers, planned)
        assert await answers_of(engine, two, asked(*map(str, numbers))) == (numbers, True)


async def test_a_python_worker_that_ends_is_replaced(engine: SparkEngine) -> None:
    sql = "SELECT arrangement_task(task) AS answer FROM repeated_p /* ends */"
    for turn in range(4):
        with pytest.raises(PgError) as raised:
            await engine.run(sql, asked("os._exit(1)"))
        assert raised.value.sqlstate == SqlState.INTERNAL_ERROR
        with pytest.raises(PgError, match="ZeroDivisionError"):
            await engine.run(sql, asked("1 // 0"))
        assert (await answers_of(engine, sql, asked(str(turn))))[0] == [turn]


async def test_cancelling_a_statement_ends_its_python_worker(engine: SparkEngine) -> None:
    sql = "SELECT arrangement_task(task) AS answer FROM repeated_p /* long */"
    for turn in range(3):
        assert (await answers_of(engine, sql, asked(str(turn))))[0] == [turn]
    doomed = asyncio.create_task(engine.run(sql, asked("time.sleep(600)")))
    await until(lambda: engine.running == 1)
    assert (await answers_of(engine, sql, asked("7")))[0] == [7]
    assert not doomed.done()
    doomed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doomed
    await until(lambda: engine.running == 0)
    assert (await answers_of(engine, sql, asked("8")))[0] == [8]
