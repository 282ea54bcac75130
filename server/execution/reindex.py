"""REINDEX, which only checks the names: every commit keeps the indexes up to date."""

from __future__ import annotations

from catalog.objects import Index, Item, MaterializedView, Table
from protocol.pgwire.errors import Notice, PgError, SqlState
from server.authorization import privileges
from server.execution.names import find_item, find_schema
from server.session_state.context import Context
from server.session_state.results import Result
from server.sql.grammar.statements.maintenance import Reindex
from server.sql.grammar.statements.parts import Name

_WHOLE = ("schema", "database", "system")


def reindex(context: Context, statement: Reindex, *, in_block: bool) -> Result:
    """Executes REINDEX. PgError 25001, 42P01, 42809, 42501, 3F000, 0A000."""
    if in_block and (statement.concurrently or statement.kind in _WHOLE):
        what = "CONCURRENTLY" if statement.concurrently else statement.kind.upper()
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, f"REINDEX {what} cannot run inside a transaction block")
    name = statement.name
    match statement.kind:
        case "index":
            assert name is not None
            found = _key_owner(context, name) or find_item(context, name)
            if not isinstance(found, Index | Table) or (isinstance(found, Table) and found.name == name.parts[-1]):
                raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{found.name}" is not an index')
            privileges.require_owner(context.state, context.role, found)
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
    return Result("REINDEX")


def _check_table(context: Context, found: Item, *, concurrently: bool) -> None:
    if not isinstance(found, Table | MaterializedView):
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{found.name}" is not a table or materialized view')
    privileges.require_owner(context.state, context.role, found)
    has_keys = isinstance(found, Table) and bool(found.keys)
    if not has_keys and not context.state.indexes_on(found.id):
        what = "that can be reindexed concurrently" if concurrently else "to reindex"
        context.notice(Notice(f'table "{found.name}" has no indexes {what}'))


def _key_owner(context: Context, name: Name) -> Table | None:
    """The table whose key has the index of this name."""
    state = context.state
    database = state.database_named(context.settings["database"])
    *qualifier, last = name.parts
    if qualifier:
        schemas = [find_schema(context, tuple(qualifier))]
    else:
        named = [state.schema_named(database.id if database else None, path) for path in context.search_path]
        schemas = [schema for schema in named if schema is not None]
    for schema in schemas:
        if state.item_named(schema.id, last) is not None:
            return None
        for table in state.items_of(Table):
            if table.schema_id == schema.id and any(key.name == last for key in table.keys):
                return table
    return None
