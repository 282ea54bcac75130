"""CREATE of views, materialized views and indexes."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind, quote_identifier, words
from server.sql.grammar.rules.collations import parse_collation
from server.sql.grammar.rules.keys import parse_nulls_not_distinct
from server.sql.grammar.rules.objects import parse_in_cluster, parse_with_data
from server.sql.grammar.rules.retention import STORAGE_HINT, parse_place, parse_retain_option
from server.sql.grammar.statements.parts import Ident, Name, Query
from server.sql.grammar.statements.views import CreateIndex, CreateMaterializedView, CreateView, IndexKey
from server.sql.grammar.token_reader import TokenReader


def parse_create_view(
    tokens: TokenReader, start: int, or_replace: bool, temporary: bool = False, *, recursive: bool = False
) -> CreateView:
    exists = not recursive and tokens.if_not_exists()
    name = tokens.name()
    columns = tokens.column_list()
    if recursive and not columns:
        raise tokens.syntax_error()
    options = tokens.in_parentheses(lambda: _parse_check_option(tokens)) if tokens.take("with") else ()
    tokens.expect("as")
    query = tokens.query("with")
    if recursive:
        query = _recursive(name.parts[-1], columns, query)
        tokens.reject("WITH CHECK OPTION of a recursive view", "with", hint="Omit it: the view is not updatable.")
    if tokens.take("with"):
        kind = tokens.choose("cascaded", "local") if tokens.at("cascaded", "local") else "cascaded"
        tokens.expect("check", "option")
        options = (*options, kind)
    if len(options) > 1:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, 'parameter "check_option" specified more than once')
    check_option = options[0] if options else None
    return CreateView(*tokens.text_from(start), name, columns, query, or_replace, exists, temporary, check_option)


def _recursive(name: str, columns: tuple[Ident, ...], query: Query) -> Query:
    """WITH RECURSIVE name (columns) AS (query) SELECT columns FROM name"""
    names = ",".join(quote_identifier(column.name) for column in columns)
    view = quote_identifier(name)
    head = f"WITH RECURSIVE {view} ({names}) AS ("
    start = max(query.offset - len(head), 0)  # the query keeps its place in the source, for the positions of errors
    source = f"{' ' * start}{head}{query.text}\n) SELECT {names} FROM {view}"
    return Query(TokenReader(source).query().tree, source[start:], start)


def _parse_check_option(tokens: TokenReader) -> str:
    """check_option = {local | cascaded}, the only supported option of views."""
    if not tokens.at("check_option"):
        hint = "The only option is check_option. A view reads with the privileges of its owner."
        raise tokens.not_supported("CREATE VIEW with options", hint)
    tokens.expect("check_option", "=")
    if tokens.token.kind not in (Kind.WORD, Kind.IDENT, Kind.STRING):
        raise tokens.syntax_error()
    value = tokens.token.value
    tokens.advance()
    if value.lower() not in ("local", "cascaded"):
        message = f'invalid value for enum option "check_option": {value}'
        detail = 'Valid values are "local" and "cascaded".'
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, detail=detail)
    return value.lower()


def parse_create_materialized_view(tokens: TokenReader, start: int, or_replace: bool) -> CreateMaterializedView:
    exists = tokens.if_not_exists()
    name = tokens.name()
    columns = tokens.column_list()
    parse_in_cluster(tokens)
    retain = parse_retain_option(tokens, "CREATE MATERIALIZED VIEW with options")
    tokens.reject("CREATE MATERIALIZED VIEW with options", "using", "tablespace", hint=STORAGE_HINT)
    tokens.expect("as")
    query = tokens.query("with")
    with_data = parse_with_data(tokens)
    text, offset = tokens.text_from(start)
    return CreateMaterializedView(text, offset, name, columns, query, or_replace, exists, retain, with_data)


def parse_create_index(tokens: TokenReader, start: int) -> CreateIndex:
    default, unique = tokens.take("default"), tokens.take("unique")
    tokens.expect("index")
    concurrently = tokens.take("concurrently")
    exists = tokens.if_not_exists()
    name = None if tokens.at("on", "in") and (default or not exists) else tokens.ident()
    parse_in_cluster(tokens)
    tokens.expect("on")
    tokens.take("only")
    relation = tokens.name()
    method = tokens.ident() if tokens.take("using") else None
    keys = () if default else tokens.in_parentheses(lambda: parse_index_key(tokens))
    included = tokens.in_parentheses(lambda: _parse_included(tokens)) if tokens.take("include") else ()
    nulls_not_distinct = unique and parse_nulls_not_distinct(tokens)
    retain = parse_retain_option(tokens, "CREATE INDEX ... WITH")
    tokens.reject("CREATE INDEX ... NULLS", "nulls", hint="NULLS [NOT] DISTINCT is an option of unique indexes.")
    parse_place(tokens)
    where = tokens.expression() if tokens.take("where") else None
    text, offset = tokens.text_from(start)
    return CreateIndex(
        text,
        offset,
        name,
        relation,
        keys,
        exists,
        retain,
        unique,
        nulls_not_distinct,
        method,
        included,
        concurrently,
        where,
    )


def _parse_included(tokens: TokenReader) -> Ident:
    """A column of INCLUDE."""
    column = tokens.ident()
    if tokens.at("(", "."):
        raise tokens.not_supported("an expression in INCLUDE", "Name a column.")
    return column


_KEY_ENDS = (",", "asc", "desc", "nulls", "collate")


def parse_index_key(tokens: TokenReader) -> IndexKey:
    """expression [COLLATE collation] [operator class] [ASC | DESC] [NULLS FIRST | LAST]"""
    end = _end_of_term(tokens)
    key = tokens.expression(*_KEY_ENDS) if end is None else tokens.expression_to(end)
    parse_collation(tokens)
    operator_class: Name | None = None
    if not (tokens.at(")", *_KEY_ENDS) or tokens.at_statement_end):
        operator_class = tokens.name()
        tokens.reject("an operator class with parameters", "(", hint="Omit the parameters.")
    order = tokens.choose("asc", "desc") if tokens.at("asc", "desc") else None
    nulls = tokens.choose("first", "last") if tokens.take("nulls") else None
    return IndexKey(key, operator_class, order, nulls)


def _end_of_term(tokens: TokenReader) -> int | None:
    """The index after a column, a function call or an expression in parentheses; None if an operator follows it."""
    ahead = 0
    if tokens.token.kind in (Kind.WORD, Kind.IDENT):
        ahead = 1
        while tokens.ahead(ahead).value == "." and tokens.ahead(ahead).kind is Kind.SYMBOL:
            ahead += 2
    if tokens.ahead(ahead).value == "(" and tokens.ahead(ahead).kind is Kind.SYMBOL:
        closing = _closing(tokens, ahead)
        if closing is None:
            return None
        ahead = closing + 1
    following = tokens.ahead(ahead)
    is_end = following.kind in (Kind.WORD, Kind.IDENT) or following.value in (",", ")")
    return tokens.index + ahead if ahead and is_end and following.value not in _OPERATOR_WORDS else None


_OPERATOR_WORDS = words("and or not is isnull notnull in like ilike similar between at overlaps operator")


def _closing(tokens: TokenReader, ahead: int) -> int | None:
    """The position ahead of the parenthesis that closes the one at `ahead`."""
    depth = 0
    while tokens.ahead(ahead).kind is not Kind.END:
        token = tokens.ahead(ahead)
        if token.kind is Kind.SYMBOL:
            depth += (token.value == "(") - (token.value == ")")
            if depth == 0:
                return ahead
        ahead += 1
    return None
