"""Aggregates (chapter 9.21).

A form has {d} for DISTINCT and {f} for what follows the parentheses (FILTER, OVER); {a} is an ordered list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protocol.pgwire.types import NUMERIC_PRECISION_MAX
from server.sql import decimals
from server.sql.decimals import Shape
from server.sql.expressions import Expression
from server.sql.functions.table import (
    FUNCTIONS,
    INTEGERS,
    Form,
    Kind,
    Nulls,
    fixed,
    row,
    same_shape,
    shape_of,
)


def _aggregate(
    name: str,
    arguments: str,
    result: str,
    spark: str | Form | None,
    nulls: Nulls = Nulls.MAYBE,
    shape: Callable[[Sequence[Expression]], Shape] | None = None,
) -> None:
    row(FUNCTIONS, name, arguments, result, spark, Kind.AGGREGATE, nulls, shape)


def _sum_shape(args: Sequence[Expression]) -> Shape:
    shape = shape_of(args[0])
    return Shape(min(shape.precision + 10, NUMERIC_PRECISION_MAX), shape.scale)


def _average_operation(args: Sequence[Expression]) -> decimals.Operation:
    return decimals.divide(_sum_shape(args), Shape(19, 0))


def _average(args: Sequence[Expression], texts: Sequence[str]) -> str:
    """PostgreSQL's: the exact sum, divided once."""
    operation = _average_operation(args)
    return (
        f"(CAST(sum({{d}}CAST({texts[0]} AS {shape_of(args[0])})){{f}} AS {operation.left})"
        f" / CAST(nullif(count({{d}}{texts[0]}){{f}}, 0L) AS {operation.right}))"
    )


_aggregate("count", "", "int8", "count(1){f}", nulls=Nulls.NEVER)
_aggregate("count", "any", "int8", "count({d}{0}){f}", nulls=Nulls.NEVER)
for _a in INTEGERS:
    _aggregate("avg", _a, "numeric", _average, shape=lambda args: _average_operation(args).result)
_aggregate("avg", "numeric", "numeric", _average, shape=lambda args: _average_operation(args).result)
_aggregate("avg", "float4", "float8", "avg({d}{0}){f}")
_aggregate("avg", "float8", "float8", "avg({d}{0}){f}")
_aggregate("avg", "interval", "interval", None)
_aggregate("sum", "int2", "int8", "sum({d}{0}){f}")
_aggregate("sum", "int4", "int8", "sum({d}{0}){f}")
_aggregate("sum", "int8", "numeric", "sum({d}CAST({0} AS DECIMAL(28,0))){f}", shape=fixed(38))
_aggregate("sum", "numeric", "numeric", "sum({d}{0}){f}", shape=_sum_shape)
_aggregate("sum", "float4", "float4", None)
_aggregate("sum", "float8", "float8", "sum({d}{0}){f}")
_aggregate("sum", "interval", "interval", None)
for _name in ("min", "max"):
    for _a in ("int2", "int4", "int8", "float4", "float8", "numeric", "text", "date", "time", "timestamp",
               "timestamptz"):  # fmt: skip
        _aggregate(_name, _a, _a, f"{_name}({{0}}){{f}}", shape=same_shape if _a == "numeric" else None)
    for _a in ("bpchar", "interval", "anyarray"):
        _aggregate(_name, _a, _a, None)
for _name, _spark in (("bool_and", "bool_and"), ("every", "bool_and"), ("bool_or", "bool_or")):
    _aggregate(_name, "bool", "bool", f"{_spark}({{0}}){{f}}")


# The order of a list without ORDER BY is the values' own: one canonical order, in a snapshot and in every tick.
# Not listagg: beside another DISTINCT it fails in Spark 4.3.
_aggregate("string_agg", "text text", "text", "array_join({a}, {1})")
_aggregate("array_agg", "anyelement", "anyarray", "{a}")
_aggregate("array_agg", "anyarray", "anyarray", None)
for _name in ("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"):
    for _a in ("int2", "int4", "int8", "numeric", "float4", "float8"):
        _aggregate(_name, _a, "float8" if _a.startswith("float") else "numeric", None)
