"""The keys of an index, parsed from their SQL text in the catalog: columns of its relation or expressions over them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.indexes import Index
from catalog.objects.tables import Table
from catalog.objects.views import View
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT2, INT4, INT8, PgType, parse_type
from server.sql.bind import Binder, PlanContext, relation_of
from server.sql.cached_texts import cached_by_length
from server.sql.coerce import integer_literal
from server.sql.columns import free_columns
from server.sql.expressions import Column as BoundColumn
from server.sql.expressions import ColumnRef, Expression, Literal
from server.sql.grammar.lexer import Kind, Token, tokenize
from server.sql.grammar.parse import parse_expression
from server.sql.grammar.statements.parts import Expr
from server.sql.scope import Entry, Scope

_PLAIN = re.compile(r'[a-z_][a-z0-9_$]*|"(?:[^"]|"")+"')
_SPECIAL_FORMS = frozenset(("cast", "coalesce", "nullif", "greatest", "least", "extract", "row", "exists", "array"))
_NOTHING = PlanContext(CatalogState({}, {}, {}, 1), "", (), "")


def key_column(key: str, columns: tuple[Column, ...]) -> int | None:
    """The number, from 0, of the column that a key names; None for an expression."""
    text = key.strip()
    name = text
    if _PLAIN.fullmatch(text):
        name = text[1:-1].replace('""', '"') if text.startswith('"') else text
    return next((number for number, column in enumerate(columns) if column.name == name), None)


@cached_by_length((500, 4_096), (10_000, 128), length=lambda columns, keys: len(columns) + sum(map(len, keys)))
def index_keys(columns: tuple[Column, ...], keys: tuple[str, ...]) -> tuple[int | Expression, ...]:
    """Each of `keys` as a column number, or as an expression over `columns`, in which a column's id is its number + 1.

    Raises PgError if a key is not a valid expression over the columns.
    """
    found = (key_column(key, columns) for key in keys)
    return tuple(
        number if number is not None else _bound(key, columns) for key, number in zip(keys, found, strict=True)
    )


def _bound(key: str, columns: tuple[Column, ...]) -> int | Expression:
    return bound_key(columns, parse_expression(key))


def bound_key(
    columns: tuple[Column, ...],
    expression: Expr,
    parameters: StatementParameters | None = None,
    context: PlanContext = _NOTHING,
) -> int | Expression:
    """As one of `index_keys`, for a parsed expression, so that errors have its position.

    `context` resolves the names of types in an expression that is no stored text.
    """
    binder, scope, _ = _over(columns, expression, "index expressions", parameters, context)
    bound = binder.expression(expression.tree, scope)
    return bound.column.id - 1 if isinstance(bound, ColumnRef) else bound


def bound_condition(
    columns: tuple[Column, ...],
    expression: Expr,
    parameters: StatementParameters | None = None,
    context: PlanContext = _NOTHING,
) -> Expression:
    """The condition of an index, over `columns` as the expressions of `index_keys`. PgError. `context`: `bound_key`."""
    binder, scope, _ = _over(columns, expression, "index predicates", parameters, context)
    return binder.condition(expression.tree, scope, "WHERE")


def stored_condition(columns: tuple[Column, ...], expression: Expr, context: PlanContext) -> tuple[Expression, str]:
    """As `bound_condition`, and the text for the catalog, in which types are named by id.

    0A000 if it names a type that is of none of the columns that it reads: the type could be dropped alone.
    """
    binder, scope, _ = _over(columns, expression, "index predicates", None, context)
    bound = binder.condition(expression.tree, scope, "WHERE")
    if not binder.types <= _enums([columns[column.id - 1] for column in free_columns(bound)]).keys():
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "an index predicate that names a user-defined type of none of its columns is not supported",
            hint="Write the literal without a cast.",
            position=expression.position,
        )
    return bound, binder.stored_text(expression)


def unqualified(expression: Expr, schema: str, relation: str) -> Expr:
    """The expression with the syntax tree's columns `relation.column` and `schema.relation.column` as `column`."""
    tree = expression.tree.copy()
    for column in _qualified(tree, schema, relation):
        column.set("table", None)
        column.set("db", None)
    return replace(expression, tree=tree)


def unqualified_text(text: str, schema: str, relation: str) -> str:
    """The text of an expression with `column` in place of `relation.column` and `schema.relation.column`."""
    found = _qualified(parse_expression(text).tree, schema, relation) if text else []
    spans = [(column.parts[0].meta["start"], column.parts[-1].meta["start"]) for column in found]
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text


def _qualified(tree: exp.Expr, schema: str, relation: str) -> list[exp.Column]:
    qualifiers = ([relation], [schema, relation])
    return [column for column in tree.find_all(exp.Column) if [part.name for part in column.parts[:-1]] in qualifiers]


@cached_by_length((500, 1_024), (10_000, 128), length=lambda columns, condition: len(columns) + len(condition))
def index_condition(columns: tuple[Column, ...], condition: str) -> Expression | None:
    """As `bound_condition`, for the text in the catalog; None if it is empty."""
    return bound_condition(columns, parse_expression(condition)) if condition else None


def bound_columns(columns: tuple[Column, ...]) -> tuple[BoundColumn, ...]:
    """The columns that the expressions of `index_keys` name."""
    return _over(columns, None, "")[2]


@dataclass(frozen=True, slots=True)
class StatementParameters:
    """The parameters of the statement that names keys of indexes.

    `types`: of each parameter; extended and completed by what the keys show of them. `values`: if they are known,
    expressions have literals instead of parameters.
    """

    types: list[PgType | None]
    values: Sequence[object] | None = None


class _KeyBinder(Binder):
    """Binds keys and conditions of indexes. `given` None: parameters are not allowed."""

    def __init__(self, context: PlanContext, given: StatementParameters | None, text: str, offset: int) -> None:
        super().__init__(context, None if given is None else given.types, text=text, offset=offset)
        self._values = None if given is None else given.values
        if given is not None:
            self.parameters = given.types

    def parameter(self, index: int, position: int | None) -> Expression:
        parameter = super().parameter(index, position)
        if self._values is None:
            return parameter
        value = self._values[index]
        if isinstance(value, int) and parameter.type in (INT2, INT4, INT8):
            return integer_literal(str(value), position)  # drivers send the smallest type that has the value
        return Literal(value, self.literal_type(value, parameter.type), position)


def _over(
    columns: tuple[Column, ...],
    expression: Expr | None,
    clause: str,
    parameters: StatementParameters | None = None,
    context: PlanContext = _NOTHING,
) -> tuple[Binder, Scope, tuple[BoundColumn, ...]]:
    text, offset = ("", 0) if expression is None else (expression.text, expression.offset)
    binder = _KeyBinder(context, parameters, text, offset)
    binder.known_types = _enums(columns)
    scan = relation_of(binder, Table(ObjectId("keys"), ObjectId(""), "", columns))
    scope = Scope([Entry(column.name, ColumnRef(column), None) for column in scan.columns], clause=clause)
    return binder, scope, scan.columns


def _enums(columns: Sequence[Column]) -> dict[ObjectId, PgType]:
    """The enumerated types of columns, and of the elements of arrays, by id."""
    types = (parse_type(column.type) for column in columns)
    scalars = (type.element or type for type in types)
    return {ObjectId(type.enum.id): type for type in scalars if type.enum is not None}


def is_computed(index: Index, state: CatalogState) -> bool:
    """Whether Spark computes the index: it is on a view, or a key is an expression."""
    relation = state.relation(index.on)
    return isinstance(relation, View) or not all(isinstance(k, int) for k in index_keys(relation.columns, index.keys))


DESCENDING, NULLS_FIRST = 1, 2
"""The bits of pg_index.indoption."""


def key_texts(index: Index, keys: tuple[str, ...]) -> list[str]:
    """`keys`, the texts of the keys of an index, with their operator classes and orders as pg_get_indexdef has them."""
    classes = index.classes or ("",) * len(keys)
    options = index.options or (0,) * len(keys)
    return [
        f"{key}{f' {name}' if name else ''}{_ORDERS[option]}"
        for key, name, option in zip(keys, classes, options, strict=True)
    ]


_ORDERS = {
    0: "",
    NULLS_FIRST: " NULLS FIRST",
    DESCENDING: " DESC NULLS LAST",
    DESCENDING | NULLS_FIRST: " DESC",
}


def ending_text(index: Index) -> str:
    """The text after the keys in the definition of an index."""
    included = f" INCLUDE ({', '.join(index.included)})" if index.included else ""
    return included + ("" if index.nulls_distinct else " NULLS NOT DISTINCT")


def key_text(key: str) -> str:
    """An expression that is a key of an index as pg_get_indexdef has it: a call of a function has no parentheses."""
    inner = _innermost(key)
    return inner if called_function(inner) is not None else f"({inner})"


def called_function(key: str) -> str | None:
    """The name of the function that an expression calls; None if it is none, or has more than a call."""
    tokens = [token for token in tokenize(key) if token.kind is not Kind.END]
    if len(tokens) < 3 or tokens[0].kind not in (Kind.WORD, Kind.IDENT) or tokens[1].value != "(":
        return None
    is_call = tokens[-1].value == ")" and _is_pair(tokens[1:])
    return str(tokens[0].value) if is_call and tokens[0].value not in _SPECIAL_FORMS else None


def _is_pair(tokens: Sequence[Token]) -> bool:
    """Whether the first token is a parenthesis that the last one closes."""
    depth = 0
    for token in tokens[:-1]:
        depth += {"(": 1, ")": -1}.get(token.value, 0) if token.kind is Kind.SYMBOL else 0
        if depth == 0:
            return False
    return bool(tokens) and tokens[-1].kind is Kind.SYMBOL and tokens[-1].value == ")"


def _without_parentheses(text: str) -> str | None:
    """The text between the parentheses around an expression; None if there are none around all of it."""
    tokens = [token for token in tokenize(text) if token.kind is not Kind.END]
    if len(tokens) < 3 or not _is_pair(tokens):
        return None
    return text[tokens[0].end : tokens[-1].start].strip()


def condition_text(condition: str) -> str:
    """The condition of an index as pg_get_expr has it: without parentheses if it is a column. "" without one."""
    if not condition:
        return ""
    inner = _innermost(condition)
    return inner if _PLAIN.fullmatch(inner) else f"({inner})"


def _innermost(text: str) -> str:
    """An expression without the parentheses around it."""
    while (bare := _without_parentheses(text)) is not None:
        text = bare
    return text
