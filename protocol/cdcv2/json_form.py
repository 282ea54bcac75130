"""Messages as JSON, one on each line, with the names of the Avro form:

    {"array": [{"data": {"name": value, ...}, "time": 5, "diff": 1}, ...]}
    {"com.materialize.cdc.progress": {"lower": [0], "upper": [10], "counts": [{"time": 5, "count": 1}]}}

Booleans, integers and finite floats are those of JSON, jsonb is any JSON, and other values are strings as PostgreSQL
prints them. Missing fields are NULL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from protocol.columnar.buffers import joined, patched, string_parts
from protocol.pgwire.decode import BadValue, parse_text_column
from protocol.pgwire.errors import PgError
from protocol.pgwire.json_values import loaded_jsonb, printed_jsonb, quoted_json
from protocol.pgwire.text_columns import DEFAULT_STYLE, Escapes, plain_column, text_column

UPDATES, PROGRESS = "array", "com.materialize.cdc.progress"
_BARE = ("int2", "int4", "int8", "json", "jsonb")  # printed as they are
_ESCAPES = Escapes(b'"\\\b\f\n\r\t', "\\", {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"})
_CONTROL = r"[\x00-\x07\x0b\x0e-\x1f]"  # without letters of their own
_INFINITE = r"^(NaN|-?Infinity)$"


class _Number(str):
    """The text of a number, to distinguish it from a string."""


class JsonDecoder:
    """Decodes messages whose data has these columns."""

    def __init__(self, columns: Sequence[EncodedColumn]) -> None:
        self._columns = tuple(columns)
        types = [pa.field(f"c{i}", column.type.arrow) for i, column in enumerate(columns)]
        self.schema = pa.schema([*types, TIME_FIELD, DIFF_FIELD])
        """Of the updates."""

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """NULL is an invalid message."""
        reasons: dict[int, str] = {}
        statements: list[Progress] = []
        parsed: list[tuple[int, list[Any]]] = []
        for row, data in enumerate(messages.to_pylist()):
            try:
                message = _loaded(data)
                if isinstance(message, Progress):
                    statements.append(message)
                else:
                    parsed.append((row, message))
            except MessageError as error:
                reasons[row] = str(error)
        updates = self._tables(parsed, reasons)
        failed = np.zeros(len(messages), np.bool_)
        failed[list(reasons)] = True
        return Decoded(updates, statements, failed, reasons.__getitem__)

    def _tables(self, parsed: Sequence[tuple[int, list[Any]]], reasons: dict[int, str]) -> pa.Table:
        """The updates of all messages. If a value is invalid, the messages are converted one by one."""
        try:
            return self._table([update for _, updates in parsed for update in updates])
        except (PgError, MessageError, pa.ArrowException, RecursionError) as error:
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
        columns = []
        for column in self._columns:
            convert = _json_text if column.type.name in ("json", "jsonb") else _scalar_text
            texts = pa.array([convert(row.get(column.name)) for row in data], pa.string())
            if texts.null_count and not column.nullable:
                raise MessageError(f'null value in column "{column.name}"')
            try:
                columns.append(parse_text_column(column.type, texts))
            except BadValue as wrong:
                raise wrong.error from None
        return pa.table([*columns, pa.array(times, pa.int64()), pa.array(diffs, pa.int64())], self.schema)


def _loaded(data: bytes | None) -> Progress | list[Any]:
    """MessageError"""
    if data is None:
        raise MessageError("message is NULL")
    try:
        message = json.loads(data.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"invalid JSON: {error}") from None
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
    return None if value is None else printed_jsonb(_decimals(value))


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
        elif column.type.name not in _BARE:
            odd = np.asarray(pc.match_substring_regex(text, _CONTROL).fill_null(False))
            plain = joined(pa.scalar('"'), _ESCAPES(text), pa.scalar('"'))
            text = patched(text, plain, odd, lambda rows: [quoted_json(text[row].as_py()) for row in rows.tolist()])
    return text.fill_null("null") if text.null_count else text
