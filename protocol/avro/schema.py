"""The types of an Avro schema, parsed from JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias

PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
DEPTH_MAX = 64  # of nested types; Python's stack is limited, and a schema is foreign input
TYPES_MAX = 20_000  # with the parts of a named type for each reference to it, which may be exponentially many
FIXED_BYTES_MAX = (1 << 31) - 1


SCHEMA_HINT = "Write the data with a record of Avro whose fields have types that the documentation of sources lists."
"""The hint of errors that have the text of a SchemaError."""


class SchemaError(Exception):
    """A schema that is invalid, not supported, or does not match the reader's."""


@dataclass(frozen=True, slots=True)
class Logical:
    """The meaning of a type's values: Avro's `logicalType` or Connect's `connect.name`, and a decimal's parameters."""

    name: str
    scale: int = 0
    precision: int | None = None


@dataclass(frozen=True, slots=True)
class Primitive:
    name: str
    logical: Logical | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    name: str
    size: int
    logical: Logical | None = None


@dataclass(frozen=True, slots=True)
class Enum:
    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Array:
    items: Type


@dataclass(frozen=True, slots=True)
class Map:
    values: Type


@dataclass(frozen=True, slots=True)
class Union:
    branches: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """`default`: a one-element tuple with the JSON value, or None."""

    name: str
    type: Type
    default: tuple[Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Record:
    name: str
    fields: tuple[Field, ...]
    logical: Logical | None = None

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name == name), None)


Type: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | Record

NULL = Primitive("null")


def parse_schema(text: str) -> Type:
    """Returns the type of a schema. SchemaError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"schema is not valid JSON: {error}") from None
    return _Parser().type(value, "", 0)


def without_null(type: Type) -> tuple[tuple[Type, ...], bool]:
    """Returns the branches of a union, or the type itself, without `null`, and whether there is a `null`."""
    branches = type.branches if isinstance(type, Union) else (type,)
    rest = tuple(branch for branch in branches if branch != NULL)
    return rest, len(rest) < len(branches)


def describe(type: Type) -> str:
    """The type as error messages name it, such as `Long`."""
    match type:
        case Primitive(name):
            return name.capitalize()
        case Fixed(name) | Enum(name) | Record(name):
            return f"{type.__class__.__name__} {name}"
        case _:
            return type.__class__.__name__


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Type | None] = {}  # None: a type that is being defined
        self._records: dict[str, tuple[int, int]] = {}  # the number of types in a record, and their depth
        self._types = 0
        self._deepest = 0  # since the beginning of the record that is being parsed

    def type(self, value: Any, namespace: str, depth: int) -> Type:
        self._count(1, depth)
        if isinstance(value, str):
            return Primitive(value) if value in PRIMITIVES else self._reference(value, namespace, depth)
        if isinstance(value, list):
            branches = tuple(self.type(branch, namespace, depth + 1) for branch in value)
            if not branches or any(isinstance(branch, Union) for branch in branches):
                raise SchemaError("schema has an empty union or a union in a union")
            return Union(branches)
        if not isinstance(value, dict) or "type" not in value:
            raise SchemaError("schema has a type that is neither a name nor an object with a type")
        match value["type"]:
            case "record" | "error":
                return self._record(value, namespace, depth)
            case "enum":
                symbols = value.get("symbols")
                if not isinstance(symbols, list) or not symbols or not all(isinstance(s, str) for s in symbols):
                    raise SchemaError("schema has an enum without symbols")
                name = _full_name(value, namespace)
                return self._define(name, Enum(name, tuple(symbols)))
            case "fixed":
                size = value.get("size")
                if not isinstance(size, int) or size < 0:
                    raise SchemaError("schema has a fixed type without a size")
                if size > FIXED_BYTES_MAX:
                    raise SchemaError(f"schema has a fixed type of more than {FIXED_BYTES_MAX} bytes")
                name = _full_name(value, namespace)
                return self._define(name, Fixed(name, size, _logical(value)))
            case "array":
                return Array(self.type(value.get("items"), namespace, depth + 1))
            case "map":
                return Map(self.type(value.get("values"), namespace, depth + 1))
            case str(name) if name in PRIMITIVES:
                return Primitive(name, _logical(value))
            case inner:
                return self.type(inner, namespace, depth + 1)

    def _record(self, value: dict[str, Any], namespace: str, depth: int) -> Type:
        name = _full_name(value, namespace)
        self._named[name] = None
        inner = name.rpartition(".")[0]
        fields = value.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(f, dict) and isinstance(f.get("name"), str) for f in fields
        ):
            raise SchemaError(f"record {name} has no fields")
        types_before, deepest_before = self._types, self._deepest
        self._deepest = depth
        parsed = tuple(
            Field(f["name"], self.type(f.get("type"), inner, depth + 1), (f["default"],) if "default" in f else None)
            for f in fields
        )
        self._records[name] = self._types - types_before, self._deepest - depth
        self._deepest = max(self._deepest, deepest_before)
        return self._define(name, Record(name, parsed, _logical(value)))

    def _count(self, types: int, depth: int) -> None:
        """SchemaError if there are too many types, or if they are nested too deeply."""
        self._types += types
        self._deepest = max(self._deepest, depth)
        if depth > DEPTH_MAX:
            raise SchemaError(f"schema has more than {DEPTH_MAX} nested types")
        if self._types > TYPES_MAX:
            raise SchemaError(f"schema has more than {TYPES_MAX} types")

    def _define(self, name: str, type: Type) -> Type:
        self._named[name] = type
        return type

    def _reference(self, name: str, namespace: str, depth: int) -> Type:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise SchemaError(f"schema names the unknown type {name}")
        found = self._named[full]
        if found is None:
            raise SchemaError(f"schema has the recursive type {name}, which is not supported")
        if full in self._records:
            types, height = self._records[full]
            self._count(types, depth + height)
        return found


def _full_name(value: dict[str, Any], namespace: str) -> str:
    name, own = value.get("name"), value.get("namespace", namespace)
    if not isinstance(name, str) or not isinstance(own, str):
        raise SchemaError("schema has a named type without a name")
    return name if "." in name or not own else f"{own}.{name}"


def _logical(value: dict[str, Any]) -> Logical | None:
    """Connect's name if it is one of a type with a meaning of its own, else Avro's logical type."""
    name = value.get("connect.name") if _is_meaningful(value.get("connect.name")) else value.get("logicalType")
    if not isinstance(name, str):
        return None
    if name not in ("decimal", "org.apache.kafka.connect.data.Decimal"):
        return Logical(name)
    parameters = value.get("connect.parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    try:
        scale = int(value.get("scale") or parameters.get("scale") or 0)
        precision: Any = value.get("precision", parameters.get("connect.decimal.precision"))
        return Logical("decimal", scale, None if precision is None else int(precision))
    except (TypeError, ValueError, OverflowError):
        raise SchemaError("schema has a decimal with an invalid precision or scale") from None


def _is_meaningful(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(("org.apache.kafka.connect.data.", "io.debezium."))
