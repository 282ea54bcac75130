"""EXPLAIN."""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.lexer import RESERVED_WORDS, Token, words
from server.sql.grammar.rules import Rule
from server.sql.grammar.rules.objects import parse_object_kind
from server.sql.grammar.rules.settings import parse_setting_value
from server.sql.grammar.statements.explain import Explain, Explained, ExplainFormat, ExplainStage, StoredQuery
from server.sql.grammar.statements.views import CreateIndex, CreateMaterializedView, CreateView
from server.sql.grammar.token_reader import QUERY_HEADS, TokenReader

_STAGES = ("raw", "decorrelated", "locally", "optimized", "physical", "spark")
_SPARK_MODES = ("extended", "formatted", "codegen", "cost")  # the modes of Spark's own EXPLAIN
_EXPLAIN_SWITCHES = words("analyze verbose costs settings generic_plan buffers wal timing summary memory")
_STAGE_SWITCHES = {ExplainStage.PHYSICAL: frozenset(("verbose",)), ExplainStage.SPARK: frozenset(_SPARK_MODES)}
_CREATES = (CreateView, CreateMaterializedView, CreateIndex)


def parse_explain(tokens: TokenReader, parse_statement: Rule) -> Explain:
    """PostgreSQL's EXPLAIN [ANALYZE] [VERBOSE], EXPLAIN (options), and Materialize's EXPLAIN stage PLAN ... FOR."""
    start = tokens.index
    tokens.expect("explain")
    stage: ExplainStage | None = None
    options: dict[str, str] = {}
    if tokens.take("timestamp"):
        if tokens.take("as"):
            options["format"] = tokens.choose("text", "json")
        tokens.expect("for")
        stage = ExplainStage.TIMESTAMP
    elif tokens.at("plan") or (tokens.at(*_STAGES) and tokens.ahead().value in ("plan", "optimized")):
        stage = _parse_stage(tokens)
        if tokens.take("with"):
            options = _parse_options(tokens, stage)
        if tokens.take("as"):
            options["format"] = tokens.choose(*ExplainFormat)
        tokens.expect("for")
    elif tokens.at("(") and tokens.ahead().value not in (*QUERY_HEADS, "("):
        options = _parse_options(tokens, stage)
    else:
        for word in ("analyze", "verbose"):
            if tokens.take(word) or (word == "analyze" and tokens.take("analyse")):
                options[word] = "true"
    on = {name for name, value in options.items() if value == "true"}
    statement = _parse_explained(tokens, parse_statement, start, analyze="analyze" in on)
    return Explain(
        *tokens.text_from(start),
        statement,
        stage,
        analyze="analyze" in on,
        verbose="verbose" in on,
        no_timing=options.get("timing") == "false",
        summary=options.get("summary", options.get("analyze")) == "true",
        format=ExplainFormat(options.get("format", "text")),
        spark_mode=next((mode for mode in _SPARK_MODES if mode in on), None),
    )


def _parse_stage(tokens: TokenReader) -> ExplainStage | None:
    """`RAW PLAN` and so on. None for `PLAN` alone, which is the summary."""
    if tokens.at("decorrelated", "locally"):
        what = "DECORRELATED" if tokens.at("decorrelated") else "LOCALLY OPTIMIZED"
        raise tokens.not_supported(f"EXPLAIN {what} PLAN", "EXPLAIN OPTIMIZED PLAN shows the plan after all passes.")
    stage = None if tokens.at("plan") else ExplainStage(tokens.choose(*_STAGES))
    tokens.expect("plan")
    return stage


def _parse_explained(tokens: TokenReader, parse_statement: Rule, start: int, *, analyze: bool) -> Explained:
    if tokens.at("view", "index") or tokens.at_all("materialized", "view"):
        if tokens.at("view") and analyze:
            raise tokens.not_supported("EXPLAIN ANALYZE VIEW", "Write EXPLAIN ANALYZE SELECT ... FROM the view.")
        return StoredQuery(parse_object_kind(tokens, "EXPLAIN"), tokens.name())
    if not tokens.at(*QUERY_HEADS, "insert", "update", "delete", "merge", "subscribe", "create", "execute"):
        raise tokens.syntax_error()
    token = tokens.token
    statement = parse_statement(tokens)
    if not isinstance(statement, Explained) or (analyze and isinstance(statement, _CREATES)):
        creates = isinstance(statement, _CREATES)
        raise tokens.not_supported(
            "EXPLAIN ANALYZE of CREATE" if creates else "EXPLAIN of a statement that has no plan",
            "Create it, and write EXPLAIN ANALYZE MATERIALIZED VIEW and its name."
            if creates
            else "EXPLAIN shows SELECT, INSERT, UPDATE, DELETE, MERGE, EXECUTE, CREATE VIEW and CREATE TABLE AS.",
            at=token,
        )
    return statement


def _parse_options(tokens: TokenReader, stage: ExplainStage | None) -> dict[str, str]:
    """The options by name; Boolean options are `true` or `false`. `stage` None: PostgreSQL's options."""
    known = _EXPLAIN_SWITCHES if stage is None else _STAGE_SWITCHES.get(stage, frozenset())
    options: dict[str, str] = {}
    for token, name, value in tokens.in_parentheses(lambda: _parse_option(tokens)):
        if name in ("format", "serialize") and stage is None:
            options[name] = _parse_format(tokens, token, name, value)
        elif name not in known:
            message = f'unrecognized EXPLAIN option "{name}"'
            raise PgError(SqlState.SYNTAX_ERROR, message, hint=_options_hint(stage, known), position=token.start + 1)
        elif value in (None, "true", "on", "1"):
            options[name] = "true"
        elif value in ("false", "off", "0"):
            options[name] = "false"
        else:
            raise PgError(SqlState.SYNTAX_ERROR, f"{name} requires a Boolean value")
    for name in ("wal", "timing", "serialize"):
        if options.get(name, "false") not in ("false", "none", "off") and options.get("analyze") != "true":
            message = f"EXPLAIN option {name.upper()} requires ANALYZE"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
    if options.get("generic_plan") == options.get("analyze") == "true":
        message = "EXPLAIN options ANALYZE and GENERIC_PLAN cannot be used together"
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
    return options


def _options_hint(stage: ExplainStage | None, known: frozenset[str]) -> str | None:
    """The options of Materialize's EXPLAIN. None for PostgreSQL's, which has no hint for its own."""
    if stage is None:
        return None
    names = ", ".join(sorted(known)).upper()
    return f"The options of EXPLAIN {stage.upper()} PLAN are {names}." if known else "Omit WITH and its options."


def _parse_format(tokens: TokenReader, token: Token, name: str, value: str | None) -> str:
    known = {"format": (*ExplainFormat, "xml", "yaml"), "serialize": ("none", "off", "text", "binary")}[name]
    if value is None and name == "serialize":
        return "text"
    if value is None or value not in known:
        if value is None:
            raise PgError(SqlState.SYNTAX_ERROR, f"{name} requires a parameter")
        message = f'unrecognized value for EXPLAIN option "{name}": "{value}"'
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, position=token.start + 1)
    if value in ("xml", "yaml"):
        raise tokens.not_supported(
            f"EXPLAIN (FORMAT {value.upper()})", "The supported formats are TEXT, JSON, MERMAID and DOT.", at=token
        )
    return value


def _parse_option(tokens: TokenReader) -> tuple[Token, str, str | None]:
    token = tokens.token
    name = tokens.ident(not_names=RESERVED_WORDS - {"analyze", "analyse"}).name
    value = None if tokens.at(",", ")") else parse_setting_value(tokens).lower()
    return token, "analyze" if name == "analyse" else name, value
