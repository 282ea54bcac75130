"""Tasks of dataflows, tested without a server."""

from __future__ import annotations

from catalog.ids import Timestamp
from server.coordinator.backpressure import Backpressure
from server.coordinator.dataflows import Dataflows
from server.coordinator.tasks import BackgroundTasks
from server.runtime.metrics import Metrics
from server.timeline.frontiers import Frontiers
from tests.server.coordinator.test_failing_disk import TABLE, Constant, FullSink


async def test_a_dataflow_stopped_before_its_first_run_releases_its_hold() -> None:
    frontiers, metrics, tasks = Frontiers(), Metrics(), BackgroundTasks()
    frontiers.created(TABLE, Timestamp(1), None)
    frontiers.tables_upper = Timestamp(2)
    dataflows = Dataflows(frontiers, Backpressure(metrics), tasks, metrics, frozenset())
    dataflows.start("q1", Constant(), FullSink(), frontiers.hold({TABLE}, 1))
    assert frontiers.holders
    dataflows.stop("q1")
    await tasks.stop()
    assert not frontiers.holders
    assert not dataflows.running
