"""A session: handles the messages of one client, one at a time.

    listener -> received() -> messages -> simple_query, extended_query -> portal_runner -> dispatch -> execution

A message that needs no waiting is answered at once. Otherwise its work becomes the session's task, and the next message
is not read until the task is done. A CancelRequest and a lost connection cancel the task, which releases what it holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import structlog

from protocol.pgwire.connection import DROPPED, EOF, NEED_DATA, Connection, Phase
from protocol.pgwire.errors import PgError, Severity, SqlState
from protocol.pgwire.messages.backend import ErrorResponse
from protocol.pgwire.messages.frontend import (
    Bind,
    Close,
    Describe,
    Execute,
    Flush,
    FrontendMessage,
    FunctionCall,
    Parse,
    Query,
    Sync,
    Terminate,
)
from server.dataflow.stream.transport import Transport
from server.frontend.constant_queries import ConstantQueries
from server.frontend.dispatch import Dispatcher
from server.frontend.extended_query import ExtendedQuery
from server.frontend.portal_runner import PortalRunner
from server.frontend.query_cache import QueryCache
from server.frontend.responses import COMMIT, SELECT, UNKNOWN, Responses
from server.frontend.simple_query import SimpleQuery
from server.frontend.statement_task import PendingCommit, StatementTask, Work
from server.pg_catalog.engine import Undescribed
from server.runtime.errors import to_pg_error
from server.runtime.metrics import CANCELED
from server.runtime.offload import TURN_S
from server.session_state.context import Context
from server.session_state.row_format import WIRE_ROWS, RowFormat
from server.session_state.sender import Sender

log = structlog.get_logger()

STUCK_S = 10.0  # how long a socket may take to accept the error of a subscription that fell too far behind

_READY_AFTER = frozenset((Query, Sync, FunctionCall))  # ReadyForQuery ends their answers, even after errors
_SYNC = Sync()


class Session:
    """One connection after startup. The listener calls `received`, `lost`, `cancel` and `terminate`."""

    def __init__(
        self,
        context: Context,
        connection: Connection,
        transport: Transport,
        cache: QueryCache,
        row_format: RowFormat = WIRE_ROWS,
    ) -> None:
        self.context = context
        context.interrupt = self._interrupt
        self._connection = connection
        self._transport = transport
        self._sender = Sender(connection, transport)
        if row_format.is_wire:
            context.send_notice = self._sender.send_now
        self._dispatcher = dispatcher = Dispatcher(context)
        self._responses = Responses(context, self._sender, dispatcher.transactions, self.terminate)
        context.listening.receiver = self._responses.notifications
        self._constants = ConstantQueries(dispatcher, connection, cache, answers_select=row_format.is_wire)
        self._data_received = asyncio.Event()
        runner = PortalRunner(dispatcher, self._sender, self._data_received, row_format)
        self._simple = SimpleQuery(
            dispatcher, self._sender, self._responses, runner=runner, constants=self._constants, cache=cache
        )
        extended = ExtendedQuery(
            dispatcher, self._sender, self._responses, runner=runner, constants=self._constants, cache=cache
        )
        self._handlers: dict[type[FrontendMessage], Callable[[Any], Work | PendingCommit | None]] = {
            Query: self._query,
            Parse: extended.parse,
            Bind: extended.bind,
            Describe: extended.describe,
            Execute: extended.execute,
            Close: extended.close,
            Sync: self._sync,
            Flush: self._flush,
            FunctionCall: self._function_call,
        }
        self._task = StatementTask()
        self._ended = False  # the connection is lost or being closed
        self._resumes = False  # `_pump` is scheduled

    # -- the listener's side ------------------------------------------------------------------------------------

    def received(self) -> None:
        """Called when the connection has received bytes."""
        self._data_received.set()
        self._pump()

    def cancel(self) -> None:
        """Handles a CancelRequest. Between statements it ends the streams of cursors, and the next FETCH fails."""
        reason = PgError(SqlState.QUERY_CANCELED, "canceling statement due to user request")
        if not self._task.is_running:
            self._dispatcher.portals.cancel_streams(reason)
        elif self._task.has_begun:
            self._task.cancel(reason)
        else:
            asyncio.get_running_loop().call_soon(self.cancel)  # after the task's first step

    def lost(self) -> None:
        """Called when the connection is lost: ends the current task and releases what the session holds."""
        if not self._task.is_running:
            self._close()
        elif self._task.has_begun:
            self._task.cancel(None)
        else:
            asyncio.get_running_loop().call_soon(self.lost)

    def terminate(self, error: PgError) -> None:
        """Ends the session with a FATAL error."""
        if self._connection.phase is not Phase.CLOSED:
            self._connection.send(ErrorResponse.of(error))
            self._sender.flush()
            self._transport.abort_if_stuck(STUCK_S)
        self._transport.close()
        self.lost()

    def _interrupt(self, error: PgError) -> None:
        """Ends the current statement with this error, and the connection if its socket stays full for STUCK_S."""
        if self._task.is_running:
            self._task.cancel(error)
            self._transport.abort_if_stuck(STUCK_S)

    def _close(self) -> None:
        self._ended = True
        self._responses.stop_idling()
        self._responses.stop_transaction_timer()
        self._responses.notifications.close()
        self._dispatcher.portals.close_all()
        self._dispatcher.statements.clear()  # sessions are in reference cycles, which may be collected minutes later
        self._constants.close()
        self.context.end()

    # -- messages -----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Handles messages until there are none left, one has to wait, or TURN_S has passed.

        The time limit matters if a client sends thousands of cheap messages at once. The rest is handled later.
        """
        turn_end = monotonic() + TURN_S  # uvloop's loop.time() does not advance within an iteration of the loop
        has_handled = False
        while not self._task.is_running and not self._ended:
            if has_handled and monotonic() > turn_end:
                self._resume_later()
                break
            has_handled = True
            if self._connection.is_at_call and (answered := self._constants.answer_call()) is not None:
                self._responses.stop_idling()
                self._send_answer(answered.data, answered.kind)
                if answered.synced:
                    self._end_call()
                continue
            try:
                message = self._connection.next_event()
            except PgError as error:
                self._refuse(error)
                if self._connection.phase is Phase.CLOSED:
                    return
                continue
            if message is NEED_DATA:
                break
            if message is DROPPED:
                continue
            if message is EOF or isinstance(message, Terminate):
                self._transport.close()
                break
            self._responses.stop_idling()
            work = self._handle(message)
            if work is not None:
                self._wait_for(work, message)
        is_busy = self._task.is_running or self._resumes
        if self._sender.is_due or not is_busy:
            self._sender.flush()
        self._transport.limit_input(self._connection.bytes_waiting if is_busy else 0)

    def _end_call(self) -> None:
        """Handles the Sync of a call, whose other messages `ConstantQueries.answer_call` has answered."""
        if (work := self._sync(_SYNC)) is None:
            self._responses.ready()
        else:
            self._wait_for(work, _SYNC)

    def _resume_later(self) -> None:
        """Schedules `_pump` after the callbacks of other sessions that are ready now."""

        def resume() -> None:
            self._resumes = False
            self._pump()

        if not self._resumes:
            self._resumes = True
            asyncio.get_running_loop().call_soon(resume)

    def _refuse(self, error: PgError) -> None:
        """Reports an error of the protocol layer."""
        self._responses.fail(error)
        if error.severity is Severity.FATAL:
            self._sender.flush()
            self._transport.close_when_read()
        elif self._connection.phase is Phase.READY:
            self._responses.ready()

    def _handle(self, message: FrontendMessage) -> Work | PendingCommit | None:
        """Handles a message and reports its errors, or returns the work that needs waiting."""
        self._responses.kind = UNKNOWN
        try:
            work = self._handlers[type(message)](message)
        except Undescribed as query:
            return self._handle_described(query, message)
        except Exception as error:
            self._responses.fail(to_pg_error(error))
        else:
            if work is not None:
                return work
        if type(message) in _READY_AFTER:
            self._responses.ready()
        return None

    async def _handle_described(self, query: Undescribed, message: FrontendMessage) -> None:
        """Handles a message that contains a system catalog query whose columns must be described first."""
        await self.context.catalog_engine.describe(query.sql)
        try:
            work = self._handlers[type(message)](message)
        except Undescribed as another:
            work = self._handle_described(another, message)
        if work is not None:
            assert not isinstance(work, PendingCommit)  # no column of it must be described
            await work

    def _wait_for(self, work: Work | PendingCommit, message: FrontendMessage) -> None:
        """Makes the work of a message the session's task, or waits for its commit."""
        if isinstance(work, PendingCommit):
            timeout_s = self.context.settings.timeout_s("statement_timeout")
            self._task.wait(work.commit, timeout_s, partial(self._commit_ended, work))
        else:
            self._task.start(self._perform(message, work))

    def _commit_ended(self, work: PendingCommit, stopped: BaseException | None) -> None:
        """Ends a message whose commit is done, or is not awaited any more because of `stopped`."""
        if isinstance(stopped, asyncio.CancelledError):  # a lost connection
            self._responses.count(CANCELED)
            self._close()
            return
        try:
            if stopped is not None:
                raise stopped
            self.context.end_commit(work.commit)
            self._answer(work.answer)
        except Exception as error:
            self._responses.fail(to_pg_error(error))
        self._responses.ready()
        self._pump()

    async def _perform(self, message: FrontendMessage, work: Work) -> None:
        """The session's task: performs the work of one message, then handles the messages that arrived meanwhile."""
        self._responses.start_transaction_timer()
        try:
            async with self._task.timeout(self.context.settings.timeout_s("statement_timeout")):
                try:
                    await work
                except BaseException as error:
                    self._responses.fail(self._task.error_of(error))
                if type(message) in _READY_AFTER and self._connection.phase is not Phase.CLOSED:
                    self._responses.ready()
        except asyncio.CancelledError:  # a lost connection; the error of a CancelRequest was reported above
            self._responses.count(CANCELED)
        except Exception as error:
            log.error("client session failed", error=str(error), exc_info=error)
            self._transport.close()
        finally:
            is_lost = self._task.end()
            if not is_lost and self._connection.phase is Phase.CLOSED:  # an error of the protocol during COPY
                self._sender.flush()
                self._transport.close_when_read()
            if is_lost or self._connection.phase is Phase.CLOSED:
                self._close()
            else:
                self._pump()

    def _query(self, message: Query) -> Work | PendingCommit | None:
        self.context.query.begin(message.text)
        answer = self._constants.answer_query(message.text)
        if answer is not None:
            self._send_answer(answer, SELECT)
            return None
        inserted = self._simple.begin(message.text)
        if inserted is None:
            return self._simple.execute(message.text)
        self._responses.kind = inserted.kind
        return self._end_implicit(inserted.data)

    def _sync(self, _: Sync) -> Work | PendingCommit | None:
        """Returns the work of committing the implicit transaction, None if there is nothing to commit."""
        self._responses.kind = COMMIT
        return self._end_implicit(b"")

    def _end_implicit(self, answer: bytes) -> Work | PendingCommit | None:
        """Ends the implicit transaction, if there is one, and sends `answer`. Returns what needs waiting."""
        transactions = self._dispatcher.transactions
        if transactions.end_implicit_at_once():
            self._answer(answer)
            return None
        commit = transactions.begin_commit()
        return self._commit_and_answer(answer) if commit is None else PendingCommit(commit, answer)

    async def _commit_and_answer(self, answer: bytes) -> None:
        await self._dispatcher.transactions.end_implicit()
        self._answer(answer)

    def _answer(self, answer: bytes) -> None:
        """Sends the answer to the current statement, unless that was done when it was executed."""
        if answer:
            self._connection.send_encoded(answer)
            self._responses.count()

    def _flush(self, _: Flush) -> None:
        self._sender.is_due = True

    def _function_call(self, _: FunctionCall) -> None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "function calls by message are not supported",
            hint="Call the function in a SELECT.",
        )

    def _send_answer(self, answer: bytes, kind: str) -> None:
        """Sends the answer to a query or an INSERT of constants."""
        self._connection.send_encoded(answer)
        self._responses.kind = kind
        self._responses.count()
