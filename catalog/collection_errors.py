"""The errors of collections by time, stored with the commits that cause them.

A source cannot decode every message. From the time of an entry on, all reads of the collection fail with its error,
until a later entry replaces or ends it:

    error(t) = the error of the last entry with time <= t, None if there is no such entry

An entry has one error, although a collection may have several at once: a read fails with one of them. Which messages
have an error is part of a source's state.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from catalog.ids import ObjectId, Timestamp
from catalog.store import Store


@dataclass(frozen=True, slots=True)
class CollectionError:
    """The reason why a collection cannot be read, as the parts of an error message."""

    message: str
    detail: str
    hint: str = ""


@dataclass(slots=True)
class _Entries:
    """The entries of a collection, ascending in time."""

    times: list[Timestamp] = field(default_factory=list)
    errors: list[CollectionError | None] = field(default_factory=list)

    def first_needed(self, since: int) -> int:
        """The number of the first entry that a time >= `since` needs."""
        first = max(bisect_right(self.times, since) - 1, 0)
        while first < len(self.errors) and self.errors[first] is None:  # it ends no error
            first += 1
        return first


class CollectionErrors:
    """The errors of all collections. `at` and `times` know what `committed` was called with."""

    def __init__(self, store: Store) -> None:
        """Reads the stored entries."""
        self._entries: dict[ObjectId, _Entries] = {}
        rows = store.read("SELECT id, time, message, detail, hint FROM collection_errors ORDER BY id, time")
        for id, time, message, detail, hint in rows:
            self.committed(id, time, None if message is None else CollectionError(message, detail, hint))

    def __bool__(self) -> bool:
        """Whether any collection has entries."""
        return bool(self._entries)

    @property
    def collections(self) -> list[ObjectId]:
        """The collections that have entries."""
        return list(self._entries)

    def at(self, id: ObjectId, time: int) -> CollectionError | None:
        """The error of a collection at a time."""
        entries = self._entries.get(id, _Entries())
        number = bisect_right(entries.times, time) - 1
        return None if number < 0 else entries.errors[number]

    def latest(self, id: ObjectId) -> CollectionError | None:
        """The error of a collection after the last commit."""
        entries = self._entries.get(id)
        return None if entries is None else entries.errors[-1]

    def times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        """The times in [lower, upper) at which the error changes, ascending."""
        times = self._entries.get(id, _Entries()).times
        return times[bisect_left(times, lower) : bisect_left(times, upper)]

    def save(self, tx: sqlite3.Connection, id: ObjectId, time: Timestamp, error: CollectionError | None) -> None:
        """Writes an entry, within a transaction. `committed` follows."""
        parts = (None, None, None) if error is None else (error.message, error.detail, error.hint)
        tx.execute("INSERT INTO collection_errors VALUES (?, ?, ?, ?, ?)", (id, time, *parts))

    def committed(self, id: ObjectId, time: Timestamp, error: CollectionError | None) -> None:
        """Adds an entry that is on disk, at a later time than all others of the collection."""
        entries = self._entries.setdefault(id, _Entries())
        entries.times.append(time)
        entries.errors.append(error)

    def is_compactable(self, id: ObjectId, since: int) -> bool:
        """Whether there are entries that only times before `since` need."""
        return self._entries.get(id, _Entries()).first_needed(since) > 0

    def compact(self, tx: sqlite3.Connection, id: ObjectId, since: Timestamp) -> None:
        """Deletes the entries that only times before `since` need. That becomes the collection's durable `since`."""
        entries = self._entries.get(id, _Entries())
        first = entries.first_needed(since)
        tx.executemany(
            "DELETE FROM collection_errors WHERE id = ? AND time = ?", [(id, time) for time in entries.times[:first]]
        )
        tx.execute("UPDATE collections SET since = max(since, ?) WHERE id = ?", (since, id))

    def compacted(self, id: ObjectId, since: Timestamp) -> None:
        """Forgets what `compact` has deleted, after its transaction."""
        entries = self._entries.pop(id, _Entries())
        first = entries.first_needed(since)
        if entries.times[first:]:
            self._entries[id] = _Entries(entries.times[first:], entries.errors[first:])

    def drop(self, tx: sqlite3.Connection, ids: Iterable[ObjectId]) -> None:
        """Deletes the entries of collections, within a transaction. `dropped` follows."""
        tx.executemany("DELETE FROM collection_errors WHERE id = ?", [(id,) for id in ids])

    def dropped(self, id: ObjectId) -> None:
        self._entries.pop(id, None)
