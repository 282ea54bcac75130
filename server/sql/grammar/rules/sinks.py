"""CREATE SINK."""

from __future__ import annotations

from server.sql.grammar.rules.sources import parse_format_clause
from server.sql.grammar.statements.parts import Ident, Name
from server.sql.grammar.statements.sinks import CreateSink
from server.sql.grammar.token_reader import TokenReader

_HINT = "A sink writes INTO FILE '/path' FORMAT JSON ENVELOPE MATERIALIZE, or INTO POSTGRES CONNECTION name TABLE name."


def parse_create_sink(tokens: TokenReader, start: int) -> CreateSink:
    exists = tokens.if_not_exists()
    name = tokens.name()
    tokens.expect("from")
    on = tokens.name()
    position = tokens.token.start + 1
    tokens.expect("into")
    tokens.reject(f"CREATE SINK INTO {tokens.word.upper()}", "kafka", "iceberg", "s3", hint=_HINT)
    connection: Name | None = None
    system = tokens.expect_one_of("file", "postgres")
    if system == "file":
        options: tuple[tuple[str, str], ...] = (("path", tokens.string()),)
    else:
        tokens.expect("connection")
        connection = tokens.name()
        tokens.expect("table")
        table = tokens.name(parts_max=2).parts
        options = (("schema", table[0] if len(table) == 2 else "public"), ("table", table[-1]))
    key: tuple[Ident, ...] = ()
    if tokens.at_all("key", "("):  # not KEY FORMAT
        tokens.expect("key")
        key = tokens.column_list()
    format = parse_format_clause(tokens)
    snapshot = True
    if tokens.take("with"):
        tokens.expect("(")
        tokens.expect_one_of("snapshot")
        tokens.take("=")
        snapshot = True if tokens.at(")") else tokens.choose("true", "false") == "true"
        tokens.expect(")")
    text = tokens.text_from(start)
    return CreateSink(*text, name, on, system, connection, options, key, format, snapshot, exists, position)
