"""The log, compared with a plain model: whatever happens, each readable time has the rows that were written."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from catalog import log as module
from catalog import merge_runs, table_cache
from catalog import updates as u
from catalog.batches import Batch, Payload
from catalog.ids import ObjectId, Timestamp
from catalog.log import Compacted, Damaged, Dropped, Frontiers, Log
from catalog.payloads import Payloads
from catalog.store import Store
from tests.catalog.strategies import ARROW_TYPES, changes_tables, pairs, plain
from tests.examples import examples

SCHEMA = u.rows_schema([pa.int64(), pa.string()])
Count = Counter[tuple[object, ...]]
T = ObjectId("u1")


def rows_of(counts: Count) -> pa.Table:
    """Rows with the given multiplicities. The text makes some payloads too large for SQLite."""
    rows = list(counts.elements())
    return pa.table([[n for n, _ in rows], [text for _, text in rows]], schema=SCHEMA)


class Opened:
    """A log in a directory, with the calls that the server makes before and after each transaction."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory)
        self.payloads = Payloads(directory / "payloads")
        self.log = Log(self.store, self.payloads)

    def create(self, id: ObjectId, since: int = 0) -> None:
        self.store.transact(lambda tx: self.log.create(tx, id, Frontiers(Timestamp(since), None)))

    def write(self, time: int, *writes: tuple[ObjectId, pa.Table]) -> None:
        prepared = [(id, self.log.prepare(table)) for id, table in writes]

        def act(tx: sqlite3.Connection) -> list[tuple[Batch, Payload]]:
            return [(self.log.insert(tx, id, Timestamp(time), payload), payload) for id, payload in prepared]

        self.log.committed(self.store.transact(act))

    def replace(self, run: tuple[Batch, ...], merged: Payload) -> Batch:
        batch = self.store.transact(lambda tx: self.log.replace(tx, run, merged, 0))
        assert batch is not None
        self.log.replaced(run, batch, merged)
        return batch

    def drop(self, id: ObjectId) -> None:
        self.store.transact(lambda tx: self.log.drop(tx, id))
        self.log.dropped(id)

    def files(self) -> set[str | None]:
        return {batch.file for id in self.log.collections() for batch in self.log.batches(id)} - {None}


class LogMachine(RuleBasedStateMachine):
    """Random commits, merges, drops, failures and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="tidewire-log-"))
        self.patches = ExitStack()
        self.patches.enter_context(mock.patch.multiple(module, INLINE_BYTES=120, BATCH_ROWS=6))
        self.patches.enter_context(mock.patch.object(table_cache, "CACHE_BYTES", 4_000))
        self.patches.enter_context(mock.patch.multiple(merge_runs, MERGE_BATCHES=3, MERGE_ROWS=6))
        self.opened = Opened(self.directory)
        self.now = 1
        self.next_id = 1
        self.history: dict[ObjectId, dict[int, Count]] = {}  # the changes at each time
        self.since: dict[ObjectId, int] = {}

    def teardown(self) -> None:
        self.everything_is_readable()
        self.opened.store.close()
        self.patches.close()
        shutil.rmtree(self.directory)

    def at(self, id: ObjectId, as_of: int) -> Count:
        counts: Count = Counter()
        for time, changes in self.history[id].items():
            if time <= as_of:
                counts.update(changes)
        return +counts

    def between(self, id: ObjectId, lower: int, upper: int) -> Count:
        counts: Count = Counter()
        for time, changes in self.history[id].items():
            if lower <= time < upper:
                counts.update(changes)
        return Counter({row: n for row, n in counts.items() if n})

    def check(self, id: ObjectId, as_of: int, lower: int, upper: int) -> None:
        log = self.opened.log
        rows = log.rows(id, as_of, SCHEMA)
        assert rows.schema == SCHEMA
        assert Counter(plain(rows)) == self.at(id, as_of)
        changes = log.changes(id, lower, upper, SCHEMA)
        assert changes.schema == SCHEMA.append(u.DIFF_FIELD)
        assert dict(pairs(changes)) == self.between(id, lower, upper)
        assert len(pairs(changes)) == len(dict(pairs(changes)))
        assert log.times(id, lower, upper) == [t for t in sorted(self.history[id]) if lower <= t < upper]

    def everything_is_readable(self) -> None:
        log = self.opened.log
        for id, since in self.since.items():
            for as_of in {since, *self.history[id]} - set(range(since)):
                self.check(id, as_of, since + 1, as_of + 1)
                self.check(id, as_of, max(since + 1, as_of), as_of + 1)
            assert log.sizes_over_time(id).rows[-1:] == [sum(b.rows for b in log.batches(id))] * bool(log.batches(id))

    @precondition(lambda self: len(self.since) < 2)
    @rule()
    def create(self) -> None:
        id = ObjectId(f"u{self.next_id}")
        self.next_id += 1
        self.opened.create(id, self.now)
        self.history[id], self.since[id] = {}, self.now

    @precondition(lambda self: self.since)
    @rule(data=st.data(), commits=st.integers(1, 4))
    def commit(self, data: st.DataObject, commits: int) -> None:
        for _ in range(commits):
            self.commit_one(data, several=data.draw(st.booleans()), fails=data.draw(st.integers(0, 9)) == 9)

    def commit_one(self, data: st.DataObject, several: bool, fails: bool) -> None:
        self.now += data.draw(st.integers(1, 2))
        writes: list[tuple[ObjectId, Count]] = []
        ids = sorted(self.since)
        for id in ids if several else [data.draw(st.sampled_from(ids))]:
            present = sorted(self.at(id, self.now).items())
            changes: Count = Counter()
            for row, n in present:
                changes[row] -= data.draw(st.integers(0, n))
            for _ in range(data.draw(st.integers(0, 4))):
                changes[data.draw(st.integers(0, 3)), data.draw(st.sampled_from(["", "ab", "long" * 20]))] += 1
            writes.append((id, changes))
        if fails:
            self.fail(writes)
            return
        tables = []
        for id, changes in writes:
            added, removed = rows_of(+changes), rows_of(-changes)
            only_adds = not removed.num_rows
            table = added if only_adds else u.difference(added, removed)
            tables.append((id, pa.concat_tables([table.slice(0, 1), table.slice(1)])))
        self.opened.write(self.now, *tables)
        for id, changes in writes:
            self.history[id][self.now] = changes

    def fail(self, writes: list[tuple[ObjectId, Count]]) -> None:
        log = self.opened.log
        prepared = [(id, log.prepare(rows_of(+changes))) for id, changes in writes]

        def act(tx: sqlite3.Connection) -> None:
            for id, payload in prepared:
                log.insert(tx, id, Timestamp(self.now), payload)
            raise RuntimeError("the transaction fails")

        with pytest.raises(RuntimeError, match="the transaction fails"):
            self.opened.store.transact(act)
        for _, payload in prepared:
            log.discard(payload)

    @precondition(lambda self: self.since)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.since)))
        since = max(self.since[id], self.now - data.draw(st.integers(0, 3)))
        opened, log = self.opened, self.opened.log
        run = log.mergeable(id, since)
        if not run:
            return
        merged = log.merge(run)
        batch = opened.store.transact(lambda tx: log.replace(tx, run, merged, since))
        assert batch is not None
        self.since[id] = since
        self.check(id, since, since + 1, self.now + 1)  # a read between the transaction and the update of the index
        log.replaced(run, batch, merged)
        for time in [t for t in self.history[id] if t <= batch.time]:
            if time != batch.time:
                changes = self.history[id].pop(time)
                later = self.history[id].setdefault(batch.time, Counter())
                later.update(changes)
        if batch.time > 1:
            with pytest.raises(Compacted):
                log.rows(id, batch.time - 1, SCHEMA)
            with pytest.raises(Compacted):
                log.changes(id, batch.time, self.now + 1, SCHEMA)

    @precondition(lambda self: self.since)
    @rule(data=st.data())
    def compact_history(self, data: st.DataObject) -> None:
        """Every time remains readable before, during and after the merge's update of the index."""
        id = data.draw(st.sampled_from(sorted(self.since)))
        opened, log = self.opened, self.opened.log
        before = self.now + data.draw(st.integers(-2, 1))
        run = log.mergeable_history(id, self.since[id], before)
        if not run:
            return
        assert all(self.since[id] < time < before for batch in run for time in (batch.first_time, batch.time))
        merged = log.merge_history(run)
        batch = opened.store.transact(lambda tx: log.replace(tx, run, merged, 0))
        assert batch is not None
        self.everything_is_readable()
        log.replaced(run, batch, merged)
        self.everything_is_readable()

    @precondition(lambda self: len(self.since) == 2)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.since)))
        self.opened.drop(id)
        del self.history[id], self.since[id]

    @rule(orphan=st.booleans())
    def reopen(self, orphan: bool) -> None:
        self.opened.store.close()
        if orphan:
            self.opened.payloads.write(SCHEMA, rows_of(Counter({(1, "a"): 1})).to_batches())
        self.opened = Opened(self.directory)
        assert {id: f.since for id, f in self.opened.log.durable.items()}.keys() == self.since.keys()
        for id, frontiers in self.opened.log.durable.items():
            assert frontiers.since == self.since[id]

    @precondition(lambda self: self.since)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.since)))
        as_of = data.draw(st.integers(self.since[id], self.now + 1))
        lower = data.draw(st.integers(self.since[id] + 1, self.now + 2))
        self.check(id, as_of, lower, data.draw(st.integers(lower, self.now + 2)))

    @invariant()
    def the_files_are_those_that_are_named(self) -> None:
        self.opened.log.remove_unused()
        assert self.opened.payloads.names() == self.opened.files()
        sizes = self.opened.log.sizes()
        assert sum(rows for rows, _ in sizes.values()) == sum(
            n for (n,) in self.opened.store.read("SELECT rows FROM batches")
        )

    @invariant()
    def the_cache_keeps_its_bound(self) -> None:
        cache = self.opened.log._cache
        assert cache.inline_bytes == sum(memory for _, memory in cache._inline.values()) <= table_cache.CACHE_BYTES
        assert not self.opened.log._leaving


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = examples(15, stateful_step_count=25)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path)
    opened.create(T)
    yield opened
    opened.store.close()


def rows(*numbers: int, text: str = "a") -> pa.Table:
    return rows_of(Counter({(n, text): 1 for n in numbers}))


class TestPayloads:
    def test_small_payloads_are_in_sqlite_and_large_ones_in_files(self, opened: Opened) -> None:
        opened.write(1, (T, rows(1)))
        opened.write(2, (T, rows(2, text="x" * module.INLINE_BYTES)))
        small, large = opened.log.batches(T)
        assert small.file is None
        assert large.file is not None
        assert opened.store.read("SELECT payload IS NULL FROM batches ORDER BY id") == [(0,), (1,)]
        assert opened.payloads.names() == {large.file}

    def test_a_cached_slice_does_not_keep_the_whole_table_in_memory(self, opened: Opened) -> None:
        whole = rows(*range(100_000))
        payload = opened.log.prepare(whole.slice(5, 2))
        assert plain(payload.table) == plain(whole.slice(5, 2))
        assert payload.table.get_total_buffer_size() < 1_000

    def test_an_inline_payload_is_a_stream_as_arrow_writes_it(self, opened: Opened) -> None:
        @given(changes_tables(ARROW_TYPES))
        def check(table: pa.Table) -> None:
            payload = opened.log.prepare(table)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
            assert payload.inline == sink.getvalue().to_pybytes()
            assert payload.inline is not None
            assert pairs(payload.table) == pairs(pa.ipc.open_stream(payload.inline).read_all()) == pairs(table)

        check()

    def test_a_merge_of_many_small_batches_has_few_record_batches(self, opened: Opened) -> None:
        for time in range(1, 41):
            opened.write(time, (T, rows(time, text="x" * 2_000)))
        merged = opened.log.merge(opened.log.batches(T)[:])
        assert merged.file is not None
        assert merged.table["c0"].num_chunks == 1
        assert merged.table["c0"].to_pylist() == list(range(1, 41))
        opened.log.discard(merged)
        assert opened.payloads.names() == set()


class TestDamage:
    def test_a_damaged_file(self, opened: Opened, tmp_path: Path) -> None:
        opened.write(1, (T, rows(1, text="x" * module.INLINE_BYTES)))
        (batch,) = opened.log.batches(T)
        (tmp_path / "payloads" / str(batch.file)).write_bytes(b"ARROW1 and then nothing of the kind")
        opened.log = Log(opened.store, opened.payloads)
        with pytest.raises(Damaged, match=f"batch {batch.id} of u1"):
            opened.log.rows(T, 1, SCHEMA)

    def test_a_missing_file(self, opened: Opened) -> None:
        opened.write(1, (T, rows(1, text="x" * module.INLINE_BYTES)))
        (batch,) = opened.log.batches(T)
        opened.payloads.remove(str(batch.file))
        with pytest.raises(Damaged, match=f"batch {batch.id} of u1"):
            opened.log.rows(T, 1, SCHEMA)

    def test_a_damaged_inline_payload_affects_its_batch_alone(self, opened: Opened, tmp_path: Path) -> None:
        opened.write(1, (T, rows(1, 2, text="x" * 77)))
        opened.write(2, (T, rows(2)))
        opened.store.close()
        with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as connection, connection:
            ((payload,),) = connection.execute("SELECT payload FROM batches WHERE id = 1").fetchall()
            # The offsets of the second text. Without a check, the damaged one would point outside the buffer.
            offsets = struct.pack("<ii", 77, 154)
            damaged = payload.replace(offsets, struct.pack("<ii", 2**31 - 1, 154))
            assert payload.count(offsets) == 1
            for id, bytes_ in ((1, damaged), (2, b"nothing")):
                connection.execute("UPDATE batches SET payload = ? WHERE id = ?", (bytes_, id))
        again = Opened(tmp_path)
        for lower, upper in ((1, 2), (2, 3)):
            with pytest.raises(Damaged):
                again.log.changes(T, lower, upper, SCHEMA)
        assert again.log.changes(T, 3, 4, SCHEMA).num_rows == 0
        again.store.close()

    def flip(self, path: Path, at: int, count: int = 1) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            old = file.read(count)
            file.seek(at)
            file.write(bytes(byte ^ 0xFF for byte in old))

    def test_any_flipped_byte_of_a_payload_file_is_found(self, opened: Opened, tmp_path: Path) -> None:
        """This includes the values, which Arrow cannot check, and merged batches. Every other collection can be
        read."""
        other = ObjectId("u2")
        opened.create(other)
        for time in range(1, 4):
            opened.write(time, (T, rows(time, text="x" * module.INLINE_BYTES)), (other, rows(time)))
        opened.log.discard(opened.log.merge(opened.log.batches(T)[:]))  # the whole file is mapped, and remains mapped
        file = tmp_path / "payloads" / str(opened.log.batches(T)[1].file)
        opened.store.close()
        size = file.stat().st_size
        for at in range(0, size - 40, size // 23):
            self.flip(file, at, 40)
            again = Opened(tmp_path)
            with pytest.raises(Damaged, match="batch 3 of u1 is damaged") as damaged:
                again.log.rows(T, 3, SCHEMA)
            assert "checksum" in damaged.value.detail
            with pytest.raises(Damaged):
                again.log.merge(again.log.batches(T)[:])
            with pytest.raises(Damaged):
                again.log.merge_history(again.log.batches(T)[:])
            assert again.log.changes(T, 3, 4, SCHEMA).num_rows == 1, "another batch of the collection"
            assert again.log.rows(other, 3, SCHEMA).num_rows == 3
            again.store.close()
            self.flip(file, at, 40)
        again = Opened(tmp_path)
        assert again.log.rows(T, 3, SCHEMA).num_rows == 3
        again.store.close()

    def test_a_file_that_is_truncated_while_it_is_mapped(self, opened: Opened, tmp_path: Path) -> None:
        """Reading a missing page would end the server by SIGBUS."""
        opened.write(1, (T, rows(1, text="x" * module.INLINE_BYTES)))
        again = Log(opened.store, opened.payloads)
        assert again.rows(T, 1, SCHEMA).num_rows == 1
        file = tmp_path / "payloads" / str(again.batches(T)[0].file)
        with file.open("r+b") as cut:
            cut.truncate(100)
        with pytest.raises(Damaged, match="batch 1"):
            again.rows(T, 1, SCHEMA)

    def test_a_flipped_value_in_sqlite_is_found(self, opened: Opened, tmp_path: Path) -> None:
        """The value is still valid Arrow: without the checksum it would be returned as a row."""
        opened.write(1, (T, rows(4711)))
        opened.store.close()
        with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as connection, connection:
            ((payload,),) = connection.execute("SELECT payload FROM batches").fetchall()
            written = struct.pack("<q", 4711)
            assert payload.count(written) == 1
            connection.execute("UPDATE batches SET payload = ?", (payload.replace(written, struct.pack("<q", 4712)),))
        again = Opened(tmp_path)
        with pytest.raises(Damaged, match="batch 1 of u1"):
            again.log.rows(T, 1, SCHEMA)
        again.store.close()

    @pytest.mark.parametrize("column", ["time", "rows", "bytes", "file", "payload_crc", "row_crc", "times"])
    def test_a_damaged_batch_row_affects_its_collection_alone(
        self, opened: Opened, tmp_path: Path, column: str
    ) -> None:
        """No payload file is removed, because a damaged row may name a wrong file."""
        other = ObjectId("u2")
        opened.create(other)
        opened.write(1, (T, rows(1, text="x" * module.INLINE_BYTES)), (other, rows(1)))
        opened.write(2, (T, rows(2)))
        files = opened.payloads.names()
        opened.store.close()
        with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as connection, connection:
            value = "x'00'" if column == "times" else "'gone.arrow'" if column == "file" else f"{column} + 7"
            connection.execute(f"UPDATE batches SET {column} = {value} WHERE id = 1")
        again = Opened(tmp_path)
        for _ in range(2):
            with pytest.raises(Damaged, match="batch 1 of u1"):
                again.log.rows(T, 2, SCHEMA)
        assert again.log.rows(other, 2, SCHEMA).num_rows == 1
        assert again.payloads.names() == files
        again.drop(T)
        again.store.close()


class TestRaces:
    """Operations of one caller between another caller's transaction and its update of the index."""

    def compacting(self, opened: Opened) -> tuple[tuple[Batch, ...], Payload]:
        for time in range(1, merge_runs.MERGE_BATCHES + 1):
            opened.write(time, (T, rows(time)))
        run = opened.log.mergeable(T, 100)
        assert len(run) == merge_runs.MERGE_BATCHES
        return run, opened.log.merge(run)

    def test_drop_before_the_transaction_of_a_merge(self, opened: Opened) -> None:
        run, merged = self.compacting(opened)
        opened.drop(T)
        assert opened.store.transact(lambda tx: opened.log.replace(tx, run, merged, 100)) is None
        assert opened.store.read("SELECT * FROM batches") == []

    @pytest.mark.parametrize("order", ["merger first", "drop first"])
    def test_drop_after_the_transaction_of_a_merge(
        self, opened: Opened, order: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "INLINE_BYTES", 100)
        run, merged = self.compacting(opened)
        assert merged.file is not None
        batch = opened.store.transact(lambda tx: opened.log.replace(tx, run, merged, 100))
        assert batch is not None
        opened.store.transact(lambda tx: opened.log.drop(tx, T))
        for collection in (None, T) if order == "merger first" else (T, None):
            if collection is None:
                opened.log.replaced(run, batch, merged)
            else:
                opened.log.dropped(collection)
        opened.log.remove_unused()
        assert opened.payloads.names() == set()
        assert opened.log.collections() == []

    def test_a_read_between_the_transaction_of_a_merge_and_its_index_update(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(table_cache, "CACHE_BYTES", 0)
        run, merged = self.compacting(opened)
        before = plain(opened.log.rows(T, 100, SCHEMA))
        batch = opened.store.transact(lambda tx: opened.log.replace(tx, run, merged, 100))
        assert batch is not None
        assert plain(opened.log.rows(T, 100, SCHEMA)) == before
        opened.log.replaced(run, batch, merged)
        assert plain(opened.log.rows(T, 100, SCHEMA)) == before
        assert not opened.log._leaving

    def test_a_commit_during_a_merge_follows_the_merged_batch(self, opened: Opened) -> None:
        run, merged = self.compacting(opened)
        opened.write(50, (T, rows(50)))
        batch = opened.store.transact(lambda tx: opened.log.replace(tx, run, merged, 40))
        assert batch is not None
        opened.log.replaced(run, batch, merged)
        assert [b.time for b in opened.log.batches(T)] == [merge_runs.MERGE_BATCHES, 50]
        assert opened.log.rows(T, 50, SCHEMA)["c0"].to_pylist() == [*range(1, merge_runs.MERGE_BATCHES + 1), 50]

    def test_a_write_to_a_dropped_collection_is_refused(self, opened: Opened) -> None:
        opened.drop(T)
        with pytest.raises(Dropped):
            opened.write(1, (T, rows(1)))
        assert opened.store.read("SELECT * FROM batches") == []

    def test_a_read_of_a_collection_that_is_being_dropped(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(table_cache, "CACHE_BYTES", 0)
        opened.write(1, (T, rows(1)))
        opened.store.transact(lambda tx: opened.log.drop(tx, T))
        with pytest.raises(Dropped):
            opened.log.rows(T, 1, SCHEMA)


def test_batch_sizes_grow_geometrically_and_deleted_rows_take_little_space(opened: Opened) -> None:
    """Each row is rewritten a logarithmic number of times. Deleted rows and their retractions remain only until the
    retractions are about as many as the rows of the batch before them."""
    rewritten = 0
    for time in range(1, 401):
        table = rows(time) if time <= 200 else u.with_diff(rows(time - 200), -1)
        opened.write(time, (T, table))
        while run := opened.log.mergeable(T, time):
            merged = opened.log.merge(run)
            rewritten += sum(b.rows for b in run)
            opened.replace(run, merged)
        assert len(opened.log.batches(T)) <= 20
    assert rewritten < 400 * 4
    assert opened.log.rows(T, 400, SCHEMA).num_rows == 0
    assert opened.log.sizes()[T][0] < 200


def test_a_small_batch_after_a_larger_one_does_not_prevent_merges(opened: Opened) -> None:
    """Otherwise batches of random sizes remained until many new rows were written."""
    numbers = itertools.count()
    for time in range(1, 201):
        opened.write(time, (T, rows(*itertools.islice(numbers, 1 if time % 2 == 0 else 20))))
    while run := opened.log.mergeable(T, 200):
        merged = opened.log.merge(run)
        opened.replace(run, merged)
    assert len(opened.log.batches(T)) < 10
    assert sorted(opened.log.rows(T, 200, SCHEMA)["c0"].to_pylist()) == [*range(2_100)]


def test_large_batches_are_rewritten_rarely(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates of the rows of a large batch are copied less than twice before they are merged with it."""
    monkeypatch.setattr(merge_runs, "MERGE_ROWS", 6)
    opened.write(1, (T, rows(*range(400))))
    rewritten = 0
    for time in range(2, 42):
        opened.write(time, (T, u.with_diff(rows(*range(time * 6, time * 6 + 6)), -1)))
        while run := opened.log.mergeable(T, time):
            merged = opened.log.merge(run)
            rewritten += sum(b.rows for b in run) if run[0].rows < 100 else 0
            opened.replace(run, merged)
        assert len(opened.log.batches(T)) <= 20
    assert 0 < rewritten < 40 * 6 * 2
    assert opened.log.rows(T, 41, SCHEMA).num_rows == 400 - 40 * 6


@pytest.mark.slow
def test_held_history_is_in_few_batches_and_each_time_is_readable(opened: Opened) -> None:
    """A hold keeps 2,000 commits at distinct times: batches and rewritten rows are logarithmic in the number of
    commits."""
    commits, rewritten, log = 2_000, 0, opened.log
    opened.write(5, (T, rows(*range(1_000))))
    for time in range(10, 10 + commits):
        opened.write(time, (T, rows(time) if time % 3 else u.with_diff(rows(time - 1), -1)))
        while run := log.mergeable_history(T, 5, time + 1):
            merged = log.merge_history(run)
            rewritten += sum(b.rows for b in run)
            batch = opened.store.transact(lambda tx, run=run, merged=merged: log.replace(tx, run, merged, 0))  # type: ignore[misc]
            assert batch is not None
            log.replaced(run, batch, merged)
    assert len(log.batches(T)) <= 20
    assert rewritten < commits * 12
    again = Log(opened.store, opened.payloads)
    assert again.times(T, 6, 10**9) == list(range(10, 10 + commits))
    assert again.row_count(T, 12, 112) == 100
    for time in (12, 13, 14):
        expected = [((time, "a"), 1)] if time % 3 else [((time - 1, "a"), -1)]
        assert pairs(again.changes(T, time, time + 1, SCHEMA)) == expected
    assert again.rows(T, 15, SCHEMA).num_rows == 1_000 + 4 - 2
    sizes = again.sizes_over_time(T)
    assert sizes.between(11, 111)[0] == 100
    assert sizes.rows[-1] == 1_000 + commits


def test_history_that_is_no_longer_held_is_consolidated_however_short_it_is(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_runs, "MERGE_BATCHES", 3)
    for time in range(1, 4):
        opened.write(time, (T, rows(0) if time % 2 else u.with_diff(rows(0), -1)))
    run = opened.log.mergeable_history(T, 0, 10)
    merged = opened.log.merge_history(run)
    batch = opened.replace(run, merged)
    assert opened.log.mergeable(T, 2) == ()
    assert opened.log.mergeable(T, 3) == (batch,)
    assert opened.log.merge((batch,)).table.num_rows == 1


def test_a_batch_with_times_on_both_sides_of_since_does_not_grow(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, rows that are no longer held would remain on disk as long as a hold follows the newest commits."""
    monkeypatch.setattr(merge_runs, "MERGE_BATCHES", 3)
    for time in range(1, 4):
        opened.write(time, (T, rows(time)))
    run = opened.log.mergeable_history(T, 0, 10)
    merged = opened.log.merge_history(run)
    opened.replace(run, merged)
    for time in range(4, 7):
        opened.write(time, (T, rows(time)))
    assert opened.log.mergeable(T, 2) == ()
    assert opened.log.mergeable_history(T, 2, 10) == opened.log.batches(T)[1:]
    assert opened.log.mergeable_history(T, 0, 10) == opened.log.batches(T)[:]
    assert opened.log.mergeable(T, 6) == opened.log.batches(T)[:]


def test_a_merge_copies_large_rows_in_small_parts() -> None:
    """A limit on the number of rows is not sufficient: 20,000 rows may be gigabytes."""
    rows = pa.table({"v": ["x" * 100_000] * 400})
    batches = list(module._record_batches(pa.concat_tables([rows.slice(n, 1) for n in range(400)])))
    assert sum(batch.num_rows for batch in batches) == 400
    assert max(batch.nbytes for batch in batches) <= module.COPIED_BYTES
