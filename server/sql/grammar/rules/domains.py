"""CREATE DOMAIN and ALTER DOMAIN."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.rules.checks import parse_check
from server.sql.grammar.rules.collations import parse_collation_of
from server.sql.grammar.statements.checks import CheckConstraint
from server.sql.grammar.statements.domains import (
    ConstrainDomain,
    CreateDomain,
    DropDomainConstraint,
    RenameDomainConstraint,
    SetDomainDefault,
)
from server.sql.grammar.statements.parts import Expr, Ident, Name
from server.sql.grammar.token_reader import TokenReader

AlterDomain = SetDomainDefault | ConstrainDomain | DropDomainConstraint | RenameDomainConstraint


def parse_create_domain(tokens: TokenReader, start: int) -> CreateDomain:
    name = tokens.name()
    tokens.take("as")
    base = tokens.type(user_defined=True)
    not_null: bool | None = None
    default: Expr | None = None
    checks: list[CheckConstraint] = []
    collation: Name | None = None
    while not tokens.at_statement_end:
        token = tokens.token
        constraint = tokens.ident() if tokens.take("constraint") else None
        if tokens.take("default"):
            if default is not None:
                raise PgError(SqlState.SYNTAX_ERROR, "multiple default expressions", position=token.start + 1)
            default = tokens.expression("not", "null", "check", "constraint", "collate", "default")
        elif tokens.at("not", "null"):
            wanted = tokens.take("not")
            tokens.expect("null")
            if not_null is not None and not_null != wanted:
                message = "conflicting NULL/NOT NULL constraints"
                raise PgError(SqlState.SYNTAX_ERROR, message, position=token.start + 1)
            not_null = wanted
        elif tokens.at("check"):
            checks.append(parse_check(tokens, constraint))
        elif tokens.at("collate"):
            collation = parse_collation_of(tokens, base, collation)
        elif tokens.at("unique", "primary", "references", "exclude"):
            message = f"{'primary key' if tokens.at('primary') else tokens.word} constraints not possible for domains"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=token.start + 1)
        else:
            raise tokens.syntax_error()
    return CreateDomain(*tokens.text_from(start), name, base, bool(not_null), default, tuple(checks))


def parse_alter_domain(tokens: TokenReader, start: int, name: Name) -> AlterDomain | None:
    """An action of ALTER DOMAIN; None: another one follows."""
    if tokens.take("set", "default"):
        default = tokens.expression()
        return SetDomainDefault(*tokens.text_from(start), name, default)
    if tokens.take("drop", "default"):
        return SetDomainDefault(*tokens.text_from(start), name, None)
    if tokens.take("set", "not", "null"):
        return ConstrainDomain(*tokens.text_from(start), name)
    if tokens.take("drop", "not", "null"):
        return DropDomainConstraint(*tokens.text_from(start), name, None)
    if tokens.take("add"):
        constraint: Ident | None = tokens.ident() if tokens.take("constraint") else None
        check = parse_check(tokens, constraint)
        return ConstrainDomain(*tokens.text_from(start), name, check)
    if tokens.take("validate", "constraint"):
        validated = tokens.ident()
        return ConstrainDomain(*tokens.text_from(start), name, None, validated)
    if tokens.take("drop", "constraint"):
        missing_ok = tokens.if_exists()
        dropped = tokens.ident()
        tokens.drop_behavior()
        return DropDomainConstraint(*tokens.text_from(start), name, dropped, missing_ok)
    if tokens.take("rename", "constraint"):
        old = tokens.ident()
        tokens.expect("to")
        return RenameDomainConstraint(*tokens.text_from(start), name, old, tokens.ident())
    return None
