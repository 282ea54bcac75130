"""Execution of statements that change the catalog.

In an implicit transaction the change is committed immediately, and recomputed if the catalog changed concurrently.
In a transaction block the changes accumulate in the transaction and are visible only to it until COMMIT.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from catalog.drops import without_schema
from catalog.objects.holds import Hold
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.execution.ddl import (
    alter,
    comments,
    connections,
    constraints,
    databases,
    default_privileges,
    domains,
    drop,
    grants,
    holds,
    memberships,
    owned_objects,
    roles,
    schemas,
    secrets,
    sequences,
    sinks,
    sources,
    system_settings,
    types,
    view_columns,
)
from server.execution.ddl.kinds import KINDS
from server.execution.user_types import check_types
from server.runtime.offload import at_once, in_stoppable_thread
from server.session_state.context import Context
from server.session_state.results import Result
from server.session_state.transaction import Mode, Transaction
from server.sql.grammar.checkpoint import Stopped
from server.sql.grammar.statements.alter_table import RenameColumn
from server.sql.grammar.statements.domains import (
    CreateDomain,
    DropDomainConstraint,
    RenameDomainConstraint,
    SetDomainDefault,
)
from server.sql.grammar.statements.holds import AlterHold, CreateHold
from server.sql.grammar.statements.objects import (
    AlterOwner,
    AlterRename,
    AlterRetention,
    AlterSchema,
    CommentOn,
    CommentOnConstraint,
    CreateDatabase,
    CreateSchema,
    DropObjects,
)
from server.sql.grammar.statements.parts import Definition
from server.sql.grammar.statements.roles import (
    AlterDefaultPrivileges,
    AlterRole,
    CreateRole,
    DropOwned,
    DropRoles,
    GrantPrivileges,
    GrantRoles,
    ReassignOwned,
)
from server.sql.grammar.statements.sequences import AlterSequence
from server.sql.grammar.statements.settings import AlterSystem
from server.sql.grammar.statements.sinks import CreateSink
from server.sql.grammar.statements.sources import (
    AddSubsources,
    AlterConnection,
    AlterSecret,
    CreateConnection,
    CreateSource,
    CreateSourceTable,
    DropSubsources,
)
from server.sql.grammar.statements.tables import CreateTable, RenameConstraint
from server.sql.grammar.statements.types import AddEnumValue, RenameEnumValue, SetTypeSchema
from server.sql.grammar.statements.views import CreateIndex, CreateMaterializedView, CreateView

RETRIES_MAX = 10

Found = TypeVar("Found")
Change = Callable[[Context, Any], CatalogState]
"""Maps the catalog as the session sees it, and a statement, to the next state. Returns the same state if nothing
changes."""

_CHANGES: dict[type[Definition], Change] = {
    CreateDatabase: databases.create,
    CreateSchema: schemas.create,
    RenameColumn: view_columns.rename_column,
    DropObjects: drop.drop,
    AlterRename: alter.rename,
    AlterOwner: alter.change_owner,
    AlterRetention: alter.change_retention,
    AlterSchema: alter.set_schema,
    AlterSystem: system_settings.alter_system,
    AlterHold: holds.alter,
    AlterSecret: secrets.alter,
    AlterSequence: sequences.alter,
    AlterConnection: connections.alter,
    DropSubsources: sources.drop_subsources,
    CommentOn: comments.comment,
    CommentOnConstraint: comments.comment,
    RenameConstraint: constraints.rename_constraint,
    AddEnumValue: types.add_value,
    DropDomainConstraint: domains.drop_constraint,
    RenameDomainConstraint: domains.rename_constraint,
    SetDomainDefault: domains.set_default,
    RenameEnumValue: types.rename_value,
    SetTypeSchema: types.set_schema,
    **{kind.statement: kind.create for kind in KINDS.values()},
    **roles.CHANGES,
    **memberships.CHANGES,
    **owned_objects.CHANGES,
    **grants.CHANGES,
    **default_privileges.CHANGES,
}

_IN_THREAD = (
    *(GrantPrivileges, AlterDefaultPrivileges, DropOwned, ReassignOwned, GrantRoles, DropRoles),
    *(AddEnumValue, RenameEnumValue, DropDomainConstraint, RenameDomainConstraint),
)
"""The statements whose change can take seconds: it concerns many objects, and those of privileges are quadratic in the
length of each access control list."""

_EVALUATIONS: dict[type[Definition], Callable[[Context, Any], Awaitable[object]]] = {
    CreateHold: holds.evaluate,
    AlterHold: holds.evaluate_alteration,
    CreateConnection: connections.evaluate,
    AlterConnection: connections.evaluate,
    CreateSource: sources.evaluate,
    CreateSourceTable: sources.evaluate_part,
    AddSubsources: sources.evaluate_part,
    CreateSink: sinks.evaluate,
    CreateRole: roles.evaluate,
    AlterRole: roles.evaluate,
    DropObjects: drop.wait_for_sessions,
}
"""What is computed or asked of an external system before the change. The change then gets the result."""


_VIEWS = (CreateView, CreateMaterializedView)
_PLANNING = (*_VIEWS, CreateIndex, CreateTable, CreateDomain, RenameColumn)
"""Statements that plan queries of views, conditions or other expressions. Their changes may begin twice."""


async def define(context: Context, statement: Definition) -> Result:
    """Executes a statement that changes the catalog.

    The commit is retried after a serialization failure, at most `RETRIES_MAX` times.
    """
    evaluate = _EVALUATIONS.get(type(statement))
    subject = await evaluate(context, statement) if evaluate is not None else statement
    definitions = context.coordinator.definitions
    async with AsyncExitStack() as alone:
        for attempt in range(RETRIES_MAX):
            if attempt == 1 and isinstance(statement, _VIEWS):
                # Planning may take longer than the commits of others, which would conflict every time.
                await alone.enter_async_context(definitions)
            elif attempt == 0 or not isinstance(statement, _VIEWS):
                async with definitions:
                    pass  # wait for a statement that is executed alone
            await _change(context, statement, subject)
            if context.transaction.ends_later:
                break
            try:
                await context.commit()
                break
            except PgError as error:
                if error.sqlstate is not SqlState.SERIALIZATION_FAILURE or attempt == RETRIES_MAX - 1:
                    raise
    return Result(statement.tag)


async def _change(context: Context, statement: Definition, subject: Any) -> None:
    """Changes the transaction's catalog."""
    change = _CHANGES[type(statement)]
    await context.enter(Mode.DEFINE, statement.tag)
    before = context.state
    if isinstance(statement, _PLANNING):
        after = await in_catalog(context, statement.text, partial(change, context, subject))
    elif isinstance(statement, _IN_THREAD):
        after = await _in_thread(context, partial(change, context, subject))
    else:
        after = change(context, subject)
    if after is not before:
        change_catalog(context, after)


async def in_catalog(context: Context, text: str, work: Callable[[], Found]) -> Found:
    """Returns `work()`, which plans `text` or the queries of views to change the catalog, as `offload`."""
    notices = len(context.notices)
    try:
        return at_once(text, work)
    except Stopped:
        del context.notices[notices:]
    return await _in_thread(context, work)


async def _in_thread(context: Context, work: Callable[[], Found]) -> Found:
    """Returns `work()`, which runs in a thread and sees the catalog of this moment.

    The transaction keeps it, so that a later change of the catalog by another one conflicts with the commit.
    """
    transaction = context.transaction
    before, was_changed = context.state, transaction.catalog is not None
    if not was_changed:
        transaction.catalog = (before, before)
    result = await in_stoppable_thread(work)
    if result is before and not was_changed:
        transaction.catalog = None
    return result


async def discard_temporary(context: Context) -> None:
    """Drops the temporary objects of the session."""
    if (schema := context.temporary_schema) is None:
        return None
    for _ in range(RETRIES_MAX):
        await context.enter(Mode.DEFINE, "DISCARD TEMP")
        if (schema := context.temporary_schema) is not None:
            change_catalog(context, without_schema(context.state, schema.id, cascade=True))
        if context.transaction.ends_later:
            return None
        try:
            return await context.commit()
        except PgError as error:
            if error.sqlstate is not SqlState.SERIALIZATION_FAILURE:
                raise
    raise AssertionError("unreachable")


def change_catalog(context: Context, after: CatalogState) -> None:
    """Makes `after`, computed from the catalog as the session sees it, the transaction's catalog.

    PgError 40001 if the transaction has written a table that another one has altered since.
    """
    transaction, before = context.transaction, context.state
    for id in transaction.tables.keys() & before.items.keys():
        written = before.items[id]
        if isinstance(written, Table):
            transaction.check_unaltered(written)
    check_types(before, after)
    after = after.settled(before, context.role)
    _check_after_hold(transaction, before, after)
    base = transaction.catalog[0] if transaction.catalog is not None else before
    transaction.catalog = (base, replace(after, version=base.version + 1))


def _check_after_hold(transaction: Transaction, before: CatalogState, after: CatalogState) -> None:
    """PgError 25000 if the transaction block has created a hold and now creates another object."""
    if transaction.catalog is None or not after.items.keys() - before.items.keys():
        return
    created = before.items.keys() - transaction.catalog[0].items.keys()
    if any(isinstance(before.items[id], Hold) for id in created):
        raise PgError(
            SqlState.INVALID_TRANSACTION_STATE,
            "CREATE HOLD must be the last CREATE of a transaction block",
            hint="Commit first, or create the object before the hold on it.",
        )
