"""The times whose changes a restored server may lack: those from its backup to its first start.

The server that was backed up went on, and its clients may have received changes at these times. They must not continue
after them, because the restored server has other changes, or none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from catalog.ids import Timestamp
from catalog.oracle import RESERVATION_MS
from catalog.store import Store

# All changes until these times are in the catalog. A commit waits for those before it. The one at RESERVATION_MS before
# the end of the reservation has written this end. A hold advances to times that are final.
_COMPLETE = f"""
    SELECT value - {RESERVATION_MS} AS time FROM meta WHERE key = 'reserved_until'
    UNION ALL SELECT max(time) FROM batches WHERE collection IN (SELECT id FROM items WHERE kind = 'table')
    UNION ALL SELECT max(at) FROM holds
"""


class LostTimes:
    """Ranges [lower, upper) of times. None as `upper`: the server has not been started since the backup."""

    def __init__(self, ranges: Sequence[tuple[int, int | None]]) -> None:
        self._ranges = ranges

    @property
    def is_new(self) -> bool:
        """Whether the directory is a backup that no server has been started with."""
        return any(upper is None for _, upper in self._ranges)

    def end(self, time: int) -> Timestamp | None:
        """The end of the range that contains a time, if any."""
        for lower, upper in self._ranges:
            if upper is not None and lower <= time < upper:
                return Timestamp(upper)
        return None


def load(store: Store) -> LostTimes:
    return LostTimes(store.read("SELECT lower, upper FROM lost_times"))


def begin(copy: sqlite3.Connection) -> None:
    """Marks a copied catalog as a backup. That of a backup which no server has been started with already is."""
    copy.execute(
        f"INSERT INTO lost_times SELECT max(time) + 1, NULL FROM ({_COMPLETE}) "
        "WHERE NOT EXISTS (SELECT 1 FROM lost_times WHERE upper IS NULL)"
    )


def end(tx: sqlite3.Connection, time: Timestamp) -> None:
    """Ends the range of a backup at the first time of its server, within a transaction."""
    tx.execute("UPDATE lost_times SET upper = max(lower, ?) WHERE upper IS NULL", (time,))
