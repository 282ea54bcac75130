"""Tidewire servers for the tests: one in this process that all its tests share, and separate processes.

The shared server runs on a thread with its own event loop and uses the shared engine. Tests connect to it through a
socket. Each test uses a database of its own (`dsn`).
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import uvloop

from server.app import App
from server.config import Config
from server.spark import EngineUnavailable
from server.spark.engine import SparkEngine
from tests.polling import HANG_S
from tests.server.slow_engine import PassingEngine


class ServerThread:
    """A server in this process. It does not close `engine`."""

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
        assert self._ready.wait(HANG_S)
        if self._failure is not None:
            raise self._failure

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            self.app = App(self._config, _Shared(self._engine))
            for workers in (self.app.evaluator, self.app.catalog_engine):
                workers.prepare = _nothing  # most tests need no worker process; the first request starts one
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
        """Runs the awaitable `work` on the server's loop and returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HANG_S)

    def stop(self) -> None:
        """May be called twice."""
        assert self._stop is not None
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(HANG_S)


async def _nothing() -> None:
    pass


class _Shared:
    """The shared engine. Closing a server does not close it."""

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
        """Does nothing: warming up would cost more than it saves."""

    async def close(self) -> None:
        """Does nothing: the fixture `engine` closes it."""


@pytest.fixture(scope="session")
def server(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """The server that all tests of the process share."""
    shared = ServerThread(tmp_path_factory.mktemp("data"), engine)
    yield shared
    shared.stop()


@pytest.fixture
def passing_server(tmp_path: Path) -> Iterator[ServerThread]:
    """A server of its own, without Spark, for tests whose statements need no computation."""
    own = ServerThread(tmp_path, PassingEngine())
    yield own
    own.stop()


_numbers = itertools.count(1)


@pytest.fixture
def dsn(server: ServerThread) -> Iterator[str]:
    """The DSN of a new database on the shared server. It is dropped after the test."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield server.dsn(name)
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} CASCADE")


Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def connect(dsn: str) -> Iterator[Connect]:
    """Opens sessions in the test's database, with autocommit and options of psycopg. Closes them after the test."""
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(closing(psycopg.connect(dsn, autocommit=True, **options)))


class ServerProcess:
    """A server in a separate process, which tests may kill. It logs JSON to `log_path`.

    `python -m MODULE` is run, as an argument of the command `prefix`. The constructor returns when the server listens.
    AssertionError if it exits before.
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
        """Waits for a log event of this process and returns it. AssertionError if the process exits without it."""
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
                    raise AssertionError(f"the server exited: {tail.decode()}")
                # There is no notification of a growing file.
                threading.Event().wait(0.01)

    @property
    def dsn(self) -> str:
        return f"postgresql://materialize@127.0.0.1:{self.port}/materialize"

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit code."""
        self.process.terminate()
        code = self.process.wait(HANG_S)
        self._log.close()
        return code


def server_without_spark(directory: Path, *flags: str) -> ServerProcess:
    """A `ServerProcess` that answers everything that needs no Spark, and starts faster."""
    return ServerProcess(directory, *flags, module="tests.faults.child", env={"FAULTS_SPARK": "none"})
