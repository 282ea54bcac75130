"""PostgreSQL's regular expressions: matching, positions of matches, and captured groups.

    Regex.test(text)        whether the pattern matches anywhere
    Regex.find(text, at)    the first match. Of the matches with the same start, PostgreSQL takes the longest, or the
                            shortest if the first quantifier is non-greedy. Groups are matched from left to right.

Three engines are used, because the client controls the cost of a match:

- RE2 searches in time linear in the text. It is used for patterns without lookaround and back references, and finds
  the leftmost-longest match.
- The package `regex` backtracks. It is used for all other patterns, with a time limit per search (`SEARCH_S_MAX`).
- `_Matcher` assigns parts of a match to groups and finds shortest matches. Neither library does this as PostgreSQL
  does. The number of positions that it visits is limited (`PLACES_MAX`).

A search that exceeds a limit raises 54000. `regex_tree` parses patterns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import re2
import regex

from protocol.pgwire.errors import PgError, SqlState
from server.sql.regex.tree import (
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
    is_linear_when_backtracking,
    re2_text,
    shorter,
    spelled,
    unsupported,
)

SEARCH_S_MAX = 5.0
PLACES_MAX = 2_000_000


@dataclass(frozen=True)
class Match:
    """`spans[0]` is the span of the match, the others are those of the groups; None for a group that did not match."""

    spans: tuple[tuple[int, int] | None, ...]


class Regex:
    def __init__(self, pattern: str, flags: str) -> None:
        parser = Parser(pattern, flags)
        self.root = parser.parse()
        self.groups = parser.groups
        self._has_back = parser.has_back
        self.insensitive = parser.insensitive
        self._text = spelled(self.root)
        self._shorter = bool(shorter(self.root))
        if self.linear is None:
            _ = self.backtracking  # raises an error if neither engine supports the pattern

    @property
    def java(self) -> str | None:
        """A Java pattern that matches the same texts; None if Java's backtracking could be slow for some text."""
        if not is_linear_when_backtracking(self.root):
            return None
        return ("(?i)" if self.insensitive else "") + self._text

    def test(self, text: str) -> bool:
        return _Search(self, text).at(0) is not None

    def find(self, text: str, start: int = 0) -> Match | None:
        """The first match that starts at or after `start`."""
        return next(self.find_all(text, start), None)

    def find_all(self, text: str, start: int = 0) -> Iterator[Match]:
        """Successive matches. After an empty match the search continues one character later."""
        search = _Search(self, text)
        while start <= len(text):
            found = search.at(start)
            if found is None:
                return
            if self._has_back:
                raise unsupported("a back reference, where the matched text is wanted,")
            begin, longest = found
            matcher = _Matcher(text, self._flags)
            if longest is None or self._shorter:
                ends = matcher.ends(self.root, begin)
                end = min(ends) if self._shorter else max(ends)
            else:
                end = longest
            spans: list[tuple[int, int] | None] = [(begin, end)] + [None] * self.groups
            if self.groups:
                matcher.share(self.root, begin, end, spans)
            yield Match(tuple(spans))
            start = end + (begin == end)

    @property
    def _flags(self) -> int:
        return int(regex.VERSION0 | regex.ASCII | (regex.IGNORECASE if self.insensitive else 0))

    @cached_property
    def linear(self) -> re2._Regexp | None:
        """The pattern compiled by RE2; None if RE2 does not support it."""
        text = re2_text(self.root)
        if text is None or (self.insensitive and not text.isascii()):
            return None
        options = re2.Options()
        options.longest_match = True
        options.never_capture = True
        options.case_sensitive = not self.insensitive
        options.log_errors = False
        try:
            return re2.compile(text, options)
        except re2.error:  # for example because the automaton is too large
            return None

    @cached_property
    def backtracking(self) -> regex.Pattern[str]:
        try:
            return regex.compile(self._text.replace(END, "\\Z"), self._flags)
        except (regex.error, OverflowError, RecursionError):
            raise unsupported("this construct") from None


class _Search:
    """Searches in one text. The start positions must not decrease."""

    def __init__(self, pattern: Regex, text: str) -> None:
        self._text = text
        # RE2 folds the case of all letters, PostgreSQL in the locale C only of ASCII letters.
        self._linear = pattern.linear if text.isascii() or not pattern.insensitive else None
        self._pattern = pattern
        self._bytes = text.encode() if self._linear is not None else b""
        self._character = self._byte = 0  # the same position in the text and in its bytes

    def at(self, start: int) -> tuple[int, int | None] | None:
        """The start of the first match at or after `start`, and the end of the longest match from there.

        The end is None if the engine does not find the longest match. 54000 after SEARCH_S_MAX.
        """
        if self._linear is None:
            try:
                found = self._pattern.backtracking.search(self._text, start, timeout=SEARCH_S_MAX)
            except TimeoutError:
                raise _too_expensive() from None
            return None if found is None else (found.start(), None)
        if self._text.isascii():
            match = self._linear.search(self._bytes, start)
            return None if match is None else match.span()
        self._byte += len(self._text[self._character : start].encode())
        self._character = start
        match = self._linear.search(self._bytes, self._byte)
        if match is None:
            return None
        low, high = match.span()
        begin = start + len(self._bytes[self._byte : low].decode())
        return begin, begin + len(self._bytes[low:high].decode())


def _too_expensive() -> PgError:
    return PgError(
        SqlState.PROGRAM_LIMIT_EXCEEDED,
        "regular expression is too expensive for this text",
        hint="Avoid nested quantifiers, lookaround and back references, or match shorter texts.",
    )


@lru_cache(1024)
def compiled(pattern: str, flags: str = "") -> Regex:
    return Regex(pattern, flags)


@lru_cache(4096)
def _one(text: str, flags: int) -> regex.Pattern[str]:
    return regex.compile(text.replace(END, "\\Z"), flags)


@dataclass
class _Matcher:
    """Matches parts of a pattern in one text. `_known` caches the ends of a node's matches from a position."""

    text: str
    flags: int
    _known: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    _places: int = 0

    def ends(self, node: Node, at: int) -> frozenset[int]:
        """The possible ends of matches of `node` that start at `at`. 54000 after PLACES_MAX positions."""
        key = (id(node), at)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = frozenset(self._ends(node, at))
            self._visited(len(known) + 1)
        return known

    def _visited(self, places: int) -> None:
        self._places += places
        if self._places > PLACES_MAX:
            raise _too_expensive()

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
            self._visited(len(places))
        return found

    # -- capturing groups -------------------------------------------------------------------------------------------

    def share(self, node: Node, begin: int, end: int, spans: list[tuple[int, int] | None]) -> bool:
        """Sets the spans of the groups inside `node` for a match from `begin` to `end`. False if there is none."""
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
        """As PostgreSQL: x{m,n} with m > 0 is x{m-1,n-1}x, of which only the last x has groups.

        The iterations of x{0,n} are matched one after the other, each as long as possible (as short as possible if x
        prefers that); the groups are those of the last iteration.
        """
        if least > 0:
            before = self._repeated(inner, begin, least - 1, None if most is None else most - 1)
            for middle in sorted(before, reverse=not short):
                if end in self.ends(inner, middle) and self.share(inner, middle, end, spans):
                    return True
            return False
        if begin == end:  # one empty iteration, if that is possible
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
        """The positions after `begin` from which iterations of `inner` can reach `end`."""
        found = {end}
        for place in range(end - 1, begin, -1):
            if not found.isdisjoint(self.ends(inner, place)):
                found.add(place)
        return found
