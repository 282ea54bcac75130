"""LIKE patterns and regular expressions in the words of Java, so that Spark matches what PostgreSQL would match.

The database's locale is C: case folds over ASCII alone, and classes know only ASCII.
"""

from __future__ import annotations

import re

from protocol.pgwire.errors import PgError, SqlState

_CLASSES = {
    "alpha": "\\p{Alpha}", "digit": "\\p{Digit}", "alnum": "\\p{Alnum}", "upper": "\\p{Upper}",
    "lower": "\\p{Lower}", "space": "\\s", "punct": "\\p{Punct}", "xdigit": "\\p{XDigit}", "blank": " \\t",
}  # fmt: skip
_ESCAPES = frozenset("dDwWsStnrf")
_BRACKET_SPECIAL = frozenset("[]&^\\~")


def like(pattern: str, escape: str = "\\") -> str:
    """A LIKE pattern as Spark's LIKE reads it: backslash escapes, and only `%`, `_` and itself.

    22025 if the pattern ends with the escape character.
    """
    out: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            following = next(characters, None)
            if following is None:
                message = "LIKE pattern must not end with escape character"
                raise PgError(SqlState.INVALID_ESCAPE_SEQUENCE, message)
            out.append("\\" + following if following in "%_\\" else following)
        elif character == "\\":
            out.append("\\\\")
        else:
            out.append(character)
    return "".join(out)


def _unsupported(what: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} in a regular expression is not supported")


def _invalid(reason: str) -> PgError:
    return PgError(SqlState.INVALID_REGULAR_EXPRESSION, f"invalid regular expression: {reason}")


def regex(pattern: str) -> str:
    """A PostgreSQL regular expression (ARE) as a Java one that finds the same texts. 0A000 for what differs.

    `.` matches a newline and `$` only the very end, as PostgreSQL's do by default.
    """
    if pattern.startswith(("***", "(?")):
        raise _unsupported("an embedded option")
    out: list[str] = []
    at, depth = 0, 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        match character:
            case "\\":
                if at == len(pattern):
                    raise _invalid("invalid escape \\ sequence")
                following = pattern[at]
                at += 1
                if following.isalnum() and following not in _ESCAPES:
                    raise _unsupported(f'escape "\\{following}"')
                out.append("\\" + following)
            case "[":
                text, at = _bracket(pattern, at)
                out.append(text)
            case "$":
                out.append("\\z")
            case "^":
                out.append("\\A")
            case "(":
                depth += 1
                if pattern.startswith("?", at) and not pattern.startswith("?:", at):
                    raise _unsupported("a lookaround constraint")
                out.append("(")
            case ")":
                depth -= 1
                if depth < 0:
                    raise _invalid("parentheses () not balanced")
                out.append(")")
            case "{":
                bounds = re.compile(r"(\d{1,3})(,(\d{0,3}))?\}").match(pattern, at)
                if bounds is None:
                    if pattern[at : at + 1].isdigit():
                        raise _invalid("invalid repetition count(s)")
                    out.append("\\{")
                else:
                    low, high = int(bounds[1]), int(bounds[3] or 255)
                    if low > 255 or high > 255 or low > high:
                        raise _invalid("invalid repetition count(s)")
                    out.append("{" + bounds[0])
                    at = bounds.end()
            case "*" | "+" | "?":
                before = pattern[at - 2 : at - 1]
                if before in ("", "(", "|", "^") or (before in "*+" and character in "*+"):
                    raise _invalid("quantifier operand invalid")
                out.append(character)
            case "}":
                out.append("\\}")
            case _:
                out.append(character)
    if depth:
        raise _invalid("parentheses () not balanced")
    return "(?s)" + "".join(out)


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """The bracket expression whose `[` stands before `at`, in Java's words, and where it ends."""
    out = ["["]
    if pattern.startswith("^", at):
        out.append("^")
        at += 1
    first = True
    while at < len(pattern):
        character = pattern[at]
        if character == "]" and not first:
            return "".join(out) + "]", at + 1
        first = False
        if pattern.startswith("[:", at):
            end = pattern.find(":]", at)
            name = pattern[at + 2 : end]
            if end < 0 or name not in _CLASSES:
                raise _invalid("invalid character class")
            out.append(_CLASSES[name])
            at = end + 2
            continue
        if pattern.startswith(("[.", "[="), at):
            raise _unsupported("a collating element")
        at += 1
        if character == "\\":
            following = pattern[at : at + 1]
            if following.isalnum() and following not in "dwstnrf":
                raise _unsupported(f'escape "\\{following}"')
            out.append("\\" + following)
            at += 1
        elif character in _BRACKET_SPECIAL:
            out.append("\\" + character)
        else:
            out.append(character)
    raise _invalid("brackets [] not balanced")
