"""Parses the queries and expressions inside statements: the lexer's tokens to sqlglot trees.

sqlglot accepts many dialects and rejects little; PostgreSQL's scanner and keywords are stricter. sqlglot therefore
never gets text, only tokens that are made from the lexer's:
- Only PostgreSQL's keywords become keywords (`qualify`, `pivot`, `top` are names), and its reserved words never become
  names. Names are already folded and strings decoded. Operators that PostgreSQL lacks are rejected.
- Each token keeps its position in the client's text, so errors and identifiers (`meta["start"]`) have positions.
- Syntax that sqlglot would keep unparsed (`Command`) or warn about is an error.
- sqlglot backtracks, in the worst case exponentially often (`array[array[array[...`). A budget limits this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token as GlotToken
from sqlglot.tokenizer_core import TokenType

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.checkpoint import checkpoint
from server.sql.grammar.dialect import CycleClause, SearchClause, TidewirePostgres
from server.sql.grammar.lexer import CHECKED_TOKENS, RESERVED_WORDS, Kind, Token, syntax_error, words

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # `_Parser` raises an error instead of a warning

# The backtracking budget of a statement, in tokens that sqlglot may read again, is the sum of
REREAD_MIN = 20_000  # a constant,
REREAD_FACTOR = 100  # this for each of its first REREAD_MIN tokens,
LONG_REREAD_FACTOR = 5  # and this for each of its tokens. Real queries need less than 5 per token.


class _Dialect(TidewirePostgres):
    def tokenize(self, sql: str, dialect: object = None) -> list[GlotToken]:
        """Keeps sqlglot from tokenizing a type's name as SQL text (`"int; drop"`, `tinyint`)."""
        return []


_DIALECT = _Dialect()
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
    "@": (TokenType.GLOB,),
    "<<": (TokenType.LT, TokenType.LT),
    ">>": (TokenType.GT, TokenType.GT),
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
_DML = frozenset(("insert", "update", "delete", "merge"))


def parse_query(source: str, tokens: Sequence[Token]) -> exp.Expr:
    """The tree of a SELECT, VALUES, TABLE, WITH or set operation.

    `tokens` are those of the query, followed by one more token, at which an unexpected end is reported.
    Raises PgError 42601 (syntax), 0A000 (FOR UPDATE, data-modifying WITH), 54001 (too deeply nested).
    """
    if tokens[0].value == "(":
        tree = _run(source, tokens, lambda parser: parser._parse_statement())
    else:
        tree = _run(source, tokens, lambda parser: parser._parse_query_modifiers(parser._parse_select()))
    if isinstance(tree, _QUERY) and all(isinstance(cte.this, _QUERY) for cte in tree.find_all(exp.CTE)):
        return tree
    raise unexpected(source, next((t for t in tokens if t.value not in ("(", "with", "values", "table")), tokens[-1]))


def parse_expression(source: str, tokens: Sequence[Token]) -> exp.Expr:
    """The tree of one scalar expression; `tokens` as for `parse_query`."""
    return _run(source, tokens, lambda parser: parser._parse_disjunction())


def parse_select_item(source: str, tokens: Sequence[Token]) -> exp.Expr:
    """The tree of one item of a RETURNING list, which may have an alias."""
    return _run(source, tokens, lambda parser: parser._parse_expression())


def parse_order_term(source: str, tokens: Sequence[Token]) -> exp.Expr:
    """The `exp.Ordered` of one term of an ORDER BY."""
    return _run(source, tokens, lambda parser: parser._parse_ordered())


def release(tree: exp.Expr) -> None:
    """Breaks the reference cycles of a tree that is no longer used, so that its memory is freed immediately.

    Each node refers to its parent. The cycle collector runs too rarely: many trees of 100 MB could accumulate first.
    """
    for node in tree.walk():
        node.parent = None


def unexpected(source: str, token: Token) -> PgError:
    """PostgreSQL's 42601 for an unexpected token."""
    if token.kind is Kind.END:
        return PgError(SqlState.SYNTAX_ERROR, "syntax error at end of input", position=len(source) + 1)
    return syntax_error("syntax error", source[token.start : token.end], token.start)


def not_supported(what: str, token: Token, hint: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} is not supported", hint=hint, position=token.start + 1)


def into_not_allowed(token: Token) -> PgError:
    """PostgreSQL's 42601 for the INTO of a SELECT that is part of another statement."""
    return PgError(SqlState.SYNTAX_ERROR, "SELECT ... INTO is not allowed here", position=token.start + 1)


def too_complex() -> PgError:
    return PgError(
        SqlState.STATEMENT_TOO_COMPLEX,
        "stack depth limit exceeded",
        hint="Write the statement with less nesting.",
    )


class _Parser(TidewirePostgres.Parser):  # type: ignore[misc, valid-type]
    """sqlglot's parser with exact error positions, without its fallbacks, and with a backtracking budget."""

    __slots__ = ("_next_checkpoint", "_rereads_left", "furthest")

    def __init__(self, size: int) -> None:
        super().__init__(dialect=_DIALECT)
        self._rereads_left = REREAD_MIN + REREAD_FACTOR * min(size, REREAD_MIN) + LONG_REREAD_FACTOR * size
        self._next_checkpoint = CHECKED_TOKENS
        self.furthest = -1  # the greatest index in the source of a token at which an error was raised

    @property
    def position(self) -> int:
        """The index in the source of the next token."""
        return self._curr.start if self._curr else len(self.sql)

    def raise_error(self, message: str, token: GlotToken | None = None) -> None:
        """Records the position. If several alternatives fail, the error of the one that read furthest is reported."""
        at = token if message.startswith("Found multiple") else self._curr
        self.furthest = max(self.furthest, at.start if at else len(self.sql))
        raise ParseError(message, errors=[{"description": message}])

    def _advance(self, times: int = 1) -> None:
        if self._index >= self._next_checkpoint:
            checkpoint()
            self._next_checkpoint = self._index + CHECKED_TOKENS
        super()._advance(times)

    def _retreat(self, index: int) -> None:
        checkpoint()
        self._rereads_left -= self._index - index
        if self._rereads_left < 0:
            raise too_complex()
        super()._retreat(index)

    def _warn_unsupported(self) -> None:
        self.raise_error("unsupported syntax", self._prev)

    def _parse_string_as_identifier(self) -> None:
        """Returns None: in PostgreSQL, a string is never a name."""

    def _parse_user_defined_type(self, identifier: exp.Identifier) -> exp.DataType:
        """The parts of a qualified name are in `meta["parts"]`, and its end in `meta["end"]`."""
        parts = [identifier.name]
        while self._match(TokenType.DOT):
            parts.append(self._curr.text)
            self._advance()
            end = self._prev.end
            identifier = exp.Identifier(this=".".join(parts), quoted=True).update_positions(identifier)
            identifier.meta.update(parts=tuple(parts), end=end)
        return exp.DataType(this=exp.DType.USERDEFINED, kind=identifier)

    def _parse_join(self, *args: Any, **kwargs: Any) -> exp.Join | None:
        """Requires ON or USING, unless the join is CROSS or NATURAL. sqlglot would make it a cross join."""
        comma = self._curr.token_type is TokenType.COMMA
        join: exp.Join | None = super()._parse_join(*args, **kwargs)
        if join is None or comma:
            return join
        if join.method == "NATURAL" or join.kind == "CROSS":
            if join.args.get("on") or join.args.get("using"):
                self.raise_error("unexpected condition")
            return join
        if not (join.args.get("on") or join.args.get("using")):
            self.raise_error("expected ON or USING")
        if join.args.get("using") and self._match(TokenType.ALIAS):
            join.set("alias", self._parse_id_var())
        return join

    def _parse_primary(self) -> exp.Expr | None:
        """A point before a number is not a part of it: the lexer reads `.5` as one number."""
        if self._match_pair(TokenType.DOT, TokenType.NUMBER, advance=False):
            self.raise_error("unexpected point")
        return super()._parse_primary()  # type: ignore[no-any-return]

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        """Requires ORDER BY in WITHIN GROUP ()."""
        index = self._index
        if self._match_text_seq("WITHIN", "GROUP", "("):
            if not self._match(TokenType.ORDER_BY, advance=False):
                self.raise_error("expected ORDER BY")
            self._retreat(index)
        return super()._parse_window(this, alias)  # type: ignore[no-any-return]

    def _parse_cte(self) -> exp.CTE | exp.FunctionSpecification | None:
        """An item of WITH, with SEARCH and CYCLE as its arguments `search` and `cycle`."""
        item: exp.CTE | exp.FunctionSpecification | None = super()._parse_cte()
        if isinstance(item, exp.CTE):
            item.set("search", self._parse_search())
            item.set("cycle", self._parse_cycle())
        return item

    def _parse_search(self) -> SearchClause | None:
        if not self._match_text_seq("SEARCH"):
            return None
        breadth = self._match_text_seq("BREADTH")
        if not breadth and not self._match_text_seq("DEPTH"):
            self.raise_error("expected BREADTH or DEPTH")
        self._require("FIRST", "BY")
        columns = self._parse_csv(self._parse_name)
        self._require("SET")
        return SearchClause(breadth=bool(breadth), expressions=columns, column=self._parse_name())

    def _parse_cycle(self) -> CycleClause | None:
        if not self._match_text_seq("CYCLE"):
            return None
        columns = self._parse_csv(self._parse_name)
        self._require("SET")
        mark = self._parse_name()
        value: exp.Expr = exp.true()
        otherwise: exp.Expr = exp.false()
        if self._match_text_seq("TO"):
            value = self._parse_constant()
            self._require("DEFAULT")
            otherwise = self._parse_constant()
        self._require("USING")
        path = self._parse_name()
        return CycleClause(expressions=columns, column=mark, value=value, otherwise=otherwise, path=path)

    def _require(self, *words: str) -> None:
        for word in words:
            if not self._match_text_seq(word):
                self.raise_error(f"expected {word}")

    def _parse_name(self) -> exp.Expr:
        name: exp.Expr | None = self._parse_id_var(any_token=False)
        if name is None:
            self.raise_error("expected a name")
        assert name is not None
        return name

    def _parse_constant(self) -> exp.Expr:
        """A literal, which may have a type in front of it."""
        value: exp.Expr | None = self._parse_type()
        literal = value.this if isinstance(value, exp.Cast) else value
        if not isinstance(literal, (exp.Literal, exp.Boolean, exp.Null, exp.Interval)):
            self.raise_error("expected a constant")
        assert value is not None
        return value

    def _parse_table_sample(self, as_modifier: bool = False) -> exp.TableSample | None:
        """Requires a sampling method with an argument."""
        index = self._index
        if self._match(TokenType.TABLE_SAMPLE):
            if not self._curr or self._match(TokenType.L_PAREN, advance=False):
                self.raise_error("expected a sampling method")
            self._advance()
            if not self._match(TokenType.L_PAREN) or self._match(TokenType.R_PAREN, advance=False):
                self.raise_error("expected the argument of a sampling method")
            self._retreat(index)
        return super()._parse_table_sample(as_modifier)  # type: ignore[no-any-return]

    def _parse_statement(self) -> exp.Expr | None:
        """Parses VALUES as SELECT * FROM (VALUES ...), because sqlglot does not support WITH before VALUES."""
        if not self._match(TokenType.VALUES, advance=False):
            return super()._parse_statement()  # type: ignore[no-any-return]
        rows = exp.From(this=self._parse_derived_table_values())
        select = exp.Select(expressions=[exp.Star()], from_=rows)
        return self._parse_query_modifiers(self._parse_set_operations(select))  # type: ignore[no-any-return]

    def _parse_value(self, values: bool = True) -> exp.Tuple:
        """A row of VALUES. It must be in parentheses, and its items have no aliases."""
        if not self._match(TokenType.L_PAREN):
            self.raise_error("expected a row")
        items = self._parse_csv(self._parse_value_item)
        if not items:
            self.raise_error("expected an expression")
        self._match_r_paren()
        row: exp.Tuple = self.expression(exp.Tuple(expressions=items))
        return row

    def _parse_value_item(self) -> exp.Expr | None:
        if self._next.token_type in _ITEM_ENDS and self._match(TokenType.DEFAULT):
            return exp.var("DEFAULT")
        value: exp.Expr | None = self._parse_disjunction()
        return value

    def _parse_select_or_expression(self, alias: bool = False) -> exp.Expr | None:
        return self._parse_plain_literal() or super()._parse_select_or_expression(alias)

    def _parse_disjunction(self) -> exp.Expr | None:
        return self._parse_plain_literal() or super()._parse_disjunction()

    def _parse_plain_literal(self) -> exp.Expr | None:
        """A number or string that is a whole list item; None for anything else.

        This makes long INSERTs, IN lists and arrays of literals fast.
        """
        token = self._curr
        if token.token_type not in _PLAIN_LITERALS or self._next.token_type not in _ITEM_ENDS:
            return None
        self._advance()
        literal = exp.Literal(this=token.text, is_string=token.token_type is TokenType.STRING)
        return literal.update_positions(token)


_ITEM_ENDS = (TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET)
_PLAIN_LITERALS = (TokenType.NUMBER, TokenType.STRING)
_QUERY = (exp.Query, exp.Values)


def _run(source: str, tokens: Sequence[Token], method: Callable[[_Parser], exp.Expr | None]) -> exp.Expr:
    glot_tokens = _converted(source, tokens)
    parser = _Parser(len(tokens))
    try:
        trees: list[exp.Expr | None] = parser._parse(method, glot_tokens, source)
    except ParseError:
        raise unexpected(source, next((t for t in tokens if t.end > parser.furthest), tokens[-1])) from None
    except ValueError:  # sqlglot makes no name of an empty string, as in f('' => 1)
        raise unexpected(source, next((t for t in tokens if t.end > parser.position), tokens[-1])) from None
    except RecursionError:
        raise too_complex() from None
    if len(trees) != 1 or trees[0] is None:  # sqlglot ends before a word such as ELSE
        raise unexpected(source, tokens[0])
    return trees[0]


def _check_into(source: str, token: Token, before: str, following: Token) -> None:
    raise into_not_allowed(token)


def _check_from(source: str, token: Token, before: str, following: Token) -> None:
    if before in ("(", ","):
        raise unexpected(source, token)


def _check_default(source: str, token: Token, before: str, following: Token) -> None:
    if before not in ("(", ",") or following.value not in (",", ")"):
        raise unexpected(source, token)


def _check_as(source: str, token: Token, before: str, following: Token) -> None:
    if before == "select":
        raise unexpected(source, token)


# Checks of keywords that sqlglot would accept as in other dialects, or that denote features that Tidewire lacks.
_REFUSED: dict[str, Callable[[str, Token, str, Token], None]] = {
    "into": _check_into,
    "from": _check_from,
    "default": _check_default,
    "as": _check_as,
}


def _qualified_operator(tokens: Sequence[Token], position: int) -> int | None:
    """The index of the operator in OPERATOR(pg_catalog.+) if such a construct starts at `position`; otherwise None."""
    values = [token.value for token in tokens[position + 1 : position + 6]]
    if len(values) == 5 and values[:3] == ["(", "pg_catalog", "."] and values[4] == ")":
        return position + 4
    return None


def _is_cte(converted: Sequence[GlotToken]) -> bool:
    """Whether these tokens, which end with an opening parenthesis, are followed by the query of a WITH."""
    return len(converted) > 1 and (converted[-2].token_type is TokenType.ALIAS or converted[-2].text == "materialized")


def _converted(source: str, tokens: Sequence[Token]) -> list[GlotToken]:
    """sqlglot's tokens for all tokens but the last. PgError for syntax that sqlglot accepts and PostgreSQL rejects."""
    converted: list[GlotToken] = []
    parens = brackets = 0
    before = ""  # the previous word or symbol; "" at the start and after a name, string, number or parameter
    position, size = 0, len(tokens) - 1
    next_checkpoint = CHECKED_TOKENS
    in_cycle = False  # after SEARCH or CYCLE of a WITH item
    skipped = -1  # the index of the closing parenthesis of OPERATOR(pg_catalog.+), which becomes +
    while position < size:
        if position >= next_checkpoint:
            checkpoint()
            next_checkpoint = position + CHECKED_TOKENS
        if tokens[position].value == "operator" and (at := _qualified_operator(tokens, position)) is not None:
            position, skipped = at, at + 1
        token = tokens[position]
        kind, value, start, end = token
        position += 1 + (position + 1 == skipped)
        following = tokens[position]
        if before in _OPENERS and _cannot_follow(before, token):
            raise unexpected(source, token)
        is_schema = value == "pg_catalog" or (
            value == "mz_catalog" and position + 1 < size and tokens[position + 1].value == "mz_timestamp"
        )
        if is_schema and following.value == "." and before in ("::", "as") and _is_name(token):
            position += 1  # `x::pg_catalog.int4` is `x::int4`
            continue
        if kind is Kind.WORD:
            type_ = _WORDS.get(value)
            if value == "over" and before != ")":  # the window of a call follows its parentheses
                type_ = None
            if before == "." or (before == "as" and value in RESERVED_WORDS and following.value != "materialized"):
                type_, before = TokenType.VAR, ""
            elif value in _PHRASE_HEADS and following.kind is Kind.WORD and (value, following.value) in _PHRASES:
                type_, before = _PHRASES[value, following.value], following.value
                value, end = f"{value} {following.value}", following.end
                position += 1
            elif type_ is None:
                # WITHIN GROUP and EXCLUDE GROUP, in which the word is no clause
                is_text = value == "group" and position > 1 and tokens[position - 2].value in ("within", "exclude")
                if value in RESERVED_WORDS and value not in _WORDS_AS_TEXT and not is_text:
                    raise unexpected(source, following if value in _PHRASE_HEADS else token)
                if value in _DML and before == "(" and following.kind is Kind.WORD and _is_cte(converted):
                    message = "WITH clause containing a data-modifying statement must be at the top level"
                    raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=start + 1)
                in_cycle = in_cycle or (before == ")" and value in ("search", "cycle"))
                type_, before = TokenType.VAR, value if value in _WORDS_AS_TEXT else ""
            elif value == "using" and following.value in ("<", ">"):  # ORDER BY x USING > is DESC
                position += 1
                if following.value == "<":
                    continue
                type_ = TokenType.DESC
                before = "desc"
            else:
                in_cycle = in_cycle and value not in ("using", "select")
                if (refused := _REFUSED.get(value)) and not (in_cycle and value == "default"):
                    refused(source, token, before, following)
                before = value
        elif kind is Kind.SYMBOL:
            types = _OPERATORS.get(value)
            if types is None or (value == ":" and not brackets):
                raise _no_operator(source, token)
            if value == "(" and before == ")" and following.value not in ("select", "with", "values", "table", "("):
                raise unexpected(source, token)
            if value == "*" and before in ("select", ",", ".") and (_is_name(following) or following.value == "*"):
                raise unexpected(source, following)  # a star has no alias
            parens += (value == "(") - (value == ")")
            brackets += (value == "[") - (value == "]")
            for first in types[:-1]:
                converted.append(GlotToken(first, value[0], 1, start + 1, start, start))
            type_ = types[-1]
            before = value
        else:
            if kind in _LITERALS and position > 1 and tokens[position - 2].kind in _LITERALS:
                raise unexpected(source, token)
            before = ""
            if kind is Kind.STRING:
                type_ = TokenType.STRING
            elif kind is Kind.IDENT:
                type_ = TokenType.IDENTIFIER
            else:
                type_ = TokenType.NUMBER
                if kind is Kind.PARAMETER:
                    converted.append(GlotToken(TokenType.PARAMETER, "$", 1, start + 1, start, start))
                elif value[0] == ".":
                    value = "0" + value
        converted.append(GlotToken(type_, value, 1, start + 1, start, end - 1))
    if (before in _OPENERS and before != "select") or parens or brackets:
        raise unexpected(source, tokens[-1])
    return converted


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
