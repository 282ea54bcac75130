"""AS OF and UP TO: a constant expression that becomes a timestamp (`spec.md` 1.4, 1.5)."""

from __future__ import annotations

from decimal import Decimal

from catalog.objects import TIMESTAMP_MAX
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import INTERVAL, PgType
from server.context import Context
from server.execution.planning import plan_expression
from server.sql.statements import Expr

_NOT_CASTABLE = "AS OF or UP TO should be castable to a (non-null) mz_timestamp value"


def timestamp_of(context: Context, expression: Expr) -> int:
    """The expression's value in milliseconds, 0 to 2^64 - 1. PgError 22023 in Materialize's words otherwise."""
    plan = plan_expression(expression, context.plan_context())
    if plan.uses_session:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "calling an unmaterializable function in AS OF or UP TO not yet supported",
            position=expression.position,
        )
    if plan.constant is None:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, _NOT_CASTABLE, position=expression.position)
    try:
        (value,) = plan.constant.evaluate_row(context.bindings())
    except PgError as error:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, _NOT_CASTABLE, position=expression.position) from error
    time = _milliseconds(value, plan.columns[0].type)
    if time is None or not 0 <= time <= TIMESTAMP_MAX:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, _NOT_CASTABLE, position=expression.position)
    return time


TIMEOUT_MAX_S = 86_400


def fetch_timeout_s(text: str | None) -> float | None:
    """FETCH ... WITH (TIMEOUT interval) in seconds. PgError 22023 for a negative one or one above a day."""
    if text is None:
        return None
    interval = parse_text(INTERVAL, text)
    days = interval.months * 30 + interval.days
    seconds = days * 86_400 + interval.nanoseconds / 1e9
    if seconds < 0:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "invalid TIMEOUT: cannot convert negative interval to duration")
    if seconds > TIMEOUT_MAX_S:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"timeout out of range: {seconds:g}s")
    return float(seconds)


def _milliseconds(value: object, type: PgType) -> int | None:
    """None when there is no such timestamp. PgError 42846 when the type has no cast to one."""
    if type.name in ("date", "timestamp", "timestamptz") and isinstance(value, int):
        return value * 86_400_000 if type.name == "date" else value // 1_000
    if type.name not in ("int2", "int4", "int8", "numeric", "text", "varchar", "bpchar", "unknown"):
        if type.name in ("date", "timestamp", "timestamptz"):
            return None
        raise PgError(
            SqlState.CANNOT_COERCE, f"AS OF or UP TO does not support casting from {type.display} to mz_timestamp"
        )
    match value:
        case int():
            return value
        case Decimal() if value == value.to_integral_value():
            return int(value)
        case str() if value.strip().isdigit():
            return int(value)
        case _:
            return None
