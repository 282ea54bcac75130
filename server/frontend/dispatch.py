"""Executes statements by their class. This is the part of a session that does not depend on the wire protocol.

`execute` runs a prepared statement and returns its `Result`. `execution/` implements the statements about relations,
`transactions` those about transactions. Those about settings, prepared statements and cursors are here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from catalog import spill
from protocol.pgwire.decode import BINARY_FORMAT
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.authorization import privileges
from server.coordinator.notifications import Notification
from server.coordinator.reads import AlteredError
from server.execution import show, write
from server.execution.add_key import create_unique_index
from server.execution.alter_domain import constrain_domain
from server.execution.alter_table import alter_table
from server.execution.arguments import execute_arguments
from server.execution.catalog_query.query import run_catalog_query
from server.execution.create_table_as import create_table_as
from server.execution.ddl import connections, holds
from server.execution.ddl.define import define, discard_temporary
from server.execution.extensions import create_extension
from server.execution.lock_tables import lock_tables
from server.execution.maintenance import maintain, refresh, reindex
from server.execution.names import find_item
from server.execution.prepare import Types, prepare
from server.execution.select import select
from server.execution.set_constraints import set_constraints
from server.execution.subscribe import subscribe
from server.execution.times import fetch_timeout_s
from server.execution.user_types import known_type
from server.execution.with_writes import write_with
from server.explain.explain import explain
from server.frontend.current_rows import located, with_key
from server.frontend.transactions import Transactions, outside_block
from server.runtime.offload import offload
from server.session_state.context import Context
from server.session_state.cursor_rows import CurrentRows, CursorRows
from server.session_state.portals import Portal, Portals
from server.session_state.prepared import (
    CatalogPlan,
    Prepared,
    PreparedStatements,
    SubscribePlan,
    WithWritesPlan,
    plan_key,
)
from server.session_state.results import Result, Rows, SubscriptionRows, TableRows
from server.settings import LISTS
from server.sql.grammar import statements as s
from server.sql.grammar.statements.cursors import Direction
from server.sql.grammar.statements.parts import Definition, Ident
from server.sql.plan import QueryPlan
from server.sql.write_plan import WritePlan


class Dispatcher:
    """Executes the statements of one session, and has its prepared statements, portals and transactions."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.portals = Portals()
        self.statements = PreparedStatements()
        self.transactions = Transactions(context, self.portals)
        context.own_rows = {"pg_cursors": self.portals.rows, "pg_prepared_statements": self.statements.rows}
        self.has_several_statements = False
        """Whether the current Query message has more than one statement."""

    def prepare(self, statement: s.Statement | None, types: Types = ()) -> Prepared:
        """Plans a statement with the session's cursors and prepared statements."""
        return prepare(self.context, statement, types, self.portals.prepared(), self.statements.by_name)

    def drop_unnamed_statement(self) -> None:
        """Drops the unnamed prepared statement, as PostgreSQL does for each Query and Parse."""
        dropped = self.statements.remove("")
        if dropped is None:
            return
        if not any(portal.statement is dropped.statement for portal in self.portals.prepared().values()):
            dropped.release_tree()

    def revalidated(self, prepared: Prepared) -> Prepared:
        """Returns the statement, planned for the current catalog. 0A000 if its result columns have changed."""
        if prepared.key == plan_key(self.context) and not isinstance(prepared.statement, s.Fetch):
            return prepared
        current = self.prepare(prepared.statement, prepared.declared)
        if isinstance(prepared.statement, s.Fetch):
            return current  # another cursor may have this name now
        if prepared.fields is not None and _types(current) != _types(prepared):
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
        return current

    def _revalidated_statement(self, name: str) -> Prepared:
        return self.revalidated(self.statements.get(name))

    def plan_cursor(self, portal: Portal) -> None:
        """Plans a cursor's statement, if it is not planned yet."""
        if portal.is_unplanned:
            portal.prepared = prepare(self.context, portal.prepared.statement, portal.prepared.declared)

    async def execute(self, prepared: Prepared, parameters: tuple[object, ...]) -> Result:
        """Runs a planned statement and returns its result. Plans it again if a table was altered meanwhile."""
        mode = self.context.transaction.mode
        try:
            return await self._execute(prepared, parameters)
        except AlteredError:
            current = await offload("", self.revalidated, prepared)
            if current is prepared:
                raise
            self.context.transaction.mode = mode  # nothing may follow a SUBSCRIBE, but this one has not begun
            return await self._execute(current, parameters)

    async def _execute(self, prepared: Prepared, parameters: tuple[object, ...]) -> Result:
        context = self.context
        statement, plan = prepared.statement, prepared.plan
        match statement, plan:
            case s.Select(), QueryPlan():
                return await select(context, plan, statement.as_of, parameters)
            case ((s.Update(current_of=Ident()) | s.Delete(current_of=Ident())), WritePlan()):
                statement = located(context, self.portals, statement)
                prepared = await offload(statement.text, self.prepare, statement, prepared.parameters)
                return await self._execute(prepared, parameters)
            case ((s.Insert() | s.Update() | s.Delete() | s.Merge()), WritePlan()):
                return await write.write(context, plan, type(statement).__name__.upper(), parameters)
            case s.WithWrites(), WithWritesPlan():
                return await write_with(context, plan, parameters)
            case s.CreateTableAs(), QueryPlan():
                return await create_table_as(context, statement, plan, parameters)
            case s.Select(), CatalogPlan():
                return await run_catalog_query(context, plan, parameters)
            case s.Subscribe(), SubscribePlan():
                return await subscribe(context, statement, plan, parameters)
            case s.Truncate(tables=names, restarts=restarts), _:
                items = [find_item(context, name) for name in names]
                tables = [write.table_for_writing(context, i.id, i.name, "truncate") for i in items]
                return await write.truncate(context, tables, restarts=restarts)
            case ((s.CreateIndex(concurrently=True) | s.DropObjects(concurrently=True)), _) if self._is_in_block:
                verb = "CREATE" if isinstance(statement, s.CreateIndex) else "DROP"
                message = f"{verb} INDEX CONCURRENTLY cannot run inside a transaction block"
                raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, message)
            case s.CreateExtension(), _:
                return create_extension(context, statement)
            case s.DoBlock(), _:
                return await self._do(statement)
            case s.Reindex(), _:
                return reindex(context, statement, in_block=self._is_in_block)
            case s.Refresh(), _:
                return refresh(context, statement)
            case s.Maintain(), _:
                return maintain(context, statement, in_block=self._is_in_block)
            case s.LockTable(), _:
                return await lock_tables(context, statement)
            case s.AdvanceHold(), _:
                return await holds.advance_hold(context, statement)
            case s.ValidateConnection(), _:
                return await connections.validate(context, statement)
            case s.ConstrainDomain(), _:
                return await constrain_domain(context, statement)
            case s.AlterTable(), _:
                return await alter_table(context, statement)
            case s.CreateIndex(unique=True), _:
                return await create_unique_index(context, statement)
            case Definition(), _:
                return await define(context, statement)
            case ((s.Begin() | s.Commit() | s.Rollback() | s.SetTransaction()), _):
                return await self.transactions.execute(statement)
            case ((s.Savepoint() | s.ReleaseSavepoint() | s.RollbackToSavepoint()), _):
                return await self.transactions.execute(statement)
            case s.SetConstraints(), _:
                if not context.transaction.explicit:
                    context.notice(outside_block("SET CONSTRAINTS can only be used in transaction blocks"))
                return set_constraints(context, statement)
            case s.Discard(target=("TEMP" | "ALL")), _:
                result = self._setting_statement(statement)
                await discard_temporary(context)
                return result
            case ((s.SetVariable() | s.SetRole() | s.ResetVariable() | s.Discard()), _):
                return self._setting_statement(statement)
            case ((s.ShowVariable() | s.ShowObjects() | s.ShowColumns() | s.ShowCreate()), _):
                return show.show(context, statement)
            case s.Explain(), _:
                return await explain(
                    context, prepared, parameters, lambda name: self.revalidated(self.statements.get(name))
                )
            case ((s.Prepare() | s.Execute() | s.Deallocate()), _):
                return await self._prepared_statement(statement)
            case ((s.Declare() | s.CloseCursor()), _):
                return await self._cursor_statement(statement, prepared.parameters, parameters)
            case s.Move(), _:
                return await self._move(statement)
            case ((s.Listen() | s.Unlisten() | s.Notify()), _):
                return self._notification_statement(statement)
            case _:
                raise AssertionError(statement)

    async def _do(self, block: s.DoBlock) -> Result:
        """Executes DO. An error that the block handles undoes its statement only."""
        context, inner, name = self.context, block.statement, ""
        transaction = context.transaction
        transaction.savepoint(name, context.settings, self.portals.names())
        number = len(transaction.savepoints) - 1
        try:
            prepared = await offload(inner.text, self.prepare, inner)
            await self.execute(prepared, ())
        except PgError as error:
            if not block.handles(error.sqlstate):
                error.position = None  # it would be one in the block
                raise
            if context.transaction is transaction:
                context.restore(number)
        del transaction.savepoints[number:]
        return Result("DO")

    # -- statements that belong to the session --------------------------------------------------------------------

    def _setting_statement(self, statement: s.SetVariable | s.SetRole | s.ResetVariable | s.Discard) -> Result:
        context = self.context
        match statement:
            case s.SetVariable(name=name, values=values, local=local, is_default=is_default):
                if local and not context.transaction.explicit:
                    context.notice(outside_block("SET LOCAL can only be used in transaction blocks"))
                elif is_default:
                    context.reset(name, local=local)
                elif len(values) > 1 and name.lower() not in LISTS:
                    raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"SET {name} takes only one argument")
                else:
                    context.set(name, ", ".join(values), local=local)
                return Result("SET")
            case s.SetRole(local=local) if local and not context.transaction.explicit:
                context.notice(outside_block("SET LOCAL can only be used in transaction blocks"))
                return Result("SET")
            case s.SetRole(name=role, local=local, session=True):
                self._set_session_authorization(role, local)
                return Result("SET")
            case s.SetRole(name=role, local=local):
                self._set_role(role, local)
                return Result("SET")
            case s.ResetVariable(name=variable):
                context.reset(variable)
                return Result("RESET")
            case s.Discard(target=target):
                if target == "ALL":
                    if context.transaction.explicit or self.has_several_statements:
                        raise PgError(
                            SqlState.ACTIVE_SQL_TRANSACTION, "DISCARD ALL cannot run inside a transaction block"
                        )
                    self.portals.close_all()
                    self.statements.clear()
                    context.listening.end()
                    context.advisory_locks.unlock_all(context.transaction.advisory)
                    context.settings.reset(None)
                    context.settings.reset("session_authorization")
                if target in ("ALL", "SEQUENCES"):
                    context.volatile.forget()
                return Result(f"DISCARD {target}")
            case _:
                assert_never(statement)

    def _set_session_authorization(self, name: str | None, local: bool) -> None:
        """PgError 22023 if the role does not exist, 42501 unless the session connected as it or as a superuser."""
        context, state = self.context, self.context.state
        if name is None:
            return context.reset("session_authorization", local=local)
        role = state.role_named(name)
        if role is None:
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'role "{name}" does not exist')
        if role.id != context.authenticated and not privileges.is_superuser(state, context.authenticated):
            raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied to set session authorization "{name}"')
        return context.change_settings(lambda settings: settings.authorize(name, superuser=role.superuser), local=local)

    def _set_role(self, name: str | None, local: bool) -> None:
        """PgError 22023 if the role does not exist, 42501 if the session's role may not SET ROLE to it."""
        context, state = self.context, self.context.state
        if name is None:
            return context.reset("role", local=local)
        role = state.role_named(name)
        if role is None:
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'role "{name}" does not exist')
        if not privileges.may_set_role(state, context.login, role.id):
            raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied to set role "{name}"')
        return context.change_settings(
            lambda settings: settings.assume_role(name, superuser=role.superuser), local=local
        )

    async def _prepared_statement(self, statement: s.Prepare | s.Execute | s.Deallocate) -> Result:
        match statement:
            case s.Prepare(name=name, types=types, statement=inner):
                self.statements.check_unused(name.name)
                declared = [known_type(self.context, type) for type in types]
                prepared = await offload("" if inner is None else inner.text, prepare, self.context, inner, declared)
                self.statements.put(name.name, prepared, statement.text)
                return Result("PREPARE")
            case s.Execute(name=name, arguments=arguments):
                prepared = await offload("", self._revalidated_statement, name.name)
                values = await execute_arguments(self.context, name.name, arguments, prepared.parameters)
                return await self.execute(prepared, values)
            case s.Deallocate(name=None):
                self.statements.clear()
                return Result("DEALLOCATE ALL")
            case s.Deallocate(name=ident):
                assert ident is not None
                self.statements.get(ident.name)  # raises for an unknown name
                self.statements.remove(ident.name)
                return Result("DEALLOCATE")
            case _:
                assert_never(statement)

    @property
    def _is_in_block(self) -> bool:
        """Whether the statement is in a transaction block, or is one of several in a Query message."""
        return self.context.transaction.explicit or self.has_several_statements

    def _notification_statement(self, statement: s.Listen | s.Unlisten | s.Notify) -> Result:
        """LISTEN, UNLISTEN and NOTIFY. They take effect when the transaction commits."""
        pending = self.context.transaction.pending
        match statement:
            case s.Listen(channel=channel):
                pending.change(True, channel.name)
                return Result("LISTEN")
            case s.Unlisten(channel=name):
                pending.change(False, None if name is None else name.name)
                return Result("UNLISTEN")
            case s.Notify(channel=channel, payload=payload):
                pending.notify(Notification.checked(channel.name, payload), self.context.process_id)
                return Result("NOTIFY")
            case _:
                assert_never(statement)

    async def _cursor_statement(
        self, statement: s.Declare | s.CloseCursor, types: tuple[PgType, ...], parameters: tuple[object, ...]
    ) -> Result:
        """`types` and `parameters` are those of the statement of a DECLARE."""
        match statement:
            case s.Declare(name=name, statement=inner, hold=hold):
                if not (self.context.transaction.explicit or self.has_several_statements or hold):
                    raise PgError(
                        SqlState.NO_ACTIVE_SQL_TRANSACTION, "DECLARE CURSOR can only be used in transaction blocks"
                    )
                formats = (BINARY_FORMAT,) if statement.binary else ()
                cursor = Portal(Prepared(inner, (), declared=types), parameters, formats, cursor=True, hold=hold)
                cursor.text, cursor.scroll = statement.text, statement.scroll is not False
                self.portals.check_unused(name.name)
                if not isinstance(inner, s.Subscribe):
                    await self._run_cursor(cursor, statement)
                self.portals.add(name.name, cursor)
                return Result("DECLARE CURSOR")
            case s.CloseCursor(name=None):
                self.portals.close_all()
                return Result("CLOSE CURSOR ALL")
            case s.CloseCursor(name=ident):
                assert ident is not None
                self.portals.cursor(ident.name)
                self.portals.close(ident.name)
                return Result("CLOSE CURSOR")
            case _:
                assert_never(statement)

    @staticmethod
    def check_fetch_limit(statement: s.Fetch, limit: int) -> None:
        is_run = statement.direction in (Direction.FORWARD, Direction.BACKWARD)
        if limit and is_run and (statement.count is None or limit < statement.count):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "Execute with max_rows of a FETCH ALL is not supported"
                if statement.count is None
                else "Execute with max_rows < a FETCH's count is not supported",
                hint="Give the number of rows in FETCH, and execute it without a limit.",
            )

    def formats_of(self, statement: s.Statement | None) -> tuple[int, ...]:
        """The result formats of a statement of the simple protocol: binary for FETCH from a BINARY cursor."""
        if not isinstance(statement, s.Fetch):
            return ()
        cursor = self.portals.find(statement.cursor.name)
        return () if cursor is None or not cursor.cursor else cursor.formats

    async def _run_cursor(self, cursor: Portal, declare: s.Declare) -> None:
        """Executes the query of a cursor, and keeps its rows. Large ones are kept on disk."""
        keyed = with_key(self.context, declare.statement)
        if keyed is not None:
            cursor.prepared = Prepared(keyed[0], (), declared=cursor.prepared.declared)
        await offload(declare.statement.text, self.plan_cursor, cursor)
        _check_row_locks(declare, cursor.prepared)
        result = await self.execute(cursor.prepared, cursor.parameters)
        assert result.rows is not None
        table, fields = await result.rows.take(None), result.rows.fields
        if declare.hold or not self.portals.fits_in_memory(table.nbytes):
            table = await asyncio.to_thread(spill.on_disk, table, self.context.coordinator.scratch)
        else:
            cursor.rows_bytes = table.nbytes
        if keyed is not None:
            _, locked, numbers = keyed
            width = len(fields) - len(numbers)
            cursor.current = CurrentRows(locked.id, numbers, table.select(range(width, len(fields))))
            table, fields = table.select(range(width)), fields[:width]
        cursor.role = self.context.role
        cursor.result = Result(result.tag, CursorRows(fields, table, scrolls=declare.scroll is not False))

    async def _rows_of(self, name: str) -> Rows:
        """The rows of a cursor. The first call for a SUBSCRIBE plans and starts it."""
        cursor = self.portals.cursor(name)
        if cursor.failure is not None:
            raise cursor.failure
        if cursor.result is None:
            inner = cursor.prepared.statement
            await offload("" if inner is None else inner.text, self.plan_cursor, cursor)
            cursor.result = await self.execute(cursor.prepared, cursor.parameters)
        elif (
            cursor.role is not None
            and isinstance(plan := cursor.prepared.plan, QueryPlan)
            and (error := privileges.refusal(self.context.state, cursor.role, plan)) is not None
        ):
            raise error
        assert cursor.result.rows is not None
        return cursor.result.rows

    async def fetch(self, statement: s.Fetch) -> Result:
        """Returns rows of a cursor."""
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

    async def _move(self, statement: s.Move) -> Result:
        rows = await self._rows_of(statement.cursor.name)
        if isinstance(rows, CursorRows):
            with self._failing(statement.cursor.name):
                return Result(f"MOVE {rows.move(statement.direction, statement.count)}")
        _check_forward(statement.direction)
        return Result(f"MOVE {(await rows.take(statement.count)).num_rows}")

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """As in PostgreSQL, a cursor that could not be moved as demanded cannot be used any more."""
        try:
            yield
        except PgError:
            message = f'portal "{name}" cannot be run'
            self.portals.cursor(name).failure = PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            raise


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


def _types(prepared: Prepared) -> list[tuple[str, PgType]]:
    return [(field.name, field.type) for field in prepared.fields or ()]
