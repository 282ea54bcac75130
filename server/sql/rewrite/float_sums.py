"""Splits an aggregate with sums or averages of floats into two aggregates.

The lower one has the buckets of the floats (see `exact_sums`) as additional keys. It computes the sums of their limbs,
which are integers, and partial results of the other calls: its groups are maintained by adding. The upper one combines
the few rows of each group. An aggregate with a call that cannot be combined from partial results is not split: its sums
get the bucket and the limbs of each row as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.pgwire.types import FLOAT4, FLOAT8, INT4, INT8, PgType, bare_numeric
from server.sql.columns import NewColumns, extended, free_columns
from server.sql.expressions import Aggregate as AggregateCall
from server.sql.expressions import Call, Case, Cast, Column, ColumnRef, Expression, Literal, transform, walk
from server.sql.functions import exact_sums
from server.sql.functions.aggregates import COUNT_ROWS, COUNT_VALUES, adds_up, from_totals
from server.sql.functions.table import FUNCTIONS, Function, Kind, Nulls
from server.sql.relations import Aggregate, Relation

_BUCKET = Function("float_bucket", (FLOAT8,), INT4, lambda args, texts: exact_sums.bucket(texts[0]))
_SCALED = Function("float_scaled", (FLOAT8, INT4), FLOAT8, lambda args, texts: exact_sums.scaled(*texts))


def _limb(number: int) -> Function:
    return Function(f"float_limb{number}", (FLOAT8,), INT4, lambda args, texts: exact_sums.limb(number, texts[0]))


_LIMBS = [_limb(number) for number in range(exact_sums.LIMBS)]
_SUM_ARGUMENTS = (INT4, *(INT8 for _ in _LIMBS))


@dataclass(frozen=True, slots=True)
class _Sums:
    """Aggregates over buckets, limbs or the sums of limbs and, for the average, the numbers of values."""

    sums: dict[str, Function]
    """By the name of the type."""
    average: Function

    @classmethod
    def of(cls, total: Callable[[str, tuple[str, ...], str, str], str]) -> _Sums:
        """`total`: see `exact_sums.sum_of_buckets`."""
        return cls({type.name: _sum(total, type) for type in (FLOAT4, FLOAT8)}, _sum(total, FLOAT8, average=True))

    def functions(self) -> tuple[Function, ...]:
        return (*self.sums.values(), self.average)


def _sum(total_of: Callable[[str, tuple[str, ...], str, str], str], type: PgType, *, average: bool = False) -> Function:
    spark = "FLOAT" if type == FLOAT4 else "DOUBLE"
    limbs = tuple(f"{{{number}}}" for number in range(1, 1 + exact_sums.LIMBS))
    total = total_of("{0}", limbs, "{f}", spark)
    if average:
        count = f"{{{1 + exact_sums.LIMBS}}}"
        total = f"({total} / nullif(sum(IF({{0}} IS NULL, 0L, {count})){{f}}, 0L))"
    arguments = (*_SUM_ARGUMENTS, INT8) if average else _SUM_ARGUMENTS
    return Function("float_avg" if average else "float_sum", arguments, type, total, Kind.AGGREGATE, Nulls.MAYBE)


_OVER_BUCKETS = _Sums.of(exact_sums.sum_of_buckets)
_OVER_ROWS = _Sums.of(exact_sums.sum_of_limbs)
_OVER_MIDDLE_BUCKETS = _Sums.of(exact_sums.sum_of_middle_limbs)
_OF_MIDDLE = {
    function: of_middle
    for sums in (_OVER_BUCKETS, _OVER_ROWS)
    for function, of_middle in zip(sums.functions(), _OVER_MIDDLE_BUCKETS.functions(), strict=True)
}
# The names differ from those of calls over rows, which `adds_up` recognizes by their names.
_COUNTED = Function("combined_count", (INT8,), INT8, "coalesce(sum({0}){f}, 0L)", Kind.AGGREGATE, Nulls.NEVER)
_INT_SUM = next(f for f in FUNCTIONS["sum"] if f.arguments == (INT4,))
_ROWS = AggregateCall(COUNT_ROWS, (), INT8, False)
_IDEMPOTENT = frozenset(
    ("min", "max", "bool_and", "every", "bool_or", "bit_and", "bit_or", "bit_xor", "any_value")
)  # or associative: the call over partial results is the call over the rows


def sums_split(relation: Relation) -> Relation:
    """The relation, in which all aggregates that can be split are split."""
    if not any(isinstance(node, AggregateCall) and _is_float_sum(node) for node in walk(relation)):
        return relation
    new = NewColumns(relation)

    def change(node: Any) -> Any | None:
        if not isinstance(node, Aggregate) or not any(map(_is_float_sum, node.calls)):
            return None
        # Spark supports a correlated subquery only if it has one aggregate.
        if free_columns(node):
            return None
        node = replace(node, input=transform(node.input, change))
        is_split = all(_is_float_sum(c) or _is_combinable(c) for c in node.calls)
        return _split(node, new) if is_split else _by_limbs(node, new)

    return transform(relation, change)


def with_middle_buckets(relation: Relation) -> tuple[Relation, list[Column]]:
    """The relation with faster sums, which is correct if the returned columns have middle buckets or NULL only.

    No columns are returned if there are no sums of floats, or one whose bucket is no column.
    """
    buckets: dict[int, Column] = {}
    complete = True

    def change(node: Any) -> Any | None:
        nonlocal complete
        if not isinstance(node, AggregateCall) or node.function not in _OF_MIDDLE:
            return None
        if isinstance(bucket := node.arguments[0], ColumnRef):
            buckets[bucket.column.id] = bucket.column
        else:
            complete = False
        return replace(node, function=_OF_MIDDLE[node.function])

    changed = transform(relation, change)
    return changed, list(buckets.values()) if complete else []


def _is_float_sum(call: AggregateCall) -> bool:
    return (
        call.function.name in ("sum", "avg")
        and call.arguments[0].type.name in ("float4", "float8")
        and not call.distinct
    )


def _is_combinable(call: AggregateCall) -> bool:
    return adds_up(call) or (call.function.name in _IDEMPOTENT and not call.order)


@dataclass(frozen=True, slots=True)
class _Split:
    """Columns of the lower aggregate that belong to a float: its bucket, and the sums of the limbs."""

    bucket: Column
    sums: tuple[ColumnRef, ...]


@dataclass(frozen=True, slots=True)
class _Limbs:
    """Expressions for a float of a row: its bucket and its limbs, as int4."""

    bucket: ColumnRef
    limbs: tuple[Expression, ...]


def _with_limbs(node: Aggregate, new: NewColumns) -> tuple[Relation, dict[Expression, _Limbs]]:
    """The aggregate's input with columns for the limbs of the floats that it adds; and the limbs by float."""
    floats = list(dict.fromkeys(_float(call) for call in node.calls if _is_float_sum(call)))
    below, values = _with(node.input, floats, new)
    below, buckets = _with(below, [Call(_BUCKET, (value,), INT4, value.nullable) for value in values], new)
    scaled = [Call(_SCALED, pair, FLOAT8, False) for pair in zip(values, buckets, strict=True)]
    below, scaled_values = _with(below, scaled, new)
    return below, {
        float_: _Limbs(bucket, tuple(Call(limb, (value,), INT4, False) for limb in _LIMBS))
        for float_, bucket, value in zip(floats, buckets, scaled_values, strict=True)
    }


def _sum_call(
    call: AggregateCall, sums: _Sums, arguments: tuple[Expression, ...], count: Expression | None
) -> AggregateCall:
    """The sum or average of floats. `arguments`: the bucket and the limbs.

    `count`: the number of values of a row, for an average.
    """
    if call.function.name == "avg":
        assert count is not None
        return AggregateCall(sums.average, (*arguments, count), FLOAT8, True)
    return AggregateCall(sums.sums[call.type.name], arguments, call.type, True)


def _by_limbs(node: Aggregate, new: NewColumns) -> Aggregate:
    below, limbs_of = _with_limbs(node, new)
    calls = []
    for call in node.calls:
        if _is_float_sum(call):
            of = limbs_of[_float(call)]
            arguments: tuple[Expression, ...] = (of.bucket, *(Cast(limb, INT8) for limb in of.limbs))
            call = _sum_call(call, _OVER_ROWS, arguments, Literal(1, INT8))
        calls.append(call)
    return replace(node, input=below, calls=tuple(calls))


def _split(node: Aggregate, new: NewColumns) -> Relation:
    below, limbs_of = _with_limbs(node, new)
    buckets = [of.bucket for of in limbs_of.values()]
    keys = (*node.keys, *buckets)
    key_columns = [new.column("", key) for key in keys]
    partial: dict[AggregateCall, Column] = {}

    def ref(call: AggregateCall) -> ColumnRef:
        if call not in partial:
            partial[call] = new.column("", call)
        return ColumnRef(partial[call])

    splits = {}
    for number, (float_, of) in enumerate(limbs_of.items()):
        sums = tuple(ref(AggregateCall(_INT_SUM, (limb,), INT8, True)) for limb in of.limbs)
        splits[float_] = _Split(key_columns[len(node.keys) + number], sums)
    calls = []
    for call in node.calls:
        if _is_float_sum(call):
            split = splits[_float(call)]
            count = ref(_ROWS) if call.function.name == "avg" else None
            calls.append(_sum_call(call, _OVER_BUCKETS, (ColumnRef(split.bucket), *split.sums), count))
        else:
            calls.append(_combination(call, ref))
    lower = Aggregate(below, keys, tuple(partial), (*key_columns, *partial.values()))
    return Aggregate(lower, tuple(map(ColumnRef, key_columns[: len(node.keys)])), tuple(calls), node.columns)


def _float(call: AggregateCall) -> Expression:
    """The values that a call adds, as float8: NULL for rows that its FILTER excludes."""
    (value,) = call.arguments
    if value.type != FLOAT8:
        value = Cast(value, FLOAT8)
    return value if call.filter is None else Case(((call.filter, value),), Literal(None, FLOAT8), FLOAT8)


def _with(relation: Relation, expressions: Sequence[Expression], new: NewColumns) -> tuple[Relation, list[ColumnRef]]:
    """The relation with columns for those of the expressions that are not columns; and all of them as columns."""
    added = {e: new.column("", e) for e in expressions if not isinstance(e, ColumnRef)}
    refs = [e if isinstance(e, ColumnRef) else ColumnRef(added[e]) for e in expressions]
    return extended(relation, {column: e for e, column in added.items()}), refs


def _combination(call: AggregateCall, ref: Callable[[AggregateCall], ColumnRef]) -> AggregateCall:
    """The call that computes the result of `call` from partial results. `ref`: the column of a partial result."""
    if not adds_up(call):
        return replace(call, arguments=(ref(call),), filter=None)
    if call.function.name == "count":
        return replace(call, function=_COUNTED, arguments=(ref(call),), filter=None)
    count = replace(call, function=COUNT_VALUES, type=INT8, nullable=False, precision=0)
    function = Function(
        f"combined_{call.function.name}",
        (),
        call.type,
        lambda args, texts: from_totals(call, f"sum({texts[0]}){{f}}", f"coalesce(sum({texts[1]}){{f}}, 0L)"),
        Kind.AGGREGATE,
        Nulls.MAYBE,
    )
    return replace(call, function=function, arguments=(ref(_sum_of(call)), ref(count)), filter=None)


def _sum_of(call: AggregateCall) -> AggregateCall:
    """The sum of the values of a sum or an average."""
    if call.function.name == "sum":
        return call
    (value,) = call.arguments
    function = next(f for f in FUNCTIONS["sum"] if f.arguments[0].name == value.type.name)
    if function.shape is None:
        return replace(call, function=function, type=function.result, precision=0)
    shape = function.shape(call.arguments)
    return replace(call, function=function, type=bare_numeric(shape.scale), precision=shape.precision)
