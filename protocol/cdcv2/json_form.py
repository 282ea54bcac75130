"""Messages as JSON, one on each line, with the names of the Avro form:

    {"array": [{"data": {"name": value, ...}, "time": 5, "diff": 1}, ...]}
    {"com.materialize.cdc.progress": {"lower": [0], "upper": [10], "counts": [{"time": 5, "count": 1}]}}

Booleans, integers and finite floats are those of JSON, json and jsonb are any JSON, and other values are strings as
PostgreSQL prints them. Missing fields are NULL.

Values of json and jsonb that would be read as something else are objects with the single member `TEXT`, a string that
is their text: null, which is NULL; json with line breaks, or with spaces around it; and objects with this single
member.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow.json import ParseOptions, ReadOptions, read_json

from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.messages import (
    DIFF,
    DIFF_FIELD,
    END,
    TIME,
    TIME_FIELD,
    TIME_MAX,
    MessageError,
    Progress,
    message_bounds,
)
from protocol.columnar.buffers import joined, offsets_of, patched, string_parts
from protocol.pgwire.decode import BadValue, parse_text_column
from protocol.pgwire.errors import PgError
from protocol.pgwire.json_values import loaded_jsonb, printed_jsonb, quoted_json
from protocol.pgwire.text_columns import DEFAULT_STYLE, Escapes, plain_column, text_column


class _Number(str):
    """The text of a number, to distinguish it from a string."""


class JsonText(str):
    """The text of a value of the type json."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Where `load_json` finds values of the type json, whose texts it keeps.

    `members`: of an object, by name. `items`: of the elements of an array. Neither: the value is such a value.
    """

    members: Mapping[str, Shape] = field(default_factory=dict)
    items: Shape | None = None

    @property
    def is_json(self) -> bool:
        """Whether the value has the type json."""
        return not self.members and self.items is None


UPDATES, PROGRESS = "array", "com.materialize.cdc.progress"
TEXT = "tidewire.json"
"""The name of the single member of an object that replaces a value of json or jsonb. Its value is the text of it."""
_BARE = ("int2", "int4", "int8", "json", "jsonb")  # printed as they are
_ESCAPES = Escapes(b'"\\\b\f\n\r\t', "\\", {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"})
_WRAPPED = r"^null$|^\s|\s$|[\n\r]"  # json and jsonb that cannot be printed as they are
_MAYBE_WRAPPER = r"^\s*\{(?s:.*)(tidewire\.json|\\u)"  # `TEXT`, or a name with escapes
_CONTROL = r"[\x00-\x07\x0b\x0e-\x1f]"  # without letters of their own
_INFINITE = r"^(NaN|-?Infinity)$"
_FLOATS = ("float4", "float8")
_PARSED = ("bool", "int2", "int4", "int8", *_FLOATS)  # which Arrow parses; the others are texts
_FEW = 16  # messages that Arrow refuses together are decoded one by one
_UPDATES_LINE, _PROGRESS_LINE = (
    rf'^ *\{{ *"{name}" *: *\{begin}[^\n\r]*\{end} *\}} *$'
    for name, begin, end in ((UPDATES, "[", "]"), (re.escape(PROGRESS), "{", "}"))
)
_SMALL_NUMBER = r": *-?([0-9.]+[eE]-[0-9]{2}|0\.0{30})"  # which may be too small to be represented
_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_Number)
_SPACE = re.compile(r"[ \t\n\r]*")
_STATEMENTS = pa.schema(
    [
        (
            PROGRESS,
            pa.struct(
                [
                    ("lower", pa.list_(pa.int64())),
                    ("upper", pa.list_(pa.int64())),
                    ("counts", pa.list_(pa.struct([("time", pa.int64()), ("count", pa.int64())]))),
                ]
            ),
        )
    ]
)

Rows = NDArray[np.intp]
Parse = Callable[[pa.BinaryArray], "pa.Table | list[Progress] | None"]


class RowDecoder:
    """Decodes rows: JSON objects whose fields are these columns. Other fields are ignored."""

    def __init__(self, columns: Sequence[EncodedColumn]) -> None:
        self._columns = tuple(columns)
        self.type = pa.struct([(c.name, c.type.arrow if c.type.name in _PARSED else pa.string()) for c in columns])
        """The type with which Arrow parses the objects for `converted`."""
        self.is_plain = not any(column.type.name in ("json", "jsonb") for column in columns)
        """Whether Arrow can parse the objects. It cannot return a part of them as the text of JSON."""
        texts = {column.name: Shape() for column in columns if column.type.name == "json"}
        self.shape = Shape(texts) if texts else None
        """The objects for `load_json`; None if no column has the type json."""

    def converted(self, rows: pa.StructArray, messages: pa.BinaryArray) -> list[pa.Array] | None:
        """The columns of objects that Arrow has parsed from `messages`; None if they must be decoded one by one."""
        columns = []
        for position, column in enumerate(self._columns):
            values = rows.field(position)
            if values.null_count and not column.nullable:
                return None
            if column.type.name in _FLOATS and _are_inexact(values, messages):
                return None
            try:
                columns.append(values if column.type.name in _PARSED else parse_text_column(column.type, values))
            except (BadValue, PgError):
                return None
        return columns

    def loaded(self, rows: Sequence[Mapping[str, Any]]) -> list[pa.Array]:
        """The columns of objects of `load_json`. MessageError, PgError, pa.ArrowException, RecursionError,
        UnicodeEncodeError"""
        columns = []
        for column in self._columns:
            convert = _json_text if column.type.name in ("json", "jsonb") else _scalar_text
            texts = pa.array([convert(row.get(column.name)) for row in rows], pa.string())
            if texts.null_count and not column.nullable:
                raise MessageError(f'null value in column "{column.name}"')
            try:
                columns.append(parse_text_column(column.type, texts))
            except BadValue as wrong:
                raise wrong.error from None
        return columns


class JsonDecoder:
    """Decodes messages whose data has these columns.

    Arrow parses many messages together. It accepts less than the form allows, such as numbers as strings, and reports
    neither the message of an error nor all errors. What it refuses, and the few values that it converts in another way
    than PostgreSQL, are decoded one by one.
    """

    def __init__(self, columns: Sequence[EncodedColumn]) -> None:
        types = [pa.field(f"c{i}", column.type.arrow) for i, column in enumerate(columns)]
        self.schema = pa.schema([*types, TIME_FIELD, DIFF_FIELD])
        """The schema of the updates."""
        self._rows = RowDecoder(columns)
        update = pa.struct([("data", self._rows.type), (TIME, pa.int64()), (DIFF, pa.int64())])
        self._updates = pa.schema([(UPDATES, pa.list_(update))])
        rows = self._rows.shape
        self._shape = None if rows is None else Shape({UPDATES: Shape(items=Shape({"data": rows}))})

    @property
    def is_plain(self) -> bool:
        """As that of `RowDecoder`: otherwise all updates are decoded one by one."""
        return self._rows.is_plain

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """NULL is an invalid message."""
        found = _Found()
        left = np.ones(len(messages), np.bool_)
        for line, parse in ((_UPDATES_LINE, self._parsed_updates), (_PROGRESS_LINE, _parsed_statements)):
            if self._rows.is_plain or line == _PROGRESS_LINE:
                rows = np.flatnonzero(np.asarray(pc.match_substring_regex(messages, line).fill_null(False)))
                left[rows] = False
                self._together(messages, rows, parse, found)
        self._one_by_one(messages, np.flatnonzero(left), found)
        failed = np.zeros(len(messages), np.bool_)
        failed[list(found.reasons)] = True
        tables = [self.schema.empty_table(), *(table for _, table in sorted(found.tables, key=itemgetter(0)))]
        statements = [each for _, own in sorted(found.statements, key=itemgetter(0)) for each in own]
        return Decoded(pa.concat_tables(tables), statements, failed, found.reasons.__getitem__)

    def _together(self, messages: pa.BinaryArray, rows: Rows, parse: Parse, found: _Found) -> None:
        """Decodes the messages in these rows with `parse`, and the halves that it refuses one by one."""
        if not len(rows):
            return
        parsed = parse(_taken(messages, rows))
        if isinstance(parsed, pa.Table):
            found.tables.append((int(rows[0]), parsed))
        elif parsed is not None:
            found.statements.append((int(rows[0]), parsed))
        elif len(rows) <= _FEW:
            self._one_by_one(messages, rows, found)
        else:
            for half in np.array_split(rows, 2):
                self._together(messages, half, parse, found)

    def _parsed_updates(self, messages: pa.BinaryArray) -> pa.Table | None:
        """The updates of messages; None if they must be decoded one by one."""
        table = parsed_lines(messages, self._updates)
        if table is None:
            return None
        lists = table.column(0).combine_chunks()
        updates = lists.flatten()
        data, times, diffs = (updates.field(name) for name in ("data", TIME, DIFF))
        if lists.null_count or updates.null_count or data.null_count or times.null_count or diffs.null_count:
            return None
        if len(times) and pc.min(times).as_py() < 0:
            return None
        columns = self._rows.converted(data, messages)
        if columns is None:
            return None
        return pa.table([*columns, times, diffs], self.schema)

    def _one_by_one(self, messages: pa.BinaryArray, rows: Rows, found: _Found) -> None:
        parsed: list[tuple[int, list[Any]]] = []
        for row, data in zip(rows.tolist(), messages.take(pa.array(rows)).to_pylist(), strict=True):
            try:
                message = _loaded(data, self._shape)
                if isinstance(message, Progress):
                    found.statements.append((row, [message]))
                else:
                    parsed.append((row, message))
            except MessageError as error:
                found.reasons[row] = str(error)
        if parsed:
            found.tables.append((parsed[0][0], self._tables(parsed, found.reasons)))

    def _tables(self, parsed: Sequence[tuple[int, list[Any]]], reasons: dict[int, str]) -> pa.Table:
        """The updates of all messages. If a value is invalid, the messages are converted one by one."""
        try:
            return self._table([update for _, updates in parsed for update in updates])
        except (PgError, MessageError, pa.ArrowException, RecursionError, UnicodeEncodeError) as error:
            if len(parsed) == 1:
                reasons[parsed[0][0]] = error.message if isinstance(error, PgError) else str(error)
                return self.schema.empty_table()
        half = len(parsed) // 2
        return pa.concat_tables([self._tables(parsed[:half], reasons), self._tables(parsed[half:], reasons)])

    def _table(self, updates: Sequence[Any]) -> pa.Table:
        times, diffs, data = [], [], []
        for update in updates:
            if not isinstance(update, dict) or not isinstance(update.get("data"), dict):
                raise MessageError("update without data")
            times.append(_integer(update.get("time"), "time of an update", 0))
            diffs.append(_integer(update.get("diff"), "diff of an update", -TIME_MAX - 1))
            data.append(update["data"])
        columns = self._rows.loaded(data)
        return pa.table([*columns, pa.array(times, pa.int64()), pa.array(diffs, pa.int64())], self.schema)


class _Found:
    """Decoded tables and statements, each with the row of its first message."""

    def __init__(self) -> None:
        self.tables: list[tuple[int, pa.Table]] = []
        self.statements: list[tuple[int, list[Progress]]] = []
        self.reasons: dict[int, str] = {}


def parsed_lines(messages: pa.BinaryArray, schema: pa.Schema) -> pa.Table | None:
    """The messages, parsed by Arrow; None if it refuses one. Each is one line that begins with { and ends with }.

    The parser reads objects, not lines. No object can span two messages: after the } of the first one, the { of the
    second one is an error.
    """
    try:
        buffer = pa.py_buffer(string_parts(joined(messages.cast(pa.string()), pa.scalar("\n")))[1])
        table = read_json(
            pa.BufferReader(buffer),
            ReadOptions(use_threads=False, block_size=len(buffer) + 1),
            ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
        )
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(messages) else None


def _taken(messages: pa.BinaryArray, rows: Rows) -> pa.BinaryArray:
    """The messages in ascending rows; without a copy if they are adjacent."""
    first, last = int(rows[0]), int(rows[-1])
    return messages[first : last + 1] if last - first + 1 == len(rows) else messages.take(pa.array(rows))


def _are_inexact(values: pa.Array, messages: pa.BinaryArray) -> bool:
    """Whether numbers may be too large or too small for their type. Arrow reads them as infinite or 0."""
    numbers = values.drop_null().to_numpy()
    if not np.isfinite(numbers).all():
        return True
    return bool((numbers == 0).any()) and bool(pc.any(pc.match_substring_regex(messages, _SMALL_NUMBER)).as_py())


def _parsed_statements(messages: pa.BinaryArray) -> list[Progress] | None:
    """The statements of messages; None if they must be decoded one by one."""
    table = parsed_lines(messages, _STATEMENTS)
    if table is None:
        return None
    values = table.column(0).combine_chunks()
    lower, upper, counts = (values.field(name) for name in ("lower", "upper", "counts"))
    pairs = counts.flatten()
    parts = [lower.flatten(), upper.flatten(), pairs.field("time"), pairs.field("count")]
    if any(each.null_count for each in (values, lower, upper, counts, pairs, *parts)):
        return None
    bounds = [offsets_of(each) - offsets_of(each)[0] for each in (lower, upper, counts, counts)]
    numbers = [part.to_numpy() for part in parts]
    try:
        return [
            Progress.of_arrays(*(own[at[row] : at[row + 1]] for own, at in zip(numbers, bounds, strict=True)))
            for row in range(len(messages))
        ]
    except MessageError:
        return None


def load_json(data: bytes, shape: Shape | None = None) -> Any:
    """The value of JSON, with its numbers as texts, and values of the type json, as `shape` finds them, as `JsonText`.
    JSON null remains None. MessageError"""
    try:
        text = data.decode()
        if shape is None:
            return _DECODER.decode(text)
        value, end = _scanned(text, _after_space(text, 0), shape)
        if (end := _after_space(text, end)) != len(text):
            raise ValueError(f"extra data at character {end}")
        return value
    except (ValueError, RecursionError) as error:
        raise MessageError(f"invalid JSON: {error}") from None


def _scanned(text: str, at: int, shape: Shape) -> tuple[Any, int]:
    """The value that begins at `at`, and its end. ValueError, RecursionError"""
    if shape.is_json:
        value, end = _scanned_value(text, at)
        wrapped = _unwrapped(value)
        return (None if value is None else JsonText(text[at:end] if wrapped is None else wrapped)), end
    if shape.items is not None and text[at : at + 1] == "[":
        items: list[Any] = []
        at = _after_space(text, at + 1)
        while text[at : at + 1] != "]" or items:
            value, at = _scanned(text, at, shape.items)
            items.append(value)
            at, is_last = _separated(text, at, "]")
            if is_last:
                return items, at
        return items, at + 1
    if shape.members and text[at : at + 1] == "{":
        members: dict[str, Any] = {}
        at = _after_space(text, at + 1)
        while text[at : at + 1] != "}" or members:
            name, at = _scanned_value(text, at)
            if not isinstance(name, str) or isinstance(name, _Number):
                raise ValueError(f"no name of a member at character {at}")
            at = _after_space(text, at)
            if text[at : at + 1] != ":":
                raise ValueError(f"no colon at character {at}")
            at = _after_space(text, at + 1)
            inner = shape.members.get(name)
            members[name], at = _scanned_value(text, at) if inner is None else _scanned(text, at, inner)
            at, is_last = _separated(text, at, "}")
            if is_last:
                return members, at
        return members, at + 1
    return _scanned_value(text, at)


def _scanned_value(text: str, at: int) -> tuple[Any, int]:
    """ValueError, RecursionError"""
    return _DECODER.raw_decode(text, at)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _separated(text: str, at: int, close: str) -> tuple[int, bool]:
    """The place after the comma, and the spaces around it, or after `close`; and whether it was `close`. ValueError"""
    at = _after_space(text, at)
    found = text[at : at + 1]
    if found not in (",", close) or not found:
        raise ValueError(f'no comma or "{close}" at character {at}')
    return (at + 1, True) if found == close else (_after_space(text, at + 1), False)


def _loaded(data: bytes | None, shape: Shape | None) -> Progress | list[Any]:
    """MessageError"""
    if data is None:
        raise MessageError("message is NULL")
    message = load_json(data, shape)
    if not isinstance(message, dict) or len(message) != 1:
        raise MessageError(f'message is not an object with the field "{UPDATES}" or "{PROGRESS}"')
    ((name, value),) = message.items()
    if name == UPDATES and isinstance(value, list):
        return value
    if name == PROGRESS and isinstance(value, dict):
        return Progress.of(_times(value, "lower"), _times(value, "upper"), _counts(value))
    raise MessageError(f'message is not an object with the field "{UPDATES}" or "{PROGRESS}"')


def _times(value: dict[str, Any], name: str) -> list[int]:
    found = value.get(name)
    if not isinstance(found, list):
        raise MessageError(f"{name} of progress is not an array")
    return [_integer(time, f"{name} of progress", -TIME_MAX - 1) for time in found]


def _counts(value: dict[str, Any]) -> list[tuple[int, int]]:
    found = value.get("counts")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise MessageError("counts of progress is not an array of objects")
    least = -TIME_MAX - 1
    return [
        (_integer(c.get("time"), "time of a count", least), _integer(c.get("count"), "count", least)) for c in found
    ]


def _integer(value: Any, name: str, least: int) -> int:
    if isinstance(value, _Number) and len(value) <= 20 and value.lstrip("-").isdigit():
        number = int(value)
        if least <= number <= TIME_MAX:
            return number
    raise MessageError(f"{name} is not an integer between {least} and {TIME_MAX}")


def _scalar_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        if value is not None and "\0" in value:
            raise MessageError("string with the character 0")
        return None if value is None else str(value)
    if isinstance(value, bool):
        return "t" if value else "f"
    raise MessageError("array or object as the value of a column that is not jsonb")


def _json_text(value: Any) -> str | None:
    if value is None or isinstance(value, JsonText):
        return value
    text = _unwrapped(value)
    return printed_jsonb(_decimals(value)) if text is None else text


def _unwrapped(value: Any) -> str | None:
    """The text that an object with the member `TEXT` contains; None for other values."""
    if not isinstance(value, dict) or value.keys() != {TEXT}:
        return None
    text = value[TEXT]
    return text if isinstance(text, str) and not isinstance(text, _Number) else None


def _decimals(value: Any) -> Any:
    if isinstance(value, _Number):
        return loaded_jsonb(value)
    if isinstance(value, list):
        return [_decimals(item) for item in value]
    return {key: _decimals(item) for key, item in value.items()} if isinstance(value, dict) else value


class JsonEncoder:
    """Encodes messages whose data has these columns. Lines have no newline at the end."""

    def __init__(self, columns: Sequence[EncodedColumn]) -> None:
        self._columns = tuple(columns)

    def updates(self, updates: pa.Table) -> Iterator[bytes]:
        """Messages as `message_bounds` cuts them. Together they must have less than 2 GiB."""
        if not updates.num_rows:
            return
        items = [pa.scalar('{"data":'), json_objects(self._columns, updates), pa.scalar(',"time":')]
        items += [updates[TIME].combine_chunks().cast(pa.string()), pa.scalar(',"diff":')]
        items += [updates[DIFF].combine_chunks().cast(pa.string()), pa.scalar("},")]
        offsets, values = string_parts(joined(*items))
        places, data = offsets.tolist(), values.data
        for start, stop in message_bounds(offsets):
            yield b"".join([b'{"array":[', data[places[start] : places[stop] - 1], b"]}"])

    def progress(self, statement: Progress) -> bytes:
        """The message of a statement."""
        pairs = zip(statement.times.tolist(), statement.counts.tolist(), strict=True)
        value = {
            "lower": [] if statement.lower == END else [statement.lower],
            "upper": [] if statement.upper == END else [statement.upper],
            "counts": [{"time": time, "count": count} for time, count in pairs],
        }
        return json.dumps({PROGRESS: value}, separators=(",", ":")).encode()


def json_objects(columns: Sequence[EncodedColumn], rows: pa.Table) -> pa.Array:
    """The rows as texts of JSON objects. The columns are the first ones of `rows`, which has at least one row."""
    items: list[Any] = []
    text = "{"
    for position, column in enumerate(columns):
        items += [pa.scalar(f"{text}{quoted_json(column.name)}:"), json_values(column, rows[position].combine_chunks())]
        text = ","
    return joined(*items, pa.scalar("}")) if items else pa.repeat(pa.scalar("{}"), rows.num_rows)


def json_values(column: EncodedColumn, values: pa.Array) -> pa.Array:
    """The values of a column as texts of JSON. NULL is `null`."""
    values = plain_column(values, column.type)
    if values.null_count == len(values):
        return pa.repeat(pa.scalar("null"), len(values))
    if column.type.name == "bool":
        text = values.cast(pa.string())
    else:
        text = text_column(column.type, DEFAULT_STYLE)(values)
        if column.type.name in ("float4", "float8"):
            infinite = pc.match_substring_regex(text, _INFINITE)
            text = pc.if_else(infinite, joined(pa.scalar('"'), text, pa.scalar('"')), text)
        elif column.type.name in ("json", "jsonb"):
            text = _wrapped(text)
        elif column.type.name not in _BARE:
            odd = np.asarray(pc.match_substring_regex(text, _CONTROL).fill_null(False))
            plain = joined(pa.scalar('"'), _ESCAPES(text), pa.scalar('"'))
            text = patched(text, plain, odd, lambda rows: [quoted_json(text[row].as_py()) for row in rows.tolist()])
    return text.fill_null("null") if text.null_count else text


def _wrapped(text: pa.Array) -> pa.Array:
    """Texts of json or jsonb, of which those that would be read as something else are the member of an object."""
    odd = np.asarray(pc.match_substring_regex(text, _WRAPPED).fill_null(False)).copy()
    for row in np.flatnonzero(np.asarray(pc.match_substring_regex(text, _MAYBE_WRAPPER).fill_null(False))).tolist():
        odd[row] |= _is_wrapper(text[row].as_py())
    return patched(text, text, odd, lambda rows: [_wrapper(text[row].as_py()) for row in rows.tolist()])


def _is_wrapper(text: str) -> bool:
    try:
        return _unwrapped(json.loads(text)) is not None
    except RecursionError:
        return False


def _wrapper(text: str) -> str:
    return f"{{{quoted_json(TEXT)}:{quoted_json(text)}}}"
