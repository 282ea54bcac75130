"""The tree of a regular expression, and what its form says about matches."""

from __future__ import annotations

import math
from dataclasses import dataclass

BEGIN, END = "\\A", "\\z"  # the start and the end of the text, in Java and RE2
SIZE_MAX = 20_000  # the greatest `size` of a pattern
CHOICES_MAX = 64


@dataclass(frozen=True, eq=False)
class CharacterClass:
    """One character of a class. `text` is the class in the syntax of Java, RE2 and the package `regex`."""

    text: str


@dataclass(frozen=True, eq=False)
class Anchor:
    """A condition on the position: the start or end of the text or of a line, or a word boundary."""

    text: str


@dataclass(frozen=True, eq=False)
class Lookaround:
    inner: Node
    behind: bool
    negated: bool


@dataclass(frozen=True, eq=False)
class BackReference:
    """A back reference."""

    group: int


@dataclass(frozen=True, eq=False)
class Group:
    inner: Node
    number: int


@dataclass(frozen=True, eq=False)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Alternation:
    branches: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """A quantifier. `most` None: no bound. `short`: non-greedy; None for {m}, which has the preference of `inner`."""

    inner: Node
    least: int
    most: int | None
    short: bool | None


Node = CharacterClass | Anchor | Lookaround | BackReference | Group | Sequence | Alternation | Repeat


def prefers_shorter(node: Node) -> bool | None:
    """Whether a node prefers short matches; None if it has no preference."""
    match node:
        case Group(inner=inner):
            return prefers_shorter(inner)
        case Sequence(items=items):
            return next((s for item in items if (s := prefers_shorter(item)) is not None), None)
        case Alternation():
            return False
        case Repeat(inner=inner, short=short):
            return prefers_shorter(inner) if short is None else short
    return None


def captures(node: Node) -> bool:
    match node:
        case Group():
            return True
        case Sequence(items=items):
            return any(map(captures, items))
        case Alternation(branches=branches):
            return any(map(captures, branches))
        case Repeat(inner=inner):
            return captures(inner)
    return False


def size(node: Node) -> int:
    """The number of atoms in the pattern after expanding counted repetitions."""
    match node:
        case Group(inner=inner) | Lookaround(inner=inner):
            return size(inner)
        case Sequence(items=items) | Alternation(branches=items):
            return sum(map(size, items))
        case Repeat(inner=inner, least=least, most=most):
            return size(inner) * max(least, most or 1)
    return 1


def is_linear_when_backtracking(root: Node) -> bool:
    """Whether a backtracking search takes time linear in the text for every text.

    There may be no unbounded repetition, except for one in a pattern that is anchored at the start of the text, or one
    at the end of the pattern, after which no match fails. What it repeats may match in only one way. In addition, the
    number of ways to match at one start must be at most CHOICES_MAX (see `_ways`).
    """
    choices, unbounded = _ways(root)
    if choices > CHOICES_MAX or unbounded > 1:
        return False
    return unbounded == 0 or _is_anchored(root) or _ends_with_repetition(root)


def _ends_with_repetition(node: Node) -> bool:
    """Whether the last thing to match is an unbounded repetition of single characters."""
    match node:
        case Group(inner=inner):
            return _ends_with_repetition(inner)
        case Sequence(items=items):
            return bool(items) and _ends_with_repetition(items[-1])
        case Repeat(inner=CharacterClass(), least=least, most=None):
            return least <= CHOICES_MAX
    return False


def _ways(node: Node) -> tuple[float, float]:
    """The number of ways to match from one position, ignoring unbounded repetitions, and the number of those."""
    match node:
        case CharacterClass() | Anchor():
            return 1, 0
        case Group(inner=inner):
            return _ways(inner)
        case Sequence(items=items):
            ways = [_ways(item) for item in items]
            return math.prod(choices for choices, _ in ways), sum(unbounded for _, unbounded in ways)
        case Alternation(branches=branches):
            ways = [_ways(branch) for branch in branches]
            return sum(choices for choices, _ in ways), max(unbounded for _, unbounded in ways)
        case Repeat(inner=inner, least=least, most=most):
            choices, unbounded = _ways(inner)
            if unbounded or (choices > 1 and most != 1):
                return math.inf, math.inf
            return (choices, 1) if most is None else (choices + most - least, 0)
    return math.inf, math.inf  # lookaround and back references


def _is_anchored(node: Node) -> bool:
    """Whether every match starts at the start of the text."""
    match node:
        case Anchor(text=text):
            return text == BEGIN
        case Group(inner=inner):
            return _is_anchored(inner)
        case Sequence(items=items):
            return bool(items) and _is_anchored(items[0])
        case Alternation(branches=branches):
            return all(map(_is_anchored, branches))
    return False
