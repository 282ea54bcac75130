"""Roles, their memberships, and the kinds of privilege. `acls` has the access control lists.

Privileges are checked in `server/authorization/privileges.py`. As in PostgreSQL an object without an entry in
`CatalogState.privileges` has the built-in privileges of its kind. The first GRANT or REVOKE stores them explicitly,
including the owner's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

from catalog.ids import ObjectId


class Privilege(StrEnum):
    """The privileges of GRANT, in the order of the letters in PostgreSQL's aclitem."""

    INSERT = "INSERT"
    SELECT = "SELECT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"
    REFERENCES = "REFERENCES"
    TRIGGER = "TRIGGER"
    USAGE = "USAGE"
    CREATE = "CREATE"
    MAINTAIN = "MAINTAIN"


LETTERS: dict[Privilege, str] = {
    Privilege.INSERT: "a",
    Privilege.SELECT: "r",
    Privilege.UPDATE: "w",
    Privilege.DELETE: "d",
    Privilege.TRUNCATE: "D",
    Privilege.REFERENCES: "x",
    Privilege.TRIGGER: "t",
    Privilege.USAGE: "U",
    Privilege.CREATE: "C",
    Privilege.MAINTAIN: "m",
}
"""The letters of PostgreSQL's aclitem (acl.h)."""

COLUMN_PRIVILEGES = frozenset((Privilege.INSERT, Privilege.SELECT, Privilege.UPDATE, Privilege.REFERENCES))
"""The privileges that can be granted on a column."""


@dataclass(frozen=True, slots=True)
class Role:
    """`inherit`: the option INHERIT of later memberships of the role, unless their GRANT specifies it.

    `create_role`: the role may create roles, and alter and drop those on which it has ADMIN OPTION.
    `verifier`: the SCRAM verifier of the password in PostgreSQL's form; None without a password. `valid_until`: when
    the password expires, in microseconds since 1970; None: never. `connection_limit`: -1 is no limit.
    """

    id: ObjectId
    name: str
    superuser: bool = False
    inherit: bool = True
    login: bool = False
    create_db: bool = False
    create_role: bool = False
    verifier: str | None = field(default=None, repr=False)
    valid_until: int | None = None
    connection_limit: int = -1


class MembershipKey(NamedTuple):
    """`member` is a member of `role` by a grant of `grantor`."""

    role: ObjectId
    member: ObjectId
    grantor: ObjectId


@dataclass(frozen=True, slots=True)
class Membership:
    """The options of a membership.

    `admin`: the member may grant the role. `inherit`: it has the privileges of the role. `may_set`: it may SET ROLE.
    """

    admin: bool = False
    inherit: bool = True
    may_set: bool = True


class Through(Enum):
    """The memberships that `CatalogState.roles_of` follows."""

    ALL = "all"
    INHERIT = "inherit"
    SET = "set"

    def follows(self, membership: Membership) -> bool:
        match self:
            case Through.INHERIT:
                return membership.inherit
            case Through.SET:
                return membership.may_set
        return True


MATERIALIZE = Role(ObjectId("s1000"), "materialize", superuser=True, login=True, create_db=True, create_role=True)
"""The superuser that always exists, without a password. It owns all objects without another owner."""
PUBLIC = ObjectId("p")
"""The grantee PUBLIC: all roles."""


class DefaultAclKey(NamedTuple):
    """The objects to which an entry of ALTER DEFAULT PRIVILEGES applies.

    These are the objects that `role` creates in a database, or only in a schema. `kind`: pg_default_acl.defaclobjtype.
    """

    role: ObjectId
    database: ObjectId
    schema: ObjectId | None
    kind: str
