"""Answers queries and INSERTs of constants as soon as their messages are read, without a task.

A query of constants reads no relation: `SELECT 1`, `SELECT $1::int`. Clients may send ten thousand of them per second,
so the fixed cost of a statement matters. Measured with pgbench and 32 connections, as the server's CPU time per query:

- A Query message whose result never changes: its encoded answer is cached (12 instead of 160 µs).
- Bind, optionally Describe, Execute and mostly Sync that arrive together, for one constant row: they are answered in
  one step, and only the parameter values are parsed (14 instead of 28 µs). The same holds for an INSERT of constants.
  If there is a Sync and no transaction block, the session commits the INSERT before it answers the Sync.
- The same messages after a Parse of the unnamed statement that the session has sent before (17 instead of 23 µs).
- A Query message with an INSERT of few literal rows: the literals become the parameters of a statement whose plan is
  kept (`literal_rows.py`). The session commits before it sends the answer.
- Another Execute of a portal of one constant row, for example in a transaction block: the row is evaluated and encoded
  without Arrow (28 instead of 178 µs).

Each method returns None if the query is none of these or its evaluation is not cheap (`NotCheap`). The session then
handles the messages one by one, with the same answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from protocol.pgwire.call import CallShape
from protocol.pgwire.connection import Connection
from protocol.pgwire.decode import decode_parameter
from protocol.pgwire.encode import RowEncoder
from protocol.pgwire.errors import PgError
from protocol.pgwire.input_style import InputStyle
from protocol.pgwire.messages.backend import BindComplete, CommandComplete, ParseComplete
from protocol.pgwire.messages.frontend import Parse
from protocol.pgwire.messages.wire_format import HEADER
from protocol.pgwire.single_row import row_writer
from protocol.pgwire.types import PgType
from server.execution.write import add_constants, insert_constants, require_insert
from server.frontend.dispatch import Dispatcher
from server.frontend.query_cache import Cache, QueryCache
from server.frontend.responses import kind_of
from server.runtime.offload import at_once
from server.session_state.context import Context
from server.session_state.portals import Portal
from server.session_state.prepared import Prepared, plan_key, weight
from server.session_state.results import NoRows, Result, row_description
from server.sql.constant import Constant, NotCheap, are_short
from server.sql.grammar.checkpoint import Stopped
from server.sql.grammar.literal_rows import split_few
from server.sql.grammar.statements import Select
from server.sql.plan import QueryPlan
from server.sql.writes.plan import WritePlan

_BIND_COMPLETE = BindComplete().serialize()
_PARSE_COMPLETE = ParseComplete().serialize()
_SELECT_1 = CommandComplete("SELECT 1").serialize()

_Execute = Callable[[tuple[object, ...]], tuple[Result, bytes]]


class CallAnswer(NamedTuple):
    """The answer to a call without that to Sync. `kind`: of the statement. `synced`: Sync was consumed, too."""

    data: bytes
    kind: str
    synced: bool


class ConstantQueries:
    """The constant queries of one session. `answers_select`: whether its rows are DataRow messages."""

    def __init__(
        self, dispatcher: Dispatcher, connection: Connection, cache: QueryCache, *, answers_select: bool
    ) -> None:
        self._dispatcher = dispatcher
        self._connection = connection
        self._cache = cache
        self._answers_select = answers_select
        self._calls: Cache[tuple[Prepared, _Call | None]] = Cache()
        """The calls of statements, by the statement's name, or by the Parse message of the unnamed statement.

        None: they cannot be answered in one step.
        """

    def close(self) -> None:
        """Frees what is kept for the session's statements."""
        self._calls.clear()

    def answer_query(self, text: str) -> bytes | None:
        """Returns the cached answer to a Query message, without ReadyForQuery."""
        if not self._answers_select:
            return None
        context = self._dispatcher.context
        answer = self._cache.answer(context, text)
        if answer is None or not self._is_possible():
            return None
        self._dispatcher.drop_unnamed_statement()
        self._end_query()
        return answer

    def cache_answer(self, text: str, prepared: Prepared) -> None:
        """Caches the answer to a Query message with this single statement, if its result never changes."""
        context, plan = self._dispatcher.context, prepared.plan
        if not (isinstance(plan, QueryPlan) and isinstance(prepared.statement, Select)) or plan.constant is None:
            return
        if plan.uses_session or plan.volatile is not None or plan.parameters or prepared.statement.as_of is not None:
            return
        if not self._cache.keeps(context, text) or self._cache.answer(context, text) is not None:
            return
        with suppress(NotCheap):
            self._cache.put_answer(context, text, prepared, _whole_answer(plan, plan.constant, context))

    def insert_literals(self, text: str) -> CallAnswer | None:
        """Executes a Query message that is an INSERT of few literal rows. The caller commits, then sends the answer."""
        dispatcher = self._dispatcher
        context = dispatcher.context
        if not self._cache.keeps(context, text) or not self._is_possible():
            return None
        literals = split_few(text)
        if literals is None:
            return None
        try:
            prepared = self._cache.plan(context, literals.template)
            if prepared is None:
                (statement,) = self._cache.parsed(literals.template)
                prepared = at_once("", dispatcher.prepare, statement)
                self._cache.put_plan(context, literals.template, prepared)
            plan = prepared.plan
            if not isinstance(plan, WritePlan) or plan.added is None:
                return None
            values = literals.values(prepared.parameters, context.settings.naming[2], context.settings.input_style)
            if values is None or not are_short(values):
                return None
        except Stopped:
            return None  # the rules of the table take long to plan
        except Exception:
            return None  # executing the text value by value reports the error with its position
        return self.insert_prepared(prepared, values)

    def insert_prepared(self, prepared: Prepared, values: tuple[object, ...]) -> CallAnswer | None:
        """As `insert_literals`, if the plan is that of an INSERT of constants. `values`: of its parameters."""
        context, plan = self._dispatcher.context, prepared.plan
        if not isinstance(plan, WritePlan) or plan.added is None or not self._is_possible():
            return None
        context.volatile.begin()
        try:
            context.begin_statement()
            result = insert_constants(context, plan, plan.added, values)
        except Exception:
            context.volatile.undo()
            return None  # executing the statement in a task reports the error
        return None if result is None else CallAnswer(_complete(result.tag), kind_of(prepared.statement), False)

    def answer_call(self) -> CallAnswer | None:
        """Answers and consumes the messages of a call that arrived together, if they are next."""
        dispatcher, connection = self._dispatcher, self._connection
        context = dispatcher.context
        if context.transaction.failed or not self._answers_select:
            return None
        parse = connection.unnamed_parse()
        key = connection.bound_statement() if parse is None else parse
        if key is None:
            return None
        known, call = self._calls.get(key, (None, None))
        if parse is None:
            prepared, start = dispatcher.statements.find(key.decode(errors="replace")), 0
        else:
            prepared, start = self._parsed(parse, known), len(parse)
        if prepared is None or (known is prepared and call is None):
            return None
        found = connection.match_call(call.shape, start) if call is not None and known is prepared else None
        if found is None:
            shape = connection.call_shape(start)
            if shape is None:
                return None
            call = _Call.of(
                shape, prepared, context, _BIND_COMPLETE if parse is None else _PARSE_COMPLETE + _BIND_COMPLETE
            )
            self._calls.put(key, (prepared, call), len(key) + weight(prepared))
            found = None if call is None else connection.match_call(call.shape, start)
        if call is None or found is None:
            return None
        values, end = found
        if not call.is_valid(context):
            self._calls.pop(key)
            return None
        volatile = context.volatile
        context.query.begin(prepared.text)
        volatile.begin()
        try:
            result, answer = call.answer(values)
        except Exception:
            volatile.undo()
            return None  # handling the messages one by one reports the error at the right message
        shape = call.shape
        connection.consume_call(end, synced=shape.synced)
        if parse is not None and dispatcher.statements.find("") is not prepared:
            dispatcher.drop_unnamed_statement()
            dispatcher.statements.put("", prepared)
        if context.transaction.explicit or not shape.synced:  # else Sync closes the portal
            dispatcher.portals.add("", Portal(prepared, formats=shape.bind.result_formats, result=result, done=True))
        return CallAnswer(answer, kind_of(prepared.statement), shape.synced)

    def _parsed(self, message: bytes, known: Prepared | None) -> Prepared | None:
        """The plan of the statement of a Parse message, if there is one. `known`: that of the last such message."""
        context = self._dispatcher.context
        if known is not None and known.key == plan_key(context):
            return known
        try:
            parse = Parse.parse(message, HEADER.size, len(message))
        except PgError:
            return None
        return self._cache.plan(context, parse.text, parse.parameter_oids)

    def _is_possible(self) -> bool:
        """Whether a Query can be answered as a whole. An implicit transaction may have effects that it must commit."""
        transaction = self._dispatcher.context.transaction
        return not (transaction.failed if transaction.explicit else transaction.has_begun)

    def _end_query(self) -> None:
        """Leaves the transaction and the unnamed portal as executing the query would."""
        context, portals = self._dispatcher.context, self._dispatcher.portals
        if context.transaction.explicit:
            context.begin_statement()
            portals.close("")
        else:
            portals.end()
            portals.keep()

    def answer_execute(self, portal: Portal, max_rows: int) -> bytes | None:
        """Runs a portal of one constant row or of an INSERT. Returns the answer to Execute. PgError."""
        context = self._dispatcher.context
        if portal.result is not None or context.transaction.failed:
            return None
        is_select = isinstance(portal.prepared.plan, QueryPlan)
        if is_select and (not self._answers_select or max_rows == 1):  # PortalSuspended follows a row that is the last
            return None
        execute = _execution(context, portal.prepared, portal.column_formats())
        if execute is None:
            return None
        try:
            portal.result, answer = execute(portal.parameters)
        except NotCheap:
            return None
        portal.done = True
        return answer


@dataclass(frozen=True, slots=True)
class _Call:
    """Calls of one shape of one prepared statement, under one set of settings. `head`: the answer before the row."""

    shape: CallShape
    prepared: Prepared
    settings_revision: object
    execute: _Execute
    """Executes the statement with these parameters. Returns its result, of which no row is left, and the answer."""
    parameters: Sequence[tuple[PgType, int]]
    """The type and format of each parameter."""
    timezone: str
    style: InputStyle
    head: bytes

    @classmethod
    def of(cls, shape: CallShape, prepared: Prepared, context: Context, head: bytes) -> _Call | None:
        """Returns None if calls of this shape cannot be answered in one step. `head`: up to BindComplete."""
        bind = shape.bind
        if len(bind.parameters) != len(prepared.parameters):
            return None
        parameter_formats = bind.parameter_formats or (0,)
        if len(parameter_formats) == 1:
            parameter_formats *= len(prepared.parameters)
        try:
            formats = Portal(prepared, formats=bind.result_formats).column_formats()
        except PgError:
            return None
        execute = _execution(context, prepared, formats)
        if execute is None or _uses_session(prepared):
            return None
        described = prepared.description(formats).serialize() if shape.described else b""
        return cls(
            shape,
            prepared,
            context.settings.revision,
            execute,
            list(zip(prepared.read_types, parameter_formats, strict=True)),
            context.settings.naming[2],
            context.settings.input_style,
            head + described,
        )

    def is_valid(self, context: Context) -> bool:
        """Whether the settings and the plan's key are unchanged."""
        return context.settings.revision is self.settings_revision and self.prepared.key == plan_key(context)

    def answer(self, values: Sequence[bytes | None]) -> tuple[Result, bytes]:
        """Executes the call. Returns its result and the answer without that to Sync. NotCheap; PgError."""
        if not are_short(values):
            raise NotCheap
        formats = [format for _, format in self.parameters]
        if self.prepared.types_of_arrays(formats, values) is not None:
            raise NotCheap
        timezone, style = self.timezone, self.style
        decoded = [
            decode_parameter(type, format, value, timezone=timezone, style=style)
            for (type, format), value in zip(self.parameters, values, strict=True)
        ]
        if self.prepared.wider_types(decoded) is not None:
            raise NotCheap
        result, answer = self.execute(tuple(decoded))
        return result, self.head + answer


def _execution(context: Context, prepared: Prepared, formats: Sequence[int]) -> _Execute | None:
    """The function that executes a SELECT of one constant row or an INSERT of constant rows. None: another statement.

    It raises NotCheap and PgError. `formats`: those of the result columns.
    """
    if isinstance(prepared.plan, WritePlan):
        return _insert(context, prepared.plan)
    plan = _single_row_plan(prepared)
    return None if plan is None or plan.constant is None else _select(context, plan, plan.constant, formats)


def _select(context: Context, plan: QueryPlan, constant: Constant, formats: Sequence[int]) -> _Execute:
    write = row_writer(constant.types, formats, context.settings.output_style)

    def execute(parameters: tuple[object, ...]) -> tuple[Result, bytes]:
        context.begin_statement()
        bindings = context.short_bindings(plan, parameters, None)
        row = constant.evaluate_row(bindings)
        return Result("SELECT {}", NoRows(plan.columns)), write(row) + _SELECT_1

    return execute


def _insert(context: Context, plan: WritePlan) -> _Execute | None:
    """The function for an INSERT; None if the role, whose privileges the `plan_key` determines, lacks one."""
    added = plan.added
    if added is None:
        return None
    try:
        require_insert(context, plan)
    except PgError:
        return None

    def execute(parameters: tuple[object, ...]) -> tuple[Result, bytes]:
        context.begin_statement()
        context.ends_at_sync = True
        result = add_constants(context, plan, added, parameters)
        if result is None:
            raise NotCheap
        return result, _complete(result.tag)

    return execute


def _single_row_plan(prepared: Prepared) -> QueryPlan | None:
    """Returns the plan if the result is one constant row, which needs neither a read nor a wait."""
    plan, statement = prepared.plan, prepared.statement
    if isinstance(plan, QueryPlan) and plan.constant is not None and plan.constant.is_single_row:
        return plan if isinstance(statement, Select) and statement.as_of is None else None
    return None


@functools.lru_cache(64)
def _complete(tag: str) -> bytes:
    return CommandComplete(tag).serialize()


def _uses_session(prepared: Prepared) -> bool:
    query = prepared.plan.query if isinstance(prepared.plan, WritePlan) else prepared.plan
    return not isinstance(query, QueryPlan) or query.uses_session


def _whole_answer(plan: QueryPlan, constant: Constant, context: Context) -> bytes:
    batch = constant.evaluate(context.bindings())
    formats = [0] * len(plan.columns)
    rows = RowEncoder([field.type for field in plan.columns], formats, context.settings.output_style).encode(batch)
    complete = CommandComplete(f"SELECT {batch.num_rows}")
    return row_description(plan.columns, formats).serialize() + rows + complete.serialize()
