"""Volatile functions: each row gets a value of its own, computed once.

Spark may evaluate an expression of a row more than once, so it does not evaluate these. A query that calls them in its
select list, or a write that calls them for a new value, is divided (`deferred`): the `lower` query has the columns that
do not depend on the calls, and what the others need. When its rows are there, the calls are evaluated for all of them,
and then the other columns. The exception is random() in other clauses, in subqueries and in columns by which the rows
are sorted, where it is Spark's rand().

Constants are evaluated as a whole, calls included (`Constant`), as long as no call has to wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, FLOAT8, INT4, INT8, TEXT, UUID, VOID, PgType
from server.sql.columns import NewColumns, extended, free_columns, names_any
from server.sql.conditions import all_of, filtered, parts
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import (
    Column,
    ColumnRef,
    Expression,
    Literal,
    SessionValue,
    SortKey,
    Subquery,
    Volatile,
    children,
    transform,
    walk,
)
from server.sql.relations import Aggregate, Filter, Join, JoinKind, Limit, Project, Relation, Sort, Values, only

VOLATILE: dict[str, tuple[PgType, tuple[tuple[PgType, ...], ...]]] = {
    "nextval": (INT8, ((TEXT,),)),
    "setval": (INT8, ((TEXT, INT8), (TEXT, INT8, BOOL))),
    "random": (FLOAT8, ((),)),
    "random_normal": (FLOAT8, ((), (FLOAT8,), (FLOAT8, FLOAT8))),
    "setseed": (VOID, ((FLOAT8,),)),
    "gen_random_uuid": (UUID, ((),)),
}
"""The result type of each function, and the types of its arguments in each of its forms."""

_MOVES = ("nextval", "setval")
LAST_VALUES = ("currval", "lastval")
"""The functions that return a value of the session. If a select list also calls _MOVES, they depend on the order."""
SEQUENCE_FUNCTIONS = ("nextval", "setval", "currval")
"""The functions whose first argument names a sequence."""


def is_volatile(node: Any) -> bool:
    return isinstance(node, Volatile)


def calls_in(node: Any) -> list[Volatile]:
    """The calls in an expression or relation, each once, in the order in which they are written."""
    return [*{n.number: n for n in walk(node) if isinstance(n, Volatile)}.values()]


def ordered(relation: Relation) -> Relation:
    """The relation with currval() and lastval() as volatile calls, if it also calls nextval() or setval().

    They are `SessionValue` elsewhere, such as in WHERE, where one value for the whole query is right.
    """
    known = calls_in(relation)
    if not any(call.name in _MOVES for call in known):
        return relation
    numbers = count(min(0, *(call.number for call in known)) - 1, -1)  # others are positive

    def change(node: Any) -> Any | None:
        if isinstance(node, SessionValue) and node.name in LAST_VALUES:
            arguments = () if node.argument is None else (node.argument,)
            return Volatile(node.name, arguments, node.type, next(numbers))
        return None

    def inside(node: Relation) -> Relation:
        match node:
            case Project(input=input, columns=columns, expressions=expressions):
                return Project(inside(input), columns, tuple(transform(e, change) for e in expressions))
            case Sort(input=input):
                return replace(node, input=inside(input))
            case Limit(input=input):
                return replace(node, input=inside(input))
            case Values(columns=columns, rows=rows):
                return Values(columns, tuple(tuple(transform(cell, change) for cell in row) for row in rows))
        return node

    return inside(relation)


def unplaced(name: str, position: int | None = None) -> PgError:
    """The error for a call outside the select list of the outermost query."""
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"{name}() is not supported in this place",
        hint="Call it in the select list of the outermost query, in VALUES, or for a new value of UPDATE.",
        position=position,
    )


@dataclass(frozen=True, slots=True)
class Deferred:
    """A divided query. `columns`: for each of its columns, the number of the lower column that has its values, or an
    expression over lower columns and volatile calls, whose arguments are lower columns or literals."""

    lower: Relation
    columns: tuple[int | Expression, ...]
    calls: tuple[Volatile, ...]


def deferred(relation: Relation, new_column: Callable[[Expression], Column]) -> Deferred | None:
    """Divides a query that calls volatile functions; None if it calls none, or only random() where Spark evaluates it.

    PgError 0A000 if they are called in another place.
    """
    if not any(map(is_volatile, walk(relation))):
        return None
    nodes: list[Project | Sort | Limit] = []
    current = relation = ordered(relation)
    while isinstance(current, Project | Sort | Limit):
        nodes.append(current)
        current = current.input
    _check_below(current)
    pending: dict[int, Expression] = {}
    ordering = _ordering(nodes)
    for node in reversed(nodes):
        if isinstance(node, Project):
            current, pending = _projected(node, current, pending, ordering, new_column)
        else:
            _check_order(node, pending)
            current = Sort(current, node.keys) if isinstance(node, Sort) else Limit(current, node.limit, node.offset)
    if not pending:
        return None
    if not current.columns:
        one = Literal(1, INT4)
        current = Project(current, (new_column(one),), (one,))
    numbers = {column.id: number for number, column in enumerate(current.columns)}
    columns = tuple(pending[c.id] if c.id in pending else numbers[c.id] for c in relation.columns)
    unique = {call.number: call for c in columns if not isinstance(c, int) for call in calls_in(c)}
    return Deferred(current, columns, tuple(unique.values()))


def _ordering(nodes: Sequence[Project | Sort | Limit]) -> set[int]:
    """The ids of the columns on which a Sort depends. `nodes`: from the topmost on."""
    found: set[int] = set()
    for node in nodes:
        if isinstance(node, Sort):
            needed = [key.expression for key in node.keys]
        elif isinstance(node, Project):
            needed = [e for column, e in zip(node.columns, node.expressions, strict=True) if column.id in found]
        else:
            continue
        found.update(part.column.id for e in needed for part in walk(e) if isinstance(part, ColumnRef))
    return found


def _projected(
    node: Project,
    input: Relation,
    pending: dict[int, Expression],
    ordering: set[int],
    new_column: Callable[[Expression], Column],
) -> tuple[Project, dict[int, Expression]]:
    """The lower projection, and the columns that are computed later, by column id.

    Columns with ids in `ordering` are not computed later if they call only random().
    """
    columns: list[Column] = []
    expressions: list[Expression] = []
    later: dict[int, Expression] = {}
    needed: dict[int, Column] = {}
    arguments: list[tuple[Column, Expression]] = []
    known = {column.id for column in input.columns}

    def argument(expression: Expression) -> Expression:
        if isinstance(expression, Literal):
            return expression
        if _depends(expression, pending):
            raise unplaced(calls_in(expression)[0].name if calls_in(expression) else "a volatile function")
        arguments.append((new_column(expression), expression))
        return ColumnRef(arguments[-1][0])

    def change(part: Any) -> Any | None:
        if isinstance(part, Subquery):
            return argument(part)
        if isinstance(part, Volatile):
            values = tuple(map(argument, part.arguments))
            return Volatile(part.name, values, part.type, part.number, part.sequence, part.implied)
        if isinstance(part, ColumnRef):
            if part.column.id in pending:
                expression = pending[part.column.id]
                needed.update({n.column.id: n.column for n in walk(expression) if _is_reference(n, known)})
                return expression
            if _is_reference(part, known):
                needed[part.column.id] = part.column
        return None

    for column, expression in zip(node.columns, node.expressions, strict=True):
        if _depends(expression, pending) and not (column.id in ordering and _is_random(expression, pending)):
            later[column.id] = transform(expression, change)
        else:
            columns.append(column)
            expressions.append(expression)
    present = {column.id for column in columns}
    for id, column in needed.items():
        if id not in present:
            columns.append(column)
            expressions.append(ColumnRef(column))
    for column, expression in arguments:
        columns.append(column)
        expressions.append(expression)
    return Project(input, tuple(columns), tuple(expressions)), later


def _is_reference(node: Any, known: set[int]) -> bool:
    """Whether a node is a reference to one of the columns with these ids, and not to an element of ANY (array)."""
    return isinstance(node, ColumnRef) and node.column.id in known


def _depends(expression: Expression, pending: dict[int, Expression]) -> bool:
    """Whether the value of an expression depends on a volatile call that is not in a subquery."""
    if isinstance(expression, Subquery):
        return names_any(expression, pending.keys())
    if isinstance(expression, Volatile) or (isinstance(expression, ColumnRef) and expression.column.id in pending):
        return True
    return any(_depends(child, pending) for child in children(expression))


def _is_random(expression: Expression, pending: dict[int, Expression]) -> bool:
    """Whether an expression depends on calls of random() only, and not on columns that are computed later."""
    return not names_any(expression, pending.keys()) and all(call.name == "random" for call in calls_in(expression))


def random_placed(relation: Relation) -> Relation:
    """The relation with random() where Spark evaluates it, and once: not in calls of aggregates, nor in conditions of
    inner joins, nor twice in a node.

    The arguments of an aggregate become columns of its input, and conditions of a join a filter of its rows. A subquery
    without FROM selects from a row, because Spark would evaluate its expressions in the enclosing query, for each row.
    """
    if not calls_in(relation):
        return relation
    new = NewColumns(relation)
    return _repeated_placed(_moved(relation, new), new)


def _moved(relation: Relation, new: NewColumns) -> Relation:

    def change(node: Any) -> Any | None:
        match node:
            case Aggregate(calls=calls) if any(map(calls_in, calls)):
                return _with_columns_of_calls(replace(node, input=transform(node.input, change)), new)
            case Join(kind=JoinKind.INNER, condition=condition) if condition is not None and calls_in(condition):
                conditions = parts(condition)
                rest = all_of([part for part in conditions if not calls_in(part)])
                kind = JoinKind.CROSS if rest is None else JoinKind.INNER
                left, right = (transform(side, change) for side in (node.left, node.right))
                joined = replace(node, kind=kind, left=left, right=right, condition=rest)
                return filtered(joined, [part for part in conditions if calls_in(part)])
            case Subquery(relation=inner) if calls_in(inner) and not free_columns(inner):
                return replace(node, relation=transform(transform(inner, change), from_a_row))
        return None

    def from_a_row(node: Any) -> Any | None:
        if isinstance(node, Values) and not node.columns:
            one = Literal(1, INT4)
            return Values((new.column("", one),), ((one,),) * len(node.rows))
        return None

    return transform(relation, change)


def _repeated_placed(relation: Relation, new: NewColumns) -> Relation:
    """The relation with a column for each call of random() that occurs several times in a node, such as in the operand
    of CASE, or in a select list and in ORDER BY. Spark would evaluate each occurrence."""

    def change(node: Any) -> Any | None:
        if not isinstance(node, Project | Filter | Aggregate | Sort | Limit):
            return None
        nodes = [node]  # and those that sort the rows of a projection
        while not isinstance(nodes[-1], Filter | Aggregate) and isinstance(nodes[-1].input, Sort | Limit):
            nodes.append(nodes[-1].input)
        parts = [part for n in nodes for part in children(n) if part is not n.input]
        times = Counter(call.number for part in parts for call in _own_calls(part) if call.name == "random")
        added = {call.number: call for part in parts for call in _own_calls(part) if times[call.number] > 1}
        if not added:
            return None
        columns = {number: new.column("", call) for number, call in added.items()}
        input = nodes[-1].input
        below = extended(transform(input, change), {columns[number]: call for number, call in added.items()})

        def inside(part: Any) -> Any | None:
            if part is input:
                return below
            if isinstance(part, Volatile) and part.number in columns:
                return ColumnRef(columns[part.number])
            return None if any(part is n for n in nodes) else change(part)

        return only(transform(node, inside), node.columns)

    return transform(relation, change)


def _own_calls(part: Any) -> Iterator[Volatile]:
    """Each occurrence of a call in an expression, but not in the relations of its subqueries."""
    if isinstance(part, Volatile):
        yield part
    for child in part.operands if isinstance(part, Subquery) else children(part):
        yield from _own_calls(child)


def _with_columns_of_calls(node: Aggregate, new: NewColumns) -> Aggregate:
    added: dict[Expression, Column] = {}

    def moved(part: Any) -> Any | None:
        if isinstance(part, AggregateCall | SortKey) or not calls_in(part):
            return None
        return ColumnRef(added.setdefault(part, new.column("", part)))

    calls = tuple(transform(call, moved) for call in node.calls)
    below = extended(node.input, {column: part for part, column in added.items()})
    return replace(node, input=below, calls=calls)


def _check_below(relation: Relation) -> None:
    for call in calls_in(relation):
        if call.name != "random":
            raise unplaced(call.name)


def _check_order(node: Sort | Limit, pending: dict[int, Expression]) -> None:
    parts: Sequence[Any] = node.keys if isinstance(node, Sort) else (node.limit, node.offset)
    for part in parts:
        if part is None:
            continue
        for inner in walk(part):
            if isinstance(inner, ColumnRef) and inner.column.id in pending:
                raise unplaced(calls_in(pending[inner.column.id])[0].name)
            if isinstance(inner, Volatile) and inner.name != "random":
                raise unplaced(inner.name)


def raised(rows: Values, new_column: Callable[[Expression], Column]) -> Relation:
    """VALUES whose columns of volatile calls are computed above it, if they have the same expression in each row."""
    changed = ordered(rows)
    assert isinstance(changed, Values)
    rows = changed
    first = rows.rows[0] if rows.rows else ()
    columns_with_calls = [n for n in range(len(first)) if any(calls_in(row[n]) for row in rows.rows)]
    moved = {n for n in columns_with_calls if len({_form(row[n]) for row in rows.rows}) == 1}
    if not moved or len(moved) < len(columns_with_calls):
        return rows
    kept = [number for number in range(len(first)) if number not in moved]
    if kept:
        cells = tuple(tuple(row[number] for number in kept) for row in rows.rows)
        columns = tuple(rows.columns[number] for number in kept)
    else:
        one = Literal(1, INT4)
        cells, columns = ((one,),) * len(rows.rows), (new_column(one),)
    values = [cell if n in moved else ColumnRef(rows.columns[n]) for n, cell in enumerate(first)]
    return Project(Values(columns, cells), rows.columns, tuple(values))


def _form(expression: Expression) -> Expression:
    """The expression with the same number for each call."""

    def change(node: Any) -> Any | None:
        if isinstance(node, Volatile):
            return Volatile(node.name, node.arguments, node.type, 0, node.sequence, node.implied)
        return None

    return transform(expression, change)


def cell_calls(relation: Relation) -> list[Volatile]:
    """The calls in the cells of the VALUES of a constant query, row by row."""
    node = relation
    while isinstance(node, Project):
        node = node.input
    rows = node.rows if isinstance(node, Values) else ()
    return [call for row in rows for cell in row for call in calls_in(cell)]


def with_values(relation: Relation, values: dict[int, Any]) -> Relation:
    """The relation with literals for the calls with these numbers."""

    def change(node: Any) -> Any | None:
        if isinstance(node, Volatile) and node.number in values:
            return Literal(values[node.number], node.type)
        return None

    return transform(relation, change)
