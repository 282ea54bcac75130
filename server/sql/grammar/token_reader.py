"""Reads the list of tokens of a text for the grammar rules.

`TokenReader` is a position in the list. It parses what many rules have in common: names, types and lists. For a query
or expression, `span` finds the end by parentheses and by the words that can follow it, and trees.py makes the tree.
`syntax_error` makes an error with PostgreSQL's message, `expected` one with Materialize's. The error's position is that
of the current token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import TypeVar

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import DIMENSIONS_MAX, PgType, named_type, too_many_dimensions
from server.sql.grammar import trees
from server.sql.grammar.lexer import (
    COLUMN_NAME_WORDS,
    NOT_NAMES,
    RESERVED_WORDS,
    TYPE_FUNCTION_WORDS,
    Kind,
    Token,
    not_supported,
    tokenize,
    unexpected,
    words,
)
from server.sql.grammar.refused_types import refused_type
from server.sql.grammar.statements.parts import Expr, Ident, Name, NamedType, Query

T = TypeVar("T")

QUERY_HEADS = ("select", "values", "with", "table", "(")
SERIALS = words("smallserial serial bigserial serial2 serial4 serial8")
_SYMBOL_NAMES = {  # as Materialize's lexer calls them
    "*": "star",
    "=": "equals sign",
    "(": "left parenthesis",
    ")": "right parenthesis",
    "[": "left square bracket",
    "]": "right square bracket",
    ".": "dot",
    ",": "comma",
    ":": "colon",
    "::": "double colon",
    ";": "semicolon",
    "=>": "arrow",
}
_MATERIALIZE_KEYWORDS = (
    RESERVED_WORDS
    | TYPE_FUNCTION_WORDS
    | COLUMN_NAME_WORDS
    | words("at by debezium envelope key least of progress snapshot timeout timestamp up upsert within")
)
WHOLE_INTERVALS = ("day to second", "hour to second", "second")
"""The fields of interval types that contain all intervals."""
_INTERVAL_HINT = "Omit the fields, or write DAY TO SECOND: an interval always has all of them."
_AFTER_ALIAS = words("from where group having window union intersect except order limit offset fetch for")


class TokenReader:
    """A position in the token list. A method reads one construct and stops after it, or raises PgError."""

    def __init__(self, source: str, stored: Collection[str] = ()) -> None:
        """`stored`: the names of items of WITH that are computed once, before what references them (`WithWrites`)."""
        self.source = source
        self.stored = stored
        self.tokens = tokenize(source)
        self.index = 0
        self.token = self.tokens[0]

    def with_tokens(self, tokens: list[Token], index: int) -> TokenReader:
        """A reader of other tokens of the same text, at `index`."""
        reader = copy(self)
        reader.tokens = tokens
        reader.move_to(index)
        return reader

    # -- tokens -----------------------------------------------------------------------------------------------------

    def move_to(self, index: int) -> None:
        self.index = index
        self.token = self.tokens[index]

    def advance(self, count: int = 1) -> None:
        """Moves past `count` tokens. A syntax error if the statement has fewer."""
        if self.index + count >= len(self.tokens):
            self.move_to(len(self.tokens) - 1)
            raise self.syntax_error()
        self.move_to(self.index + count)

    def ahead(self, count: int = 1) -> Token:
        """The token `count` positions ahead; END beyond the end."""
        return self.tokens[min(self.index + count, len(self.tokens) - 1)]

    def at(self, *choices: str) -> bool:
        """Whether the token is one of these words or symbols. Quoted names and strings never match."""
        return self.token.value in choices and _is_plain(self.token)

    def at_all(self, *sequence: str) -> bool:
        return all(_is_plain(t := self.ahead(i)) and t.value == wanted for i, wanted in enumerate(sequence))

    def take(self, *sequence: str) -> bool:
        """Skips these words or symbols if they are the next tokens. Returns whether they are."""
        if not self.at_all(*sequence):
            return False
        self.advance(len(sequence))
        return True

    def expect(self, *sequence: str) -> None:
        for wanted in sequence:
            if not self.take(wanted):
                raise self.syntax_error()

    def choose(self, *choices: str) -> str:
        """Skips one of these words and returns it. 42601 for any other token."""
        if not self.at(*choices):
            raise self.syntax_error()
        word = self.token.value
        self.advance()
        return word

    @property
    def word(self) -> str:
        """The current word or symbol; "" at the end and for quoted names, strings, numbers and parameters."""
        return self.token.value if _is_plain(self.token) else ""

    @property
    def at_end(self) -> bool:
        return self.token.kind is Kind.END

    @property
    def at_statement_end(self) -> bool:
        """Whether the position is at the end of the statement."""
        return self.at_end or self.at(";")

    def expect_end(self) -> None:
        if not self.at_end:
            raise self.syntax_error()

    def syntax_error(self) -> PgError:
        return unexpected(self.source, self.token)

    def expected(self, what: str) -> PgError:
        """A 42601 with Materialize's message: `Expected <what>, found <token>`."""
        token = self.token
        match token.kind:
            case Kind.END:
                found = "EOF"
            case Kind.WORD if token.value in _MATERIALIZE_KEYWORDS:
                found = token.value.upper()
            case Kind.WORD | Kind.IDENT:
                found = f'identifier "{token.value}"'
            case Kind.STRING:
                found = f'string literal "{token.value}"'
            case Kind.NUMBER:
                found = f'number "{token.value}"'
            case Kind.PARAMETER:
                found = f'parameter "${token.value}"'
            case Kind.SYMBOL:
                found = _SYMBOL_NAMES.get(token.value, f'operator "{token.value}"')
        position = len(self.source) + 1 if token.kind is Kind.END else token.start + 1
        return PgError(SqlState.SYNTAX_ERROR, f"Expected {what}, found {found}", position=position)

    def expect_one_of(self, *choices: str) -> str:
        """As `choose`, with Materialize's error message."""
        if not self.at(*choices):
            names = [_SYMBOL_NAMES.get(choice, choice.upper()) for choice in choices]
            raise self.expected(names[0] if len(names) == 1 else f"one of {' or '.join(names)}")
        return self.choose(*choices)

    def not_supported(self, what: str, hint: str, *, at: Token | None = None) -> PgError:
        return not_supported(what, at or self.token, hint)

    def reject(self, what: str, *words: str, hint: str) -> None:
        """0A000 if the current token is one of these words."""
        if self.at(*words):
            raise self.not_supported(what, hint)

    def text_from(self, start: int) -> tuple[str, int]:
        """`text` and `offset` of a statement from token `start` to the token before the current one."""
        offset = self.tokens[start].start
        return self.source[offset : self.tokens[self.index - 1].end], offset

    def drop_behavior(self) -> bool:
        """[CASCADE | RESTRICT]. Returns whether it is CASCADE."""
        return self.take("cascade") or (self.take("restrict") and False)

    # -- names, literals, lists -------------------------------------------------------------------------------------

    def ident(self, not_names: frozenset[str] = NOT_NAMES) -> Ident:
        """A name of a column, alias, cursor and so on (ColId in gram.y). `not_names`: the words that are not names."""
        token = self.token
        if token.kind is not Kind.IDENT and (token.kind is not Kind.WORD or token.value in not_names):
            raise self.syntax_error()
        self.advance()
        return Ident(token.value, token.start + 1)

    def name(self, parts_max: int = 3) -> Name:
        first = self.ident()
        parts = [first.name]
        while self.take("."):
            parts.append(self.ident(not_names=frozenset()).name)
        if len(parts) > parts_max:
            raise PgError(
                SqlState.SYNTAX_ERROR,
                f"improper qualified name (too many dotted names): {'.'.join(parts)}",
                position=first.position,
            )
        return Name(tuple(parts), first.position)

    def comma_list(self, item: Callable[[], T]) -> tuple[T, ...]:
        items = [item()]
        while self.take(","):
            items.append(item())
        return tuple(items)

    def in_parentheses(self, item: Callable[[], T]) -> tuple[T, ...]:
        """`(item, ...)`, at least one."""
        self.expect("(")
        items = self.comma_list(item)
        self.expect(")")
        return items

    def column_list(self) -> tuple[Ident, ...]:
        """`(a, b)`, or nothing."""
        return self.in_parentheses(self.ident) if self.at("(") else ()

    def string(self) -> str:
        if self.token.kind is not Kind.STRING:
            raise self.syntax_error()
        value = self.token.value
        self.advance()
        return value

    def alias(self, *not_aliases: str) -> Ident | None:
        """`[AS] alias`, or nothing."""
        if self.take("as"):
            return self.ident()
        token = self.token
        named = token.kind is Kind.IDENT or (token.kind is Kind.WORD and token.value not in NOT_NAMES)
        return self.ident() if named and not self.at(*not_aliases) else None

    def if_exists(self) -> bool:
        return self.take("if", "exists")

    def if_not_exists(self) -> bool:
        return self.take("if", "not", "exists")

    def type(self, *, user_defined: bool = False) -> PgType:
        """A type (Typename in gram.y). 42704 if it does not exist.

        `user_defined`: a name that is not one of PostgreSQL's types is returned as a `NamedType`.
        """
        first, start = self.token, self.index
        try:
            return self._built_in_type()
        except PgError as error:
            if not user_defined or error.sqlstate is not SqlState.UNDEFINED_OBJECT:
                raise
        self.move_to(start)
        if self.token.value in SERIALS and self.token.kind is Kind.WORD:
            raise NamedType.of((self.token.value,), first.start + 1, dimensions=0).missing()
        name = self.name()
        if self.at("(", "varying") and (refused := refused_type(name.parts[-1], name.position)) is not None:
            raise refused  # bit(3), bit varying
        return NamedType.of(name.parts, name.position, dimensions=self._array_bounds())

    def other_type(self) -> NamedType:
        """The name of a type, also of one that `type` refuses. Its modifiers are skipped."""
        name = self.name()
        if self.at("("):
            self.in_parentheses(self.integer)
        dimensions = 0
        while self.take("["):
            self.expect("]")
            dimensions += 1
        return NamedType.of(name.parts, name.position, dimensions=dimensions)

    def _array_bounds(self) -> int:
        """[ARRAY] [[n]] after the name of a type: the number of dimensions. 54000 for too many."""
        position, dimensions = self.token.start + 1, 0
        if self.take("array"):
            dimensions = 1
            if self.take("["):
                self.integer()
                self.expect("]")
        while self.take("["):
            if not self.at("]"):
                self.integer()
            self.expect("]")
            dimensions += 1
        if dimensions > DIMENSIONS_MAX:
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, too_many_dimensions(dimensions), position=position)
        return dimensions

    def _built_in_type(self) -> PgType:
        first = self.token
        if self.at_all("pg_catalog", ".") or self.at_all("mz_catalog", ".", "mz_timestamp"):
            self.advance(2)
        elif self.ahead().value == "." and _is_plain(self.ahead()):
            raise PgError(SqlState.UNDEFINED_OBJECT, f'type "{self.name()}" does not exist', position=first.start + 1)
        token = self.token
        spelling = self.ident(not_names=RESERVED_WORDS).name
        if spelling in SERIALS:
            # as in PostgreSQL, it is a type only in the definition of a column
            raise PgError(SqlState.UNDEFINED_OBJECT, f'type "{spelling}" does not exist', position=first.start + 1)
        if spelling != spelling.lower():
            raise PgError(SqlState.UNDEFINED_OBJECT, f'type "{spelling}" does not exist', position=first.start + 1)
        if token.kind is Kind.WORD:
            if spelling == "double":
                self.expect("precision")
                spelling += " precision"
            elif spelling == "national":
                spelling = self.choose("character", "char")
            if spelling in ("character", "char", "nchar") and self.take("varying"):
                spelling = "varchar"
        if self.take("("):
            spelling += f"({','.join(self.comma_list(self.integer))})"
            self.expect(")")
        if spelling.startswith("time") and token.kind is Kind.WORD:
            for words in (("with", "time", "zone"), ("without", "time", "zone")):
                if self.take(*words):
                    spelling += f" {' '.join(words)}"
        if spelling == "interval":
            spelling += self._interval_fields()
        if self.take("array"):
            spelling += "[]"
            if self.take("["):
                self.integer()
                self.expect("]")
        while self.take("["):
            if not self.at("]"):
                self.integer()
            self.expect("]")
            spelling += "[]"
        return self.known_type(spelling, first)

    def _interval_fields(self) -> str:
        """The precision after the fields of an interval. 0A000 for fields that would remove parts of values."""
        for fields in WHOLE_INTERVALS:
            if self.take(*fields.split()):
                return f"({self.in_parentheses(self.integer)[0]})" if self.at("(") else ""
        self.reject("an interval with fields", "year", "month", "day", "hour", "minute", "second", hint=_INTERVAL_HINT)
        return ""

    def known_type(self, spelling: str, token: Token) -> PgType:
        try:
            return named_type(spelling)
        except ValueError as error:
            message = str(error)
            if message.startswith("type modifier"):
                state = SqlState.SYNTAX_ERROR
            elif message.endswith("does not exist"):
                state = SqlState.UNDEFINED_OBJECT
            elif "array dimensions" in message:
                state = SqlState.PROGRAM_LIMIT_EXCEEDED
            else:
                state = SqlState.INVALID_PARAMETER_VALUE
            raise PgError(state, message, position=token.start + 1) from None
        except KeyError:  # an array of a type that has no array type
            raise PgError(
                SqlState.UNDEFINED_OBJECT, f'type "{spelling}" does not exist', position=token.start + 1
            ) from None

    def number(self) -> str:
        if self.token.kind is not Kind.NUMBER:
            raise self.syntax_error()
        value = self.token.value
        self.advance()
        return value

    def integer(self) -> str:
        if not self.token.value.isdigit():
            raise self.syntax_error()
        return self.number()

    def small_integer(self) -> int:
        """A whole number of at most 2147483647. A greater one is a syntax error: PostgreSQL's token ICONST."""
        digits = self.token.value.lstrip("0") or "0"
        if not digits.isdigit() or len(digits) > 10 or int(digits) > 2**31 - 1:
            raise self.syntax_error()
        self.number()
        return int(digits)

    # -- spans: the tokens that sqlglot parses ----------------------------------------------------------------------

    def span(self, *stops: str, query: bool = False) -> Sequence[Token]:
        """Skips and returns the tokens of a query or expression, followed by the token that ends it.

        It ends at the end of the statement, at an unmatched closing bracket, or at one of the words or symbols `stops`
        outside brackets. A `query` also ends at AS OF.
        """
        tokens, start, index, depth = self.tokens, self.index, self.index, 0
        while True:
            token = tokens[index]
            kind, value = token.kind, token.value
            if kind is Kind.SYMBOL:
                if value in ("(", "["):
                    depth += 1
                elif value in (")", "]"):
                    depth -= 1
                    if depth < 0:
                        break
                elif value == ";" or (depth == 0 and value in stops):
                    break
            elif kind is Kind.END:
                break
            elif kind is Kind.WORD and depth == 0 and index > start:
                if value in stops and self._stops(index):
                    break
                if query and value == "as" and self._at_as_of(index):
                    break
            index += 1
        self.move_to(index)
        return tokens[start : index + 1]

    def _stops(self, index: int) -> bool:
        """Whether the word at `index`, one of `stops`, ends the expression or query and is not part of it."""
        before, word, after = self.tokens[index - 1], self.tokens[index].value, self.tokens[index + 1]
        preceding = before.value if _is_plain(before) else ""
        if preceding in (".", "as"):
            return False  # a name
        if word == "from":
            return preceding != "distinct"  # IS DISTINCT FROM
        if word in ("not", "null"):
            return preceding not in ("is", "not")
        if word == "with":
            return after.value in ("(", "data", "no", "check", "cascaded", "local")  # and not WITH TIME ZONE, ...
        return word != "on" or after.value == "conflict"  # and not JOIN ... ON

    def _at_as_of(self, index: int) -> bool:
        if self.tokens[index + 1].value != "of" or self.tokens[index + 1].kind is not Kind.WORD:
            return False
        after = self.tokens[index + 2]
        return not (_is_plain(after) and (after.value in (",", ")") or after.value in _AFTER_ALIAS))

    def sliced(self, span: Sequence[Token]) -> tuple[str, int]:
        """The text and offset of a span. 42601 if it is empty."""
        if len(span) == 1:
            raise unexpected(self.source, span[0])
        return self.source[span[0].start : span[-2].end], span[0].start

    def expression(self, *stops: str) -> Expr:
        span = self.span(*stops)
        text, offset = self.sliced(span)
        return Expr(trees.parse_expression(self.source, span), text, offset)

    def expression_to(self, end: int) -> Expr:
        """The expression that ends before the token with the index `end`."""
        span = self.tokens[self.index : end + 1]
        text, offset = self.sliced(span)
        self.move_to(end)
        return Expr(trees.parse_expression(self.source, span), text, offset)

    def expressions(self, *stops: str) -> tuple[Expr, ...]:
        return self.comma_list(lambda: self.expression(",", *stops))

    def query(self, *stops: str) -> Query:
        if not self.at(*QUERY_HEADS):
            raise self.syntax_error()
        span = self.span(*stops, query=True)
        text, offset = self.sliced(span)
        return Query(trees.parse_query(self.source, span), text, offset)

    def parsed_query(self, span: Sequence[Token], text: str, offset: int) -> Query:
        """The query of tokens that need not be adjacent, followed by one more. `text` and `offset`: what they span."""
        return Query(trees.parse_query(self.source, span), text, offset)

    def other_tables(self) -> Query:
        """The FROM clause of an UPDATE or the USING clause of a DELETE, as the query `SELECT FROM ...`."""
        first, *rest = self.span("where", "returning")
        text, offset = self.sliced((first, *rest))
        head = Token(Kind.WORD, "select", first.start, first.start), first._replace(value="from")
        return Query(trees.parse_query(self.source, (*head, *rest)), text, offset)

    def returning(self) -> tuple[Expr, ...]:
        if not self.take("returning"):
            return ()

        def item() -> Expr:
            span = self.span(",")
            text, offset = self.sliced(span)
            return Expr(trees.parse_select_item(self.source, span), text, offset)

        return self.comma_list(item)


def _is_plain(token: Token) -> bool:
    """Whether the token is an unquoted word or a symbol."""
    return token.kind is Kind.WORD or token.kind is Kind.SYMBOL
