"""CREATE, DROP, ALTER and COMMENT ON. Each is a pure function from one catalog state to the next.

In an implicit transaction the change is committed immediately, and recomputed if the catalog changed concurrently.
In a transaction block the changes accumulate in the transaction and are visible only to it until COMMIT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from catalog.objects import (
    QUICKSTART,
    Column,
    Database,
    Hold,
    Index,
    Item,
    MaterializedView,
    ObjectId,
    Schema,
    SystemTable,
    Table,
    View,
)
from catalog.roles import PUBLIC, Privilege
from catalog.state import CatalogState, InUse, NameTaken
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import INTERVAL
from server.authorization import privileges
from server.dataflow.arrangements.file_arrangement import EXECUTORS
from server.dataflow.plan.maintenance_strategy import maintenance_strategy
from server.execution.ddl import grants, roles
from server.execution.ddl.roles import meant
from server.execution.names import find_relation, schema_of
from server.execution.planning import plan_default, plan_index_keys, system_table_in
from server.execution.times import milliseconds_of
from server.session_state.context import Context
from server.session_state.results import Result
from server.session_state.transaction import Mode, Transaction
from server.settings import checked_value, find_variable
from server.sql.grammar.statements import (
    AlterOwner,
    AlterRename,
    AlterRetention,
    AlterSystem,
    CommentOn,
    CreateDatabase,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateTable,
    CreateView,
    Definition,
    DropObjects,
    Ident,
    Name,
    ObjectKind,
    Query,
)
from server.sql.index_keys import key_column
from server.sql.plan import QueryPlan, plan_query
from server.sql.stored_query import plan_stored, relation_query

NO_COLUMNS_HINT = "Give it one constant column, such as true AS present."
RETRIES_MAX = 10


Step = Callable[[Context], CatalogState]
"""Maps the catalog as the session sees it to the next state. Returns the same state if nothing changes."""


async def define(context: Context, statement: Definition) -> Result:
    """Executes a DDL statement."""
    return await take(context, statement.tag, lambda context: _STEPS[type(statement)](context, statement))


async def take(context: Context, tag: str, step: Step) -> Result:
    """Applies a catalog change and commits it, unless in a transaction block. `tag` is the statement's command tag.

    The commit is retried after a serialization failure, at most `RETRIES_MAX` times.
    """
    for attempt in range(RETRIES_MAX):
        await context.enter(Mode.DEFINE, tag)
        before = context.state
        after = step(context)
        if after is not before:
            after = after.settled(before, context.role)
            transaction = context.transaction
            _check_after_hold(transaction, before, after)
            base = transaction.catalog[0] if transaction.catalog is not None else before
            transaction.catalog = (base, replace(after, version=base.version + 1))
        if context.transaction.ends_later:
            break
        try:
            await context.commit()
            break
        except PgError as error:
            if error.sqlstate is not SqlState.SERIALIZATION_FAILURE or attempt == RETRIES_MAX - 1:
                raise
    return Result(tag)


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


_TAKEN = {
    "database": SqlState.DUPLICATE_DATABASE,
    "schema": SqlState.DUPLICATE_SCHEMA,
    "hold": SqlState.DUPLICATE_OBJECT,
}


def _taken(error: NameTaken, position: int | None = None) -> PgError:
    kind = error.kind if error.kind in _TAKEN else "relation"
    return PgError(
        _TAKEN.get(error.kind, SqlState.DUPLICATE_TABLE), f'{kind} "{error.name}" already exists', position=position
    )


def exists(context: Context, error: NameTaken, if_not_exists: bool) -> CatalogState:
    """The name is taken. With IF NOT EXISTS sends a notice and returns the state unchanged, else raises PgError."""
    refusal = _taken(error)
    if not if_not_exists:
        raise refusal
    context.notice(Notice(f"{refusal.message}, skipping", sqlstate=refusal.sqlstate))
    return context.state


def _create_database(context: Context, statement: CreateDatabase) -> CatalogState:
    if context.transaction.explicit:
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, "CREATE DATABASE cannot run inside a transaction block")
    _require_create_db(context, "create")
    id, state = context.state.new_id()
    schema_id, state = state.new_id()
    try:
        state = state.with_database(Database(id, statement.name.name))
    except NameTaken as error:
        return exists(context, error, statement.if_not_exists)
    state = state.with_schema(Schema(schema_id, id, "public")).with_owner(schema_id, context.role)
    # PUBLIC has USAGE on schema public, as in PostgreSQL
    public = {context.role: frozenset((Privilege.USAGE, Privilege.CREATE)), PUBLIC: frozenset((Privilege.USAGE,))}
    return state.with_acl(schema_id, public)


def _require_create_db(context: Context, verb: str) -> None:
    role = context.state.roles.get(context.role)
    if role is None or not (role.superuser or role.create_db):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied to {verb} database")


def _create_schema(context: Context, statement: CreateSchema) -> CatalogState:
    *qualifier, name = statement.name.parts
    database = context.state.database_named(qualifier[0] if qualifier else context.settings["database"])
    if database is None:
        missing = qualifier[0] if qualifier else context.settings["database"]
        raise PgError(SqlState.INVALID_CATALOG_NAME, f'database "{missing}" does not exist')
    if name.startswith(("pg_", "mz_")):
        raise PgError(
            SqlState.INVALID_SCHEMA_NAME,
            f'unacceptable schema name "{name}"',
            detail='The prefixes "pg_" and "mz_" are reserved for system schemas.',
        )
    privileges.require(context.state, context.role, database.id, Privilege.CREATE)
    id, state = context.state.new_id()
    try:
        return state.with_schema(Schema(id, database.id, name))
    except NameTaken as error:
        return exists(context, error, statement.if_not_exists)


def _create_table(context: Context, statement: CreateTable) -> CatalogState:
    schema, name = schema_of(context, statement.name)
    names = [definition.name.name for definition in statement.columns]
    _check_distinct([definition.name for definition in statement.columns])
    _check_count(statement.columns)
    if not statement.columns:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "tables without columns are not supported", hint=NO_COLUMNS_HINT)
    columns = []
    for definition in statement.columns:
        default = plan_default(definition, context.plan_context()) if definition.default is not None else None
        columns.append(Column(definition.name.name, str(definition.type), not definition.not_null, default))
    for key in statement.keys:
        for column in key.columns:
            if column.name not in names:
                raise PgError(
                    SqlState.UNDEFINED_COLUMN,
                    f'column "{column.name}" named in key does not exist',
                    position=column.position,
                )
    id, state = context.state.new_id()
    keys = tuple(tuple(column.name for column in key.columns) for key in statement.keys)
    try:
        state = state.with_item(
            Table(id, schema.id, name, tuple(columns), keys, retained_ms(context, statement.retain))
        )
    except NameTaken as error:
        return exists(context, error, statement.if_not_exists)
    if statement.keys:
        context.notice(
            Notice(
                f'PRIMARY KEY and UNIQUE constraints of table "{name}" are not enforced',
                severity=Severity.NOTICE,
                hint="They are kept as documentation; nothing refuses a duplicate.",
            )
        )
    return state


COLUMNS_MAX = 1_600  # of a table or view, as in PostgreSQL


def _check_count(columns: Sequence[object]) -> None:
    if len(columns) > COLUMNS_MAX:
        raise PgError(SqlState.TOO_MANY_COLUMNS, f"tables can have at most {COLUMNS_MAX} columns")


def _check_distinct(columns: list[Ident]) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise PgError(
                SqlState.DUPLICATE_COLUMN,
                f'column "{column.name}" specified more than once',
                position=column.position or None,
            )
        seen.add(column.name)


def _create_view(context: Context, statement: CreateView | CreateMaterializedView) -> CatalogState:
    schema, name = schema_of(context, statement.name)
    state = context.state
    present = state.item_named(schema.id, name)
    materialized = isinstance(statement, CreateMaterializedView)
    query = statement.query
    columns, text, uses = plan_view(context, query, statement.columns, maintained=materialized)
    if materialized:
        _check_followed(context, plan_stored(text, state))
    replaced = present if statement.or_replace else None
    if replaced is not None:
        privileges.require_owner(state, context.role, replaced)
        try:
            state = _without(state, replaced, cascade=False)
        except InUse as error:
            raise _in_use(error) from None
    id, state = state.new_id()
    made: View | MaterializedView
    if isinstance(statement, CreateMaterializedView):
        retain_ms = retained_ms(context, statement.retain)
        made = MaterializedView(id, schema.id, name, columns, text, uses, retain_ms)
    else:
        made = View(id, schema.id, name, columns, text, uses)
    try:
        state = state.with_item(made)
        return _as_before(context.state, replaced, state, id) if replaced is not None else state
    except NameTaken as error:
        return exists(context, error, statement.if_not_exists)


def _as_before(before: CatalogState, replaced: Item, state: CatalogState, id: ObjectId) -> CatalogState:
    """The object that replaces a view keeps the view's owner and privileges."""
    state = state.with_owner(id, before.owner(replaced.id))
    return state.with_acl(id, before.acl(replaced.id)) if replaced.id in before.privileges else state


def plan_view(
    context: Context, query: Query, names: tuple[Ident, ...], *, maintained: bool
) -> tuple[tuple[Column, ...], str, frozenset[ObjectId]]:
    """Returns a view's columns, its stored text, and the ids of the objects that it uses."""
    plan = plan_query(query, context.plan_context(), None, maintained=maintained)
    if maintained:
        privileges.require_query(context.state, context.role, plan)
        privileges.require(context.state, context.role, QUICKSTART.id, Privilege.USAGE)
    else:
        privileges.require_names(context.state, context.role, plan.uses)
    if maintained and (system := system_table_in(plan, context.state)) is not None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED, f'materialized view over system table "{system.name}" is not supported'
        )
    if len(names) > len(plan.columns):
        raise PgError(SqlState.SYNTAX_ERROR, "CREATE VIEW specifies more column names than columns")
    given = [ident.name for ident in names]
    final = [*given, *(field.name for field in plan.columns[len(given) :])]
    _check_distinct([*names, *(Ident(name, 0) for name in final[len(given) :])])
    _check_count(final)
    if not final:
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "views without columns are not supported", hint=NO_COLUMNS_HINT)
    columns = tuple(
        Column(name, "text" if field.type.name == "unknown" else str(field.type), field.nullable)
        for name, field in zip(final, plan.columns, strict=True)
    )
    return columns, plan.stored_text, plan.uses


def _create_index(context: Context, statement: CreateIndex) -> CatalogState:
    item = find_relation(context, statement.on)
    if not isinstance(item, Table | MaterializedView | View):
        raise PgError(SqlState.WRONG_OBJECT_TYPE, f'cannot create index on {item.kind} "{item.name}"')
    state = context.state
    privileges.require_owner(state, context.role, item)
    privileges.require(state, context.role, item.schema_id, Privilege.CREATE)
    privileges.require(state, context.role, QUICKSTART.id, Privilege.USAGE)
    keys = plan_index_keys(statement, item, context.plan_context())
    if isinstance(item, View):
        _check_indexed_view(context, item)
    name = statement.name.name if statement.name is not None else _index_name(state, item, keys)
    id, state = state.new_id()
    try:
        return state.with_item(Index(id, item.schema_id, name, item.id, keys, retained_ms(context, statement.retain)))
    except NameTaken as error:
        return exists(context, error, statement.if_not_exists)


def _check_indexed_view(context: Context, view: View) -> None:
    """Checks a view for CREATE INDEX, which maintains its rows like those of a materialized view.

    PgError if they cannot be maintained, or if the role may not read them.
    """
    privileges.require_select(context.state, context.role, (view.id,))
    plan = plan_stored(relation_query(view).text, context.state)
    if (system := system_table_in(plan, context.state)) is not None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f'index on view "{view.name}" over system table "{system.name}" is not supported',
        )
    _check_followed(context, plan)


def _check_followed(context: Context, stored: QueryPlan) -> None:
    """PgError 0A000 if the query cannot be maintained. The query may read objects created by this transaction."""
    items, lines = context.state.items, context.coordinator.lines
    sizes = {id: lines(id) for id in stored.inputs if isinstance(items[id], Table | MaterializedView)}
    maintenance_strategy(stored, sizes).check()


def _index_name(state: CatalogState, item: Item, keys: tuple[str, ...]) -> str:
    columns = [key_column(key, item.columns) for key in keys]
    words = ["expr" if column is None else item.columns[column].name for column in columns]
    stem = "_".join([item.name, *words, "idx"]) if keys else f"{item.name}_primary_idx"
    number, name = 0, stem
    while state.item_named(item.schema_id, name) is not None:
        number += 1
        name = f"{stem}{number}"
    return name


_UNDEFINED = {ObjectKind.HOLD: SqlState.UNDEFINED_OBJECT}


def _drop(context: Context, statement: DropObjects) -> CatalogState:
    if statement.kind is ObjectKind.DATABASE and context.transaction.explicit:
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, "DROP DATABASE cannot run inside a transaction block")
    before = state = context.state
    named: dict[Name, ObjectId] = {}
    if statement.kind not in (ObjectKind.DATABASE, ObjectKind.SCHEMA):
        items = ((name, _item_named(context, before, name)) for name in statement.names)
        named = {name: item.id for name, item in items if item is not None}
    users = {name: len(before.dependents(id)) for name, id in named.items()}
    # Drop dependents first, so that only objects that are not named here can prevent a drop.
    for name in sorted(statement.names, key=lambda name: users.get(name, 0)):
        try:
            state = _drop_one(context, state, statement, name)
        except InUse as error:
            raise _in_use(error) from None
    if statement.kind is not ObjectKind.DATABASE:
        gone = before.items.keys() - state.items.keys() - set(named.values())
        _tell_cascade(context, [item for id, item in before.items.items() if id in gone])
    return state


def _item_named(context: Context, state: CatalogState, name: Name) -> Item | None:
    return state.resolve(name.parts, context.settings["database"], context.search_path)


def _tell_cascade(context: Context, gone: Sequence[Item]) -> None:
    """Sends a notice that lists the objects dropped by CASCADE. Indexes are omitted: they belong to their relations."""
    lines = [f"drop cascades to {item.kind} {item.name}" for item in gone if not isinstance(item, Index)]
    if not lines:
        return
    head = lines[0] if len(lines) == 1 else f"drop cascades to {len(lines)} other objects"
    context.notice(Notice(head, detail="\n".join(lines) if len(lines) > 1 else None))


def _in_use(error: InUse) -> PgError:
    kind = f"{error.kind} {error.name}"
    return PgError(
        SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
        f"cannot drop {kind} because other objects depend on it",
        detail="\n".join(f"{k} {n} depends on {kind}" for k, n in error.dependents),
        hint="Use DROP ... CASCADE to drop the dependent objects too.",
    )


def _drop_one(context: Context, state: CatalogState, statement: DropObjects, name: Name) -> CatalogState:
    match statement.kind:
        case ObjectKind.DATABASE:
            database = state.database_named(name.parts[-1])
            if database is None:
                return _missing(context, state, statement, name, SqlState.INVALID_CATALOG_NAME)
            privileges.require_drop(state, context.role, database)
            return state.without_database(database.id, cascade=statement.cascade)
        case ObjectKind.SCHEMA:
            schema = _schema_named(context, state, name)
            if schema is None:
                return _missing(context, state, statement, name, SqlState.INVALID_SCHEMA_NAME)
            privileges.require_drop(state, context.role, schema)
            return state.without_schema(schema.id, cascade=statement.cascade)
        case _:
            item = _item_named(context, state, name)
            if item is None:
                code = _UNDEFINED.get(statement.kind, SqlState.UNDEFINED_TABLE)
                return _missing(context, state, statement, name, code)
            check_kind(item, statement.kind, dropping=True)
            if not isinstance(item, SystemTable):
                privileges.require_drop(state, context.role, item)
            return _without(state, item, cascade=statement.cascade)


def _without(state: CatalogState, item: Item, *, cascade: bool) -> CatalogState:
    if isinstance(item, SystemTable):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied: "{item.name}" is a system catalog')
    return state.without_item(item.id, cascade=cascade)


def _schema_named(context: Context, state: CatalogState, name: Name) -> Schema | None:
    *qualifier, last = name.parts
    database = state.database_named(qualifier[0] if qualifier else context.settings["database"])
    schema = state.schema_named(database.id, last) if database is not None else None
    if schema is not None and schema.database_id is None:
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied: "{last}" is a system schema')
    return schema


def _missing(
    context: Context,
    state: CatalogState,
    statement: DropObjects | _Altering,
    name: Name,
    code: SqlState,
) -> CatalogState:
    message = f'{statement.kind} "{name}" does not exist'
    if not statement.if_exists:
        raise PgError(code, message, position=name.position)
    context.notice(Notice(f"{message}, skipping"))
    return state


def check_kind(item: Item, kind: ObjectKind, *, dropping: bool = False) -> None:
    """PgError 42809 if the item is of another kind."""
    if item.kind != kind:
        actual = ObjectKind(item.kind) if item.kind in list(ObjectKind) else ObjectKind.TABLE
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'"{item.name}" is not {_with_article(kind)}',
            hint=f"Use DROP {actual.upper()} to remove {_with_article(actual)}." if dropping else None,
        )


def _with_article(kind: ObjectKind) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _rename(context: Context, statement: AlterRename) -> CatalogState:
    state, new = context.state, statement.new_name.name
    found = _altered(context, statement)
    if found is None:
        return state
    privileges.require_owner(state, context.role, found)
    try:
        match found:
            case Database():
                _require_create_db(context, "rename")
                return state.with_database(replace(found, name=new))
            case Schema():
                assert found.database_id is not None
                privileges.require(state, context.role, found.database_id, Privilege.CREATE)
                return state.with_schema(replace(found, name=new))
            case _:
                privileges.require(state, context.role, found.schema_id, Privilege.CREATE)
                return state.with_item(replace(found, name=new))
    except NameTaken as error:
        raise _taken(error, statement.new_name.position) from None


def _alter_owner(context: Context, statement: AlterOwner) -> CatalogState:
    state = context.state
    found = _altered(context, statement)
    if found is None:
        return state
    if isinstance(found, Index):
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'cannot change owner of index "{found.name}"',
            hint="Change the ownership of the index's table instead.",
        )
    role = meant(context, statement.owner)
    if state.owner(found.id) == role.id:
        return state
    privileges.require_owner(state, context.role, found)
    if not privileges.is_member(state, context.role, role.id):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'must be able to SET ROLE "{role.name}"')
    if not privileges.is_superuser(state, context.role):
        match found:  # except for superusers, ownership requires the right to create the object
            case Database():
                _require_create_db(context, "change owner of")
            case Schema():
                assert found.database_id is not None
                privileges.require(state, context.role, found.database_id, Privilege.CREATE)
            case _:
                privileges.require(state, role.id, found.schema_id, Privilege.CREATE)
    return state.with_owner(found.id, role.id)


_Altering = AlterRename | AlterOwner | AlterRetention | CommentOn


def _altered(context: Context, statement: _Altering) -> Database | Schema | Item | None:
    """The object that an ALTER names; None if it does not exist and IF EXISTS is given."""
    state, name, kind = context.state, statement.name, statement.kind
    assert kind is not None
    match kind:
        case ObjectKind.DATABASE:
            database = state.database_named(name.parts[-1])
            if database is None:
                _missing(context, state, statement, name, SqlState.INVALID_CATALOG_NAME)
            return database
        case ObjectKind.SCHEMA:
            schema = _schema_named(context, state, name)
            if schema is None:
                _missing(context, state, statement, name, SqlState.INVALID_SCHEMA_NAME)
            return schema
        case _:
            item = state.resolve(name.parts, context.settings["database"], context.search_path)
            if item is None:
                _missing(context, state, statement, name, _UNDEFINED.get(kind, SqlState.UNDEFINED_TABLE))
                return None
            if isinstance(item, SystemTable):
                raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'"{item.name}" is a system catalog')
            check_kind(item, kind)
            return item


RETAIN_MS_MAX = 100 * 365 * 86_400_000


def retained_ms(context: Context, text: str | None) -> int | None:
    """The duration of RETAIN HISTORY FOR in milliseconds; None without one. PgError 22007, 22008 or 22023."""
    if text is None:
        return None
    duration_ms = milliseconds_of(parse_text(INTERVAL, "0s" if text == "0" else text))
    if duration_ms == 0 and context.settings["enable_unlimited_retain_history"] == "off":
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            "RETAIN HISTORY FOR 0, which keeps all history, is not enabled",
            hint="ALTER SYSTEM SET enable_unlimited_retain_history = on enables it.",
        )
    if not 0 <= duration_ms <= RETAIN_MS_MAX:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f'invalid RETAIN HISTORY: "{text}" is out of range',
            detail="History is kept for a positive duration of at most a hundred years.",
        )
    return duration_ms


def _alter_retention(context: Context, statement: AlterRetention) -> CatalogState:
    state = context.state
    found = _altered(context, statement)
    match found:
        case None:
            return state
        case Table() | MaterializedView() | Index():
            privileges.require_owner(state, context.role, found)
            return state.with_item(replace(found, retain_ms=retained_ms(context, statement.retain)))
        case _:
            raise PgError(
                SqlState.WRONG_OBJECT_TYPE,
                f"RETAIN HISTORY is not for a {statement.kind}",
                hint="Tables, materialized views and indexes have a history.",
                position=statement.name.position,
            )


def _comment(context: Context, statement: CommentOn) -> CatalogState:
    state, name, position = context.state, statement.name, 0
    if statement.kind is None:
        found: Database | Schema | Item | None = find_relation(context, Name(name.parts[:-1], name.position))
        assert not isinstance(found, Database | Schema | None)
        names = [column.name for column in found.columns]
        if name.parts[-1] not in names:
            raise PgError(
                SqlState.UNDEFINED_COLUMN,
                f'column "{name.parts[-1]}" of relation "{found.name}" does not exist',
                position=name.position,
            )
        position = names.index(name.parts[-1]) + 1
    else:
        found = _altered(context, statement)
    assert found is not None, "it has no IF EXISTS"
    privileges.require_owner(state, context.role, found)
    return state.with_comment(found.id, position, statement.comment or None)  # '' removes the comment, as in PostgreSQL


def _alter_system(context: Context, statement: AlterSystem) -> CatalogState:
    """Server variables take effect immediately. Session variables become the defaults of new sessions."""
    if context.transaction.explicit:
        raise PgError(SqlState.ACTIVE_SQL_TRANSACTION, "ALTER SYSTEM cannot run inside a transaction block")
    state, name = context.state, statement.name
    if not privileges.is_superuser(state, context.role):
        what = f'set parameter "{name}"' if name is not None else "perform ALTER SYSTEM RESET ALL"
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied to {what}")
    if name is None:
        return state.with_settings({})
    settings = {key: value for key, value in state.settings.items() if key != name.lower()}
    if statement.values is not None:
        settings[name.lower()] = value = checked_value(name, ", ".join(statement.values))
        if name.lower() == "arrangement_probing" and value == EXECUTORS and not context.coordinator.reaches_executors:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                "the server has no directory for arrangements that executors probe",
                hint="Start it with --arrangement-directory.",
            )
    else:
        find_variable(name)
    return state.with_settings(settings)


_STEPS: dict[type[Definition], Callable[[Context, Any], CatalogState]] = {
    CreateDatabase: _create_database,
    CreateSchema: _create_schema,
    CreateTable: _create_table,
    CreateView: _create_view,
    CreateMaterializedView: _create_view,
    CreateIndex: _create_index,
    DropObjects: _drop,
    AlterRename: _rename,
    AlterOwner: _alter_owner,
    AlterRetention: _alter_retention,
    AlterSystem: _alter_system,
    CommentOn: _comment,
    **roles.STEPS,
    **grants.STEPS,
}
