"""The extended query protocol: handles Parse, Bind, Describe, Execute and Close.

A method returns None if it has handled its message, or the work that remains to be done in a task.
"""

from __future__ import annotations

from catalog.state import CatalogState
from protocol.pgwire.decode import decode_parameter
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.backend import (
    BindComplete,
    CloseComplete,
    ParameterDescription,
    ParseComplete,
)
from protocol.pgwire.messages.frontend import Bind, Close, Describe, Execute, Parse
from protocol.pgwire.types import BY_OID, PgType
from server.execution.prepare import Types
from server.frontend.constant_queries import ConstantQueries
from server.frontend.dispatch import Dispatcher
from server.frontend.portal_runner import PortalRunner
from server.frontend.query_cache import QueryCache
from server.frontend.responses import Responses, kind_of
from server.frontend.statement_task import Work
from server.runtime.offload import at_once, in_decoding_thread, in_stoppable_thread
from server.session_state.portals import Portal, size_of
from server.session_state.prepared import Prepared
from server.session_state.sender import Sender
from server.sql.constant import are_short
from server.sql.grammar import statements as s
from server.sql.grammar.checkpoint import Stopped, checkpoint
from server.sql.plan import Field
from server.sql.type_names import type_with_oid

PARAMETERS_BYTES_MAX = 128 << 20
"""The greatest size of the parameters of a portal. Numbers with exponents in jsonb can be longer than their text."""

_PARSE_COMPLETE = ParseComplete().serialize()
_BIND_COMPLETE = BindComplete().serialize()


class ExtendedQuery:
    """Handles the messages of one session."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        sender: Sender,
        responses: Responses,
        *,
        runner: PortalRunner,
        constants: ConstantQueries,
        cache: QueryCache,
    ) -> None:
        self._dispatcher = dispatcher
        self._context = dispatcher.context
        self._sender = sender
        self._connection = sender.connection
        self._responses = responses
        self._runner = runner
        self._constants = constants
        self._cache = cache

    # -- Parse --------------------------------------------------------------------------------------------------

    def parse(self, message: Parse) -> Work | None:
        self._context.query.begin(message.text)
        self._dispatcher.statements.check_unused(message.name)
        if not message.name:
            self._dispatcher.drop_unnamed_statement()  # as in PostgreSQL, even if Parse fails
        prepared = None
        if not self._context.transaction.failed:
            prepared = self._cache.plan(self._context, message.text, message.parameter_oids)
        try:
            self._put_statement(message, prepared or at_once(message.text, self._prepare, message))
        except Stopped:
            return self._parse_in_thread(message)
        return None

    async def _parse_in_thread(self, message: Parse) -> None:
        prepared = await self._context.described(lambda: in_stoppable_thread(self._prepare, message))
        self._put_statement(message, prepared)

    def _prepare(self, message: Parse) -> Prepared:
        statements = self._cache.parsed(message.text)
        if len(statements) > 1:
            raise PgError(SqlState.SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement")
        statement = statements[0] if statements else None
        self._responses.kind = kind_of(statement)
        self._dispatcher.transactions.check_not_failed(statement)
        types = [_declared_type(self._context.state, oid) for oid in message.parameter_oids]
        prepared = self._dispatcher.prepare(statement, types)
        self._cache.put_plan(self._context, message.text, prepared, message.parameter_oids)
        return prepared

    def _put_statement(self, message: Parse, prepared: Prepared) -> None:
        self._dispatcher.statements.put(message.name, prepared)
        self._connection.send_encoded(_PARSE_COMPLETE)

    # -- Bind ---------------------------------------------------------------------------------------------------

    def bind(self, message: Bind) -> Work | None:
        statement = self._dispatcher.statements.get(message.statement)
        self._responses.kind = kind_of(statement.statement)
        try:
            prepared = at_once("", self._dispatcher.revalidated, statement)
        except Stopped:
            return self._bind_in_thread(message, statement)
        return self._bind(message, prepared)

    async def _bind_in_thread(self, message: Bind, statement: Prepared) -> None:
        """Plans the statement again in a thread, because the catalog has changed and its plan is expensive."""
        prepared = await self._context.described(lambda: in_stoppable_thread(self._dispatcher.revalidated, statement))
        if (work := self._bind(message, prepared)) is not None:
            await work

    def _bind(self, message: Bind, prepared: Prepared) -> Work | None:
        self._dispatcher.transactions.check_not_failed(prepared.statement)
        given, wanted = len(message.parameters), len(prepared.parameters)
        if given != wanted:
            raise PgError(
                SqlState.PROTOCOL_VIOLATION,
                f"bind message supplies {given} parameters, "
                f'but prepared statement "{message.statement}" requires {wanted}',
            )
        self._dispatcher.portals.check_unused(message.portal)  # this error precedes those of values and formats
        if (types := prepared.types_of_arrays(_formats(message), message.parameters)) is not None:
            return self._bind_arrays(message, prepared, types)
        return self._bind_values(message, prepared)

    async def _bind_arrays(self, message: Bind, prepared: Prepared, types: Types) -> None:
        """Plans the statement for these values, because arrays have another number of dimensions than in its plan."""
        planned = await self._context.described(
            lambda: in_stoppable_thread(self._dispatcher.prepare, prepared.statement, types)
        )
        if (work := self._bind_values(message, planned)) is not None:
            await work

    def _bind_values(self, message: Bind, prepared: Prepared) -> Work | None:
        if not are_short(message.parameters):
            return self._bind_long(message, prepared)
        values, size = self._decode(message, prepared)
        if (types := prepared.wider_types(values)) is not None:
            return self._bind_wider(message, prepared, types, values, size)
        self._add_portal(message, prepared, values, size)
        return None

    async def _bind_long(self, message: Bind, prepared: Prepared) -> None:
        """Decodes in a thread, because long or many parameters would block the event loop."""
        values, size = await in_decoding_thread(self._decode, message, prepared)
        if (types := prepared.wider_types(values)) is not None:
            await self._bind_wider(message, prepared, types, values, size)
        else:
            self._add_portal(message, prepared, values, size)

    async def _bind_wider(
        self, message: Bind, prepared: Prepared, types: Types, values: tuple[object, ...], size: int
    ) -> None:
        """Plans the statement for these values, because numerics have more digits than it was planned for."""
        wider = await self._context.described(
            lambda: in_stoppable_thread(self._dispatcher.prepare, prepared.statement, types)
        )
        self._add_portal(message, wider, values, size)

    def _decode(self, message: Bind, prepared: Prepared) -> tuple[tuple[object, ...], int]:
        """Returns the values of the parameters and their size in bytes. PgError 53200 beyond PARAMETERS_BYTES_MAX."""
        timezone, style = self._context.settings.naming[2], self._context.settings.input_style
        values: list[object] = []
        size = 0
        for type, format, data in zip(prepared.read_types, _formats(message), message.parameters, strict=True):
            checkpoint()
            value = decode_parameter(type, format, data, timezone=timezone, style=style)
            values.append(value)
            size += size_of(value)
            if size > PARAMETERS_BYTES_MAX:
                raise PgError(
                    SqlState.OUT_OF_MEMORY,
                    "out of memory",
                    detail=f"The parsed parameters of a statement may have {PARAMETERS_BYTES_MAX} bytes.",
                    hint="Load rows with COPY FROM STDIN, or send them in several statements.",
                )
        return tuple(values), size

    def _add_portal(self, message: Bind, prepared: Prepared, values: tuple[object, ...], size: int) -> None:
        portal = Portal(prepared, values, message.result_formats, size)
        portal.column_formats()  # raises if they are invalid
        self._dispatcher.portals.add(message.portal, portal)
        self._connection.send_encoded(_BIND_COMPLETE)

    # -- Describe -----------------------------------------------------------------------------------------------

    def describe(self, message: Describe) -> Work | None:
        cursor = self._described_cursor(message)
        if cursor is not None and cursor.is_unplanned:
            statement = cursor.prepared.statement
            assert statement is not None
            try:
                at_once(statement.text, self._dispatcher.cursors.plan, cursor)
            except Stopped:
                return self._describe_in_thread(message, cursor)
        self._describe(message)
        return None

    async def _describe_in_thread(self, message: Describe, cursor: Portal) -> None:
        """Plans a cursor's statement in a thread, then describes it."""
        await self._context.described(lambda: in_stoppable_thread(self._dispatcher.cursors.plan, cursor))
        self._describe(message)

    def _described_cursor(self, message: Describe) -> Portal | None:
        """Returns the cursor whose columns a Describe requests, by its name or through a FETCH."""
        portal = None if message.kind == "S" else self._dispatcher.portals.get(message.name)
        prepared = self._dispatcher.statements.get(message.name) if portal is None else portal.prepared
        if prepared.fields is not None or isinstance(prepared.statement, s.Fetch):
            self._dispatcher.transactions.check_not_failed(prepared.statement)
        if isinstance(prepared.statement, s.Fetch):
            return self._dispatcher.portals.find(prepared.statement.cursor.name)
        return portal

    def _describe(self, message: Describe) -> None:
        if message.kind == "S":
            self._describe_statement(self._dispatcher.statements.get(message.name))
            return
        portal = self._dispatcher.portals.get(message.name)
        if isinstance(portal.prepared.statement, s.Fetch) and portal.result is None:
            portal.prepared.fields = self._cursor_fields(portal.prepared.statement)
        self._connection.send(portal.prepared.description(portal.column_formats()))

    def _describe_statement(self, prepared: Prepared) -> None:
        self._connection.send(ParameterDescription(tuple(type.oid for type in prepared.parameters)))
        if isinstance(prepared.statement, s.Fetch):
            prepared.fields = self._cursor_fields(prepared.statement)
        self._connection.send(prepared.description([0] * len(prepared.fields or ())))

    def _cursor_fields(self, fetch: s.Fetch) -> tuple[Field, ...] | None:
        """The columns that FETCH returns; None if there is no such cursor yet."""
        cursor = self._dispatcher.portals.find(fetch.cursor.name)
        return None if cursor is None else cursor.prepared.fields

    # -- Execute and Close --------------------------------------------------------------------------------------

    def execute(self, message: Execute) -> Work | None:
        portal = self._dispatcher.portals.get(message.portal)
        self._responses.kind = kind_of(portal.prepared.statement)
        self._context.query.begin(portal.prepared.text)
        answer = self._constants.answer_execute(portal, message.max_rows)
        if answer is None:
            return self._run(portal, message.max_rows)
        self._sender.send_notices(self._context.notices)
        self._connection.send_encoded(answer)
        self._responses.count()
        return None

    async def _run(self, portal: Portal, limit: int) -> None:
        is_first_run = portal.result is None
        self._context.ends_at_sync = True
        transaction = self._context.transaction
        transaction.spans_statements = transaction.has_effects  # of earlier statements of the pipeline
        await self._runner.run(portal, limit, describe=False)
        if is_first_run:
            self._responses.count()

    def close(self, message: Close) -> None:
        if message.kind == "S":
            self._dispatcher.statements.remove(message.name)
        else:
            self._dispatcher.portals.close(message.name)
        self._connection.send(CloseComplete())


def _formats(message: Bind) -> tuple[int, ...]:
    """The format of each parameter."""
    formats = message.parameter_formats or (0,)
    return formats * len(message.parameters) if len(formats) == 1 else formats


def _declared_type(state: CatalogState, oid: int) -> PgType | None:
    if oid in (0, 705):
        return None
    if (found := BY_OID.get(oid) or type_with_oid(state, oid)) is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f"type with OID {oid} is not supported")
    return found
