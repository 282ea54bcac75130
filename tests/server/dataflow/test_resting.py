"""Dataflows at rest: a change wakes exactly those that it may concern."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.ids import ObjectId
from server.dataflow.plan.relevance import KeyValues
from server.dataflow.runtime import resting
from server.dataflow.runtime.resting import Resting
from tests.examples import examples

T, U = ObjectId("u1"), ObjectId("u2")
DAYS = (datetime.date(1, 1, 1), datetime.date(2024, 2, 29), datetime.date(9999, 12, 31))
SCHEMA = pa.schema([("c0", pa.int32()), ("c1", pa.string()), ("c2", pa.date32())])
VALUES: tuple[tuple[Any, ...], ...] = ((1, 2, 3), ("", "a", "b"), DAYS)


class Flow:
    derives_upper = False

    def __init__(self, inputs: frozenset[ObjectId], relevant: Mapping[ObjectId, Sequence[KeyValues]]) -> None:
        self.inputs = inputs
        self.relevant = relevant
        self.woken = 0
        self.closed = 0

    def wake(self) -> None:
        self.woken += 1

    def close_times(self) -> None:
        self.closed += 1


condition = st.integers(0, 2).flatmap(
    lambda column: st.tuples(st.just(column), st.lists(st.sampled_from(VALUES[column]), unique=True, max_size=2))
)
row = st.tuples(*(st.sampled_from((None, *values)) for values in VALUES))


@examples(200)
@given(
    flows=st.lists(st.one_of(st.none(), st.lists(condition, min_size=1, max_size=2)), max_size=6),
    removed=st.lists(st.booleans(), min_size=6, max_size=6),
    tables=st.lists(st.lists(row, max_size=3), max_size=2),
)
def test_a_change_wakes_the_dataflows_that_it_may_concern(
    flows: list[list[tuple[int, list[Any]]] | None], removed: list[bool], tables: list[list[tuple[Any, ...]]]
) -> None:
    registry, made = Resting(), []
    for conditions in flows:
        relevant = [KeyValues(c, pa.array(values, SCHEMA.field(c).type)) for c, values in conditions or ()]
        made.append(Flow(frozenset({T}), {} if conditions is None else {T: relevant}))
        registry.add(made[-1])
    for flow, gone in zip(made, removed, strict=False):
        if gone:
            registry.remove(flow)
    columns = [[pa.array([r[i] for r in rows], SCHEMA.field(i).type) for i in range(3)] for rows in tables]
    registry.written(T, [updates.with_diff(pa.table(c, schema=SCHEMA), -1) for c in columns], all=False)
    registry.written(U, [], all=True)
    every_row = [one for rows in tables for one in rows]
    for flow, conditions, gone in zip(made, flows, removed, strict=False):
        concerned = conditions is None or any(one[c] in values for one in every_row for c, values in conditions)
        assert flow.woken == (concerned and not gone)


def test_large_changes_wake_every_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "ROWS_MAX", 1)
    registry = Resting()
    flow = Flow(frozenset({T}), {T: [KeyValues(0, pa.array([7], pa.int32()))]})
    registry.add(flow)
    one = pa.table([pa.array([1], pa.int32()), pa.array(["a"]), pa.array([DAYS[0]])], schema=SCHEMA)
    registry.written(T, [one], all=False)
    assert flow.woken == 0
    registry.written(T, [one, one], all=False)
    assert flow.woken == 1
    registry.written(T, [], all=True)
    assert flow.woken == 2


def test_times_are_closed_for_the_readers_of_a_collection() -> None:
    registry = Resting()
    first, second = Flow(frozenset({T}), {}), Flow(frozenset({T, U}), {})
    registry.add(first)
    registry.add(second)
    registry.close_times([U])
    assert (first.closed, second.closed) == (0, 1)
    registry.remove(second)
    registry.close_times()
    assert (first.closed, second.closed) == (1, 1)
