"""Avro values: from JSON to bytes and back.

JSON has Avro's own encoding: a value of a union is null or `{"branch": value}`, where the branch is the name of a type;
bytes and fixed are strings of the characters U+0000 to U+00FF, or lists of numbers. Logical types are ignored, so a
date is its number of days and a decimal its bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

Json = Any
_RANGES = {"int": 2**31, "long": 2**63}


class AvroSchema:
    """A parsed schema. `references`: schemas with the named types that it uses but does not define."""

    def __init__(self, text: str, references: Iterable[str] = ()) -> None:
        """ValueError if the schema is not valid."""
        self._named: dict[str, dict[str, Any]] = {}
        try:
            for reference in references:
                fastavro.parse_schema(_plain(json.loads(reference)), self._named)
            self._schema: Any = fastavro.parse_schema(_plain(json.loads(text)), self._named)
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"the Avro schema is not valid: {error or type(error).__name__}") from error

    def encoded(self, value: Json) -> bytes:
        """ValueError if the value is not one of the schema."""
        datum = self._datum(value, self._schema, "the value")
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._schema, datum)
        return out.getvalue()

    def decoded(self, data: bytes) -> Json:
        """ValueError if the bytes are not exactly one value."""
        rest = io.BytesIO(data)
        try:
            value = self._json(rest, self._schema)
        except (EOFError, IndexError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a value of the Avro schema: {error or type(error).__name__}") from error
        if rest.read(1):
            raise ValueError("bytes follow the Avro value")
        return value

    def _datum(self, value: Json, schema: Any, path: str) -> Any:
        """Converts JSON to what fastavro writes; a value of a union is (branch, value)."""
        if isinstance(schema, list):
            return self._of_union(value, schema, path)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind, value:
            case ("null", None) | ("boolean", bool()) | ("string", str()):
                return value
            case (("int" | "long"), int()) if not isinstance(value, bool):
                if -_RANGES[kind] <= value < _RANGES[kind]:
                    return value
                raise ValueError(f"{path} is out of range for {kind}: {value}")
            case (("float" | "double"), int() | float()) if not isinstance(value, bool):
                return float(value)
            case (("bytes" | "fixed"), str() | list()):
                data = _bytes(value, path)
                if kind == "fixed" and len(data) != schema["size"]:
                    raise ValueError(f"{path} needs {schema['size']} bytes, not {len(data)}")
                return data
            case "enum", str():
                if value in schema["symbols"]:
                    return value
                raise ValueError(f"{path} is one of {', '.join(schema['symbols'])}, not {value!r}")
            case "array", list():
                return [self._datum(item, schema["items"], f"{path}[{i}]") for i, item in enumerate(value)]
            case "map", dict():
                return {key: self._datum(item, schema["values"], f"{path}.{key}") for key, item in value.items()}
            case (("record" | "error"), dict()):
                return self._of_record(value, schema, path)
        name = schema["name"] if isinstance(schema, Mapping) and "name" in schema else kind
        raise ValueError(f"{path} is of type {name}, not {json.dumps(value, ensure_ascii=False)}")

    def _of_record(self, value: Mapping[str, Json], schema: Any, path: str) -> dict[str, Any]:
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        if missing := fields.keys() - value.keys():
            raise ValueError(f"{path} lacks the field {', '.join(sorted(missing))}")
        if unknown := value.keys() - fields.keys():
            raise ValueError(f"{path} has no field {', '.join(sorted(unknown))} in the schema")
        return {name: self._datum(value[name], type, f"{path}.{name}") for name, type in fields.items()}

    def _of_union(self, value: Json, union: list[Any], path: str) -> tuple[str, Any]:
        branches = {self._branch(type): type for type in union}
        if value is None and "null" in branches:
            return "null", None
        if isinstance(value, dict) and len(value) == 1:
            [(given, inner)] = value.items()
            short = [name for name in branches if name.rpartition(".")[2] == given]
            name = given if given in branches else short[0] if len(short) == 1 else ""
            if name and name != "null":
                return name, self._datum(inner, branches[name], path)
        forms = ["null" if name == "null" else f'{{"{name}": ...}}' for name in branches]
        raise ValueError(f"{path} is one of {', '.join(forms)}, not {json.dumps(value, ensure_ascii=False)}")

    def _json(self, data: io.BytesIO, schema: Any) -> Json:
        """Reads a value. fastavro reads the primitive types; its values do not tell the branch of a union."""
        if isinstance(schema, list):
            index = _long(data)
            if not 0 <= index < len(schema):
                raise IndexError(f"a union of {len(schema)} types has no type {index}")
            value = self._json(data, schema[index])
            return None if schema[index] == "null" else {self._branch(schema[index]): value}
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "fixed":
                found = data.read(schema["size"])
                if len(found) < schema["size"]:
                    raise EOFError
                return found.decode("latin-1")
            case "enum":
                return schema["symbols"][_long(data)]
            case "array":
                return [self._json(data, schema["items"]) for _ in _items(data)]
            case "map":
                return {_primitive(data, "string"): self._json(data, schema["values"]) for _ in _items(data)}
            case "record" | "error":
                return {field["name"]: self._json(data, field["type"]) for field in schema["fields"]}
            case "bytes":
                return _primitive(data, kind).decode("latin-1")
        return _primitive(data, kind)

    def _branch(self, type: Any) -> str:
        if isinstance(type, str):
            return type
        return str(type["name"] if type["type"] in ("record", "error", "enum", "fixed") else type["type"])


def _plain(schema: Any) -> Any:
    """Returns the schema without logical types."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _plain(item) for key, item in schema.items() if key != "logicalType"}


def _bytes(value: str | list[Any], path: str) -> bytes:
    try:
        return value.encode("latin-1") if isinstance(value, str) else bytes(value)
    except (UnicodeEncodeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a string or list of bytes: {error}") from error


def _primitive(data: io.BytesIO, kind: str) -> Any:
    return fastavro.schemaless_reader(data, kind, None)


def _long(data: io.BytesIO) -> int:
    return int(_primitive(data, "long"))


def _items(data: io.BytesIO) -> Iterator[None]:
    """Yields once per item of an array or map, whose blocks have counts; after a negative one comes a size in bytes."""
    while count := _long(data):
        if count < 0:
            _long(data)
        for _ in range(abs(count)):
            yield
