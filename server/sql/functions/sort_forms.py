"""Spark SQL of values that Spark orders and compares as PostgreSQL does."""

from __future__ import annotations

import re

from protocol.pgwire.types import PgType
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

    NULL inside an array or a row equals NULL and is greater than any value. The type `is_ordered`.
    """
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


def _sort_form_of_row(types: list[PgType], row: str) -> str:
    fields = (f"{row}.f{i} IS NULL, {sort_form(type, f'{row}.f{i}')}" for i, type in enumerate(types))
    return f"IF({row} IS NULL, NULL, struct({', '.join(fields)}))"
