"""Relational nodes: the closed set of operators of a logical plan. `Relation` is their union.

`columns` are a node's output columns. Each has an id that is unique in the plan; expressions refer to columns by id,
and no pass renumbers them. Filter, Sort, Limit, Distinct and DistinctOn output their input's columns. Common table
expressions and views are expanded where they are named. Subqueries remain in expressions (`expressions.Subquery`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from catalog.objects import ObjectId
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Column, Expression, SortKey, WindowCall


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a collection or system table. `columns` are all its columns, in catalog order."""

    id: ObjectId
    columns: tuple[Column, ...]


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
    """WITH RECURSIVE ... UNION ALL: the rows of `anchor` and of `step`, which is repeated until it yields no rows.

    In `step`, a `RecursiveRows` with the same `name` denotes the rows of the previous iteration. Both sides have the
    types of `columns`.
    """

    name: int
    anchor: Relation
    step: Relation
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class RecursiveRows:
    """The rows of the previous iteration, inside `Recursive.step`."""

    name: int
    columns: tuple[Column, ...]


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
