"""The durable state of sequences, stored outside `CatalogState` in the table `source_state`.

The state of a sequence that was never used is not stored: it begins with `Sequence.first`. The key is the sequence's
generation, so that a restarted sequence does not have the old state.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from catalog.ids import ObjectId
from catalog.store import Store

Position = tuple[int, bool]
"""The last value, and whether it was returned. If not, it is the next value."""


def load(store: Store, id: ObjectId, generation: int) -> Position | None:
    """The state as of the last commit; None if there is none."""
    rows = store.read("SELECT value FROM source_state WHERE id = ? AND key = ?", (id, str(generation)))
    return decoded(rows[0][0]) if rows else None


def save(tx: sqlite3.Connection, id: ObjectId, generation: int, position: Position) -> None:
    """Writes the state within a transaction, and deletes those of earlier generations. Not of a dropped sequence."""
    tx.execute("DELETE FROM source_state WHERE id = ? AND CAST(key AS INTEGER) < ?", (id, generation))
    tx.execute(
        "INSERT OR REPLACE INTO source_state SELECT ?, ?, ? WHERE EXISTS (SELECT 1 FROM items WHERE id = ?)",
        (id, str(generation), encoded(position), id),
    )


def encoded(position: Position) -> bytes:
    """The position as the file has it."""
    value, is_called = position
    return f"{value} {int(is_called)}".encode()


def decoded(data: bytes) -> Position:
    """The inverse of `encoded`."""
    value, is_called = data.split()
    return int(value), is_called == b"1"


def of_generations(positions: Mapping[tuple[ObjectId, int], Position]) -> dict[ObjectId, dict[str, bytes]]:
    """States by id and generation, in the form of `source_state.save`."""
    found: dict[ObjectId, dict[str, bytes]] = {}
    for (id, generation), position in positions.items():
        found.setdefault(id, {})[str(generation)] = encoded(position)
    return found
