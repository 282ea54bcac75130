"""The cursors of a session: DECLARE, FETCH, MOVE and CLOSE. WHERE CURRENT OF is in `current_rows`.

DECLARE computes all rows of a query, and keeps them in memory or on disk. The cursor of a SUBSCRIBE starts at its first
FETCH, and has no rows in advance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from catalog import spill
from protocol.pgwire.decode import BINARY_FORMAT
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.authorization import privileges
from server.execution.prepare import prepare
from server.execution.times import fetch_timeout_s
from server.frontend.current_rows import with_key
from server.runtime.offload import offload
from server.session_state.context import Context
from server.session_state.cursor_rows import CurrentRows, CursorRows
from server.session_state.portals import Portal, Portals, size_of
from server.session_state.prepared import Prepared
from server.session_state.results import Result, Rows, SubscriptionRows, TableRows
from server.sql.constant import are_short
from server.sql.grammar import statements as s
from server.sql.grammar.statements.cursors import Direction
from server.sql.plan import QueryPlan


class Cursors:
    """Executes the statements about the cursors of one session, which are among its portals."""

    def __init__(
        self,
        context: Context,
        portals: Portals,
        execute: Callable[[Prepared, tuple[object, ...]], Awaitable[Result]],
    ) -> None:
        """`execute` runs the query of a cursor."""
        self._context = context
        self._portals = portals
        self._execute = execute

    async def declare(
        self, statement: s.Declare, types: tuple[PgType, ...], parameters: tuple[object, ...], *, in_block: bool
    ) -> Result:
        """Executes DECLARE. `types` and `parameters` are those of the cursor's query."""
        if not (in_block or statement.hold):
            raise PgError(SqlState.NO_ACTIVE_SQL_TRANSACTION, "DECLARE CURSOR can only be used in transaction blocks")
        query, name = statement.statement, statement.name.name
        formats = (BINARY_FORMAT,) if statement.binary else ()
        cursor = Portal(
            Prepared(query, (), declared=types),
            parameters,
            formats,
            size_of(parameters) if are_short(parameters) else await asyncio.to_thread(size_of, parameters),
            cursor=True,
            hold=statement.hold,
            text=statement.text,
            scroll=statement.scroll is not False,
        )
        self._portals.check_unused(name)
        if not isinstance(query, s.Subscribe):
            await self._run(cursor, statement)
        self._portals.add(name, cursor)
        return Result("DECLARE CURSOR")

    def close(self, statement: s.CloseCursor) -> Result:
        """Executes CLOSE, also for ALL cursors."""
        if statement.name is None:
            self._portals.close_all()
            return Result("CLOSE CURSOR ALL")
        name = statement.name.name
        if self._portals.cursor(name).is_active:
            raise PgError(SqlState.INVALID_CURSOR_STATE, f'cannot drop active portal "{name}"')
        self._portals.close(name)
        return Result("CLOSE CURSOR")

    def plan(self, cursor: Portal) -> None:
        """Plans a cursor's statement, if it is not planned yet."""
        if cursor.is_unplanned:
            cursor.prepared = prepare(self._context, cursor.prepared.statement, cursor.prepared.declared)

    @staticmethod
    def check_limit(statement: s.Fetch, limit: int) -> None:
        """0A000 if an Execute message asks for fewer rows (`limit`, 0: no limit) than its FETCH."""
        is_run = statement.direction in (Direction.FORWARD, Direction.BACKWARD)
        if limit and is_run and (statement.count is None or limit < statement.count):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "Execute with max_rows of a FETCH ALL is not supported"
                if statement.count is None
                else "Execute with max_rows < a FETCH's count is not supported",
                hint="Give the number of rows in FETCH, and execute it without a limit.",
            )

    def formats(self, statement: s.Statement | None) -> tuple[int, ...]:
        """The result formats of a statement of the simple protocol: binary for FETCH from a BINARY cursor."""
        if not isinstance(statement, s.Fetch):
            return ()
        cursor = self._portals.find(statement.cursor.name)
        return () if cursor is None or not cursor.cursor else cursor.formats

    async def fetch(self, statement: s.Fetch) -> Result:
        """Returns the next rows of a cursor. `timeout`: how long to wait for rows of a subscription."""
        rows = await self._rows_of(statement.cursor.name)
        timeout_s = fetch_timeout_s(statement.timeout)
        if isinstance(rows, CursorRows):
            with self._failing(statement.cursor.name):
                table = rows.fetch(statement.direction, statement.count)
        else:
            _check_forward(statement.direction)
            if isinstance(rows, SubscriptionRows) and timeout_s is not None:
                table = await rows.take_ready(statement.count, timeout_s)
            else:
                table = await rows.take(statement.count)
        return Result("FETCH {}", TableRows(rows.fields, table))

    async def move(self, statement: s.Move) -> Result:
        """Changes a cursor's position."""
        rows = await self._rows_of(statement.cursor.name)
        if isinstance(rows, CursorRows):
            with self._failing(statement.cursor.name):
                return Result(f"MOVE {rows.move(statement.direction, statement.count)}")
        _check_forward(statement.direction)
        return Result(f"MOVE {(await rows.take(statement.count)).num_rows}")

    async def _run(self, cursor: Portal, declare: s.Declare) -> None:
        """Executes the query of a cursor, and keeps its rows. Large ones are kept on disk."""
        keyed = with_key(self._context, declare.statement)
        if keyed is not None:
            cursor.prepared = Prepared(keyed[0], (), declared=cursor.prepared.declared)
        await offload(declare.statement.text, self.plan, cursor)
        _check_row_locks(declare, cursor.prepared)
        result = await self._execute(cursor.prepared, cursor.parameters)
        assert result.rows is not None
        table, fields = await result.rows.take(None), result.rows.fields
        if declare.hold or not self._portals.fits_in_memory(table.nbytes):
            table = await asyncio.to_thread(spill.on_disk, table, self._context.coordinator.scratch)
        else:
            cursor.rows_bytes = table.nbytes
        if keyed is not None:
            _, locked, numbers = keyed
            width = len(fields) - len(numbers)
            cursor.current = CurrentRows(locked.id, numbers, table.select(range(width, len(fields))))
            table, fields = table.select(range(width)), fields[:width]
        cursor.role = self._context.role
        cursor.result = Result(result.tag, CursorRows(fields, table, scrolls=declare.scroll is not False))

    async def _rows_of(self, name: str) -> Rows:
        """The rows of a cursor. The first call for a SUBSCRIBE plans and starts it."""
        cursor = self._portals.cursor(name)
        if cursor.failure is not None:
            raise cursor.failure
        if cursor.result is None:
            inner = cursor.prepared.statement
            if not cursor.cursor and (cursor.prepared.fields is None or isinstance(inner, s.Fetch | s.CopyTo)):
                raise _cannot_be_run(name)
            await offload("" if inner is None else inner.text, self.plan, cursor)
            cursor.result = await self._execute(cursor.prepared, cursor.parameters)
        elif (
            cursor.role is not None
            and isinstance(plan := cursor.prepared.plan, QueryPlan)
            and (error := privileges.refusal(self._context.state, cursor.role, plan)) is not None
        ):
            raise error
        assert cursor.result.rows is not None
        return cursor.result.rows

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """Makes the cursor unusable if the body raises PgError, as PostgreSQL does after a FETCH or MOVE that fails."""
        try:
            yield
        except PgError:
            self._portals.cursor(name).failure = _cannot_be_run(name)
            raise


def _cannot_be_run(name: str) -> PgError:
    return PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, f'portal "{name}" cannot be run')


def _check_forward(direction: Direction) -> None:
    if direction is not Direction.FORWARD:
        raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward")


def _check_row_locks(declare: s.Declare, prepared: Prepared) -> None:
    """PgError 0A000 if a cursor that locks rows is WITH HOLD or SCROLL."""
    if isinstance(prepared.plan, QueryPlan) and prepared.plan.row_locks is not None:
        if declare.hold:
            message = "DECLARE CURSOR WITH HOLD ... FOR UPDATE is not supported"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, detail="Holdable cursors must be READ ONLY.")
        if declare.scroll:
            message = "DECLARE SCROLL CURSOR ... FOR UPDATE is not supported"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, detail="Scrollable cursors must be READ ONLY.")
