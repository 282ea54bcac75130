"""LISTEN, UNLISTEN and NOTIFY."""

from __future__ import annotations

from server.sql.grammar.lexer import Kind
from server.sql.grammar.statements.notifications import Listen, Notify, Unlisten
from server.sql.grammar.token_reader import TokenReader


def parse_listen(tokens: TokenReader) -> Listen:
    start = tokens.index
    tokens.expect("listen")
    channel = tokens.ident()
    return Listen(*tokens.text_from(start), channel)


def parse_unlisten(tokens: TokenReader) -> Unlisten:
    start = tokens.index
    tokens.expect("unlisten")
    channel = None if tokens.take("*") else tokens.ident()
    return Unlisten(*tokens.text_from(start), channel)


def parse_notify(tokens: TokenReader) -> Notify:
    start = tokens.index
    tokens.expect("notify")
    channel = tokens.ident()
    payload = ""
    if tokens.take(","):
        if tokens.token.kind is not Kind.STRING:
            raise tokens.syntax_error()
        payload = tokens.string()
    return Notify(*tokens.text_from(start), channel, payload)
