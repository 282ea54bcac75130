"""PostgreSQL's regular expressions: matching, positions of matches, and captured groups.

    Regex.test(text)        whether the pattern matches anywhere
    Regex.find(text, at)    the first match. Of the matches with the same start, PostgreSQL takes the longest, or the
                            shortest if the first quantifier is non-greedy. Groups are matched from left to right.

Three engines are used, because the client controls the cost of a match:

- RE2 searches in time linear in the text. It is used for patterns without lookaround and back references, and finds
  the leftmost-longest match.
- The package `regex` backtracks. It is used for all other patterns, with a time limit per search (`SEARCH_S_MAX`).
- `matcher` assigns parts of a match to groups and finds shortest matches. Neither library does this as PostgreSQL
  does, except where a pattern matches in one way only (`determinism`). The number of positions that it visits is
  limited (`POSITIONS_MAX` there).

A search that exceeds a limit raises 54000. `parser` parses patterns, and `spelling` writes them for the engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import re2
import regex

from server.sql.cached_texts import cached_by_length
from server.sql.regex.determinism import has_unconditional_groups, is_deterministic
from server.sql.regex.matcher import Matcher, too_expensive
from server.sql.regex.parser import Parser, unsupported
from server.sql.regex.spelling import pattern_text, re2_text
from server.sql.regex.tree import END, is_linear_when_backtracking, prefers_shorter

SEARCH_S_MAX = 5.0


Spans = tuple[tuple[int, int], *tuple[tuple[int, int] | None, ...]]


@dataclass(frozen=True)
class Match:
    """`spans[0]` is the span of the match, the others are those of the groups; None for a group that did not match."""

    spans: Spans


class Regex:
    def __init__(self, pattern: str, flags: str) -> None:
        parser = Parser(pattern, flags)
        self.root = parser.parse()
        self.groups = parser.groups
        self._has_back_reference = parser.has_back_reference
        self.insensitive = parser.insensitive
        self._text = pattern_text(self.root)
        self._prefers_shorter = bool(prefers_shorter(self.root))
        if self.linear is None:
            _ = self.backtracking  # raises an error if neither engine supports the pattern

    @property
    def java(self) -> str | None:
        """A Java pattern that matches the same texts; None if Java's backtracking could be slow for some text."""
        if not is_linear_when_backtracking(self.root):
            return None
        return ("(?i)" if self.insensitive else "") + self._text

    @property
    def java_with_groups(self) -> str | None:
        """As `java`, of which each group also matches what PostgreSQL's does; None if this is not certain."""
        return self.java if self._is_deterministic and has_unconditional_groups(self.root) else None

    def test(self, text: str) -> bool:
        return _Search(self, self.linear, text).first_match(0) is not None

    def find(self, text: str, start: int = 0) -> Match | None:
        """The first match that starts at or after `start`."""
        return next(self.find_all(text, start), None)

    def find_all(self, text: str, start: int = 0) -> Iterator[Match]:
        """Successive matches. After an empty match the search continues one character later."""
        search = _Search(self, self.capturing or self.linear, text)
        while start <= len(text):
            spans = search.first_match(start)
            if spans is None:
                return
            if self._has_back_reference:
                raise unsupported(
                    "a back reference, where the matched text is wanted,",
                    hint="Test with the operator ~, which allows it, or write the pattern without \\1.",
                )
            if not (search.is_linear and self._is_deterministic):
                spans = self._divided(text, *spans[0], search.is_linear)
            yield Match(spans)
            begin, end = spans[0]
            start = end + (begin == end)

    def _divided(self, text: str, begin: int, end: int, is_longest: bool) -> Spans:
        """The match at `begin`, divided among the groups as by PostgreSQL. `end` is its end if `is_longest`."""
        matcher = Matcher(text, self._flags)
        if not is_longest or self._prefers_shorter:
            ends = matcher.ends(self.root, begin)
            end = min(ends) if self._prefers_shorter else max(ends)
        spans: list[tuple[int, int] | None] = [(begin, end)] + [None] * self.groups
        if self.groups:
            matcher.assign_groups(self.root, begin, end, spans)
        return ((begin, end), *spans[1:])

    @property
    def _flags(self) -> int:
        return int(regex.VERSION0 | regex.ASCII | (regex.IGNORECASE if self.insensitive else 0))

    @cached_property
    def _is_deterministic(self) -> bool:
        return not self.insensitive and is_deterministic(self.root)

    @cached_property
    def linear(self) -> re2._Regexp | None:
        """The pattern compiled by RE2, without groups; None if RE2 does not support it."""
        return self._compiled(with_groups=False)

    @cached_property
    def capturing(self) -> re2._Regexp | None:
        """As `linear`, with the groups; None also if RE2 might divide a match in another way than PostgreSQL."""
        return self._compiled(with_groups=True) if self._is_deterministic and self.groups else None

    def _compiled(self, *, with_groups: bool) -> re2._Regexp | None:
        text = re2_text(self.root, with_groups=with_groups)
        if text is None or (self.insensitive and not text.isascii()):
            return None
        options = re2.Options()
        options.longest_match = True
        options.never_capture = not with_groups
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
            raise unsupported("this construct", hint="Write smaller repetitions, or several patterns.") from None


class _Search:
    """Searches in one text. The start positions must not decrease."""

    def __init__(self, pattern: Regex, linear: re2._Regexp | None, text: str) -> None:
        self._text = text
        # RE2 folds the case of all letters, PostgreSQL in the locale C only of ASCII letters.
        self._linear = linear if text.isascii() or not pattern.insensitive else None
        self._pattern = pattern
        self._bytes = text.encode() if self._linear is not None else b""
        self._character = self._byte = 0  # the same position in the text and in its bytes

    @property
    def is_linear(self) -> bool:
        """Whether RE2 searches, and therefore finds the longest match."""
        return self._linear is not None

    def first_match(self, start: int) -> Spans | None:
        """The first match at or after `start`, with the groups of the compiled pattern. 54000 after SEARCH_S_MAX."""
        if self._linear is None:
            try:
                found = self._pattern.backtracking.search(self._text, start, timeout=SEARCH_S_MAX)
            except TimeoutError:
                raise too_expensive() from None
            return None if found is None else (found.span(),)
        if not self._text.isascii():
            self._byte += len(self._text[self._character : start].encode())
            self._character = start
        match = self._linear.search(self._bytes, start if self._text.isascii() else self._byte)
        if match is None:
            return None
        groups = (match.span(number) for number in range(1, match.re.groups + 1))
        return (self._span(*match.span()), *(self._span(*span) if span[0] >= 0 else None for span in groups))

    def _span(self, low: int, high: int) -> tuple[int, int]:
        """A span of bytes at or after the start of the search, in characters."""
        if self._text.isascii():
            return low, high
        begin = self._character + len(self._bytes[self._byte : low].decode())
        return begin, begin + len(self._bytes[low:high].decode())


@cached_by_length((100, 1_024), (1_000, 128), (10_000, 16), (100_000, 4), length=lambda pattern, flags="": len(pattern))
def compiled(pattern: str, flags: str = "") -> Regex:
    return Regex(pattern, flags)
