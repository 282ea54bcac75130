"""System tables as collections with history, while a dataflow follows them.

Their rows are computed from the server's memory, so normally they have no history. Following a table makes it a
collection of `Frontiers`, with a `since` and holders. From then on, its rows are computed again at each commit, even an
empty one, if their revision has changed. The versions that a holder may still read are kept. A table that is not
followed causes no work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.objects import ObjectId, Timestamp
from server.timeline.frontiers import Frontiers


@dataclass(slots=True)
class _Followed:
    """`versions`: the rows from a time on, in order of time. The last one is current."""

    revision: object
    versions: list[tuple[Timestamp, pa.Table]]
    followers: int = 0


@dataclass(slots=True)
class SystemTableHistory:
    """`rows_of` returns a table's current rows. `revision_of` changes whenever they may have changed."""

    frontiers: Frontiers
    rows_of: Callable[[ObjectId], pa.Table]
    revision_of: Callable[[ObjectId], object]
    _followed: dict[ObjectId, _Followed] = field(default_factory=dict)

    def follow(self, ids: Iterable[ObjectId]) -> Callable[[], None]:
        """Starts to keep the tables' history, from the latest closed time on. Returns the function that stops it."""
        held = list(ids)
        time = Timestamp(self.frontiers.tables_upper - 1)
        for id in held:
            if id not in self._followed:
                self._followed[id] = _Followed(self.revision_of(id), [(time, self.rows_of(id))])
                self.frontiers.created(id, time, None)
            self._followed[id].followers += 1

        def let_go() -> None:
            while held:
                self._let_go(held.pop())

        return let_go

    def _let_go(self, id: ObjectId) -> None:
        followed = self._followed[id]
        followed.followers -= 1
        if not followed.followers:
            del self._followed[id]
            self.frontiers.dropped(id)

    def __contains__(self, id: object) -> bool:
        return id in self._followed

    def closed(self, time: Timestamp) -> None:
        """Records the current rows as those at `time`, which is about to become final."""
        for id, followed in self._followed.items():
            revision = self.revision_of(id)
            if revision == followed.revision:
                continue
            followed.revision = revision
            rows = self.rows_of(id)
            if not rows.equals(followed.versions[-1][1]):
                followed.versions.append((time, rows))
            since = self.frontiers.since(id)
            while len(followed.versions) > 1 and followed.versions[1][0] <= since:
                del followed.versions[0]

    def rows(self, id: ObjectId, as_of: int) -> pa.Table:
        """Returns the rows at `as_of >= since`."""
        versions = self._followed[id].versions
        return next(rows for time, rows in reversed(versions) if time <= as_of)

    def times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        """Returns the times in [lower, upper) at which the rows changed."""
        return [time for time, _ in self._followed[id].versions[1:] if lower <= time < upper]
