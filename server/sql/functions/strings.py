"""Strings, binary strings and pattern matching (chapters 9.4, 9.5, 9.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from protocol.pgwire.errors import PgError, SqlState
from server.sql import patterns
from server.sql.expressions import Expression, Literal
from server.sql.functions.table import (
    FUNCTIONS,
    OPERATORS,
    Form,
    Nulls,
    guarded,
    literal,
    quote,
    row,
    text_literal,
)

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_FOLD = f"translate({{0}}, '{_UPPER}', '{_LOWER}')"  # the locale is C: only ASCII has cases


def _like_pattern(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """With a literal pattern (and escape), the pattern as Spark reads it; it must be literal if there is an escape."""
    value, pattern, *escapes = args
    if escapes:
        escape = literal(escapes[0], "an ESCAPE")
        assert isinstance(escape, str)
        if len(escape) > 1:
            raise PgError(
                SqlState.INVALID_ESCAPE_SEQUENCE,
                "invalid escape string",
                hint="Escape string must be empty or one character.",
            )
        text = literal(pattern, "a pattern with ESCAPE")
        assert isinstance(text, str)
        return (value, replace(text_literal(pattern), value=patterns.like(text, escape)))
    if isinstance(pattern, Literal) and pattern.value is not None:
        return (value, replace(pattern, value=patterns.like(pattern.value)))
    return args


_ENDS_IN_ESCAPE = r"(?s)\A(.*[^\\])?(\\\\)*\\\z"
_ESCAPES = r"(?s)(\\[%_\\])|\\(.)"  # kept where Spark wants one, else what it escapes


def _like(template: str) -> Form:
    """A pattern that is known has been made Spark's; another one is when the row is there."""

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        pattern = texts[1]
        if not isinstance(args[1], Literal):
            message = "LIKE pattern must not end with escape character"
            normal = f"regexp_replace({pattern}, {quote(_ESCAPES)}, '$1$2')"
            pattern = guarded(
                f"{pattern} RLIKE {quote(_ENDS_IN_ESCAPE)}", SqlState.INVALID_ESCAPE_SEQUENCE, message, normal
            )
        return template.format(texts[0], pattern)

    return form


def _regex_pattern(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    pattern = text_literal(args[1]) if isinstance(args[1], Literal) else None
    if pattern is not None and pattern.value is None:
        return args
    text = literal(args[1], "a regular expression")
    assert isinstance(text, str)
    assert pattern is not None
    return (args[0], replace(pattern, value=patterns.regex(text)))


def _insensitive(args: tuple[Expression, ...]) -> tuple[Expression, ...]:
    value, pattern = _regex_pattern(args)
    text = text_literal(pattern)
    return (value, text if text.value is None else replace(text, value="(?i)" + text.value))


for _name, _spark in (("~~", "({0} LIKE {1})"), ("!~~", "({0} NOT LIKE {1})")):
    row(OPERATORS, _name, "text text", "bool", _like(_spark), prepare=_like_pattern)
    row(OPERATORS, _name, "text text text", "bool", _like(_spark), prepare=_like_pattern)  # with ESCAPE
    _folded = _spark.format(_FOLD, _FOLD.replace("{0}", "{1}"))
    row(OPERATORS, _name + "*", "text text", "bool", _like(_folded), prepare=_like_pattern)
    row(OPERATORS, _name + "*", "text text text", "bool", _like(_folded), prepare=_like_pattern)
for _name, _spark in (("~", "({0} RLIKE {1})"), ("!~", "(NOT {0} RLIKE {1})")):
    row(OPERATORS, _name, "text text", "bool", _spark, prepare=_regex_pattern)
    row(OPERATORS, _name + "*", "text text", "bool", _spark, prepare=_insensitive)

_SUBSTRING_ERROR = "negative substring length not allowed"
row(OPERATORS, "||", "text text", "text", "({0} || {1})")
row(OPERATORS, "||", "bytea bytea", "bytea", "({0} || {1})")
row(OPERATORS, "||", "jsonb jsonb", "jsonb", None)
row(OPERATORS, "||", "anyarray anyarray", "anyarray", None)
row(OPERATORS, "||", "anyarray anyelement", "anyarray", None)
row(OPERATORS, "||", "anyelement anyarray", "anyarray", None)
row(FUNCTIONS, "concat", "any", "text", "concat_ws('', {*})", nulls=Nulls.NEVER, variadic=True)
row(FUNCTIONS, "concat_ws", "text any", "text", "concat_ws({*})", variadic=True, nulls=Nulls.MAYBE)
for _name in ("length", "char_length", "character_length"):
    row(FUNCTIONS, _name, "text", "int4", "char_length({0})")
    row(FUNCTIONS, _name, "bpchar", "int4", "char_length(rtrim({0}))")
row(FUNCTIONS, "length", "bytea", "int4", "octet_length({0})")
for _a in ("text", "bpchar", "bytea"):
    row(FUNCTIONS, "octet_length", _a, "int4", "octet_length({0})")
row(FUNCTIONS, "lower", "text", "text", _FOLD)
row(FUNCTIONS, "upper", "text", "text", f"translate({{0}}, '{_LOWER}', '{_UPPER}')")
for _name in ("substring", "substr"):
    row(FUNCTIONS, _name, "text int4", "text", "substr({0}, IF({1} < 1, 1, {1}))")
    row(FUNCTIONS, _name, "text int4 int4", "text", guarded(
        "{2} < 0", SqlState.SUBSTRING_ERROR, _SUBSTRING_ERROR,
        "substr({0}, IF({1} < 1, 1, {1}), CAST(IF({1} < 1, IF({1} + CAST({2} AS BIGINT) < 1, 0, "
        "{1} + CAST({2} AS BIGINT) - 1), {2}) AS INT))"))  # fmt: skip
row(FUNCTIONS, "substring", "text text", "text", None)
row(FUNCTIONS, "left", "text int4", "text",
     "substr({0}, 1, IF({1} >= 0, {1}, IF(char_length({0}) + {1} < 0, 0, char_length({0}) + {1})))")  # fmt: skip
row(FUNCTIONS, "right", "text int4", "text",
     "substr({0}, IF({1} < 0, 1 - {1}, IF(char_length({0}) < {1}, 1, char_length({0}) - {1} + 1)))")  # fmt: skip
for _name, _side in (("btrim", "BOTH"), ("ltrim", "LEADING"), ("rtrim", "TRAILING")):
    row(FUNCTIONS, _name, "text", "text", f"TRIM({_side} FROM {{0}})")
    row(FUNCTIONS, _name, "text text", "text", f"TRIM({_side} {{1}} FROM {{0}})")
row(FUNCTIONS, "replace", "text text text", "text", "replace({0}, {1}, {2})")
row(FUNCTIONS, "translate", "text text text", "text", "translate({0}, {1}, {2})")
row(FUNCTIONS, "strpos", "text text", "int4", "instr({0}, {1})")
row(FUNCTIONS, "position", "text text", "int4", "instr({0}, {1})")
row(
    FUNCTIONS,
    "split_part",
    "text text int4",
    "text",
    guarded(
        "{2} = 0", SqlState.INVALID_PARAMETER_VALUE, "field position must not be zero", "split_part({0}, {1}, {2})"
    ),
)
for _name in ("lpad", "rpad"):
    row(FUNCTIONS, _name, "text int4", "text", f"{_name}({{0}}, {{1}}, ' ')")
    row(FUNCTIONS, _name, "text int4 text", "text", f"{_name}({{0}}, {{1}}, {{2}})")
row(FUNCTIONS, "repeat", "text int4", "text", "repeat({0}, {1})")
row(FUNCTIONS, "reverse", "text", "text", "reverse({0})")
row(FUNCTIONS, "starts_with", "text text", "bool", "startswith({0}, {1})")
row(OPERATORS, "^@", "text text", "bool", "startswith({0}, {1})")
row(FUNCTIONS, "md5", "text", "text", "md5({0})")
row(FUNCTIONS, "md5", "bytea", "text", "md5({0})")
