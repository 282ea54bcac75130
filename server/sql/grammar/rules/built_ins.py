"""DROP of kinds of object that users cannot create. Scripts contain it with IF EXISTS."""

from __future__ import annotations

from collections.abc import Callable

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.grammar.lexer import Kind, words
from server.sql.grammar.statements.objects import DropBuiltIn, NamedBuiltIn, SignatureType
from server.sql.grammar.statements.parts import Name, NamedType
from server.sql.grammar.token_reader import TokenReader

_TYPE_KEYWORDS = words(
    """bigint bit boolean char character dec decimal double float int integer interval national nchar numeric real
    smallint time timestamp varchar"""
)
"""The names of types that are keywords in PostgreSQL, which shows them with the schema pg_catalog in notices."""


def parse_drop_built_in(tokens: TokenReader, start: int) -> DropBuiltIn | None:
    """DROP of a kind of `KINDS`, after the word DROP; None for another kind."""
    tokens.take("procedural")
    kind = next((kind for kind in KINDS if tokens.at_all(*kind.split())), None)
    if kind is None:
        return None
    tokens.advance(len(kind.split()))
    parse, is_list = KINDS[kind]
    exists = tokens.if_exists()
    objects = tokens.comma_list(lambda: parse(tokens)) if is_list else (parse(tokens),)
    tokens.drop_behavior()
    return DropBuiltIn(*tokens.text_from(start), kind, objects, exists)


def _named(tokens: TokenReader) -> NamedBuiltIn:
    return NamedBuiltIn(tokens.name())


def _unqualified(tokens: TokenReader) -> NamedBuiltIn:
    name = tokens.ident()
    return NamedBuiltIn(Name((name.name,), name.position))


def _function(tokens: TokenReader) -> NamedBuiltIn:
    """name [([argument, ...])]"""
    name = tokens.name()
    if not tokens.take("("):
        return NamedBuiltIn(name)
    signature: tuple[SignatureType | None, ...] = ()
    if not tokens.at(")"):
        signature = tokens.comma_list(lambda: _argument(tokens))
    tokens.expect(")")
    return NamedBuiltIn(name, tuple(argument for argument in signature if argument is not None))


def _aggregate(tokens: TokenReader) -> NamedBuiltIn:
    """name ({* | [argument, ...] [ORDER BY argument, ...]})"""
    name = tokens.name()
    tokens.expect("(")
    signature: tuple[SignatureType | None, ...] = ()
    if not tokens.take("*"):
        if not tokens.at("order"):
            signature = tokens.comma_list(lambda: _argument(tokens))
        if tokens.take("order", "by"):
            signature += tokens.comma_list(lambda: _argument(tokens))
    tokens.expect(")")
    return NamedBuiltIn(name, tuple(argument for argument in signature if argument is not None))


def _argument(tokens: TokenReader) -> SignatureType | None:
    """[mode] [name] type; None for a result, which is not part of the signature."""
    is_result = tokens.take("out")
    if not is_result and tokens.at("in", "inout", "variadic"):
        tokens.choose("in", "inout", "variadic")
    start = tokens.index
    type = _type(tokens)
    if not tokens.at(",", ")", "order"):
        tokens.move_to(start)
        tokens.ident()
        type = _type(tokens)
    return None if is_result else type


def _type(tokens: TokenReader) -> SignatureType:
    """A type, also one that only PostgreSQL has. Notices show it as it is written, without modifiers."""
    start, first = tokens.index, tokens.token
    type: PgType
    try:
        is_byte = first.kind is Kind.IDENT and first.value == "char"  # a type of its own
        type = tokens.other_type() if is_byte else tokens.type(user_defined=True)
    except PgError as error:
        if error.sqlstate is not SqlState.FEATURE_NOT_SUPPORTED:
            raise
        tokens.move_to(start)
        type = tokens.other_type()
    if isinstance(type, NamedType):
        return SignatureType(type, str(type))
    scalar = type.element or type
    name = first.value
    if first.kind is Kind.WORD and name in _TYPE_KEYWORDS:
        name = f"pg_catalog.{scalar.name}"
    elif tokens.tokens[start + 1].value == ".":
        name += f".{tokens.tokens[start + 2].value}"
    return SignatureType(type.without_modifiers, name if scalar is type else f"{name}[]")


def _operator(tokens: TokenReader) -> NamedBuiltIn:
    """[schema.]operator ({type | NONE}, {type | NONE})"""
    position, parts = tokens.token.start + 1, []
    while tokens.token.kind is not Kind.SYMBOL:
        parts.append(tokens.ident().name)
        tokens.expect(".")
    parts.append(tokens.word)
    tokens.advance()
    signature = tokens.in_parentheses(lambda: _operand(tokens))
    if len(signature) == 1:
        hint = "Use NONE to denote the missing argument of a unary operator."
        raise PgError(SqlState.SYNTAX_ERROR, "missing argument", hint=hint, position=tokens.token.start)
    return NamedBuiltIn(Name(tuple(parts), position), signature)


def _operand(tokens: TokenReader) -> SignatureType:
    return SignatureType(None, "") if tokens.take("none") else _type(tokens)


def _operator_class(tokens: TokenReader) -> NamedBuiltIn:
    """name USING method"""
    name = tokens.name()
    tokens.expect("using")
    method = tokens.ident()
    return NamedBuiltIn(name, None, Name((method.name,), method.position))


def _of_table(tokens: TokenReader) -> NamedBuiltIn:
    """name ON table"""
    name = tokens.ident()
    tokens.expect("on")
    return NamedBuiltIn(Name((name.name,), name.position), None, tokens.name())


def _cast(tokens: TokenReader) -> NamedBuiltIn:
    """(source AS target)"""
    tokens.expect("(")
    source = _type(tokens)
    tokens.expect("as")
    target = _type(tokens)
    tokens.expect(")")
    return NamedBuiltIn(None, (source, target))


def _transform(tokens: TokenReader) -> NamedBuiltIn:
    """FOR type LANGUAGE language"""
    tokens.expect("for")
    type = _type(tokens)
    tokens.expect("language")
    language = tokens.ident()
    return NamedBuiltIn(None, (type,), Name((language.name,), language.position))


KINDS: dict[str, tuple[Callable[[TokenReader], NamedBuiltIn], bool]] = {
    "access method": (_unqualified, True),
    "aggregate": (_aggregate, True),
    "cast": (_cast, False),
    "collation": (_named, True),
    "conversion": (_named, True),
    "event trigger": (_unqualified, True),
    "extension": (_unqualified, True),
    "foreign data wrapper": (_unqualified, True),
    "foreign table": (_named, True),
    "function": (_function, True),
    "language": (_unqualified, True),
    "operator class": (_operator_class, False),
    "operator family": (_operator_class, False),
    "operator": (_operator, True),
    "policy": (_of_table, False),
    "procedure": (_function, True),
    "publication": (_unqualified, True),
    "routine": (_function, True),
    "rule": (_of_table, False),
    "server": (_unqualified, True),
    "statistics": (_named, True),
    "subscription": (_unqualified, False),
    "tablespace": (_unqualified, False),
    "text search configuration": (_named, True),
    "text search dictionary": (_named, True),
    "text search parser": (_named, True),
    "text search template": (_named, True),
    "transform": (_transform, False),
    "trigger": (_of_table, False),
}
"""For each kind, the rule of an object of it, and whether DROP takes a list."""
