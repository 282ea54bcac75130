"""has_table_privilege and similar functions whose object is a column: calls of helpers over the lists of privileges.

The role and the privileges are constants. An object is an OID or a name. Without such an object the result is NULL,
also where PostgreSQL raises an error for an unknown name; a relation without a column of the name is an error (42703).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.roles import Privilege, Through
from protocol.pgwire.errors import PgError, SqlState
from server.authorization import privileges
from server.authorization.privilege_functions import roles_with, wanted_privileges
from server.pg_catalog import oids
from server.pg_catalog.trees import helper
from server.session_state.context import Context

_OF_RELATIONS = ("has_table_privilege", "has_sequence_privilege", "has_column_privilege", "has_any_column_privilege")
_OF_EVERYONE = ("has_function_privilege", "has_language_privilege")
"""Every role may call all functions, which cannot be revoked."""
_NAMED = {
    "has_tablespace_privilege": ("tablespace", ("pg_default", "pg_global")),
    "has_language_privilege": ("language", ("internal", "c", "sql")),
    "has_foreign_data_wrapper_privilege": ("foreign-data wrapper", ()),
    "has_server_privilege": ("server", ()),
}
"""Functions of objects that are the same in every database, with their kind and their names."""
_OF_OBJECTS = {"has_schema_privilege": "schema", "has_database_privilege": "database", "has_type_privilege": "type"}


def is_privilege_function(name: str) -> bool:
    return name == "pg_has_role" or (name.startswith("has_") and name.endswith("_privilege"))


def privilege_of_columns(context: Context, name: str, arguments: Sequence[exp.Expr]) -> exp.Expr | None:
    """The call as DuckDB computes it; None for other functions. PgError 42704, 22023, 0A000."""
    if not is_privilege_function(name):
        return None
    width = 3 if name == "has_column_privilege" else 2
    if len(arguments) not in (width, width + 1):
        raise PgError(SqlState.UNDEFINED_FUNCTION, f"function {name} with {len(arguments)} arguments does not exist")
    *subjects, object, wanted = arguments if width == 2 else (*arguments[:-3], arguments[-3], arguments[-1])
    state = context.state
    role = _role(context, name, subjects[0]) if subjects else context.role
    text = _literal(wanted)
    if text is None:
        raise _not_constant(name, "the privileges are")
    if name == "pg_has_role":
        if "option" in text.lower():  # searching each role for this takes time quadratic in their number
            raise _not_constant(name, "the object is")
        return helper("is_one_of", helper("role_oid", object), _oids(roles_with(state, role, text)))
    if name not in _OF_RELATIONS and name not in _OF_OBJECTS:
        kind, names = _NAMED.get(name, ("", None))
        if names is not None and isinstance(object, exp.Literal) and object.is_string and object.this not in names:
            raise PgError(SqlState.UNDEFINED_OBJECT, f'{kind} "{object.this}" does not exist')
        is_permitted = name in _OF_EVERYONE or privileges.is_superuser(state, role)
        if not is_permitted and name not in _NAMED:
            raise _not_constant(name, "the object is")
        return exp.Boolean(this=is_permitted)
    plain, options = wanted_privileges(name, text)
    number = helper("column_number", object, arguments[-2]) if name == "has_column_privilege" else None
    if privileges.is_superuser(state, role):
        if number is not None:
            return helper("if_column", object, arguments[-2], number)
        return helper("if_relation", object) if name in _OF_RELATIONS else exp.Boolean(this=True)
    roles = _oids(state.roles_of(role, Through.INHERIT), public=True)
    rest = (roles, _texts(plain), _texts(options))
    if name in _OF_OBJECTS:
        kind = _OF_OBJECTS[name]
        oid = object if kind == "type" else helper(f"{kind}_oid", object)
        return helper("has_on_object", exp.Literal.string(kind), oid, *rest)
    place = exp.Literal.number(-1 if name == "has_any_column_privilege" else 0)
    if number is None:
        return helper("has_on_relation", object, place, *rest)
    known = helper("if_column", object.copy(), arguments[-2].copy(), number.copy())
    return exp.Case(ifs=[exp.If(this=known, true=helper("has_on_relation", object, number, *rest))])


def _role(context: Context, name: str, tree: exp.Expr) -> ObjectId:
    text = _literal(tree)
    if text is None:
        raise _not_constant(name, "the role is")
    if isinstance(tree, exp.Literal) and tree.is_string:
        return privileges.find_role(context.state, text).id
    found = next((role for role in context.state.roles if oids.oid_of(role) == int(text)), None)
    if found is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f"role with OID {text} does not exist")
    return found


def _literal(tree: exp.Expr) -> str | None:
    """The text of a literal, also one that is cast; None for another expression."""
    while isinstance(tree, exp.Cast):
        tree = tree.this
    return str(tree.this) if isinstance(tree, exp.Literal) else None


def _not_constant(name: str, what: str) -> PgError:
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"{name}() is not supported over system catalogs where {what} not a constant",
        hint="Pass literals or parameters for all arguments but the object.",
    )


def _oids(roles: Iterable[ObjectId], *, public: bool = False) -> exp.Expr:
    numbers = [*([0] if public else []), *map(oids.oid_of, roles)]
    array = exp.Array(expressions=[exp.Literal.number(number) for number in numbers])
    return exp.Cast(this=array, to=exp.DataType.build("UINTEGER[]", dialect="duckdb"))


def _texts(wanted: Iterable[Privilege]) -> exp.Expr:
    array = exp.Array(expressions=[exp.Literal.string(privilege.value) for privilege in wanted])
    return exp.Cast(this=array, to=exp.DataType.build("VARCHAR[]", dialect="duckdb"))
