"""The server's counters and histograms, as objects of prometheus_client.

Changing one takes one to five microseconds: this is done per statement, commit or step, never per row.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

OK, ERROR, CANCELED = "ok", "error", "canceled"
OUTCOMES = (OK, ERROR, CANCELED)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a time series for the creation of each counter, which nobody needs


class Metrics:
    """The metrics of one server. Each server has a registry: several servers may run in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._statements = Counter(
            "tidewire_statements",
            "Statements by kind and outcome. The kind of a text that cannot be parsed is unknown.",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self._statements_by_label: dict[tuple[str, str], Counter] = {}
        self.commits = self._counter("tidewire_commits", "Commits that wrote rows. Concurrent writers may share one.")
        self.rows_written = self._counter(
            "tidewire_rows_written", "Updates that commits wrote. An SQL UPDATE of one row is two updates."
        )
        self.compactions = self._counter("tidewire_compactions", "Merges of several batches of the log into one.")
        self.compacted_batches = self._counter("tidewire_compacted_batches", "Batches of the log that were merged.")
        self.holds_moved = self._counter(
            "tidewire_holds_moved_by_max_lag", "Holds that lagged by more than their MAX LAG and were advanced."
        )
        self.writes_throttled = self._counter(
            "tidewire_writes_throttled", "Writes that waited for dataflows with too much lag."
        )
        self.throttled_seconds = self._counter(
            "tidewire_throttled_seconds", "Total time that writes waited for dataflows with too much lag."
        )
        self.step_seconds = Histogram(
            "tidewire_step_seconds", "Duration of dataflow steps.", buckets=SECONDS, registry=self.registry
        )
        self.hydration_seconds = self._by_outcome("tidewire_hydration_seconds", "Duration of hydrations.")
        self.spark_seconds = self._by_outcome(
            "tidewire_spark_statement_seconds", "Duration of Spark's statements, including the wait for a session."
        )

    def count_statement(self, kind: str, outcome: str) -> None:
        counter = self._statements_by_label.get((kind, outcome))
        if counter is None:  # looking up a labelled counter takes five times as long as incrementing it
            counter = self._statements_by_label[kind, outcome] = self._statements.labels(kind, outcome)
        counter.inc()

    def _counter(self, name: str, description: str) -> Counter:
        return Counter(name, description, registry=self.registry)

    def _by_outcome(self, name: str, description: str) -> dict[str, Histogram]:
        """Returns the histograms of a duration by outcome."""
        histogram = Histogram(name, description, ("outcome",), buckets=SECONDS, registry=self.registry)
        return {outcome: histogram.labels(outcome) for outcome in OUTCOMES}


@dataclass(slots=True)
class Durations:
    """A histogram in seconds that is not a metric. `buckets[i]` counts durations in (SECONDS[i - 1], SECONDS[i]]; the
    last bucket counts the rest."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(SECONDS, seconds)] += 1
        self.total_s += seconds
