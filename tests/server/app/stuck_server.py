"""`python -m tests.server.app.stuck_server serve ...`: no Spark, and a task and a thread that do not end."""

from __future__ import annotations

import asyncio
import threading

from server import __main__ as command
from server import app, process
from tests.faults.child import NoSpark

SHUTDOWN_S = 1.0


class StuckApp(app.App):
    async def start(self) -> None:
        await super().start()
        threading.Thread(target=threading.Event().wait, name="stuck thread").start()
        self._stuck = asyncio.create_task(self._stay(), name="stuck task")

    async def _stay(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue


if __name__ == "__main__":
    app.SparkEngine = NoSpark  # type: ignore[assignment,misc]
    app.App = StuckApp  # type: ignore[misc]
    process.SHUTDOWN_S = SHUTDOWN_S
    command.main()
