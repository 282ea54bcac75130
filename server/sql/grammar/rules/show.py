"""SHOW."""

from __future__ import annotations

from server.sql.grammar.rules.objects import parse_object_kind
from server.sql.grammar.rules.settings import parse_shown_name
from server.sql.grammar.statements.show import (
    ShowColumns,
    ShowCreate,
    ShowKind,
    ShowObjects,
    ShowStatement,
    ShowVariable,
)
from server.sql.grammar.token_reader import TokenReader


def parse_show(tokens: TokenReader) -> ShowStatement:
    start = tokens.index
    tokens.expect("show")
    if tokens.take("create"):
        kind = parse_object_kind(tokens, "SHOW CREATE")
        name = tokens.name()
        return ShowCreate(*tokens.text_from(start), kind, name)
    if tokens.take("columns"):
        tokens.choose("from", "in")
        relation = tokens.name()
        like = _parse_like(tokens)
        return ShowColumns(*tokens.text_from(start), relation, like)
    for shown in ShowKind:
        if tokens.take(*shown.value.split()):
            on = tokens.name() if shown is ShowKind.INDEXES and tokens.take("on") else None
            if shown in (ShowKind.ROLES, ShowKind.PRIVILEGES, ShowKind.SUBSCRIPTIONS) and tokens.at("from", "in"):
                raise tokens.syntax_error()
            if shown is ShowKind.SUBSCRIPTIONS and tokens.at("like"):  # they have no names
                raise tokens.syntax_error()
            schema = tokens.name(2) if tokens.at("from", "in") and tokens.choose("from", "in") else None
            like = _parse_like(tokens)
            return ShowObjects(*tokens.text_from(start), shown, schema, on, like)
    variable = parse_shown_name(tokens)
    return ShowVariable(*tokens.text_from(start), variable)


def _parse_like(tokens: TokenReader) -> str | None:
    tokens.reject("SHOW ... WHERE", "where", hint="Query the tables of mz_catalog.")
    return tokens.string() if tokens.take("like") else None
