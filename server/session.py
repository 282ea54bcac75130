"""One client: its statements, portals and transaction, between the protocol's messages and what they do.

    listener -> received(data) -> messages -> here -> execution/* -> rows -> encoder -> the socket

Messages are taken one at a time. One that can be answered at once is; one that must wait becomes the session's task,
and the next message is not looked at before it is done. That task is what a CancelRequest cancels and what the
client's disappearance ends; whatever it holds is released on its way out.

Rows leave in chunks; between chunks the task waits until the socket has taken what was written, so a client that does
not read holds back its own query and nobody else's.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

import pyarrow as pa
import structlog

from catalog.log import Damaged
from catalog.objects import Table
from protocol.pgwire import messages as m
from protocol.pgwire.connection import EOF, NEED_DATA, Connection, Phase
from protocol.pgwire.copy_in import CopyDecoder
from protocol.pgwire.copy_options import CopyOptions
from protocol.pgwire.decode import decode_parameter
from protocol.pgwire.encode import CopyEncoder, RowEncoder
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.messages import FieldDescription, FrontendMessage
from protocol.pgwire.single_row import encode_row
from protocol.pgwire.types import BY_OID, PgType, parse_type
from server.context import Context
from server.execution import definitions, show, writes
from server.execution.arguments import execute_arguments
from server.execution.names import find_relation
from server.execution.prepare import Prepared, plan_copy, plan_key, plan_statement, prepare
from server.execution.query import select
from server.execution.subscribe import SubscribePlan, subscribe
from server.execution.times import fetch_timeout_s
from server.portals import Portal, Portals
from server.results import Result, Rows, SubscriptionRows, TableRows
from server.sql import statements as s
from server.sql.parse import parse
from server.sql.plan import Field, QueryPlan, WritePlan
from server.transaction import Mode

log = structlog.get_logger()

CHUNK_ROWS = 8_192  # encoded and written at once: some hundred KiB
THREAD_ROWS = 1_024  # chunks from this size on are encoded in a thread, so that others are answered meanwhile
COPY_FEED_BYTES = 1024 * 1024  # COPY data gathered before it is decoded
PARSED_TEXTS_MAX = 4_096
PARSED_TEXT_CHARS_MAX = 8_192

_parse_cached = functools.lru_cache(PARSED_TEXTS_MAX)(parse)


def _parse(text: str) -> tuple[s.Statement, ...]:
    return tuple(_parse_cached(text) if len(text) <= PARSED_TEXT_CHARS_MAX else parse(text))


class Transport(Protocol):
    """The listener's end: bytes out, and a pause when the socket takes no more."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    async def drained(self) -> None: ...
    def limit_input(self, waiting: int) -> None: ...


@dataclass(slots=True)
class PlanCache:
    """Plans of whole query strings, shared by all sessions; dropped whole when it is full."""

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
        self._named: dict[str, Prepared] = {}
        self._portals = Portals()
        self._task: asyncio.Task[None] | None = None
        self._cancel_reason: PgError | None = None
        self._data_came = asyncio.Event()
        self._several = False  # the Query message holds several statements: they are a transaction block
        self._deadline: asyncio.Timeout | None = None
        self._reported = context.settings.reported()
        self._idle_timer: asyncio.TimerHandle | None = None

    # -- the listener's side ------------------------------------------------------------------------------------

    def received(self) -> None:
        """Bytes have come for the connection."""
        self._data_came.set()
        self._pump()

    def cancel(self) -> None:
        """A CancelRequest. Between statements it does nothing, as in PostgreSQL."""
        if self._task is not None:
            self._cancel_reason = PgError(SqlState.QUERY_CANCELED, "canceling statement due to user request")
            self._task.cancel()

    def lost(self) -> None:
        """The client is gone: whatever runs ends, whatever is held is let go."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._close()

    def terminate(self, error: PgError) -> None:
        """Ends the session with a FATAL error."""
        if self._connection.phase is not Phase.CLOSED:
            self._connection.send(m.ErrorResponse.of(error))
            self._flush()
        self._transport.close()
        self.lost()

    def _close(self) -> None:
        self._stop_idle_timer()
        self._portals.close_all()
        self.context.rollback()

    # -- messages -----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Takes messages until there is none, or one has to be waited for."""
        while self._task is None:
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
                self._task = asyncio.create_task(self._run(work))
        self._flush()
        self._transport.limit_input(self._connection.bytes_waiting if self._task is not None else 0)

    def _refused(self, error: PgError) -> None:
        """A message that the protocol layer did not take."""
        self._fail(error)
        if error.severity is Severity.FATAL:
            self._flush()
            self._transport.close()
        elif self._connection.phase is Phase.READY:
            self._ready()

    def _handle(self, event: FrontendMessage) -> Coroutine[Any, Any, None] | None:
        """Answers a message at once, or returns the work that it takes."""
        match event:
            case m.Query(text=text):
                return None if self._answer_at_once(text) else self._query(text)
            case m.Sync():
                if self._settled():
                    self._ready()
                    return None
                return self._sync()
            case m.FunctionCall():
                self._fail(PgError(SqlState.FEATURE_NOT_SUPPORTED, "function calls by message are not supported"))
                self._ready()
                return None
            case m.Flush():
                return None
            case m.Execute(portal=name, max_rows=limit):
                return self._guarded(lambda: self._execute_message(name, limit))
            case m.Parse() | m.Bind() | m.Describe() | m.Close():
                return self._guarded(lambda: self._extended(event))
            case _:
                return None

    def _guarded(self, act: Callable[[], Coroutine[Any, Any, None] | None]) -> Coroutine[Any, Any, None] | None:
        """Runs the synchronous part of an extended message; its errors are the client's."""
        try:
            return act()
        except PgError as error:
            self._fail(error)
        except Exception as error:
            self._fail(_internal(error))
        return None

    async def _run(self, work: Awaitable[None]) -> None:
        """The session's task: one message's work, then the messages that came meanwhile."""
        try:
            timeout_s = self.context.settings.timeout_s("statement_timeout")
            async with asyncio.timeout(timeout_s) as deadline:
                self._deadline = deadline
                await work
        except asyncio.CancelledError:
            pass  # the client is gone; a cancelled statement was answered inside
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

    def _flush(self) -> None:
        data = self._connection.data_to_send()
        if data:
            self._transport.write(data)

    def _ready(self) -> None:
        transaction = self.context.transaction
        self._report_settings()
        self._connection.send(m.ReadyForQuery("E" if transaction.failed else "T" if transaction.explicit else "I"))
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
        reported = self.context.settings.reported()
        if reported != self._reported:
            for name, value in reported.items():
                if self._reported.get(name) != value:
                    self._connection.send(m.ParameterStatus(name, value))
            self._reported = reported

    def _fail(self, error: PgError) -> None:
        """Tells the client, and fails or rolls back the transaction."""
        self._send_notices()
        self._connection.send(m.ErrorResponse.of(error))
        if self.context.transaction.explicit:
            self.context.transaction.failed = True
            self.context.transaction.release()
            self._portals.close_all()
        else:
            self._portals.close_all()
            self.context.rollback()

    def _send_notices(self) -> None:
        for notice in self.context.notices:
            self._connection.send(m.NoticeResponse.of(notice))
        self.context.notices.clear()

    # -- simple query -------------------------------------------------------------------------------------------

    def _answer_at_once(self, text: str) -> bool:
        """Answers a query string whose rows never change from what was answered before."""
        context = self.context
        if context.transaction.explicit:
            return False
        prepared = self._plans.get((text, *plan_key(context)))  # type: ignore[misc]
        if prepared is None:
            return False
        answer = prepared.answers.get(context.settings.output_style)
        if answer is None:
            return False
        self._connection.send_encoded(answer)
        self._ready()
        return True

    async def _query(self, text: str) -> None:
        """A Query message: parsed whole before anything runs; one transaction unless it says otherwise."""
        self._named.pop("", None)  # as PostgreSQL drops the unnamed statement and portal
        self._portals.close("")
        try:
            large = len(text) > PARSED_TEXT_CHARS_MAX
            statements = await asyncio.to_thread(_parse, text) if large else _parse(text)
            if not statements:
                self._connection.send(m.EmptyQueryResponse())
            self._several = len(statements) > 1
            for statement in statements:
                await self._simple_statement(statement, text if len(statements) == 1 else None)
            await self._end_implicit()
        except BaseException as error:
            self._fail(self._told(error))
        self._ready()

    async def _simple_statement(self, statement: s.Statement, whole_text: str | None) -> None:
        prepared = self._prepare_simple(statement, whole_text)
        if prepared.parameters:
            raise PgError(SqlState.UNDEFINED_PARAMETER, "there is no parameter $1")
        await self._run_portal(Portal(prepared), 0, describe=True)

    def _prepare_simple(self, statement: s.Statement, whole_text: str | None) -> Prepared:
        """Plans a statement of a Query message; plans of lone SELECTs are kept by their text."""
        context = self.context
        self._check_failed(statement)
        if not isinstance(statement, s.Select) or whole_text is None or context.transaction.catalog is not None:
            return prepare(context, statement, (), self._portals.prepared(), self._named)
        key = (whole_text, *plan_key(context))  # type: ignore[misc]
        prepared = self._plans.get(key)
        if prepared is None:
            prepared = prepare(context, statement)
            if len(whole_text) <= PARSED_TEXT_CHARS_MAX:
                self._plans.put(key, prepared)
        if isinstance(prepared.plan, QueryPlan) and _never_changes(prepared.plan, statement):
            style = context.settings.output_style
            if style not in prepared.answers:
                prepared.answers[style] = _whole_answer(prepared.plan, context)
        return prepared

    def _settled(self) -> bool:
        """Whether ending the implicit transaction takes no waiting."""
        transaction = self.context.transaction
        if transaction.explicit:
            return True
        if transaction.writes or transaction.payloads or transaction.catalog is not None or transaction.local:
            return False
        self._portals.close_all()
        if transaction.holder is not None or transaction.mode is not Mode.UNDECIDED or transaction.locked:
            self.context.end_reads()
        return True

    async def _sync(self) -> None:
        try:
            await self._end_implicit()
        except BaseException as error:
            self._fail(self._told(error))
        self._ready()

    async def _end_implicit(self) -> None:
        if not self.context.transaction.explicit:
            self._portals.close_all()
            await self.context.commit()

    def _told(self, error: BaseException) -> PgError:
        """What the client is told of an exception; CancelledError of a vanished client passes on."""
        match error:
            case PgError():
                return error
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
            case RecursionError():
                return PgError(
                    SqlState.STATEMENT_TOO_COMPLEX,
                    "stack depth limit exceeded",
                    hint="Write the statement with less nesting.",
                )
            case Exception():
                return _internal(error)
            case _:
                raise error

    # -- extended query -----------------------------------------------------------------------------------------

    def _extended(self, event: FrontendMessage) -> None:
        """Parse, Bind, Describe and Close: nothing of them waits."""
        match event:
            case m.Parse():
                self._parse_message(event)
            case m.Bind():
                self._bind_message(event)
            case m.Describe(kind="S", name=name):
                self._describe_statement(self._statement(name))
            case m.Describe(name=name):
                portal = self._portals.get(name)
                self._replan_portal(portal)
                self._connection.send(_row_description(portal.prepared.fields, portal.column_formats()))
            case m.Close(kind="S", name=name):
                self._named.pop(name, None)
                self._connection.send(m.CloseComplete())
            case m.Close(name=name):
                self._portals.close(name)
                self._connection.send(m.CloseComplete())
            case _:
                raise AssertionError(event)

    def _statement(self, name: str) -> Prepared:
        prepared = self._named.get(name)
        if prepared is None:
            raise PgError(
                SqlState.INVALID_SQL_STATEMENT_NAME,
                f'prepared statement "{name}" does not exist' if name else "unnamed prepared statement does not exist",
            )
        return prepared

    def _parse_message(self, message: m.Parse) -> None:
        if message.name and message.name in self._named:
            raise PgError(SqlState.DUPLICATE_PREPARED_STATEMENT, f'prepared statement "{message.name}" already exists')
        statements = _parse(message.text)
        if len(statements) > 1:
            raise PgError(SqlState.SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement")
        statement = statements[0] if statements else None
        self._check_failed(statement)
        types = [_declared_type(oid) for oid in message.parameter_oids]
        context = self.context
        key = (message.text, message.parameter_oids, *plan_key(context))  # type: ignore[misc]
        prepared = self._plans.get(key) if context.transaction.catalog is None else None
        if prepared is None:
            prepared = prepare(context, statement, types, self._portals.prepared(), self._named)
            if isinstance(statement, s.Select) and context.transaction.catalog is None:
                self._plans.put(key, prepared)
        self._named[message.name] = prepared
        self._connection.send(m.ParseComplete())

    def _bind_message(self, message: m.Bind) -> None:
        prepared = self._fresh(self._statement(message.statement))
        self._check_failed(prepared.statement)
        given, wanted = len(message.parameters), len(prepared.parameters)
        if given != wanted:
            raise PgError(
                SqlState.PROTOCOL_VIOLATION,
                f"bind message supplies {given} parameters, "
                f'but prepared statement "{message.statement}" requires {wanted}',
            )
        formats = message.parameter_formats
        values = tuple(
            decode_parameter(type, formats[i] if len(formats) > 1 else formats[0] if formats else 0, data)
            for i, (type, data) in enumerate(zip(prepared.parameters, message.parameters, strict=True))
        )
        portal = Portal(prepared, values, message.result_formats)
        portal.column_formats()
        self._portals.add(message.portal, portal)
        self._connection.send(m.BindComplete())

    def _fresh(self, prepared: Prepared) -> Prepared:
        """The statement planned against the present catalog. PgError if its result has become another."""
        if prepared.key == plan_key(self.context) and not isinstance(prepared.statement, s.Fetch):
            return prepared
        fresh = prepare(self.context, prepared.statement, prepared.declared, self._portals.prepared(), self._named)
        if prepared.fields is not None and _types(fresh) != _types(prepared):
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
        return fresh

    def _replan_portal(self, portal: Portal) -> None:
        """A cursor's statement is planned when it is first looked at."""
        if portal.cursor and portal.prepared.plan is None and portal.prepared.fields is None:
            portal.prepared = prepare(self.context, portal.prepared.statement)

    def _describe_statement(self, prepared: Prepared) -> None:
        self._connection.send(m.ParameterDescription(tuple(type.oid for type in prepared.parameters)))
        if isinstance(prepared.statement, s.Fetch):
            cursor = self._portals.cursor(prepared.statement.cursor.name)
            self._replan_portal(cursor)
            prepared.fields = cursor.prepared.fields
        self._connection.send(_row_description(prepared.fields, [0] * len(prepared.fields or ())))

    def _execute_message(self, name: str, limit: int) -> Coroutine[Any, Any, None] | None:
        portal = self._portals.get(name)
        plan = portal.prepared.plan
        statement = portal.prepared.statement
        if (
            portal.result is None
            and isinstance(statement, s.Select)
            and statement.as_of is None
            and isinstance(plan, QueryPlan)
            and plan.constant is not None
            and plan.constant.is_single_row
            and not self.context.transaction.failed
        ):
            self._send_constant(portal, plan)
            return None
        return self._execute_portal(portal, limit)

    def _send_constant(self, portal: Portal, plan: QueryPlan) -> None:
        """One row that takes no reading: the whole answer at once."""
        assert plan.constant is not None
        context = self.context
        context.begin_statement()
        values = plan.constant.evaluate_row(context.bindings(portal.parameters, context.coordinator.latest_time()))
        types = [field.type for field in plan.columns]
        formats = portal.column_formats()
        self._connection.send_encoded(encode_row(types, formats, values, context.settings.output_style))
        self._connection.send(m.CommandComplete("SELECT 1"))
        portal.result, portal.done = Result("SELECT {}", TableRows(plan.columns, _no_rows(plan.columns))), True

    async def _execute_portal(self, portal: Portal, limit: int) -> None:
        try:
            await self._run_portal(portal, limit, describe=False)
        except BaseException as error:
            self._fail(self._told(error))

    # -- running ------------------------------------------------------------------------------------------------

    def _check_failed(self, statement: s.Statement | None) -> None:
        if self.context.transaction.failed and not isinstance(statement, s.Commit | s.Rollback | None):
            raise PgError(
                SqlState.IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )

    async def _run_portal(self, portal: Portal, limit: int, *, describe: bool) -> None:
        """Runs a portal or goes on with it; at most `limit` rows leave, 0: all. `describe`: RowDescription first."""
        statement = portal.prepared.statement
        if statement is None:
            self._connection.send(m.EmptyQueryResponse())
            return
        self._check_failed(statement)
        if portal.result is None:
            self.context.begin_statement()
            match statement:
                case s.CopyTo():
                    await self._copy_to(portal, statement)
                    return
                case s.CopyFrom():
                    portal.result = await self._copy_from(statement)
                case s.Fetch():
                    self._check_fetch_limit(statement, limit)
                    portal.result = await self._fetch(statement)
                case _:
                    portal.result = await self._execute(portal.prepared, portal.parameters)
            self._send_notices()
        elif portal.done and isinstance(statement, s.Declare | s.CloseCursor):
            raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, 'portal "" cannot be run')
        rows = portal.result.rows
        if rows is None:
            portal.done = True
            self._connection.send(m.CommandComplete(portal.result.tag))
            return
        if describe:
            self._connection.send(_row_description(rows.fields, portal.column_formats()))
        if isinstance(rows, SubscriptionRows) and not portal.cursor:
            self._connection.send(m.NoticeResponse.of(_streaming_notice(self.context)))
        await self._send_rows(portal, rows, limit)

    async def _send_rows(self, portal: Portal, rows: Rows, limit: int) -> None:
        style = self.context.settings.output_style
        formats = portal.column_formats()
        encoder = RowEncoder([field.type for field in rows.fields], formats, style)
        encode = _encode_with(encoder.encode)
        key = ("rows", tuple(formats), style)
        sent = 0
        while not rows.finished and (limit == 0 or sent < limit):
            if isinstance(rows, SubscriptionRows) and limit == 0:
                self._flush()
                count, pieces = await rows.take_encoded(key, encode)
                for piece in pieces:
                    await self._write(piece)
                sent += count
                continue
            if isinstance(rows, SubscriptionRows):
                self._flush()
            table = await rows.take(min(limit - sent, CHUNK_ROWS) if limit else CHUNK_ROWS)
            await self._write_rows(table, encoder.encode)
            sent += table.num_rows
        if limit and sent == limit:
            self._connection.send(m.PortalSuspended())
        else:
            portal.done = True
            assert portal.result is not None
            self._connection.send(m.CommandComplete(portal.result.tag.format(sent)))

    async def _write_rows(self, table: pa.Table, encode: Callable[[pa.RecordBatch], bytes]) -> None:
        """Encodes and writes a chunk; returns when the socket can take the next."""
        for batch in table.combine_chunks().to_batches():
            if batch.num_rows >= THREAD_ROWS:
                await self._write(await asyncio.to_thread(encode, batch))
            else:
                await self._write(encode(batch))

    async def _write(self, data: bytes) -> None:
        if data:
            self._flush()
            self._transport.write(data)
            await self._transport.drained()

    async def _execute(self, prepared: Prepared, parameters: tuple[object, ...]) -> Result:
        """What a statement does, by its class. Whatever it plans was planned before."""
        context = self.context
        statement, plan = prepared.statement, prepared.plan
        match statement, plan:
            case s.Select(), QueryPlan():
                return await select(context, plan, statement.as_of, parameters)
            case ((s.Insert() | s.Update() | s.Delete()), WritePlan()):
                return await writes.write(context, plan, type(statement).__name__.upper(), parameters)
            case s.Subscribe(), SubscribePlan():
                return await subscribe(context, statement, plan)
            case s.Truncate(tables=names), _:
                items = [find_relation(context, name) for name in names]
                tables = [writes.table_for_writing(context, i.id, i.name, "truncate") for i in items]
                return await writes.truncate(context, tables)
            case (
                (
                    s.CreateDatabase()
                    | s.CreateSchema()
                    | s.CreateTable()
                    | s.CreateView()
                    | s.CreateMaterializedView()
                    | s.CreateIndex()
                    | s.DropObjects()
                    | s.AlterRename()
                ),
                _,
            ):
                return await definitions.define(context, statement)
            case ((s.Begin() | s.Commit() | s.Rollback() | s.Savepoint() | s.SetTransaction()), _):
                return await self._transaction_statement(statement)
            case ((s.SetVariable() | s.ResetVariable() | s.Discard()), _):
                return self._setting_statement(statement)
            case ((s.ShowVariable() | s.ShowObjects() | s.ShowColumns() | s.ShowCreate()), _):
                return show.show(context, statement)
            case s.Explain(), _:
                return self._explain(statement)
            case ((s.Prepare() | s.Execute() | s.Deallocate()), _):
                return await self._prepared_statement(statement)
            case ((s.Declare() | s.CloseCursor()), _):
                return self._cursor_statement(statement)
            case s.Unlisten(), _:
                return Result("UNLISTEN")
            case _:
                raise AssertionError(statement)

    # -- statements that belong to the session --------------------------------------------------------------------

    async def _transaction_statement(
        self, statement: s.Begin | s.Commit | s.Rollback | s.Savepoint | s.SetTransaction
    ) -> Result:
        context = self.context
        transaction = context.transaction
        match statement:
            case s.Begin(tag=tag, modes=modes):
                if transaction.explicit:
                    context.notice(
                        _warning(SqlState.ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress")
                    )
                else:
                    await context.commit()
                    context.transaction.explicit = True
                self._set_modes(modes)
                return Result(tag)
            case s.Commit():
                if not transaction.explicit:
                    context.notice(_warning(SqlState.NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"))
                self._portals.close_all()
                if transaction.failed:
                    context.rollback()
                    return Result("ROLLBACK")
                await context.commit()
                return Result("COMMIT")
            case s.Rollback():
                if not transaction.explicit:
                    context.notice(_warning(SqlState.NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"))
                self._portals.close_all()
                context.rollback()
                return Result("ROLLBACK")
            case s.SetTransaction(modes=modes, session=session):
                if session:
                    if modes.isolation is not None:
                        context.settings.set("transaction_isolation", modes.isolation)
                elif not transaction.explicit:
                    context.notice(
                        _warning(
                            SqlState.NO_ACTIVE_SQL_TRANSACTION, "SET TRANSACTION can only be used in transaction blocks"
                        )
                    )
                else:
                    self._set_modes(modes)
                return Result("SET")
            case s.Savepoint(verb=verb):
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{verb} is not supported")
            case _:
                assert_never(statement)

    def _set_modes(self, modes: s.TransactionModes) -> None:
        if modes.isolation is not None:
            self._set_local("transaction_isolation", modes.isolation)
        if modes.read_only is not None:
            self.context.transaction.read_only = modes.read_only

    def _set_local(self, name: str, value: str) -> None:
        context = self.context
        if context.transaction.local is None:
            context.transaction.local = context.settings.copy()
        context.settings.set(name, value)

    def _setting_statement(self, statement: s.SetVariable | s.ResetVariable | s.Discard) -> Result:
        context = self.context
        match statement:
            case s.SetVariable(name=name, values=values, local=local, is_default=is_default):
                if local and not context.transaction.explicit:
                    context.notice(
                        _warning(SqlState.NO_ACTIVE_SQL_TRANSACTION, "SET LOCAL can only be used in transaction blocks")
                    )
                elif is_default:
                    context.settings.reset(name)
                elif local:
                    self._set_local(name, ", ".join(values))
                else:
                    context.settings.set(name, ", ".join(values))
                return Result("SET")
            case s.ResetVariable(name=variable):
                context.settings.reset(variable)
                return Result("RESET")
            case s.Discard(target=target):
                if target == "ALL":
                    if context.transaction.explicit:
                        raise PgError(
                            SqlState.ACTIVE_SQL_TRANSACTION, "DISCARD ALL cannot run inside a transaction block"
                        )
                    self._portals.close_all()
                    self._named.clear()
                    context.settings.reset(None)
                return Result(f"DISCARD {target}")
            case _:
                assert_never(statement)

    def _explain(self, statement: s.Explain) -> Result:
        if statement.timestamp:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "EXPLAIN TIMESTAMP is not supported yet")
        inner = statement.statement
        match inner:
            case s.Select() | s.Insert() | s.Update() | s.Delete():
                plan = plan_statement(self.context, inner)
                return show.explain(self.context, plan.query if isinstance(plan, WritePlan) else plan, "")
            case s.Subscribe():
                subscribe_plan = prepare(self.context, inner).plan
                assert isinstance(subscribe_plan, SubscribePlan)
                return show.explain(self.context, subscribe_plan.query, "")
            case s.CreateView(query=query) | s.CreateMaterializedView(query=query):
                plan = plan_statement(self.context, s.Select(query.text, query.offset, query))
                return show.explain(self.context, plan if isinstance(plan, QueryPlan) else None, "")
            case s.Execute(name=name):
                named = self._statement(name.name).plan
                return show.explain(self.context, named if isinstance(named, QueryPlan) else None, "EXECUTE")
            case _:
                assert_never(inner)

    async def _prepared_statement(self, statement: s.Prepare | s.Execute | s.Deallocate) -> Result:
        match statement:
            case s.Prepare(name=name, types=types, statement=inner):
                if name.name in self._named:
                    raise PgError(
                        SqlState.DUPLICATE_PREPARED_STATEMENT, f'prepared statement "{name.name}" already exists'
                    )
                self._named[name.name] = prepare(self.context, inner, types)
                return Result("PREPARE")
            case s.Execute(name=name, arguments=arguments):
                prepared = self._fresh(self._statement(name.name))
                values = execute_arguments(self.context, name.name, arguments, prepared.parameters)
                return await self._execute(prepared, values)
            case s.Deallocate(name=None):
                self._named.clear()
                return Result("DEALLOCATE ALL")
            case s.Deallocate(name=ident):
                assert ident is not None
                self._statement(ident.name)
                del self._named[ident.name]
                return Result("DEALLOCATE")
            case _:
                assert_never(statement)

    def _cursor_statement(self, statement: s.Declare | s.CloseCursor) -> Result:
        match statement:
            case s.Declare(name=name, statement=inner):
                if not self.context.transaction.explicit and not self._several:
                    raise PgError(
                        SqlState.NO_ACTIVE_SQL_TRANSACTION, "DECLARE CURSOR can only be used in transaction blocks"
                    )
                self._portals.add(name.name, Portal(Prepared(inner, None), cursor=True))
                return Result("DECLARE CURSOR")
            case s.CloseCursor(name=None):
                self._portals.close_all()
                return Result("CLOSE CURSOR ALL")
            case s.CloseCursor(name=ident):
                assert ident is not None
                self._portals.cursor(ident.name)
                self._portals.close(ident.name)
                return Result("CLOSE CURSOR")
            case _:
                assert_never(statement)

    @staticmethod
    def _check_fetch_limit(statement: s.Fetch, limit: int) -> None:
        if limit and (statement.count is None or limit < statement.count):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "Execute with max_rows of a FETCH ALL is not supported"
                if statement.count is None
                else "Execute with max_rows < a FETCH's count is not supported",
            )

    async def _fetch(self, statement: s.Fetch) -> Result:
        """Rows of a cursor; its statement is planned and started by the first FETCH, also by FETCH 0."""
        cursor = self._portals.cursor(statement.cursor.name)
        self._replan_portal(cursor)
        timeout_s = fetch_timeout_s(statement.timeout)
        if cursor.result is None:
            cursor.result = await self._execute(cursor.prepared, cursor.parameters)
        rows = cursor.result.rows
        assert rows is not None
        if isinstance(rows, SubscriptionRows) and timeout_s is not None:
            table = await rows.take_ready(statement.count, timeout_s)
        else:
            table = await rows.take(statement.count)
        return Result("FETCH {}", TableRows(rows.fields, table))

    # -- COPY ---------------------------------------------------------------------------------------------------

    async def _copy_to(self, portal: Portal, statement: s.CopyTo) -> None:
        """COPY ... TO STDOUT: CopyOutResponse before the first row is known, then one CopyData a row."""
        options = CopyOptions.of(statement.options, reading=False)
        plan = portal.prepared.plan if portal.prepared.plan is not None else plan_copy(self.context, statement)
        inner = statement.source
        match plan:
            case SubscribePlan():
                assert isinstance(inner, s.Subscribe)
                fields = plan.envelope.fields
                running = subscribe(self.context, inner, plan)
            case WritePlan():
                assert plan.returning is not None
                fields = plan.query.columns[plan.returning]
                running = writes.write(self.context, plan, type(inner).__name__.upper(), ())
            case QueryPlan():
                fields = plan.columns
                running = select(self.context, plan, inner.as_of if isinstance(inner, s.Select) else None, ())
        encoder = CopyEncoder(
            [f.type for f in fields], options, self.context.settings.output_style, [f.name for f in fields]
        )
        result = await running
        assert result.rows is not None
        portal.result = result
        self._send_notices()
        format = 1 if options.is_binary else 0
        self._connection.send(m.CopyOutResponse(format, (format,) * len(fields)))
        self._connection.send_encoded(encoder.header())
        self._flush()
        sent = await self._copy_rows(
            result.rows, encoder, ("copy", statement.options, self.context.settings.output_style)
        )
        self._connection.send_encoded(encoder.trailer())
        self._connection.send(m.CopyDone(), m.CommandComplete(f"COPY {sent}"))
        portal.done = True

    async def _copy_rows(self, rows: Rows, encoder: CopyEncoder, key: object) -> int:
        sent = 0
        try:
            while not rows.finished:
                if isinstance(rows, SubscriptionRows):
                    count, pieces = await rows.take_encoded(key, _encode_with(encoder.encode_rows))
                    for piece in pieces:
                        await self._write(encoder.frame(piece))
                    sent += count
                else:
                    table = await rows.take(CHUNK_ROWS)
                    await self._write_rows(table, encoder.encode)
                    sent += table.num_rows
        finally:
            rows.close()
        return sent

    async def _copy_from(self, statement: s.CopyFrom) -> Result:
        """COPY ... FROM STDIN: the client sends until CopyDone; nothing is loaded if anything of it is wrong."""
        item = find_relation(self.context, statement.table)
        table = writes.table_for_writing(self.context, item.id, item.name, "copy to")
        positions = _copied_columns(table, statement)
        options = CopyOptions.of(statement.options, reading=True)
        columns = [(table.columns[i].name, parse_type(table.columns[i].type)) for i in positions]
        copy = await writes.copy_from(self.context, table, positions, CopyDecoder(columns, options, table.name))
        format = 1 if options.is_binary else 0
        self._connection.send(m.CopyInResponse(format, (format,) * len(positions)))
        self._flush()
        try:
            async for data in self._copy_data():
                await copy.feed(data)
            return await copy.finish()
        except BaseException:
            copy.abandon()
            raise

    async def _copy_data(self) -> AsyncIterator[bytes]:
        """The data of CopyData messages until CopyDone, gathered into larger pieces."""
        pieces: list[bytes] = []
        size = 0
        while True:
            event = self._connection.next_event()
            if isinstance(event, m.CopyData):
                pieces.append(event.data)
                size += len(event.data)
                if size < COPY_FEED_BYTES:
                    continue
            if size:
                yield b"".join(pieces)
                pieces, size = [], 0
            match event:
                case m.CopyDone():
                    return
                case m.CopyFail(message=message):
                    raise PgError(SqlState.QUERY_CANCELED, f"COPY from stdin failed: {message}")
                case _ if event is NEED_DATA:
                    self._data_came.clear()
                    self._transport.limit_input(0)
                    await self._data_came.wait()
                case _ if event is EOF:
                    raise PgError(SqlState.CONNECTION_FAILURE, "unexpected EOF on client connection with an open COPY")
                case _:
                    pass


def _internal(error: BaseException) -> PgError:
    """Our bug, or a machine's fault: the log has the trace, the client one line."""
    if isinstance(error, Damaged):
        log.error("damaged data", error=str(error))
        return PgError(
            SqlState.DATA_CORRUPTED,
            f"data directory is damaged: {error}",
            hint="Restore the data directory from a backup.",
        )
    if "disk is full" in str(error) or (isinstance(error, OSError) and error.errno == 28):
        log.error("disk full", error=str(error))
        return PgError(SqlState.DISK_FULL, "could not write: no space left on device", hint="Free some space.")
    log.error("internal error", error=str(error), exc_info=error)
    return PgError(
        SqlState.INTERNAL_ERROR, f"internal error: {type(error).__name__}", hint="The server's log has more."
    )


def _never_changes(plan: QueryPlan, statement: s.Select) -> bool:
    return plan.constant is not None and not plan.uses_session and not plan.parameters and statement.as_of is None


def _whole_answer(plan: QueryPlan, context: Context) -> bytes:
    """All that a Query message is answered with, but ReadyForQuery."""
    assert plan.constant is not None
    batch = plan.constant.evaluate(context.bindings())
    formats = [0] * len(plan.columns)
    rows = RowEncoder([field.type for field in plan.columns], formats, context.settings.output_style).encode(batch)
    done = m.CommandComplete(f"SELECT {batch.num_rows}")
    return _row_description(plan.columns, formats).serialize() + rows + done.serialize()


def _warning(code: SqlState, message: str) -> Notice:
    return Notice(message, severity=Severity.WARNING, sqlstate=code)


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


def _types(prepared: Prepared) -> list[tuple[str, PgType]]:
    return [(field.name, field.type) for field in prepared.fields or ()]


def _row_description(fields: tuple[Field, ...] | None, formats: list[int]) -> m.RowDescription | m.NoData:
    if fields is None:
        return m.NoData()
    return m.RowDescription(
        tuple(FieldDescription.of(f.name, f.type, format) for f, format in zip(fields, formats, strict=True))
    )


def _no_rows(fields: tuple[Field, ...]) -> pa.Table:
    return pa.table([pa.array([], f.type.arrow) for f in fields], names=[f"c{i}" for i in range(len(fields))])


def _encode_with(encode: Callable[[pa.RecordBatch], bytes]) -> Callable[[pa.Table], bytes]:
    return lambda table: b"".join(map(encode, table.combine_chunks().to_batches()))


def _copied_columns(table: Table, statement: s.CopyFrom) -> tuple[int, ...]:
    names = [column.name for column in table.columns]
    if not statement.columns:
        return tuple(range(len(names)))
    positions: list[int] = []
    for ident in statement.columns:
        if ident.name not in names:
            raise PgError(
                SqlState.UNDEFINED_COLUMN,
                f'column "{ident.name}" of relation "{table.name}" does not exist',
                position=ident.position,
            )
        if names.index(ident.name) in positions:
            raise PgError(
                SqlState.DUPLICATE_COLUMN, f'column "{ident.name}" specified more than once', position=ident.position
            )
        positions.append(names.index(ident.name))
    return tuple(positions)
