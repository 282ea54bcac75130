"""The conditions on an input's rows that a delta plan implies."""

from __future__ import annotations

import pytest

from server.dataflow.plan.lowering import delta_plan
from server.dataflow.plan.relevance import relevant_rows
from server.sql.rewrite import rewritten
from tests.server.dataflow.histories import planned, state

PLANS = {
    "SELECT v + 1 FROM t WHERE k = 5": {"t": [("k", [5])]},
    "SELECT v FROM t WHERE k IN (5, 6, NULL) AND v > 1": {"t": [("k", [5, 6])]},
    "SELECT v FROM t WHERE k = NULL": {"t": [("k", [])]},
    "SELECT v FROM t WHERE k = 5 OR v = 5": {},
    "SELECT v FROM t WHERE k > 5": {},
    "SELECT v FROM t WHERE k + 0 = 5": {},
    "SELECT v FROM t": {},
    "SELECT k, sum(v) FROM t WHERE k = 5 GROUP BY k": {"t": [("k", [5])]},
    "SELECT sum(v) FROM t WHERE k = 5": {"t": [("k", [5])]},
    "SELECT k FROM t WHERE k = 5 UNION ALL SELECT v FROM t WHERE k = 6": {"t": [("k", [5]), ("k", [6])]},
    "SELECT k FROM t WHERE k = 5 UNION ALL SELECT v FROM t": {},
    "SELECT k FROM (SELECT DISTINCT k, v FROM t WHERE k = 5) d WHERE v = 1": {"t": [("k", [5])]},
    "SELECT k FROM (SELECT k, max(v) AS m FROM t GROUP BY k) d WHERE m = 1": {},
    "SELECT k FROM t WHERE k = 5 AND (SELECT count(*) FROM t) > 1": {},
}


@pytest.mark.parametrize("sql", PLANS)
def test_conditions_on_changed_rows_are_found(sql: str) -> None:
    plan = planned(sql)
    found = relevant_rows(delta_plan(rewritten(plan.relation), plan.inputs))
    items = state().items
    assert {
        items[id].name: [(items[id].columns[c.column].name, c.values.to_pylist()) for c in conditions]  # type: ignore[union-attr]
        for id, conditions in found.items()
    } == PLANS[sql]
