"""Decodes many messages of one writer's schema at a time to the columns of a reader's schema.

A decoder is a tree of nodes, one per type of the writer's schema. A node reads its value in all messages together and
returns columns; a union's node runs each branch for the messages that have it. Fields are matched by name. Fields that
the reader does not want are skipped, and those that the writer does not have are the reader's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.avro.columns import AvroColumn, Meaning, columns_of, meaning_of
from protocol.avro.convert import converted, decimals_of_variable_scale
from protocol.avro.cursor import Cursor, Rows
from protocol.avro.plain import DecodeError, PlainReader, as_json
from protocol.avro.schema import (
    NULL,
    Enum,
    Fixed,
    Primitive,
    Record,
    SchemaError,
    Type,
    Union,
    describe,
)
from protocol.avro.skipper import Skipper
from protocol.pgwire.errors import PgError
from protocol.pgwire.json_values import printed_jsonb
from protocol.pgwire.types import parse_type

Path: TypeAlias = tuple[str, ...]
Columns: TypeAlias = dict[Path, pa.Array]

_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


@dataclass(frozen=True)
class Wanted:
    """The parts of a record that a reader wants: columns of some fields, or parts of fields that are records.

    `path`: the names of the fields that lead to the record; columns are named `(*path, column.name)`. `nullable`:
    whether the record may be missing or null. Then the column `path` says where it is present.
    """

    fields: Mapping[str, Wanted | tuple[AvroColumn, ...]]
    path: Path = ()
    nullable: bool = False

    @property
    def is_nested(self) -> bool:
        """Whether a column has arrays, maps or records, which are decoded one by one."""
        return any(
            part.is_nested if isinstance(part, Wanted) else any(column.meaning.is_nested for column in part)
            for part in self.fields.values()
        )

    def types(self) -> dict[Path, pa.DataType]:
        """The Arrow types of all columns."""
        found: dict[Path, pa.DataType] = {self.path: pa.bool_()} if self.nullable else {}
        for part in self.fields.values():
            if isinstance(part, Wanted):
                found.update(part.types())
            else:
                found.update({(*self.path, c.name): parse_type(c.meaning.type).arrow for c in part})
        return found

    @classmethod
    def all_of(cls, record: Type, path: Path = (), *, nullable: bool = False) -> Wanted:
        """All fields of a record, each as the columns of `columns_of`. SchemaError if the type is not a record."""
        columns = columns_of(record)
        assert isinstance(record, Record)
        own: dict[int, list[AvroColumn]] = {}
        for column in columns:
            own.setdefault(id(column.field), []).append(column)
        return cls({field.name: tuple(own[id(field)]) for field in record.fields}, path, nullable)


@dataclass(frozen=True)
class Decoded:
    """Columns by path, and the messages that could not be decoded, whose values in the columns are arbitrary."""

    columns: Columns
    failed: NDArray[np.bool_]
    wrong_fields: Mapping[int, str] = field(default_factory=dict)


class Decoder:
    """Decodes messages of a writer's schema. SchemaError if it does not match what is wanted."""

    def __init__(self, writer: Type, wanted: Wanted) -> None:
        self._writer = writer
        self._root = _record_node(writer, wanted)

    def decode(self, messages: pa.BinaryArray, skip: int = 0) -> Decoded:
        """`skip`: the number of bytes before each message's value."""
        return self.decode_at(Cursor(messages, skip))

    def decode_at(self, cursor: Cursor) -> Decoded:
        """Decodes from the positions of a cursor to its ends."""
        columns = self._root.run(cursor, None)
        cursor.finish()
        return Decoded(columns, cursor.failed, cursor.wrong_fields)

    def reason(self, message: bytes, field: str | None) -> str:
        """Why a message could not be decoded. `field`: its entry in `wrong_fields`."""
        reader = PlainReader(message)
        try:
            reader.read(self._writer)
            reader.finish()
        except DecodeError as error:
            return str(error)
        return f"field {field}: value is out of range or invalid for its column"


# -- nodes ----------------------------------------------------------------------------------------------------------


class _Node(Protocol):
    def run(self, cursor: Cursor, rows: Rows) -> Columns:
        """Reads the value of each of `rows`. The columns have one value for each of them."""


@dataclass(frozen=True)
class _Missing:
    """Nothing is read: the columns are constant."""

    values: Mapping[Path, pa.Scalar]
    required: str | None = None  # a column that must not be null, and is

    def run(self, cursor: Cursor, rows: Rows) -> Columns:
        count = len(cursor) if rows is None else len(rows)
        if self.required is not None and count:
            cursor.mark(rows, np.ones(count, np.bool_), self.required)
        return {path: _repeated(value, count) for path, value in self.values.items()}


@dataclass(frozen=True)
class _Skipped:
    """A value that the reader does not want."""

    skipper: Skipper

    def run(self, cursor: Cursor, rows: Rows) -> Columns:
        limit = cursor.end if rows is None else cursor.end[rows]
        end = self.skipper.ends(cursor, cursor.at(rows), limit)
        cursor.move(rows, end)
        cursor.fail(rows, end > limit)
        return {}


@dataclass(frozen=True)
class _Scalar:
    """A value of a primitive type, a fixed type or an enum."""

    path: Path
    meaning: Meaning
    type: Primitive | Fixed | Enum

    def run(self, cursor: Cursor, rows: Rows) -> Columns:
        values, wrong = converted(_raw(self.type, cursor, rows), self.meaning)
        if wrong is not None:
            cursor.mark(rows, wrong, ".".join(self.path))
        return {self.path: values}


@dataclass(frozen=True)
class _VariableDecimal:
    """Debezium's VariableScaleDecimal: a record {scale, value}."""

    path: Path

    def run(self, cursor: Cursor, rows: Rows) -> Columns:
        scales = pa.array(cursor.longs(rows))
        values, wrong = decimals_of_variable_scale(scales, cursor.strings(rows))
        if wrong is not None:
            cursor.mark(rows, wrong, ".".join(self.path))
        return {self.path: values}


@dataclass(frozen=True)
class _Nested:
    """An array, map or record in one column. Its values are decoded one by one."""

    path: Path
    meaning: Meaning
    type: Type

    def run(self, cursor: Cursor, rows: Rows) -> Columns:
        values = _plain_values(cursor, rows, self.type)
        if self.meaning.element is not None:
            return {self.path: self._lists(values, self.meaning.element, cursor, rows)}
        found: list[str | None] = []
        for row, value in enumerate(values):
            try:
                found.append(printed_jsonb(as_json(value, self.type)))
            except PgError:  # text with the character 0
                found.append(None)
                _mark_one(cursor, rows, row, self.path)
        return {self.path: pa.array(found, pa.string())}

    def _lists(self, values: list[Any], element: Meaning, cursor: Cursor, rows: Rows) -> pa.Array:
        flat = [item for value in values if value is not None for item in value]
        raw = pa.array([v.encode() if isinstance(v, str) else v for v in flat], _raw_type(element.source))
        items, wrong = converted(raw, element)
        lengths = [0 if value is None else len(value) for value in values]
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        if wrong is not None:
            for item in np.flatnonzero(wrong).tolist():
                _mark_one(cursor, rows, int(np.searchsorted(offsets, item, "right")) - 1, self.path)
        return pa.ListArray.from_arrays(pa.array(offsets), items)


@dataclass(frozen=True)
class _Record:
    """A record: its fields in the writer's order, then those that only the reader has."""

    nodes: Sequence[_Node]
    presence: Path | None

    def run(self, cursor: Cursor, rows: Rows) -> Columns:
        found: Columns = {}
        for node in self.nodes:
            found.update(node.run(cursor, rows))
        if self.presence is not None:
            found[self.presence] = _repeated(pa.scalar(True), len(cursor) if rows is None else len(rows))
        return found


@dataclass(frozen=True)
class _Union:
    branches: Sequence[_Node]
    types: Mapping[Path, pa.DataType]

    def run(self, cursor: Cursor, rows: Rows) -> Columns:
        position = cursor.at(rows)
        common = cursor.common_long_at(position)
        if common is not None and 0 <= common < len(self.branches):
            cursor.move(rows, position + 1)
            found = self.branches[common].run(cursor, rows)
            count = len(position)
            return {path: found[path] if path in found else pa.nulls(count, t) for path, t in self.types.items()}
        index = cursor.longs(rows)
        wrong = (index < 0) | (index >= len(self.branches))
        if wrong.any():
            cursor.fail(rows, wrong)
            index = np.where(wrong, 0, index)
        count = len(index)
        parts: list[tuple[NDArray[np.intp], Columns]] = []
        for number, branch in enumerate(self.branches):
            where = np.flatnonzero(index == number)
            if len(where):
                parts.append((where, branch.run(cursor, where if rows is None else rows[where])))
        return {path: _scattered(path, type, parts, count) for path, type in self.types.items()}


def _scattered(
    path: Path, type: pa.DataType, parts: Sequence[tuple[NDArray[np.intp], Columns]], count: int
) -> pa.Array:
    """The values of the parts in the order of the rows; NULL where no part has a value."""
    having = [(where, found[path]) for where, found in parts if path in found]
    if not having:
        return pa.nulls(count, type)
    indices = np.full(count, -1)
    start = 0
    for where, _ in having:
        indices[where] = np.arange(start, start + len(where))
        start += len(where)
    values = having[0][1] if len(having) == 1 else pa.concat_arrays([values for _, values in having])
    return values.take(pa.array(indices, mask=indices < 0))


# -- from the writer's schema and what is wanted to nodes -----------------------------------------------------------


def _record_node(writer: Type, wanted: Wanted) -> _Node:
    if isinstance(writer, Union):
        nodes: list[_Node] = [
            _absent(wanted) if branch == NULL else _record_node(branch, wanted) for branch in writer.branches
        ]
        return _Union(nodes, wanted.types())
    if not isinstance(writer, Record):
        raise SchemaError(
            f"Writer schema has type `{describe(writer)}`, but reader schema has type `Record`"
            + (f" for field `{'.'.join(wanted.path)}`" if wanted.path else "")
        )
    nodes = []
    for own in writer.fields:
        part = wanted.fields.get(own.name)
        if part is None:
            nodes.append(_Skipped(Skipper(own.type)))
        elif isinstance(part, Wanted):
            nodes.append(_record_node(own.type, part))
        else:
            nodes.append(_columns_node(own.type, part, wanted.path, f"{writer.name}.{own.name}"))
    written = {own.name for own in writer.fields}
    for name, part in wanted.fields.items():
        if name not in written:
            nodes.append(_default(part, wanted.path))
    return _Record(nodes, wanted.path if wanted.nullable else None)


def _columns_node(writer: Type, columns: tuple[AvroColumn, ...], path: Path, name: str) -> _Node:
    if isinstance(writer, Union):
        types = {(*path, column.name): parse_type(column.meaning.type).arrow for column in columns}
        return _Union([_branch_node(branch, columns, path, name) for branch in writer.branches], types)
    node = _column_node(writer, columns, path, name)
    if len(columns) == 1:
        return node
    types = {(*path, column.name): parse_type(column.meaning.type).arrow for column in columns}
    missing = _Missing({path: pa.scalar(None, type) for path, type in types.items()})
    return _Record([missing, node], None)


def _branch_node(branch: Type, columns: tuple[AvroColumn, ...], path: Path, name: str) -> _Node:
    """A branch of a union. A branch that does not match the reader fails only the messages that have it."""
    if branch == NULL:
        return _Missing({}, None if columns[0].nullable else ".".join((*path, columns[0].name)))
    try:
        return _column_node(branch, columns, path, name)
    except SchemaError:
        if len(columns) == 1 and isinstance(branch, Primitive | Fixed | Enum):
            raise  # almost always a changed type, which is better reported at once
        return _Record([_Skipped(Skipper(branch)), _Missing({}, ".".join((*path, columns[0].name)))], None)


def _column_node(writer: Type, columns: tuple[AvroColumn, ...], path: Path, name: str) -> _Node:
    """The value of one type, in the first column that can have it."""
    errors = []
    for column in sorted(columns, key=lambda column: not _is_same(writer, column.meaning.source)):
        try:
            return _value_node(writer, (*path, column.name), column.meaning, name)
        except SchemaError as error:
            errors.append(error)
    raise errors[0]


def _value_node(writer: Type, path: Path, meaning: Meaning, name: str) -> _Node:
    reader = meaning.source
    mismatch = SchemaError(
        f"Writer schema has type `{describe(writer)}`, but reader schema has type `{describe(reader)}` "
        f"for field `{name}`"
    )
    if meaning.is_nested:
        if type(writer) is not type(reader) or meaning_of(writer).type != meaning.type:
            raise mismatch
        return _Nested(path, meaning_of(writer), writer)
    if meaning.kind == "variable decimal":
        if meaning_of(writer).kind != meaning.kind:
            raise mismatch
        return _VariableDecimal(path)
    match writer, reader:
        case Primitive(own), Primitive(wanted) if own == wanted or wanted in _PROMOTIONS.get(own, ()):
            pass
        case Fixed(_, own_size), Fixed(_, size) if own_size == size:
            pass
        case Enum(), Enum():
            pass
        case _:
            raise mismatch
    assert isinstance(writer, Primitive | Fixed | Enum)
    written = meaning_of(writer)
    has_unit = any(each.kind not in ("same", "text") for each in (written, meaning))
    is_typed = not isinstance(writer, Enum) and writer.logical is not None
    is_json_text = (written.kind, meaning.kind) == ("json", "text")  # without the normal form of jsonb
    if has_unit and is_typed and not is_json_text and (written.kind, written.scale) != (meaning.kind, meaning.scale):
        raise SchemaError(
            f"Writer schema has values of type {written.type} ({written.kind}) for field `{name}`, "
            f"but reader schema has {meaning.type} ({meaning.kind})"
        )
    return _Scalar(path, meaning, writer)


def _is_same(writer: Type, reader: Type) -> bool:
    match writer, reader:
        case Primitive(own), Primitive(wanted):
            return own == wanted
        case Record(own), Record(wanted):
            return own == wanted
    return type(writer) is type(reader)


def _absent(wanted: Wanted) -> _Node:
    """A record that is null."""
    return _Missing({}, None if wanted.nullable else ".".join(wanted.path) or "value")


def _default(part: Wanted | tuple[AvroColumn, ...], path: Path) -> _Node:
    """The values of a field that the writer does not have. SchemaError if the reader has no default."""
    if isinstance(part, Wanted):
        if not part.nullable:
            raise SchemaError(f"Writer schema is missing field `{'.'.join(part.path)}`")
        return _Missing({path: pa.scalar(None, type) for path, type in part.types().items()})
    values: dict[Path, pa.Scalar] = {}
    for column in part:
        type = parse_type(column.meaning.type).arrow
        default = column.field.default
        if default is None and not column.nullable:
            raise SchemaError(f"Writer schema is missing field `{'.'.join((*path, column.name))}`")
        value = None if default is None or column.branch else default[0]
        values[(*path, column.name)] = pa.scalar(None, type) if value is None else _constant(value, column)
    return _Missing(values)


def _constant(value: Any, column: AvroColumn) -> pa.Scalar:
    """The default of a field, of JSON's form, as the column's value."""
    source = column.meaning.source
    if isinstance(source, Primitive) and source.name == "string" and isinstance(value, str):
        value = value.encode()
    elif isinstance(source, Primitive | Fixed) and isinstance(value, str):
        value = value.encode("latin-1", "replace")
    try:
        found, wrong = converted(pa.array([value], _raw_type(source)), column.meaning)
    except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError, AttributeError):
        raise SchemaError(f"default of field `{column.name}` is not supported") from None
    if wrong is not None:
        raise SchemaError(f"default of field `{column.name}` is invalid")
    return found[0]


# -- values ---------------------------------------------------------------------------------------------------------


def _raw_type(type: Type) -> pa.DataType:
    match type:
        case Primitive("int" | "long"):
            return pa.int64()
        case Primitive("boolean"):
            return pa.bool_()
        case Primitive("float"):
            return pa.float32()
        case Primitive("double"):
            return pa.float64()
        case Enum():
            return pa.string()
    return pa.binary()


def _raw(type: Primitive | Fixed | Enum, cursor: Cursor, rows: Rows) -> pa.Array:
    match type:
        case Primitive("int" | "long"):
            return pa.array(cursor.longs(rows))
        case Primitive("boolean"):
            return pa.array(cursor.fixed(rows, "u1") != 0)
        case Primitive("float"):
            return pa.array(cursor.fixed(rows, "<f4"))
        case Primitive("double"):
            return pa.array(cursor.fixed(rows, "<f8"))
        case Fixed(_, size):
            start = cursor.advance(rows, size)
            return cursor.slices(start, np.full(len(start), size), rows)
        case Enum(_, symbols):
            index = cursor.longs(rows)
            wrong = (index < 0) | (index >= len(symbols))
            if wrong.any():
                cursor.fail(rows, wrong)
                index = np.where(wrong, 0, index)
            return pa.array(symbols, pa.string()).take(pa.array(index))
    return cursor.strings(rows)


def _plain_values(cursor: Cursor, rows: Rows, type: Type) -> list[Any]:
    """Values read one by one. None for a message that fails."""
    data = cursor.data.tobytes()
    position = cursor.at(rows).copy()
    ends = cursor.end if rows is None else cursor.end[rows]
    failed = np.zeros(len(position), np.bool_)
    found = []
    for row, (start, end) in enumerate(zip(position.tolist(), ends.tolist(), strict=True)):
        reader = PlainReader(data, start, end)
        try:
            found.append(reader.read(type))
        except DecodeError:
            failed[row] = True
            found.append(None)
        position[row] = reader.position
    cursor.move(rows, position)
    cursor.fail(rows, failed)
    return found


def _mark_one(cursor: Cursor, rows: Rows, row: int, path: Path) -> None:
    mask = np.zeros(len(cursor) if rows is None else len(rows), np.bool_)
    mask[row] = True
    cursor.mark(rows, mask, ".".join(path))


def _repeated(value: pa.Scalar, count: int) -> pa.Array:
    return pa.repeat(value, count) if value.is_valid else pa.nulls(count, value.type)
