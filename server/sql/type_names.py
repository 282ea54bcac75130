"""The names of types: those of PostgreSQL, and user-defined types, which are resolved against the catalog."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.ids import ObjectId, user_oid
from catalog.objects.catalog_object import Item
from catalog.objects.columns import DomainUse
from catalog.objects.types import Domain, EnumType
from catalog.state import CatalogState
from protocol.pgwire.enums import Enum
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, array_of, enum_type, parse_type
from server.sql.grammar.lexer import quote_identifier, quoted
from server.sql.grammar.statements.parts import NamedType
from server.sql.scope import ID_SCHEMA

_USUAL_SCHEMA = "public"


UserType = EnumType | Domain


def find_type(state: CatalogState, parts: Sequence[str], database: str, search_path: Sequence[str]) -> UserType | None:
    """The user-defined type of that name, or with that id (see `by_id`); None if there is none."""
    if len(parts) > 1 and parts[0] == ID_SCHEMA:
        named = state.items.get(ObjectId(parts[1]))
        return named if isinstance(named, UserType) else None
    candidates = [(schema, parts[0]) for schema in search_path] if len(parts) == 1 else [tuple(parts)]
    for candidate in candidates:
        found = state.resolve(candidate, database, search_path)
        if isinstance(found, UserType):
            return found
    return None


def type_of_item(state: CatalogState, item: UserType) -> PgType:
    """The type that a catalog object defines; of a domain its base type."""
    if isinstance(item, Domain):
        return parse_type(item.base)
    oids = user_oid(item.id), user_oid(item.array_id)
    return enum_type(Enum(item.id, *oids, shown_name(state, item), item.labels, item.positions))


def shown_name(state: CatalogState, item: Item) -> str:
    """The name of a type as messages have it: with its schema, except in `public`."""
    schema, name = state.schemas[item.schema_id].name, quote_identifier(item.name)
    return name if schema == _USUAL_SCHEMA else f"{quote_identifier(schema)}.{name}"


def resolved(
    state: CatalogState, named: NamedType, database: str, search_path: Sequence[str]
) -> tuple[PgType, UserType]:
    """The type that a name denotes, and its definition. 42704 if there is none, 0A000 for an array of a domain."""
    item = find_type(state, named.parts, database, search_path)
    if item is None:
        check_schema(state, named.parts, database, named.position)
        raise named.missing()
    if named.is_array and isinstance(item, Domain):
        raise array_of_domain(item, named.position)
    scalar = type_of_item(state, item)
    return (array_of(scalar, named.dimensions) if named.is_array else scalar), item


def array_of_domain(item: Domain, position: int | None) -> PgError:
    message = f"an array of domain {item.name} is not supported"
    hint = "Use an array of its base type."
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint, position=position)


def domain_use(state: CatalogState, item: Domain) -> DomainUse:
    """The constraints and the default of a domain."""
    return DomainUse(item.id, shown_name(state, item), item.not_null, item.default, item.checks)


def check_schema(state: CatalogState, parts: Sequence[str], database: str, position: int | None) -> None:
    """3F000 if the name of a type has a schema that does not exist."""
    if len(parts) < 2:
        return
    current = state.database_named(parts[0] if len(parts) > 2 else database)
    if state.schema_named(current.id if current is not None else None, parts[-2]) is None:
        message = f'schema "{parts[-2]}" does not exist'
        raise PgError(SqlState.INVALID_SCHEMA_NAME, message, position=position)


def type_with_oid(state: CatalogState, oid: int) -> PgType | None:
    """The user-defined type, or array of one, with an OID."""
    for item in state.items_of(EnumType):
        if oid == user_oid(item.id):
            return type_of_item(state, item)
        if oid == user_oid(item.array_id):
            return array_of(type_of_item(state, item))
    return None


def sql_name(type: PgType) -> str:
    """The type in SQL text, where a user-defined type is named by its id."""
    scalar = type.element or type
    if scalar.enum is None:
        return str(type)
    name = by_id(ObjectId(scalar.enum.id))
    return name + "[]" * (0 if type.element is None else type.dimensions)


def by_id(id: ObjectId, name: str | None = None) -> str:
    """The name by which stored texts refer to a user-defined type: `"$id"."u12"`, or with a name `"$id"."u12"."mood"`.

    With the name, columns that are named after the type keep their names when the type is renamed.
    """
    return ".".join(map(quoted, (ID_SCHEMA, id) if name is None else (ID_SCHEMA, id, name)))
