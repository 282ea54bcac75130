"""The durable time and status of each hold, stored outside `CatalogState` like the frontiers of a collection.

A hold is an item of the catalog. Its time advances many times a second without changing the catalog's version: plans
stay valid, and DDL does not conflict with an ADVANCE.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from catalog.ids import ObjectId, Timestamp
from catalog.store import Store


class Status(StrEnum):
    """`ADVANCED`: MAX LAG has advanced the hold, and its owner has not advanced it since."""

    OK = "ok"
    ADVANCED = "advanced"


@dataclass(frozen=True, slots=True)
class HoldPosition:
    """The hold's time and status. The hold keeps the history of its objects at times >= `at`."""

    at: Timestamp
    status: Status = Status.OK


def load(store: Store) -> dict[ObjectId, HoldPosition]:
    """The time and status of every hold, as of the last commit."""
    rows = store.read("SELECT id, at, status FROM holds")
    return {id: HoldPosition(Timestamp(at), Status(status)) for id, at, status in rows}


def save(tx: sqlite3.Connection, positions: Iterable[tuple[ObjectId, HoldPosition]]) -> None:
    """Writes the time and status of new or existing holds, within a transaction."""
    tx.executemany("INSERT OR REPLACE INTO holds VALUES (?, ?, ?)", [(id, p.at, p.status) for id, p in positions])


def drop(tx: sqlite3.Connection, ids: Iterable[ObjectId]) -> None:
    """Deletes holds, within a transaction."""
    tx.executemany("DELETE FROM holds WHERE id = ?", [(id,) for id in ids])
