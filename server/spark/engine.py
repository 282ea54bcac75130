"""The lifecycle of the Spark engine: start, serve, detect a lost driver, restart, stop.

One supervisor thread owns Spark. It starts a driver, opens the pool, waits until the driver ends, and starts the next
one: at once if the driver lived longer than GOOD_LIFE_S, otherwise after a pause that doubles with each failure.
Unfinished statements stay in the pool and run again on the next driver, which is safe because a query reads only the
tables that are sent with it. After START_TRIES consecutive failures, or if `Spark.prepare` fails, all statements except
patient ones are refused, while the supervisor keeps trying.

The drivers are implemented in embedded/driver.py and connect/remote.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import structlog

from protocol.pgwire.errors import PgError, SqlState
from server.runtime.trace import add_durations
from server.spark import EngineUnavailable
from server.spark.connect.remote import RemoteSpark
from server.spark.connect.url import ConnectUrl
from server.spark.driver import Spark
from server.spark.embedded.driver import EmbeddedSpark
from server.spark.pool import Pool, Statement
from server.spark.python_functions import PythonFunctions
from server.spark.warm_up import synthetic_statements

START_TRIES = 3
GOOD_LIFE_S = 10.0  # the end of a driver that lived this long does not count as a failed start
STOP_GRACE_S = 5.0
WARM_UP_ROUNDS = 300
WARM_UP_PAUSE_S = 0.2  # after each statement of a client or a dataflow: their code is compiled first
MEMORY_MB = 2048  # maximum heap of the driver's JVM; equals the default of `Config.spark_memory`

_log = structlog.get_logger()


class SparkEngine:
    """The implementation of `Engine` on Spark. Its methods may be called from any event loop."""

    def __init__(
        self,
        *,
        directory: Path,
        master: str = "local[*]",
        remote: str | None = None,
        sessions: int = 4,
        memory_mb: int = MEMORY_MB,
        archive: Path | None = None,
        low_latency: bool = True,
        functions: PythonFunctions | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        """`directory`: receives `spark.log` and temporary files.
        `remote`: the URL of a Spark Connect server, used instead of an embedded driver; `directory`, `master`,
        `memory_mb`, `archive` and `low_latency` are then ignored. ValueError if the URL is malformed.
        `sessions`: the maximum number of statements that run concurrently.
        `memory_mb`: the maximum heap of the driver's JVM, in MiB.
        `archive`: the directory of the class archives, which halve the start time (`jvm.default_archive_directory`);
        None disables them.
        `low_latency`: False uses PySpark's public interface instead of `SparkBridge.java`.
        `functions`: Python functions that statements may call. `conf`: additional Spark settings.
        """
        functions, conf = functions or {}, conf or {}
        self._spark: Spark
        if remote is not None:
            self._spark = RemoteSpark(ConnectUrl.parse(remote), functions=functions, conf=conf)
        else:
            self._spark = EmbeddedSpark(
                directory=directory,
                master=master,
                memory_mb=memory_mb,
                archive=archive,
                low_latency=low_latency,
                functions=functions,
                conf=conf,
            )
        self._sessions = sessions
        self._pool = Pool()
        self._stopping = threading.Event()
        self._started: Future[None] = Future()
        self._supervisor: threading.Thread | None = None
        self._unavailable: EngineUnavailable | None = None

    @property
    def unavailable(self) -> EngineUnavailable | None:
        return self._unavailable

    @property
    def ready(self) -> bool:
        return self._pool.is_open

    @property
    def jvm_pid(self) -> int | None:
        return self._spark.pid

    @property
    def running(self) -> int:
        """The number of statements that hold a slot, including cancelled ones until Spark has stopped them."""
        return self._pool.running

    @property
    def waiting(self) -> int:
        """The number of statements that wait for a slot."""
        return self._pool.waiting

    async def start(self) -> None:
        """See `Engine.start`. Cancel safety: the start continues."""
        if self._supervisor is None:
            self._supervisor = threading.Thread(target=self._supervise, name="tidewire-spark-supervisor", daemon=True)
            self._supervisor.start()
        started = asyncio.wrap_future(self._started)
        started.add_done_callback(_retrieve)
        await asyncio.shield(started)

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        """See `Engine.run`.

        A table that a session already has (the same object under the same name) is not sent again, so its buffers must
        not be modified.
        """
        statement = Statement(sql, views, patient=patient, background=background)
        self._pool.submit(statement)
        try:
            rows = await asyncio.wrap_future(statement.future)
        except asyncio.CancelledError:
            self._pool.cancel(statement)
            raise
        add_durations(statement.parts)
        return rows

    async def warm_up(self) -> None:
        begun = time.monotonic()
        for sql, views in synthetic_statements(WARM_UP_ROUNDS):
            while (pause_s := self._pool.used_s + WARM_UP_PAUSE_S - time.monotonic()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(pause_s)
            await self.run(sql, views, background=True)
        _log.info("Spark warmed up", rounds=WARM_UP_ROUNDS, seconds=round(time.monotonic() - begun, 1))

    async def close(self) -> None:
        """Kills the driver if it does not exit within STOP_GRACE_S. Cancel safety: closing continues."""
        await asyncio.shield(asyncio.to_thread(self._close))

    def _close(self) -> None:
        self._stopping.set()
        self._pool.end(_closed())
        self._spark.stop(STOP_GRACE_S)
        if self._supervisor is not None:
            self._supervisor.join()

    def _supervise(self) -> None:
        failures = 0
        prepared = False
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                if not prepared:
                    self._spark.prepare()
                    prepared = True
                self._run_driver()
            except Exception as error:  # any error: the supervisor must survive it
                failures += 1
                why = error if isinstance(error, EngineUnavailable) else _bug(error)
                if self._stopping.is_set():
                    break
                _log.warning("Spark did not start", reason=why.message, hint=why.hint, failures=failures)
                if failures >= START_TRIES or not prepared:
                    self._give_up(why)
            else:
                failures = 0 if time.monotonic() - begun > GOOD_LIFE_S else failures + 1
            pause = min(self._spark.pause_max_s, 0.5 * 2**failures) if failures else 0.0
            if not self._stopping.wait(pause):
                _log.info("Spark restarting", after_s=pause)
        if not self._started.done():
            self._started.set_exception(EngineUnavailable("the engine was closed", "start another"))

    def _give_up(self, error: EngineUnavailable) -> None:
        """Refuses queued and new statements, except patient ones, until a later start succeeds."""
        if self._unavailable is None:
            _log.error(
                "Spark is not available",
                reason=error.message,
                hint=error.hint,
                consequence="statements that need Spark fail with 57P03 until a later start succeeds",
            )
        self._unavailable = error
        self._pool.refuse(
            PgError(
                SqlState.CANNOT_CONNECT_NOW, "the Spark engine is not available", detail=error.message, hint=error.hint
            )
        )
        if not self._started.done():
            failed, self._started = self._started, Future()  # later callers of `start` wait for the next attempt
            failed.set_exception(error)

    def _run_driver(self) -> None:
        """Starts a driver, serves with it and returns when it has ended. Any error is an error of the start."""
        begun = time.monotonic()
        driver = self._spark.start(self._stopping)
        try:
            paths = {name: driver.path(name) for name in (f"slot-{number}" for number in range(self._sessions))}
            self._pool.open(paths, driver.cancel_jobs, driver.terminate)
            self._unavailable = None
            _log.info("Spark ready", seconds=round(time.monotonic() - begun, 2), pid=driver.pid)
            if not self._started.done():
                self._started.set_result(None)
            why = driver.wait()
            if not self._stopping.is_set():
                _log.warning("Spark lost", pid=driver.pid, reason=why)
        finally:
            self._pool.shut()
            driver.close()


def _retrieve(future: asyncio.Future[None]) -> None:
    """Retrieves the future's exception, so that asyncio does not log it if the awaiting task was cancelled."""
    if not future.cancelled():
        future.exception()


def _bug(error: Exception) -> EngineUnavailable:
    _log.error("start of Spark failed", exc_info=error)
    return EngineUnavailable(f"{type(error).__name__}: {error}", "see the server's log")


def _closed() -> PgError:
    return PgError(SqlState.ADMIN_SHUTDOWN, "terminating connection due to administrator command")
