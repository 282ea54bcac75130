"""Set-returning functions (chapters 9.25, 9.16, 9.19, 9.4). Each column of a result is computed as an array.

`SETS` names them. A row of `SET_ARRAYS` computes one column's values for one call, as an array; the node
`relations.Unnest` turns arrays into rows. unnest() itself has no row, because its arguments are the arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.nested_lists import sizes
from protocol.pgwire.types import TIMESTAMPTZ, PgType
from server.sql.expressions import Expression, Literal
from server.sql.functions.datetimes import moved, moved_in, named_zone
from server.sql.functions.json import json_elements, json_pairs, json_text, kind_of
from server.sql.functions.table import SET_ARRAYS, Form, Infinite, fail, independent, row

SIZE_MAX = 10_000_000  # rows of one call; all of them are in memory


@dataclass(frozen=True, slots=True)
class SetReturning:
    """`arrays`: for each column of the result, the row of `SET_ARRAYS` or `FUNCTIONS` that computes its values.

    `columns`: their names; None if the column has the name of the function or of its alias.
    """

    arrays: tuple[str, ...]
    columns: tuple[str | None, ...] = (None,)


SETS: dict[str, SetReturning] = {
    "generate_series": SetReturning(("generate_series",)),
    "generate_subscripts": SetReturning(("generate_subscripts",)),
    "regexp_matches": SetReturning(("regexp_matches",)),
    "regexp_split_to_table": SetReturning(("regexp_split_to_array",)),
    "string_to_table": SetReturning(("string_to_array",)),
    **{
        f"{json}_array_elements{text}": SetReturning((f"{json}_array_elements{text}",), ("value",))
        for json in ("json", "jsonb")
        for text in ("", "_text")
    },
    **{
        f"{json}_each{text}": SetReturning((f"{json}_each.key", f"{json}_each{text}.value"), ("key", "value"))
        for json in ("json", "jsonb")
        for text in ("", "_text")
    },
    "jsonb_path_query": SetReturning(("jsonb_path_query",)),
    "jsonb_path_query_tz": SetReturning(("jsonb_path_query_tz",)),
    **{f"{json}_object_keys": SetReturning((f"{json}_object_keys",)) for json in ("json", "jsonb")},
}


# -- series ---------------------------------------------------------------------------------------------------------


def _no_step() -> PgError:
    return PgError(SqlState.INVALID_PARAMETER_VALUE, "step size cannot equal zero")


def _steps(start: Any, stop: Any, forward: bool, following: Callable[[Any], Any]) -> list[Any]:
    """start and its successors that are not beyond stop."""
    beyond = operator.gt if forward else operator.lt
    values: list[Any] = []
    value = start
    while not beyond(value, stop):
        if len(values) == SIZE_MAX:
            message = f"a series of more than {SIZE_MAX} values is not supported"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="Use a larger step, or several series.")
        values.append(value)
        value = following(value)
    return values


def _numbers(start: Decimal, stop: Decimal, step: Decimal = Decimal(1)) -> list[Decimal]:
    for value, what in ((start, "start"), (stop, "stop"), (step, "step size")):
        if value.is_nan():
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"{what} value cannot be NaN".replace("size value", "size"))
    if not step:
        raise _no_step()
    return _steps(start, stop, step > 0, lambda value: value + step)


def _sign(span: Any) -> int:
    months, days, nanoseconds = span
    length: int = (months * 30 + days) * 86_400_000_000_000 + nanoseconds
    return (length > 0) - (length < 0)


def _points(start: int, stop: int, span: Any) -> list[int]:
    sign = _sign(span)
    if not sign:
        raise _no_step()
    return _steps(start, stop, sign > 0, lambda us: moved(us, span))


def _instants(start: int, stop: int, span: Any, zone: str = "", *, timezone: str) -> list[int]:
    sign = _sign(span)
    if not sign:
        raise _no_step()
    where = named_zone(zone or timezone)
    return _steps(start, stop, sign > 0, lambda us: moved_in(us, span, where))


_ENDLESS = "start and stop value of a series of timestamps cannot be infinity"


def _endless(start: int, stop: int, span: Any, *zone: str, **keywords: str) -> list[int]:
    """No values if the series ends before it begins. Otherwise PostgreSQL's series has no end, or fails."""
    sign = _sign(span)
    if not sign:
        raise _no_step()
    if start > stop if sign > 0 else start < stop:
        return []
    raise PgError(SqlState.INVALID_PARAMETER_VALUE, _ENDLESS)


def _spark_endless(arguments: Sequence[Expression], texts: Sequence[str]) -> str:
    step = arguments[2]
    assert isinstance(step, Literal)  # as in `_spaced`
    none = f"CAST(array() AS ARRAY<{'TIMESTAMP_LTZ' if arguments[0].type == TIMESTAMPTZ else 'TIMESTAMP_NTZ'}>)"
    ended = f"{texts[0]} {'>' if _sign(step.value) > 0 else '<'} {texts[1]}"
    return f"IF({ended}, {none}, {fail(SqlState.INVALID_PARAMETER_VALUE, _ENDLESS)})"


_FINITE_SERIES = Infinite(_endless, _spark_endless)


def _spaced(instant: str, point: str) -> Form:
    """Timestamps with a literal step without months: Spark adds microseconds. Other steps are computed in Python.

    `instant`: SQL for a timestamp's microseconds since 1970; `point`: SQL for the timestamp from `us`.
    """

    def form(arguments: Sequence[Expression], texts: Sequence[str]) -> str:
        step = arguments[2]
        months, days, nanoseconds = step.value if isinstance(step, Literal) and step.value is not None else (1, 0, 0)
        micros = days * 86_400_000_000 + nanoseconds // 1_000
        if months or not micros:
            return ""
        start, stop = (instant.replace("{0}", text) for text in texts[:2])
        counted = f"IF({start} {'<=' if micros > 0 else '>='} {stop}, sequence({start}, {stop}, {micros}L), array())"
        return f"transform({counted}, us -> {point})"

    return form


def _integers(spark: str) -> Form:
    def form(arguments: Sequence[Expression], texts: Sequence[str]) -> str:
        start, stop, step = (*texts, "1")[:3]
        none = f"CAST(array() AS ARRAY<{spark}>)"
        ascending, descending = f"{start} <= {stop}", f"{start} >= {stop}"
        if len(texts) == 2:
            return f"IF({ascending}, sequence({start}, {stop}), {none})"
        zero = fail(SqlState.INVALID_PARAMETER_VALUE, "step size cannot equal zero")
        return (
            f"IF({step} = 0, {zero}, IF(({step} > 0 AND {ascending}) OR ({step} < 0 AND {descending}), "
            f"sequence({start}, {stop}, {step}), {none}))"
        )

    return form


for _name, _spark in (("int4", "INT"), ("int8", "BIGINT")):
    for _count in (2, 3):
        row(SET_ARRAYS, "generate_series", " ".join([_name] * _count), f"{_name}[]", _integers(_spark))
for _count in (2, 3):
    row(SET_ARRAYS, "generate_series", " ".join(["numeric"] * _count), "numeric[]", python=_numbers)
row(SET_ARRAYS, "generate_series", "timestamp timestamp interval", "timestamp[]",
    _spaced("unix_micros(CAST({0} AS TIMESTAMP_LTZ))", "CAST(timestamp_micros(us) AS TIMESTAMP_NTZ)"),
    infinite=_FINITE_SERIES, python=_points)  # fmt: skip
row(SET_ARRAYS, "generate_series", "timestamptz timestamptz interval", "timestamptz[]",
    _spaced("unix_micros({0})", "timestamp_micros(us)"), zoned=True, infinite=_FINITE_SERIES,
    python=_instants)  # fmt: skip
row(SET_ARRAYS, "generate_series", "timestamptz timestamptz interval text", "timestamptz[]", zoned=True,
    infinite=_FINITE_SERIES, python=_instants)  # fmt: skip


def _subscripts(array: list[Any], dimension: int, reverse: bool = False, *, types: Sequence[PgType]) -> list[int]:
    lengths = sizes(array, types[0].dimensions)
    subscripts = range(1, lengths[dimension - 1] + 1) if 0 < dimension <= len(lengths) else range(0)
    return list(reversed(subscripts)) if reverse else list(subscripts)


for _arguments in ("anyarray int4", "anyarray int4 bool"):
    row(SET_ARRAYS, "generate_subscripts", _arguments, "int4[]", typed=True, python=_subscripts, dimensions=independent)


# -- json -----------------------------------------------------------------------------------------------------------


def _elements(text: str) -> list[str]:
    kind = kind_of(text)
    if kind != "array":
        what = "an object" if kind == "object" else "a scalar"
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"cannot extract elements from {what}")
    return json_elements(text)


def _texts(text: str) -> list[str | None]:
    return [json_text(element) for element in _elements(text)]


def _pairs(name: str) -> Callable[[str], list[tuple[str, str]]]:
    def pairs(text: str) -> list[tuple[str, str]]:
        kind = kind_of(text)
        if kind != "object":
            what = "an array" if kind == "array" else "a scalar"
            message = f"cannot call {name} on {what}" if "keys" in name else f"cannot deconstruct {what} as an object"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
        return json_pairs(text)

    return pairs


def _records(name: str, *, several: bool) -> Callable[[str], list[str]]:
    """The objects of json_to_recordset(), or the object of json_to_record()."""

    def records(text: str) -> list[str]:
        kind = kind_of(text)
        if kind != ("array" if several else "object"):
            what = {"object": "an object", "array": "an array"}.get(kind, "a scalar")
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"cannot call {name} on {what}")
        found = json_elements(text) if several else [text]
        if any(kind_of(item) != "object" for item in found):
            message = f"argument of {name} must be an array of objects"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
        return found

    return records


for _json in ("json", "jsonb"):
    for _several in (False, True):
        for _called in (f"{_json}_{_verb}_record{'set' if _several else ''}" for _verb in ("to", "populate")):
            row(SET_ARRAYS, _called, _json, f"{_json}[]", python=_records(_called, several=_several))
    _each, _keyed = _pairs(f"{_json}_each"), _pairs(f"{_json}_object_keys")
    row(SET_ARRAYS, f"{_json}_array_elements", _json, f"{_json}[]", python=_elements)
    row(SET_ARRAYS, f"{_json}_array_elements_text", _json, "text[]", python=_texts)
    row(SET_ARRAYS, f"{_json}_each.key", _json, "text[]", python=lambda text, pairs=_each: [k for k, _ in pairs(text)])
    row(SET_ARRAYS, f"{_json}_each.value", _json, f"{_json}[]",
        python=lambda text, pairs=_each: [v for _, v in pairs(text)])  # fmt: skip
    row(SET_ARRAYS, f"{_json}_each_text.value", _json, "text[]",
        python=lambda text, pairs=_each: [json_text(v) for _, v in pairs(text)])  # fmt: skip
    row(SET_ARRAYS, f"{_json}_object_keys", _json, "text[]",
        python=lambda text, pairs=_keyed: [k for k, _ in pairs(text)])  # fmt: skip
