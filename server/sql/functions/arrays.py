"""Arrays (chapter 9.19). In all functions NULL equals NULL and is greater than any value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.nested_lists import flattened as flattened_list
from protocol.pgwire.nested_lists import mapped, nested, sizes, wrong_dimensions
from protocol.pgwire.scalars import ELEMENTS_MAX, no_bounds
from protocol.pgwire.types import DIMENSIONS_MAX, PgType, too_many_dimensions, with_dimensions
from server.sql.casts import text_form
from server.sql.expressions import Expression
from server.sql.functions.json import order_key as json_order
from server.sql.functions.sort_forms import dimensions_form, spark_sizes
from server.sql.functions.table import (
    COMPARISONS,
    FUNCTIONS,
    GRAMMAR,
    OPERATORS,
    Dimensions,
    Form,
    Nulls,
    fail,
    flattened,
    independent,
    let,
    row,
    same_dimensions,
)

ADDED_MAX = 1_000_000  # elements that an assignment behind the end of an array can add, most of them NULL
_NATIVE = frozenset(("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "date", "time",
                     "timestamp", "timestamptz", "uuid", "bytea"))  # fmt: skip


def ordering(type: PgType) -> Callable[[Any], Any]:
    """A function from values (or None) of the type to keys with PostgreSQL's order and equality. 42883 for json."""
    if type.element is not None and type.dimensions > 1:
        several = _array_key(type)
        return lambda value: (value is None, () if value is None else several(value))
    if type.element is not None:
        inner = ordering(type.element)
        return lambda value: (value is None, () if value is None else tuple(map(inner, value)))
    if type.fields is not None:
        keys = [ordering(field) for _, field in type.fields]
        return lambda row: (row is None, () if row is None else tuple(k(v) for k, v in zip(keys, row, strict=True)))
    match type.name:
        case "json":
            message = "could not identify an equality operator for type json"
            raise PgError(SqlState.UNDEFINED_FUNCTION, message)
        case "float4" | "float8":
            return lambda value: (value is None, value != value, 0 if value is None or value != value else value)
        case "bpchar":
            return lambda value: (value is None, (value or "").rstrip(" "))
        case "jsonb":
            return lambda value: (value is None, () if value is None else json_order(value))
        case "interval":
            return lambda value: (value is None, 0 if value is None else _interval_span(value))
    return lambda value: (value is None, 0 if value is None else value)


def _interval_span(value: Any) -> int:
    months, days, nanoseconds = value
    return (months * 30 + days) * 86_400_000_000 + nanoseconds // 1000  # type: ignore[no-any-return]


def _array_key(type: PgType) -> Callable[[Any], Any]:
    """As `ordering`, for arrays that are not NULL. The keys of different numbers of dimensions can be compared."""
    elements = ordering(with_dimensions(type, 1))

    def key(value: Any) -> Any:
        lengths = sizes(value, type.dimensions)
        return elements(flattened_list(value, type.dimensions)), len(lengths), lengths

    return key


def _keys(values: Sequence[Any], types: Sequence[PgType]) -> list[Any]:
    """The sort keys of an array's elements; the first of `types` is the array's type."""
    assert types[0].element is not None
    return list(map(ordering(types[0].element), values))


def _compared(test: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def compared(a: Any, b: Any, types: Sequence[PgType]) -> bool:
        if all(type.dimensions == 1 for type in types):
            return test(_keys(a, types), _keys(b, types))
        return test(_array_key(types[0])(a), _array_key(types[1])(b))

    return compared


def _order(symbol: str) -> Form:
    """A form for elements that Spark orders like PostgreSQL. A struct (is null, value) sorts NULL last."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        element = args[0].type.element
        if element is None or element.representation not in _NATIVE:
            return ""
        if symbol in ("=", "<>") and args[0].type.dimensions == args[1].type.dimensions:
            return f"({texts[0]} {symbol} {texts[1]})"
        if any(arg.type.dimensions > 1 for arg in args):
            left, right = (_dimensioned(arg.type, text) for arg, text in zip(args, texts, strict=True))
            return f"({left} {symbol} {right})"
        left, right = (f"transform({text}, e -> struct(e IS NULL AS n, e AS v))" for text in texts)
        return f"({left} {symbol} {right})"

    return form


def _dimensioned(type: PgType, text: str) -> str:
    """A value that Spark orders as PostgreSQL does: the elements, then the dimensions. NULL if the array is."""

    def pair(array: str) -> str:
        levels = type.dimensions - 1
        flat = "flatten(" * levels + array + ")" * levels
        elements = f"transform({flat}, e -> struct(e IS NULL AS n, e AS v))"
        return f"IF({array} IS NULL, NULL, struct({elements} AS e, {dimensions_form(type, array)} AS d))"

    return let(text, pair, "a")


for _symbol, _test in COMPARISONS.items():
    row(OPERATORS, _symbol, "anyarray anyarray", "bool", _order(_symbol), typed=True, python=_compared(_test),
        dimensions=independent)  # fmt: skip


def _contains(whole: list[Any], part: list[Any], types: Sequence[PgType]) -> bool:
    return None not in part and set(_keys(whole, types)).issuperset(_keys(part, types))


def _overlap(a: list[Any], b: list[Any], types: Sequence[PgType]) -> bool:
    keys = set(_keys([v for v in a if v is not None], types))
    return not keys.isdisjoint(_keys([v for v in b if v is not None], types))


row(OPERATORS, "@>", "anyarray anyarray", "bool", typed=True, python=_contains, dimensions=flattened)
row(OPERATORS, "<@", "anyarray anyarray", "bool", typed=True, python=lambda a, b, types: _contains(b, a, types),
    dimensions=flattened)  # fmt: skip
row(OPERATORS, "&&", "anyarray anyarray", "bool", typed=True, python=_overlap, dimensions=flattened)


# -- joining; a NULL array is treated as an empty one ---------------------------------------------------------------


def _cat(a: list[Any] | None, b: list[Any] | None, types: Sequence[PgType]) -> list[Any] | None:
    """The arrays in one dimension more or in the same. 2202E unless their lengths fit. 0A000 for a result with fewer
    dimensions than its type: that of a single array that is not empty.
    """
    dimensions = [type.dimensions for type in types]
    if not a or not b:
        is_second = a is None or (not a and b is not None)
        alone = b if is_second else a
        if alone and dimensions[is_second] < max(dimensions):
            raise wrong_dimensions(min(dimensions), with_dimensions(types[0], max(dimensions)))
        return alone
    if dimensions[0] == dimensions[1]:
        what = "element dimensions"
        joined, parts = a + b, (sizes(a, dimensions[0])[1:], sizes(b, dimensions[1])[1:])
    elif dimensions[0] > dimensions[1]:
        what = "dimensions"
        joined, parts = [*a, b], (sizes(a, dimensions[0])[1:], sizes(b, dimensions[1]))
    else:
        what = "dimensions"
        joined, parts = [a, *b], (sizes(a, dimensions[0]), sizes(b, dimensions[1])[1:])
    if parts[0] != parts[1]:
        detail = f"Arrays with differing {what} are not compatible for concatenation."
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, _INCOMPATIBLE, detail=detail)
    return joined


_INCOMPATIBLE = "cannot concatenate incompatible arrays"


def _cat_dimensions(given: Sequence[int]) -> int:
    counts = [count or max(given) for count in given]
    if abs(counts[0] - counts[1]) > 1:
        detail = f"Arrays of {counts[0]} and {counts[1]} dimensions are not compatible for concatenation."
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, _INCOMPATIBLE, detail=detail)
    return max(counts)


def _cat_form(args: Sequence[Expression], texts: Sequence[str]) -> str:
    counts = [arg.type.dimensions for arg in args]
    if max(counts) == 1:
        return _CAT.format(*texts)
    most = max(counts)
    refused = wrong_dimensions(most - 1, with_dimensions(args[0].type, most))

    def alone(array: str, count: int, other: str) -> str:
        """The array, if `other` is NULL or empty."""
        if count == most:
            return f"coalesce({array}, {other})" if counts[0] == counts[1] else array
        return f"IF(size({array}) = 0, slice(array({array}), 1, 0), {fail(refused.sqlstate, refused.message)})"

    def joined(a: str, b: str) -> str:
        shapes = (spark_sizes(f"get({array}, 0)" if count == most else array, most - 1)
                  for array, count in zip((a, b), counts, strict=True))  # fmt: skip
        lists = (array if count == most else f"array({array})" for array, count in zip((a, b), counts, strict=True))
        nothing = f"slice({a if counts[0] == most else b}, 1, 0)"
        first = f"CASE WHEN {b} IS NULL THEN {a if counts[0] == most else nothing} ELSE {alone(b, counts[1], a)} END"
        return (
            f"CASE WHEN {a} IS NULL AND {b} IS NULL THEN NULL "
            f"WHEN {a} IS NULL OR size({a}) = 0 THEN {first} "
            f"WHEN {b} IS NULL OR size({b}) = 0 THEN {alone(a, counts[0], b)} "
            f"WHEN {' <> '.join(shapes)} THEN {fail(SqlState.ARRAY_SUBSCRIPT_ERROR, _INCOMPATIBLE)} "
            f"ELSE concat({', '.join(lists)}) END"
        )

    return let(f"named_struct('a', {texts[0]}, 'b', {texts[1]})", lambda pair: joined(f"{pair}.a", f"{pair}.b"), "p")


def _one_dimension(given: Sequence[int]) -> int:
    if max(given) > 1:
        raise PgError(SqlState.DATA_EXCEPTION, "argument must be empty or one-dimensional array")
    return 1


def _append(array: list[Any] | None, item: Any) -> list[Any]:
    return [*(array or ()), item]


def _prepend(item: Any, array: list[Any] | None) -> list[Any]:
    return [item, *(array or ())]


_CAT = "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE concat({0}, {1}) END"
_APPEND = "coalesce(concat({0}, array({1})), array({1}))"
_PREPEND = "coalesce(concat(array({0}), {1}), array({0}))"
for _table, _names in ((OPERATORS, ("||",) * 3), (FUNCTIONS, ("array_cat", "array_append", "array_prepend"))):
    row(_table, _names[0], "anycompatiblearray anycompatiblearray", "anycompatiblearray", _cat_form, nulls=Nulls.MAYBE,
        python=_cat, typed=True, dimensions=_cat_dimensions)  # fmt: skip
    row(_table, _names[1], "anycompatiblearray anycompatible", "anycompatiblearray", _APPEND, nulls=Nulls.NEVER,
        python=_append, dimensions=_one_dimension)  # fmt: skip
    row(_table, _names[2], "anycompatible anycompatiblearray", "anycompatiblearray", _PREPEND, nulls=Nulls.NEVER,
        python=_prepend, dimensions=_one_dimension)  # fmt: skip


# -- sizes ------------------------------------------------------------------------------------------------------------


def _of_dimension(number: Callable[[int], int]) -> Callable[..., int | None]:
    """A number about one dimension. NULL for a dimension that the array does not have."""

    def python(array: list[Any], dimension: int, types: Sequence[PgType]) -> int | None:
        lengths = sizes(array, types[0].dimensions)
        return number(lengths[dimension - 1]) if 0 < dimension <= len(lengths) else None

    return python


def _lengths_form(args: Sequence[Expression], texts: Sequence[str]) -> str:
    if args[0].type.dimensions == 1:
        return f"IF({texts[1]} = 1, nullif(size({texts[0]}), 0), NULL)"

    def chosen(pair: str) -> str:
        lengths, part = [], f"{pair}.a"
        for number in range(1, args[0].type.dimensions + 1):
            lengths.append(f"WHEN {number} THEN nullif(size({part}), 0)")
            part = f"get({part}, 0)"
        return f"CASE {pair}.n {' '.join(lengths)} END"

    return let(f"named_struct('a', {texts[0]}, 'n', {texts[1]})", chosen, "p")


def _lower_form(args: Sequence[Expression], texts: Sequence[str]) -> str:
    return f"IF({texts[1]} BETWEEN 1 AND {args[0].type.dimensions} AND size({texts[0]}) > 0, 1, NULL)"


def _count_form(args: Sequence[Expression], texts: Sequence[str]) -> str:
    return f"IF(size({texts[0]}) > 0, {args[0].type.dimensions}, NULL)"


def _bounds_form(args: Sequence[Expression], texts: Sequence[str]) -> str:
    def bounds(array: str) -> str:
        parts, part = [], array
        for _ in range(args[0].type.dimensions):
            parts.append(f"'[1:', size({part}), ']'")
            part = f"get({part}, 0)"
        return f"IF(size({array}) > 0, concat({', '.join(parts)}), NULL)"

    return let(texts[0], bounds, "a") if args[0].type.dimensions > 1 else bounds(texts[0])


def _bounds(array: list[Any], types: Sequence[PgType]) -> str | None:
    return "".join(f"[1:{length}]" for length in sizes(array, types[0].dimensions)) or None


def _count(array: list[Any], types: Sequence[PgType]) -> int | None:
    return types[0].dimensions if array else None


row(FUNCTIONS, "cardinality", "anyarray", "int4", "size({0})", python=len, dimensions=flattened)
for _name in ("array_length", "array_upper"):
    row(FUNCTIONS, _name, "anyarray int4", "int4", _lengths_form, nulls=Nulls.OPTIONAL, typed=True,
        python=_of_dimension(lambda length: length), dimensions=independent)  # fmt: skip
row(FUNCTIONS, "array_lower", "anyarray int4", "int4", _lower_form, nulls=Nulls.OPTIONAL, typed=True,
    python=_of_dimension(lambda length: 1), dimensions=independent)  # fmt: skip
row(FUNCTIONS, "array_ndims", "anyarray", "int4", _count_form, nulls=Nulls.OPTIONAL, typed=True, python=_count,
    dimensions=independent)  # fmt: skip
row(FUNCTIONS, "array_dims", "anyarray", "text", _bounds_form, nulls=Nulls.OPTIONAL, typed=True, python=_bounds,
    dimensions=independent)  # fmt: skip


def _fill(
    value: Any, lengths: Sequence[int | None] | None, bounds: Sequence[int | None] | None = (), dimensions: int = 1
) -> list[Any]:
    """array_fill(), for a result of this number of dimensions. 0A000 if it has another one."""
    if lengths is None or bounds is None:
        message = "dimension array or low bound array cannot be null"
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, message)
    if not lengths:
        return []
    if len(lengths) > DIMENSIONS_MAX:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, too_many_dimensions(len(lengths)))
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths) or None in bounds:
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "dimension values cannot be null")
    if bounds and len(bounds) != len(lengths):
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts")
    if any(length < 0 for length in known) or prod(known) > ELEMENTS_MAX:
        message = f"array size exceeds the maximum allowed ({ELEMENTS_MAX})"
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message)
    if not prod(known):
        return []
    if any(bound != 1 for bound in bounds):
        raise no_bounds()
    if len(known) != dimensions:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"array_fill() of {len(known)} dimensions whose number is not known before is not supported",
            hint="Write the lengths as ARRAY[length, length].",
        )
    return nested([value] * prod(known), known)


def _fill_dimensions(given: Sequence[int]) -> int:
    if max(given[1:]) > 1:
        detail = "Dimension array must be one dimensional."
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts", detail=detail)
    return 1


for _arguments in ("anyelement int4[]", "anyelement int4[] int4[]"):
    row(FUNCTIONS, "array_fill", _arguments, "anyarray", nulls=Nulls.MAYBE, python=_fill, dimensions=_fill_dimensions)
row(GRAMMAR, "array_fill", "anyelement int4[] int4[] int4", "anyarray", nulls=Nulls.MAYBE, python=_fill)
(FILL,) = GRAMMAR["array_fill"]
"""array_fill() with the number of dimensions of the result."""


# -- searching --------------------------------------------------------------------------------------------------------


def _position(array: list[Any] | None, item: Any, start: int | None = 1, *, types: Sequence[PgType]) -> int | None:
    if array is None:
        return None
    if start is None:
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "initial position must not be null")
    (key,) = _keys([item], types)
    found = (i for i, k in enumerate(_keys(array, types), 1) if i >= start and k == key)
    return next(found, None)


def _positions(array: list[Any] | None, item: Any, types: Sequence[PgType]) -> list[int] | None:
    if array is None:
        return None
    (key,) = _keys([item], types)
    return [i for i, k in enumerate(_keys(array, types), 1) if k == key]


def _remove(array: list[Any] | None, item: Any, types: Sequence[PgType]) -> list[Any] | None:
    if array is None:
        return None
    (key,) = _keys([item], types)
    return [value for value, k in zip(array, _keys(array, types), strict=True) if k != key]


def _replace(array: list[Any] | None, old: Any, new: Any, types: Sequence[PgType]) -> list[Any] | None:
    if array is None:
        return None
    assert types[0].element is not None
    key_of = ordering(types[0].element)
    key = key_of(old)
    return mapped(lambda value: new if key_of(value) == key else value, array, types[0].dimensions)


def _unless_several(message: str) -> Dimensions:
    """The rule for a function that PostgreSQL does not have for arrays of several dimensions."""

    def dimensions(given: Sequence[int]) -> int:
        if max(given) > 1:
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=_OF_ELEMENTS)
        return 1

    return dimensions


_OF_ELEMENTS = "Call it for the elements in one dimension: ARRAY(SELECT unnest(array))."
_NOT_SEARCHED = _unless_several("searching for elements in multidimensional arrays is not supported")
_NOT_REMOVED = _unless_several("removing elements from multidimensional arrays is not supported")


_SEARCHED = "anycompatiblearray anycompatible"
for _arguments in (_SEARCHED, f"{_SEARCHED} int4"):
    row(FUNCTIONS, "array_position", _arguments, "int4", nulls=Nulls.MAYBE, typed=True, python=_position,
        dimensions=_NOT_SEARCHED)  # fmt: skip
row(FUNCTIONS, "array_positions", _SEARCHED, "int4[]", nulls=Nulls.MAYBE, typed=True, python=_positions,
    dimensions=_NOT_SEARCHED)  # fmt: skip
row(FUNCTIONS, "array_remove", _SEARCHED, "anycompatiblearray", nulls=Nulls.MAYBE, typed=True, python=_remove,
    dimensions=_NOT_REMOVED)  # fmt: skip
row(FUNCTIONS, "array_replace", f"{_SEARCHED} anycompatible", "anycompatiblearray", nulls=Nulls.MAYBE, typed=True,
    python=_replace, dimensions=same_dimensions)  # fmt: skip


def _trim(array: list[Any], count: int) -> list[Any]:
    if not 0 <= count <= len(array):
        message = f"number of elements to trim must be between 0 and {len(array)}"
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, message)
    return array[: len(array) - count]


row(FUNCTIONS, "trim_array", "anyarray int4", "anyarray", python=_trim, dimensions=same_dimensions)
row(FUNCTIONS, "array_sample", "anyarray int4", "anyarray", dimensions=same_dimensions)
row(FUNCTIONS, "array_shuffle", "anyarray", "anyarray", dimensions=same_dimensions)


# -- text -------------------------------------------------------------------------------------------------------------


def _to_string(array: list[Any], delimiter: str, *, types: Sequence[PgType]) -> str:
    return _joined(array, delimiter, None, types)


def _to_string_nulls(
    array: list[Any] | None, delimiter: str | None, null: str | None, types: Sequence[PgType]
) -> str | None:
    return None if array is None or delimiter is None else _joined(array, delimiter, null, types)


def _joined(array: list[Any], delimiter: str, null: str | None, types: Sequence[PgType]) -> str:
    element = types[0].element
    assert element is not None
    texts = [null if value is None else text_form(element, value) for value in array]
    return delimiter.join(text for text in texts if text is not None)


def _from_string(text: str | None, delimiter: str | None, null: str | None = None) -> list[str | None] | None:
    if text is None:
        return None
    parts = list(text) if delimiter is None else [text] if not delimiter else text.split(delimiter)
    return [None if part == null else part for part in parts] if text else []


row(FUNCTIONS, "array_to_string", "anyarray text", "text", typed=True, python=_to_string, dimensions=flattened)
row(FUNCTIONS, "array_to_string", "anyarray text text", "text", nulls=Nulls.MAYBE, typed=True,
    python=_to_string_nulls, dimensions=flattened)  # fmt: skip
row(FUNCTIONS, "string_to_array", "text text", "text[]", nulls=Nulls.MAYBE, python=_from_string)
row(FUNCTIONS, "string_to_array", "text text text", "text[]", nulls=Nulls.MAYBE, python=_from_string)


# -- GREATEST and LEAST of types that Spark orders differently from PostgreSQL ----------------------------------------


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    def python(*values: Any, types: Sequence[PgType]) -> Any:
        return choose((value for value in values if value is not None), key=ordering(types[0]), default=None)

    return python


for _name, _choose in (("greatest", max), ("least", min)):
    row(GRAMMAR, _name, "anyelement", "anyelement", nulls=Nulls.MAYBE, variadic=True, typed=True,
        python=_extreme(_choose))  # fmt: skip


# -- subscripts, which have no function name --------------------------------------------------------------------------


def element_at(array: list[Any], index: int) -> Any:
    """array[index]"""
    return array[index - 1] if 0 < index <= len(array) else None


def elements_between(array: list[Any], first: int, last: int) -> list[Any]:
    """array[first:last]"""
    return array[max(first, 1) - 1 : max(last, 0)]


def _with_element(array: list[Any] | None, index: int | None, value: Any) -> list[Any]:
    """The array after array[index] = value. NULLs fill the gap behind a shorter array."""
    if index is None:
        message = "array subscript in assignment must not be null"
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, message)
    changed = list(array or ())
    if index < 1 or (not changed and index > 1):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "an array whose first subscript is not 1 is not supported",
            hint="Assign the whole array.",
        )
    if index > len(changed) + ADDED_MAX:
        message = f"array size exceeds the maximum allowed ({ELEMENTS_MAX})"
        detail = f"An assignment to an element can add at most {ADDED_MAX} elements."
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message, detail=detail)
    changed += [None] * (index - len(changed))
    changed[index - 1] = value
    return changed


row(GRAMMAR, "set element", "anyarray int4 anyelement", "anyarray", nulls=Nulls.MAYBE, python=_with_element)
(SET_ELEMENT,) = GRAMMAR["set element"]
