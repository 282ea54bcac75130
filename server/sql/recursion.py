"""WITH RECURSIVE ... UNION: the Spark SQL of the statements that compute it, one iteration after another.

Spark's own recursion keeps duplicates, so it serves UNION ALL only. For UNION the server repeats the recursive term
until it yields no row that was not there before:

    new = DISTINCT anchor;  seen = new
    while new is not empty:  new = DISTINCT step(new) EXCEPT seen;  seen = seen + new

The plan reads `seen` as a view (`view_of`). Spark compares the rows, so they are equal exactly if PostgreSQL's are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from server.sql.expressions import Column, ColumnRef, children, walk
from server.sql.relations import Recursive, RecursiveRows, Relation
from server.sql.render import Renderer
from server.sql.render.expressions import Bind
from server.sql.render.spark_types import spark_type


def view_of(name: int) -> str:
    """The view with the rows of a recursive query: the new ones in its step, all of them elsewhere."""
    return f"recursive{name}"


def seen_view_of(name: int) -> str:
    """The view with all rows of the iterations so far, in the statement of the next one."""
    return f"recursive{name}_seen"


@dataclass(frozen=True, slots=True)
class Recursion:
    """The statements of one recursive query. Their results have the types of `columns`."""

    name: int
    columns: tuple[Column, ...]
    anchor: str
    step: str


def recursions(relation: Relation) -> tuple[Recursive, ...]:
    """The recursive queries with UNION of a plan, each after those that it contains.

    0A000 for one that depends on an outer query: its rows would not be the same for the whole statement. 0A000 for one
    with UNION ALL that reads the previous rows twice, as after the decorrelation of a subquery: Spark refuses it.
    """
    for node in walk(relation):
        if isinstance(node, Recursive) and not node.distinct and _reads(node) > 1:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "a recursive term with UNION ALL and this correlated subquery or LATERAL is not supported",
                hint="Use UNION, if the rows are distinct, or join with the table and filter the rows afterwards.",
            )
    found = {node.name: node for node in _inside_out(relation)}.values()
    for node in found:
        if _depends_on_others(node):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "WITH RECURSIVE with UNION that names columns or rows of an outer query is not supported",
                hint="Move the WITH clause to the beginning of the statement.",
            )
    return tuple(found)


def _reads(node: Recursive) -> int:
    """How often the recursive term reads the rows of the previous iteration."""
    return sum(isinstance(part, RecursiveRows) and part.name == node.name for part in walk(node.step))


def statements_of(node: Recursive, bind: Bind) -> Recursion:
    """The statements of a recursive query of `recursions`. `bind` is that of `Renderer`."""
    anchor, step = (_typed(side, node, bind) for side in (node.anchor, node.step))
    names = ", ".join(f"c{i}" for i in range(len(node.columns)))
    return Recursion(
        node.name,
        node.columns,
        f"SELECT DISTINCT {names} FROM {anchor}",
        f"SELECT {names} FROM {step} EXCEPT DISTINCT SELECT {names} FROM {_seen(node)}",
    )


def _typed(side: Relation, node: Recursive, bind: Bind) -> str:
    text = Renderer(side, bind).text()
    cells = (f"CAST(c{i} AS {spark_type(c.type, c.precision)}) AS c{i}" for i, c in enumerate(node.columns))
    return f"(SELECT {', '.join(cells)} FROM ({text}))"


def _seen(node: Recursive) -> str:
    cells = (f"CAST(c{i} AS {spark_type(c.type, c.precision)}) AS c{i}" for i, c in enumerate(node.columns))
    return f"(SELECT {', '.join(cells)} FROM {seen_view_of(node.name)})"


def _inside_out(node: Any) -> Iterator[Recursive]:
    for below in children(node):
        yield from _inside_out(below)
    if isinstance(node, Recursive) and node.distinct:
        yield node


def _depends_on_others(node: Recursive) -> bool:
    parts = [*walk(node.anchor), *walk(node.step)]
    own = {column.id for part in parts for column in getattr(part, "columns", ())}
    own |= {column.id for part in parts for column in _bound(part)}
    names = {part.name for part in parts if isinstance(part, Recursive)} | {node.name}
    return any(
        (isinstance(part, ColumnRef) and part.column.id not in own)
        or (isinstance(part, RecursiveRows) and part.name not in names)
        for part in parts
    )


def _bound(part: Any) -> Sequence[Column]:
    """The columns that an expression binds: the elements of ANY and ALL, and the operands of a subquery."""
    element = getattr(part, "element", None)
    return [*getattr(part, "holders", ()), *([element] if isinstance(element, Column) else [])]
