"""The metrics of /metrics in Prometheus' text format: names, help texts, and values.

`snapshot` reads the values on the event loop's thread, where they change. `rendered` formats them on any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from catalog.log import LogSizes
from catalog.objects import ObjectId
from server.coordinator.activity import Activity
from server.coordinator.coordinator import Coordinator
from server.dataflow.runtime.computation import Recomputation
from server.dataflow.runtime.hydration import State
from server.execution.subscribe import OUTPUTS
from server.runtime.counters import Counters, Durations
from server.spark import Engine


@dataclass(frozen=True, slots=True)
class Metric:
    """`kind` is `counter`, `gauge` or `histogram`. `samples`: values by the values of `labels`."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    samples: Mapping[tuple[str, ...], float | Durations] = field(default_factory=dict)


def _one(name: str, kind: str, help: str, value: float) -> Metric:
    return Metric(name, kind, help, (), {(): value})


def snapshot(coordinator: Coordinator, engine: Engine, buffered_bytes: int) -> list[Metric]:
    """Returns all metrics except those of the process."""
    return [
        *_of_sessions(coordinator.activity, coordinator.counters),
        *_of_writes(coordinator),
        *_of_holds(coordinator),
        *_of_spark(coordinator.counters, engine),
        Metric(
            "tidewire_dataflows",
            "gauge",
            "Queries that are kept up to date, by what for.",
            ("kind",),
            {(kind,): count for kind, count in coordinator.dataflows.numbers.items()},
        ),
        *_of_dataflows(coordinator),
        *_of_lags(coordinator),
        _one(
            "tidewire_subscription_waiting_bytes",
            "gauge",
            "Changes that the slowest of their subscribers has not taken yet.",
            coordinator.buffered_bytes,
        ),
        _one(
            "tidewire_socket_waiting_bytes",
            "gauge",
            "Bytes that were written to clients and that their sockets have not taken yet.",
            buffered_bytes,
        ),
    ]


def _of_dataflows(coordinator: Coordinator) -> Iterator[Metric]:
    computations, counts = coordinator.dataflows.computations, coordinator.counters
    recomputed = sum(isinstance(computation, Recomputation) for computation in computations)
    yield _one(
        "tidewire_dataflows_recomputed",
        "gauge",
        "Those whose query is computed anew when an input changes, because a part of it has no incremental rule.",
        recomputed,
    )
    yield Metric(
        "tidewire_tick_seconds",
        "histogram",
        "How long dataflows took to take in changes, from when they began to.",
        (),
        {(): counts.ticks},
    )
    yield Metric(
        "tidewire_hydration_seconds",
        "histogram",
        "How long dataflows took to make the state that they begin with.",
        ("outcome",),
        {(outcome,): durations for outcome, durations in counts.hydrations.items()},
    )
    yield _one(
        "tidewire_hydrations_running",
        "gauge",
        "Dataflows that make the state that they begin with.",
        sum(computation.hydration.state is State.RUNNING for computation in computations),
    )
    arrangements = {a for computation in computations for _, a in computation.arrangements}  # counts a shared one once
    arrangements |= {
        index.arrangement for index in coordinator.indexes.arranged.values() if index.arrangement is not None
    }
    rows, size = sum(a.rows for a in arrangements), sum(a.bytes for a in arrangements)
    yield _one("tidewire_arrangement_rows", "gauge", "Entries that dataflows keep to find rows by a key.", rows)
    yield _one("tidewire_arrangement_bytes", "gauge", "Their bytes, in memory and on disk.", size)


def _of_lags(coordinator: Coordinator) -> Iterator[Metric]:
    flows, counts = coordinator.dataflows.running.values(), coordinator.counters
    lags = [coordinator.backpressure.lag(flow) for flow in flows]
    yield _one(
        "tidewire_dataflow_lag_commits",
        "gauge",
        "Commits that the dataflow that is furthest behind has not taken.",
        max((lag.commits for lag in lags), default=0),
    )
    yield _one(
        "tidewire_dataflow_lag_bytes",
        "gauge",
        "Bytes that the dataflow that is furthest behind has not taken.",
        max((lag.bytes for lag in lags), default=0),
    )
    yield _one(
        "tidewire_views_failing",
        "gauge",
        "Materialized views that stay where they are because their query fails.",
        sum(flow.item is not None and flow.error is not None for flow in flows),
    )
    yield _one(
        "tidewire_dataflows_holding_writers",
        "gauge",
        "Dataflows that are so far behind that those who write what they read wait.",
        len(coordinator.backpressure.lagging),
    )
    yield _one("tidewire_writes_throttled", "counter", "Writes that waited for dataflows.", counts.writes_throttled)
    yield _one("tidewire_throttled_seconds", "counter", "How long they waited, together.", counts.throttled_s)


def _of_sessions(activity: Activity, counts: Counters) -> Iterator[Metric]:
    active = dict.fromkeys(OUTPUTS, 0)
    for entry in activity.subscriptions.values():
        active[entry.output] += 1
    yield _one("tidewire_sessions", "gauge", "Clients that are connected.", len(activity.sessions))
    yield _one("tidewire_sessions_opened", "counter", "Clients that have connected.", activity.sessions_opened)
    yield Metric(
        "tidewire_statements",
        "counter",
        "Statements by kind, and whether they did what they were asked. Kind unknown: it could not be parsed.",
        ("kind", "outcome"),
        {(kind, outcome): count for (kind, outcome), count in counts.statements.items()},
    )
    yield Metric(
        "tidewire_subscriptions_started",
        "counter",
        "Subscriptions that have begun, by output mode.",
        ("output",),
        {(output,): activity.subscriptions_started[output] for output in OUTPUTS},
    )
    yield Metric(
        "tidewire_subscriptions_active",
        "gauge",
        "Subscriptions that run, by output mode.",
        ("output",),
        {(output,): count for output, count in active.items()},
    )


def _of_writes(coordinator: Coordinator) -> Iterator[Metric]:
    counts = coordinator.counters
    yield _one("tidewire_commits", "counter", "Commits that wrote rows. Writers that wait share one.", counts.commits)
    yield _one(
        "tidewire_rows_written",
        "counter",
        "Lines of changes that commits wrote: an update is two.",
        counts.rows_written,
    )
    yield _one(
        "tidewire_catalog_transactions",
        "counter",
        "Transactions of the catalog's file: commits, definitions, compaction.",
        coordinator.store.transactions,
    )
    yield _one("tidewire_compactions", "counter", "Runs of batches that were merged into one.", counts.merges)
    yield _one("tidewire_compacted_batches", "counter", "Batches that were merged.", counts.batches_merged)
    yield _one(
        "tidewire_write_frontier_seconds",
        "gauge",
        "The least time that tables may still change at, as seconds since 1970: behind the clock, commits do not pass.",
        coordinator.frontiers.tables_upper / 1_000,
    )


def _of_holds(coordinator: Coordinator) -> Iterator[Metric]:
    """A hold's history: the log rows of its objects after its time that would be absent or merged without holders."""
    state, frontiers, log = coordinator.state, coordinator.frontiers, coordinator.log
    lags: dict[tuple[str, ...], float] = {}
    rows: dict[tuple[str, ...], float] = {}
    sizes: dict[tuple[str, ...], float] = {}
    logs: dict[ObjectId, LogSizes] = {}
    for hold, place, lag_ms in coordinator.holds.lags_ms(state):
        label = (".".join(state.full_name(hold)),)
        lags[label] = lag_ms / 1_000
        rows[label] = sizes[label] = 0
        relations = {state.items[id].part_of or id for id in hold.on}
        for id in relations:
            if id not in logs:
                logs[id] = log.sizes_over_time(id)
            held_rows, held_bytes = logs[id].between(place.at, frontiers.retained(id))
            rows[label] += held_rows
            sizes[label] += held_bytes
    yield Metric("tidewire_hold_lag_seconds", "gauge", "How far a hold is behind its objects.", ("hold",), lags)
    yield Metric("tidewire_hold_history_rows", "gauge", "Lines of changes that a hold keeps.", ("hold",), rows)
    yield Metric("tidewire_hold_history_bytes", "gauge", "Bytes of changes that a hold keeps.", ("hold",), sizes)
    yield _one(
        "tidewire_holds_moved_by_max_lag",
        "counter",
        "Holds that lagged by more than their MAX LAG and were moved.",
        coordinator.counters.holds_moved,
    )


def _of_spark(counts: Counters, engine: Engine) -> Iterator[Metric]:
    yield _one("tidewire_spark_ready", "gauge", "Whether Spark takes statements.", engine.ready)
    yield Metric(
        "tidewire_spark_statements",
        "gauge",
        "Statements that Spark runs, and those that wait for it.",
        ("state",),
        {("running",): engine.running, ("waiting",): engine.waiting},
    )
    yield Metric(
        "tidewire_spark_statement_seconds",
        "histogram",
        "How long Spark's statements took, waiting included.",
        ("outcome",),
        {(outcome,): durations for outcome, durations in counts.spark.items()},
    )


def resident_bytes(process_id: int) -> int | None:
    """Returns the resident memory of another process; None without /proc or without such a process."""
    try:
        for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "VmRSS":
                return int(value.split()[0]) * 1024
    except OSError:
        pass
    return None


def rendered(metrics: list[Metric], jvm_pid: int | None) -> tuple[bytes, str]:
    """Returns the text, with this process's own metrics, and its content type. Reads /proc: not on the event loop."""
    # Imported on first use, because the import takes a tenth of the server's start.
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

    if jvm_pid is not None and (memory := resident_bytes(jvm_pid)) is not None:
        metrics = [
            *metrics,
            _one("tidewire_spark_resident_memory_bytes", "gauge", "Memory of Spark's process.", memory),
        ]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Families(metrics))
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


@dataclass(frozen=True, slots=True, eq=False)
class _Families:
    """The metrics in the form that prometheus_client's collectors return."""

    metrics: list[Metric]

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in self.metrics:
            kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
            family = kinds[metric.kind](metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.samples.items():
                if isinstance(value, Durations):
                    bounds = [*map(str, value.bounds), "+Inf"]
                    buckets = list(zip(bounds, accumulate(value.buckets), strict=True))
                    family.add_metric(labels, buckets, value.total_s)
                else:
                    family.add_metric(labels, value)
            yield family
