"""INSERT, UPDATE, DELETE, LOCK TABLE and TRUNCATE."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.rules.conflicts import parse_on_conflict
from server.sql.grammar.rules.objects import parse_names
from server.sql.grammar.statements.parts import Expr, Ident, Name, Query
from server.sql.grammar.statements.writes import Assignment, Delete, Insert, LockTable, RowAssignment, Truncate, Update
from server.sql.grammar.token_reader import QUERY_HEADS, TokenReader

_ELEMENT_HINT = "Assign the whole value, such as a[:1] || 9 || a[3:] for an array, or jsonb_set(j, '{key}', value)."


def parse_insert(tokens: TokenReader) -> Insert:
    start = tokens.index
    tokens.expect("insert", "into")
    table = tokens.name()
    alias = tokens.ident() if tokens.take("as") else None
    columns = () if tokens.at("(") and tokens.ahead().value in QUERY_HEADS else tokens.column_list()
    overriding = parse_overriding(tokens)
    source: Query | None = None
    if tokens.take("default"):
        tokens.expect("values")
    else:
        source = tokens.query("returning", "on")
    conflict = parse_on_conflict(tokens, _parse_assignment, _parse_where)
    returning = tokens.returning()
    return Insert(
        *tokens.text_from(start), table, alias, columns, source, returning, overriding=overriding, conflict=conflict
    )


def parse_overriding(tokens: TokenReader) -> str | None:
    """OVERRIDING {SYSTEM | USER} VALUE, as `system` or `user`; None if it is not there."""
    if not tokens.take("overriding"):
        return None
    overridden = tokens.choose("system", "user")
    tokens.expect("value")
    return overridden


def parse_update(tokens: TokenReader) -> Update:
    start = tokens.index
    tokens.expect("update")
    table = parse_written_table(tokens)
    alias = tokens.alias("set")
    tokens.expect("set")
    assignments = tuple(part for parts in tokens.comma_list(lambda: _parse_assignment(tokens)) for part in parts)
    others = tokens.other_tables() if tokens.at("from") else None
    where, current_of = _parse_condition(tokens)
    returning = tokens.returning()
    text, offset = tokens.text_from(start)
    return Update(text, offset, table, alias, assignments, where, returning, others, current_of=current_of)


def _parse_assignment(tokens: TokenReader) -> tuple[Assignment | RowAssignment, ...]:
    """column = value; (columns) = [ROW] (values), which gives an Assignment per column; (columns) = (query)"""
    if tokens.at("("):
        return _parse_row_assignment(tokens)
    return (_parse_column_assignment(tokens),)


def _parse_row_assignment(tokens: TokenReader) -> tuple[Assignment | RowAssignment, ...]:
    columns = tokens.column_list()
    tokens.expect("=")
    is_row = tokens.take("row")
    tokens.expect("(")
    if not is_row and tokens.at(*QUERY_HEADS):
        query = tokens.query()
        tokens.expect(")")
        return (RowAssignment(columns, query),)
    values = tokens.comma_list(lambda: None if tokens.take("default") else tokens.expression(","))
    tokens.expect(")")
    if len(values) != len(columns):
        message = "number of columns does not match number of values"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=columns[0].position)
    return tuple(map(Assignment, columns, values))


def _parse_column_assignment(tokens: TokenReader) -> Assignment:
    column = tokens.ident()
    subscripts: list[Expr] = []
    while tokens.take("["):
        subscripts.append(tokens.expression("]", ":"))
        tokens.reject("an assignment to a slice", ":", hint=_ELEMENT_HINT)
        tokens.expect("]")
    if subscripts:
        tokens.reject("an assignment to a field", ".", hint=_ELEMENT_HINT)
    tokens.expect("=")
    if tokens.take("default"):
        if subscripts:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "cannot set an array element to DEFAULT", hint=_ELEMENT_HINT)
        return Assignment(column, None)
    return Assignment(column, tokens.expression(",", "from", "where", "returning"), tuple(subscripts))


def parse_delete(tokens: TokenReader) -> Delete:
    start = tokens.index
    tokens.expect("delete", "from")
    table = parse_written_table(tokens)
    alias = tokens.alias()
    others = tokens.other_tables() if tokens.at("using") else None
    where, current_of = _parse_condition(tokens)
    returning = tokens.returning()
    return Delete(*tokens.text_from(start), table, alias, where, returning, others, current_of=current_of)


def parse_written_table(tokens: TokenReader) -> Name:
    """[ONLY] name [*]. ONLY and * have no effect, because there is no table inheritance."""
    tokens.take("only")
    name = tokens.name()
    tokens.take("*")
    return name


def _parse_where(tokens: TokenReader) -> Expr | None:
    if not tokens.take("where"):
        return None
    return tokens.expression("returning")


def _parse_condition(tokens: TokenReader) -> tuple[Expr | None, Ident | None]:
    """[WHERE condition | WHERE CURRENT OF cursor]. The condition is false for a cursor."""
    if not (tokens.at("where") and tokens.ahead().value == "current" and tokens.ahead(2).value == "of"):
        return _parse_where(tokens), None
    tokens.expect("where")
    start = tokens.index
    tokens.expect("current", "of")
    cursor = tokens.ident()
    return Expr(exp.false(), *tokens.text_from(start)), cursor


_LOCK_MODES = (
    "access share",
    "row share",
    "row exclusive",
    "share update exclusive",
    "share row exclusive",
    "share",
    "access exclusive",
    "exclusive",
)


def parse_lock(tokens: TokenReader) -> LockTable:
    start = tokens.index
    tokens.expect("lock")
    tokens.take("table")
    tables = parse_names(tokens, lambda: parse_written_table(tokens))
    mode = "access exclusive"
    if tokens.take("in"):
        found = next((mode for mode in _LOCK_MODES if tokens.take(*mode.split(), "mode")), None)
        if found is None:
            raise tokens.syntax_error()
        mode = found
    nowait = tokens.take("nowait")
    return LockTable(*tokens.text_from(start), tables, mode, nowait)


def parse_truncate(tokens: TokenReader) -> Truncate:
    start = tokens.index
    tokens.expect("truncate")
    tokens.take("table")
    tables = parse_names(tokens, lambda: parse_written_table(tokens))
    restarts = False
    if tokens.at("restart", "continue"):
        restarts = tokens.choose("restart", "continue") == "restart"
        tokens.expect("identity")
    tokens.drop_behavior()
    return Truncate(*tokens.text_from(start), tables, restarts)
