"""Roles, and what may be granted to them. Who may do what is decided in `server/privileges.py`.

As in PostgreSQL an object without an entry in `CatalogState.privileges` has its kind's default privileges; the first
GRANT or REVOKE writes them down, the owner's own among them. There is no grant option: an object's privileges are
granted in its owner's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from catalog.ids import ObjectId


class Privilege(StrEnum):
    """What GRANT names, in PostgreSQL's order of an aclitem's letters."""

    INSERT = "INSERT"
    SELECT = "SELECT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"
    USAGE = "USAGE"
    CREATE = "CREATE"


LETTERS: dict[Privilege, str] = {
    Privilege.INSERT: "a",
    Privilege.SELECT: "r",
    Privilege.UPDATE: "w",
    Privilege.DELETE: "d",
    Privilege.TRUNCATE: "D",
    Privilege.USAGE: "U",
    Privilege.CREATE: "C",
}
"""As PostgreSQL's aclitem writes them (acl.h)."""

Acl = Mapping[ObjectId, frozenset[Privilege]]
"""Who may do what with an object."""


@dataclass(frozen=True, slots=True)
class Role:
    """`inherit`: it may do at once what the roles that it is a member of may do; without, only after SET ROLE."""

    id: ObjectId
    name: str
    superuser: bool = False
    inherit: bool = True
    login: bool = False
    create_db: bool = False
    member_of: frozenset[ObjectId] = frozenset()


MATERIALIZE = Role(ObjectId("s1000"), "materialize", superuser=True, login=True, create_db=True)
"""The superuser that always exists, and owns what nobody else does."""
PUBLIC = ObjectId("p")
"""Everybody, as a grantee."""

_TABLE = (Privilege.INSERT, Privilege.SELECT, Privilege.UPDATE, Privilege.DELETE, Privilege.TRUNCATE)
_CONTAINER = (Privilege.USAGE, Privilege.CREATE)
_APPLICABLE: dict[str, tuple[Privilege, ...]] = {
    **dict.fromkeys(("table", "view", "materialized view", "system table"), _TABLE),
    **dict.fromkeys(("database", "schema", "cluster"), _CONTAINER),
}


def applicable(kind: str) -> frozenset[Privilege]:
    """The privileges that a kind of object has: what ALL means for it."""
    return frozenset(_APPLICABLE.get(kind, ()))


def letters(privileges: frozenset[Privilege]) -> str:
    """`arwd`."""
    return "".join(letter for privilege, letter in LETTERS.items() if privilege in privileges)


def from_letters(text: str) -> frozenset[Privilege]:
    return frozenset(privilege for privilege, letter in LETTERS.items() if letter in text)


def acl_items(acl: Acl, owner: ObjectId) -> list[str]:
    """As Materialize's mz_aclitem: `grantee=letters/grantor`, by ids; PUBLIC is `p`. The owner stands first."""
    ordered = sorted(acl.items(), key=lambda entry: (entry[0] != owner, entry[0]))
    return [f"{grantee}={letters(privileges)}/{owner}" for grantee, privileges in ordered if privileges]
