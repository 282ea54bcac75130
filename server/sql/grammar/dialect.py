"""The sqlglot dialect for PostgreSQL, which keeps names and values as written.

sqlglot's own PostgreSQL dialect is made for transpiling. It maps `pow`, `char_length` and `now` to its own classes and
drops the name, splits the text of intervals, and shifts array subscripts. The planner needs names (PostgreSQL names an
output column after the function) and values as written. In this dialect, functions stay `exp.Anonymous` with their name
and position, except those with their own grammar (CAST, EXTRACT, POSITION, SUBSTRING, TRIM, OVERLAY, and those of
`json_constructors`). INTERVAL keeps its string, `->` keeps its operand, and subscripts are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from protocol.pgwire.types import NETWORK_TYPES
from server.sql.grammar import json_constructors

_OWN_GRAMMAR = ("CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM", "OVERLAY")
_INTERVAL_ENDS = {  # the fields that can follow INTERVAL 'text', each with the fields that can follow it after TO
    "YEAR": ("MONTH",),
    "MONTH": (),
    "DAY": ("HOUR", "MINUTE", "SECOND"),
    "HOUR": ("MINUTE", "SECOND"),
    "MINUTE": ("SECOND",),
    "SECOND": (),
}
_CONSTANT_TYPES = PostgresParser.TYPE_TOKENS - {TokenType.INTERVAL, TokenType.VAR}


class PathMatch(exp.Expression, exp.Binary):
    """jsonb @@ path. sqlglot's class for this operator has other fields than its binary operators."""


class Within(exp.Expression, exp.Binary):
    """network <<= network."""


class Containing(exp.Expression, exp.Binary):
    """network >>= network."""


class SearchClause(exp.Expression):
    """SEARCH DEPTH or BREADTH FIRST BY expressions SET column, of a WITH item."""

    arg_types: ClassVar[dict[str, bool]] = {"breadth": True, "expressions": True, "column": True}


class CycleClause(exp.Expression):
    """CYCLE expressions SET column [TO value DEFAULT otherwise] USING path, of a WITH item."""

    arg_types: ClassVar[dict[str, bool]] = {
        "expressions": True,
        "column": True,
        "value": True,
        "otherwise": True,
        "path": True,
    }


# PostgreSQL's "any other operator": the same precedence as ||, left associative (manual, 4.1.6).
_OTHER_OPERATORS: dict[TokenType, type[exp.Expr]] = {
    TokenType.ARROW: exp.JSONExtract,
    TokenType.DARROW: exp.JSONExtractScalar,
    TokenType.HASH_ARROW: exp.JSONBExtract,
    TokenType.DHASH_ARROW: exp.JSONBExtractScalar,
    TokenType.PLACEHOLDER: exp.JSONBContains,
    TokenType.QMARK_AMP: exp.JSONBContainsAllTopKeys,
    TokenType.QMARK_PIPE: exp.JSONBContainsAnyTopKeys,
    TokenType.HASH_DASH: exp.JSONBDeleteAtPath,
    TokenType.AT_QMARK: exp.JSONBPathExists,
    TokenType.DAT: PathMatch,
    TokenType.AT_GT: exp.ArrayContainsAll,
    TokenType.LT_AT: exp.ArrayContainedBy,
    TokenType.DAMP: exp.ArrayOverlaps,
    TokenType.CARET_AT: exp.StartsWith,
    TokenType.RLIKE: exp.RegexpLike,
    TokenType.IRLIKE: exp.RegexpILike,
}
_PREFIX_OPERATORS: dict[TokenType, type[exp.Expr]] = {
    TokenType.RLIKE: exp.BitwiseNot,
    TokenType.PIPE_SLASH: exp.Sqrt,
    TokenType.DPIPE_SLASH: exp.Cbrt,
    TokenType.GLOB: exp.Abs,  # `trees` converts @ to this token
}


def _prefix(kind: type[exp.Expr]) -> Callable[[Any], exp.Expr]:
    """A prefix operator with lower precedence than + and *: ~ 1 + 2 is ~ (1 + 2)."""
    return lambda self: self.expression(kind(this=self._parse_term()))


def _infix(kind: type[exp.Expr]) -> Callable[[Any, Any, Any], exp.Expr]:
    return lambda self, left, right: self.expression(kind(this=left, expression=right))


def _negated(operator: exp.Expr) -> exp.Expr:
    """The operator that is the negation of another: x !~ ALL (y) is not NOT (x ~ ALL (y))."""
    operator.set("negate", True)
    return operator


class _Parser(PostgresParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: PostgresParser.FUNCTION_PARSERS[name] for name in _OWN_GRAMMAR},
        "EXISTS": lambda self: self.expression(exp.Exists(this=self._parse_exists_query())),
        **json_constructors.PARSERS,
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: parser
        for name, parser in PostgresParser.NO_PAREN_FUNCTION_PARSERS.items()
        if name in ("ANY", "CASE", "VARIADIC")
    }
    LAMBDAS: ClassVar[dict[Any, Callable[..., Any]]] = {  # without `->`, which is always an operator
        TokenType.FARROW: PostgresParser.LAMBDAS[TokenType.FARROW]
    }
    JSON_OPERATORS: ClassVar[dict[Any, Callable[..., Any]]] = {
        token: _infix(kind) for token, kind in _OTHER_OPERATORS.items()
    }
    RANGE_PARSERS: ClassVar[dict[Any, Callable[..., Any]]] = {
        token: parser for token, parser in PostgresParser.RANGE_PARSERS.items() if token not in _OTHER_OPERATORS
    }
    UNARY_PARSERS: ClassVar[dict[Any, Callable[..., Any]]] = {
        **PostgresParser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: self.expression(exp.Unary(this=self._parse_unary())),
        **{token: _prefix(kind) for token, kind in _PREFIX_OPERATORS.items()},
    }

    def _parse_exists_query(self) -> exp.Expr:
        """The argument of EXISTS. sqlglot supports neither VALUES nor TABLE nor more parentheses."""
        query: exp.Expr | None = self._parse_query_modifiers(
            self._parse_set_operations(self._parse_select(nested=True, parse_subquery_alias=False))
        )
        if query is None:
            self.raise_error("expected a query")
        assert query is not None
        return query

    def _parse_bitwise(self) -> exp.Expr | None:
        """As in sqlglot, with the operators !~, !~*, <<= and >>=, which are two tokens each."""
        this = self._parse_term()
        while True:
            if self._match_pair(TokenType.NOT, TokenType.RLIKE):
                this = _negated(self.expression(exp.RegexpLike(this=this, expression=self._parse_term())))
            elif self._match_pair(TokenType.NOT, TokenType.IRLIKE):
                this = _negated(self.expression(exp.RegexpILike(this=this, expression=self._parse_term())))
            elif self._match_set(self.BITWISE):
                this = self.expression(self.BITWISE[self._prev.token_type](this=this, expression=self._parse_term()))
            elif self._match(TokenType.DPIPE):
                this = self.expression(exp.DPipe(this=this, expression=self._parse_term()))
            elif self._match_pair(TokenType.LT, TokenType.LT):
                this = self.expression(exp.BitwiseLeftShift(this=this, expression=self._parse_term()))
            elif self._match_pair(TokenType.GT, TokenType.GT):
                this = self.expression(exp.BitwiseRightShift(this=this, expression=self._parse_term()))
            elif self._match_pair(TokenType.LT, TokenType.LTE):
                this = self.expression(Within(this=this, expression=self._parse_term()))
            elif self._match_pair(TokenType.GT, TokenType.GTE):
                this = self.expression(Containing(this=this, expression=self._parse_term()))
            elif self._match_set(self.JSON_OPERATORS):
                this = self.JSON_OPERATORS[self._prev.token_type](self, this, self._parse_term())
            else:
                return this

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        """CUBE or ROLLUP. The keys can be any expressions; sqlglot does not accept comparisons."""
        for token, kind in ((TokenType.CUBE, exp.Cube), (TokenType.ROLLUP, exp.Rollup)):
            if self._match(token):
                return self.expression(kind(expressions=self._parse_wrapped_csv(self._parse_assignment)))
        return None

    def _parse_grouping_set(self) -> exp.Expr | None:
        return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_assignment()

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        """Parses DATE 'text'::type as (DATE 'text')::type."""
        start = self._index
        if self._curr and self._next and self._curr.text in NETWORK_TYPES and self._next.token_type == TokenType.STRING:
            named = exp.DataType(this=exp.DType.USERDEFINED, kind=self._parse_id_var())
            return self._parse_column_ops(self.expression(exp.Cast(this=self._parse_string(), to=named)))
        if self._curr and self._curr.token_type in _CONSTANT_TYPES:
            type = self._parse_types(check_func=True, allow_identifiers=False)
            if isinstance(type, exp.DataType) and self._curr and self._curr.token_type == TokenType.STRING:
                return self._parse_column_ops(self.expression(exp.Cast(this=self._parse_string(), to=type)))
            self._retreat(start)
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> exp.Interval | None:
        """INTERVAL 'text' [field [TO field [(digits)]]]. The text is unchanged; the fields are a Var."""
        if not (
            self._curr and self._curr.token_type == TokenType.INTERVAL and self._next.token_type == TokenType.STRING
        ):
            return None
        self._advance()
        text = self._parse_string()
        fields: list[str] = []
        if self._curr and (first := self._curr.text.upper()) in _INTERVAL_ENDS:
            fields.append(first)
            self._advance()
            if _INTERVAL_ENDS[first] and self._match_text_seq("TO"):
                if self._curr.text.upper() not in _INTERVAL_ENDS[first]:
                    self.raise_error("expected a smaller field")
                fields.append(self._curr.text.upper())
                self._advance()
        unit = exp.Var(this=" TO ".join(fields)) if fields else None
        digits = None
        if fields and fields[-1] == "SECOND" and self._match(TokenType.L_PAREN):
            digits = self._parse_number()
            self._match_r_paren()
        return exp.Interval(this=text, unit=unit, digits=digits)


class TidewirePostgres(Postgres):
    """The dialect to pass to sqlglot as `read=`. `bind` expects trees of this dialect."""

    INDEX_OFFSET = 0
    Parser = _Parser
