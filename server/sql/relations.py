"""Relational nodes: the closed set that every query becomes, `Relation` at the end names them all.

A node puts out `columns`; each has an id that is unique in the plan, so expressions name columns by id and no pass
ever renumbers. Filter, Sort, Limit, Distinct put out their input's columns. Common table expressions and views are
expanded where they are named. Subqueries in expressions stay there (`expressions.Subquery`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from catalog.objects import ObjectId
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Column, Expression, SortKey, WindowCall


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a collection or system table; `columns` are all of it, in catalog order."""

    id: ObjectId
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """Literal rows; one row of no columns is a SELECT without FROM."""

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
    """For each row of the input, a row for each place of the longest of `arrays`; the shorter are filled with NULLs.

    `columns` are the input's, one for each array's elements, and with `ordinality` the place, from 1. `outer`: a row
    of the input whose arrays are all empty stays, once, with NULLs.
    """

    input: Relation
    arrays: tuple[Expression, ...]
    columns: tuple[Column, ...]
    ordinality: bool = False
    outer: bool = False


@dataclass(frozen=True, slots=True)
class Recursive:
    """WITH RECURSIVE: the rows of `anchor`, then those of `step` over the rows found last, until there are none.

    In `step` a `RecursiveRows` of the same `name` is the rows found last. Both sides have the types of `columns`.
    """

    name: int
    anchor: Relation
    step: Relation
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class RecursiveRows:
    """The rows that the round before found, inside `Recursive.step`."""

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
    """`columns` are the left's, then the right's, nullable where the kind makes them so (the ids stay).

    SEMI and ANTI, which only rewriting makes, put out the left's alone: its rows that have a partner, or have none.

    `lateral`: the right side names columns of the left, so it stands for other rows with each row of the left.
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
    """The input's columns and behind them one for each call."""

    input: Relation
    calls: tuple[WindowCall, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each row once."""

    input: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class DistinctOn:
    """Of the rows that agree in `keys`, the first by `order`."""

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
    """Both sides have the types of `columns` already."""

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
    """None: no bound. Both are bigint expressions over no row."""

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
