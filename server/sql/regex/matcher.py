"""Matches parts of a pattern in a text: the ends of matches, and the division of a match among groups.

RE2 and the package `regex` (in its POSIX mode) find the longest match, too. They divide it among groups differently,
and neither prefers the shortest match where PostgreSQL does. In addition, `regex` tries all ways to match, of which
there can be exponentially many. Here, the number of visited positions is limited.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import regex

from protocol.pgwire.errors import PgError, SqlState
from server.sql.regex.tree import (
    END,
    Alternation,
    Anchor,
    CharacterClass,
    Group,
    Lookaround,
    Node,
    Repeat,
    Sequence,
    captures,
    prefers_shorter,
)

POSITIONS_MAX = 2_000_000


def too_expensive() -> PgError:
    return PgError(
        SqlState.PROGRAM_LIMIT_EXCEEDED,
        "regular expression is too expensive for this text",
        hint="Avoid nested quantifiers, lookaround and back references, or match shorter texts.",
    )


@lru_cache(4096)
def _compiled(text: str, flags: int) -> regex.Pattern[str]:
    return regex.compile(text.replace(END, "\\Z"), flags)


@dataclass
class Matcher:
    """Matches parts of a pattern in one text. `_known` caches the ends of a node's matches from a position."""

    text: str
    flags: int
    _known: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    _positions: int = 0

    def ends(self, node: Node, at: int) -> frozenset[int]:
        """The possible ends of matches of `node` that start at `at`. 54000 after POSITIONS_MAX positions."""
        key = (id(node), at)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = frozenset(self._ends(node, at))
            self._visited(len(known) + 1)
        return known

    def _visited(self, positions: int) -> None:
        self._positions += positions
        if self._positions > POSITIONS_MAX:
            raise too_expensive()

    def _ends(self, node: Node, at: int) -> set[int] | frozenset[int]:
        match node:
            case CharacterClass(text=text):
                return {at + 1} if _compiled(text, self.flags).match(self.text, at) else set()
            case Anchor(text=text):
                return {at} if _compiled(text, self.flags).match(self.text, at) else set()
            case Lookaround(inner=inner, behind=behind, negated=negated):
                if behind:
                    found = any(at in self.ends(inner, start) for start in range(at + 1))
                else:
                    found = bool(self.ends(inner, at))
                return {at} if found != negated else set()
            case Group(inner=inner):
                return self.ends(inner, at)
            case Sequence(items=items):
                return self._after(items, at)
            case Alternation(branches=branches):
                return {end for branch in branches for end in self.ends(branch, at)}
            case Repeat(inner=inner, least=least, most=most):
                return self._repeated(inner, at, least, most)
        raise AssertionError(node)

    def _after(self, items: tuple[Node, ...], at: int) -> set[int]:
        positions = {at}
        for item in items:
            positions = {end for position in positions for end in self.ends(item, position)}
        return positions

    def _repeated(self, inner: Node, at: int, least: int, most: int | None) -> set[int]:
        positions = {at}
        for _ in range(least):
            positions = {end for position in positions for end in self.ends(inner, position)}
        found, count = set(positions), least
        while positions and (most is None or count < most):
            positions = {end for position in positions for end in self.ends(inner, position)} - found
            found |= positions
            count += 1
            self._visited(len(positions))
        return found

    # -- capturing groups -------------------------------------------------------------------------------------------

    def assign_groups(self, node: Node, begin: int, end: int, spans: list[tuple[int, int] | None]) -> bool:
        """Sets the spans of the groups inside `node` for a match from `begin` to `end`. False if there is none."""
        match node:
            case Group(inner=inner, number=number):
                if not self.assign_groups(inner, begin, end, spans):
                    return False
                spans[number] = (begin, end)
                return True
            case Sequence(items=items):
                return self._assign_items(items, begin, end, spans)
            case Alternation(branches=branches):
                return any(end in self.ends(b, begin) and self.assign_groups(b, begin, end, spans) for b in branches)
            case Repeat(inner=inner, least=least, most=most) if captures(inner):
                return self._assign_iterations(inner, begin, end, least, most, bool(prefers_shorter(node)), spans)
        return end in self.ends(node, begin)

    def _assign_items(self, items: tuple[Node, ...], begin: int, end: int, spans: list[tuple[int, int] | None]) -> bool:
        if not any(map(captures, items)):
            return end in self._after(items, begin)
        first, rest = items[0], items[1:]
        for middle in sorted(self.ends(first, begin), reverse=not prefers_shorter(first)):
            if middle <= end and end in self._after(rest, middle):
                kept = list(spans)
                if self.assign_groups(first, begin, middle, spans) and self._assign_items(rest, middle, end, spans):
                    return True
                spans[:] = kept
        return False

    def _assign_iterations(
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
                if end in self.ends(inner, middle) and self.assign_groups(inner, middle, end, spans):
                    return True
            return False
        if begin == end:  # one empty iteration, if that is possible
            return begin not in self.ends(inner, begin) or self.assign_groups(inner, begin, begin, spans)
        feasible = self._before(inner, begin, end) if most is None else None
        while most is None or most > 0:
            most = None if most is None else most - 1
            for middle in sorted(self.ends(inner, begin), reverse=not prefers_shorter(inner)):
                if middle == end:
                    return self.assign_groups(inner, begin, middle, spans)
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
        for position in range(end - 1, begin, -1):
            if not found.isdisjoint(self.ends(inner, position)):
                found.add(position)
        return found
