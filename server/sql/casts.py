"""The table of casts between types: the contexts in which PostgreSQL applies them, and their Python and Spark forms.

The contexts are those of pg_cast: `implicit` in any expression, `assignment` also on assignment to a column,
`explicit` only if written. Casts to and from text use the types' text forms: to text is an assignment cast, from text
an explicit cast. Literals and parameters are cast by the Python form, columns by the Spark form. If the Spark form is
None, columns are cast by the Python form in a Python UDF.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from protocol.pgwire.datetime_input import DATE_MIN
from protocol.pgwire.datetime_output import INFINITE_TIMESTAMPS, INFINITY, interval_text, timestamp_text
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.interval_input import interval_of
from protocol.pgwire.json_values import loaded_jsonb
from protocol.pgwire.network import address_of, full_text, narrowed, network_of, stored, widened
from protocol.pgwire.scalars import fitted_numeric, format_text, parse_text, too_many_digits
from protocol.pgwire.text_columns import OutputStyle
from protocol.pgwire.timezones import SECOND_US, Abbreviation, local_offset, offset_at, offset_text, zone
from protocol.pgwire.types import (
    BPCHAR,
    DATE,
    NUMERIC_PRECISION_MAX,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    PgType,
    array_of,
    bare_numeric,
)
from server.sql.infinities import (
    converted,
    has_infinities,
    is_infinite,
    spark_converted,
    spark_infinity,
    spark_is_infinite,
)

DAY_US = 86_400_000_000
_INTEGERS = {"int2": 15, "int4": 31, "int8": 63}
_STRINGS = (TEXT.name, VARCHAR.name, BPCHAR.name)
_WIDE = Context(prec=1000)


class Coercion(IntEnum):
    """The context of a cast. A context allows every cast whose rule has the same or a lower value."""

    IMPLICIT = 0
    ASSIGNMENT = 1
    EXPLICIT = 2


@dataclass(frozen=True, slots=True)
class CastRule:
    """`python(value, target)` casts a value that is not None. In `spark`, {0} is the operand and {t} the target type.

    `zoned(value, target, timezone)`: set if the cast depends on the session's time zone; `python` and `spark` are then
    for UTC.
    """

    context: Coercion
    python: Callable[[Any, PgType], Any]
    spark: str | None
    zoned: Callable[[Any, PgType, str], Any] | None = None

    def apply(self, value: Any, target: PgType, timezone: str) -> Any:
        return self.python(value, target) if self.zoned is None else self.zoned(value, target, timezone or "UTC")


def _same(value: Any, target: PgType) -> Any:
    return value


def _to_integer(value: Any, target: PgType) -> int:
    """Casts an integer, a numeric (rounds half away from zero) or a float (rounds half to even)."""
    if isinstance(value, float) and value - value != 0:
        raise _out_of_range(target)
    if isinstance(value, Decimal) and value.adjusted() >= NUMERIC_PRECISION_MAX:  # quantize could not represent it
        raise _out_of_range(target)
    result = int(value.quantize(Decimal(1), ROUND_HALF_UP, _WIDE)) if isinstance(value, Decimal) else round(value)
    bound = 1 << _INTEGERS[target.name]
    if not -bound <= result < bound:
        raise _out_of_range(target)
    return result


def _out_of_range(type: PgType) -> PgError:
    return PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, f"{type.base_display} out of range")


def _to_float(value: Any, target: PgType) -> float:
    if isinstance(value, Decimal):
        return float(parse_text(target, f"{value}"))
    return float(value) if target.name == "float8" else _single(value)


def _single(value: int | float) -> float:
    """The nearest float4. 22003 beyond its range."""
    with np.errstate(over="ignore", under="ignore"):
        result = float(np.float32(value))
    if math.isinf(result) and not math.isinf(value):
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
    if not result and value:
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow")
    return result


def _to_numeric(value: Any, target: PgType) -> Decimal:
    return Decimal(value)


def _float_to_numeric(digits: int) -> Callable[[float, PgType], Decimal]:
    """Rounds to `digits` significant decimal digits, as PostgreSQL does."""
    return lambda value, target: parse_text(target.without_modifiers, f"{value:.{digits}g}")


def _of_jsonb(value: str, target: PgType) -> Any:
    """Casts a jsonb number or boolean. 22023 for any other jsonb value."""
    found = loaded_jsonb(value)
    wanted = bool if target.name == "bool" else Decimal
    if type(found) is not wanted:
        kinds = {bool: "boolean", str: "string", Decimal: "numeric", list: "array", dict: "object"}
        message = f"cannot cast jsonb {kinds.get(type(found), 'null')} to type {target.base_display}"
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
    if target.name in _INTEGERS:
        return _to_integer(found, target)
    if target.name in ("float4", "float8"):
        return parse_text(target, f"{found}")
    return found


_CAST = "CAST({0} AS {t})"
_FLOAT_TO_BIGINT = "IF({0} >= 9223372036854775808D, raise_error('22003:bigint out of range'), CAST(rint({0}) AS {t}))"
_LAST_DAY = 106751990  # with a timestamp in 64 bits


def _instant_of_date(target: PgType) -> str:
    """The Spark form of the cast of a date to a timestamp."""
    too_late = f"{{0}} > date_from_unix_date({_LAST_DAY})"
    too_late = f"IF({too_late}, raise_error('22008:date out of range for timestamp'), {{0}})"
    return _unless_infinite(DATE, spark_converted(DATE, target, "{0}"), f"CAST({too_late} AS {{t}})")


def _unless_infinite(source: PgType, special: str, form: str) -> str:
    return f"IF({spark_is_infinite(source, '{0}')}, {special}, {form})"


def _date_of_instant(source: PgType) -> str:
    return _unless_infinite(source, spark_converted(source, DATE, "{0}"), _CAST)


def _time_of_instant(source: PgType) -> str:
    """An infinite timestamp has no time of day: the result is NULL."""
    micros = "IF({infinite}, NULL, unix_micros(CAST({0} AS TIMESTAMP_LTZ)))"
    micros = micros.replace("{infinite}", spark_is_infinite(source, "{0}"))
    return f"time_from_micros(pmod({micros}, 86400000000L))"


NETWORK = "concat(substring({0}, 1, octet_length({0}) DIV 2 + 1), substring({0}, 2, octet_length({0}) DIV 2 - 1))"
"""The Spark form of the cast of an inet to cidr."""
_WIDENED = "concat(substring({0}, 1, 3), X'FFFE', substring({0}, 4, 3))"
_NARROWED = (
    "IF(substring({0}, 4, 2) <> X'FFFE', raise_error('22003:macaddr8 data out of range to convert to macaddr'), "
    "concat(substring({0}, 1, 3), substring({0}, 6, 3)))"
)
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
    **{
        (f, i): CastRule(_A, _to_integer, _FLOAT_TO_BIGINT if i == "int8" else "CAST(rint({0}) AS {t})")
        for i in _INTEGERS
        for f in ("float4", "float8")
    },
    ("numeric", "float4"): CastRule(_I, _to_float, _CAST),
    ("numeric", "float8"): CastRule(_I, _to_float, _CAST),
    ("float4", "float8"): CastRule(_I, _same, _CAST),
    ("float8", "float4"): CastRule(_A, _to_float, None),
    ("float8", "numeric"): CastRule(_A, _float_to_numeric(15), None),
    ("float4", "numeric"): CastRule(_A, _float_to_numeric(6), None),
    ("int4", "bool"): CastRule(_E, lambda value, target: value != 0, "({0} <> 0)"),
    ("bool", "int4"): CastRule(_E, lambda value, target: int(value), _CAST),
    ("date", "timestamp"): CastRule(_I, lambda value, target: date_to_timestamp(value), _instant_of_date(TIMESTAMP)),
    ("date", "timestamptz"): CastRule(
        _I,
        lambda value, target: date_to_timestamp(value),
        _instant_of_date(TIMESTAMPTZ),
        lambda value, target, timezone: instant(date_to_timestamp(value), zone(timezone)),
    ),
    ("timestamp", "timestamptz"): CastRule(
        _I, _same, _CAST, lambda value, target, timezone: instant(value, zone(timezone))
    ),
    ("timestamptz", "timestamp"): CastRule(
        _A, _same, _CAST, lambda value, target, timezone: local_time(value, zone(timezone))
    ),
    ("timestamp", "date"): CastRule(_A, lambda value, target: _date_of(value), _date_of_instant(TIMESTAMP)),
    ("timestamptz", "date"): CastRule(
        _A,
        lambda value, target: _date_of(value),
        _date_of_instant(TIMESTAMPTZ),
        lambda value, target, timezone: _date_of(local_time(value, zone(timezone))),
    ),
    ("timestamp", "time"): CastRule(_A, lambda value, target: _time_of(value), _time_of_instant(TIMESTAMP)),
    ("timestamptz", "time"): CastRule(
        _A,
        lambda value, target: _time_of(value),
        _time_of_instant(TIMESTAMPTZ),
        lambda value, target, timezone: _time_of(local_time(value, zone(timezone))),
    ),
    ("time", "interval"): CastRule(_I, lambda value, target: interval_of(0, 0, value), None),
    ("interval", "time"): CastRule(_A, lambda value, target: value[2] // 1_000 % DAY_US, None),
    ("json", "jsonb"): CastRule(_A, lambda value, target: parse_text(target, value), None),
    **{
        ("jsonb", name): CastRule(_E, lambda value, target: _of_jsonb(value, target), None)
        for name in ("bool", "numeric", "float4", "float8", *_INTEGERS)
    },
    ("jsonb", "json"): CastRule(_A, _same, "{0}"),
    ("cidr", "inet"): CastRule(_I, _same, "{0}"),
    ("inet", "cidr"): CastRule(_A, lambda value, target: stored(network_of(address_of(value))), NETWORK),
    ("macaddr", "macaddr8"): CastRule(_I, lambda value, target: widened(value), _WIDENED),
    ("macaddr8", "macaddr"): CastRule(_I, lambda value, target: narrowed(value), _NARROWED),
}
# Spark prints years after 9999 and years BC in a different format than PostgreSQL
_DATE_TEXT = (
    "IF({0} IS NULL, NULL, "
    "format_string('%04d-%02d-%02d', IF(year({0}) > 0, year({0}), 1 - year({0})), month({0}), day({0})))"
)
_ERA = "IF(year({0}) > 0, '', ' BC')"
_INSTANT_TEXT = (
    "IF(year({0}) BETWEEN 1 AND 9999, concat(CAST({0} AS STRING), '{zone}'), "
    f"concat({_DATE_TEXT}, ' ', substring_index(CAST({{0}} AS STRING), ' ', -1), '{{zone}}', {_ERA}))"
)


def _named_infinities(type: PgType, form: str) -> str:
    name = f"IF({{0}} = {spark_infinity(type)}, 'infinity', '-infinity')"
    return _unless_infinite(type, name, form)


_TO_TEXT: dict[str, str | None] = {
    **dict.fromkeys(("bool", "int2", "int4", "int8", "numeric", "time"), "CAST({0} AS STRING)"),
    "date": _named_infinities(
        DATE, f"IF(year({{0}}) BETWEEN 1 AND 9999, CAST({{0}} AS STRING), concat({_DATE_TEXT}, {_ERA}))"
    ),
    "timestamp": _named_infinities(TIMESTAMP, _INSTANT_TEXT.replace("{zone}", "")),
    "timestamptz": _named_infinities(TIMESTAMPTZ, _INSTANT_TEXT.replace("{zone}", "+00")),
    "bytea": "concat('\\\\x', lower(hex({0})))",
    **dict.fromkeys(("uuid", "json", "jsonb", "record"), "{0}"),
}


def _text_of(source: PgType) -> Callable[[Any, PgType], Any]:
    if source.name == "bool":
        return lambda value, target: "true" if value else "false"
    if source.name == "bpchar":
        return lambda value, target: value.rstrip(" ")
    if source.name in ("inet", "cidr"):
        return lambda value, target: full_text(address_of(value))
    return lambda value, target: text_form(source, value)


def text_form(type: PgType, value: Any) -> str:
    """The text of a value that is not None, as PostgreSQL prints it. A numeric is as a client receives it."""
    match type.name:
        case "numeric":
            return numeric_text(type, value)
        case "_numeric" if type.element is not None:
            texts = ("NULL" if item is None else text_form(type.item, item) for item in value)
            return "{" + ",".join(texts) + "}"
        case "text" | "varchar" | "bpchar" | "json" | "jsonb" | "uuid" | "record":
            return str(value)
        case "int2" | "int4" | "int8":
            return str(value)
        case "interval":
            return interval_text(value[0], value[1], value[2] // 1_000)
    return format_text(type, value)


def numeric_text(type: PgType, value: Decimal) -> str:
    """The text of a numeric, with the decimals of the type."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if type.hides_zeros and "." in text else text


def _zoned_text(source: PgType) -> Callable[[Any, PgType, str], Any] | None:
    if (source.element or source).name != "timestamptz":
        return None
    if source.element is None:
        return lambda value, target, timezone: _text_in(value, zone(timezone))
    return lambda value, target, timezone: format_text(source, value, OutputStyle(timezone=timezone))


def _text_in(us: int, where: tzinfo) -> str:
    if us in INFINITE_TIMESTAMPS:
        return INFINITE_TIMESTAMPS[us]
    offset = offset_at(where, us)
    return timestamp_text(us + offset * SECOND_US, offset_text(offset))


def _zoned_value(target: PgType) -> Callable[[Any, PgType, str], Any] | None:
    if (target.element or target).name != "timestamptz":
        return None
    return lambda value, target, timezone: parse_text(target.without_modifiers, value, timezone=timezone)


# -- time zones -------------------------------------------------------------------------------------------------


def is_utc(timezone: str) -> bool:
    return timezone.upper() in ("", "UTC", "ETC/UTC", "GMT", "UCT", "ZULU")


def date_to_timestamp(days: int) -> int:
    if is_infinite(DATE, days):
        return converted(days, TIMESTAMP)
    return in_range(days * DAY_US, "date out of range for timestamp")


def in_range(us: int, message: str = "timestamp out of range") -> int:
    """Returns `us`. 22008 if it is outside the range of PostgreSQL's or Arrow's finite timestamps."""
    if not DATE_MIN * DAY_US <= us < INFINITY:
        raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, message)
    return us


def instant(local_us: int, where: tzinfo | Abbreviation) -> int:
    """The instant of a local time in a zone, in microseconds. Infinite times have no offset."""
    if is_infinite(TIMESTAMP, local_us):
        return local_us
    return in_range(local_us - local_offset(where, local_us) * SECOND_US)


def local_time(utc_us: int, where: tzinfo | Abbreviation) -> int:
    """The local time in a zone at an instant, in microseconds. Infinite times have no offset."""
    if is_infinite(TIMESTAMP, utc_us):
        return utc_us
    return in_range(utc_us + offset_at(where, utc_us) * SECOND_US)


def _date_of(us: int) -> int:
    return converted(us, DATE) if is_infinite(TIMESTAMP, us) else us // DAY_US


def _time_of(us: int) -> int | None:
    """The time of day; None if the timestamp is infinite."""
    return None if is_infinite(TIMESTAMP, us) else us % DAY_US


@lru_cache(10_000)  # user-defined types have no bound
def find_cast(source: PgType, target: PgType) -> CastRule | None:
    """The rule for a cast between two types, ignoring modifiers; None if PostgreSQL has no such cast."""
    if source.element is not None and target.element is not None:
        if source.dimensions != target.dimensions:
            return None
        return _array_cast(find_cast(source.item, target.item), source.item, target.item)
    if source.name == target.name:
        return CastRule(_I, _same, "{0}")
    if source.name in _STRINGS and target.name in _STRINGS:
        trims = source.name == "bpchar"
        return CastRule(_I, _text_of(source) if trims else _same, "rtrim({0})" if trims else "{0}")
    if source.enum is not None or target.enum is not None:
        return _enum_cast(source, target)
    if target.name in _STRINGS:
        spark = _TO_TEXT.get(source.name) if source.element is None else None
        return CastRule(_A, _text_of(source), spark, _zoned_text(source))
    if source.name in _STRINGS and target.name != "record":
        # no Spark form: Spark accepts different spellings
        return CastRule(
            _E, lambda value, target: parse_text(target.without_modifiers, value), None, _zoned_value(target)
        )
    return _TABLE.get((source.name, target.name))


def _enum_cast(source: PgType, target: PgType) -> CastRule | None:
    """The casts between an enumerated type and text. Both forms translate with a map of all labels."""
    if source.enum is not None and target.name in _STRINGS:
        label_of = source.enum.label_of
        spark = f"try_element_at({_map(label_of)}, {{0}})" if label_of else "CAST(NULL AS STRING)"
        return CastRule(_A, lambda value, target: label_of[value], spark)
    if target.enum is not None and source.name in _STRINGS:
        enum = target.enum
        message = f"concat({_quoted(f'22P02:invalid input value for enum {enum.display}: ')}, '\"', {{0}}, '\"')"
        found = f"try_element_at({_map(enum.position_of)}, {{0}})" if enum.labels else "CAST(NULL AS STRING)"
        spark = f"IF({{0}} IS NULL, CAST(NULL AS STRING), coalesce({found}, raise_error({message})))"
        return CastRule(_E, lambda value, target: enum.position(value), spark)
    return None


def _map(values: Mapping[str, str]) -> str:
    return f"map({', '.join(f'{_quoted(key)}, {_quoted(value)}' for key, value in values.items())})"


def _quoted(text: str) -> str:
    """A string literal of Spark without an opening brace, which would mark an argument of the form."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("{", "\\u007b")
    return f"'{escaped}'"


def _array_cast(rule: CastRule | None, source: PgType, target: PgType) -> CastRule | None:
    if rule is None:
        return None

    def python(value: list[Any], to: PgType) -> list[Any]:
        return [None if v is None else modify(rule.python(v, target), target) for v in value]

    def zoned(value: list[Any], to: PgType, timezone: str) -> list[Any]:
        return [None if v is None else modify(rule.apply(v, target, timezone), target) for v in value]

    spark = None if rule.spark is None else "transform({0}, e -> " + rule.spark.replace("{0}", "e") + ")"
    return CastRule(
        rule.context, python, "{0}" if rule.spark == "{0}" else spark, None if rule.zoned is None else zoned
    )


# -- modifiers --------------------------------------------------------------------------------------------------


_EPOCH_2000 = 946_684_800 * SECOND_US  # PostgreSQL rounds timestamps away from 2000-01-01


def rounded_seconds(type: str, value: Any, digits: int) -> Any:
    """A time, a finite timestamp or an interval with `digits` decimals of a second. 22023 if they are negative."""
    if digits < 0:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"precision {digits} must not be negative")
    if type == "interval":
        months, days, nanoseconds = value
        return interval_of(months, days, _rounded(nanoseconds // 1_000, digits))
    if type == "time":
        return _rounded(value, digits)
    return in_range(_rounded(value - _EPOCH_2000, digits) + _EPOCH_2000)


def _rounded(us: int, digits: int) -> int:
    unit: int = 10 ** (6 - min(digits, 6))
    rounded = (abs(us) + unit // 2) // unit * unit
    return -rounded if us < 0 else rounded


def modify(value: Any, type: PgType, *, assignment: bool = False) -> Any:
    """Applies the modifiers of varchar(n), char(n), numeric(p, s), timestamp(n) and the like to a value without them.

    An explicit cast truncates a string that is too long. An assignment truncates only spaces, else raises 22001. Raises
    22003 for a numeric that does not fit.
    """
    if value is None:
        return None
    if type.second_digits is not None:
        is_finite = not has_infinities(type) or not is_infinite(type, value)
        return rounded_seconds(type.name, value, type.second_digits) if is_finite else value
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
        return [modify(item, type.item, assignment=assignment) for item in value]
    return value


PADDING_MAX = 1_000


def pads_far(type: PgType) -> bool:
    """Whether `modify` may pad a text to more than PADDING_MAX characters: PostgreSQL allows char(10485760)."""
    element = type.element or type
    return element.name == "bpchar" and (element.length or 0) > PADDING_MAX


def natural_numeric(value: Decimal) -> PgType:
    """The type of a numeric literal: a bare numeric with the value's scale. 22003 for more than 38 digits."""
    exponent = value.as_tuple().exponent
    type = bare_numeric(max(-exponent, 0) if isinstance(exponent, int) else 0)
    if (type.scale or 0) > NUMERIC_PRECISION_MAX:
        raise too_many_digits()
    fitted_numeric(type, value)
    return type


def has_modifiers(type: PgType) -> bool:
    inner = type.element or type
    return inner.length is not None or inner.precision is not None


def has_fitted_elements(type: PgType) -> bool:
    """Whether it is an array of varchar(n) or char(n)."""
    return type.element is not None and type.element.is_string_family and type.element.length is not None


def resulting_type(source: PgType, target: PgType) -> PgType:
    """The type of a cast from `source` to `target`. A bare numeric as target gets the scale of the source."""
    if target.element is not None and source.element is not None:
        return array_of(resulting_type(source.element, target.element), source.dimensions)
    if target.name == "numeric" and target.precision is None:
        if source.name == "numeric":
            return replace(source, precision=None)
        if source.name in _INTEGERS:
            return bare_numeric(0)
    return target
