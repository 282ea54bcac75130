"""Functions without a Spark form: Spark's Python workers compute them over Arrow columns.

    render writes     get(transform(array(pg_text('["FUNCTION lpad(text, integer)", ""]', a, b)), r -> ...), 0)
    engine registers  one UDF for each carrier: pg_text, pg_long, ..., all of them `Kernel`s
    here              the row's `python`, value by value

Constants, Spark and the wire protocol thus share one implementation of each such function. A carrier is a Spark type
that can represent any result: dates and times are numbers, numerics are text. Spark calls a Python function for every
row before it evaluates CASE. Errors are therefore values ({v, e}); Spark raises them where the value is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from protocol.pgwire.enums import PREFIX
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import RECORD, PgType, array_of, is_row, parse_type, row_type, scalar
from server.sql.casts import find_cast, modify
from server.sql.functions.table import TABLES, Function, Kind, Nulls, list_of, refused_infinity
from server.sql.infinities import is_infinite

DIMENSIONS_MAX = 2  # of results; each number of dimensions needs a UDF for each carrier


@dataclass(frozen=True, slots=True)
class Carrier:
    """`value`: the Arrow type; `spark`: the Spark type as JSON; `restored`: Spark SQL from {0} to the SQL type {t}."""

    udf: str
    value: pa.DataType
    spark: Any
    restored: str


_INTERVAL = {
    "type": "struct",
    "fields": [
        {"name": name, "type": type, "nullable": True, "metadata": {}}
        for name, type in (("months", "integer"), ("days", "integer"), ("us", "long"))
    ],
}
_INTERVAL_ARROW = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("us", pa.int64())])
_LONG = ("pg_long", pa.int64(), "long")
_TEXT = Carrier("pg_text", pa.string(), "string", "{0}")
_CARRIERS: dict[str, Carrier] = {
    "bool": Carrier("pg_bool", pa.bool_(), "boolean", "{0}"),
    **dict.fromkeys(("int2", "int4", "int8"), Carrier(*_LONG, "CAST({0} AS {t})")),
    **dict.fromkeys(("float4", "float8"), Carrier("pg_double", pa.float64(), "double", "CAST({0} AS {t})")),
    "numeric": Carrier("pg_text", pa.string(), "string", "CAST({0} AS {t})"),
    **dict.fromkeys(("text", "varchar", "bpchar", "json", "jsonb", "uuid"), _TEXT),
    "record": _TEXT,
    "bytea": Carrier("pg_bytes", pa.binary(), "binary", "{0}"),
    "date": Carrier(*_LONG, "date_from_unix_date(CAST({0} AS INT))"),
    "time": Carrier(*_LONG, "time_from_micros({0})"),
    "timestamp": Carrier(*_LONG, "CAST(timestamp_micros({0}) AS TIMESTAMP_NTZ)"),
    "timestamptz": Carrier(*_LONG, "timestamp_micros({0})"),
    "interval": Carrier("pg_interval", _INTERVAL_ARROW, _INTERVAL, "{0}"),
}


def carrier(type: PgType) -> Carrier:
    """The carrier for results of the type. 0A000 for rows, of which only the texts have one."""
    if is_row(type):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "this function of rows is not supported",
            hint="Apply it to the columns of the row.",
        )
    if type.element is None:
        return _CARRIERS[type.representation]
    if type.dimensions > DIMENSIONS_MAX:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"this function or cast to an array of {type.dimensions} dimensions is not supported",
            hint=f"At most {DIMENSIONS_MAX} dimensions are supported, except in constants.",
        )
    inner = carrier(type.item)
    spark = {"type": "array", "elementType": inner.spark, "containsNull": True}
    restored = "{0}" if inner.restored == "{0}" else f"transform({{0}}, x -> {inner.restored.replace('{0}', 'x')})"
    return Carrier(inner.udf + "s", pa.list_(inner.value), spark, restored)


def carriers() -> dict[str, Carrier]:
    """Every carrier, by its UDF's name."""
    types = [scalar(name) for name in _CARRIERS if name != RECORD.name]  # its carrier is that of text
    scalars = [carrier(type) for type in types]
    arrays = [carrier(array_of(type, count)) for type in types for count in range(1, DIMENSIONS_MAX + 1)]
    return {c.udf: c for c in (*scalars, *arrays)}


# -- keys -------------------------------------------------------------------------------------------------------------


def function_key(function: Function, arguments: Sequence[PgType], timezone: str) -> str:
    """The key of a call for `Kernel`: the row, its argument types, and the session's time zone if it matters."""
    kind = next((k for k, table in TABLES.items() if function in table.get(function.name, ())), "FUNCTION")
    name = f"{kind} {function}"
    return json.dumps([name, [_spelled(type) for type in arguments], timezone if function.zoned else ""])


def quantified_key(function: Function, arguments: Sequence[PgType], timezone: str, every: bool) -> str:
    """Like `function_key`, for a value and an array: whether the function is true for all, or any, of the elements."""
    name, types, zone = json.loads(function_key(function, arguments, timezone))
    return json.dumps([f"{'ALL' if every else 'ANY'} {name}", types, zone])


def cast_key(source: PgType, target: PgType, timezone: str) -> str:
    return json.dumps(["CAST", [_spelled(source), _spelled(target, with_scale=False)], timezone])


def _spelled(type: PgType, *, with_scale: bool = True) -> Any:
    """The spelling of a type: a text, or an object with the names and types of a row's fields.

    `with_scale`: with the scale of a numeric, which determines its text.
    """
    scalar = type.element or type
    if scalar.fields is not None:
        row = [[name, _spelled(field)] for name, field in scalar.fields]
        return {"row": row, "array": type.element is not None}
    is_exact = scalar.enum is not None or (with_scale and scalar.name == "numeric")
    is_exact |= scalar.second_digits is not None
    name = str(scalar) if is_exact else scalar.name
    return name + "[]" * (0 if type.element is None else type.dimensions)


def _typed(spelling: Any) -> PgType:
    if isinstance(spelling, dict):
        type = row_type([name for name, _ in spelling["row"]], [_typed(field) for _, field in spelling["row"]])
        return array_of(type) if spelling["array"] else type
    if spelling.startswith(PREFIX) or "(" in spelling:
        return parse_type(spelling)
    name = spelling.rstrip("[]")
    dimensions = (len(spelling) - len(name)) // 2
    type = RECORD if name == RECORD.name else scalar(name)
    return array_of(type, dimensions) if dimensions else type


def evaluator(function: Function, timezone: str, types: Sequence[PgType]) -> Callable[..., Any]:
    """The row's Python function for arguments of these types. If strict, it returns NULL for a NULL argument."""
    assert function.python is not None, function
    python = _guarded(function, function.python)
    keywords: dict[str, Any] = {"timezone": timezone} if function.zoned else {}
    if function.typed:
        keywords["types"] = types
    if function.nulls not in (Nulls.STRICT, Nulls.OPTIONAL):
        return lambda *values: python(*values, **keywords)
    return lambda *values: None if any(v is None for v in values) else python(*values, **keywords)


def _guarded(function: Function, python: Callable[..., Any]) -> Callable[..., Any]:
    """`python`, with the function's rule for infinite dates and timestamps."""
    positions = [(i, function.arguments[i]) for i in function.guarded]
    if not positions:
        return python
    rule = function.infinite

    def checked(*values: Any, **keywords: Any) -> Any:
        for i, type in positions:
            if is_infinite(type, values[i]):
                if rule is None:
                    raise refused_infinity(function)
                return rule.python(*values, **keywords)
        return python(*values, **keywords)

    return checked


@lru_cache(1024)
def _called(key: str) -> tuple[Callable[..., Any], tuple[PgType, ...]]:
    """The function over scalars that a key identifies, and its argument types."""
    name, spellings, timezone = json.loads(key)
    types = tuple(map(_typed, spellings))
    if name == "CAST":
        source, target = types
        rule = find_cast(source, target)
        assert rule is not None, key
        if target.second_digits is not None:
            return (lambda value: modify(None if value is None else rule.apply(value, target, timezone), target)), (
                source,
            )
        return (lambda value: None if value is None else rule.apply(value, target, timezone)), (source,)
    if name.startswith(("ALL ", "ANY ")):
        function, (left, right) = _called(json.dumps([name[4:], spellings, timezone]))
        return _quantified(function, name.startswith("ALL")), (left, list_of(right))
    kind, _, signature = name.partition(" ")
    table = TABLES[kind]
    (chosen,) = (row for row in table[signature.partition("(")[0]] if str(row) == signature)
    if chosen.kind is not Kind.SCALAR:
        return evaluator(chosen, timezone, types), tuple(map(list_of, types))
    return evaluator(chosen, timezone, types), types


def _quantified(function: Callable[..., Any], every: bool) -> Callable[[Any, list[Any] | None], bool | None]:
    def python(value: Any, items: list[Any] | None) -> bool | None:
        if items is None:
            return None
        results = [function(value, item) for item in items]
        return (not every) if (not every) in results else None if None in results else every

    return python


# -- values ---------------------------------------------------------------------------------------------------------


def scalar_values(type: PgType, column: pa.ChunkedArray) -> list[Any]:
    """The values of a column of a relation as Python scalars."""
    array = column.combine_chunks()
    return array.to_pylist() if type.name == "interval" else scalars(type, array)


def scalars(type: PgType, column: pa.Array) -> list[Any]:
    """A column received from Spark as Python scalars, as protocol.pgwire.types lists them."""
    if type.element is not None:
        values = iter(scalars(type.item, column.flatten()))
        lengths = column.value_lengths().to_pylist()
        return [None if length is None else [next(values) for _ in range(length)] for length in lengths]
    if type.fields is not None:
        fields = [scalars(field, part) for (_, field), part in zip(type.fields, column.flatten(), strict=True)]
        rows = zip(*fields, strict=True) if fields else iter([()] * len(column))
        return [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
    match type.name:
        case "date":
            return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
        case "time":
            return column.cast(pa.time64("us"), safe=False).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
        case "timestamp" | "timestamptz":
            return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
        case "interval":
            parts = column.to_pylist()
            return [p and pa.MonthDayNano([p["months"], p["days"], p["us"] * 1_000]) for p in parts]
    return column.to_pylist()  # type: ignore[no-any-return]


def _carried(value: Any, type: pa.DataType) -> Any:
    """A scalar as a value of its carrier's Arrow type."""
    if value is None:
        return None
    if pa.types.is_list(type):
        return [_carried(item, type.value_type) for item in value]
    if pa.types.is_struct(type):
        return {"months": value[0], "days": value[1], "us": value[2] // 1_000}
    return f"{value:f}" if pa.types.is_string(type) and not isinstance(value, str) else value


class Kernel:
    """The function behind one UDF: from a column of equal keys and the argument columns to a column of {v, e}."""

    def __init__(self, udf: str) -> None:
        self._udf = udf
        self.type = carriers()[udf].value

    def __reduce__(self) -> tuple[type[Kernel], tuple[str]]:
        return Kernel, (self._udf,)

    def __call__(self, keys: pa.Array, *columns: pa.Array) -> pa.Array:
        type = pa.struct([("v", self.type), ("e", pa.string())])
        if not len(keys):
            return pa.array([], type)
        function, types = _called(keys[0].as_py())
        arguments = [scalars(*pair) for pair in zip(types, columns, strict=True)]
        rows = []
        for row in zip(*arguments, strict=True) if arguments else [()] * len(keys):
            try:
                rows.append({"v": _carried(function(*row), self.type), "e": None})
            except PgError as error:
                rows.append({"v": None, "e": f"{error.sqlstate}:{error.message}"})
            except MemoryError:
                rows.append({"v": None, "e": f"{SqlState.OUT_OF_MEMORY}:out of memory"})
            except RecursionError:
                rows.append({"v": None, "e": f"{SqlState.STATEMENT_TOO_COMPLEX}:stack depth limit exceeded"})
        return pa.array(rows, type)


def udfs() -> dict[str, tuple[Kernel, str]]:
    """The UDFs to register by name: the function, and its result type as Spark's JSON."""
    return {udf: (Kernel(udf), _result_json(carrier)) for udf, carrier in carriers().items()}


def _result_json(carrier: Carrier) -> str:
    fields: list[dict[str, Any]] = [
        {"name": name, "type": type, "nullable": True, "metadata": {}}
        for name, type in (("v", carrier.spark), ("e", "string"))
    ]
    return json.dumps({"type": "struct", "fields": fields})
