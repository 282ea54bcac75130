"""Tidewire servers for the tests: one in this process that all tests share, and real processes to be killed.

The shared one runs on a thread and an event loop of its own, over the session's one engine. Tests talk to it as
clients do, through a socket; each takes a database of its own (`dsn`), so none sees another's objects.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
import uvloop

from server.app import App
from server.config import Config
from server.spark import EngineUnavailable
from server.spark.engine import SparkEngine


class ServerThread:
    """A server in this process. `engine` stays open when the server closes."""

    def __init__(self, directory: Path, engine: Any, interval_s: float = 0.1, **config: Any) -> None:
        self._config = Config(
            listen="127.0.0.1:0", http_listen="127.0.0.1:0", data_dir=directory, timestamp_interval=interval_s, **config
        )
        self._engine = engine
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()), name="tidewire-server")
        self._thread.start()
        assert self._ready.wait(30)
        if self._failure is not None:
            raise self._failure

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            self.app = App(self._config, _Shared(self._engine))
            await self.app.start()
            _, self.port = await self.app.listen()
            address = await self.app.listen_http()
            assert address is not None
            _, self.http_port = address
        except BaseException as error:
            self._failure = error
            return
        finally:
            self._ready.set()
        await self._stop.wait()
        await self.app.close(1.0)

    def dsn(self, database: str = "materialize") -> str:
        return f"postgresql://materialize@127.0.0.1:{self.port}/{database}"

    def call(self, work: Any) -> Any:
        """Awaits `work` on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def stop(self) -> None:
        """May be called twice."""
        assert self._stop is not None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)


class _Shared:
    """The session's engine, which outlives a server."""

    def __init__(self, engine: SparkEngine) -> None:
        self._engine = engine
        self.run = engine.run

    @property
    def ready(self) -> bool:
        return self._engine.ready

    @property
    def unavailable(self) -> EngineUnavailable | None:
        return self._engine.unavailable

    @property
    def running(self) -> int:
        return self._engine.running

    @property
    def waiting(self) -> int:
        return self._engine.waiting

    @property
    def jvm_pid(self) -> int | None:
        return self._engine.jvm_pid

    async def start(self) -> None:
        await self._engine.start()

    async def warm_up(self) -> None:
        """Tests do not wait for speed."""

    async def close(self) -> None:
        """The fixture of the engine closes it."""


@pytest.fixture(scope="session")
def server(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """The server that all tests share."""
    shared = ServerThread(tmp_path_factory.mktemp("data"), engine)
    yield shared
    shared.stop()


_numbers = itertools.count(1)


@pytest.fixture
def dsn(server: ServerThread) -> Iterator[str]:
    """A fresh database on the shared server, dropped afterwards."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield server.dsn(name)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} CASCADE")


class ServerProcess:
    """A real server process, to be killed. Its JSON log is read until it listens, then kept in `log_path`.

    `module` is what is run, `prefix` what it is run under. AssertionError if the server ends before it listens.
    """

    def __init__(
        self,
        directory: Path,
        *flags: str,
        env: dict[str, str] | None = None,
        module: str = "server",
        prefix: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log_path = directory / "server.log"
        self._log = self.log_path.open("ab")
        start = self._log.tell()
        command = [
            *prefix,
            sys.executable,
            "-m",
            module,
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            str(directory),
        ]
        command += ["--http-listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*command, "--log-format", "json", *flags],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **(env or {})},
        )
        self._start = start
        try:
            event = self.await_event("listening")
        except AssertionError:
            self._log.close()
            raise
        self.port = int(event["port"])
        self.http_port = 0 if event["http"] == "off" else int(event["http"].rpartition(":")[2])

    def await_event(self, name: str) -> dict[str, Any]:
        """Returns this life's log line of that event. AssertionError if the server ends without it."""
        with self.log_path.open("rb") as reader:
            reader.seek(self._start)
            tail = b""
            while True:
                ended = self.process.poll() is not None
                tail += reader.read()
                for line in tail.split(b"\n")[:-1]:
                    event: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
                    if event.get("event") == name:
                        return event
                if ended:
                    raise AssertionError(f"the server ended: {tail.decode()}")
                # Nothing tells when a file grows, so this is how the server's progress is awaited.
                threading.Event().wait(0.01)

    @property
    def dsn(self) -> str:
        return f"postgresql://materialize@127.0.0.1:{self.port}/materialize"

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        code = self.process.wait(30)
        self._log.close()
        return code
