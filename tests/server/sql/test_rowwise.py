"""Texts of statements over few rows, and the key conditions that select the rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from protocol.pgwire.types import parse_type
from server.sql.constant import Bindings
from server.sql.grammar.parse import parse, parse_query
from server.sql.grammar.statements.writes import Update
from server.sql.plan import QueryPlan, plan_query
from server.sql.rowwise import BYTES_MAX, CONSTANTS_MAX, ROWS_MAX
from server.sql.writes.statements import plan_update
from tests.server.sql.test_lookups import COLUMNS, T, context

TYPES = [parse_type(name).arrow for name in COLUMNS.values()]


def planned(sql: str) -> QueryPlan:
    if not sql.startswith("UPDATE"):
        return plan_query(parse_query(sql), context())
    (statement,) = parse(sql)
    assert isinstance(statement, Update)
    return plan_update(statement, context()).query


def rows(count: int = 1) -> pa.Table:
    return pa.table([pa.nulls(count, type) for type in TYPES], names=[f"c{i}" for i in range(len(TYPES))])


def statement(sql: str, *parameters: Any, count: int = 1) -> tuple[str, pa.Table] | None:
    plan = planned(sql)
    assert plan.rowwise is not None
    return plan.rowwise.statement(rows(count), Bindings(parameters, now_us=len(parameters)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("UPDATE t SET k = k + 1 WHERE k = 5",), ("UPDATE t SET k = k + 7 WHERE k = 8",)),
        (("UPDATE t SET s = 'a' WHERE k IN (1, 2)",), ("UPDATE t SET s = 'it''s' WHERE k IN (3, 4)",)),
        (("UPDATE t SET f = f * $1 WHERE vc = $2", 1.5, "a"), ("UPDATE t SET f = f * $1 WHERE vc = $2", None, "b")),
        (("UPDATE t SET n = n + 1.5",), ("UPDATE t SET n = n + 2.5",)),
        (("UPDATE t SET ts = now() WHERE k = $1", 1), ("UPDATE t SET ts = now() WHERE k = $1", 2)),
        (("SELECT k + $1 FROM t WHERE k = ANY ($2)", 1, [1]), ("SELECT k + $1 FROM t WHERE k = ANY ($2)", 2, [3, 4])),
        (("SELECT s || $1, coalesce(k, 5) FROM t", "a"), ("SELECT s || $1, coalesce(k, 6) FROM t", "b")),
        (("SELECT * FROM t WHERE k > 1",), ("SELECT * FROM t WHERE k > 2",)),
    ],
)
def test_the_text_is_the_same_for_all_constants(first: tuple[Any, ...], second: tuple[Any, ...]) -> None:
    one, other = statement(*first), statement(*second)
    assert one is not None
    assert other is not None
    assert one[0] == other[0]
    assert one[1].schema == other[1].schema
    assert one[1].slice(0, 1) != other[1].slice(0, 1)


def test_numeric_constants_have_the_type_of_their_literals() -> None:
    sql = "UPDATE t SET n = n + $1"
    found = [statement(sql, Decimal(text)) for text in ("1.5", "2.5", "100.5")]
    texts = [one[0] if one else None for one in found]
    assert texts[0] == texts[1] is not None
    types = [one[1].schema.types[-1] if one else None for one in found]
    assert types[0] == types[1]
    assert types[2].precision == types[0].precision + 2


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT k FROM t WHERE s LIKE $1", ("a%",)),  # a pattern
        ("SELECT round(n, $1) FROM t", (1,)),  # a scale
        ("SELECT k FROM t WHERE i = $1", ((1, 0, 0),)),  # a type whose Arrow form differs
        ("SELECT k + 1 FROM t WHERE k = ANY ($1)", ([1, None],)),
        ("SELECT s || $1 FROM t", ("a" * BYTES_MAX,)),
        (f"SELECT k + 1 FROM t WHERE k IN ({', '.join(map(str, range(CONSTANTS_MAX + 1)))})", ()),
    ],
)
def test_other_constants_stay_in_the_text(sql: str, parameters: tuple[Any, ...]) -> None:
    assert statement(sql, *parameters) is None


def test_many_rows_are_sent_as_they_are() -> None:
    sql = "UPDATE t SET k = k + 1"
    assert statement(sql, count=ROWS_MAX) is not None
    assert statement(sql, count=ROWS_MAX + 1) is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM t WHERE k = 1",
        "SELECT k + 1 FROM t WHERE k = 1 ORDER BY 1 LIMIT 1",
        "SELECT k, row_number() OVER () FROM t WHERE k = 1",
        "SELECT k + (SELECT max(k) FROM u) FROM t WHERE k = 1",
        "SELECT t.k + u.k FROM t, u",
    ],
)
def test_a_row_that_depends_on_several_rows_is_not_computed_alone(sql: str) -> None:
    assert planned(sql).rowwise is None


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("UPDATE t SET big = 1 WHERE s = 'a' AND k = $1 AND f > 0", ["k", "s"]),
        ("SELECT k + 1 FROM t WHERE k = ANY ($1::int4[])", ["k"]),
        ("SELECT big + 1 FROM t WHERE big = ANY (CAST($1 AS int2[])::int4[])", ["big"]),
        ("SELECT big + 1 FROM t WHERE big = ANY (CAST($1 AS int8[])::int4[])", []),
        ("SELECT count(*) FROM t WHERE k::int8 = 5", ["k"]),
        ("SELECT 1 FROM t WHERE k = 5 OR k = 6", ["k"]),
        ("SELECT 1 FROM t WHERE k = 5 OR s = 'a'", []),
        ("SELECT 1 FROM t WHERE k + 1 = 5", []),
        ("SELECT 1 FROM t JOIN t AS t2 ON t.k = t2.k WHERE t.k = 1", []),
        ("SELECT 1 FROM t WHERE k = 1 AND k IN (SELECT k FROM t)", []),
    ],
)
def test_conditions_that_list_values_of_a_column_are_key_filters(sql: str, columns: list[str]) -> None:
    names = list(COLUMNS)
    found = planned(sql).key_filters
    assert [names[key.column] for key in found.get(T, ())] == columns
