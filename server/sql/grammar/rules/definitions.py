"""CREATE, ALTER, DROP and COMMENT: the kind of object selects the rule."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind
from server.sql.grammar.rules.alter_table import at_table_action, parse_alter_table, parse_rename_column
from server.sql.grammar.rules.built_ins import parse_drop_built_in
from server.sql.grammar.rules.domains import parse_alter_domain, parse_create_domain
from server.sql.grammar.rules.holds import parse_advance_hold, parse_alter_hold, parse_create_hold
from server.sql.grammar.rules.objects import (
    parse_names,
    parse_object_kind,
    parse_temporary,
    unsupported_kind,
)
from server.sql.grammar.rules.retention import STORAGE_HINT, parse_alter_retention
from server.sql.grammar.rules.roles import (
    parse_alter_default_privileges,
    parse_alter_role,
    parse_create_role,
    parse_drop_owned,
    parse_drop_roles,
    parse_role,
)
from server.sql.grammar.rules.sequences import parse_alter_sequence, parse_create_sequence
from server.sql.grammar.rules.settings import parse_alter_system, parse_setting_value
from server.sql.grammar.rules.sinks import parse_create_sink
from server.sql.grammar.rules.sources import (
    parse_add_subsources,
    parse_alter_connection,
    parse_alter_secret,
    parse_create_connection,
    parse_create_secret,
    parse_create_source,
    parse_drop_subsources,
)
from server.sql.grammar.rules.tables import PARTITION_HINT, parse_create_table
from server.sql.grammar.rules.types import parse_alter_type, parse_create_type, parse_set_schema
from server.sql.grammar.rules.views import parse_create_index, parse_create_materialized_view, parse_create_view
from server.sql.grammar.statements import Statement
from server.sql.grammar.statements.objects import (
    AlterOwner,
    AlterRename,
    AlterSchema,
    CommentOn,
    CommentOnConstraint,
    CommentOnExtension,
    CreateDatabase,
    CreateExtension,
    CreateSchema,
    DatabaseOption,
    DropBuiltIn,
    DropObjects,
    ObjectKind,
)
from server.sql.grammar.statements.roles import DropOwned, DropRoles
from server.sql.grammar.statements.tables import RenameConstraint
from server.sql.grammar.token_reader import TokenReader

# The number of parts that a name may have; None: the name of a column.
_NAME_PARTS: dict[ObjectKind | None, int] = {
    None: 4,
    **dict.fromkeys(ObjectKind, 3),
    ObjectKind.DATABASE: 1,
    ObjectKind.SCHEMA: 2,
}


_ALTERATIONS = {
    ObjectKind.HOLD: "ADVANCE, SET (MAX LAG), RENAME TO",
    ObjectKind.DOMAIN: "ADD, DROP, VALIDATE and RENAME CONSTRAINT, SET and DROP, SET SCHEMA, RENAME TO",
    ObjectKind.TYPE: "ADD VALUE, RENAME VALUE, SET SCHEMA, RENAME TO",
    ObjectKind.MATERIALIZED_VIEW: "SET and RESET (RETAIN HISTORY), RENAME COLUMN, SET SCHEMA, RENAME TO",
    ObjectKind.TABLE: "actions on columns and constraints, RENAME TO, SET SCHEMA",
}
_MOVABLE = (ObjectKind.TABLE, ObjectKind.VIEW, ObjectKind.MATERIALIZED_VIEW, ObjectKind.SEQUENCE)
_WITH_COLUMNS = (ObjectKind.TABLE, ObjectKind.VIEW, ObjectKind.MATERIALIZED_VIEW)


_ROW_SECURITY = "Grant SELECT on a view with the condition, instead of the table."
_TABLE_HINTS = {
    "attach": PARTITION_HINT,
    "detach": PARTITION_HINT,
    "enable": _ROW_SECURITY,
    "force": _ROW_SECURITY,
    "inherit": "A view with UNION ALL has the rows of several tables.",
    "set": STORAGE_HINT,
}
"""What to do instead of an action of ALTER TABLE, by its first word."""


def _alteration_hint(kind: ObjectKind, tokens: TokenReader) -> str:
    if kind is ObjectKind.TABLE and tokens.word in _TABLE_HINTS:
        return _TABLE_HINTS[tokens.word]
    if kind in (ObjectKind.VIEW, ObjectKind.MATERIALIZED_VIEW):
        return f"CREATE OR REPLACE {kind.upper()} changes the query of a {kind}."
    if kind is ObjectKind.HOLD:
        return "Create another hold at the time of this one, with AT, and then drop this one: the history is kept."
    if kind in (ObjectKind.DATABASE, ObjectKind.SCHEMA):
        return "ALTER SYSTEM SET and SET change settings."
    return f"Drop the {kind}, and create it again."


def _at_rename_column(tokens: TokenReader) -> bool:
    return tokens.at_all("rename", "column") or (tokens.at("rename") and tokens.ahead(2).value == "to")


def parse_create(tokens: TokenReader) -> Statement:
    start = tokens.index
    tokens.expect("create")
    or_replace = tokens.take("or", "replace")
    if not or_replace and tokens.at("unlogged") and tokens.ahead().value in ("table", "sequence"):
        tokens.advance()  # all tables and sequences are durable
    is_temporary = parse_temporary(tokens)
    if tokens.take("recursive"):
        tokens.expect("view")
        return parse_create_view(tokens, start, or_replace, is_temporary, recursive=True)
    if is_temporary:
        if tokens.take("view"):
            return parse_create_view(tokens, start, or_replace, temporary=True)
        if not or_replace and tokens.take("sequence"):
            return parse_create_sequence(tokens, start, temporary=True)
        if or_replace or not tokens.take("table"):
            raise tokens.not_supported(
                "a temporary object other than a table, a view or a sequence",
                "Create it without TEMPORARY, and drop it later.",
            )
        return parse_create_table(tokens, start, temporary=True)
    if tokens.take("materialized"):
        tokens.expect("view")
        return parse_create_materialized_view(tokens, start, or_replace)
    if tokens.take("view"):
        return parse_create_view(tokens, start, or_replace)
    if or_replace:
        kinds = [kind.value for kind in ObjectKind if " " not in kind.value]
        raise unsupported_kind(tokens, "CREATE OR REPLACE", *kinds)
    if tokens.at_all("default", "index") or tokens.at_all("unique", "index") or tokens.at("index"):
        return parse_create_index(tokens, start)
    if tokens.take("table"):
        return parse_create_table(tokens, start)
    if tokens.take("hold"):
        return parse_create_hold(tokens, start)
    if tokens.take("source"):
        return parse_create_source(tokens, start)
    if tokens.take("connection"):
        return parse_create_connection(tokens, start)
    if tokens.take("secret"):
        return parse_create_secret(tokens, start)
    if tokens.take("sink"):
        return parse_create_sink(tokens, start)
    if tokens.take("sequence"):
        return parse_create_sequence(tokens, start)
    if tokens.take("type"):
        return parse_create_type(tokens, start)
    if tokens.take("domain"):
        return parse_create_domain(tokens, start)
    if tokens.take("extension"):
        return _parse_create_extension(tokens, start)
    if tokens.take("schema"):
        return _parse_create_schema(tokens, start)
    if tokens.take("database"):
        return _parse_create_database(tokens, start)
    if tokens.at("role", "user"):
        return parse_create_role(tokens, start)
    raise unsupported_kind(tokens, "CREATE")


def _parse_create_extension(tokens: TokenReader, start: int) -> CreateExtension:
    """CREATE EXTENSION [IF NOT EXISTS] name [WITH] [SCHEMA schema] [VERSION version] [CASCADE]"""
    exists = tokens.if_not_exists()
    name = tokens.ident()
    tokens.take("with")
    while not tokens.at_statement_end:
        match tokens.choose("schema", "version", "cascade"):
            case "schema":
                tokens.ident()
            case "version" if tokens.token.kind is Kind.STRING:
                tokens.string()
            case "version":
                tokens.ident()
    return CreateExtension(*tokens.text_from(start), name, exists)


def _parse_create_schema(tokens: TokenReader, start: int) -> CreateSchema:
    exists = tokens.if_not_exists()
    schema = None if tokens.at("authorization") else tokens.name(parts_max=2)
    owner = parse_role(tokens) if tokens.take("authorization") else None
    tokens.reject("CREATE SCHEMA with its objects", "create", hint="Create them with separate statements.")
    return CreateSchema(*tokens.text_from(start), schema, exists, owner)


def _parse_create_database(tokens: TokenReader, start: int) -> CreateDatabase:
    exists = tokens.if_not_exists()
    database = tokens.ident()
    tokens.take("with")
    options = []
    while not tokens.at_statement_end:
        options.append(_parse_database_option(tokens))
    return CreateDatabase(*tokens.text_from(start), database, exists, tuple(options))


def _parse_database_option(tokens: TokenReader) -> DatabaseOption:
    position = tokens.token.start + 1
    name = "connection_limit" if tokens.take("connection", "limit") else tokens.ident().name.lower()
    tokens.take("=")
    value = None if tokens.take("default") else parse_setting_value(tokens)
    return DatabaseOption(name, value, position)


def parse_drop(tokens: TokenReader) -> DropObjects | DropBuiltIn | DropRoles | DropOwned:
    start = tokens.index
    tokens.expect("drop")
    if (dropped := parse_drop_built_in(tokens, start)) is not None:
        return dropped
    if tokens.at("role", "user"):
        return parse_drop_roles(tokens, start)
    if tokens.take("owned"):
        return parse_drop_owned(tokens, start)
    kind = parse_object_kind(tokens, "DROP")
    concurrently = kind is ObjectKind.INDEX and tokens.take("concurrently")
    exists = tokens.if_exists()
    names = parse_names(tokens, lambda: tokens.name(_NAME_PARTS[kind]))
    force = kind is ObjectKind.DATABASE and (tokens.take("with") or tokens.at("("))
    if force:
        tokens.in_parentheses(lambda: tokens.expect("force"))
    restrict = tokens.at("restrict")
    cascade = tokens.drop_behavior()
    return DropObjects(*tokens.text_from(start), kind, names, exists, cascade, restrict, force, concurrently)


def parse_alter(tokens: TokenReader) -> Statement:
    start = tokens.index
    tokens.expect("alter")
    if tokens.at("role", "user"):
        return parse_alter_role(tokens, start)
    if tokens.take("system"):
        return parse_alter_system(tokens, start)
    if tokens.at("default"):
        return parse_alter_default_privileges(tokens, start)
    kind = parse_object_kind(tokens, "ALTER")
    exists = tokens.if_exists()
    tokens.take("only")
    name = tokens.name(_NAME_PARTS[kind])
    if tokens.at_statement_end:
        raise tokens.syntax_error()
    if kind is ObjectKind.HOLD and tokens.take("advance"):
        return parse_advance_hold(tokens, start, name, exists)
    if kind is ObjectKind.HOLD and tokens.at("set") and tokens.ahead().value == "(":
        tokens.expect("set")
        return parse_alter_hold(tokens, start, name, exists)
    if kind is ObjectKind.SECRET and not tokens.at("owner", "rename"):
        return parse_alter_secret(tokens, start, name, exists)
    if kind is ObjectKind.CONNECTION and (altered := parse_alter_connection(tokens, start, name, exists)) is not None:
        return altered
    if kind is ObjectKind.SEQUENCE and (changed := parse_alter_sequence(tokens, start, name, exists)) is not None:
        return changed
    if kind in (ObjectKind.TYPE, ObjectKind.DOMAIN) and tokens.at_all("set", "schema"):
        return parse_set_schema(tokens, start, kind, name)
    if kind is ObjectKind.DOMAIN and (altered_domain := parse_alter_domain(tokens, start, name)) is not None:
        return altered_domain
    if kind is ObjectKind.TYPE and (retyped := parse_alter_type(tokens, start, name)) is not None:
        return retyped
    if kind is ObjectKind.SOURCE and tokens.take("add"):
        return parse_add_subsources(tokens, start, name, exists)
    if kind is ObjectKind.SOURCE and tokens.take("drop"):
        return parse_drop_subsources(tokens, start, name, exists)
    if tokens.at("set", "reset") and tokens.ahead().value == "(" and tokens.ahead(2).value == "retain":
        return parse_alter_retention(tokens, start, kind, name, exists)
    if kind in _MOVABLE and tokens.take("set", "schema"):
        schema = tokens.ident()
        return AlterSchema(*tokens.text_from(start), kind, name, schema, exists)
    if kind is ObjectKind.TABLE and tokens.take("rename", "constraint"):
        constraint = tokens.ident()
        tokens.expect("to")
        new_constraint = tokens.ident()
        return RenameConstraint(*tokens.text_from(start), name, constraint, new_constraint, exists)
    if tokens.take("owner"):
        tokens.expect("to")
        owner = parse_role(tokens)
        return AlterOwner(*tokens.text_from(start), kind, name, owner, exists)
    if kind is ObjectKind.TABLE and at_table_action(tokens):
        return parse_alter_table(tokens, start, name, exists)
    if kind in _WITH_COLUMNS and _at_rename_column(tokens):
        return parse_rename_column(tokens, start, kind, name, exists)
    if not tokens.at("rename") or (tokens.ahead().value != "to" and tokens.ahead().kind is not Kind.END):
        known = _ALTERATIONS.get(kind, "RENAME TO")
        raise tokens.not_supported(
            f"ALTER {kind.upper()} other than {known} and OWNER TO", _alteration_hint(kind, tokens)
        )
    tokens.expect("rename", "to")
    new_name = tokens.ident()
    return AlterRename(*tokens.text_from(start), kind, name, new_name, exists)


def parse_comment(tokens: TokenReader) -> CommentOn | CommentOnConstraint | CommentOnExtension:
    start = tokens.index
    tokens.expect("comment", "on")
    if tokens.take("extension"):
        extension = tokens.ident()
        _parse_text(tokens)
        return CommentOnExtension(*tokens.text_from(start), extension)
    if tokens.take("constraint"):
        constraint = tokens.ident()
        tokens.expect("on")
        tokens.reject("COMMENT ON CONSTRAINT of a domain", "domain", hint="A comment on the domain can describe it.")
        table = tokens.name()
        return CommentOnConstraint(*tokens.text_from(start), constraint, table, _parse_text(tokens))
    kind = None if tokens.take("column") else parse_object_kind(tokens, "COMMENT ON")
    name = tokens.name(_NAME_PARTS[kind])
    if kind is None and len(name.parts) == 1:
        raise PgError(SqlState.SYNTAX_ERROR, "column name must be qualified", position=name.position)
    return CommentOn(*tokens.text_from(start), kind, name, _parse_text(tokens))


def _parse_text(tokens: TokenReader) -> str | None:
    """IS 'text' or IS NULL."""
    tokens.expect("is")
    return None if tokens.take("null") else tokens.string()
