"""The SQLite file: atomic transactions, one server at a time, and clear errors for an unusable directory."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog import holds, migrations, persistence, source_state
from catalog.collection_errors import CollectionErrors
from catalog.ids import Timestamp
from catalog.log import INLINE_BYTES, Frontiers, Log
from catalog.migrations import MIGRATIONS
from catalog.objects.secrets import NamedSecret
from catalog.payloads import Payloads
from catalog.roles import MATERIALIZE, PUBLIC, Privilege
from catalog.store import FREE_PAGES_KEPT, Fenced, Store, StoreError, Undecided
from tests.catalog.strategies import plain
from tests.data import make_catalog_v1 as sample
from tests.data import make_catalog_v3 as sample_3
from tests.data import make_catalog_v4 as sample_4
from tests.data import make_catalog_v5 as sample_5
from tests.data import make_catalog_v6 as sample_6
from tests.data import make_catalog_v7 as sample_7
from tests.data import make_catalog_v8 as sample_8
from tests.data import make_catalog_v9 as sample_9
from tests.data import make_catalog_v10 as sample_10
from tests.data import make_catalog_v12 as sample_12
from tests.data import make_catalog_v13 as sample_13


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


def put_alone(name: str, where: str = "epoch") -> tuple[str, tuple[object, ...]]:
    """An INSERT of a setting, for `insert_alone`. It inserts nothing unless `where` is a key of `meta`."""
    return "INSERT INTO settings SELECT ?, '' FROM meta WHERE key = ?", (name, where)


def put(name: str, value: str = "x") -> Callable[[sqlite3.Connection], object]:
    """A function that writes a setting in its transaction."""
    return lambda tx: tx.execute("INSERT INTO settings VALUES (?, ?)", (name, value))


def settings(store: Store) -> set[str]:
    return {name for (name,) in store.read("SELECT name FROM settings")}


def file_of(directory: Path) -> Path:
    return directory / "catalog.sqlite"


def dump(directory: Path) -> list[str]:
    """The file's format version, and the contents of all tables."""
    with closing(sqlite3.connect(file_of(directory))) as connection:
        return [str(*connection.execute("PRAGMA user_version").fetchone()), *connection.iterdump()]


class TestTransactions:
    async def test_a_commit_is_visible_to_others_and_after_reopening(self, store: Store, tmp_path: Path) -> None:
        assert store.created
        assert await store.transaction(lambda tx: (put("a")(tx), 7)[1]) == 7
        assert settings(store) == {"a"}
        store.close()
        again = Store(tmp_path)
        assert not again.created
        assert settings(again) == {"a"}
        again.close()

    async def test_an_exception_rolls_back_the_transaction(self, store: Store) -> None:
        def act(tx: sqlite3.Connection) -> None:
            put("a")(tx)
            assert not settings(store), "readers see commits only"
            raise KeyError("no")

        with pytest.raises(KeyError):
            await store.transaction(act)
        with pytest.raises(sqlite3.IntegrityError):
            await store.transaction(lambda tx: (put("b")(tx), put("b")(tx)))
        assert settings(store) == set()
        await store.transaction(put("c"))
        assert settings(store) == {"c"}

    async def test_an_insert_alone_is_a_transaction(self, store: Store, tmp_path: Path) -> None:
        before = store.transactions
        assert await store.insert_alone(*put_alone("a")) is not None
        assert await store.insert_alone(*put_alone("b", "missing")) is None
        with pytest.raises(sqlite3.IntegrityError):
            await store.insert_alone(*put_alone("a"))
        assert await store.insert_alone(*put_alone("c")) is not None
        assert settings(store) == {"a", "c"}
        assert store.transactions == before + 2
        store.close()
        reopened = Store(tmp_path)
        assert settings(reopened) == {"a", "c"}
        reopened.close()

    def test_a_full_disk_fails_one_transaction_alone(self, store: Store) -> None:
        ((pages,),) = store.read("PRAGMA page_count")
        store.transact(put("a"))
        store._writer.execute(f"PRAGMA max_page_count = {pages + 10}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            store.transact(put("b", "x" * 1_000_000))
        store.transact(put("c"))
        assert settings(store) == {"a", "c"}

    def test_a_commit_that_fails_leaves_no_open_transaction(self, store: Store) -> None:
        def act(tx: sqlite3.Connection) -> None:
            put("a")(tx)
            tx.execute("PRAGMA defer_foreign_keys = 1")
            tx.execute("CREATE TEMP TABLE parent (id PRIMARY KEY)")
            tx.execute("CREATE TEMP TABLE child (id REFERENCES parent)")
            tx.execute("INSERT INTO child VALUES (1)")

        store._writer.execute("PRAGMA foreign_keys = 1")
        with pytest.raises(sqlite3.IntegrityError):
            store.transact(act)
        store.transact(put("b"))
        assert settings(store) == {"b"}

    def test_transactions_of_threads_are_serialized(self, store: Store) -> None:
        def add(_: int) -> int:
            store.transact(lambda tx: tx.execute("UPDATE meta SET value = value + 1 WHERE key = 'next_id'"))
            return len(store.read("SELECT * FROM meta"))

        ((before,),) = store.read("SELECT value FROM meta WHERE key = 'next_id'")
        rows = len(store.read("SELECT * FROM meta"))
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(add, range(100))) == {rows}
        assert store.read("SELECT value FROM meta WHERE key = 'next_id'") == [(before + 100,)]

    async def test_a_cancelled_waiter_leaves_a_complete_transaction(self, store: Store) -> None:
        started, go_on = threading.Event(), threading.Event()

        def act(tx: sqlite3.Connection) -> None:
            put("a")(tx)
            started.set()
            go_on.wait()
            put("b")(tx)

        running = asyncio.create_task(store.transaction(act))
        await asyncio.to_thread(started.wait)
        waiting = asyncio.create_task(store.transaction(put("never")))
        await asyncio.sleep(0)
        for task in (running, waiting):
            task.cancel()
        await asyncio.wait([running, waiting])
        go_on.set()
        await store.transaction(put("c"))
        assert settings(store) == {"a", "b", "c"}

    async def test_free_space_is_returned_step_by_step(self, store: Store, tmp_path: Path) -> None:
        assert store.read("PRAGMA auto_vacuum") == [(2,)]
        blobs = [(str(i), "x" * 100_000) for i in range(80)]
        await store.transaction(lambda tx: tx.executemany("INSERT INTO settings VALUES (?, ?)", blobs))
        await store.transaction(lambda tx: tx.execute("DELETE FROM settings WHERE name <> '79'"))
        ((before,),) = store.read("PRAGMA page_count")
        steps = 1
        while await store.give_back():
            steps += 1
        assert store.read("PRAGMA freelist_count") == [(FREE_PAGES_KEPT,)]
        assert steps > 1
        ((after,),) = store.read("PRAGMA page_count")
        assert not await store.give_back()
        assert settings(store) == {"79"}
        store.close()
        assert file_of(tmp_path).stat().st_size == after * 4096 < before * 4096

    def test_the_write_ahead_log_stays_bounded(self, store: Store, tmp_path: Path) -> None:
        for i in range(60):
            store.transact(put(str(i), "x" * 200_000))
        assert (tmp_path / "catalog.sqlite-wal").stat().st_size < 8 * 1024 * 1024


class TestOneServer:
    OPEN = "import sys; from pathlib import Path; from catalog.store import Store; Store(Path(sys.argv[1]))"

    def test_a_second_process_is_refused(self, store: Store) -> None:
        second = subprocess.run([sys.executable, "-c", self.OPEN, store.directory], capture_output=True, text=True)
        assert second.returncode == 1
        message = second.stderr.splitlines()[-1]
        expected = f'data directory "{store.directory}" is in use by another server (process {os.getpid()})'
        assert message == f"catalog.store.StoreError: {expected}"
        store.transact(put("still ours"))

    def test_a_second_store_in_the_process_is_refused_until_the_first_closes(self, store: Store) -> None:
        with pytest.raises(StoreError, match="in use") as caught:
            Store(store.directory)
        assert "--data-dir" in caught.value.hint
        store.close()
        Store(store.directory).close()

    def test_an_older_server_is_fenced(self, store: Store) -> None:
        store.transact(put("before"))
        (store.directory / "lock").unlink()  # as on a filesystem without locks
        newer = Store(store.directory)
        assert newer.epoch == store.epoch + 1
        with pytest.raises(Fenced, match="another server"):
            store.transact(put("older"))
        newer.transact(put("newer"))
        with pytest.raises(Fenced):
            store.transact(put("older"))
        assert settings(newer) == settings(store) == {"before", "newer"}
        newer.close()

    async def test_an_insert_of_an_older_server_inserts_nothing(self, store: Store) -> None:
        (store.directory / "lock").unlink()  # as on a filesystem without locks
        assert await store.insert_alone(*put_alone("before")) is not None
        newer = Store(store.directory)
        assert await store.insert_alone(*put_alone("older")) is None
        assert await newer.insert_alone(*put_alone("newer")) is not None
        assert settings(newer) == settings(store) == {"before", "newer"}
        newer.close()

    def test_concurrent_openings_get_different_epochs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Store(tmp_path).close()
        monkeypatch.setattr("catalog.store.lock", lambda directory: os.open(directory, os.O_RDONLY))
        with ThreadPoolExecutor(4) as threads:
            stores = list(threads.map(Store, [tmp_path] * 8))
        epochs = Counter(store.epoch for store in stores)
        assert sorted(epochs) == list(range(2, 10))
        for store in stores:
            store.close()

    def test_closing_twice_closes_no_foreign_descriptor(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.close()
        with open(os.devnull) as other:  # it gets the number of the lock's descriptor
            store.close()
            os.fstat(other.fileno())


class TestUnusable:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        store = Store(tmp_path)
        rows = [(str(i), "x" * 1_000) for i in range(200)]
        store.transact(lambda tx: tx.executemany("INSERT INTO settings VALUES (?, ?)", rows))
        store.close()
        return tmp_path

    def refused(self, directory: Path) -> StoreError:
        descriptors = os.listdir("/proc/self/fd")
        with pytest.raises(StoreError) as caught:
            Store(directory)
        assert os.listdir("/proc/self/fd") == descriptors
        assert str(directory) in str(caught.value)
        assert caught.value.hint
        return caught.value

    def test_a_file_that_is_no_database(self, directory: Path) -> None:
        file_of(directory).write_bytes(b"The quick brown fox jumps over the lazy dog. " * 1000)
        error = self.refused(directory)
        assert "is damaged: file is not a database" in str(error)
        assert "backup" in error.hint

    def test_a_truncated_file(self, directory: Path) -> None:
        with open(file_of(directory), "r+b") as file:
            file.truncate(8192)
        assert "is damaged" in str(self.refused(directory))

    def test_a_file_that_is_another_database(self, directory: Path) -> None:
        file_of(directory).unlink()
        with closing(sqlite3.connect(file_of(directory))) as other:
            other.execute("CREATE TABLE t (a)")
            other.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        assert "is damaged: no such table: meta" in str(self.refused(directory))

    def test_damage_within_the_file_is_reported_when_it_is_read(self, directory: Path) -> None:
        size = file_of(directory).stat().st_size
        with open(file_of(directory), "r+b") as file:
            file.seek(size // 2)
            file.write(b"\xff" * (size // 4))
        store = Store(directory)
        with pytest.raises(StoreError, match="is damaged"):
            store.read("SELECT * FROM settings")
        with pytest.raises(sqlite3.ProgrammingError):
            store.read("SELECT ?")
        store.close()

    def test_a_directory_that_cannot_be_created(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        assert "could not open" in str(self.refused(tmp_path / "file"))
        assert "could not open" in str(self.refused(tmp_path / "file" / "below"))

    def test_a_file_that_cannot_be_opened(self, tmp_path: Path) -> None:
        file_of(tmp_path).mkdir()
        error = self.refused(tmp_path)
        assert "could not use" in str(error)
        assert "damaged" not in str(error)

    @pytest.mark.parametrize("mode", [0o755, 0o701, 0o770, 0o704, 0o777])
    def test_a_directory_that_other_users_can_read_is_refused(self, directory: Path, mode: int) -> None:
        directory.chmod(mode)
        error = self.refused(directory)
        assert "has invalid permissions" in str(error)
        assert f"chmod 0700 {directory}" in error.hint
        assert directory.stat().st_mode & 0o777 == mode
        for allowed in (0o750, 0o700):
            directory.chmod(allowed)
            Store(directory).close()

    def test_only_the_owner_can_read_a_data_directory(self, tmp_path: Path) -> None:
        """This includes a directory that existed before, empty and readable by all, such as a container's volume."""
        directory = tmp_path / "data"
        directory.mkdir(mode=0o755)
        directory.chmod(0o755)
        store = Store(directory)
        store.transact(put("a"))
        table = pa.table({"c0": ["x" * INLINE_BYTES * 2]})
        assert Log(store, Payloads(directory / "payloads")).prepare(table).file is not None
        found = {
            path.relative_to(directory): path.stat().st_mode & 0o777 for path in (directory, *directory.rglob("*"))
        }
        store.close()
        assert len(found) == 7
        assert {str(path): oct(mode) for path, mode in found.items() if mode & 0o077} == {}

    def test_a_refused_opening_releases_the_lock(self, tmp_path: Path) -> None:
        file_of(tmp_path).write_bytes(b"garbage" * 1000)
        self.refused(tmp_path)
        file_of(tmp_path).unlink()
        Store(tmp_path).close()


def copy_sample(sample: Path, directory: Path) -> None:
    shutil.copytree(sample, directory)
    directory.chmod(0o700)


def opened_sample(sample: Path, directory: Path, format: str) -> Store:
    """The store of a copy of a data directory of an earlier format."""
    copy_sample(sample, directory)
    assert dump(directory)[0] == format
    return Store(directory)


class TestMigrations:
    def test_migrations_are_recorded(self, store: Store) -> None:
        assert store.read("PRAGMA user_version") == [(len(MIGRATIONS),)]

    def test_a_missing_migration_is_executed_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Store(tmp_path).close()
        step = ("a later one", "CREATE TABLE later (a); INSERT INTO later VALUES (1);")
        monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, step))
        for _ in range(2):
            store = Store(tmp_path)
            assert not store.created
            assert store.read("PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]
            assert store.read("SELECT * FROM later") == [(1,)]
            store.close()

    def test_a_failing_migration_leaves_the_file_unchanged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = Store(tmp_path)
        store.transact(put("kept"))
        store.close()
        before = dump(tmp_path)
        steps = (
            ("succeeds", "CREATE TABLE later (a);"),
            ("fails", "DELETE FROM settings; INSERT INTO nowhere VALUES (1);"),
        )
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, *steps))
            with pytest.raises(StoreError, match="nowhere"):
                Store(tmp_path)
        assert dump(tmp_path) == before
        store = Store(tmp_path)
        assert settings(store) == {"kept"}
        store.close()

    def test_a_file_of_a_later_tidewire_is_refused(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.transact(lambda tx: tx.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}"))
        store.close()
        with pytest.raises(StoreError, match=f"has format {len(MIGRATIONS) + 1}") as caught:
            Store(tmp_path)
        assert "later" in caught.value.hint

    def test_a_directory_of_format_3_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample_3.DIRECTORY, directory, "3")
        state = persistence.load(store)
        for item in (sample_3.TABLE, sample_3.MVIEW, sample_3.INDEX, sample_3.HOLD, sample_3.LATE):
            assert state.items[item.id] == item
        assert holds.load(store) == sample_3.PLACES
        assert state.comments == sample_3.COMMENTS
        assert state.roles[sample_3.ROLE.id] == sample_3.ROLE
        assert state.owner(sample_3.HOLD.id) == sample_3.ROLE.id
        assert state.granted(sample_3.TABLE.id)[PUBLIC] == {Privilege.SELECT}
        assert store.read("SELECT value FROM meta WHERE key = 'downtime'") == [(60_000,)]
        log = Log(store, Payloads(directory / "payloads"))
        (old,) = log.batches(sample_3.TABLE.id)
        assert (old.id, old.time, old.payload_crc, old.spans) == (1, 1_000, None, None)
        inserted = Counter(plain(sample.INSERTED))
        assert Counter(plain(log.rows(sample_3.TABLE.id, 1_000, sample.ARROW_SCHEMA))) == inserted
        payload = log.prepare(sample.INSERTED)
        new = store.transact(lambda tx: log.insert(tx, sample_3.TABLE.id, Timestamp(2_000), payload))
        assert (new.id, new.payload_crc) == (2, payload.crc)
        log = Log(store, Payloads(directory / "payloads"))
        assert Counter(plain(log.rows(sample_3.TABLE.id, 2_000, sample.ARROW_SCHEMA))) == inserted + inserted
        store.close()

    def test_ids_of_batches_are_not_reused_after_the_migration_to_format_4(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        copy_sample(sample_3.DIRECTORY, directory)
        with closing(sqlite3.connect(file_of(directory))) as connection, connection:
            connection.execute("UPDATE sqlite_sequence SET seq = 41 WHERE name = 'batches'")
            connection.execute("DELETE FROM batches")
        store = Store(directory)
        assert store.read("SELECT name, seq FROM sqlite_sequence") == [("batches", 41)]
        store.close()

    def test_a_directory_of_format_4_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample_4.DIRECTORY, directory, "4")
        assert persistence.load(store).items[sample_4.TABLE.id] == sample_4.TABLE
        log = Log(store, Payloads(directory / "payloads"))
        assert len(log.batches(sample_4.TABLE.id)) == 2
        assert log.times(sample_4.TABLE.id, 0, 10_000) == list(sample_4.TIMES)
        for number, time in enumerate(sample_4.TIMES, 1):
            assert log.rows(sample_4.TABLE.id, time, sample.ARROW_SCHEMA).num_rows == 3 * number
        store.close()

    def test_a_directory_of_format_5_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample_5.DIRECTORY, directory, "5")
        assert source_state.load(store, sample_5.TABLE.id) == sample_5.STATE
        store.close()

    def test_a_directory_of_format_6_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample_6.DIRECTORY, directory, "6")
        state = persistence.load(store)
        assert tuple(state.items[item.id] for item in sample_6.ITEMS) == sample_6.ITEMS
        secret = state.items[sample_6.SECRET.id]
        assert isinstance(secret, NamedSecret)
        assert secret.value.reveal() == "correct horse"
        assert "horse" not in f"{state!r} {secret.value} {secret.value!r}"
        assert source_state.load(store, sample_6.TOPIC.id) == sample_6.STATE
        store.close()

    def test_a_directory_of_format_7_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample_7.DIRECTORY, directory, "7")
        errors = CollectionErrors(store)
        assert [(time, errors.at(sample_7.TOPIC.id, time)) for time in (10, 20)] == list(sample_7.ENTRIES)
        store.close()

    def test_a_directory_of_format_8_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample_8.DIRECTORY, directory, "8")
        assert persistence.load(store).items[sample_8.CHANGES.id] == sample_8.CHANGES
        assert source_state.load(store, sample_8.CHANGES.id) == sample_8.STATE
        assert persistence.load(store).items[sample_8.SINK.id] == sample_8.SINK
        assert source_state.load(store, sample_8.SINK.id) == sample_8.SINK_STATE
        store.close()

    def test_a_directory_of_format_9_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample_9.DIRECTORY, directory, "9")
        assert persistence.load(store).items[sample_9.SINK.id] == sample_9.SINK
        assert source_state.load(store, sample_9.SINK.id) == sample_9.SINK_STATE
        store.close()

    def test_a_directory_of_format_10_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample_10.DIRECTORY, directory, "10")
        roles = persistence.load(store).roles
        assert (roles[sample_10.ADMIN.id], roles[sample_10.USER.id]) == (sample_10.ADMIN, sample_10.USER)
        assert len(persistence.salt_key(store)) == 32
        store.close()

    def test_a_directory_of_format_12_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample_12.DIRECTORY, directory, "12")
        state = persistence.load(store)
        assert dict(state.memberships) == sample_12.MEMBERSHIPS
        assert {id: state.privileges[id] for id in sample_12.ACLS} == sample_12.ACLS
        assert dict(state.column_privileges) == sample_12.COLUMN_ACLS
        assert (state.roles[sample_12.MEMBER].login, state.roles[sample_12.MEMBER].create_role) == (True, False)
        store.close()

    def test_a_directory_of_format_13_is_opened(self, tmp_path: Path) -> None:
        store = opened_sample(sample_13.DIRECTORY, tmp_path / "data", "13")
        state = persistence.load(store)
        assert {id: state.privileges[id] for id in sample_13.ACLS} == sample_13.ACLS
        assert dict(state.column_privileges) == sample_13.COLUMN_ACLS
        assert dict(state.default_acls) == sample_13.DEFAULT_ACLS
        store.close()

    def test_a_directory_of_format_1_is_opened(self, tmp_path: Path) -> None:
        directory = tmp_path / "data"
        store = opened_sample(sample.DIRECTORY, directory, "1")
        state = persistence.load(store)
        assert {sample.DB, sample.OTHER_DB} == set(state.databases.values())
        assert {sample.PUBLIC, sample.AUDIT} <= set(state.schemas.values())
        assert state.owner(sample.TABLE.id) == MATERIALIZE.id
        assert state.granted(sample.PUBLIC.id)[PUBLIC] == {Privilege.USAGE}
        assert PUBLIC not in state.granted(sample.AUDIT.id)
        for item in (sample.TABLE, sample.VIEW, sample.MVIEW, sample.INDEX):
            assert state.items[item.id] == item
        assert state.next_id == 10
        assert store.read("SELECT value FROM meta WHERE key = 'reserved_until'") == [(13_000,)]
        log = Log(store, Payloads(directory / "payloads"))
        assert log.durable == {
            sample.TABLE.id: Frontiers(Timestamp(500), None),
            sample.MVIEW.id: Frontiers(Timestamp(500), Timestamp(2_500)),
        }
        assert log.times(sample.TABLE.id, 0, 10_000) == [1_000, 2_000, 3_000]
        inserted, large = plain(sample.INSERTED), plain(sample.LARGE)
        assert Counter(plain(log.rows(sample.TABLE.id, 2_000, sample.ARROW_SCHEMA))) == Counter(inserted + large)
        after = Counter(inserted + large)
        after[inserted[1]] -= 1
        assert Counter(plain(log.rows(sample.TABLE.id, 3_000, sample.ARROW_SCHEMA))) == after
        store.close()


class FailingSync:
    """A connection whose first `times` commits fail to sync: their frames are in the WAL and remain there."""

    def __init__(self, connection: sqlite3.Connection, times: int) -> None:
        self._connection = connection
        self.left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        is_alone = not self._connection.in_transaction and sql.startswith(("UPDATE", "INSERT"))
        if self.left and (sql == "COMMIT" or is_alone):
            self.left -= 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
            raise error
        return self._connection.execute(sql, *arguments)


def test_a_commit_that_was_not_synced_is_overwritten_before_its_failure_is_reported(store: Store) -> None:
    store.transact(put("before"))
    epoch = store.epoch
    store._writer = FailingSync(store._writer, 1)  # type: ignore[assignment]
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        store.transact(put("failed"))
    assert store.read("SELECT value FROM meta WHERE key = 'epoch'") == [(epoch + 1,)], "nothing was overwritten"
    store.transact(put("after"))
    assert settings(store) == {"before", "after"}


async def test_an_insert_that_was_not_synced_is_overwritten_before_its_failure_is_reported(store: Store) -> None:
    epoch = store.epoch
    store._writer = FailingSync(store._writer, 1)  # type: ignore[assignment]
    with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
        await store.insert_alone(*put_alone("failed"))
    assert store.read("SELECT value FROM meta WHERE key = 'epoch'") == [(epoch + 1,)], "nothing was overwritten"
    assert await store.insert_alone(*put_alone("after")) is not None
    store._writer = FailingSync(store._writer, 2)  # type: ignore[assignment]
    for _ in range(2):
        with pytest.raises(Undecided):
            await store.insert_alone(*put_alone("unknown"))
    assert settings(store) == {"after"}


def test_nothing_is_written_after_a_commit_with_an_unknown_outcome(store: Store) -> None:
    store._writer = FailingSync(store._writer, 2)  # type: ignore[assignment]
    with pytest.raises(Undecided, match="could not be synced"):
        store.transact(put("failed"))
    with pytest.raises(Undecided):
        store.transact(put("after"))
    assert settings(store) == set()
