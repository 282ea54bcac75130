"""RETAIN HISTORY in CREATE and ALTER."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind
from server.sql.grammar.rules.objects import SOURCES_HINT
from server.sql.grammar.statements.objects import AlterRetention, ObjectKind
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.token_reader import TokenReader

_INTERVAL_HINT = "All sources and tables have the interval that the server was started with (--timestamp-interval)."

STORAGE_HINT = "Omit it: the server determines how rows are stored. RETAIN HISTORY FOR is the only option."
COLUMNS_HINT = "Name the columns in CREATE SOURCE: (PUBLICATION 'name', TEXT COLUMNS (schema.table.column, ...))."
# What to do instead of options of Materialize and RisingWave, by their first word.
_OPTION_HINTS = {
    "connector": SOURCES_HINT,
    "exclude": COLUMNS_HINT.replace("TEXT", "EXCLUDE"),
    "text": COLUMNS_HINT,
    "refresh": "Omit it: a materialized view is always up to date.",
}
# How full PostgreSQL leaves a page, and when it vacuums. pgbench and schema dumps contain them.
_STORAGE_PARAMETERS = (
    "fillfactor",
    "autovacuum_enabled",
    "autovacuum_vacuum_scale_factor",
    "autovacuum_vacuum_threshold",
    "autovacuum_vacuum_insert_scale_factor",
    "autovacuum_vacuum_insert_threshold",
    "autovacuum_vacuum_cost_delay",
    "autovacuum_vacuum_cost_limit",
    "autovacuum_analyze_scale_factor",
    "autovacuum_analyze_threshold",
    "autovacuum_freeze_max_age",
    "autovacuum_freeze_min_age",
    "autovacuum_freeze_table_age",
    "log_autovacuum_min_duration",
    "vacuum_index_cleanup",
    "vacuum_truncate",
    "deduplicate_items",
    "fastupdate",
    "gin_pending_list_limit",
    "pages_per_range",
    "autosummarize",
    "buffering",
    "parallel_workers",
    "toast_tuple_target",
    "user_catalog_table",
)
_COLUMN_PARAMETERS = ("n_distinct", "n_distinct_inherited")


def parse_retain_option(tokens: TokenReader, unsupported: str) -> str | None:
    """WITH (RETAIN HISTORY [=] FOR interval), or nothing. 0A000 naming `unsupported` for other options.

    PostgreSQL's storage parameters have no effect.
    """
    if not tokens.at("with"):
        return None
    if tokens.ahead().value == "(" and tokens.ahead(2).value in _STORAGE_PARAMETERS:
        tokens.expect("with")
        parse_storage_parameters(tokens)
        return None
    if not (tokens.ahead().value == "(" and tokens.ahead(2).value == "retain"):
        if [tokens.ahead(n).value for n in (2, 3)] == ["timestamp", "interval"]:
            raise tokens.not_supported("option TIMESTAMP INTERVAL", _INTERVAL_HINT)
        option = tokens.ahead(2).value
        if option in _OPTION_HINTS:
            words = [option, "columns"] if tokens.ahead(3).value == "columns" else [option]
            raise tokens.not_supported(f"option {' '.join(words).upper()}", _OPTION_HINTS[option])
        raise tokens.not_supported(unsupported, STORAGE_HINT)
    tokens.expect("with")
    return _parse_retain_history(tokens)


def parse_storage_parameters(tokens: TokenReader) -> None:
    """(parameter [= value], ...), of a table or an index. PgError 22023 for other parameters."""
    tokens.in_parentheses(lambda: _skip_parameter(tokens, _STORAGE_PARAMETERS))


def parse_column_parameters(tokens: TokenReader) -> None:
    """As `parse_storage_parameters`, of a column."""
    tokens.in_parentheses(lambda: _skip_parameter(tokens, _COLUMN_PARAMETERS))


def _skip_parameter(tokens: TokenReader, known: tuple[str, ...]) -> None:
    name = tokens.ident()
    if name.name not in known:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'unrecognized parameter "{name.name}"')
    if tokens.take("="):
        tokens.take("-")
        tokens.advance()


def parse_place(tokens: TokenReader) -> bool:
    """[TABLESPACE pg_default | ACCESS METHOD heap]. Returns whether it is there. PgError 42704 for other names."""
    if tokens.take("tablespace"):
        _require(tokens, "tablespace", "pg_default")
        return True
    if tokens.take("access", "method"):
        _require(tokens, "access method", "heap")
        return True
    return False


def parse_method(tokens: TokenReader) -> None:
    """[USING heap]. PgError 42704 for other names."""
    if tokens.take("using"):
        _require(tokens, "access method", "heap")


def _require(tokens: TokenReader, what: str, only: str) -> None:
    name = tokens.ident()
    if name.name != only:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'{what} "{name.name}" does not exist')


def _parse_retain_history(tokens: TokenReader) -> str:
    """(RETAIN HISTORY [=] FOR interval)"""
    for word in ("(", "retain", "history"):
        tokens.expect_one_of(word)
    tokens.take("=")
    tokens.expect_one_of("for")
    tokens.take("interval")
    retain = tokens.number() if tokens.token.kind is Kind.NUMBER else _parse_option_string(tokens)
    tokens.take(",")
    tokens.expect_one_of(")")
    return retain


def _parse_option_string(tokens: TokenReader) -> str:
    if tokens.token.kind is not Kind.STRING:
        raise tokens.expected("option value")
    return tokens.string()


def parse_alter_retention(
    tokens: TokenReader, start: int, kind: ObjectKind, name: Name, exists: bool
) -> AlterRetention:
    """SET (RETAIN HISTORY [=] FOR interval) or RESET (RETAIN HISTORY)"""
    retain = None
    if tokens.choose("set", "reset") == "set":
        retain = _parse_retain_history(tokens)
    else:
        tokens.expect("(", "retain", "history", ")")
    return AlterRetention(*tokens.text_from(start), kind, name, retain, exists)
