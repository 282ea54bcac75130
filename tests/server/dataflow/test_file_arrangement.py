"""Arrangements in files: failures of files, disks and statements, and the lifetime of the files."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from catalog import updates as u
from protocol.columnar.hashing import key_codes
from protocol.pgwire.errors import PgError
from server.dataflow.arrangements import file_arrangement as filed
from server.dataflow.arrangements import run_files, task_runner
from server.dataflow.arrangements.arrangement import Storage
from server.dataflow.arrangements.file_arrangement import Executors, FileArrangement
from server.dataflow.arrangements.run import ByKey, ByOrder, Run, Sorting
from tests.polling import HANG_S
from tests.server.dataflow.workers import Workers

SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string())])


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
def executors(workers: Workers, tmp_path: Path) -> Iterator[Executors]:
    storage = Storage(tmp_path)
    with (
        mock.patch.object(filed, "HEAD_BYTES_MAX", 1_600),
        mock.patch.multiple(task_runner, RETRY_S=0.2, RETRY_PAUSES_S=(0.01,)),
    ):
        made = Executors(tmp_path / "shared", workers, storage, lambda: filed.EXECUTORS)  # type: ignore[arg-type]
        yield made
        made.close()
        made.join()
    storage.close()
    assert list(tmp_path.iterdir()) == []


def made(executors: Executors, sorted_by: Sorting = ByKey(("c0",))) -> FileArrangement:  # noqa: B008
    found = executors.arrangement(sorted_by, SCHEMA)
    assert isinstance(found, FileArrangement)
    return found


def numbered(first: int, end: int, diff: int = 1) -> pa.Table:
    numbers = np.arange(first, end)
    return u.with_diff(pa.table([pa.array(numbers), pa.array(numbers % 7).cast(pa.string())], schema=SCHEMA), diff)


def codes(*numbers: int) -> Any:
    return np.unique(key_codes(pa.table([pa.array(numbers, pa.int64())], ["c0"]), ("c0",)))


def files(tmp_path: Path) -> list[Path]:
    walk = os.walk(tmp_path / "shared")  # unlike rglob, it continues when a directory is deleted
    return sorted(Path(top) / name for top, _, names in walk for name in names if name.endswith(".arrow"))


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():  # noqa: ASYNC110 (no event signals that a file is deleted)
            await asyncio.sleep(0.005)


def numbers(found: pa.Table) -> list[int]:
    assert set(found[u.DIFF].to_pylist()) <= {1}
    return sorted(found["c0"].to_pylist())


@pytest.mark.parametrize("seen", [0, 100, -100], ids=["nothing", "the beginning", "all but the end"])
async def test_an_incomplete_file_is_waited_for(
    executors: Executors, workers: Workers, tmp_path: Path, seen: int
) -> None:
    arrangement = made(executors)
    await arrangement.insert(numbered(0, 1000), 1)
    (path,) = files(tmp_path)
    data = path.read_bytes()
    if seen:
        path.write_bytes(data[:seen])
    else:
        path.unlink()

    def appears() -> None:
        if workers.statements == 3:
            path.write_bytes(data)

    workers.fault = appears
    assert numbers(await arrangement.probe(codes(3, 5000, 7), 1)) == [3, 7]
    assert workers.statements == 3


async def test_a_missing_file_is_an_error_with_a_hint(executors: Executors, tmp_path: Path) -> None:
    arrangement = made(executors)
    await arrangement.insert(numbered(0, 1000), 1)
    (path,) = files(tmp_path)
    run_files._used.clear()
    moved = path.rename(path.with_suffix(".moved"))
    for ask in (
        lambda: arrangement.probe(codes(3), 1),
        lambda: arrangement.all_rows(1),
        lambda: arrangement.first(3, 1),
    ):
        with pytest.raises(PgError, match="executors cannot use the files") as raised:
            await ask()
        assert raised.value.sqlstate == "58030"
        assert str(tmp_path / "shared").rpartition("/")[0] in (raised.value.hint or "")
    moved.rename(path)
    assert numbers(await arrangement.probe(codes(3), 1)) == [3]


@pytest.mark.parametrize("rows", [10, 1000, 40_000])
async def test_a_full_disk_leaves_no_files(
    executors: Executors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Repeating the failed insert stores its rows exactly once."""
    monkeypatch.setattr(run_files, "FILE_BYTES", 100_000)
    arrangement = made(executors)
    await arrangement.insert(numbered(-100, 0), 1)
    before, written = files(tmp_path), run_files._written

    def full(run: Run, directory: Path, name: str) -> run_files.RunFile:
        if rows < 10_000 or len(files(tmp_path)) > len(before) + 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(run, directory, name)

    monkeypatch.setattr(run_files, "_written", full)
    if rows > 10:
        with pytest.raises(OSError, match="No space"):
            await arrangement.insert(numbered(0, rows), 2)
        assert arrangement.upper == 2
    assert files(tmp_path) == before
    monkeypatch.setattr(run_files, "_written", written)
    await arrangement.insert(numbered(0, rows), 2)
    assert numbers(await arrangement.all_rows(2)) == list(range(-100, rows))


async def test_a_head_that_cannot_be_written_stays_and_is_reported(
    executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrangement = made(executors)
    await arrangement.insert(numbered(0, 1000), 1)
    await arrangement.insert(numbered(1000, 1060), 2)
    with monkeypatch.context() as patched:
        patched.setattr(run_files, "_written", mock.Mock(side_effect=OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            await arrangement.insert(numbered(1060, 1130), 3)
    assert arrangement.upper == 4  # the rows are inserted: a retry begins after them
    assert numbers(await arrangement.all_rows(3)) == list(range(1130))
    await arrangement.insert(numbered(1130, 1180), 4)
    assert arrangement.memory_bytes == 0
    assert numbers(await arrangement.all_rows(4)) == list(range(1180))


async def test_a_failed_merge_is_reported_and_repeated(executors: Executors, workers: Workers, tmp_path: Path) -> None:
    arrangement = made(executors)

    def lost() -> None:
        raise PgError("XX000", "the engine was lost")

    workers.fault = lost
    await arrangement.insert(numbered(0, 1000), 1)
    await arrangement.insert(numbered(1000, 2000), 2)
    with pytest.raises(PgError, match="lost"):
        await arrangement.settle()
    workers.fault = None
    assert numbers(await arrangement.all_rows(2)) == list(range(2000))
    await arrangement.insert(numbered(2000, 3000), 3)
    await arrangement.settle()
    assert numbers(await arrangement.all_rows(3)) == list(range(3000))
    await eventually(lambda: len(files(tmp_path)) == 1)


async def test_a_task_is_retried_when_a_worker_fails(executors: Executors, workers: Workers) -> None:
    arrangement = made(executors)
    await arrangement.insert(numbered(0, 1000), 1)
    faults = [PgError("XX000", "a worker ended")] * (task_runner.WORKERS_MAX - 1)

    def failing() -> None:
        if faults:
            raise faults.pop()

    workers.fault = failing
    assert numbers(await arrangement.probe(codes(1, 2), 1)) == [1, 2]
    faults += [PgError("XX000", "a worker ended")] * task_runner.WORKERS_MAX
    with pytest.raises(PgError, match="a worker ended"):
        await arrangement.probe(codes(1, 2), 1)
    faults[:] = [PgError("57014", "canceled"), PgError("57014", "twice")]
    with pytest.raises(PgError, match="twice"):
        await arrangement.probe(codes(1, 2), 1)


async def test_a_merge_that_runs_twice_leaves_no_files(executors: Executors, workers: Workers, tmp_path: Path) -> None:
    """This happens when an executor is lost after it has written its files."""
    arrangement, run = made(executors), Workers.run

    async def twice(*args: Any, **named: Any) -> pa.Table:
        await run(workers, *args, **named)
        return await run(workers, *args, **named)

    with mock.patch.object(workers, "run", twice):
        for time_ in (1, 2, 3):
            await arrangement.insert(numbered(1000 * time_, 1000 * time_ + 1000), time_)
            await arrangement.settle()
    assert numbers(await arrangement.all_rows(3)) == list(range(1000, 4000))
    gc.collect()
    known = sorted(Path(file.path) for run in arrangement._runs for file in run.files)
    await eventually(lambda: files(tmp_path) == known)


async def test_the_files_of_a_probe_exist_until_it_ends(executors: Executors, workers: Workers, tmp_path: Path) -> None:
    """They are merged, and nothing else uses them any more, while the probe's statement waits."""
    arrangement = made(executors)
    await arrangement.insert(numbered(0, 1000), 1)
    (first,) = files(tmp_path)
    run_files._used.clear()
    asked, go, run = asyncio.Event(), asyncio.Event(), Workers.run

    async def late(*args: Any, **named: Any) -> pa.Table:
        asked.set()
        await go.wait()
        return await run(workers, *args, **named)

    with mock.patch.object(workers, "run", late):
        probe = asyncio.create_task(arrangement.probe(codes(3, 1500), 1))
        await asked.wait()
    await arrangement.insert(numbered(1000, 2000), 2)
    await arrangement.settle()
    assert first.exists()
    go.set()
    assert numbers(await probe) == [3]
    del probe
    gc.collect()
    await eventually(lambda: not first.exists())


async def test_cancelled_work_changes_no_rows(executors: Executors, workers: Workers) -> None:
    arrangement = made(executors)
    await arrangement.insert(numbered(0, 1000), 1)

    async def never(*_: Any, **__: Any) -> pa.Table:
        await asyncio.Event().wait()

    def probe() -> Awaitable[pa.Table]:
        return arrangement.probe(codes(3), 1)

    with mock.patch.object(workers, "run", never):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(probe(), 0.01)
        await arrangement.insert(numbered(1000, 2000), 2)
        with pytest.raises(TimeoutError):  # cancels the merge
            await asyncio.wait_for(arrangement.settle(), 0.01)
    assert numbers(await arrangement.all_rows(2)) == list(range(2000))


async def test_size_or_the_setting_decides_where_probes_run(workers: Workers, tmp_path: Path) -> None:
    choice = filed.AUTO
    storage = Storage(tmp_path)
    executors = Executors(tmp_path / "shared", workers, storage, lambda: choice)  # type: ignore[arg-type]
    with mock.patch.object(filed, "SERVER_BYTES_MAX", 20_000):
        grown = executors.arrangement(ByKey(("c0",)), SCHEMA)
        for step in range(4):
            await grown.insert(numbered(400 * step, 400 * step + 400), step)
            assert grown.probed_by == ("server" if grown.bytes <= 20_000 else "executors")
        assert grown.probed_by == "executors"
        large = executors.arrangement(ByKey(("c0",)), SCHEMA)
        await large.insert(numbered(0, 2000), 1)
        assert large.probed_by == "executors"
        assert large.memory_bytes == 0
        choice = filed.SERVER
        kept = executors.arrangement(ByKey(("c0",)), SCHEMA)
        await kept.insert(numbered(0, 800), 1)
        assert kept.probed_by == "server"
        choice = filed.EXECUTORS
        small = executors.arrangement(ByKey(("c0",)), SCHEMA)
        await small.insert(numbered(0, 1), 1)
        assert small.probed_by == "executors"
        for one in (grown, large, kept):
            assert numbers(await one.probe(codes(3, 799, 5000), 3)) == [3, 799]
    executors.close()
    executors.join()
    storage.close()


async def test_closed_arrangements_have_no_files(executors: Executors, tmp_path: Path) -> None:
    arrangement, other = made(executors), made(executors)
    for one in (arrangement, other):
        await one.insert(numbered(0, 1000), 1)
    assert len(files(tmp_path)) == 2
    arrangement.close()
    await eventually(lambda: len(files(tmp_path)) == 1)
    assert numbers(await other.all_rows(1)) == list(range(1000))


async def test_the_first_rows_are_read_from_few_files(
    executors: Executors, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "FILE_BYTES", 50_000)
    arrangement = made(executors, ByOrder("c0", descending=True))
    many = numbered(0, 50_000).take(pa.array(np.random.default_rng(1).permutation(50_000)))
    await arrangement.insert(many, 1)
    assert len(files(tmp_path)) > 10
    assert arrangement.memory_bytes == 0
    await arrangement.insert(numbered(49_990, 50_000, -1), 2)
    asked = workers.statements
    run_files._used.clear()
    assert numbers(await arrangement.first(3, 2)) == [49_987, 49_988, 49_989]
    assert numbers(await arrangement.first(3, 1)) == [49_997, 49_998, 49_999]
    assert workers.statements == asked + 2
    assert len(run_files._used) <= 2
    assert numbers(await arrangement.first(60_000, 2)) == list(range(49_990))


async def test_a_large_answer_is_passed_in_a_file(
    executors: Executors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "ANSWER_BYTES_MAX", 1_000)
    arrangement = made(executors)
    await arrangement.insert(numbered(0, 1000), 1)
    before = files(tmp_path)
    assert numbers(await arrangement.all_rows(1)) == list(range(1000))
    assert files(tmp_path) == before


def test_a_worker_unmaps_unused_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(pa.table({"c0": [1, 2]}), np.array([1, 2], np.uint64), None, 1)
    files = [run_files._written(run, tmp_path, "run") for _ in range(4)]
    run_files._used.clear()
    monkeypatch.setattr(run_files, "MAPPED_MAX", 2)
    for file in files[:3]:
        run_files._mapped(file)
    assert list(run_files._used) == [file.path for file in files[1:3]]
    later = time.monotonic() + 100
    monkeypatch.setattr(time, "monotonic", lambda: later)
    run_files._mapped(files[3])
    assert list(run_files._used) == [files[3].path]
