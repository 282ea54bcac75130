"""Writes a tree as a pattern for Java and the package `regex` (`pattern_text`), or for RE2 (`re2_text`).

Java and `regex` agree on the syntax that is used, except for the end of the text.
"""

from __future__ import annotations

from server.sql.regex.tree import (
    BEGIN,
    END,
    Alternation,
    Anchor,
    BackReference,
    CharacterClass,
    Group,
    Lookaround,
    Node,
    Repeat,
    Sequence,
)

_WORD = "[0-9A-Za-z_]"
WORD_ANCHORS = {
    "m": f"(?<!{_WORD})(?={_WORD})", "M": f"(?<={_WORD})(?!{_WORD})",
    "y": f"(?:(?<!{_WORD})(?={_WORD})|(?<={_WORD})(?!{_WORD}))",
    "Y": f"(?:(?<!{_WORD})(?!{_WORD})|(?<={_WORD})(?={_WORD}))",
}  # fmt: skip
LINE_BEGIN, LINE_END = "(?:\\A|(?<=\\n))", "(?:\\z|(?=\\n))"
_IN_RE2 = {
    LINE_BEGIN: "(?m:^)",
    LINE_END: "(?m:$)",
    WORD_ANCHORS["y"]: "\\b",
    WORD_ANCHORS["Y"]: "\\B",
    BEGIN: BEGIN,
    END: END,
}


def character_text(character: str) -> str:
    """A character in the syntax of Java, RE2 and the package `regex`, valid inside and outside brackets."""
    if character.isascii() and not character.isalnum() and character != "_":
        return f"\\x{ord(character):02x}" if character < " " or character == "\x7f" else "\\" + character
    return character


def pattern_text(node: Node) -> str:
    """The pattern for Java and the package `regex`."""
    match node:
        case CharacterClass(text=text) | Anchor(text=text):
            return text
        case Lookaround(inner=inner, behind=behind, negated=negated):
            return f"(?{'<' if behind else ''}{'!' if negated else '='}{pattern_text(inner)})"
        case BackReference(group=group):
            return f"(?:\\{group})"
        case Group(inner=inner):
            return f"({pattern_text(inner)})"
        case Sequence(items=items):
            nested = (Alternation, Sequence)
            texts = ((isinstance(item, nested), pattern_text(item)) for item in items)
            return "".join(f"(?:{text})" if is_nested else text for is_nested, text in texts)
        case Alternation(branches=branches):
            return "|".join(map(pattern_text, branches))
        case Repeat(inner=inner, least=least, most=most):
            repeated = inner.text if isinstance(inner, CharacterClass) else f"(?:{pattern_text(inner)})"
            return f"{repeated}{{{least},{'' if most is None else most}}}"


def re2_text(node: Node, *, with_groups: bool = False) -> str | None:
    """As `pattern_text`, for RE2; None if RE2 does not support the pattern. Without groups unless `with_groups`."""

    def written(node: Node) -> str | None:
        return re2_text(node, with_groups=with_groups)

    match node:
        case CharacterClass(text=text):
            return text
        case Anchor(text=text):
            return _IN_RE2.get(text)
        case Group(inner=inner):
            grouped = written(inner)
            return f"({grouped})" if grouped is not None and with_groups else grouped
        case Sequence(items=items):
            texts = [written(item) for item in items]
            return None if None in texts else "".join(f"(?:{text})" for text in texts)
        case Alternation(branches=branches):
            texts = [written(branch) for branch in branches]
            return None if None in texts else "|".join(texts)  # type: ignore[arg-type]
        case Repeat(inner=inner, least=least, most=most):
            repeated = written(inner)
            return None if repeated is None else f"(?:{repeated}){{{least},{'' if most is None else most}}}"
    return None
