"""Rows as values: how they are made, their fields, comparisons, text, and JSON (chapters 8.16, 9.16 and 9.24).

In Spark a row is a struct with the fields f0, f1, ...; as a Python scalar it is a tuple. Its type has the names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import format_text
from protocol.pgwire.text_columns import OutputStyle
from protocol.pgwire.types import INT4, RECORD, PgType
from server.sql.casts import text_form
from server.sql.decimals import Shape
from server.sql.expressions import Call, Expression, Literal
from server.sql.functions.arrays import ordering
from server.sql.functions.json import json_of
from server.sql.functions.sort_forms import is_ordered, sort_form
from server.sql.functions.table import (
    COMPARISONS,
    FUNCTIONS,
    GRAMMAR,
    OPERATORS,
    Form,
    Nulls,
    fitted,
    independent,
    row,
)

_QUOTED = re.compile(r'[\\"(),\s]')


# -- making a row, and its fields -------------------------------------------------------------------------------------


def _struct(args: Sequence[Expression], texts: Sequence[str]) -> str:
    fields = (f"'f{i}', {_field(*pair)}" for i, pair in enumerate(zip(args, texts, strict=True)))
    return f"named_struct({', '.join(fields)})"


def _field(expression: Expression, text: str) -> str:
    """A numeric with the precision of its type: that of a field."""
    if expression.type.name != "numeric":
        return text
    return fitted(expression, text, Shape(expression.type.precision or 38, expression.type.scale or 0))


def _selected(args: Sequence[Expression], texts: Sequence[str]) -> str:
    number = args[1]
    assert isinstance(number, Literal)
    return f"({texts[0]}).f{number.value}"


row(GRAMMAR, "row", "any", "record", _struct, nulls=Nulls.NEVER, variadic=True, typed=True,
    python=lambda *values, types: values, dimensions=independent)  # fmt: skip
row(GRAMMAR, "field", "record int4", "any", _selected, nulls=Nulls.OPTIONAL, python=lambda row, number: row[number])
(ROW,), (FIELD,) = GRAMMAR["row"], GRAMMAR["field"]


def field_of(row: Expression, number: int) -> Expression:
    """The field of a row with this number, from 0; NULL if the row is."""
    if isinstance(row, Call) and row.function is ROW:
        return row.arguments[number]
    assert row.type.fields is not None
    type = row.type.fields[number][1]
    digits = (type.precision or 38) if type.name == "numeric" else 0
    return Call(FIELD, (row, Literal(number, INT4)), type, True, digits)


# -- comparison -------------------------------------------------------------------------------------------------------


def _same_types(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """42804 if the fields of two rows have different types. NULL takes the other row's type."""
    left, right = args
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Literal) and side.value is None and side.type.fields is None:
            return tuple(replace(arg, type=other.type) if arg is side else arg for arg in (left, right))
        if side.type.fields is None:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "input of anonymous composite types is not implemented",
                hint="Write the row as ROW(...).",
            )
    assert left.type.fields is not None
    assert right.type.fields is not None
    if len(left.type.fields) != len(right.type.fields):
        message = "cannot compare record types with different numbers of columns"
        raise PgError(SqlState.DATATYPE_MISMATCH, message)
    if any(field.name == "json" for _, field in left.type.fields):
        message = "could not identify an equality operator for type json"
        raise PgError(SqlState.UNDEFINED_FUNCTION, message)
    for number, ((_, a), (_, b)) in enumerate(zip(left.type.fields, right.type.fields, strict=True), 1):
        check_same_field(a, b, number)
        if (a.element or a).name == "numeric" and a.scale != b.scale:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "a comparison of rows whose numbers have different scales is not supported",
                hint="Cast the fields to the same type.",
            )
    return args


def check_same_field(left: PgType, right: PgType, number: int) -> None:
    """42804 if two fields of this number, from 1, have types that cannot be compared."""
    a, b = left.without_modifiers, right.without_modifiers
    if a.name != b.name:
        shown = f"{a.display} and {b.display} at record column {number}"
        raise PgError(SqlState.DATATYPE_MISMATCH, f"cannot compare dissimilar column types {shown}")


def _order(symbol: str) -> Form:
    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        if not is_ordered(args[0].type):
            return ""
        left, right = (sort_form(arg.type, text) for arg, text in zip(args, texts, strict=True))
        return f"({left} {symbol} {right})"

    return form


def _compared(test: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def python(left: Any, right: Any, types: Sequence[PgType]) -> bool:
        key = ordering(types[0])
        return test(key(left), key(right))

    return python


for _symbol, _test in COMPARISONS.items():
    row(OPERATORS, _symbol, "record record", "bool", _order(_symbol), typed=True, prepare=_same_types,
        python=_compared(_test))  # fmt: skip


# -- text and JSON ----------------------------------------------------------------------------------------------------


def _shown(type: PgType, value: Any, timezone: str) -> str:
    if value is None:
        return ""
    if type.fields is not None:
        text = _text(type.fields, value, timezone)
    elif type.element is not None and type.element.fields is not None:
        fields = type.element.fields
        rows = [None if item is None else _text(fields, item, timezone) for item in value]
        text = format_text(replace(type, element=RECORD), rows)
    elif (type.element or type).name == "timestamptz":
        text = format_text(type, value, OutputStyle(timezone=timezone or "UTC"))
    else:
        text = text_form(type, value)
    if text and not _QUOTED.search(text):
        return text
    doubled = text.replace("\\", "\\\\").replace('"', '""')
    return f'"{doubled}"'


def _text(fields: Sequence[tuple[str, PgType]], values: Sequence[Any], timezone: str) -> str:
    """record_out()"""
    return f"({','.join(_shown(type, value, timezone) for (_, type), value in zip(fields, values, strict=True))})"


def _text_of(value: Any, types: Sequence[PgType], timezone: str) -> Any:
    """The text of a row, or the texts of the rows of an array."""
    (type,) = types
    if type.fields is not None:
        return _text(type.fields, value, timezone)
    assert type.element is not None
    assert type.element.fields is not None
    fields = type.element.fields
    return [None if item is None else _text(fields, item, timezone) for item in value]


row(GRAMMAR, "text of row", "record", "record", typed=True, zoned=True, python=_text_of)
row(GRAMMAR, "text of rows", "record[]", "record[]", typed=True, zoned=True, python=_text_of)
(TEXT_OF_ROW,), (TEXT_OF_ROWS,) = GRAMMAR["text of row"], GRAMMAR["text of rows"]


def _row_to_json(value: Any, pretty: bool = False, *, types: Sequence[PgType]) -> str:
    return json_of(types[0], value, ",\n " if pretty else ",")


row(FUNCTIONS, "row_to_json", "record", "json", typed=True, python=_row_to_json)
row(FUNCTIONS, "row_to_json", "record bool", "json", typed=True, python=_row_to_json)
