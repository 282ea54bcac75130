"""The columns of a relation as the stored queries of views name them, when ALTER TABLE changes the relation.

A stored query names relations by id, but columns by name. When columns are renamed, added or dropped, the relation is
replaced in the text by a subquery that has the columns under the names, and in the order, that they had before:

    FROM "$id"."u7" AS "t"   ->   FROM (SELECT "b" AS "a", "c" AS "c" FROM "$id"."u7") AS "t"

A column that was dropped is NULL; nothing that the view computes depends on it. In a stored query every relation has an
alias, except within such a subquery. This is how the subquery is recognized when the relation is altered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from protocol.pgwire.types import parse_type
from server.sql.columns import ids
from server.sql.expressions import ColumnRef, walk
from server.sql.grammar.lexer import Kind, Token, quote_identifier, quoted, tokenize
from server.sql.grammar.parse import parse_expression
from server.sql.plan import QueryPlan
from server.sql.relations import Distinct, Join, Scan, SetOperation, inputs_of
from server.sql.rewrite.columns import pruned
from server.sql.scope import ID_SCHEMA
from server.sql.type_names import sql_name


@dataclass(frozen=True, slots=True)
class Exposed:
    """A column of a relation in a stored query. `column`: its name in the relation; None if it was dropped.

    `text`: what the subquery selects.
    """

    column: str | None
    text: str
    name: str

    @classmethod
    def of(cls, column: str, name: str) -> Exposed:
        return cls(column, quoted(column), name)


Change = Callable[[Exposed], Exposed]


def renamed(old: str, new: str) -> Change:
    """The change of the columns when one is renamed."""
    return lambda exposed: Exposed.of(new, exposed.name) if exposed.column == old else exposed


def dropped(column: Column) -> Change:
    """The change of the columns when one is dropped."""
    text = f"CAST(NULL AS {_type_name(column.type)})"
    return lambda exposed: Exposed(None, text, exposed.name) if exposed.column == column.name else exposed


def _type_name(spelling: str) -> str:
    type = parse_type(spelling)
    return sql_name(type) if (type.element or type).enum is not None else type.without_modifiers.declaration


def unchanged(exposed: Exposed) -> Exposed:
    """The change when a column is added: the query does not have it."""
    return exposed


def with_columns(query: str, relation: ObjectId, columns: Sequence[Column], change: Change) -> str:
    """A stored query after a change of a relation that it names. `columns`: those of the relation before the change."""
    tokens, pieces, at = tokenize(query), [], 0
    for index in _occurrences(tokens, relation):
        if _is_plain(tokens[index + 3], ")") and _is_plain(tokens[index - 1], "from"):
            start = _opening(tokens, index)
            exposed = [_parsed(query, item) for item in _items(tokens, start + 2, index - 1)]
            end = tokens[index + 3].end
        else:
            start, end = index, tokens[index + 2].end
            exposed = [Exposed.of(column.name, column.name) for column in columns]
        items = ", ".join(f"{found.text} AS {quoted(found.name)}" for found in map(change, exposed))
        text = f"(SELECT {items} FROM {quoted(ID_SCHEMA)}.{quoted(relation)})"
        pieces += [query[at : tokens[start].start], text]
        at = end
    return "".join([*pieces, query[at:]])


def _occurrences(tokens: Sequence[Token], relation: ObjectId) -> Iterator[int]:
    for index in range(len(tokens) - 3):
        schema, dot, name = tokens[index : index + 3]
        if schema.kind is Kind.IDENT and schema.value == ID_SCHEMA and dot.value == "." and name.value == relation:
            yield index


def _is_plain(token: Token, value: str) -> bool:
    return token.kind in (Kind.WORD, Kind.SYMBOL) and token.value == value


def _opening(tokens: Sequence[Token], index: int) -> int:
    """The position of the parenthesis that encloses a token."""
    depth = 0
    while True:
        index -= 1
        if _is_plain(tokens[index], ")"):
            depth += 1
        elif _is_plain(tokens[index], "("):
            if depth == 0:
                return index
            depth -= 1


def _items(tokens: Sequence[Token], start: int, end: int) -> Iterator[Sequence[Token]]:
    """The items of a select list."""
    depth, first = 0, start
    for index in range(start, end):
        token = tokens[index]
        depth += _is_plain(token, "(") - _is_plain(token, ")")
        if depth == 0 and _is_plain(token, ","):
            yield tokens[first:index]
            first = index + 1
    yield tokens[first:end]


def _parsed(query: str, item: Sequence[Token]) -> Exposed:
    """An item of the form `"column" AS "name"` or `CAST(NULL AS type) AS "name"`."""
    *value, _, name = item
    if len(value) == 1:
        return Exposed.of(value[0].value, name.value)
    return Exposed(None, query[value[0].start : value[-1].end], name.value)


def columns_used(plan: QueryPlan, relation: ObjectId) -> frozenset[str]:
    """The names of the columns of a relation on which the rows of a query depend."""
    tree = pruned(plan.relation)
    needed = ids(tree.columns)
    scans: list[Scan] = []
    for node in walk(tree):
        if isinstance(node, ColumnRef):
            needed.add(node.column.id)
        elif isinstance(node, Scan) and node.id == relation:
            scans.append(node)
        elif isinstance(node, Join | SetOperation | Distinct):
            for side in inputs_of(node):
                needed |= ids(side.columns)
    return frozenset(column.name for scan in scans for column in scan.columns if column.id in needed)


def key_columns(key: str) -> frozenset[str]:
    """The names of the columns in the key of an index or another expression of a table."""
    return frozenset(column_names(key))


def column_names(expression: str) -> list[str]:
    """The names of the columns in an expression, each once, in the order of the text."""
    found = sorted(parse_expression(expression).tree.find_all(exp.Column), key=lambda c: int(c.this.meta["start"]))
    return list(dict.fromkeys(column.name for column in found))


def renamed_key(key: str, old: str, new: str) -> str:
    """The key of an index after a column is renamed."""
    found = [c.this for c in parse_expression(key).tree.find_all(exp.Column) if c.name == old]
    for identifier in sorted(found, key=lambda i: i.meta["start"], reverse=True):
        key = key[: identifier.meta["start"]] + quote_identifier(new) + key[identifier.meta["end"] + 1 :]
    return key
