"""WITH at the start of a statement: before a query or a write, and with items that write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from catalog.ids import ObjectId
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind, Token
from server.sql.grammar.rules.merges import parse_merge
from server.sql.grammar.rules.queries import parse_select, refuse_into
from server.sql.grammar.rules.writes import parse_delete, parse_insert, parse_update
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.tables import CreateTableAs
from server.sql.grammar.statements.with_writes import WithWrites, WritingItem
from server.sql.grammar.statements.writes import Delete, Insert, Update
from server.sql.grammar.token_reader import TokenReader

_WRITES: dict[str, Callable[[TokenReader], Insert | Update | Delete | Merge]] = {
    "insert": parse_insert,
    "update": parse_update,
    "delete": parse_delete,
    "merge": parse_merge,
}
_MAINS = ("select", "values", "table", *_WRITES)
ID_SCHEMA = "$id"  # names a relation by its id (server.sql.scope)


def parse_with(tokens: TokenReader) -> Insert | Update | Delete | Merge | Select | CreateTableAs | WithWrites:
    """WITH and the statement after it, which starts with the first keyword of one outside parentheses."""
    start = tokens.index
    tokens.advance()
    items = tokens.span(*_MAINS)
    writes = _has_writing_item(items)
    ends_with_path = len(items) > 2 and items[-3].value in ("set", "using")
    is_write = tokens.at(*_WRITES) and (items[-2].value == ")" or ends_with_path)
    main = tokens.index
    tokens.move_to(start)
    if writes:
        return _parse_with_writes(tokens)
    if not is_write:
        return parse_select(tokens)
    tokens.move_to(main)
    return _with_common_tables(tokens, start, tokens.tokens[start:main])


def _has_writing_item(items: Sequence[Token]) -> bool:
    """Whether one of the items of WITH is a statement that writes."""
    depth = 0
    for number, token in enumerate(items[:-1]):
        if token.kind is not Kind.SYMBOL:
            continue
        if token.value == "(" and depth == 0 and number and items[number - 1].value in ("as", "materialized"):
            following = items[number + 1]
            after = items[number + 2] if number + 2 < len(items) else following
            if following.kind is Kind.WORD and following.value in _WRITES and after.kind in (Kind.WORD, Kind.IDENT):
                return True
        depth += (token.value == "(") - (token.value == ")")
    return False


def _with_common_tables(tokens: TokenReader, start: int, clause: Sequence[Token]) -> Insert | Update | Delete | Merge:
    """The write at the current token, whose WITH is `clause`. `start`: the first token of its text."""
    end = tokens.token
    word = tokens.word
    if not clause:
        return _WRITES[word](tokens)
    select = Token(Kind.WORD, "select", end.start, end.start), Token(Kind.NUMBER, "1", end.start, end.start)
    common_tables = tokens.parsed_query((*clause, *select, end), *tokens.text_from(start))
    statement = _WRITES[word](tokens)
    text, offset = tokens.text_from(start)
    return replace(statement, text=text, offset=offset, common_tables=common_tables)


def _parse_with_writes(tokens: TokenReader) -> WithWrites:
    """WITH items of which one writes, and the main statement.

    In the WITH of a later part, the query of an item that writes is replaced by one of its RETURNING rows.
    """
    start = tokens.index
    head = [tokens.token]
    tokens.expect("with")
    if tokens.at("recursive"):
        head.append(tokens.token)
        tokens.advance()
    written: list[WritingItem] = []
    known: list[list[Token]] = []
    while True:
        _parse_item(tokens, start, head, known, written)
        if not tokens.take(","):
            break
    clause = _clause(head, known)
    is_write = tokens.at(*_WRITES)
    main = _with_common_tables(tokens, start, clause) if is_write else _parse_main_query(tokens, clause)
    return WithWrites(*tokens.text_from(start), tuple(written), main)


def _clause(head: Sequence[Token], known: Sequence[Sequence[Token]]) -> list[Token]:
    """WITH and these items; nothing if there are none."""
    if not known:
        return []
    clause = [*head, *known[0]]
    for item in known[1:]:
        clause += [Token(Kind.SYMBOL, ",", item[0].start, item[0].start), *item]
    return clause


def _parse_item(
    tokens: TokenReader,
    start: int,
    head: Sequence[Token],
    known: list[list[Token]],
    written: list[WritingItem],
) -> None:
    """An item, added to `known`, and to `written` if it writes."""
    first = tokens.index
    name = tokens.ident()
    if any(item.name.name == name.name for item in written):
        message = f'WITH query name "{name.name}" specified more than once'
        raise PgError(SqlState.DUPLICATE_ALIAS, message, position=name.position)
    tokens.column_list()
    tokens.expect("as")
    if not tokens.take("materialized"):
        tokens.take("not", "materialized")
    tokens.expect("(")
    opened = tokens.index
    if not tokens.at(*_WRITES):
        tokens.span()
        tokens.expect(")")
        for word, last in (("search", "set"), ("cycle", "using")):
            if tokens.take(word):
                tokens.span(last)
                tokens.expect(last)
                tokens.ident()
        known.append(list(tokens.tokens[first : tokens.index]))
        return
    statement = _with_common_tables(tokens, start, _clause(head, known))
    closing = tokens.token
    tokens.expect(")")
    item = WritingItem(name, ObjectId(f"w{len(written) + 1}"), statement, bool(statement.returning))
    written.append(item)
    if item.returns:
        known.append([*tokens.tokens[first:opened], *_rows_of(item, closing.start), closing])


def _rows_of(item: WritingItem, at: int) -> list[Token]:
    """SELECT * FROM the rows of an item that writes."""
    words = [(Kind.WORD, "select"), (Kind.SYMBOL, "*"), (Kind.WORD, "from")]
    name = [(Kind.IDENT, ID_SCHEMA), (Kind.SYMBOL, "."), (Kind.IDENT, item.id)]
    return [Token(kind, value, at, at) for kind, value in (*words, *name)]


def _parse_main_query(tokens: TokenReader, clause: Sequence[Token]) -> Select:
    """The query at the current token, with the items of `clause`."""
    main = tokens.index
    reader = tokens.with_tokens([*tokens.tokens[:main], *clause, *tokens.tokens[main:]], main)
    statement = parse_select(reader)
    refuse_into(statement)
    assert isinstance(statement, Select)
    if statement.as_of is not None:
        hint = "Read with AS OF in a statement of its own."
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "AS OF with a WITH that writes is not supported", hint=hint)
    tokens.move_to(len(tokens.tokens) - (len(reader.tokens) - reader.index))
    return statement
