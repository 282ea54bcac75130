"""Decorrelation: turns correlated subqueries and LATERAL joins into joins. Spark itself supports only a few forms.

`decorrelated(relation)` rewrites LATERAL joins and the subqueries that Spark would reject (see `_is_native`).
Afterwards, only native subqueries name columns of an enclosing query.

The method is that of Neumann and Kemper, "Unnesting Arbitrary Queries" (2015). The domain of an inner query is the set
of distinct combinations of the outer columns that it names. The inner query is computed once for the whole domain:
`_Push` adds the domain's columns to its nodes. The result is joined with the outer rows on these columns, with
NULL equal to NULL. References to outer columns become references to the domain's columns:

    (query)        LEFT JOIN, with an error if a combination has more than one row
    EXISTS         LEFT JOIN with the number of rows per combination
    ANY, ALL, IN   LEFT JOIN with the counts of decisive and of NULL comparisons; the operands are outer columns too
    LATERAL        a join of the same kind, with equality of the combinations as an additional condition
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, INT8, JSONB
from server.sql import expressions as ex
from server.sql.casts import find_cast, is_utc
from server.sql.expressions import (
    Aggregate,
    Call,
    Case,
    Cast,
    Column,
    ColumnRef,
    Expression,
    Literal,
    Quantified,
    SortKey,
    Subquery,
    SubqueryKind,
    WindowCall,
    transform,
    walk,
)
from server.sql.functions import syntax
from server.sql.functions.table import FUNCTIONS, OPERATORS, Form, Function, Kind, Nulls, fail
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import (
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
    SetKind,
    SetOperation,
    Sort,
    Unnest,
    Values,
    Window,
)

COLUMNS_MAX = 20_000  # the maximum number of columns that the rewriting of a statement may create
Node = TypeVar("Node")

_SAME = Function("<=>", (), BOOL, "({0} <=> {1})", nulls=Nulls.NEVER)
_SOME_VALUE = Function("some_value", (), BOOL, "first({0}){f}", Kind.AGGREGATE, Nulls.MAYBE)
_TOO_MANY = Function(
    *("too_many_rows", (), BOOL),
    fail(SqlState.CARDINALITY_VIOLATION, "more than one row returned by a subquery used as an expression"),
    nulls=Nulls.MAYBE,
)
_NEGATIVE = {
    clause: Function("negative_bound", (), INT8, fail(state, f"{clause} must not be negative"), nulls=Nulls.MAYBE)
    for clause, state in (
        ("LIMIT", SqlState.INVALID_ROW_COUNT_IN_LIMIT_CLAUSE),
        ("OFFSET", SqlState.INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE),
    )
}
(_COUNT,) = (f for f in FUNCTIONS["count"] if not f.arguments)
(_ROW_NUMBER,) = FUNCTIONS["row_number"]


def decorrelated(relation: Relation, *, native: bool = True) -> Relation:
    """An equivalent relation without constructs that Spark rejects. 0A000 for what cannot be rewritten.

    If not `native`, all subqueries are rewritten, including those that Spark supports.
    """
    if any(isinstance(n, Subquery) or (isinstance(n, Join) and n.lateral) for n in walk(relation)):
        return _Decorrelator(relation, native=native).relation(relation)
    return relation


def free_columns(node: Relation) -> list[Column]:
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


def substituted(node: Node, swap: dict[int, Column]) -> Node:
    """The node with column references replaced by references to other columns; `swap` is keyed by column id."""

    def change(inner: Any) -> Any | None:
        if isinstance(inner, ColumnRef) and inner.column.id in swap:
            return ColumnRef(swap[inner.column.id], inner.written, inner.position)
        return None

    return transform(node, change)


def _is_native(subquery: Subquery, place: Relation) -> bool:
    """Whether Spark supports the subquery: if correlated, only in WHERE conditions over inner and cross joins."""
    if subquery.kind in (SubqueryKind.ANY, SubqueryKind.ALL):
        return False
    if not isinstance(place, (Project, Filter, AggregateNode)):
        return subquery.kind is SubqueryKind.SCALAR and not free_columns(subquery.relation)
    outer = {column.id for column in free_columns(subquery.relation)}
    if not outer:
        return True
    node = subquery.relation
    if isinstance(node, Project) and not _names(node.expressions, outer):
        node = node.input
    if isinstance(node, AggregateNode) and not node.keys and not _names((node.calls,), outer):
        node = node.input
    return _is_simple(node, outer)


def _is_simple(node: Relation, outer: set[int]) -> bool:
    match node:
        case Scan():
            return True
        case Filter(input=input, predicate=predicate):
            return not _has_query(predicate) and _is_simple(input, outer)
        case Project(input=input, expressions=expressions):
            return not _names(expressions, outer) and not _has_query(expressions) and _is_simple(input, outer)
        case Join(kind=JoinKind.INNER | JoinKind.CROSS, lateral=False, condition=condition, left=left, right=right):
            return (
                not (condition is not None and (_names(condition, outer) or _has_query(condition)))
                and _is_simple(left, outer)
                and _is_simple(right, outer)
            )
    return False


def _in_lambdas(part: Any) -> list[Subquery]:
    """The subqueries in expressions that would be rendered inside a higher-order function, where Spark rejects them.

    Subqueries nested in these subqueries are not included.
    """
    found: list[Subquery] = []

    def collect(node: Any) -> Any | None:
        if isinstance(node, Subquery):
            found.append(node)
            return node
        return None

    def look(node: Any) -> Any | None:
        if isinstance(node, Subquery):
            for operand in node.operands:
                transform(operand, look)
            return node
        if uses_lambda(node):
            transform(node, collect)
            return node
        return None

    for item in _flat(part):
        transform(item, look)
    return found


def uses_lambda(node: Any) -> bool:
    """Whether the Spark SQL of an expression contains its arguments inside a higher-order function."""
    match node:
        case Call(function=function, arguments=arguments, timezone=timezone):
            return not is_utc(timezone) or _form_uses_lambda(function.spark, arguments)
        case Cast(operand=operand, type=target, timezone=timezone):
            rule = find_cast(operand.type.without_modifiers, target.without_modifiers)
            return rule is not None and (not is_utc(timezone) or _form_uses_lambda(rule.spark, (operand,)))
        case Aggregate(function=function, arguments=arguments):
            # values of a group that are ordered, or passed to Python, are sorted with a comparison lambda
            return _form_uses_lambda(function.spark, arguments) or "{a}" in _form(function.spark, arguments)
        case WindowCall(call=call):
            return uses_lambda(call)
        case SortKey(expression=expression):
            return expression.type.element is not None or expression.type == JSONB
        case Quantified():
            return True
    return False


def _form(spark: str | Form | None, arguments: Sequence[Expression]) -> str:
    """The Spark SQL of a function with subqueries as arguments; "" if it has no form in Spark SQL."""
    return (spark(arguments, ["(SELECT 1)"] * len(arguments)) if callable(spark) else spark) or ""


def _form_uses_lambda(spark: str | Form | None, arguments: Sequence[Expression]) -> bool:
    """Whether a form contains a lambda. Without a form, a Python UDF is called and its result unpacked by a lambda."""
    form = _form(spark, arguments)
    return not form or "->" in form


def _walked(part: Any) -> Any:
    if isinstance(part, tuple):
        for item in part:
            yield from _walked(item)
    elif part is not None:
        yield from walk(part)


def _names(part: Any, ids: set[int]) -> bool:
    return any(isinstance(node, ColumnRef) and node.column.id in ids for node in _walked(part))


def _has_query(part: Any) -> bool:
    return any(isinstance(node, Subquery) for node in _walked(part))


def _is_single(node: Relation) -> bool:
    """Whether the relation has at most one row for any data."""
    match node:
        case AggregateNode(keys=keys):
            return not keys
        case Values(rows=rows):
            return len(rows) < 2
        case Limit(limit=Literal(value=value), input=input):
            return (value is not None and value <= 1) or _is_single(input)
        case Project() | Filter() | Sort() | Limit() | Distinct() | Window():
            return _is_single(node.input)
    return False


def same(pairs: Sequence[tuple[Column, Column]]) -> Expression:
    """The condition that columns are pairwise equal, with NULL equal to NULL."""
    tests: list[Expression] = [Call(_SAME, (ColumnRef(a), ColumnRef(b)), BOOL, False) for a, b in pairs]
    return _all(tests)


def _all(tests: Sequence[Expression | None]) -> Expression:
    kept = [t for t in tests if t is not None]
    if not kept:
        return Literal(True, BOOL)
    return kept[0] if len(kept) == 1 else Call(syntax.AND, tuple(kept), BOOL, any(t.nullable for t in kept))


def _greater(a: Expression, b: Expression) -> Expression:
    (operator,) = (o for o in OPERATORS[">"] if o.arguments == (INT8, INT8))
    return Call(operator, (a, b), BOOL, a.nullable or b.nullable)


def joined_columns(kind: JoinKind, left: Relation, right: Relation) -> tuple[Column, ...]:
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        return left.columns
    left_null, right_null = kind in (JoinKind.RIGHT, JoinKind.FULL), kind in (JoinKind.LEFT, JoinKind.FULL)
    return (
        *(replace(c, nullable=c.nullable or left_null) for c in left.columns),
        *(replace(c, nullable=c.nullable or right_null) for c in right.columns),
    )


def _join(kind: JoinKind, left: Relation, right: Relation, condition: Expression | None, lateral: bool = False) -> Join:
    if kind is JoinKind.CROSS and condition is not None:
        kind = JoinKind.INNER
    return Join(kind, left, right, condition, joined_columns(kind, left, right), lateral)


def _least_source(node: Relation, ids: set[int]) -> Relation:
    """The smallest input of nested joins that has these columns and every combination of their values in the join."""
    while isinstance(node, Join):
        sides = []
        if node.kind in (JoinKind.INNER, JoinKind.CROSS, JoinKind.LEFT):
            sides.append(node.left)
        if node.kind in (JoinKind.INNER, JoinKind.CROSS, JoinKind.RIGHT) and not node.lateral:
            sides.append(node.right)
        enough = next((side for side in sides if ids <= {column.id for column in side.columns}), None)
        if enough is None:
            break
        node = enough
    return node


def _only(relation: Relation, columns: Sequence[Column]) -> Relation:
    """The relation with only these of its columns."""
    if relation.columns == tuple(columns):
        return relation
    return Project(relation, tuple(columns), tuple(ColumnRef(c) for c in columns))


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


class _Namer(Protocol):
    """An object with a method `column` that creates columns, as `NewColumns` does."""

    @property
    def column(self) -> Callable[[str, Expression], Column]: ...


class _Decorrelator:
    def __init__(self, root: Relation, *, native: bool) -> None:
        self._native = native
        self.column = NewColumns(root).column

    def relation(self, node: Relation) -> Relation:
        """The node and all nodes below it, rewritten."""
        changed = self._without_queries(node)
        if isinstance(changed, Join) and changed.lateral:
            changed = self._lateral(changed)

        def inside(part: Any) -> Any | None:
            return self.relation(part) if part is not changed and isinstance(part, Relation) else None

        return transform(changed, inside)

    # -- nodes with subqueries --------------------------------------------------------------------------------------

    def _without_queries(self, node: Relation) -> Relation:
        """The node with the non-native subqueries in its own expressions rewritten."""
        match node:
            case Values(rows=rows) if _has_query(rows):
                return self._without_queries(self._projected_rows(node))
            case Limit(input=Project() as project) if self._queries(project.expressions, project):
                return self._without_queries(replace(project, input=replace(node, input=project.input)))
            case Limit() if _has_query((node.limit, node.offset)):
                return self._without_queries(numbered_limit(node, self))
            case Join(kind=JoinKind.INNER | JoinKind.CROSS, condition=condition) if self._queries(condition, node):
                assert condition is not None
                bare = _join(JoinKind.CROSS, node.left, node.right, None, node.lateral)
                return self._without_queries(_only(Filter(bare, condition), node.columns))
            case Join(condition=condition) if self._queries(condition, node):
                return self._outer_join(node)
            case Project(input=input, expressions=expressions) if self._queries(expressions, node):
                below, changed = self._attached(input, expressions, node)
                return Project(below, node.columns, changed)
            case Filter(input=input, predicate=predicate) if self._queries(predicate, node):
                below, (test,) = self._attached(input, (predicate,), node)
                return _only(Filter(below, test), node.columns)
            case Sort(input=input, keys=keys) if self._queries(keys, node):
                below, changed = self._attached(input, keys, node)
                return _only(Sort(below, changed), node.columns)
            case Window(input=input, calls=calls) if self._queries(calls, node):
                below, window = self._attached(input, calls, node)
                added = node.columns[len(input.columns) :]
                return _only(Window(below, window, (*below.columns, *added)), node.columns)
            case AggregateNode(input=input, keys=keys, calls=calls) if self._queries((keys, calls), node):
                below, changed = self._attached(input, (*keys, *calls), node)
                return replace(node, input=below, keys=changed[: len(keys)], calls=changed[len(keys) :])
            case Unnest(input=input, arrays=arrays) if self._queries(arrays, node):
                below, changed = self._attached(input, arrays, node)
                added = node.columns[len(input.columns) :]
                return _only(replace(node, input=below, arrays=changed, columns=(*below.columns, *added)), node.columns)
            case DistinctOn(input=input, keys=keys, order=order) if self._queries((keys, order), node):
                below, changed = self._attached(input, (*keys, *order), node)
                return _only(DistinctOn(below, changed[: len(keys)], changed[len(keys) :]), node.columns)
        return node

    def _projected_rows(self, node: Values) -> Relation:
        """VALUES as a union of one-row projections, because Spark does not support subqueries in VALUES."""
        arms: list[Relation] = []
        for row in node.rows:
            columns = node.columns
            if len(node.rows) > 1:
                columns = tuple(self.column(c.name, ColumnRef(c)) for c in columns)
            arms.append(Project(Values((), ((),)), columns, row))
        result = arms[0]
        for number, arm in enumerate(arms[1:], 2):
            last = number == len(arms)
            columns = node.columns if last else tuple(self.column(c.name, ColumnRef(c)) for c in node.columns)
            result = SetOperation(SetKind.UNION, True, result, arm, columns)
        return result

    def _queries(self, part: Any, place: Relation) -> list[Subquery]:
        """The subqueries in expressions that must be rewritten, excluding those nested in other subqueries."""
        found: list[Subquery] = []
        in_lambda = _in_lambdas(part) if self._native and _has_query(part) else []

        def look(node: Any) -> Any | None:
            if not isinstance(node, Subquery):
                return None
            if self._native and _is_native(node, place) and node not in in_lambda:
                return None if any(map(_has_query, node.operands)) else node
            if node not in found:
                found.append(node)
            return node

        for item in _flat(part):
            transform(item, look)
        return found

    def _attached(
        self, input: Relation, expressions: tuple[Any, ...], place: Relation
    ) -> tuple[Relation, tuple[Any, ...]]:
        """The input extended by columns with the subqueries' values, and the expressions rewritten to use them.

        The expressions may also be sort keys or window calls.
        """
        values: list[tuple[Subquery, Expression]] = []
        for subquery in self._queries(expressions, place):
            if subquery.operands and _has_query(subquery.operands):
                input, operands = self._attached(input, subquery.operands, place)
            else:
                operands = subquery.operands
            input, value = self._computed(input, replace(subquery, operands=operands))
            values.append((subquery, value))

        def change(node: Any) -> Any | None:
            return next((value for known, value in values if known == node), None)

        return input, tuple(transform(e, change) for e in expressions)

    def _outer_join(self, node: Join) -> Relation:
        """Computes each subquery in an outer join's condition on the side whose columns it names.

        0A000 if it names columns of both sides.
        """
        assert node.condition is not None
        sides = [node.left, node.right]
        condition = node.condition
        for subquery in self._queries(condition, node):
            needed = self._needed(subquery)
            number = next((i for i, side in enumerate(sides) if needed <= {c.id for c in side.columns}), None)
            if number is None or (node.lateral and number == 1):
                raise _refused("a subquery in the condition of an outer join that names columns of both sides")
            sides[number], (condition,) = self._attached_one(sides[number], subquery, condition)
        return _only(_join(node.kind, sides[0], sides[1], condition, node.lateral), node.columns)

    def _attached_one(self, side: Relation, subquery: Subquery, condition: Expression) -> tuple[Relation, tuple[Any]]:
        side, value = self._computed(side, subquery)
        return side, (transform(condition, lambda node: value if node == subquery else None),)

    @staticmethod
    def _needed(subquery: Subquery) -> set[int]:
        named = {n.column.id for operand in subquery.operands for n in walk(operand) if isinstance(n, ColumnRef)}
        return named | {c.id for c in free_columns(subquery.relation)}

    # -- the value of a subquery ------------------------------------------------------------------------------------

    def _computed(self, input: Relation, subquery: Subquery) -> tuple[Relation, Expression]:
        """The input with additional columns, and an expression over them that is the subquery's value."""
        relation, test = subquery.relation, subquery.test
        if subquery.kind in (SubqueryKind.IN, SubqueryKind.ANY, SubqueryKind.ALL):
            assert test is not None
            operands = tuple(self.column("", operand) for operand in subquery.operands)
            refs = tuple(ColumnRef(c) for c in input.columns)
            input = Project(input, (*input.columns, *operands), (*refs, *subquery.operands))
            test = substituted(test, {h.id: c for h, c in zip(subquery.holders, operands, strict=True)})
            relation = Project(relation, (outcome := self.column("", test),), (test,))
            held = ColumnRef(outcome)
            decided: Expression = held
            if subquery.kind is SubqueryKind.ALL:
                decided = Call(syntax.NOT, (held,), BOOL, held.nullable)
            unsure = Call(syntax.IS_NULL, (held,), BOOL, False)
            counts = [Aggregate(_COUNT, (), INT8, False, filter=f) for f in (decided, unsure)]
            input, (found, unknown) = self._left_joined(input, relation, counts)
            zero = Literal(0, INT8)
            none = subquery.kind is SubqueryKind.ALL
            branches = (
                (_greater(ColumnRef(found), zero), Literal(not none, BOOL)),
                (_greater(ColumnRef(unknown), zero), Literal(None, BOOL)),
            )
            return input, Case(branches, Literal(none, BOOL), BOOL)
        if subquery.kind is SubqueryKind.EXISTS:
            input, (rows,) = self._left_joined(input, _only(relation, ()), [Aggregate(_COUNT, (), INT8, False)])
            return input, _greater(Call(syntax.COALESCE, (ColumnRef(rows), Literal(0, INT8)), INT8, False),
                                   Literal(0, INT8))  # fmt: skip
        (column,) = relation.columns
        if _is_single(relation):
            input, (value,) = self._left_joined(input, relation, None)
            return input, ColumnRef(value)
        some = Aggregate(_SOME_VALUE, (ColumnRef(column),), column.type, True, column.precision)
        input, (rows, value) = self._left_joined(input, relation, [Aggregate(_COUNT, (), INT8, False), some])
        too_many = _greater(ColumnRef(rows), Literal(1, INT8))
        return input, Case(((too_many, Call(_TOO_MANY, (), column.type, True)),), ColumnRef(value), column.type)

    def _left_joined(
        self, input: Relation, relation: Relation, calls: Sequence[Aggregate] | None
    ) -> tuple[Relation, tuple[Column, ...]]:
        """The input LEFT JOINed with the relation, and the columns of the relation in the join.

        With `calls`, the relation is first aggregated by the domain's columns, and the columns are those of the calls.
        """
        outer = [c for c in free_columns(relation) if c.id in {known.id for known in input.columns}]
        pushed, carried = self._pushed(relation, self._domain(input, outer), outer)
        own = relation.columns
        if calls is not None:
            keys = tuple(self.column("", ColumnRef(c)) for c in carried)
            own = tuple(self.column("", call) for call in calls)
            columns = (*keys, *own)
            pushed = AggregateNode(pushed, tuple(ColumnRef(c) for c in carried), tuple(calls), columns)
            carried = keys
        condition = same(list(zip(outer, carried, strict=True)))
        joined = _join(JoinKind.LEFT, input, pushed, condition)
        known = {c.id: c for c in joined.columns}
        result = _only(joined, (*(known[c.id] for c in input.columns), *(known[c.id] for c in own)))
        return result, tuple(known[c.id] for c in own)

    def _domain(self, input: Relation, outer: Sequence[Column]) -> Callable[[], Relation]:
        """Returns a function that creates the domain of some columns of the input, with new column ids on each call."""

        source = _least_source(input, {column.id for column in outer})

        def make() -> Relation:
            if not outer:
                return Values((), ((),))
            refs = tuple(ColumnRef(c) for c in outer)
            return Distinct(Project(source, tuple(self.column(f"outer.{ex.name_of(ref)}", ref) for ref in refs), refs))

        return make

    def _pushed(
        self, relation: Relation, domain: Callable[[], Relation], outer: Sequence[Column]
    ) -> tuple[Relation, tuple[Column, ...]]:
        if not outer:
            return relation, ()
        return _Push(self, domain, outer).pushed(relation)

    # -- LATERAL, LIMIT ---------------------------------------------------------------------------------------------

    def _lateral(self, node: Join) -> Relation:
        known = {c.id for c in node.left.columns}
        outer = [c for c in free_columns(node.right) if c.id in known]
        if not outer:
            return replace(node, lateral=False)
        if node.kind in (JoinKind.RIGHT, JoinKind.FULL):
            raise _refused(f"LATERAL in a {node.kind} JOIN")
        is_true = node.condition is None or node.condition == Literal(True, BOOL)
        if isinstance(node.right, Unnest) and node.right.input == Values((), ((),)):
            added = node.right.columns
            if is_true:
                nulls = node.columns[len(node.left.columns) :]
                outer_too = node.kind is JoinKind.LEFT
                columns = (*node.left.columns, *(nulls if outer_too else added))
                return replace(node.right, input=node.left, columns=columns, outer=outer_too)
            if node.kind is not JoinKind.LEFT:
                assert node.condition is not None
                rows = replace(node.right, input=node.left, columns=(*node.left.columns, *added))
                return Filter(rows, node.condition)
        pushed, carried = self._pushed(node.right, self._domain(node.left, outer), outer)
        condition = _all([None if is_true else node.condition, same(list(zip(outer, carried, strict=True)))])
        return _only(_join(node.kind, node.left, pushed, condition), node.columns)


def numbered_limit(node: Limit, new: _Namer, partition: tuple[Column, ...] = ()) -> Relation:
    """LIMIT as a condition on row_number() OVER (PARTITION BY `partition`)."""
    input = node.input
    if isinstance(input, Project):  # a projection commutes with LIMIT
        return replace(input, input=numbered_limit(replace(node, input=input.input), new, partition))
    order = input.keys if isinstance(input, Sort) else ()
    number = Aggregate(_ROW_NUMBER, (), INT8, False)
    call = WindowCall(number, tuple(ColumnRef(c) for c in partition), order, "")
    column = new.column("", number)
    rows = Window(input.input if isinstance(input, Sort) else input, (call,), (*input.columns, column))
    plus = next(o for o in OPERATORS["+"] if o.arguments == (INT8, INT8))
    offset = _bound(node.offset, "OFFSET")
    limit = _bound(node.limit, "LIMIT")
    tests: list[Expression] = []
    if offset is not None:
        start = Call(syntax.COALESCE, (offset, Literal(0, INT8)), INT8, False)
        tests.append(_greater(ColumnRef(column), start))
    if limit is not None:
        end = limit if offset is None else Call(plus, (limit, start), INT8, True)
        beyond = _greater(ColumnRef(column), end)
        inside = Call(syntax.NOT, (beyond,), BOOL, True)
        unbound = Call(syntax.IS_NULL, (limit,), BOOL, False)
        tests.append(Call(syntax.OR, (unbound, inside), BOOL, True) if limit.nullable else inside)
    kept: Relation = Filter(rows, _all(tests)) if tests else rows
    return _only(Sort(kept, order) if order and not partition else kept, input.columns)


def _bound(value: Expression | None, clause: str) -> Expression | None:
    """The value, wrapped to raise an error if it is negative; None if there is no bound."""
    if value is None or (isinstance(value, Literal) and value.value is None):
        return None
    if isinstance(value, Literal):
        return value
    negative = _greater(Literal(0, INT8), value)
    return Case(((negative, Call(_NEGATIVE[clause], (), INT8, True)),), value, INT8)


def _flat(part: Any) -> list[Any]:
    if isinstance(part, tuple):
        return [inner for item in part for inner in _flat(item)]
    return [] if part is None else [part]


def _refused(what: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} is not supported")


class _Push:
    """Computes one inner query for its whole domain by adding the domain's columns to each of its nodes."""

    def __init__(self, owner: _Decorrelator, domain: Callable[[], Relation], outer: Sequence[Column]) -> None:
        self._owner = owner
        self._domain = domain
        self._outer = outer
        self._ids = {column.id for column in outer}

    def pushed(self, node: Relation) -> tuple[Relation, tuple[Column, ...]]:
        """The node's rows for each combination, and the domain's columns in them. Other columns keep their ids."""
        if not self._depends(node):
            domain = self._domain()
            return _join(JoinKind.CROSS, domain, node, None), domain.columns
        match node:
            case Values():
                return self._values(node)
            case Project(input=input):
                below, carried = self.pushed(input)
                refs = tuple(ColumnRef(c) for c in carried)
                expressions = (*refs, *self._swapped(node.expressions, carried))
                return Project(below, (*carried, *node.columns), expressions), carried
            case Filter(input=input):
                below, carried = self.pushed(input)
                return Filter(below, self._swapped(node.predicate, carried)), carried
            case Unnest(input=input):
                below, carried = self.pushed(input)
                added = node.columns[len(input.columns) :]
                arrays = self._swapped(node.arrays, carried)
                return replace(node, input=below, arrays=arrays, columns=(*below.columns, *added)), carried
            case Join():
                return self._join(node)
            case AggregateNode():
                return self._aggregate(node)
            case Window(input=input):
                below, carried = self.pushed(input)
                refs = tuple(ColumnRef(c) for c in carried)
                calls = self._swapped(node.calls, carried)
                calls = tuple(replace(call, partition=(*refs, *call.partition)) for call in calls)
                added = node.columns[len(input.columns) :]
                return Window(below, calls, (*below.columns, *added)), carried
            case Distinct(input=input):
                below, carried = self.pushed(input)
                return Distinct(_only(below, (*carried, *input.columns))), carried
            case DistinctOn(input=input):
                below, carried = self.pushed(input)
                refs = tuple(ColumnRef(c) for c in carried)
                keys, order = self._swapped(node.keys, carried), self._swapped(node.order, carried)
                order = tuple(ex.SortKey(ref, False, False) for ref in refs) + (order or ())
                return DistinctOn(below, (*refs, *keys), order), carried
            case Sort(input=input):
                return self.pushed(input)  # the order has no effect without LIMIT
            case Limit():
                return self._limit(node)
            case SetOperation():
                return self._set_operation(node)
            case Recursive() | RecursiveRows():
                raise _refused("WITH RECURSIVE that names columns of the query around it")
        raise AssertionError(node)  # scans and series name no outer columns

    def _depends(self, part: Any) -> bool:
        return _names(part, self._ids)

    def _swapped(self, part: Node, carried: Sequence[Column]) -> Node:
        swap = {old.id: new for old, new in zip(self._outer, carried, strict=True)}
        if isinstance(part, tuple):
            return tuple(substituted(item, swap) for item in part)  # type: ignore[return-value]
        return substituted(part, swap)

    def _values(self, node: Values) -> tuple[Relation, tuple[Column, ...]]:
        """Each row becomes a projection of the domain; several rows become a UNION ALL of these."""
        arms: list[Relation] = []
        for row in node.rows:
            domain = self._domain()
            refs = tuple(ColumnRef(c) for c in domain.columns)
            cells = self._swapped(row, domain.columns)
            columns = node.columns
            if arms:
                columns = tuple(self._owner.column(c.name, ColumnRef(c)) for c in columns)
            arms.append(Project(domain, (*domain.columns, *columns), (*refs, *cells)))
        result = arms[0]
        for arm in arms[1:]:
            columns = tuple(self._owner.column(c.name, ColumnRef(c)) for c in result.columns)
            result = SetOperation(SetKind.UNION, True, result, arm, columns)
        width = len(self._outer)
        if len(arms) > 1:
            keys, rest = result.columns[:width], result.columns[width:]
            expressions = tuple(ColumnRef(c) for c in result.columns)
            result = Project(result, (*keys, *node.columns), expressions)
            assert len(rest) == len(node.columns)
        return result, result.columns[:width]

    def _join(self, node: Join) -> tuple[Relation, tuple[Column, ...]]:
        if node.lateral:
            left, carried = self.pushed(node.left)
            right = self._swapped(node.right, carried)
            condition = None if node.condition is None else self._swapped(node.condition, carried)
            return _join(node.kind, left, right, condition, True), carried
        needs_left = self._depends(node.left) or node.kind not in (JoinKind.INNER, JoinKind.CROSS, JoinKind.RIGHT)
        needs_right = self._depends(node.right) or node.kind in (JoinKind.RIGHT, JoinKind.FULL)
        if not needs_left and not needs_right:
            needs_left = True
        left, right, condition = node.left, node.right, node.condition
        pairs: list[tuple[Column, Column]] = []
        left_carried: tuple[Column, ...] = ()
        right_carried: tuple[Column, ...] = ()
        if needs_left:
            left, left_carried = self.pushed(left)
        if needs_right:
            right, right_carried = self.pushed(right)
        if needs_left and needs_right:
            pairs = list(zip(left_carried, right_carried, strict=True))
        carried = right_carried if node.kind is JoinKind.RIGHT or not needs_left else left_carried
        if condition is not None:
            condition = self._swapped(condition, carried)
        if pairs:
            condition = _all([condition, same(pairs)])
        joined: Relation = _join(node.kind, left, right, condition)
        if node.kind is not JoinKind.FULL:
            return joined, carried
        known = {c.id: c for c in joined.columns}
        merged = [
            Call(syntax.COALESCE, (ColumnRef(known[a.id]), ColumnRef(known[b.id])), a.type, True, a.precision)
            for a, b in pairs
        ]
        keys = tuple(self._owner.column("", e) for e in merged)
        rest = tuple(known[c.id] for c in node.columns)
        return Project(joined, (*keys, *rest), (*merged, *(ColumnRef(c) for c in rest))), keys

    def _aggregate(self, node: AggregateNode) -> tuple[Relation, tuple[Column, ...]]:
        """Without GROUP BY, every combination has a row, even if it has no input rows: hence a LEFT JOIN first."""
        below, carried = self.pushed(node.input)
        keys, calls = self._swapped(node.keys, carried), self._swapped(node.calls, carried)
        if not node.keys:
            domain = self._domain()
            mark = self._owner.column("mark", Literal(None, BOOL))
            refs = tuple(ColumnRef(c) for c in below.columns)
            marked = Project(below, (*below.columns, mark), (*refs, Literal(True, BOOL)))
            pairs = list(zip(domain.columns, carried, strict=True))
            below = _join(JoinKind.LEFT, domain, marked, same(pairs))
            is_there = Call(syntax.IS_NOT_NULL, (ColumnRef(mark),), BOOL, False)
            calls = tuple(replace(call, filter=_all([is_there, call.filter])) for call in calls)
            carried = domain.columns
        refs = tuple(ColumnRef(c) for c in carried)
        groups = tuple(self._owner.column("", ref) for ref in refs)
        return AggregateNode(below, (*refs, *keys), calls, (*groups, *node.columns)), groups

    def _limit(self, node: Limit) -> tuple[Relation, tuple[Column, ...]]:
        if isinstance(node.input, Project):  # a projection commutes with LIMIT
            return self.pushed(replace(node.input, input=replace(node, input=node.input.input)))
        input = node.input
        order = input.keys if isinstance(input, Sort) else ()
        below, carried = self.pushed(input.input if isinstance(input, Sort) else input)
        if self._depends((node.limit, node.offset)):
            raise _refused("LIMIT that depends on the query around it")
        ordered: Relation = Sort(below, self._swapped(order, carried)) if order else below
        return numbered_limit(Limit(ordered, node.limit, node.offset), self._owner, carried), carried

    def _set_operation(self, node: SetOperation) -> tuple[Relation, tuple[Column, ...]]:
        sides = []
        for side in (node.left, node.right):
            below, carried = self.pushed(side)
            sides.append(_only(below, (*carried, *side.columns)))
        keys = tuple(self._owner.column("", ColumnRef(c)) for c in sides[0].columns[: len(self._outer)])
        return replace(node, left=sides[0], right=sides[1], columns=(*keys, *node.columns)), keys
