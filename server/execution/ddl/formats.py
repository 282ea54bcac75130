"""FORMAT and ENVELOPE of sources and sinks: from the syntax tree, and as text."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.source_definition import Encoding, Envelope, Format, Include
from server.execution.ddl.connections import used_connection
from server.execution.names import qualified_name
from server.session_state.context import Context
from server.sql.functions.strings import quote_text
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.statements.sources import EncodingClause, FormatClause


def format_of(context: Context, clause: FormatClause | None) -> Format | None:
    """The format of a clause, with the ids of its connections. PgError 42704, 42809, 42501."""
    if clause is None:
        return None
    include = tuple(
        Include(i.what, i.name.name if i.name is not None else None, i.header, i.is_bytes) for i in clause.include
    )
    value, key = (_encoding(context, encoding) for encoding in (clause.value, clause.key))
    return Format(value, key, include, Envelope(clause.envelope or "none"), clause.inline_errors)


def _encoding(context: Context, clause: EncodingClause | None) -> Encoding | None:
    if clause is None:
        return None
    registry = None
    if clause.registry is not None:
        registry = used_connection(context, clause.registry, system="confluent schema registry").id
    return Encoding(clause.name, registry, clause.schema, dict(clause.options))


def format_text(context: Context, format: Format | None) -> str:
    """The clauses of a format, each after a blank."""
    if format is None:
        return ""
    text = ""
    if format.key is not None:
        text += f" KEY FORMAT {_encoding_text(context, format.key)} VALUE"
    if format.value is not None:
        text += f" FORMAT {_encoding_text(context, format.value)}"
    if format.include:
        text += f" INCLUDE {', '.join(map(_include_text, format.include))}"
    if format.envelope is not Envelope.NONE:
        text += f" ENVELOPE {format.envelope.upper()}"
    if format.inline_errors is not None:
        text += f" (VALUE DECODING ERRORS = (INLINE AS {quote_identifier(format.inline_errors)}))"
    return text


def _encoding_text(context: Context, encoding: Encoding) -> str:
    text = encoding.name.upper()
    if encoding.registry is not None:
        registry = qualified_name(context, context.state.items[encoding.registry])
        return f"{text} USING CONFLUENT SCHEMA REGISTRY CONNECTION {registry}"
    if encoding.schema is not None:
        text += f" USING SCHEMA {quote_text(encoding.schema)}"
        given = [f"{name.upper()} = {value}" for name, value in encoding.options.items()]
        return f"{text} ({', '.join(given)})" if given else text
    return text + _csv_text(encoding.options)


def _csv_text(options: Mapping[str, str]) -> str:
    text = ""
    if "header" in options:
        text += " WITH HEADER"
    if "names" in options:
        text += f" ({', '.join(map(quote_identifier, options['names'].split(',')))})"
    if "columns" in options:
        text += f" WITH {options['columns']} COLUMNS"
    if "delimited by" in options:
        text += f" DELIMITED BY {quote_text(options['delimited by'])}"
    return text


def _include_text(include: Include) -> str:
    text = include.what.upper()
    if include.header is not None:
        text += f" {quote_text(include.header)}"
    if include.name is not None:
        text += f" AS {quote_identifier(include.name)}"
    return f"{text} BYTES" if include.is_bytes else text
