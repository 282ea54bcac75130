"""SHOW: answers from the catalog and the settings."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from catalog import updates
from catalog.objects import (
    QUICKSTART,
    Hold,
    Index,
    Item,
    MaterializedView,
    ObjectId,
    Retained,
    SystemTable,
    Table,
    View,
)
from catalog.roles import PUBLIC
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, INTERVAL, TEXT, parse_type
from server.authorization.privileges import name_of
from server.execution.names import current_schema, find_relation, find_schema
from server.execution.times import interval_of_ms
from server.session_state.context import Context
from server.session_state.results import Result, TableRows
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements import ObjectKind, ShowColumns, ShowCreate, ShowKind, ShowObjects, ShowVariable
from server.sql.plan import Field
from server.sql.stored_query import definition

_ITEM_KINDS: dict[ShowKind, tuple[type, ...]] = {
    ShowKind.TABLES: (Table, SystemTable),
    ShowKind.VIEWS: (View,),
    ShowKind.MATERIALIZED_VIEWS: (MaterializedView,),
    ShowKind.INDEXES: (Index,),
    ShowKind.HOLDS: (Hold,),
    ShowKind.OBJECTS: (Table, View, MaterializedView, Index, Hold, SystemTable),
    ShowKind.SOURCES: (),
    ShowKind.SINKS: (),
}
_PRIVILEGE_COLUMNS = ("grantor", "grantee", "database", "schema", "name", "object_type", "privilege_type")


def show_fields(statement: ShowVariable | ShowObjects | ShowColumns | ShowCreate) -> tuple[Field, ...]:
    """The columns of a SHOW."""
    match statement:
        case ShowVariable(name=name):
            return _text_fields("name", "setting") if name is None else _text_fields(name)
        case ShowColumns():
            return (Field("name", TEXT, False), Field("nullable", BOOL, False), Field("type", TEXT, False))
        case ShowCreate():
            return _text_fields("name", "create_sql")
        case ShowObjects(kind=ShowKind.INDEXES):
            return _text_fields("name", "on", "key")
        case ShowObjects(kind=ShowKind.PRIVILEGES):
            return tuple(Field(n, TEXT, n in ("database", "schema")) for n in _PRIVILEGE_COLUMNS)
        case ShowObjects(kind=ShowKind.HOLDS):
            types = (TEXT, parse_type("mz_timestamp"), INTERVAL, TEXT)
            names = ("name", "at", "max_lag", "status")
            return tuple(Field(name, type, True) for name, type in zip(names, types, strict=True))
        case ShowObjects(kind=ShowKind.OBJECTS):
            return _text_fields("name", "type")
        case ShowObjects():
            return _text_fields("name")


def _text_fields(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, TEXT, False) for name in names)


def show(context: Context, statement: ShowVariable | ShowObjects | ShowColumns | ShowCreate) -> Result:
    """Executes a SHOW."""
    fields = show_fields(statement)
    match statement:
        case ShowVariable(name=None):
            rows: list[tuple[object, ...]] = list(context.settings.items())
        case ShowVariable(name=str(name)):
            rows = [(context.settings[name],)]
        case ShowColumns():
            rows = _columns(context, statement)
        case ShowCreate():
            rows = [_create(context, statement)]
        case ShowObjects():
            rows = _objects(context, statement)
    return Result(
        "SHOW" if isinstance(statement, ShowVariable) else "SELECT {}", TableRows(fields, _table(fields, rows))
    )


def _table(fields: Sequence[Field], rows: list[tuple[object, ...]]) -> pa.Table:
    schema = updates.rows_schema([field.type.arrow for field in fields])
    return pa.table([[row[i] for row in rows] for i in range(len(fields))], schema=schema)


def _like(pattern: str | None, name: str) -> bool:
    if pattern is None:
        return True
    regex = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
    return re.fullmatch(regex, name, re.DOTALL) is not None


def _columns(context: Context, statement: ShowColumns) -> list[tuple[object, ...]]:
    item = find_relation(context, statement.relation)
    return [
        (column.name, column.nullable, parse_type(column.type).display)
        for column in item.columns
        if _like(statement.like, column.name)
    ]


def _objects(context: Context, statement: ShowObjects) -> list[tuple[object, ...]]:
    state = context.state
    if statement.kind is ShowKind.DATABASES:
        return [(name,) for name in sorted(d.name for d in state.databases.values()) if _like(statement.like, name)]
    if statement.kind is ShowKind.SCHEMAS:
        database = state.database_named(
            statement.schema.parts[-1] if statement.schema else context.settings["database"]
        )
        if database is None:
            raise PgError(SqlState.INVALID_CATALOG_NAME, f'database "{statement.schema}" does not exist')
        names = sorted(s.name for s in state.schemas.values() if s.database_id in (None, database.id))
        return [(name,) for name in names if _like(statement.like, name)]
    if statement.kind is ShowKind.ROLES:
        return [(name,) for name in sorted(r.name for r in state.roles.values()) if _like(statement.like, name)]
    if statement.kind is ShowKind.PRIVILEGES:
        return [row for row in _privileges(state) if _like(statement.like, str(row[4]))]
    if statement.kind is ShowKind.CLUSTERS:
        return [(QUICKSTART.name,)] if _like(statement.like, QUICKSTART.name) else []
    items = [i for i in _shown_items(context, statement) if isinstance(i, _ITEM_KINDS[statement.kind])]
    items = sorted((i for i in items if _like(statement.like, i.name)), key=lambda i: i.name)
    match statement.kind:
        case ShowKind.INDEXES:
            return [(i.name, state.items[i.on].name, ", ".join(i.keys)) for i in items if isinstance(i, Index)]
        case ShowKind.HOLDS:
            return [_hold(context, i) for i in items if isinstance(i, Hold)]
        case ShowKind.OBJECTS:
            return [(i.name, i.kind) for i in items]
        case _:
            return [(i.name,) for i in items]


def _privileges(state: CatalogState) -> list[tuple[object, ...]]:
    """One row per privilege, granted or by default, on each object that is not a system object."""
    own = [i.id for i in (*state.schemas.values(), *state.items.values()) if not i.id.startswith("s")]
    names = {id: role.name for id, role in state.roles.items()} | {PUBLIC: "PUBLIC"}
    rows = []
    for id in (QUICKSTART.id, *state.databases, *own):
        place = _place(state, id)
        for grantee, granted in state.acl(id).items():
            kind = state.kind(id).replace(" ", "-")
            rows += [(names[state.owner(id)], names[grantee], *place, kind, privilege.value) for privilege in granted]
    return sorted(rows, key=lambda row: tuple(map(str, (row[5], *row[2:5], row[1], row[6]))))


def _place(state: CatalogState, id: ObjectId) -> tuple[str | None, str | None, str]:
    """Database, schema and name of an object. Database and schema are None for an object that is not in one."""
    item = state.items.get(id)
    schema = state.schemas.get(item.schema_id) if item is not None else state.schemas.get(id)
    database = state.databases.get(schema.database_id) if schema is not None and schema.database_id else None
    return (
        database.name if database is not None else None,
        schema.name if schema is not None and item is not None else None,
        name_of(state, id),
    )


def _hold(context: Context, hold: Hold) -> tuple[object, ...]:
    """One row of SHOW HOLDS. An uncommitted hold has no time and no status yet."""
    place = context.coordinator.holds.places.get(hold.id)
    at, status = (place.at, place.status.value) if place is not None else (None, None)
    return hold.name, at, interval_of_ms(hold.max_lag_ms), status


def _shown_items(context: Context, statement: ShowObjects) -> list[Item]:
    state = context.state
    if statement.on is not None:
        relation = find_relation(context, statement.on)
        return [i for i in state.items.values() if isinstance(i, Index) and i.on == relation.id]
    if statement.schema is not None:
        return list(state.items_in(find_schema(context, statement.schema.parts, statement.schema.position).id))
    schema = current_schema(context)
    return list(state.items_in(schema.id)) if schema is not None else []


def _create(context: Context, statement: ShowCreate) -> tuple[object, ...]:
    state = context.state
    if statement.kind in (ObjectKind.DATABASE, ObjectKind.SCHEMA):
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"SHOW CREATE {statement.kind.upper()} is not supported")
    item = find_relation(context, statement.name)
    if item.kind != statement.kind:
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{item.name}" is not a {statement.kind}')
    full = state.full_name(item)
    name = ".".join(map(quote_identifier, full))
    match item:
        case Table():
            columns = [
                f"{quote_identifier(c.name)} {parse_type(c.type).display}"
                + ("" if c.nullable else " NOT NULL")
                + (f" DEFAULT {c.default}" if c.default is not None else "")
                for c in item.columns
            ]
            columns += [f"UNIQUE ({', '.join(map(quote_identifier, key))})" for key in item.keys]
            sql = f"CREATE TABLE {name} ({', '.join(columns)}){_retain(item)}"
        case View() | MaterializedView():
            columns = [quote_identifier(c.name) for c in item.columns]
            retain = _retain(item) if isinstance(item, MaterializedView) else ""
            sql = f"CREATE {item.kind.upper()} {name} ({', '.join(columns)}){retain} AS {definition(item, state)}"
        case Index():
            on = ".".join(map(quote_identifier, state.full_name(state.items[item.on])))
            sql = f"CREATE INDEX {quote_identifier(item.name)} ON {on} ({', '.join(item.keys)}){_retain(item)}"
        case Hold():
            objects = ", ".join(".".join(map(quote_identifier, state.full_name(state.items[id]))) for id in item.on)
            place = context.coordinator.holds.places.get(item.id)
            at = f" AT {place.at}" if place is not None else ""
            sql = f"CREATE HOLD {name} ON {objects}{at} WITH (MAX LAG = '{_seconds(item.max_lag_ms)}')"
        case _:
            raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{item.name}" is a system catalog')
    return ".".join(full), sql


def _retain(item: Retained) -> str:
    return f" WITH (RETAIN HISTORY FOR '{_seconds(item.retain_ms)}')" if item.retain_ms is not None else ""


def _seconds(duration_ms: int) -> str:
    """A duration in interval syntax: `90s`, `1.500s`."""
    whole, rest = divmod(duration_ms, 1_000)
    return f"{whole}.{rest:03}s" if rest else f"{whole}s"
