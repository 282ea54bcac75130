"""The task that restores a dataflow's state in the background, and its effect on the steps meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any


class Restoration:
    """Runs at most one task that restores the state. Those that were stopped may still be ending.

    A step that computes all rows takes up to three times as long while the state is being restored, because both use
    the same processors. So the task is stopped when a single small step arrives, and starts from the beginning after
    it. This ends when the steps have taken as long as a restoration: a stream of small steps becomes incremental after
    about twice the time of a restoration. If the state is expected before the step could compute all rows, the step
    waits for it.
    """

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # `task`, and those that were stopped and have not ended
        self._begun_s: float | None = None  # when the task began to work
        self._made_way_s = 0.0  # the duration of the steps for which the task was stopped

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a task, which must call `begin` when it begins to work and `end` at its end. There must be none."""
        self.task, self._begun_s = asyncio.create_task(work), None
        self._tasks.add(self.task)
        self.task.add_done_callback(self._tasks.discard)

    def begin(self) -> None:
        """Called when the task begins to work, possibly not for the first time."""
        self._begun_s = monotonic()

    def end(self, *, restored: bool) -> None:
        """Called by the task at its end. `restored`: there is a state again."""
        if self.task is asyncio.current_task():
            self.task = None
        if restored:
            self._made_way_s = 0.0

    def stop(self) -> None:
        """Cancels the task, if there is one. It ends later: see `closed`."""
        if self.task is not None:
            self.task.cancel()
            self.task = None

    async def make_way(self, waiting: int, step_s: float, restoration_s: float) -> None:
        """Called before one of `waiting` small steps computes all rows, which takes about `step_s`.

        Stops the task, waits for its end, or does nothing: then both run at the same time. `restoration_s`: the
        duration of a restoration.
        """
        if self.task is None:
            return
        left_s = None if self._begun_s is None else max(self._begun_s + restoration_s - monotonic(), 0.0)
        if waiting <= 1 and self._made_way_s < restoration_s and (left_s is None or left_s > step_s):
            self._made_way_s += step_s
            self.stop()
        elif left_s is not None and left_s <= (waiting + 1) * step_s:
            await asyncio.wait({self.task}, timeout=max(left_s, step_s))

    async def closed(self) -> None:
        """Returns when all tasks have ended. Called after `stop`."""
        if self._tasks:
            await asyncio.wait(self._tasks)
