"""LIKE, SIMILAR TO and POSIX regular expressions (chapter 9.7).

A pattern that is constant when the query is planned becomes Spark's LIKE or RLIKE if Java matches it in time linear in
the text: Java's matcher backtracks and cannot be interrupted. `patterns` and `regex` compute all other patterns, and
the functions that return matches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT
from server.sql.expressions import Call, Expression, Literal
from server.sql.functions.table import FUNCTIONS, GRAMMAR, OPERATORS, SET_ARRAYS, Form, Nulls, let, quote, row
from server.sql.regex import patterns
from server.sql.regex.regex import Match, Regex, compiled

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_FOLDED = f"translate({{}}, '{_UPPER}', '{_LOWER}')"  # locale C: only ASCII letters have case
_TO_LOWER = str.maketrans(_UPPER, _LOWER)

# -- LIKE -----------------------------------------------------------------------------------------------------------


def _like(negated: bool, folds: bool) -> Form:
    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        known = [arg.value for arg in args[1:] if isinstance(arg, Literal)]
        if len(known) < len(args) - 1 or None in known:
            return ""
        if len(known) == 2:
            patterns.check_escape(known[1])
        pattern = patterns.like(*(v.translate(_TO_LOWER) if folds else v for v in known))
        if pattern is None:
            return ""
        text = _FOLDED.format(texts[0]) if folds else texts[0]
        regex = patterns.without_backtracking(pattern)
        operator, operand = ("LIKE", pattern) if regex is None else ("RLIKE", regex)
        matched = f"({text} {operator} {quote(operand)})"
        return f"(NOT {matched})" if negated else matched

    return form


def _liked(negated: bool, folds: bool) -> Callable[..., bool]:
    def python(*values: str) -> bool:
        if folds:
            values = tuple(value.translate(_TO_LOWER) for value in values)
        return patterns.matches(*values) != negated

    return python


for _name, _negated in (("~~", False), ("!~~", True)):
    for _tail, _folds in (("", False), ("*", True)):
        for _types in ("text text", "text text text", "bpchar text", "bpchar text text"):  # with ESCAPE
            row(OPERATORS, _name + _tail, _types, "bool", _like(_negated, _folds), python=_liked(_negated, _folds))
    row(OPERATORS, _name, "bytea bytea", "bool", python=_liked(_negated, False))

# -- regular expressions: tests -------------------------------------------------------------------------------------


def _rlike(negated: bool, flags: str, translate: Callable[..., str]) -> Form:
    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        known = [arg.value for arg in args[1:] if isinstance(arg, Literal)]
        if len(known) < len(args) - 1 or None in known:
            return ""
        pattern = compiled(translate(*known), flags).java
        if pattern is None:
            return ""
        matched = f"({texts[0]} RLIKE {quote(pattern)})"
        return f"(NOT {matched})" if negated else matched

    return form


def _tested(negated: bool, flags: str, translate: Callable[..., str]) -> Callable[..., bool]:
    return lambda text, *pattern: compiled(translate(*pattern), flags).test(text) != negated


def _itself(pattern: str) -> str:
    return pattern


for _name, _negated in (("~", False), ("!~", True)):
    for _tail, _flags in (("", ""), ("*", "i")):
        for _types in ("text text", "bpchar text"):  # the padding of a char(n) is significant
            row(OPERATORS, _name + _tail, _types, "bool", _rlike(_negated, _flags, _itself),
                python=_tested(_negated, _flags, _itself))  # fmt: skip
for _types in ("text text", "text text text"):
    row(OPERATORS, "SIMILAR TO", _types, "bool", _rlike(False, "", patterns.similar),
        python=_tested(False, "", patterns.similar))  # fmt: skip

# -- regular expressions: matches -----------------------------------------------------------------------------------


def _options(function: str, flags: str, *, globally: bool = False) -> tuple[str, bool]:
    """The flags without `g`, and whether `g` is given. 22023 for an unknown flag, and for `g` unless `globally`."""
    rest = flags.replace("g", "")
    for letter in rest:
        if letter not in "bceimnpqstwx":
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'invalid regular expression option: "{letter}"')
    if "g" in flags and not globally:
        message = f'{function}() does not support the "global" option'
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, message)
    return rest, "g" in flags


def _at_least(name: str, value: int, least: int) -> int:
    if value < least:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'invalid value for parameter "{name}": {value}')
    return value


def _part(text: str, match: Match, group: int) -> str | None:
    span = match.spans[group] if group < len(match.spans) else None
    return text[span[0] : span[1]] if span is not None else None


def _substring(text: str, pattern: str) -> str | None:
    """The first group; the whole match if there are no groups."""
    match = compiled(pattern).find(text)
    return None if match is None else _part(text, match, 1 if len(match.spans) > 1 else 0)


def _substring_similar(text: str, pattern: str, escape: str) -> str | None:
    return _substring(text, patterns.similar(pattern, escape))


def _first_match(groups: Callable[[Sequence[str], int], str]) -> Form:
    """The Spark form of a function that returns parts of the first match of a constant pattern.

    `groups`: the result, given the matched text, the text of each group, and the number of groups.
    """

    def form(args: Sequence[Expression], texts: Sequence[str]) -> str:
        regex = _regex_of(args) if len(args) == 2 else None
        if regex is None:
            return ""
        pattern = quote(regex.java_with_groups or "")

        def result(text: str) -> str:
            parts = [f"regexp_extract({text}, {pattern}, {group})" for group in range(regex.groups + 1)]
            return f"IF({text} RLIKE {pattern}, {groups(parts, regex.groups)}, NULL)"

        return let(texts[0], result)

    return form


def _first_group(text: str, regex: Regex, group: int) -> str:
    """Spark SQL for a group of the first match; NULL if there is none. Searches once, unlike RLIKE and regexp_extract.

    The pattern continues to the end of the text, so that there is no second match.
    """
    pattern = quote(f"(?:{regex.java_with_groups})(?s:.*)")
    return f"get(regexp_extract_all({text}, {pattern}, {group}), 0)"


def _group_or_match(args: Sequence[Expression], texts: Sequence[str]) -> str:
    regex = _regex_of(args)
    return _first_group(texts[0], regex, 1) if regex is not None and regex.groups else _WHOLE_MATCH(args, texts)


def _regex_of(args: Sequence[Expression]) -> Regex | None:
    """The constant pattern of the call, if Java finds its groups; else None."""
    if len(args) < 2 or not isinstance(args[1], Literal) or args[1].value is None:
        return None
    regex = compiled(args[1].value)
    return None if regex.java_with_groups is None else regex


_WHOLE_MATCH = _first_match(lambda parts, groups: parts[0])

_ALL_GROUPS = _first_match(lambda parts, groups: f"array({', '.join(parts[min(groups, 1) :])})")


def _captured(text: str, match: Match) -> list[str | None]:
    groups = range(1, len(match.spans)) if len(match.spans) > 1 else range(1)
    return [_part(text, match, group) for group in groups]


def _match(text: str, pattern: str, flags: str = "") -> list[str | None] | None:
    match = compiled(pattern, _options("regexp_match", flags)[0]).find(text)
    return None if match is None else _captured(text, match)


def _matches(text: str, pattern: str, flags: str = "") -> list[list[str | None]]:
    """The first match; all with the flag `g`."""
    options, globally = _options("regexp_matches", flags, globally=True)
    found = compiled(pattern, options).find_all(text)
    return [_captured(text, match) for match in (found if globally else islice(found, 1))]


def _matched_group(text: str, pattern: str, group: int) -> str | None:
    found = _match(text, pattern)
    return None if found is None else found[group - 1]


def _group(args: Sequence[Expression], texts: Sequence[str]) -> str:
    regex, group = _regex_of(args), args[2]
    assert regex is not None
    assert isinstance(group, Literal)
    return _first_group(texts[0], regex, group.value)


def group_of_match(array: Expression, index: Expression) -> Call | None:
    """`regexp_match(text, pattern)[index]` as a call that computes only this group. None if this is not supported."""
    if not isinstance(array, Call) or array.function not in FUNCTIONS["regexp_match"] or len(array.arguments) != 2:
        return None
    try:
        regex = _regex_of(array.arguments)
    except PgError:  # an invalid pattern is an error only if the call is evaluated
        return None
    if regex is None or not isinstance(index, Literal) or not 0 < (index.value or 0) <= regex.groups:
        return None
    return Call(GRAMMAR["regexp_match"][0], (*array.arguments, index), TEXT, True)


def _is_like(text: str, pattern: str, flags: str = "") -> bool:
    return compiled(pattern, _options("regexp_like", flags)[0]).test(text)


def _count(text: str, pattern: str, start: int = 1, flags: str = "") -> int:
    _at_least("start", start, 1)
    options, _ = _options("regexp_count", flags)
    return sum(1 for _ in compiled(pattern, options).find_all(text, start - 1))


def _nth(text: str, regex: str, options: str, start: int, number: int) -> Match | None:
    for count, match in enumerate(compiled(regex, options).find_all(text, start - 1), 1):
        if count == number:
            return match
    return None


def _position(
    text: str, pattern: str, start: int = 1, number: int = 1, end: int = 0, flags: str = "", group: int = 0
) -> int:
    _at_least("start", start, 1)
    _at_least("n", number, 1)
    if end not in (0, 1):
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'invalid value for parameter "endoption": {end}')
    _at_least("subexpr", group, 0)
    match = _nth(text, pattern, _options("regexp_instr", flags)[0], start, number)
    span = match.spans[group] if match is not None and group < len(match.spans) else None
    return span[end] + 1 if span is not None else 0


def _nth_substring(
    text: str, pattern: str, start: int = 1, number: int = 1, flags: str = "", group: int = 0
) -> str | None:
    _at_least("start", start, 1)
    _at_least("n", number, 1)
    _at_least("subexpr", group, 0)
    match = _nth(text, pattern, _options("regexp_substr", flags)[0], start, number)
    return None if match is None else _part(text, match, group)


def _replaced(text: str, pattern: str, replacement: str, options: str, start: int, number: int) -> str:
    """Replaces match `number`; 0 means all matches."""
    out, done = [], 0
    for count, match in enumerate(compiled(pattern, options).find_all(text, start - 1), 1):
        begin, end = match.spans[0] or (0, 0)
        if number in (0, count):
            out += [text[done:begin], _expanded(text, match, replacement)]
            done = end
        if count == number:
            break
    return "".join(out) + text[done:]


def _expanded(text: str, match: Match, replacement: str) -> str:
    out, at = [], 0
    while at < len(replacement):
        following = replacement[at + 1 : at + 2]
        if replacement[at] == "\\" and following and following in "123456789&\\":
            group = 0 if following == "&" else int(following) if following != "\\" else None
            out.append("\\" if group is None else _part(text, match, group) or "")
            at += 2
        else:
            out.append(replacement[at])
            at += 1
    return "".join(out)


def _replace(text: str, pattern: str, replacement: str, flags: str = "") -> str:
    if flags[:1].isdigit():
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f'invalid regular expression option: "{flags[0]}"',
            hint="If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer "
            "explicitly.",
        )
    options, globally = _options("regexp_replace", flags, globally=True)
    return _replaced(text, pattern, replacement, options, 1, 0 if globally else 1)


def _replace_from(
    text: str, pattern: str, replacement: str, start: int, number: int | None = None, flags: str = ""
) -> str:
    _at_least("start", start, 1)
    options, globally = _options("regexp_replace", flags, globally=True)
    count = _at_least("n", number, 0) if number is not None else 0 if globally else 1
    return _replaced(text, pattern, replacement, options, start, count)


def _split(text: str, pattern: str, flags: str = "") -> list[str]:
    """Ignores empty matches at either end of the text and directly after a match."""
    out, done = [], 0
    for match in compiled(pattern, _options("regexp_split_to_array", flags)[0]).find_all(text):
        begin, end = match.spans[0] or (0, 0)
        if begin < len(text) and end > done:
            out.append(text[done:begin])
            done = end
    return [*out, text[done:]]


row(FUNCTIONS, "substring", "text text", "text", _group_or_match, python=_substring, nulls=Nulls.OPTIONAL)
row(FUNCTIONS, "substring", "text text text", "text", python=_substring_similar, nulls=Nulls.OPTIONAL)
row(FUNCTIONS, "similar_escape", "text text", "text", nulls=Nulls.MAYBE, python=lambda pattern, escape: (
    None if pattern is None else patterns.similar(pattern, "\\" if escape is None else escape)))  # fmt: skip
row(FUNCTIONS, "similar_to_escape", "text", "text", python=patterns.similar)
row(FUNCTIONS, "similar_to_escape", "text text", "text", python=patterns.similar)
row(FUNCTIONS, "like", "text text", "bool", _like(False, False), python=_liked(False, False))
row(FUNCTIONS, "notlike", "text text", "bool", _like(True, False), python=_liked(True, False))


def _rows(
    name: str,
    result: str,
    python: Callable[..., Any],
    *types: str,
    spark: Form | None = None,
    nulls: Nulls = Nulls.OPTIONAL,
) -> None:
    for arguments in types:
        row(FUNCTIONS, name, arguments, result, spark, python=python, nulls=nulls)


_PAIR = ("text text", "text text text")
_rows("regexp_like", "bool", _is_like, *_PAIR, nulls=Nulls.STRICT)
_rows("regexp_match", "text[]", _match, *_PAIR, spark=_ALL_GROUPS)
row(GRAMMAR, "regexp_match", "text text int4", "text", _group, python=_matched_group, nulls=Nulls.OPTIONAL)
for _arguments in _PAIR:
    row(SET_ARRAYS, "regexp_matches", _arguments, "text[][]", python=_matches)
_rows("regexp_split_to_array", "text[]", _split, *_PAIR, nulls=Nulls.STRICT)
_rows("regexp_count", "int4", _count, "text text", "text text int4", "text text int4 text", nulls=Nulls.STRICT)
_rows("regexp_instr", "int4", _position, "text text", "text text int4", "text text int4 int4",
      "text text int4 int4 int4", "text text int4 int4 int4 text", "text text int4 int4 int4 text int4",
      nulls=Nulls.STRICT)  # fmt: skip
_rows("regexp_substr", "text", _nth_substring, "text text", "text text int4", "text text int4 int4",
      "text text int4 int4 text", "text text int4 int4 text int4", spark=_WHOLE_MATCH)  # fmt: skip
_rows("regexp_replace", "text", _replace, "text text text", "text text text text", nulls=Nulls.STRICT)
_rows("regexp_replace", "text", _replace_from, "text text text int4", "text text text int4 int4",
      "text text text int4 int4 text", nulls=Nulls.STRICT)  # fmt: skip
