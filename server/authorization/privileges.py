"""Roles and privileges: all access decisions, as functions of a catalog state.

`role` is always the id of the session's current role. A role that was dropped meanwhile has PUBLIC's privileges. Rules
and messages are PostgreSQL's. Superusers may do everything. Owners have the privileges on their object that they have
not revoked from themselves, initially all. Members of a role have its privileges. A view is read with the privileges of
its owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from catalog.acls import NONE, Acl, Privileges, grant_options
from catalog.ids import ObjectId, types_in
from catalog.objects.catalog_object import Item
from catalog.objects.clusters import QUICKSTART
from catalog.objects.indexes import Index
from catalog.objects.namespaces import Database, Schema
from catalog.objects.relations import Relation, WrittenCollection
from catalog.objects.sequences import Sequence
from catalog.objects.system_tables import SystemTable
from catalog.objects.types import Domain
from catalog.objects.views import View
from catalog.roles import MATERIALIZE, PUBLIC, Privilege, Role, Through
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.statements.merges import MergeAction
from server.sql.plan import QueryPlan
from server.sql.stored_query import plan_stored
from server.sql.type_names import UserType, shown_name
from server.sql.writes.plan import WritePlan

PATHS_MAX = 1_000
"""The maximum number of results of `usable_path` that are cached for a catalog state."""
PATH_CHARS_MAX = 500
"""The maximum length of a search_path whose result is cached."""


def login(state: CatalogState, name: str, *, any_user: bool) -> ObjectId:
    """Returns the role of a session whose client sent this user name. PgError 28000.

    `any_user`: while `materialize` is the only role, every name is accepted and means `materialize`.
    """
    role = state.role_named(name)
    if role is None and any_user and len(state.roles) == 1:
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
    """Returns the role of this name. PgError 42704."""
    role = state.role_named(name)
    if role is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'role "{name}" does not exist')
    return role


# -- privileges of a role --------------------------------------------------------------------------------------


def is_superuser(state: CatalogState, role: ObjectId) -> bool:
    known = state.roles.get(role)
    return known is not None and known.superuser


def is_member(state: CatalogState, role: ObjectId, of: ObjectId) -> bool:
    return is_superuser(state, role) or of in state.roles_of(role, Through.ALL)


def may_set_role(state: CatalogState, role: ObjectId, to: ObjectId) -> bool:
    return is_superuser(state, role) or to in state.roles_of(role, Through.SET)


def has_rights_of(state: CatalogState, role: ObjectId, of: ObjectId) -> bool:
    """Whether the role has the privileges of `of` without SET ROLE."""
    return state.has_rights_of(role, of)


def is_admin_of(state: CatalogState, role: ObjectId, of: ObjectId) -> bool:
    """Whether the role has ADMIN OPTION on `of`, itself or as a member of others. No role has it on itself."""
    return is_superuser(state, role) or (role != of and state.nearest_admin(role, of, Through.ALL) is not None)


def owns(state: CatalogState, role: ObjectId, object: ObjectId) -> bool:
    return has_rights_of(state, role, state.owner(object))


def has(state: CatalogState, role: ObjectId, object: ObjectId, privilege: Privilege) -> bool:
    if is_superuser(state, role):
        return True
    granted = state.granted(object)
    return any(privilege in granted.get(grantee, ()) for grantee in (PUBLIC, *state.roles_of(role, Through.INHERIT)))


def may_maintain(state: CatalogState, role: ObjectId, item: Item) -> bool:
    """Whether the role has MAINTAIN on the item, or owns it if the privilege does not apply to its kind."""
    if Privilege.MAINTAIN in item.privileges:
        return has(state, role, item.id, Privilege.MAINTAIN)
    return owns(state, role, item.id)


def has_option(state: CatalogState, role: ObjectId, object: ObjectId, privilege: Privilege) -> bool:
    """Whether the role may grant the privilege on the object."""
    return privilege in grant_options(state.acl(object), role, state.owner(object), state.has_rights_of)


def columns_with(state: CatalogState, role: ObjectId, object: ObjectId, privilege: Privilege) -> frozenset[int]:
    """The numbers of the columns of a relation, counted from 0, on which the role was granted the privilege.

    A privilege on the relation is not considered.
    """
    item = state.items.get(object)
    if isinstance(item, SystemTable):
        return item.public_columns if privilege is Privilege.SELECT else frozenset()
    columns = state.column_privileges.get(object)
    if not columns:
        return frozenset()
    grantees = {PUBLIC, *state.roles_of(role, Through.INHERIT)}
    return frozenset(
        position - 1
        for position, acl in columns.items()
        if any(privilege in item.privileges and item.grantee in grantees for item in acl)
    )


def columns_with_option(state: CatalogState, role: ObjectId, object: ObjectId, privilege: Privilege) -> frozenset[int]:
    """As `columns_with`, for privileges that the role may grant."""
    owner = state.owner(object)
    return frozenset(
        position - 1
        for position, acl in state.column_privileges.get(object, {}).items()
        if privilege in grant_options(acl, role, owner, state.has_rights_of)
    )


def is_grantee(state: CatalogState, role: ObjectId, acl: Acl) -> bool:
    """Whether the list has an entry for the role, for a role that it inherits from, or for PUBLIC."""
    return any(item.grantee == PUBLIC or has_rights_of(state, role, item.grantee) for item in acl)


def best_grantor(
    state: CatalogState, role: ObjectId, acl: Acl, owner: ObjectId, wanted: Privileges
) -> tuple[ObjectId, Privileges]:
    """The role as which a role grants or revokes privileges, and those of them that it may grant.

    It is the owner if the role has the owner's privileges. Otherwise it is the role itself or one that it is a member
    of: the first that may grant all of the privileges, or if there is none, the one that may grant the most.
    """
    if role == owner or is_superuser(state, role):
        return owner, wanted
    by_grantee: dict[ObjectId, Privileges] = {}
    for item in acl:
        by_grantee[item.grantee] = by_grantee.get(item.grantee, NONE) | (wanted & item.grantable)
    by_grantee[owner] = wanted
    best, most = role, NONE
    for grantor in state.roles_of(role, Through.INHERIT):
        options = by_grantee.get(grantor, NONE)
        if options == wanted:
            return grantor, options
        if len(options) > len(most):
            best, most = grantor, options
    return best, most


def has_any(state: CatalogState, role: ObjectId, object: ObjectId) -> bool:
    """Whether the role has any privilege on the object or on one of its columns."""
    return any(
        has(state, role, object, privilege) or columns_with(state, role, object, privilege) for privilege in Privilege
    )


def may_use_schema(state: CatalogState, role: ObjectId, schema: Schema) -> bool:
    """Whether the role has USAGE on the schema and its database."""
    database = schema.database_id
    return has(state, role, schema.id, Privilege.USAGE) and (
        database is None or has(state, role, database, Privilege.USAGE)
    )


def usable_path(state: CatalogState, role: ObjectId, database: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns `search_path` without the schemas that the role may not use."""
    if is_superuser(state, role):
        return path
    if sum(map(len, path)) > PATH_CHARS_MAX:
        return _usable_path(state, role, database, path)
    known, key = state.usable_paths, (role, database, path)
    found = known.get(key)
    if found is None:
        found = _usable_path(state, role, database, path)
        if len(known) >= PATHS_MAX:
            known.clear()
        known[key] = found
    return found  # another thread may have cleared `known`


def _usable_path(state: CatalogState, role: ObjectId, database: str, path: tuple[str, ...]) -> tuple[str, ...]:
    current = state.database_named(database)
    id = current.id if current is not None else None
    schemas = [(name, state.schema_named(id, name)) for name in path]
    return tuple(name for name, schema in schemas if schema is None or may_use_schema(state, role, schema))


# -- refusals --------------------------------------------------------------------------------------------------


def denied(state: CatalogState, object: ObjectId) -> PgError:
    """Returns PgError 42501, such as "permission denied for table t"."""
    return _refusal("permission denied for", state, object)


def require(state: CatalogState, role: ObjectId, object: ObjectId, privilege: Privilege) -> None:
    """PgError 42501 without the privilege."""
    if not has(state, role, object, privilege):
        raise denied(state, object)


def require_signal(state: CatalogState, role: ObjectId, of: ObjectId, *, cancel: bool) -> None:
    """PgError 42501 if the role may not signal the sessions of the role `of`. `cancel`: only cancel their queries.

    As in PostgreSQL, only superusers may signal the sessions of superusers.
    """
    if is_superuser(state, role):
        return
    if cancel:
        act, done, ended, several = "cancel", "canceled", "query", "queries"
    else:
        act, done, ended, several = "terminate", "terminated", "process", "processes"
    if is_superuser(state, of):
        detail = f"Only roles with the SUPERUSER attribute may {act} {several} of roles with the SUPERUSER attribute."
    elif not has_rights_of(state, role, of):
        detail = f"Only roles with privileges of the role whose {ended} is being {done} may {act} this {ended}."
    else:
        return
    raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied to {act} {ended}", detail=detail)


def require_type(state: CatalogState, role: ObjectId, type: UserType) -> None:
    """PgError 42501 without USAGE on a user-defined type, which the definitions of columns and domains need."""
    if not has(state, role, type.id, Privilege.USAGE):
        raise PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"permission denied for type {shown_name(state, type)}")


def require_types(state: CatalogState, role: ObjectId, relation: Relation) -> None:
    """PgError 42501 without USAGE on one of the user-defined types of a relation's columns."""
    for column in relation.columns:
        ids = types_in(column.type) if column.domain is None else (*types_in(column.type), column.domain.id)
        for item in [state.items[id] for id in sorted(ids)]:
            assert isinstance(item, UserType)
            require_type(state, role, item)


def require_owner(state: CatalogState, role: ObjectId, object: Item | Schema | Database) -> None:
    """PgError 42501 if the role does not own the object."""
    if not owns(state, role, object.id):
        raise _refusal("must be owner of", state, object.id)


def require_drop(state: CatalogState, role: ObjectId, object: Item | Schema | Database) -> None:
    """Like `require_owner`, but the owner of a schema may drop the objects in it."""
    if isinstance(object, Schema | Database) or not owns(state, role, object.schema_id):
        require_owner(state, role, object)


def require_schema_usage(state: CatalogState, role: ObjectId, schema: Schema) -> None:
    if schema.database_id is not None:
        require(state, role, schema.database_id, Privilege.USAGE)
    require(state, role, schema.id, Privilege.USAGE)


def require_names(state: CatalogState, role: ObjectId, objects: Iterable[ObjectId]) -> None:
    """Requires USAGE on the schemas of the relations that a statement names."""
    if not is_superuser(state, role):
        for id in sorted(objects):
            if id in state.items:
                require_schema_usage(state, role, state.schemas[state.items[id].schema_id])


def require_columns(
    state: CatalogState, role: ObjectId, object: ObjectId, privilege: Privilege, columns: Collection[int]
) -> None:
    """PgError 42501 if the role lacks the privilege on one of the columns, given by number.

    Without columns, the privilege on any column is sufficient, as for count(*).
    """
    if has(state, role, object, privilege):
        return
    granted = columns_with(state, role, object, privilege)
    if not granted or not granted.issuperset(columns):
        raise denied(state, object)


Reads = Iterable[tuple[ObjectId, int]]


def require_select(
    state: CatalogState, role: ObjectId, objects: Iterable[ObjectId], reads: Reads | None = None
) -> None:
    """Requires SELECT on each relation, and on each view's inputs for the owner of the view.

    `reads`: the columns that are read, for which SELECT is sufficient. None: all columns, and those added later.
    """
    checked: set[tuple[ObjectId, ObjectId]] = set()
    queue = [(role, id, reads) for id in sorted(objects, reverse=True)]
    while queue:
        reader, id, named = queue.pop()
        if (reader, id) in checked:
            continue
        checked.add((reader, id))
        _require_read(state, reader, id, named)
        item = state.items.get(id)
        if isinstance(item, View):
            owner = state.owner(id)
            # which privilege a sequence requires depends on the function that is called
            used = [key for key in sorted(item.uses, reverse=True) if not isinstance(state.items.get(key), Sequence)]
            below = _reads_of_owner(state, item, used)
            queue.extend((owner, key, below) for key in used)


def _require_read(state: CatalogState, role: ObjectId, relation: ObjectId, reads: Reads | None) -> None:
    """Requires SELECT on a relation, or on its columns in `reads`."""
    if reads is None:
        require(state, role, relation, Privilege.SELECT)
    elif not has(state, role, relation, Privilege.SELECT):
        require_columns(state, role, relation, Privilege.SELECT, [number for of, number in reads if of == relation])


def _reads_of_owner(state: CatalogState, view: View, relations: Iterable[ObjectId]) -> Reads | None:
    """The columns that the query of a view names. None if its owner has no relation of which only these may be read.

    They are kept until the view or a relation that it reads is altered.
    """
    owner = state.owner(view.id)
    if not any(_is_read_by_column(state, id) and not has(state, owner, id, Privilege.SELECT) for id in relations):
        return None
    used = [state.items.get(id) for id in sorted(view.uses)]
    known = view.derived.get("reads")
    if known is None or any(item is not before for item, before in zip(used, known[0], strict=True)):
        known = view.derived["reads"] = used, plan_stored(view.query, state, maintained=False).reads
    reads: Reads = known[1]
    return reads


def _is_read_by_column(state: CatalogState, relation: ObjectId) -> bool:
    item = state.items.get(relation)
    return bool(item.public_columns) if isinstance(item, SystemTable) else relation in state.column_privileges


def require_query(state: CatalogState, role: ObjectId, plan: QueryPlan) -> None:
    """Requires the privileges to run a query: on its schemas and relations, and on the cluster if it computes.

    Locking rows requires UPDATE of any column of their table. The last role that had the privileges, and
    the catalog state at that time, are cached in the plan, because the same statement is often executed again.
    """
    permitted = plan.permitted
    if permitted.token is state.token and permitted.role == role:
        return
    _check_query(state, role, plan)
    permitted.token, permitted.role = state.token, role


def _check_query(state: CatalogState, role: ObjectId, plan: QueryPlan) -> None:
    superuser = is_superuser(state, role)
    if superuser and not any(isinstance(state.items.get(id), View) for id in plan.uses):
        return
    require_names(state, role, plan.uses)
    require_select(state, role, plan.uses, plan.reads)
    for table in plan.row_locks.tables if plan.row_locks is not None else ():
        require_columns(state, role, table, Privilege.UPDATE, ())
    if not superuser and computes(state, plan):
        require(state, role, QUICKSTART.id, Privilege.USAGE)


def refusal(state: CatalogState, role: ObjectId, plan: QueryPlan) -> PgError | None:
    """Returns why the role may not run the query any more; None if it may. Dropped relations are not considered."""
    if any(id not in state.items for id in plan.uses):
        plan = replace(plan, uses=frozenset(id for id in plan.uses if id in state.items))
    try:
        require_query(state, role, plan)
    except PgError as error:
        error.detail = "The privilege was revoked after the query had begun."
        return error
    return None


def require_write(state: CatalogState, role: ObjectId, plan: WritePlan, verb: str) -> None:
    """Requires the privileges to run INSERT, UPDATE, DELETE or MERGE (`verb`).

    The role needs those on the relation that the statement names. If that is a view, its owner needs them on its base.
    """
    named = plan.target.relation.id
    require_names(state, role, (named,))
    deletes = verb == "DELETE" or (plan.merge is not None and MergeAction.DELETE in plan.merge.actions)
    inserts, updates = plan.inserts, plan.updates
    _require_changes(state, role, named, deletes, inserts, updates)
    if read := [number for id, number in plan.query.reads if id == named]:
        require_columns(state, role, named, Privilege.SELECT, read)
    require_query(state, role, plan.query)
    for level in plan.target.levels:
        owner = state.owner(level.view.id)
        inserts, updates = level.in_base(inserts), level.in_base(updates)
        _require_changes(state, owner, level.base.id, deletes, inserts, updates)
        if read:
            _require_read(state, owner, level.base.id, _reads_of_owner(state, level.view, [level.base.id]))
        if level.query.read and (deletes or updates is not None or plan.merge is not None):
            others = [id for id in level.query.read if not isinstance(state.items.get(id), Sequence)]
            require_select(state, owner, others, _reads_of_owner(state, level.view, others))
    if read and plan.target.levels:
        require_select(state, role, (named,), plan.query.reads)


def _require_changes(
    state: CatalogState,
    role: ObjectId,
    relation: ObjectId,
    deletes: bool,
    inserts: frozenset[int] | None,
    updates: frozenset[int] | None,
) -> None:
    """Requires DELETE, INSERT of columns, and UPDATE of columns. None: the privilege is not required."""
    if deletes:
        require(state, role, relation, Privilege.DELETE)
    if inserts is not None:
        require_columns(state, role, relation, Privilege.INSERT, inserts)
    if updates is not None:
        require_columns(state, role, relation, Privilege.UPDATE, updates)


def computes(state: CatalogState, plan: QueryPlan) -> bool:
    """Whether running the query requires USAGE on a cluster. Queries over system tables alone do not."""
    if plan.constant is not None or (plan.direct_scan is not None and plan.scanned <= plan.inputs):
        return False
    return not plan.inputs or not all(isinstance(state.items.get(id), SystemTable) for id in plan.inputs)


def require_hold(state: CatalogState, role: ObjectId, schema: Schema, objects: Collection[ObjectId]) -> None:
    """For CREATE HOLD: requires CREATE on its schema, SELECT on each object, USAGE on the objects' clusters."""
    require(state, role, schema.id, Privilege.CREATE)
    items = [state.items[id] for id in objects]
    relations = [item.on if isinstance(item, Index) else item.id for item in items]
    require_names(state, role, relations)
    require_select(state, role, relations)
    if not all(isinstance(item, WrittenCollection) for item in items):
        require(state, role, QUICKSTART.id, Privilege.USAGE)


def _refusal(what: str, state: CatalogState, object: ObjectId) -> PgError:
    return PgError(SqlState.INSUFFICIENT_PRIVILEGE, f"{what} {described(state, object)}")


def described(state: CatalogState, object: ObjectId) -> str:
    """An object as messages name it, such as `table t`."""
    described = state.object(object)
    kind = {SystemTable.kind: "table", Domain.kind: "type"}.get(described.kind, described.kind)
    return f"{kind} {described.name}"
