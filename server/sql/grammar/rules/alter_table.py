"""ALTER TABLE: actions on columns and constraints."""

from __future__ import annotations

from server.sql.grammar.rules.checks import parse_check, parse_reference
from server.sql.grammar.rules.collations import parse_collation
from server.sql.grammar.rules.keys import at_key, parse_key
from server.sql.grammar.rules.retention import parse_column_parameters, parse_place, parse_storage_parameters
from server.sql.grammar.rules.sequences import parse_identity, parse_identity_changes
from server.sql.grammar.rules.tables import EXCLUDE_HINT, parse_column_definition
from server.sql.grammar.statements.alter_table import (
    AddCheck,
    AddColumn,
    AddIdentity,
    AddKey,
    AddReference,
    AlterTable,
    DropColumn,
    DropConstraint,
    DropExpression,
    DropIdentity,
    NoEffect,
    RenameColumn,
    SetDefault,
    SetIdentity,
    SetNotNull,
    SetType,
    TableAction,
    ValidateCheck,
)
from server.sql.grammar.statements.checks import CheckConstraint, Reference
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.statements.tables import Key
from server.sql.grammar.token_reader import TokenReader


def at_table_action(tokens: TokenReader) -> bool:
    """Whether an action that can be one of a list follows ALTER TABLE name."""
    if tokens.at("disable", "enable"):
        return tokens.ahead().value != "row" or tokens.at("disable")
    if tokens.at("set"):
        return tokens.ahead().value in ("(", "without", "logged", "unlogged", "tablespace", "access")
    return tokens.at("add", "drop", "alter", "validate", "cluster", "replica", "reset") or tokens.at_all("no", "force")


def parse_alter_table(tokens: TokenReader, start: int, name: Name, exists: bool) -> AlterTable:
    actions = tokens.comma_list(lambda: _parse_action(tokens, name))
    return AlterTable(*tokens.text_from(start), name, exists, actions)


def parse_rename_column(tokens: TokenReader, start: int, kind: ObjectKind, name: Name, exists: bool) -> RenameColumn:
    tokens.expect("rename")
    tokens.take("column")
    column = tokens.ident()
    tokens.expect("to")
    return RenameColumn(*tokens.text_from(start), kind, name, column, tokens.ident(), exists)


_ACTION_HINT = "Send a statement of its own for RENAME, OWNER TO and SET SCHEMA."


def _parse_action(tokens: TokenReader, table: Name) -> TableAction:
    if not at_table_action(tokens):
        if tokens.at_statement_end:
            raise tokens.syntax_error()
        raise tokens.not_supported("this action in a list of ALTER TABLE", _ACTION_HINT)
    if not tokens.at("add", "drop", "alter", "validate"):
        return _parse_no_effect(tokens)
    match tokens.choose("add", "drop", "alter", "validate"):
        case "add" if _at_constraint(tokens):
            return _parse_add_constraint(tokens)
        case "add":
            tokens.take("column")
            exists = tokens.if_not_exists()
            keys: list[Key] = []
            rules: list[CheckConstraint | Reference] = []
            column = parse_column_definition(tokens, table, keys, rules)
            return AddColumn(column, tuple(keys), tuple(rules), exists)
        case "drop" if tokens.take("constraint"):
            exists = tokens.if_exists()
            return DropConstraint(tokens.ident(), exists, tokens.drop_behavior())
        case "drop":
            tokens.take("column")
            exists = tokens.if_exists()
            return DropColumn(tokens.ident(), exists, tokens.drop_behavior())
        case "validate":
            tokens.expect("constraint")
            return ValidateCheck(tokens.ident())
        case _:
            hint = "Drop the constraint, and add it again."
            tokens.reject("ALTER CONSTRAINT", "constraint", hint=hint)
            tokens.take("column")
            return _parse_column_action(tokens)


def _parse_no_effect(tokens: TokenReader) -> NoEffect:
    """An action about storage, triggers, rules or replication."""
    match tokens.choose("set", "reset", "cluster", "replica", "no", "disable", "enable"):
        case "set" if not tokens.at("("):
            if tokens.take("without"):
                tokens.choose("cluster", "oids")
            elif not parse_place(tokens):
                tokens.choose("logged", "unlogged")
        case "set" | "reset":
            parse_storage_parameters(tokens)
        case "cluster":
            tokens.expect("on")
            return NoEffect("index", tokens.ident())
        case "replica":
            tokens.expect("identity")
            if tokens.take("using"):
                tokens.expect("index")
                return NoEffect("index", tokens.ident())
            tokens.choose("default", "full", "nothing")
        case "no":
            tokens.expect("force", "row", "level", "security")
        case _ if tokens.take("row"):
            tokens.expect("level", "security")
        case _:
            if tokens.at("always", "replica"):
                tokens.advance()
            kind = tokens.choose("trigger", "rule")
            if kind == "rule" or not (tokens.take("all") or tokens.take("user")):
                return NoEffect(kind, tokens.ident())
    return NoEffect()


def _at_constraint(tokens: TokenReader) -> bool:
    if tokens.at("exclude"):
        return tokens.ahead().value in ("(", "using")
    return tokens.at("constraint", "primary", "unique", "check", "foreign")


def _parse_add_constraint(tokens: TokenReader) -> TableAction:
    """The part of ADD [CONSTRAINT name] constraint after ADD."""
    name = tokens.ident() if tokens.take("constraint") else None
    if at_key(tokens):
        return AddKey(parse_key(tokens, name, None))
    if tokens.at_all("foreign", "key"):
        return AddReference(parse_reference(tokens, name))
    if tokens.at("exclude"):
        raise tokens.not_supported("an EXCLUDE constraint", EXCLUDE_HINT)
    return AddCheck(parse_check(tokens, name))


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
        parse_collation(tokens)
        using = tokens.expression(",") if tokens.take("using") else None
        return SetType(column, type_, using)
    if tokens.take("add", "generated"):
        return AddIdentity(column, parse_identity(tokens))
    if tokens.take("drop", "identity"):
        return DropIdentity(column, tokens.if_exists())
    if tokens.take("drop", "expression"):
        return DropExpression(column, tokens.if_exists())
    if (changed := parse_identity_changes(tokens)) is not None:
        return SetIdentity(column, *changed)
    match tokens.choose("set", "reset"):
        case "set" if tokens.take("statistics"):
            tokens.take("-")
            tokens.number()
        case "set" if tokens.at("storage", "compression"):
            tokens.advance()
            tokens.ident(not_names=frozenset())
        case _:
            parse_column_parameters(tokens)
    return NoEffect("column", column)
