"""The nodes of a delta plan: one delta rule each (see `lowering`), with the Spark statement that computes it.

A statement reads d0, d1, ...: rows of the node's inputs, each followed by its version `v` (see `operator`) and, where
multiplicities matter, its `diff`. It returns rows in the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from catalog.ids import ObjectId
from server.dataflow.plan.late_columns import LateForm
from server.sql.direct_scan import DirectScan
from server.sql.relations import Relation

VERSION = "v"
MEMBER = "member"


SMALL_ROWS = 2_000_000  # up to this number one task suffices, with half a shuffle's CPU time; beyond, memory limits it


@dataclass(frozen=True, slots=True)
class Statement:
    """Spark SQL in two forms: `small` without shuffles and broadcasts, `large` without hints to Spark's optimizer.

    `special`: a form of `small` that is faster, and correct for some rows only. `late`: a form of `small` that returns
    row numbers instead of columns that the operator has.
    """

    small: str
    large: str
    special: SpecialForm | None = None
    late: LateForm | None = None

    def late_for(self, views: Mapping[str, pa.Table]) -> LateForm | None:
        """`late`, if there are few rows and it suits the views."""
        if self.late is None or _rows_of(views) > SMALL_ROWS or not self.late.suits(views):
            return None
        return self.late

    def text(self, views: Mapping[str, pa.Table]) -> str:
        if _rows_of(views) > SMALL_ROWS:
            return self.large
        return self.special.text if self.special is not None and self.special.suits(views) else self.small


def _rows_of(views: Mapping[str, pa.Table]) -> int:
    return sum(view.num_rows for view in views.values())


@dataclass(frozen=True, slots=True)
class SpecialForm:
    """A statement that is correct if the given columns of `view` have values from `least` to `greatest`, or NULL."""

    text: str
    view: str
    columns: tuple[int, ...]
    least: int
    greatest: int

    def suits(self, views: Mapping[str, pa.Table]) -> bool:
        for position in self.columns:
            bounds = pc.min_max(views[self.view].column(position))
            least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
            if least is not None and not self.least <= least <= greatest <= self.greatest:
                return False
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node of a delta plan.

    `schema`: the Arrow schema of its rows, c0, c1, .... `relation`: the relation that it computes.
    """

    schema: pa.Schema
    relation: Relation

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Source(Node):
    """The changes of a collection, with its columns at the positions `positions`."""

    id: ObjectId
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Node):
    """Rows that never change. The statement reads nothing."""

    sql: Statement


@dataclass(frozen=True, slots=True, eq=False)
class Linear(Node):
    """Filters, projections and unnest. `scan`: columns and rows are selected without Spark; None: by the statement."""

    input: Node
    scan: DirectScan | None
    sql: Statement

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True, eq=False)
class Temporal(Node):
    """A temporal filter. The statement, which is linear, adds the columns `lower` and `upper` before v and diff: the
    row is in the result at times t with `lower <= t < upper`."""

    input: Node
    sql: Statement

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True, eq=False)
class Concat(Node):
    """UNION ALL of the branches."""

    branches: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches


@dataclass(frozen=True, slots=True, eq=False)
class DistinctRows(Node):
    """DISTINCT over the input's columns at `positions`, without Spark: a change is emitted when a row's multiplicity
    becomes or ceases to be positive. Rows are equal if their bytes are (see `catalog.updates`).

    `drops_nulls`: rows whose last column is NULL are omitted, because an aggregate ignores them.
    """

    input: Node
    positions: tuple[int, ...]
    drops_nulls: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True, eq=False)
class DistinctValues(Node):
    """The distinct values of several subsets of the input's rows by key, without Spark.

    `key`: the positions of the key in the input. `members`: the positions of columns that have the same value in the
    rows of their subset, and NULL in the others. The node's columns: the key, the value, and the number of the subset
    (an index in `members`). A change is emitted when the value's multiplicity in a subset becomes or ceases to be
    positive. The subsets share the look-up and the storage of their values.
    """

    input: Node
    key: tuple[int, ...]
    members: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class DistinctBranch:
    """The distinct values of one column in the rows that the statement of an aggregate reads.

    `number`: the branch. `positions`: those of its columns in the aggregate's input. `count`: if all calls only count
    the values, the index of their number among the numbers of the state.
    """

    number: int
    positions: tuple[int, ...]
    count: int | None


@dataclass(frozen=True, slots=True, eq=False)
class InnerJoin(Node):
    """`Δ(A ⋈ B) = ΔA ⋈ B' + A ⋈ ΔB`, in one statement for all versions of a step.

    `keys`: the positions of the key columns in each side; without keys all pairs of rows are compared. d0 and d1
    are the sides with v and diff: old rows at v = 0, changes at v >= 1. The statement returns the pairs of which at
    least one row is a change, with the greater v and the product of the diffs.
    """

    left: Node
    right: Node
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    sql: Statement

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True, eq=False)
class AccumulableAggregate(Node):
    """Aggregates computed from totals by key. `state`: the key's columns, the number of rows, then sums and counts.

    d0 is a union of branches. Its columns: the input's, v, diff, `branch` (a number), the state without its key.
    - branch 0: the old state at v = 0, diff 0, its key in the input's `key` columns; and the changes, one row per copy
      of a row (diff 1 or -1), with their versions.
    - one for each `DistinctBranch`, the distinct values by key: their changes, in the form of those in branch 0. If
      they are only counted, there is instead one row of branch 0 and diff 0 for each version of a key, which has the
      changes of the counts in the columns of the state.
    - one branch for each of `top_rows`, the least or greatest value by key: the first rows at v = 0, and in each
      version those of the keys that it touches, diff 0.
    The rows of `distinct` and `top_rows` have the columns of the key and the value, at their positions in the input.
    `distinct` has the branches of each of its nodes, several for a `DistinctValues`.

    For each key, the statement returns a row for v = 0 and for each version with changes: the columns of the node, the
    state, v, and the key's next version in the result (NULL for the last). Without a key there is always one row.

    `one_version_sql` returns the same for a step of one version. Then the old state is also in version 1, so that no
    running totals are needed. `hydration_sql` returns the same for hydration, from the input's rows; None with distinct
    values, for which `one_version_sql` is used.
    """

    input: Node
    key: tuple[int, ...]
    distinct: tuple[tuple[DistinctRows | DistinctValues, tuple[DistinctBranch, ...]], ...]
    top_rows: tuple[tuple[DistinctRows, TopK], ...]
    state: pa.Schema
    sql: Statement
    one_version_sql: Statement
    hydration_sql: Statement | None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, *(node for node, _ in (*self.distinct, *self.top_rows)))


class Rows(Enum):
    """The rows with a changed key that a recomputation reads from an input."""

    ALL = "all rows of the key"
    CHANGED = "the changed rows: each row of the result depends on one row of this input"


NeededRows = Rows | DistinctRows
"""The rows of an input that a recomputation reads for a key that has changed in no other input. A `DistinctRows` of the
input's key means: only the changed rows, unless the key appears in the input or disappears from it."""


@dataclass(frozen=True, slots=True)
class TopK:
    """Only the first `count` rows in the order of a column, and ties with the last, affect the result.

    `column`: the position of the column.
    """

    column: int
    descending: bool
    nulls_first: bool
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Recompute(Node):
    """Δf(A) = f(A'[K]) - f(A[K]), with K the keys that changed.

    d0, d1: the rows of the inputs with these keys before a version, with the negative version as v, and in it, with the
    version as v. The statement returns rows with v.

    `keys`: the positions of the key columns in each input; without them all rows. `top_k`: only the first rows
    of each key, or of all rows, are read. `needed_rows`: for each input the rows that are read for a key that has
    changed in no other input. `marked`: the result has a row even for an empty input, so each version has one more row;
    a column before v is false in this row and true in the others. `results_by`: the positions of the key in the result
    if the results are kept; then f(A[K]) is looked up, and the statement reads only the rows in a version.
    """

    branches: tuple[Node, ...]
    keys: tuple[tuple[int, ...], ...]
    needed_rows: tuple[NeededRows, ...]
    marked: bool
    what: str
    sql: Statement
    top_k: TopK | None = None
    results_by: tuple[int, ...] | None = None

    @property
    def recomputes_all(self) -> bool:
        """Whether every change recomputes all rows."""
        return not all(self.keys) and self.top_k is None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The branches, then the `DistinctRows` nodes in `needed_rows`."""
        return (*self.branches, *(needed for needed in self.needed_rows if isinstance(needed, DistinctRows)))


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
