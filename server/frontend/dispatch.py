"""Executes statements by their class. This is the part of a session that does not depend on the wire protocol.

`execute` runs a prepared statement and returns its `Result`. `execution/` implements the statements about relations,
`transactions` BEGIN to ROLLBACK, `cursors` DECLARE to CLOSE, and `set_statements` SET. The statements about prepared
statements and notifications are implemented here, and so is DISCARD.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.coordinator.notifications import Notification
from server.coordinator.reads import AlteredError
from server.execution import show, write
from server.execution.add_key import create_unique_index
from server.execution.alter_domain import constrain_domain
from server.execution.alter_table import alter_table
from server.execution.arguments import execute_arguments
from server.execution.catalog_query.query import run_catalog_query
from server.execution.catalog_query.values import values_of
from server.execution.create_table_as import create_table_as
from server.execution.ddl import connections, holds
from server.execution.ddl.define import define, discard_temporary
from server.execution.drop_built_in import drop_built_in
from server.execution.extensions import comment_on_extension, create_extension
from server.execution.lock_tables import lock_tables
from server.execution.maintenance import maintain, refresh, reindex
from server.execution.names import find_item
from server.execution.prepare import Types, prepare
from server.execution.select import select
from server.execution.set_constraints import set_constraints
from server.execution.subscribe import subscribe
from server.execution.user_types import known_type
from server.execution.with_writes import write_with
from server.explain.explain import explain
from server.frontend.current_rows import located
from server.frontend.cursors import Cursors
from server.frontend.set_statements import set_role, set_variable
from server.frontend.transactions import Transactions, outside_block
from server.runtime.offload import offload
from server.session_state.context import Context
from server.session_state.portals import Portals
from server.session_state.prepared import (
    CatalogPlan,
    Prepared,
    PreparedStatements,
    SubscribePlan,
    ValuesPlan,
    WithWritesPlan,
    plan_key,
)
from server.session_state.results import Result
from server.session_state.setting_changes import reset_setting
from server.sql.grammar import statements as s
from server.sql.grammar.statements.parts import Definition, Ident
from server.sql.plan import QueryPlan
from server.sql.writes.plan import WritePlan


class Dispatcher:
    """Executes the statements of one session, and has its prepared statements, portals and transactions."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.portals = Portals()
        self.statements = PreparedStatements()
        self.cursors = Cursors(context, self.portals, self.execute)
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
            message = "cached plan must not change result type"
            # asyncpg and pgjdbc prepare the statement again if the error is of this routine
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, routine="RevalidateCachedQuery")
        return current

    def _revalidated_statement(self, name: str) -> Prepared:
        return self.revalidated(self.statements.get(name))

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
            case _, ValuesPlan(inner=inner):
                values = await values_of(context, plan.values, parameters)
                return await self._execute(replace(prepared, plan=inner), (*parameters, *values))
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
            case s.CommentOnExtension(), _:
                return comment_on_extension(statement)
            case s.DropBuiltIn(), _:
                return drop_built_in(context, statement)
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
                return await set_constraints(context, statement)
            case s.Discard(), _:
                return await self._discard(statement)
            case s.SetVariable(), _:
                return set_variable(context, statement)
            case s.SetRole(), _:
                return set_role(context, statement)
            case s.ResetVariable(name=variable), _:
                reset_setting(context, variable)
                return Result("RESET")
            case ((s.ShowVariable() | s.ShowObjects() | s.ShowColumns() | s.ShowCreate()), _):
                return show.show(context, statement)
            case s.Explain(), _:
                return await explain(
                    context, prepared, parameters, lambda name: self.revalidated(self.statements.get(name))
                )
            case ((s.Prepare() | s.Execute() | s.Deallocate()), _):
                return await self._prepared_statement(statement)
            case s.Declare(), _:
                return await self.cursors.declare(
                    statement, prepared.parameters, parameters, in_block=self._is_in_block
                )
            case s.CloseCursor(), _:
                return self.cursors.close(statement)
            case s.Move(), _:
                return await self.cursors.move(statement)
            case ((s.Listen() | s.Unlisten() | s.Notify()), _):
                return self._notification_statement(statement)
            case _:
                raise AssertionError(statement)

    async def _do(self, block: s.DoBlock) -> Result:
        """Executes DO. An error that the block handles undoes its statement only."""
        context, inner, name = self.context, block.statement, ""
        transaction = context.transaction
        transaction.savepoint(name, context.settings, self.portals.opened)
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

    async def _discard(self, statement: s.Discard) -> Result:
        context, target = self.context, statement.target
        if target == "ALL":
            if self._is_in_block:
                message = "DISCARD ALL cannot run inside a transaction block"
                raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, message)
            self.portals.close_all()
            self.statements.remove_named()
            context.listening.end()
            context.advisory_locks.unlock_all(context.transaction.advisory)
            context.settings.reset(None)
            context.settings.reset("session_authorization")
        if target in ("ALL", "SEQUENCES"):
            context.volatile.forget()
        if target in ("ALL", "TEMP"):
            await discard_temporary(context)
        return Result(f"DISCARD {target}")

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
                self.statements.remove_named()
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
                pending.listen(channel.name)
                return Result("LISTEN")
            case s.Unlisten(channel=name):
                pending.unlisten(None if name is None else name.name)
                return Result("UNLISTEN")
            case s.Notify(channel=channel, payload=payload):
                pending.notify(Notification.checked(channel.name, payload), self.context.process_id)
                return Result("NOTIFY")
            case _:
                assert_never(statement)


def _types(prepared: Prepared) -> list[tuple[str, PgType]]:
    return [(field.name, field.type) for field in prepared.fields or ()]
