"""The values of subqueries, computed for all combinations of outer columns and joined to the outer rows."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.errors import SqlState
from protocol.pgwire.types import BOOL, INT8
from server.sql.columns import NewColumns, free_columns, substituted
from server.sql.conditions import same
from server.sql.decorrelate.domain import Domain
from server.sql.decorrelate.native import calls_python, has_subquery
from server.sql.decorrelate.pushdown import pushed
from server.sql.expressions import Aggregate, Call, Case, Column, ColumnRef, Expression, Literal, Subquery, SubqueryKind
from server.sql.functions import syntax
from server.sql.functions.aggregates import COUNT_ROWS
from server.sql.functions.table import Function, Kind, Nulls, fail
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import (
    Distinct,
    Filter,
    JoinKind,
    Limit,
    Project,
    Relation,
    Sort,
    Values,
    Window,
    exactly,
    has_one_row,
    joined,
)
from server.sql.row_bounds import greater

_SOME_VALUE = Function("some_value", (), BOOL, "first({0}){f}", Kind.AGGREGATE, Nulls.MAYBE)
_TOO_MANY = Function(
    *("too_many_rows", (), BOOL),
    fail(SqlState.CARDINALITY_VIOLATION, "more than one row returned by a subquery used as an expression"),
    nulls=Nulls.MAYBE,
)


class SubqueryValues:
    """Joins the values of subqueries to a relation.

    `crosses`: a subquery that is not correlated becomes a single row, which is cross-joined.
    """

    def __init__(self, new: NewColumns, *, crosses: bool = False) -> None:
        self._new = new
        self._crosses = crosses

    def value(self, input: Relation, subquery: Subquery) -> tuple[Relation, Expression]:
        """The input with additional columns, and an expression over them that is the subquery's value."""
        match subquery.kind:
            case SubqueryKind.IN | SubqueryKind.ANY | SubqueryKind.ALL:
                return self._comparison(input, subquery)
            case SubqueryKind.EXISTS:
                return self._existence(input, subquery.relation)
            case SubqueryKind.SCALAR:
                return self._scalar(input, subquery.relation)

    def _comparison(self, input: Relation, subquery: Subquery) -> tuple[Relation, Expression]:
        """The counts of decisive comparisons (true for IN and ANY, false for ALL) and of NULL comparisons decide."""
        is_all = subquery.kind is SubqueryKind.ALL
        assert subquery.test is not None
        operands = tuple(self._new.column("", operand) for operand in subquery.operands)
        refs = tuple(ColumnRef(c) for c in input.columns)
        input = Project(input, (*input.columns, *operands), (*refs, *subquery.operands))
        test = substituted(subquery.test, {h.id: c for h, c in zip(subquery.holders, operands, strict=True)})
        outcome = self._new.column("", test)
        ref = ColumnRef(outcome)
        decisive = Call(syntax.NOT, (ref,), BOOL, ref.nullable) if is_all else ref
        is_null = Call(syntax.IS_NULL, (ref,), BOOL, False)
        calls = [Aggregate(COUNT_ROWS, (), INT8, False, filter=condition) for condition in (decisive, is_null)]
        input, counts = self._left_joined(input, Project(subquery.relation, (outcome,), (test,)), calls)
        decided, unknown = (greater(ColumnRef(count), Literal(0, INT8)) for count in counts)
        branches = ((decided, Literal(not is_all, BOOL)), (unknown, Literal(None, BOOL)))
        return input, Case(branches, Literal(is_all, BOOL), BOOL)

    def _existence(self, input: Relation, relation: Relation) -> tuple[Relation, Expression]:
        input, (rows,) = self._left_joined(input, exactly(relation, ()), [Aggregate(COUNT_ROWS, (), INT8, False)])
        count = Call(syntax.COALESCE, (ColumnRef(rows), Literal(0, INT8)), INT8, False)
        return input, greater(count, Literal(0, INT8))

    def _scalar(self, input: Relation, relation: Relation) -> tuple[Relation, Expression]:
        """The value, which raises an error if a combination has more than one row."""
        (column,) = relation.columns
        crossed = self._crosses and not free_columns(relation)
        if crossed and isinstance(relation, Project) and has_one_row(relation.input):
            (expression,) = relation.expressions
            if not has_subquery(expression) and not calls_python(expression):
                # computed with the outer row, so that it fails only where PostgreSQL's would
                below = relation.input  # another reference to a WITH query has the same columns
                renamed = {c.id: self._new.column(c.name, ColumnRef(c)) for c in below.columns}
                row = Project(below, tuple(renamed.values()), tuple(map(ColumnRef, below.columns)))
                input, _ = self._left_joined(input, row, None)
                return input, substituted(expression, renamed)
        if has_one_row(relation) if crossed else _is_single(relation):
            input, (value,) = self._left_joined(input, relation, None)
            return input, ColumnRef(value)
        some = Aggregate(_SOME_VALUE, (ColumnRef(column),), column.type, True, column.precision)
        input, (rows, value) = self._left_joined(input, relation, [Aggregate(COUNT_ROWS, (), INT8, False), some])
        too_many = greater(ColumnRef(rows), Literal(1, INT8))
        return input, Case(((too_many, Call(_TOO_MANY, (), column.type, True)),), ColumnRef(value), column.type)

    def _left_joined(
        self, input: Relation, relation: Relation, calls: Sequence[Aggregate] | None
    ) -> tuple[Relation, tuple[Column, ...]]:
        """The input LEFT JOINed with the relation, and the columns of the relation in the join.

        With `calls`, the relation is first aggregated by the domain's columns, and the columns are those of the calls.
        """
        outer = [c for c in free_columns(relation) if c.id in {known.id for known in input.columns}]
        rows, carried = pushed(relation, Domain(input, outer, self._new), self._new)
        own = relation.columns
        if calls is not None:
            keys = tuple(self._new.column("", ColumnRef(c)) for c in carried)
            own = tuple(self._new.column("", call) for call in calls)
            columns = (*keys, *own)
            rows = AggregateNode(rows, tuple(ColumnRef(c) for c in carried), tuple(calls), columns)
            carried = keys
        if self._crosses and not outer:
            join = rows if input == Values((), ((),)) else joined(JoinKind.CROSS, input, rows, None)
        else:
            join = joined(JoinKind.LEFT, input, rows, same(list(zip(outer, carried, strict=True))))
        known = {c.id: c for c in join.columns}
        result = exactly(join, (*(known[c.id] for c in input.columns), *(known[c.id] for c in own)))
        return result, tuple(known[c.id] for c in own)


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
