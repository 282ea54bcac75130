"""The rules of functions for infinite dates and timestamps, and the guard of functions without a rule."""

from __future__ import annotations

import pytest

from protocol.pgwire.datetime_output import DATE_INFINITY, INFINITY, MINUS_INFINITY
from protocol.pgwire.errors import PgError
from protocol.pgwire.types import DATE, INT4, TIMESTAMP, TIMESTAMPTZ, PgType
from server.sql.expressions import Call, Column, ColumnRef, Expression, Literal, SessionValue
from server.sql.functions.table import TABLES, Function
from server.sql.functions.worker import evaluator
from server.sql.render.calls import infinite_or_finite, may_be_infinite

UNGUARDED = Function(
    "days_since", (TIMESTAMP, DATE), INT4, "datediff({0}, {1})", python=lambda us, days: us // 86_400_000_000 - days
)


def column(number: int, type: PgType) -> ColumnRef:
    return ColumnRef(Column(number, f"c{number}", type, True))


def spark(function: Function, *arguments: Expression) -> str:
    guarded = [i for i in function.guarded if may_be_infinite(arguments[i])]
    texts = [f"x{i}" for i in range(len(arguments))]
    return infinite_or_finite(Call(function, arguments, function.result, True), texts, guarded)


@pytest.mark.parametrize("values", [(INFINITY, 0), (MINUS_INFINITY, 0), (0, DATE_INFINITY)])
def test_a_function_without_a_rule_refuses_infinities(values: tuple[int, int]) -> None:
    python = evaluator(UNGUARDED, "", UNGUARDED.arguments)
    assert python(86_400_000_000, 0) == 1
    assert python(None, DATE_INFINITY) is None
    with pytest.raises(PgError, match="of an infinite date or timestamp is not supported") as refused:
        python(*values)
    assert refused.value.sqlstate == "0A000"
    assert refused.value.hint


def test_spark_refuses_them_too() -> None:
    text = spark(UNGUARDED, column(0, TIMESTAMP), column(1, DATE))
    assert "raise_error('0A000:days_since(" in text
    assert "x0 IN (" in text
    assert "x1 IN (" in text


def test_values_that_are_finite_have_no_guard() -> None:
    now, day = SessionValue("now", TIMESTAMPTZ), Literal(0, DATE)
    assert not may_be_infinite(now)
    assert not may_be_infinite(day)
    assert not may_be_infinite(Literal(None, DATE))
    assert may_be_infinite(Literal(DATE_INFINITY, DATE))
    assert "x1 IN" not in spark(UNGUARDED, column(0, TIMESTAMP), day)


def test_every_function_of_dates_and_timestamps_has_a_rule() -> None:
    without = {
        function.name
        for table in TABLES.values()
        for functions in table.values()
        for function in functions
        if function.guarded
        and (function.infinite is None or (function.spark is not None and function.infinite.spark is None))
    }
    assert without == {"mz_timestamp"}  # refuses infinities
