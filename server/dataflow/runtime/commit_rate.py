"""The rate of the commits that a dataflow processes, and how long it waits between two steps."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import exp

SHORT_STEP_S = 0.02
PAUSE_SHARE = 2.0  # of the duration of a short step, while commits follow each other
OFTEN = 50.0  # commits per second from which on the pause depends on the rate
PAUSE_S_PER_RATE = 1e-4  # 0.1 ms for each commit per second: 50 ms, and 25 commits, at 500 per second
PAUSE_S_MAX = 0.05
UNREAD_PAUSE_S = 0.1
WAITING_MAX = 64  # commits; a dataflow that lags more does not pause because of the rate


class CommitRate:
    """An exponential moving average over about a second."""

    def __init__(self, now_s: float) -> None:
        self._at_s = now_s
        self.per_s = 0.0

    def add(self, commits: int, now_s: float) -> None:
        """Adds the commits that were processed since the last call."""
        passed_s = max(now_s - self._at_s, 1e-6)
        self.per_s += (commits / passed_s - self.per_s) * (1 - exp(-passed_s))
        self._at_s = now_s

    def pause_s(self, step_s: float, waiting: int) -> float:
        """The pause after a step of this duration, if so many further commits can be processed already.

        A pause lets the next step take more timestamps. The cost of a step of few rows hardly depends on their number:
        without pauses a stream of small commits would cause a step for each, which delays the commits.
        """
        if not waiting:
            return 0.0
        pause_s = step_s * PAUSE_SHARE if step_s < SHORT_STEP_S else 0.0
        if self.per_s > OFTEN and waiting <= WAITING_MAX:
            pause_s = max(pause_s, min(self.per_s * PAUSE_S_PER_RATE, PAUSE_S_MAX))
        return pause_s

    def unread_pause_s(self, step_s: float, waiting: int) -> float:
        """As `pause_s`, for a result that is needed only when it is read. A reader ends the pause (`pause`)."""
        if self.per_s > OFTEN and waiting <= WAITING_MAX:
            return UNREAD_PAUSE_S
        return self.pause_s(step_s, max(waiting, 1))


async def pause(duration_s: float, awaited: asyncio.Event) -> None:
    """Waits for this duration, or until the event is set. Clears the event."""
    with suppress(TimeoutError):
        async with asyncio.timeout(duration_s):
            await awaited.wait()
    awaited.clear()
