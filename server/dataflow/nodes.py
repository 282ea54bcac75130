"""The nodes of a delta plan: each with a rule, and the text of what Spark computes for it.

A statement reads d0, d1, ...: rows of the node's inputs with columns behind their own that tell the version in which
they stand (`v`), and, where rows count, how often (`diff`). It gives rows in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from catalog.objects import ObjectId
from server.sql.direct import DirectScan
from server.sql.relations import Relation

VERSION = "v"


SMALL_ROWS = 2_000_000  # one task: a shuffle takes twice the processor time; beyond, memory counts


@dataclass(frozen=True, slots=True)
class Statement:
    """Spark SQL in two forms: for few rows without a shuffle or a broadcast, for many with what Spark sees fit."""

    small: str
    large: str

    def text(self, views: Mapping[str, pa.Table]) -> str:
        return self.small if sum(view.num_rows for view in views.values()) <= SMALL_ROWS else self.large


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """`schema`: the rows that it gives, c0, c1, ..., as Arrow has them. `relation`: what it computes, for EXPLAIN."""

    schema: pa.Schema
    relation: Relation

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Source(Node):
    """The changes of a collection: its columns at `places`."""

    id: ObjectId
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Node):
    """Rows that are there from the beginning; the statement reads nothing."""

    sql: Statement


@dataclass(frozen=True, slots=True, eq=False)
class Linear(Node):
    """`scan`: rows are taken as they are, without Spark; else the statement computes them."""

    input: Node
    scan: DirectScan | None
    sql: Statement

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True, eq=False)
class Temporal(Node):
    """Rows that are seen for some time: the statement, linear, gives them with the first time at which they are seen
    and the first at which they no longer are in front of v and diff."""

    input: Node
    sql: Statement

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True, eq=False)
class Concat(Node):
    arms: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.arms


@dataclass(frozen=True, slots=True, eq=False)
class Once(Node):
    """The different rows of the input's columns at `places`, without Spark: a change is a row that there was not, or
    that there is no more. Rows are different here whose bytes are."""

    input: Node
    places: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True, eq=False)
class InnerJoin(Node):
    """`keys`: the places of the key columns in each side; none: every row is a partner of every row.

    d0 and d1 are the sides with v and diff: at v = 0 rows as they were, from 1 on changes. Out come those pairs.
    """

    left: Node
    right: Node
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    sql: Statement

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True, eq=False)
class Totals(Node):
    """The totals by key are `state`: the key's columns, how many rows there are, then sums and counts.

    d0 has lines of several arms, told apart by a column behind v and diff. Arm 0 are changes, each line one row that
    comes or goes (diff 1 or -1), in each version from theirs on; and the state before in every version (diff 0), its
    key at the input's `key`, the rest in columns behind the arm. Then the changes of each of `distinct`, the different
    values of a key, as those of arm 0; then those that stand first of each of `firsts`, as they are in each version.
    Both have the key first and the value last, and stand where they came from in the input.

    Out come the rows with the state of their key behind them, v last. Without a key there always is one row.

    `at_first` gives the same of the rows that there are when there is no state; None: that would not be less work.
    """

    input: Node
    key: tuple[int, ...]
    distinct: tuple[Once, ...]
    firsts: tuple[tuple[Once, First], ...]
    state: pa.Schema
    sql: Statement
    at_first: Statement | None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, *self.distinct, *(once for once, _ in self.firsts))


class Rows(Enum):
    ALL = "all rows of the key"
    CHANGED = "the changed rows: each row that comes out is about one row of this input"


Apart = Rows | Once
"""`Once`, the keys that are there: the changed rows, if the key is there throughout: any row of it tells that."""


@dataclass(frozen=True, slots=True)
class First:
    """Only the first `count` rows matter, by the column at `place`, and those that share the last one's value."""

    place: int
    descending: bool
    nulls_first: bool
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Recompute(Node):
    """d0, d1: in each version the rows of the inputs that have the keys that changed, with v; out come rows with v.

    `keys`: the places of the key's columns in each input, none: all rows. `first`: of the key, or of all. `apart`: how
    much of an input is needed for a key of which only this input changed. `marked`: a row more in each version, with
    a last column that tells it from the others, because the result has a row also where the input has none.
    """

    arms: tuple[Node, ...]
    keys: tuple[tuple[int, ...], ...]
    apart: tuple[Apart, ...]
    marked: bool
    what: str
    sql: Statement
    first: First | None = None

    @property
    def is_whole(self) -> bool:
        """Whether each change means work on all rows."""
        return not all(self.keys) and self.first is None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The arms, and behind them the keys that are there of those for which that matters."""
        return (*self.arms, *(apart for apart in self.apart if isinstance(apart, Once)))


def nodes_of(root: Node) -> list[Node]:
    """Each node once, inputs before those that read them."""
    found: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) not in found:
            for below in node.inputs:
                visit(below)
            found[id(node)] = node

    visit(root)
    return list(found.values())
