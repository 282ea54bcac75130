"""ENVELOPE UPSERT and DEBEZIUM into a file: lines of JSON, and after the changes of one or more times their frontier.

    lines before the last frontier = changes at times before it

What follows the last line with a frontier is not valid yet. It is removed when the sink continues, and written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from catalog.ids import Timestamp
from server.egress.downstream import Written
from server.egress.file.appended_file import AppendedFile
from server.egress.net_changes import Pairs
from server.egress.row_changes import RowChanges
from server.egress.row_messages import Encoder, JsonForm
from server.egress.sink_kind import SinkDefinition
from server.ingest.files.frontier_lines import last_frontier
from server.runtime.threads import thread_to_the_end

WRITE_BYTES = 1 << 20

_JOIN = pc.JoinOptions("emit_null", "")


class RowsFile:
    """A `Downstream` that appends the changes of a collection's rows to a file, each once."""

    keeps_frontier = True
    target: str | None = None

    def __init__(self, definition: SinkDefinition, written: Written, scratch: Path | None = None) -> None:
        """`scratch`: the directory for large rows."""
        assert definition.format is not None
        self._path = Path(definition.options["path"])
        columns = definition.encoded_columns
        key = definition.key_positions
        key_form = None if key is None else JsonForm([columns[position] for position in key])
        self._encoder = Encoder(definition.format.envelope, key, key_form, JsonForm(columns))
        self._changes = RowChanges(definition, written, self._append, scratch)
        self._written = written
        self._frontier = Timestamp(0)
        self._file: AppendedFile | None = None

    async def open(self, committed: Timestamp | None, target: str | None = None) -> Timestamp | None:
        frontier = await thread_to_the_end(self._open, committed)
        self._frontier = frontier or Timestamp(0)
        return frontier

    async def begin(self, rows: pa.Table | None, as_of: Timestamp) -> None:
        if rows is not None:
            await self._changes.snapshot(rows, as_of)
        await self._close_times(Timestamp(as_of + 1))

    async def write(self, changes: pa.Table, upper: Timestamp) -> None:
        if upper > self._frontier:
            if changes.num_rows:
                await self._changes.send(changes)
            await self._close_times(upper)

    async def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            await asyncio.to_thread(file.close)

    def _open(self, committed: Timestamp | None) -> Timestamp | None:
        """Opens the file after its last frontier, and returns this frontier."""
        self._file = file = AppendedFile(self._path, is_new=committed is None)
        end, frontier = last_frontier(file.number)
        if (frontier or 0) < (committed or 0):
            raise file.refused(f"has the frontier {frontier}, but the sink has written up to {committed}")
        file.cut(end)
        return frontier

    async def _append(self, rows: pa.Table, pairs: Pairs) -> None:
        def appended() -> tuple[int, int]:
            keys, values = self._encoder.keys(rows, pairs), self._encoder.values(rows, pairs).fill_null(b"null")
            lines = _joined(b'{"value":', values, b"}\n")
            if keys is not None:
                lines = _joined(b'{"key":', keys, b',"value":', values, b"}\n")
            return len(lines), self._write(lines.to_pylist())

        count, size = await thread_to_the_end(appended)  # before `close` can close the file
        self._written.messages += count
        self._written.bytes += size

    async def _close_times(self, frontier: Timestamp) -> None:
        """Writes the frontier. Returns when it is on disk."""

        def closed() -> int:
            assert self._file is not None
            self._file.sync()  # a frontier must not be on disk before the changes that it closes
            size = self._file.append(b'{"frontier":[%d]}\n' % frontier)
            self._file.sync()
            return size

        self._written.bytes += await thread_to_the_end(closed)
        self._frontier = frontier

    def _write(self, lines: Sequence[bytes]) -> int:
        """Appends lines, and returns their size."""
        assert self._file is not None
        size, waiting = 0, bytearray()
        for number, line in enumerate(lines, 1):
            waiting += line
            if len(waiting) >= WRITE_BYTES or number == len(lines):
                size += self._file.append(waiting)
                waiting = bytearray()
        return size


def _joined(*parts: pa.BinaryArray | bytes) -> pa.BinaryArray:
    """The row-wise concatenation."""
    items = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.call_function("binary_join_element_wise", [*items, pa.scalar(b"", pa.binary())], _JOIN)
