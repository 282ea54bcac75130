"""The grammar of roles and privileges, a subset of PostgreSQL's gram.y.

Role attributes that Tidewire lacks are rejected by name. Their negated form (NOREPLICATION) is accepted.
"""

from __future__ import annotations

from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind, Token, words
from server.sql.grammar.statements.parts import Ident, Name
from server.sql.grammar.statements.roles import (
    AlterDefaultPrivileges,
    AlterRole,
    CreateRole,
    DefaultKind,
    DropOwned,
    DropRoles,
    GrantKind,
    GrantPrivileges,
    GrantRoles,
    MembershipOptions,
    Password,
    ReassignOwned,
    RenameRole,
    RoleAttributes,
    RoleName,
    SetRole,
    SpecialRole,
)
from server.sql.grammar.token_reader import TokenReader

_ATTRIBUTES = {
    "superuser": "superuser",
    "inherit": "inherit",
    "login": "login",
    "createdb": "create_db",
    "createrole": "create_role",
}
_UNSUPPORTED_ATTRIBUTES = {
    "replication": "Use SUBSCRIBE to receive changes.",
    "bypassrls": "There is no row security.",
}
_UNSUPPORTED_OBJECTS = words("""all foreign function language large parameter procedure routine system tablespace""")
_NO_PRIVILEGES = (
    "Omit it. Relations, columns, sequences, types, schemas, databases, connections and secrets have privileges."
)
_NO_MAPPING = "CREATE SECRET and CREATE CONNECTION have the passwords of other servers."
_NO_FUNCTIONS = "Omit it: there are no functions of users."
_MEMBERSHIP_OPTIONS = {"admin": "admin", "inherit": "inherit", "set": "may_set"}
_RESERVED_PREFIXES = ("pg_", "mz_")


def _reserved_name(name: str, position: int, detail: str | None = None) -> PgError:
    return PgError(SqlState.RESERVED_NAME, f'role name "{name}" is reserved', detail=detail, position=position)


def parse_role(tokens: TokenReader) -> RoleName:
    """A role, by name or keyword (RoleSpec in gram.y)."""
    token = tokens.token
    position = token.start + 1
    for spellings, special in (
        (("current_user", "current_role"), SpecialRole.CURRENT_USER),
        (("session_user",), SpecialRole.SESSION_USER),
    ):
        if tokens.at(*spellings):
            tokens.advance()
            return RoleName(special.value, position, special)
    name = tokens.ident().name
    if name == "none" and token.kind is Kind.WORD:
        raise _reserved_name(name, position)
    if name == "public":
        return RoleName(name, position, SpecialRole.PUBLIC)
    return RoleName(name, position)


def _parse_roles(tokens: TokenReader) -> tuple[RoleName, ...]:
    return tokens.comma_list(lambda: parse_role(tokens))


def _parse_new_role_name(tokens: TokenReader) -> RoleName:
    role = parse_role(tokens)
    if role.special is SpecialRole.PUBLIC:
        raise _reserved_name(role.name, role.position)
    if role.special is not None:
        message = f"{role.name.upper()} cannot be used as a role name here"
        raise PgError(SqlState.RESERVED_NAME, message, position=role.position)
    for prefix in _RESERVED_PREFIXES:
        if role.name.startswith(prefix):
            raise _reserved_name(role.name, role.position, f'Role names starting with "{prefix}" are reserved.')
    return role


def parse_create_role(tokens: TokenReader, start: int) -> CreateRole:
    is_user = tokens.choose("role", "user") == "user"
    tokens.reject("CREATE USER MAPPING", "mapping", hint=_NO_MAPPING)
    exists = tokens.if_not_exists()
    name = _parse_new_role_name(tokens)
    groups: tuple[RoleName, ...] = ()
    members: tuple[RoleName, ...] = ()
    admins: tuple[RoleName, ...] = ()
    tokens.take("with")
    attributes: dict[str, Any] = {"login": True} if is_user else {}
    specified: set[str] = set()
    while not tokens.at_statement_end:
        if tokens.take("in", "role") or tokens.take("in", "group"):
            groups += _parse_roles(tokens)
        elif tokens.take("role") or tokens.take("user"):
            members += _parse_roles(tokens)
        elif tokens.take("admin"):
            admins += _parse_roles(tokens)
        else:
            _parse_attribute(tokens, attributes, specified)
    return CreateRole(*tokens.text_from(start), name, RoleAttributes(**attributes), groups, members, admins, exists)


def _parse_login(tokens: TokenReader, attributes: dict[str, Any]) -> bool:
    """Parses PASSWORD, VALID UNTIL or CONNECTION LIMIT as the last of `attributes`. False if there is none of them."""
    name: str
    value: Any
    if tokens.at("encrypted", "password"):
        tokens.take("encrypted")
        tokens.expect("password")
        name, value = "password", Password(None if tokens.take("null") else tokens.string())
    elif tokens.take("valid"):
        tokens.expect("until")
        name, value = "valid_until", tokens.string()
    elif tokens.take("connection"):
        tokens.expect("limit")
        position = tokens.token.start + 1
        sign = -1 if tokens.take("-") else 1
        name, value = "connection_limit", sign * tokens.small_integer()
        if value < -1:
            message = f"invalid connection limit: {value}"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, position=position)
    else:
        return False
    attributes.pop(name, None)
    attributes[name] = value
    return True


def _parse_attribute(tokens: TokenReader, attributes: dict[str, Any], specified: set[str]) -> None:
    """Parses one attribute into `attributes`. 42601 if it was already specified (`specified`)."""
    token = tokens.token
    word = tokens.word
    if _parse_login(tokens, attributes):
        name = next(reversed(attributes))
        if name in specified:
            raise PgError(SqlState.SYNTAX_ERROR, "conflicting or redundant options", position=token.start + 1)
        specified.add(name)
        return
    negated = word not in _ATTRIBUTES and word not in _UNSUPPORTED_ATTRIBUTES and word.startswith("no")
    name = word.removeprefix("no") if negated else word
    value = not negated
    if name in _UNSUPPORTED_ATTRIBUTES:
        if value:
            raise tokens.not_supported(f"a role with {name.upper()}", _UNSUPPORTED_ATTRIBUTES[name])
    elif name in _ATTRIBUTES:
        attributes[_ATTRIBUTES[name]] = value
    else:
        raise (
            PgError(SqlState.SYNTAX_ERROR, f'unrecognized role option "{token.value}"', position=token.start + 1)
            if token.kind is Kind.WORD
            else tokens.syntax_error()
        )
    if name in specified:
        raise PgError(SqlState.SYNTAX_ERROR, "conflicting or redundant options", position=token.start + 1)
    specified.add(name)
    tokens.advance()


def parse_alter_role(tokens: TokenReader, start: int) -> AlterRole | RenameRole:
    tokens.choose("role", "user")
    tokens.reject("ALTER ROLE ALL", "all", hint="ALTER SYSTEM SET gives every new session a default.")
    tokens.reject("ALTER USER MAPPING", "mapping", hint=_NO_MAPPING)
    name = parse_role(tokens)
    if tokens.take("rename", "to"):
        new_name = _parse_new_role_name(tokens)
        return RenameRole(*tokens.text_from(start), name, new_name)
    hint = "ALTER SYSTEM SET gives every new session a default."
    tokens.reject("ALTER ROLE ... SET", "set", "reset", "in", hint=hint)
    tokens.take("with")
    attributes: dict[str, Any] = {}
    specified: set[str] = set()
    while not tokens.at_statement_end:
        _parse_attribute(tokens, attributes, specified)
    return AlterRole(*tokens.text_from(start), name, RoleAttributes(**attributes))


def parse_drop_roles(tokens: TokenReader, start: int) -> DropRoles:
    tokens.choose("role", "user")
    tokens.reject("DROP USER MAPPING", "mapping", hint=_NO_MAPPING)
    exists = tokens.if_exists()
    names = _parse_roles(tokens)
    for name in names:
        if name.special is not None:
            message = "cannot use special role specifier in DROP ROLE"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, position=name.position)
    return DropRoles(*tokens.text_from(start), names, exists)


def parse_drop_owned(tokens: TokenReader, start: int) -> DropOwned:
    tokens.expect("by")
    roles = _parse_roles(tokens)
    cascade = tokens.drop_behavior()
    return DropOwned(*tokens.text_from(start), roles, cascade)


def parse_reassign_owned(tokens: TokenReader) -> ReassignOwned:
    start = tokens.index
    tokens.expect("reassign", "owned", "by")
    roles = _parse_roles(tokens)
    tokens.expect("to")
    owner = parse_role(tokens)
    return ReassignOwned(*tokens.text_from(start), roles, owner)


def parse_set_role(tokens: TokenReader, start: int, local: bool) -> SetRole:
    _ = tokens.take("=") or tokens.take("to")
    if tokens.take("none") or tokens.take("default"):
        name = None
    elif tokens.token.kind is Kind.STRING:
        name = tokens.string()
    else:
        name = tokens.ident().name
    return SetRole(*tokens.text_from(start), None if name == "none" else name, local, False)


def parse_set_session_authorization(tokens: TokenReader, start: int, local: bool) -> SetRole:
    if tokens.take("default"):
        name = None
    elif tokens.token.kind is Kind.STRING:
        name = tokens.string()
    else:
        name = tokens.ident().name
    return SetRole(*tokens.text_from(start), name, local, True)


def parse_grant(tokens: TokenReader) -> GrantPrivileges | GrantRoles:
    start = tokens.index
    tokens.expect("grant")
    return _parse_granted(tokens, start, "to", None)


def parse_revoke(tokens: TokenReader) -> GrantPrivileges | GrantRoles:
    start = tokens.index
    tokens.expect("revoke")
    option = None
    if tokens.ahead().value == "option" and tokens.ahead(2).value == "for":
        option = tokens.token
        tokens.advance(3)
    return _parse_granted(tokens, start, "from", option)


def _parse_granted(
    tokens: TokenReader, start: int, preposition: str, option: Token | None
) -> GrantPrivileges | GrantRoles:
    """The part of GRANT and REVOKE after the verb: privileges ON objects, or roles; then TO or FROM roles.

    `option`: the first word of OPTION FOR.
    """
    revoke = preposition == "from"
    privileges, columns = _parse_privileges(tokens)
    if privileges and not columns and tokens.take(preposition):
        roles = tuple(RoleName(p.name, p.position) for p in privileges)
        members = _parse_roles(tokens)
        options = _parse_membership_options(tokens, revoke=revoke, option=option)
        granted_by = _parse_granted_by(tokens)
        cascade = revoke and tokens.drop_behavior()
        return GrantRoles(*tokens.text_from(start), roles, members, revoke, options, granted_by, cascade)
    if option is not None and option.value != "grant":
        raise tokens.syntax_error()
    tokens.expect("on")
    kind, objects = _parse_granted_objects(tokens)
    tokens.expect(preposition)
    grantees = _parse_roles(tokens)
    grant_option = option is not None or (not revoke and tokens.take("with", "grant", "option"))
    granted_by = _parse_granted_by(tokens)
    cascade = revoke and tokens.drop_behavior()
    return GrantPrivileges(
        *tokens.text_from(start),
        privileges,
        columns,
        kind,
        objects,
        grantees,
        revoke,
        grant_option,
        granted_by,
        cascade,
    )


Columns = tuple[tuple[Ident | None, tuple[Ident, ...]], ...]


def _parse_privileges(tokens: TokenReader) -> tuple[tuple[Ident, ...] | None, Columns]:
    """ALL [PRIVILEGES], or a list of privileges or roles. The second result has the privileges on columns."""
    if tokens.take("all"):
        tokens.take("privileges")
        named = _parse_columns(tokens)
        return ((), ((None, named),)) if named else (None, ())
    granted = tokens.comma_list(lambda: (_parse_privilege(tokens), _parse_columns(tokens)))
    privileges = tuple(privilege for privilege, named in granted if not named)
    return privileges, tuple((privilege, named) for privilege, named in granted if named)


def _parse_membership_options(tokens: TokenReader, *, revoke: bool, option: Token | None) -> MembershipOptions:
    """[WITH option { OPTION | TRUE | FALSE }, ...], or the option of OPTION FOR."""
    if option is not None:
        return MembershipOptions(**{_membership_option(option): True})
    options: dict[str, bool] = {}
    if not revoke and tokens.take("with"):
        for name, value in tokens.comma_list(lambda: _parse_membership_option(tokens)):
            options[name] = value
    return MembershipOptions(**options)


def _parse_membership_option(tokens: TokenReader) -> tuple[str, bool]:
    name = tokens.token
    tokens.ident(not_names=frozenset())
    value = tokens.choose("option", "true", "false") != "false"
    return _membership_option(name), value


def _membership_option(token: Token) -> str:
    if token.value not in _MEMBERSHIP_OPTIONS:
        message = f'unrecognized role option "{token.value}"'
        raise PgError(SqlState.SYNTAX_ERROR, message, position=token.start + 1)
    return _MEMBERSHIP_OPTIONS[token.value]


def _parse_granted_by(tokens: TokenReader) -> RoleName | None:
    return parse_role(tokens) if tokens.take("granted", "by") else None


def parse_alter_default_privileges(tokens: TokenReader, start: int) -> AlterDefaultPrivileges:
    tokens.expect("default", "privileges")
    roles: tuple[RoleName, ...] = ()
    schemas: tuple[Name, ...] = ()
    while tokens.at("for", "in"):
        position = tokens.token.start + 1
        is_twice = bool(roles if tokens.at("for") else schemas)
        if tokens.take("for"):
            tokens.choose("role", "user")
            roles = _parse_roles(tokens)
        else:
            tokens.expect("in", "schema")
            schemas = tokens.comma_list(lambda: tokens.name(2))
        if is_twice:
            raise PgError(SqlState.SYNTAX_ERROR, "conflicting or redundant options", position=position)
    revoke = tokens.choose("grant", "revoke") == "revoke"
    grant_option = revoke and tokens.take("grant", "option", "for")
    privileges, columns = _parse_privileges(tokens)
    if columns:
        raise PgError(SqlState.INVALID_GRANT_OPERATION, "default privileges cannot be set for columns")
    tokens.expect("on")
    tokens.reject("ALTER DEFAULT PRIVILEGES ... ON FUNCTIONS", "functions", "routines", hint=_NO_FUNCTIONS)
    kind = DefaultKind(tokens.choose(*DefaultKind))
    tokens.expect("from" if revoke else "to")
    grantees = _parse_roles(tokens)
    grant_option = grant_option or (not revoke and tokens.take("with", "grant", "option"))
    cascade = revoke and tokens.drop_behavior()
    return AlterDefaultPrivileges(
        *tokens.text_from(start), roles, schemas, privileges, kind, grantees, revoke, grant_option, cascade
    )


def _parse_columns(tokens: TokenReader) -> tuple[Ident, ...]:
    """The columns of a privilege in parentheses; none without them."""
    if not tokens.take("("):
        return ()
    columns = tokens.comma_list(tokens.ident)
    tokens.expect(")")
    return columns


def _parse_privilege(tokens: TokenReader) -> Ident:
    """The name of a privilege or of a role. The tokens after the list decide which of the two it is."""
    return tokens.ident(not_names=frozenset())


def _parse_granted_objects(tokens: TokenReader) -> tuple[GrantKind, tuple[Name, ...]]:
    if tokens.take("all", "tables", "in", "schema"):
        return GrantKind.TABLES_IN_SCHEMA, tokens.comma_list(lambda: tokens.name(2))
    if tokens.take("all", "sequences", "in", "schema"):
        return GrantKind.SEQUENCES_IN_SCHEMA, tokens.comma_list(lambda: tokens.name(2))
    follows_name = tokens.ahead().kind in (Kind.WORD, Kind.IDENT) and tokens.ahead().value not in ("to", "from")
    if follows_name and tokens.at(*_UNSUPPORTED_OBJECTS):
        raise tokens.not_supported(f"GRANT ON {tokens.word.upper()}", _NO_PRIVILEGES)
    if tokens.take("schema"):
        return GrantKind.SCHEMA, tokens.comma_list(lambda: tokens.name(2))
    if tokens.take("database"):
        return GrantKind.DATABASE, tokens.comma_list(lambda: tokens.name(1))
    if follows_name and tokens.take("cluster"):
        return GrantKind.CLUSTER, tokens.comma_list(lambda: tokens.name(1))
    for kind in (GrantKind.CONNECTION, GrantKind.SECRET, GrantKind.SEQUENCE, GrantKind.TYPE, GrantKind.DOMAIN):
        if follows_name and tokens.take(kind.value):
            return kind, tokens.comma_list(tokens.name)
    tokens.take("table")
    return GrantKind.TABLE, tokens.comma_list(tokens.name)
