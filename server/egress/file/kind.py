"""The kind of sink `file`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from catalog.source_definition import Envelope
from protocol.pgwire.errors import PgError, SqlState
from server.egress.downstream import Written
from server.egress.file.output import FileOutput
from server.egress.history import History
from server.egress.sink_kind import SinkDefinition
from server.spark import Runner


class FileSink:
    """CREATE SINK ... INTO FILE 'path' FORMAT JSON ENVELOPE MATERIALIZE."""

    async def check(self, definition: SinkDefinition) -> None:
        _check_format(definition)
        await asyncio.to_thread(_check_new, definition.options["path"])

    def downstream(
        self, definition: SinkDefinition, written: Written, runner: Runner, scratch: Path | None = None
    ) -> History:
        return History(FileOutput(definition), written, continues=definition.continues, scratch=scratch)

    async def dropped(self, definition: SinkDefinition) -> None:
        """The file remains."""


def _check_format(definition: SinkDefinition) -> None:
    format = definition.format
    if format is None or format.value is None or format.value.name != "json" or format.key or format.include:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "a sink into a file requires FORMAT JSON")
    if format.envelope is not Envelope.MATERIALIZE:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"ENVELOPE {format.envelope.upper()} of a sink into a file is not supported",
            hint="Use ENVELOPE MATERIALIZE.",
        )
    if definition.key:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "KEY of a sink into a file is not supported")


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
