"""CREATE and ALTER of secrets, connections and sources."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.source_definition import ForTables, joined_reference
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import Kind
from server.sql.grammar.rules.objects import SOURCES_HINT, parse_in_cluster
from server.sql.grammar.rules.retention import COLUMNS_HINT, parse_retain_option
from server.sql.grammar.statements.parts import Ident, Name
from server.sql.grammar.statements.sources import (
    AddSubsources,
    AlterConnection,
    AlterSecret,
    CreateConnection,
    CreateSecret,
    CreateSource,
    CreateSourceTable,
    DropSubsources,
    EncodingClause,
    FormatClause,
    IncludeClause,
    Option,
    SourceColumn,
    ValidateConnection,
)
from server.sql.grammar.token_reader import TokenReader

_PARTITIONS_HINT = "Omit it: new partitions of a topic are found within 10 seconds."
REFERENCE_PARTS_MAX = 32  # the names of topics contain dots
_TLS = ("ssl key", "ssl certificate", "ssl certificate authority")
CONNECTION_OPTIONS: dict[str, tuple[str, ...]] = {
    "kafka": (
        *("broker", "brokers", "progress topic", "security protocol"),
        *("sasl mechanisms", "sasl username", "sasl password", *_TLS),
    ),
    "confluent schema registry": ("url", "username", "password", *_TLS),
    "postgres": ("host", "port", "database", "user", "password", "ssl mode", *_TLS),
}
"""The options of each system's connections."""
SECRET_OPTIONS = ("password", "sasl password", "ssl key")
"""The options whose value must be a secret."""
_MAY_BE_SECRET = (*SECRET_OPTIONS, "username", "sasl username", "ssl certificate", "ssl certificate authority")
"""The options whose value may be a secret. Errors and the log name the values of the others."""
SOURCE_OPTIONS: dict[str, tuple[str, ...]] = {
    "kafka": (
        *("topic", "start offset", "start timestamp", "group id prefix", "transaction topic"),
        *("stall timeout", "timestamps"),
    ),
    "postgres": ("publication", "text columns", "exclude columns"),
    "file": ("null", "quote", "poll interval", "stall timeout", "timestamps"),
}
GENERATOR_OPTIONS: dict[str, tuple[str, ...]] = {
    "counter": ("tick interval", "up to", "max cardinality"),
    "auction": ("tick interval", "up to", "seed"),
    "key value": (
        "tick interval",
        "up to",
        "seed",
        "keys",
        "partitions",
        "snapshot rounds",
        "value size",
        "batch size",
    ),
    "tpch": ("tick interval", "up to", "seed", "scale factor"),
}
"""The options of each generator of FROM LOAD GENERATOR."""


# -- secrets and connections ----------------------------------------------------------------------------------------


def parse_create_secret(tokens: TokenReader, start: int) -> CreateSecret:
    exists = tokens.if_not_exists()
    name = tokens.name()
    value, text, offset = _parse_secret_value(tokens, start)
    return CreateSecret(text, offset, value, name, exists)


def parse_alter_secret(tokens: TokenReader, start: int, name: Name, exists: bool) -> AlterSecret:
    """AS value"""
    value, text, offset = _parse_secret_value(tokens, start)
    return AlterSecret(text, offset, value, name, exists)


def _parse_secret_value(tokens: TokenReader, start: int) -> tuple[str, str, int]:
    """AS 'value'. Returns the value, and the text and offset of the statement up to the value.

    The errors do not quote tokens: they could be parts of the value.
    """
    if not tokens.take("as"):
        raise _secret_error(tokens, "expected AS and the value of the secret")
    text, offset = tokens.text_from(start)
    if tokens.token.kind is not Kind.STRING:
        raise _secret_error(tokens, "the value of a secret must be a string constant")
    value = tokens.string()
    if not tokens.at_statement_end:
        raise _secret_error(tokens, "syntax error after the value of the secret")
    return value, text, offset


def _secret_error(tokens: TokenReader, message: str) -> PgError:
    hint = "Write CREATE SECRET name AS 'value'."
    position = len(tokens.source) + 1 if tokens.at_end else tokens.token.start + 1
    return PgError(SqlState.SYNTAX_ERROR, message, hint=hint, position=position)


def parse_create_connection(tokens: TokenReader, start: int) -> CreateConnection:
    exists = tokens.if_not_exists()
    name = tokens.name()
    tokens.expect("to")
    system = next((system for system in CONNECTION_OPTIONS if tokens.take(*system.split())), None)
    if system is None:
        tokens.reject(
            f"CREATE CONNECTION TO {tokens.word.upper()}",
            "aws",
            "ssh",
            "mysql",
            "sql",
            "iceberg",
            "gcp",
            hint=_CONNECTIONS_HINT,
        )
        raise tokens.expected("one of KAFKA or CONFLUENT SCHEMA REGISTRY or POSTGRES")
    options = parse_options(tokens, CONNECTION_OPTIONS[system], f"TO {system.upper()}")
    validate = _parse_validate(tokens)
    return CreateConnection(*tokens.text_from(start), name, system, options, exists, validate)


def parse_alter_connection(tokens: TokenReader, start: int, name: Name, exists: bool) -> AlterConnection | None:
    """SET (option = value, ...) or RESET (option, ...); None for another ALTER CONNECTION."""
    every = tuple(dict.fromkeys(option for options in CONNECTION_OPTIONS.values() for option in options))
    if tokens.take("set"):
        given = parse_options(tokens, every, "a connection")
        validate = _parse_validate(tokens)
        return AlterConnection(*tokens.text_from(start), name, given, (), exists, validate)
    if tokens.take("reset"):
        names = tokens.in_parentheses(lambda: _parse_option_name(tokens, every, "a connection"))
        validate = _parse_validate(tokens)
        return AlterConnection(*tokens.text_from(start), name, (), names, exists, validate)
    return None


def parse_validate(tokens: TokenReader) -> ValidateConnection:
    start = tokens.index
    tokens.expect("validate", "connection")
    name = tokens.name()
    return ValidateConnection(*tokens.text_from(start), name)


def _parse_validate(tokens: TokenReader) -> bool | None:
    """[WITH (VALIDATE [= boolean])]"""
    if not tokens.take("with"):
        return None
    tokens.expect("(")
    tokens.expect_one_of("validate")
    tokens.take("=")
    value = True if tokens.at(")") else tokens.choose("true", "false", "on", "off") in ("true", "on")
    tokens.expect(")")
    return value


# -- options --------------------------------------------------------------------------------------------------------


def parse_options(
    tokens: TokenReader, known: Sequence[str], of: str, *, expressions: Sequence[str] = ()
) -> tuple[Option, ...]:
    """(name [=] value, ...). PgError 22023 for an unknown option, 42601 for one that is given twice.

    `expressions`: the options whose values are expressions. Their texts are returned.
    """
    options = tokens.in_parentheses(lambda: _parse_option(tokens, (*known, *expressions), of, expressions))
    seen: set[str] = set()
    for option in options:
        if option.name in seen:
            message = f"option {option.name.upper()} specified more than once"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=option.position)
        seen.add(option.name)
    return options


def _parse_option(tokens: TokenReader, known: Sequence[str], of: str, expressions: Sequence[str]) -> Option:
    name = _parse_option_name(tokens, known, of)
    tokens.take("=")
    if name.name in expressions:
        return Option(name.name, tokens.expression(",").text, name.position)
    if tokens.take("secret"):
        if name.name not in _MAY_BE_SECRET:
            message = f"option {name.name.upper()} cannot be a secret"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, position=name.position)
        return Option(name.name, "", name.position, tokens.name())
    if name.name in SECRET_OPTIONS:  # the error does not quote the value
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f"option {name.name.upper()} must be a secret",
            hint=f"Store the value with CREATE SECRET, and write {name.name.upper()} = SECRET and its name.",
            position=name.position,
        )
    if tokens.take("("):
        values = () if tokens.at(")") else tokens.comma_list(lambda: _parse_value(tokens))
        tokens.expect(")")
        return Option(name.name, ",".join(values), name.position)
    return Option(name.name, _parse_value(tokens), name.position)


def _parse_option_name(tokens: TokenReader, known: Sequence[str], of: str) -> Ident:
    position = tokens.token.start + 1
    if tokens.at_all("topic", "metadata", "refresh", "interval"):
        raise tokens.not_supported("option TOPIC METADATA REFRESH INTERVAL", _PARTITIONS_HINT)
    for name in sorted(known, key=len, reverse=True):
        if tokens.take(*name.split()):
            return Ident(name, position)
    if tokens.token.kind not in (Kind.WORD, Kind.IDENT):
        raise tokens.syntax_error()
    words = []
    while tokens.token.kind in (Kind.WORD, Kind.IDENT):
        words.append(tokens.token.value.upper())
        tokens.advance()
    raise PgError(
        SqlState.INVALID_PARAMETER_VALUE,
        f"unrecognized option {' '.join(words)} of {of}",
        hint=f"The options are {', '.join(name.upper() for name in known)}.",
        position=position,
    )


def _parse_value(tokens: TokenReader) -> str:
    """A string, a number, a word such as true, or a qualified name."""
    token = tokens.token
    if token.kind is Kind.STRING:
        return tokens.string()
    if tokens.take("-"):
        return f"-{tokens.number()}"
    if token.kind is Kind.NUMBER:
        return tokens.number()
    tokens.take("interval")
    if tokens.token.kind is Kind.STRING:
        return tokens.string()
    parts = [tokens.ident(not_names=frozenset()).name]
    while tokens.take("."):
        parts.append(tokens.ident(not_names=frozenset()).name)
    return ".".join(parts)


# -- sources --------------------------------------------------------------------------------------------------------


def parse_create_source(tokens: TokenReader, start: int) -> CreateSource:
    exists = tokens.if_not_exists()
    name = tokens.name()
    columns = parse_columns(tokens)
    parse_in_cluster(tokens)
    tokens.reject("CREATE SOURCE with a connector", "with", hint=SOURCES_HINT)
    tokens.expect("from")
    connection: Name | None = None
    if tokens.at("kafka", "postgres"):
        system = tokens.choose("kafka", "postgres")
        tokens.expect("connection")
        connection = tokens.name()
        options = parse_options(tokens, SOURCE_OPTIONS[system], f"FROM {system.upper()}") if tokens.at("(") else ()
    elif tokens.take("file"):
        system, position = "file", tokens.token.start + 1
        path = Option("path", tokens.string(), position)
        given = parse_options(tokens, SOURCE_OPTIONS[system], "FROM FILE") if tokens.at("(") else ()
        options = (path, *given)
    elif tokens.take("load", "generator"):
        system, options = "load generator", _parse_generator(tokens)
    else:
        tokens.reject(
            f"CREATE SOURCE FROM {tokens.word.upper()}",
            "mysql",
            "sql",
            "webhook",
            "test",
            "s3",
            "kinesis",
            hint=SOURCES_HINT,
        )
        raise tokens.expected("one of KAFKA or POSTGRES or FILE or LOAD GENERATOR")
    format = parse_format_clause(tokens)
    tables = _parse_for_tables(tokens)
    tokens.reject("EXPOSE PROGRESS AS", "expose", hint="Query mz_internal.mz_source_statistics.")
    retain = parse_retain_option(tokens, "CREATE SOURCE with options other than RETAIN HISTORY")
    return CreateSource(
        *tokens.text_from(start), name, columns, system, connection, options, format, tables, exists, retain
    )


def _parse_generator(tokens: TokenReader) -> tuple[Option, ...]:
    position = tokens.token.start + 1
    for generator, known in GENERATOR_OPTIONS.items():
        if tokens.take(*generator.split()):
            given = parse_options(tokens, known, generator.upper()) if tokens.at("(") else ()
            return (Option("generator", generator, position), *given)
    tokens.reject(
        f"LOAD GENERATOR {tokens.word.upper()}",
        "marketing",
        "datums",
        "clock",
        hint="Load generators are COUNTER, AUCTION, KEY VALUE and TPCH.",
    )
    raise tokens.expected("one of COUNTER or AUCTION or KEY VALUE or TPCH")


_CONNECTIONS_HINT = "Connections are to KAFKA, CONFLUENT SCHEMA REGISTRY and POSTGRES."


def parse_columns(tokens: TokenReader) -> tuple[SourceColumn, ...]:
    """(name [type [NOT NULL]], ...), or nothing."""

    def column() -> SourceColumn:
        name = tokens.ident()
        if tokens.at(",", ")"):
            return SourceColumn(name, None, False)
        tokens.reject(
            "a key of a source", "primary", "unique", "constraint", hint="Sources find their keys themselves."
        )
        type = tokens.type(user_defined=True)
        not_null = tokens.take("not", "null")
        tokens.reject(
            "a constraint on a source",
            "primary",
            "unique",
            "check",
            "default",
            "references",
            hint="Omit it: the external system checks its rows.",
        )
        return SourceColumn(name, type, not_null)

    return tokens.in_parentheses(column) if tokens.at("(") else ()


def _parse_for_tables(tokens: TokenReader) -> ForTables:
    if not tokens.take("for"):
        return ForTables()
    if tokens.take("all", "tables"):
        return ForTables(all=True)
    if tokens.take("schemas"):
        return ForTables(schemas=tokens.in_parentheses(lambda: tokens.ident().name))
    if tokens.take("tables"):
        return ForTables(tables=tokens.in_parentheses(lambda: _parse_reference(tokens)))
    raise tokens.expected("one of ALL TABLES or SCHEMAS or TABLES")


def _parse_reference(tokens: TokenReader) -> tuple[str, str | None]:
    """reference [AS name]"""
    reference = _parse_qualified(tokens)
    return reference, tokens.ident().name if tokens.take("as") or tokens.take("into") else None


def _parse_qualified(tokens: TokenReader) -> str:
    return joined_reference(tokens.name(REFERENCE_PARTS_MAX).parts)


def parse_create_source_table(
    tokens: TokenReader, start: int, name: Name, columns: tuple[SourceColumn, ...], exists: bool
) -> CreateSourceTable:
    """FROM SOURCE source (REFERENCE reference) [formats] [WITH (RETAIN HISTORY ...)]"""
    tokens.expect("from", "source")
    source = tokens.name()
    if not tokens.take("("):
        raise PgError(
            SqlState.SYNTAX_ERROR,
            "CREATE TABLE FROM SOURCE requires a REFERENCE",
            hint="Write FROM SOURCE name (REFERENCE reference), with a topic or a table of the external system.",
            position=tokens.token.start + 1,
        )
    tokens.expect_one_of("reference")
    tokens.take("=")
    position = tokens.token.start + 1
    is_text = tokens.token.kind is Kind.STRING
    reference = Ident(tokens.string() if is_text else _parse_qualified(tokens), position)
    tokens.expect(")")
    format = parse_format_clause(tokens)
    retain = parse_retain_option(tokens, "CREATE TABLE FROM SOURCE with options other than RETAIN HISTORY")
    return CreateSourceTable(*tokens.text_from(start), name, columns, source, reference, format, exists, retain)


def at_source_table(tokens: TokenReader) -> bool:
    """Whether the tokens after the name in CREATE TABLE name are [(names)] FROM SOURCE."""
    if not tokens.at("("):
        return tokens.at_all("from", "source")
    index, depth = tokens.index, 0
    while tokens.tokens[index].kind is not Kind.END:
        token = tokens.tokens[index]
        if token.kind is Kind.SYMBOL:
            depth += (token.value == "(") - (token.value == ")")
            if depth == 0:
                break
        index += 1
    after = tokens.tokens[index + 1 : index + 3]
    return [t.value for t in after if t.kind is Kind.WORD] == ["from", "source"]


def parse_add_subsources(tokens: TokenReader, start: int, name: Name, exists: bool) -> AddSubsources:
    """The part of ALTER SOURCE name ADD SUBSOURCE ... after ADD."""
    if not (tokens.take("subsource") or tokens.take("table")):
        raise tokens.expected("SUBSOURCE")
    tables = ForTables(tables=tokens.comma_list(lambda: _parse_reference(tokens)))
    tokens.reject("ADD SUBSOURCE with options", "with", hint=COLUMNS_HINT)
    return AddSubsources(*tokens.text_from(start), name, tables, exists)


def parse_drop_subsources(tokens: TokenReader, start: int, name: Name, exists: bool) -> DropSubsources:
    """The part of ALTER SOURCE name DROP SUBSOURCE ... after DROP."""
    if not (tokens.take("subsource") or tokens.take("table")):
        raise tokens.expected("SUBSOURCE")
    subsources = tokens.comma_list(tokens.name)
    cascade = tokens.drop_behavior()
    return DropSubsources(*tokens.text_from(start), name, subsources, exists, cascade)


# -- formats --------------------------------------------------------------------------------------------------------


def parse_format_clause(tokens: TokenReader) -> FormatClause | None:
    """[FORMAT f | KEY FORMAT f VALUE FORMAT f] [INCLUDE ...] [ENVELOPE ...], in this order."""
    position = tokens.token.start + 1
    key = value = None
    if tokens.take("key", "format"):
        key = _parse_encoding(tokens)
        tokens.expect("value", "format")
        value = _parse_encoding(tokens)
    elif tokens.take("format"):
        value = _parse_encoding(tokens)
    include = tokens.comma_list(lambda: _parse_include(tokens)) if tokens.take("include") else ()
    envelope, inline = _parse_envelope(tokens) if tokens.take("envelope") else (None, None)
    if value is None and not include and envelope is None:
        return None
    return FormatClause(position, value, key, include, envelope, inline)


def _parse_encoding(tokens: TokenReader) -> EncodingClause:
    position = tokens.token.start + 1
    if tokens.take("avro"):
        return _parse_avro(tokens, position)
    if tokens.take("csv"):
        return EncodingClause("csv", position, options=_parse_csv(tokens))
    if tokens.at("text", "bytes", "json", "parquet"):
        return EncodingClause(tokens.choose("text", "bytes", "json", "parquet"), position)
    hint = "The formats are AVRO, JSON, CSV, TEXT and BYTES, and PARQUET for files."
    tokens.reject(f"FORMAT {tokens.word.upper()}", "protobuf", "regex", hint=hint)
    raise tokens.expected("one of AVRO or TEXT or BYTES or JSON or CSV or PARQUET")


def _parse_avro(tokens: TokenReader, position: int) -> EncodingClause:
    if not tokens.take("using"):
        return EncodingClause("avro", position)
    if tokens.take("confluent", "schema", "registry", "connection"):
        return EncodingClause("avro", position, registry=tokens.name())
    tokens.expect("schema")
    schema = tokens.string()
    options: tuple[tuple[str, str], ...] = ()
    if tokens.at("("):
        known = ("confluent wire format",)
        options = tuple((o.name, o.value.lower()) for o in parse_options(tokens, known, "USING SCHEMA"))
    return EncodingClause("avro", position, schema=schema, options=options)


def _parse_csv(tokens: TokenReader) -> tuple[tuple[str, str], ...]:
    """WITH HEADER [(names)] | WITH n COLUMNS, [DELIMITED BY character]"""
    options: list[tuple[str, str]] = []
    if tokens.take("with"):
        if tokens.take("header"):
            options.append(("header", "true"))
            if tokens.at("("):
                names = tokens.in_parentheses(lambda: tokens.ident().name)
                options.append(("names", ",".join(names)))
        else:
            options.append(("columns", tokens.integer()))
            tokens.expect("columns")
    if tokens.take("delimited"):
        tokens.expect("by")
        options.append(("delimited by", tokens.string()))
    return tuple(options)


def _parse_include(tokens: TokenReader) -> IncludeClause:
    what = tokens.choose("key", "partition", "offset", "timestamp", "headers", "header")
    header = tokens.string() if what == "header" else None
    name = tokens.ident() if tokens.take("as") else None
    if what == "header" and name is None:
        raise tokens.expected("AS")
    return IncludeClause(what, name, header, what == "header" and tokens.take("bytes"))


def _parse_envelope(tokens: TokenReader) -> tuple[str, str | None]:
    """Returns the envelope as written, and the column of VALUE DECODING ERRORS = (INLINE [AS name])."""
    if tokens.take("none"):
        return "none", None
    if tokens.take("debezium"):
        return ("debezium upsert" if tokens.take("upsert") else "debezium"), None
    if tokens.take("materialize"):
        return "materialize", None
    if not tokens.take("upsert"):
        raise tokens.expected("one of NONE or UPSERT or DEBEZIUM or MATERIALIZE")
    if not tokens.take("("):
        return "upsert", None
    tokens.expect("value", "decoding", "errors")
    tokens.take("=")
    inner = tokens.take("(")
    tokens.expect("inline")
    name = tokens.ident().name if tokens.take("as") else "error"
    if inner:
        tokens.expect(")")
    tokens.expect(")")
    return "upsert", name
