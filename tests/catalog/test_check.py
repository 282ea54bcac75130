"""`tidewire check` detects each kind of damage, names what is damaged, and changes nothing."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.check import check
from catalog.ids import ObjectId, Timestamp
from catalog.log import INLINE_BYTES, Frontiers, Log
from catalog.payloads import Payloads
from catalog.store import Store, StoreError
from tests.data import make_catalog_v3 as sample

T = ObjectId("u1")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory where batch 1 is small, batch 2 large, batch 3 has the times 3 to 10, and one file is unused."""
    store = Store(tmp_path)
    log = Log(store, Payloads(tmp_path / "payloads"))
    store.transact(lambda tx: log.create(tx, T, Frontiers(Timestamp(0), None)))
    for time in range(1, 11):
        payload = log.prepare(pa.table({"c0": ["x" * (INLINE_BYTES if time == 2 else 10)]}))
        log.committed([(store.transact(lambda tx, t=time, p=payload: log.insert(tx, T, Timestamp(t), p)), payload)])  # type: ignore[misc]
    run = log.batches(T)[2:]
    merged = log.merge_history(run)
    batch = store.transact(lambda tx: log.replace(tx, run, merged, 0))
    assert batch is not None
    log.replaced(run, batch, merged)
    log.prepare(pa.table({"c0": ["unused" * INLINE_BYTES]}))
    store.close()
    return tmp_path


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "lock"}


def test_an_undamaged_directory_is_reported_as_such_and_left_unchanged(directory: Path) -> None:
    before = contents(directory)
    report = check(directory)
    assert (report.batches, report.damage, report.without_checksum, report.unused_files) == (3, [], 0, 1)
    assert report.bytes > INLINE_BYTES
    assert contents(directory) == before


@pytest.mark.parametrize(
    ("change", "damaged"),
    [
        (
            "UPDATE batches SET payload = zeroblob(length(payload)) WHERE id = 1",
            "batch 1 of u1: The payload's checksum",
        ),
        ("UPDATE batches SET time = 7 WHERE id = 1", "batch 1 of u1: the checksum of its row"),
        ("UPDATE batches SET times = zeroblob(length(times)) WHERE id = 11", "batch 11 of u1: the checksum of its row"),
        ("DELETE FROM collections", "batch 2 of u1: its relation does not exist"),
    ],
)
def test_damage_in_sqlite_is_found(directory: Path, change: str, damaged: str) -> None:
    with closing(sqlite3.connect(directory / "catalog.sqlite")) as connection, connection:
        connection.execute(change)
    assert any(line.startswith(damaged) for line in check(directory).damage)


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_damage_of_a_payload_file_is_found(directory: Path, damage: str) -> None:
    with closing(sqlite3.connect(directory / "catalog.sqlite")) as connection:
        ((name,),) = connection.execute("SELECT file FROM batches WHERE file IS NOT NULL").fetchall()
    file = directory / "payloads" / name
    content: Any = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(content if damage == "flipped" else content[:1_000])
    (line,) = check(directory).damage
    assert line.startswith("batch 2 of u1: ")


def test_damage_of_the_catalogs_own_pages_is_found(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "catalog.sqlite")) as connection:
        ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'batches_by_collection'")
    with (directory / "catalog.sqlite").open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    assert any(line.startswith("catalog.sqlite: ") for line in check(directory).damage)


def test_a_directory_of_an_earlier_version_is_checked_as_far_as_possible(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    shutil.copytree(sample.DIRECTORY, directory)
    directory.chmod(0o700)
    report = check(directory)
    assert (report.batches, report.without_checksum, report.damage) == (1, 1, [])


def test_a_directory_that_cannot_be_checked_is_refused(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a data directory"):
        check(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    store = Store(directory)
    with pytest.raises(StoreError, match="in use by another server"):
        check(directory)
    store.transact(lambda tx: tx.execute("PRAGMA user_version = 99"))
    store.close()
    with pytest.raises(StoreError, match="format 99"):
        check(directory)
