"""Runs portals: executes their statements and sends the results."""

from __future__ import annotations

import asyncio

from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.messages.backend import (
    CommandComplete,
    EmptyQueryResponse,
    NoticeResponse,
    PortalSuspended,
)
from server.frontend.copy import copy_from, copy_to
from server.frontend.dispatch import Dispatcher
from server.frontend.transactions import aborted
from server.session_state.context import Context
from server.session_state.portals import Portal
from server.session_state.results import TAKEN_ROWS, Result, Rows, SubscriptionRows, TableRows, row_description
from server.session_state.row_format import RowFormat
from server.session_state.sender import Sender
from server.sql.grammar import statements as s
from server.sql.plan import QueryPlan

_WITHOUT_SNAPSHOT = (
    *(s.Begin, s.Commit, s.Rollback, s.Savepoint, s.ReleaseSavepoint, s.RollbackToSavepoint),
    *(s.SetTransaction, s.SetConstraints, s.SetVariable, s.ResetVariable, s.SetRole, s.ShowVariable, s.Discard),
    *(s.Listen, s.Unlisten, s.Notify, s.LockTable, s.Deallocate),
)
"""The statements before which PostgreSQL takes no snapshot (analyze_requires_snapshot, PlannedStmtRequiresSnapshot)."""


class PortalRunner:
    """Runs the portals of one session. `data_received` is set when the connection has received data, for COPY."""

    def __init__(
        self, dispatcher: Dispatcher, sender: Sender, data_received: asyncio.Event, row_format: RowFormat
    ) -> None:
        self._dispatcher = dispatcher
        self._context = dispatcher.context
        self._sender = sender
        self._data_received = data_received
        self._row_format = row_format

    async def run(self, portal: Portal, limit: int, *, describe: bool) -> None:
        """Runs or continues a portal. Sends at most `limit` rows, 0: all. `describe`: sends RowDescription first."""
        context, sender = self._context, self._sender
        statement = portal.prepared.statement
        if statement is None:
            sender.connection.send(EmptyQueryResponse())
            return
        if portal.is_failed:
            raise aborted()  # even if the statement would end the block
        self._dispatcher.transactions.check_not_failed(statement)
        returns_rows = portal.prepared.fields is not None or (
            portal.result is not None and portal.result.rows is not None
        )
        if portal.done and not returns_rows:
            raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, f'portal "{portal.name}" cannot be run')
        is_first_run = portal.result is None
        if portal.result is None:
            self._row_format.check(statement)
            context.begin_statement(queries=not isinstance(statement, _WITHOUT_SNAPSHOT))
            match statement:
                case s.CopyTo():
                    assert portal.prepared.plan is not None
                    await copy_to(context, sender, statement, portal.prepared.plan)
                    portal.done = True
                    return
                case s.CopyFrom():
                    portal.result = await copy_from(context, sender, self._data_received, statement)
                case s.Fetch():
                    self._dispatcher.cursors.check_limit(statement, limit)
                    portal.result = await context.described(lambda: self._dispatcher.cursors.fetch(statement))
                case _:
                    portal.result = await self._execute(portal, describe=describe)
            sender.send_notices(context.notices)
        rows = portal.result.rows
        if rows is None:
            portal.done = True
            is_only = describe and not self._dispatcher.has_several_statements
            if is_only and not context.transaction.explicit and context.transaction.has_effects:
                await context.commit()  # CommandComplete of a single statement is sent after the commit
            sender.connection.send(CommandComplete(portal.result.tag))
            return
        if describe:
            sender.connection.send(row_description(rows.fields, portal.column_formats()))
        is_streamed = isinstance(rows, SubscriptionRows) and is_first_run and not portal.cursor
        if is_streamed and self._row_format.is_wire:
            sender.connection.send(NoticeResponse.of(_streaming_notice(context)))
        await self._send_rows(portal, portal.result, rows, limit)

    async def _execute(self, portal: Portal, *, describe: bool) -> Result:
        """Executes a portal. As in PostgreSQL, RowDescription precedes the error of a SELECT that has begun to run."""
        prepared, execute = portal.prepared, self._dispatcher.execute
        portal.is_active = True
        try:
            return await self._context.described(lambda: execute(prepared, portal.parameters))
        except BaseException as error:
            reads = isinstance(prepared.plan, QueryPlan) and bool(prepared.plan.inputs)
            is_select = reads and isinstance(prepared.statement, s.Select)
            if describe and is_select and _is_runtime_error(error) and prepared.fields is not None:
                self._sender.connection.send(row_description(prepared.fields, portal.column_formats()))
            raise
        finally:
            portal.is_active = False

    async def _send_rows(self, portal: Portal, result: Result, rows: Rows, limit: int) -> None:
        sender, style = self._sender, self._context.settings.output_style
        key, encode = self._row_format.encoding(rows.fields, portal.column_formats(), style)
        sent = 0
        if isinstance(rows, SubscriptionRows) and limit == 0:
            rows.interrupt_by(self._context.interrupt)
            sent = await rows.send(key, encode, sender)
        while not rows.finished and (limit == 0 or sent < limit):
            if sent or isinstance(rows, SubscriptionRows):
                sender.flush()
            table = await rows.take(min(limit - sent, TAKEN_ROWS) if limit else TAKEN_ROWS)
            await sender.write_table(table, encode)
            sent += table.num_rows
        if limit and sent == limit:
            await self._keep_rows(portal, rows)
            sender.connection.send(PortalSuspended())
        else:
            portal.done = True
            sender.connection.send(CommandComplete(result.tag.format(sent)))

    async def _keep_rows(self, portal: Portal, rows: Rows) -> None:
        """Moves the rows of a suspended portal to disk if those of all portals would take too much memory."""
        portals = self._dispatcher.portals
        if not isinstance(rows, TableRows) or rows.is_on_disk:
            return
        portals.keep_rows(portal, 0)
        if portals.keeps_rows and not portals.fits_in_memory(rows.memory_bytes):
            await asyncio.to_thread(rows.move_to_disk, self._context.coordinator.scratch)
        else:
            portals.keep_rows(portal, rows.memory_bytes)


_RUNTIME_ERRORS = ("21", "22", "53", "54", "57", "58", "XX")  # classes of SQLSTATE


def _is_runtime_error(error: BaseException) -> bool:
    """Whether the error arose while the statement ran, as opposed to a refusal to run it.

    Runtime errors are evaluation errors, cancels, and a lack of memory, disk space or Spark.
    """
    if isinstance(error, asyncio.CancelledError):
        return True
    return isinstance(error, PgError) and error.sqlstate.startswith(_RUNTIME_ERRORS)


def _streaming_notice(context: Context) -> Notice:
    psql = context.settings["application_name"] == "psql"
    return Notice(
        "streaming SUBSCRIBE rows directly requires a client that does not buffer output",
        sqlstate=SqlState.WARNING,
        hint="Wrap your SUBSCRIBE statement in COPY (SUBSCRIBE ...) TO STDOUT." if psql else None,
    )
