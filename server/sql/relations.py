"""Relational nodes: the closed set of operators of a logical plan. `Relation` is their union.

`columns` are a node's output columns. Each has an id that is unique in the plan; expressions refer to columns by id,
and no pass renumbers them. Filter, Sort, Limit, Distinct and DistinctOn output their input's columns. Common table
expressions and views are expanded where they are named. Subqueries remain in expressions (`expressions.Subquery`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from catalog.ids import ObjectId
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Column, ColumnRef, Expression, SortKey, WindowCall


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a collection or system table. `columns` are all its columns, in catalog order."""

    id: ObjectId
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """TABLESAMPLE: each row of the input with a probability of `percent`, a decimal number. `seed`: bigint or time."""

    input: Scan
    percent: str
    seed: Expression

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class RowLocks:
    """SELECT ... FOR UPDATE: the tables whose rows it locks.

    `nowait`: it fails if another session holds a lock. `skips`: SKIP LOCKED. `key`, with `skips`: the number of the
    column that is the enforced primary key of the only table, so that its rows are locked, and skipped, one by one.
    """

    tables: frozenset[ObjectId]
    nowait: bool
    skips: bool
    key: int | None = None


@dataclass(frozen=True, slots=True)
class Values:
    """Literal rows. One row without columns is a SELECT without FROM."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """generate_series(start, stop, step) of integers, in FROM."""

    columns: tuple[Column, ...]
    start: Expression
    stop: Expression
    step: Expression


@dataclass(frozen=True, slots=True)
class Unnest:
    """For each input row, one row per element of the longest of `arrays`; shorter arrays are padded with NULLs.

    `columns`: the input's columns, one column of elements per array and, with `ordinality`, the element's number from
    1. `outer`: an input row whose arrays are all empty yields one row with NULLs.
    """

    input: Relation
    arrays: tuple[Expression, ...]
    columns: tuple[Column, ...]
    ordinality: bool = False
    outer: bool = False


@dataclass(frozen=True, slots=True)
class Recursive:
    """WITH RECURSIVE ... UNION [ALL]: the rows of `anchor` and of `step`, which is repeated until it yields no rows.

    In `step`, a `RecursiveRows` with the same `name` denotes the rows of the previous iteration. Both sides have the
    types of `columns`. `distinct`: without ALL; every iteration drops the rows that were there before.
    """

    name: int
    anchor: Relation
    step: Relation
    columns: tuple[Column, ...]
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class RecursiveRows:
    """The rows of the previous iteration, inside `Recursive.step`.

    `unlisted`: the number of the last columns that `*` does not contain, which are those of SEARCH and CYCLE.
    """

    name: int
    columns: tuple[Column, ...]
    unlisted: int = 0


@dataclass(frozen=True, slots=True)
class Project:
    """`expressions` over the input, one for each of `columns`."""

    input: Relation
    columns: tuple[Column, ...]
    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows of the input for which the predicate is true."""

    input: Relation
    predicate: Expression

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


class JoinKind(StrEnum):
    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    CROSS = "CROSS"
    SEMI = "LEFT SEMI"
    ANTI = "LEFT ANTI"


@dataclass(frozen=True, slots=True)
class Join:
    """`columns`: the left side's, then the right side's, with the same ids; nullable where the kind adds NULLs.

    SEMI and ANTI are created only by rewrites. They output the columns of the left side: its rows that have a match
    (SEMI) or have none (ANTI).

    `lateral`: the right side names columns of the left side and is evaluated for each of its rows.
    """

    kind: JoinKind
    left: Relation
    right: Relation
    condition: Expression | None
    columns: tuple[Column, ...]
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row for each distinct value of `keys`; without keys always one row. `columns`: keys, then calls."""

    input: Relation
    keys: tuple[Expression, ...]
    calls: tuple[AggregateCall, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """`columns`: the input's columns, followed by one column per call."""

    input: Relation
    calls: tuple[WindowCall, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    """DISTINCT: every row of the input with multiplicity 1."""

    input: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class DistinctOn:
    """DISTINCT ON: of the rows with equal `keys`, the first by `order`."""

    input: Relation
    keys: tuple[Expression, ...]
    order: tuple[SortKey, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


class SetKind(StrEnum):
    UNION = "UNION"
    INTERSECT = "INTERSECT"
    EXCEPT = "EXCEPT"


@dataclass(frozen=True, slots=True)
class SetOperation:
    """UNION, INTERSECT or EXCEPT. Both sides already have the types of `columns`."""

    kind: SetKind
    all: bool
    left: Relation
    right: Relation
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Sort:
    input: Relation
    keys: tuple[SortKey, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Limit:
    """`limit` and `offset` are bigint expressions that name none of the input's columns. None: no bound."""

    input: Relation
    limit: Expression | None
    offset: Expression | None

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


Relation = (
    Scan
    | Sample
    | Values
    | Series
    | Unnest
    | Recursive
    | RecursiveRows
    | Project
    | Filter
    | Join
    | Aggregate
    | Window
    | Distinct
    | DistinctOn
    | SetOperation
    | Sort
    | Limit
)


# -- building -------------------------------------------------------------------------------------------------------


def joined(
    kind: JoinKind, left: Relation, right: Relation, condition: Expression | None, *, lateral: bool = False
) -> Join:
    """A Join with the columns that follow from its kind. It is CROSS without, and INNER with a condition."""
    if kind is JoinKind.CROSS and condition is not None:
        kind = JoinKind.INNER
    elif kind is JoinKind.INNER and condition is None:
        kind = JoinKind.CROSS
    return Join(kind, left, right, condition, _joined_columns(kind, left, right), lateral)


def _joined_columns(kind: JoinKind, left: Relation, right: Relation) -> tuple[Column, ...]:
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        return left.columns
    left_null, right_null = kind in (JoinKind.RIGHT, JoinKind.FULL), kind in (JoinKind.LEFT, JoinKind.FULL)
    return (
        *(replace(c, nullable=c.nullable or left_null) for c in left.columns),
        *(replace(c, nullable=c.nullable or right_null) for c in right.columns),
    )


def only(relation: Relation, columns: Sequence[Column]) -> Relation:
    """The relation with only these of its columns."""
    if [c.id for c in relation.columns] == [c.id for c in columns]:
        return relation
    return Project(relation, tuple(columns), tuple(map(ColumnRef, columns)))


def exactly(relation: Relation, columns: Sequence[Column]) -> Relation:
    """As `only`, but a Project is also added if just the type or nullability of a column differs."""
    if relation.columns == tuple(columns):
        return relation
    return Project(relation, tuple(columns), tuple(ColumnRef(c) for c in columns))


def has_one_row(node: Relation) -> bool:
    """Whether the relation has exactly one row for any data."""
    match node:
        case Aggregate(keys=keys):
            return not keys
        case Values(rows=rows):
            return len(rows) == 1
        case Project(input=input) | Sort(input=input) | Distinct(input=input) | Window(input=input):
            return has_one_row(input)
        case Join(kind=JoinKind.CROSS, left=left, right=right):
            return has_one_row(left) and has_one_row(right)
    return False


# -- walking --------------------------------------------------------------------------------------------------------


def inputs_of(node: Relation) -> tuple[Relation, ...]:
    """The inputs of a node, left to right. A Recursive counts as having none."""
    match node:
        case Join(left=left, right=right) | SetOperation(left=left, right=right):
            return (left, right)
        case Recursive():
            return ()
    below = getattr(node, "input", None)
    return () if below is None else (below,)


def with_inputs(node: Relation, inputs: Sequence[Relation]) -> Relation:
    """The node with other inputs. Columns that it passes through are replaced by those of the new inputs."""
    if all(new is old for new, old in zip(inputs, inputs_of(node), strict=True)):
        return node
    match node:
        case Join():
            return joined(node.kind, inputs[0], inputs[1], node.condition)
        case SetOperation():
            return replace(node, left=inputs[0], right=inputs[1])
        case Window() | Unnest():
            added = node.columns[len(node.input.columns) :]
            return replace(node, input=inputs[0], columns=(*inputs[0].columns, *added))
    with_input: Any = node
    changed: Relation = replace(with_input, input=inputs[0])
    return changed


def bottom_up(node: Relation, change: Callable[[Relation], Relation]) -> Relation:
    """Applies `change` to every node, inputs first."""
    return change(with_inputs(node, [bottom_up(below, change) for below in inputs_of(node)]))
