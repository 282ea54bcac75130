"""SHOW as a query over the system tables, for SUBSCRIBE.

The names in the statement are resolved when it is planned. An object that takes over a name later is not shown.
"""

from __future__ import annotations

from catalog import builtin
from catalog.objects.kinds import KINDS, object_type
from catalog.objects.system_tables import SystemTable
from protocol.pgwire.errors import PgError, SqlState
from server.execution.names import current_schema, find_item, find_schema
from server.session_state.context import Context
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.parse import parse_query
from server.sql.grammar.statements.parts import Query
from server.sql.grammar.statements.show import ShowColumns, ShowKind, ShowObjects, ShowStatement
from server.sql.scope import ID_SCHEMA

_PRIVILEGES = "The tables of mz_catalog have a column privileges."


def show_query(context: Context, statement: ShowStatement) -> Query:
    """Returns the query. PgError for a SHOW that does not list objects."""
    match statement:
        case ShowObjects(like=like):
            text = _objects(context, statement)
        case ShowColumns(relation=name, like=like):
            id = find_item(context, name).id
            text = f"SELECT name, nullable, type FROM {_named(builtin.MZ_COLUMNS)} WHERE id = {_quoted(id)}"
        case _:
            hint = "Repeat SHOW, or subscribe to a query over the tables of mz_catalog."
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "SUBSCRIBE to this SHOW is not supported", hint=hint)
    if like is not None:
        text = f"SELECT * FROM ({text}) AS shown WHERE name LIKE {_quoted(like)}"
    return parse_query(text)


def _objects(context: Context, statement: ShowObjects) -> str:
    match statement.kind:
        case ShowKind.DATABASES:
            return f"SELECT name FROM {_named(builtin.MZ_DATABASES)}"
        case ShowKind.ROLES:
            return f"SELECT name FROM {_named(builtin.MZ_ROLES)}"
        case ShowKind.PRIVILEGES:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "SUBSCRIBE to this SHOW is not supported", hint=_PRIVILEGES)
        case ShowKind.SUBSCRIPTIONS:
            columns = ", ".join(column.name for column in builtin.MZ_SUBSCRIPTIONS.columns)
            return f"SELECT {columns} FROM {_named(builtin.MZ_SUBSCRIPTIONS)}"
        case ShowKind.SCHEMAS:
            return _schemas(context, statement)
        case ShowKind.CLUSTERS:
            return f"SELECT name FROM {_named(builtin.MZ_CLUSTERS)}"
        case ShowKind.HOLDS:
            shown = "o.name AS name, o.at AS at, o.max_lag AS max_lag, o.status AS status"
            return f"SELECT {shown} FROM {_named(builtin.MZ_HOLDS)} AS o WHERE {_where(context, statement)}"
        case ShowKind.INDEXES:
            return (
                f'SELECT i.name AS name, o.name AS "on", i.key AS key FROM {_named(builtin.MZ_INDEXES)} AS i '
                f"JOIN {_named(builtin.MZ_OBJECTS)} AS o ON o.id = i.on_id WHERE {_where(context, statement)}"
            )
        case ShowKind.OBJECTS:
            shown = "o.name AS name, replace(o.type, '-', ' ') AS type"
            return f"SELECT {shown} FROM {_named(builtin.MZ_OBJECTS)} AS o WHERE {_where(context, statement)}"
        case ShowKind.SOURCES | ShowKind.CONNECTIONS:
            table = builtin.MZ_SOURCES if statement.kind is ShowKind.SOURCES else builtin.MZ_CONNECTIONS
            where = f"{_where(context, statement)} AND o.type <> 'source-table'"
            return f"SELECT o.name AS name, o.type AS type FROM {_named(table)} AS o WHERE {where}"
        case kind:
            types = ", ".join(_quoted(object_type(k.kind)) for k in KINDS.values() if k.plural == kind) or "NULL"
            return (
                f"SELECT o.name AS name FROM {_named(builtin.MZ_OBJECTS)} AS o "
                f"WHERE {_where(context, statement)} AND o.type IN ({types})"
            )


def _schemas(context: Context, statement: ShowObjects) -> str:
    name = statement.schema.parts[-1] if statement.schema else context.settings["database"]
    database = context.state.database_named(name)
    if database is None:
        raise PgError(SqlState.INVALID_CATALOG_NAME, f'database "{name}" does not exist')
    within = f"database_id = {_quoted(database.id)} OR database_id IS NULL"
    return f"SELECT name FROM {_named(builtin.MZ_SCHEMAS)} WHERE {within}"


def _where(context: Context, statement: ShowObjects) -> str:
    """The condition on objects `o` (or indexes `i` on them): on a relation, in a schema, or in the current schema."""
    if statement.on is not None:
        return f"i.on_id = {_quoted(find_item(context, statement.on).id)}"
    if statement.schema is not None:
        schema = find_schema(context, statement.schema.parts, statement.schema.position)
    else:
        current = current_schema(context)
        if current is None:
            return "false"
        schema = current
    return f"o.schema_id = {_quoted(schema.id)}"


def _named(table: SystemTable) -> str:
    return f"{quote_identifier(ID_SCHEMA)}.{quote_identifier(table.id)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
