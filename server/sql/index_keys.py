"""The keys of an index, parsed from their SQL text in the catalog: columns of its relation or expressions over them."""

from __future__ import annotations

import re
from functools import lru_cache

from catalog.objects import Column, Index, ObjectId, Table, View
from catalog.state import CatalogState
from server.sql.bind import Binder, PlanContext, relation_of
from server.sql.expressions import ColumnRef, Expression
from server.sql.grammar.parse import parse_expression
from server.sql.scope import Entry, Scope

_PLAIN = re.compile(r'[a-z_][a-z0-9_$]*|"(?:[^"]|"")+"')
_NOTHING = PlanContext(CatalogState({}, {}, {}, 1), "", (), "")


def key_column(key: str, columns: tuple[Column, ...]) -> int | None:
    """The number, from 0, of the column that a key names; None for an expression."""
    text = key.strip()
    name = text
    if _PLAIN.fullmatch(text):
        name = text[1:-1].replace('""', '"') if text.startswith('"') else text
    return next((number for number, column in enumerate(columns) if column.name == name), None)


@lru_cache(4096)
def index_keys(columns: tuple[Column, ...], keys: tuple[str, ...]) -> tuple[int | Expression, ...]:
    """Each of `keys` as a column number, or as an expression over `columns`, in which a column's id is its number + 1.

    Raises PgError if a key is not a valid expression over the columns.
    """
    found = (key_column(key, columns) for key in keys)
    return tuple(
        number if number is not None else _bound(key, columns) for key, number in zip(keys, found, strict=True)
    )


def _bound(key: str, columns: tuple[Column, ...]) -> int | Expression:
    binder = Binder(_NOTHING, None, maintained=True)
    scan = relation_of(binder, Table(ObjectId("keys"), ObjectId(""), "", columns))
    scope = Scope([Entry(column.name, ColumnRef(column), None) for column in scan.columns], clause="index expressions")
    expression = binder.expression(parse_expression(key).tree, scope)
    return expression.column.id - 1 if isinstance(expression, ColumnRef) else expression


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
    """What follows the keys in the definition of an index."""
    included = f" INCLUDE ({', '.join(index.included)})" if index.included else ""
    return included + ("" if index.nulls_distinct else " NULLS NOT DISTINCT")
