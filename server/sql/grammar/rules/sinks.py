"""CREATE SINK."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.rules.objects import parse_in_cluster
from server.sql.grammar.rules.sources import parse_format_clause, parse_options
from server.sql.grammar.statements.parts import Expr, Ident, Name
from server.sql.grammar.statements.sinks import CreateSink
from server.sql.grammar.token_reader import TokenReader

_HINT = (
    "A sink writes INTO FILE '/path' FORMAT JSON ENVELOPE ..., INTO POSTGRES CONNECTION name TABLE name, or "
    "INTO KAFKA CONNECTION name (TOPIC 'name') FORMAT ... ENVELOPE ..."
)
_SHORT = {"partition count": "topic partition count", "replication factor": "topic replication factor"}
"""Options of a topic with a shorter name."""
TOPIC_OPTIONS = ("topic", "compression type", "transactional id prefix", *_SHORT.values(), *_SHORT)


def parse_create_sink(tokens: TokenReader, start: int) -> CreateSink:
    exists = tokens.if_not_exists()
    name = tokens.name()
    parse_in_cluster(tokens)
    tokens.reject("CREATE SINK of a query", "as", hint="Create a materialized view with the query, and a sink from it.")
    tokens.expect("from")
    on = tokens.name()
    position = tokens.token.start + 1
    tokens.reject("CREATE SINK with a connector", "with", hint=_HINT)
    tokens.expect("into")
    tokens.reject(f"CREATE SINK INTO {tokens.word.upper()}", "iceberg", "s3", hint=_HINT)
    connection: Name | None = None
    system = tokens.expect_one_of("file", "postgres", "kafka")
    if system == "file":
        options: tuple[tuple[str, str], ...] = (("path", tokens.string()),)
    else:
        tokens.expect("connection")
        connection = tokens.name()
        options = _parse_table(tokens) if system == "postgres" else _parse_topic(tokens)
    key: tuple[Ident, ...] = ()
    if tokens.at_all("key", "("):  # not KEY FORMAT
        tokens.expect("key")
        key = tokens.column_list()
        if tokens.take("not", "enforced"):
            options = (*options, ("key not enforced", "true"))
    if system == "kafka" and tokens.take("headers"):
        options = (*options, ("headers", tokens.ident().name))
    format = parse_format_clause(tokens)
    snapshot, as_of = True, None
    if tokens.take("with"):
        snapshot, as_of, more = _parse_with(tokens)
        options = (*options, *more)
    text = tokens.text_from(start)
    return CreateSink(*text, name, on, system, connection, options, key, format, snapshot, as_of, exists, position)


_WITH = {"snapshot": "snapshot", "as": "as of", "progress": "progress interval", "continue": "continue"}
"""The options of WITH by their first word."""


def _parse_with(tokens: TokenReader) -> tuple[bool, Expr | None, tuple[tuple[str, str], ...]]:
    """(SNAPSHOT [= boolean], AS OF [=] time, PROGRESS INTERVAL [=] 'interval', CONTINUE [= boolean]), each once.

    Returns SNAPSHOT, AS OF and the others.
    """
    flags: dict[str, bool] = {}
    more: dict[str, str] = {}
    as_of: Expr | None = None

    def option() -> None:
        nonlocal as_of
        position = tokens.token.start + 1
        name = _WITH[tokens.expect_one_of(*_WITH)]
        if name in flags or name in more or (name == "as of" and as_of is not None):
            raise PgError(SqlState.SYNTAX_ERROR, f"option {name.upper()} specified more than once", position=position)
        for word in name.split()[1:]:
            tokens.expect(word)
        tokens.take("=")
        if name == "as of":
            as_of = tokens.expression(",")
        elif name == "progress interval":
            more[name] = tokens.string()
        else:
            flags[name] = True if tokens.at(")", ",") else tokens.choose("true", "false") == "true"

    position = tokens.token.start + 1
    tokens.in_parentheses(option)
    if not flags.get("continue"):
        return flags.get("snapshot", True), as_of, tuple(more.items())
    if flags.get("snapshot"):
        raise PgError(SqlState.SYNTAX_ERROR, "conflicting options SNAPSHOT and CONTINUE", position=position)
    return False, as_of, (*more.items(), ("continue", "true"))


def _parse_table(tokens: TokenReader) -> tuple[tuple[str, str], ...]:
    """TABLE [schema.]table"""
    tokens.expect("table")
    table = tokens.name(parts_max=2).parts
    return ("schema", table[0] if len(table) == 2 else "public"), ("table", table[-1])


def _parse_topic(tokens: TokenReader) -> tuple[tuple[str, str], ...]:
    """(TOPIC 'topic', ...). PARTITION BY is the text of an expression."""
    position = tokens.token.start + 1
    given = parse_options(tokens, TOPIC_OPTIONS, "INTO KAFKA", expressions=("partition by",))
    names = [_SHORT.get(option.name, option.name) for option in given]
    for number, option in enumerate(given):
        if names[number] in names[:number]:
            message = f"option {option.name.upper()} specified more than once"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=option.position)
    found = {name: option.value for name, option in zip(names, given, strict=True)}
    if not found.get("topic"):
        message = "option TOPIC of a sink into Kafka is missing"
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, position=position)
    return tuple(found.items())
