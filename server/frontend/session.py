"""A session: executes the messages of one client, and holds its statements, portals and transaction.

    listener -> received(data) -> messages -> here -> execution/* -> rows -> encoder -> the socket

Messages are handled one at a time. A message that needs no waiting is answered at once. Otherwise its work becomes the
session's task, and the next message is not read until the task is done. A CancelRequest and a lost connection cancel
the task, which releases what it holds.

`interpreter` executes statements, `sender` writes to the socket, `copying` implements COPY.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import structlog

from protocol.pgwire import messages as m
from protocol.pgwire.connection import EOF, NEED_DATA, Connection, Phase
from protocol.pgwire.decode import decode_parameter
from protocol.pgwire.encode import RowEncoder
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.messages import FrontendMessage
from protocol.pgwire.single_row import row_writer
from protocol.pgwire.types import BY_OID, PgType
from server.dataflow.stream.transport import Transport
from server.execution.prepare import Prepared, plan_key, prepare
from server.frontend.constant_call import SELECT_1, ConstantCall
from server.frontend.copy import copy_from, copy_to
from server.frontend.dispatch import Dispatcher
from server.frontend.portals import Portal
from server.pg_catalog.engine import Undescribed
from server.runtime.errors import to_pg_error
from server.runtime.metrics import CANCELED, ERROR, OK
from server.runtime.offload import TEXT_CHARS_MAX, offload, release_later
from server.session_state.context import Context
from server.session_state.results import TAKEN_ROWS, NoRows, Result, Rows, SubscriptionRows, row_description
from server.session_state.sender import Sender, encode_table
from server.sql.constant import Bindings, NotCheap, is_short
from server.sql.grammar import statements as s
from server.sql.grammar.parse import parse
from server.sql.grammar.trees import release
from server.sql.plan import Field, QueryPlan

log = structlog.get_logger()

PARSED_TEXTS_MAX = 4_096
TURN_S = 0.003  # the time that one session may occupy the event loop before other sessions run
STUCK_S = 10.0  # how long a socket may take to accept the error of a subscription that fell too far behind

_parse_cached = functools.lru_cache(PARSED_TEXTS_MAX)(parse)


def _parse(text: str) -> tuple[s.Statement, ...]:
    return tuple(_parse_cached(text) if len(text) <= TEXT_CHARS_MAX else parse(text))


@dataclass(slots=True)
class PlanCache:
    """Plans of whole query strings, shared by all sessions. It is emptied when it is full."""

    plans: dict[object, Prepared]
    size_max: int = 4_096

    def get(self, key: object) -> Prepared | None:
        return self.plans.get(key)

    def put(self, key: object, prepared: Prepared) -> None:
        if len(self.plans) >= self.size_max:
            self.plans.clear()
        self.plans[key] = prepared


class Session:
    """One connection after startup. The listener calls `received`, `lost`, `cancel` and `terminate`."""

    def __init__(self, context: Context, connection: Connection, transport: Transport, plans: PlanCache) -> None:
        self.context = context
        self._connection = connection
        self._transport = transport
        self._plans = plans
        self._sender = Sender(connection, transport)
        self._interpreter = Dispatcher(context)
        context.interrupt = self._interrupt
        self._ended = False  # the connection is lost or being closed
        self._resumes = False  # `_pump` is scheduled
        self._task: asyncio.Task[None] | None = None
        self._task_begun = False
        self._cancel_reason: PgError | None = None
        self._data_came = asyncio.Event()
        self._deadline: asyncio.Timeout | None = None
        self._reported = context.settings.reported()
        self._reported_revision = context.settings.revision
        self._idle_timer: asyncio.TimerHandle | None = None
        self._call: ConstantCall | None = None  # the last one that was answered in one step
        self._kind = UNKNOWN  # of the current statement, for the metrics

    # -- the listener's side ------------------------------------------------------------------------------------

    def received(self) -> None:
        """The connection has received bytes."""
        self._data_came.set()
        self._pump()

    def cancel(self) -> None:
        """Handles a CancelRequest. Between statements it ends the streams of cursors, and the next FETCH fails."""
        reason = PgError(SqlState.QUERY_CANCELED, "canceling statement due to user request")
        if self._task is None:
            self._interpreter.portals.cancel_streams(reason)
        elif self._task_begun:
            self._cancel_reason = reason
            self._task.cancel()
        else:
            self._once_begun(self.cancel)

    def _interrupt(self, error: PgError) -> None:
        """Ends the current statement with this error, and the connection if its socket stays full for STUCK_S."""
        if self._task is not None:
            self._cancel_reason = error
            self._task.cancel()
            self._transport.abort_if_stuck(STUCK_S)

    def lost(self) -> None:
        """The connection is lost: ends the current task and releases what the session holds."""
        if self._task is None:
            self._close()
        elif self._task_begun:
            self._task.cancel()
        else:
            self._once_begun(self.lost)

    def _once_begun(self, end: Callable[[], None]) -> None:
        """Calls `end` after the task's first step. A task that is cancelled before that never runs its cleanup."""
        asyncio.get_running_loop().call_soon(end)

    def terminate(self, error: PgError) -> None:
        """Ends the session with a FATAL error."""
        if self._connection.phase is not Phase.CLOSED:
            self._connection.send(m.ErrorResponse.of(error))
            self._sender.flush()
        self._transport.close()
        self.lost()

    def _close(self) -> None:
        self._ended = True
        self._stop_idle_timer()
        self._interpreter.portals.close_all()
        self.context.rollback()

    # -- messages -----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Handles messages until there are none left, one has to wait, or TURN_S has passed.

        The time limit matters if a client sends thousands of cheap messages at once. The rest is handled later.
        """
        turn_end = monotonic() + TURN_S  # uvloop's loop.time() does not advance within an iteration of the loop
        has_handled = False
        while self._task is None and not self._ended:
            if has_handled and monotonic() > turn_end:
                self._resume_later()
                break
            has_handled = True
            if self._connection.stands_at_bind and self._answer_call():
                continue
            try:
                event = self._connection.next_event()
            except PgError as error:
                self._refused(error)
                if self._connection.phase is Phase.CLOSED:
                    return
                continue
            if event is NEED_DATA:
                break
            if event is EOF or isinstance(event, m.Terminate):
                self._transport.close()
                break
            self._stop_idle_timer()
            work = self._handle(event)
            if work is not None:
                self._cancel_reason = None
                self._task, self._task_begun = asyncio.create_task(self._run(work)), False
        self._sender.flush()
        is_busy = self._task is not None or self._resumes
        self._transport.limit_input(self._connection.bytes_waiting if is_busy else 0)

    def _resume_later(self) -> None:
        """Schedules `_pump` after the callbacks of other sessions that are ready now."""

        def resume() -> None:
            self._resumes = False
            self._pump()

        if not self._resumes:
            self._resumes = True
            asyncio.get_running_loop().call_soon(resume)

    def _refused(self, error: PgError) -> None:
        """Reports an error of the protocol layer."""
        self._fail(error)
        if error.severity is Severity.FATAL:
            self._sender.flush()
            self._transport.close_when_read()
        elif self._connection.phase is Phase.READY:
            self._ready()

    def _handle(self, event: FrontendMessage) -> Work | None:
        """Handles a message, or returns the work that needs waiting. Reports exceptions to the client."""
        self._kind = UNKNOWN
        try:
            return _HANDLERS[type(event)](self, event)
        except Undescribed as query:
            return self._handle_described(query.sql, event)
        except PgError as error:
            self._fail(error)
        except Exception as error:
            self._fail(to_pg_error(error))
        return None

    async def _handle_described(self, sql: str, event: FrontendMessage) -> None:
        """Handles a message that contains a system catalog query whose columns must be described first."""
        try:
            await self.context.catalog_engine.describe(sql)
        except BaseException as error:
            self._fail(self._told(error))
            return
        work = self._handle(event)
        if work is not None:
            await work

    def _query_message(self, message: m.Query) -> Work | None:
        return None if self._answer_at_once(message.text) else self._query(message.text)

    def _sync_message(self, _: m.Sync) -> Work | None:
        if not self._settled():
            return self._sync()
        self._ready()
        return None

    def _flush_message(self, _: m.Flush) -> None:
        """`_pump` flushes whenever there is nothing more to read."""

    def _function_call_message(self, _: m.FunctionCall) -> None:
        self._fail(PgError(SqlState.FEATURE_NOT_SUPPORTED, "function calls by message are not supported"))
        self._ready()

    async def _run(self, work: Awaitable[None]) -> None:
        """The session's task: performs the work of one message, then handles the messages that arrived meanwhile."""
        self._task_begun = True
        try:
            timeout_s = self.context.settings.timeout_s("statement_timeout")
            async with asyncio.timeout(timeout_s) as deadline:
                self._deadline = deadline
                await work
        except asyncio.CancelledError:  # a lost connection; the work itself reports and counts a CancelRequest
            self._count(CANCELED)
        except Exception as error:
            log.error("session failed", error=str(error), exc_info=error)
            self._transport.close()
        finally:
            self._task = None
            if self._connection.phase is Phase.CLOSED or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                self._close()
            else:
                self._pump()

    # -- answers ------------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        transaction = self.context.transaction
        self._report_settings()
        self._connection.send_encoded(_READY["E" if transaction.failed else "T" if transaction.explicit else "I"])
        if transaction.explicit:
            self._start_idle_timer()

    def _start_idle_timer(self) -> None:
        timeout_s = self.context.settings.timeout_s("idle_in_transaction_session_timeout")
        if timeout_s is not None:
            error = PgError(
                SqlState.IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                "terminating connection due to idle-in-transaction timeout",
                severity=Severity.FATAL,
            )
            self._idle_timer = asyncio.get_running_loop().call_later(timeout_s, self.terminate, error)

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _report_settings(self) -> None:
        settings = self.context.settings
        if settings.revision is self._reported_revision:
            return
        reported = settings.reported()
        for name, value in reported.items():
            if self._reported.get(name) != value:
                self._connection.send(m.ParameterStatus(name, value))
        self._reported, self._reported_revision = reported, settings.revision

    def _fail(self, error: PgError) -> None:
        """Sends an error to the client, and fails or rolls back the transaction."""
        self._count(CANCELED if error.sqlstate == SqlState.QUERY_CANCELED else ERROR)
        self._sender.send_notices(self.context.notices)
        self._connection.send(m.ErrorResponse.of(error))
        if self.context.transaction.explicit:
            self.context.transaction.failed = True
            self.context.transaction.release()
            self._interpreter.portals.close_all()
        else:
            self._interpreter.portals.close_all()
            self.context.rollback()

    def _count(self, outcome: str) -> None:
        self.context.coordinator.metrics.statements.labels(self._kind, outcome).inc()

    # -- simple query -------------------------------------------------------------------------------------------

    def _answer_at_once(self, text: str) -> bool:
        """Sends the cached answer of a query string whose result never changes. False if there is none."""
        context = self.context
        if context.transaction.explicit:
            return False
        prepared = self._plans.get((text, *plan_key(context)))
        if prepared is None:
            return False
        answer = prepared.answers.get(context.settings.output_style)
        if answer is None:
            return False
        self._connection.send_encoded(answer)
        self._kind = SELECT
        self._count(OK)
        self._ready()
        return True

    async def _query(self, text: str) -> None:
        """Executes a Query message. Its text is parsed as a whole. It is one transaction, unless it says otherwise."""
        self._forget_unnamed()
        self._interpreter.portals.close("")
        self.context.ends_at_sync = False
        try:
            statements = await offload(text, _parse, text)
            if not statements:
                self._connection.send(m.EmptyQueryResponse())
            self._interpreter.several = len(statements) > 1
            turn_end = monotonic() + TURN_S
            for statement, begin_follows in zip(statements, _begin_follows(statements), strict=True):
                if monotonic() > turn_end:  # statements that never wait would not let other sessions run
                    await self._yield()
                    turn_end = monotonic() + TURN_S
                self.context.transaction.becomes_explicit = begin_follows
                await self._simple_statement(statement, text)
            await self._end_implicit()
        except BaseException as error:
            self._fail(self._told(error))
        self._ready()

    def _forget_unnamed(self) -> None:
        """Drops the unnamed prepared statement, as PostgreSQL does for each Query and Parse."""
        forgotten = self._interpreter.named.pop("", None)
        portals = self._interpreter.portals.prepared().values()
        if forgotten is not None and not any(portal.statement is forgotten.statement for portal in portals):
            _release(forgotten)

    async def _yield(self) -> None:
        """Lets other sessions run. Returns when the socket has accepted the answers so far."""
        self._sender.flush()
        await asyncio.sleep(0)
        await self._transport.drained()

    async def _simple_statement(self, statement: s.Statement, text: str) -> None:
        self._kind = kind_of(statement)
        self._check_failed(statement)
        whole_text = None if self._interpreter.several else text
        prepared = await self.context.described(
            lambda: offload(statement.text, self._prepare_simple, statement, whole_text)
        )
        if prepared.parameters:
            raise PgError(SqlState.UNDEFINED_PARAMETER, "there is no parameter $1")
        portal = Portal(prepared)
        try:
            await self._run_portal(portal, 0, describe=True)
        finally:
            portal.close()  # a cancelled SUBSCRIBE must release its reader of the feed
            _release(prepared)
        self._count(OK)

    def _prepare_simple(self, statement: s.Statement, whole_text: str | None) -> Prepared:
        """Plans a statement of a Query message. A SELECT that is the only statement is cached by its text."""
        context = self.context
        if not isinstance(statement, s.Select) or whole_text is None or context.transaction.catalog is not None:
            return self._interpreter.prepare(statement)
        key = (whole_text, *plan_key(context))
        prepared = self._plans.get(key)
        if prepared is None:
            prepared = prepare(context, statement)
            if len(whole_text) <= TEXT_CHARS_MAX:
                self._plans.put(key, prepared)
        if isinstance(prepared.plan, QueryPlan) and _never_changes(prepared.plan, statement):
            style = context.settings.output_style
            if style not in prepared.answers:
                with suppress(NotCheap):
                    prepared.answers[style] = _whole_answer(prepared.plan, context)
        return prepared

    def _settled(self) -> bool:
        """Ends the implicit transaction, if that needs no waiting. Returns whether the transaction is settled."""
        transaction = self.context.transaction
        if transaction.explicit:
            return True
        if transaction.has_effects:
            return False
        self._interpreter.portals.close_all()
        if transaction.has_begun or transaction.settings.revision is not self.context.settings.revision:
            self.context.end_reads()  # a later error must not roll back the effect of SET
        return True

    async def _sync(self) -> None:
        self._kind = COMMIT
        try:
            await self._end_implicit()
        except BaseException as error:
            self._fail(self._told(error))
        self._ready()

    async def _end_implicit(self) -> None:
        if not self.context.transaction.explicit:
            self._interpreter.portals.close_all()
            await self.context.commit()

    def _told(self, error: BaseException) -> PgError:
        """Returns the error to report for an exception. Re-raises CancelledError if the connection is lost."""
        match error:
            case asyncio.CancelledError():
                task = asyncio.current_task()
                assert task is not None
                reason, self._cancel_reason = self._cancel_reason, None
                if reason is None and self._deadline is not None and self._deadline.expired():
                    reason = PgError(SqlState.QUERY_CANCELED, "canceling statement due to statement timeout")
                elif reason is not None:
                    task.uncancel()
                if reason is None:
                    raise error
                return reason
            case Exception():
                return to_pg_error(error)
            case _:
                raise error

    # -- extended query -----------------------------------------------------------------------------------------

    def _describe_message(self, message: m.Describe) -> Work | None:
        cursor = self._described_cursor(message)
        if cursor is None or not cursor.is_unplanned:
            self._describe(message)
            return None
        statement = cursor.prepared.statement
        assert statement is not None
        if len(statement.text) > TEXT_CHARS_MAX:
            return self._describe_long(message, cursor, statement.text)
        self._interpreter.plan_cursor(cursor)
        self._describe(message)
        return None

    async def _describe_long(self, message: m.Describe, cursor: Portal, text: str) -> None:
        """Plans a cursor's long statement in a thread, then describes it."""
        try:
            await self.context.described(lambda: offload(text, self._interpreter.plan_cursor, cursor))
            self._describe(message)
        except BaseException as error:
            self._fail(self._told(error))

    def _described_cursor(self, message: m.Describe) -> Portal | None:
        """Returns the cursor whose columns a Describe requests, by its name or through a FETCH."""
        portal = None if message.kind == "S" else self._interpreter.portals.get(message.name)
        prepared = self._interpreter.statement(message.name) if portal is None else portal.prepared
        if isinstance(prepared.statement, s.Fetch):
            return self._interpreter.portals.cursor(prepared.statement.cursor.name)
        return portal

    def _describe(self, message: m.Describe) -> None:
        """Describes a statement or portal. Plans the cursor that it reads."""
        if message.kind == "S":
            self._describe_statement(self._interpreter.statement(message.name))
            return
        portal = self._interpreter.portals.get(message.name)
        if isinstance(portal.prepared.statement, s.Fetch) and portal.result is None:
            portal.prepared.fields = self._cursor_fields(portal.prepared.statement)
        self._connection.send_encoded(portal.prepared.description(portal.column_formats()))

    def _cursor_fields(self, fetch: s.Fetch) -> tuple[Field, ...] | None:
        """The columns that FETCH returns."""
        return self._interpreter.portals.cursor(fetch.cursor.name).prepared.fields

    def _close_message(self, message: m.Close) -> None:
        if message.kind == "S":
            self._interpreter.named.pop(message.name, None)
        else:
            self._interpreter.portals.close(message.name)
        self._connection.send(m.CloseComplete())

    def _parse_message(self, message: m.Parse) -> Work | None:
        if message.name and message.name in self._interpreter.named:
            raise PgError(SqlState.DUPLICATE_PREPARED_STATEMENT, f'prepared statement "{message.name}" already exists')
        transaction = self.context.transaction
        key = (message.text, message.parameter_oids, *plan_key(self.context))
        prepared = None if transaction.failed or transaction.catalog is not None else self._plans.get(key)
        if prepared is None and len(message.text) > TEXT_CHARS_MAX:
            return self._parse_long(message)
        self._parsed(message, prepared or self._prepare_message(message, key))
        return None

    async def _parse_long(self, message: m.Parse) -> None:
        try:
            prepared = await self.context.described(lambda: offload(message.text, self._prepare_message, message, None))
            self._parsed(message, prepared)
        except BaseException as error:
            self._fail(self._told(error))

    def _parsed(self, message: m.Parse, prepared: Prepared) -> None:
        if not message.name:
            self._forget_unnamed()
        self._interpreter.named[message.name] = prepared
        self._connection.send_encoded(_PARSE_COMPLETE)

    def _prepare_message(self, message: m.Parse, key: object | None) -> Prepared:
        """Parses and plans the text of a Parse message. A plan with a `key` is cached under it."""
        statements = _parse(message.text)
        if len(statements) > 1:
            raise PgError(SqlState.SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement")
        statement = statements[0] if statements else None
        self._kind = kind_of(statement)
        self._check_failed(statement)
        types = [_declared_type(oid) for oid in message.parameter_oids]
        prepared = self._interpreter.prepare(statement, types)
        if key is not None and isinstance(statement, s.Select) and self.context.transaction.catalog is None:
            self._plans.put(key, prepared)
        return prepared

    def _bind_message(self, message: m.Bind) -> Work | None:
        named = self._interpreter.statement(message.statement)
        self._kind = kind_of(named.statement)
        prepared = self._interpreter.fresh(named)
        self._check_failed(prepared.statement)
        given, wanted = len(message.parameters), len(prepared.parameters)
        if given != wanted:
            raise PgError(
                SqlState.PROTOCOL_VIOLATION,
                f"bind message supplies {given} parameters, "
                f'but prepared statement "{message.statement}" requires {wanted}',
            )
        if all(map(is_short, message.parameters)):
            self._bind(message, prepared, self._decoded(message, prepared))
            return None
        return self._bind_long(message, prepared)

    def _decoded(self, message: m.Bind, prepared: Prepared) -> tuple[object, ...]:
        """Returns the values of the parameters."""
        timezone = self.context.settings.naming[2]
        formats = message.parameter_formats or (0,)
        if len(formats) == 1:
            formats *= len(message.parameters)
        return tuple(
            [
                decode_parameter(type, format, data, timezone=timezone)
                for type, format, data in zip(prepared.parameters, formats, message.parameters, strict=True)
            ]
        )

    def _bind(self, message: m.Bind, prepared: Prepared, values: tuple[object, ...]) -> None:
        portal = Portal(prepared, values, message.result_formats)
        portal.column_formats()
        self._interpreter.portals.add(message.portal, portal)
        self._connection.send_encoded(_BIND_COMPLETE)

    async def _bind_long(self, message: m.Bind, prepared: Prepared) -> None:
        """Like `_bind`. Decodes in a thread, because long parameters would block the event loop."""
        try:
            self._bind(message, prepared, await asyncio.to_thread(self._decoded, message, prepared))
        except BaseException as error:
            self._fail(self._told(error))

    def _describe_statement(self, prepared: Prepared) -> None:
        self._connection.send(m.ParameterDescription(tuple(type.oid for type in prepared.parameters)))
        if isinstance(prepared.statement, s.Fetch):
            prepared.fields = self._cursor_fields(prepared.statement)
        self._connection.send_encoded(prepared.description([0] * len(prepared.fields or ())))

    def _execute_message(self, message: m.Execute) -> Work | None:
        portal = self._interpreter.portals.get(message.portal)
        self._kind = kind_of(portal.prepared.statement)
        plan = portal.prepared.single_row
        if portal.result is not None or plan is None or self.context.transaction.failed:
            return self._execute_portal(portal, message.max_rows)
        assert plan.constant is not None
        context = self.context
        context.begin_statement()
        bindings = Bindings(portal.parameters)
        if plan.uses_session:
            bindings = context.bindings(portal.parameters, context.read_time)
        try:
            values = plan.constant.evaluate_row(bindings)
        except NotCheap:
            return self._execute_portal(portal, message.max_rows)
        self._sender.send_notices(context.notices)
        write = row_writer(plan.constant.types, portal.column_formats(), context.settings.output_style)
        self._connection.send_encoded(write(values) + SELECT_1)
        portal.result, portal.done = Result("SELECT {}", NoRows(plan.columns)), True
        self._count(OK)
        return None

    def _answer_call(self) -> bool:
        """Answers a whole round trip of a constant query in one step. False: handle its messages one by one."""
        call = self._call
        found = None if call is None else self._connection.waiting_call(call.shape)
        if found is None:
            shape = self._connection.call_shape()
            if shape is None:
                return False
            call = self._call = ConstantCall.of(shape, self._interpreter, self.context)
            found = None if call is None else self._connection.waiting_call(call.shape)
        if call is None or found is None or self.context.transaction.has_begun:
            return False
        values, end = found
        if not call.is_valid(self._interpreter, self.context):
            self._call = None
            return False
        try:
            answer = call.answer(values)
        except Exception:
            return False  # handling the messages one by one reports the error at the right message
        self._connection.take_call(end)
        self._connection.send_encoded(answer)
        self._kind = SELECT
        self._count(OK)
        self._interpreter.portals.close_all()
        self._ready()
        return True

    async def _execute_portal(self, portal: Portal, limit: int) -> None:
        first = portal.result is None
        self.context.ends_at_sync = True
        try:
            await self._run_portal(portal, limit, describe=False)
        except BaseException as error:
            self._fail(self._told(error))
        else:
            if first:
                self._count(OK)

    # -- running ------------------------------------------------------------------------------------------------

    def _check_failed(self, statement: s.Statement | None) -> None:
        if self.context.transaction.failed and not isinstance(statement, s.Commit | s.Rollback | None):
            raise PgError(
                SqlState.IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )

    async def _run_portal(self, portal: Portal, limit: int, *, describe: bool) -> None:
        """Runs or continues a portal. Sends at most `limit` rows, 0: all. `describe`: sends RowDescription first."""
        statement = portal.prepared.statement
        if statement is None:
            self._connection.send(m.EmptyQueryResponse())
            return
        self._check_failed(statement)
        begins = portal.result is None
        if portal.result is None:
            self.context.begin_statement()
            match statement:
                case s.CopyTo():
                    assert portal.prepared.plan is not None
                    plan = portal.prepared.plan
                    await copy_to(self.context, self._sender, statement, plan)
                    portal.done = True
                    return
                case s.CopyFrom():
                    portal.result = await copy_from(self.context, self._sender, self._data_came, statement)
                case s.Fetch():
                    self._interpreter.check_fetch_limit(statement, limit)
                    portal.result = await self.context.described(lambda: self._interpreter.fetch(statement))
                case _:
                    portal.result = await self._executed(portal, describe=describe)
            self._sender.send_notices(self.context.notices)
        elif portal.done and isinstance(statement, s.Declare | s.CloseCursor):
            raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, 'portal "" cannot be run')
        rows = portal.result.rows
        if rows is None:
            portal.done = True
            alone = describe and not self._interpreter.several
            if alone and not self.context.transaction.explicit and self.context.transaction.has_effects:
                await self.context.commit()  # CommandComplete of a single statement is sent after the commit
            self._connection.send(m.CommandComplete(portal.result.tag))
            return
        if describe:
            self._connection.send(row_description(rows.fields, portal.column_formats()))
        if isinstance(rows, SubscriptionRows) and begins and not portal.cursor:
            self._connection.send(m.NoticeResponse.of(_streaming_notice(self.context)))
        await self._send_rows(portal, rows, limit)

    async def _executed(self, portal: Portal, *, describe: bool) -> Result:
        """Executes a portal. As in PostgreSQL, RowDescription precedes the error of a SELECT that has begun to run."""
        try:
            execute = self._interpreter.execute
            return await self.context.described(lambda: execute(portal.prepared, portal.parameters))
        except BaseException as error:
            plan = portal.prepared.plan
            runs = isinstance(plan, QueryPlan) and bool(plan.inputs) and isinstance(portal.prepared.statement, s.Select)
            if describe and runs and _is_runtime_error(error) and portal.prepared.fields is not None:
                self._connection.send(row_description(portal.prepared.fields, portal.column_formats()))
            raise

    async def _send_rows(self, portal: Portal, rows: Rows, limit: int) -> None:
        style = self.context.settings.output_style
        formats = portal.column_formats()
        encoder = RowEncoder([field.type for field in rows.fields], formats, style)
        encode = encode_table(encoder.encode)
        key = ("rows", tuple(formats), style)
        sent = 0
        if isinstance(rows, SubscriptionRows) and limit == 0:
            rows.interrupt_by(self._interrupt)
            sent = await rows.send(key, encode, self._sender)
        while not rows.finished and (limit == 0 or sent < limit):
            if isinstance(rows, SubscriptionRows):
                self._sender.flush()
            table = await rows.take(min(limit - sent, TAKEN_ROWS) if limit else TAKEN_ROWS)
            await self._sender.write_table(table, encode)
            sent += table.num_rows
        if limit and sent == limit:
            self._connection.send(m.PortalSuspended())
        else:
            portal.done = True
            assert portal.result is not None
            self._connection.send(m.CommandComplete(portal.result.tag.format(sent)))


def _release(prepared: Prepared) -> None:
    """Frees the syntax tree of a long query or write that will not run again."""
    match prepared.statement:
        case s.Select(text=text, query=query) | s.Insert(text=text, source=s.Query() as query):
            release_later(text, release, query.tree)
        case _:
            pass


def _is_runtime_error(error: BaseException) -> bool:
    """Whether the error arose while the statement ran, as opposed to a refusal to run it.

    Runtime errors are evaluation errors, cancels, and a lack of memory, disk space or Spark.
    """
    if isinstance(error, asyncio.CancelledError):
        return True
    return isinstance(error, PgError) and error.sqlstate.startswith(_RUNTIME_ERRORS)


_RUNTIME_ERRORS = ("21", "22", "53", "54", "57", "58", "XX")  # classes of SQLSTATE


def _begin_follows(statements: Sequence[s.Statement]) -> list[bool]:
    """For each statement, whether BEGIN is the next statement of its query string that begins or ends a block."""
    follows: list[bool] = []
    begins = False
    for statement in reversed(statements):
        follows.append(begins)
        if isinstance(statement, s.Begin):
            begins = True
        elif isinstance(statement, s.Commit | s.Rollback):
            begins = False
    return follows[::-1]


def _never_changes(plan: QueryPlan, statement: s.Select) -> bool:
    return plan.constant is not None and not plan.uses_session and not plan.parameters and statement.as_of is None


def _whole_answer(plan: QueryPlan, context: Context) -> bytes:
    """Returns the complete answer to a Query message, except ReadyForQuery."""
    assert plan.constant is not None
    batch = plan.constant.evaluate(context.bindings())
    formats = [0] * len(plan.columns)
    rows = RowEncoder([field.type for field in plan.columns], formats, context.settings.output_style).encode(batch)
    done = m.CommandComplete(f"SELECT {batch.num_rows}")
    return row_description(plan.columns, formats).serialize() + rows + done.serialize()


def _streaming_notice(context: Context) -> Notice:
    psql = context.settings["application_name"] == "psql"
    return Notice(
        "streaming SUBSCRIBE rows directly requires a client that does not buffer output",
        sqlstate=SqlState.WARNING,
        hint="Wrap your SUBSCRIBE statement in COPY (SUBSCRIBE ...) TO STDOUT." if psql else None,
    )


def _declared_type(oid: int) -> PgType | None:
    if oid in (0, 705):
        return None
    if oid not in BY_OID:
        raise PgError(SqlState.UNDEFINED_OBJECT, f"type with OID {oid} is not supported")
    return BY_OID[oid]


UNKNOWN, SELECT, COMMIT = "unknown", "select", "commit"


def kind_of(statement: s.Statement | None) -> str:
    """A statement's class as metrics name it, such as `create_table`."""
    return "empty" if statement is None else _snake(type(statement).__name__)


@functools.cache
def _snake(name: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


_PARSE_COMPLETE = m.ParseComplete().serialize()
_BIND_COMPLETE = m.BindComplete().serialize()
_READY = {
    "I": m.ReadyForQuery("I").serialize(),
    "T": m.ReadyForQuery("T").serialize(),
    "E": m.ReadyForQuery("E").serialize(),
}

Work = Coroutine[Any, Any, None]

_HANDLERS: dict[type[FrontendMessage], Callable[[Session, Any], Work | None]] = {
    m.Query: Session._query_message,
    m.Parse: Session._parse_message,
    m.Bind: Session._bind_message,
    m.Describe: Session._describe_message,
    m.Execute: Session._execute_message,
    m.Close: Session._close_message,
    m.Sync: Session._sync_message,
    m.Flush: Session._flush_message,
    m.FunctionCall: Session._function_call_message,
}
