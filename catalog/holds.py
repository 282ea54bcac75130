"""Where each hold stands, durably: beside the catalog, as a collection's frontiers are.

A hold is an item of the catalog; its place moves many times a second and is no change of the catalog: plans stay
good, and a transaction that defines something does not conflict with an ADVANCE.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from catalog.objects import ObjectId, Timestamp
from catalog.store import Store


class Status(StrEnum):
    """`ADVANCED`: MAX LAG has moved the hold, and its owner has not since."""

    OK = "ok"
    ADVANCED = "advanced"


@dataclass(frozen=True, slots=True)
class Place:
    """The hold keeps the history of its objects from `at` on."""

    at: Timestamp
    status: Status = Status.OK


def load(store: Store) -> dict[ObjectId, Place]:
    """The places as of the last commit."""
    rows = store.read("SELECT id, at, status FROM holds")
    return {id: Place(Timestamp(at), Status(status)) for id, at, status in rows}


def save(tx: sqlite3.Connection, places: Iterable[tuple[ObjectId, Place]]) -> None:
    """Puts holds, new ones too, in their places, within a transaction."""
    tx.executemany("INSERT OR REPLACE INTO holds VALUES (?, ?, ?)", [(id, p.at, p.status) for id, p in places])


def drop(tx: sqlite3.Connection, ids: Iterable[ObjectId]) -> None:
    """Forgets holds, within a transaction."""
    tx.executemany("DELETE FROM holds WHERE id = ?", [(id,) for id in ids])
