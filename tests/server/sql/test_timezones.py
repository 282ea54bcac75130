"""Dependence on the session's time zone: allowed in queries that run once, refused in maintained queries."""

from __future__ import annotations

import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.execution.planning import plan_default
from server.sql.constant import Bindings
from server.sql.grammar.parse import parse_each, parse_query
from server.sql.grammar.statements.tables import CreateTable
from server.sql.plan import PlanContext, QueryPlan, plan_query
from tests.sql import ours

NEW_YORK = "America/New_York"


def plan(sql: str, timezone: str, *, maintained: bool = False) -> QueryPlan:
    context = PlanContext(ours.state(), "materialize", ("public",), "tide", timezone)
    return plan_query(parse_query(sql), context, maintained=maintained)


ZONED = [
    "select tz::date from times",
    "select ts::timestamptz from times",
    "select tz::text from times",
    "select d < tz from times",
    "select tz + interval '1 day' from times",
    "select extract(hour from tz) from times",
    "select date_trunc('day', tz) from times",
    "select tz > '2024-01-01 00:00' from times",
    "select '{2024-01-01 00:00}'::timestamptz[]",
    "select timestamp '2024-01-01 00:00'::timestamptz",
]


@pytest.mark.parametrize("sql", ZONED)
def test_maintained_queries_cannot_depend_on_the_time_zone(sql: str) -> None:
    assert plan(sql, NEW_YORK).columns == plan(sql, "UTC", maintained=True).columns
    with pytest.raises(PgError) as raised:
        plan(sql, NEW_YORK, maintained=True)
    assert raised.value.sqlstate is SqlState.FEATURE_NOT_SUPPORTED


@pytest.mark.parametrize(
    "sql",
    [
        "select tz at time zone 'Asia/Tokyo' from times",
        "select tz > '2024-01-01 00:00+00', tz - tz from times",
        "select ts + interval '1 day', d::timestamp from times",
    ],
)
def test_maintained_queries_that_do_not_depend_on_the_time_zone(sql: str) -> None:
    assert plan(sql, NEW_YORK, maintained=True).fingerprint == plan(sql, "UTC", maintained=True).fingerprint


def test_the_fingerprint_depends_on_the_time_zone() -> None:
    sql = "select tz::date from times"
    assert plan(sql, NEW_YORK).fingerprint != plan(sql, "UTC").fingerprint


@pytest.mark.parametrize(("timezone", "hour"), [("UTC", 1), (NEW_YORK, 20), ("Asia/Kolkata", 6)])
def test_local_time_is_in_the_time_zone_of_the_session(timezone: str, hour: int) -> None:
    constant = plan("select extract(hour from localtimestamp), current_date = now()::date", timezone).constant
    assert constant is not None
    assert constant.evaluate_row(Bindings(now_us=1_700_010_000_000_000)) == (hour, True)


@pytest.mark.parametrize(("word", "days"), [("today", 0), ("tomorrow", 1), (" Yesterday ", -1)])
@pytest.mark.parametrize(("timezone", "hour"), [("UTC", 0), (NEW_YORK, 5)])
def test_words_for_days_begin_in_the_time_zone_of_the_session(timezone: str, hour: int, word: str, days: int) -> None:
    constant = plan(f"select '{word}'::timestamptz", timezone).constant
    assert constant is not None
    half_past_four = (10 * 24 * 60 + 4 * 60 + 30) * 60_000_000
    day = 10 + days - (hour > 4)
    assert constant.evaluate_row(Bindings(now_us=half_past_four)) == ((day * 24 + hour) * 3_600_000_000,)


@pytest.mark.parametrize("sql", ["select timestamp 'now'", "select * from times where d >= 'today'"])
def test_stored_queries_cannot_contain_words_for_the_time(sql: str) -> None:
    """PostgreSQL would store the time of the definition, which is rarely meant."""
    context = PlanContext(ours.state(), "materialize", ("public",), "tide")
    plan_query(parse_query(sql), context)
    for maintained in (False, True):
        with pytest.raises(PgError, match="is not supported here: it would depend on the time of reading") as raised:
            plan_query(parse_query(sql), context, None, maintained=maintained)
        assert raised.value.hint == "Use now() or current_date."


@pytest.mark.parametrize("definition", ["a date default 'today'", "a date default date 'today'"])
def test_defaults_cannot_contain_words_for_the_time(definition: str) -> None:
    (statement,) = parse_each(f"create table new ({definition})")
    assert isinstance(statement, CreateTable)
    (column,) = statement.columns
    with pytest.raises(PgError, match="is not supported here: it would depend on the time of reading"):
        plan_default(column, PlanContext(ours.state(), "materialize", ("public",), "tide"))
