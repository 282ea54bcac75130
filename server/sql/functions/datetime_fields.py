"""extract, date_part, date_trunc (chapter 9.9): fields of dates, times and intervals.

`_FIELDS` has the Spark form of each field of dates and timestamps. Python computes the rest: times, intervals, and time
zones other than UTC. A field's numeric scale is known when the query is planned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import partial
from typing import Any

from protocol.pgwire.datetime_output import civil_from_days, days_from_civil
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.interval_input import interval_unit
from protocol.pgwire.timezones import SECOND_US, local_offset, offset_at, zone
from protocol.pgwire.types import scalar
from server.sql.casts import DAY_US, date_to_timestamp, in_range
from server.sql.decimals import Shape
from server.sql.expressions import Expression, Literal
from server.sql.functions.datetimes import named_zone
from server.sql.functions.intervals import interval, parts
from server.sql.functions.table import FUNCTIONS, Form, Infinite, Nulls, fail, let, literal, row, same_infinity
from server.sql.infinities import converted, has_infinities, spark_infinity

_WHOLE = Shape(20, 0)
_JULIAN_EPOCH = 2_440_588  # the Julian day of 1970-01-01
_WIDE = Context(prec=60)


def _ad(form: str) -> Callable[[str], str]:
    """A form over {y}, the astronomical year number."""
    return lambda x: let(f"year({x})", lambda y: form.replace("{y}", y))


_MICROS = "unix_micros(CAST({0} AS TIMESTAMP_LTZ))"
_FIELDS: dict[str, str | Callable[[str], str]] = {
    "millennium": _ad("IF({y} > 0, ({y} + 999) div 1000, -((1000 - {y}) div 1000))"),
    "century": _ad("IF({y} > 0, ({y} + 99) div 100, -((100 - {y}) div 100))"),
    "decade": _ad("IF({y} >= 0, {y} div 10, -((9 - {y}) div 10))"),
    "year": _ad("IF({y} > 0, {y}, {y} - 1)"),
    "isoyear": lambda x: let(f"extract(YEAROFWEEK FROM {x})", lambda y: f"IF({y} > 0, {y}, {y} - 1)"),
    "quarter": "quarter({0})",
    "month": "month({0})",
    "week": "weekofyear({0})",
    "day": "day({0})",
    "doy": "dayofyear({0})",
    "dow": "(dayofweek({0}) - 1)",
    "isodow": "(weekday({0}) + 1)",
    "hour": "hour({0})",
    "minute": "minute({0})",
    "second": "extract(SECOND FROM {0})",
    "millisecond": "(extract(SECOND FROM {0}) * 1000BD)",
    "microsecond": "(extract(SECOND FROM {0}) * 1000000BD)",
}
_DAY_FIELDS = frozenset(_FIELDS) - {"hour", "minute", "second", "millisecond", "microsecond"}
_TIME_FIELDS = frozenset(_FIELDS) - _DAY_FIELDS | {"epoch"}
_ZONE_FIELDS = frozenset(("timezone", "timezone_hour", "timezone_minute"))
_SUPPORTED: dict[str, frozenset[str]] = {
    "date": _DAY_FIELDS | {"epoch", "julian"},
    "time": _TIME_FIELDS,
    "timestamp": frozenset(_FIELDS) | {"epoch", "julian"},
    "timestamptz": frozenset(_FIELDS) | _ZONE_FIELDS | {"epoch", "julian"},
    "interval": frozenset(_FIELDS) - {"week", "isoyear", "doy", "dow", "isodow"} | {"epoch"},
}
_SCALES = {"second": Shape(8, 6), "millisecond": Shape(8, 3), "microsecond": Shape(8, 0), "epoch": Shape(26, 6),
           "julian": Shape(38, 20)}  # fmt: skip
_SPECIAL = {"dow": "dow", "doy": "doy", "isodow": "isodow", "isoyear": "isoyear", "epoch": "epoch", "j": "julian",
            "jd": "julian", "julian": "julian", "timezone": "timezone", "timezone_h": "timezone_hour",
            "timezone_m": "timezone_minute"}  # fmt: skip
_RESERVED = ("now", "today", "tomorrow", "yesterday", "infinity", "+infinity", "-infinity", "allballs")


def _field_of(written: str) -> str | None:
    """The field's canonical name, or None. Only the first ten characters count, as in PostgreSQL."""
    word = written.lower()[:10]
    return interval_unit(word) or _SPECIAL.get(word) or ("" if word in _RESERVED else None)


def _unit_of(written: str) -> str | None:
    """Like `_field_of`, for the units of date_trunc."""
    field = _field_of(written)
    return field if field in _TRUNCATIONS or field in _ZONE_FIELDS else None


def _checked(written: str, type: str, supported: frozenset[str], name: Callable[[str], str | None] = _field_of) -> str:
    """The field's canonical name. 22023 if there is no such field, 0A000 if the type does not have it."""
    field = name(written)
    shown = scalar(type).display
    if field is None:
        message = f'unit "{written.lower()}" not recognized for type {shown}'
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
    if field not in supported:
        message = f'unit "{written.lower()}" not supported for type {shown}'
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
    return field


# -- extract in Python ----------------------------------------------------------------------------------------------


def _iso_week(days: int) -> tuple[int, int, int]:
    """(ISO year, week, day of the week from Monday 1)."""
    weekday = (days + 3) % 7
    thursday = days - weekday + 3
    year = civil_from_days(thursday)[0]
    return year, (thursday - days_from_civil(year, 1, 1)) // 7 + 1, weekday + 1


def _calendar_field(field: str, days: int) -> int:
    year, month, day = civil_from_days(days)
    match field:
        case "millennium":
            return (year + 999) // 1000 if year > 0 else -((1000 - year) // 1000)
        case "century":
            return (year + 99) // 100 if year > 0 else -((100 - year) // 100)
        case "decade":
            return year // 10 if year >= 0 else -((9 - year) // 10)
        case "year":
            return year if year > 0 else year - 1
        case "quarter":
            return (month + 2) // 3
        case "month":
            return month
        case "day":
            return day
        case "doy":
            return days - days_from_civil(year, 1, 1) + 1
        case "dow":
            return (days + 4) % 7
    iso_year, week, weekday = _iso_week(days)
    if field == "isoyear":
        return iso_year if iso_year > 0 else iso_year - 1
    return week if field == "week" else weekday


def _clock_field(field: str, us: int) -> Decimal | int:
    """A field of a time of day, or of an interval's time, which may be negative."""
    match field:
        case "hour":
            return int(us / Decimal(3_600 * SECOND_US))
        case "minute":
            return _remainder(us, 3_600 * SECOND_US, 60 * SECOND_US)
        case "second":
            return Decimal(_remainder(us, 60 * SECOND_US, 1)).scaleb(-6)
        case "millisecond":
            return Decimal(_remainder(us, 60 * SECOND_US, 1)).scaleb(-3)
    return _remainder(us, 60 * SECOND_US, 1)


def _remainder(us: int, whole: int, unit: int) -> int:
    rest = abs(us) % whole // unit
    return -rest if us < 0 else rest


def _offset_field(field: str, offset: int) -> int:
    sign = -1 if offset < 0 else 1
    if field == "timezone":
        return offset
    return sign * (abs(offset) // 3_600 if field == "timezone_hour" else abs(offset) // 60 % 60)


def _of_date(field: str, days: int) -> int:
    if field == "epoch":
        return days * 86_400
    return days + _JULIAN_EPOCH if field == "julian" else _calendar_field(field, days)


def _of_timestamp(field: str, us: int) -> Decimal | int:
    days, of_day = divmod(us, DAY_US)
    if field == "epoch":
        return Decimal(us).scaleb(-6)
    if field == "julian":
        return _WIDE.add(days + _JULIAN_EPOCH, _WIDE.divide(Decimal(of_day), Decimal(DAY_US)))
    return _calendar_field(field, days) if field in _DAY_FIELDS else _clock_field(field, of_day)


def _of_timestamptz(field: str, us: int, timezone: str) -> Decimal | int:
    offset = offset_at(zone(timezone), us)
    if field in _ZONE_FIELDS:
        return _offset_field(field, offset)
    return _of_timestamp(field, us if field == "epoch" else us + offset * SECOND_US)


def _of_time(field: str, us: int) -> Decimal | int:
    return Decimal(us).scaleb(-6) if field == "epoch" else _clock_field(field, us)


def _of_interval(field: str, value: Any) -> Decimal | int:
    months, days, us = parts(value)
    years, month = int(Decimal(months) / 12), _remainder(months, 12, 1)
    match field:
        case "epoch":
            quarter_days = 4 * 365 * years + years + 120 * month + 4 * days
            return Decimal(quarter_days * 21_600 * SECOND_US + us).scaleb(-6)
        case "millennium":
            return int(Decimal(years) / 1000)
        case "century":
            return int(Decimal(years) / 100)
        case "decade":
            return int(Decimal(years) / 10)
        case "year":
            return years
        case "quarter":
            return int(Decimal(month) / 3) + 1
        case "month":
            return month
        case "day":
            return days
    return _clock_field(field, us)


_VALUES: dict[str, Callable[..., Decimal | int]] = {
    "date": _of_date,
    "time": _of_time,
    "timestamp": _of_timestamp,
    "timestamptz": _of_timestamptz,
    "interval": _of_interval,
}


def _extracted(type: str, written: str, value: Any, **zone: str) -> Decimal:
    return Decimal(_VALUES[type](_checked(written, type, _SUPPORTED[type]), value, **zone))


def _float_part(type: str, written: str, value: Any, **zone: str) -> float:
    """date_part() computes with floats; extract() is exact."""
    field = _checked(written, type, _SUPPORTED[type])
    exact = _VALUES[type](field, value, **zone)
    us = int(exact * SECOND_US) if field in ("second", "epoch") else 0
    if field == "second":
        return int(us / Decimal(SECOND_US)) + _remainder(us, SECOND_US, 1) / 1e6
    if field == "millisecond":
        us = int(exact * 1000)
        return int(us / Decimal(SECOND_US)) * 1000.0 + _remainder(us, SECOND_US, 1) / 1e3
    if field == "epoch" and type == "interval":
        months, days, us = parts(value)
        years, month = int(Decimal(months) / 12), _remainder(months, 12, 1)
        return us / 1e6 + 31_557_600.0 * years + 2_592_000.0 * month + 86_400.0 * days
    return us / 1e6 if field == "epoch" else float(exact)


# -- fields of infinity ---------------------------------------------------------------------------------------------

_GROWING = frozenset(("year", "decade", "century", "millennium", "isoyear", "julian", "epoch"))
"""The fields that are infinite for an infinite date or timestamp. The others are NULL then."""


def _sign(type: str, value: int) -> float:
    return math.inf if value == converted(1, scalar(type)) else -math.inf


def _infinite_part(type: str, written: str, value: int, **zone: str) -> float | None:
    return _sign(type, value) if _checked(written, type, _SUPPORTED[type]) in _GROWING else None


def _no_numeric(infinity: str) -> PgError:
    message = f'numeric value "{infinity}" is not supported'
    return PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, message, hint="Use date_part(), whose result has infinities.")


def _infinite_extraction(type: str, written: str, value: int, **zone: str) -> None:
    if (part := _infinite_part(type, written, value)) is not None:
        raise _no_numeric("Infinity" if part > 0 else "-Infinity")


def _fields_of_infinity(type: str, *, exact: bool) -> Infinite:
    """The rule for extract() if `exact`, else for date_part()."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        result = str(_shape(args)) if exact else "DOUBLE"
        if _is_null(args[0]) or _field_of(_written(args[0])) not in _GROWING:
            return f"CAST(NULL AS {result})"
        is_positive = f"{texts[1]} = {spark_infinity(scalar(type))}"
        if not exact:
            return f"IF({is_positive}, CAST('Infinity' AS DOUBLE), CAST('-Infinity' AS DOUBLE))"
        errors = (_no_numeric(infinity) for infinity in ("Infinity", "-Infinity"))
        positive, negative = (fail(error.sqlstate, error.message) for error in errors)
        return f"CAST(IF({is_positive}, {positive}, {negative}) AS {result})"

    return Infinite(partial(_infinite_extraction if exact else _infinite_part, type), form)


# -- extract in Spark -----------------------------------------------------------------------------------------------


def _shape(args: Sequence[Expression]) -> Shape:
    field, type = str(_field_of(_written(args[0]))), args[1].type.name
    if type == "date" or field not in _SCALES:
        return _WHOLE
    if field == "microsecond" and type == "interval":
        return _WHOLE
    return _SCALES[field]


def _written(argument: Expression) -> str:
    return str(literal(argument, "a field name"))


def _is_null(argument: Expression) -> bool:
    return isinstance(argument, Literal) and argument.value is None


def _check_extraction(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    type = args[1].type.name
    _checked(_written(args[0]), type, _SUPPORTED[type])
    return args


def _spark_field(field: str, type: str, text: str) -> str:
    """The empty string if the field has no Spark form."""
    if type not in ("date", "timestamp", "timestamptz") or field not in _SUPPORTED[type]:
        return ""
    if field == "epoch":
        micros = f"CAST({_MICROS} AS DECIMAL(20,0)) * 0.000001BD".replace("{0}", text)
        return f"(unix_date({text}) * 86400L)" if type == "date" else micros
    if field == "julian":
        return f"(unix_date({text}) + {_JULIAN_EPOCH}L)" if type == "date" else ""
    form = _FIELDS.get(field, "")
    return form(text) if callable(form) else form.replace("{0}", text)


def _extract(args: Sequence[Expression], texts: Sequence[str]) -> str:
    form = _spark_field(str(_field_of(_written(args[0]))), args[1].type.name, texts[1])
    return form and f"CAST({form} AS {_shape(args)})"


def _part(args: Sequence[Expression], texts: Sequence[str]) -> str:
    if not isinstance(args[0], Literal):
        return ""
    if _is_null(args[0]):
        return "CAST(NULL AS DOUBLE)"
    field, type = _field_of(args[0].value), args[1].type.name
    if field == "epoch" and type != "date":
        return f"(CAST({_MICROS} AS DOUBLE) / 1e6D)".replace("{0}", texts[1]) if type.startswith("timestamp") else ""
    form = "" if field in ("second", "millisecond", None) else _spark_field(str(field), type, texts[1])
    return form and f"CAST({form} AS DOUBLE)"


for _type in _VALUES:
    _rules = [
        _fields_of_infinity(_type, exact=exact) if has_infinities(scalar(_type)) else None for exact in (True, False)
    ]
    _nulls = Nulls.STRICT if _rules[0] is None else Nulls.OPTIONAL
    row(FUNCTIONS, "extract", f"text {_type}", "numeric", _extract, nulls=_nulls, shape=_shape,
        prepare=_check_extraction, infinite=_rules[0], zoned=_type == "timestamptz",
        python=partial(_extracted, _type))  # fmt: skip
    if _type != "date":
        row(FUNCTIONS, "date_part", f"text {_type}", "float8", _part, nulls=_nulls, infinite=_rules[1],
            zoned=_type == "timestamptz", python=partial(_float_part, _type))  # fmt: skip
row(FUNCTIONS, "date_part", "text date", "float8", nulls=Nulls.OPTIONAL,
    infinite=Infinite(lambda field, days: _infinite_part("timestamp", field, date_to_timestamp(days))),
    python=lambda field, days: _float_part("timestamp", field, date_to_timestamp(days)))  # fmt: skip


# -- date_trunc -----------------------------------------------------------------------------------------------------

_TRUNCATIONS = frozenset(_FIELDS) - {"isoyear", "doy", "dow", "isodow"}
_CLOCK_US = {"microsecond": 1, "millisecond": 1_000, "second": SECOND_US, "minute": 60 * SECOND_US,
             "hour": 3_600 * SECOND_US, "day": DAY_US}  # fmt: skip
_SPARK_UNITS = frozenset(("microsecond", "millisecond", "second", "minute", "hour", "day", "week"))


def _truncated(field: str, us: int) -> int:
    if field in _CLOCK_US:
        return us - us % _CLOCK_US[field]
    days = us // DAY_US
    if field == "week":
        return in_range((days - (days + 3) % 7) * DAY_US)
    year, month, _ = civil_from_days(days)
    match field:
        case "month":
            pass
        case "quarter":
            month -= (month - 1) % 3
        case _:
            month = 1
            size = {"year": 1, "decade": 10, "century": 100, "millennium": 1000}[field]
            if field == "decade":
                year = year // 10 * 10 if year > 0 else -((9 - year) // 10 * 10)
            elif size > 1:
                year = (year + size - 1) // size * size - size + 1 if year > 0 else -((size - year) // size) * size + 1
    return in_range(days_from_civil(year, month, 1) * DAY_US)


def _truncate_timestamp(written: str, us: int) -> int:
    return _truncated(_checked(written, "timestamp", _TRUNCATIONS, _unit_of), us)


def _truncate_in(written: str, us: int, where: Any) -> int:
    """Days and larger units begin at midnight in the zone; smaller units keep the offset."""
    field = _checked(written, "timestamptz", _TRUNCATIONS, _unit_of)
    offset = offset_at(where, us)
    local = _truncated(field, us + offset * SECOND_US)
    if field not in _CLOCK_US or field == "day":
        offset = local_offset(where, local)
    return in_range(local - offset * SECOND_US)


def _truncate_interval(written: str, value: Any) -> Any:
    field = _checked(written, "interval", _TRUNCATIONS - {"week"}, _unit_of)
    months, days, us = parts(value)
    if field in _CLOCK_US:
        return interval(months, days, _toward_zero(us, _CLOCK_US[field]) if field != "day" else 0)
    size = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1_200, "millennium": 12_000}[field]
    return interval(_toward_zero(months, size), 0, 0)


def _toward_zero(value: int, size: int) -> int:
    return -(-value // size * size) if value < 0 else value // size * size


def _truncate(type: str) -> Form:
    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        if not isinstance(args[0], Literal):
            return ""
        if _is_null(args[0]):
            return f"CAST(NULL AS {type})"
        field = _field_of(args[0].value)
        if field not in _SPARK_UNITS:
            return ""
        return f"CAST(date_trunc('{field}', {texts[1]}) AS {type})"

    return form


_SAME_INSTANT = same_infinity(1, "timestamptz", "timestamptz")
row(FUNCTIONS, "date_trunc", "text timestamp", "timestamp", _truncate("TIMESTAMP_NTZ"), python=_truncate_timestamp,
    infinite=same_infinity(1, "timestamp", "timestamp"))  # fmt: skip
row(FUNCTIONS, "date_trunc", "text timestamptz", "timestamptz", _truncate("TIMESTAMP_LTZ"), zoned=True,
    infinite=_SAME_INSTANT, python=lambda field, us, timezone: _truncate_in(field, us, zone(timezone)))  # fmt: skip
row(FUNCTIONS, "date_trunc", "text timestamptz text", "timestamptz", infinite=_SAME_INSTANT,
    python=lambda field, us, where: _truncate_in(field, us, named_zone(where)))  # fmt: skip
row(FUNCTIONS, "date_trunc", "text interval", "interval", python=_truncate_interval)
