"""CREATE TABLE and CREATE TABLE AS."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from catalog.objects.tables import OnCommit
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.grammar.lexer import Kind
from server.sql.grammar.rules.checks import parse_check, parse_generation, parse_reference
from server.sql.grammar.rules.collations import parse_collation_of
from server.sql.grammar.rules.keys import at_key, parse_key
from server.sql.grammar.rules.objects import parse_with_data
from server.sql.grammar.rules.retention import parse_method, parse_place, parse_retain_option
from server.sql.grammar.rules.sequences import SERIAL_TYPES, parse_identity
from server.sql.grammar.rules.sources import at_source_table, parse_columns, parse_create_source_table
from server.sql.grammar.statements.checks import CheckConstraint, Reference
from server.sql.grammar.statements.parts import Expr, Ident, Name
from server.sql.grammar.statements.sequences import Identity
from server.sql.grammar.statements.sources import CreateSourceTable
from server.sql.grammar.statements.tables import (
    ColumnDefinition,
    CreateTable,
    CreateTableAs,
    Key,
    Like,
)
from server.sql.grammar.token_reader import TokenReader

PARTITION_HINT = "Create a table without partitions: an index finds rows by key in tables of any size."
AS_OF_HINT = "Create the table, and insert the rows of SELECT ... AS OF."
_CHECKED = "Omit it: a constraint is checked at the end of each statement, and again at COMMIT."
_STORED = "Omit it: all rows are stored in the same way."
_COLUMN_HINTS = {"deferrable": _CHECKED, "initially": _CHECKED, "storage": _STORED, "compression": _STORED}
EXCLUDE_HINT = "UNIQUE rejects equal rows. A materialized view can show rows that overlap."
_WATERMARK_HINT = "Omit it: a filter of a view on mz_now() removes rows when they are older than an interval."
_LIKE_PROPERTIES = (
    *("comments", "compression", "constraints", "defaults", "generated", "identity", "indexes", "statistics"),
    "storage",
)


def parse_create_table(
    tokens: TokenReader, start: int, temporary: bool = False
) -> CreateTable | CreateTableAs | CreateSourceTable:
    exists = tokens.if_not_exists()
    name = tokens.name()
    if not temporary and at_source_table(tokens):
        return parse_create_source_table(tokens, start, name, parse_columns(tokens), exists)
    if tokens.at("as", "with", "without", "using", "tablespace", "on") or _at_column_names(tokens):
        return _parse_create_table_as(tokens, start, name, exists, temporary)
    tokens.reject("CREATE TABLE OF a type", "of", hint="List the columns.")
    tokens.reject("a partitioned table", "partition", hint=PARTITION_HINT)
    tokens.expect("(")
    columns: list[ColumnDefinition | Like] = []
    keys: list[Key] = []
    rules: list[CheckConstraint | Reference] = []
    if not tokens.take(")"):
        _parse_table_element(tokens, name, columns, keys, rules)
        while tokens.take(","):
            _parse_table_element(tokens, name, columns, keys, rules)
        tokens.expect(")")
    tokens.reject(
        "INHERITS", "inherits", hint="Repeat the columns. A view with UNION ALL has the rows of several tables."
    )
    tokens.reject("a partitioned table", "partition", hint=PARTITION_HINT)
    retain, on_commit = _parse_options(tokens, temporary)
    return CreateTable(
        *tokens.text_from(start),
        name,
        tuple(columns),
        tuple(keys),
        exists,
        retain,
        tuple(rules),
        temporary,
        on_commit,
    )


def _parse_options(tokens: TokenReader, temporary: bool) -> tuple[str | None, OnCommit | None]:
    """[USING heap] [WITH (...) | WITHOUT OIDS] [ON COMMIT ...] [TABLESPACE pg_default]."""
    parse_method(tokens)
    retain = None
    if not tokens.take("without", "oids"):
        retain = parse_retain_option(tokens, "CREATE TABLE with storage options")
    on_commit = _parse_on_commit(tokens, temporary)
    parse_place(tokens)
    return retain, on_commit


def _parse_on_commit(tokens: TokenReader, temporary: bool) -> OnCommit | None:
    """[ON COMMIT PRESERVE ROWS | DELETE ROWS | DROP]. PgError 42P16 for a table that is not temporary."""
    if not tokens.take("on", "commit"):
        return None
    if not temporary:
        raise PgError(SqlState.INVALID_TABLE_DEFINITION, "ON COMMIT can only be used on temporary tables")
    if tokens.take("drop"):
        return OnCommit.DROP
    chosen = tokens.choose("preserve", "delete")
    tokens.expect("rows")
    return OnCommit.DELETE_ROWS if chosen == "delete" else None


def _at_column_names(tokens: TokenReader) -> bool:
    """Whether the next tokens are `(name, name ...)`, so that the statement can only be CREATE TABLE AS."""
    return tokens.at("(") and tokens.ahead().kind in (Kind.WORD, Kind.IDENT) and tokens.ahead(2).value in (",", ")")


def _parse_create_table_as(tokens: TokenReader, start: int, name: Name, exists: bool, temporary: bool) -> CreateTableAs:
    columns = tokens.column_list()
    retain, on_commit = _parse_options(tokens, temporary)
    tokens.expect("as")
    tokens.reject("CREATE TABLE AS EXECUTE", "execute", hint="Write the query of the prepared statement.")
    query = tokens.query("with")
    tokens.reject("AS OF in CREATE TABLE AS", "as", hint=AS_OF_HINT)
    with_data = parse_with_data(tokens)
    return CreateTableAs(
        *tokens.text_from(start),
        name,
        columns,
        query,
        exists,
        "CREATE TABLE AS",
        with_data,
        retain,
        temporary,
        on_commit,
    )


def _parse_table_element(
    tokens: TokenReader,
    table: Name,
    columns: list[ColumnDefinition | Like],
    keys: list[Key],
    rules: list[CheckConstraint | Reference],
) -> None:
    """A column or a constraint, added to `columns`, `keys` or `rules`."""
    constraint = tokens.ident() if tokens.take("constraint") else None
    if constraint is not None and not tokens.at("primary", "unique", "check", "foreign", "exclude"):
        raise tokens.syntax_error()
    if at_key(tokens):
        _add_key(keys, parse_key(tokens, constraint, None), table)
    elif tokens.at_all("check", "("):
        rules.append(parse_check(tokens, constraint))
    elif tokens.at_all("foreign", "key"):
        rules.append(parse_reference(tokens, constraint))
    elif tokens.at("exclude") and tokens.ahead().value in ("(", "using"):
        raise tokens.not_supported("an EXCLUDE constraint", EXCLUDE_HINT)
    elif tokens.at_all("watermark", "for"):
        raise tokens.not_supported("a WATERMARK", _WATERMARK_HINT)
    elif tokens.take("like"):
        columns.append(_parse_like(tokens))
    else:
        columns.append(parse_column_definition(tokens, table, keys, rules))


def _parse_like(tokens: TokenReader) -> Like:
    """The part of LIKE relation [INCLUDING | EXCLUDING property ...] after LIKE. The last mention of a property counts.

    Tables have no STATISTICS, STORAGE and COMPRESSION.
    """
    relation = tokens.name()
    included: set[str] = set()
    while tokens.at("including", "excluding"):
        include = tokens.choose("including", "excluding") == "including"
        named = tokens.choose(*_LIKE_PROPERTIES, "all")
        properties = _LIKE_PROPERTIES if named == "all" else (named,)
        included = included.union(properties) if include else included.difference(properties)
    return Like(
        relation,
        defaults="defaults" in included,
        keys="indexes" in included,
        comments="comments" in included,
        identity="identity" in included,
        constraints="constraints" in included,
        generated="generated" in included,
    )


def parse_column_definition(
    tokens: TokenReader, table: Name, keys: list[Key], rules: list[CheckConstraint | Reference]
) -> ColumnDefinition:
    name = tokens.ident()
    type_, identity = _parse_column_type(tokens)
    not_null: bool | None = None
    default: Expr | None = None
    generated: Expr | None = None
    constraint: Ident | None = None
    collation: Name | None = None
    while not (tokens.at_statement_end or tokens.at(",", ")")):
        token = tokens.token
        if tokens.take("constraint"):
            constraint = tokens.ident()
            continue
        if tokens.take("not") or tokens.at("null"):
            tokens.expect("null")
            wanted = token.value == "not"
            if not_null is not None and not_null != wanted:
                raise _conflicting("NULL/NOT NULL declarations", name, table, token.start)
            not_null = wanted
        elif tokens.take("default"):
            if default is not None:
                raise _conflicting("default values", name, table, token.start, "multiple")
            default = tokens.expression(
                *(",", "not", "null", "primary", "unique", "check", "references", "constraint", "generated"),
                *("collate", "default", "deferrable", "initially"),
            )
        elif at_key(tokens):
            _add_key(keys, parse_key(tokens, constraint, (name,)), table)
        elif tokens.at_all("generated", "always", "as", "identity") or tokens.at_all("generated", "by"):
            tokens.advance()
            if identity is not None:
                _refuse_second(identity, name, table, token.start)
            identity = parse_identity(tokens)
        elif tokens.take("generated"):
            if generated is not None:
                raise _conflicting("generation clauses", name, table, token.start, "multiple")
            generated = parse_generation(tokens)
        elif tokens.at_all("check", "("):
            rules.append(parse_check(tokens, constraint))
        elif tokens.at("references"):
            rules.append(replace(parse_reference(tokens, constraint), columns=(name,)))
        elif tokens.at("collate"):
            collation = parse_collation_of(tokens, type_, collation)
        elif tokens.at("deferrable", "initially", "storage", "compression"):
            raise tokens.not_supported(f"a column with {tokens.token.value.upper()}", _COLUMN_HINTS[tokens.token.value])
        else:
            raise tokens.syntax_error()
        constraint = None
    if identity is not None and default is not None:
        what = "default values" if identity.serial else "default and identity"
        how = "multiple" if identity.serial else "both"
        raise _conflicting(what, name, table, name.position - 1, how)
    if identity is not None and not_null is False:
        raise _conflicting("NULL/NOT NULL declarations", name, table, name.position - 1)
    if generated is not None and (default is not None or identity is not None):
        what = "default and generation expression" if default is not None else "identity and generation expression"
        raise _conflicting(what, name, table, generated.offset, "both")
    return ColumnDefinition(name, type_, bool(not_null) or identity is not None, default, identity, generated)


def _parse_column_type(tokens: TokenReader) -> tuple[PgType, Identity | None]:
    """The type of a column. For SERIAL, the type that it means and its sequence."""
    serial = SERIAL_TYPES.get(tokens.token.value) if tokens.token.kind is Kind.WORD else None
    if serial is None:
        return tokens.type(user_defined=True), None
    spelling = tokens.token.value
    tokens.advance()
    if tokens.at("[", "array"):
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"array of {spelling} is not implemented")
    return serial, Identity(False, serial=True)


def _refuse_second(identity: Identity, column: Ident, table: Name, start: int) -> NoReturn:
    if identity.serial:
        raise _conflicting("default and identity", column, table, start, "both")
    raise _conflicting("identity", column, table, start, "multiple")


def _add_key(keys: list[Key], key: Key, table: Name) -> None:
    if key.primary and any(other.primary for other in keys):
        message = f'multiple primary keys for table "{table.parts[-1]}" are not allowed'
        raise PgError(SqlState.INVALID_TABLE_DEFINITION, message, position=key.position)
    keys.append(key)


def _conflicting(what: str, column: Ident, table: Name, start: int, how: str = "conflicting") -> PgError:
    return PgError(
        SqlState.SYNTAX_ERROR,
        f'{how} {what} {"specified " if how in ("both", "multiple") else ""}for column "{column.name}" '
        f'of table "{table.parts[-1]}"',
        position=start + 1,
    )
