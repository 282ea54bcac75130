"""DROP of databases, schemas and items."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from catalog.drops import InUse, without_database, without_item, without_schema
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.namespaces import Database, Schema
from catalog.objects.sequences import Sequence as SequenceItem
from catalog.objects.tables import Table
from catalog.references import without_references
from catalog.state import CatalogState
from protocol.pgwire.errors import Notice, PgError, SqlState
from server.authorization import privileges
from server.execution.ddl.named_objects import check_kind, find_object, in_use, refuse_missing, refuse_system_table
from server.session_state.context import Context
from server.session_state.signals import signal
from server.sql.grammar.statements.objects import DropObjects, ObjectKind
from server.sql.grammar.statements.parts import Name

SESSION_CHECKS = 50


async def wait_for_sessions(context: Context, statement: DropObjects) -> DropObjects:
    """Waits until no other session is in the databases that DROP DATABASE drops, at most five seconds.

    As in PostgreSQL: a client that has just closed its connection may still have a session. Returns the statement.
    """
    if statement.kind is ObjectKind.DATABASE and not (statement.cascade or statement.restrict or statement.force):
        names = {name.parts[-1] for name in statement.names}
        for _ in range(SESSION_CHECKS):
            if not any(_sessions_in(context, name) for name in names):
                break
            await asyncio.sleep(0.1)
    return statement


def drop(context: Context, statement: DropObjects) -> CatalogState:
    """Executes DROP."""
    if statement.kind is ObjectKind.DATABASE and context.transaction.explicit:
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, "DROP DATABASE cannot run inside a transaction block")
    if statement.concurrently and len(statement.names) > 1:
        message = "DROP INDEX CONCURRENTLY does not support dropping multiple objects"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
    if statement.concurrently and statement.cascade:
        message = "DROP INDEX CONCURRENTLY does not support CASCADE"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
    before = state = context.state
    named: dict[Name, ObjectId] = {}
    if statement.kind not in (ObjectKind.DATABASE, ObjectKind.SCHEMA):
        items = ((name, find_object(context, before, statement.kind, name)) for name in statement.names)
        named = {name: item.id for name, item in items if item is not None}
    # The foreign keys of tables that are dropped here do not prevent a drop.
    tables = [item for id in named.values() if isinstance(item := before.items[id], Table)]
    owned = [(table, key) for table in tables for key in table.foreign_keys]
    state = without_references(state, owned)
    dependents = {name: len(before.dependents(id)) for name, id in named.items()}
    # Drop dependents first, so that only objects that are not named here can prevent a drop.
    for name in sorted(statement.names, key=lambda name: dependents.get(name, 0)):
        try:
            state = _drop_one(context, state, statement, name)
        except InUse as error:
            raise in_use(error) from None
    if statement.kind is not ObjectKind.DATABASE:
        dropped = before.items.keys() - state.items.keys() - set(named.values())
        in_order = [id for id in before.items if id in dropped] if dropped else []
        report_cascade(context, [before.items[id] for id in in_order], before, state)
    return state


def _drop_one(context: Context, state: CatalogState, statement: DropObjects, name: Name) -> CatalogState:
    found = find_object(context, state, statement.kind, name)
    match found:
        case None:
            refuse_missing(context, statement.kind, name, if_exists=statement.if_exists, dropping=True)
            return state
        case Database():
            privileges.require_drop(state, context.role, found)
            without = _without_database(context, state, statement, found)
            if statement.force:
                _end_sessions(context, found)
            return without
        case Schema():
            privileges.require_drop(state, context.role, found)
            return without_schema(state, found.id, cascade=statement.cascade)
        case Item():
            check_kind(found, statement.kind, dropping=True)
            refuse_system_table(found)
            privileges.require_drop(state, context.role, found)
            if isinstance(found, SequenceItem) and found.is_identity:
                raise _required(state, found)
            return without_item(state, found.id, cascade=statement.cascade)


def _without_database(
    context: Context, state: CatalogState, statement: DropObjects, database: Database
) -> CatalogState:
    """Drops a database. Without a keyword as in PostgreSQL: with all that is in it, if nobody uses it.

    CASCADE also drops what uses it in other databases. RESTRICT refuses a database that is not empty.
    """
    if not statement.cascade and not statement.restrict:
        if database.name == context.settings["database"]:
            raise PgError(SqlState.OBJECT_IN_USE, "cannot drop the currently open database")
        others = 0 if statement.force else len(_sessions_in(context, database.name))
        if others:
            sessions = "is 1 other session" if others == 1 else f"are {others} other sessions"
            raise PgError(
                SqlState.OBJECT_IN_USE,
                f'database "{database.name}" is being accessed by other users',
                detail=f"There {sessions} using the database.",
            )
    return without_database(state, database.id, contents=not statement.restrict, cascade=statement.cascade)


def _sessions_in(context: Context, database: str) -> list[int]:
    """The process ids of the other sessions in a database."""
    observers = [*context.coordinator.activity.observers.items()]
    return [pid for pid, observe in observers if pid != context.process_id and observe().database == database]


def _end_sessions(context: Context, database: Database) -> None:
    """Ends the other sessions in a database. PgError 42501 if the role may not end one of them."""
    for process_id in _sessions_in(context, database.name):
        signal(context, "pg_terminate_backend", process_id)


def _required(state: CatalogState, sequence: SequenceItem) -> PgError:
    """The error for DROP of the sequence of an identity column."""
    assert sequence.owner_table is not None
    column = f"column {sequence.owner_column} of table {state.items[sequence.owner_table].name}"
    return PgError(
        SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
        f"cannot drop sequence {sequence.name} because {column} requires it",
        hint=f"You can drop {column} instead.",
    )


def report_cascade(context: Context, dropped: Iterable[Item], before: CatalogState, after: CatalogState) -> None:
    """Sends a notice that lists what CASCADE dropped: these items, without those that are part of another.

    It also lists the foreign keys that the tables in both states have lost.
    """
    lines = [f"drop cascades to {item.kind} {item.name}" for item in dropped if item.part_of is None]
    for id in after.changed_items(before):
        table, left = before.items.get(id), after.items[id]
        if isinstance(table, Table) and isinstance(left, Table):
            numbers = {key.number for key in left.foreign_keys}
            lost = [key.name for key in table.foreign_keys if key.number not in numbers]
            lines += [f"drop cascades to constraint {name} on table {table.name}" for name in lost]
    report_lines(context, lines)


def report_lines(context: Context, lines: Sequence[str]) -> None:
    """Sends a notice that lists what CASCADE dropped, if it dropped something."""
    if not lines:
        return
    head = lines[0] if len(lines) == 1 else f"drop cascades to {len(lines)} other objects"
    context.notice(Notice(head, detail="\n".join(lines) if len(lines) > 1 else None))
