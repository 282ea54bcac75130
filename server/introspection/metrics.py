"""The metrics that are computed when they are read, and the text of /metrics.

The counters and histograms are in `server.runtime.metrics`. docs/operations.md describes all metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from catalog.ids import ObjectId
from catalog.log import LogSizes
from catalog.objects.indexes import Index
from server.coordinator.coordinator import Coordinator
from server.dataflow.runtime.computation import Recomputation
from server.dataflow.runtime.hydration import State
from server.egress.sink_task import SinkStatus
from server.egress.sinks import Sinks
from server.execution.subscribe import OUTPUTS
from server.ingest.ingestion import Status
from server.ingest.sources import Sources
from server.spark import Engine

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_OBJECTS = frozenset(("hold", "sink", "source"))
"""The labels whose values are names of objects."""


class ServerCollector(Collector):
    """Reads a server's state. `collect` must be exhausted on the event loop's thread, where the state changes."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        engine: Engine,
        sources: Sources,
        sinks: Sinks,
        buffered_bytes: Callable[[], int],
    ) -> None:
        """`buffered_bytes`: returns the bytes that were written to clients and that their sockets have not taken."""
        self._coordinator = coordinator
        self._engine = engine
        self._sources = sources
        self._sinks = sinks
        self._buffered_bytes = buffered_bytes

    def collect(self) -> Iterator[Metric]:
        yield from self._sessions()
        yield from self._writes()
        yield from self._holds()
        yield from self._spark()
        yield from self._dataflows()
        yield from self._arrangements()
        yield from self._lags()
        yield from self._ingestions()
        yield from self._egress()

    def _sessions(self) -> Iterator[Metric]:
        activity = self._coordinator.activity
        active = dict.fromkeys(OUTPUTS, 0)
        for entry in activity.subscriptions.values():
            active[entry.output] += 1
        started = {output: activity.subscriptions_started[output] for output in OUTPUTS}
        yield _gauge("tidewire_sessions", "Connected clients.", len(activity.sessions))
        yield CounterMetricFamily("tidewire_sessions_opened", "Clients that have connected.", activity.sessions_opened)
        yield _labelled(
            CounterMetricFamily(
                "tidewire_subscriptions_started",
                "Subscriptions that have started, by output mode.",
                labels=("output",),
            ),
            started,
        )
        yield _gauges("tidewire_subscriptions_active", "Running subscriptions, by output mode.", "output", active)
        yield _gauge(
            "tidewire_subscription_waiting_bytes",
            "Changes that the slowest subscriber of each relation or query has not read yet.",
            self._coordinator.buffered_bytes,
        )
        yield _gauge(
            "tidewire_socket_waiting_bytes",
            "Bytes that were written to clients and that their sockets have not taken yet.",
            self._buffered_bytes(),
        )

    def _writes(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "tidewire_catalog_transactions",
            "Transactions of the catalog's file: commits, definitions, advanced holds, compaction.",
            self._coordinator.store.transactions,
        )
        yield _gauge(
            "tidewire_write_frontier_seconds",
            "The least time at which tables may still change, as seconds since 1970. Nothing commits while it stays.",
            self._coordinator.frontiers.tables_upper / 1_000,
        )

    def _holds(self) -> Iterator[Metric]:
        """A hold's history: log rows of its objects after its time that would be absent or merged without holders."""
        state, frontiers, log = self._coordinator.state, self._coordinator.frontiers, self._coordinator.log
        lags: dict[str, float] = {}
        rows: dict[str, float] = {}
        sizes: dict[str, float] = {}
        logs: dict[ObjectId, LogSizes] = {}
        for hold, position, lag_ms in self._coordinator.holds.lags_ms(state):
            name = ".".join(state.full_name(hold))
            lags[name] = lag_ms / 1_000
            rows[name] = sizes[name] = 0
            items = (state.items[id] for id in hold.on)
            relations = {item.on if isinstance(item, Index) else item.id for item in items}
            for id in relations:
                if id not in logs:
                    logs[id] = log.sizes_over_time(id)
                held_rows, held_bytes = logs[id].between(position.at, frontiers.retained(id))
                rows[name] += held_rows
                sizes[name] += held_bytes
        yield _gauges("tidewire_hold_lag_seconds", "Lag of a hold behind the frontier of its objects.", "hold", lags)
        yield _gauges("tidewire_hold_history_rows", "Updates that are kept for a hold.", "hold", rows)
        yield _gauges("tidewire_hold_history_bytes", "Bytes of the updates that are kept for a hold.", "hold", sizes)

    def _spark(self) -> Iterator[Metric]:
        engine = self._engine
        yield _gauge("tidewire_spark_ready", "1 while Spark executes statements, else 0.", engine.ready)
        yield _gauges(
            "tidewire_spark_statements",
            "Statements that Spark executes, and statements that wait for it.",
            "state",
            {"running": engine.running, "waiting": engine.waiting},
        )

    def _dataflows(self) -> Iterator[Metric]:
        computations = self._coordinator.dataflows.computations
        yield _gauges("tidewire_dataflows", "Maintained queries, by kind.", "kind", self._coordinator.dataflows.numbers)
        yield _gauge(
            "tidewire_dataflows_recomputed",
            "Maintained queries that are recomputed when an input changes: a part of them has no incremental rule.",
            sum(isinstance(computation, Recomputation) for computation in computations),
        )
        yield _gauge(
            "tidewire_hydrations_running",
            "Dataflows that are hydrating.",
            sum(computation.hydration.state is State.RUNNING for computation in computations),
        )

    def _arrangements(self) -> Iterator[Metric]:
        indexes = self._coordinator.indexes.arranged.values()
        computations = self._coordinator.dataflows.computations
        arrangements = {a for computation in computations for _, a in computation.arrangements}  # shared ones once
        arrangements |= {index.arrangement for index in indexes if index.arrangement is not None}
        rows, size = sum(a.rows for a in arrangements), sum(a.bytes for a in arrangements)
        yield _gauge("tidewire_arrangement_rows", "Entries in the arrangements of dataflows.", rows)
        yield _gauge("tidewire_arrangement_bytes", "Bytes of the arrangements, in memory and on disk.", size)

    def _lags(self) -> Iterator[Metric]:
        flows, backpressure = self._coordinator.dataflows.running.values(), self._coordinator.backpressure
        lags = [backpressure.lag(flow) for flow in flows]
        yield _gauge(
            "tidewire_dataflow_lag_commits",
            "Commits that the dataflow with the greatest lag has not processed.",
            max((lag.commits for lag in lags), default=0),
        )
        yield _gauge(
            "tidewire_dataflow_lag_bytes",
            "Bytes that the dataflow with the greatest lag has not processed.",
            max((lag.bytes for lag in lags), default=0),
        )
        yield _gauge(
            "tidewire_views_failing",
            "Materialized views that do not advance because their query fails.",
            sum(flow.item is not None and flow.error is not None for flow in flows),
        )
        yield _gauge(
            "tidewire_dataflows_holding_writers",
            "Dataflows with so much lag that the writers of their inputs wait.",
            len(backpressure.lagging),
        )

    def _ingestions(self) -> Iterator[Metric]:
        running = self._sources.running.values()
        statuses: dict[str, float] = dict.fromkeys(Status, 0)
        for source in running:
            if source.ingestion is not None:
                statuses[source.ingestion.status] += 1
        yield _gauges("tidewire_sources", "Sources that are read, by status.", "status", statuses)
        messages = sum(source.statistics.messages_received for source in running)
        yield CounterMetricFamily("tidewire_source_messages", "Messages or rows that sources have read.", messages)
        rows = sum(source.rows for source in running)
        yield CounterMetricFamily("tidewire_source_updates", "Updates that sources have committed.", rows)
        state = self._coordinator.state
        statistics = {
            ".".join(state.full_name(item)): source.statistics
            for source in running
            if (item := state.items.get(source.id)) is not None  # else it was dropped, and has not ended yet
        }
        for name, description in (
            ("snapshot_records_known", "Rows of a source's snapshot, as its external system counts or estimates them."),
            ("snapshot_records_staged", "Rows of a source's snapshot that were read."),
            ("offset_known", "The position of the last data that the external system of a source is known to have."),
            ("offset_committed", "The position up to which a source has committed everything."),
        ):
            found = {source: getattr(own, name) for source, own in statistics.items()}
            known = {source: value for source, value in found.items() if value is not None}
            yield _gauges(f"tidewire_source_{name}", f"{description} Absent if unknown.", "source", known)

    def _egress(self) -> Iterator[Metric]:
        """The metrics of each sink, by name, and the number of sinks by status."""
        state = self._coordinator.state
        tasks = {
            ".".join(state.full_name(item)): task
            for id, task in self._sinks.running.items()
            if (item := state.items.get(id)) is not None  # else it was dropped, and its task has not ended yet
        }
        statuses: dict[str, float] = dict.fromkeys(SinkStatus, 0)
        for task in tasks.values():
            statuses[task.status] += 1
        yield _gauges("tidewire_sinks", "Sinks, by status.", "status", statuses)
        yield _gauges(
            "tidewire_sink_frontier_seconds",
            "The time before which a sink has written all changes, as seconds since 1970. Absent before it is known.",
            "sink",
            {name: task.frontier / 1_000 for name, task in tasks.items() if task.frontier is not None},
        )
        yield _gauges(
            "tidewire_sink_lag_seconds",
            "The age of the oldest change that a sink has not written. 0 if it has written all.",
            "sink",
            {name: task.lag_ms / 1_000 for name, task in tasks.items()},
        )
        for name, description, values in (
            ("updates", "Updates that a sink has written.", {n: t.written.updates for n, t in tasks.items()}),
            ("messages", "Messages that a sink has written.", {n: t.written.messages for n, t in tasks.items()}),
            ("bytes", "Bytes that a sink has written.", {n: t.written.bytes for n, t in tasks.items()}),
            ("errors", "Attempts of a sink to write that failed.", {n: t.errors for n, t in tasks.items()}),
        ):
            yield _labelled(CounterMetricFamily(f"tidewire_sink_{name}", description, labels=("sink",)), values)


def names_objects(family: Metric) -> bool:
    """Whether the metrics are of single objects, so that a role without privileges on these may not read them."""
    return any(not _OBJECTS.isdisjoint(sample.labels) for sample in family.samples)


def rendered(families: Iterable[Metric], jvm_pid: int | None) -> bytes:
    """Returns the text, with the metrics of this process and of the JVM. Reads /proc: not on the event loop."""
    registry = CollectorRegistry()
    registry.register(_Collected(families))
    ProcessCollector(registry=registry)
    if jvm_pid is not None and (memory := resident_bytes(jvm_pid)) is not None:
        registry.register(
            _Collected([_gauge("tidewire_spark_resident_memory_bytes", "Resident memory of Spark's JVM.", memory)])
        )
    return generate_latest(registry)


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


class _Collected(Collector):
    """Metrics that were read before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _gauge(name: str, description: str, value: float) -> Metric:
    return GaugeMetricFamily(name, description, value)


def _gauges(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    return _labelled(GaugeMetricFamily(name, description, labels=(label,)), values)


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    """Adds the values by the value of the family's only label."""
    for label, value in values.items():
        family.add_metric((label,), value)
    return family
