"""Parser of PostgreSQL's regular expressions (ARE; manual, 9.7.3). `Parser.parse` returns a tree of nodes.

Raises 2201B for patterns that PostgreSQL rejects and 0A000 for unsupported constructs. The character classes are those
of the locale C.
"""

from __future__ import annotations

import re

from protocol.pgwire.errors import PgError, SqlState
from server.sql.regex.spelling import LINE_BEGIN, LINE_END, WORD_ANCHORS, character_text
from server.sql.regex.tree import (
    BEGIN,
    END,
    SIZE_MAX,
    Alternation,
    Anchor,
    BackReference,
    CharacterClass,
    Group,
    Lookaround,
    Node,
    Repeat,
    Sequence,
    size,
)

_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": "\\x01-\\x7f", "blank": "\\ \\t", "cntrl": "\\x01-\\x1f\\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": "\\ -~", "punct": "!-/:-@\\[-`{-~",
    "space": "\\t-\\r\\ ", "upper": "A-Z", "xdigit": "0-9A-Fa-f", "word": "0-9A-Za-z_",
}  # fmt: skip
_ESCAPED_CLASSES = {"d": "digit", "s": "space", "w": "word"}
_CHARACTERS = {"a": "\a", "b": "\b", "B": "\\", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NAMES = {"tab": "\t", "newline": "\n", "space": " ", "hyphen": "-", "period": ".", "NUL": "\0"}
_BOUNDS = re.compile(r"([0-9]+)(,([0-9]*))?\}")
_REPEATS_MAX = 255


def _count(digits: str) -> int:
    """The number that the digits denote, or one that is too large, too."""
    return int(digits.lstrip("0")[:4] or 0)


def _invalid(reason: str) -> PgError:
    return PgError(SqlState.INVALID_REGULAR_EXPRESSION, f"invalid regular expression: {reason}")


def unsupported(what: str, *, hint: str) -> PgError:
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} in a regular expression is not supported", hint=hint)


class Parser:
    def __init__(self, pattern: str, flags: str) -> None:
        self.pattern, self.at = pattern, 0
        self.groups = 0
        self.closed: set[int] = set()
        self.has_back_reference = False
        self.insensitive = self.literal = self.expanded = False
        self.dot_stops = self.lines = False  # newline-sensitive: the dot, the anchors
        self.options(flags)
        if pattern.startswith("***="):
            self.at, self.literal = 4, True
        elif pattern.startswith("***"):
            if not pattern.startswith("***:"):
                raise _invalid("quantifier operand invalid")
            self.at = 4
        if not self.literal and (embedded := re.compile(r"\(\?([a-zA-Z]+)\)").match(pattern, self.at)):
            if not set(embedded[1]) <= set("bceimnpqstwx"):
                raise _invalid("invalid embedded option")
            self.options(embedded[1])
            self.at = embedded.end()

    def options(self, letters: str) -> None:
        for letter in letters:
            match letter:
                case "i":
                    self.insensitive = True
                case "c":
                    self.insensitive = False
                case "n" | "m":
                    self.dot_stops = self.lines = True
                case "p":
                    self.dot_stops, self.lines = True, False
                case "w":
                    self.dot_stops, self.lines = False, True
                case "s":
                    self.dot_stops = self.lines = False
                case "q":
                    self.literal = True
                case "x":
                    self.expanded = True
                case "t":
                    self.expanded = False
                case "b" | "e":
                    raise unsupported(
                        f'option "{letter}"', hint="Use the options i, n, p, w, x or q of advanced regular expressions."
                    )
                case _:
                    raise PgError(SqlState.INVALID_PARAMETER_VALUE, f'invalid regular expression option: "{letter}"')

    def parse(self) -> Node:
        if self.literal:
            node: Node = Sequence(tuple(self._literal(c) for c in self.pattern[self.at :]))
        else:
            node = self._alternation(0)
        if self.at < len(self.pattern) and not self.literal:
            raise _invalid("parentheses () not balanced")
        if size(node) > SIZE_MAX:
            raise _invalid("regular expression is too complex")
        return node

    def _literal(self, character: str) -> Node:
        return CharacterClass(character_text(character))

    @property
    def _next(self) -> str:
        if self.expanded:
            while (match := re.compile(r"[ \t-\r]+|#[^\n]*").match(self.pattern, self.at)) is not None:
                self.at = match.end()
        while self.pattern.startswith("(?#", self.at):
            end = self.pattern.find(")", self.at)
            if end < 0:
                raise _invalid("parentheses () not balanced")
            self.at = end + 1
        return self.pattern[self.at : self.at + 1]

    def _alternation(self, depth: int) -> Node:
        if depth > 60:
            raise _invalid("regular expression is too complex")
        branches = [self._branch(depth)]
        while self._next == "|":
            self.at += 1
            branches.append(self._branch(depth))
        if depth == 0 and self._next == ")":
            raise _invalid("parentheses () not balanced")
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def _branch(self, depth: int) -> Node:
        items: list[Node] = []
        while (character := self._next) and character not in "|)":
            atom = self._atom(depth)
            items.append(atom if isinstance(atom, (Anchor, Lookaround)) else self._quantified(atom))
        return Sequence(tuple(items))

    def _quantified(self, atom: Node) -> Node:
        character, fixed = self._next, False
        least: int = 1
        most: int | None = None
        match character:
            case "*":
                least = 0
            case "+":
                pass
            case "?":
                least, most = 0, 1
            case "{" if self.pattern[self.at + 1 : self.at + 2].isdigit():
                bounds = _BOUNDS.match(self.pattern, self.at + 1)
                if bounds is None:
                    raise _invalid("invalid repetition count(s)")
                least = _count(bounds[1])
                fixed = bounds[2] is None
                most = least if fixed else _count(bounds[3]) if bounds[3] else None
                if least > _REPEATS_MAX or (most is not None and not least <= most <= _REPEATS_MAX):
                    raise _invalid("invalid repetition count(s)")
                self.at = bounds.end() - 1
            case _:
                return atom
        self.at += 1
        short = self._next == "?"
        self.at += short
        following = self._next
        if following and (
            following in "*+?" or (following == "{" and self.pattern[self.at + 1 : self.at + 2].isdigit())
        ):
            raise _invalid("quantifier operand invalid")
        return Repeat(atom, least, most, None if fixed else short)

    def _atom(self, depth: int) -> Node:
        character = self._next
        self.at += 1
        match character:
            case "(":
                return self._parenthesis(depth)
            case "[":
                return self._bracket()
            case ".":
                return CharacterClass("[^\\n]" if self.dot_stops else "[\\s\\S]")
            case "^":
                return Anchor(LINE_BEGIN if self.lines else BEGIN)
            case "$":
                return Anchor(LINE_END if self.lines else END)
            case "*" | "+" | "?":
                raise _invalid("quantifier operand invalid")
            case "{" if self.pattern[self.at : self.at + 1].isdigit():
                raise _invalid("quantifier operand invalid")
            case "\\":
                return self._escape()
        return self._literal(character)

    def _parenthesis(self, depth: int) -> Node:
        for opening, behind, negated in (("?=", False, False), ("?!", False, True), ("?<=", True, False),
                                         ("?<!", True, True)):  # fmt: skip
            if self.pattern.startswith(opening, self.at):
                self.at += len(opening)
                groups = self.groups
                inner = self._closed(depth)
                if self.groups > groups:
                    raise unsupported(
                        "a group inside a lookaround constraint", hint="Write the group without capturing: (?:...)."
                    )
                return Lookaround(inner, behind, negated)
        if self.pattern.startswith("?:", self.at):
            self.at += 2
            return self._closed(depth)
        if self._next == "?":
            raise _invalid("quantifier operand invalid")
        self.groups += 1
        number = self.groups
        inner = self._closed(depth)
        self.closed.add(number)
        return Group(inner, number)

    def _closed(self, depth: int) -> Node:
        inner = self._alternation(depth + 1)
        if self._next != ")":
            raise _invalid("parentheses () not balanced")
        self.at += 1
        return inner if isinstance(inner, (Alternation, Sequence)) else Sequence((inner,))

    def _escape(self) -> Node:
        following = self.pattern[self.at : self.at + 1]
        if not following:
            raise _invalid("invalid escape \\ sequence")
        if following in WORD_ANCHORS:
            self.at += 1
            return Anchor(WORD_ANCHORS[following])
        if following in "AZ":
            self.at += 1
            return Anchor(BEGIN if following == "A" else END)
        if following.lower() in _ESCAPED_CLASSES:
            self.at += 1
            negation = "^" if following.isupper() else ""
            stop = "\\n" if negation and self.dot_stops else ""
            return CharacterClass(f"[{negation}{_CLASSES[_ESCAPED_CLASSES[following.lower()]]}{stop}]")
        digits = re.compile(r"[1-9][0-9]*").match(self.pattern, self.at)
        if digits is not None and (len(digits[0]) == 1 or int(digits[0]) <= self.groups):
            if int(digits[0]) not in self.closed:
                raise _invalid("invalid backreference number")
            self.at = digits.end()
            self.has_back_reference = True
            return BackReference(int(digits[0]))
        return self._literal(self._escaped_character())

    def _escaped_character(self) -> str:
        """The character that an escape denotes. The backslash has already been read."""
        following = self.pattern[self.at]
        self.at += 1
        if following in _CHARACTERS:
            return _CHARACTERS[following]
        if following == "c" and self.at < len(self.pattern):
            self.at += 1
            return chr(ord(self.pattern[self.at - 1]) & 0x1F)
        for letter, form, base in (("u", "[0-9a-fA-F]{4}", 16), ("U", "[0-9a-fA-F]{8}", 16),
                                   ("x", "[0-9a-fA-F]{1,255}", 16), ("01234567", "[0-7]{0,2}", 8)):  # fmt: skip
            if following in letter:
                start = self.at - 1 if base == 8 else self.at
                digits = re.compile("[0-7]{1,3}" if base == 8 else form).match(self.pattern, start)
                if digits is None:
                    raise _invalid("invalid escape \\ sequence")
                code = int(digits[0], base)
                self.at = digits.end()
                if not 0 < code <= 0x10FFFF:
                    raise _invalid("invalid escape \\ sequence")
                return chr(code)
        if following.isascii() and following.isalnum():
            raise _invalid("invalid escape \\ sequence")
        return following

    def _bracket(self) -> Node:
        for word, kind in (("[:<:]]", "m"), ("[:>:]]", "M")):
            if self.pattern.startswith(word, self.at):
                self.at += len(word)
                return Anchor(WORD_ANCHORS[kind])
        out = []
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        first = True
        while first or not self.pattern.startswith("]", self.at):
            out.append(self._bracket_item(first))
            first = False
        self.at += 1
        if negated and self.dot_stops:
            out.append("\\n")
        return CharacterClass(f"[{'^' if negated else ''}{''.join(out)}]")

    def _bracket_item(self, first: bool) -> str:
        pattern = self.pattern
        if pattern.startswith("[:", self.at):
            end = pattern.find(":]", self.at)
            name = pattern[self.at + 2 : end]
            if end < 0 or name not in _CLASSES:
                raise _invalid("invalid character class")
            self.at = end + 2
            return _CLASSES["alpha" if self.insensitive and name in ("upper", "lower") else name]
        if pattern.startswith("\\", self.at) and (name := pattern[self.at + 1 : self.at + 2]) in _ESCAPED_CLASSES:
            self.at += 2
            return _CLASSES[_ESCAPED_CLASSES[name]]
        if pattern.startswith("-", self.at) and not first and not pattern.startswith("-]", self.at):
            raise _invalid("invalid character range")
        low = self._bracket_character()
        if pattern.startswith("-", self.at) and not pattern.startswith("-]", self.at):
            self.at += 1
            high = self._bracket_character()
            if high < low:
                raise _invalid("invalid character range")
            return f"{character_text(low)}-{character_text(high)}"
        return character_text(low)

    def _bracket_character(self) -> str:
        pattern = self.pattern
        for opening, closing in (("[.", ".]"), ("[=", "=]")):
            if pattern.startswith(opening, self.at):
                end = pattern.find(closing, self.at + 2)
                name = pattern[self.at + 2 : end] if end > 0 else ""
                character = name if len(name) == 1 else _NAMES.get(name, "")
                if not character:
                    raise _invalid("invalid collating element")
                self.at = end + 2
                return character
        character = pattern[self.at : self.at + 1]
        if not character:
            raise _invalid("brackets [] not balanced")
        self.at += 1
        if character == "\\":
            if self.at >= len(pattern):
                raise _invalid("invalid escape \\ sequence")
            if pattern[self.at] in "DSWAZmMyY" or pattern[self.at] in "123456789":
                raise _invalid("invalid escape \\ sequence")
            return self._escaped_character()
        return character
