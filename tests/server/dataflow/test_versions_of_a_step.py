"""A step over many timestamps returns at each of them the same changes as a step for each timestamp."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from catalog.ids import Timestamp
from server.dataflow.arrangements.arrangement import Storage
from server.spark.engine import SparkEngine
from tests.catalog.strategies import pairs
from tests.examples import examples
from tests.server.dataflow.histories import History, changes_table, followed, ids, planned

TIMES = 14
Row = tuple[Any, ...]

ROWS: dict[str, st.SearchStrategy[Row]] = {
    "t": st.tuples(st.integers(1, 4), st.sampled_from([None, -1, 0, 2]), st.sampled_from([None, "", "a"])),
    "u": st.tuples(st.sampled_from([None, 1, 2, 3]), st.none(), st.sampled_from([0.0, 1.5, None])),
    "w": st.tuples(st.integers(1, 4), st.sampled_from([None, 0, 2, 5]), st.none()),
}

QUERIES = {
    "sum and count": "SELECT k, sum(v), count(*), count(v) FROM t GROUP BY k",
    "sum of all": "SELECT count(*), sum(f) FROM u",
    "min and max": "SELECT k, min(v), max(s), max(v) FILTER (WHERE s <> 'a') FROM t GROUP BY k",
    "top k": "SELECT k, v, s FROM t ORDER BY v DESC NULLS LAST, k, s LIMIT 3",
    "top k per key": "SELECT * FROM (SELECT k, v, s, row_number() OVER (PARTITION BY k ORDER BY v, s) AS n FROM t) a "
    "WHERE n <= 2",
    "distinct": "SELECT DISTINCT k, s FROM t",
    "distinct on": "SELECT DISTINCT ON (k) k, v, s FROM t ORDER BY k, v DESC, s",
    "join": "SELECT t.s, w.x FROM t JOIN w ON t.k = w.k",
    "three inputs": "SELECT t.s, u.f, w.x FROM t, u, w WHERE t.k = u.k AND w.k = u.k",
    "left join": "SELECT t.k, t.s, u.f FROM t LEFT JOIN u ON t.k = u.k AND u.f > 0",
    "full join": "SELECT t.s, u.k, u.f FROM t FULL JOIN u ON t.k = u.k",
    "anti join": "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "union": "SELECT k FROM t UNION SELECT k FROM u",
    "intersect all": "SELECT k FROM t INTERSECT ALL SELECT x FROM w",
    "except": "SELECT k FROM t EXCEPT SELECT k FROM u",
    "window": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, s), sum(v) OVER (PARTITION BY k) FROM t",
    "join and sum": "SELECT n, count(*) FROM (SELECT t.k, count(*) AS n FROM t JOIN w ON t.k = w.k GROUP BY t.k) a "
    "GROUP BY n",
}


@st.composite
def sparse_histories(draw: st.DrawFn) -> History:
    """At time 1 the tables are filled. Each later time changes few rows, or none."""
    present = {name: draw(st.lists(rows, max_size=6)) for name, rows in ROWS.items()}
    history = History({ids()[name]: [(Timestamp(1), _changes(name, own, []))] for name, own in present.items()})
    for time in range(2, TIMES + 1):
        for name in draw(st.sets(st.sampled_from(sorted(ROWS)), max_size=2)):
            own = present[name]
            added = draw(st.lists(ROWS[name], max_size=2))
            gone = [own.pop(draw(st.integers(0, len(own) - 1))) for _ in range(draw(st.integers(0, min(2, len(own)))))]
            own += added
            history.changes_of[ids()[name]].append((Timestamp(time), _changes(name, added, gone)))
    return history


def _changes(name: str, added: Sequence[Row], gone: Sequence[Row]) -> pa.Table:
    return changes_table(name, [*((row, 1) for row in added), *((row, -1) for row in gone)])


async def changes_by_time(
    sql: str, history: History, engine: SparkEngine, storage: Storage, ends: Sequence[int]
) -> list[Counter[Any]]:
    """The changes at each time from 2 on, in steps that end at the times `ends`."""
    computation = followed(planned(sql), history, engine, storage)
    await computation.hydrate(Timestamp(1))
    found: list[Counter[Any]] = []
    for before, end in itertools.pairwise((1, *ends)):
        parts = await computation.advance([Timestamp(time) for time in range(before + 1, end + 1)])
        assert len(parts) == end - before
        for part in parts:
            changes = Counter(pairs(part))
            assert set(changes.values()) <= {1}, "not consolidated"
            found.append(changes)
    computation.close()
    return found


@pytest.mark.parametrize("name", QUERIES)
@examples(3, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(history=sparse_histories(), split=st.integers(2, TIMES))
def test_a_step_over_many_times_equals_a_step_for_each(
    name: str, engine: SparkEngine, history: History, split: int
) -> None:
    """`split` divides the times into two steps, of which the second begins with the state that the first left."""

    async def run() -> None:
        storage = Storage()
        try:
            each = await changes_by_time(QUERIES[name], history, engine, storage, range(2, TIMES + 1))
            ends = [split, TIMES] if split < TIMES else [TIMES]
            together = await changes_by_time(QUERIES[name], history, engine, storage, ends)
        finally:
            storage.close()
        assert dict(enumerate(together, 2)) == dict(enumerate(each, 2))

    asyncio.run(run())
