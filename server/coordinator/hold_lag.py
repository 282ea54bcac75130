"""MAX LAG: advances the holds that lag too far.

The lag of a hold grows with the clock, even while there is no server. So that a restart never takes history from a
client that could not connect, the downtime does not count until the server has been up for a while (`Holds.overdue`).
The downtimes of servers that were up for a shorter time are added up in the catalog.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time

import structlog

from catalog.store import Store
from server.coordinator.committer import Committer, Request
from server.coordinator.holds import DOWNTIME_GRACE_MS, Holds, Overdue
from server.runtime.cancellation import raise_if_cancelled
from server.runtime.metrics import Metrics

log = structlog.get_logger()


class HoldLag:
    """Checks the lag of all holds once per interval."""

    def __init__(
        self, store: Store, committer: Committer, holds: Holds, metrics: Metrics, *, interval_s: float
    ) -> None:
        self._store = store
        self._committer = committer
        self._holds = holds
        self._metrics = metrics
        self._interval_s = interval_s
        self._downtime_ms = 0

    async def add_downtime(self, downtime_ms: int) -> None:
        """Adds the downtime before this start to the stored total."""

        def act(tx: sqlite3.Connection) -> int:
            ((counted,),) = tx.execute("SELECT value FROM meta WHERE key = 'downtime'").fetchall()
            tx.execute("UPDATE meta SET value = ? WHERE key = 'downtime'", (counted + downtime_ms,))
            return int(counted) + downtime_ms

        self._downtime_ms = await self._store.transaction(act)

    async def run(self) -> None:
        """Advances overdue holds, all of them in one transaction. Runs until cancelled."""
        begun = time.monotonic()
        while True:
            await asyncio.sleep(self._interval_s)
            uptime_ms = int((time.monotonic() - begun) * 1_000)
            if self._downtime_ms and uptime_ms >= DOWNTIME_GRACE_MS:
                await self._store.transaction(_reset_downtime)
                self._downtime_ms = 0
            overdue = self._holds.overdue(self._committer.state, uptime_ms, self._downtime_ms)
            if overdue:
                await self._advance(overdue)

    async def _advance(self, overdue: list[Overdue]) -> None:
        before = dict(self._holds.positions)
        try:
            await self._committer.commit(Request(overdue=overdue))
        except Exception as error:  # the committer logs the cause; the next check finds the overdue holds again
            raise_if_cancelled()
            log.error("overdue holds not advanced", holds=len(overdue), error=str(error))
            return
        state = self._committer.state
        for move in overdue:
            position, hold = self._holds.positions.get(move.hold), state.items.get(move.hold)
            if hold is None or position is None or position.at != move.to:
                continue  # the owner advanced it first
            self._metrics.holds_moved.inc()
            name = ".".join(state.full_name(hold))
            log.warning("hold exceeded MAX LAG", hold=name, id=move.hold, before=before[move.hold].at, at=position.at)


def _reset_downtime(tx: sqlite3.Connection) -> None:
    tx.execute("UPDATE meta SET value = 0 WHERE key = 'downtime'")
