"""Casts to and from mz_timestamp: unsigned 64-bit milliseconds since 1970, represented as a numeric of scale 0."""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

from catalog.ids import TIMESTAMP_MAX
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import MZ_TIMESTAMP, TIMESTAMP, TIMESTAMPTZ, UNKNOWN, PgType
from server.sql.bind.binder import Binder
from server.sql.bind.shapes import unparenthesised
from server.sql.casts import in_range
from server.sql.coerce import EXPLICIT
from server.sql.expressions import Call, Expression, Literal
from server.sql.functions.table import Function
from server.sql.infinities import is_infinite
from server.sql.temporal import in_milliseconds, is_now

NAME = "mz_timestamp"
_TO_TIMESTAMPTZ = Function(
    "timestamptz",
    (MZ_TIMESTAMP,),
    TIMESTAMPTZ,
    "timestamp_millis(CAST({0} AS BIGINT))",
    python=lambda milliseconds: in_range(int(milliseconds) * 1_000),
)


def to_mz_timestamp(binder: Binder, expression: Expression, tree: exp.Expr) -> Expression:
    """Casts a number, a date or timestamp, or a text of either. 22P02 or 22003 for an invalid constant."""
    if isinstance(expression, Literal) and isinstance(expression.value, str):
        expression = Literal(_parsed(expression.value, binder.at(tree)), MZ_TIMESTAMP, expression.position)
    expression = binder.rescale(binder.coerce(in_milliseconds(expression), MZ_TIMESTAMP, EXPLICIT), MZ_TIMESTAMP)
    value = expression.value if isinstance(expression, Literal) else None
    if value is not None and not 0 <= value <= TIMESTAMP_MAX:
        message = f"{value:f} is out of range for type mz_timestamp"
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, message, position=binder.at(tree))
    return expression


def is_mz_timestamp(expression: Expression, tree: exp.Expr) -> bool:
    """Whether the expression, bound from `tree`, is mz_now() or a cast to mz_timestamp. Its type is only numeric."""
    tree = unparenthesised(tree)
    is_cast = isinstance(tree, exp.Cast) and isinstance(tree.args["to"], exp.DataType)
    spelled = tree.args["to"].args.get("kind") if is_cast else None
    name = spelled.name if isinstance(spelled, exp.Expr) else spelled
    return name == NAME or is_now(expression)


def to_timestamp(binder: Binder, expression: Expression, target: PgType) -> Expression:
    """An mz_timestamp as a timestamp with or without time zone."""
    call = Call(_TO_TIMESTAMPTZ, (expression,), TIMESTAMPTZ, expression.nullable)
    return call if target == TIMESTAMPTZ else binder.coerce(call, target, EXPLICIT)


def is_target(source: PgType, target: PgType) -> bool:
    """Whether `to_timestamp` can cast an mz_timestamp of type `source` to `target`."""
    return target in (TIMESTAMP, TIMESTAMPTZ) and source != UNKNOWN and source.name == MZ_TIMESTAMP.name


def _parsed(text: str, position: int | None) -> Decimal:
    if text.strip().isdecimal() and text.isascii():
        return Decimal(text.strip())
    try:
        microseconds = parse_text(TIMESTAMPTZ, text)
        if is_infinite(TIMESTAMPTZ, microseconds):
            raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, f'"{text}" is out of range for type mz_timestamp')
    except PgError as refused:
        if refused.sqlstate is SqlState.NUMERIC_VALUE_OUT_OF_RANGE:
            refused.position = position
            raise
        message = f'invalid input syntax for type mz_timestamp: "{text}"'
        hint = "Write milliseconds since 1970, or a date and time."
        error = PgError(SqlState.INVALID_TEXT_REPRESENTATION, message, hint=hint, position=position)
        raise error from None
    return Decimal(microseconds // 1_000)
