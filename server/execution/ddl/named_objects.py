"""The objects that DDL statements name, and the errors for names that exist, do not exist or denote another kind."""

from __future__ import annotations

from typing import Protocol

from catalog.drops import InUse
from catalog.objects.catalog_object import Item
from catalog.objects.kinds import KINDS, with_article
from catalog.objects.namespaces import Database, Schema
from catalog.objects.system_tables import SystemTable
from catalog.objects.types import Domain, EnumType
from catalog.state import CatalogState, NameTaken
from protocol.pgwire.errors import Notice, PgError, SqlState
from server.session_state.context import Context
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Name
from server.sql.type_names import find_type

_RELATIONS = {ObjectKind.TABLE, ObjectKind.VIEW, ObjectKind.MATERIALIZED_VIEW, ObjectKind.INDEX, ObjectKind.SEQUENCE}


class NamesObject(Protocol):
    """A statement that names one object."""

    @property
    def kind(self) -> ObjectKind | None: ...
    @property
    def name(self) -> Name: ...
    @property
    def if_exists(self) -> bool: ...


def find_object(context: Context, state: CatalogState, kind: ObjectKind, name: Name) -> Database | Schema | Item | None:
    """The database, schema or item of that name. An item can be of another kind. PgError 42501 for a system schema."""
    match kind:
        case ObjectKind.DATABASE:
            return state.database_named(name.parts[-1])
        case ObjectKind.SCHEMA:
            *qualifier, last = name.parts
            database = state.database_named(qualifier[0] if qualifier else context.settings["database"])
            schema = state.schema_named(database.id, last) if database is not None else None
            if schema is not None and schema.database_id is None:
                raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied: "{last}" is a system schema')
            return schema
        case _:
            if kind in (ObjectKind.TYPE, ObjectKind.DOMAIN):
                return find_type(state, name.parts, context.settings["database"], context.search_path)
            found = state.resolve(name.parts, context.settings["database"], context.search_path)
            return None if isinstance(found, EnumType | Domain) else found


def altered_object(context: Context, statement: NamesObject) -> Database | Schema | Item | None:
    """The object that an ALTER or COMMENT names; None if it does not exist and IF EXISTS is given.

    PgError if it does not exist, is of another kind or is a system table.
    """
    assert statement.kind is not None
    found = find_object(context, context.state, statement.kind, statement.name)
    if found is None:
        refuse_missing(context, statement.kind, statement.name, if_exists=statement.if_exists)
    if isinstance(found, Item):
        refuse_system_table(found)
        check_kind(found, statement.kind)
    return found


def altered_item(context: Context, kind: ObjectKind, name: Name, *, if_exists: bool) -> Item | None:
    """As `altered_object`, for a statement about one kind of item."""
    found = find_object(context, context.state, kind, name)
    if found is None:
        refuse_missing(context, kind, name, if_exists=if_exists)
        return None
    assert isinstance(found, Item)
    check_kind(found, kind)
    return found


def named_item(context: Context, kind: ObjectKind, name: Name) -> Item:
    """The item of this kind that a statement uses. PgError 42704 or 42P01 if it does not exist, 42809."""
    found = altered_item(context, kind, name, if_exists=False)
    assert found is not None
    return found


def refuse_missing(context: Context, kind: ObjectKind, name: Name, *, if_exists: bool, dropping: bool = False) -> None:
    """Sends a notice if IF EXISTS is given, otherwise raises PgError. `dropping`: for DROP.

    As in PostgreSQL, a missing index is 42704 for DROP, and 42P01 for other statements, whose messages name no kind of
    relation.
    """
    shown = "relation" if kind in _RELATIONS and not dropping else _shown(kind)
    # DROP names a relation without its schema.
    message = f'{shown} "{name.parts[-1] if kind in _RELATIONS and dropping else name}" does not exist'
    if not if_exists:
        is_index = dropping and kind is ObjectKind.INDEX
        state = SqlState.UNDEFINED_OBJECT if is_index else _undefined(kind)
        raise PgError(state, message, position=name.position)
    context.notice(Notice(f"{message}, skipping"))


def _shown(kind: str) -> str:
    """The kind in messages about existing objects. PostgreSQL calls a domain a type there."""
    return EnumType.kind if kind == Domain.kind else kind


def _undefined(kind: ObjectKind) -> SqlState:
    match kind:
        case ObjectKind.DATABASE:
            return SqlState.INVALID_CATALOG_NAME
        case ObjectKind.SCHEMA:
            return SqlState.INVALID_SCHEMA_NAME
        case _:
            return SqlState.UNDEFINED_OBJECT if KINDS[kind].relkind is None else SqlState.UNDEFINED_TABLE


def name_taken(error: NameTaken, position: int | None = None) -> PgError:
    """The error for a name that is in use."""
    kind = error.kind
    if kind == Database.kind:
        code = SqlState.DUPLICATE_DATABASE
    elif kind == Schema.kind:
        code = SqlState.DUPLICATE_SCHEMA
    elif KINDS[kind].relkind is None:
        kind, code = _shown(kind), SqlState.DUPLICATE_OBJECT
    else:
        kind, code = "relation", SqlState.DUPLICATE_TABLE
    return PgError(code, f'{kind} "{error.name}" already exists', position=position)


def unless_exists(context: Context, error: NameTaken, if_not_exists: bool) -> CatalogState:
    """The name is in use. With IF NOT EXISTS sends a notice and returns the state unchanged, else raises PgError."""
    taken = name_taken(error)
    if not if_not_exists:
        raise taken
    context.notice(Notice(f"{taken.message}, skipping", sqlstate=taken.sqlstate))
    return context.state


def in_use(error: InUse) -> PgError:
    """The error for a DROP without CASCADE of an object on which others depend."""

    def described(kind: str, name: str) -> str:
        return f"{_shown(kind)} {name}"

    return PgError(
        SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
        f"cannot drop {described(error.kind, error.name)} because other objects depend on it",
        detail="\n".join(f"{described(*user)} depends on {described(*used)}" for user, used in error.dependents),
        hint="Drop these columns and constraints first."
        if error.drops_columns
        else "Use DROP ... CASCADE to drop the dependent objects too.",
    )


def check_kind(item: Item, kind: ObjectKind, *, dropping: bool = False) -> None:
    """PgError 42809 if the item is of another kind. A domain is also a type."""
    if isinstance(item, Domain) and kind is ObjectKind.TYPE:
        return
    if item.statement_kind != kind:
        actual = ObjectKind(item.statement_kind) if item.statement_kind in list(ObjectKind) else ObjectKind.TABLE
        raise PgError(
            SqlState.WRONG_OBJECT_TYPE,
            f'"{item.name}" is not {with_article(kind)}',
            hint=f"Use DROP {actual.upper()} to remove {with_article(actual)}." if dropping else None,
        )


def refuse_system_table(item: Item) -> None:
    """PgError 42501 for a system table, which nobody can change."""
    if isinstance(item, SystemTable):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f'permission denied: "{item.name}" is a system catalog')
