"""Delta plans: the rule of each node, sharing of equal nodes, and the output of EXPLAIN."""

from __future__ import annotations

import re
from functools import cache

import pytest

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.state import CatalogState
from server.dataflow.plan.description import explained_delta
from server.dataflow.plan.lowering import NoRule, delta_plan
from server.dataflow.plan.nodes import AccumulableAggregate, InnerJoin, Node, Recompute, Source, nodes_of
from server.sql.grammar.parse import parse_query
from server.sql.plan import PlanContext, plan_query
from server.sql.relations import Relation, Scan, inputs_of
from server.sql.rewrite import rewritten
from tests.ivm.tpch import QUERIES, TABLES
from tests.server.dataflow.histories import planned, state
from tests.server.states import empty_state


def followed(sql: str) -> Node:
    plan = planned(sql)
    return delta_plan(rewritten(plan.relation), plan.inputs)


def shown(sql: str) -> list[str]:
    return explained_delta(followed(sql), lambda id: state().items[id].name).lines()


@cache
def tpch() -> PlanContext:
    made: CatalogState = empty_state()
    for name, columns in TABLES.items():
        id, made = made.new_id()
        typed = (column.split(None, 1) for column in re.split(r",(?![^(]*\))", columns))
        made = made.with_item(Table(id, ObjectId("u2"), name, tuple(Column(c, t) for c, t in typed)))
    return PlanContext(state=made, database="materialize", search_path=("public",), user="materialize")


@pytest.mark.parametrize("number", list(QUERIES))
def test_tpch_queries_join_by_keys(number: int) -> None:
    """Only joins with a single row have no key: an aggregate of all rows, or the NULL check of NOT IN."""
    plan = plan_query(parse_query(QUERIES[number]), tpch(), maintained=True)
    nodes = nodes_of(delta_plan(rewritten(plan.relation), plan.inputs))
    assert sum(isinstance(n, InnerJoin) and not any(n.keys) for n in nodes) == (number in (11, 16, 22))
    assert not any(isinstance(n, Recompute) and n.recomputes_all for n in nodes)


def test_equal_subplans_are_one_node() -> None:
    nodes = nodes_of(
        followed("WITH a AS (SELECT k, max(v) AS n FROM t GROUP BY k) SELECT a.k, b.n FROM a JOIN a b ON a.n = b.k")
    )
    assert sum(isinstance(node, AccumulableAggregate) for node in nodes) == 1
    assert sum(isinstance(node, Source) for node in nodes) == 1


def test_only_required_columns_are_read() -> None:
    (source,) = (
        n for n in nodes_of(followed("SELECT k, sum(v) FROM t WHERE v > 1 GROUP BY k")) if isinstance(n, Source)
    )
    assert source.positions == (0, 1)


def test_a_relation_without_history_has_no_rule() -> None:
    plan = planned("SELECT k FROM t")
    with pytest.raises(NoRule, match="has no history"):
        delta_plan(rewritten(plan.relation), frozenset())


def test_explain_output() -> None:
    assert shown("SELECT t.s, count(*), max(u.w) FROM t LEFT JOIN u ON t.k = u.k WHERE t.v > 0 GROUP BY t.s") == [
        "1 Aggregate (accumulable), by (s): count, max",
        "  2 Recompute left join, by (k) = (k)",
        "    3 Map/Filter/Project: k, s",
        "      4 Changes of t: k, v, s",
        "    5 Changes of u: k, w",
        "    6 Distinct: k",
        "      5 Changes of u: k, w",
        "  7 Distinct: s, w",
        "    as 2",
    ]
    assert shown("SELECT DISTINCT ON (k) k, v FROM t ORDER BY k, v DESC") == [
        "1 Recompute distinct on, by (k), the top 1 in the order of v",
        "  2 Changes of t: k, v",
    ]
    assert shown("SELECT k, v FROM t ORDER BY v DESC LIMIT 5 OFFSET 2") == [
        "1 Recompute top 7, in the order of v",
        "  2 Changes of t: k, v",
    ]
    assert shown("SELECT count(*) FROM t, u WHERE mz_now() < t.k UNION ALL SELECT 1") == [
        "1 Union all",
        "  2 Aggregate (accumulable), of one group: count",
        "    3 Join, of all rows",
        "      4 Map/Filter/Project: row",
        "        5 Temporal filter",
        "          6 Changes of t: k",
        "      7 Map/Filter/Project: row",
        "        8 Changes of u",
        "  9 Constant",
    ]


def test_distinct_values_of_subsets_are_one_node() -> None:
    sql = (
        "SELECT k, count(DISTINCT v), count(DISTINCT v) FILTER (WHERE s = 'a'), "
        "sum(DISTINCT v) FILTER (WHERE s = 'b'), count(DISTINCT s) FROM t GROUP BY k"
    )
    lines = shown(sql)
    assert [line.strip() for line in lines if "Distinct" in line] == [
        "4 Distinct: k, v, of 3 subsets",
        "5 Distinct: k, s",
    ]
    (node,) = (node for node in nodes_of(followed(sql)) if isinstance(node, AccumulableAggregate))
    assert [branch.count is not None for _, branches in node.distinct for branch in branches] == [
        True,
        True,
        False,
        True,
    ]


_RANKED = "(SELECT k, s, v, rank() OVER (PARTITION BY k ORDER BY v) AS n FROM t) a"


def test_an_aggregate_within_the_partitions_of_a_window_is_computed_with_it() -> None:
    assert shown(f"SELECT k, s, count(*), max(n) FROM {_RANKED} GROUP BY s, k") == [
        "1 Recompute window and aggregate, by (k)",
        "  2 Changes of t: k, v, s",
    ]
    assert shown(f"SELECT k, count(*) FROM {_RANKED} WHERE n <= 3 GROUP BY k HAVING count(*) > 1") == [
        "1 Recompute window and aggregate, by (k), the top 3 in the order of v",
        "  2 Changes of t: k, v",
    ]
    assert shown(f"SELECT sum(n) OVER (PARTITION BY s, k) FROM {_RANKED}") == [
        "1 Recompute window, by (k)",
        "  2 Changes of t: k, v, s",
    ]


@pytest.mark.parametrize(
    ("sql", "windows"),
    [
        (f"SELECT s, max(n) FROM {_RANKED} GROUP BY s", 1),  # a group is in several partitions
        (f"SELECT k + 1, max(n) FROM {_RANKED} GROUP BY k + 1", 1),
        (f"SELECT n, sum(v) OVER (PARTITION BY s) FROM {_RANKED}", 2),
        (f"SELECT k, count(*) FROM {_RANKED} WHERE mz_now() < n GROUP BY k", 1),
        # the window is computed once for both
        (f"WITH a AS (SELECT * FROM {_RANKED}) SELECT a.n, c FROM a JOIN (SELECT k, count(*) AS c FROM a GROUP BY k) b "
         "ON a.k = b.k", 1),
    ],
)  # fmt: skip
def test_a_window_has_a_node_of_its_own_if_groups_are_in_several_partitions(sql: str, windows: int) -> None:
    recomputed = [node.what for node in nodes_of(followed(sql)) if isinstance(node, Recompute)]
    assert recomputed == ["window"] * windows


def test_customers_and_suppliers_are_not_joined_by_nation_alone() -> None:
    """TPC-H's query 5 joins both with the few nations. Line items and orders must be joined between them."""
    rows = {"region": 5, "nation": 25, "supplier": 10_000, "customer": 150_000, "orders": 1_500_000}
    sizes = {item.id: rows.get(item.name, 6_000_000) for item in tpch().state.items.values()}
    plan = plan_query(parse_query(QUERIES[5]), tpch(), maintained=True)

    def scanned(relation: Relation) -> list[str]:
        if isinstance(relation, Scan):
            return [tpch().state.items[relation.id].name]
        return [name for below in inputs_of(relation) for name in scanned(below)]

    order = scanned(rewritten(plan.relation, sizes))
    assert order == ["nation", "region", "supplier", "lineitem", "orders", "customer"]
