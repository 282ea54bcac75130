"""A PostgreSQL database as the upstream of a source: a snapshot, then the stream of a logical replication slot.

The state of the source:

    lsn         all transactions that committed before it are in the collections
    system      the identifier of the database cluster
    timeline    the timeline of its WAL at `lsn`, a number
    table ID    JSON of `_Known`: the table of a collection whose snapshot is committed
    error ID    JSON: why a table is no longer read

All tables of a snapshot are committed together, at one timestamp, when everything that precedes the snapshot is
committed, too. Until then nothing of them is stored, so that a crash needs no clean-up: the snapshot starts again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa
import structlog

from catalog.batches import Payload
from catalog.ids import ObjectId
from catalog.source_state import State
from protocol.pgoutput import BadMessage
from protocol.pgoutput.messages import Relation, Truncate
from protocol.pgoutput.rows import relations_of
from protocol.pgoutput.stream import format_lsn, parse_lsn, timeline_end
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.postgres.connection import Server
from server.ingest.postgres.publication import (
    PublishedTable,
    column_numbers,
    find,
    incompatibility,
    published_tables,
    replacement,
)
from server.ingest.postgres.replication import Replication, identifier
from server.ingest.postgres.snapshot import TableCopy, copy_tables
from server.ingest.postgres.table_writer import THREAD_BYTES, Messages, TableWriter
from server.ingest.postgres.transactions import NEVER, Item, Stretch, Transactions
from server.ingest.postgres.typed_rows import RECREATE, Layout
from server.ingest.source_definition import Target
from server.ingest.source_kind import SourceContext
from server.ingest.upstream import Changes, UpstreamError
from server.runtime.threads import thread_to_the_end

STATUS_S = 10.0  # between two status updates; PostgreSQL's wal_sender_timeout is 60 s by default
SILENT_UPDATES = 30  # status updates without an answer, after which the connection is ended
ANSWER_S = 60.0  # for the queries and commands before the stream
IDLE_LSN_S = 10.0  # how often the position is committed while other tables of the server are written
LSN, SYSTEM, TIMELINE = "lsn", "system", "timeline"
RECREATE_SOURCE = "Drop the source and create it again."

_SLOT = """
SELECT confirmed_flush_lsn::text AS confirmed, to_jsonb(s) ->> 'wal_status' AS wal_status
FROM pg_replication_slots s WHERE slot_name = $1
"""
_WAL_END = "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_flush_lsn()::text END"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Known:
    """A table as it was at its snapshot.

    `columns`: the OID and the modifier of the type of each column of the collection. `numbers`: of the columns in the
    table; {} if an earlier version stored it.
    """

    oid: int
    columns: dict[str, tuple[int, int]]
    numbers: dict[str, int]

    def stored(self) -> bytes:
        return json.dumps({"oid": self.oid, "columns": self.columns, "numbers": self.numbers}).encode()

    @classmethod
    def restored(cls, stored: bytes) -> _Known:
        value = json.loads(stored)
        columns = {name: (type, mod) for name, (type, mod) in value["columns"].items()}
        return cls(value["oid"], columns, value.get("numbers", {}))


@dataclass(frozen=True, slots=True)
class _Table:
    """A table that is read. Several collections may have the same."""

    id: ObjectId
    known: _Known
    writer: TableWriter


class Postgres:
    """The upstream of a source. `slot` is its replication slot, which nothing else uses."""

    def __init__(
        self, server: Server, publication: str, slot: str, targets: Sequence[Target], context: SourceContext
    ) -> None:
        self._server, self._publication, self._slot = server, publication, slot
        self._layouts = {t.id: Layout(t.output.reference, t.output.columns) for t in targets}
        self._context = context
        self._reset(0)

    def _reset(self, lsn: int) -> None:
        """Forgets everything but the definition."""
        self._transactions, self._committed_lsn = Transactions(lsn), lsn
        self._tables: dict[int, list[_Table]] = {}  # by OID
        self._relations: dict[int, Relation] = {}
        self._missing: list[TableCopy] = []  # not copied yet
        self._staged: list[TableCopy] = []  # copied and not committed
        self._staged_lsn = NEVER
        self._due: dict[str, bytes | None] = {}  # state to be committed with the next changes
        self._is_new = False
        self._is_streaming = False
        self._position_at = 0.0
        self._replication: Replication | None = None
        self._status: asyncio.Task[None] | None = None

    # -- Upstream ---------------------------------------------------------------------------------------------------

    async def open(self, state: State) -> None:
        with self._following_the_protocol():
            await self._open(state)

    async def _open(self, state: State) -> None:
        stored = {key: value for key, value in state.items() if value is not None}
        self._reset(parse_lsn(stored[LSN].decode()) if LSN in stored else 0)
        self._is_new = LSN not in stored
        self._replication = await Replication.open(self._server)
        async with self._answering():
            published = await self._examine(stored)
        self._attach(stored, published)
        self._status = asyncio.create_task(self._report_status(self._replication))

    async def _examine(self, stored: Mapping[str, bytes]) -> list[PublishedTable]:
        """Checks that the server has what follows the state. Returns the tables of the publication."""
        assert self._replication is not None
        ((in_recovery,),) = await self._replication.query("SELECT pg_is_in_recovery()")
        if in_recovery != "f":  # its timeline could change while it is read
            raise UpstreamError(
                f"{self._server}: the server is in recovery",
                "A source reads from a primary. It goes on when the server is promoted or has recovered.",
            )
        ((system, timeline, *_),) = await self._replication.query("IDENTIFY_SYSTEM")
        self._due |= {SYSTEM: (system or "").encode(), TIMELINE: (timeline or "").encode()}
        if stored.get(SYSTEM, self._due[SYSTEM]) != self._due[SYSTEM]:
            raise self._lost("this is not the database cluster that the source was created with")
        if stored.get(TIMELINE, self._due[TIMELINE]) != self._due[TIMELINE]:
            await self._check_timeline(int(stored[TIMELINE]), int(timeline or 0))
        connection = await self._server.connect()
        try:
            if not self._is_new:
                await self._check_slot(connection)
            with self._unpublished():
                return await published_tables(connection, self._server, self._publication)
        finally:
            connection.terminate()

    async def read(self, bytes_max: int) -> Changes:
        with self._following_the_protocol():
            if not self._is_streaming:
                return await self._start()
            while True:
                if self._staged_lsn <= self._transactions.next_lsn():
                    return self._snapshot()
                with self._unpublished():
                    await self._receive(bytes_max)
                if self._transactions.bytes > THREAD_BYTES:
                    items = await thread_to_the_end(self._taken, bytes_max)
                else:
                    items = self._taken(bytes_max)
                await self._apply(items)
                if self._transactions.is_inside:
                    await self._spill(bytes_max)
                elif (changes := self._changes()) is not None:
                    return changes

    async def committed(self, state: State) -> None:
        for tables in self._tables.values():
            for table in tables:
                await table.writer.committed()
        if (lsn := state.get(LSN)) is not None:
            self._committed_lsn = parse_lsn(lsn.decode())
            self._context.statistics.offset_committed = self._committed_lsn
            if self._is_streaming:
                self._connected.confirm(self._committed_lsn)

    async def close(self) -> None:
        if self._status is not None:
            self._status.cancel()
            await asyncio.wait([self._status])
        for copy in self._staged:
            copy.abandon(self._context.coordinator.log)
        for tables in self._tables.values():
            for table in tables:
                table.writer.close()
        if self._replication is not None:
            self._replication.close()
        self._reset(0)

    @contextmanager
    def _following_the_protocol(self) -> Iterator[None]:
        """Reports messages that PostgreSQL does not send. Nothing of them is committed, so that a retry is safe."""
        try:
            yield
        except BadMessage as error:
            message = f"{self._server}: the replication stream does not follow PostgreSQL's protocol: {error}"
            raise UpstreamError(
                message, "Changes are read again from the last transaction that was committed."
            ) from None

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Limits the time of its body to ANSWER_S. BadMessage if it cannot unpack or convert an answer."""
        try:
            async with asyncio.timeout(ANSWER_S):
                yield
        except ValueError as error:
            raise BadMessage(f"the answer to a command is not usable: {error}") from None
        except TimeoutError:
            raise UpstreamError(f"{self._server} does not answer") from None

    # -- opening ----------------------------------------------------------------------------------------------------

    async def _check_slot(self, connection: Any) -> None:
        """PgError if the slot does not have all changes since the committed position."""
        lsn = self._transactions.lsn
        with self._server.understanding(), self._server.reporting():
            found = await connection.fetchrow(_SLOT, self._slot)
            confirmed, wal_status = (None, None) if found is None else found
            confirmed = None if confirmed is None else parse_lsn(confirmed)
            end = await connection.fetchval(_WAL_END)
            end_lsn = None if end is None else parse_lsn(end)
        if found is None:
            raise self._lost(f'replication slot "{self._slot}" does not exist')
        if wal_status == "lost":
            raise self._lost(
                f'replication slot "{self._slot}" has lost changes that were not read',
                f"Raise max_slot_wal_keep_size there. {RECREATE_SOURCE}",
            )
        if confirmed is not None and confirmed > lsn:
            raise self._lost(f'replication slot "{self._slot}" was advanced beyond {format_lsn(lsn)} by another client')
        if end_lsn is not None and end_lsn < lsn:
            raise self._lost(f"the server is at {end}, before {format_lsn(lsn)}, which was read from it")

    async def _check_timeline(self, known: int, now: int) -> None:
        """PgError if the WAL that was read is not a part of the server's, as after a failover to a replica behind."""
        lsn = self._transactions.lsn
        if now < known:
            raise self._lost(f"the server's timeline is {now}, and {format_lsn(lsn)} was read from timeline {known}")
        ((_, history),) = await self._connected.query(f"TIMELINE_HISTORY {now}")
        end = timeline_end(history or "", known)
        if end is None or end < lsn:
            relation = f"left timeline {known} at {format_lsn(end)}" if end else f"does not follow timeline {known}"
            raise self._lost(f"the server's timeline {now} {relation}, from which {format_lsn(lsn)} was read")

    def _lost(self, reason: str, hint: str = RECREATE_SOURCE) -> PgError:
        return PgError(
            SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
            f"{self._server}: {reason}",
            detail=f'The source reads publication "{self._publication}" through slot "{self._slot}".',
            hint=hint,
        )

    @contextmanager
    def _unpublished(self) -> Iterator[None]:
        """Says what to do if the body finds that the publication was dropped.

        PostgreSQL decodes a change with the publications of its time. It cannot decode one that was made without the
        publication, also when that exists again.
        """
        try:
            yield
        except PgError as error:
            if error.sqlstate != SqlState.UNDEFINED_OBJECT or self._is_new:
                raise
            create = f"CREATE PUBLICATION {identifier(self._publication)}"
            hint = f"After {create} there, drop the source and create it again."
            raise PgError(error.sqlstate, error.message, hint=hint) from None

    def _attach(self, stored: Mapping[str, bytes], published: Sequence[PublishedTable]) -> None:
        """Finds the table of each collection."""
        oids = {table.oid for table in published}
        for id, layout in self._layouts.items():
            if (error := stored.get(_error_key(id))) is not None:
                self._context.statistics.errors[id] = _restored_error(error)
            elif (stored_table := stored.get(_table_key(id))) is None:
                try:
                    self._missing.append(_copy(id, layout, find(published, layout.reference, self._publication)))
                except PgError as reason:
                    self._stop(id, reason)
            else:
                known = _Known.restored(stored_table)
                self._add(id, known)
                if known.oid not in oids:
                    self._stop(
                        id,
                        PgError(
                            SqlState.UNDEFINED_TABLE,
                            f'table "{layout.reference}" is no longer in publication "{self._publication}"',
                            hint=RECREATE,
                        ),
                    )

    def _add(self, id: ObjectId, known: _Known) -> None:
        writer = TableWriter(self._context.coordinator, id, self._layouts[id])
        self._tables.setdefault(known.oid, []).append(_Table(id, known, writer))

    def _stop(self, id: ObjectId, error: PgError) -> None:
        """No longer reads the table of a collection. The others go on."""
        log.warning("table of a source stopped", source=self._context.source, collection=id, error=error.message)
        self._context.statistics.errors[id] = error
        self._due[_error_key(id)] = _stored_error(error)
        for oid, tables in list(self._tables.items()):
            for table in tables:
                if table.id == id:
                    table.writer.close()
            self._tables[oid] = [table for table in tables if table.id != id]

    # -- the snapshot -----------------------------------------------------------------------------------------------

    async def _start(self) -> Changes:
        """Copies the tables that are new, and starts to stream. Returns the snapshot if it is due."""
        if self._is_new or self._missing:
            await self._stage()
        replication = self._connected
        try:
            async with self._answering():
                await replication.start(self._slot, self._publication, format_lsn(self._transactions.lsn))
        except PgError as error:
            if error.sqlstate != SqlState.UNDEFINED_OBJECT:
                raise
            raise self._lost(f'replication slot "{self._slot}" does not exist') from None  # since `open` saw it
        self._is_streaming = True
        if self._is_new:
            return self._snapshot()
        replication.confirm(self._transactions.lsn)
        return Changes(state=self._state())

    async def _stage(self) -> None:
        """Copies the tables in `_missing` as of an LSN."""
        replication, slot, temporary = self._connected, self._slot, ""
        if self._is_new:
            await drop_slot(replication, slot)  # of a snapshot that was interrupted
        else:
            replication, slot, temporary = await Replication.open(self._server), f"{slot}_new", " TEMPORARY"
        try:
            command = f"CREATE_REPLICATION_SLOT {identifier(slot)}{temporary} LOGICAL pgoutput EXPORT_SNAPSHOT"
            ((_, lsn, name, _),) = await replication.query(command)
            assert lsn is not None
            assert name is not None
            statistics, coordinator = self._context.statistics, self._context.coordinator
            estimates = [copy.table.rows for copy in self._missing]
            known = [rows for rows in estimates if rows is not None]
            statistics.snapshot_records_known = sum(known) if len(known) == len(estimates) else None
            statistics.snapshot_records_staged = 0
            self._staged, self._missing = self._missing, []
            await copy_tables(self._server, name, coordinator.log, statistics, self._staged)
        finally:
            if replication is not self._replication:
                replication.close()
        self._staged_lsn = parse_lsn(lsn)
        if self._is_new:
            self._transactions.advance(self._staged_lsn)

    def _snapshot(self) -> Changes:
        """The rows of the tables that were copied. All transactions that they contain have been returned before."""
        staged, self._staged, self._staged_lsn, self._is_new = self._staged, [], NEVER, False
        payloads = []
        for copy in staged:
            if copy.error is not None:
                copy.abandon(self._context.coordinator.log)
                self._stop(copy.id, copy.error)
                continue
            columns = copy.layout.columns
            known = _Known(copy.table.oid, copy.table.types_of(columns), copy.table.numbers_of(columns))
            self._add(copy.id, known)
            self._due[_table_key(copy.id)] = known.stored()
            payloads += [(copy.id, payload) for payload in copy.payloads]
        return Changes(state=self._state(), payloads=payloads)

    # -- the stream -------------------------------------------------------------------------------------------------

    @property
    def _connected(self) -> Replication:
        assert self._replication is not None
        return self._replication

    async def _receive(self, bytes_max: int) -> None:
        """Waits for messages, and takes those that have arrived: about `bytes_max`, or fewer."""
        transactions, statistics = self._transactions, self._context.statistics
        while transactions.bytes < bytes_max:
            received = await self._connected.receive(wait=not transactions.has_complete)
            if received is None:
                return
            transactions.add(received)
            transactions.advance(received.keepalive)
            statistics.messages_received += len(received.starts)
            statistics.bytes_received += len(received.data)
            statistics.offset_known = max(statistics.offset_known or 0, received.wal_end)
            await asyncio.sleep(0)  # other tasks of the event loop
            if not len(received.starts) and not transactions.has_complete:
                return

    def _taken(self, bytes_max: int) -> list[Item]:
        """The complete transactions that were received, or everything if it is too large to wait for the end of one."""
        items = self._transactions.complete(self._staged_lsn)
        if items is None and self._transactions.bytes >= bytes_max:
            items = self._transactions.everything()
        return items or []

    async def _apply(self, items: Sequence[Item]) -> None:
        """Gives the messages to the writers of their tables."""
        waiting: dict[int, list[Messages]] = {}
        numbers = await self._numbers([item.id for item in items if isinstance(item, Relation)])
        for item in items:
            match item:
                case Stretch(data, starts, ends):
                    relations = relations_of(np.frombuffer(data, np.uint8), starts)
                    for oid in np.unique(relations).tolist():
                        if not self._is_read(oid):
                            continue
                        if oid not in self._relations:
                            raise BadMessage(f"changes of relation {oid}, which was not described")
                        chosen = relations == oid
                        messages = Messages(self._relations[oid], data, starts[chosen], ends[chosen])
                        waiting.setdefault(oid, []).append(messages)
                case Relation():
                    # Others are not kept, because their number is not bounded.
                    if self._is_read(item.id):
                        await self._write(item.id, waiting.pop(item.id, []))
                        self._relations[item.id] = item
                        self._check_columns(item, numbers.get(item.id, {}))
                        await asyncio.sleep(0)  # other tasks of the event loop
                case Truncate():
                    for oid in item.relations:
                        waiting.pop(oid, None)
                        for table in self._tables.get(oid, ()):
                            await table.writer.truncate()
        for oid, messages_ in waiting.items():
            await self._write(oid, messages_)

    async def _write(self, oid: int, parts: list[Messages]) -> None:
        """Adds changes of a table. `parts` are of one relation and have the same data."""
        if not parts:
            return
        first = parts[0]
        starts, ends = (np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "ends"))
        messages = Messages(first.relation, first.data, starts, ends)
        for table in list(self._tables.get(oid, ())):
            try:
                await table.writer.change(messages)
            except PgError as error:
                self._stop(table.id, error)

    def _is_read(self, oid: int) -> bool:
        """Whether a collection has the relation, or will have it after the snapshot."""
        return bool(self._tables.get(oid)) or any(copy.table.oid == oid for copy in self._staged)

    async def _numbers(self, oids: Sequence[int]) -> dict[int, dict[str, int]]:
        """The present numbers of the columns of those tables that are read, by OID and name.

        The description of a relation has none. PostgreSQL sends it before the first change of a connection, and again
        before the first change after an ALTER TABLE.
        """
        read = sorted({oid for oid in oids if self._is_read(oid)})
        if not read:
            return {}
        async with self._answering():
            connection = await self._server.connect()
            try:
                return await column_numbers(connection, self._server, read)
            finally:
                connection.terminate()

    def _check_columns(self, relation: Relation, numbers: Mapping[str, int]) -> None:
        """Stops the table if an ALTER TABLE made it incompatible with its collection. `numbers`: of its columns now."""
        now = {column.name: (column.type, column.typmod) for column in relation.columns}
        for table in list(self._tables.get(relation.id, ())):
            reason = incompatibility(table.known.columns, now) or replacement(table.known.numbers, numbers)
            if reason is not None:
                reference = self._layouts[table.id].reference
                self._stop(
                    table.id, PgError(SqlState.DATATYPE_MISMATCH, f'table "{reference}": {reason}', hint=RECREATE)
                )

    async def _spill(self, bytes_max: int) -> None:
        """Bounds the memory of a transaction whose end has not arrived."""
        writers = [table.writer for tables in self._tables.values() for table in tables]
        if sum(writer.bytes for writer in writers) > bytes_max:
            for writer in writers:
                await writer.spill()

    def _changes(self) -> Changes | None:
        """The changes that were applied. None if nothing has to be committed yet."""
        writes: dict[ObjectId, list[pa.Table]] = {}
        payloads: list[tuple[ObjectId, Payload]] = []
        for tables in self._tables.values():
            for table in tables:
                pieces, files = table.writer.take()
                if pieces:
                    writes[table.id] = pieces
                payloads += [(table.id, file) for file in files]
        written = {*writes, *(id for id, _ in payloads)}
        is_idle = not written and not self._due
        if is_idle and (self._transactions.lsn == self._committed_lsn or monotonic() < self._position_at + IDLE_LSN_S):
            return None
        # PostgreSQL had the retracted rows, and only this source writes the collections.
        time = self._context.coordinator.latest_time()
        return Changes(writes, self._state(), payloads, dict.fromkeys(written, time))

    def _state(self) -> State:
        """The state to be committed."""
        self._position_at = monotonic()
        due, self._due = self._due, {}
        return {LSN: format_lsn(self._transactions.lsn).encode(), **due}

    async def _report_status(self, replication: Replication) -> None:
        """Keeps the connection alive while changes wait to be committed, and ends it if the server does not answer."""
        while True:
            await asyncio.sleep(STATUS_S)
            if self._is_streaming and replication.confirm_again() > SILENT_UPDATES:
                replication.abandon()
                return


async def drop_slot(replication: Replication, slot: str, *, wait: bool = False) -> None:
    """Drops a replication slot if it exists. `wait`: until it is not in use any more."""
    try:
        await replication.query(f"DROP_REPLICATION_SLOT {identifier(slot)}{' WAIT' if wait else ''}")
    except PgError as error:
        if error.sqlstate != SqlState.UNDEFINED_OBJECT:
            raise


def _copy(id: ObjectId, layout: Layout, table: PublishedTable) -> TableCopy:
    """PgError if the table does not have the columns of the collection."""
    if (missing := table.missing(layout.columns)) is not None:
        raise PgError(
            SqlState.DATATYPE_MISMATCH,
            f'table "{layout.reference}" has no column "{missing.name}" of type {missing.type}',
            hint=RECREATE,
        )
    return TableCopy(id, layout, table)


def _table_key(id: ObjectId) -> str:
    return f"table {id}"


def _error_key(id: ObjectId) -> str:
    return f"error {id}"


def _stored_error(error: PgError) -> bytes:
    return json.dumps([error.sqlstate, error.message, error.hint]).encode()


def _restored_error(stored: bytes) -> PgError:
    sqlstate, message, hint = json.loads(stored)
    return PgError(SqlState(sqlstate), message, hint=hint)
