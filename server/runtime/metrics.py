"""The server's counters for `metrics`. They are changed only on the event loop's thread."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

OK, ERROR, CANCELED = "ok", "error", "canceled"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(slots=True)
class Durations:
    """A histogram in seconds. `buckets[i]` counts durations in (bounds[i - 1], bounds[i]], the last one the rest."""

    bounds: tuple[float, ...] = SECONDS
    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds


def _by_outcome() -> dict[str, Durations]:
    return {outcome: Durations() for outcome in (OK, ERROR, CANCELED)}


@dataclass(slots=True)
class Counters:
    """Counters since the server's start. `statements`: by kind and outcome. `spark`, `hydrations`: by outcome."""

    statements: Counter[tuple[str, str]] = field(default_factory=Counter)
    spark: dict[str, Durations] = field(default_factory=_by_outcome)
    hydrations: dict[str, Durations] = field(default_factory=_by_outcome)
    ticks: Durations = field(default_factory=Durations)
    commits: int = 0
    rows_written: int = 0
    merges: int = 0
    batches_merged: int = 0
    holds_moved: int = 0
    writes_throttled: int = 0
    throttled_s: float = 0.0
