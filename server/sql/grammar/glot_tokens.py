"""Converts the lexer's tokens to sqlglot's.

PostgreSQL's scanner and keywords are stricter than sqlglot's. The conversion enforces PostgreSQL's rules:
- Only PostgreSQL's keywords become keywords (`qualify`, `pivot`, `top` are names), and its reserved words never become
  names. Names are already folded and strings decoded. Operators that PostgreSQL lacks are rejected.
- Each token keeps its position in the client's text, so errors and identifiers (`meta["start"]`) have positions.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token as GlotToken
from sqlglot.tokenizer_core import TokenType

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.dialect import TidewirePostgres
from server.sql.grammar.lexer import CHECKED_TOKENS, RESERVED_WORDS, Kind, Token, unexpected, words

_KEYWORDS = TidewirePostgres.Tokenizer.KEYWORDS
_SINGLES = TidewirePostgres.Tokenizer.SINGLE_TOKENS
# Words that are keywords inside a query. Any other word is a name.
_WORDS: dict[str, TokenType] = {
    **{
        word: _KEYWORDS[word.upper()]
        for word in words("""
        all and any array as asc between case collate cross cube current_catalog current_date current_schema
        current_time current_timestamp current_user default desc distinct else end escape except exists false fetch
        filter first for from full having ilike in inner intersect interval into is isnull join lateral left like
        limit localtime localtimestamp natural next not notnull null offset on only or ordinality outer over
        overlaps partition range recursive right rollup row rows select session_user some table tablesample then true
        union unnest using values variadic when where window with
        bigint bool boolean bpchar bytea char character date dec decimal float float4 float8 int int2 int4 int8 integer
        json jsonb numeric real smallint text time timestamp timestamptz timetz uuid varchar
        """)
    },
    "current_role": TokenType.CURRENT_ROLE,
    "user": TokenType.CURRENT_USER,
}
_PHRASES: dict[tuple[str, str], TokenType] = {
    (first.lower(), second.lower()): _KEYWORDS[f"{first} {second}"]
    for first, second in (
        ("ORDER", "BY"),
        ("GROUP", "BY"),
        ("PARTITION", "BY"),
        ("SIMILAR", "TO"),
        ("GROUPING", "SETS"),
        ("DOUBLE", "PRECISION"),
        ("CHARACTER", "VARYING"),
        ("CHAR", "VARYING"),
    )
}
_PHRASE_HEADS = frozenset(first for first, _ in _PHRASES)
# Reserved words that sqlglot's grammar recognises by their text, not by a token type.
_WORDS_AS_TEXT = words("asymmetric both cast grouping leading placing symmetric to trailing")
_OPERATORS: dict[str, tuple[TokenType, ...]] = {
    **{symbol: (_SINGLES[symbol],) for symbol in "()[]&^:,.-=><%|+/*#?"},
    **{
        symbol: (_KEYWORDS[symbol],)
        for symbol in words(
            ":: || >= <= <> != -> ->> => #> #>> && ~ ~* ~~ ~~* @> <@ @@ @? ?& ?| #- |/ ||/ ^@ -|- &< &>"
        )
    },
    ":=": (_KEYWORDS["=>"],),
    "@": (TokenType.GLOB,),
    "<<": (TokenType.LT, TokenType.LT),
    ">>": (TokenType.GT, TokenType.GT),
    "<<=": (TokenType.LT, TokenType.LTE),
    ">>=": (TokenType.GT, TokenType.GTE),
    "!~": (TokenType.NOT, TokenType.RLIKE),
    "!~*": (TokenType.NOT, TokenType.IRLIKE),
    "!~~": (TokenType.NOT, TokenType.LIKE),
    "!~~*": (TokenType.NOT, TokenType.ILIKE),
}
_PLAIN = (Kind.WORD, Kind.SYMBOL)
_LITERALS = (Kind.STRING, Kind.NUMBER, Kind.PARAMETER)
# Tokens that cannot end a construct, and tokens that cannot begin one. sqlglot does not always reject an opener that is
# followed by a closer.
_OPENERS = words(
    """, ( . :: + - / % ^ < > = <= >= <> != || -> ->> #> #>> ~ ~* ~~ ~~* !~ !~* !~~ !~~* @> <@ and or not like ilike in
    between where having on by limit offset when then else join union except intersect as over using from select
    table"""
)
_CLOSERS = words(
    """, ) ] . :: / % ^ < > = <= >= <> != || and or where having on order group limit offset when then union except
    intersect fetch window from is end as"""
)
_MAY_FOLLOW = {
    "(": _CLOSERS - words(", . :: ]"),
    "select": _CLOSERS - words(", . ::"),
}  # the closers that may follow an opener
# What may follow `)` and `(`: a list of columns and then its query, as in INSERT.
_AFTER_TWO_PARENTHESES = ("select", "with", "values", "table", "(")
_AFTER_SELECT_LIST = words("from where group having window union intersect except order limit offset fetch for into")
_DML = frozenset(("insert", "update", "delete", "merge"))
# The functions whose arguments can have a colon and RETURNING.
_JSON_CONSTRUCTORS = words("json_object json_array json_objectagg json_arrayagg")


def convert(source: str, tokens: Sequence[Token]) -> list[GlotToken]:
    """sqlglot's tokens for all tokens but the last. PgError for syntax that sqlglot accepts and PostgreSQL rejects."""
    return _Conversion(source, tokens).run()


def _is_bound(tokens: Sequence[Token], position: int) -> bool:
    """Whether the token is a number in the brackets after the name of a type: `x::int[3]`, `CAST(x AS text[][3])`."""
    if tokens[position].kind is not Kind.NUMBER or tokens[position + 1].value != "]":
        return False
    at = position - 2
    while tokens[at].value == "]" and at > 1:
        at -= 2 if tokens[at - 1].value == "[" else 3
    if tokens[at].value == ")":
        while tokens[at].value != "(" and at > 0:
            at -= 1
        at -= 1
    if tokens[at - 1].value == "." and at > 2:
        at -= 2
    return at > 0 and _is_name(tokens[at]) and tokens[at - 1].value in ("::", "as")


_BEFORE_VALUES = frozenset(("", "(", "default"))  # elsewhere VALUES is a name, unless rows follow


class _Conversion:
    """The state of one conversion."""

    __slots__ = (
        "_before",
        "_brackets",
        "_converted",
        "_distinct_on",
        "_in_cycle",
        "_json_constructors",
        "_parens",
        "_position",
        "_source",
        "_tokens",
    )

    def __init__(self, source: str, tokens: Sequence[Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._position = 0  # the index of the next token to convert
        self._converted: list[GlotToken] = []
        self._before = ""  # the last word or symbol; "" at the start and after a name, string, number or parameter
        self._parens = 0  # the number of open parentheses
        self._brackets = 0  # the number of open brackets
        self._distinct_on: list[int] = []  # the numbers of parentheses around each open one of DISTINCT ON
        self._json_constructors: list[int] = []  # the numbers of parentheses around the arguments of each open one
        self._in_cycle = False  # after SEARCH or CYCLE of a WITH item

    def run(self) -> list[GlotToken]:
        """Converts all tokens but the last."""
        tokens, size = self._tokens, len(self._tokens) - 1
        next_checkpoint = CHECKED_TOKENS
        while self._position < size:
            if self._position >= next_checkpoint:
                checkpoint()
                next_checkpoint = self._position + CHECKED_TOKENS
            token = tokens[self._position]
            width = 1
            if token.value == "operator" and _is_qualified_operator(tokens, self._position):
                self._position += 4  # OPERATOR(pg_catalog.+) is +
                token, width = tokens[self._position], 2
            self._position += width
            following = tokens[self._position]
            if self._before in _OPENERS and _cannot_follow(self._before, token):
                raise unexpected(self._source, token)
            if following.value == "." and self._is_type_schema(token):
                self._position += 1  # `x::pg_catalog.int4` is `x::int4`
            elif token.kind is Kind.WORD:
                self._add_word(token, following)
            elif token.kind is Kind.SYMBOL and token.value == "[" and _is_bound(tokens, self._position):
                self._add_symbol(token, tokens[self._position + 1])
                self._position += 1  # `x::int[3]` is `x::int[]`
            elif token.kind is Kind.SYMBOL:
                self._add_symbol(token, following)
            else:
                self._add_literal_or_name(token)
        if (
            (self._before in _OPENERS and self._before != "select")
            or self._parens
            or self._brackets
            or self._lacks_items()
        ):
            raise unexpected(self._source, tokens[-1])
        return self._converted

    def _add(self, type_: TokenType, text: str, start: int, end: int) -> None:
        self._converted.append(GlotToken(type_, text, 1, start + 1, start, end - 1))

    def _is_type_schema(self, token: Token) -> bool:
        """Whether the token, which a point follows, is the schema of a built-in type."""
        if self._before not in ("::", "as") or not _is_name(token):
            return False
        if token.value == "mz_catalog":
            after = self._position + 1
            return after < len(self._tokens) - 1 and self._tokens[after].value == "mz_timestamp"
        return token.value == "pg_catalog"

    def _add_word(self, token: Token, following: Token) -> None:
        _, value, start, end = token
        if value in _AFTER_SELECT_LIST and self._lacks_items():
            raise unexpected(self._source, token)
        type_ = _WORDS.get(value)
        if value == "over" and self._before != ")":  # the window of a call follows its parentheses
            type_ = None
        if value == "values" and following.value != "(" and self._before not in _BEFORE_VALUES:
            type_ = None
        is_label = self._before == "as" and value in RESERVED_WORDS and following.value != "materialized"
        if self._before == "." or is_label:
            self._add(TokenType.VAR, value, start, end)
            self._before = ""
        elif value in _PHRASE_HEADS and following.kind is Kind.WORD and (value, following.value) in _PHRASES:
            self._add(_PHRASES[value, following.value], f"{value} {following.value}", start, following.end)
            self._before = following.value
            self._position += 1
        elif type_ is None:
            self._check_name(token, following)
            self._in_cycle = self._in_cycle or (self._before == ")" and value in ("search", "cycle"))
            self._add(TokenType.VAR, value, start, end)
            self._before = value if value in _WORDS_AS_TEXT else ""
        elif value == "using" and following.value in ("<", ">"):  # ORDER BY x USING > is DESC
            self._position += 1
            if following.value == ">":
                self._add(TokenType.DESC, value, start, end)
                self._before = "desc"
        else:
            self._in_cycle = self._in_cycle and value not in ("using", "select")
            self._check_keyword(token, following)
            self._add(type_, value, start, end)
            self._before = value

    def _lacks_items(self) -> bool:
        """Whether the select list after DISTINCT is empty so far."""
        after_select = len(self._converted) > 1 and self._converted[-2].token_type is TokenType.SELECT
        return self._before == "distinct on" or (self._before == "distinct" and after_select)

    def _check_name(self, token: Token, following: Token) -> None:
        """PgError for a word that is neither a name nor a keyword inside a query."""
        value = token.value
        # WITHIN GROUP and EXCLUDE GROUP, in which the word is no clause
        is_text = (
            value == "group" and self._position > 1 and self._tokens[self._position - 2].value in ("within", "exclude")
        )
        is_text = is_text or (value in ("returning", "unique") and self._in_json_constructor())
        if value in RESERVED_WORDS and value not in _WORDS_AS_TEXT and not is_text:
            raise unexpected(self._source, following if value in _PHRASE_HEADS else token)
        if value in _DML and self._before == "(" and following.kind is Kind.WORD and _is_cte(self._converted):
            message = "WITH clause containing a data-modifying statement must be at the top level"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=token.start + 1)

    def _check_keyword(self, token: Token, following: Token) -> None:
        """PgError 42601 for a keyword that other dialects, and therefore sqlglot, accept at this place."""
        before, is_refused = self._before, False
        match token.value:
            case "into":
                raise PgError(SqlState.SYNTAX_ERROR, "SELECT ... INTO is not allowed here", position=token.start + 1)
            case "from":
                is_refused = before in ("(", ",")
            case "default":
                is_item = before in ("(", ",") and following.value in (",", ")")
                is_refused = not is_item and not self._in_cycle
            case "as":
                is_refused = before == "select"
        if is_refused:
            raise unexpected(self._source, token)

    def _add_symbol(self, token: Token, following: Token) -> None:
        _, value, start, end = token
        types = _OPERATORS.get(value)
        if types is None or (value == ":" and not self._brackets and not self._in_json_constructor()):
            raise _no_operator(self._source, token)
        if value == "(" and self._before == ")" and following.value not in _AFTER_TWO_PARENTHESES:
            raise unexpected(self._source, token)
        if value == "*" and self._before in ("select", ",", ".") and (_is_name(following) or following.value == "*"):
            raise unexpected(self._source, following)  # a star has no alias
        if value == "(" and self._before == "on" and self._is_distinct_on():
            self._distinct_on.append(self._parens)
        if value == "(" and self._position > 1 and self._tokens[self._position - 2].value in _JSON_CONSTRUCTORS:
            self._json_constructors.append(self._parens + 1)
        elif value == ")" and self._in_json_constructor():
            self._json_constructors.pop()
        self._parens += (value == "(") - (value == ")")
        self._brackets += (value == "[") - (value == "]")
        for first in types[:-1]:
            self._add(first, value[0], start, start + 1)
        self._add(types[-1], value, start, end)
        self._before = value
        if value == ")" and self._distinct_on and self._distinct_on[-1] == self._parens:
            self._distinct_on.pop()
            self._before = "distinct on"  # the select list may begin with a parenthesis

    def _in_json_constructor(self) -> bool:
        return bool(self._json_constructors) and self._json_constructors[-1] == self._parens

    def _is_distinct_on(self) -> bool:
        converted = self._converted
        return len(converted) > 1 and converted[-2].token_type is TokenType.DISTINCT

    def _add_literal_or_name(self, token: Token) -> None:
        """Adds a string, a number, a parameter or a quoted name."""
        kind, value, start, end = token
        position = self._position
        if kind in _LITERALS and position > 1 and self._tokens[position - 2].kind in _LITERALS:
            raise unexpected(self._source, token)
        self._before = ""
        if kind is Kind.STRING:
            self._add(TokenType.STRING, value, start, end)
        elif kind is Kind.IDENT:
            self._add(TokenType.IDENTIFIER, value, start, end)
        else:
            if kind is Kind.PARAMETER:
                self._add(TokenType.PARAMETER, "$", start, start + 1)
            elif value[0] == ".":
                value = "0" + value
            self._add(TokenType.NUMBER, value, start, end)


def _is_cte(converted: Sequence[GlotToken]) -> bool:
    """Whether these tokens, which end with an opening parenthesis, are followed by the query of a WITH."""
    return len(converted) > 1 and (converted[-2].token_type is TokenType.ALIAS or converted[-2].text == "materialized")


def _is_qualified_operator(tokens: Sequence[Token], position: int) -> bool:
    """Whether OPERATOR(pg_catalog.+), with any operator, starts at `position`."""
    values = [token.value for token in tokens[position + 1 : position + 6]]
    return len(values) == 5 and values[:3] == ["(", "pg_catalog", "."] and values[4] == ")"


def _is_name(token: Token) -> bool:
    return token.kind is Kind.IDENT or (token.kind is Kind.WORD and token.value not in RESERVED_WORDS)


def _cannot_follow(opener: str, token: Token) -> bool:
    if opener == "as":  # any word may be a label
        return token.kind in _LITERALS or (token.kind is Kind.SYMBOL and token.value != "(")
    if token.kind not in _PLAIN or token.value not in _CLOSERS:
        return False
    return token.value not in _MAY_FOLLOW.get(opener, ())


def _no_operator(source: str, token: Token) -> PgError:
    if all(c in "+-*/<>=~!@#%^&|`?" for c in token.value):
        message = f"operator does not exist: {token.value}"
        return PgError(SqlState.UNDEFINED_FUNCTION, message, position=token.start + 1)
    return unexpected(source, token)
