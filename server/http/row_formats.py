"""The forms in which the HTTP API receives rows from its session: payloads of CopyData messages.

The session writes messages of PostgreSQL's protocol, as for other clients. Only the rows differ: instead of a DataRow
for each row there is a CopyData for each chunk of rows, encoded once for all subscribers of the same change.

- `JSON_ROWS`: rows in JSON, joined by commas.
- `JSON_UPDATES`, for SUBSCRIBE with PROGRESS: `r` and rows in JSON without mz_progressed, or `p` and a progress.
- `ARROW_ROWS`: a schema and a record batch, as encapsulated messages of Arrow's IPC format (`schema_and_batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from protocol.pgwire.encode import OutputStyle
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.json_rows import JsonEncoder
from protocol.pgwire.text_columns import plain_column
from protocol.pgwire.types import PgType
from server.session_state.row_format import RowEncoding
from server.sql.grammar import statements as s
from server.sql.plan import Field

ROWS, PROGRESS = ord("r"), ord("p")

_TIME, _PROGRESSED, _DIFF = 0, 1, 2


class _RowsOfStatements:
    """Rows of any statement but SUBSCRIBE and COPY."""

    is_wire = False

    def check(self, statement: s.Statement) -> None:
        if isinstance(statement, s.CopyTo | s.CopyFrom):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "COPY is not supported over HTTP",
                hint="Use INSERT and SELECT, or COPY over a connection of PostgreSQL's protocol.",
            )
        if isinstance(statement, s.Subscribe):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "SUBSCRIBE is not supported in POST /api/sql",
                hint="Use GET /api/subscribe, or a cursor: DECLARE c CURSOR FOR SUBSCRIBE ...; FETCH ALL c.",
            )


class JsonRows(_RowsOfStatements):
    def encoding(self, fields: Sequence[Field], formats: Sequence[int], style: OutputStyle) -> RowEncoding:
        encoder = JsonEncoder([field.type for field in fields], style)
        return RowEncoding(("json", style), partial(_json_rows, encoder))


def _json_rows(encoder: JsonEncoder, table: pa.Table) -> bytes:
    return b"".join(copy_data(part) for batch in _batches(table) for part in encoder.encode(batch))


class ArrowRows(_RowsOfStatements):
    def encoding(self, fields: Sequence[Field], formats: Sequence[int], style: OutputStyle) -> RowEncoding:
        types = [field.type for field in fields]
        schema = arrow_schema([field.name for field in fields], types)
        return RowEncoding(("arrow",), partial(_arrow_rows, schema, types))


def _arrow_rows(schema: pa.Schema, types: Sequence[PgType], table: pa.Table) -> bytes:
    encoded = []
    for batch in _batches(table):
        arrays = [
            plain_column(column, type).cast(type.arrow) for column, type in zip(batch.columns, types, strict=True)
        ]
        if not arrays:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "rows without columns cannot be sent as Arrow",
                hint="Select at least one column.",
            )
        head = memoryview(schema.serialize())
        rows = memoryview(pa.record_batch(arrays, schema=schema).serialize())
        encoded.append(copy_data(len(head).to_bytes(4, "big"), head, rows))
    return b"".join(encoded)


def schema_and_batch(payload: memoryview) -> tuple[memoryview, memoryview]:
    """The two messages of a payload of `ARROW_ROWS`."""
    start = 4 + int.from_bytes(payload[:4], "big")
    return payload[4:start], payload[start:]


def arrow_schema(names: Sequence[str], types: Sequence[PgType]) -> pa.Schema:
    """The columns of a result. The metadata `pg_type` of each has PostgreSQL's name of the type."""
    fields = zip(names, types, strict=True)
    return pa.schema([pa.field(name, type.arrow, metadata={"pg_type": type.display}) for name, type in fields])


class JsonUpdates:
    """Rows of SUBSCRIBE with PROGRESS. mz_timestamp and mz_diff are numbers."""

    is_wire = False

    def check(self, statement: s.Statement) -> None:
        if not isinstance(statement, s.Subscribe):
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "only SUBSCRIBE is supported here", hint="Use POST /api/sql.")

    def encoding(self, fields: Sequence[Field], formats: Sequence[int], style: OutputStyle) -> RowEncoding:
        kept = [field for position, field in enumerate(fields) if position != _PROGRESSED]
        numbers = [_TIME, *([_DIFF - 1] if kept[_DIFF - 1].name == "mz_diff" else [])]
        encoder = JsonEncoder([field.type for field in kept], style, numbers)
        return RowEncoding(("json updates", style), partial(_json_updates, encoder))


def _json_updates(encoder: JsonEncoder, table: pa.Table) -> bytes:
    encoded: list[bytes] = []
    for batch in _batches(table):
        times, progressed = batch.column(_TIME), batch.column(_PROGRESSED)
        rows = pa.record_batch(
            [column for position, column in enumerate(batch.columns) if position != _PROGRESSED],
            [str(position) for position in range(batch.num_columns - 1)],
        )
        start = 0
        for at in np.flatnonzero(progressed.to_numpy(zero_copy_only=False)).tolist():
            encoded.extend(_updates(encoder, rows, start, at))
            encoded.append(copy_data(b"p%d" % times[at].as_py()))
            start = at + 1
        encoded.extend(_updates(encoder, rows, start, batch.num_rows))
    return b"".join(encoded)


def _updates(encoder: JsonEncoder, rows: pa.RecordBatch, start: int, end: int) -> list[bytes]:
    return [copy_data(b"r", part) for part in encoder.encode(rows.slice(start, end - start))] if end > start else []


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    return batches


def copy_data(*payload: bytes | memoryview) -> bytes:
    return b"".join((b"d", (sum(map(len, payload)) + 4).to_bytes(4, "big"), *payload))


JSON_ROWS, ARROW_ROWS, JSON_UPDATES = JsonRows(), ArrowRows(), JsonUpdates()
