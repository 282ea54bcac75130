"""Dates, times and intervals (chapter 9.9)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.decimals import Shape
from server.sql.expressions import Expression
from server.sql.functions.table import (
    FUNCTIONS,
    OPERATORS,
    Form,
    literal,
    row,
)

row(OPERATORS, "+", "date int4", "date", "date_add({0}, {1})")
row(OPERATORS, "+", "int4 date", "date", "date_add({1}, {0})")
row(OPERATORS, "-", "date int4", "date", "date_sub({0}, {1})")
row(OPERATORS, "-", "date date", "int4", "datediff({0}, {1})")
for _symbol in "+-":
    row(OPERATORS, _symbol, "date interval", "timestamp", f"(CAST({{0}} AS TIMESTAMP_NTZ) {_symbol} {{1}})")
    row(OPERATORS, _symbol, "timestamp interval", "timestamp", f"({{0}} {_symbol} {{1}})")
    row(OPERATORS, _symbol, "timestamptz interval", "timestamptz", f"({{0}} {_symbol} {{1}})", zoned=True)
    row(OPERATORS, _symbol, "interval interval", "interval", None)
    row(OPERATORS, _symbol, "time interval", "time", None)
row(OPERATORS, "+", "interval date", "timestamp", "(CAST({1} AS TIMESTAMP_NTZ) + {0})")
row(OPERATORS, "+", "interval timestamp", "timestamp", "({1} + {0})")
row(OPERATORS, "+", "interval timestamptz", "timestamptz", "({1} + {0})", zoned=True)
row(OPERATORS, "+", "date time", "timestamp", None)
row(OPERATORS, "+", "time date", "timestamp", None)
row(OPERATORS, "-", "interval", "interval", None)
row(OPERATORS, "*", "interval float8", "interval", None)
row(OPERATORS, "*", "float8 interval", "interval", None)
row(OPERATORS, "/", "interval float8", "interval", None)
row(OPERATORS, "-", "time time", "interval", None)
# in PostgreSQL the difference is whole days and the rest; {x} are microseconds
_DIFFERENCE = (
    "make_interval(0, 0, 0, CAST(({x} div 86400000000L) AS INT), 0, 0, "
    "CAST(({x} % 86400000000L) AS DECIMAL(18,0)) * 0.000001BD)"
)
row(OPERATORS, "-", "timestamp timestamp", "interval", _DIFFERENCE.replace("{x}",
     "(unix_micros(CAST({0} AS TIMESTAMP_LTZ)) - unix_micros(CAST({1} AS TIMESTAMP_LTZ)))"))  # fmt: skip
row(OPERATORS, "-", "timestamptz timestamptz", "interval",
     _DIFFERENCE.replace("{x}", "(unix_micros({0}) - unix_micros({1}))"))  # fmt: skip

_TRUNCATIONS = ("microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
_FIELD_ALIASES = {
    "years": "year", "months": "month", "mon": "month", "days": "day", "hours": "hour", "minutes": "minute",
    "min": "minute", "mins": "minute", "seconds": "second", "sec": "second", "secs": "second", "weeks": "week",
    "millisecond": "milliseconds", "msec": "milliseconds", "ms": "milliseconds", "microsecond": "microseconds",
    "usec": "microseconds", "us": "microseconds", "qtr": "quarter", "decades": "decade", "centuries": "century",
    "millennia": "millennium", "y": "year", "d": "day", "h": "hour", "m": "minute", "s": "second", "w": "week",
}  # fmt: skip


def _field(argument: Expression) -> str:
    name = str(literal(argument, "a field name")).lower()
    return _FIELD_ALIASES.get(name, name)


def _check_truncation(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    if _field(args[0]) not in _TRUNCATIONS:
        raise _unit_refused(args[0], args[1].type)
    return args


def _unit_refused(argument: Expression, type: PgType) -> PgError:
    written = str(literal(argument, "a field name")).lower()
    known = _field(argument) in _EXTRACTIONS or _field(argument) in ("julian", "timezone")
    if not known:
        return PgError(
            SqlState.INVALID_PARAMETER_VALUE, f'unit "{written}" not recognized for type {type.base_display}'
        )
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f'unit "{written}" not supported for type {type.base_display}')


def _truncate(spark_type: str) -> Form:
    spark = {"microseconds": "MICROSECOND", "milliseconds": "MILLISECOND"}
    return lambda args, texts: (
        f"CAST(date_trunc('{spark.get(_field(args[0]), _field(args[0]))}', {texts[1]}) AS {spark_type})"
    )


row(FUNCTIONS, "date_trunc", "text timestamp", "timestamp", _truncate("TIMESTAMP_NTZ"), prepare=_check_truncation)
row(FUNCTIONS, "date_trunc", "text timestamptz", "timestamptz", _truncate("TIMESTAMP_LTZ"), zoned=True,
     prepare=_check_truncation)  # fmt: skip
row(FUNCTIONS, "date_trunc", "text interval", "interval", None)

_SECONDS = "extract(SECOND FROM {0})"
# field: Spark form, shape; a date has those before "hour"
_EXTRACTIONS: dict[str, tuple[str, Shape]] = {
    "millennium": ("((year({0}) + 999) div 1000)", Shape(20, 0)),
    "century": ("((year({0}) + 99) div 100)", Shape(20, 0)),
    "decade": ("(year({0}) div 10)", Shape(20, 0)),
    "year": ("year({0})", Shape(20, 0)),
    "isoyear": ("extract(YEAROFWEEK FROM {0})", Shape(20, 0)),
    "quarter": ("quarter({0})", Shape(20, 0)),
    "month": ("month({0})", Shape(20, 0)),
    "week": ("weekofyear({0})", Shape(20, 0)),
    "day": ("day({0})", Shape(20, 0)),
    "doy": ("dayofyear({0})", Shape(20, 0)),
    "dow": ("(dayofweek({0}) - 1)", Shape(20, 0)),
    "isodow": ("(weekday({0}) + 1)", Shape(20, 0)),
    "epoch": ("", Shape(26, 6)),
    "hour": ("hour({0})", Shape(20, 0)),
    "minute": ("minute({0})", Shape(20, 0)),
    "second": (_SECONDS, Shape(8, 6)),
    "milliseconds": (f"({_SECONDS} * 1000BD)", Shape(8, 3)),
    "microseconds": (f"({_SECONDS} * 1000000BD)", Shape(8, 0)),
}
_TIME_FIELDS = ("hour", "minute", "second", "milliseconds", "microseconds")
_MICROS = "CAST(CAST(unix_micros(CAST({0} AS TIMESTAMP_LTZ)) AS DECIMAL(20,0)) * 0.000001BD AS DECIMAL(26,6))"


def _extraction(args: Sequence[Expression]) -> tuple[str, Shape]:
    """Spark form and shape of a field of a date, time or timestamp."""
    field, type = _field(args[0]), args[1].type.name
    known = _EXTRACTIONS.get(field)
    has = {"date": field not in _TIME_FIELDS, "time": field in _TIME_FIELDS}.get(type, True)
    if known is None or not has:
        raise _unit_refused(args[0], args[1].type)
    if field == "epoch":
        return ("(unix_date({0}) * 86400L)", Shape(20, 0)) if type == "date" else (_MICROS, known[1])
    return known


def _check_extraction(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    _extraction(args)
    return args


def _extract(args: Sequence[Expression], texts: Sequence[str]) -> str:
    form, shape = _extraction(args)
    return f"CAST({form.format(texts[1])} AS {shape})"


for _a in ("date", "timestamp", "timestamptz"):
    row(FUNCTIONS, "extract", f"text {_a}", "numeric", _extract, shape=lambda args: _extraction(args)[1],
         prepare=_check_extraction, zoned=_a == "timestamptz")  # fmt: skip
    row(FUNCTIONS, "date_part", f"text {_a}", "float8",
         lambda args, texts: f"CAST({_extract(args, texts)} AS DOUBLE)", prepare=_check_extraction,
         zoned=_a == "timestamptz")  # fmt: skip
for _name, _a in product(("extract", "date_part"), ("interval", "time")):
    row(FUNCTIONS, _name, f"text {_a}", "numeric" if _name == "extract" else "float8", None)
row(FUNCTIONS, "make_date", "int4 int4 int4", "date", "make_date({0}, {1}, {2})")
row(FUNCTIONS, "age", "timestamp timestamp", "interval", None)
row(FUNCTIONS, "age", "timestamptz timestamptz", "interval", None)
