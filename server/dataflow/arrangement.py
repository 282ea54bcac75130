"""A collection's updates sorted by a key, so that the rows of a few keys are found without a scan.

    arrangement = storage.arrangement(ByKey(("c0", "c2")), schema)
    await arrangement.insert(updates, time)       # rows with a diff, all of one time at or beyond `upper`
    await arrangement.probe(hashes, as_of)        # the rows of these keys as they stood at `as_of`, with their counts
    arrangement.advance(since)                    # nothing before `since` will be asked for any more

How: runs, each sorted by a number for each row (`run`). An insert is a new run; runs merge when the newer is at least
half as large as the older, so there are few, and a row is moved a logarithm of times. A probe is a binary search in
each run.

An entry found by its hash may belong to another key with the same one: whoever asks compares the key again.

Here they are in the server: in memory, beyond a budget in files without names, mapped. Large merges are for a thread of
their own (`Storage.merging`): until one is done a probe looks at a run more.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import spill
from catalog import updates as u
from catalog.hashing import Hashes
from server.dataflow.run import ByKeyAndOrder, Run, Sorting, first, first_of, merged, probed, sorted_run, whole
from server.dataflow.threads import THREAD_ROWS, in_thread

MEMORY_BYTES_MAX = 1 << 30  # of all runs of a server in memory; those that come beyond it go to files
MERGED_AT_ONCE = 64 * 1024  # rows of a merge that the inserting thread does itself; larger ones have their own


class Arrangement(Protocol):
    """See the module. `since` (inclusive) and `upper` (exclusive) bound the times that it can be asked for.

    One task at a time inserts; any number may probe, also meanwhile. An insert that was cancelled, or failed, may have
    been made or not; a probe can be cancelled and fail, nothing comes of it.
    """

    @property
    def sorted_by(self) -> Sorting: ...

    @property
    def schema(self) -> pa.Schema:
        """The rows' own columns."""

    @property
    def since(self) -> int: ...

    @property
    def upper(self) -> int: ...

    async def insert(self, changes: pa.Table, time: int) -> None:
        """Adds consolidated changes (the schema's columns and `diff`) at a time that is at or beyond `upper`."""

    def advance(self, since: int) -> None:
        """Lets go of the history before `since`, which is at most `upper`; merges to come put it together."""

    async def settle(self) -> None:
        """Waits for a merge that is under way. Exceptions of it are raised here."""

    def entries(self, codes: Hashes) -> int:
        """How many entries have one of these codes (ascending, distinct), as far as the server knows unread."""

    async def probe(self, codes: Hashes, as_of: int) -> pa.Table:
        """The rows with one of these codes (ascending, distinct) at `as_of`: consolidated changes."""

    async def whole(self, as_of: int) -> pa.Table:
        """All rows at `as_of`, consolidated."""

    async def first(self, count: int, as_of: int) -> pa.Table:
        """Sorted `ByOrder`: the rows that stand first, `count` copies at least, and all that share the last one's code.

        Fewer only if there are fewer. Consolidated.
        """

    async def first_of(self, codes: Hashes, counts: NDArray[np.int64], as_of: int) -> pa.Table:
        """Sorted `ByKeyAndOrder`: the same for each of these keys (ascending, distinct), with a count of its own."""

    def close(self) -> None:
        """It is not used any more. May be called twice."""

    @property
    def rows(self) -> int:
        """Entries, those that later ones take away included."""

    @property
    def bytes(self) -> int:
        """In memory and on disk."""

    @property
    def memory_bytes(self) -> int:
        """In the server's memory."""

    @property
    def probed_by(self) -> str:
        """Who searches it: `server` or `executors`."""


class Arranger(Protocol):
    """What arrangements are made by, and where they are kept."""

    def arrangement(self, sorted_by: Sorting, schema: pa.Schema, since: int = 0) -> Arrangement:
        """An empty one. `schema`: the rows' own columns."""


class Storage:
    """Where runs lie: in memory up to `memory_bytes_max`, then in files in `directory` that have no names any more.

    `merging` runs the large merges of all arrangements, one after another. Close it at the end.
    """

    def __init__(self, directory: Path | None = None, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.directory = directory
        self._memory_bytes_max = memory_bytes_max
        self._lock = threading.RLock()  # a run may be collected, and so `_left` called, while we have it
        self.memory_bytes = 0
        self.merging = ThreadPoolExecutor(1, thread_name_prefix="merging")

    def arrangement(self, sorted_by: Sorting, schema: pa.Schema, since: int = 0) -> ServerArrangement:
        """As `Arranger.arrangement`."""
        return ServerArrangement(sorted_by, schema, self, since)

    def place(self, run: Run) -> Run:
        """The run, in a file if memory is full. OSError when there is no room there either."""
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
    """See `Arrangement`. Its threads: one inserts at a time, any may probe."""

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
        self._busy: Run | None = None  # the newer of the two that a thread merges

    # -- writing ------------------------------------------------------------------------------------------------

    async def insert(self, changes: pa.Table, time: int) -> None:
        assert time >= self.upper, f"{time} is before {self.upper}"
        if changes.num_rows:
            await in_thread(self._insert, changes.select([*self.schema.names, u.DIFF]), time)
        self.upper = time + 1

    def _insert(self, changes: pa.Table, time: int) -> None:
        run = self._storage.place(sorted_run(self.sorted_by, changes, time))
        with self._lock:
            self._runs = (*self._runs, run)
            self.upper = time + 1  # whatever becomes of merges: who comes again after an error goes on behind it
        self._merge_small()

    def advance(self, since: int) -> None:
        self.since = max(self.since, since)

    async def settle(self) -> None:
        if (merging := self._merging) is not None:
            await asyncio.wrap_future(merging)

    def _merge_small(self) -> None:
        while (pair := self._mergeable()) is not None:
            older, newer = pair
            if len(older.codes) + len(newer.codes) > MERGED_AT_ONCE:
                if self._busy is None:
                    if self._merging is not None:
                        self._merging.result()  # what went wrong with the last one is told now
                    self._busy = newer
                    self._merging = self._storage.merging.submit(self._merge_large, older, newer)
                return
            self._replace(older, newer)

    def _mergeable(self) -> tuple[Run, Run] | None:
        """The newest neighbours that are worth it, behind those that are being merged."""
        with self._lock:
            free = self._runs if self._busy is None else self._runs[self._runs.index(self._busy) + 1 :]
        for older, newer in zip(reversed(free[:-1]), reversed(free[1:]), strict=True):
            if len(newer.codes) * 2 >= len(older.codes):
                return older, newer
        return None

    def _merge_large(self, older: Run, newer: Run) -> None:
        try:
            self._replace(older, newer)
        finally:
            self._busy = None

    def _replace(self, older: Run, newer: Run) -> None:
        run = merged(self.sorted_by, (older, newer), self.since)
        placed = () if run is None else (self._storage.place(run),)
        with self._lock:  # an insert may have come meanwhile, at the end
            at = self._runs.index(older)
            self._runs = (*self._runs[:at], *placed, *self._runs[at + 2 :])
            if self._busy is newer:
                self._busy = None

    # -- reading ------------------------------------------------------------------------------------------------

    def entries(self, codes: Hashes) -> int:
        return sum(run.entries(codes) for run in self._runs)

    async def probe(self, codes: Hashes, as_of: int) -> pa.Table:
        runs = self.runs_at(as_of)
        if sum(run.entries(codes) for run in runs) > THREAD_ROWS:
            return await asyncio.to_thread(probed, runs, self.schema, codes, as_of)
        return await in_thread(probed, runs, self.schema, codes, as_of)

    async def whole(self, as_of: int) -> pa.Table:
        return await asyncio.to_thread(whole, self.runs_at(as_of), self.schema, as_of)

    async def first(self, count: int, as_of: int) -> pa.Table:
        return first(self.runs_at(as_of), self.schema, count, as_of)

    async def first_of(self, codes: Hashes, counts: NDArray[np.int64], as_of: int) -> pa.Table:
        assert isinstance(self.sorted_by, ByKeyAndOrder)
        runs = self.runs_at(as_of)
        return await in_thread(first_of, runs, self.schema, self.sorted_by, codes, counts, as_of)

    def runs_at(self, as_of: int) -> tuple[Run, ...]:
        """All runs, for who asks them about `as_of`."""
        assert as_of >= self.since, f"{as_of} is before {self.since}"
        return self._runs

    def close(self) -> None:
        """Memory and files go with the last reference."""

    # -- watching -----------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return sum(len(run.codes) for run in self._runs)

    @property
    def bytes(self) -> int:
        return sum(run.bytes for run in self._runs)

    @property
    def memory_bytes(self) -> int:
        return sum(run.bytes for run in self._runs if not run.on_disk)
