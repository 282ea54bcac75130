"""The interface of a file to the task of a sink."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from catalog.ids import Timestamp
from protocol.cdcv2.avro_form import AvroEncoder, schema_text
from protocol.cdcv2.json_form import JsonEncoder
from protocol.pgwire.errors import PgError, SqlState
from server.egress.file.changes_file import ChangesFile, Container, Lines
from server.egress.history import Encoder
from server.egress.sink_kind import SinkDefinition
from server.runtime.threads import thread_to_the_end


class FileOutput:
    """A `MessageOutput`: each message is a line of JSON, or a value of an Avro container file."""

    target: str | None = None

    def __init__(self, definition: SinkDefinition) -> None:
        """PgError if a column name is not valid in Avro."""
        path, columns = Path(definition.options["path"]), definition.encoded_columns
        self._encoder: Encoder
        self._file: ChangesFile
        if is_avro(definition):
            self._encoder, self._file = AvroEncoder(columns), Container(path, avro_schema(definition))
        else:
            self._encoder, self._file = JsonEncoder(columns), Lines(path)

    async def open(self, committed: Timestamp | None, target: str | None = None) -> Encoder:
        await thread_to_the_end(self._open, committed)
        return self._encoder

    async def append(self, messages: Iterable[bytes]) -> tuple[int, int]:
        return await thread_to_the_end(self._file.append, messages)  # before `close` can close the file

    async def flush(self) -> None:
        await thread_to_the_end(self._file.sync)

    async def close(self) -> None:
        await asyncio.to_thread(self._file.close)

    def _open(self, committed: Timestamp | None) -> None:
        file = self._file
        file.open(is_new=committed is None)
        if (file.frontier or 0) < (committed or 0):
            raise file.refused(f"has the frontier {file.frontier}, but the sink has written up to {committed}")


def is_avro(definition: SinkDefinition) -> bool:
    """Whether the format is Avro."""
    format = definition.format
    return format is not None and format.value is not None and format.value.name == "avro"


def avro_schema(definition: SinkDefinition) -> str:
    """The schema of the messages. PgError if a column name is not valid in Avro."""
    try:
        return schema_text(definition.encoded_columns)
    except ValueError as error:
        raise PgError(
            SqlState.INVALID_NAME,
            str(error),
            hint="Use FORMAT JSON, or create the sink from a materialized view that renames the column.",
        ) from None
