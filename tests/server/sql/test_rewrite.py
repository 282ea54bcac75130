"""The rewrite passes for maintained queries. A script per pass shows plans before and after it.

A script in tests/scripts/plan has queries. After each query come the input of the pass, which is the output of the
earlier passes, an arrow, and the output of the pass, for tables of the SIZES below. TIDEWIRE_REWRITE=1 updates the
scripts; review the difference before committing it.
Both plans are executed and must return the same rows.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from catalog import updates
from catalog.ids import Timestamp
from server.explain.relation import explained
from server.spark.engine import SparkEngine
from server.sql.relations import Relation
from server.sql.render import spark_text
from server.sql.rewrite import passes
from tests.server.dataflow.histories import ids, planned, random_history, state

SCRIPTS = Path(__file__).parents[2] / "scripts" / "plan"
SIZES = {ids()["t"]: 100_000, ids()["u"]: 1_000, ids()["w"]: 10}
NAMES = [name for name, _ in passes(SIZES)]


def queries(name: str) -> list[str]:
    """Returns the queries of a script. Each query begins on a new line and ends with a semicolon."""
    return [block.partition(";")[0] for block in (SCRIPTS / f"{name}.txt").read_text().split("\n\n")]


def around(name: str, sql: str) -> tuple[Relation, Relation]:
    """Returns the plan before and after the pass."""
    relation = planned(sql).relation
    for known, rewrite in passes(SIZES):
        changed = rewrite(relation)
        if known == name:
            return relation, changed
        relation = changed
    raise AssertionError(name)


def shown(name: str, sql: str) -> str:
    before, after = (explained(r, lambda id: state().items[id].name).lines() for r in around(name, sql))
    return "\n".join([f"{sql};", *before, "->", *after])


@pytest.mark.parametrize("name", NAMES)
def test_the_output_of_a_pass_equals_its_script(name: str) -> None:
    path = SCRIPTS / f"{name}.txt"
    made = "\n\n".join(shown(name, sql) for sql in queries(name)) + "\n"
    if os.environ.get("TIDEWIRE_REWRITE"):
        path.write_text(made)
    assert path.read_text() == made


def test_each_script_has_a_plan_that_its_pass_changes() -> None:
    for name in NAMES:
        assert queries(name), name
        assert any(before != after for before, after in (around(name, sql) for sql in queries(name))), name


@pytest.mark.sql
@pytest.mark.parametrize("name", NAMES)
def test_the_plans_before_and_after_a_pass_have_the_same_rows(name: str, engine: SparkEngine) -> None:
    async def compare(sql: str) -> None:
        plan = planned(sql)
        history = random_history(1, 1)
        views = {id: await history.rows(id, Timestamp(1)) for id in plan.inputs}
        before, after = [await engine.run(spark_text(relation), views) for relation in around(name, sql)]
        after = after.rename_columns(before.column_names).cast(before.schema)
        if name == "orders":  # this pass makes an ambiguous order deterministic, so the rows may differ
            assert after.num_rows == before.num_rows, sql
        else:
            assert updates.difference(after, before).num_rows == 0, sql

    for sql in queries(name):
        asyncio.run(compare(sql))
