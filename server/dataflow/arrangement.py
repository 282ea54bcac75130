"""A collection's updates sorted by a key, so that the rows of a few keys are found without a scan.

    arrangement = Arrangement(ByKey(("c0", "c2")), schema, storage)
    arrangement.insert(updates, time)           # rows with a diff, all of one time at or beyond `upper`
    arrangement.probe(hashes, as_of)            # the rows of these keys as they stood at `as_of`, with their counts
    arrangement.advance(since)                  # nothing before `since` will be asked for any more

How: runs, each sorted by one uint64 a row: a hash of the key, or for `ByOrder` a code that keeps ORDER BY's order. An
insert is a new run; runs merge when the newer is at least half as large as the older, so there are few, and a row is
moved a logarithm of times. A probe is a binary search in each run. Merging puts the times behind `since` together and
lets updates that cancel each other go. Large merges are for a thread of their own (`Storage.merging`): until one is
done a probe looks at a run more. Runs beyond the budget in memory lie in files without names, mapped.

An entry found by its hash may belong to another key with the same one: whoever asks compares the key again.

Threads: one thread inserts at a time; probes may come from any thread at any time.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog import spill
from catalog import updates as u
from catalog.hashing import Hashes, key_hashes, order_codes

MEMORY_BYTES_MAX = 1 << 30  # of all runs of a server in memory; those that come beyond it go to files
MERGED_AT_ONCE = 64 * 1024  # rows of a merge that the inserting thread does itself; larger ones have their own


@dataclass(frozen=True, slots=True)
class ByKey:
    """Sorted by the hash of these columns; none: all rows belong together."""

    columns: tuple[str, ...]

    def codes(self, rows: pa.Table) -> Hashes:
        return key_hashes(rows, self.columns)


@dataclass(frozen=True, slots=True)
class ByOrder:
    """Sorted as ORDER BY would sort by this column, values with one code side by side."""

    column: str
    descending: bool = False
    nulls_first: bool = False

    def codes(self, rows: pa.Table) -> Hashes:
        return order_codes(rows[self.column], descending=self.descending, nulls_first=self.nulls_first)


class Storage:
    """Where runs lie: in memory up to `memory_bytes_max`, then in files in `directory` that have no names any more.

    `merging` runs the large merges of all arrangements, one after another. Close it at the end.
    """

    def __init__(self, directory: Path | None = None, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._directory = directory
        self._memory_bytes_max = memory_bytes_max
        self._lock = threading.Lock()
        self.memory_bytes = 0
        self.merging = ThreadPoolExecutor(1, thread_name_prefix="merging")

    def place(self, run: Run) -> Run:
        """The run, in a file if memory is full. OSError when there is no room there either."""
        with self._lock:
            in_memory = self.memory_bytes + run.bytes <= self._memory_bytes_max
            if in_memory:
                self.memory_bytes += run.bytes
        if in_memory:
            weakref.finalize(run, self._left, run.bytes)
            return run
        table = run.rows.append_column("code", pa.array(run.codes))
        if run.diffs is not None:
            table = table.append_column(u.DIFF_FIELD, pa.array(run.diffs))
        if isinstance(run.times, np.ndarray):
            table = table.append_column("time", pa.array(run.times))
        mapped = spill.on_disk(table, self._directory)

        def column(name: str) -> Any:
            return mapped[name].chunk(0).to_numpy()

        return Run(
            mapped.select(run.rows.column_names),
            column("code"),
            None if run.diffs is None else column(u.DIFF),
            column("time") if isinstance(run.times, np.ndarray) else run.times,
            on_disk=True,
        )

    def _left(self, bytes: int) -> None:
        with self._lock:
            self.memory_bytes -= bytes

    def close(self) -> None:
        self.merging.shutdown(cancel_futures=True)


@dataclass(frozen=True, eq=False)
class Run:
    """Updates in the order of `codes`. `diffs` None: all are 1. `times`: one for all, or one a row."""

    rows: pa.Table
    codes: Hashes
    diffs: NDArray[np.int64] | None
    times: int | NDArray[np.int64]
    on_disk: bool = field(default=False, compare=False)

    @property
    def bytes(self) -> int:
        others = (self.codes, self.diffs, self.times)
        return int(self.rows.nbytes) + sum(a.nbytes for a in others if isinstance(a, np.ndarray))

    @cached_property
    def takes_away(self) -> bool:
        return self.diffs is not None and bool((self.diffs < 0).any())

    @cached_property
    def _sums(self) -> NDArray[np.int64]:
        """How many rows stand before each place, if all times count."""
        diffs = self.diffs if self.diffs is not None else np.ones(len(self.codes), np.int64)
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(diffs)])

    def spans(self, codes: Hashes) -> NDArray[np.intp]:
        """The places of the entries with one of these codes, which are ascending and distinct."""
        first = np.searchsorted(self.codes, codes, "left")
        counts = np.searchsorted(self.codes, codes, "right") - first
        found = counts > 0
        first, counts = first[found], counts[found]
        before = np.cumsum(counts) - counts
        return np.repeat(first - before, counts) + np.arange(counts.sum())

    def as_of(self, places: NDArray[np.intp], time: int) -> NDArray[np.intp]:
        """Those of the places whose time is not after `time`."""
        if isinstance(self.times, np.ndarray):
            return places[self.times[places] <= time]
        return places if self.times <= time else places[:0]

    def changes(self, places: NDArray[np.intp]) -> pa.Table:
        """The rows at these places with their diffs."""
        rows = self.rows.take(pa.array(places))
        if self.diffs is None:
            return u.with_diff(rows, 1)
        return rows.append_column(u.DIFF_FIELD, pa.array(self.diffs[places]))

    def count(self, code: np.uint64, time: int) -> int:
        """The sum of the diffs up to and with this code, of times up to `time`."""
        end = int(np.searchsorted(self.codes, code, "right"))
        if isinstance(self.times, np.ndarray):
            now = self.times[:end] <= time
            return int(self.diffs[:end][now].sum()) if self.diffs is not None else int(now.sum())
        return int(self._sums[end]) if self.times <= time else 0


class Arrangement:
    """See the module. `since` (inclusive) and `upper` (exclusive) bound the times that it can be asked for."""

    def __init__(self, sorted_by: ByKey | ByOrder, schema: pa.Schema, storage: Storage, since: int = 0) -> None:
        """`schema`: the rows' own columns."""
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

    def insert(self, changes: pa.Table, time: int) -> None:
        """Adds consolidated changes (the schema's columns and `diff`) at a time that is at or beyond `upper`."""
        assert time >= self.upper, f"{time} is before {self.upper}"
        self.upper = time + 1
        if changes.num_rows == 0:
            return
        run = self._storage.place(_sorted(self.sorted_by, changes.select([*self.schema.names, u.DIFF]), time))
        with self._lock:
            self._runs = (*self._runs, run)
        self._merge_small()

    def advance(self, since: int) -> None:
        """Lets go of the history before `since`, which is at most `upper`; merges to come put it together."""
        self.since = max(self.since, since)

    def settle(self) -> None:
        """Waits for a merge that is under way. Exceptions of it are raised here."""
        if (merging := self._merging) is not None:
            merging.result()

    def _merge_small(self) -> None:
        while (pair := self._mergeable()) is not None:
            older, newer = pair
            if len(older.codes) + len(newer.codes) > MERGED_AT_ONCE:
                if self._busy is None:
                    self.settle()  # what went wrong with the last one is told now
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
        merged = _merged(self.sorted_by, older, newer, self.since)
        placed = () if merged is None else (self._storage.place(merged),)
        with self._lock:  # an insert may have come meanwhile, at the end
            at = self._runs.index(older)
            self._runs = (*self._runs[:at], *placed, *self._runs[at + 2 :])
            if self._busy is newer:
                self._busy = None

    # -- reading ------------------------------------------------------------------------------------------------

    def probe(self, codes: Hashes, as_of: int) -> pa.Table:
        """The rows with one of these codes (ascending, distinct) at `as_of`: consolidated changes."""
        return self._gathered(as_of, lambda run: run.spans(codes))

    def whole(self, as_of: int) -> pa.Table:
        """All rows at `as_of`, consolidated."""
        return self._gathered(as_of, lambda run: np.arange(len(run.codes)))

    def first(self, count: int, as_of: int) -> pa.Table:
        """The rows that stand first in the order, `count` copies at least, with all that share the last one's code.

        Fewer only if there are fewer. Consolidated.
        """
        assert as_of >= self.since, f"{as_of} is before {self.since}"
        runs = self._runs
        low, high = 0, (1 << 64) - 1
        while low < high:  # the least code up to which there are `count` rows
            middle = (low + high) // 2
            if sum(run.count(np.uint64(middle), as_of) for run in runs) >= count:
                high = middle
            else:
                low = middle + 1
        return self._gathered(as_of, lambda run: np.arange(np.searchsorted(run.codes, np.uint64(low), "right")))

    def _gathered(self, as_of: int, places: Callable[[Run], NDArray[np.intp]]) -> pa.Table:
        assert as_of >= self.since, f"{as_of} is before {self.since}"
        runs = self._runs
        parts = [run.changes(run.as_of(places(run), as_of)) for run in runs]
        found = pa.concat_tables([u.with_diff(self.schema.empty_table(), 1), *parts])
        return u.consolidate(found) if any(run.takes_away for run in runs) else found

    # -- watching -----------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Entries, those that later ones take away included."""
        return sum(len(run.codes) for run in self._runs)

    @property
    def bytes(self) -> int:
        """In memory and on disk."""
        return sum(run.bytes for run in self._runs)

    @property
    def memory_bytes(self) -> int:
        return sum(run.bytes for run in self._runs if not run.on_disk)


def _sorted(sorted_by: ByKey | ByOrder, changes: pa.Table, time: int) -> Run:
    rows = u.rows_of(changes)
    return _run(rows, sorted_by.codes(rows), changes[u.DIFF].to_numpy(), np.full(len(rows), time))


def _run(rows: pa.Table, codes: Hashes, diffs: NDArray[np.int64], times: NDArray[np.int64]) -> Run:
    order = np.argsort(codes, kind="stable")
    return Run(
        rows.take(pa.array(order)).combine_chunks(),
        codes[order],
        None if (diffs == 1).all() else diffs[order],
        int(times[0]) if (times == times[0]).all() else times[order],
    )


def _merged(sorted_by: ByKey | ByOrder, older: Run, newer: Run, since: int) -> Run | None:
    """Both in one; times before `since` become `since`, and what cancels there goes. None: nothing is left."""
    rows = pa.concat_tables([older.rows, newer.rows])
    codes = np.concatenate([older.codes, newer.codes])
    diffs = np.concatenate([_diffs(older), _diffs(newer)])
    times = np.maximum(np.concatenate([_times(older), _times(newer)]), since)
    if older.takes_away or newer.takes_away:
        touched = np.isin(codes, codes[diffs < 0])  # only what shares a code with something taken away can cancel
        consolidated = u.consolidate(
            rows.filter(pa.array(touched))
            .append_column("time", pa.array(times[touched]))
            .append_column(u.DIFF_FIELD, pa.array(diffs[touched]))
        )
        left = consolidated.select(rows.column_names)
        rows = pa.concat_tables([rows.filter(pa.array(~touched)), left])
        codes = np.concatenate([codes[~touched], sorted_by.codes(left)])
        diffs = np.concatenate([diffs[~touched], consolidated[u.DIFF].to_numpy()])
        times = np.concatenate([times[~touched], consolidated["time"].to_numpy()])
    return _run(rows, codes, diffs, times) if len(codes) else None


def _diffs(run: Run) -> NDArray[np.int64]:
    return run.diffs if run.diffs is not None else np.ones(len(run.codes), np.int64)


def _times(run: Run) -> NDArray[np.int64]:
    return run.times if isinstance(run.times, np.ndarray) else np.full(len(run.codes), run.times)
