"""System tables: their current rows, and their history while a dataflow follows them.

Their rows are computed from the server's memory, so normally they have no history. Following a table makes it a
collection of `Frontiers`, with a `since` and holders. From then on, its rows are computed again at each commit, even an
empty one, if their revision has changed. The versions that a holder may still read are kept. A table that is not
followed causes no work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.ids import ObjectId, Timestamp
from catalog.objects.system_tables import SystemTable
from protocol.pgwire.errors import PgError, SqlState
from server.timeline.frontiers import Frontiers


@dataclass(slots=True)
class _Followed:
    """A system table that dataflows follow.

    `versions`: the rows from a time on, in order of time. The last one is current.
    """

    revision: object
    versions: list[tuple[Timestamp, pa.Table]]
    followers: int = 0


@dataclass(frozen=True, slots=True)
class SystemTableRows:
    """The source of a system table.

    `rows` returns the current rows. `revision` changes whenever they may have changed.
    """

    rows: Callable[[], pa.Table]
    revision: Callable[[], object]


@dataclass(slots=True)
class SystemTableHistory:
    """The system tables that dataflows can read, by id."""

    frontiers: Frontiers
    tables: Mapping[ObjectId, SystemTableRows]
    _followed: dict[ObjectId, _Followed] = field(default_factory=dict)

    @property
    def ids(self) -> Set[ObjectId]:
        return self.tables.keys()

    def current_rows(self, table: SystemTable) -> pa.Table:
        """Returns a table's current rows. 0A000 for PostgreSQL's catalogs, which only sessions can read."""
        current = self.tables.get(table.id)
        if current is None:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f'"{table.name}" can only be read by SELECT',
                hint="Use mz_objects, mz_columns and the other tables of mz_catalog here.",
            )
        return current.rows()

    def follow(self, ids: Iterable[ObjectId]) -> Callable[[], None]:
        """Starts to keep the tables' history, from the latest closed time on. Returns the function that stops it."""
        held = list(ids)
        time = Timestamp(self.frontiers.tables_upper - 1)
        for id in held:
            if id not in self._followed:
                self._followed[id] = _Followed(self.tables[id].revision(), [(time, self.tables[id].rows())])
                self.frontiers.created(id, time, None)
            self._followed[id].followers += 1

        def unfollow() -> None:
            while held:
                self._unfollow(held.pop())

        return unfollow

    def _unfollow(self, id: ObjectId) -> None:
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
            revision = self.tables[id].revision()
            if revision == followed.revision:
                continue
            followed.revision = revision
            rows = self.tables[id].rows()
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
