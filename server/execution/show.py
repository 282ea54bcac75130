"""SHOW: answers from the catalog and the settings."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from catalog import updates
from catalog.builtin import MZ_SUBSCRIPTIONS
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.clusters import QUICKSTART
from catalog.objects.kinds import object_type, with_article
from catalog.objects.relations import Relation
from catalog.objects.types import Domain, EnumType
from catalog.roles import PUBLIC, Privilege
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, TEXT, parse_type
from server.authorization import privileges
from server.execution.ddl.kinds import KINDS
from server.execution.ddl.named_objects import find_object
from server.execution.names import current_schema, find_item, find_schema
from server.session_state.context import Context
from server.session_state.results import Result, TableRows
from server.settings.variables import VARIABLES
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.show import ShowColumns, ShowCreate, ShowKind, ShowObjects, ShowVariable
from server.sql.plan import Field

_PRIVILEGE_COLUMNS = ("grantor", "grantee", "database", "schema", "name", "object_type", "privilege_type")


def show_fields(statement: ShowVariable | ShowObjects | ShowColumns | ShowCreate) -> tuple[Field, ...]:
    """The columns of a SHOW."""
    match statement:
        case ShowVariable(name=name):
            if name is None:
                return _text_fields("name", "setting")
            variable = VARIABLES.get(name.lower())
            return _text_fields(name if variable is None else variable.name)
        case ShowColumns():
            return (Field("name", TEXT, False), Field("nullable", BOOL, False), Field("type", TEXT, False))
        case ShowCreate():
            return _text_fields("name", "create_sql")
        case ShowObjects(kind=ShowKind.PRIVILEGES):
            return tuple(Field(n, TEXT, n in ("database", "schema")) for n in _PRIVILEGE_COLUMNS)
        case ShowObjects(kind=ShowKind.SUBSCRIPTIONS):
            return tuple(Field(c.name, parse_type(c.type), c.nullable) for c in MZ_SUBSCRIPTIONS.columns)
        case ShowObjects(kind=ShowKind.OBJECTS):
            return _text_fields("name", "type")
        case ShowObjects(kind=kind):
            listed = (functions.show_fields for item, functions in KINDS.items() if item.plural == kind)
            return next(listed, _text_fields("name"))


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
        case ShowObjects(kind=ShowKind.SUBSCRIPTIONS):
            privileges.require(context.state, context.role, MZ_SUBSCRIPTIONS.id, Privilege.SELECT)
            table = context.coordinator.system_tables.current_rows(MZ_SUBSCRIPTIONS)
            return Result("SELECT {}", TableRows(fields, table))
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
    item = find_item(context, statement.relation)
    return [
        (column.name, column.nullable, parse_type(column.type).display)
        for column in (item.columns if isinstance(item, Relation) else ())
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
    items = sorted((i for i in _shown_items(context, statement) if _like(statement.like, i.name)), key=lambda i: i.name)
    if statement.kind is ShowKind.OBJECTS:
        return [(i.name, i.kind) for i in items]
    return [_row(context, i) for i in items if i.plural == statement.kind]


def _row(context: Context, item: Item) -> tuple[object, ...]:
    functions = KINDS.get(type(item))
    return functions.show_row(context, item) if functions is not None else (item.name,)


def _privileges(state: CatalogState) -> list[tuple[object, ...]]:
    """One row per privilege, granted or by default, on each object that is not a system object."""
    own = [id for id in (*state.schemas, *state.items) if not id.startswith("s")]
    names = {id: role.name for id, role in state.roles.items()} | {PUBLIC: "PUBLIC"}
    rows = []
    for id in (QUICKSTART.id, *state.databases, *own):
        name = _name_parts(state, id)
        kind = object_type(state.object(id).kind)
        for item in state.acl(id):
            grantor, grantee = names[item.grantor], names[item.grantee]
            rows += [(grantor, grantee, *name, kind, privilege.value) for privilege in item.privileges]
    return sorted(rows, key=lambda row: tuple(map(str, (row[5], *row[2:5], row[1], row[6], row[0]))))


def _name_parts(state: CatalogState, id: ObjectId) -> tuple[str | None, str | None, str]:
    """Database, schema and name of an object. Database and schema are None for an object that is not in one."""
    item = state.items.get(id)
    schema = state.schemas.get(item.schema_id) if item is not None else state.schemas.get(id)
    database = state.databases.get(schema.database_id) if schema is not None and schema.database_id else None
    return (
        database.name if database is not None else None,
        schema.name if schema is not None and item is not None else None,
        state.object(id).name,
    )


def _shown_items(context: Context, statement: ShowObjects) -> list[Item]:
    state = context.state
    if statement.on is not None:
        relation = find_item(context, statement.on)
        return list(state.indexes_on(relation.id))
    if statement.schema is not None:
        return list(state.items_in(find_schema(context, statement.schema.parts, statement.schema.position).id))
    schema = current_schema(context)
    return list(state.items_in(schema.id)) if schema is not None else []


def _create(context: Context, statement: ShowCreate) -> tuple[object, ...]:
    if statement.kind in (ObjectKind.DATABASE, ObjectKind.SCHEMA):
        message = f"SHOW CREATE {statement.kind.upper()} is not supported"
        hint = f"A {statement.kind} has only a name and an owner. SHOW OBJECTS lists what is in a schema."
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
    item = find_object(context, context.state, statement.kind, statement.name)
    if isinstance(item, EnumType | Domain):
        privileges.require_names(context.state, context.role, (item.id,))
    else:
        item = find_item(context, statement.name)
    if item.statement_kind != statement.kind:
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'"{item.name}" is not {with_article(statement.kind)}')
    return ".".join(context.state.full_name(item)), KINDS[type(item)].show_create(context, item)
