"""How far a dataflow is with its first state: for those who wait for it, in `mz_hydration_statuses` and the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from catalog.objects import Timestamp
from server.counts import CANCELED, ERROR, OK, Counts

PROGRESS_S = 5.0  # from one line of the log to the next
log = structlog.get_logger()


class State(StrEnum):
    WAITING = "waiting"  # for its inputs, or its turn
    RUNNING = "running"
    HYDRATED = "hydrated"
    FAILED = "failed"  # with an error of the query


def _now_us() -> int:
    return time.time_ns() // 1_000


@dataclass(slots=True)
class Hydration:
    """`rows_there`: lines that the log has of the inputs, of which `rows_read` rows are read: some take others away.

    `seconds`: of the last one that ended well. `count`: how many did; a large change can be reason for another.
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
        """Around the work. What fails when there was a state before leaves that as it is."""
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
async def watched(hydration: Hydration, as_of: Timestamp, counts: Counts, **dataflow: object) -> AsyncIterator[None]:
    """Around a computation's `hydrate`: tells the log when it begins and ends, and between how far it is."""
    begun = time.monotonic()
    outcome = ERROR
    log.info("hydration begins", as_of=as_of, **dataflow)
    telling = asyncio.create_task(_tell(hydration, dataflow))
    try:
        yield
        outcome = OK
        log.info("hydration ended", **dataflow, **hydration.progress())
    except asyncio.CancelledError:
        outcome = CANCELED
        log.info("hydration given up", **dataflow, **hydration.progress())
        raise
    except Exception as error:
        log.info("hydration failed", error=str(error), **dataflow, **hydration.progress())
        raise
    finally:
        telling.cancel()
        counts.hydrations[outcome].add(time.monotonic() - begun)


async def _tell(hydration: Hydration, dataflow: dict[str, object]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        log.info("hydration goes on", **dataflow, **hydration.progress())
