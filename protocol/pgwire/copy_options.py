"""The options of COPY, with PostgreSQL's checks.

`CopyOptions.of(pairs, reading=...)` takes the options of the statement, in order, and raises the same errors as
ProcessCopyOptions() of PostgreSQL 16 (src/backend/commands/copy.c). The constructor of the dataclass does not check
its arguments.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType

OptionValue = str | int | bool | Sequence[str] | None
Columns = Sequence[tuple[str, PgType]]
"""Names and types of the columns to copy."""


class CopyFormat(StrEnum):
    TEXT = "text"
    CSV = "csv"
    BINARY = "binary"


class Header(StrEnum):
    """HEADER: no header line, a line that is written or skipped, or a line that must match the column list."""

    NONE = "none"
    LINE = "line"
    MATCH = "match"


ALL_COLUMNS = ("*",)


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """The options of one COPY. Column lists contain names, or are `ALL_COLUMNS` for `*`.

    `delimiter`, `quote` and `escape` are one byte each, as str; `null` is the text that represents NULL, and `default`,
    if it is given, the text that represents the default of the column.
    """

    format: CopyFormat = CopyFormat.TEXT
    delimiter: str = "\t"
    null: str = "\\N"
    header: Header = Header.NONE
    quote: str = '"'
    escape: str = '"'
    force_quote: tuple[str, ...] = ()
    force_not_null: tuple[str, ...] = ()
    force_null: tuple[str, ...] = ()
    default: str | None = None

    @classmethod
    def csv(cls, **fields: Any) -> CopyOptions:
        """CSV with PostgreSQL's defaults: delimiter comma, NULL as the empty string, escape equal to quote."""
        escape = fields.get("quote", '"')
        return cls(**({"format": CopyFormat.CSV, "delimiter": ",", "null": "", "escape": escape} | fields))

    @classmethod
    def binary(cls) -> CopyOptions:
        return cls(format=CopyFormat.BINARY)

    def positions(self, listed: Sequence[str], names: Sequence[str], relation: str | None = None) -> frozenset[int]:
        """The positions in `names` of the listed columns. Raises 42703 for an unknown name, 42701 for a duplicate."""
        if tuple(listed) == ALL_COLUMNS:
            return frozenset(range(len(names)))
        for index, name in enumerate(listed):
            if name not in names:
                of = f' of relation "{relation}"' if relation is not None else ""
                raise PgError(SqlState.UNDEFINED_COLUMN, f'column "{name}"{of} does not exist')
            if name in listed[:index]:
                raise PgError(SqlState.DUPLICATE_COLUMN, f'column "{name}" specified more than once')
        return frozenset(names.index(name) for name in listed)

    @property
    def is_binary(self) -> bool:
        return self.format is CopyFormat.BINARY

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, OptionValue]], *, reading: bool) -> CopyOptions:
        """The options given as `(name, value)` pairs; `reading` is True for COPY FROM. Raises PgError.

        Names must be folded to lower case like identifiers. A value is a text (also for a bare word), a number,
        True/False, None if the option has no value, a sequence of column names, or `*`.
        """
        given: dict[str, Any] = {}
        for name, value in pairs:
            read = _READERS.get(name)
            if read is None:
                raise PgError(SqlState.SYNTAX_ERROR, f'option "{name}" not recognized')
            if name in given:
                raise PgError(SqlState.SYNTAX_ERROR, "conflicting or redundant options")
            given[name] = read(name, value)
            _refuse_unless(reading or given[name] is not Header.MATCH, 'cannot use "match" with HEADER in COPY TO')
        return _checked(given, reading)


def _text(name: str, value: OptionValue) -> str:
    if value is None or (not isinstance(value, (str, int))):
        raise PgError(SqlState.SYNTAX_ERROR, f"{name} requires a parameter")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _format(name: str, value: OptionValue) -> CopyFormat:
    text = _text(name, value)
    if text not in tuple(CopyFormat):
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'COPY format "{text}" not recognized')
    return CopyFormat(text)


def _boolean(name: str, value: OptionValue) -> bool:
    if value is None or value is True or value == 1:
        return True
    if value is False or value == 0:
        return False
    if isinstance(value, str) and value.lower() in ("true", "on"):
        return True
    if isinstance(value, str) and value.lower() in ("false", "off"):
        return False
    raise PgError(SqlState.SYNTAX_ERROR, f"{name} requires a Boolean value")


def _header(name: str, value: OptionValue) -> Header:
    if isinstance(value, str) and value.lower() == "match":
        return Header.MATCH
    try:
        return Header.LINE if _boolean(name, value) else Header.NONE
    except PgError as error:
        raise PgError(error.sqlstate, f'{name} requires a Boolean value or "match"') from None


def _columns(name: str, value: OptionValue) -> tuple[str, ...]:
    if value == "*" and name == "force_quote":
        return ALL_COLUMNS
    if value is None or isinstance(value, (str, int)):
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'argument to option "{name}" must be a list of column names')
    return tuple(value)


def _encoding(name: str, value: OptionValue) -> str:
    text = _text(name, value)
    if text.replace("-", "").replace("_", "").upper() in ("UTF8", "UNICODE", "SQLASCII"):
        return text
    try:
        codecs.lookup(text)
    except LookupError:
        message = f'argument to option "{name}" must be a valid encoding name'
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message) from None
    raise PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f'COPY encoding "{text}" is not supported: only UTF8 is',
        hint="Convert the data to UTF-8, for example with iconv.",
    )


_READERS: Mapping[str, Callable[[str, OptionValue], object]] = {
    "format": _format,
    "freeze": _boolean,
    "delimiter": _text,
    "null": _text,
    "default": _text,
    "header": _header,
    "quote": _text,
    "escape": _text,
    "force_quote": _columns,
    "force_not_null": _columns,
    "force_null": _columns,
    "encoding": _encoding,
}


def _checked(given: dict[str, Any], reading: bool) -> CopyOptions:
    """ProcessCopyOptions() after its loop. The checks have the same order, so that the same error is reported first."""
    format_ = given.get("format", CopyFormat.TEXT)
    is_csv, is_binary = format_ is CopyFormat.CSV, format_ is CopyFormat.BINARY
    for name in ("delimiter", "null", "default"):
        if is_binary and name in given:
            raise PgError(SqlState.SYNTAX_ERROR, f"cannot specify {name.upper()} in BINARY mode")
    delimiter = given.get("delimiter", "," if is_csv else "\t")
    null = given.get("null", "" if is_csv else "\\N")
    default = given.get("default")
    header = given.get("header", Header.NONE)
    quote = given.get("quote", '"')
    escape = given.get("escape", quote)

    _refuse_unless(_one_byte(delimiter), "COPY delimiter must be a single one-byte character")
    _refuse_unless(
        delimiter not in "\r\n", "COPY delimiter cannot be newline or carriage return", SqlState.INVALID_PARAMETER_VALUE
    )
    for name, text in (("null", null), ("default", default or "")):
        _refuse_unless(
            "\r" not in text and "\n" not in text,
            f"COPY {name} representation cannot use newline or carriage return",
            SqlState.INVALID_PARAMETER_VALUE,
        )
    _refuse_unless(
        is_csv or delimiter not in "\\.abcdefghijklmnopqrstuvwxyz0123456789",
        f'COPY delimiter cannot be "{delimiter}"',
        SqlState.INVALID_PARAMETER_VALUE,
    )
    _refuse_unless(not is_binary or header is Header.NONE, "cannot specify HEADER in BINARY mode")
    _refuse_unless(is_csv or "quote" not in given, "COPY quote available only in CSV mode")
    _refuse_unless(not is_csv or _one_byte(quote), "COPY quote must be a single one-byte character")
    _refuse_unless(
        not is_csv or delimiter != quote,
        "COPY delimiter and quote must be different",
        SqlState.INVALID_PARAMETER_VALUE,
    )
    _refuse_unless(is_csv or "escape" not in given, "COPY escape available only in CSV mode")
    _refuse_unless(not is_csv or _one_byte(escape), "COPY escape must be a single one-byte character")
    for name, reads in (("force_quote", False), ("force_not_null", True), ("force_null", True)):
        words = name.replace("_", " ")
        _refuse_unless(is_csv or name not in given, f"COPY {words} available only in CSV mode")
        direction = "COPY FROM" if reads else "COPY TO"
        _refuse_unless(reads == reading or name not in given, f"COPY {words} only available using {direction}")
    _refuse_unless(delimiter not in null, "COPY delimiter must not appear in the NULL specification")
    _refuse_unless(not is_csv or quote not in null, "CSV quote character must not appear in the NULL specification")
    if default is not None:
        _refuse_unless(reading, "COPY DEFAULT only available using COPY FROM")
        _refuse_unless(delimiter not in default, "COPY delimiter must not appear in the DEFAULT specification")
        _refuse_unless(
            not is_csv or quote not in default, "CSV quote character must not appear in the DEFAULT specification"
        )
        _refuse_unless(null != default, "NULL specification and DEFAULT specification cannot be the same")
    lists = {name: given.get(name, ()) for name in ("force_quote", "force_not_null", "force_null")}
    return CopyOptions(format_, delimiter, null, header, quote, escape, **lists, default=default)


def _one_byte(text: str) -> bool:
    return len(text.encode()) == 1


def _refuse_unless(fine: bool, message: str, sqlstate: SqlState = SqlState.FEATURE_NOT_SUPPORTED) -> None:
    if not fine:
        raise PgError(sqlstate, message)
