"""Parses the queries and expressions inside statements: the lexer's tokens to sqlglot trees.

sqlglot accepts many dialects and rejects little. It therefore never gets text, only the tokens that `glot_tokens` makes
from the lexer's, and its parser is restricted:
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
from server.sql.grammar.glot_tokens import convert
from server.sql.grammar.lexer import CHECKED_TOKENS, Token, unexpected

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

    def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """The star of TABLE has the position of that word, so that the words can be replaced by SELECT * FROM."""
        keyword = self._curr if self._is_table_query() else None
        query: exp.Expr | None = super()._parse_select(*args, **kwargs)
        if keyword is not None:
            first = query
            while isinstance(first, exp.SetOperation):
                first = first.this
            if isinstance(first, exp.Select):  # else it is no query, and refused
                first.expressions[0].update_positions(keyword)
        if isinstance(query, exp.Values) and self._curr.token_type in _AFTER_VALUES:
            query = self._parse_query_modifiers(_select_from(query))
        return query

    def _parse_derived_table_values(self, allow_value_synonym: bool = False) -> exp.Expr | None:
        """sqlglot supports no clauses and set operations after VALUES in parentheses, but an alias inside of them."""
        if not self._match_pair(TokenType.L_PAREN, TokenType.VALUES, advance=False):
            values: exp.Values | None = super()._parse_derived_table_values(allow_value_synonym)
            if values is not None and values.args.get("alias"):
                self.raise_error("unexpected alias")
            return values
        self._advance(2)
        rows = exp.Values(expressions=self._parse_csv(self._parse_value))
        if self._match(TokenType.R_PAREN):
            rows.set("alias", self._parse_table_alias())
            return rows
        query = self._parse_query_modifiers(self._parse_set_operations(_select_from(rows)))
        self._match_r_paren()
        return self._parse_subquery(query)  # type: ignore[no-any-return]

    def _parse_query_modifiers(self, this: exp.Expr | None) -> exp.Expr | None:
        """ORDER BY, LIMIT and OFFSET after a query in parentheses become clauses of that query, as in PostgreSQL."""
        query: exp.Expr | None = super()._parse_query_modifiers(this)
        if isinstance(query, exp.Subquery) and not query.args.get("alias"):
            _move_clauses(query)
        return query

    def _parse_limit(
        self, this: exp.Expr | None = None, top: bool = False, skip_limit_token: bool = False
    ) -> exp.Expr | None:
        """The number of LIMIT is any expression. sqlglot reads its % as PERCENT, and LIMIT #,# as in MySQL."""
        keyword = self._curr
        if top or skip_limit_token or not self._match(TokenType.LIMIT):
            return super()._parse_limit(this, top, skip_limit_token)  # type: ignore[no-any-return]
        number = exp.var("ALL") if self._match(TokenType.ALL) else self._parse_disjunction()
        if number is None:
            self.raise_error("expected a number of rows")
        if self._match(TokenType.COMMA):
            message, hint = "LIMIT #,# syntax is not supported", "Use separate LIMIT and OFFSET clauses."
            raise PgError(SqlState.SYNTAX_ERROR, message, hint=hint, position=keyword.start + 1)
        return exp.Limit(this=this, expression=number)

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
        select = _select_from(self._parse_derived_table_values())
        return self._parse_query_modifiers(self._parse_set_operations(select))

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


def _select_from(relation: exp.Expr | None) -> exp.Select:
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=relation))


def _move_clauses(outer: exp.Subquery) -> None:
    """Moves the clauses after parentheses into them. 42601 if the query in them has such a clause."""
    query = outer.this
    while isinstance(query, exp.Subquery) and not query.args.get("alias"):
        query = query.this
    if not isinstance(query, (exp.Select, exp.SetOperation)):
        return
    for name, title in (("order", "ORDER BY"), ("offset", "OFFSET"), ("limit", "LIMIT")):
        clause = outer.args.get(name)
        if clause is None:
            continue
        if query.args.get(name) is not None:
            position = next((n.meta["start"] + 1 for n in clause.walk() if "start" in n.meta), None)
            raise PgError(SqlState.SYNTAX_ERROR, f"multiple {title} clauses not allowed", position=position)
        outer.set(name, None)
        query.set(name, clause)


_ITEM_ENDS = (TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET)
_PLAIN_LITERALS = (TokenType.NUMBER, TokenType.STRING)
_AFTER_VALUES = (TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH)
_QUERY = (exp.Query, exp.Values)


def _run(source: str, tokens: Sequence[Token], method: Callable[[_Parser], exp.Expr | None]) -> exp.Expr:
    glot_tokens = convert(source, tokens)
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
