"""Patterns of LIKE and SIMILAR TO.

`like` translates a LIKE pattern for Spark's LIKE, `matches` implements LIKE in Python, and `similar` translates an SQL
regular expression to a POSIX one for `regex`.
"""

from __future__ import annotations

from protocol.pgwire.errors import PgError, SqlState


def _ends_in_escape() -> PgError:
    return PgError(SqlState.INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character")


def check_escape(escape: str) -> None:
    """22025 unless the escape string is empty or one character."""
    if len(escape) > 1:
        hint = "Escape string must be empty or one character."
        raise PgError(SqlState.INVALID_ESCAPE_SEQUENCE, "invalid escape string", hint=hint)


def like(pattern: str, escape: str = "\\") -> str | None:
    """A LIKE pattern for Spark's LIKE, in which a backslash escapes only `%`, `_` and itself.

    None if the pattern ends with the escape character. This is an error only for a text that matches up to there.
    """
    out: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            following = next(characters, None)
            if following is None:
                return None
            out.append("\\" + following if following in "%_\\" else following)
        elif character == "\\":
            out.append("\\\\")
        else:
            out.append(character)
    return "".join(out)


def without_backtracking(pattern: str) -> str | None:
    """A Java regular expression for RLIKE that matches the same texts as a pattern returned by `like`, in linear time.

    None if Spark's LIKE takes linear time. Spark translates every `%` to `.*`, and each of them but the last multiplies
    the time. Here the text between two `%` is matched at its first occurrence, which never excludes a match, and atomic
    groups keep Java from trying later occurrences.
    """
    segments = [""]
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            segments.append("")
        else:
            literal = next(characters) if character == "\\" else character
            is_any = character == ANY_CHARACTER
            segments[-1] += "." if is_any else f"\\x{{{ord(literal):x}}}"
    first, *middle, last = segments if len(segments) > 1 else (*segments, "")
    middle = [segment for segment in middle if segment]
    if len(middle) + bool(last) < 2:
        return None
    end = f".*{last}\\z" if last else ""
    return f"(?s)\\A{first}{''.join(f'(?>.*?{segment})' for segment in middle)}{end}"


ANY_TEXT, ANY_CHARACTER, ERROR = "%", "_", ""


def matches(text: str | bytes, pattern: str | bytes, escape: str = "\\") -> bool:
    """Evaluates text LIKE pattern. For bytes, every byte is a character."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    if isinstance(pattern, bytes):
        pattern = pattern.decode("latin-1")
    check_escape(escape)
    tokens: list[tuple[str, str]] = []  # the kind and, for "itself", the literal character
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            following = next(characters, None)
            tokens.append(("itself", following) if following is not None else (ERROR, ""))
        else:
            tokens.append((character, "") if character in "%_" else ("itself", character))
    return _matches(text, tokens)


def _matches(text: str, tokens: list[tuple[str, str]]) -> bool:
    """Backtracks only to the last %: backtracking to an earlier one cannot lead to a match."""
    at = index = 0
    back: tuple[int, int] | None = None
    while at < len(text):
        kind, character = tokens[index] if index < len(tokens) else ("end", "")
        if kind == ANY_TEXT:
            index += 1
            back = (at, index)
            continue
        if kind == ERROR:
            raise _ends_in_escape()
        if kind == ANY_CHARACTER or (kind == "itself" and character == text[at]):
            at, index = at + 1, index + 1
            continue
        if back is None:
            return False
        back = (back[0] + 1, back[1])
        at, index = back
    return all(kind == ANY_TEXT for kind, _ in tokens[index:])


def similar(pattern: str, escape: str = "\\") -> str:
    """Translates an SQL regular expression to a POSIX one for the whole text (similar_escape in regexp.c)."""
    check_escape(escape)
    out: list[str] = []
    quotes, is_escaped, in_brackets = 0, False, False
    for character in pattern:
        if is_escaped:
            if character == '"' and not in_brackets:
                if quotes == 2:
                    raise PgError(
                        SqlState.INVALID_USE_OF_ESCAPE_CHARACTER,
                        "SQL regular expression may not contain more than two escape-double-quote separators",
                    )
                out.append(("){1,1}?(", "){1,1}(?:")[quotes])
                quotes += 1
            else:
                out.append("\\" + character)
            is_escaped = False
        elif escape and character == escape:
            is_escaped = True
        elif in_brackets:
            out.append("\\\\" if character == "\\" else character)
            in_brackets = character != "]"
        elif character == "[":
            out.append(character)
            in_brackets = True
        else:
            out.append({"%": ".*", "_": ".", "(": "(?:"}.get(character) or _quoted(character))
    return f"^(?:{''.join(out)})$"


def _quoted(character: str) -> str:
    return "\\" + character if character in "\\.^$" else character
