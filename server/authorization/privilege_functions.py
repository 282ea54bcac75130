"""has_table_privilege and similar functions, which query the privileges of a role, in PostgreSQL's forms (acl.c).

The arguments are [role,] object, privileges. Names are text. `privileges` is a comma-separated list, of which the role
needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from catalog.ids import ObjectId
from catalog.objects.clusters import QUICKSTART
from catalog.objects.kinds import applicable_privileges
from catalog.roles import COLUMN_PRIVILEGES, Privilege
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import named_type
from server.authorization import privileges
from server.sql.constant import COLUMN_NUMBER_PRIVILEGE
from server.sql.scope import find_relation
from server.sql.sequence_names import find_sequence, name_parts
from server.sql.type_names import find_type


def evaluate_privilege_function(
    state: CatalogState,
    role: ObjectId,
    database: str,
    search_path: Sequence[str],
    function: str,
    arguments: Sequence[str | None],
) -> bool | None:
    """NULL if an argument is NULL. PgError 42704, 42P01, 3F000, 3D000: unknown object; 22023: unknown privilege."""
    texts = [argument for argument in arguments if argument is not None]
    if len(texts) != len(arguments):
        return None
    column = texts.pop(-2) if function in ("has_column_privilege", COLUMN_NUMBER_PRIVILEGE) else None
    *roles, name, wanted = texts
    subject = privileges.find_role(state, roles[0]).id if roles else role
    words = [word.strip() for word in wanted.split(",")]
    if function == "pg_has_role":
        of = privileges.find_role(state, name).id
        return any(_known(word, _ROLE_RIGHTS)(state, subject, of) for word in words)
    if function not in _OBJECTS:
        relation = _relation(state, database, search_path, name)
        at = None if column is None else int(column) if function == COLUMN_NUMBER_PRIVILEGE else column
        return _has_column_privilege(state, subject, relation, at, words)
    if function == "has_type_privilege" and _is_built_in(name):
        return any(_known(word, _with_options(_privileges_of(function))) for word in words)
    object = _OBJECTS[function](state, database, search_path, name)
    wanted_of = [_known(word, _with_options(_privileges_of(function))) for word in words]
    return any(
        privileges.has_option(state, subject, object, privilege)
        if is_option
        else privileges.has(state, subject, object, privilege)
        for privilege, is_option in wanted_of
    )


def _is_built_in(type: str) -> bool:
    """Whether a name is that of one of PostgreSQL's types, on which every role has USAGE."""
    try:
        named_type(type.strip().removeprefix("pg_catalog."))
    except ValueError:
        return False
    return True


def _has_column_privilege(
    state: CatalogState, role: ObjectId, relation: ObjectId, column: str | int | None, words: Sequence[str]
) -> bool | None:
    """`column` None: any column. NULL for a number that no column has. PgError 42703 for an unknown name."""
    number: int | None = None
    names = [known.name for known in state.relation(relation).columns]
    if isinstance(column, int):
        number = column - 1
        if not 0 <= number < len(names):
            return None
    elif column is not None:
        if column not in names:
            message = f'column "{column}" of relation "{state.relation(relation).name}" does not exist'
            raise PgError(SqlState.UNDEFINED_COLUMN, message)
        number = names.index(column)
    for privilege, is_option in [_known(word, _with_options(_privileges_of("has_column_privilege"))) for word in words]:
        if is_option:
            on_all = privileges.has_option(state, role, relation, privilege)
            granted = privileges.columns_with_option(state, role, relation, privilege)
        else:
            on_all = privileges.has(state, role, relation, privilege)
            granted = privileges.columns_with(state, role, relation, privilege)
        if on_all or (granted if number is None else number in granted):
            return True
    return False


def wanted_privileges(function: str, text: str) -> tuple[list[Privilege], list[Privilege]]:
    """The privileges of a comma-separated list without and with "with grant option". PgError 22023."""
    known = _with_options(_privileges_of(function))
    wanted = [_known(word.strip(), known) for word in text.split(",")]
    plain, options = ([p for p, is_option in wanted if is_option is of] for of in (False, True))
    return plain, options


def roles_with(state: CatalogState, role: ObjectId, text: str) -> list[ObjectId]:
    """The roles for which pg_has_role returns true. PgError 22023."""
    rights = [_known(word.strip(), _ROLE_RIGHTS) for word in text.split(",")]
    return [of for of in state.roles if any(right(state, role, of) for right in rights)]


def _privileges_of(function: str) -> dict[str, Privilege]:
    """The privileges that a function accepts, by name."""
    if function not in _KINDS:
        return {privilege.value.lower(): privilege for privilege in COLUMN_PRIVILEGES}
    known = {privilege.value.lower(): privilege for privilege in applicable_privileges(_KINDS[function])}
    if _KINDS[function] == "database":
        # PostgreSQL's names of what USAGE permits: every session may create temporary tables
        known |= dict.fromkeys(("connect", "temporary", "temp"), Privilege.USAGE)
    return known


def _with_options(known: dict[str, Privilege]) -> dict[str, tuple[Privilege, bool]]:
    """The privileges by name, each also with "with grant option", and whether the name has it."""
    names = {name: (privilege, False) for name, privilege in known.items()}
    return names | {f"{name} with grant option": (privilege, True) for name, privilege in known.items()}


T = TypeVar("T")


def _known(word: str, known: dict[str, T]) -> T:
    if word.lower() not in known:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'unrecognized privilege type: "{word}"')
    return known[word.lower()]


_ROLE_RIGHTS: dict[str, Callable[[CatalogState, ObjectId, ObjectId], bool]] = {
    "member": privileges.is_member,
    "set": privileges.may_set_role,
    "usage": privileges.has_rights_of,
    **{
        f"{right} with {option} option": privileges.is_admin_of
        for right in ("member", "set", "usage")
        for option in ("admin", "grant")
    },
}


def _relation(state: CatalogState, database: str, search_path: Sequence[str], name: str) -> ObjectId:
    return find_relation(state, name_parts(name), database, search_path, None).id


def _schema(state: CatalogState, database: str, search_path: Sequence[str], name: str) -> ObjectId:
    current = state.database_named(database)
    schema = state.schema_named(current.id if current is not None else None, name)
    if schema is None:
        raise PgError(SqlState.INVALID_SCHEMA_NAME, f'schema "{name}" does not exist')
    return schema.id


def _database(state: CatalogState, database: str, search_path: Sequence[str], name: str) -> ObjectId:
    found = state.database_named(name)
    if found is None:
        raise PgError(SqlState.INVALID_CATALOG_NAME, f'database "{name}" does not exist')
    return found.id


def _cluster(state: CatalogState, database: str, search_path: Sequence[str], name: str) -> ObjectId:
    if name != QUICKSTART.name:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'cluster "{name}" does not exist')
    return QUICKSTART.id


def _sequence(state: CatalogState, database: str, search_path: Sequence[str], name: str) -> ObjectId:
    return find_sequence(state, name, database, search_path, None).id


def _type(state: CatalogState, database: str, search_path: Sequence[str], name: str) -> ObjectId:
    found = find_type(state, name_parts(name), database, search_path)
    if found is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'type "{name}" does not exist')
    return found.id


_OBJECTS = {
    "has_table_privilege": _relation,
    "has_sequence_privilege": _sequence,
    "has_type_privilege": _type,
    "has_schema_privilege": _schema,
    "has_database_privilege": _database,
    "has_cluster_privilege": _cluster,
}
_KINDS = {
    "has_table_privilege": "table",
    "has_sequence_privilege": "sequence",
    "has_type_privilege": "type",
    "has_schema_privilege": "schema",
    "has_database_privilege": "database",
    "has_cluster_privilege": "cluster",
}
