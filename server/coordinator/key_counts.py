"""The number of rows with each key, in sorted arrays of key codes and a dict of the latest changes.

Like the runs of an arrangement, the arrays are immutable, and merged when the later one has more than half of the
entries of the earlier one. A table of n rows therefore has O(log n) of them. A count is the sum over all parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.columnar.hashing import Hashes
from server.coordinator.key_codes import Codes

FEW_KEYS = 1_024  # so many codes of a change are kept in a dict
RECENT_MAX = 8_192  # codes in the dict of the latest changes

Diffs = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Run:
    """Distinct codes, in the order of their hashes. `checks`: as in `Codes`. `diffs`: None if all are 1."""

    hashes: Hashes
    checks: Hashes | None
    diffs: Diffs | None
    view: memoryview

    @staticmethod
    def of(hashes: Hashes, checks: Hashes | None, diffs: Diffs | None) -> Run:
        """Sums the diffs of equal codes, and removes those whose sum is 0. `diffs`: None if all are 1."""
        if checks is None and diffs is None:
            ordered = np.sort(hashes)
            if not (ordered[1:] == ordered[:-1]).any():
                return Run._of(ordered, None, None)
        order = np.argsort(hashes)
        ordered, others = hashes[order], None if checks is None else checks[order]
        same = ordered[1:] == ordered[:-1]
        if checks is not None and others is not None and same.any():
            if (same & (others[1:] != others[:-1])).any():
                order = np.lexsort((checks, hashes))
                ordered, others = hashes[order], checks[order]
            same = (ordered[1:] == ordered[:-1]) & (others[1:] == others[:-1])
        given = None if diffs is None else diffs[order]
        if same.any():
            starts = np.flatnonzero(np.concatenate([[True], ~same]))
            ordered, others = ordered[starts], None if others is None else others[starts]
            ones = np.ones(len(order), np.int32) if given is None else given
            given = np.add.reduceat(ones, starts).astype(np.int32)
        if given is not None:
            if not given.all():
                kept = np.flatnonzero(given)
                ordered, others, given = ordered[kept], None if others is None else others[kept], given[kept]
            if (given == 1).all():
                given = None
        return Run._of(ordered, others, given)

    @staticmethod
    def of_counts(counts: dict[int, int], is_narrow: bool) -> Run:
        size = len(counts)
        if is_narrow:
            hashes, checks = np.fromiter(counts, np.uint64, size), None
        else:
            hashes = np.fromiter((code >> 64 for code in counts), np.uint64, size)
            checks = np.fromiter((code & 0xFFFFFFFFFFFFFFFF for code in counts), np.uint64, size)
        return Run.of(hashes, checks, np.fromiter(counts.values(), np.int32, size))

    @staticmethod
    def merged(runs: Sequence[Run]) -> Run:
        checks = [run.checks for run in runs if run.checks is not None]
        has_diffs = any(run.diffs is not None for run in runs)
        return Run.of(
            np.concatenate([run.hashes for run in runs]),
            np.concatenate(checks) if checks else None,
            np.concatenate([run.all_diffs for run in runs]) if has_diffs else None,
        )

    @staticmethod
    def _of(hashes: Hashes, checks: Hashes | None, diffs: Diffs | None) -> Run:
        hashes = np.ascontiguousarray(hashes)
        return Run(hashes, checks, diffs, memoryview(hashes))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def all_diffs(self) -> Diffs:
        return np.ones(len(self), np.int32) if self.diffs is None else self.diffs

    def count(self, code: int) -> int:
        """The diff of a code, 0 if it is not in the run."""
        hash = code if self.checks is None else code >> 64
        at = bisect_left(self.view, hash)
        while at < len(self.view) and self.view[at] == hash:
            if self.checks is None or int(self.checks[at]) == code & 0xFFFFFFFFFFFFFFFF:
                return 1 if self.diffs is None else int(self.diffs[at])
            at += 1
        return 0

    def counts(self, hashes: Hashes, checks: Hashes | None) -> Diffs:
        """The diff of each code."""
        found = np.zeros(len(hashes), np.int32)
        if not len(self):
            return found
        at = np.searchsorted(self.hashes, hashes)
        at[at == len(self)] = 0
        left = np.flatnonzero(self.hashes[at] == hashes)
        while len(left):
            here = at[left]
            equal = np.ones(len(left), np.bool_)
            if checks is not None and self.checks is not None:
                equal = self.checks[here] == checks[left]
            found[left[equal]] = 1 if self.diffs is None else self.diffs[here[equal]]
            left = left[~equal]  # another code with the same hash
            at[left] += 1
            left = left[at[left] < len(self)]
            left = left[self.hashes[at[left]] == hashes[left]]
        return found


Changes = dict[int, int] | Run
"""Codes with their diffs: few, or many. A dict may contain zeros."""


def changes_of(parts: Sequence[tuple[Codes, NDArray[np.int64] | None]]) -> Changes:
    """The changes for the codes of rows and the diffs of their rows; None: 1 for each."""
    size = sum(len(codes) for codes, _ in parts)
    if size <= FEW_KEYS:
        found: dict[int, int] = {}
        for codes, diffs in parts:
            own = [1] * len(codes) if diffs is None else _of_codes(codes, diffs).tolist()
            for code, diff in zip(codes.to_list(), own, strict=True):
                found[code] = found.get(code, 0) + diff
        return found
    checks = [codes.checks for codes, _ in parts if codes.checks is not None]
    has_diffs = any(diffs is not None for _, diffs in parts)
    every = [np.ones(len(codes), np.int32) if diffs is None else _of_codes(codes, diffs) for codes, diffs in parts]
    return Run.of(
        np.concatenate([codes.hashes for codes, _ in parts]),
        np.concatenate(checks) if checks else None,
        np.concatenate(every).astype(np.int32) if has_diffs else None,
    )


def _of_codes(codes: Codes, diffs: NDArray[np.int64]) -> NDArray[np.int64]:
    return diffs if codes.rows is None else diffs[codes.rows]


class KeyCounts:
    """The number of rows of each key. Changes are added on the event loop; other threads may read the runs."""

    __slots__ = ("is_narrow", "recent", "runs")

    def __init__(self, is_narrow: bool, runs: Iterable[Run] = ()) -> None:
        self.is_narrow = is_narrow
        self.recent: dict[int, int] = {}
        self.runs: tuple[Run, ...] = tuple(runs)

    def __bool__(self) -> bool:
        return bool(self.recent or self.runs)

    @property
    def nbytes(self) -> int:
        width = 8 if self.is_narrow else 16
        return sum(len(run) * (width + (4 if run.diffs is not None else 0)) for run in self.runs)

    def count(self, code: int) -> int:
        found = self.recent.get(code, 0)
        for run in self.runs:
            found += run.count(code)
        return found

    def counts(self, of: Run) -> Diffs:
        """The number of rows with each code of a run. In another thread, call it for a `snapshot`."""
        return self.counts_of(of.hashes, of.checks)

    def counts_of(self, hashes: Hashes, checks: Hashes | None) -> Diffs:
        """As `counts`, for codes in any order."""
        found = np.zeros(len(hashes), np.int32)
        parts = [*self.runs, *([Run.of_counts(self.recent, self.is_narrow)] if self.recent else ())]
        for part in parts:
            found += part.counts(hashes, checks)
        return found

    def snapshot(self) -> KeyCounts:
        """A copy that does not change, for another thread."""
        copy = KeyCounts(self.is_narrow, self.runs)
        copy.recent = dict(self.recent)
        return copy

    def add(self, changes: Changes) -> None:
        if isinstance(changes, Run):
            if len(changes):
                self.runs = (*self.runs, changes)
            return
        recent = self.recent
        for code, diff in changes.items():
            if total := recent.get(code, 0) + diff:
                recent[code] = total
            else:
                recent.pop(code, None)
        if len(recent) > RECENT_MAX:
            self.runs = (*self.runs, Run.of_counts(recent, self.is_narrow))
            self.recent = {}

    def parts(self) -> Iterator[Changes]:
        """All changes that were added, of which each code may be in several."""
        if self.recent:
            yield self.recent
        yield from self.runs

    def mergeable(self) -> tuple[Run, ...]:
        """The last runs that should be merged, at least two; or none."""
        first, size = len(self.runs), 0
        for number in reversed(range(len(self.runs))):
            if size * 2 < len(self.runs[number]) and size:
                break
            first, size = number, size + len(self.runs[number])
        return self.runs[first:] if len(self.runs) - first > 1 else ()

    def replace(self, runs: Sequence[Run], merged: Run) -> None:
        """Replaces consecutive runs, which may have followers by now, by the result of their merge."""
        first = next(number for number, run in enumerate(self.runs) if run is runs[0])
        new = (merged,) if len(merged) else ()
        self.runs = (*self.runs[:first], *new, *self.runs[first + len(runs) :])
