"""FROM FILE ... ENVELOPE UPSERT and DEBEZIUM: files with changes of rows, as sinks write them.

Each change is in the valid lines of a file once, so that the position in each file says which changes were committed.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.source_definition import Envelope
from catalog.source_state import State
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.messages import MessageError
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.ingest.decoder_pool import holds_lock
from server.ingest.files.frontier_lines import frontiers_of
from server.ingest.files.row_lines import (
    Found,
    ImageDecoder,
    KeyDecoder,
    LineDecoder,
    UpsertDecoder,
    Upserts,
    first_change,
)
from server.ingest.key_join import KeyJoin, key_numbers
from server.ingest.keyed_rows import KeyedRows, Numbers, last_of_each
from server.ingest.source_definition import Target
from server.ingest.source_kind import SourceContext
from server.ingest.upstream import Changes, Upstream

_POSITION = "file:"  # prefix of the keys of positions in the source's state
_FRONTIER = "frontier:"  # prefix of the keys of the last frontiers in the source's state
_KEY = "key"  # the names of the key's columns


class RowsOfFiles:
    """An `Upstream` over one that reads lines as binary rows."""

    def __init__(self, lines: Upstream, envelope: Envelope, target: Target, context: SourceContext) -> None:
        self._lines = lines
        self._is_upsert = envelope is Envelope.UPSERT
        self._target = target
        self._context = context
        columns = [EncodedColumn(c.name, parse_type(c.type), c.nullable) for c in target.output.columns]
        self._schema = updates.rows_schema([column.type.arrow for column in columns])
        self._columns = columns
        self._read: dict[str, int] = {}
        self._frontiers: dict[str, int] = {}  # by file, the last one that was read
        self._key: tuple[str, ...] | None = None
        self._output: KeyJoin | None = None

    async def open(self, state: State) -> None:
        stored = {key.removeprefix(_POSITION): value for key, value in state.items() if key.startswith(_POSITION)}
        self._read = {path: int(value) for path, value in stored.items() if value is not None}
        frontiers = {key.removeprefix(_FRONTIER): value for key, value in state.items() if key.startswith(_FRONTIER)}
        self._frontiers = {path: int(value) for path, value in frontiers.items() if value is not None}
        key = state.get(_KEY)
        self._key = None if key is None else tuple(json.loads(key))
        await self._lines.open(stored)

    async def read(self, bytes_max: int) -> Changes:
        found = await self._lines.read(bytes_max)
        (path, position), *_ = found.state.items()
        first = self._read.get(path, 0)
        assert position is not None
        self._read[path] = int(position)
        state: dict[str, bytes | None] = {f"{_POSITION}{path}": position}
        tables = found.writes.get(self._target.id, [])
        lines = pa.concat_arrays([pa.array([], pa.binary()), *(part for t in tables for part in t.column(0).chunks)])
        frontier = await asyncio.to_thread(self._checked_frontier, lines, path, first)
        if frontier is not None:
            self._frontiers[path] = frontier
            state[f"{_FRONTIER}{path}"] = b"%d" % frontier
        try:
            changes = await (self._upserts(lines, state) if self._is_upsert else self._images(lines))
        except MessageError as error:
            raise PgError(
                SqlState.BAD_COPY_FILE_FORMAT,
                f'invalid change in file "{path}" after byte {first}',
                detail=f"{str(error)[:1].upper()}{str(error)[1:]}.",
            ) from None
        return Changes({self._target.id: [changes]} if changes.num_rows else {}, state)

    def _checked_frontier(self, lines: pa.BinaryArray, path: str, position: int) -> int | None:
        """The last frontier in lines of a file, from `position` on. PgError if one is before its predecessor.

        The changes before such a frontier are not those that follow the earlier ones: the file has two histories.
        """
        rows, frontiers = frontiers_of(lines)
        before = np.append(np.uint64(self._frontiers.get(path, 0)), frontiers)[:-1]
        if len(failed := np.flatnonzero(frontiers < before)):
            at = failed[0]
            raise PgError(
                SqlState.BAD_COPY_FILE_FORMAT,
                f'frontier goes backwards in file "{path}" after byte {position}',
                detail=f"Line {rows[at] + 1} after it has the frontier {frontiers[at]}, which is before {before[at]}.",
                hint="A file has the changes that one sink has written. Write those of another one to another file.",
            )
        return int(frontiers[-1]) if len(frontiers) else None

    async def _images(self, lines: pa.BinaryArray) -> pa.Table:
        """`Δ = after - before`"""
        found = await self._decoded(ImageDecoder(self._columns), lines)

        def changed() -> pa.Table:
            old, new = (table.cast(self._schema) for table in (found.before, found.after))
            return updates.consolidate(pa.concat_tables([updates.with_diff(old, -1), updates.with_diff(new, 1)]))

        return await asyncio.to_thread(changed)

    async def _upserts(self, lines: pa.BinaryArray, state: dict[str, bytes | None]) -> pa.Table:
        """`Δ = last rows of the keys - committed rows of the keys`"""
        if self._key is None:
            first = first_change(lines)
            if first is None:
                return updates.with_diff(self._schema.empty_table(), 1)
            self._key = (await self._decoded(KeyDecoder(self._columns), lines.slice(first, 1))).names
            state[_KEY] = json.dumps(self._key).encode()
        found = await self._decoded(UpsertDecoder(self._columns, self._key), lines)
        last = await asyncio.to_thread(_last, found)
        if self._output is None:
            names = [column.name for column in self._target.output.columns]
            positions = tuple(names.index(name) for name in self._key)
            rows = KeyedRows(self._context.coordinator, self._target.id, self._schema, positions)
            self._output = KeyJoin(rows, self._context.engine)
        old, _ = await self._output.find(last.keys)
        self._output.rows.keep()
        new = last.rows.cast(self._schema)
        return await asyncio.to_thread(
            updates.consolidate,
            pa.concat_tables([updates.with_diff(old.cast(self._schema), -1), updates.with_diff(new, 1)]),
        )

    async def _decoded(self, decoder: LineDecoder[Found], lines: pa.BinaryArray) -> Found:
        """MessageError if a line is invalid."""
        in_worker = holds_lock(decoder, lines)
        found = await self._context.decoders.decode(decoder, lines, holds_lock=in_worker)
        if len(failed := np.flatnonzero(found.failed)):
            row = int(failed[0])
            raise MessageError(f"line {row + 1} after it: {found.reason(row)}")
        return found

    async def committed(self, state: State) -> None:
        if self._output is not None:
            await self._output.rows.committed()

    async def close(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            output.rows.close()
        await self._lines.close()


def _last(found: Upserts) -> Upserts:
    """The last line of each key."""
    ends: Numbers = last_of_each(key_numbers(found.keys)) if len(found.has_row) else np.empty(0, np.int64)
    rows = np.cumsum(found.has_row) - 1
    has_row = found.has_row[ends]
    return replace(
        found,
        keys=found.keys.take(pa.array(ends)),
        has_row=has_row,
        rows=found.rows.take(pa.array(rows[ends[has_row]], pa.int64())),
    )
