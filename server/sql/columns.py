"""Columns of a plan: which ones a node names, their replacement by others, and new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql import expressions as ex
from server.sql.expressions import (
    Column,
    ColumnRef,
    Expression,
    Literal,
    Quantified,
    Subquery,
    children,
    transform,
    walk,
    walk_all,
)
from server.sql.functions.table import Function
from server.sql.grammar.checkpoint import checkpoint
from server.sql.relations import Project, Relation

COLUMNS_MAX = 20_000  # the maximum number of columns that the rewriting of a statement may create
Node = TypeVar("Node")


def ids(columns: Iterable[Column]) -> set[int]:
    return {column.id for column in columns}


def named(part: Any) -> set[int]:
    """The ids of the columns that an expression, or a tuple of them, names."""
    if part is None:
        return set()
    if isinstance(part, tuple):
        return {id for item in part for id in named(item)}
    return {node.column.id for node in walk(part) if isinstance(node, ColumnRef)}


def names_any(part: Any, ids: Set[int]) -> bool:
    """Whether an expression, a relation, or a tuple of them names one of these columns."""
    return any(isinstance(node, ColumnRef) and node.column.id in ids for node in walk_all(part))


def free_columns(node: Relation | Expression) -> list[Column]:
    """The columns of enclosing queries that the node names, ordered by id."""
    known: set[int] = set()
    named: dict[int, Column] = {}
    for inner in walk(node):
        if isinstance(inner, ColumnRef):
            named[inner.column.id] = inner.column
        elif isinstance(inner, Quantified):
            known.add(inner.element.id)
        elif isinstance(inner, Subquery):
            known.update(c.id for c in inner.holders)
        elif isinstance(inner, Relation):
            known.update(c.id for c in inner.columns)
    return [named[id] for id in sorted(named.keys() - known)]


def equivalent(one: Expression, other: Expression) -> bool:
    """Whether two expressions differ at most in the ids of the columns and levels that their subqueries define."""
    free = frozenset(c.id for c in free_columns(one))
    if free != frozenset(c.id for c in free_columns(other)):
        return False
    return _same(one, other, ({id: id for id in free}, {id: id for id in free}), ({}, {}))


_Pairs = tuple[dict[int, int], dict[int, int]]  # the ids of one side by those of the other, and vice versa


def _same(one: Any, other: Any, ids: _Pairs, levels: _Pairs) -> bool:
    if one.__class__ is not other.__class__:
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(_same(a, b, ids, levels) for a, b in zip(one, other, strict=True))
    if isinstance(one, Column):
        described = (one.type, one.nullable, one.precision) == (other.type, other.nullable, other.precision)
        return described and _paired(one.id, other.id, ids)
    if not is_dataclass(one) or isinstance(one, (PgType, Function)):
        return bool(one == other)
    checkpoint()
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.compare and not (_paired(a, b, levels) if field.name == "level" else _same(a, b, ids, levels)):
            return False
    return True


class Hashes:
    """Hashes of expressions, which are the same for equivalent ones.

    Each node is hashed once. With `hash(node)` for each node of a tree, the time would be quadratic in its depth.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Expression, int]] = {}  # by id; the node is kept so that its id is not used again

    def of(self, node: Expression) -> int:
        known = self._known.get(id(node))
        if known is not None:
            return known[1]
        match node:
            case ColumnRef(column=column):
                return hash(column.id)
            case Literal():
                return hash(node)
            case Subquery(operands=below):
                own: Any = node.kind
            case Quantified(array=array):
                own, below = node.all, (array,)
            case _:
                own, below = getattr(node, "function", None), tuple(children(node))
        value = hash((node.__class__, own, tuple(map(self.of, below))))
        self._known[id(node)] = (node, value)
        return value


def _paired(one: int, other: int, pairs: _Pairs) -> bool:
    return pairs[0].setdefault(one, other) == other and pairs[1].setdefault(other, one) == one


def substituted(node: Node, swap: dict[int, Column]) -> Node:
    """The node with column references replaced by references to other columns; `swap` is keyed by column id."""

    def change(inner: Any) -> Any | None:
        if isinstance(inner, ColumnRef) and inner.column.id in swap:
            return ColumnRef(swap[inner.column.id], inner.written, inner.position)
        return None

    return transform(node, change)


def with_values(expression: Expression, values: dict[int, Expression]) -> Expression:
    """The expression with column references replaced by `values`, which are keyed by column id."""

    def change(node: Any) -> Any | None:
        return values.get(node.column.id) if isinstance(node, ColumnRef) else None

    return transform(expression, change)


def extended(relation: Relation, added: Mapping[Column, Expression]) -> Relation:
    """The relation with further columns, which have the values of these expressions; itself if there are none."""
    if not added:
        return relation
    own = relation.columns
    return Project(relation, (*own, *added), (*map(ColumnRef, own), *added.values()))


class NewColumns:
    """Creates columns with ids that are unused in a plan."""

    def __init__(self, root: Relation) -> None:
        ids = [0]
        for node in walk(root):
            if isinstance(node, Relation):
                ids += [column.id for column in node.columns]
            elif isinstance(node, Subquery):
                ids += [column.id for column in node.holders]
            elif isinstance(node, Quantified):
                ids.append(node.element.id)
        self._last = max(ids)
        self._most = self._last + COLUMNS_MAX

    def column(self, name: str, like: Expression) -> Column:
        """A new column with the type, nullability and precision of an expression. 54001 beyond COLUMNS_MAX."""
        self._last += 1
        if self._last > self._most:  # nested levels can double the plan: a level may contain the previous one twice
            raise PgError(
                SqlState.STATEMENT_TOO_COMPLEX,
                "stack depth limit exceeded",
                hint="Write the statement with fewer subqueries that name columns of one another.",
            )
        digits = ex.precision(like) if like.type.name == "numeric" else 0
        return Column(self._last, name or ex.name_of(like), like.type, like.nullable, digits)
