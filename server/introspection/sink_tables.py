"""Rows of the system tables about running sinks: statuses and statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from catalog import builtin
from catalog.ids import ObjectId
from catalog.state import CatalogState
from server.coordinator.coordinator import SystemSource
from server.egress.sink_task import SinkTask
from server.introspection.system_tables import moving

Row = tuple[object, ...]
Running = Callable[[], Mapping[ObjectId, SinkTask]]


def sink_tables(running: Running) -> dict[ObjectId, SystemSource]:
    """The tables. `running` returns the running sinks by id."""
    statuses, statistics = builtin.MZ_SINK_STATUSES, builtin.MZ_SINK_STATISTICS
    return {
        statuses.id: moving(statuses, lambda coordinator: _statuses(coordinator.state, running())),
        statistics.id: moving(statistics, lambda coordinator: _statistics(coordinator.state, running())),
    }


def _statuses(state: CatalogState, running: Mapping[ObjectId, SinkTask]) -> Iterator[Row]:
    for id, task in running.items():
        if (sink := state.items.get(id)) is not None:
            status = task.status.value, task.error, task.hint
            yield id, sink.name, task.sink.system, *status, task.frontier, int(task.held_at)


def _statistics(state: CatalogState, running: Mapping[ObjectId, SinkTask]) -> Iterator[Row]:
    for id, task in running.items():
        if id in state.items:
            yield id, task.written.messages, task.written.updates, task.written.bytes, task.errors
