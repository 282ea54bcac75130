"""The times of a batch with updates at several times, and the rows that belong to each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from catalog.ids import Timestamp

_GREATEST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Rows [ends[i - 1], ends[i]) of a batch's payload are the updates at times[i]; ends[-1] is 0.

    Invariants: `times` and `ends` are non-descending and have the same length >= 1; ends[i] <= the batch's rows.
    """

    times: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.times)

    def rows(self, lower: int, upper: int) -> tuple[int, int]:
        """The range of the rows with `lower <= time < upper`."""
        first, last = np.searchsorted(self.times, [_clamped(lower), _clamped(upper)])
        start, end = (int(self.ends[number - 1]) if number else 0 for number in (first, last))
        return start, max(start, end)

    def between(self, lower: int, upper: int) -> list[Timestamp]:
        """The times in [lower, upper), ascending, with duplicates."""
        first, last = np.searchsorted(self.times, [_clamped(lower), _clamped(upper)])
        found: list[Timestamp] = self.times[first:last].tolist()
        return found

    def dump(self) -> bytes:
        """The stored form: little-endian int64, first all times, then all ends."""
        return np.concatenate([self.times, self.ends]).astype("<i8").tobytes()

    @classmethod
    def load(cls, stored: bytes) -> Spans:
        """Reads the result of `dump`. ValueError if it is malformed."""
        numbers = np.frombuffer(stored, "<i8").astype(np.int64)
        if len(numbers) < 2 or len(numbers) % 2:
            raise ValueError(f"{len(numbers)} numbers are not pairs")
        times, ends = np.split(numbers, 2)
        return cls(times, ends)

    @classmethod
    def joined(cls, parts: Iterable[tuple[int, int, Spans | None]]) -> Spans:
        """The spans of the concatenation of batches, each given as (time, rows, spans)."""
        times, ends, before = [], [], 0
        for time, rows, spans in parts:
            times.append(np.array([time], np.int64) if spans is None else spans.times)
            ends.append(np.array([before + rows], np.int64) if spans is None else spans.ends + before)
            before += rows
        return cls(np.concatenate(times), np.concatenate(ends))


def _clamped(time: int) -> int:
    return min(time, _GREATEST)
