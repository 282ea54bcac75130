"""CREATE SEQUENCE, ALTER SEQUENCE, and the options of sequences."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT2, INT4, INT8, PgType
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.statements.sequences import AlterSequence, CreateSequence, Identity, SequenceOption
from server.sql.grammar.token_reader import TokenReader

SERIAL_TYPES: dict[str, PgType] = {
    **dict.fromkeys(("smallserial", "serial2"), INT2),
    **dict.fromkeys(("serial", "serial4"), INT4),
    **dict.fromkeys(("bigserial", "serial8"), INT8),
}
"""The type of the column that each of these names declares."""


def parse_create_sequence(tokens: TokenReader, start: int, temporary: bool = False) -> CreateSequence:
    exists = tokens.if_not_exists()
    name = tokens.name()
    options = _parse_options(tokens)
    return CreateSequence(*tokens.text_from(start), name, options, exists, temporary)


def parse_alter_sequence(tokens: TokenReader, start: int, name: Name, if_exists: bool) -> AlterSequence | None:
    """ALTER SEQUENCE with options. None for another form."""
    if tokens.at("owner", "rename") or tokens.at_all("set", "schema"):
        return None
    tokens.reject("ALTER SEQUENCE ... SET LOGGED or UNLOGGED", "set", hint="Omit it: all sequences are durable.")
    options = _parse_options(tokens)
    if not options:
        raise tokens.syntax_error()
    return AlterSequence(*tokens.text_from(start), name, options, if_exists)


def parse_identity(tokens: TokenReader) -> Identity:
    """ALWAYS or BY DEFAULT AS IDENTITY, after GENERATED."""
    always = tokens.choose("always", "by") == "always"
    if not always:
        tokens.expect("default")
    tokens.expect("as", "identity")
    options: tuple[SequenceOption, ...] = ()
    if tokens.take("("):
        options = _parse_options(tokens)
        tokens.expect(")")
    return Identity(always, options)


def parse_identity_changes(tokens: TokenReader) -> tuple[bool | None, tuple[SequenceOption, ...]] | None:
    """{SET GENERATED {ALWAYS | BY DEFAULT} | SET option | RESTART [[WITH] n]} ... of ALTER COLUMN.

    Returns whether it is ALWAYS, None if it is not changed, and the options. None: another action follows.
    """
    always: bool | None = None
    options: list[SequenceOption] = []
    while tokens.at("restart") or (tokens.at("set") and tokens.ahead().value in ("generated", *_SEQUENCE_WORDS)):
        position = tokens.token.start + 1
        if tokens.take("set", "generated"):
            if always is not None:
                raise _redundant(position)
            always = tokens.choose("always", "by") == "always"
            if not always:
                tokens.expect("default")
            continue
        if tokens.take("set"):
            option = _parse_option(tokens)
            if option.name in ("as", "restart", "owned by"):
                message = f'sequence option "{option.name.replace(" ", "_")}" not supported here'
                raise PgError(SqlState.SYNTAX_ERROR, message, position=option.position)
        else:
            option = _parse_option(tokens)
        if any(known.name == option.name for known in options):
            raise _redundant(option.position)
        options.append(option)
    return (always, tuple(options)) if always is not None or options else None


def _redundant(position: int) -> PgError:
    return PgError(SqlState.SYNTAX_ERROR, "conflicting or redundant options", position=position)


def _parse_options(tokens: TokenReader) -> tuple[SequenceOption, ...]:
    """The options up to the end of the statement or a parenthesis. 42601 if one is given twice."""
    options: list[SequenceOption] = []
    while not (tokens.at_statement_end or tokens.at(")")):
        option = _parse_option(tokens)
        if any(known.name == option.name for known in options):
            raise _redundant(option.position)
        options.append(option)
    return tuple(options)


_SEQUENCE_WORDS = (
    *("as", "increment", "minvalue", "maxvalue", "start", "restart", "cache", "cycle", "owned", "sequence"),
    "no",
)


def _parse_option(tokens: TokenReader) -> SequenceOption:
    position = tokens.token.start + 1
    value: int | bool | PgType | Name | None
    if tokens.take("no"):
        name = tokens.choose("minvalue", "maxvalue", "cycle")
        return SequenceOption(name, False if name == "cycle" else None, position)
    name = tokens.choose(*(word for word in _SEQUENCE_WORDS if word != "no"))
    match name:
        case "as":
            value = tokens.type()
        case "increment":
            tokens.take("by")
            value = _integer(tokens)
        case "minvalue" | "maxvalue" | "cache":
            value = _integer(tokens)
        case "start":
            tokens.take("with")
            value = _integer(tokens)
        case "restart":
            is_given = tokens.take("with") or tokens.at("-", "+") or tokens.token.value.isdigit()
            value = _integer(tokens) if is_given else None
        case "cycle":
            value = True
        case "owned":
            tokens.expect("by")
            name = "owned by"
            value = None if tokens.take("none") else tokens.name(4)
        case _:
            tokens.expect("name")
            name, value = "sequence name", tokens.name()
    return SequenceOption(name, value, position)


def _integer(tokens: TokenReader) -> int:
    """An integer with an optional sign. 22003 if it is no bigint."""
    position = tokens.token.start + 1
    sign = -1 if tokens.take("-") else 1
    if sign == 1:
        tokens.take("+")
    text = tokens.integer()
    value = sign * int(text)
    if not -(2**63) <= value < 2**63:
        message = f'value "{"-" if sign < 0 else ""}{text}" is out of range for type bigint'
        raise PgError(SqlState.NUMERIC_VALUE_OUT_OF_RANGE, message, position=position)
    return value
