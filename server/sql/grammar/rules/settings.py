"""SET, RESET and ALTER SYSTEM, and DISCARD, which resets other state of a session."""

from __future__ import annotations

from protocol.pgwire.datetime_output import interval_text
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.interval_input import parse_interval
from server.sql.grammar.lexer import RESERVED_WORDS, Kind
from server.sql.grammar.rules.roles import parse_set_role, parse_set_session_authorization
from server.sql.grammar.rules.transactions import parse_transaction_modes
from server.sql.grammar.statements.roles import SetRole
from server.sql.grammar.statements.settings import AlterSystem, Discard, ResetVariable, SetVariable
from server.sql.grammar.statements.transactions import SetConstraints, SetTransaction
from server.sql.grammar.token_reader import TokenReader


def parse_alter_system(tokens: TokenReader, start: int) -> AlterSystem:
    if tokens.choose("set", "reset") == "reset":
        shown = parse_shown_name(tokens)
        return AlterSystem(*tokens.text_from(start), shown, None)
    name = _parse_name(tokens)
    tokens.choose("=", "to")
    values = None if tokens.take("default") else tokens.comma_list(lambda: parse_setting_value(tokens))
    return AlterSystem(*tokens.text_from(start), name, values)


def parse_set(tokens: TokenReader) -> SetVariable | SetTransaction | SetConstraints | SetRole:
    start = tokens.index
    tokens.expect("set")
    if tokens.take("session", "characteristics"):
        tokens.expect("as", "transaction")
        modes = parse_transaction_modes(tokens)
        return SetTransaction(*tokens.text_from(start), modes, True)
    if tokens.take("transaction"):
        tokens.reject("SET TRANSACTION SNAPSHOT", "snapshot", hint="Read at a given time with AS OF.")
        modes = parse_transaction_modes(tokens)
        return SetTransaction(*tokens.text_from(start), modes, False)
    if tokens.at("constraints") and tokens.ahead().value not in ("=", "to", "."):
        tokens.advance()
        names = None if tokens.take("all") else tokens.comma_list(tokens.name)
        deferred = tokens.choose("deferred", "immediate") == "deferred"
        return SetConstraints(*tokens.text_from(start), names, deferred)
    local = tokens.take("local")
    scope_given = not local and tokens.at("session") and tokens.ahead().value not in ("=", "to", ".")
    if scope_given:
        tokens.advance()
    if tokens.take("session", "authorization") or (scope_given and tokens.take("authorization")):
        return parse_set_session_authorization(tokens, start, local)
    if tokens.take("xml", "option"):
        option = tokens.choose("content", "document")
        return SetVariable(*tokens.text_from(start), "xmloption", (option,), local, False)
    if tokens.take("role"):
        return parse_set_role(tokens, start, local)
    if tokens.take("time", "zone"):
        if tokens.take("local") or tokens.take("default"):
            return SetVariable(*tokens.text_from(start), "timezone", (), local, True)
        is_interval = tokens.take("interval")
        values: tuple[str, ...] = (_parse_zone_interval(tokens) if is_interval else parse_setting_value(tokens),)
        return SetVariable(*tokens.text_from(start), "timezone", values, local, False)
    if tokens.at("names", "schema") and tokens.ahead().value not in ("=", "to", "."):
        name = "client_encoding" if tokens.choose("names", "schema") == "names" else "search_path"
        if name == "client_encoding" and (tokens.at_statement_end or tokens.take("default")):
            return SetVariable(*tokens.text_from(start), name, (), local, True)
        values = (tokens.string(),)
        return SetVariable(*tokens.text_from(start), name, values, local, False)
    name = _parse_name(tokens)
    if tokens.at_all("from", "current"):
        raise tokens.not_supported("SET ... FROM CURRENT", "Only functions have such settings.")
    tokens.choose("=", "to")
    if tokens.take("default"):
        return SetVariable(*tokens.text_from(start), name, (), local, True)
    values = tokens.comma_list(lambda: parse_setting_value(tokens))
    return SetVariable(*tokens.text_from(start), name, values, local, False)


def _parse_name(tokens: TokenReader) -> str:
    """A setting's name in lower case. Names of settings are case-insensitive, even if quoted."""
    parts = [tokens.ident().name]
    while tokens.take("."):
        parts.append(tokens.ident().name)
    return ".".join(parts).lower()


def _parse_zone_interval(tokens: TokenReader) -> str:
    """The value of SET TIME ZONE INTERVAL 'offset' [HOUR [TO MINUTE]], in the form that the setting accepts."""
    tokens.reject("an interval with a precision", "(", hint="Omit the precision.")
    text, unit = tokens.string(), "second"
    if not tokens.at_statement_end:
        if not tokens.at("hour") or (tokens.ahead().value == "to" and tokens.ahead(2).value != "minute"):
            message = "time zone interval must be HOUR or HOUR TO MINUTE"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=tokens.token.start + 1)
        unit = "minute" if tokens.take("hour", "to", "minute") else tokens.choose("hour")
    value = parse_interval(text, unit)
    return f"INTERVAL '{interval_text(value.months, value.days, value.nanoseconds // 1_000)}'"


def parse_setting_value(tokens: TokenReader) -> str:
    """A string, a word or a signed number, in SET and in the options of COPY and EXPLAIN."""
    token = tokens.token
    if token.kind is Kind.SYMBOL and token.value in ("-", "+"):
        tokens.advance()
        sign = "-" if token.value == "-" else ""
        return sign + tokens.number()
    if token.kind is Kind.NUMBER:
        return tokens.number()
    if token.kind is Kind.STRING:
        return tokens.string()
    if tokens.at("true", "false", "on"):
        tokens.advance()
        return token.value
    return tokens.ident(not_names=RESERVED_WORDS).name


def parse_reset(tokens: TokenReader) -> ResetVariable:
    start = tokens.index
    tokens.expect("reset")
    name = parse_shown_name(tokens)
    return ResetVariable(*tokens.text_from(start), name)


def parse_shown_name(tokens: TokenReader) -> str | None:
    if tokens.take("all"):
        return None
    if tokens.take("time", "zone"):
        return "timezone"
    if tokens.take("transaction"):
        tokens.expect("isolation", "level")
        return "transaction_isolation"
    if tokens.take("session", "authorization"):
        return "session_authorization"
    return _parse_name(tokens)


def parse_discard(tokens: TokenReader) -> Discard:
    start = tokens.index
    tokens.expect("discard")
    target = tokens.choose("all", "plans", "sequences", "temp", "temporary").upper()
    return Discard(*tokens.text_from(start), "TEMP" if target == "TEMPORARY" else target)
