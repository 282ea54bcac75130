"""The changes of a collection since a snapshot of its rows, in few tables although there may be many commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from catalog.updates import size_of

TABLES_MAX = 16  # with more tables, each read takes longer
ROWS_MAX = 8_192
BYTES_MAX = 4 << 20


class RecentChanges:
    """The changes at times in (`since`, `until`]. Each table has those between two times; they are not consolidated."""

    __slots__ = ("_bytes", "_parts", "_rows", "since", "until")

    def __init__(self, since: int) -> None:
        self.since = since
        self.until = since
        self._rows = 0
        self._bytes = 0
        self._parts: list[tuple[int, int, pa.Table]] = []  # (from, to, changes at times in (from, to])

    @property
    def is_large(self) -> bool:
        """Whether the snapshot should be advanced. Until then, reads take longer."""
        return self._rows > ROWS_MAX or self._bytes > BYTES_MAX

    @property
    def rows(self) -> int:
        """The number of rows of all changes."""
        return self._rows

    def extend(self, until: int, changes: Sequence[pa.Table]) -> None:
        """Adds the changes at times in (`self.until`, `until`]."""
        self._add((self.until, until, table) for table in changes)
        self.until = until
        if len(self._parts) > TABLES_MAX and not self.is_large:
            whole = pa.concat_tables([table for _, _, table in self._parts]).combine_chunks()
            self._parts = [(self._parts[0][0], self._parts[-1][1], whole)]

    def _add(self, parts: Iterable[tuple[int, int, pa.Table]]) -> None:
        for part in parts:
            self._parts.append(part)
            self._rows += part[2].num_rows
            self._bytes += size_of(part[2])

    def skip(self, time: int) -> None:
        """Moves `since` to a later time. The caller knows that there are no changes until then."""
        self.since, self.until = time, max(time, self.until)
        self._parts = [(max(begin, time), end, table) for begin, end, table in self._parts]

    def between(self, since: int, until: int) -> list[pa.Table] | None:
        """The changes at times in (`since`, `until`]. None if they are unknown, or in a table with other changes."""
        if not self.since <= since <= until <= self.until:
            return None
        parts = [part for part in self._parts if part[0] < until and since < part[1]]
        if any(begin < since or until < end for begin, end, _ in parts):
            return None
        return [table for _, _, table in parts]

    def after(self, time: int) -> RecentChanges:
        """The changes at times after `time`. Empty if a table contains them together with earlier ones."""
        found = RecentChanges(time)
        parts = [part for part in self._parts if time < part[1]]
        if time < self.until and all(time <= begin for begin, _, _ in parts):
            found._add(parts)
            found.until = self.until
        return found
