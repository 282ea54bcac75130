"""Progress of a dataflow's hydration, for `mz_hydration_statuses` and the server's log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from catalog.ids import Timestamp
from server.runtime.metrics import CANCELED, ERROR, OK, Metrics

PROGRESS_S = 5.0  # between log entries; a shorter hydration has none
log = structlog.get_logger()


class State(StrEnum):
    """The state of a hydration, as `mz_hydration_statuses` shows it."""

    WAITING = "waiting"  # for its inputs or its turn
    RUNNING = "running"
    HYDRATED = "hydrated"
    FAILED = "failed"  # with an error of the query


def _now_us() -> int:
    return time.time_ns() // 1_000


@dataclass(slots=True)
class Hydration:
    """The progress of a dataflow's hydration, or the outcome of the last one.

    `rows_there`: the log rows that its operators read. `rows_read`: the rows read so far, fewer in the end due to
    retractions.
    `seconds`: the duration of the last successful hydration. `count`: the number of successful ones; a large change can
    cause another.
    """

    state: State = State.WAITING
    since_us: int = field(default_factory=_now_us)
    as_of: Timestamp | None = None
    operators: int = 0
    operators_done: int = 0
    rows_there: int = 0
    rows_read: int = 0
    seconds: float | None = None
    count: int = 0
    _begun_s: float = 0.0

    @contextmanager
    def running(self, as_of: Timestamp, operators: int, rows_there: int) -> Iterator[None]:
        """Records the enclosed hydration. After a failure the state is HYDRATED if an earlier one succeeded."""
        self._begun_s = time.monotonic()
        self._becomes(State.RUNNING)
        self.as_of, self.operators, self.rows_there = as_of, operators, rows_there
        self.operators_done = self.rows_read = 0
        try:
            yield
        except BaseException:
            self._becomes(State.HYDRATED if self.count else State.FAILED)
            raise
        self.seconds = time.monotonic() - self._begun_s
        self.count += 1
        self._becomes(State.HYDRATED)

    def _becomes(self, state: State) -> None:
        self.state, self.since_us = state, _now_us()

    def progress(self) -> dict[str, object]:
        return {
            "seconds": round(time.monotonic() - self._begun_s, 3),
            "operators": f"{self.operators_done}/{self.operators}",
            "rows": f"{self.rows_read}/{self.rows_there}",
        }


@asynccontextmanager
async def watched(hydration: Hydration, as_of: Timestamp, metrics: Metrics, **dataflow: object) -> AsyncIterator[None]:
    """Counts the enclosed `hydrate` by outcome. After PROGRESS_S, logs its progress at intervals, and its outcome."""
    begun = time.monotonic()
    outcome, failure = ERROR, {}
    logger = log.bind(as_of=as_of, **dataflow)
    reporter = asyncio.create_task(_report(hydration, logger))
    try:
        yield
        outcome = OK
    except asyncio.CancelledError:
        outcome = CANCELED
        raise
    except Exception as error:
        failure = {"error": str(error)}
        raise
    finally:
        reporter.cancel()
        took = time.monotonic() - begun
        metrics.hydration_seconds[outcome].observe(took)
        if took > PROGRESS_S:
            logger.info("hydration ended", outcome=outcome, **failure, **hydration.progress())


async def _report(hydration: Hydration, logger: structlog.typing.FilteringBoundLogger) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        logger.info("hydration in progress", **hydration.progress())
