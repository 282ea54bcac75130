"""Runs SESSIONS of mixed work for a while, and compares the server's resources afterwards with those before.

The resources before are those after a short run of the same work: caches and compiled code are not leaks. Exits with 1
if a resource has not returned to its level, or if an item of work failed in another way than it may.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random, randrange
from typing import Any

import asyncpg

from tests.fix_server import ServerProcess
from tests.soak.plot import plot
from tests.soak.resources import Resources, measured
from tests.soak.work import EXPECTED, SETUP, WORK, Session, clean_up

LEVEL_S = 180.0  # at most, until the resources have returned to their level
RELEASE_S = 70.0  # within which the server returns freed memory
CONNECTION_S = 30.0  # about so long a connection is used
ITEM_S = 300.0  # an item that takes longer is a hang
WARM_UP_S = 300.0
"""How long the sessions work before the level is measured. Caches that have limits are full after three minutes."""

TOLERANCES = {
    "server_bytes": (1.15, 64 << 20),
    "server_descriptors": (1.0, 8),
    "server_threads": (1.0, 8),
    "processes": (1.0, 4),
    "files": (1.2, 20),
    "log_bytes": (1.5, 8 << 20),
    "jvm_bytes": (1.2, 192 << 20),
    "jvm_descriptors": (1.0, 16),
    "jvm_threads": (1.0, 16),
    "jvm_live_bytes": (1.2, 32 << 20),
    "jvm_blocks": (1.2, 100),
}
"""What a resource may be afterwards: a factor of its level before, and an addition."""


@dataclass
class Run:
    """One server and the work on it. `samples`: seconds since the start, and what was used then."""

    server: ServerProcess
    jvm: int
    seed: int
    sessions: int
    done: Counter[str] = field(default_factory=Counter)
    expected: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    samples: list[tuple[float, Resources]] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    def resources(self, *, collect: bool = False) -> Resources:
        return measured(self.server.process.pid, self.jvm, self.server.directory, collect=collect)

    async def connect(self) -> asyncpg.Connection[Any]:
        return await asyncpg.connect(self.server.dsn, timeout=60, command_timeout=ITEM_S)

    async def work(self, seconds: float, part: str) -> None:
        """All sessions work for a while, and then end."""
        until = time.monotonic() + seconds
        sampling = asyncio.create_task(self._sample(max(1.0, seconds / 200)))
        workers = [
            self._session(number, Random(f"{self.seed} {part} {number}"), until) for number in range(self.sessions)
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)

    async def _sample(self, pause_s: float) -> None:
        while True:
            self.samples.append((time.monotonic() - self.begun, await asyncio.to_thread(self.resources)))
            await asyncio.sleep(pause_s)

    async def _session(self, number: int, random: Random, until: float) -> None:
        """Connects, works, and ends the connection in one of several ways, again and again."""
        items, weights = list(WORK), list(WORK.values())
        await asyncio.sleep(random.random() * min(5.0, max(0.0, until - time.monotonic())))
        while time.monotonic() < until:
            try:
                connection = await self.connect()
            except (OSError, asyncpg.PostgresError) as error:
                self._failed("connect", error)
                await asyncio.sleep(1)
                continue
            end = time.monotonic() + random.expovariate(1 / CONNECTION_S)
            session = Session(number, random, connection, self.server.http_port)
            while time.monotonic() < min(until, end) and not connection.is_closed():
                item = random.choices(items, weights)[0]
                try:
                    await item(session)
                    self.done[item.__name__] += 1
                except Exception as error:
                    self._failed(item.__name__, error)
                    break
                await asyncio.sleep(random.random() / 5)
            with suppress(Exception):  # it may be lost already
                if random.random() < 0.3:
                    connection.terminate()
                else:
                    await connection.close(timeout=30)

    def _failed(self, item: str, error: Exception) -> None:
        code = getattr(error, "sqlstate", None)
        if code in EXPECTED:
            self.expected[f"{item} {code}"] += 1
        elif isinstance(error, asyncpg.InternalClientError | asyncpg.InterfaceError):
            self.expected[f"{item} asyncpg"] += 1  # its state after a COPY that was cancelled
        elif item != "disconnected":
            self.failures.append(f"{time.monotonic() - self.begun:.0f} s, {item}: {type(error).__name__}: {error}")

    async def settled(self, wanted: Resources | None = None) -> Resources:
        """Removes what is left, and waits until the resources are back at a level, or LEVEL_S have passed.

        Without a level to return to, waits until they have not decreased for RELEASE_S.
        """
        connection = await self.connect()
        await clean_up(connection)
        await connection.close()
        deadline = time.monotonic() + LEVEL_S
        before = await asyncio.to_thread(self.resources, collect=True)
        while True:
            await asyncio.sleep(5 if wanted is not None else RELEASE_S)
            now = await asyncio.to_thread(self.resources, collect=True)
            self.samples.append((time.monotonic() - self.begun, now))
            reached = not exceeded(wanted, now) if wanted is not None else not any(_has_decreased(before, now))
            if reached or time.monotonic() > deadline:
                return now
            before = now


def _has_decreased(before: Resources, now: Resources) -> list[str]:
    """The resources of which a tenth has been released."""
    return [f.name for f in fields(Resources) if (getattr(now, f.name) or 0) < 0.9 * (getattr(before, f.name) or 0)]


def exceeded(before: Resources, after: Resources) -> list[str]:
    """The resources that have not returned to their level."""
    found = []
    for name, (factor, addition) in TOLERANCES.items():
        level, now = getattr(before, name), getattr(after, name)
        if level is not None and now is not None and now > level * factor + addition:
            found.append(f"{name}: {level:,} before, {now:,} after")
    return found


async def soak(run: Run, seconds: float) -> tuple[Resources, Resources]:
    """Returns the resources before and after."""
    connection = await run.connect()
    await connection.execute(SETUP)
    await connection.close()
    await run.work(min(WARM_UP_S, seconds / 2), "warm")
    before = await run.settled()
    print(f"level: {before}", flush=True)
    run.done.clear()
    await run.work(seconds, "soak")
    return before, await run.settled(before)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0, help="duration of the work (%(default)s)")
    parser.add_argument("--sessions", type=int, default=200, help="concurrent sessions (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of a run")
    parser.add_argument("--into", type=Path, help="an SVG file for the plot")
    options = parser.parse_args()
    seed = randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidewire-soak-") as directory:
        server = ServerProcess(Path(directory) / "data")
        try:
            server.await_event("Spark warmed up")
            run = Run(server, int(server.await_event("Spark ready")["pid"]), seed, options.sessions)
            before, after = asyncio.run(soak(run, options.seconds))
        finally:
            server.stop()
    print(f"after: {after}")
    print(f"{sum(run.done.values()):,} items of work: {dict(run.done.most_common())}")
    print(f"expected errors: {dict(run.expected.most_common())}")
    if options.into is not None:
        options.into.write_text(plot(run.samples, options.sessions))
    problems = [*exceeded(before, after), *run.failures[:20]]
    missing = [item.__name__ for item in WORK if not run.done[item.__name__] and item.__name__ != "disconnected"]
    if missing and options.seconds >= 60:
        problems.append(f"never completed: {missing}")
    for problem in problems:
        print(f"PROBLEM: {problem}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
