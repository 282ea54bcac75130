"""Patterns of which each character of a text can match one place only, so that all engines agree on the match.

In such a pattern (a one-unambiguous or deterministic regular expression), the next character decides between the
branches of an alternation, and between another repetition and what follows it. From one start there is a single way to
match a text of a given length. Then the longest match, which PostgreSQL and RE2 find, is the first that a backtracking
engine finds if all quantifiers are greedy, and there is one way to divide it among groups.

Source: A. Brüggemann-Klein and D. Wood, One-Unambiguous Regular Languages, 1998.
"""

from __future__ import annotations

from itertools import product

import regex

from server.sql.regex.tree import Alternation, Anchor, CharacterClass, Group, Node, Repeat, Sequence, captures

PAIRS_MAX = 2_000  # of characters and classes that are compared, which takes about 2 ms

_First = frozenset[str]  # the texts of the classes with which a match can begin


def is_deterministic(root: Node) -> bool:
    """Whether each text can match in one way only. May be False for patterns of which this is hard to see."""
    return _Choices().are_decided(root, frozenset(), True)


def has_unconditional_groups(node: Node) -> bool:
    """Whether every group is part of every match."""
    match node:
        case Group(inner=inner):
            return has_unconditional_groups(inner)
        case Sequence(items=items):
            return all(map(has_unconditional_groups, items))
    return not captures(node)


class _Choices:
    """Examines the choices in a pattern."""

    def __init__(self) -> None:
        self._pairs_left = PAIRS_MAX

    def are_decided(self, node: Node, following: _First, may_end: bool) -> bool:
        """Whether the next character decides every choice in the node.

        `following`: what can match directly after the node. `may_end`: whether the match can end directly after it.
        """
        match node:
            case CharacterClass() | Anchor():
                return True
            case Group(inner=inner):
                return self.are_decided(inner, following, may_end)
            case Sequence(items=items):
                for item in reversed(items):
                    if not self.are_decided(item, following, may_end):
                        return False
                    is_optional = _is_nullable(item)
                    following = _first(item) | (following if is_optional else frozenset())
                    may_end = may_end and is_optional
                return True
            case Alternation(branches=branches):
                seen: _First = frozenset()
                for branch in branches:
                    first = _first(branch)
                    if not self._are_disjoint(first, seen) or not self.are_decided(branch, following, may_end):
                        return False
                    seen |= first
                empty = sum(map(_is_nullable, branches))
                # A backtracking engine would prefer an empty branch to longer ones that come later.
                return empty == 0 or (empty == 1 and not may_end and self._are_disjoint(seen, following))
            case Repeat(inner=inner, least=least, most=most, short=short):
                once = most == 1
                if short or _is_nullable(inner) or (captures(inner) and not once):
                    return False
                first = _first(inner)
                if least != most and not self._are_disjoint(first, following):
                    return False
                return self.are_decided(inner, following if once else following | first, may_end)
        return False  # lookaround and back references

    def _are_disjoint(self, some: _First, others: _First) -> bool:
        """Whether no character is in two of the classes. At least one class of each pair must be a single character."""
        self._pairs_left -= len(some) * len(others)
        return self._pairs_left >= 0 and all(_is_disjoint(a, b) for a, b in product(some, others))


def _is_nullable(node: Node) -> bool:
    match node:
        case CharacterClass():
            return False
        case Group(inner=inner):
            return _is_nullable(inner)
        case Sequence(items=items):
            return all(map(_is_nullable, items))
        case Alternation(branches=branches):
            return any(map(_is_nullable, branches))
        case Repeat(inner=inner, least=least):
            return least == 0 or _is_nullable(inner)
    return True


def _first(node: Node) -> _First:
    match node:
        case CharacterClass(text=text):
            return frozenset((text,))
        case Group(inner=inner) | Repeat(inner=inner):
            return _first(inner)
        case Sequence(items=items):
            found: _First = frozenset()
            for item in items:
                found |= _first(item)
                if not _is_nullable(item):
                    break
            return found
        case Alternation(branches=branches):
            return frozenset().union(*map(_first, branches))
    return frozenset()


def _is_disjoint(one: str, other: str) -> bool:
    a, b = _character(one), _character(other)
    if a is not None and b is not None:
        return a != b
    return (a is not None and not _contains(other, a)) or (b is not None and not _contains(one, b))


def _contains(text: str, character: str) -> bool:
    return regex.fullmatch(text, character, regex.VERSION0 | regex.ASCII) is not None


def _character(text: str) -> str | None:
    """The only character of a class; None if it has several."""
    if len(text) == 1:
        return text
    if text.startswith("\\x"):
        return chr(int(text[2:], 16))
    return text[1] if len(text) == 2 and text[0] == "\\" and not text[1].isalnum() else None
