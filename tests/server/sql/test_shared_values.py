"""Spark SQL of values that an expression uses several times."""

from __future__ import annotations

import re

import pytest

from server.sql.grammar.parse import parse_query
from server.sql.plan import plan_query
from tests.server.sql.test_lookups import context

LAMBDA = "transform("


def text(sql: str) -> str:
    return plan_query(parse_query(sql), context()).template


@pytest.mark.parametrize(
    "expression",
    ["to_char(ts, 'YYYY')", "to_char(ts + interval '1 hour', 'YYYY')", "to_char(ts + interval '1 hour', 'YYYY') || s"],
)
def test_a_value_that_is_used_several_times_is_a_column(expression: str) -> None:
    assert LAMBDA not in text(f"SELECT {expression} FROM t")


def test_equal_values_share_a_column() -> None:
    moment = "timestamp 'epoch' + k * interval '1 millisecond'"
    sql = text(f"SELECT to_char({moment}, 'YYYY'), to_char({moment}, 'MM') FROM t")
    assert re.findall(r" AS (let\d)", sql) == ["let2", "let1", "let0"]  # the interval, the sum, and the timestamp


@pytest.mark.parametrize(
    "expression",
    [
        "CASE WHEN k > 0 THEN to_char(ts + interval '1 hour', 'YYYY') END",
        "coalesce(s, to_char(ts + interval '1 hour', 'YYYY'))",
        "k > 0 AND to_char(ts + interval '1 hour', 'YYYY') = '2020'",
    ],
)
def test_a_value_that_may_not_be_evaluated_stays_where_it_is(expression: str) -> None:
    sql = text(f"SELECT {expression} FROM t")
    assert LAMBDA in sql
    assert " AS let" not in sql
