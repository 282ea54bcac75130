"""A backup is the data directory after one of its transactions, whatever the server merges and removes meanwhile."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from catalog import backup, lost_times
from catalog.backup import back_up
from catalog.check import check
from catalog.ids import ObjectId, Timestamp
from catalog.log import INLINE_BYTES, Frontiers, Log
from catalog.migrations import MIGRATIONS
from catalog.oracle import RESERVATION_MS
from catalog.payloads import Payloads
from catalog.store import Store, StoreError

T = ObjectId("u1")


class Server:
    """The log of a running server."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory)
        self.log = Log(self.store, Payloads(directory / "payloads"))
        self.store.transact(lambda tx: self.log.create(tx, T, Frontiers(Timestamp(0), None)))
        self.time = 0

    def write(self, text: str) -> None:
        """Commits a row at the next time. If `text` is long, its batch has a file."""
        self.time += 1
        payload = self.log.prepare(pa.table({"c0": [text]}))
        batch = self.store.transact(lambda tx: self.log.insert(tx, T, Timestamp(self.time), payload))
        self.log.committed([(batch, payload)])

    def merge(self) -> None:
        """Merges all batches, and removes their files."""
        run = tuple(self.log.batches(T))
        merged = self.log.merge_history(run)
        batch = self.store.transact(lambda tx: self.log.replace(tx, run, merged, 0))
        assert batch is not None
        self.log.replaced(run, batch, merged)
        self.log.remove_unused()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with one small batch and two large ones, in `tmp_path / "data"`."""
    server = Server(tmp_path / "data")
    for text in ("small", "a" * INLINE_BYTES, "b" * INLINE_BYTES):
        server.write(text)
    yield server
    server.store.close()


def texts(directory: Path) -> list[str]:
    """The rows of a data directory, in the order of their times. Long texts are shortened to `a...`."""
    store = Store(directory)
    try:
        log = Log(store, Payloads(directory / "payloads"))
        rows = log.rows(T, 100, pa.schema([("c0", pa.string())]))["c0"].to_pylist()
    finally:
        store.close()
    return [text if len(text) < 10 else f"{text[0]}..." for text in rows]


def test_the_copy_has_all_rows_and_only_the_files_in_use(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data/payloads/unused.arrow").write_bytes(b"an interrupted write")
    back_up(tmp_path / "data", tmp_path / "copy")
    report = check(tmp_path / "copy")
    assert (report.batches, report.unused_files, report.damage) == (3, 0, [])
    assert texts(tmp_path / "copy") == ["small", "a...", "b..."]
    for path in (tmp_path / "copy").rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_files_that_are_removed_while_they_are_copied(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy then has the rows of a later transaction, and not the file that only the earlier one named."""
    (a, b) = server.log.batches(T)[1:]
    original, attempts = backup._copy_payloads, []

    def copy_payloads(source: Path, target: Path, names: set[str]) -> str | None:
        attempts.append(names)
        if len(attempts) == 1:
            original(source, target, {a.file} if a.file else set())
            server.write("c" * INLINE_BYTES)
            server.merge()
            server.write("late")
        return original(source, target, names)

    monkeypatch.setattr(backup, "_copy_payloads", copy_payloads)
    back_up(tmp_path / "data", tmp_path / "copy")
    assert [{a.file, b.file} == names for names in attempts] == [True, False]
    report = check(tmp_path / "copy")
    assert (report.batches, report.unused_files, report.damage) == (2, 0, [])
    assert texts(tmp_path / "copy") == ["small", "a...", "b...", "c...", "late"]


def test_a_backup_knows_which_times_it_may_lack(server: Server, tmp_path: Path) -> None:
    """It has all times until the last commit of a table. A backup of a backup lacks the same times."""
    server.store.transact(lambda tx: tx.execute("INSERT INTO items VALUES (?, 's', 't', 'table', '{}')", (T,)))
    back_up(tmp_path / "data", tmp_path / "copy")
    back_up(tmp_path / "copy", tmp_path / "again")
    store = Store(tmp_path / "again")
    times = lost_times.load(store)
    assert times.is_new
    assert times.end(server.time + 1) is None, "no server has been started"
    store.transact(lambda tx: lost_times.end(tx, Timestamp(100)))
    times = lost_times.load(store)
    store.close()
    assert not times.is_new
    assert [times.end(time) for time in (server.time, server.time + 1, 99, 100)] == [None, 100, 100, None]


@pytest.mark.parametrize(
    ("change", "last"),
    [
        ("INSERT INTO holds VALUES ('u2', 50, 'ok')", 50),
        (f"UPDATE meta SET value = {RESERVATION_MS + 70} WHERE key = 'reserved_until'", 70),
    ],
    ids=["position of a hold", "reservation"],
)
def test_what_shows_that_times_are_complete(server: Server, tmp_path: Path, change: str, last: int) -> None:
    server.store.transact(lambda tx: tx.execute(change))
    back_up(tmp_path / "data", tmp_path / "copy")
    store = Store(tmp_path / "copy")
    assert store.read("SELECT lower FROM lost_times") == [(last + 1,)]
    store.close()


def test_what_cannot_be_backed_up_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a data directory"):
        back_up(tmp_path / "none", tmp_path / "copy")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(StoreError, match="is not empty"):
        back_up(tmp_path / "data", tmp_path / "other")
    server.store.transact(lambda tx: tx.execute("PRAGMA user_version = 14"))
    with pytest.raises(StoreError, match="has format 14"):
        back_up(tmp_path / "data", tmp_path / "earlier")
    server.store.transact(lambda tx: tx.execute(f"PRAGMA user_version = {len(MIGRATIONS)}"))
    file = server.log.batches(T)[1].file
    assert file is not None
    (tmp_path / "data/payloads" / file).unlink()
    with pytest.raises(StoreError, match=f"lacks the file payloads/{file}"):
        back_up(tmp_path / "data", tmp_path / "copy")
    with pytest.raises(StoreError, match="is not a data directory"):
        check(tmp_path / "copy")
