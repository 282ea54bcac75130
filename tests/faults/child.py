"""`python -m tests.faults.child serve ...`: `tidewire serve`, with changes that environment variables select.

FAULTS_CLOCK    a file of eight bytes: the error of the clock in milliseconds; it may change at any time
FAULTS_DIE      MOMENT:N, to die when that moment is reached for the N-th time; or a number of seconds
FAULTS_MISTAKE  the name of one of `mistakes.MISTAKES`
FAULTS_PAGES    the size of SQLite's WAL, in pages, at which a checkpoint begins
FAULTS_SPARK    "none": Spark never becomes ready, and no JVM is started
"""

from __future__ import annotations

import asyncio
import functools
import mmap
import os
import sqlite3
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from catalog.store import Store
from server import __main__ as command
from server import app
from server.coordinator.clock import clock_ms
from server.coordinator.coordinator import Coordinator
from tests.faults import mistakes, moments


class SteppedClock:
    """The system's clock plus an offset from a file."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._offset = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)

    def __call__(self) -> int:
        (offset,) = struct.unpack("<q", self._offset[:8])
        return clock_ms() + int(offset)


class NoSpark:
    """An engine that never becomes ready."""

    ready = False
    unavailable = None
    running = 0
    waiting = 0
    jvm_pid: int | None = None

    def __init__(self, **_: Any) -> None:
        self._never = asyncio.Event()

    async def start(self) -> None:
        await self._never.wait()

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        await self._never.wait()
        raise AssertionError("unreachable")

    async def warm_up(self) -> None:
        await self._never.wait()

    async def close(self) -> None:
        """Does nothing: the engine was not started."""


def checkpoint_at(pages: int) -> None:
    connect = Store._connect

    def connected(self: Store, held: ExitStack) -> sqlite3.Connection:
        connection = connect(self, held)
        connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
        return connection

    Store._connect = connected  # type: ignore[method-assign]


def main() -> None:
    due = os.environ.get("FAULTS_DIE")
    if due is not None:
        name, colon, passing = due.rpartition(":")
        if colon:
            moments.die_at(name, int(passing))
        else:
            moments.die_after(float(due))
    if "FAULTS_CLOCK" in os.environ:
        clock = SteppedClock(Path(os.environ["FAULTS_CLOCK"]))
        app.Coordinator = functools.partial(Coordinator, clock=clock)  # type: ignore[misc]
    if "FAULTS_PAGES" in os.environ:
        checkpoint_at(int(os.environ["FAULTS_PAGES"]))
    if os.environ.get("FAULTS_SPARK") == "none":
        app.SparkEngine = NoSpark  # type: ignore[misc]
    if "FAULTS_MISTAKE" in os.environ:
        mistakes.MISTAKES[os.environ["FAULTS_MISTAKE"]].make()
    command.main()


if __name__ == "__main__":
    main()
