"""Functions about the input of types (chapter 9.26), and pg_column_size() (9.27) for types of a fixed size."""

from __future__ import annotations

import re
from collections.abc import Callable

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import PgType, named_type
from server.sql.expressions import Expression
from server.sql.functions.sets import SETS, SetReturning
from server.sql.functions.table import FUNCTIONS, LIKE_FINITE, SET_ARRAYS, Nulls, row
from server.sql.grammar.refused_types import refused_type

_WORD = r'(?:"[^"]+"|[^\W\d]\w*)'
_NAME = re.compile(rf"\s*{_WORD}(?:\s*\.\s*{_WORD}|\s+{_WORD}|\s*\([\s\w,-]*\)|\s*\[\s*\d*\s*\])*\s*")
"""The syntax of the name of a type. It also matches some texts that PostgreSQL refuses."""
_TOKEN = re.compile(r"\w+|.", re.DOTALL)


def _named(spelling: str) -> PgType:
    """The type of that name. 42601 for a text that is no name, 42704, 0A000 for a type that only PostgreSQL has."""
    try:
        return named_type(spelling)
    except ValueError as error:
        if not spelling.strip():
            raise PgError(SqlState.SYNTAX_ERROR, f'invalid type name "{spelling}"') from None
        found = _NAME.match(spelling)
        if token := _TOKEN.match(spelling, found.end() if found else 0):
            raise PgError(SqlState.SYNTAX_ERROR, f'syntax error at or near "{token[0]}"') from None
        refused = refused_type(spelling.strip().lower(), None)
        raise refused or PgError(SqlState.UNDEFINED_OBJECT, str(error)) from None


def _fault(text: str, type: str, timezone: str) -> PgError | None:
    """The error of converting a text to a type; None if there is none."""
    wanted = _named(type)
    try:
        parse_text(wanted, text, timezone=timezone)
    except PgError as error:
        return error
    return None


def _is_valid(text: str, type: str, *, timezone: str) -> bool:
    return _fault(text, type, timezone) is None


def _part(part: Callable[[PgError], str | None]) -> Callable[..., list[str | None]]:
    """A column of pg_input_error_info(), which has one row."""

    def python(text: str | None, type: str | None, *, timezone: str) -> list[str | None]:
        error = None if text is None or type is None else _fault(text, type, timezone)
        return [None if error is None else part(error)]

    return python


row(FUNCTIONS, "pg_input_is_valid", "text text", "bool", zoned=True, python=_is_valid)
_COLUMNS: dict[str, Callable[[PgError], str | None]] = {
    "message": lambda error: error.message,
    "detail": lambda error: error.detail,
    "hint": lambda error: error.hint,
    "sql_error_code": lambda error: str(error.sqlstate),
}
SETS["pg_input_error_info"] = SetReturning(
    tuple(f"pg_input_error_info.{column}" for column in _COLUMNS), tuple(_COLUMNS)
)
for _column, _value in _COLUMNS.items():
    row(SET_ARRAYS, f"pg_input_error_info.{_column}", "text text", "text[]", nulls=Nulls.MAYBE, zoned=True,
        python=_part(_value))  # fmt: skip


# -- sizes ------------------------------------------------------------------------------------------------------------

_SIZES = {
    "bool": 1, "int2": 2, "int4": 4, "int8": 8, "float4": 4, "float8": 8, "date": 4, "time": 8, "timestamp": 8,
    "timestamptz": 8, "interval": 16, "uuid": 16, "macaddr": 6, "macaddr8": 8,
}  # fmt: skip
"""The sizes of values in bytes, for types whose values all have the same."""


def _check_size(arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    type = arguments[0].type
    if type.name not in _SIZES and type.enum is None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"pg_column_size of type {type.base_display} is not supported",
            hint="octet_length() returns the number of bytes of a text: octet_length(x::text).",
        )
    return arguments


def _size(value: object, *, types: tuple[PgType, ...]) -> int:
    return _SIZES.get(types[0].name, 4)  # an enumerated type: 4


row(FUNCTIONS, "pg_column_size", "any", "int4", typed=True, prepare=_check_size, infinite=LIKE_FINITE, python=_size)
