"""CREATE TABLE and CREATE TABLE AS."""

from __future__ import annotations

from catalog.objects import OnCommit
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind
from server.sql.grammar.rules.keys import at_key, parse_key
from server.sql.grammar.rules.retention import parse_retain_option
from server.sql.grammar.rules.sources import at_source_table, parse_columns, parse_create_source_table
from server.sql.grammar.statements.parts import Expr, Ident, Name
from server.sql.grammar.statements.sources import CreateSourceTable
from server.sql.grammar.statements.tables import (
    AddKey,
    ColumnDefinition,
    CreateTable,
    CreateTableAs,
    DropConstraint,
    Key,
    Like,
)
from server.sql.grammar.token_reader import TokenReader

# Constraints that Tidewire lacks, with the hint for each.
_UNENFORCED = {
    "check": "Omit it; a view can select the rows that violate it.",
    "references": "Omit it; a view can select the rows that violate it.",
    "foreign": "Omit it; a view can select the rows that violate it.",
    "generated": "Compute the column in a view, or assign the numbers in the client.",
}
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
    if tokens.at("as", "with", "using", "tablespace", "on") or _at_column_names(tokens):
        return _parse_create_table_as(tokens, start, name, exists, temporary)
    tokens.reject("CREATE TABLE OF a type", "of")
    tokens.reject("a partitioned table", "partition")
    tokens.expect("(")
    columns: list[ColumnDefinition | Like] = []
    keys: list[Key] = []
    if not tokens.take(")"):
        _parse_table_element(tokens, name, columns, keys)
        while tokens.take(","):
            _parse_table_element(tokens, name, columns, keys)
        tokens.expect(")")
    tokens.reject("INHERITS", "inherits")
    tokens.reject("a partitioned table", "partition")
    retain = parse_retain_option(tokens, "CREATE TABLE with storage options")
    on_commit = _parse_on_commit(tokens, temporary)
    tokens.reject("CREATE TABLE with storage options", "using", "tablespace", "without", "on")
    return CreateTable(
        *tokens.text_from(start), name, tuple(columns), tuple(keys), exists, retain, temporary, on_commit
    )


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
    retain = parse_retain_option(tokens, "CREATE TABLE with storage options")
    on_commit = _parse_on_commit(tokens, temporary)
    tokens.reject("CREATE TABLE with storage options", "using", "tablespace", "without", "on")
    tokens.expect("as")
    tokens.reject("CREATE TABLE AS EXECUTE", "execute", hint="Write the query of the prepared statement.")
    query = tokens.query("with")
    tokens.reject("AS OF in CREATE TABLE AS", "as")
    with_data = True
    if tokens.take("with"):
        with_data = not tokens.take("no")
        tokens.expect("data")
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
    tokens: TokenReader, table: Name, columns: list[ColumnDefinition | Like], keys: list[Key]
) -> None:
    """A column or a constraint, added to `columns` or `keys`."""
    constraint: Ident | None = None
    if tokens.take("constraint"):
        constraint = tokens.ident()
        if not tokens.at("primary", "unique", "check", "foreign", "exclude"):
            raise tokens.syntax_error()
    if at_key(tokens):
        _add_key(keys, parse_key(tokens, constraint, None), table)
    elif tokens.at("check", "foreign", "exclude") and (tokens.ahead().value in ("(", "key", "using")):
        raise tokens.not_supported(f"a {tokens.token.value.upper()} constraint", _UNENFORCED.get(tokens.token.value))
    elif tokens.take("like"):
        columns.append(_parse_like(tokens))
    else:
        columns.append(parse_column_definition(tokens, table, keys))


def _parse_like(tokens: TokenReader) -> Like:
    """The part of LIKE relation [INCLUDING | EXCLUDING property ...] after LIKE. The last mention of a property counts.

    Tables have no other properties than the copied ones.
    """
    relation = tokens.name()
    included: set[str] = set()
    while tokens.at("including", "excluding"):
        include = tokens.choose("including", "excluding") == "including"
        named = tokens.choose(*_LIKE_PROPERTIES, "all")
        properties = _LIKE_PROPERTIES if named == "all" else (named,)
        included = included.union(properties) if include else included.difference(properties)
    return Like(relation, "defaults" in included, "indexes" in included, "comments" in included)


def parse_column_definition(tokens: TokenReader, table: Name, keys: list[Key]) -> ColumnDefinition:
    name = tokens.ident()
    type_ = tokens.type()
    not_null: bool | None = None
    default: Expr | None = None
    constraint: Ident | None = None
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
        elif tokens.at("collate"):
            raise tokens.not_supported("COLLATE", 'Text is compared by its bytes, as under the collation "C".')
        elif tokens.at("check", "references", "generated", "deferrable", "initially", "storage", "compression"):
            raise tokens.not_supported(
                f"a column with {tokens.token.value.upper()}", _UNENFORCED.get(tokens.token.value)
            )
        else:
            raise tokens.syntax_error()
        constraint = None
    return ColumnDefinition(name, type_, bool(not_null), default)


def _add_key(keys: list[Key], key: Key, table: Name) -> None:
    if key.primary and any(other.primary for other in keys):
        message = f'multiple primary keys for table "{table.parts[-1]}" are not allowed'
        raise PgError(SqlState.INVALID_TABLE_DEFINITION, message, position=key.position)
    keys.append(key)


def parse_alter_constraint(
    tokens: TokenReader, start: int, table: Name, exists: bool
) -> AddKey | DropConstraint | None:
    """ADD or DROP of a constraint, as the action of ALTER TABLE; None: another action follows."""
    if tokens.at("add") and tokens.ahead().value in ("constraint", "primary", "unique"):
        tokens.expect("add")
        name = tokens.ident() if tokens.take("constraint") else None
        if not at_key(tokens):
            raise tokens.not_supported("ALTER TABLE ... ADD CONSTRAINT other than PRIMARY KEY and UNIQUE")
        key = parse_key(tokens, name, None)
        return AddKey(*tokens.text_from(start), table, key, exists)
    if tokens.take("drop", "constraint"):
        missing_ok = tokens.if_exists()
        name = tokens.ident()
        cascade = tokens.drop_behavior()
        return DropConstraint(*tokens.text_from(start), table, name, exists, missing_ok, cascade)
    return None


def _conflicting(what: str, column: Ident, table: Name, start: int, how: str = "conflicting") -> PgError:
    return PgError(
        SqlState.SYNTAX_ERROR,
        f'{how} {what} {"specified " if how == "multiple" else ""}for column "{column.name}" '
        f'of table "{table.parts[-1]}"',
        position=start + 1,
    )
