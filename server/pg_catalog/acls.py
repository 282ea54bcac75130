"""Privileges as PostgreSQL's catalogs show them: texts of the type aclitem, and one row for each granted privilege."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from catalog.objects import ObjectId, Relation
from catalog.roles import PUBLIC, Acl, Privilege, letters
from server.pg_catalog import oids
from server.pg_catalog.static import Row
from server.pg_catalog.visible import Visible

GRANTS = pa.schema(
    [
        ("relation", pa.uint32()),
        ("place", pa.int32()),
        ("grantor", pa.string()),
        ("grantee", pa.string()),
        ("privilege", pa.string()),
        ("grantable", pa.bool_()),
    ]
)


def acl_of(visible: Visible, id: ObjectId) -> list[str] | None:
    """The aclitems of a database, schema or item; None if it has the default privileges of its kind."""
    acl = visible.state.privileges.get(id)
    return None if acl is None else _items(visible, acl, visible.state.owner(id))


def column_acl_of(visible: Visible, id: ObjectId, position: int) -> list[str] | None:
    """The aclitems of a column; None if no privilege on it was granted."""
    acl = visible.state.column_privileges.get(id, {}).get(position)
    return None if acl is None else _items(visible, acl, visible.state.owner(id))


def grants(visible: Visible) -> Iterator[Row]:
    """The privileges on relations (`place` 0) and on columns, explicit and default ones."""
    state = visible.state
    for item in visible.listed:
        if not isinstance(item, Relation):
            continue
        columns = state.column_privileges.get(item.id, {})
        for place, acl in ((0, state.acl(item.id)), *columns.items()):
            owner = state.owner(item.id)
            for grantee, granted in _ordered(acl, owner):
                for privilege in sorted(granted):
                    yield {
                        "relation": oids.oid_of(item.id),
                        "place": place,
                        "grantor": _name(visible, owner),
                        "grantee": _name(visible, grantee) or "PUBLIC",
                        "privilege": privilege.value,
                        "grantable": grantee == owner,
                    }


def _ordered(acl: Acl, owner: ObjectId) -> list[tuple[ObjectId, frozenset[Privilege]]]:
    return sorted(acl.items(), key=lambda entry: (entry[0] != owner, entry[0]))


def _items(visible: Visible, acl: Acl, owner: ObjectId) -> list[str]:
    """`grantee=letters/grantor`, the owner's item first. The grantee is empty for PUBLIC."""
    return [
        f"{_quoted(_name(visible, grantee))}={letters(granted)}/{_quoted(_name(visible, owner))}"
        for grantee, granted in _ordered(acl, owner)
        if granted
    ]


def _name(visible: Visible, role: ObjectId) -> str:
    """The name of a role; empty for PUBLIC."""
    return "" if role == PUBLIC else visible.state.roles[role].name


def _quoted(name: str) -> str:
    """The name as PostgreSQL's putid() writes it: quoted if it has other characters than letters, digits and _."""
    if all(character.isascii() and (character.isalnum() or character == "_") for character in name):
        return name
    return '"' + name.replace('"', '""') + '"'
