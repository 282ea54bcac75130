"""`CatalogState`: an immutable snapshot of all objects of the catalog.

A statement is planned against one `CatalogState`. DDL computes a new one with pure functions, except that no id is
given out twice; the store writes the difference in the transaction that commits it.

The modules `drops` and `references` have further functions of a state. The error `NameTaken` is internal; the session
translates it for the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from catalog.acls import NONE, Acl, Privileges, built_in_acl, in_order, role_order, with_items, with_new_owner
from catalog.ids import IdCounter, ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.clusters import QUICKSTART, Cluster
from catalog.objects.indexes import Index
from catalog.objects.namespaces import TEMPORARY, Database, Schema, is_temporary
from catalog.objects.relations import Collection, DerivedRelation, Relation
from catalog.objects.sources import SourcePart
from catalog.objects.views import View
from catalog.roles import MATERIALIZE, DefaultAclKey, Membership, MembershipKey, Role, Through

I = TypeVar("I", bound=Item)


class CatalogError(Exception):
    """The catalog refused a change to the object with this `kind` and `name`."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'{kind} "{name}"')
        self.kind = kind
        self.name = name


class NameTaken(CatalogError):
    """The name is in use; `kind` is the kind of the existing object."""


@dataclass(frozen=True)
class CatalogState:
    """All objects, at one catalog version. Methods that change something return a new state."""

    databases: Mapping[ObjectId, Database]
    schemas: Mapping[ObjectId, Schema]
    items: Mapping[ObjectId, Item]
    next_id: int
    """Greater than the number of each id of an object."""
    version: int = field(default=0)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Values set by ALTER SYSTEM, by lower-case name."""
    roles: Mapping[ObjectId, Role] = field(default_factory=lambda: {MATERIALIZE.id: MATERIALIZE})
    memberships: Mapping[MembershipKey, Membership] = field(default_factory=dict)
    owners: Mapping[ObjectId, ObjectId] = field(default_factory=dict)
    """Owner of each object. An object without an entry is owned by `materialize`."""
    privileges: Mapping[ObjectId, Acl] = field(default_factory=dict)
    """Objects with privileges other than the defaults of their kind."""
    column_privileges: Mapping[ObjectId, Mapping[int, Acl]] = field(default_factory=dict)
    """Privileges on columns: by relation and column position, counted from 1. No entry is empty."""
    default_acls: Mapping[DefaultAclKey, Acl] = field(default_factory=dict)
    """ALTER DEFAULT PRIVILEGES. An entry for a database replaces the built-in privileges of a kind. An entry for a
    schema adds to them."""
    comments: Mapping[tuple[ObjectId, int], str] = field(default_factory=dict)
    """COMMENT ON: by object id and column position, counted from 1; position 0 is the object itself."""
    ids: IdCounter = field(default_factory=IdCounter, compare=False, repr=False)
    """Shared by all states that follow from the same one."""

    @cached_property
    def _database_names(self) -> dict[str, Database]:
        return {d.name: d for d in self.databases.values()}

    @cached_property
    def _schema_names(self) -> dict[tuple[ObjectId | None, str], Schema]:
        return {(s.database_id, s.name): s for s in self.schemas.values()}

    @cached_property
    def _item_names(self) -> dict[tuple[ObjectId, str], Item]:
        return {(i.schema_id, i.name): i for i in self.items.values()}

    @cached_property
    def _users(self) -> dict[ObjectId, list[ObjectId]]:
        users: dict[ObjectId, list[ObjectId]] = {}
        for item in self.items.values():
            for used in item.depends_on:
                users.setdefault(used, []).append(item.id)
        return users

    @cached_property
    def _indexes(self) -> dict[ObjectId, tuple[Index, ...]]:
        return _by_key(self.items_of(Index), lambda index: index.on)

    @cached_property
    def _parts(self) -> dict[ObjectId, tuple[SourcePart, ...]]:
        return _by_key(self.items_of(SourcePart), lambda part: part.source)

    @cached_property
    def _role_names(self) -> dict[str, Role]:
        return {role.name: role for role in self.roles.values()}

    @cached_property
    def _groups(self) -> dict[ObjectId, list[tuple[ObjectId, Membership]]]:
        """The roles that each role is directly a member of, with the options of each membership."""
        groups: dict[ObjectId, list[tuple[ObjectId, Membership]]] = {}
        for key in sorted(self.memberships, key=lambda key: (role_order(key.role), role_order(key.grantor))):
            groups.setdefault(key.member, []).append((key.role, self.memberships[key]))
        return groups

    @cached_property
    def _closures(self) -> dict[tuple[ObjectId, Through], dict[ObjectId, None]]:
        return {}

    @cached_property
    def token(self) -> object:
        """Identifies this state in caches, without a reference to the state."""
        return object()

    @cached_property
    def usable_paths(self) -> dict[object, tuple[str, ...]]:
        """Results of `server.authorization.privileges.usable_path`, which bounds their number."""
        return {}

    @cached_property
    def _changes(self) -> dict[object, tuple[ObjectId, ...]]:
        """The results of `changed_items`, by the token of the other state."""
        return {}

    @cached_property
    def _granted(self) -> dict[ObjectId, Mapping[ObjectId, Privileges]]:
        return {}

    # -- looking up ---------------------------------------------------------------------------------------------

    def database_named(self, name: str) -> Database | None:
        return self._database_names.get(name)

    def schema_named(self, database_id: ObjectId | None, name: str) -> Schema | None:
        """The schema with this name in the database, or the system schema with this name."""
        return self._schema_names.get((database_id, name)) or self._schema_names.get((None, name))

    def item_named(self, schema_id: ObjectId, name: str) -> Item | None:
        return self._item_names.get((schema_id, name))

    def resolve(self, parts: tuple[str, ...], database: str, search_path: Iterable[str]) -> Item | None:
        """The item that `[[database.]schema.]name` denotes in a session; None if there is none.

        An unqualified name is searched in the schemas of `search_path`. System schemas that the path does not name are
        searched first, as in PostgreSQL. The path begins with the session's schema of temporary objects, if there is
        one; those of other sessions are not found.
        """
        match parts:
            case (name,):
                named = tuple(search_path)
                path = (*(s for s in ("pg_catalog", "mz_catalog") if s not in named), *named)
            case (schema_name, name):
                own = [known for known in search_path if known.startswith(f"{TEMPORARY}_")]
                if schema_name == TEMPORARY:
                    path = tuple(own)
                elif schema_name.startswith(f"{TEMPORARY}_") and schema_name not in own:
                    return None
                else:
                    path = (schema_name,)
            case (database, schema_name, name) if self.database_named(database) is not None:
                path = (schema_name,)
            case _:
                return None
        current = self.database_named(database)
        for schema_name in path:
            schema = self.schema_named(current.id if current is not None else None, schema_name)
            item = self.item_named(schema.id, name) if schema is not None else None
            if item is not None:
                return item
        return None

    def full_name(self, item: Item) -> tuple[str, ...]:
        """(database, schema, name), or (schema, name) for a system item."""
        schema = self.schemas[item.schema_id]
        if schema.database_id is None:
            return (schema.name, item.name)
        return (self.databases[schema.database_id].name, schema.name, item.name)

    def items_in(self, schema_id: ObjectId) -> Iterator[Item]:
        return (i for i in self.items.values() if i.schema_id == schema_id)

    def relation(self, id: ObjectId) -> Relation:
        """The relation with this id, which must exist."""
        item = self.items[id]
        assert isinstance(item, Relation), item
        return item

    def items_of(self, kind: type[I]) -> Iterator[I]:
        """The items of a kind or with a capability."""
        return (item for item in self.items.values() if isinstance(item, kind))

    def changed_items(self, before: CatalogState) -> tuple[ObjectId, ...]:
        """The items that `before` does not have, or has with another definition."""
        found = self._changes.get(before.token)
        if found is None:
            known = before.items.get
            is_same = self.items is before.items
            found = () if is_same else tuple([id for id, item in self.items.items() if known(id) is not item])
            self._changes[before.token] = found
        return found

    def dependents(self, *ids: ObjectId) -> list[Item]:
        """Everything that uses one of `ids`, directly or through others, nearest first."""
        return [user for user, _ in self.uses_of(*ids)]

    def uses_of(self, *ids: ObjectId) -> list[tuple[Item, Item]]:
        """`dependents`, each with the first object that it uses: one of `ids` or an earlier dependent."""
        found: dict[ObjectId, tuple[Item, Item]] = {}
        queue = deque((user, id) for id in ids for user in self._users.get(id, ()))
        while queue:
            user, used = queue.popleft()
            if user not in found:
                found[user] = self.items[user], self.items[used]
                queue.extend((other, user) for other in self._users.get(user, ()))
        return list(found.values())

    def indexes_on(self, id: ObjectId) -> tuple[Index, ...]:
        return self._indexes.get(id, ())

    def parts_of(self, source: ObjectId) -> tuple[SourcePart, ...]:
        """The subsources and tables of a source, in the order of their creation."""
        return self._parts.get(source, ())

    def object(self, id: ObjectId) -> Item | Schema | Database | Cluster:
        """The item, schema, database or cluster with this id."""
        return self.items.get(id) or self.schemas.get(id) or self.databases.get(id) or QUICKSTART

    def collections(self, ids: Iterable[ObjectId], *, through: type[DerivedRelation] = View) -> frozenset[ObjectId]:
        """The collections from which the relations `ids` are computed.

        Relations of the class `through` are replaced by the collections that their queries read.
        """
        found: set[ObjectId] = set()
        seen: set[ObjectId] = set()
        queue = list(ids)
        while queue:
            id = queue.pop()
            if id in seen:
                continue
            seen.add(id)
            item = self.items.get(id)
            if isinstance(item, through):
                queue.extend(item.uses)
            elif isinstance(item, Collection):
                found.add(id)
        return frozenset(found)

    # -- roles and privileges -----------------------------------------------------------------------------------

    def role_named(self, name: str) -> Role | None:
        return self._role_names.get(name)

    def roles_of(self, role: ObjectId, through: Through) -> KeysView[ObjectId]:
        """The role and all roles that it is directly or indirectly a member of, the nearest ones first."""
        found = self._closures.get((role, through))
        if found is None:
            found, queue = {role: None}, deque([role])
            while queue:
                for group, membership in self._groups.get(queue.popleft(), ()):
                    if group not in found and through.follows(membership):
                        found[group] = None
                        queue.append(group)
            self._closures[role, through] = found
        return found.keys()

    def has_rights_of(self, role: ObjectId, of: ObjectId) -> bool:
        """Whether the role has the privileges of `of` without SET ROLE."""
        known = self.roles.get(role)
        return (known is not None and known.superuser) or of in self.roles_of(role, Through.INHERIT)

    def nearest_admin(self, role: ObjectId, of: ObjectId, through: Through) -> ObjectId | None:
        """The role itself, or the nearest one that it is a member of, that has ADMIN OPTION on `of`."""
        for admin in self.roles_of(role, through):
            if any(group == of and membership.admin for group, membership in self._groups.get(admin, ())):
                return admin
        return None

    def owner(self, id: ObjectId) -> ObjectId:
        """The role that owns an object, or the object that it is part of."""
        item = self.items.get(id)
        return self.owners.get((item.part_of if item is not None else None) or id, MATERIALIZE.id)

    def acl(self, id: ObjectId) -> Acl:
        """The privileges on an object, as granted or by default."""
        stored = self.privileges.get(id)
        if stored is not None:
            return stored
        object = self.object(id)
        return built_in_acl(self.owner(id), object.privileges, object.public_privileges)

    def granted(self, id: ObjectId) -> Mapping[ObjectId, Privileges]:
        """The privileges on an object by grantee."""
        found = self._granted.get(id)
        if found is None:
            by_grantee: dict[ObjectId, Privileges] = {}
            for item in self.acl(id):
                by_grantee[item.grantee] = by_grantee.get(item.grantee, NONE) | item.privileges
            found = self._granted[id] = by_grantee
        return found

    def default_acl(self, id: ObjectId) -> Acl | None:
        """The privileges on a new object by ALTER DEFAULT PRIVILEGES; None: the built-in ones of its kind."""
        object = self.object(id)
        kind = object.default_acl_kind
        if not self.default_acls or kind is None:
            return None
        item = self.items.get(id)
        schema = self.schemas[item.schema_id if item is not None else id]
        owner, database = self.owner(id), schema.database_id
        if database is None or (item is None and is_temporary(schema)):
            return None
        anywhere = self.default_acls.get(DefaultAclKey(owner, database, None, kind))
        here = self.default_acls.get(DefaultAclKey(owner, database, schema.id, kind), ())
        if anywhere is None and not here:
            return None
        built_in = built_in_acl(owner, object.privileges, object.public_privileges)
        acl = with_items(built_in if anywhere is None else anywhere, here, owner, self.has_rights_of)
        # ON TABLES applies to all kinds of relation. Some of them have fewer privileges.
        own = [
            replace(i, privileges=i.privileges & object.privileges, grantable=i.grantable & object.privileges)
            for i in acl
        ]
        ordered = in_order(tuple(i for i in own if i.privileges))
        return None if ordered == in_order(built_in) else ordered

    def with_role(self, role: Role) -> CatalogState:
        """Adds or replaces a role. NameTaken if another has the name."""
        other = self.role_named(role.name)
        if other is not None and other.id != role.id:
            raise NameTaken("role", role.name)
        return replace(self, roles={**self.roles, role.id: role})

    def without_roles(self, ids: Set[ObjectId]) -> CatalogState:
        """Drops roles on which nothing depends, and their memberships."""
        roles = {k: r for k, r in self.roles.items() if k not in ids}
        return replace(self.without_memberships_of(ids), roles=roles)

    def without_memberships_of(self, roles: Set[ObjectId]) -> CatalogState:
        """Removes the memberships in these roles, and those that they have in others."""
        return self.with_memberships(
            {key: m for key, m in self.memberships.items() if key.role not in roles and key.member not in roles}
        )

    def with_memberships(self, memberships: Mapping[MembershipKey, Membership]) -> CatalogState:
        return self if memberships == self.memberships else replace(self, memberships=memberships)

    def with_acls(
        self, acls: Mapping[ObjectId, Acl], column_acls: Mapping[ObjectId, Mapping[int, Acl]] | None = None
    ) -> CatalogState:
        """Replaces the privileges on objects, and those on all columns of relations."""
        state = replace(self, privileges={**self.privileges, **acls}) if acls else self
        if not column_acls:
            return state
        columns = {id: {at: acl for at, acl in own.items() if acl} for id, own in column_acls.items()}
        kept = {id: own for id, own in {**self.column_privileges, **columns}.items() if own}
        return replace(state, column_privileges=kept)

    def with_default_acls(self, acls: Mapping[DefaultAclKey, Acl | None]) -> CatalogState:
        """Replaces entries of ALTER DEFAULT PRIVILEGES. None removes an entry."""
        merged = {**self.default_acls, **acls}
        return replace(self, default_acls={key: acl for key, acl in merged.items() if acl is not None})

    def with_owner(self, id: ObjectId, role: ObjectId) -> CatalogState:
        """Changes the owner of an object and of its parts.

        The new owner gets the old one's privileges on them, and becomes the grantor of what the old one granted.
        """
        old = self.owner(id)
        state = replace(self, owners={**self.owners, id: role})
        if old == role:
            return state
        owned = [id, *(user for user in self._users.get(id, ()) if self.items[user].part_of == id)]
        acls = {key: with_new_owner(self.privileges[key], old, role) for key in owned if key in self.privileges}
        columns = {
            key: {at: with_new_owner(acl, old, role) for at, acl in self.column_privileges[key].items()}
            for key in owned
            if key in self.column_privileges
        }
        return state.with_acls(acls, columns)

    def settled(self, before: CatalogState, creator: ObjectId) -> CatalogState:
        """The state after DDL by `creator`, who owns the new objects. Removes owners and privileges of dropped ones.

        New objects have the privileges of ALTER DEFAULT PRIVILEGES.
        """
        old, new = before._objects(), self._objects()
        state = self
        for id in new - old:
            item = self.items.get(id)
            is_part = item is not None and item.part_of is not None
            if creator != MATERIALIZE.id and not is_part and id not in self.owners:
                state = state.with_owner(id, creator)
        defaults = {id: acl for id in new - old - state.privileges.keys() if (acl := state.default_acl(id)) is not None}
        state = state.with_acls(defaults)
        if gone := old - new:
            owners = {id: role for id, role in state.owners.items() if id not in gone}
            privileges = {id: acl for id, acl in state.privileges.items() if id not in gone}
            columns = {id: acls for id, acls in state.column_privileges.items() if id not in gone}
            state = replace(state, owners=owners, privileges=privileges, column_privileges=columns)
            ended = [key for key in state.default_acls if key.database in gone or key.schema in gone]
            state = state.with_default_acls(dict.fromkeys(ended)) if ended else state
        return state

    def _objects(self) -> set[ObjectId]:
        return {*self.databases, *self.schemas, *self.items}

    # -- changing -----------------------------------------------------------------------------------------------

    def with_settings(self, settings: Mapping[str, str]) -> CatalogState:
        return replace(self, settings=settings)

    def with_comment(self, id: ObjectId, position: int, comment: str | None) -> CatalogState:
        """Sets a comment; None removes it."""
        comments = {key: text for key, text in self.comments.items() if key != (id, position)}
        if comment is not None:
            comments[id, position] = comment
        return replace(self, comments=comments)

    def without_column(self, id: ObjectId, gone: int) -> CatalogState:
        """Removes the comment and the privileges of the column at a position. Those after it have their new positions.

        The relation itself is not changed.
        """
        comments = {
            (object, position - (object == id and position > gone)): comment
            for (object, position), comment in self.comments.items()
            if (object, position) != (id, gone)
        }
        own = self.column_privileges.get(id, {})
        columns = {position - (position > gone): acl for position, acl in own.items() if position != gone}
        state = replace(self, comments=comments)
        return state.with_acls({}, {id: columns}) if id in self.column_privileges else state

    def new_id(self) -> tuple[ObjectId, CatalogState]:
        """Returns an id that no other object has, including those of open transactions."""
        number = self.ids.take(self.next_id)
        return ObjectId(f"u{number}"), replace(self, next_id=number + 1)

    def with_database(self, database: Database) -> CatalogState:
        """Adds or renames a database. NameTaken if another one has the name."""
        other = self.database_named(database.name)
        if other is not None and other.id != database.id:
            raise NameTaken("database", database.name)
        return replace(self, databases={**self.databases, database.id: database})

    def with_schema(self, schema: Schema) -> CatalogState:
        """Adds or renames a schema. NameTaken if another one, or a system schema, has the name."""
        other = self.schema_named(schema.database_id, schema.name)
        if other is not None and other.id != schema.id:
            raise NameTaken("schema", schema.name)
        return replace(self, schemas={**self.schemas, schema.id: schema})

    def with_item(self, item: Item) -> CatalogState:
        """Adds or replaces an item, for example to rename it. NameTaken if another one in the schema has the name."""
        return self.with_items((item,))

    def with_items(self, items: Iterable[Item]) -> CatalogState:
        """As `with_item` for each of them. The cost is linear in their number."""
        changed: dict[ObjectId, Item] = {}
        taken: dict[tuple[ObjectId, str], Item] = {}
        for item in items:
            name = (item.schema_id, item.name)
            before = self.items.get(item.id)
            if before is None or (before.schema_id, before.name) != name:
                other = taken.setdefault(name, self.item_named(*name) or item)
                if other.id != item.id:
                    raise NameTaken(other.kind, item.name)
            changed[item.id] = item
        return replace(self, items={**self.items, **changed})


def _by_key(items: Iterable[I], key: Callable[[I], ObjectId]) -> dict[ObjectId, tuple[I, ...]]:
    """The items with each key, in their order."""
    found: dict[ObjectId, list[I]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return {id: tuple(those) for id, those in found.items()}
