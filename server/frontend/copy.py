"""COPY: sends rows as CopyData, and receives CopyData until the client sends CopyDone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable

import pyarrow as pa

from catalog.ids import ObjectId
from catalog.objects.tables import Table
from protocol.pgwire.connection import EOF, NEED_DATA
from protocol.pgwire.copy_in import CopyDecoder
from protocol.pgwire.copy_options import CopyOptions
from protocol.pgwire.encode import CopyEncoder
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.backend import CommandComplete
from protocol.pgwire.messages.copying import CopyData, CopyDone, CopyFail, CopyInResponse, CopyOutResponse
from protocol.pgwire.types import parse_type
from server.coordinator.activity import CopyProgress
from server.execution import write
from server.execution.catalog_query.query import run_catalog_query
from server.execution.catalog_query.values import values_of
from server.execution.names import find_item
from server.execution.select import select
from server.execution.subscribe import subscribe
from server.execution.with_writes import write_with
from server.runtime.offload import TURN_S
from server.session_state.context import Context
from server.session_state.prepared import CatalogPlan, Plan, SubscribePlan, ValuesPlan, WithWritesPlan
from server.session_state.progress import reporting
from server.session_state.results import TAKEN_ROWS, Result, Rows, SubscriptionRows
from server.session_state.sender import Sender, encode_table
from server.sql.grammar import statements as s
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.statements.copy import CopyRelation
from server.sql.plan import QueryPlan
from server.sql.writes.plan import WritePlan

FEED_BYTES = 1024 * 1024  # data is collected up to this size, and larger messages are divided, before it is decoded


async def copy_to(context: Context, sender: Sender, statement: s.CopyTo, plan: Plan) -> None:
    """COPY ... TO STDOUT. Sends CopyOutResponse before the first row is known, then one CopyData per row."""
    options = CopyOptions.of(statement.options, reading=False)
    inner = statement.source
    copied: ObjectId | None = None
    values: tuple[object, ...] = ()
    if isinstance(plan, ValuesPlan):
        values, plan = await values_of(context, plan.values, ()), plan.inner
    match plan:
        case SubscribePlan():
            assert isinstance(inner, s.Subscribe)
            fields = plan.envelope.fields
            running = subscribe(context, inner, plan, ())
        case WithWritesPlan():
            assert plan.fields is not None
            fields = plan.fields
            running = write_with(context, plan, ())
        case WritePlan():
            assert plan.fields is not None
            fields = plan.fields
            running = write.write(context, plan, type(inner).__name__.upper(), values)
        case CatalogPlan():
            fields = plan.columns
            running = run_catalog_query(context, plan, ())
        case QueryPlan():
            if isinstance(inner, CopyRelation):
                copied = find_item(context, inner.relation).id
            fields = plan.columns
            running = select(context, plan, inner.as_of if isinstance(inner, s.Select) else None, values)
    encoder = CopyEncoder([f.type for f in fields], options, context.settings.output_style, [f.name for f in fields])
    result = await running
    assert result.rows is not None
    sender.send_notices(context.notices)
    format = 1 if options.is_binary else 0
    sender.connection.send(CopyOutResponse(format, (format,) * len(fields)))
    sender.connection.send_encoded(encoder.header())
    key = ("copy", statement.options, context.settings.output_style)
    with context.coordinator.activity.copying(context.process_id, "COPY TO", copied) as progress:
        sent = await _copy_rows(sender, result.rows, encoder, key, context.interrupt, progress)
    sender.connection.send_encoded(encoder.trailer())
    sender.connection.send(CopyDone(), CommandComplete(f"COPY {sent}"))


async def _copy_rows(
    sender: Sender,
    rows: Rows,
    encoder: CopyEncoder,
    key: Hashable,
    interrupt: Callable[[PgError], None],
    progress: CopyProgress,
) -> int:
    """Sends the rows, and returns their number. A subscription, which has no end, does not count in `progress`."""
    encode = encode_table(encoder.encode_rows)
    encode_rows = encode_table(encoder.encode)

    def counted(table: pa.Table) -> bytes:
        data = encode_rows(table)
        progress.bytes += len(data)
        return data

    try:
        if isinstance(rows, SubscriptionRows):
            rows.interrupt_by(interrupt)
            return await rows.send(key, encode, sender, encoder)
        while not rows.finished:
            if progress.rows:
                sender.flush()
            table = await rows.take(TAKEN_ROWS)
            await sender.write_table(table, counted)
            progress.rows += table.num_rows
    finally:
        rows.close()
    return progress.rows


async def copy_from(context: Context, sender: Sender, arrival: asyncio.Event, statement: s.CopyFrom) -> Result:
    """COPY ... FROM STDIN. Reads until CopyDone. Loads nothing if any of the data is invalid."""
    item = find_item(context, statement.table)
    table = write.table_for_writing(context, item.id, item.name, "copy to")
    positions = _copied_columns(table, statement)
    options = CopyOptions.of(statement.options, reading=True)
    types = [parse_type(table.columns[i].type) for i in positions]
    types = [type.without_modifiers if type.has_seconds else type for type in types]
    columns = [(table.columns[i].name, type) for i, type in zip(positions, types, strict=True)]
    copy = await write.copy_from(
        context,
        table,
        positions,
        CopyDecoder(
            columns,
            options,
            table.name,
            timezone=context.settings["TimeZone"],
            style=context.settings.input_style,
            checkpoint=checkpoint,
            defaulted=frozenset(n for n, i in enumerate(positions) if table.columns[i].effective_default is not None),
        ),
        statement.condition,
    )
    format = 1 if options.is_binary else 0
    sender.connection.send(CopyInResponse(format, (format,) * len(positions)))
    sender.flush()
    begun_s = time.monotonic()

    def described() -> str:
        received = f'received {progress.bytes / 1e6:.0f} MB for table "{table.name}"'
        return f"{received} in {time.monotonic() - begun_s:.0f} s, {progress.rows} rows decoded"

    try:
        copying = context.coordinator.activity.copying(context.process_id, "COPY FROM", table.id)
        with copying as progress, reporting(context, described):
            async for data in _copy_data(sender, arrival):
                await copy.feed(data)
                progress.bytes += len(data)
                progress.rows = copy.rows
            return await copy.finish()
    except BaseException:
        copy.abandon()
        raise


async def _copy_data(sender: Sender, arrival: asyncio.Event) -> AsyncIterator[bytes]:
    """Yields the data of CopyData messages until CopyDone, in chunks of about FEED_BYTES."""
    chunks: list[bytes] = []
    size = 0
    turn_end = time.monotonic() + TURN_S
    while True:
        if time.monotonic() > turn_end:  # the messages may be small
            await asyncio.sleep(0)
            turn_end = time.monotonic() + TURN_S
        arrival.clear()  # what arrives from here on, even while the caller decodes data, ends the wait below
        event = sender.connection.next_event()
        if isinstance(event, CopyData):
            if event.data:
                chunks.append(event.data)
            size += len(event.data)
            if size < FEED_BYTES:
                continue
        if size:
            data, chunks, size = b"".join(chunks), [], 0
            for start in range(0, len(data), FEED_BYTES):
                yield data[start : start + FEED_BYTES]
        match event:
            case CopyDone():
                return
            case CopyFail(message=message):
                raise PgError(SqlState.QUERY_CANCELED, f"COPY from stdin failed: {message}")
            case _ if event is NEED_DATA:
                sender.transport.limit_input(0)
                await arrival.wait()
            case _ if event is EOF:
                raise PgError(SqlState.CONNECTION_FAILURE, "unexpected EOF on client connection with an open COPY")
            case _:
                pass


def _copied_columns(table: Table, statement: s.CopyFrom) -> tuple[int, ...]:
    names = [column.name for column in table.columns]
    if not statement.columns:
        return tuple(number for number, column in enumerate(table.columns) if not column.generated)
    positions: list[int] = []
    for ident in statement.columns:
        if ident.name not in names:
            raise PgError(
                SqlState.UNDEFINED_COLUMN,
                f'column "{ident.name}" of relation "{table.name}" does not exist',
                position=ident.position,
            )
        if table.columns[names.index(ident.name)].generated:
            raise PgError(
                SqlState.INVALID_COLUMN_REFERENCE,
                f'column "{ident.name}" is a generated column',
                detail="Generated columns cannot be used in COPY.",
            )
        if names.index(ident.name) in positions:
            raise PgError(
                SqlState.DUPLICATE_COLUMN, f'column "{ident.name}" specified more than once', position=ident.position
            )
        positions.append(names.index(ident.name))
    return tuple(positions)
