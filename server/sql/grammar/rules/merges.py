"""MERGE."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar import trees
from server.sql.grammar.lexer import Kind, Token
from server.sql.grammar.rules.writes import parse_overriding, parse_written_table
from server.sql.grammar.statements.merges import Merge, MergeAction, MergeClause, Unmatched
from server.sql.grammar.statements.parts import Expr, Ident, Query
from server.sql.grammar.statements.writes import Assignment
from server.sql.grammar.token_reader import TokenReader


def parse_merge(tokens: TokenReader) -> Merge:
    start = tokens.index
    tokens.expect("merge", "into")
    table = parse_written_table(tokens)
    alias = tokens.alias("using")
    tokens.expect("using")
    first, *rest = _source_span(tokens)
    text, offset = tokens.sliced((first, *rest))
    head = Token(Kind.WORD, "select", first.start, first.start), Token(Kind.WORD, "from", first.start, first.start)
    source = Query(trees.parse_query(tokens.source, (*head, first, *rest)), text, offset)
    tokens.expect("on")
    condition = _expression(tokens, "when")
    if not tokens.at("when"):
        raise tokens.syntax_error()
    clauses: list[MergeClause] = []
    while tokens.take("when"):
        clause = _parse_clause(tokens)
        if any(other.unmatched is clause.unmatched and other.condition is None for other in clauses):
            message = "unreachable WHEN clause specified after unconditional WHEN clause"
            raise PgError(SqlState.SYNTAX_ERROR, message)
        clauses.append(clause)
    returning = tokens.returning()
    return Merge(*tokens.text_from(start), table, alias, source, condition, tuple(clauses), returning=returning)


def _parse_clause(tokens: TokenReader) -> MergeClause:
    unmatched: Unmatched | None = None
    if tokens.take("not"):
        unmatched = Unmatched.BY_TARGET
    tokens.expect("matched")
    if unmatched is not None and tokens.take("by"):
        unmatched = Unmatched.BY_SOURCE if tokens.choose("source", "target") == "source" else Unmatched.BY_TARGET
    condition = _expression(tokens, "then") if tokens.take("and") else None
    tokens.expect("then")
    if tokens.take("do"):
        tokens.expect("nothing")
        return MergeClause(unmatched, condition, MergeAction.NOTHING)
    if unmatched is Unmatched.BY_TARGET:
        return _parse_insert(tokens, condition)
    if tokens.take("delete"):
        return MergeClause(unmatched, condition, MergeAction.DELETE)
    tokens.expect("update", "set")
    assignments = tuple(part for parts in tokens.comma_list(lambda: _parse_assignment(tokens)) for part in parts)
    return MergeClause(unmatched, condition, MergeAction.UPDATE, assignments)


def _parse_insert(tokens: TokenReader, condition: Expr | None) -> MergeClause:
    tokens.expect("insert")
    columns = tokens.column_list()
    overriding = parse_overriding(tokens)
    values: tuple[Expr | None, ...] | None = None
    if tokens.take("default"):
        tokens.expect("values")
    else:
        position = tokens.token.start + 1
        tokens.expect("values")
        values = tokens.in_parentheses(lambda: _parse_value(tokens))
        if columns and len(values) != len(columns):
            more = (
                "expressions than target columns" if len(values) > len(columns) else "target columns than expressions"
            )
            raise PgError(SqlState.SYNTAX_ERROR, f"INSERT has more {more}", position=position)
    return MergeClause(Unmatched.BY_TARGET, condition, MergeAction.INSERT, (), columns, values, overriding)


def _parse_value(tokens: TokenReader) -> Expr | None:
    """An expression; None: DEFAULT."""
    return None if tokens.take("default") else _expression(tokens, ",")


def _parse_assignment(tokens: TokenReader) -> tuple[Assignment, ...]:
    if not tokens.at("("):
        column = tokens.ident()
        tokens.expect("=")
        return (_assignment(tokens, column),)
    columns = tokens.column_list()
    tokens.expect("=")
    tokens.take("row")
    tokens.expect("(")
    tokens.reject(
        "a subquery with several columns in MERGE",
        "select",
        "with",
        "values",
        hint="Join the query in USING, and assign its columns.",
    )
    values = tokens.comma_list(lambda: _parse_value(tokens))
    tokens.expect(")")
    if len(values) != len(columns):
        message = "number of columns does not match number of values"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=columns[0].position)
    return tuple(map(Assignment, columns, values))


def _assignment(tokens: TokenReader, column: Ident) -> Assignment:
    return Assignment(column, None if tokens.take("default") else _expression(tokens, ",", "when", "returning"))


def _expression(tokens: TokenReader, *stops: str) -> Expr:
    span = _span(tokens, *stops)
    text, offset = tokens.sliced(span)
    return Expr(trees.parse_expression(tokens.source, span), text, offset)


def _source_span(tokens: TokenReader) -> Sequence[Token]:
    """The source in USING, up to the first ON that belongs to no JOIN of it."""
    start = tokens.index
    span = _span(tokens, "on")
    while _has_open_join(span[:-1]) and tokens.take("on"):
        _span(tokens, "on")
        span = tokens.tokens[start : tokens.index + 1]
    return span


def _has_open_join(source: Sequence[Token]) -> bool:
    """Whether a JOIN outside parentheses needs a further ON."""
    depth = joins = conditions = 0
    for token in source:
        if token.kind is Kind.SYMBOL:
            depth += (token.value == "(") - (token.value == ")")
        elif token.kind is Kind.WORD and depth == 0:
            joins += token.value == "join"
            conditions += token.value in ("on", "using", "cross", "natural")
    return conditions < joins


def _span(tokens: TokenReader, *stops: str) -> Sequence[Token]:
    """As `TokenReader.span`, but a stop may be a word of CASE, inside which it does not count."""
    every, start, index, depth = tokens.tokens, tokens.index, tokens.index, 0
    while (token := every[index]).kind is not Kind.END:
        if token.kind is Kind.SYMBOL and token.value in ("(", "["):
            depth += 1
        elif token.kind is Kind.SYMBOL and token.value in (")", "]"):
            depth -= 1
            if depth < 0:
                break
        elif token.kind is Kind.WORD and token.value == "case":
            depth += 1
        elif token.kind is Kind.WORD and token.value == "end" and depth:
            depth -= 1
        elif depth == 0 and token.kind in (Kind.WORD, Kind.SYMBOL) and token.value in (*stops, ";"):
            break
        index += 1
    tokens.move_to(index)
    return every[start : index + 1]
