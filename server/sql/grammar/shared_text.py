"""The literals of a small statement as parameters of a text that all statements of the same form share.

    UPDATE t SET x = x + 5 WHERE name = 'a'    has the literals 5 and 'a', and the shared text
    UPDATE t SET x = x + $1 WHERE name = $2    with an int4 and a parameter without a declared type

Parsing and planning are the largest part of such a statement, and the plan of the shared text is kept. A literal
becomes a parameter where the parameter means the same: an integer after a comparison or arithmetic operator, a string
after a comparison, and both as values of VALUES. Elsewhere a literal may be a position (ORDER BY 1), a part of a type,
or an argument that Spark must know. A text with another literal has no shared text.

`tests/server/sql/test_shared_text.py` checks that both texts have the same plans.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.pgwire.input_style import DEFAULT_INPUT, InputStyle
from protocol.pgwire.scalars import parse_text
from protocol.pgwire.types import INT4, INT8, PgType
from server.sql.grammar.lexer import STRING

CHARS_MAX = 1_024
_AFTER_LARGEST_INT4 = str(1 << 31)  # an int8, and with a sign before it an int4
LITERALS_MAX = 32

_INTEGER = "-?[0-9]{1,18}"
_COMPARISON = "<=|>=|<>|!=|[<>=]"
_END = r"(?=\s*(?:[-+*/%<>=,;)]|\Z|(?i:and|or|where|returning|from)\b))"
_IN_EXPRESSIONS = re.compile(
    rf"""(?<![-+*/<>=~!@#%^&|`?])(?:(?:{_COMPARISON})\s*(?P<string>{STRING})"""
    rf"""|(?:{_COMPARISON}|[-+*/%])\s*(?P<integer>{_INTEGER})){_END}"""
    rf"""|{STRING}|"[^"]*\""""
)
_IN_ROWS = re.compile(
    rf"""(?<=[(,])\s*(?:(?P<string>{STRING})|(?P<integer>{_INTEGER}))(?=\s*[,)])"""
    rf"""|{STRING}|"[^"]*"|(?P<word>[A-Za-z_\x80-\U0010ffff][\w$]*)|(?P<bracket>[()])"""
)
_HEAD = re.compile(
    r"\s*(?i:(?P<insert>insert\s+into\s[^()']*(?:\([^()']*\)\s*)?\bvalues\b)|update\s|delete\s|select\s)"
)
_REFUSED = re.compile(
    r"--|/\*|[$\\\0]|;\s*\S"
    r"|(?i:\b(?:(?<!')[enbx]'|u&|(?:group|order|limit|offset|fetch|distinct|union|intersect|except|over)\b))"
)
_BEFORE_SIGN = re.compile(r"(?:[(,]|\b(?i:where|and|or|not|between|when|then|else|case|select|in|set|returning))\s*\Z")
_LITERAL = re.compile(r"'|(?<![\w$])[0-9]|(?<![\w$])\.[0-9]")


@dataclass(frozen=True, slots=True)
class SharedText:
    """`types`: those that the parameters are declared to have, None for strings. `literals`: as in the text."""

    text: str
    types: tuple[PgType | None, ...]
    literals: tuple[str, ...]

    def values(self, types: Sequence[PgType], timezone: str, style: InputStyle = DEFAULT_INPUT) -> tuple[Any, ...]:
        """The values of the parameters, which are read as these types. PgError if a string is not one."""
        texts = (literal[1:-1].replace("''", "'") for literal in self.literals)
        return tuple(
            [
                parse_text(type, text, timezone=timezone, style=style) if known is None else int(literal)
                for literal, text, known, type in zip(self.literals, texts, self.types, types, strict=True)
            ]
        )


def shared_text(text: str) -> SharedText | None:
    """The shared text of an INSERT, UPDATE, DELETE or SELECT. None for other texts, and if there is no parameter."""
    head = _HEAD.match(text) if len(text) <= CHARS_MAX else None
    if head is None or _REFUSED.search(text):
        return None
    literals: list[str] = []
    types: list[PgType | None] = []
    depth = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal depth
        groups = match.groupdict()
        literal = groups["string"] or groups["integer"]
        if head["insert"] is not None:
            if match["bracket"] is not None:
                depth += 1 if match["bracket"] == "(" else -1
            elif match["word"] is not None and depth == 0:  # the end of the rows
                depth = -CHARS_MAX
            if depth != 1:
                literal = None
        if literal is None or literal == _AFTER_LARGEST_INT4:
            return match[0]
        if match[0][0] in "-+" and len(match[0]) > len(literal) and _is_sign(match.string, match.start()):
            return match[0]  # the value is that of both, and may be a key
        literals.append(literal)
        small = -(1 << 31) <= int(literal) < 1 << 31 if groups["string"] is None else False
        types.append(None if groups["string"] is not None else INT4 if small else INT8)
        return f"{match[0][: -len(literal)]}${len(literals)}"

    if head["insert"] is None:
        shared = _IN_EXPRESSIONS.sub(replaced, text)
    else:
        shared = text[: head.end()] + _IN_ROWS.sub(replaced, text[head.end() :])
    if not 0 < len(literals) <= LITERALS_MAX or _LITERAL.search(shared):
        return None
    return SharedText(shared, tuple(types), tuple(literals))


def _is_sign(text: str, at: int) -> bool:
    """Whether the - or + at a position has no left operand."""
    return _BEFORE_SIGN.search(text, max(0, at - 16), at) is not None
