"""Aggregates (chapter 9.21).

A form contains {d} for DISTINCT, {f} for the clauses after the parentheses (FILTER, OVER) and {a} for the ordered list.
Where Spark has no equivalent aggregate, `python` gets one list of the group's values per argument (`table`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import groupby
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.json_values import loaded_jsonb, printed_jsonb
from protocol.pgwire.types import DIMENSIONS_MAX, NUMERIC_PRECISION_MAX, PgType, is_row, too_many_dimensions
from server.sql import decimals
from server.sql.decimals import Shape
from server.sql.expressions import Aggregate, Expression, Literal
from server.sql.functions import intervals
from server.sql.functions.arrays import ordering
from server.sql.functions.exact_sums import rounded_sum, sums_of_values
from server.sql.functions.json import add_key, json_key, json_of
from server.sql.functions.sort_forms import sort_form, spark_sizes
from server.sql.functions.table import (
    FUNCTIONS,
    GRAMMAR,
    INTEGERS,
    Dimensions,
    Form,
    Function,
    Kind,
    Nulls,
    fail,
    fixed,
    independent,
    let,
    row,
    same_dimensions,
    same_shape,
    shape_of,
)


def _aggregate(
    name: str,
    arguments: str,
    result: str,
    spark: str | Form | None,
    nulls: Nulls = Nulls.MAYBE,
    shape: Callable[[Sequence[Expression]], Shape] | None = None,
    python: Callable[..., Any] | None = None,
    typed: bool = False,
    prepare: Callable[[tuple[Expression, ...]], tuple[Expression, ...]] | None = None,
    dimensions: Dimensions | None = None,
) -> None:
    row(FUNCTIONS, name, arguments, result, spark, Kind.AGGREGATE, nulls, shape, prepare, python=python, typed=typed,
        dimensions=dimensions)  # fmt: skip


ORDERED_SETS = ("percentile_cont", "percentile_disc", "mode")
"""Aggregates that are called with WITHIN GROUP. The ordered values are their last argument."""


def _sum_shape(args: Sequence[Expression]) -> Shape:
    shape = shape_of(args[0])
    return Shape(min(shape.precision + 10, NUMERIC_PRECISION_MAX), shape.scale)


def _average_operation(args: Sequence[Expression]) -> decimals.Operation:
    return decimals.divide(_sum_shape(args), Shape(19, 0))


def _average(args: Sequence[Expression], texts: Sequence[str]) -> str:
    """Like PostgreSQL: the exact sum, divided once."""
    operation = _average_operation(args)
    return (
        f"(CAST(sum({{d}}CAST({texts[0]} AS {shape_of(args[0])})){{f}} AS {operation.left})"
        f" / CAST(nullif(count({{d}}{texts[0]}){{f}}, 0L) AS {operation.right}))"
    )


_aggregate("count", "", "int8", "count(1){f}", nulls=Nulls.NEVER)
_aggregate("count", "any", "int8", "count({d}{0}){f}", nulls=Nulls.NEVER, dimensions=independent)
COUNT_ROWS, COUNT_VALUES = FUNCTIONS["count"]
for _a in INTEGERS:
    _aggregate("avg", _a, "numeric", _average, shape=lambda args: _average_operation(args).result)
_aggregate("avg", "numeric", "numeric", _average, shape=lambda args: _average_operation(args).result)


def _exact_sum(type: str) -> str:
    return rounded_sum(sums_of_values("CAST({0} AS DOUBLE)", "{d}", "{f}"), type)


for _a in ("float4", "float8"):
    _aggregate("avg", _a, "float8", f"({_exact_sum('DOUBLE')} / nullif(count({{d}}{{0}}){{f}}, 0L))")
_aggregate("avg", "interval", "interval", intervals.AVERAGE)
_aggregate("sum", "int2", "int8", "sum({d}{0}){f}")
_aggregate("sum", "int4", "int8", "sum({d}{0}){f}")
_aggregate("sum", "int8", "numeric", "sum({d}CAST({0} AS DECIMAL(28,0))){f}", shape=fixed(38))
_aggregate("sum", "numeric", "numeric", "sum({d}{0}){f}", shape=_sum_shape)
_aggregate("sum", "float4", "float4", _exact_sum("FLOAT"))
_aggregate("sum", "float8", "float8", _exact_sum("DOUBLE"))
_aggregate("sum", "interval", "interval", intervals.SUM)


def _extreme_array(name: str) -> Form:
    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        if args[0].type.dimensions > 1:
            return f"{name}_by({texts[0]}, {sort_form(args[0].type, texts[0])}){{f}}"
        return f"{name}_by({texts[0]}, transform({texts[0]}, e -> struct(e IS NULL, e))){{f}}"

    return form


for _name in ("min", "max"):
    for _a in ("int2", "int4", "int8", "float4", "float8", "numeric", "text", "date", "time", "timestamp",
               "timestamptz"):  # fmt: skip
        _aggregate(_name, _a, _a, f"{_name}({{0}}){{f}}", shape=same_shape if _a == "numeric" else None)
    for _a in ("anyenum", "inet"):
        _aggregate(_name, _a, _a, f"{_name}({{0}}){{f}}")
    _aggregate(_name, "interval", "interval", intervals.extreme(f"{_name}({{}}){{f}}", ["{0}"]))
    _aggregate(_name, "bpchar", "bpchar", f"{_name}_by({{0}}, rtrim({{0}})){{f}}")
    _aggregate(_name, "anyarray", "anyarray", _extreme_array(_name), dimensions=same_dimensions)
for _name, _spark in (("bool_and", "bool_and"), ("every", "bool_and"), ("bool_or", "bool_or")):
    _aggregate(_name, "bool", "bool", f"{_spark}({{0}}){{f}}")


# A list without ORDER BY is sorted by its values, so that it is the same in a snapshot and in every step.
# Not listagg: in Spark 4.3 it fails in a query with another DISTINCT aggregate.
def _joined(args: Sequence[Expression], texts: Sequence[str]) -> str:
    return f"array_join({{a}}, {texts[1]})" if isinstance(args[1], Literal) and args[1].value is not None else ""


def _string_agg(values: list[Any], delimiters: list[Any]) -> Any:
    """Each delimiter precedes its value; the first value's delimiter is omitted."""
    pairs = [(value, delimiter) for value, delimiter in zip(values, delimiters, strict=True) if value is not None]
    if not pairs:
        return None
    empty = type(pairs[0][0])()
    return pairs[0][0] + empty.join((delimiter or empty) + value for value, delimiter in pairs[1:])


def _array_of_arrays(args: Sequence[Expression], texts: Sequence[str]) -> str:
    """The arrays as an array. Errors if one is NULL or empty, or if their lengths differ."""

    def checked(arrays: str) -> str:
        shapes = f"array_distinct(transform({arrays}, a -> {spark_sizes('a', args[0].type.dimensions)}))"
        faults = (
            (f"exists({arrays}, a -> a IS NULL)", SqlState.NULL_VALUE_NOT_ALLOWED, "null arrays"),
            (f"exists({arrays}, a -> size(a) = 0)", SqlState.ARRAY_SUBSCRIPT_ERROR, "empty arrays"),
            (f"size({shapes}) > 1", SqlState.ARRAY_SUBSCRIPT_ERROR, "arrays of different dimensionality"),
        )
        cases = (
            f"WHEN {condition} THEN {fail(state, f'cannot accumulate {what}')}" for condition, state, what in faults
        )
        return f"CASE {' '.join(cases)} ELSE {arrays} END"

    return let("{a}", checked, "arrays")


def _one_more(given: Sequence[int]) -> int:
    if given[0] == DIMENSIONS_MAX:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, too_many_dimensions(given[0] + 1))
    return given[0] + 1


def _no_rows(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    if is_row(args[0].type):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "an array of rows of more than one dimension is not supported",
            hint="Nest the rows in a jsonb: jsonb_agg(array).",
        )
    return args


_aggregate("string_agg", "text text", "text", _joined, python=_string_agg)
_aggregate("string_agg", "bytea bytea", "bytea", None, python=_string_agg)
_aggregate("array_agg", "anyelement", "anyarray", "{a}")
_aggregate("array_agg", "anyarray", "anyarray", _array_of_arrays, dimensions=_one_more, prepare=_no_rows)
for _a in INTEGERS:
    for _name in ("bit_and", "bit_or", "bit_xor"):
        _aggregate(_name, _a, _a, f"{_name}({{d}}{{0}}){{f}}")
_aggregate("any_value", "anyelement", "anyelement", "any_value({0}, true){f}", dimensions=same_dimensions)


def _with_form(name: str, argument: str, spark: str) -> tuple[Function, Function]:
    plain = next(f for f in FUNCTIONS[name] if f.arguments[0].name == argument)
    return plain, replace(plain, spark=spark)


_INFINITE = "CAST('Infinity' AS DOUBLE)"
_FRAME_TOTAL = "sum({0}){f}"
# Adds in ascending order, so that the result does not depend on the order of the rows.
_ORDERED_FRAME_TOTAL = (
    "aggregate(array_sort(collect_list(CAST({0} AS DOUBLE)){f}), CAST(NULL AS DOUBLE), (a, e) -> coalesce(a + e, e))"
)


def _frame_sum(total: str, type: str) -> str:
    """Raises an error if finite values have an infinite sum."""
    total = f"CAST({total} AS {type})"
    fault = fail(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")
    overflow = f"abs({total}) = {_INFINITE} AND NOT bool_or(abs({{0}}) = {_INFINITE}){{f}}"
    return f"IF({overflow}, {fault}, {total})"


def _frame_forms(total: str) -> dict[Function, Function]:
    return dict(
        (
            *(_with_form("sum", a, _frame_sum(total, t)) for a, t in (("float4", "FLOAT"), ("float8", "DOUBLE"))),
            *(_with_form("avg", a, f"({total} / nullif(count({{0}}){{f}}, 0L))") for a in ("float4", "float8")),
        )
    )


IN_WINDOW = _frame_forms(_FRAME_TOTAL)
"""The forms of sums of floats in windows. They round after each addition: an exact sum of each frame is too slow."""

ORDER_FREE = {IN_WINDOW[plain]: form for plain, form in _frame_forms(_ORDERED_FRAME_TOTAL).items()} | dict(
    (_with_form("any_value", "anyelement", "min({0}){f}"),)
)
"""For aggregates whose result depends on the order of the rows: equivalent forms whose result does not."""


# -- additive aggregates ----------------------------------------------------------------------------------------------


def adds_up(call: Aggregate) -> bool:
    """Whether the result is a function of an exact sum and a count, which are maintained by adding."""
    exact = call.function.name == "count" or (
        call.function.name in ("sum", "avg") and call.arguments[0].type.name in (*INTEGERS, "numeric")
    )
    return exact and not call.distinct


def from_totals(call: Aggregate, total: str, count: str) -> str:
    """The result of a call that `adds_up`. `total`: the arguments' sum, a BIGINT or DECIMAL; `count`: their number."""
    if call.function.name == "count":
        return count
    total = f"CASE WHEN {count} <> 0L THEN {total} END"
    if call.function.name == "avg":
        operation = _average_operation(call.arguments)
        return f"(CAST({total} AS {operation.left}) / CAST(nullif({count}, 0L) AS {operation.right}))"
    return (
        f"CAST({total} AS {Shape(call.precision, call.type.scale or 0) if call.type.name == 'numeric' else 'BIGINT'})"
    )


# -- json -------------------------------------------------------------------------------------------------------------


def _json_agg(values: list[Any], types: Sequence[PgType]) -> str | None:
    if not values:
        return None
    texts = [json_of(types[0], value) for value in values]
    if types[0].element is not None or types[0].fields is not None:  # each array and each row starts on a new line
        texts[1:] = ["\n " * (value is not None) + text for text, value in zip(texts[1:], values[1:], strict=True)]
    return f"[{', '.join(texts)}]"


def _json_agg_strict(values: list[Any], types: Sequence[PgType]) -> str | None:
    return _json_agg([v for v in values if v is not None], types) or ("[]" if values else None)


def _json_object_agg(keys: list[Any], values: list[Any], types: Sequence[PgType]) -> str | None:
    members = []
    for key, value in zip(keys, values, strict=True):
        if key is None:
            raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "null value not allowed for object key")
        members.append(f"{json_key(types[0], key, 1)} : {json_of(types[1], value)}")
    return "{ " + ", ".join(members) + " }" if members else None


def _jsonb_object_agg(keys: list[Any], values: list[Any], types: Sequence[PgType]) -> str | None:
    if None in keys:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "field name must not be null")
    return _normal(_json_object_agg(keys, values, types))


def _normal(text: str | None) -> str | None:
    return None if text is None else printed_jsonb(loaded_jsonb(text))


def _strict(make: Callable[..., str | None], empty: str) -> Callable[..., str | None]:
    """Omits members whose value is NULL. A NULL key is an error even if its value is NULL."""

    def python(keys: list[Any], values: list[Any], types: Sequence[PgType]) -> str | None:
        whole = make(keys, values, types)
        pairs = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
        return make([k for k, _ in pairs], [v for _, v in pairs], types) or (whole and empty)

    return python


def _unique(make: Callable[..., str | None]) -> Callable[..., str | None]:
    """22030 if two keys are equal, also those of members that are omitted."""

    def python(keys: list[Any], values: list[Any], types: Sequence[PgType]) -> str | None:
        seen: set[str] = set()
        for key in keys:
            if key is not None:
                add_key(seen, json_key(types[0], key, 1))
        return make(keys, values, types)

    return python


def _json_aggregate(name: str, arguments: str, result: str, python: Callable[..., Any] | None) -> None:
    _aggregate(name, arguments, result, None, python=python, typed=True, dimensions=independent)


for _j in ("json", "jsonb"):
    _is_b = _j == "jsonb"
    _json_aggregate(f"{_j}_agg", "anyelement", _j, (lambda v, types: _normal(_json_agg(v, types))) if _is_b
                    else _json_agg)  # fmt: skip
    _json_aggregate(f"{_j}_agg_strict", "anyelement", _j,
                    (lambda v, types: _normal(_json_agg_strict(v, types))) if _is_b else _json_agg_strict)  # fmt: skip
    _objects = _jsonb_object_agg if _is_b else _json_object_agg
    _json_aggregate(f"{_j}_object_agg", "any any", _j, _objects)
    _json_aggregate(f"{_j}_object_agg_strict", "any any", _j, _strict(_objects, "{}" if _is_b else "{  }"))
    _json_aggregate(f"{_j}_object_agg_unique", "any any", _j, _unique(_objects))
    _json_aggregate(f"{_j}_object_agg_unique_strict", "any any", _j,
                    _unique(_strict(_objects, "{}" if _is_b else "{  }")))  # fmt: skip


# -- statistics -------------------------------------------------------------------------------------------------------

_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_STATISTICS_SHAPE = Shape(NUMERIC_PRECISION_MAX, decimals.DIVISION_SCALE)


def _spread(sample: bool, root: bool) -> Callable[[list[Any]], Decimal | None]:
    """Variance and standard deviation of exact numbers."""
    of_sums = _spread_of_sums(sample, root)

    def python(values: list[Any]) -> Decimal | None:
        numbers = [Decimal(v) for v in values if v is not None]
        total, squares = Decimal(0), Decimal(0)
        for number in numbers:
            total, squares = _EXACT.add(total, number), _EXACT.fma(number, number, squares)
        return of_sums(len(numbers), total, squares)

    return python


def _spread_of_sums(sample: bool, root: bool) -> Callable[[int, Decimal, Decimal], Decimal | None]:
    """The variance, or its `root`, from the number of values, their sum and the sum of their squares.

    `sample`: the sample variance, not that of the population. The quotient is rounded as in PostgreSQL.
    """

    def python(count: int, total: Decimal, squares: Decimal) -> Decimal | None:
        if count <= sample:
            return None
        numerator = _EXACT.subtract(_EXACT.multiply(count, squares), _EXACT.multiply(total, total))
        divisor = Decimal(count * (count - sample))
        if not numerator:
            return Decimal(0)
        unit = Decimal(1).scaleb(-decimals.division_scale(numerator, divisor))
        result = _EXACT.divide(numerator, divisor).quantize(unit, context=_EXACT)
        if root:
            result = _EXACT.sqrt(result).quantize(unit, context=_EXACT)
        return result.quantize(Decimal(1).scaleb(-decimals.DIVISION_SCALE), context=_EXACT)

    return python


def _spread_of_halves(sample: bool, root: bool) -> Callable[..., Decimal | None]:
    """As `_spread_of_sums`, of integers high * 2**32 + low.

    Computed from their number and the sums of high, low, high * high, high * low and low * low.
    """
    of_sums = _spread_of_sums(sample, root)

    def python(count: int, high: Decimal, low: Decimal, *products: Decimal) -> Decimal | None:
        unit = Decimal(1 << 32)
        squares = Decimal(0)
        for product, factor in zip(products, (unit * unit, 2 * unit, Decimal(1)), strict=True):
            squares = _EXACT.fma(product, factor, squares)
        return of_sums(count, _EXACT.fma(high, unit, low), squares)

    return python


def _float_spread(sample: bool, root: bool) -> Callable[[list[Any]], float | None]:
    def python(values: list[Any]) -> float | None:
        sums = _Sums([(0.0, v) for v in values if v is not None])
        if sums.n <= sample:
            return None
        variance = sums.sxx / (sums.n - sample)
        return math.sqrt(variance) if root else variance

    return python


class _Sums:
    """Youngs and Cramer's sums over pairs (y, x), as in float8_regr_accum. PgError 22003 if finite values overflow."""

    def __init__(self, pairs: Sequence[tuple[float, float]]) -> None:
        self.n = 0
        self.sx = self.sy = self.sxx = self.syy = self.sxy = 0.0
        for y, x in pairs:
            self.n += 1
            self.sx, self.sy = self.sx + x, self.sy + y
            if self.n > 1:
                dx, dy = x * self.n - self.sx, y * self.n - self.sy
                scale = 1.0 / (self.n * (self.n - 1))
                self.sxx += dx * dx * scale
                self.syy += dy * dy * scale
                self.sxy += dx * dy * scale
        finite = all(math.isfinite(v) for pair in pairs for v in pair)
        if not finite:
            if not all(math.isfinite(x) for _, x in pairs):
                self.sxx = self.sxy = math.nan
            if not all(math.isfinite(y) for y, _ in pairs):
                self.syy = self.sxy = math.nan
        elif any(map(math.isinf, (self.sx, self.sy, self.sxx, self.syy, self.sxy))):
            raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow")


SPREADS = {
    "stddev": "stddev_samp", "stddev_samp": "stddev_samp", "stddev_pop": "stddev_pop",
    "variance": "var_samp", "var_samp": "var_samp", "var_pop": "var_pop",
}  # fmt: skip
"""Variances and standard deviations, and the name in GRAMMAR of the functions that compute them from sums."""
for _name, _canonical in SPREADS.items():
    _of = (_canonical.endswith("samp"), _canonical.startswith("stddev"))
    for _a in (*INTEGERS, "numeric"):
        _aggregate(_name, _a, "numeric", None, shape=lambda args: _STATISTICS_SHAPE, python=_spread(*_of))
    for _a in ("float4", "float8"):
        _aggregate(_name, _a, "float8", None, python=_float_spread(*_of))
    if _name == _canonical:
        for _arguments, _make in (
            ("int8 numeric numeric", _spread_of_sums),
            ("int8 numeric numeric numeric numeric numeric", _spread_of_halves),
        ):
            row(GRAMMAR, _name, _arguments, "numeric", nulls=Nulls.OPTIONAL, shape=lambda args: _STATISTICS_SHAPE,
                python=_make(*_of))  # fmt: skip


def _regression(python: Callable[[_Sums], float | None], least: int = 1) -> Callable[..., float | None]:
    """NULL for fewer than `least` pairs."""

    def of(ys: list[Any], xs: list[Any]) -> float | None:
        sums = _Sums([(y, x) for y, x in zip(ys, xs, strict=True) if y is not None and x is not None])
        return python(sums) if sums.n >= least else None

    return of


def _r2(s: _Sums) -> float | None:
    if not s.sxx:
        return None
    return s.sxy * s.sxy / (s.sxx * s.syy) if s.syy else 1.0


_REGRESSIONS: dict[str, Callable[..., float | None]] = {
    "corr": _regression(lambda s: s.sxy / math.sqrt(s.sxx * s.syy) if s.sxx and s.syy else None),
    "covar_pop": _regression(lambda s: s.sxy / s.n),
    "covar_samp": _regression(lambda s: s.sxy / (s.n - 1), least=2),
    "regr_avgx": _regression(lambda s: s.sx / s.n),
    "regr_avgy": _regression(lambda s: s.sy / s.n),
    "regr_intercept": _regression(lambda s: (s.sy - s.sx * s.sxy / s.sxx) / s.n if s.sxx else None),
    "regr_r2": _regression(_r2),
    "regr_slope": _regression(lambda s: s.sxy / s.sxx if s.sxx else None),
    "regr_sxx": _regression(lambda s: s.sxx),
    "regr_sxy": _regression(lambda s: s.sxy),
    "regr_syy": _regression(lambda s: s.syy),
}
for _name, _python in _REGRESSIONS.items():
    _aggregate(_name, "float8 float8", "float8", None, python=_python)
_aggregate("regr_count", "float8 float8", "int8", None, Nulls.NEVER,
           python=lambda ys, xs: sum(y is not None and x is not None for y, x in zip(ys, xs, strict=True)))  # fmt: skip


# -- ordered sets; the values are sorted ------------------------------------------------------------------------------


def _checked(fraction: float) -> float:
    if not 0 <= fraction <= 1:
        message = f"percentile value {fraction:g} is not between 0 and 1"
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, message)
    return fraction


def _discrete(fraction: float, values: list[Any]) -> Any:
    return values[max(math.ceil(_checked(fraction) * len(values)), 1) - 1]


def _continuous(fraction: float, values: list[float]) -> float:
    position = _checked(fraction) * (len(values) - 1)
    first = math.floor(position)
    low, high = values[first], values[math.ceil(position)]
    return low if first == position else low + (position - first) * (high - low)


def _percentile(of: Callable[[float, list[Any]], Any]) -> Callable[[list[Any], list[Any]], Any]:
    def python(fractions: list[Any], values: list[Any]) -> Any:
        kept = [value for value in values if value is not None]
        if not kept or fractions[0] is None:
            return None
        if isinstance(fractions[0], list):
            return [None if fraction is None else of(fraction, kept) for fraction in fractions[0]]
        return of(fractions[0], kept)

    return python


def _mode(values: list[Any], types: Sequence[PgType]) -> Any:
    key = ordering(types[0])
    runs = [list(run) for _, run in groupby((v for v in values if v is not None), key)]
    return max(runs, key=len)[0] if runs else None


_aggregate("percentile_cont", "float8 float8", "float8", None, python=_percentile(_continuous))
_aggregate("percentile_cont", "float8[] float8", "float8[]", None, python=_percentile(_continuous))
_aggregate("percentile_cont", "float8 interval", "interval", None)
_aggregate("percentile_cont", "float8[] interval", "interval[]", None)
_aggregate("percentile_disc", "float8 anyelement", "anyelement", None, python=_percentile(_discrete))
_aggregate("percentile_disc", "float8[] anyelement", "anyarray", None, python=_percentile(_discrete))
_aggregate("mode", "anyelement", "anyelement", None, python=_mode, typed=True, dimensions=same_dimensions)
