"""HEADERS of a sink: a column of type jsonb contains the headers of each message."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.egress.sink_kind import SinkDefinition
from server.ingest.kafka.messages import Headers

OPTION = "headers"


def position(definition: SinkDefinition) -> int | None:
    """The position of the column of HEADERS; None without HEADERS. PgError if there is no such column of type jsonb."""
    name = definition.options.get(OPTION)
    if name is None:
        return None
    for number, column in enumerate(definition.columns):
        if column.name == name:
            if parse_type(column.type).name != "jsonb":
                message = f'column "{name}" of HEADERS must be type jsonb, not type {parse_type(column.type).display}'
                raise PgError(SqlState.DATATYPE_MISMATCH, message)
            return number
    raise PgError(SqlState.UNDEFINED_COLUMN, f'column "{name}" named in HEADERS does not exist')


def headers_of(column: pa.ChunkedArray) -> list[Headers]:
    """The headers of each message. NULL is none. PgError if a value is not an object of strings and nulls.

    Equal values are converted once.
    """
    encoded = column.combine_chunks().dictionary_encode()
    found: Sequence[Headers] = [_headers(text) for text in encoded.dictionary.to_pylist()]
    return [() if number is None else found[number] for number in encoded.indices.to_pylist()]


def _headers(text: str) -> Headers:
    value = json.loads(text)
    if not isinstance(value, dict) or not all(v is None or isinstance(v, str) for v in value.values()):
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f"invalid headers of a message: {text[:100]}",
            detail="Headers are a JSON object whose values are strings or null.",
        )
    return tuple((name, None if v is None else v.encode()) for name, v in value.items())
