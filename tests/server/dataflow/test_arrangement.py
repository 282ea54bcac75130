"""Arrangements return the same rows as a plain list of updates, through merges, spilling and compaction."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog import updates as u
from protocol.columnar.hashing import key_codes
from server.dataflow.arrangements import arrangement as a
from server.dataflow.arrangements import file_arrangement as filed
from server.dataflow.arrangements import run as r
from server.dataflow.arrangements import run_files
from server.dataflow.arrangements.arrangement import Arranger, Storage
from server.dataflow.arrangements.run import ByKey, ByKeyAndOrder, ByOrder
from tests.examples import examples
from tests.server.dataflow.workers import Workers

SCHEMA = pa.schema([("c0", pa.int32()), ("c1", pa.string())])
Row = tuple[int | None, str | None]
rows = st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.one_of(st.none(), st.sampled_from(["x", "y"])))
history = st.lists(st.lists(st.tuples(rows, st.sampled_from([1, 1, 1, 2, -1, 70_000])), max_size=5), max_size=12)


@pytest.fixture(scope="module", params=["in memory", "on disk", "in files", "in files later"])
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arranger]:
    directory, place = tmp_path_factory.mktemp("runs"), request.param
    storage = Storage(directory, 0 if place == "on disk" else 1 << 30)
    if not place.startswith("in files"):
        yield storage
        storage.close()
        return
    probing = filed.EXECUTORS if place == "in files" else filed.AUTO
    executors = filed.Executors(directory / "shared", Workers(), storage, lambda: probing)  # type: ignore[arg-type]
    with (
        mock.patch.multiple(filed, SERVER_BYTES_MAX=500, HEAD_BYTES_MAX=100, CODES_A_TASK=1),
        mock.patch.multiple(run_files, FILE_BYTES=400, ANSWER_BYTES_MAX=150),
    ):
        yield executors
        executors.close()
        executors.join()
    storage.close()
    assert list(directory.iterdir()) == []


def changes(updates: list[tuple[Row, int]]) -> pa.Table:
    table = pa.table([[r[0] for r, _ in updates], [r[1] for r, _ in updates]], schema=SCHEMA)
    return u.consolidate(table.append_column(u.DIFF_FIELD, pa.array([d for _, d in updates], pa.int64())))


def counts(found: pa.Table) -> Counter[Row]:
    summed: Counter[Row] = Counter()
    for c0, c1, diff in zip(*(found[name].to_pylist() for name in ("c0", "c1", u.DIFF)), strict=True):
        summed[c0, c1] += diff
    return Counter({row: count for row, count in summed.items() if count})


def truth(batches: list[list[tuple[Row, int]]], as_of: int) -> Counter[Row]:
    summed: Counter[Row] = Counter()
    for updates in batches[: as_of + 1]:
        for row, diff in updates:
            summed[row] += diff
    return Counter({row: count for row, count in summed.items() if count})


ranks = {None: 2, "x": 0, "y": 1}


@examples(80)
@given(batches=history, count=st.integers(1, 4), descending=st.booleans(), nulls_first=st.booleans(), data=st.data())
def test_the_first_rows_of_each_key_are_found(
    storage: Storage,
    batches: list[list[tuple[Row, int]]],
    count: int,
    descending: bool,
    nulls_first: bool,
    data: st.DataObject,
) -> None:
    """Of each key, all rows up to the rank at which there are at least `count`, and only existing rows."""

    async def run() -> None:
        order = ByOrder("c1", descending, nulls_first)
        arrangement = storage.arrangement(ByKeyAndOrder(("c0",), order), SCHEMA)
        for time, updates in enumerate(batches):
            await arrangement.insert(changes(updates), time)
            arrangement.advance(data.draw(st.integers(arrangement.since, time)))
        await arrangement.settle()
        if not batches:
            return
        as_of = data.draw(st.integers(arrangement.since, len(batches) - 1))
        keys = data.draw(st.sets(st.one_of(st.none(), st.integers(0, 5)), max_size=4))
        codes = key_hashes_of(list(keys))
        there = truth(batches, as_of)
        if any(count < 0 for count in there.values()):
            return  # operators raise an error for such rows
        wanted = np.array([count + int(code % np.uint64(2)) for code in codes], np.int64)
        found = counts(await arrangement.first_of(codes, wanted, as_of))
        assert all(row[0] in keys and there[row] == n for row, n in found.items())

        def rank(row: Row) -> int:
            if row[1] is None:
                return -9 if nulls_first else 9
            return -ranks[row[1]] if descending else ranks[row[1]]

        for key in keys:
            least = int(wanted[np.searchsorted(codes, key_hashes_of([key])[0])])
            left = [row for row in there if row[0] == key and row not in found]
            of_key = {row: n for row, n in found.items() if row[0] == key}
            assert not left or sum(of_key.values()) >= least
            assert all(rank(row) < rank(other) for row in of_key for other in left)

    asyncio.run(run())


def key_hashes_of(keys: list[int | None]) -> np.ndarray:
    table = pa.table([pa.array(keys, pa.int32())], ["c0"])
    return np.unique(key_codes(table, ("c0",)))


@pytest.mark.parametrize("at_once", [1 << 16, 2], ids=["merged at once", "merged in a thread"])
@examples(60)
@given(batches=history, stride=st.sampled_from([1, 300, 1 << 40]), since=st.data())
@pytest.mark.slow
def test_an_arrangement_equals_a_list_of_updates(
    storage: Arranger, at_once: int, batches: list[list[tuple[Row, int]]], stride: int, since: st.DataObject
) -> None:
    """`stride`: the difference between consecutive times. The updates of up to three times are inserted together."""

    async def run() -> None:
        arrangement = storage.arrangement(ByKey(("c0",)), SCHEMA)
        time = -1
        while time + 1 < len(batches):
            if time % 2:
                await arrangement.settle()
            first, time = time + 1, min(time + since.draw(st.integers(1, 3)), len(batches) - 1)
            tables = [changes(updates) for updates in batches[first : time + 1]]
            times = np.repeat(np.arange(first, time + 1) * stride, [table.num_rows for table in tables])
            together = None if len(tables) == 1 else times
            await arrangement.insert(pa.concat_tables(tables), time * stride, together)
            arrangement.advance(since.draw(st.integers(arrangement.since // stride, time)) * stride)
            for as_of in range(arrangement.since, time * stride + 1, stride):
                expected = truth(batches, as_of // stride)
                assert counts(await arrangement.all_rows(as_of)) == expected
                for keys in ([0], [None, 3], []):
                    found = await arrangement.probe(key_hashes_of(keys), as_of)
                    assert found.schema.names == [*SCHEMA.names, u.DIFF]
                    assert counts(found) == Counter({r: n for r, n in expected.items() if r[0] in keys})
        await arrangement.settle()

    with mock.patch.object(a, "MERGED_AT_ONCE", at_once):
        asyncio.run(run())


@examples(60)
@given(batches=history, count=st.integers(0, 6), descending=st.booleans(), nulls_first=st.booleans())
def test_the_first_rows_are_found_with_their_ties(
    storage: Arranger, batches: list[list[tuple[Row, int]]], count: int, descending: bool, nulls_first: bool
) -> None:
    batches = [[(row, abs(diff)) for row, diff in updates] for updates in batches]

    def place(row: Row) -> tuple[bool, int]:
        if row[0] is None:
            return (not nulls_first, 0)
        return (nulls_first, -row[0] if descending else row[0])

    async def run() -> None:
        arrangement = storage.arrangement(ByOrder("c0", descending, nulls_first), SCHEMA)
        for time, updates in enumerate(batches):
            await arrangement.insert(changes(updates), time)
        for as_of in range(len(batches)):
            expected = truth(batches, as_of)
            found = counts(await arrangement.first(count, as_of))
            assert all(expected[row] == n for row, n in found.items())
            assert sum(found.values()) >= min(count, sum(expected.values()))
            if found:
                last = max(map(place, found))
                assert set(found) == {row for row in expected if place(row) <= last}

    asyncio.run(run())


def test_compaction_drops_retracted_rows(storage: Arranger) -> None:
    async def run() -> None:
        arrangement = storage.arrangement(ByKey(("c0",)), SCHEMA)
        await arrangement.insert(changes([((i, "x"), 1) for i in range(1000)]), 0)
        await arrangement.insert(changes([((i, "x"), -1) for i in range(1000)]), 1)
        await arrangement.settle()
        arrangement.advance(1)
        await arrangement.insert(changes([((i, "y"), 1) for i in range(1000)]), 2)
        await arrangement.settle()
        assert arrangement.rows == 3000 or arrangement.rows == 1000
        arrangement.advance(2)
        await arrangement.insert(changes([((i, "z"), 1) for i in range(1000)]), 3)
        await arrangement.settle()
        assert arrangement.rows == 2000
        assert counts(await arrangement.all_rows(3)) == Counter({(i, s): 1 for i in range(1000) for s in "yz"})

    asyncio.run(run())


def test_memory_is_counted_until_the_arrangement_is_freed(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    arrangement = storage.arrangement(ByKey(("c0",)), SCHEMA)
    for time in range(20):
        asyncio.run(arrangement.insert(changes([((time, "x"), 1)] * 50), time))
    assert storage.memory_bytes == arrangement.memory_bytes == arrangement.bytes > 0
    del arrangement
    assert storage.memory_bytes == 0
    storage.close()


def test_spilled_runs_have_no_directory_entries(tmp_path: Path) -> None:
    storage = Storage(tmp_path, 0)
    arrangement = storage.arrangement(ByKey(("c0",)), SCHEMA)
    asyncio.run(arrangement.insert(changes([((1, "x"), 1)]), 0))
    assert arrangement.memory_bytes == 0 < arrangement.bytes
    assert list(tmp_path.iterdir()) == []
    storage.close()


def test_a_failed_merge_is_reported(tmp_path: Path) -> None:
    storage = Storage(tmp_path)

    async def run() -> None:
        arrangement = storage.arrangement(ByKey(("c0",)), SCHEMA)
        await arrangement.insert(changes([((1, "x"), 1)]), 0)
        await arrangement.insert(changes([((2, "x"), 1)]), 1)
        with pytest.raises(OSError, match="no room"):
            await arrangement.settle()
        assert counts(await arrangement.all_rows(1)) == Counter({(1, "x"): 1, (2, "x"): 1})

    merged = mock.patch.object(a, "merged", side_effect=OSError("no room"))
    with mock.patch.object(a, "MERGED_AT_ONCE", 0), mock.patch.object(a, "LARGE_RUNS_MIN", 2), merged:
        asyncio.run(run())
    storage.close()


def test_a_failed_insert_can_be_repeated_from_upper(tmp_path: Path) -> None:
    """A caller that shares the arrangement repeats the insert only if `upper` has not passed its time."""
    storage = Storage(tmp_path, 0)
    arrangement = storage.arrangement(ByKey(("c0",)), SCHEMA)
    for time, refused in ((0, "store"), (1, "_merge")):
        name, of = ("store", Storage) if refused == "store" else ("_merge_small", a.ServerArrangement)
        with mock.patch.object(of, name, side_effect=OSError("no room")), pytest.raises(OSError, match="no room"):
            asyncio.run(arrangement.insert(changes([((time, "x"), 1)]), time))
        if arrangement.upper <= time:
            asyncio.run(arrangement.insert(changes([((time, "x"), 1)]), time))
    assert counts(asyncio.run(arrangement.all_rows(1))) == Counter({(0, "x"): 1, (1, "x"): 1})
    storage.close()


def test_keys_that_share_a_hash_are_all_found(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are in one run or in several runs."""
    monkeypatch.setattr(r, "key_codes", lambda rows, key: np.zeros(len(rows), np.uint32))

    async def run() -> None:
        for batches in ([[(1, "x"), (2, "y"), (1, "x")]], [[(1, "x"), (1, "y")], [(2, "z")]]):
            arrangement = storage.arrangement(ByKeyAndOrder(("c0",), ByOrder("c1")), SCHEMA)
            for time, batch in enumerate(batches):
                await arrangement.insert(changes([(row, 1) for row in batch]), time)
            found = counts(await arrangement.first_of(np.zeros(1, np.uint32), np.ones(1, np.int64), len(batches)))
            assert {row[0] for row in found} == {1, 2}

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["quicksort", "stable"])
@examples(50)
@given(
    entries=st.lists(
        st.tuples(st.integers(0, 3) | st.integers(0, (1 << 32) - 1), st.integers(0, 9) | st.integers(0, (1 << 64) - 1)),
        min_size=1,
    ),
    base=st.sampled_from([0, 1 << 63, (1 << 64) - (1 << 32)]),
    is_near=st.booleans(),
)
def test_runs_are_sorted_by_key_and_order(
    kind: Literal["quicksort", "stable"], entries: list[tuple[int, int]], base: int, is_near: bool
) -> None:
    """`is_near`: all order codes are within 32 bits."""
    hashes = np.array([hash for hash, _ in entries], np.uint32)
    orders = np.array([base + order % (1 << 32) if is_near else order for _, order in entries], np.uint64)
    places = r._sorted_by_both(hashes, orders, kind)
    assert sorted(places.tolist()) == list(range(len(entries)))
    found = list(zip(hashes[places].tolist(), orders[places].tolist(), strict=True))
    assert found == sorted(zip(hashes.tolist(), orders.tolist(), strict=True))


@pytest.mark.parametrize("lags", [False, True])
def test_large_runs_are_rewritten_rarely(monkeypatch: pytest.MonkeyPatch, lags: bool) -> None:
    """Updates of the rows of a large run are copied about twice before they are merged with it.

    If a reader lags, they do not cancel, and are not merged again for this reason.
    """
    monkeypatch.setattr(a, "MERGED_AT_ONCE", 4)
    copied: list[int] = []
    merged = a.merged

    def counted(sorted_by: r.Sorting, runs: tuple[r.Run, ...], since: int) -> r.Run | None:
        copied.append(sum(len(run.codes) for run in runs))
        return merged(sorted_by, runs, since)

    monkeypatch.setattr(a, "merged", counted)
    rows = pa.table([np.arange(400, dtype=np.int32), ["x"] * 400], schema=SCHEMA)

    async def run() -> None:
        storage = Storage()
        arrangement = storage.arrangement(ByKey(("c0",)), SCHEMA)
        await arrangement.insert(u.with_diff(rows, 1), 0)
        for time in range(1, 41):
            old = rows.slice(6 * time, 6)
            new = pa.table([old["c0"], ["y"] * 6], schema=SCHEMA)
            await arrangement.insert(pa.concat_tables([u.with_diff(old, -1), u.with_diff(new, 1)]), time)
            arrangement.advance(0 if lags else time)
            await arrangement.settle()
            assert len(arrangement.runs_at(time)) <= 3 * a.LARGE_RUNS_MIN
        assert 0 < sum(size for size in copied if size < 400) < 40 * 12 * 2.5
        assert sum(size for size in copied if size >= 400) < 1_500
        assert len(counts(await arrangement.all_rows(40))) == 400
        assert arrangement.rows == 400 + 40 * 12 if lags else arrangement.rows < 1.7 * 400
        storage.close()

    asyncio.run(run())


@pytest.mark.parametrize("kept_back", [0, 50], ids=["compacted at once", "a reader lags"])
@pytest.mark.slow
def test_repeated_updates_of_the_same_rows_do_not_grow_the_arrangement(kept_back: int) -> None:
    """It has at most twice the Arrow size of its rows, at first and after a thousand updates."""
    count, touched = 100_000, 100
    texts = pa.array(["some text"]).take(pa.array(np.zeros(count, np.int64)))
    rows = pa.table([pa.array(np.arange(count, dtype=np.int32)), texts], schema=SCHEMA)
    versions = [
        pa.table([rows["c0"].slice(0, touched), pa.array([f"version {n % 10}"] * touched)], schema=SCHEMA)
        for n in range(1001)
    ]

    async def run() -> None:
        storage = Storage()
        arrangement = storage.arrangement(ByKey(("c0",)), SCHEMA)
        first = pa.concat_tables([versions[0], rows.slice(touched)])
        await arrangement.insert(u.with_diff(first, 1), 0)
        assert arrangement.bytes <= 2 * first.nbytes
        for time, (old, new) in enumerate(itertools.pairwise(versions), 1):
            changes = pa.concat_tables([u.with_diff(old, -1), u.with_diff(new, 1)])
            await arrangement.insert(changes, time)
            arrangement.advance(max(0, time - kept_back))
        await arrangement.settle()
        assert arrangement.bytes <= 2 * first.nbytes
        assert arrangement.rows <= count + 4 * touched * (1 + 2 * kept_back)
        assert counts(await arrangement.probe(key_hashes_of([5]), 1000)) == Counter({(5, "version 0"): 1})
        storage.close()

    asyncio.run(run())
