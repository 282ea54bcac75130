"""Roles and privileges."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from server.sql.grammar.statements.parts import Definition, Ident, Name, Parsed


class SpecialRole(StrEnum):
    """Keywords that denote a role. CURRENT_ROLE is parsed as CURRENT_USER."""

    CURRENT_USER = "current_user"
    SESSION_USER = "session_user"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class RoleName:
    """A role, given by its name or by a keyword (`special`)."""

    name: str
    position: int
    special: SpecialRole | None = None


@dataclass(frozen=True, slots=True)
class Password:
    """PASSWORD 'text', or PASSWORD NULL, which removes the password. The text is a password or a SCRAM verifier."""

    text: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class RoleAttributes:
    """The attributes in CREATE ROLE and ALTER ROLE. None: not specified. `valid_until` is the text of a timestamp."""

    superuser: bool | None = None
    inherit: bool | None = None
    login: bool | None = None
    create_db: bool | None = None
    create_role: bool | None = None
    password: Password | None = None
    valid_until: str | None = None
    connection_limit: int | None = None


class GrantKind(StrEnum):
    """The kinds of object in GRANT ON and REVOKE ON. TABLE includes every kind of relation."""

    TABLE = "table"
    TABLES_IN_SCHEMA = "all tables in schema"
    SEQUENCE = "sequence"
    SEQUENCES_IN_SCHEMA = "all sequences in schema"
    SCHEMA = "schema"
    DATABASE = "database"
    CLUSTER = "cluster"
    CONNECTION = "connection"
    SECRET = "secret"
    TYPE = "type"
    DOMAIN = "domain"


class DefaultKind(StrEnum):
    """The kinds of object in ALTER DEFAULT PRIVILEGES. TABLES includes every kind of relation except sequences."""

    TABLES = "tables"
    SEQUENCES = "sequences"
    TYPES = "types"
    SCHEMAS = "schemas"


@dataclass(frozen=True, slots=True)
class MembershipOptions:
    """WITH ADMIN, INHERIT and SET of GRANT role; None: not specified. In REVOKE, the option that is revoked is true."""

    admin: bool | None = None
    inherit: bool | None = None
    may_set: bool | None = None


@dataclass(frozen=True, slots=True)
class CreateRole(Definition):
    """CREATE ROLE, or CREATE USER, which implies LOGIN. `groups`: IN ROLE; `members`: ROLE; `admins`: ADMIN."""

    tag = "CREATE ROLE"

    name: RoleName
    attributes: RoleAttributes
    groups: tuple[RoleName, ...]
    members: tuple[RoleName, ...]
    admins: tuple[RoleName, ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class AlterRole(Definition):
    tag = "ALTER ROLE"

    name: RoleName
    attributes: RoleAttributes


@dataclass(frozen=True, slots=True)
class RenameRole(Definition):
    tag = "ALTER ROLE"

    name: RoleName
    new_name: RoleName


@dataclass(frozen=True, slots=True)
class DropRoles(Definition):
    tag = "DROP ROLE"

    names: tuple[RoleName, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class GrantRoles(Definition):
    """GRANT roles TO members, or with `revoke` REVOKE [option OPTION FOR] roles FROM members."""

    roles: tuple[RoleName, ...]
    members: tuple[RoleName, ...]
    revoke: bool
    options: MembershipOptions
    granted_by: RoleName | None
    cascade: bool

    @property
    def tag(self) -> str:
        return "REVOKE ROLE" if self.revoke else "GRANT ROLE"


@dataclass(frozen=True, slots=True)
class GrantPrivileges(Definition):
    """GRANT privileges ON objects TO grantees, or with `revoke` REVOKE ... FROM. `privileges` None: ALL.

    `columns`: the privileges on columns, None for ALL, each with its columns. They are not among `privileges`.
    `grant_option`: WITH GRANT OPTION, or REVOKE GRANT OPTION FOR.
    """

    privileges: tuple[Ident, ...] | None
    columns: tuple[tuple[Ident | None, tuple[Ident, ...]], ...]
    kind: GrantKind
    objects: tuple[Name, ...]
    grantees: tuple[RoleName, ...]
    revoke: bool
    grant_option: bool
    granted_by: RoleName | None
    cascade: bool

    @property
    def tag(self) -> str:
        return "REVOKE" if self.revoke else "GRANT"


@dataclass(frozen=True, slots=True)
class AlterDefaultPrivileges(Definition):
    """ALTER DEFAULT PRIVILEGES. `roles` empty: the current role; `schemas` empty: all; `privileges` None: ALL."""

    tag = "ALTER DEFAULT PRIVILEGES"

    roles: tuple[RoleName, ...]
    schemas: tuple[Name, ...]
    privileges: tuple[Ident, ...] | None
    kind: DefaultKind
    grantees: tuple[RoleName, ...]
    revoke: bool
    grant_option: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class ReassignOwned(Definition):
    """REASSIGN OWNED BY roles TO owner."""

    tag = "REASSIGN OWNED"

    roles: tuple[RoleName, ...]
    owner: RoleName


@dataclass(frozen=True, slots=True)
class DropOwned(Definition):
    """DROP OWNED BY roles."""

    tag = "DROP OWNED"

    roles: tuple[RoleName, ...]
    cascade: bool


@dataclass(frozen=True, slots=True)
class SetRole(Parsed):
    """SET [LOCAL] ROLE name, or with `session` SET [LOCAL] SESSION AUTHORIZATION name. `name` None: NONE or DEFAULT."""

    name: str | None
    local: bool
    session: bool
