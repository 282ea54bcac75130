"""The distinct values of several subsets, compared with sets that are computed row by row."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates
from catalog.ids import Timestamp
from server.dataflow.arrangements.arrangement import Storage
from server.dataflow.arrangements.shared import SharedArrangements
from server.dataflow.operators.distinct_values import DistinctValuesOperator
from server.dataflow.operators.operator import OperatorContext, Step, changes_schema
from server.dataflow.operators.step_cost import StepCost
from server.dataflow.plan.lowering import delta_plan
from server.dataflow.plan.nodes import DistinctValues, nodes_of
from server.sql.rewrite import rewritten
from server.timeline.frontiers import Frontiers
from tests.examples import examples
from tests.server.dataflow.histories import planned

SQL = "SELECT k, count(DISTINCT v), count(DISTINCT v) FILTER (WHERE s = 'a') FROM t GROUP BY k"
Row = tuple[int | None, int | None, int | None]  # k, v, and v or NULL
Changes = list[tuple[Row, int]]

ROWS = st.builds(
    lambda k, v, both: (k, v, v if both else None),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 3, 4]),
    st.booleans(),
)


def distinct_values() -> DistinctValues:
    plan = planned(SQL)
    root = delta_plan(rewritten(plan.relation), plan.inputs)
    (node,) = (node for node in nodes_of(root) if isinstance(node, DistinctValues))
    return node


def operator(storage: Storage) -> DistinctValuesOperator:
    unused = cast(Any, None)
    context = OperatorContext(
        unused, unused, SharedArrangements(storage, Frontiers().hold_log), Timestamp(0), StepCost()
    )
    return DistinctValuesOperator(distinct_values(), context)


def table(node: DistinctValues, versions: list[Changes]) -> pa.Table:
    """The changes of each version, from 1 on."""
    schema = changes_schema(node.input)
    columns: list[list[Any]] = [[] for _ in schema]
    for version, changes in enumerate(versions, 1):
        for (k, v, member), diff in changes:
            by_position = {node.key[0]: k, node.members[0]: v, node.members[1]: member}
            for position, column in enumerate(columns[:-2]):
                column.append(by_position.get(position))
            columns[-2].append(version)
            columns[-1].append(diff)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def subsets(rows: Counter[Row]) -> set[tuple[Any, ...]]:
    """The key, the value and the number of the subset, of each value in a subset."""
    found: set[tuple[Any, ...]] = {(k, v, 0) for (k, v, _), n in rows.items() if n > 0 and v is not None}
    return found | {(k, v, 1) for (k, _, v), n in rows.items() if n > 0 and v is not None}


@examples(60)
@given(history=st.lists(st.lists(st.tuples(ROWS, st.booleans()), max_size=6), min_size=1, max_size=8), data=st.data())
def test_changes_are_those_of_the_sets(history: list[list[tuple[Row, bool]]], data: st.DataObject) -> None:
    """The times of the history are processed in steps of one or more."""

    async def run() -> None:
        storage = Storage()
        own, rows, time = operator(storage), Counter[Row](), 1
        node = distinct_values()
        while history_left := history[time - 1 :]:
            taken: list[Changes] = []
            expected: Counter[Any] = Counter()
            for version, changes in enumerate(history_left[: data.draw(st.integers(1, 3))], 1):
                before = subsets(rows)
                applied: Changes = []
                for row, added in changes:
                    if added or rows[row] > 0:
                        rows[row] += 1 if added else -1
                        applied.append((row, 1 if added else -1))
                taken.append(applied)
                after = subsets(rows)
                expected.update({(*value, version, 1): 1 for value in after - before})
                expected.update({(*value, version, -1): 1 for value in before - after})
            step = Step(Timestamp(time), tuple(Timestamp(time + 1 + i) for i in range(len(taken))))
            found = await own.compute(step, [table(node, taken)])
            assert Counter(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
            await own.commit(step)
            time += len(taken)
        storage.close()

    asyncio.run(run())


async def test_a_negative_multiplicity_in_a_subset_is_an_error() -> None:
    storage = Storage()
    step = Step(Timestamp(1), (Timestamp(2),))
    changes: Changes = [((1, 3, 3), -1), ((1, 3, None), 1)]  # the value itself stays
    with pytest.raises(updates.NegativeCount):
        await operator(storage).compute(step, [table(distinct_values(), [changes])])
    storage.close()
