"""Changes of access control lists by GRANT, REVOKE and ALTER DEFAULT PRIVILEGES (aclchk.c)."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.acls import (
    ITEMS_MAX,
    NONE,
    Acl,
    AclItem,
    AclTooLong,
    CircularGrant,
    DependentPrivileges,
    Privileges,
    with_items,
    without_items,
)
from catalog.ids import ObjectId
from catalog.roles import PUBLIC, Privilege
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.execution.ddl.named_roles import role_named
from server.session_state.context import Context
from server.sql.grammar.statements.parts import Ident
from server.sql.grammar.statements.roles import AlterDefaultPrivileges, GrantPrivileges, SpecialRole

_UNSUPPORTED = ("temporary", "temp", "execute", "connect", "set", "alter")
"""PostgreSQL's privileges that Tidewire does not support."""


@dataclass(frozen=True, slots=True)
class AclChange:
    """What a statement does to each list. `is_all`: it says ALL, and warns only if it can change no privilege."""

    grantees: tuple[ObjectId, ...]
    revoke: bool
    grant_option: bool
    cascade: bool
    is_all: bool

    def applied(
        self, state: CatalogState, acl: Acl, privileges: Privileges, grantor: ObjectId, owner: ObjectId, what: str
    ) -> Acl:
        """The list after the change by `grantor`. `what`: the object, for messages. PgError 0LP01, 2BP01, 54000."""
        if self.grant_option and not self.revoke and PUBLIC in self.grantees:
            raise PgError(SqlState.INVALID_GRANT_OPERATION, "grant options can only be granted to roles")
        granted = NONE if self.revoke and self.grant_option else privileges
        options = privileges if self.revoke or self.grant_option else NONE
        items = [AclItem(grantee, grantor, granted, options) for grantee in self.grantees]
        try:
            if self.revoke:
                return without_items(acl, items, owner, state.has_rights_of, cascade=self.cascade)
            return with_items(acl, items, owner, state.has_rights_of)
        except DependentPrivileges:
            raise dependent_privileges() from None
        except CircularGrant:
            message = "grant options cannot be granted back to your own grantor"
            raise PgError(SqlState.INVALID_GRANT_OPERATION, message) from None
        except AclTooLong:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f"too many privileges for {what}",
                detail=f"There can be {ITEMS_MAX} pairs of a grantee and a grantor.",
                hint="Grant the privileges to one role, and this role to others.",
            ) from None


def acl_change(context: Context, statement: GrantPrivileges | AlterDefaultPrivileges) -> AclChange:
    """What a statement does to each list. PgError 42704."""
    grantees = (
        PUBLIC if name.special is SpecialRole.PUBLIC else role_named(context, name).id for name in statement.grantees
    )
    return AclChange(
        tuple(dict.fromkeys(grantees)),
        statement.revoke,
        statement.grant_option,
        statement.cascade,
        statement.privileges is None,
    )


def dependent_privileges() -> PgError:
    """The error for a REVOKE without CASCADE of an option that the role has used."""
    return PgError(
        SqlState.DEPENDENT_OBJECTS_STILL_EXIST,
        "dependent privileges exist",
        hint="Use CASCADE to revoke them too.",
    )


def named_privilege(ident: Ident, synonyms: dict[str, Privilege]) -> Privilege:
    """The privilege of this name. PgError 42601 for an unknown one, 0A000 for an unsupported one."""
    known = {privilege.value.lower(): privilege for privilege in Privilege} | synonyms
    privilege = known.get(ident.name)
    if privilege is not None:
        return privilege
    if ident.name not in _UNSUPPORTED:
        raise PgError(SqlState.SYNTAX_ERROR, f'unrecognized privilege type "{ident.name}"')
    message = f"privilege {ident.name.upper()} is not supported"
    hint = "Omit it: nothing needs it here."
    raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint, position=ident.position)


def is_unsupported(name: str) -> bool:
    """Whether PostgreSQL has a privilege of this name, and Tidewire does not."""
    return name in _UNSUPPORTED
