"""Lowering of a rewritten relation to a delta plan: nodes with a delta rule each, and their Spark statements.

A node computes its changes from the changes of its inputs. Its statement reads d0, d1, ...: rows of the inputs, each
followed by its version `v` (see `operator`) and, where multiplicities matter, its `diff`. It returns rows in the same
form. Statements are rendered once, with the plan, and are the same in every step.

Rules, with A the old and A' = A + ΔA the new input, and A[K] the rows of A whose key is in K:
    linear        Δf(A) = f(ΔA): filters, projections and unnest, below a stateful operator, or above one if its
                  statement cannot include them
    join          Δ(A ⋈ B) = ΔA ⋈ B' + A ⋈ ΔB: inner joins; only rows whose key is in ΔA or ΔB are looked up
    aggregate     count, exact sum and average: S' = S + Σ diff * value, by key. min and max are looked up in the values
                  of the key in order; DISTINCT calls add the changes of the `distinct` node of the key and the value
    distinct      DISTINCT: keeps a multiplicity per row and emits a change when it becomes or ceases to be positive;
                  without Spark
    by key        Δf(A) = f(A'[K]) - f(A[K]), with K the keys of ΔA: every other operator that has a key; an aggregate
                  or window over a window whose partitions contain its groups is computed together with that window
    all rows      Δf(A) = f(A') - f(A): the same without a key
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from catalog import updates
from catalog.ids import ObjectId
from protocol.pgwire.types import BOOL, INT8, is_row
from server.dataflow.plan.extremes import CallValues, adds_up_by_value, extreme
from server.dataflow.plan.late_columns import late_form
from server.dataflow.plan.nodes import (
    MEMBER,
    AccumulableAggregate,
    Concat,
    Constant,
    DistinctBranch,
    DistinctRows,
    DistinctValues,
    InnerJoin,
    Linear,
    NeededRows,
    Node,
    Recompute,
    Rows,
    Source,
    SpecialForm,
    Statement,
    Temporal,
    TopK,
)
from server.dataflow.plan.partitions import moved, partitioned, passed_on
from server.dataflow.plan.top_k import top_k_by_limit, top_k_by_order, top_k_by_row_number
from server.dataflow.plan.totals_statements import TotalsStatements
from server.sql.columns import NewColumns, ids, named
from server.sql.conditions import above_zero, all_of, filtered, never_fails, parts
from server.sql.direct_scan import direct_scan
from server.sql.expressions import Call, Column, ColumnRef, Expression, Literal, walk
from server.sql.functions import syntax
from server.sql.functions.exact_sums import MIDDLE
from server.sql.functions.table import OPERATORS, Function
from server.sql.relations import (
    Aggregate,
    Distinct,
    DistinctOn,
    Filter,
    Join,
    JoinKind,
    Limit,
    Project,
    Recursive,
    RecursiveRows,
    Relation,
    Scan,
    Series,
    SetKind,
    SetOperation,
    Sort,
    Unnest,
    Values,
    Window,
    inputs_of,
    joined,
    only,
    with_inputs,
)
from server.sql.render import Renderer, unbound
from server.sql.rewrite.float_sums import with_middle_buckets
from server.sql.rewrite.keys import keyed_join, partition_keys, splits_by_side, with_some_column
from server.sql.temporal import bound_of, is_known, is_maintainable, is_temporal, times_of
from server.sql.versioned_plan import carried, versioned


class NoRule(Exception):
    """The query has no delta plan; the message names the part that has no rule."""


def delta_plan(relation: Relation, followed: frozenset[ObjectId]) -> Node:
    """The delta plan of a rewritten relation (`rewrite`). NoRule also if it reads a relation not in `followed`."""
    if not is_maintainable(relation):
        raise NoRule("mz_now() combined with columns of several queries")
    return _Planner(relation, followed).planned(relation)


def arrow_type(column: Column) -> pa.DataType:
    """The Arrow type of Spark's result for a column in a plan: a numeric has its expression's precision and scale.

    NoRule for a row: what operators keep has the types of columns of tables.
    """
    if is_row(column.type):
        raise NoRule("rows between two operators")
    if column.type.name == "numeric" and column.precision:
        return pa.decimal128(column.precision, column.type.scale or 0)
    return column.type.arrow


_TIMES = next(f for f in OPERATORS["*"] if f.arguments == (INT8, INT8))
_EQUAL = next(f for f in OPERATORS["="] if f.arguments == (INT8, INT8))
_ZERO = Literal(0, INT8)


class _Planner:
    """Makes the nodes of one query. Equal relations share a node.

    A stateful node also computes the linear relations above it, if its statement can include them. The parameter `base`
    of a method is the stateful relation. `relation` is the topmost Filter, Project, Unnest or Sort above it; without
    any, it is `base` itself.

        relation = Project(Filter(base))        one node, whose changes are those of `relation`
    """

    def __init__(self, root: Relation, followed: frozenset[ObjectId]) -> None:
        self._followed = followed
        self._root = root
        self._new = NewColumns(root)
        self._known: dict[str, Node] = {}
        self._distinct_nodes: dict[tuple[Node, tuple[int, ...], bool], DistinctRows] = {}

    def planned(self, relation: Relation) -> Node:
        """The node of a relation. Relations that differ only in the ids of their columns share one node."""
        name = _fingerprint(relation)
        if name not in self._known:
            self._known[name] = self._node(relation)
        return self._known[name]

    def _node(self, relation: Relation) -> Node:
        """A new node for a relation, by the rule for the first relation below that is not linear."""
        if _is_constant(relation):
            return Constant(_schema(relation.columns), relation, _text(self._with_column(relation)))
        base = relation
        while isinstance(base, (Filter, Project, Unnest, Sort)) and not is_temporal(base):
            base = base.input
        match base:
            case Filter():
                return self._temporal(base) if relation is base else self._linear_over(base, relation)
            case Scan():
                return self._over_source(base, relation)
            case Join(kind=JoinKind.INNER | JoinKind.CROSS):
                return self._inner_join(base, relation)
            case Join():
                return self._recomputed_join(base, relation)
            case Aggregate() | Window() if (node := self._with_window_below(base, relation)) is not None:
                return node
            case Aggregate() if _is_accumulable(base):
                keeps = _only_projects(relation, base) and all(map(never_fails, _expressions_above(relation, base)))
                return self._accumulable(base, relation) if keeps else self._linear_over(base, relation)
            case Aggregate():
                return self._recomputed_aggregate(base, relation)
            case Window(input=input):
                keys = [key for key in partition_keys(base) if isinstance(key, ColumnRef)]
                node = self._recomputed(base, relation, [input], [_key_positions(keys, input)], "window")
                return replace(node, top_k=top_k_by_row_number(base, relation))
            case Distinct(input=input):
                return self._recomputed(base, relation, [input], [_all_positions(input)], "distinct", distinct=(True,))
            case DistinctOn(input=input, keys=keys_, order=order):
                node = self._recomputed(base, relation, [input], [_key_positions(keys_, input)], "distinct on")
                key = next((key for key in order if key.expression not in keys_), None)
                return node if key is None else replace(node, top_k=top_k_by_order(key, input, 1))
            case SetOperation(kind=SetKind.UNION, all=True):
                return self._union_all(base) if relation is base else self._linear_over(base, relation)
            case SetOperation(kind=SetKind.UNION):
                every = replace(base, all=True)
                distinct = carried(relation, base, Distinct(every), ())
                return self.planned(distinct)
            case SetOperation(kind=kind, all=counted, left=left, right=right) if base.columns:
                what = f"{kind.lower()}{' all' if counted else ''}"
                keys_of = [_all_positions(left), _all_positions(right)]
                return self._recomputed(base, relation, [left, right], keys_of, what, distinct=(not counted,) * 2)
            case Limit(input=Sort(input=input)):
                limited = self._recomputed(base, relation, [input], [()], "limit")
                return replace(limited, top_k=top_k_by_limit(base))
            case Recursive() | RecursiveRows():
                raise NoRule("WITH RECURSIVE")
        raise NoRule(type(base).__name__)

    # -- linear -----------------------------------------------------------------------------------------------------

    def _over_source(self, base: Scan, relation: Relation) -> Node:
        if base.id not in self._followed:
            raise NoRule("a relation that has no history")
        scan = direct_scan(relation)
        if scan is not None and not scan.keys:
            return Source(_schema(relation.columns), relation, base.id, scan.columns)
        used = _columns_read_above(relation, base)
        positions = tuple(i for i, c in enumerate(base.columns) if c.id in used)
        columns = tuple(base.columns[i] for i in positions)
        source = Source(_schema(columns), only(base, columns), base.id, positions)
        return self._linear(source, columns, base, relation)

    def _linear(self, below: Node, columns: Sequence[Column], base: Relation, relation: Relation) -> Node:
        """The Filter, Project and Unnest nodes from `relation` down to `base`, over a node with these columns."""
        if relation is base:
            return below
        scan, more = self._scan(0, columns, "diff")
        plain = carried(relation, base, scan, ())
        direct = direct_scan(Project(plain, relation.columns, tuple(map(ColumnRef, relation.columns))))
        statement = carried(relation, base, scan, more)
        return Linear(
            _schema(relation.columns),
            relation,
            below,
            direct,
            self._text(only(statement, (*relation.columns, *more)), linear=True),
        )

    def _with_column(self, relation: Relation) -> Relation:
        """The relation, with a column added if it has none: Spark's result without columns has no row count."""
        if relation.columns:
            return relation
        one = Literal(1, INT8)
        return Project(relation, (self._new.column("", one),), (one,))

    def _linear_over(self, base: Relation, relation: Relation) -> Node:
        """A linear node over the separate node of `base`, which other relations may share."""
        return self._linear(self.planned(base), base.columns, base, relation)

    def _temporal(self, base: Filter) -> Node:
        """A temporal filter: the conditions on `mz_now()` become the columns `lower` and `upper` of each row."""
        input = base.input
        conditions = parts(base.predicate)
        bounds = [bound for condition in conditions if (bound := bound_of(condition)) is not None]
        others = [condition for condition in conditions if bound_of(condition) is None]
        scan, more = self._scan(0, input.columns, "diff")
        times = times_of(bounds)
        lower, upper = (self._bigint() for _ in times)
        rows = filtered(scan, [*others, *is_known(bounds)])
        refs = tuple(map(ColumnRef, input.columns))
        timed = Project(rows, (*input.columns, lower, upper, *more), (*refs, *times, *map(ColumnRef, more)))
        return Temporal(_schema(base.columns), base, self.planned(input), self._text(timed, linear=True))

    def _union_all(self, base: SetOperation) -> Node:
        schema = _schema(base.columns)
        branches: list[Node] = []
        queue: list[Relation] = [base]
        while queue:  # nested unions become one Concat instead of one each
            match queue.pop():
                case SetOperation(kind=SetKind.UNION, all=True, columns=columns, left=left, right=right) if (
                    _schema(columns) == schema
                ):
                    queue += [right, left]
                case branch:
                    node = self.planned(branch)
                    branches += node.branches if isinstance(node, Concat) and node.schema == schema else [node]
        return Concat(schema, base, tuple(branches))

    # -- joins ------------------------------------------------------------------------------------------------------

    def _inner_join(self, base: Join, relation: Relation) -> Node:
        """An inner join by its delta rule; recomputed by key if its condition may fail on pairs that never exist."""
        keyed = keyed_join(base, self._new)
        join = keyed.join
        if not all(never_fails(c) or splits_by_side(c, join) for c in parts(join.condition)):
            return self._recomputed_join(base, relation)
        # The statement computes pairs of rows that never exist in the same version: expressions must not fail on these.
        if not all(map(never_fails, _expressions_above(relation, base))):
            return self._linear_over(base, relation)
        columns = relation.columns
        left, (left_v, left_diff) = self._scan(0, join.left.columns, "diff")
        right, (right_v, right_diff) = self._scan(1, join.right.columns, "diff")
        v, diff = self._bigint(), self._bigint()
        later = Call(syntax.GREATEST, (ColumnRef(left_v), ColumnRef(right_v)), INT8, False)
        product = Call(_TIMES, (ColumnRef(left_diff), ColumnRef(right_diff)), INT8, False)
        changed = Call(syntax.OR, (above_zero(left_v), above_zero(right_v)), BOOL, False)
        pairs = joined(JoinKind.INNER, left, right, all_of([*parts(join.condition), changed]))
        refs = tuple(map(ColumnRef, join.columns))
        changes = Project(pairs, (*join.columns, v, diff), (*refs, later, product))
        statement = carried(relation, base, changes, (v, diff))
        return InnerJoin(
            _schema(columns),
            relation,
            self.planned(join.left),
            self.planned(join.right),
            (_positions_of(keyed.left, join.left), _positions_of(keyed.right, join.right)),
            self._text(only(statement, (*columns, v, diff))),
        )

    def _recomputed_join(self, base: Join, relation: Relation) -> Node:
        """An outer, semi or anti join. Where only one side of a key has changed, less than all rows are needed."""
        keyed = keyed_join(base, self._new)
        join = keyed.join
        keys = [_positions_of(keyed.left, join.left), _positions_of(keyed.right, join.right)]
        exists = join.kind in (JoinKind.SEMI, JoinKind.ANTI)
        whole = only(carried(relation, base, join, ()), relation.columns)  # a side without columns has one more now
        what = f"{join.kind.lower()} join"
        node = self._recomputed(join, whole, [join.left, join.right], keys, what, distinct=(False, exists))
        one_side = {JoinKind.RIGHT: 1, JoinKind.FULL: None}.get(join.kind, 0)
        needed_rows: list[NeededRows] = []
        for number, (side, branch) in enumerate(zip((join.left, join.right), node.branches, strict=True)):
            if number == one_side:
                needed_rows.append(Rows.CHANGED)
            elif exists or named(keyed.further_conditions) & ids(side.columns):
                needed_rows.append(Rows.ALL)
            else:
                needed_rows.append(self._distinct_rows(branch, keys[number]))
        return replace(node, needed_rows=tuple(needed_rows))

    # -- aggregates -------------------------------------------------------------------------------------------------

    def _recomputed_aggregate(self, base: Aggregate, relation: Relation) -> Node:
        if base.keys:
            by = _key_positions(base.keys, base.input)
            return _keeping_results(self._recomputed(base, relation, [base.input], [by], "aggregate"), base)
        mark = Column(self._bigint().id, "", BOOL, False)
        marked = []
        for call in base.calls:
            known = [ColumnRef(mark), *([] if call.filter is None else [call.filter])]
            marked.append(replace(call, filter=all_of(known)))
        changed = replace(base, calls=tuple(marked))
        whole = carried(relation, base, changed, ())
        return self._recomputed(changed, whole, [base.input], [()], "aggregate", mark=mark)

    def _accumulable(self, base: Aggregate, relation: Relation) -> Node:
        """An aggregate of which every call is a sum or count, or the least or greatest value."""
        values = CallValues(base, self._new)
        input = values.input
        below = self.planned(input)
        by = _key_positions(base.keys, input)

        def distinct(value: Column) -> DistinctRows:
            return self._distinct_rows(below, (*by, *_positions_of([value], input)), drops_nulls=value.nullable)

        changes, (v, diff, branch) = self._scan(0, input.columns, "diff", "branch")
        is_branch = [
            Call(_EQUAL, (ColumnRef(branch), Literal(i, INT8)), BOOL, False)
            for i in range(1 + len(values.distinct) + len(values.top_rows))
        ]
        statements = TotalsStatements(base, relation, values, self._new)
        running = statements.over_changes(changes, v, ColumnRef(diff), is_branch)
        one_version = statements.over_changes(changes, v, ColumnRef(diff), is_branch, one_version=True)
        hydration_sql = None
        if not values.distinct:  # a DISTINCT call would need the rows once more
            rows = replace(changes, columns=input.columns or (v,))
            hydration_sql = _text(statements.over_rows(rows).relation)

        def branches(subset: Sequence[int]) -> tuple[DistinctBranch, ...]:
            return tuple(
                DistinctBranch(i + 1, (*by, *_positions_of([values.distinct[i]], input)), running.counts.get(i + 1))
                for i in subset
            )

        def values_of(subset: Sequence[int]) -> DistinctRows | DistinctValues:
            if len(subset) == 1:
                return distinct(values.distinct[subset[0]])
            return _distinct_values(below, by, _positions_of([values.distinct[i] for i in subset], input))

        return AccumulableAggregate(
            _schema(relation.columns),
            relation,
            input=below,
            key=by,
            distinct=tuple((values_of(subset), branches(subset)) for subset in values.subsets),
            top_rows=tuple(
                (distinct(value), TopK(len(base.keys), descending, False, 1)) for value, descending in values.top_rows
            ),
            state=_schema(running.state),
            sql=_text(running.relation),
            one_version_sql=_text(one_version.relation),
            hydration_sql=hydration_sql,
        )

    # -- recomputed by key ------------------------------------------------------------------------------------------

    def _with_window_below(self, base: Aggregate | Window, relation: Relation) -> Node | None:
        """One node for `base` and a window below it. None if there is none, or others need the window's rows, too."""
        if isinstance(base, Aggregate) and not _is_accumulable(base):
            return None
        found = partitioned(base)
        if found is None:
            return None
        window, input = found.window, found.window.input
        windows = [node for node in walk(self._root) if isinstance(node, Window)]
        if sum(_fingerprint(node) == _fingerprint(window) for node in windows) > 1:
            return None
        keys = [key for key in partition_keys(window) if isinstance(key, ColumnRef)]
        what = "window and aggregate" if isinstance(base, Aggregate) else "window"
        node = self._recomputed(window, relation, [input], [_key_positions(keys, input)], what)
        if isinstance(base, Aggregate):
            node = _keeping_results(node, window)
        return replace(node, top_k=top_k_by_row_number(window, found.relation))

    def _recomputed(
        self,
        base: Relation,
        relation: Relation,
        inputs: Sequence[Relation],
        keys: Sequence[tuple[int, ...]],
        what: str,
        distinct: Sequence[bool] = (False, False),
        mark: Column | None = None,
    ) -> Recompute:
        """A node that computes the rows of the changed keys before and after the change.

        `keys`: the positions of the key in each of `inputs`, () for all rows. `what`: the rule's name in EXPLAIN.
        `distinct`: for each input whether the result depends on the presence of rows only, not on multiplicities.
        `mark`: see `Recompute`.
        """
        if not isinstance(base, SetOperation):
            inputs = [with_some_column(input, self._new) for input in inputs]
        scans: list[Relation] = []
        versions: dict[ObjectId, Column] = {}
        for number, input in enumerate(inputs):
            scan, (version,) = self._scan(number, input.columns if mark is None else (*input.columns, mark))
            scans.append(scan)
            versions[scan.id] = version
        over = _over_scans(base, scans)
        statement, version = versioned(moved(relation, base, over), versions, self._new)
        branches = [
            self._distinct_rows(branch, tuple(range(len(branch.schema)))) if is_distinct else branch
            for branch, is_distinct in zip(map(self.planned, inputs), distinct, strict=False)
        ]
        return Recompute(
            _schema(relation.columns),
            relation,
            tuple(branches),
            tuple(keys),
            (Rows.ALL,) * len(branches),
            mark is not None,
            what,
            self._text_of_sums(only(statement, (*relation.columns, version)), scans),
        )

    def _distinct_rows(self, node: Node, positions: tuple[int, ...], *, drops_nulls: bool = False) -> DistinctRows:
        """The `DistinctRows` node over these columns; one per node and columns."""
        columns = tuple(node.relation.columns[position] for position in positions)
        identity = (node, positions, drops_nulls)
        if identity not in self._distinct_nodes:
            self._distinct_nodes[identity] = DistinctRows(
                _schema(columns), only(node.relation, columns), node, positions, drops_nulls
            )
        return self._distinct_nodes[identity]

    # -- statements -------------------------------------------------------------------------------------------------

    def _text(self, relation: Relation, *, linear: bool = False) -> Statement:
        """As the function `_text`, with late columns."""
        late = late_form(relation, self._new, _large_text if linear else _small_text)
        return replace(_text(relation, linear=linear), late=late)

    def _text_of_sums(self, relation: Relation, scans: Sequence[Relation]) -> Statement:
        """The statement, with a special form if it has sums of floats over buckets that one of the scans has."""
        statement = self._text(relation)
        changed, buckets = with_middle_buckets(relation)
        for number, scan in enumerate(scans):
            if buckets and {bucket.id for bucket in buckets} <= ids(scan.columns):
                form = SpecialForm(
                    _small_text(changed), f"d{number}", _positions_of(buckets, scan), min(MIDDLE), max(MIDDLE)
                )
                return replace(statement, special=form, late=None)
        return statement

    # -- columns ----------------------------------------------------------------------------------------------------

    def _bigint(self) -> Column:
        """A new column of the type of versions and diffs."""
        return self._new.column("", _ZERO)

    def _scan(self, number: int, columns: Sequence[Column], *more: str) -> tuple[Scan, tuple[Column, ...]]:
        """A statement's input: these columns, the version, then one bigint for each name in `more`."""
        extra = (self._bigint(), *(self._bigint() for _ in more))
        return Scan(ObjectId(f"d{number}"), (*columns, *extra)), extra


def _distinct_values(node: Node, key: tuple[int, ...], members: tuple[int, ...]) -> DistinctValues:
    """The node for DISTINCT calls of several subsets of the same values (see `DistinctValues`)."""
    columns = tuple(node.relation.columns[position] for position in (*key, members[0]))
    schema = _schema(columns).append(pa.field(MEMBER, pa.int64()))
    return DistinctValues(schema, only(node.relation, columns), node, key, members)


def _is_accumulable(node: Aggregate) -> bool:
    """Whether the results follow from sums and counts, and from the least and greatest values."""
    return all(adds_up_by_value(call) or extreme(call) is not None for call in node.calls)


def _over_scans(base: Relation, scans: Sequence[Relation]) -> Relation:
    """`base` with the statement's inputs instead of its own. The Sort below a Limit is kept."""
    if isinstance(base, Limit) and isinstance(base.input, Sort):
        return replace(base, input=replace(base.input, input=scans[0]))
    return with_inputs(base, scans)


def _keeping_results(node: Recompute, base: Relation) -> Recompute:
    """The node keeps its results if they have the key: an aggregate's are few."""
    (key,), (input,) = node.keys, inputs_of(base)
    passed = passed_on(node.relation, base)
    found = [passed.get(input.columns[position].id) for position in key]
    positions = tuple(position for position in found if position is not None)
    return replace(node, results_by=positions) if key and len(positions) == len(key) else node


def _only_projects(relation: Relation, base: Relation) -> bool:
    """Whether only Projects are above `base`, so that each of its rows gives one row."""
    while isinstance(relation, Project) and relation is not base:
        relation = relation.input
    return relation is base


def _expressions_above(relation: Relation, base: Relation) -> list[Expression]:
    """The expressions of the nodes from `relation` down to `base`. An Unnest counts as one that can fail."""
    found: list[Expression] = []
    while relation is not base:
        match relation:
            case Filter(predicate=predicate):
                found.append(predicate)
            case Project(expressions=expressions):
                found += expressions
            case Unnest():
                return [_FAILS]
        (relation,) = inputs_of(relation)
    return found


_FAILS = Call(Function("unnest", (), BOOL, None), (), BOOL, False)


def _columns_read_above(relation: Relation, base: Scan) -> set[int]:
    """The ids of the scan's columns that the nodes from `relation` down to it read or return."""
    found: set[int] = set()
    while relation is not base:
        match relation:
            case Filter(predicate=predicate):
                found |= named(predicate)
            case Project(expressions=expressions):
                found |= named(expressions)
            case Unnest(arrays=arrays):
                found |= named(arrays)
        above = ids(relation.columns)
        (relation,) = inputs_of(relation)
        found |= above & ids(base.columns)
    return found


def _key_positions(keys: Sequence[Expression], input: Relation) -> tuple[int, ...]:
    """The positions in `input` of the keys that are columns. Keys that are expressions are omitted."""
    return _positions_of([key.column for key in keys if isinstance(key, ColumnRef)], input)


def _positions_of(columns: Sequence[Column], input: Relation) -> tuple[int, ...]:
    position = {c.id: i for i, c in enumerate(input.columns)}
    return tuple(position[c.id] for c in columns)


def _all_positions(relation: Relation) -> tuple[int, ...]:
    return tuple(range(len(relation.columns)))


def _schema(columns: Sequence[Column]) -> pa.Schema:
    return updates.rows_schema([arrow_type(c) for c in columns])


def _text(relation: Relation, *, linear: bool = False) -> Statement:
    """Linear statements have no hint: Spark then evaluates few rows while it plans, without a job."""
    large = _large_text(relation)
    return Statement(large if linear else _small_text(relation), large)


def _small_text(relation: Relation) -> str:
    return Renderer(relation, unbound, hash_joins=True).text()


def _large_text(relation: Relation) -> str:
    return Renderer(relation, unbound, single_partition=False).text()


def _fingerprint(relation: Relation) -> str:
    """The relation's SQL, with columns renamed x0, x1, ... in order of appearance."""
    names: dict[str, str] = {}
    refs = Project(relation, relation.columns, tuple(map(ColumnRef, relation.columns)))
    text = Renderer(refs, unbound, single_partition=False).text()
    return re.sub(r"\bx\d+\b", lambda m: names.setdefault(m[0], f"x{len(names)}"), text)


def _is_constant(relation: Relation) -> bool:
    """Whether the relation depends on neither a collection nor the time."""
    if isinstance(relation, (Values, Series)):
        return True
    below = inputs_of(relation)
    return bool(below) and not is_temporal(relation) and all(map(_is_constant, below))
