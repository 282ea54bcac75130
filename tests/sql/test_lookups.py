"""The suite's queries over tables with an index on each column: the same plan and the same rows as without indexes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from catalog.ids import ObjectId, Timestamp
from catalog.objects.indexes import Index
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.columnar.hashing import key_codes
from protocol.pgwire.errors import PgError
from server.dataflow.runtime.computation import compute
from server.spark.engine import SparkEngine
from server.sql.constant import Bindings
from server.sql.grammar.parse import parse_query
from server.sql.index_keys import key_column
from server.sql.plan import PlanContext, QueryPlan, plan_query
from tests.sql import answers, ours
from tests.sql.statements import Statement, chapters


@cache
def indexed_state() -> CatalogState:
    """The suite's tables, each with an index on each column and on the first two columns together."""
    state = ours.state()
    for table in [item for item in state.items.values() if isinstance(item, Table)]:
        names = [column.name for column in table.columns]
        for keys in [*([name] for name in names), names[:2]]:
            id, state = state.new_id()
            state = state.with_item(Index(id, table.schema_id, f"index_{id}", table.id, tuple(keys)))
    return state


def planned(sql: str, state: CatalogState) -> QueryPlan | PgError:
    try:
        return plan_query(parse_query(sql), PlanContext(state, "materialize", ("public",), "tide"))
    except PgError as error:
        return error


@cache
def queries(step: int) -> list[tuple[str, QueryPlan, QueryPlan]]:
    """Of each `step`-th query that can be planned: the text, the plan without indexes, and the plan with indexes."""
    found = []
    for statement in [*_statements()][::step]:
        plain, indexed = planned(statement.sql, ours.state()), planned(statement.sql, indexed_state())
        if isinstance(plain, PgError) or isinstance(indexed, PgError):
            assert str(plain) == str(indexed), statement.sql
        else:
            found.append((statement.sql, plain, indexed))
    return found


def _statements() -> Iterator[Statement]:
    for chapter in chapters():
        yield from (statement for statement, _ in answers.read(chapter))


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.sql)])
@pytest.mark.long
def test_indexes_do_not_change_the_plan(step: int) -> None:
    for sql, plain, indexed in queries(step):
        assert (plain.columns, plain.template) == (indexed.columns, indexed.template), sql
        assert not plain.lookups
        assert indexed.lookups.keys() <= indexed.inputs, sql
    assert sum(bool(indexed.lookups) for _, _, indexed in queries(step)) > 120 // step


@pytest.mark.sql
@pytest.mark.long
def test_rows_found_by_lookups_give_the_same_result(engine: SparkEngine) -> None:
    """For every twelfth query, because each takes two Spark statements."""

    async def run() -> None:
        looking = [
            q for q in queries(1) if q[2].lookups and not q[1].uses_session and q[1].inputs <= ours.contents().keys()
        ]
        for sql, plain, indexed in looking[::12]:
            whole, part = await asyncio.gather(_answer(plain, engine), _answer(indexed, engine))
            assert whole == part or "ERROR" in whole, sql

    asyncio.run(run())


async def _answer(plan: QueryPlan, engine: SparkEngine) -> str:
    async def rows(id: ObjectId, as_of: Timestamp) -> pa.Table:
        return _part(plan, id, ours.contents()[id])

    try:
        found = await compute(plan, Bindings(), engine, rows, Timestamp(0))
    except PgError as error:
        return f"ERROR {error}"
    return str(sorted(map(repr, zip(*(column.to_pylist() for column in found.columns), strict=True))))


def _part(plan: QueryPlan, id: ObjectId, table: pa.Table) -> pa.Table:
    """The rows that an index returns: those whose key has one of the hashes."""
    lookup = plan.lookups.get(id)
    if lookup is None:
        return table
    index = indexed_state().items[lookup.index]
    assert isinstance(index, Index)
    columns = indexed_state().items[id].columns
    keys = [f"c{key_column(key, columns)}" for key in index.keys]
    codes = lookup.codes(Bindings())
    assert codes is not None
    return table.filter(pa.array(np.isin(key_codes(table, keys), codes)))
