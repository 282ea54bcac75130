"""Spark SQL of values that Spark orders and compares as PostgreSQL does."""

from __future__ import annotations

import re

from protocol.pgwire.types import PgType, with_dimensions
from server.sql.functions.intervals import interval_length
from server.sql.functions.table import let

_PATH = re.compile(r"\w+(\.\w+)*")
_UNORDERED = ("json", "jsonb")


def is_ordered(type: PgType) -> bool:
    """Whether values of the type have a `sort_form`."""
    if type.element is not None:
        return is_ordered(type.element)
    if type.fields is not None:
        return all(is_ordered(field) for _, field in type.fields)
    return type.name not in _UNORDERED


def sort_form(type: PgType, text: str) -> str:
    """A value whose order and equality in Spark are those of `text` in PostgreSQL. NULL if `text` is.

    Arrays are compared by their elements, then by their dimensions. NULL inside an array or a row equals NULL and is
    greater than any value. The type `is_ordered`.
    """
    if type.element is not None and type.dimensions > 1:
        return let(text, lambda array: _sort_form_of_array(type, array), f"a{type.dimensions}")
    if type.element is not None:
        return f"transform({text}, e -> struct(e IS NULL, {sort_form(type.element, 'e')}))"
    if type.fields is not None:
        types = [field for _, field in type.fields]
        if _PATH.fullmatch(text):
            return _sort_form_of_row(types, text)
        return let(text, lambda row: _sort_form_of_row(types, row))
    if type.name == "interval":
        return interval_length(text)
    return f"rtrim({text})" if type.name == "bpchar" else text


def spark_sizes(array: str, dimensions: int) -> str:
    """An array of the lengths of all dimensions of an array; zeros if it is empty or NULL."""
    lengths, part = [], array
    for _ in range(dimensions):
        lengths.append(f"greatest(coalesce(size({part}), 0), 0)")
        part = f"get({part}, 0)"
    return f"array({', '.join(lengths)})"


def dimensions_form(type: PgType, array: str) -> str:
    """The number of dimensions and their lengths, as an array. An empty array has none."""
    lengths, part = [], array
    for _ in range(type.dimensions):
        lengths.append(f"size({part})")
        part = f"get({part}, 0)"
    return f"IF(size({array}) = 0, array(0), array({', '.join([str(type.dimensions), *lengths])}))"


def _sort_form_of_array(type: PgType, array: str) -> str:
    levels = type.dimensions - 1
    elements = sort_form(with_dimensions(type, 1), "flatten(" * levels + array + ")" * levels)
    return f"IF({array} IS NULL, NULL, struct({elements}, {dimensions_form(type, array)}))"


def _sort_form_of_row(types: list[PgType], row: str) -> str:
    fields = (f"{row}.f{i} IS NULL, {sort_form(type, f'{row}.f{i}')}" for i, type in enumerate(types))
    return f"IF({row} IS NULL, NULL, struct({', '.join(fields)}))"
