"""Stores a `CatalogState` in SQLite: reads all of it at start, writes the difference of two states."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from catalog import builtin
from catalog.acls import Acl, from_letters, letters
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item, StoredItem
from catalog.objects.columns import Column
from catalog.objects.kinds import KINDS
from catalog.objects.namespaces import Database, Schema
from catalog.objects.relations import Relation
from catalog.roles import MATERIALIZE, DefaultAclKey, Membership, MembershipKey, Role
from catalog.state import CatalogState
from catalog.store import Store

V = TypeVar("V")


def load(store: Store) -> CatalogState:
    """The state as of the last commit, including the built-in schemas and tables."""
    databases = [Database(*row) for row in store.read("SELECT id, name FROM databases")]
    schemas = [Schema(*row) for row in store.read("SELECT id, database_id, name FROM schemas")]
    acls = {(id, at): _restored_acl(acl) for id, at, acl in store.read("SELECT id, position, acl FROM acls")}
    column_privileges: dict[ObjectId, dict[int, Acl]] = {}
    for (id, position), acl in acls.items():
        if position:
            column_privileges.setdefault(id, {})[position] = acl
    meta = dict(store.read("SELECT key, value FROM meta"))
    return CatalogState(
        databases={d.id: d for d in databases},
        schemas={s.id: s for s in (*builtin.SCHEMAS, *schemas)},
        items={i.id: i for i in (*builtin.TABLES, *_items(store))},
        next_id=meta["next_id"],
        version=meta["catalog_version"],
        settings=dict(store.read("SELECT name, value FROM settings")),
        roles=_roles(store),
        owners=dict(store.read("SELECT id, role_id FROM owners")),
        privileges={id: acl for (id, position), acl in acls.items() if not position},
        column_privileges=column_privileges,
        memberships={
            MembershipKey(*key): Membership(bool(admin), bool(inherit), bool(may_set))
            for *key, admin, inherit, may_set in store.read(
                "SELECT role_id, member, grantor, admin, inherit, may_set FROM memberships"
            )
        },
        default_acls={
            DefaultAclKey(role_id, database_id, schema_id or None, kind): _restored_acl(acl)
            for role_id, database_id, schema_id, kind, acl in store.read(
                "SELECT role_id, database_id, schema_id, kind, acl FROM default_acls"
            )
        },
        comments={
            (id, position): text
            for id, position, text in store.read("SELECT object_id, position, comment FROM comments")
        },
    )


def _items(store: Store) -> list[Item]:
    columns: dict[str, list[Column]] = {}
    for item_id, name, type, nullable, default in store.read(
        "SELECT item_id, name, type, nullable, default_text FROM columns ORDER BY item_id, position"
    ):
        columns.setdefault(item_id, []).append(Column(name, type, bool(nullable), default))
    return [
        KINDS[kind].restored(StoredItem(id, schema_id, name, tuple(columns.get(id, ())), json.loads(definition)))
        for id, schema_id, name, kind, definition in store.read(
            "SELECT id, schema_id, name, kind, definition FROM items"
        )
    ]


def _roles(store: Store) -> dict[ObjectId, Role]:
    roles = {MATERIALIZE.id: MATERIALIZE}
    for id, name, *attributes in store.read(
        "SELECT id, name, superuser, inherit, login, create_db, create_role FROM roles"
    ):
        superuser, inherit, login, create_db, create_role = map(bool, attributes)
        roles[id] = Role(id, name, superuser, inherit, login, create_db, create_role)
    for id, verifier, until, limit in store.read("SELECT id, verifier, valid_until, connection_limit FROM logins"):
        roles[id] = replace(roles[id], verifier=verifier, valid_until=until, connection_limit=limit)
    return roles


def salt_key(store: Store) -> bytes:
    """Returns the key from which the salts of roles without a password follow."""
    ((key,),) = store.read("SELECT key FROM keys WHERE name = 'salts'")
    return bytes(key)


def save(tx: sqlite3.Connection, old: CatalogState, new: CatalogState) -> None:
    """Writes the difference between `old` and `new`, within a transaction."""
    for id, database in _changed(tx, "databases", old.databases, new.databases):
        tx.execute("INSERT OR REPLACE INTO databases VALUES (?, ?)", (id, database.name))
    for id, schema in _changed(tx, "schemas", old.schemas, new.schemas):
        tx.execute("INSERT OR REPLACE INTO schemas VALUES (?, ?, ?)", (id, schema.database_id, schema.name))
    _save_items(tx, old, new)
    _save_roles(tx, old, new)
    for id, owner in _changed(tx, "owners", old.owners, new.owners):
        tx.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (id, owner))
    if new.privileges is not old.privileges or new.column_privileges is not old.column_privileges:
        _save_acls(tx, _acls(old), _acls(new))
    _save_default_acls(tx, old, new)
    if new.settings != old.settings:
        tx.execute("DELETE FROM settings")
        tx.executemany("INSERT INTO settings VALUES (?, ?)", new.settings.items())
    if new.comments is not old.comments:
        gone = old.comments.keys() - new.comments.keys()
        tx.executemany("DELETE FROM comments WHERE object_id = ? AND position = ?", gone)
        changed = [(*key, text) for key, text in new.comments.items() if old.comments.get(key) != text]
        tx.executemany("INSERT OR REPLACE INTO comments VALUES (?, ?, ?)", changed)
    tx.execute("UPDATE meta SET value = ? WHERE key = 'next_id'", (new.next_id,))
    tx.execute("UPDATE meta SET value = ? WHERE key = 'catalog_version'", (new.version,))


def _save_items(tx: sqlite3.Connection, old: CatalogState, new: CatalogState) -> None:
    """Writes the items with their columns."""
    for id in old.items.keys() - new.items.keys():
        tx.execute("DELETE FROM columns WHERE item_id = ?", (id,))
    for id, item in _changed(tx, "items", old.items, new.items):
        tx.execute(
            "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?)",
            (id, item.schema_id, item.name, item.kind, json.dumps(item.stored())),
        )
        tx.execute("DELETE FROM columns WHERE item_id = ?", (id,))
        if isinstance(item, Relation):
            tx.executemany(
                "INSERT INTO columns VALUES (?, ?, ?, ?, ?, ?)",
                [(id, i, c.name, c.type, c.nullable, c.default) for i, c in enumerate(item.columns)],
            )


def _save_roles(tx: sqlite3.Connection, old: CatalogState, new: CatalogState) -> None:
    """Writes the roles with their logins and memberships."""
    for id in old.roles.keys() - new.roles.keys():
        tx.execute("DELETE FROM logins WHERE id = ?", (id,))
    for id, role in _changed(tx, "roles", old.roles, new.roles):
        tx.execute(
            "INSERT OR REPLACE INTO logins VALUES (?, ?, ?, ?)",
            (id, role.verifier, role.valid_until, role.connection_limit),
        )
        if id == MATERIALIZE.id:
            continue  # its attributes never change
        attributes = (role.superuser, role.inherit, role.login, role.create_db, role.create_role)
        tx.execute("INSERT OR REPLACE INTO roles VALUES (?, ?, ?, ?, ?, ?, ?)", (id, role.name, *attributes))
    gone = old.memberships.keys() - new.memberships.keys()
    tx.executemany("DELETE FROM memberships WHERE role_id = ? AND member = ? AND grantor = ?", gone)
    for key, membership in new.memberships.items():
        if old.memberships.get(key) != membership:
            options = (membership.admin, membership.inherit, membership.may_set)
            tx.execute("INSERT OR REPLACE INTO memberships VALUES (?, ?, ?, ?, ?, ?)", (*key, *options))


def _save_default_acls(tx: sqlite3.Connection, old: CatalogState, new: CatalogState) -> None:
    for key in old.default_acls.keys() - new.default_acls.keys():
        tx.execute(
            "DELETE FROM default_acls WHERE role_id = ? AND database_id = ? AND schema_id = ? AND kind = ?",
            _stored_key(key),
        )
    for key, acl in new.default_acls.items():
        if old.default_acls.get(key) != acl:
            row = (*_stored_key(key), _stored_acl(acl))
            tx.execute("INSERT OR REPLACE INTO default_acls VALUES (?, ?, ?, ?, ?)", row)


def _acls(state: CatalogState) -> dict[tuple[ObjectId, int], Acl]:
    """The privileges by object and position: 0 for the object itself, otherwise that of a column."""
    columns = {(id, at): acl for id, acls in state.column_privileges.items() for at, acl in acls.items()}
    return {(id, 0): acl for id, acl in state.privileges.items()} | columns


def _save_acls(
    tx: sqlite3.Connection, old: dict[tuple[ObjectId, int], Acl], new: dict[tuple[ObjectId, int], Acl]
) -> None:
    tx.executemany("DELETE FROM acls WHERE id = ? AND position = ?", old.keys() - new.keys())
    changed = [(*key, _stored_acl(acl)) for key, acl in new.items() if old.get(key) != acl]
    tx.executemany("INSERT OR REPLACE INTO acls VALUES (?, ?, ?)", changed)


def _stored_acl(acl: Acl) -> str:
    return json.dumps([(item.grantee, item.grantor, letters(item)) for item in acl])


def _restored_acl(text: str) -> Acl:
    return tuple(from_letters(*entry) for entry in json.loads(text))


def _stored_key(key: DefaultAclKey) -> tuple[str, str, str, str]:
    return (key.role, key.database, key.schema or "", key.kind)


def _changed(
    tx: sqlite3.Connection, table: str, old: Mapping[ObjectId, V], new: Mapping[ObjectId, V]
) -> list[tuple[ObjectId, V]]:
    """Deletes the removed objects from `table`; returns the new and changed ones."""
    tx.executemany(f"DELETE FROM {table} WHERE id = ?", [(id,) for id in old.keys() - new.keys()])
    return [(id, value) for id, value in new.items() if old.get(id) != value]
