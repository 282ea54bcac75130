"""Sums and averages of floats: the exact sum, rounded once, in SELECT and in maintained queries.

The plain equivalent adds fractions. Each query is also computed without splitting its aggregate in two.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies

from catalog import updates
from catalog.ids import Timestamp
from server.dataflow.arrangements.arrangement import Storage
from server.dataflow.plan.maintenance_strategy import maintenance_strategy
from server.dataflow.plan.nodes import Recompute, nodes_of
from server.runtime.errors import to_pg_error
from server.spark.engine import SparkEngine
from server.sql.expressions import walk
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, plan_query
from server.sql.relations import Aggregate
from tests.examples import examples
from tests.server.dataflow.histories import (
    History,
    changes_table,
    followed,
    from_scratch,
    ids,
    planned,
    state,
)

Row = tuple[Any, ...]


def sum_of(values: Sequence[float], bits: int = 53, least: int = -1074) -> float | None:
    """The sum, rounded to a float with this number of bits, or OverflowError. `least`: the exponent of its last bit."""
    if not values or any(map(math.isnan, values)):
        return math.nan if values else None
    if infinite := {value for value in values if math.isinf(value)}:
        return infinite.pop() if len(infinite) == 1 else math.nan
    exact = sum(map(Fraction, values))
    if not exact:
        return -0.0 if all(math.copysign(1, value) < 0 for value in values) else 0.0
    unit = Fraction(2) ** least
    while abs(exact) >= unit * 2**bits:
        unit *= 2
    result = float(round(exact / unit) * unit)  # half to even
    if bits == 24 and abs(result) >= 2.0**128:
        raise OverflowError
    return result


def real_sum_of(values: Sequence[float]) -> float | None:
    return sum_of(values, 24, -149)


def average_of(values: Sequence[float]) -> float | None:
    total = sum_of(values)
    return None if total is None else total / len(values)


def answered(of: Any, values: Sequence[float]) -> str | None:
    """The text of the result; None if it is out of range."""
    try:
        return repr(of(values))
    except OverflowError:
        return None


def select(sql: str, table: pa.Table, engine: SparkEngine) -> list[Row]:
    context = PlanContext(state=state(), database="materialize", search_path=("public",), user="materialize")
    plan = plan_query(parse_query(sql), context)
    assert len([n for n in walk(plan.relation) if isinstance(n, Aggregate)]) == (1 if "array_agg" in sql else 2)
    rows = asyncio.run(engine.run(plan.spark_sql(), {ids()["u"]: table}))
    return [tuple(row.values()) for row in rows.to_pylist()]


def table_of(groups: Sequence[Sequence[float | None]]) -> pa.Table:
    lines = [(k, value) for k, group in enumerate(groups) for value in group]
    random.Random(len(lines)).shuffle(lines)
    ks, values = zip(*lines, strict=True)
    return pa.table(
        {
            "c0": pa.array(ks, pa.int32()),
            "c1": pa.nulls(len(lines), pa.decimal128(10, 2)),
            "c2": pa.array(values, pa.float64()),
        }
    )


def _with_cancellation(values: list[float]) -> list[float]:
    return [*values, *(-value for value in values[:-2])]


def _halfway(bits: int, low: int, high: int) -> strategies.SearchStrategy[list[float]]:
    """A number, half of its last bit, and much less."""
    exponents = strategies.integers(low, high)
    numbers = strategies.integers(2 ** (bits - 1), 2**bits - 1)
    tiny = strategies.lists(strategies.sampled_from((2.0**low, -(2.0**low))), max_size=1)
    return strategies.builds(
        lambda number, exponent, sign, few: [math.ldexp(number, exponent), sign * 2.0 ** (exponent - 1), *few],
        *(numbers, exponents, strategies.sampled_from((1, -1)), tiny),
    )


def _groups(
    values: strategies.SearchStrategy[float], *others: strategies.SearchStrategy[list[float]]
) -> strategies.SearchStrategy[list[list[float]]]:
    lists = strategies.lists(values, min_size=1, max_size=8)
    return strategies.lists(strategies.one_of(lists, lists.map(_with_cancellation), *others), min_size=20, max_size=40)


_LEAST, _GREATEST = 2.0**-20, math.nextafter(2.0**40, 0)  # of the same bucket: limbs are carried, none is collected
_OF_ONE_BUCKET = strategies.lists(
    strategies.floats(_LEAST, _GREATEST) | strategies.floats(-_GREATEST, -_LEAST), min_size=2, max_size=60
)
DOUBLES = _groups(
    strategies.floats(), _halfway(53, -1073, 900), _OF_ONE_BUCKET, _OF_ONE_BUCKET.map(sorted), _halfway(53, -20, -13)
)
REALS = _groups(strategies.floats(width=32), _halfway(24, -148, 100))
PLAIN = ", array_agg(k)"  # such an aggregate is not split


@pytest.mark.ivm
@given(DOUBLES)
@examples(2)
def test_a_sum_is_exact_and_rounded_once(engine: SparkEngine, groups: list[list[float]]) -> None:
    groups = [group for group in groups if answered(sum_of, group) is not None] or [[0.0]]
    expected = {k: (repr(sum_of(group)), repr(average_of(group))) for k, group in enumerate(groups)}
    for other in ("", PLAIN):
        rows = select(f"SELECT k, sum(f), avg(f){other} FROM u GROUP BY k", table_of(groups), engine)
        found = {k: (repr(total), repr(average)) for k, total, average, *_ in rows}
        assert {k: (groups[k], found[k], expected[k]) for k in found if found[k] != expected[k]} == {}
        assert len(found) == len(groups)


@pytest.mark.ivm
@given(REALS)
@examples(4)
def test_a_sum_of_reals_is_rounded_once_to_a_real(engine: SparkEngine, groups: list[list[float]]) -> None:
    groups = [group for group in groups if answered(real_sum_of, group) is not None] or [[0.0]]
    expected = {k: repr(real_sum_of(group)) for k, group in enumerate(groups)}
    for other in ("", PLAIN):
        rows = select(f"SELECT k, sum(f::real){other} FROM u GROUP BY k", table_of(groups), engine)
        found = {k: repr(total) for k, total, *_ in rows}
        assert {k: (groups[k], found[k], expected[k]) for k in found if found[k] != expected[k]} == {}
        assert len(found) == len(groups)


@pytest.mark.ivm
@given(DOUBLES)
@examples(5)
def test_distinct_and_filter(engine: SparkEngine, groups: list[list[float]]) -> None:
    groups = [group for group in groups if answered(sum_of, [v for v in group if v > 0]) is not None] or [[0.0]]
    groups = [group for group in groups if answered(sum_of, list(set(group))) is not None] or [[0.0]]
    for distinct, other in (("", ""), ("DISTINCT ", PLAIN)):
        sql = f"SELECT k, sum({distinct}f) FILTER (WHERE f > 0 AND f < 'NaN') {other} FROM u GROUP BY k"
        rows = select(sql, table_of(groups), engine)
        for k, total, *_ in rows:
            positive = [value for value in groups[k] if value > 0]
            assert repr(total) == repr(sum_of(list(set(positive)) if distinct else positive)), positive


@pytest.mark.parametrize("other", ["", pytest.param(PLAIN, marks=pytest.mark.ivm)])
@pytest.mark.parametrize(
    ("values", "call", "total"),
    [
        ([1e308, 1e308, -1e308], "sum(f)", 1e308),
        ([1e308, 1e308], "sum(f)", None),
        ([-1e308, -1e308, 1.0], "avg(f)", None),
        ([1e308, 1e308, math.inf], "sum(f)", math.inf),
        ([1.7976931348623157e308, 2.0**969], "sum(f)", 1.7976931348623157e308),
        ([1.7976931348623157e308, 2.0**970], "sum(f)", None),
        ([2.0**128 - 2.0**104, 2.0**102], "sum(f::real)", 2.0**128 - 2.0**104),
        ([2.0**128 - 2.0**104, 2.0**103, -1.0], "sum(f::real)", 2.0**128 - 2.0**104),
        ([2.0**128 - 2.0**104, 2.0**103], "sum(f::real)", None),
        ([None, None], "sum(f)", math.nan),  # a NULL
    ],
)
def test_a_sum_out_of_range(
    values: list[float | None], call: str, total: float | None, other: str, engine: SparkEngine
) -> None:
    sql = f"SELECT {call}{other} FROM u"
    if total is None:
        with pytest.raises(Exception, match="value out of range: overflow") as error:
            select(sql, table_of([values]), engine)
        assert to_pg_error(error.value).sqlstate == "22003"
    else:
        expected = None if values[0] is None else total
        assert [row[0] for row in select(sql, table_of([values]), engine)] == [expected]


def test_sums_of_no_rows(engine: SparkEngine) -> None:
    for other in ("", PLAIN):
        rows = select(f"SELECT sum(f), avg(f){other} FROM u", table_of([[1.0]]).slice(0, 0), engine)
        assert rows[0][:2] == (None, None)


POOL = (
    0.1,
    -0.1,
    0.3,
    1e16,
    -1e16,
    1e-300,
    5e-324,
    2.0**-30,
    3e7,
    0.0,
    -0.0,
    1e307,
    -1e307,
    math.nan,
    math.inf,
    -math.inf,
)
MIDDLE = (0.1, -0.1, 0.3, 1e16, -1e16, 2.0**-30, 3e7, 0.0, 1e18)  # for which statements have a special form
MAINTAINED = [
    "SELECT k, sum(f), avg(f) FROM u GROUP BY k",
    pytest.param(
        "SELECT sum(f), avg(f), count(*), count(f), sum(k), avg(k), sum(w), avg(w), min(w), max(k) FROM u",
        marks=pytest.mark.ivm,
    ),
    pytest.param(
        "SELECT k, sum((CASE WHEN abs(f) BETWEEN 1e-30 AND 1e30 THEN f END)::real), sum(DISTINCT f), "
        "avg(f) FILTER (WHERE f < 1) FROM u GROUP BY k HAVING count(*) > 1",
        marks=pytest.mark.ivm,
    ),
    pytest.param(
        "SELECT k, sum(f), sum(f + 1), min(w), bool_or(f > 0), count(*) FILTER (WHERE f > 0) FROM u GROUP BY k",
        marks=pytest.mark.ivm,
    ),
    pytest.param(
        "SELECT a.k, (SELECT sum(f) FROM u WHERE u.k = a.k) FROM (SELECT DISTINCT k FROM u) a", marks=pytest.mark.ivm
    ),
]


def random_floats(seed: int, times: int, pool: Sequence[float]) -> History:
    """A table `u` in which values are inserted and deleted, so that sums often lose their greatest values."""
    draw = random.Random(seed)
    present: list[Row] = []
    steps = []
    for time in range(1, times + 1):
        lines: list[tuple[Row, int]] = []
        for _ in range(len(present) * 2 // 3):
            lines.append((present.pop(draw.randrange(len(present))), -1))
        for _ in range(16 if time == 1 else 8):
            row = (draw.choice((1, 1, 2, None)), None, draw.choice((None, *pool[: draw.choice((3, 13, len(pool)))])))
            present.append(row)
            lines.append((row, 1))
        steps.append((Timestamp(time), changes_table("u", lines)))
    return History({ids()["u"]: steps})


def test_a_special_form_is_for_middle_buckets_only() -> None:
    root = maintenance_strategy(planned("SELECT k, avg(f) FROM u GROUP BY k"), {ids()["u"]: 10}).root
    assert root is not None
    (form,) = [node.sql.special for node in nodes_of(root) if isinstance(node, Recompute)]
    assert form is not None
    (position,) = form.columns

    def suits(*buckets: int | None) -> bool:
        columns = [pa.array(buckets, pa.int32())] * (position + 1)
        return form.suits({form.view: pa.table(columns, names=[f"c{i}" for i in range(len(columns))])})

    assert suits()
    assert suits(None)
    assert suits(-1, None, 0, 1)
    assert not suits(0, 2)
    assert not suits(-2)


@pytest.mark.parametrize(("seed", "pool"), [(0, MIDDLE), pytest.param(0, POOL, marks=pytest.mark.ivm)])
@pytest.mark.parametrize("sql", MAINTAINED)
@pytest.mark.long
def test_changes_add_up_to_the_result_of_a_new_start_and_of_select(
    sql: str, seed: int, pool: Sequence[float], engine: SparkEngine
) -> None:
    async def follow(storage: Storage) -> None:
        history, plan = random_floats(seed, 8, pool), planned(sql)
        context = PlanContext(state=state(), database="materialize", search_path=("public",), user="materialize")
        selected = plan_query(parse_query(sql), context)
        computation = followed(plan, history, engine, storage)
        changes = [updates.with_diff(await computation.hydrate(Timestamp(1)), 1)]
        for time in range(2, 9):
            changes += await computation.advance([Timestamp(time)])
            added = updates.expand(updates.consolidate(pa.concat_tables(changes)))
            restarted = await followed(plan, history, engine, storage).hydrate(Timestamp(time))
            expected = rows_of(await from_scratch(selected, history, engine, time))
            assert rows_of(added) == expected, (seed, time)
            assert rows_of(restarted) == expected, (seed, time)
            assert rows_of(await from_scratch(plan, history, engine, time)) == expected, (seed, time)

    def rows_of(table: pa.Table) -> list[str]:
        return sorted(repr(tuple(row.values())) for row in table.to_pylist())

    storage = Storage()
    try:
        asyncio.run(follow(storage))
    finally:
        storage.close()
