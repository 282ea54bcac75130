"""The SQL column of an Avro type: the columns of a record, with the logical types of Avro, Connect and Debezium."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.avro.schema import (
    Array,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Primitive,
    Record,
    SchemaError,
    Type,
    Union,
    describe,
    without_null,
)
from protocol.pgwire.types import NUMERIC_PRECISION_MAX

_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_INTS = {
    "date": "date",
    f"{_CONNECT}Date": "date",
    f"{_TIME}Date": "date",
    "time-millis": "time ms",
    f"{_CONNECT}Time": "time ms",
    f"{_TIME}Time": "time ms",
}
_LONGS = {
    "time-micros": "time us",
    f"{_TIME}MicroTime": "time us",
    f"{_TIME}NanoTime": "time ns",
    "timestamp-millis": "timestamp ms",
    "local-timestamp-millis": "timestamp ms",
    f"{_CONNECT}Timestamp": "timestamp ms",
    f"{_TIME}Timestamp": "timestamp ms",
    "timestamp-micros": "timestamp us",
    "local-timestamp-micros": "timestamp us",
    f"{_TIME}MicroTimestamp": "timestamp us",
    f"{_TIME}NanoTimestamp": "timestamp ns",
}
_STRINGS = {
    "uuid": "uuid",
    "io.debezium.data.Uuid": "uuid",
    "io.debezium.data.Json": "json",
    "io.debezium.data.JsonB": "json",
    f"{_TIME}ZonedTimestamp": "zoned timestamp",
}
_PLAIN = {"boolean": "bool", "int": "int4", "long": "int8", "float": "float4", "double": "float8"}
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
UNAVAILABLE = b"__debezium_unavailable_value"
"""Debezium's value of a column whose TOAST value PostgreSQL did not log, because an UPDATE did not change it."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a type's values in SQL. `kind` selects the conversion (`convert`); `type` is the SQL type.

    `source`: the Avro type without null. `element`: the meaning of an array's elements.
    """

    kind: str
    type: str
    source: Type
    scale: int = 0
    element: Meaning | None = None

    @property
    def is_nested(self) -> bool:
        """Whether the values are decoded one by one."""
        return self.kind in ("array", "nested")


@dataclass(frozen=True, slots=True)
class AvroColumn:
    """A SQL column of a record's field. `branch`: the number of the branch of a union of several types, else None."""

    name: str
    field: Field
    meaning: Meaning
    nullable: bool
    branch: int | None = None


def columns_of(record: Type) -> tuple[AvroColumn, ...]:
    """The columns of a record's fields. A union of several types is a nullable column for each: name1, name2, ..."""
    if not isinstance(record, Record):
        raise SchemaError(f"schema is not a record but {describe(record)}")
    found: list[AvroColumn] = []
    for field in record.fields:
        branches, nullable = without_null(field.type)
        if not branches:
            raise SchemaError(f"field {field.name} has only the type null")
        if len(branches) == 1:
            found.append(AvroColumn(field.name, field, meaning_of(branches[0]), nullable))
            continue
        for number, branch in enumerate(branches):
            found.append(AvroColumn(f"{field.name}{number + 1}", field, meaning_of(branch), True, number))
    return tuple(found)


def meaning_of(type: Type) -> Meaning:
    """The meaning of a type other than null and union."""
    match type:
        case Primitive("boolean" | "float" | "double" as name):
            return Meaning("same", _PLAIN[name], type)
        case Primitive("int", logical):
            kind = _INTS.get(_name(logical))
            return Meaning("same", "int4", type) if kind is None else Meaning(kind, kind.partition(" ")[0], type)
        case Primitive("long", logical):
            kind = _LONGS.get(_name(logical))
            return Meaning("same", "int8", type) if kind is None else Meaning(kind, kind.partition(" ")[0], type)
        case Primitive("string", logical):
            match kind := _STRINGS.get(_name(logical), "text"):
                case "json":
                    return Meaning(kind, "jsonb", type)
                case "zoned timestamp":
                    return Meaning(kind, "timestamptz", type)
                case _:
                    return Meaning(kind, kind, type)
        case Primitive("bytes", logical) | Fixed(_, _, logical):
            if logical is None or logical.name != "decimal":
                return Meaning("same", "bytea", type)
            return _decimal(type, logical)
        case Enum():
            return Meaning("text", "text", type)
        case Record(_, _, Logical(name)) if name == VARIABLE_DECIMAL:
            return Meaning("variable decimal", "numeric", type)
        case Array(items):
            branches, _ = without_null(items)
            element = meaning_of(branches[0]) if len(branches) == 1 else None
            if element is not None and not element.is_nested and element.kind != "variable decimal":
                return Meaning("array", f"{element.type}[]", type, element=element)
            return Meaning("nested", "jsonb", type)
        case Map() | Record():
            return Meaning("nested", "jsonb", type)
        case Union() | Primitive():
            raise SchemaError(f"schema has a value of type {describe(type)} without another type")
    raise AssertionError(type)


def _decimal(type: Type, logical: Logical) -> Meaning:
    precision, scale = logical.precision, logical.scale
    if not 0 <= scale <= NUMERIC_PRECISION_MAX:
        raise SchemaError(f"schema has a decimal of scale {scale}, which is not between 0 and {NUMERIC_PRECISION_MAX}")
    if precision is None or not max(scale, 1) <= precision <= NUMERIC_PRECISION_MAX:
        precision = NUMERIC_PRECISION_MAX  # Connect's default is 64 digits; most values have fewer
    return Meaning("decimal", f"numeric({precision},{scale})", type, scale)


def _name(logical: Logical | None) -> str:
    return "" if logical is None else logical.name
