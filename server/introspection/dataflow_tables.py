"""Rows of the system tables about dataflows: steps, operators, arrangements, lags, hydration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from catalog.ids import ObjectId
from server.coordinator.coordinator import Coordinator
from server.dataflow.arrangements.arrangement import Arrangement
from server.dataflow.plan.description import described, numbered
from server.dataflow.runtime.computation import Recomputation, StepDurations
from server.dataflow.runtime.incremental import IncrementalComputation
from server.dataflow.runtime.index import LogIndex
from server.dataflow.runtime.unplanned import Unplanned
from server.runtime.metrics import SECONDS

Row = tuple[object, ...]

_RULES: dict[type, str] = {
    IncrementalComputation: "incremental",
    Recomputation: "recomputed",
    Unplanned: "unplanned",
}


def dataflows(coordinator: Coordinator) -> Iterator[Row]:
    for id, flow in coordinator.dataflows.running.items():
        yield (
            id,
            flow.item.id if flow.item is not None else None,
            _RULES[type(flow.computation)],
            int(flow.upper),
            flow.hydrated,
            *_step_columns(flow.steps),
            flow.error.message if flow.error is not None else None,
        )
    for id, index in coordinator.indexes.arranged.items():
        if isinstance(index, LogIndex):
            yield id, id, "arranged", int(index.upper), index.hydrated, *_step_columns(index.steps), None


def _step_columns(steps: StepDurations) -> tuple[object, ...]:
    times: tuple[float | None, ...] = (None, None, None)
    if steps.count:
        times = steps.last_s * 1e3, steps.total_s * 1e3 / steps.count, steps.max_s * 1e3
    return steps.count, *times, steps.total_s * 1e3


def lags(coordinator: Coordinator) -> Iterator[Row]:
    frontiers, pressure = coordinator.frontiers, coordinator.backpressure
    for id, flow in coordinator.dataflows.running.items():
        lag = pressure.lag(flow)
        behind_ms = max(0, frontiers.least_upper(flow.inputs) - flow.upper)
        yield id, behind_ms, lag.commits, lag.bytes, id in pressure.lagging


def arrangements(coordinator: Coordinator) -> Iterator[Row]:
    ids: dict[Arrangement, str] = {}  # a shared arrangement has the id of its first use
    for id, computation in _incremental(coordinator):
        numbers = _numbers(computation)
        for operator in computation.operators:
            number = numbers[operator.node]
            for position, (key, arrangement) in enumerate(operator.arrangements, 1):
                arrangement_id = ids.setdefault(arrangement, f"{id}.{number}.{position}")
                yield arrangement_id, id, number, None, key, *_sizes(arrangement)
    for id, index in coordinator.indexes.arranged.items():
        if (arranged := index.arrangement) is not None:
            key, name = ", ".join(index.index.keys), coordinator.state.items[id].name
            yield ids.setdefault(arranged, id), id, None, name, key, *_sizes(arranged)


def _sizes(arrangement: Arrangement) -> tuple[object, ...]:
    return arrangement.rows, arrangement.bytes, arrangement.memory_bytes, arrangement.probed_by


def operators(coordinator: Coordinator) -> Iterator[Row]:
    name_of = names(coordinator)
    for id, computation in _incremental(coordinator):
        numbers = _numbers(computation)
        for operator in computation.operators:
            node, record = operator.node, operator.record
            hydration, last, total = record.hydration, record.last, record.total
            yield (
                id,
                numbers[node],
                described(node, name_of),
                [numbers[below] for below in node.inputs],
                *((hydration.rows_out, hydration.seconds * 1e3) if hydration is not None else (None, None)),
                record.steps,
                *((last.rows_in, last.rows_out, last.seconds * 1e3) if record.steps else 3 * (None,)),
                total.rows_in,
                total.rows_out,
                total.seconds * 1e3,
                total.statements + (hydration.statements if hydration is not None else 0),
                (total.spark_s + (hydration.spark_s if hydration is not None else 0)) * 1e3,
            )


def step_durations(coordinator: Coordinator) -> Iterator[Row]:
    for id, flow in coordinator.dataflows.running.items():
        durations = flow.steps.durations
        for bound, count in zip((*SECONDS, None), durations.buckets, strict=True):
            if count:
                yield id, None if bound is None else bound * 1e3, count


def hydration_statuses(coordinator: Coordinator) -> Iterator[Row]:
    for id, flow in coordinator.dataflows.running.items():
        hydration = flow.computation.hydration
        yield (
            id,
            flow.item.id if flow.item is not None else None,
            flow.hydrated,
            hydration.state.value,
            hydration.since_us,
            hydration.as_of,
            hydration.rows_read,
            hydration.rows_there,
            hydration.operators_done,
            hydration.operators,
            hydration.count,
            None if hydration.seconds is None else hydration.seconds * 1e3,
        )


def names(coordinator: Coordinator) -> Callable[[ObjectId], str]:
    """Returns a function from ids to full names. The name of a dropped object is its id."""
    state = coordinator.state
    return lambda id: ".".join(state.full_name(state.items[id])) if id in state.items else id


def _incremental(coordinator: Coordinator) -> Iterator[tuple[str, IncrementalComputation]]:
    for id, flow in coordinator.dataflows.running.items():
        if isinstance(flow.computation, IncrementalComputation):
            yield id, flow.computation


def _numbers(computation: IncrementalComputation) -> dict[object, int]:
    return {node: number for number, node in numbered(computation.root)}
