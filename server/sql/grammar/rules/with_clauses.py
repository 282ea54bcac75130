"""WITH at the start of a statement: before a query or a write, and with items that write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from catalog.ids import ObjectId
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import STATEMENT_TOKENS_MAX, Kind, Token, too_long
from server.sql.grammar.rules.merges import parse_merge
from server.sql.grammar.rules.queries import parse_select, refuse_into
from server.sql.grammar.rules.writes import parse_delete, parse_insert, parse_update
from server.sql.grammar.statements.parts import Ident
from server.sql.grammar.statements.queries import Select
from server.sql.grammar.statements.tables import CreateTableAs
from server.sql.grammar.statements.with_writes import WithWrites, Write, WritingItem
from server.sql.grammar.token_reader import TokenReader

_WRITES: dict[str, Callable[[TokenReader], Write]] = {
    "insert": parse_insert,
    "update": parse_update,
    "delete": parse_delete,
    "merge": parse_merge,
}
_MAINS = ("select", "values", "table", *_WRITES)
PARTS_MAX = 200  # each has a plan of its own
ID_SCHEMA = "$id"  # names a relation by its id (server.sql.scope)


def parse_with(tokens: TokenReader) -> Write | Select | CreateTableAs | WithWrites:
    """WITH and the statement after it, which starts with the first keyword of one outside parentheses."""
    start = tokens.index
    tokens.advance()
    items = tokens.span(*_MAINS)
    writes = bool(tokens.stored) or _has_writing_item(items)
    ends_with_path = len(items) > 2 and items[-3].value in ("set", "using")
    is_write = tokens.at(*_WRITES) and (items[-2].value == ")" or ends_with_path)
    main = tokens.index
    tokens.move_to(start)
    if writes:
        return _parse_with_writes(tokens)
    if not is_write:
        return parse_select(tokens)
    tokens.move_to(main)
    return _with_common_tables(tokens, _whole(tokens, start), tokens.tokens[start:main])


def _whole(tokens: TokenReader, start: int) -> tuple[str, int]:
    """The text from token `start` to the end of the statement, and its offset."""
    here = tokens.index
    tokens.span()
    whole = tokens.text_from(start)
    tokens.move_to(here)
    return whole


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


def _with_common_tables(tokens: TokenReader, whole: tuple[str, int], clause: Sequence[Token]) -> Write:
    """The write at the current token, whose WITH is `clause`. `whole`: `_whole` from WITH on."""
    end = tokens.token
    word = tokens.word
    if not clause:
        return _WRITES[word](tokens)
    select = Token(Kind.WORD, "select", end.start, end.start), Token(Kind.NUMBER, "1", end.start, end.start)
    common_tables = tokens.parsed_query((*clause, *select, end), *whole)
    statement = _WRITES[word](tokens)
    text, offset = whole
    return replace(statement, text=text, offset=offset, common_tables=common_tables)


def _parse_with_writes(tokens: TokenReader) -> WithWrites:
    """WITH items of which one writes, or is computed once, and the main statement.

    In the WITH of a later part, the query of such an item is replaced by one of its rows.
    """
    start = tokens.index
    whole = _whole(tokens, start)
    head = [tokens.token]
    tokens.expect("with")
    if tokens.at("recursive"):
        head.append(tokens.token)
        tokens.advance()
    items = _Items(head, whole)
    while True:
        items.parse(tokens)
        if not tokens.take(","):
            break
    clause = _clause(head, list(items.known.values()))
    is_write = tokens.at(*_WRITES)
    main = _with_common_tables(tokens, whole, clause) if is_write else _parse_main_query(tokens, clause)
    return WithWrites(*tokens.text_from(start), tuple(items.parts), main)


def _clause(head: Sequence[Token], known: Sequence[Sequence[Token]]) -> list[Token]:
    """WITH and these items; nothing if there are none."""
    if not known:
        return []
    clause = [*head, *known[0]]
    for item in known[1:]:
        clause += [Token(Kind.SYMBOL, ",", item[0].start, item[0].start), *item]
    return clause


class _Items:
    """The items of a WITH of which one writes, or is computed once.

    `parts`: these. `known`: the tokens of those that have rows, by name. `head`: the words before them.
    """

    def __init__(self, head: Sequence[Token], whole: tuple[str, int]) -> None:
        self.parts: list[WritingItem] = []
        self.known: dict[str, list[Token]] = {}
        self._head, self._whole = head, whole
        self._names: set[str] = set()
        self._words = 0

    def parse(self, tokens: TokenReader) -> None:
        """Adds the item at the current token. 42712, 54000."""
        first = tokens.index
        name = tokens.ident()
        if name.name in self._names:
            message = f'WITH query name "{name.name}" specified more than once'
            raise PgError(SqlState.DUPLICATE_ALIAS, message, position=name.position)
        self._names.add(name.name)
        tokens.column_list()
        tokens.expect("as")
        if not tokens.take("materialized"):
            tokens.take("not", "materialized")
        tokens.expect("(")
        opened = tokens.index
        body = tokens.span()
        if body[0].kind is Kind.WORD and body[0].value in _WRITES:
            tokens.move_to(opened)
            statement = _with_common_tables(tokens, self._whole, self._counted(self._named_in(body)))
            self._add(name, statement, tokens.tokens[first:opened], tokens.token.start)
            tokens.expect(")")
            return
        tokens.expect(")")
        for word, last in (("search", "set"), ("cycle", "using")):
            if tokens.take(word):
                tokens.span(last)
                tokens.expect(last)
                tokens.ident()
        item = list(tokens.tokens[first : tokens.index])
        if name.name not in tokens.stored:
            self.known[name.name] = item
            return
        at = item[-1].end
        clause = self._counted([*self._named_in(body), item])
        rows = [*_words(at, "select", "*", "from"), item[0], Token(Kind.END, "", at, at)]
        query = tokens.parsed_query((*clause, *rows), *self._whole)
        self._add(name, Select(*self._whole, query), [item[0], *_words(at, "as", "(")], at)

    def _add(self, name: Ident, statement: Write | Select, head: Sequence[Token], at: int) -> None:
        """Adds a part. `head`: the words before its query in the WITH of later parts, which is at `at`."""
        if len(self.parts) == PARTS_MAX:
            detail = f"A WITH can have at most {PARTS_MAX} items that write."
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, "too many data-modifying WITH items", detail=detail)
        returns = isinstance(statement, Select) or bool(statement.returning)
        item = WritingItem(name, ObjectId(f"w{len(self.parts) + 1}"), statement, returns)
        self.parts.append(item)
        if returns:
            self.known[name.name] = [*head, *_rows_of(item, at), *_words(at, ")")]

    def _counted(self, items: Sequence[Sequence[Token]]) -> list[Token]:
        """The WITH of a part. 54000 if those of all parts have too many words together."""
        clause = _clause(self._head, items)
        self._words += len(clause)
        if self._words > STATEMENT_TOKENS_MAX:
            hint = "The queries of WITH count once for each item that writes and names them."
            raise too_long("statement", STATEMENT_TOKENS_MAX, hint)
        return clause

    def _named_in(self, body: Sequence[Token]) -> list[Sequence[Token]]:
        """The items that a statement can reference: those that it names, and those that they name."""
        found: set[str] = set()
        texts = [body]
        while texts:
            for token in texts.pop():
                if token.value in self.known and token.value not in found:
                    found.add(token.value)
                    texts.append(self.known[token.value])
        return [item for name, item in self.known.items() if name in found]


def _rows_of(item: WritingItem, at: int) -> list[Token]:
    """SELECT * FROM the rows of an item."""
    name = [(Kind.IDENT, ID_SCHEMA), (Kind.SYMBOL, "."), (Kind.IDENT, item.id)]
    return [*_words(at, "select", "*", "from"), *(Token(kind, value, at, at) for kind, value in name)]


def _words(at: int, *values: str) -> list[Token]:
    """These words and symbols, at a position of the text."""
    return [Token(Kind.WORD if value.isalpha() else Kind.SYMBOL, value, at, at) for value in values]


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
