"""The kind of sink `file`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from catalog.source_definition import Envelope
from protocol.pgwire.errors import PgError, SqlState
from server.egress.downstream import Downstream, Written
from server.egress.file.output import FileOutput, avro_schema, is_avro
from server.egress.file.rows_file import RowsFile
from server.egress.history import History
from server.egress.sink_kind import SinkDefinition
from server.spark import Runner

_ENVELOPES = (Envelope.UPSERT, Envelope.DEBEZIUM, Envelope.MATERIALIZE)


class FileSink:
    """CREATE SINK ... INTO FILE 'path' [KEY (...)] FORMAT { AVRO | JSON } ENVELOPE ..."""

    async def check(self, definition: SinkDefinition) -> None:
        _check_format(definition)
        await asyncio.to_thread(_check_new, definition.options["path"])

    def downstream(
        self, definition: SinkDefinition, written: Written, runner: Runner, scratch: Path | None = None
    ) -> Downstream:
        assert definition.format is not None
        if definition.format.envelope is not Envelope.MATERIALIZE:
            return RowsFile(definition, written, scratch)
        return History(FileOutput(definition), written, continues=definition.continues, scratch=scratch)

    async def dropped(self, definition: SinkDefinition) -> None:
        """The file remains."""


def _check_format(definition: SinkDefinition) -> None:
    format = definition.format
    encoding = format.value if format is not None else None
    if encoding is None or format is None or encoding.name not in ("avro", "json") or format.key or format.include:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "a sink into a file requires FORMAT AVRO or JSON")
    if encoding.registry is not None or encoding.schema is not None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "USING of a sink into a file is not supported",
            hint="Write FORMAT AVRO: the file contains its schema.",
        )
    if format.envelope not in _ENVELOPES:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"ENVELOPE {format.envelope.upper()} of a sink into a file is not supported",
            hint="Use ENVELOPE UPSERT, DEBEZIUM or MATERIALIZE.",
        )
    if format.envelope is not Envelope.MATERIALIZE:
        if encoding.name == "avro":
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"FORMAT AVRO of a sink into a file with ENVELOPE {format.envelope.upper()} is not supported",
                detail="The file contains frontiers between changes, and the values of an Avro file have one schema.",
                hint="Use FORMAT JSON, or ENVELOPE MATERIALIZE.",
            )
        if format.envelope is Envelope.UPSERT and not definition.key:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "ENVELOPE UPSERT of a sink requires a KEY",
                hint="Add KEY (column, ...) after the path of the file.",
            )
    elif definition.key:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED, "KEY of a sink into a file with ENVELOPE MATERIALIZE is not supported"
        )
    if is_avro(definition):
        avro_schema(definition)


def _check_new(path: str) -> None:
    """PgError if a sink cannot create this file."""
    if not path.startswith("/"):
        raise PgError(SqlState.INVALID_NAME, "relative path not allowed for a sink into a file")
    if os.path.exists(path):
        raise PgError(SqlState.DUPLICATE_OBJECT, f'file "{path}" already exists')
    if not os.access(os.path.dirname(path), os.W_OK):
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE, f'could not create file "{path}": its directory is not writable'
        )
