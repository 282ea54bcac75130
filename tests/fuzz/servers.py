"""A server without Spark for clients that send damaged messages, and checks of what it has kept of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from urllib.request import urlopen

import psycopg

from tests.fix_server import server_without_spark
from tests.fuzz.mutations import SEED
from tests.server.execution.test_large_snapshot import anonymous_kib

GROWTH_KIB_MAX = 48 * 1024
CLIENTS = 40  # at the same time
WARM_UP = 0.3  # of the inputs: what the server has allocated until then is not counted
REST_S = 20.0  # until what clients have left must be gone

Attack = Callable[[int, bytes], Awaitable[bytes]]
"""Sends these bytes to a port of a new connection. Returns what the server sent."""


class FuzzedServer:
    """Statements that need Spark end with `statement_timeout`."""

    def __init__(self, directory: Path) -> None:
        self.process = server_without_spark(directory)
        self._checked = 0
        with self._connected() as connection:
            connection.execute("CREATE TABLE t (k int, v text)")
            connection.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
            connection.execute("ALTER SYSTEM SET statement_timeout = '1s'")
            connection.execute("ALTER SYSTEM SET failed_logins_max = 1000000")

    def run(self, inputs: Iterable[bytes], port: int, attack: Attack, check: Callable[[bytes], None]) -> None:
        """Sends each input over a connection of its own, and lets `check` examine the answer.

        Afterwards the server answers, has no sessions and no descriptors of the clients, and its memory has not grown
        after the warm-up. Its log has no error. An AssertionError names the seed and an input.
        """
        given = list(inputs)
        warm = int(len(given) * WARM_UP)
        self._run(given[:warm], port, attack, check)
        self._rest()
        loaded_kib, descriptors = anonymous_kib(self._pid), self._descriptors()
        self._run(given[warm:], port, attack, check)
        self._rest()
        grown_kib = anonymous_kib(self._pid) - loaded_kib
        print(f"memory grew by {grown_kib / 1024:.0f} MiB, descriptors: {descriptors} then {self._descriptors()}")
        assert grown_kib < GROWTH_KIB_MAX, f"FUZZ_SEED={SEED}: memory grew by {grown_kib} KiB"
        assert self._descriptors() <= descriptors + 2, f"FUZZ_SEED={SEED}"

    def stop(self) -> None:
        """Ends the server. It must exit with 0."""
        assert self.process.stop() == 0

    def _run(self, given: list[bytes], port: int, attack: Attack, check: Callable[[bytes], None]) -> None:
        async def client(queue: list[bytes]) -> None:
            while queue:
                data = queue.pop()
                try:
                    check(await attack(port, data))
                except Exception as error:
                    raise AssertionError(f"FUZZ_SEED={SEED}: {error!r}: {data!r}") from error

        async def clients() -> None:
            queue = given[::-1]
            await asyncio.gather(*(client(queue) for _ in range(CLIENTS)))

        asyncio.run(clients())
        self._check_log(given)

    def _check_log(self, given: list[bytes]) -> None:
        with self.process.log_path.open() as log:
            log.seek(self._checked)
            lines = log.readlines()
            self._checked = log.tell()
        for line in lines:
            event = json.loads(line) if line.startswith("{") else {"level": "error", "text": line}
            assert event.get("level") not in ("error", "critical"), f"FUZZ_SEED={SEED}: {event}, one of {given[-50:]}"

    def _rest(self) -> None:
        """Waits until there are no other sessions. Both ports answer."""
        with self._connected() as connection:
            deadline = time.monotonic() + REST_S
            while len(connection.execute("SELECT id FROM mz_internal.mz_sessions").fetchall()) > 1:
                assert time.monotonic() < deadline, f"FUZZ_SEED={SEED}: sessions without clients"
                time.sleep(0.1)
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with urlopen(f"http://127.0.0.1:{self.process.http_port}/healthz", timeout=20) as response:
            assert response.status == 200

    def _connected(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.process.dsn, autocommit=True, options="-c statement_timeout=0")

    @property
    def _pid(self) -> int:
        return self.process.process.pid

    def _descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._pid}/fd"))


async def read_until(reader: asyncio.StreamReader, *, silence_s: float, whole_s: float) -> tuple[bytes, bool]:
    """What arrives until the end, a silence or the end of a time. Whether the connection has ended."""
    seen, due = b"", time.monotonic() + whole_s
    with contextlib.suppress(ConnectionError):
        while (left_s := due - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(silence_s, left_s)):
                    data = await reader.read(1 << 16)
            except TimeoutError:
                return seen, False
            if not data:
                return seen, True
            seen += data
        return seen, False
    return seen, True
