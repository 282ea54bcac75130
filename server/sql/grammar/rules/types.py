"""CREATE TYPE and ALTER TYPE."""

from __future__ import annotations

from server.sql.grammar.lexer import Kind
from server.sql.grammar.statements.objects import ObjectKind
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.statements.types import AddEnumValue, CreateEnum, RenameEnumValue, SetTypeSchema
from server.sql.grammar.token_reader import TokenReader

_ENUMS_ONLY = "Types are enumerated types (CREATE TYPE ... AS ENUM) and domains (CREATE DOMAIN)."


def parse_create_type(tokens: TokenReader, start: int) -> CreateEnum:
    name = tokens.name()
    if tokens.at_statement_end or tokens.at("("):
        raise tokens.not_supported("CREATE TYPE of a base type", _ENUMS_ONLY)
    tokens.expect("as")
    if tokens.at("("):
        raise tokens.not_supported("CREATE TYPE of a composite type", "Use a column for each attribute, or jsonb.")
    if tokens.at("range"):
        raise tokens.not_supported("CREATE TYPE of a range type", "Use two columns, for the lower and the upper bound.")
    tokens.expect("enum", "(")
    labels = () if tokens.at(")") else tokens.comma_list(tokens.string)
    tokens.expect(")")
    return CreateEnum(*tokens.text_from(start), name, labels)


def parse_set_schema(tokens: TokenReader, start: int, kind: ObjectKind, name: Name) -> SetTypeSchema:
    """SET SCHEMA of a type or a domain."""
    tokens.expect("set", "schema")
    schema = tokens.ident()
    return SetTypeSchema(*tokens.text_from(start), kind, name, schema)


def parse_alter_type(tokens: TokenReader, start: int, name: Name) -> AddEnumValue | RenameEnumValue | None:
    """ADD VALUE or RENAME VALUE, as the action of ALTER TYPE; None: another action follows."""
    if tokens.take("add", "value"):
        exists = tokens.if_not_exists()
        label = tokens.string()
        neighbour, is_before = None, False
        if tokens.at("before", "after"):
            is_before = tokens.choose("before", "after") == "before"
            neighbour = tokens.string()
        return AddEnumValue(*tokens.text_from(start), name, label, exists, neighbour, is_before)
    if tokens.at_all("rename", "value") and tokens.ahead(2).kind is Kind.STRING:
        tokens.expect("rename", "value")
        label = tokens.string()
        tokens.expect("to")
        return RenameEnumValue(*tokens.text_from(start), name, label, tokens.string())
    if tokens.at("add", "drop", "alter", "set") or tokens.at_all("rename", "attribute"):
        raise tokens.not_supported("this action of ALTER TYPE", _ENUMS_ONLY)
    return None
