"""AS OF, UP TO and similar clauses: constant expressions that are converted to timestamps or durations."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from sqlglot import exp

from catalog.ids import TIMESTAMP_MAX
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import INTERVAL, TIMESTAMPTZ, PgType
from server.dataflow.runtime.spark_rows import spark_rows
from server.execution.planning import plan_expression
from server.session_state.context import Context
from server.sql.expressions import walk
from server.sql.grammar.statements.parts import Expr
from server.sql.infinities import is_infinite
from server.sql.plan import QueryPlan
from server.sql.relations import Aggregate

DIGITS_MAX = 1_000  # of a time as a text; a timestamp has at most 20, and Python converts at most 4,300
_NOT_THE_VALUES_FAULT = ("53", "57", "58", "XX")  # classes of server errors: resources, intervention, system, internal


def refuse_parameters(expression: Expr) -> None:
    """PgError 42P02 if a time contains a parameter: times must be constants in the statement's text."""
    parameter = expression.tree.find(exp.Parameter)
    if parameter is not None:
        message = f"there is no parameter ${parameter.name}"
        hint = "Write it as a constant in the statement: parameters are not possible here."
        raise PgError(SqlState.UNDEFINED_PARAMETER, message, position=expression.position, hint=hint)


async def timestamp_of(context: Context, expression: Expr, clause: str = "AS OF or UP TO") -> int:
    """The expression's value in milliseconds, 0 to 2^64 - 1. Else PgError 22023 with Materialize's message."""
    not_castable = f"{clause} should be castable to a (non-null) mz_timestamp value"
    plan, value = await _constant(context, expression, clause, not_castable)
    time = _milliseconds(value, plan.columns[0].type, expression, clause)
    if time is None or not 0 <= time <= TIMESTAMP_MAX:
        hint = "Write milliseconds since 1970, or a timestamp such as '2026-01-31 12:00:00'."
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, not_castable, hint=hint, position=expression.position)
    return time


async def duration_of(context: Context, expression: Expr, clause: str) -> int:
    """The value of an expression cast to interval, in whole milliseconds. Else PgError 22023."""
    not_castable = f"{clause} should be castable to a (non-null) interval"
    _, value = await _constant(context, expression, clause, not_castable, INTERVAL)
    if not isinstance(value, pa.MonthDayNano):
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, not_castable, position=expression.position)
    return milliseconds_of(value)


def milliseconds_of(interval: pa.MonthDayNano) -> int:
    """A month counts as 30 days and a day as 24 hours, as when PostgreSQL compares intervals."""
    days = interval.months * 30 + interval.days
    return int(days * 86_400_000 + interval.nanoseconds // 1_000_000)


def interval_of_ms(duration_ms: int) -> pa.MonthDayNano:
    """An interval of that length: whole days and the remainder."""
    days, rest_ms = divmod(duration_ms, 86_400_000)
    return pa.MonthDayNano([0, days, rest_ms * 1_000_000])


def interval_text(duration_ms: int) -> str:
    """A duration in interval syntax: `90s`, `1.500s`."""
    whole, rest = divmod(duration_ms, 1_000)
    return f"{whole}.{rest:03}s" if rest else f"{whole}s"


async def _constant(
    context: Context, expression: Expr, clause: str, not_castable: str, type: PgType | None = None
) -> tuple[QueryPlan, object]:
    """Plans a constant expression, cast to `type` if given. Returns the plan and the value."""
    refuse_parameters(expression)
    try:
        plan = plan_expression(expression, context.plan_context(), type)
    except PgError as error:
        if error.sqlstate is not SqlState.NUMERIC_VALUE_OUT_OF_RANGE:
            raise
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, not_castable, position=expression.position) from error
    if plan.uses_session:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"calling an unmaterializable function in {clause} not yet supported",
            position=expression.position,
            hint="Write a constant, or compute the time first: SELECT mz_now().",
        )
    if plan.inputs:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"{clause} does not allow subqueries",
            position=expression.position,
            hint="Execute the query first, and write its result as a constant.",
        )
    if any(isinstance(node, Aggregate) for node in walk(plan.relation)):
        message = f"aggregate functions are not allowed in {clause}"
        raise PgError(SqlState.GROUPING_ERROR, message, position=expression.position)
    try:
        return plan, await _value(context, plan)
    except PgError as error:
        if error.sqlstate.startswith(_NOT_THE_VALUES_FAULT):
            raise
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, not_castable, position=expression.position) from error


async def _value(context: Context, plan: QueryPlan) -> object:
    """The single value of a query that reads nothing: dates in days, timestamps in microseconds."""
    if plan.constant is not None:
        return await context.evaluator.value(plan.constant, context.bindings())
    table = await spark_rows(plan, context.bindings(), context.engine, {})
    column = table.column(0)
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return column[0].as_py() if len(column) == 1 else None


TIMEOUT_MAX_S = 86_400


def fetch_timeout_s(text: str | None) -> float | None:
    """FETCH ... WITH (TIMEOUT interval) in seconds. PgError 22023 if negative or longer than one day."""
    if text is None:
        return None
    seconds = milliseconds_of(parse_text(INTERVAL, text)) / 1_000
    if seconds < 0:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "invalid TIMEOUT: cannot convert negative interval to duration")
    if seconds > TIMEOUT_MAX_S:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"timeout out of range: {seconds:g}s")
    return float(seconds)


def _of_date_and_time(text: str) -> int | None:
    try:
        time = parse_text(TIMESTAMPTZ, text)
    except PgError:
        return None
    return None if is_infinite(TIMESTAMPTZ, time) else int(time) // 1_000


def _milliseconds(value: object, type: PgType, expression: Expr, clause: str) -> int | None:
    """Returns milliseconds; None if the value is no valid timestamp. PgError 42846 without a cast to mz_timestamp."""
    if type.name in ("date", "timestamp", "timestamptz") and isinstance(value, int):
        if is_infinite(type, value):
            return None
        return value * 86_400_000 if type.name == "date" else value // 1_000
    if type.name not in ("int2", "int4", "int8", "numeric", "text", "varchar", "bpchar", "unknown"):
        if type.name in ("date", "timestamp", "timestamptz"):
            return None
        raise PgError(
            SqlState.CANNOT_COERCE,
            f"{clause} does not support casting from {type.display} to mz_timestamp",
            position=expression.position,
        )
    match value:
        case int():
            return value
        case Decimal() if value.is_finite() and value == value.to_integral_value():
            return int(value)
        case str() if value.strip().isdecimal():
            return int(value) if len(value) <= DIGITS_MAX else None
        case str():
            return _of_date_and_time(value)
        case _:
            return None
