"""VACUUM, ANALYZE, REINDEX and REFRESH, which only check names and privileges.

The log is compacted in the background, and every commit keeps the indexes and the materialized views up to date.
"""

from __future__ import annotations

from catalog.objects.catalog_object import Item
from catalog.objects.indexes import Index
from catalog.objects.tables import Table
from catalog.objects.views import MaterializedView
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from server.authorization import privileges
from server.execution.ddl.keys import key_owner
from server.execution.names import find_item, find_schema
from server.session_state.context import Context
from server.session_state.results import Result
from server.sql.grammar.statements.maintenance import Maintain, Refresh, Reindex

_WHOLE = ("schema", "database", "system")


def maintain(context: Context, statement: Maintain, *, in_block: bool) -> Result:
    """Executes VACUUM, ANALYZE and CHECKPOINT. PgError 25001, 42P01, 42501.

    A warning names each relation that PostgreSQL would skip. Without a checkpoint, acknowledged commits are on disk.
    """
    tag = statement.tag
    if tag == "CHECKPOINT" and not privileges.is_superuser(context.state, context.role):
        message = "permission denied to execute CHECKPOINT command"
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, message, detail="Only superusers may execute this command.")
    if tag == "VACUUM" and in_block:
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, "VACUUM cannot run inside a transaction block")
    for name in statement.tables:
        item, act = find_item(context, name), tag.lower()
        if not _is_permitted(context, item):
            _warn(context, f'permission denied to {act} "{item.name}", skipping it')
        elif item.relkind not in ("r", "m"):
            _warn(context, f'skipping "{item.name}" --- cannot {act} non-tables or special system tables')
    return Result(tag)


def _is_permitted(context: Context, item: Item) -> bool:
    """Whether the role may maintain the item. The owner of a database may maintain all of its relations."""
    database = context.state.schemas[item.schema_id].database_id
    return privileges.may_maintain(context.state, context.role, item) or (
        database is not None and privileges.owns(context.state, context.role, database)
    )


def _warn(context: Context, message: str) -> None:
    context.notice(Notice(message, severity=Severity.WARNING, sqlstate=SqlState.WARNING))


def reindex(context: Context, statement: Reindex, *, in_block: bool) -> Result:
    """Executes REINDEX. PgError 25001, 42P01, 42809, 42501, 3F000, 0A000."""
    if in_block and (statement.concurrently or statement.kind in _WHOLE):
        what = "CONCURRENTLY" if statement.concurrently else statement.kind.upper()
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, f"REINDEX {what} cannot run inside a transaction block")
    name = statement.name
    match statement.kind:
        case "index":
            assert name is not None
            if len(name.parts) > 1:
                find_schema(context, name.parts[:-1])
            found = key_owner(context, name) or find_item(context, name)
            if not isinstance(found, Index | Table) or (isinstance(found, Table) and found.name == name.parts[-1]):
                raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{found.name}" is not an index')
            table = context.state.items[found.on] if isinstance(found, Index) else found
            if not privileges.may_maintain(context.state, context.role, table):
                message = f"permission denied for index {name.parts[-1]}"
                raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, message)
        case "table":
            assert name is not None
            _check_table(context, find_item(context, name), concurrently=statement.concurrently)
        case "schema":
            assert name is not None
            privileges.require_owner(context.state, context.role, find_schema(context, name.parts))
        case _:
            if name is not None and name.parts[-1] != context.settings["database"]:
                message = "can only reindex the currently open database"
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
            database = context.state.database_named(context.settings["database"])
            if database is not None:
                privileges.require_owner(context.state, context.role, database)
    return Result("REINDEX")


def refresh(context: Context, statement: Refresh) -> Result:
    """Executes REFRESH MATERIALIZED VIEW. PgError 42P01, 42809, 42501, 0A000."""
    found = find_item(context, statement.name)
    _check_maintained(context, found)
    if not isinstance(found, MaterializedView):
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f'"{found.name}" is not a materialized view')
    return Result("REFRESH MATERIALIZED VIEW")


def _check_maintained(context: Context, found: Item) -> None:
    """PgError 42809 unless it is a table or materialized view, 42501 if the role may not maintain it."""
    if not isinstance(found, Table | MaterializedView):
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{found.name}" is not a table or materialized view')
    if not privileges.may_maintain(context.state, context.role, found):
        raise privileges.denied(context.state, found.id)


def _check_table(context: Context, found: Item, *, concurrently: bool) -> None:
    _check_maintained(context, found)
    has_keys = isinstance(found, Table) and bool(found.keys)
    if not has_keys and not context.state.indexes_on(found.id):
        what = "that can be reindexed concurrently" if concurrently else "to reindex"
        context.notice(Notice(f'table "{found.name}" has no indexes {what}'))
