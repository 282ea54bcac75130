"""The changes of one table in the transactions that are committed next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from catalog import updates
from catalog.batches import Payload
from catalog.ids import ObjectId
from protocol.pgoutput.messages import Relation
from protocol.pgoutput.rows import Positions
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.coordinator import Coordinator
from server.coordinator.payloads import merged
from server.ingest.keyed_rows import KeyedRows
from server.ingest.postgres.merge import UnknownRow, changes_of_keys, changes_of_rows, keys_of, needs_old_rows
from server.ingest.postgres.typed_rows import Layout, typed
from server.runtime.threads import THREAD_ROWS

THREAD_BYTES = 1 << 20  # messages with more bytes are divided or decoded in a thread


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages that change rows of one relation: `data[start:end]` each."""

    relation: Relation
    data: bytes
    starts: Positions
    ends: Positions


class TableWriter:
    """Turns messages into changes of a collection, piece by piece. Pieces beyond the memory are written to files."""

    def __init__(self, coordinator: Coordinator, id: ObjectId, layout: Layout) -> None:
        self.id = id
        self.layout = layout
        self._coordinator = coordinator
        self._rows: KeyedRows | None = None
        self._pieces: list[pa.Table | Payload] = []

    async def change(self, messages: Messages) -> None:
        """Adds the changes of the messages. PgError if they cannot be applied to the collection, or BadMessage."""
        size = int((messages.ends - messages.starts).sum())
        threaded = len(messages.starts) > THREAD_ROWS or size > THREAD_BYTES
        arguments = (self.layout, messages.relation, messages.data, messages.starts, messages.ends)
        rows = await asyncio.to_thread(typed, *arguments) if threaded else typed(*arguments)
        with self._finding():
            if not needs_old_rows(rows):
                piece = await asyncio.to_thread(changes_of_rows, rows) if threaded else changes_of_rows(rows)
            else:
                known = await self._keyed(messages.relation)
                found = await known.find(keys_of(rows, known.key))
                arguments_ = (rows, known.key, found)
                piece = (
                    await asyncio.to_thread(changes_of_keys, *arguments_) if threaded else changes_of_keys(*arguments_)
                )
        if piece.num_rows:
            self._pieces.append(piece)

    async def truncate(self) -> None:
        """Adds the changes of TRUNCATE."""
        self.abandon()
        rows = await self._coordinator.reads.rows(self.id, self._coordinator.latest_time())
        if rows.num_rows:
            self._pieces.append(updates.with_diff(rows, -1))

    async def _keyed(self, relation: Relation) -> KeyedRows:
        """The rows by the key of the relation, with the changes of all pieces."""
        key = self.layout.key_of(relation)
        if not key:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'table "{self.layout.reference}": the collection does not have the columns of the replica identity',
                hint="Remove them from EXCLUDE COLUMNS, or ALTER TABLE ... REPLICA IDENTITY FULL, and create it again.",
            )
        if self._rows is not None and self._rows.key != tuple(self.layout.schema.names[position] for position in key):
            self._rows.close()
            self._rows = None
        if self._rows is None:
            self._rows = KeyedRows(self._coordinator, self.id, self.layout.schema, key)
        for piece in self._pieces[self._rows.added :]:
            await self._rows.add(piece.table if isinstance(piece, Payload) else piece)
        return self._rows

    @contextmanager
    def _finding(self) -> Iterator[None]:
        try:
            yield
        except UnknownRow:
            raise PgError(
                SqlState.DATA_CORRUPTED,
                f'table "{self.layout.reference}": a row was changed that the collection does not have',
                hint="Drop the collection and create it again.",
            ) from None

    @property
    def bytes(self) -> int:
        """The size of the pieces in memory."""
        return sum(piece.nbytes for piece in self._pieces if isinstance(piece, pa.Table))

    async def spill(self) -> None:
        """Writes the pieces in memory to files."""
        for number, piece in enumerate(self._pieces):
            if isinstance(piece, pa.Table):
                # Only one task changes the list, and it waits here.
                self._pieces[number] = await asyncio.to_thread(self._coordinator.log.prepare, merged([piece]))

    def take(self) -> tuple[list[pa.Table], list[Payload]]:
        """The changes to commit, in memory and in files. They are then the caller's; `committed` follows."""
        pieces, self._pieces = self._pieces, []
        if self._rows is not None and pieces:
            self._rows.keep()
        return [piece for piece in pieces if isinstance(piece, pa.Table)], [
            piece for piece in pieces if isinstance(piece, Payload)
        ]

    async def committed(self) -> None:
        """Called when the changes that `take` returned are committed."""
        if self._rows is not None:
            await self._rows.committed()

    def abandon(self) -> None:
        """Forgets the changes that are not committed."""
        for piece in self._pieces:
            if isinstance(piece, Payload):
                self._coordinator.log.discard(piece)
        self._pieces = []
        if self._rows is not None:
            self._rows.clear()

    def close(self) -> None:
        """May be called twice."""
        self.abandon()
        if self._rows is not None:
            self._rows.close()
            self._rows = None
