"""One-dimensional arrays (chapter 9.19). In all functions NULL equals NULL and is greater than any value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.casts import text_form
from server.sql.expressions import Expression
from server.sql.functions.json import order_key as json_order
from server.sql.functions.table import COMPARISONS, FUNCTIONS, GRAMMAR, OPERATORS, Form, Nulls, row

ELEMENTS_MAX = (1 << 27) - 1
ADDED_MAX = 1_000_000  # elements that an assignment behind the end of an array can add, most of them NULL
_NATIVE = frozenset(("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "date", "time",
                     "timestamp", "timestamptz", "uuid", "bytea"))  # fmt: skip


def ordering(type: PgType) -> Callable[[Any], Any]:
    """A function from values (or None) of the type to keys with PostgreSQL's order and equality. 42883 for json."""
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


def _keys(values: Sequence[Any], types: Sequence[PgType]) -> list[Any]:
    """The sort keys of an array's elements; the first of `types` is the array's type."""
    assert types[0].element is not None
    return list(map(ordering(types[0].element), values))


def _compared(test: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    return lambda a, b, types: test(_keys(a, types), _keys(b, types))


def _order(symbol: str) -> Form:
    """A form for elements that Spark orders like PostgreSQL. A struct (is null, value) sorts NULL last."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        element = args[0].type.element
        if element is None or element.representation not in _NATIVE:
            return ""
        if symbol in ("=", "<>"):
            return f"({texts[0]} {symbol} {texts[1]})"
        left, right = (f"transform({text}, e -> struct(e IS NULL AS n, e AS v))" for text in texts)
        return f"({left} {symbol} {right})"

    return form


for _symbol, _test in COMPARISONS.items():
    row(OPERATORS, _symbol, "anyarray anyarray", "bool", _order(_symbol), typed=True, python=_compared(_test))


def _contains(whole: list[Any], part: list[Any], types: Sequence[PgType]) -> bool:
    return None not in part and set(_keys(whole, types)).issuperset(_keys(part, types))


def _overlap(a: list[Any], b: list[Any], types: Sequence[PgType]) -> bool:
    keys = set(_keys([v for v in a if v is not None], types))
    return not keys.isdisjoint(_keys([v for v in b if v is not None], types))


row(OPERATORS, "@>", "anyarray anyarray", "bool", typed=True, python=_contains)
row(OPERATORS, "<@", "anyarray anyarray", "bool", typed=True, python=lambda a, b, types: _contains(b, a, types))
row(OPERATORS, "&&", "anyarray anyarray", "bool", typed=True, python=_overlap)


# -- joining; a NULL array is treated as an empty one ---------------------------------------------------------------


def _cat(a: list[Any] | None, b: list[Any] | None) -> list[Any] | None:
    return b if a is None else a if b is None else a + b


def _append(array: list[Any] | None, item: Any) -> list[Any]:
    return [*(array or ()), item]


def _prepend(item: Any, array: list[Any] | None) -> list[Any]:
    return [item, *(array or ())]


_CAT = "CASE WHEN {0} IS NULL THEN {1} WHEN {1} IS NULL THEN {0} ELSE concat({0}, {1}) END"
_APPEND = "coalesce(concat({0}, array({1})), array({1}))"
_PREPEND = "coalesce(concat(array({0}), {1}), array({0}))"
for _table, _names in ((OPERATORS, ("||",) * 3), (FUNCTIONS, ("array_cat", "array_append", "array_prepend"))):
    row(_table, _names[0], "anycompatiblearray anycompatiblearray", "anycompatiblearray", _CAT, nulls=Nulls.MAYBE,
        python=_cat)  # fmt: skip
    row(_table, _names[1], "anycompatiblearray anycompatible", "anycompatiblearray", _APPEND, nulls=Nulls.NEVER,
        python=_append)  # fmt: skip
    row(_table, _names[2], "anycompatible anycompatiblearray", "anycompatiblearray", _PREPEND, nulls=Nulls.NEVER,
        python=_prepend)  # fmt: skip


# -- sizes ------------------------------------------------------------------------------------------------------------


def _of_first(number: Callable[[int], int | None]) -> Callable[[list[Any], int], int | None]:
    """A number about dimension 1. NULL for any other dimension and for an empty array."""
    return lambda array, dimension: number(len(array)) if dimension == 1 and array else None


row(FUNCTIONS, "cardinality", "anyarray", "int4", "size({0})", python=len)
row(FUNCTIONS, "array_length", "anyarray int4", "int4", "IF({1} = 1, nullif(size({0}), 0), NULL)",
    nulls=Nulls.OPTIONAL, python=_of_first(lambda size: size))  # fmt: skip
row(FUNCTIONS, "array_upper", "anyarray int4", "int4", "IF({1} = 1, nullif(size({0}), 0), NULL)",
    nulls=Nulls.OPTIONAL, python=_of_first(lambda size: size))  # fmt: skip
row(FUNCTIONS, "array_lower", "anyarray int4", "int4", "IF({1} = 1 AND size({0}) > 0, 1, NULL)",
    nulls=Nulls.OPTIONAL, python=_of_first(lambda size: 1))  # fmt: skip
row(FUNCTIONS, "array_ndims", "anyarray", "int4", "IF(size({0}) > 0, 1, NULL)",
    nulls=Nulls.OPTIONAL, python=lambda array: 1 if array else None)  # fmt: skip
row(FUNCTIONS, "array_dims", "anyarray", "text", "IF(size({0}) > 0, concat('[1:', size({0}), ']'), NULL)",
    nulls=Nulls.OPTIONAL, python=lambda array: f"[1:{len(array)}]" if array else None)  # fmt: skip


def _fill(value: Any, sizes: Sequence[int | None] | None, bounds: Sequence[int | None] | None = ()) -> list[Any]:
    if sizes is None or bounds is None:
        message = "dimension array or low bound array cannot be null"
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, message)
    if not sizes:
        return []
    if None in sizes or None in bounds:
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "dimension values cannot be null")
    if bounds and len(bounds) != len(sizes):
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts")
    if len(sizes) > 1 or any(bound != 1 for bound in bounds):
        message = "arrays of more than one dimension, or whose subscripts do not begin at 1, are not supported"
        hint = "Nest the arrays in a jsonb, or omit the lower bounds."
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint=hint)
    size = sizes[0] or 0
    if not -1 < size <= ELEMENTS_MAX:
        message = f"array size exceeds the maximum allowed ({ELEMENTS_MAX})"
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, message)
    return [value] * size


row(FUNCTIONS, "array_fill", "anyelement int4[]", "anyarray", nulls=Nulls.MAYBE, python=_fill)
row(FUNCTIONS, "array_fill", "anyelement int4[] int4[]", "anyarray", nulls=Nulls.MAYBE, python=_fill)


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
    (key,) = _keys([old], types)
    return [new if k == key else value for value, k in zip(array, _keys(array, types), strict=True)]


_SEARCHED = "anycompatiblearray anycompatible"
row(FUNCTIONS, "array_position", _SEARCHED, "int4", nulls=Nulls.MAYBE, typed=True, python=_position)
row(FUNCTIONS, "array_position", f"{_SEARCHED} int4", "int4", nulls=Nulls.MAYBE, typed=True, python=_position)
row(FUNCTIONS, "array_positions", _SEARCHED, "int4[]", nulls=Nulls.MAYBE, typed=True, python=_positions)
row(FUNCTIONS, "array_remove", _SEARCHED, "anycompatiblearray", nulls=Nulls.MAYBE, typed=True, python=_remove)
row(FUNCTIONS, "array_replace", f"{_SEARCHED} anycompatible", "anycompatiblearray", nulls=Nulls.MAYBE, typed=True,
    python=_replace)  # fmt: skip


def _trim(array: list[Any], count: int) -> list[Any]:
    if not 0 <= count <= len(array):
        message = f"number of elements to trim must be between 0 and {len(array)}"
        raise PgError(SqlState.ARRAY_SUBSCRIPT_ERROR, message)
    return array[: len(array) - count]


row(FUNCTIONS, "trim_array", "anyarray int4", "anyarray", python=_trim)
row(FUNCTIONS, "array_sample", "anyarray int4", "anyarray")
row(FUNCTIONS, "array_shuffle", "anyarray", "anyarray")


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


row(FUNCTIONS, "array_to_string", "anyarray text", "text", typed=True, python=_to_string)
row(FUNCTIONS, "array_to_string", "anyarray text text", "text", nulls=Nulls.MAYBE, typed=True,
    python=_to_string_nulls)  # fmt: skip
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
