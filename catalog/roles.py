"""Roles and privileges. Privileges are checked in `server/authorization/privileges.py`.

As in PostgreSQL an object without an entry in `CatalogState.privileges` has the default privileges of its kind. The
first GRANT or REVOKE stores them explicitly, including the owner's. There is no grant option: the grantor of all
privileges is the object's owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from catalog.ids import ObjectId


class Privilege(StrEnum):
    """The privileges of GRANT, in the order of the letters in PostgreSQL's aclitem."""

    INSERT = "INSERT"
    SELECT = "SELECT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"
    REFERENCES = "REFERENCES"
    USAGE = "USAGE"
    CREATE = "CREATE"


LETTERS: dict[Privilege, str] = {
    Privilege.INSERT: "a",
    Privilege.SELECT: "r",
    Privilege.UPDATE: "w",
    Privilege.DELETE: "d",
    Privilege.TRUNCATE: "D",
    Privilege.REFERENCES: "x",
    Privilege.USAGE: "U",
    Privilege.CREATE: "C",
}
"""The letters of PostgreSQL's aclitem (acl.h)."""

COLUMN_PRIVILEGES = frozenset((Privilege.INSERT, Privilege.SELECT, Privilege.UPDATE, Privilege.REFERENCES))
"""The privileges that can be granted on a column."""

Acl = Mapping[ObjectId, frozenset[Privilege]]
"""The privileges that each role has on one object, or on one column."""


@dataclass(frozen=True, slots=True)
class Role:
    """`inherit`: the role has the privileges of the roles it is a member of; if false, only after SET ROLE.

    `verifier`: the SCRAM verifier of the password in PostgreSQL's form; None without a password. `valid_until`: when
    the password expires, in microseconds since 1970; None: never. `connection_limit`: -1 is no limit.
    """

    id: ObjectId
    name: str
    superuser: bool = False
    inherit: bool = True
    login: bool = False
    create_db: bool = False
    member_of: frozenset[ObjectId] = frozenset()
    verifier: str | None = field(default=None, repr=False)
    valid_until: int | None = None
    connection_limit: int = -1


MATERIALIZE = Role(ObjectId("s1000"), "materialize", superuser=True, login=True, create_db=True)
"""The superuser that always exists, without a password. It owns all objects without another owner."""
PUBLIC = ObjectId("p")
"""The grantee PUBLIC: all roles."""


def letters(privileges: frozenset[Privilege]) -> str:
    """The privileges as letters, such as `arwd`."""
    return "".join(letter for privilege, letter in LETTERS.items() if privilege in privileges)


def from_letters(text: str) -> frozenset[Privilege]:
    return frozenset(privilege for privilege, letter in LETTERS.items() if letter in text)


def acl_items(acl: Acl, owner: ObjectId) -> list[str]:
    """Materialize's mz_aclitem, `grantee=letters/grantor` with ids, PUBLIC as `p`. The owner's item is first."""
    ordered = sorted(acl.items(), key=lambda entry: (entry[0] != owner, entry[0]))
    return [f"{grantee}={letters(privileges)}/{owner}" for grantee, privileges in ordered if privileges]
