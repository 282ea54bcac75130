"""Rendering of constants to Spark SQL literals."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import prod
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.nested_lists import sizes
from server.sql import decimals
from server.sql.casts import DAY_US
from server.sql.expressions import Literal
from server.sql.functions.table import quote, shape_of
from server.sql.render.spark_types import spark_type

ELEMENTS_MAX = 50_000
"""The maximum number of elements of an array literal. Spark analyzes each element as an expression of its own."""


def literal_text(literal: Literal) -> str:
    """A Spark literal of exactly the value's type. 54000 for an array of more than ELEMENTS_MAX, 0A000 for 24:00:00."""
    type, value = literal.type, literal.value
    if value is None:
        return f"CAST(NULL AS {spark_type(type)})"
    if type.element is not None:
        count = len(value) * prod(sizes(value, type.dimensions)[1:])
        if count > ELEMENTS_MAX:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f"array of {count} elements is too long for a constant in a computed query",
                detail=f"It may have at most {ELEMENTS_MAX} elements.",
                hint="Insert the elements into a table, and join it.",
            )
        items = ", ".join(literal_text(Literal(item, type.item)) for item in value)
        return f"CAST(array({items}) AS {spark_type(type)})"
    if type.fields is not None:
        fields = (literal_text(Literal(item, field)) for item, (_, field) in zip(value, type.fields, strict=True))
        return f"CAST(struct({', '.join(fields)}) AS {spark_type(type)})"
    return _LITERALS[type.representation](value, literal)


def _integer(value: int, literal: Literal) -> str:
    suffix = {"int2": "S", "int4": "", "int8": "L"}[literal.type.name]
    return f"{value}{suffix}" if value >= 0 else f"CAST('{value}' AS {spark_type(literal.type)})"


def _decimal(value: Decimal, literal: Literal) -> str:
    shape = shape_of(literal)
    return f"CAST('{value:f}' AS {decimals.Shape(max(shape.precision, shape.scale), shape.scale)})"


def _interval(value: Any, literal: Literal) -> str:
    months, days, nanoseconds = value
    parts = f"named_struct('months', {months}, 'days', {days}, 'us', {nanoseconds // 1000}L)"
    return f"CAST({parts} AS {spark_type(literal.type)})"


_LITERALS: dict[str, Callable[[Any, Literal], str]] = {
    "bool": lambda value, literal: "true" if value else "false",
    **dict.fromkeys(("int2", "int4", "int8"), _integer),
    "float4": lambda value, literal: f"CAST('{value!r}' AS FLOAT)",
    "float8": lambda value, literal: f"CAST('{value!r}' AS DOUBLE)",
    "numeric": _decimal,
    **dict.fromkeys(
        ("text", "varchar", "bpchar", "json", "jsonb", "uuid", "unknown"), lambda value, literal: quote(value)
    ),
    "bytea": lambda value, literal: f"X'{value.hex()}'",
    "date": lambda value, literal: f"date_from_unix_date({value})",
    "time": lambda value, literal: f"TIME'{_clock(value)}'",
    "timestamp": lambda value, literal: f"CAST(timestamp_micros({value}L) AS TIMESTAMP_NTZ)",
    "timestamptz": lambda value, literal: f"timestamp_micros({value}L)",
    "interval": _interval,
}


def _clock(us: int) -> str:
    if us == DAY_US:  # PostgreSQL has this time, Spark does not
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "time 24:00:00 in a computed query is not supported",
            hint="Use 23:59:59.999999, or an interval of 24 hours.",
        )
    seconds, fraction = divmod(us, 1_000_000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
