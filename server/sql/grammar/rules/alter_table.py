"""ALTER TABLE: actions on columns."""

from __future__ import annotations

from server.sql.grammar.rules.tables import parse_column_definition
from server.sql.grammar.statements.alter_table import (
    AddColumn,
    AlterTable,
    DropColumn,
    RenameColumn,
    SetDefault,
    SetNotNull,
    SetType,
    TableAction,
)
from server.sql.grammar.statements.checks import CheckConstraint, Reference
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.statements.tables import Key
from server.sql.grammar.token_reader import TokenReader

_CONSTRAINTS = ("constraint", "primary", "unique", "check", "foreign", "exclude")


def at_table_action(tokens: TokenReader) -> bool:
    """Whether an action on a column follows ALTER TABLE name."""
    if tokens.at("add"):
        return not any(tokens.at_all("add", word) for word in _CONSTRAINTS)
    return tokens.at("drop", "alter") and not tokens.at_all(tokens.word, "constraint")


def parse_alter_table(tokens: TokenReader, start: int, name: Name, exists: bool) -> AlterTable:
    actions = tokens.comma_list(lambda: _parse_action(tokens, name))
    return AlterTable(*tokens.text_from(start), name, exists, actions)


def parse_rename_column(tokens: TokenReader, start: int, kind: ObjectKind, name: Name, exists: bool) -> RenameColumn:
    tokens.expect("rename")
    tokens.take("column")
    column = tokens.ident()
    tokens.expect("to")
    return RenameColumn(*tokens.text_from(start), kind, name, column, tokens.ident(), exists)


def _parse_action(tokens: TokenReader, table: Name) -> TableAction:
    if not at_table_action(tokens):
        raise tokens.not_supported("this action of ALTER TABLE")
    match tokens.choose("add", "drop", "alter"):
        case "add":
            tokens.take("column")
            exists = tokens.if_not_exists()
            keys: list[Key] = []
            rules: list[CheckConstraint | Reference] = []
            column = parse_column_definition(tokens, table, keys, rules)
            return AddColumn(column, tuple(keys), tuple(rules), exists)
        case "drop":
            tokens.take("column")
            exists = tokens.if_exists()
            return DropColumn(tokens.ident(), exists, tokens.drop_behavior())
        case _:
            tokens.take("column")
            return _parse_column_action(tokens)


def _parse_column_action(tokens: TokenReader) -> TableAction:
    column = tokens.ident()
    if tokens.take("set", "default"):
        return SetDefault(column, tokens.expression(","))
    if tokens.take("drop", "default"):
        return SetDefault(column, None)
    if tokens.at_all("set", "not", "null") or tokens.at_all("drop", "not", "null"):
        wanted = tokens.choose("set", "drop") == "set"
        tokens.expect("not", "null")
        return SetNotNull(column, wanted)
    if tokens.take("set", "data", "type") or tokens.take("type"):
        type_ = tokens.type(user_defined=True)
        tokens.reject("COLLATE", "collate", hint='Text is compared by its bytes, as under the collation "C".')
        using = tokens.expression(",") if tokens.take("using") else None
        return SetType(column, type_, using)
    if tokens.at("set", "drop", "reset", "add", "restart"):
        hint = "Actions are SET and DROP of DEFAULT and NOT NULL, and TYPE."
        raise tokens.not_supported("this action of ALTER COLUMN", hint)
    raise tokens.syntax_error()
