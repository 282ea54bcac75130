"""SHOW."""

from __future__ import annotations

from server.sql.grammar.lexer import Kind
from server.sql.grammar.rules.objects import parse_in_cluster, parse_object_kind
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

_SUBSOURCES_HINT = "SHOW SOURCES lists subsources. mz_sources.source_id is the source of each subsource and table."
_IN_CLUSTERS = (ShowKind.SOURCES, ShowKind.SINKS, ShowKind.INDEXES, ShowKind.MATERIALIZED_VIEWS)


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
    tokens.reject("SHOW SUBSOURCES", "subsources", hint=_SUBSOURCES_HINT)
    for shown in ShowKind:
        if tokens.take(*shown.value.split()):
            on = tokens.name() if shown is ShowKind.INDEXES and tokens.take("on") else None
            if shown in (ShowKind.ROLES, ShowKind.PRIVILEGES, ShowKind.SUBSCRIPTIONS) and tokens.at("from", "in"):
                raise tokens.syntax_error()
            if shown is ShowKind.SUBSCRIPTIONS and tokens.at("like"):  # they have no names
                raise tokens.syntax_error()
            if shown in (ShowKind.TABLES, ShowKind.SOURCES):
                tokens.reject(f"SHOW {shown.value.upper()} ON", "on", hint=_SUBSOURCES_HINT)
            schema = None
            if tokens.at("from", "in") and not _at_cluster(tokens):
                tokens.choose("from", "in")
                schema = tokens.name(2)
            if shown in _IN_CLUSTERS and _at_cluster(tokens):
                parse_in_cluster(tokens)
            like = _parse_like(tokens)
            return ShowObjects(*tokens.text_from(start), shown, schema, on, like)
    variable = parse_shown_name(tokens)
    return ShowVariable(*tokens.text_from(start), variable)


def _at_cluster(tokens: TokenReader) -> bool:
    """Whether the tokens are IN CLUSTER and a name. IN cluster alone names a schema."""
    after = tokens.ahead(2)
    return tokens.at_all("in", "cluster") and after.kind in (Kind.WORD, Kind.IDENT) and after.value != "like"


def _parse_like(tokens: TokenReader) -> str | None:
    tokens.reject("SHOW ... WHERE", "where", hint="Query the tables of mz_catalog.")
    return tokens.string() if tokens.take("like") else None
