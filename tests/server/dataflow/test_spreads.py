"""Variances and standard deviations of exact numbers, which are computed from sums.

The plain equivalent collects the values of each group: it is `python` in the table of functions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies

from catalog import updates
from catalog.ids import Timestamp
from server.dataflow.arrangements.arrangement import Storage
from server.dataflow.plan.maintenance_strategy import maintenance_strategy
from server.dataflow.plan.nodes import Recompute, nodes_of
from server.spark.engine import SparkEngine
from server.sql.functions.table import FUNCTIONS
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, plan_query
from tests.examples import examples
from tests.server.dataflow.histories import History, changes_table, followed, ids, planned, state

Row = tuple[Any, ...]

# The calls of a query, each with its function and the value that a row has for it. The keys are f and x.
OF_U: dict[str, tuple[str, Callable[..., Any]]] = {
    "variance(k)": ("variance", lambda k, w, f: k),
    "stddev_pop(k)": ("stddev_pop", lambda k, w, f: k),
    "stddev(w)": ("stddev", lambda k, w, f: w),
    "var_pop(w) FILTER (WHERE k > 0)": ("var_pop", lambda k, w, f: w if k is not None and k > 0 else None),
}
OF_W: dict[str, tuple[str, Callable[..., Any]]] = {
    "var_samp(k)": ("var_samp", lambda k, x, d: k),
    "stddev_pop(k)": ("stddev_pop", lambda k, x, d: k),
    "variance((x % 100)::int2)": ("variance", lambda k, x, d: x % 100),
}
SQL_OF_U = f"SELECT f, {', '.join(OF_U)}, count(*) FROM u GROUP BY f"
SQL_OF_W = f"SELECT x, {', '.join(OF_W)}, count(*) FROM w GROUP BY x"


def integers(bits: int) -> strategies.SearchStrategy[int]:
    limit = 2 ** (bits - 1)
    extremes = strategies.sampled_from((-limit, 1 - limit, limit - 1))
    return strategies.integers(-3, 3) | strategies.integers(-limit, limit - 1) | extremes


CENTS = strategies.integers(-300, 300) | strategies.integers(1 - 10**10, 10**10 - 1)
ROWS_OF_U = strategies.lists(
    strategies.tuples(
        strategies.none() | integers(32),
        strategies.none() | CENTS.map(lambda cents: Decimal(cents).scaleb(-2)),
        strategies.sampled_from([float(number) for number in range(10)]),
    ),
    min_size=1,
    max_size=60,
)
# The variance of numbers that differ by more has more digits than its type.
_DIFFERENCE = 10**10
_BASES = (0, _DIFFERENCE - 2**63, 2**63 - 1 - _DIFFERENCE)
ROWS_OF_W = strategies.sampled_from(_BASES).flatmap(
    lambda base: strategies.lists(
        strategies.tuples(
            strategies.none() | strategies.integers(base - _DIFFERENCE, base + _DIFFERENCE),
            strategies.integers(0, 9),
            strategies.none(),
        ),
        min_size=1,
        max_size=60,
    )
)


def expected(calls: dict[str, tuple[str, Callable[..., Any]]], key: int, rows: Sequence[Row]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return {
        group: [_collected(name, [value(*row) for row in members]) for name, value in calls.values()]
        for group, members in groups.items()
    }


def _collected(name: str, values: list[Any]) -> Decimal | None:
    function = next(f.python for f in FUNCTIONS[name] if f.arguments[0].name == "numeric")
    assert function is not None
    result: Decimal | None = function(values)
    return result


def found(table: pa.Table) -> dict[Any, list[Any]]:
    rows = [list(row.values()) for row in table.to_pylist()]
    return {row[0]: row[1:-1] for row in rows}


def select(sql: str, name: str, rows: Sequence[Row], engine: SparkEngine) -> dict[Any, list[Any]]:
    context = PlanContext(state=state(), database="materialize", search_path=("public",), user="materialize")
    table = updates.expand(changes_table(name, [(row, 1) for row in rows]))
    plan = plan_query(parse_query(sql), context)
    assert "collect_list" not in plan.spark_sql()
    return found(asyncio.run(engine.run(plan.spark_sql(), {ids()[name]: table})))


@given(ROWS_OF_U)
@examples(5)
def test_int4_and_numeric(engine: SparkEngine, rows: list[Row]) -> None:
    assert select(SQL_OF_U, "u", rows, engine) == expected(OF_U, 2, rows)


@given(ROWS_OF_W)
@examples(5)
def test_int8_and_int2(engine: SparkEngine, rows: list[Row]) -> None:
    assert select(SQL_OF_W, "w", rows, engine) == expected(OF_W, 1, rows)


@pytest.mark.parametrize(
    "call", ["variance(DISTINCT k)", "variance(f)", "variance(w * w)", "variance(k) OVER (PARTITION BY w)"]
)
def test_calls_that_collect_values(call: str) -> None:
    query = planned(f"SELECT {call} FROM u" + ("" if "OVER" in call else " GROUP BY w"))
    root = maintenance_strategy(query, {ids()["u"]: 10}).root
    assert root is None or any(isinstance(node, Recompute) for node in nodes_of(root))


@pytest.mark.parametrize("seed", range(3))
def test_changes_add_up_to_the_result_of_collected_values(seed: int, engine: SparkEngine) -> None:
    async def follow(storage: Storage) -> None:
        plan = planned(SQL_OF_W)
        root = maintenance_strategy(plan, {ids()["w"]: 10}).root
        assert root is not None
        assert not any(isinstance(node, Recompute) for node in nodes_of(root))
        draw = random.Random(seed)
        rows: list[Row] = []
        steps, at = [], []
        for time in range(1, 8):
            lines = [(rows.pop(draw.randrange(len(rows))), -1) for _ in range(len(rows) // 2)]
            for _ in range(10):
                value = _BASES[seed] + draw.choice((0, 0, 1, _DIFFERENCE, -_DIFFERENCE, draw.getrandbits(30)))
                row = (draw.choice((None, value, value)), draw.randrange(3), None)
                rows.append(row)
                lines.append((row, 1))
            steps.append((Timestamp(time), changes_table("w", lines)))
            at.append(expected(OF_W, 1, rows))
        computation = followed(plan, History({ids()["w"]: steps}), engine, storage)
        changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]
        for time in range(1, 8):
            if time > 1:
                changes += await computation.advance([Timestamp(time)])
            added = updates.expand(updates.consolidate(pa.concat_tables(changes)))
            assert found(added) == at[time - 1], (seed, time)

    storage = Storage()
    try:
        asyncio.run(follow(storage))
    finally:
        storage.close()
