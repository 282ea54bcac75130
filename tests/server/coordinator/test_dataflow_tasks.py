"""The tasks of dataflows, without a server around them."""

from __future__ import annotations

from catalog.objects import Timestamp
from server.coordinator.backpressure import Backpressure
from server.coordinator.dataflows import Dataflows
from server.coordinator.tasks import BackgroundTasks
from server.runtime.counters import Counters
from server.timeline.frontiers import Frontiers
from tests.server.coordinator.test_failing_disk import TABLE, Constant, FullSink


async def test_a_dataflow_that_is_stopped_before_it_runs_holds_no_history() -> None:
    frontiers, counters, tasks = Frontiers(), Counters(), BackgroundTasks()
    frontiers.created(TABLE, Timestamp(1), None)
    frontiers.tables_upper = Timestamp(2)
    dataflows = Dataflows(frontiers, Backpressure(counters), tasks, counters)
    dataflows.start("q1", Constant(), FullSink(), frontiers.hold({TABLE}, 1))
    assert frontiers.holders
    dataflows.stop("q1")
    await tasks.stop()
    assert not frontiers.holders
    assert not dataflows.running
