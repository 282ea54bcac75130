"""The times of holds on disk: they are inserted, moved and deleted together with their transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from catalog import holds
from catalog.holds import HoldPosition, Status
from catalog.ids import ObjectId, Timestamp
from catalog.store import Store

A, B = ObjectId("u1"), ObjectId("u2")


def test_saved_times_are_loaded(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert holds.load(store) == {}
    positions = {A: HoldPosition(Timestamp(5)), B: HoldPosition(Timestamp(2**62), Status.ADVANCED)}
    store.transact(lambda tx: holds.save(tx, positions.items()))
    assert holds.load(store) == positions
    store.transact(lambda tx: holds.save(tx, [(B, HoldPosition(Timestamp(3)))]))
    store.close()
    store = Store(tmp_path)
    assert holds.load(store) == {A: positions[A], B: HoldPosition(Timestamp(3), Status.OK)}
    store.transact(lambda tx: holds.drop(tx, [A, ObjectId("u9")]))
    assert holds.load(store).keys() == {B}
    store.close()


def test_a_failed_transaction_changes_no_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.transact(lambda tx: holds.save(tx, [(A, HoldPosition(Timestamp(5)))]))

    def failing(tx: sqlite3.Connection) -> None:
        holds.save(tx, [(A, HoldPosition(Timestamp(6))), (B, HoldPosition(Timestamp(7)))])
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        store.transact(failing)
    assert holds.load(store) == {A: HoldPosition(Timestamp(5))}
    store.close()
