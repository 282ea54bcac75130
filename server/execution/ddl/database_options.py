"""The options of CREATE DATABASE: those that are true of every database are accepted, all others refused."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.session_state.context import Context
from server.settings.parsers import Invalid, parse_boolean
from server.sql.grammar.lexer import words
from server.sql.grammar.statements.objects import DatabaseOption

_TEMPLATES = ("template0", "template1")
_LOCALES = ("c", "posix", "c.utf-8", "c.utf8")
_STRATEGIES = ("wal_log", "file_copy")
_REFUSED = ("icu_locale", "icu_rules", "collation_version", "oid")
_ENCODINGS = words(
    """
    sqlascii eucjp euccn euckr euctw eucjis2004 mulelatin1 koi8r koi8u sjis big5 gbk uhc gb18030 johab shiftjis2004
    latin1 latin2 latin3 latin4 latin5 latin6 latin7 latin8 latin9 latin10 iso88595 iso88596 iso88597 iso88598
    win866 win874 win1250 win1251 win1252 win1253 win1254 win1255 win1256 win1257 win1258
    """
)
"""PostgreSQL's encodings other than UTF8, in lower case, letters and digits only."""


def check_options(context: Context, options: tuple[DatabaseOption, ...]) -> str | None:
    """Returns the name of the owner, if one is given. PgError for an option that is not true of every database."""
    owner, known = None, set()
    for option in options:
        if option.name in known:
            raise PgError(SqlState.SYNTAX_ERROR, "conflicting or redundant options", position=option.position)
        known.add(option.name)
        if option.name == "owner":
            owner = option.value
        elif option.value is not None:
            _check(context, option, option.value)
    return owner


def _check(context: Context, option: DatabaseOption, value: str) -> None:
    match option.name:
        case "encoding":
            _check_encoding(value)
        case "locale" | "lc_collate" | "lc_ctype":
            if value.lower() not in _LOCALES:
                what = "LC_CTYPE" if option.name == "lc_ctype" else "LC_COLLATE"
                raise PgError(
                    SqlState.WRONG_OBJECT_TYPE,
                    f'invalid {what} locale name: "{value}"',
                    hint='Use "C": texts are compared by their code points.',
                )
        case "locale_provider":
            if value.lower() != "libc":
                raise _unsupported(option)
        case "template":
            if value not in _TEMPLATES:
                if context.state.database_named(value) is None:
                    raise PgError(SqlState.INVALID_CATALOG_NAME, f'template database "{value}" does not exist')
                raise _unsupported(option)
        case "tablespace":
            if value != "pg_default":
                raise PgError(SqlState.UNDEFINED_OBJECT, f'tablespace "{value}" does not exist')
        case "strategy":
            if value.lower() not in _STRATEGIES:
                raise PgError(
                    SqlState.INVALID_PARAMETER_VALUE,
                    f'invalid create database strategy "{value}"',
                    hint='Valid strategies are "wal_log", and "file_copy".',
                )
        case "connection_limit":
            limit = int(value) if value.removeprefix("-").isdigit() and len(value) < 12 else -2
            if limit < -1:
                raise PgError(SqlState.INVALID_PARAMETER_VALUE, f"invalid connection limit: {value}")
            if limit != -1:
                raise _unsupported(option)
        case "allow_connections" | "is_template":
            if _boolean(option, value) is not (option.name == "allow_connections"):
                raise _unsupported(option)
        case name if name in _REFUSED:
            raise _unsupported(option)
        case name:
            raise PgError(SqlState.SYNTAX_ERROR, f'option "{name}" not recognized', position=option.position)


def _check_encoding(value: str) -> None:
    name = "".join(filter(str.isalnum, value.lower()))
    if name in ("utf8", "unicode", "6"):
        return
    if name not in _ENCODINGS:
        raise PgError(SqlState.UNDEFINED_OBJECT, f"{value} is not a valid encoding name")
    raise PgError(
        SqlState.INVALID_PARAMETER_VALUE,
        f"new encoding ({value.upper()}) is incompatible with the encoding of the template database (UTF8)",
        hint="Use UTF8.",
    )


def _boolean(option: DatabaseOption, value: str) -> bool:
    try:
        return parse_boolean(value) == "on"
    except Invalid:
        raise PgError(SqlState.SYNTAX_ERROR, f"{option.name} requires a Boolean value") from None


def _unsupported(option: DatabaseOption) -> PgError:
    what = option.name.upper().replace("CONNECTION_LIMIT", "CONNECTION LIMIT")
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"CREATE DATABASE with {what} {option.value} is not supported",
        hint=f"Omit {what}: all databases have the same encoding, locale and limits.",
    )
