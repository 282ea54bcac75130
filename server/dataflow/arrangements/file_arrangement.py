"""Arrangements whose runs are files in a directory that Spark's executors can access, which search and merge them.

    insert    Few changes are inserted into the head, a small arrangement in the server. When the head is full, it is
              written to files as runs. Many changes at once are written to files directly.
    probe     Searches the head in the server. Tasks search the files, each for some of the codes: Spark's Python
              workers map them.
    merge     In the workers, in the background: one task per range of codes.

The server's memory contains only the metadata of the files (`RunFile`). Files are removed when no read uses them.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from numpy.typing import NDArray

from catalog import updates as u
from protocol.columnar.hashing import Hashes
from server.dataflow.arrangements.arrangement import Arrangement, ServerArrangement, Storage
from server.dataflow.arrangements.run import ByKeyAndOrder, Sorting, cut, first, merged, sorted_run, union
from server.dataflow.arrangements.run_files import (
    AllRows,
    First,
    FirstOf,
    Merge,
    Probe,
    RunFile,
    RunFiles,
    Task,
    files_of,
    written,
    written_sorted,
)
from server.dataflow.arrangements.task_runner import TaskRunner
from server.runtime.threads import THREAD_ROWS
from server.spark import Engine

AUTO, SERVER, EXECUTORS = "auto", "server", "executors"
SERVER_BYTES_MAX = 1 << 30  # with `auto`, a larger arrangement is moved to files
HEAD_BYTES_MAX = 8 << 20  # of the head of an arrangement in files
RUNS_MAX = 12  # in files; from this number on, merges do not wait until Spark is idle
CODES_A_TASK = 8_192
ANSWERS_AT_ONCE = 16  # the most ranges that `first` searches concurrently

_log = structlog.get_logger()


class Executors:
    """An `Arranger` of arrangements in files or in the server. `probing` returns `auto`, `server` or `executors`.

    The owner calls `close`, then `join`.
    """

    def __init__(self, directory: Path, engine: Engine, storage: Storage, probing: Callable[[], str]) -> None:
        """`directory` is used exclusively and emptied. `storage`: for arrangements in the server. OSError."""
        self.tasks = TaskRunner(engine, directory.parent)
        self.storage = storage
        self._directory = directory
        self._probing = probing
        self._numbers = itertools.count(1)
        self._open: weakref.WeakSet[FileArrangement] = weakref.WeakSet()
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)
        self._unused: SimpleQueue[Sequence[Path] | None] = SimpleQueue()
        self._remover = threading.Thread(target=self._remove, name="tidewire-arrangement-files", daemon=True)
        self._remover.start()

    def arrangement(self, sorted_by: Sorting, schema: pa.Schema, since: int = 0) -> Arrangement:
        """As `Arranger.arrangement`."""
        probing = self._probing()
        if probing == SERVER:
            return self.storage.arrangement(sorted_by, schema, since)
        made = FileArrangement(
            sorted_by, schema, since, self, self._directory / str(next(self._numbers)), probing == EXECUTORS
        )
        self._open.add(made)
        return made

    def remove(self, paths: Sequence[Path]) -> None:
        """Removes files or directories in a background thread. A finalizer calls it: it must not wait for a lock."""
        self._unused.put(paths)

    def _remove(self) -> None:
        while (paths := self._unused.get()) is not None:
            _remove(paths)

    def close(self) -> None:
        """Cancels the merges and removes the files. Reads in progress fail."""
        for arrangement in self._open:
            arrangement.close()
        self._unused.put([self._directory])
        self._unused.put(None)

    def join(self) -> None:
        """Waits, after `close`, until all files are removed."""
        self._remover.join()


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class FileRun:
    """A run in files, which are sorted by their codes. They are removed when the object is garbage-collected."""

    files: RunFiles

    @cached_property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @cached_property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


Runs = tuple[FileRun, ...]


class FileArrangement:
    """An `arrangement.Arrangement`, for one event loop. Small ones are in the server only, unless `at_once`."""

    def __init__(
        self,
        sorted_by: Sorting,
        schema: pa.Schema,
        since: int,
        executors: Executors,
        directory: Path,
        at_once: bool,
    ) -> None:
        self.sorted_by = sorted_by
        self.schema = schema
        self.since = since
        self.upper = since
        self._executors = executors
        self._directory = directory
        self._at_once = at_once
        self._head = executors.storage.arrangement(sorted_by, schema, since)
        self._runs: Runs = ()
        self._merging: asyncio.Task[None] | None = None

    # -- writing ------------------------------------------------------------------------------------------------

    async def insert(self, changes: pa.Table, time: int, times: NDArray[np.int64] | None = None) -> None:
        assert time >= self.upper, f"{time} is before {self.upper}"
        if times is not None and changes.nbytes > self._head_bytes_max:  # a file has one time
            for own in np.unique(times).tolist():
                first, end = np.searchsorted(times, [own, own + 1]).tolist()
                await self.insert(changes.slice(first, end - first), own)
            return
        if changes.num_rows == 0:
            self.upper = time + 1
            return
        if changes.nbytes > self._head_bytes_max:
            files = await asyncio.to_thread(self._write, changes.select([*self.schema.names, u.DIFF]), time)
            self._runs = (*self._runs, self._filed(files))
            self.upper = time + 1
            self._merge()
        else:
            await self._head.insert(changes, time, times)
            self.upper = time + 1
            if self._head.bytes > self._head_bytes_max:
                await self._empty_head()
                self._merge()

    @property
    def _head_bytes_max(self) -> int:
        if self._runs:
            return HEAD_BYTES_MAX
        return 0 if self._at_once else SERVER_BYTES_MAX

    def _write(self, changes: pa.Table, time: int) -> list[RunFile]:
        name = self._name_in_directory()
        scratch = self._executors.storage.directory
        try:
            return written_sorted(self.sorted_by, changes, time, self._directory, name, scratch)
        except BaseException:
            self._remove_all(name)
            raise

    async def _empty_head(self) -> None:
        """Writes the head to files and makes a new one."""
        filed = await asyncio.to_thread(self._write_head)
        self._runs = (*self._runs, *map(self._filed, filed))
        self._head = self._executors.storage.arrangement(self.sorted_by, self.schema, self.since)

    def _write_head(self) -> list[list[RunFile]]:
        runs = self._head.runs_at(self.since)
        large = [run for run in runs if run.bytes > HEAD_BYTES_MAX]
        small = [run for run in runs if run.bytes <= HEAD_BYTES_MAX]
        last = merged(self.sorted_by, small, self.since) if small else None
        name = self._name_in_directory()
        try:
            return [written(run, self._directory, name) for run in (*large, *filter(None, [last]))]
        except BaseException:
            self._remove_all(name)
            raise

    def _name_in_directory(self) -> str:
        """A unique prefix for the names of a run's files. Creates the directory."""
        self._directory.mkdir(exist_ok=True)
        return uuid.uuid4().hex

    def _remove_all(self, name: str, but: Sequence[RunFile] = ()) -> None:
        """Removes the files with the prefix `name` that are not in `but`: those of a failed write or merge."""
        known = {Path(file.path) for file in but}
        _remove([path for path in self._directory.glob(f"{name}-*") if path not in known])

    def _filed(self, files: Sequence[RunFile]) -> FileRun:
        run = FileRun(tuple(sorted(files, key=lambda file: (file.low, file.high))))
        paths = [Path(file.path) for file in files]
        weakref.finalize(run, self._executors.remove, paths).atexit = False
        return run

    def advance(self, since: int) -> None:
        self.since = max(self.since, since)
        self._head.advance(since)

    # -- merging ------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        if self._merging is not None:
            await self._merging

    def _merge(self) -> None:
        if (self._merging is None or self._merging.done()) and self._mergeable() is not None:
            self._merging = asyncio.create_task(self._merge_all(), name="merging")
            self._merging.add_done_callback(_log_failure)

    def _mergeable(self) -> tuple[FileRun, FileRun] | None:
        """The newest neighbours with `2 * |newer| >= |older|`."""
        for newer, older in itertools.pairwise(reversed(self._runs)):
            if newer.rows * 2 >= older.rows:
                return older, newer
        return None

    async def _merge_all(self) -> None:
        while (pair := self._mergeable()) is not None:
            name = uuid.uuid4().hex
            tasks = [
                Merge(files, low, end, self.sorted_by, self.since, str(self._directory), name)
                for low, end, files in _ranges(pair)
            ]
            found: list[RunFile] = []
            try:
                answers = await self._executors.tasks.run(tasks, background=len(self._runs) < RUNS_MAX)
                found = [file for answer in answers for file in files_of(answer)]
            finally:  # if Spark ran a task twice, one of its outputs is unknown here
                await asyncio.to_thread(self._remove_all, name, found)
            at = self._runs.index(pair[0])
            new = (self._filed(found),) if found else ()
            self._runs = (*self._runs[:at], *new, *self._runs[at + 2 :])

    def close(self) -> None:
        if self._merging is not None:
            self._merging.cancel()
        self._runs = ()
        self._executors.remove([self._directory])

    # -- reading ------------------------------------------------------------------------------------------------

    def entries(self, codes: Hashes) -> int:
        return self._head.entries(codes)

    async def probe(self, codes: Hashes, as_of: int) -> pa.Table:
        head, runs = self._seen_at(as_of)
        tasks = []
        for start in range(0, len(codes), CODES_A_TASK):
            own = codes[start : start + CODES_A_TASK]
            if files := tuple(file for run in runs for file in run.files if file.has_any(own)):
                tasks.append(Probe(files, own, as_of))
        return await self._together(tasks, await head.probe(codes, as_of))

    async def all_rows(self, as_of: int) -> pa.Table:
        head, runs = self._seen_at(as_of)
        tasks = [AllRows(files, low, end, as_of) for low, end, files in _ranges(runs)]
        return await self._together(tasks, await head.all_rows(as_of))

    async def first(self, count: int, as_of: int) -> pa.Table:
        head, runs = self._seen_at(as_of)
        here = head.runs_at(as_of)
        changes = [run.changes(run.as_of(np.arange(len(run.codes)), as_of)) for run in here]
        retractions = -sum(int(np.minimum(part[u.DIFF].to_numpy(), 0).sum()) for part in changes)
        found = [u.with_diff(self.schema.empty_table(), 1)]
        ranges, asked = iter(_ranges(runs)), 1
        while tasks := [
            First(files, low, end, as_of, count + retractions) for low, end, files in itertools.islice(ranges, asked)
        ]:
            found += await self._executors.tasks.run(tasks)
            # The head retracts at most `retractions` of these rows, so no later row can be among the first `count`.
            if sum(part[u.DIFF].to_numpy().sum() for part in found) >= count + retractions:
                break
            asked = min(2 * asked, ANSWERS_AT_ONCE)
        filed = sorted_run(self.sorted_by, pa.concat_tables(found), as_of) if any(map(len, found)) else None
        return first([*filter(None, [filed]), *here], self.schema, count, as_of)

    async def first_of(self, codes: Hashes, counts: NDArray[np.int64], as_of: int) -> pa.Table:
        assert isinstance(self.sorted_by, ByKeyAndOrder)
        head, runs = self._seen_at(as_of)
        here = await head.probe(codes, as_of)  # few rows
        # The head retracts at most so many rows of a key: with these added, no later row can be among the first.
        retracted = here.filter(pc.less(here[u.DIFF], 0))
        asked = counts.copy()
        np.add.at(asked, np.searchsorted(codes, self.sorted_by.codes(retracted)), -retracted[u.DIFF].to_numpy())
        tasks = []
        for start in range(0, len(codes), CODES_A_TASK):
            own = slice(start, start + CODES_A_TASK)
            if files := tuple(file for run in runs for file in run.files if file.has_any(codes[own])):
                tasks.append(FirstOf(files, self.sorted_by, codes[own], asked[own], as_of))
        found = await self._together(tasks, here)
        found = found.filter(pc.greater(found[u.DIFF], 0))  # retractions of rows that were not read
        return cut(self.sorted_by, found, codes, counts)

    def _seen_at(self, as_of: int) -> tuple[ServerArrangement, Runs]:
        assert as_of >= self.since, f"{as_of} is before {self.since}"
        return self._head, self._runs

    async def _together(self, tasks: Sequence[Task], here: pa.Table) -> pa.Table:
        if not tasks:
            return here
        parts = [*await self._executors.tasks.run(tasks), here]
        if sum(part.num_rows for part in parts) > THREAD_ROWS:
            return await asyncio.to_thread(union, self.schema, parts)
        return union(self.schema, parts)

    # -- statistics ---------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return self._head.rows + sum(run.rows for run in self._runs)

    @property
    def bytes(self) -> int:
        return self._head.bytes + sum(run.bytes for run in self._runs)

    @property
    def memory_bytes(self) -> int:
        return self._head.memory_bytes

    @property
    def probed_by(self) -> str:
        return EXECUTORS if self._runs else SERVER


def _ranges(runs: Sequence[FileRun]) -> Iterator[tuple[int, int | None, RunFiles]]:
    """A partition of all codes into ranges [low, end), in order, each with the files that overlap it.

    Ranges without files are omitted.
    """
    if not runs:
        return
    largest = max(runs, key=lambda run: run.rows)
    lows = sorted({file.low for file in largest.files[1:]} - {0})
    for low, end in itertools.pairwise([0, *lows, None]):
        assert low is not None
        if files := tuple(file for run in runs for file in run.files if file.overlaps(low, end)):
            yield low, end, files


def _log_failure(merging: asyncio.Task[None]) -> None:
    """Logs a failed merge. It is retried after the next run is added; until then probes search both runs."""
    if not merging.cancelled() and (error := merging.exception()) is not None:
        _log.warning("arrangement not merged", reason=str(error))
