"""A file as the task of a sink writes it: messages of CDCv2."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.objects import Timestamp
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.json_form import JsonEncoder
from protocol.cdcv2.messages import MESSAGE_UPDATES, TIME_FIELD
from protocol.cdcv2.writer import Writer
from protocol.pgwire.types import parse_type
from server.egress.downstream import Written
from server.egress.file.changes_file import ChangesFile
from server.egress.sink_kind import SinkDefinition

WRITE_ROWS = 50_000  # updates that are encoded at a time


class Changes:
    """Appends changes to a file. What was written after the committed frontier is repeated, which readers ignore."""

    keeps_frontier = False

    def __init__(self, definition: SinkDefinition, written: Written) -> None:
        self._encoder = JsonEncoder([EncodedColumn(c.name, parse_type(c.type), c.nullable) for c in definition.columns])
        self._file = ChangesFile(Path(definition.options["path"]))
        self._writer = Writer()
        self._written = written

    async def open(self, committed: Timestamp | None) -> Timestamp | None:
        await asyncio.to_thread(self._file.open, is_new=committed is None)
        self._writer = Writer(committed or 0)
        return committed

    async def begin(self, rows: pa.Table | None, as_of: Timestamp) -> None:
        if rows is not None:
            changes = await asyncio.to_thread(updates.consolidate, updates.as_changes(rows))
            for start in range(0, changes.num_rows, WRITE_ROWS):
                part = changes.slice(start, WRITE_ROWS)
                times = pa.array(np.full(part.num_rows, as_of, np.int64))
                await self._append(part.add_column(part.num_columns - 1, TIME_FIELD, times))
        await self._advance(as_of + 1)

    async def write(self, changes: pa.Table, upper: Timestamp) -> None:
        for start in range(0, changes.num_rows, WRITE_ROWS):
            await self._append(changes.slice(start, WRITE_ROWS))
        await self._advance(upper)

    async def close(self) -> None:
        await asyncio.to_thread(self._file.close)

    async def _append(self, part: pa.Table) -> None:
        self._writer.add(part)
        self._written.messages += -(-part.num_rows // MESSAGE_UPDATES)
        self._written.updates += part.num_rows
        self._written.bytes += await asyncio.to_thread(self._file.append, self._encoder.updates(part))

    async def _advance(self, upper: int) -> None:
        """Writes the statement for the times before `upper`. Returns when it is on disk."""
        statement = self._writer.advance(upper)
        if statement is not None:
            self._written.bytes += await asyncio.to_thread(self._file.append, [self._encoder.progress(statement)])
            self._written.messages += 1
            await asyncio.to_thread(self._file.sync)
