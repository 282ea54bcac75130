"""The simple query protocol: executes a Query message, whose text may have several statements."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.backend import EmptyQueryResponse
from server.frontend.constant_queries import CallAnswer, ConstantQueries
from server.frontend.dispatch import Dispatcher
from server.frontend.portal_runner import PortalRunner
from server.frontend.query_cache import QueryCache
from server.frontend.responses import Responses, kind_of
from server.runtime.offload import TURN_S, offload
from server.session_state.portals import Portal
from server.session_state.prepared import Prepared
from server.session_state.sender import Sender
from server.sql.grammar import statements as s


class SimpleQuery:
    """Executes the Query messages of one session."""

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
        self._responses = responses
        self._runner = runner
        self._constants = constants
        self._cache = cache
        self._shared: tuple[Prepared, tuple[object, ...]] | None = None  # of the current message

    def begin(self, text: str) -> CallAnswer | None:
        """Begins a Query message, and executes it if it is an INSERT of few constant rows. None: call `execute`.

        The caller commits, then sends the answer.
        """
        self._dispatcher.drop_unnamed_statement()
        self._dispatcher.portals.close("")
        self._context.ends_at_sync = False
        self._shared = None
        if (inserted := self._constants.insert_literals(text)) is not None:
            return inserted
        self._shared = self._cache.shared_plan(self._context, text, self._dispatcher.prepare)
        return None if self._shared is None else self._constants.insert_prepared(*self._shared)

    async def execute(self, text: str) -> None:
        """Parses a text as a whole, then executes its statements: in one transaction, unless they begin or end one."""
        dispatcher = self._dispatcher
        if self._shared is not None:
            await self._execute_shared(*self._shared)
            await dispatcher.transactions.end_implicit()
            return
        statements = await offload(text, self._cache.parsed, text)
        if not statements:
            self._sender.connection.send(EmptyQueryResponse())
        dispatcher.has_several_statements = len(statements) > 1
        turn_end = monotonic() + TURN_S
        begin_follows = _begin_follows(statements)
        for number, statement in enumerate(statements):
            if monotonic() > turn_end:  # statements that never wait would not let other sessions run
                await self._yield()
                turn_end = monotonic() + TURN_S
            transaction = self._context.transaction
            transaction.becomes_explicit = begin_follows[number]
            transaction.spans_statements = statement is not statements[-1] or transaction.has_effects
            await self._execute_statement(statement, text)
        await dispatcher.transactions.end_implicit()

    async def _yield(self) -> None:
        """Lets other sessions run. Returns when the socket has accepted the answers so far."""
        self._sender.flush()
        await asyncio.sleep(0)
        await self._sender.transport.drained()

    async def _execute_statement(self, statement: s.Statement, text: str) -> None:
        self._responses.kind = kind_of(statement)
        self._dispatcher.transactions.check_not_failed(statement)
        prepared = await self._context.described(lambda: offload(statement.text, self._prepare, statement, text))
        if prepared.parameters:
            raise PgError(SqlState.UNDEFINED_PARAMETER, "there is no parameter $1")
        portal = Portal(prepared, formats=self._dispatcher.cursors.formats(prepared.statement))
        try:
            await self._runner.run(portal, 0, describe=True)
        finally:
            portal.close()  # a cancelled SUBSCRIBE must release its reader of the feed
            prepared.release_tree()
        self._responses.count()

    async def _execute_shared(self, prepared: Prepared, values: tuple[object, ...]) -> None:
        """Executes a text that is a single statement, by the plan of its shared text."""
        self._dispatcher.has_several_statements = False
        self._context.transaction.becomes_explicit = False
        self._context.transaction.spans_statements = False
        self._responses.kind = kind_of(prepared.statement)
        try:
            await self._runner.run(Portal(prepared, values), 0, describe=True)
        except PgError as error:
            error.position = None  # it would be one in the shared text
            raise
        self._responses.count()

    def _prepare(self, statement: s.Statement, text: str) -> Prepared:
        """Plans a statement. The plan and the answer of a SELECT that is the whole text are cached."""
        if self._dispatcher.has_several_statements or not isinstance(statement, s.Select):
            return self._dispatcher.prepare(statement)
        prepared = self._cache.plan(self._context, text)
        if prepared is None:
            prepared = self._dispatcher.prepare(statement)
            self._cache.put_plan(self._context, text, prepared)
        self._constants.cache_answer(text, prepared)
        return prepared


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
