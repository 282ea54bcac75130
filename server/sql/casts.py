"""ONE table of the casts between types: when PostgreSQL makes them by itself, and how Python and Spark make them.

Contexts as in pg_cast: `implicit` in any expression, `assignment` also into a column, `explicit` only when written.
Casts to and from text go through the types' text forms; to text is an assignment, from text must be written.
The Python form serves literals and parameters, the Spark form columns; None there means refused (0A000).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Context, Decimal
from enum import IntEnum
from functools import cache
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import fitted_numeric, format_text, parse_text
from protocol.pgwire.types import BPCHAR, NUMERIC_PRECISION_MAX, TEXT, VARCHAR, PgType, array_of, bare_numeric

DAY_US = 86_400_000_000
_INTEGERS = {"int2": 15, "int4": 31, "int8": 63}
_STRINGS = (TEXT.name, VARCHAR.name, BPCHAR.name)
_WIDE = Context(prec=1000)


class Coercion(IntEnum):
    """How willing a cast is; a context admits every cast at or below it."""

    IMPLICIT = 0
    ASSIGNMENT = 1
    EXPLICIT = 2


@dataclass(frozen=True, slots=True)
class CastRule:
    """`python(value, target)` over a value that is not None. `spark`: {0} is the operand, {t} the target's type."""

    context: Coercion
    python: Callable[[Any, PgType], Any]
    spark: str | None


def _same(value: Any, target: PgType) -> Any:
    return value


def _to_integer(value: Any, target: PgType) -> int:
    """From an integer, a numeric (half away from zero) or a float (half to even)."""
    if isinstance(value, float) and value - value != 0:
        raise _out_of_range(target)
    result = int(value.quantize(Decimal(1), ROUND_HALF_UP, _WIDE)) if isinstance(value, Decimal) else round(value)
    bound = 1 << _INTEGERS[target.name]
    if not -bound <= result < bound:
        raise _out_of_range(target)
    return result


def _out_of_range(type: PgType) -> PgError:
    return PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, f"{type.base_display} out of range")


def _to_float(value: Any, target: PgType) -> float:
    return float(value)


def _to_numeric(value: Any, target: PgType) -> Decimal:
    if isinstance(value, float):
        return Decimal(f"{value:.15g}")  # float8's 15 certain digits, as PostgreSQL takes them
    return Decimal(value)


def _float4_to_numeric(value: float, target: PgType) -> Decimal:
    return Decimal(f"{value:.6g}")


_CAST = "CAST({0} AS {t})"
_FROM_DOUBLE = "CAST(IF({0} IS NULL, NULL, format_string('%.14e', {0})) AS {t})"  # format_string writes NULL as a word
_FROM_FLOAT = "CAST(IF({0} IS NULL, NULL, format_string('%.5e', CAST({0} AS DOUBLE))) AS {t})"
_I, _A, _E = Coercion.IMPLICIT, Coercion.ASSIGNMENT, Coercion.EXPLICIT
_TABLE: dict[tuple[str, str], CastRule] = {
    ("int2", "int4"): CastRule(_I, _same, _CAST),
    ("int2", "int8"): CastRule(_I, _same, _CAST),
    ("int4", "int8"): CastRule(_I, _same, _CAST),
    ("int4", "int2"): CastRule(_A, _to_integer, _CAST),
    ("int8", "int2"): CastRule(_A, _to_integer, _CAST),
    ("int8", "int4"): CastRule(_A, _to_integer, _CAST),
    **{(i, "numeric"): CastRule(_I, _to_numeric, _CAST) for i in _INTEGERS},
    **{(i, f): CastRule(_I, _to_float, _CAST) for i in _INTEGERS for f in ("float4", "float8")},
    **{("numeric", i): CastRule(_A, _to_integer, "CAST(round({0}, 0) AS {t})") for i in _INTEGERS},
    **{(f, i): CastRule(_A, _to_integer, "CAST(rint({0}) AS {t})") for i in _INTEGERS for f in ("float4", "float8")},
    ("numeric", "float4"): CastRule(_I, _to_float, _CAST),
    ("numeric", "float8"): CastRule(_I, _to_float, _CAST),
    ("float4", "float8"): CastRule(_I, _same, _CAST),
    ("float8", "float4"): CastRule(_A, _to_float, _CAST),
    ("float8", "numeric"): CastRule(_A, _to_numeric, _FROM_DOUBLE),
    ("float4", "numeric"): CastRule(_A, _float4_to_numeric, _FROM_FLOAT),
    ("int4", "bool"): CastRule(_E, lambda value, target: value != 0, "({0} <> 0)"),
    ("bool", "int4"): CastRule(_E, lambda value, target: int(value), _CAST),
    ("date", "timestamp"): CastRule(_I, lambda value, target: value * DAY_US, _CAST),
    ("date", "timestamptz"): CastRule(_I, lambda value, target: value * DAY_US, _CAST),
    ("timestamp", "timestamptz"): CastRule(_I, _same, _CAST),
    ("timestamptz", "timestamp"): CastRule(_A, _same, _CAST),
    ("timestamp", "date"): CastRule(_A, lambda value, target: value // DAY_US, _CAST),
    ("timestamptz", "date"): CastRule(_A, lambda value, target: value // DAY_US, _CAST),
    ("timestamp", "time"): CastRule(_A, lambda value, target: value % DAY_US, None),
    ("timestamptz", "time"): CastRule(_A, lambda value, target: value % DAY_US, None),
    ("json", "jsonb"): CastRule(_A, lambda value, target: parse_text(target, value), None),
    ("jsonb", "json"): CastRule(_A, _same, "{0}"),
}
ZONED = frozenset(
    {
        ("date", "timestamptz"),
        ("timestamp", "timestamptz"),
        ("timestamptz", "timestamp"),
        ("timestamptz", "date"),
        ("timestamptz", "time"),
        ("timestamptz", "text"),
        ("text", "timestamptz"),
    }
)
"""Casts that depend on the session's time zone."""

_TO_TEXT: dict[str, str | None] = {
    **dict.fromkeys(("bool", "int2", "int4", "int8", "numeric", "date", "time", "timestamp"), "CAST({0} AS STRING)"),
    "timestamptz": "concat(CAST(CAST({0} AS TIMESTAMP_NTZ) AS STRING), '+00')",
    "bytea": "concat('\\\\x', lower(hex({0})))",
    **dict.fromkeys(("uuid", "json", "jsonb"), "{0}"),
}
_FROM_TEXT = dict.fromkeys(("bool", "int2", "int4", "int8", "numeric", "float8", "float4", "date", "timestamp"), _CAST)


def _text_of(source: PgType) -> Callable[[Any, PgType], Any]:
    if source.name == "bool":
        return lambda value, target: "true" if value else "false"
    if source.name == "bpchar":
        return lambda value, target: value.rstrip(" ")
    return lambda value, target: format_text(source, value)


@cache
def find_cast(source: PgType, target: PgType) -> CastRule | None:
    """The rule between two types, modifiers aside; None if PostgreSQL has no such cast."""
    if source.element is not None and target.element is not None:
        return _array_cast(find_cast(source.element, target.element), source.element, target.element)
    if source.name == target.name:
        return CastRule(_I, _same, "{0}")
    if source.name in _STRINGS and target.name in _STRINGS:
        trims = source.name == "bpchar"
        return CastRule(_I, _text_of(source) if trims else _same, "rtrim({0})" if trims else "{0}")
    if target.name in _STRINGS:
        spark = _TO_TEXT.get(source.name) if source.element is None else None
        return CastRule(_A, _text_of(source), spark)
    if source.name in _STRINGS:
        spark = _FROM_TEXT.get(target.name) if source.name != "bpchar" else None
        return CastRule(_E, lambda value, target: parse_text(target.without_modifiers, value), spark)
    return _TABLE.get((source.name, target.name))


def _array_cast(rule: CastRule | None, source: PgType, target: PgType) -> CastRule | None:
    if rule is None:
        return None

    def python(value: list[Any], to: PgType) -> list[Any]:
        return [None if v is None else modify(rule.python(v, target), target) for v in value]

    spark = None if rule.spark is None else "transform({0}, e -> " + rule.spark.replace("{0}", "e") + ")"
    return CastRule(rule.context, python, "{0}" if rule.spark == "{0}" else spark)


# -- modifiers --------------------------------------------------------------------------------------------------


def modify(value: Any, type: PgType, *, assignment: bool = False) -> Any:
    """`value`, of the type without modifiers, made to fit varchar(n), char(n) or numeric's scale and precision.

    A string too long is cut by an explicit cast; an assignment (22001) only cuts spaces. 22003 for a numeric.
    """
    if value is None:
        return None
    if type.length is not None:
        if len(value) > type.length:
            if assignment and value[type.length :].strip(" "):
                message = f"value too long for type {type.display}"
                raise PgError(SqlState.STRING_DATA_RIGHT_TRUNCATION, message)
            value = value[: type.length]
        return value.ljust(type.length) if type.name == "bpchar" else value
    if type.name == "numeric":
        return fitted_numeric(type, value)
    if type.element is not None and (type.element.length is not None or type.element.precision is not None):
        return [modify(item, type.element, assignment=assignment) for item in value]
    return value


def natural_numeric(value: Decimal) -> PgType:
    """The numeric type whose scale is the value's own: what a literal has. 22003 beyond 38 digits."""
    exponent = value.as_tuple().exponent
    type = bare_numeric(max(-exponent, 0) if isinstance(exponent, int) else 0)
    if (type.scale or 0) > NUMERIC_PRECISION_MAX:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "numeric value has more than 38 digits")
    fitted_numeric(type, value)
    return type


def has_modifiers(type: PgType) -> bool:
    inner = type.element or type
    return inner.length is not None or inner.precision is not None


def resulting_type(source: PgType, target: PgType) -> PgType:
    """The type of a cast to `target`: a bare numeric keeps or gets the scale that the source has."""
    if target.element is not None and source.element is not None:
        return array_of(resulting_type(source.element, target.element))
    if target.name == "numeric" and target.precision is None:
        if source.name == "numeric":
            return replace(source, precision=None)
        if source.name in _INTEGERS:
            return bare_numeric(0)
    return target
