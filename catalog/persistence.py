"""Stores a `CatalogState` in SQLite: reads all of it at start, writes the difference of two states."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from catalog import builtin
from catalog.objects import KINDS, Column, Database, Item, ObjectId, Relation, Schema, StoredItem
from catalog.roles import MATERIALIZE, Acl, Role, from_letters, letters
from catalog.state import CatalogState
from catalog.store import Store

V = TypeVar("V")


def load(store: Store) -> CatalogState:
    """The state as of the last commit, including the built-in schemas and tables."""
    columns: dict[str, list[Column]] = {}
    for item_id, name, type, nullable, default in store.read(
        "SELECT item_id, name, type, nullable, default_text FROM columns ORDER BY item_id, position"
    ):
        columns.setdefault(item_id, []).append(Column(name, type, bool(nullable), default))
    databases = [Database(*row) for row in store.read("SELECT id, name FROM databases")]
    schemas = [Schema(*row) for row in store.read("SELECT id, database_id, name FROM schemas")]
    items: list[Item] = [
        KINDS[kind].restored(StoredItem(id, schema_id, name, tuple(columns.get(id, ())), json.loads(definition)))
        for id, schema_id, name, kind, definition in store.read(
            "SELECT id, schema_id, name, kind, definition FROM items"
        )
    ]
    member_of: dict[str, set[ObjectId]] = {}
    for member, role_id in store.read("SELECT id, member_of FROM memberships"):
        member_of.setdefault(member, set()).add(role_id)
    roles = {MATERIALIZE.id: MATERIALIZE}
    for row in store.read("SELECT id, name, superuser, inherit, login, create_db FROM roles"):
        id, name, superuser, inherit, login, create_db = row
        groups = frozenset(member_of.get(id, ()))
        roles[id] = Role(id, name, bool(superuser), bool(inherit), bool(login), bool(create_db), groups)
    for id, verifier, until, limit in store.read("SELECT id, verifier, valid_until, connection_limit FROM logins"):
        roles[id] = replace(roles[id], verifier=verifier, valid_until=until, connection_limit=limit)
    privileges: dict[ObjectId, Acl] = {}
    for id, role_id, granted in store.read("SELECT id, role_id, privileges FROM privileges"):
        privileges[id] = {**privileges.get(id, {}), role_id: from_letters(granted)}
    columns_acl: dict[ObjectId, dict[int, Acl]] = {}
    for id, position, role_id, granted in store.read("SELECT id, position, role_id, privileges FROM column_privileges"):
        acls = columns_acl.setdefault(id, {})
        acls[position] = {**acls.get(position, {}), role_id: from_letters(granted)}
    meta = dict(store.read("SELECT key, value FROM meta"))
    return CatalogState(
        databases={d.id: d for d in databases},
        schemas={s.id: s for s in (*builtin.SCHEMAS, *schemas)},
        items={i.id: i for i in (*builtin.TABLES, *items)},
        next_id=meta["next_id"],
        version=meta["catalog_version"],
        settings=dict(store.read("SELECT name, value FROM settings")),
        roles=roles,
        owners=dict(store.read("SELECT id, role_id FROM owners")),
        privileges=privileges,
        column_privileges=columns_acl,
        comments={
            (id, position): text
            for id, position, text in store.read("SELECT object_id, position, comment FROM comments")
        },
    )


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
    for id in old.roles.keys() - new.roles.keys():
        tx.execute("DELETE FROM memberships WHERE id = ?", (id,))
        tx.execute("DELETE FROM logins WHERE id = ?", (id,))
    for id, role in _changed(tx, "roles", old.roles, new.roles):
        tx.execute(
            "INSERT OR REPLACE INTO logins VALUES (?, ?, ?, ?)",
            (id, role.verifier, role.valid_until, role.connection_limit),
        )
        if id == MATERIALIZE.id:
            continue  # its attributes never change
        attributes = (role.superuser, role.inherit, role.login, role.create_db)
        tx.execute("INSERT OR REPLACE INTO roles VALUES (?, ?, ?, ?, ?, ?)", (id, role.name, *attributes))
        tx.execute("DELETE FROM memberships WHERE id = ?", (id,))
        tx.executemany("INSERT INTO memberships VALUES (?, ?)", [(id, group) for group in role.member_of])
    for id, owner in _changed(tx, "owners", old.owners, new.owners):
        tx.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (id, owner))
    for id, acl in _changed(tx, "privileges", old.privileges, new.privileges):
        tx.execute("DELETE FROM privileges WHERE id = ?", (id,))
        tx.executemany(
            "INSERT INTO privileges VALUES (?, ?, ?)", [(id, grantee, letters(p)) for grantee, p in acl.items()]
        )
    for id, acls in _changed(tx, "column_privileges", old.column_privileges, new.column_privileges):
        tx.execute("DELETE FROM column_privileges WHERE id = ?", (id,))
        tx.executemany(
            "INSERT INTO column_privileges VALUES (?, ?, ?, ?)",
            [(id, at, grantee, letters(p)) for at, acl in acls.items() for grantee, p in acl.items()],
        )
    if new.settings != old.settings:
        tx.execute("DELETE FROM settings")
        tx.executemany("INSERT INTO settings VALUES (?, ?)", new.settings.items())
    if new.comments != old.comments:
        tx.execute("DELETE FROM comments")
        tx.executemany("INSERT INTO comments VALUES (?, ?, ?)", [(*key, text) for key, text in new.comments.items()])
    tx.execute("UPDATE meta SET value = ? WHERE key = 'next_id'", (new.next_id,))
    tx.execute("UPDATE meta SET value = ? WHERE key = 'catalog_version'", (new.version,))


def _changed(
    tx: sqlite3.Connection, table: str, old: Mapping[ObjectId, V], new: Mapping[ObjectId, V]
) -> list[tuple[ObjectId, V]]:
    """Deletes the removed objects from `table`; returns the new and changed ones."""
    tx.executemany(f"DELETE FROM {table} WHERE id = ?", [(id,) for id in old.keys() - new.keys()])
    return [(id, value) for id, value in new.items() if old.get(id) != value]
