"""Arrangements: a collection's updates sorted by a key, so that the rows of a few keys are found without a scan.

    arrangement = storage.arrangement(ByKey(("c0", "c2")), schema)
    await arrangement.insert(updates, time)       # rows with a diff, all at one time, `time >= upper`
    await arrangement.probe(hashes, as_of)        # the rows with these key hashes at `as_of`, with multiplicities
    arrangement.advance(since)                    # no later probe has `as_of < since`

An arrangement is a sequence of runs, each sorted by a number computed from each row (`run`). An insert adds a run. The
newest runs are merged into one as soon as the oldest of them has at most 1.5 times as many entries as the others
together. A large merge waits for LARGE_RUNS_MIN runs of similar sizes, or until many entries are retractions: it then
merges all runs, so that these cancel. There are therefore O(log n) runs, and an entry is rewritten O(log n) times. A
probe is a binary search in each run.

A probe finds rows by the hash of their key. Rows of another key may have the same hash: the caller compares the keys.

This module implements arrangements in the server process: in memory, and beyond a budget in unlinked memory-mapped
files. Large merges run in a separate thread (`Storage.merging`); until such a merge ends, probes search both runs.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import spill
from catalog import updates as u
from protocol.columnar.hashing import Hashes
from server.dataflow.arrangements.run import (
    ByKeyAndOrder,
    Run,
    Sorting,
    all_rows,
    first,
    first_of,
    gathered,
    merged,
    probed,
    sorted_run,
)
from server.runtime.threads import THREAD_ROWS, in_thread

MEMORY_BYTES_MAX = 1 << 30  # of all runs of a server in memory; runs that exceed it are written to files
MERGED_AT_ONCE = 64 * 1024  # rows of a merge that the inserting thread does; larger merges run in `Storage.merging`
LARGE_RUNS_MIN = 4  # a large merge of fewer runs is not worth the copies
SIMILAR = 4  # of the runs of a large merge, none has more entries than so many times the largest newer one
RETRACTED_SHARE = 5  # all runs are merged if one in so many entries is a retraction in a run that is not the oldest


class Arrangement(Protocol):
    """Updates sorted by a key. Inserts require `time >= upper`, reads `as_of >= since`.

    Reads are correct up to the last time whose updates the caller has inserted. `upper` is the last inserted time + 1;
    it does not advance at times without updates, so `as_of` and `since` may exceed it.

    Only one task at a time may insert; any number may read concurrently. An insert that was cancelled or failed may or
    may not have taken effect. Reads have no side effects.
    """

    @property
    def sorted_by(self) -> Sorting: ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, without time and diff."""

    @property
    def since(self) -> int: ...

    @property
    def upper(self) -> int: ...

    async def insert(self, changes: pa.Table, time: int, times: NDArray[np.int64] | None = None) -> None:
        """Adds consolidated changes (the schema's columns and `diff`) at `time >= upper`.

        `times`: the time of each change, ascending, from `upper` to `time`; changes of each time are consolidated.
        """

    def advance(self, since: int) -> None:
        """Allows compaction up to `since`: later merges change times before `since` to `since` and consolidate."""

    async def settle(self) -> None:
        """Waits for the merge in progress, if any, and raises its exception."""

    def entries(self, codes: Hashes) -> int:
        """The number of entries with one of these codes (ascending, distinct), without entries in executors' files."""

    async def probe(self, codes: Hashes, as_of: int) -> pa.Table:
        """The rows with one of these codes (ascending, distinct) at `as_of`: consolidated changes."""

    async def all_rows(self, as_of: int) -> pa.Table:
        """All rows at `as_of`, consolidated."""

    async def first(self, count: int, as_of: int) -> pa.Table:
        """Only for `ByOrder`: the first rows in this order, with all rows that have the same code as the last of them.

        Their multiplicities add up to at least `count`, or the result is all rows. Consolidated.
        """

    async def first_of(self, codes: Hashes, counts: NDArray[np.int64], as_of: int) -> pa.Table:
        """Only for `ByKeyAndOrder`: `first` within each of these key hashes (ascending, distinct), by its own count."""

    def close(self) -> None:
        """Releases the runs. May be called twice."""

    @property
    def rows(self) -> int:
        """The number of entries, including those that later entries retract."""

    @property
    def bytes(self) -> int:
        """Size in memory and on disk."""

    @property
    def memory_bytes(self) -> int:
        """Size in the server's memory."""

    @property
    def probed_by(self) -> str:
        """The process that searches the runs: `server` or `executors`."""


class Arranger(Protocol):
    """A factory of arrangements."""

    def arrangement(self, sorted_by: Sorting, schema: pa.Schema, since: int = 0) -> Arrangement:
        """An empty arrangement. `schema`: the columns of the rows, without time and diff."""


class Storage:
    """Stores runs: in memory up to `memory_bytes_max` in total, then in unlinked files in `directory`.

    `merging` runs the large merges of all arrangements, one at a time. The owner closes the storage.
    """

    def __init__(self, directory: Path | None = None, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.directory = directory
        self._memory_bytes_max = memory_bytes_max
        self._lock = threading.RLock()  # garbage collection of a run may call `_left` in the thread that has the lock
        self.memory_bytes = 0
        self.merging = ThreadPoolExecutor(1, thread_name_prefix="merging")

    def arrangement(self, sorted_by: Sorting, schema: pa.Schema, since: int = 0) -> ServerArrangement:
        """As `Arranger.arrangement`."""
        return ServerArrangement(sorted_by, schema, self, since)

    def store(self, run: Run) -> Run:
        """The run, written to a file if the memory budget is exhausted. OSError if the disk is full."""
        with self._lock:
            in_memory = self.memory_bytes + run.bytes <= self._memory_bytes_max
            if in_memory:
                self.memory_bytes += run.bytes
        if in_memory:
            weakref.finalize(run, self._left, run.bytes)
            return run
        return Run.of(spill.on_disk(run.table(), self.directory))

    def _left(self, bytes: int) -> None:
        with self._lock:
            self.memory_bytes -= bytes

    def close(self) -> None:
        self.merging.shutdown(cancel_futures=True)


class ServerArrangement:
    """An `Arrangement` in the server process. One thread at a time inserts; any number may probe."""

    probed_by = "server"

    def __init__(self, sorted_by: Sorting, schema: pa.Schema, storage: Storage, since: int = 0) -> None:
        self.sorted_by = sorted_by
        self.schema = schema
        self.since: int = since
        self.upper: int = since
        self._storage = storage
        self._lock = threading.Lock()
        self._runs: tuple[Run, ...] = ()
        self._merging: Future[None] | None = None
        self._busy: Run | None = None  # the newest of the runs that `Storage.merging` merges

    # -- writing ------------------------------------------------------------------------------------------------

    async def insert(self, changes: pa.Table, time: int, times: NDArray[np.int64] | None = None) -> None:
        assert time >= self.upper, f"{time} is before {self.upper}"
        if changes.num_rows:
            await in_thread(self._insert, changes.select([*self.schema.names, u.DIFF]), time, times)
        self.upper = time + 1

    def _insert(self, changes: pa.Table, time: int, times: NDArray[np.int64] | None) -> None:
        run = self._storage.store(sorted_run(self.sorted_by, changes, time if times is None else times))
        with self._lock:
            self._runs = (*self._runs, run)
            self.upper = time + 1  # before merging: if a merge fails, a retry must not insert these changes again
        self._merge_small()

    def advance(self, since: int) -> None:
        self.since = max(self.since, since)

    async def settle(self) -> None:
        if (merging := self._merging) is not None:
            await asyncio.wrap_future(merging)

    def _merge_small(self) -> None:
        if runs := self._mergeable():
            if sum(len(run.codes) for run in runs) <= MERGED_AT_ONCE:
                self._replace(runs)
            elif self._busy is None:
                if self._merging is not None:
                    self._merging.result()  # raises the error of the previous merge
                self._busy = runs[-1]
                self._merging = self._storage.merging.submit(self._merge_large, runs)

    def _mergeable(self) -> tuple[Run, ...]:
        """The newest runs that should be merged now; empty if their merge is not worth it yet.

        Only those after the runs that are being merged.
        """
        with self._lock:
            free = self._runs if self._busy is None else self._runs[self._runs.index(self._busy) + 1 :]
        sizes = [len(run.codes) for run in reversed(free)]
        if len(free) == len(self._runs) and sum(sizes) > MERGED_AT_ONCE:
            retractions = sum(run.retractions for run in free[1:])
            if retractions and RETRACTED_SHARE * retractions >= sum(sizes):
                return free
        count = _count(sizes)
        if sum(sizes[:count]) > MERGED_AT_ONCE:
            count = _count_similar(sizes)
            count = count if count >= LARGE_RUNS_MIN else 0
        return free[len(free) - count :] if count > 1 else ()

    def _merge_large(self, runs: tuple[Run, ...]) -> None:
        try:
            self._replace(runs)
        finally:
            self._busy = None

    def _replace(self, runs: tuple[Run, ...]) -> None:
        run = merged(self.sorted_by, runs, self.since)
        stored = () if run is None else (self._storage.store(run),)
        with self._lock:  # an insert may have appended a run during the merge
            at = self._runs.index(runs[0])
            self._runs = (*self._runs[:at], *stored, *self._runs[at + len(runs) :])
            if self._busy is runs[-1]:
                self._busy = None

    # -- reading ------------------------------------------------------------------------------------------------

    def entries(self, codes: Hashes) -> int:
        return sum(run.entries(codes) for run in self._runs)

    async def probe(self, codes: Hashes, as_of: int) -> pa.Table:
        runs = self.runs_at(as_of)
        if len(codes) > THREAD_ROWS:
            return await asyncio.to_thread(probed, runs, self.schema, codes, as_of)
        found = [(run, run.positions_of(codes)) for run in runs]
        if sum(len(positions) for _, positions in found) > THREAD_ROWS:
            return await asyncio.to_thread(gathered, found, self.schema, as_of)
        return gathered(found, self.schema, as_of)

    async def all_rows(self, as_of: int) -> pa.Table:
        return await asyncio.to_thread(all_rows, self.runs_at(as_of), self.schema, as_of)

    async def first(self, count: int, as_of: int) -> pa.Table:
        return first(self.runs_at(as_of), self.schema, count, as_of)

    async def first_of(self, codes: Hashes, counts: NDArray[np.int64], as_of: int) -> pa.Table:
        assert isinstance(self.sorted_by, ByKeyAndOrder)
        runs = self.runs_at(as_of)
        return await in_thread(first_of, runs, self.schema, self.sorted_by, codes, counts, as_of)

    def runs_at(self, as_of: int) -> tuple[Run, ...]:
        """All runs. Requires `as_of >= since`."""
        assert as_of >= self.since, f"{as_of} is before {self.since}"
        return self._runs

    def close(self) -> None:
        """Does nothing: memory and files are freed with the last reference to each run."""

    # -- statistics ---------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return sum(len(run.codes) for run in self._runs)

    @property
    def bytes(self) -> int:
        return sum(run.bytes for run in self._runs)

    @property
    def memory_bytes(self) -> int:
        return sum(run.bytes for run in self._runs if not run.on_disk)


def _count(sizes: Sequence[int]) -> int:
    """The length of the longest prefix in which each size is at most 1.5 times the sum of the sizes before it."""
    entries = 0
    for number, size in enumerate(sizes):
        if entries and 2 * size > 3 * entries:
            return number
        entries += size
    return len(sizes)


def _count_similar(sizes: Sequence[int]) -> int:
    """The length of the longest prefix in which each size is at most SIMILAR times the greatest size before it."""
    greatest = 0
    for number, size in enumerate(sizes):
        if greatest and size > SIMILAR * greatest:
            return number
        greatest = max(greatest, size)
    return len(sizes)
