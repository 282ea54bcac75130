"""The position of each source in its external system: values by key, stored outside `CatalogState` like frontiers.

A source decides what its keys and values mean, for example a partition's number and the offset of its next message. The
committer writes them in the transaction that commits the changes read up to that position.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from catalog.ids import ObjectId
from catalog.store import Store

State = Mapping[str, bytes | None]
"""None removes a key."""


def load(store: Store, id: ObjectId) -> dict[str, bytes]:
    """The state of a source, as of the last commit."""
    return dict(store.read("SELECT key, value FROM source_state WHERE id = ?", (id,)))


def save(tx: sqlite3.Connection, id: ObjectId, state: State) -> None:
    """Writes the given keys of a source, within a transaction. Other keys keep their values."""
    for key, value in state.items():
        if value is None:
            tx.execute("DELETE FROM source_state WHERE id = ? AND key = ?", (id, key))
        else:
            tx.execute("INSERT OR REPLACE INTO source_state VALUES (?, ?, ?)", (id, key, value))


def drop(tx: sqlite3.Connection, ids: Iterable[ObjectId]) -> None:
    """Deletes the state of sources, within a transaction."""
    tx.executemany("DELETE FROM source_state WHERE id = ?", [(id,) for id in ids])
