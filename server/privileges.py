"""Who may do what: every decision about roles and privileges, as functions of a catalog state.

`role` is always the session's current role by its id; a role that was dropped meanwhile has PUBLIC's privileges. The
rules and messages are PostgreSQL's: superusers may do everything, owners what their object's privileges say (all, until
they revoke some from themselves), members of a role what the role may. A view is read by the rights of its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from catalog.objects import (
    QUICKSTART,
    CatalogState,
    Database,
    Index,
    Item,
    MaterializedView,
    ObjectId,
    Schema,
    SystemTable,
    View,
)
from catalog.roles import MATERIALIZE, PUBLIC, Privilege, Role
from protocol.pgwire.errors import PgError, SqlState
from server.sql.plan import QueryPlan


def login(state: CatalogState, name: str) -> ObjectId:
    """The role of a session whose client gave this user name. PgError 28000.

    As long as nobody has made a role every name is taken, and means `materialize`.
    """
    role = state.role_named(name)
    if role is None and len(state.roles) == 1:
        return MATERIALIZE.id
    if role is None:
        raise PgError(
            SqlState.INVALID_AUTHORIZATION_SPECIFICATION,
            f'role "{name}" does not exist',
            hint=f'Connect as "{MATERIALIZE.name}", or have a superuser run CREATE USER.',
        )
    if not role.login:
        message = f'role "{name}" is not permitted to log in'
        raise PgError(SqlState.INVALID_AUTHORIZATION_SPECIFICATION, message)
    return role.id


def find_role(state: CatalogState, name: str) -> Role:
    """PgError 42704."""
    role = state.role_named(name)
    if role is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'role "{name}" does not exist')
    return role


# -- what a role may -------------------------------------------------------------------------------------------


def is_superuser(state: CatalogState, role: ObjectId) -> bool:
    known = state.roles.get(role)
    return known is not None and known.superuser


def is_member(state: CatalogState, role: ObjectId, of: ObjectId) -> bool:
    """Whether it may SET ROLE to the other."""
    return is_superuser(state, role) or of in state.roles_of(role, inherited=False)


def has_rights_of(state: CatalogState, role: ObjectId, of: ObjectId) -> bool:
    """Whether it may do, without SET ROLE, what the other may."""
    return is_superuser(state, role) or of in state.roles_of(role, inherited=True)


def owns(state: CatalogState, role: ObjectId, object: ObjectId) -> bool:
    return has_rights_of(state, role, state.owner(object))


def has(state: CatalogState, role: ObjectId, object: ObjectId, privilege: Privilege) -> bool:
    if is_superuser(state, role):
        return True
    acl = state.acl(object)
    return any(privilege in acl.get(grantee, ()) for grantee in (PUBLIC, *state.roles_of(role, inherited=True)))


def may_use_schema(state: CatalogState, role: ObjectId, schema: Schema) -> bool:
    """USAGE on the schema and on its database."""
    database = schema.database_id
    return has(state, role, schema.id, Privilege.USAGE) and (
        database is None or has(state, role, database, Privilege.USAGE)
    )


def usable_path(state: CatalogState, role: ObjectId, database: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """`search_path` without the schemas that the role may not use: what is in them is not found by its bare name."""
    if is_superuser(state, role):
        return path
    current = state.database_named(database)
    id = current.id if current is not None else None
    schemas = [(name, state.schema_named(id, name)) for name in path]
    return tuple(name for name, schema in schemas if schema is None or may_use_schema(state, role, schema))


# -- refusals --------------------------------------------------------------------------------------------------


def denied(state: CatalogState, object: ObjectId) -> PgError:
    """42501: permission denied for table t."""
    return _refusal("permission denied for", state, object)


def require(state: CatalogState, role: ObjectId, object: ObjectId, privilege: Privilege) -> None:
    """PgError 42501 without the privilege."""
    if not has(state, role, object, privilege):
        raise denied(state, object)


def require_owner(state: CatalogState, role: ObjectId, object: Item | Schema | Database) -> None:
    """PgError 42501 for who does not own the object."""
    if not owns(state, role, object.id):
        raise _refusal("must be owner of", state, object.id)


def require_drop(state: CatalogState, role: ObjectId, object: Item | Schema | Database) -> None:
    """As `require_owner`; the owner of a schema may drop what is in it."""
    if isinstance(object, Schema | Database) or not owns(state, role, object.schema_id):
        require_owner(state, role, object)


def require_schema_usage(state: CatalogState, role: ObjectId, schema: Schema) -> None:
    if schema.database_id is not None:
        require(state, role, schema.database_id, Privilege.USAGE)
    require(state, role, schema.id, Privilege.USAGE)


def require_names(state: CatalogState, role: ObjectId, objects: Iterable[ObjectId]) -> None:
    """USAGE on the schemas of what a statement names."""
    if not is_superuser(state, role):
        for id in sorted(objects):
            if id in state.items:
                require_schema_usage(state, role, state.schemas[state.items[id].schema_id])


def require_select(state: CatalogState, role: ObjectId, objects: Iterable[ObjectId]) -> None:
    """SELECT on each relation, and the right of each view's owner to what it reads."""
    checked: set[tuple[ObjectId, ObjectId]] = set()
    queue = [(role, id) for id in sorted(objects, reverse=True)]
    while queue:
        reader, id = queue.pop()
        if (reader, id) in checked:
            continue
        checked.add((reader, id))
        require(state, reader, id, Privilege.SELECT)
        item = state.items.get(id)
        if isinstance(item, View):
            queue.extend((state.owner(id), used) for used in sorted(item.uses, reverse=True))


def require_query(state: CatalogState, role: ObjectId, plan: QueryPlan) -> None:
    """All that running a query takes: its names, its reads, and the cluster if there is something to compute."""
    superuser = is_superuser(state, role)
    if superuser and not any(isinstance(state.items.get(id), View) for id in plan.uses):
        return
    require_names(state, role, plan.uses)
    require_select(state, role, plan.uses)
    if not superuser and computes(state, plan):
        require(state, role, QUICKSTART.id, Privilege.USAGE)


def computes(state: CatalogState, plan: QueryPlan) -> bool:
    """Whether a cluster computes it for the user; queries over system tables alone are everybody's."""
    if plan.constant is not None or (plan.direct_scan is not None and plan.scanned <= plan.inputs):
        return False
    return not plan.inputs or not all(isinstance(state.items.get(id), SystemTable) for id in plan.inputs)


def require_hold(state: CatalogState, role: ObjectId, schema: Schema, objects: Sequence[ObjectId]) -> None:
    """CREATE HOLD: CREATE on its schema, SELECT on each object, USAGE on each cluster that keeps one up to date."""
    require(state, role, schema.id, Privilege.CREATE)
    items = [state.items[id] for id in objects]
    relations = [item.on if isinstance(item, Index) else item.id for item in items]
    require_names(state, role, relations)
    require_select(state, role, relations)
    if any(isinstance(item, Index | MaterializedView) for item in items):
        require(state, role, QUICKSTART.id, Privilege.USAGE)


def _refusal(what: str, state: CatalogState, object: ObjectId) -> PgError:
    return PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"{what} {described(state, object)}")


def described(state: CatalogState, object: ObjectId) -> str:
    """`table t`, as messages name an object."""
    kind = state.kind(object)
    return f"{'table' if kind == 'system table' else kind} {name_of(state, object)}"


def name_of(state: CatalogState, object: ObjectId) -> str:
    """The bare name of an item, schema, database or cluster."""
    for named in (state.items, state.schemas, state.databases):
        if object in named:
            return named[object].name
    return QUICKSTART.name
