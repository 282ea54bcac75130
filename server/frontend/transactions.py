"""Begins and ends a session's transactions: BEGIN, COMMIT and their synonyms, implicit transactions, and failures.

Portals are closed with their transaction, except cursors WITH HOLD. Those of a failed block cannot be run.
"""

from __future__ import annotations

import asyncio
from typing import assert_never

from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.coordinator.committer import Commit
from server.session_state.context import Context
from server.session_state.portals import Portals
from server.session_state.results import Result
from server.session_state.setting_changes import set_setting
from server.sql.grammar import statements as s
from server.sql.grammar.statements.transactions import TransactionModes

TransactionStatement = (
    s.Begin | s.Commit | s.Rollback | s.Savepoint | s.ReleaseSavepoint | s.RollbackToSavepoint | s.SetTransaction
)


class Transactions:
    """The transactions of one session, one after another."""

    def __init__(self, context: Context, portals: Portals) -> None:
        self._context = context
        self._portals = portals

    def check_not_failed(self, statement: s.Statement | None) -> None:
        """PgError 25P02 if the block has failed and the statement does not end it."""
        ends = isinstance(statement, s.Commit | s.Rollback | None)
        if self._context.transaction.failed and not (ends or isinstance(statement, s.RollbackToSavepoint)):
            raise aborted()

    def fail(self) -> None:
        """Called after an error. Marks a block as failed, and rolls back an implicit transaction."""
        context, transaction = self._context, self._context.transaction
        if not transaction.explicit:
            self._portals.roll_back()
            context.rollback()
            return
        transaction.failed = True
        if transaction.savepoints:
            savepoint = transaction.savepoints[-1]
            self._portals.fail(savepoint.portals)
            context.unlock_after(savepoint)
        else:
            self._portals.fail()
            context.unlock()
            transaction.release()

    def end_implicit_at_once(self) -> bool:
        """Ends the implicit transaction, if there is one and that needs no waiting. False: call `end_implicit`."""
        context, transaction = self._context, self._context.transaction
        if transaction.explicit:
            return True
        if transaction.has_effects:
            return False
        self._portals.end()
        self._portals.keep()
        if transaction.has_begun or transaction.settings.revision is not context.settings.revision:
            context.end_reads()  # a later error must not roll back the effect of SET
        return True

    def begin_commit(self) -> asyncio.Future[Commit] | None:
        """Begins to commit the implicit transaction, if that needs no task: see `Context.begin_commit`."""
        self._portals.end()
        return None if self._portals.has_unheld else self._context.begin_commit()

    async def end_implicit(self) -> None:
        """Commits the implicit transaction, if there is one."""
        if not self._context.transaction.explicit:
            await self._commit()

    async def execute(self, statement: TransactionStatement) -> Result:
        """Executes a statement about transactions. The result of a COMMIT in a failed block is ROLLBACK."""
        context = self._context
        transaction = context.transaction
        match statement:
            case s.Begin(tag=tag, modes=modes):
                self._begin(modes)
                return Result(tag)
            case s.Commit(chain=chain):
                self._check_block("COMMIT", chain)
                modes = self._modes()
                if transaction.failed:
                    self._roll_back()
                else:
                    await self._commit()
                if chain:
                    self._begin_with(modes)
                return Result("ROLLBACK" if transaction.failed else "COMMIT")
            case s.Rollback(chain=chain):
                self._check_block("ROLLBACK", chain)
                modes = self._modes()
                self._roll_back()
                if chain:
                    self._begin_with(modes)
                return Result("ROLLBACK")
            case s.SetTransaction():
                self._set_transaction(statement)
                return Result("SET")
            case s.Savepoint(name=name):
                self._require_block("SAVEPOINT")
                transaction.savepoint(name.name, context.settings, self._portals.opened)
                return Result("SAVEPOINT")
            case s.ReleaseSavepoint(name=name):
                self._require_block("RELEASE SAVEPOINT")
                del transaction.savepoints[transaction.find_savepoint(name.name) :]
                return Result("RELEASE")
            case s.RollbackToSavepoint(name=name):
                self._require_block("ROLLBACK TO SAVEPOINT")
                number = transaction.find_savepoint(name.name)
                self._portals.roll_back(transaction.savepoints[number].portals)
                context.restore(number)
                return Result("ROLLBACK")
            case _:
                assert_never(statement)

    def _begin(self, modes: TransactionModes) -> None:
        """BEGIN: makes the implicit transaction a block, with a warning if it is one already."""
        context, transaction = self._context, self._context.transaction
        if transaction.explicit:
            message = "there is already a transaction in progress"
            context.notice(Notice(message, severity=Severity.WARNING, sqlstate=SqlState.ACTIVE_SQL_TRANSACTION))
        else:
            if not transaction.has_effects:
                context.end_reads()  # the block may use another mode than READ
                context.transaction.settings = transaction.settings
            # As in PostgreSQL, earlier effects of the query string or pipeline belong to the block.
            context.transaction.explicit = True
            context.begin_statement(queries=False)  # now() in the block is the time of BEGIN
            context.read_times.hold_all()
        self._set_modes(modes)

    def _set_transaction(self, statement: s.SetTransaction) -> None:
        """SET TRANSACTION, and SET SESSION CHARACTERISTICS for the later transactions of the session."""
        if statement.session:
            for name, value in _settings_of(statement.modes).items():
                set_setting(self._context, f"default_{name}", value)
        elif not self._context.transaction.explicit:
            self._context.notice(outside_block("SET TRANSACTION can only be used in transaction blocks"))
        else:
            self._set_modes(statement.modes)

    async def _commit(self) -> None:
        self._portals.end()
        await self._context.commit()
        self._portals.keep()

    def _roll_back(self) -> None:
        self._portals.roll_back()
        self._context.rollback()

    def _modes(self) -> TransactionModes:
        """The modes of the current block, for AND CHAIN."""
        context = self._context
        deferrable = context.settings["transaction_deferrable"] == "on"
        return TransactionModes(context.settings["transaction_isolation"], context.transaction.read_only, deferrable)

    def _begin_with(self, modes: TransactionModes) -> None:
        """AND CHAIN: begins a block in the new transaction."""
        self._context.transaction.explicit = True
        self._context.begin_statement(queries=False)
        self._set_modes(modes)

    def _check_block(self, statement: str, chain: bool) -> None:
        """Warns outside a block. PgError 25P01 there with AND CHAIN."""
        if chain:
            self._require_block(f"{statement} AND CHAIN")
        if not self._context.transaction.explicit:
            self._context.notice(outside_block("there is no transaction in progress"))

    def _require_block(self, statement: str) -> None:
        if not self._context.transaction.explicit:
            raise PgError(SqlState.NO_ACTIVE_SQL_TRANSACTION, f"{statement} can only be used in transaction blocks")

    def _set_modes(self, modes: TransactionModes) -> None:
        for name, value in _settings_of(modes).items():
            set_setting(self._context, name, value, local=True)


def _settings_of(modes: TransactionModes) -> dict[str, str]:
    """The variables that modes set, with their values."""
    given = {"transaction_read_only": modes.read_only, "transaction_deferrable": modes.deferrable}
    values = {name: "on" if mode else "off" for name, mode in given.items() if mode is not None}
    return values if modes.isolation is None else {"transaction_isolation": modes.isolation, **values}


def aborted() -> PgError:
    """The error of a statement in a block that has failed."""
    return PgError(
        SqlState.IN_FAILED_SQL_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )


def outside_block(message: str) -> Notice:
    """The warning of a statement that has no effect outside a transaction block."""
    return Notice(message, severity=Severity.WARNING, sqlstate=SqlState.NO_ACTIVE_SQL_TRANSACTION)
