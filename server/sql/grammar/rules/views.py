"""CREATE of views, materialized views and indexes."""

from __future__ import annotations

from catalog.objects import QUICKSTART
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.rules.keys import parse_nulls_not_distinct
from server.sql.grammar.rules.retention import parse_retain_option
from server.sql.grammar.statements.parts import Expr
from server.sql.grammar.statements.views import CreateIndex, CreateMaterializedView, CreateView
from server.sql.grammar.token_reader import TokenReader


def parse_create_view(tokens: TokenReader, start: int, or_replace: bool, temporary: bool = False) -> CreateView:
    exists = tokens.if_not_exists()
    name = tokens.name()
    columns = tokens.column_list()
    tokens.reject("CREATE VIEW with options", "with")
    tokens.expect("as")
    query = tokens.query("with")
    tokens.reject("WITH CHECK OPTION", "with")
    return CreateView(*tokens.text_from(start), name, columns, query, or_replace, exists, temporary)


def parse_create_materialized_view(tokens: TokenReader, start: int, or_replace: bool) -> CreateMaterializedView:
    exists = tokens.if_not_exists()
    name = tokens.name()
    columns = tokens.column_list()
    _parse_in_cluster(tokens)
    retain = parse_retain_option(tokens, "CREATE MATERIALIZED VIEW with options")
    tokens.reject("CREATE MATERIALIZED VIEW with options", "using", "tablespace")
    tokens.expect("as")
    query = tokens.query("with")
    if tokens.take("with") and not tokens.take("data"):
        raise tokens.not_supported("WITH NO DATA")
    return CreateMaterializedView(*tokens.text_from(start), name, columns, query, or_replace, exists, retain)


def _parse_in_cluster(tokens: TokenReader) -> None:
    """Materialize's IN CLUSTER name. There is one cluster; 42704 for any other name."""
    if tokens.take("in"):
        if not tokens.take("cluster"):
            raise tokens.expected("CLUSTER")
        cluster = tokens.ident()
        if cluster.name != QUICKSTART.name:
            raise PgError(
                SqlState.UNDEFINED_OBJECT,
                f'unknown cluster "{cluster.name}"',
                hint=f"There is one cluster, {QUICKSTART.name}.",
                position=cluster.position,
            )


def parse_create_index(tokens: TokenReader, start: int) -> CreateIndex:
    default, unique = tokens.take("default"), tokens.take("unique")
    tokens.expect("index")
    tokens.reject("CREATE INDEX CONCURRENTLY", "concurrently")
    exists = tokens.if_not_exists()
    name = None if tokens.at("on", "in") else tokens.ident()
    _parse_in_cluster(tokens)
    tokens.expect("on")
    tokens.take("only")
    relation = tokens.name()
    if tokens.take("using"):
        tokens.ident()  # the access method has no effect: every index is an arrangement
    keys = () if default else tokens.in_parentheses(lambda: _parse_index_key(tokens))
    nulls_not_distinct = unique and parse_nulls_not_distinct(tokens)
    retain = parse_retain_option(tokens, "CREATE INDEX ... WITH")
    if not tokens.at_statement_end and tokens.at("include", "where", "tablespace", "nulls"):
        raise tokens.not_supported(f"CREATE INDEX ... {tokens.token.value.upper()}")
    return CreateIndex(*tokens.text_from(start), name, relation, keys, exists, retain, unique, nulls_not_distinct)


_OPERATOR_CLASSES = ("text_ops", "text_pattern_ops", "varchar_pattern_ops", "bpchar_pattern_ops")


def _parse_index_key(tokens: TokenReader) -> Expr:
    key = tokens.expression(",", "asc", "desc", "nulls", *_OPERATOR_CLASSES)
    if tokens.at(*_OPERATOR_CLASSES):
        tokens.advance()  # an index finds rows by equal keys, for which these classes do not differ
    hint = "Omit the order: an index finds rows by equal keys."
    tokens.reject("an index with an order", "asc", "desc", "nulls", hint=hint)
    return key
