"""PostgreSQL's regular expressions, and the texts that they match; `regex_tree` reads them.

    Regex.test(text)        whether it matches anywhere: Python's `re`, or Java's in Spark, find that out (`java`)
    Regex.find(text, at)    where: PostgreSQL takes the longest match (or the shortest, by the first quantifier) of
                            those that begin first, and shares it out from left to right among the parentheses

`re` and Java take the first alternative that leads to a match, so what is matched is found here: `_Matcher.ends` has
all ends of a node from one place. Back references in such searches are refused (0A000), long texts too (54000).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from protocol.pgwire.errors import PgError, SqlState
from server.sql.regex_tree import (
    END,
    Either,
    Group,
    Here,
    Look,
    Node,
    One,
    Parser,
    Repeat,
    Sequence,
    captures,
    shorter,
    spelled,
    unsupported,
)

TEXT_MAX = 20_000  # characters in which `find` looks


@dataclass(frozen=True)
class Match:
    """`spans[0]` is the match, the others are the groups; None for a group that took no part."""

    spans: tuple[tuple[int, int] | None, ...]


class Regex:
    def __init__(self, pattern: str, flags: str) -> None:
        parser = Parser(pattern, flags)
        self.root = parser.parse()
        self.groups = parser.groups
        self._has_back = parser.has_back
        self._flags = re.ASCII | (re.IGNORECASE if parser.insensitive else 0)
        self._insensitive = parser.insensitive
        self._text = spelled(self.root)
        try:
            self._quick = re.compile(self._text.replace(END, "\\Z"), self._flags)
        except (re.error, OverflowError, RecursionError):
            raise unsupported("this construct") from None
        self._shorter = bool(shorter(self.root))

    @property
    def java(self) -> str:
        """The same texts match this in Java."""
        return ("(?i)" if self._insensitive else "") + self._text

    def test(self, text: str) -> bool:
        return self._quick.search(text) is not None

    def find(self, text: str, start: int = 0) -> Match | None:
        """The match that begins first at `start` or behind it."""
        rough = self._quick.search(text, start)
        if rough is None:
            return None
        if self._has_back:
            raise unsupported("a back reference, where the matched text is wanted,")
        if len(text) > TEXT_MAX:
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, "text too long for a search by regular expression")
        matcher = _Matcher(text, self._flags)
        begin = rough.start()
        ends = matcher.ends(self.root, begin)
        end = min(ends) if self._shorter else max(ends)
        spans: list[tuple[int, int] | None] = [(begin, end)] + [None] * self.groups
        if self.groups:
            matcher.share(self.root, begin, end, spans)
        return Match(tuple(spans))

    def find_all(self, text: str, start: int = 0) -> Iterator[Match]:
        """One after the other; an empty match moves one character on."""
        while start <= len(text):
            match = self.find(text, start)
            if match is None:
                return
            yield match
            begin, end = match.spans[0] or (0, 0)
            start = end + (begin == end)


@lru_cache(1024)
def compiled(pattern: str, flags: str = "") -> Regex:
    return Regex(pattern, flags)


@lru_cache(4096)
def _one(text: str, flags: int) -> re.Pattern[str]:
    return re.compile(text.replace(END, "\\Z"), flags)


@dataclass
class _Matcher:
    """One text. `_known`: the ends of a node from a place, found once."""

    text: str
    flags: int
    _known: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)

    def ends(self, node: Node, at: int) -> frozenset[int]:
        """Where matches of `node` that begin at `at` can end."""
        key = (id(node), at)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = frozenset(self._ends(node, at))
        return known

    def _ends(self, node: Node, at: int) -> set[int] | frozenset[int]:
        match node:
            case One(text=text):
                return {at + 1} if _one(text, self.flags).match(self.text, at) else set()
            case Here(text=text):
                return {at} if _one(text, self.flags).match(self.text, at) else set()
            case Look(inner=inner, behind=behind, negated=negated):
                if behind:
                    found = any(at in self.ends(inner, start) for start in range(at + 1))
                else:
                    found = bool(self.ends(inner, at))
                return {at} if found != negated else set()
            case Group(inner=inner):
                return self.ends(inner, at)
            case Sequence(items=items):
                return self._after(items, at)
            case Either(branches=branches):
                return {end for branch in branches for end in self.ends(branch, at)}
            case Repeat(inner=inner, least=least, most=most):
                return self._repeated(inner, at, least, most)
        raise AssertionError(node)

    def _after(self, items: tuple[Node, ...], at: int) -> set[int]:
        places = {at}
        for item in items:
            places = {end for place in places for end in self.ends(item, place)}
        return places

    def _repeated(self, inner: Node, at: int, least: int, most: int | None) -> set[int]:
        places = {at}
        for _ in range(least):
            places = {end for place in places for end in self.ends(inner, place)}
        found, count = set(places), least
        while places and (most is None or count < most):
            places = {end for place in places for end in self.ends(inner, place)} - found
            found |= places
            count += 1
        return found

    # -- the parentheses --------------------------------------------------------------------------------------------

    def share(self, node: Node, begin: int, end: int, spans: list[tuple[int, int] | None]) -> bool:
        """Gives the groups inside `node`, which matches from `begin` to `end`, their parts."""
        match node:
            case Group(inner=inner, number=number):
                if not self.share(inner, begin, end, spans):
                    return False
                spans[number] = (begin, end)
                return True
            case Sequence(items=items):
                return self._share_items(items, begin, end, spans)
            case Either(branches=branches):
                return any(end in self.ends(b, begin) and self.share(b, begin, end, spans) for b in branches)
            case Repeat(inner=inner, least=least, most=most) if captures(inner):
                return self._share_repeat(inner, begin, end, least, most, bool(shorter(node)), spans)
        return end in self.ends(node, begin)

    def _share_items(self, items: tuple[Node, ...], begin: int, end: int, spans: list[tuple[int, int] | None]) -> bool:
        if not any(map(captures, items)):
            return end in self._after(items, begin)
        first, rest = items[0], items[1:]
        for middle in sorted(self.ends(first, begin), reverse=not shorter(first)):
            if middle <= end and end in self._after(rest, middle):
                kept = list(spans)
                if self.share(first, begin, middle, spans) and self._share_items(rest, middle, end, spans):
                    return True
                spans[:] = kept
        return False

    def _share_repeat(
        self, inner: Node, begin: int, end: int, least: int, most: int | None, short: bool,
        spans: list[tuple[int, int] | None],
    ) -> bool:  # fmt: skip
        """As PostgreSQL: x{m,n} with m > 0 is x{m-1,n-1}x, of which only the last x has groups. Rounds of x{0,n} take
        as much as they can one after the other; the groups show what the last one took."""
        if least > 0:
            before = self._repeated(inner, begin, least - 1, None if most is None else most - 1)
            for middle in sorted(before, reverse=not short):
                if end in self.ends(inner, middle) and self.share(inner, middle, end, spans):
                    return True
            return False
        if begin == end:  # one empty round, if that is possible
            return begin not in self.ends(inner, begin) or self.share(inner, begin, begin, spans)
        feasible = self._before(inner, begin, end) if most is None else None
        while most is None or most > 0:
            most = None if most is None else most - 1
            for middle in sorted(self.ends(inner, begin), reverse=not shorter(inner)):
                if middle == end:
                    return self.share(inner, begin, middle, spans)
                if begin < middle < end and (
                    middle in feasible if feasible is not None else end in self._repeated(inner, middle, 0, most)
                ):
                    begin = middle
                    break
            else:
                return False
        return False

    def _before(self, inner: Node, begin: int, end: int) -> set[int]:
        """The places from which rounds of `inner` lead to `end`."""
        found = {end}
        for place in range(end - 1, begin, -1):
            if not found.isdisjoint(self.ends(inner, place)):
                found.add(place)
        return found
