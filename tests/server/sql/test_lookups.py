"""The choice of indexes for queries, and the codes of keys: equal values have equal codes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.indexes import Index
from catalog.objects.tables import Table
from catalog.objects.views import View
from catalog.state import CatalogState
from protocol.columnar.hashing import key_codes
from protocol.pgwire.types import parse_type
from server.sql.constant import Bindings
from server.sql.grammar.parse import parse_query
from server.sql.index_lookups import COMBINED_MAX, too_wide
from server.sql.plan import PlanContext, QueryPlan, plan_query
from tests.server.states import empty_state

PUBLIC, T, U, V = (ObjectId(id) for id in ("u2", "u100", "u101", "u102"))
COLUMNS = {
    "k": "int4",
    "s": "text",
    "small": "int2",
    "big": "int8",
    "r": "float4",
    "f": "float8",
    "n": "numeric(10,2)",
    "c": "bpchar(4)",
    "vc": "varchar(9)",
    "b": "bool",
    "d": "date",
    "ts": "timestamptz",
    "id": "uuid",
    "raw": "bytea",
    "i": "interval",
    "j": "jsonb",
}


def context(*indexes: tuple[ObjectId, str, tuple[str, ...]]) -> PlanContext:
    """Returns tables t and u with all columns, a view v with two columns, and these indexes."""
    columns = tuple(Column(name, type) for name, type in COLUMNS.items())
    state: CatalogState = empty_state()
    state = state.with_item(Table(T, PUBLIC, "t", columns)).with_item(Table(U, PUBLIC, "u", columns))
    query = f'SELECT k, count(*) FROM "$id".{T} AS t GROUP BY k'
    state = state.with_item(View(V, PUBLIC, "v", (Column("k", "int4"), Column("n", "int8")), query, frozenset((T,))))
    for number, (on, name, keys) in enumerate(indexes):
        state = state.with_item(Index(ObjectId(f"u2{number:02}"), PUBLIC, name, on, keys))
    return PlanContext(state, "materialize", ("public",), "tide")


def plan(sql: str, *indexes: tuple[ObjectId, str, tuple[str, ...]]) -> QueryPlan:
    return plan_query(parse_query(sql), context(*indexes))


def served(sql: str, *indexes: tuple[ObjectId, str, tuple[str, ...]]) -> set[str]:
    """Returns the names of the indexes that the query's plan uses."""
    names = {item.id: item.name for item in context(*indexes).state.items.values()}
    return {names[lookup.index] for lookup in plan(sql, *indexes).lookups.values()}


BY_K, BY_S, BY_KS, OF_U, OF_V = (
    (T, "by_k", ("k",)),
    (T, "by_s", ("s",)),
    (T, "by_ks", ("k", "s")),
    (U, "of_u", ("k",)),
    (V, "of_v", ("k",)),
)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t where k = 1",
        "select * from t where 1 = k",
        "select * from t where k = $1",
        "select * from t where k in (1, 2, $1)",
        "select * from t where k = any ($1)",
        "select * from t where k = any ('{1,2}')",
        "select * from t where k = any (array[1, $1])",
        "select * from t where k = 1 or k = 2",
        "select * from t where k = 1.0",
        "select * from t where k = 5000000000",
        "select * from t where k = 1 and f > 3 and s like 'a%'",
        "select count(*) from t where k = 1",
        "select k + 1 from (select k, s from t) x where k = 1",
        "with w as (select * from t) select max(f) from w where k = 1",
        "select t.s from t join u on t.s = u.s where t.k = 1",
        "select t.s from t left join u on t.s = u.s where t.k = 1",
        "select a.s from t a join t b on a.s = b.s where a.k = 1 and b.k = 2",
        "select 1 where exists (select from t where k = 1)",
        "select (select max(f) from t where k = 1) from u",
        "select k, max(f) from t group by k having k = 1",
        "select k from t where k = 1 union all select k from t where k = 2",
    ],
)
def test_queries_that_can_use_an_index(sql: str) -> None:
    assert served(sql, BY_K) == {"by_k"}


@pytest.mark.parametrize(
    "sql",
    [
        "select * from t",
        "select * from t where k > 1",
        "select * from t where k <> 1",
        "select * from t where k = 1 or s = 'a'",
        "select * from t where not k = 1",
        "select * from t where k + 0 = 1",
        "select * from t where k = f",
        "select * from t where k = all ($1)",
        "select * from t where s = 'a'",
        "select a.s from t a join t b on a.s = b.s where a.k = 1",
        "select t.s from u left join t on t.s = u.s where t.k = 1 or t.k is null",
        "select k, (select max(f) from t x where x.k = t.k) from t",
        "select * from t where k is null",
        "select max(k) from t having max(k) = 1",
        "select * from (select * from t limit 5) x where k = 1",
        "select k from (select k, row_number() over (order by f) n from t) x where k = 1",
        "select k from t where k = 1 union all select k from t",
    ],
)
def test_queries_that_cannot_use_an_index(sql: str) -> None:
    assert served(sql, BY_K) == set()


def test_the_index_with_the_longest_key_is_used() -> None:
    every = (BY_K, BY_S, BY_KS)
    assert served("select * from t where k = 1 and s = 'a'", *every) == {"by_ks"}
    assert served("select * from t where s = 'a'", *every) == {"by_s"}
    assert served("select * from t where k = 1", BY_KS) == set()
    assert served("select * from t, u where t.k = 1 and u.k = 2", BY_K, OF_U) == {"by_k", "of_u"}


def test_indexes_with_unconstrained_key_columns_are_found() -> None:
    def suggested(sql: str, *indexes: tuple[ObjectId, str, tuple[str, ...]]) -> list[tuple[str, tuple[int, ...]]]:
        state, planned = context(*indexes).state, plan(sql, *indexes)
        return [(index.name, places) for index, places in too_wide(planned.relation, planned.scanned, state)]

    assert suggested("select * from t where s = 'a'", BY_KS) == [("by_ks", (1,))]
    assert suggested("select * from t where k = 1", BY_KS, BY_K) == []
    assert suggested("select * from t where f = 1", BY_KS) == []
    assert suggested("select * from t a, t b where a.k = 1 and b.s = 'a'", BY_KS) == []


def test_all_scans_of_a_relation_use_the_same_index() -> None:
    sql = "select * from t a, t b where a.k = 1 and b.s = 'x'"
    assert served(sql, BY_K, BY_S) == set()
    assert served(sql + " and b.k = 2", BY_K, BY_S) == {"by_k"}


def test_an_index_on_an_expression_is_used() -> None:
    lower = (T, "lower", ("lower(s)",))
    assert served("select * from t where lower(s) = 'a'", lower) == {"lower"}
    assert served("select * from t where lower(s) in ('a', $1) and k = 3", lower) == {"lower"}
    assert served("select * from t where upper(s) = 'A'", lower) == set()
    assert served("select * from t where lower(vc) = 'a'", lower) == set()
    mixed = (T, "mixed", ("k", "s || 'x'"))
    assert served("select * from t where k = 1 and s || 'x' = 'ax'", mixed) == {"mixed"}


def test_a_read_of_an_indexed_view_does_not_expand_it() -> None:
    planned = plan("select * from v where k = 1", OF_V)
    assert (planned.scanned, planned.inputs, planned.uses) == ({V}, {T}, {V})
    assert planned.direct_scan is not None
    assert planned.expanded is not None
    expanded = planned.expanded()
    assert (expanded.scanned, expanded.lookups) == ({T}, {})
    kept_up = plan_query(parse_query("select * from v where k = 1"), context(OF_V), maintained=True)
    assert (kept_up.scanned, kept_up.lookups) == ({T}, {})
    assert plan("select * from v where k = 1").scanned == {T}


def test_impossible_values_have_no_codes() -> None:
    def codes(sql: str, *parameters: Any) -> int:
        (lookup,) = plan(sql, BY_K).lookups.values()
        found = lookup.codes(Bindings(parameters))
        assert found is not None
        return len(found)

    assert codes("select * from t where k = null") == 0
    assert codes("select * from t where k = 5000000000") == 0
    assert codes("select * from t where k = 1.5") == 0
    assert codes("select * from t where k = $1", None) == 0
    assert codes("select * from t where k = any ($1)", None) == 0
    assert codes("select * from t where k = any ($1)", [1, None, 2, 1]) == 2
    assert codes("select * from t where k in (1, 1, 2, null)") == 2
    assert codes("select 1 from t a, t b where a.k = 1 and b.k in (1, 2)") == 2


def test_too_many_combinations_are_not_looked_up() -> None:
    (lookup,) = plan("select * from t where k = any ($1) and s = any ($2)", BY_KS).lookups.values()
    few, many = list(range(100)), list(range(COMBINED_MAX // 100 + 1))
    assert lookup.codes(Bindings((many, [str(n) for n in few]))) is None
    found = lookup.codes(Bindings((many[:-1], [str(n) for n in few])))
    assert found is not None
    assert len(found) == COMBINED_MAX


EQUAL: list[tuple[str, str, Any]] = [  # a column's value and a condition that it satisfies
    ("k", "k = 7::int2", 7),
    ("small", "small = 7", 7),
    ("small", "small = 7::int8", 7),
    ("big", "big = 7", 7),
    ("big", "big = 7.0", 7),
    ("k", "k = 7.0::float8", 7),
    ("r", "r = 0.5", 0.5),
    ("r", "r = 0.1::float4", float(np.float32(0.1))),
    ("r", "r = '-0'::float8", 0.0),
    ("f", "f = 0", -0.0),
    ("f", "f = '-0'", 0.0),
    ("f", "f = 'NaN'", float("nan")),
    ("f", "f = 'NaN'::float4", float("nan")),
    ("f", "f = '-Infinity'", float("-inf")),
    ("n", "n = 1.5", Decimal("1.50")),
    ("n", "n = 1.5000", Decimal("1.50")),
    ("n", "n = 1", Decimal("1.00")),
    ("n", "n in (1.5, 2)", Decimal("1.50")),
    ("c", "c = 'a'", "a   "),
    ("c", "c = 'a   '", "a   "),
    ("c", "c in ('b', 'a  ')", "a   "),
    ("vc", "vc = 'a'", "a"),
    ("vc", "vc = 'a'::text", "a"),
    ("s", "s = 'ä'", "ä"),
    ("b", "b = true", True),
    ("d", "d = '2024-02-29'", 19782),
    ("ts", "ts = '2024-02-29 00:00:00+00'", 19782 * 86_400_000_000),
    ("id", "id = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("raw", r"raw = '\x00ff'", b"\x00\xff"),
]


@pytest.mark.parametrize(("column", "condition", "value"), EQUAL)
def test_equal_values_have_equal_codes(column: str, condition: str, value: Any) -> None:
    (lookup,) = plan(f"select * from t where {condition}", (T, "x", (column,))).lookups.values()
    stored = pa.table({"c0": pa.array([value], parse_type(COLUMNS[column]).arrow)})
    codes = lookup.codes(Bindings())
    assert codes is not None
    assert np.isin(key_codes(stored, ["c0"]), codes).all()


@pytest.mark.parametrize(
    ("column", "condition"),
    [("i", "i = '1 day'"), ("j", "j = '1'"), ("big", "big = 1.0::float8"), ("f", "f::text = '1'")],
)
def test_equalities_that_no_index_supports(column: str, condition: str) -> None:
    assert served(f"select * from t where {condition}", (T, "x", (column,))) == set()


def test_names_in_index_keys_are_case_folded_unless_quoted() -> None:
    state = context().state
    odd = Table(ObjectId("u103"), PUBLIC, "odd", (Column("Mixed", "int4"), Column("mixed", "int4")))
    for key, condition in (('"Mixed"', '"Mixed" = 1'), ("mixed", "mixed = 1"), ("MIXED", "mixed = 1")):
        index = Index(ObjectId("u204"), PUBLIC, "i", odd.id, (key,))
        there = replace(PlanContext(state.with_item(odd).with_item(index), "materialize", ("public",), "tide"))
        assert plan_query(parse_query(f"select * from odd where {condition}"), there).lookups
        other = "mixed = 1" if key == '"Mixed"' else '"Mixed" = 1'
        assert not plan_query(parse_query(f"select * from odd where {other}"), there).lookups
