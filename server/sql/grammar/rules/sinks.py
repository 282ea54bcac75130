"""CREATE SINK."""

from __future__ import annotations

from server.sql.grammar.rules.sources import parse_format_clause
from server.sql.grammar.statements.sinks import CreateSink
from server.sql.grammar.token_reader import TokenReader


def parse_create_sink(tokens: TokenReader, start: int) -> CreateSink:
    exists = tokens.if_not_exists()
    name = tokens.name()
    tokens.expect("from")
    on = tokens.name()
    position = tokens.token.start + 1
    tokens.expect("into")
    hint = "A sink writes to a file: INTO FILE '/path' FORMAT JSON ENVELOPE MATERIALIZE."
    tokens.reject(f"CREATE SINK INTO {tokens.word.upper()}", "kafka", "postgres", "iceberg", "s3", hint=hint)
    tokens.expect("file")
    path = tokens.string()
    format = parse_format_clause(tokens)
    snapshot = True
    if tokens.take("with"):
        tokens.expect("(")
        tokens.expect("snapshot")
        tokens.take("=")
        snapshot = True if tokens.at(")") else tokens.choose("true", "false") == "true"
        tokens.expect(")")
    return CreateSink(*tokens.text_from(start), name, on, path, format, snapshot, exists, position)
