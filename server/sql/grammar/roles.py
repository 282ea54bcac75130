"""The grammar of roles and privileges, a subset of PostgreSQL's gram.y.

Role attributes that Tidewire lacks are rejected by name. Their negated form (NOREPLICATION) is accepted.
"""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind, words
from server.sql.grammar.reader import Reader
from server.sql.grammar.statements import (
    AlterRole,
    CreateRole,
    DropOwned,
    DropRoles,
    GrantKind,
    GrantPrivileges,
    GrantRoles,
    Ident,
    Name,
    ReassignOwned,
    RenameRole,
    RoleAttributes,
    RoleName,
    SetRole,
    SpecialRole,
)

_ATTRIBUTES = {"superuser": "superuser", "inherit": "inherit", "login": "login", "createdb": "create_db"}
_LACKING = {
    "createrole": "Superusers manage roles.",
    "replication": "SUBSCRIBE tells a client of every change.",
    "bypassrls": "There is no row security.",
}
_PASSWORDS = "There are no passwords yet: restrict who can reach the port."
_OTHER_OBJECTS = words(
    """all connection domain foreign function language large parameter procedure routine secret sequence system
    tablespace type"""
)
_RESERVED_PREFIXES = ("pg_", "mz_")


def _reserved(name: str, position: int, detail: str | None = None) -> PgError:
    return PgError(SqlState.RESERVED_NAME, f'role name "{name}" is reserved', detail=detail, position=position)


class RoleGrammar(Reader):
    """One method per statement. The caller has already read the verbs CREATE, DROP, ALTER and SET."""

    # -- names ------------------------------------------------------------------------------------------------------

    def role(self) -> RoleName:
        """A role, by name or keyword (RoleSpec in gram.y)."""
        token = self.token
        position = token.start + 1
        for spellings, special in (
            (("current_user", "current_role"), SpecialRole.CURRENT_USER),
            (("session_user",), SpecialRole.SESSION_USER),
        ):
            if self.at(*spellings):
                self.advance()
                return RoleName(special.value, position, special)
        name = self.ident().name
        if name == "none" and token.kind is Kind.WORD:
            raise _reserved(name, position)
        if name == "public":
            return RoleName(name, position, SpecialRole.PUBLIC)
        return RoleName(name, position)

    def roles(self) -> tuple[RoleName, ...]:
        return self.comma_list(self.role)

    def new_role_name(self) -> RoleName:
        role = self.role()
        if role.special is SpecialRole.PUBLIC:
            raise _reserved(role.name, role.position)
        if role.special is not None:
            message = f"{role.name.upper()} cannot be used as a role name here"
            raise PgError(SqlState.RESERVED_NAME, message, position=role.position)
        for prefix in _RESERVED_PREFIXES:
            if role.name.startswith(prefix):
                raise _reserved(role.name, role.position, f'Role names starting with "{prefix}" are reserved.')
        return role

    # -- roles ------------------------------------------------------------------------------------------------------

    def create_role(self, start: int) -> CreateRole:
        is_user = self.choose("role", "user") == "user"
        self.refuse_at("CREATE USER MAPPING", "mapping")
        exists = self.if_not_exists()
        name = self.new_role_name()
        groups: tuple[RoleName, ...] = ()
        members: tuple[RoleName, ...] = ()
        self.take("with")
        given: dict[str, bool] = {"login": True} if is_user else {}
        said: set[str] = set()
        while not self.ended:
            if self.take("in", "role") or self.take("in", "group"):
                groups += self.roles()
            elif self.take("role") or self.take("user"):
                members += self.roles()
            else:
                self.role_attribute(given, said)
        return CreateRole(*self.located(start), name, RoleAttributes(**given), groups, members, exists)

    def role_attribute(self, given: dict[str, bool], said: set[str]) -> None:
        """Parses one attribute into `given`. 42601 if it was already specified (`said`)."""
        token = self.token
        word = self.word
        self.refuse_at("ADMIN", "admin", hint="Superusers grant roles.")
        if self.take("encrypted") or self.at("password"):
            self.expect("password")
            if not self.take("null"):
                raise self.refused("a role with PASSWORD", _PASSWORDS, at=token)
            return
        self.refuse_at("VALID UNTIL", "valid", hint=_PASSWORDS)
        if self.take("connection"):
            self.expect("limit")
            if not (self.take("-") and self.integer() == "1"):
                raise self.refused("CONNECTION LIMIT", at=token)
            return
        negated = word not in _ATTRIBUTES and word not in _LACKING and word.startswith("no")
        name = word.removeprefix("no") if negated else word
        value = not negated
        if name in _LACKING:
            if value:
                raise self.refused(f"a role with {name.upper()}", _LACKING[name])
        elif name in _ATTRIBUTES:
            given[_ATTRIBUTES[name]] = value
        else:
            raise (
                PgError(SqlState.SYNTAX_ERROR, f'unrecognized role option "{token.value}"', position=token.start + 1)
                if token.kind is Kind.WORD
                else self.fault()
            )
        if name in said:
            raise PgError(SqlState.SYNTAX_ERROR, "conflicting or redundant options", position=token.start + 1)
        said.add(name)
        self.advance()

    def alter_role(self, start: int) -> AlterRole | RenameRole:
        self.choose("role", "user")
        self.refuse_at("ALTER ROLE ALL", "all")
        self.refuse_at("ALTER USER MAPPING", "mapping")
        name = self.role()
        if self.take("rename", "to"):
            new_name = self.new_role_name()
            return RenameRole(*self.located(start), name, new_name)
        hint = "ALTER SYSTEM SET gives every new session a default."
        self.refuse_at("ALTER ROLE ... SET", "set", "reset", "in", hint=hint)
        self.take("with")
        given: dict[str, bool] = {}
        said: set[str] = set()
        while not self.ended:
            self.role_attribute(given, said)
        return AlterRole(*self.located(start), name, RoleAttributes(**given))

    def drop_roles(self, start: int) -> DropRoles:
        self.choose("role", "user")
        self.refuse_at("DROP USER MAPPING", "mapping")
        exists = self.if_exists()
        names = self.roles()
        for name in names:
            if name.special is not None:
                message = "cannot use special role specifier in DROP ROLE"
                raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, position=name.position)
        return DropRoles(*self.located(start), names, exists)

    def drop_owned(self, start: int) -> DropOwned:
        self.expect("by")
        roles = self.roles()
        cascade = self.drop_behavior()
        return DropOwned(*self.located(start), roles, cascade)

    def reassign_owned(self) -> ReassignOwned:
        start = self.index
        self.expect("reassign", "owned", "by")
        roles = self.roles()
        self.expect("to")
        owner = self.role()
        return ReassignOwned(*self.located(start), roles, owner)

    def set_role(self, start: int, local: bool) -> SetRole:
        _ = self.take("=") or self.take("to")
        if self.take("none") or self.take("default"):
            name = None
        elif self.token.kind is Kind.STRING:
            name = self.string()
        else:
            name = self.ident().name
        return SetRole(*self.located(start), None if name == "none" else name, local)

    # -- privileges -------------------------------------------------------------------------------------------------

    def grant(self) -> GrantPrivileges | GrantRoles:
        start = self.index
        self.expect("grant")
        return self.granted(start, "to")

    def revoke(self) -> GrantPrivileges | GrantRoles:
        start = self.index
        self.expect("revoke")
        if self.at("grant", "admin", "inherit", "set") and self.ahead().value == "option":
            raise self.refused(f"REVOKE {self.word.upper()} OPTION FOR", "Owners grant privileges, superusers roles.")
        return self.granted(start, "from")

    def granted(self, start: int, preposition: str) -> GrantPrivileges | GrantRoles:
        """The part of GRANT and REVOKE after the verb: privileges ON objects, or roles; then TO or FROM roles."""
        revoke = preposition == "from"
        privileges: tuple[Ident, ...] | None = None
        is_all = self.take("all")
        if is_all:
            self.take("privileges")
        else:
            privileges = self.comma_list(self.privilege)
        self.refuse_at("a privilege on columns", "(", hint="Grant it on the table, or on a view of the columns.")
        if not is_all and self.take(preposition):
            assert privileges is not None
            roles = tuple(RoleName(p.name, p.position) for p in privileges)
            members = self.roles()
            self.refuse_options()
            if revoke:
                self.drop_behavior()
            return GrantRoles(*self.located(start), roles, members, revoke)
        self.expect("on")
        kind, objects = self.granted_objects()
        self.expect(preposition)
        grantees = self.roles()
        self.refuse_options()
        if revoke:
            self.drop_behavior()  # it has no effect: without grant options, nothing depends on a privilege
        return GrantPrivileges(*self.located(start), privileges, kind, objects, grantees, revoke)

    def privilege(self) -> Ident:
        """The name of a privilege or of a role. The tokens after the list decide which of the two it is."""
        return self.ident(refused=frozenset())

    def refuse_options(self) -> None:
        self.refuse_at("GRANT ... WITH OPTION", "with", hint="Owners grant privileges, superusers roles.")
        self.refuse_at("GRANTED BY", "granted")

    def granted_objects(self) -> tuple[GrantKind, tuple[Name, ...]]:
        if self.take("all", "tables", "in", "schema"):
            return GrantKind.TABLES_IN_SCHEMA, self.comma_list(lambda: self.name(2))
        follows_name = self.ahead().kind in (Kind.WORD, Kind.IDENT) and self.ahead().value not in ("to", "from")
        if follows_name and self.at(*_OTHER_OBJECTS):
            raise self.refused(f"GRANT ON {self.word.upper()}")
        if self.take("schema"):
            return GrantKind.SCHEMA, self.comma_list(lambda: self.name(2))
        if self.take("database"):
            return GrantKind.DATABASE, self.comma_list(lambda: self.name(1))
        if follows_name and self.take("cluster"):
            return GrantKind.CLUSTER, self.comma_list(lambda: self.name(1))
        self.take("table")
        return GrantKind.TABLE, self.comma_list(self.name)
