"""The Spark engine's life: start, serve, notice death, start again, end.

One supervisor thread owns Spark. It starts a driver, opens the pool, waits until the driver is gone, and starts again:
at once if the driver served for a while, with growing pauses after failed starts. Statements in flight stay in the
pool and run again: a query reads nothing but the tables that came with it. After START_TRIES failures in a row, or one
that another try does not mend, all statements but the patient ones are refused, while the supervisor goes on trying.

Where the driver is, embedded.py and remote.py know.
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
from server.connect_url import ConnectUrl
from server.spark import EngineUnavailable
from server.spark.embedded import EmbeddedSpark
from server.spark.pool import Pool, Statement
from server.spark.python_functions import PythonFunctions
from server.spark.remote import RemoteSpark
from server.spark.spark import Spark
from server.spark.warm_up import synthetic_ticks
from server.trace import tell

START_TRIES = 3
GOOD_LIFE_S = 10.0  # a driver that served this long did not die of its start
STOP_GRACE_S = 5.0
WARM_UP_ROUNDS = 300
MEMORY_MB = 2048  # of the heap of the driver's JVM; as `Config.spark_memory`

_log = structlog.get_logger()


class SparkEngine:
    """The `Engine` that runs on Spark. Its methods may be called from any event loop."""

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
        """`directory` takes `spark.log` and temporary files. `sessions`: how many statements run at once.

        `memory_mb`: the largest heap of the driver's JVM.

        `remote`: the URL of a Spark Connect server, in place of a driver of our own; then `directory`, `master`,
        `memory_mb`, `archive` and `low_latency` mean nothing. ValueError for what is no such URL.
        `archive`: the directory of the class archives, which halve the start (`jvm.default_archive_directory`); None
        for none. `low_latency` False takes PySpark's public interface instead of `Door.java`. `functions`: what
        statements may call beside Spark's own. `conf`: Spark's settings beside those that we need.
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
        """How many statements hold a slot, cancelled ones included until Spark lets go of them."""
        return self._pool.running

    @property
    def waiting(self) -> int:
        """How many statements wait for a slot."""
        return self._pool.waiting

    async def start(self) -> None:
        """Cancel safety: the start goes on."""
        if self._supervisor is None:
            self._supervisor = threading.Thread(target=self._supervise, name="tidewire-spark-supervisor", daemon=True)
            self._supervisor.start()
        started = asyncio.wrap_future(self._started)
        started.add_done_callback(_retrieve)
        await asyncio.shield(started)

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        """As `Engine.run`; a `background` statement waits until nothing else runs.

        A table that was sent before, the same object under the same name, is not sent again: do not change its buffers.
        """
        statement = Statement(sql, views, patient=patient, background=background)
        self._pool.submit(statement)
        try:
            rows = await asyncio.wrap_future(statement.future)
        except asyncio.CancelledError:
            self._pool.cancel(statement)
            raise
        tell(statement.parts)
        return rows

    async def warm_up(self) -> None:
        begun = time.monotonic()
        for sql, views in synthetic_ticks(WARM_UP_ROUNDS):
            await self.run(sql, views, background=True)
        _log.info("engine warm", rounds=WARM_UP_ROUNDS, seconds=round(time.monotonic() - begun, 1))

    async def close(self) -> None:
        """Cancel safety: the end goes on; the driver is killed if it does not leave within STOP_GRACE_S."""
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
                self._serve_once()
            except Exception as error:  # whatever it was, this thread goes on
                failures += 1
                why = error if isinstance(error, EngineUnavailable) else _bug(error)
                if self._stopping.is_set():
                    break
                _log.warning("engine did not start", reason=why.message, hint=why.hint, failures=failures)
                if failures >= START_TRIES or not prepared:
                    self._give_up(why)
            else:
                failures = 0 if time.monotonic() - begun > GOOD_LIFE_S else failures + 1
            pause = min(self._spark.pause_max_s, 0.5 * 2**failures) if failures else 0.0
            if not self._stopping.wait(pause):
                _log.info("engine restarting", after_s=pause)
        if not self._started.done():
            self._started.set_exception(EngineUnavailable("the engine was closed", "start another"))

    def _give_up(self, error: EngineUnavailable) -> None:
        """Refuses the statements that wait and those that come, until a later try succeeds."""
        if self._unavailable is None:
            _log.error(
                "Spark is not available",
                reason=error.message,
                hint=error.hint,
                consequence="statements that need Spark fail with 57P03; starting it is tried again and again",
            )
        self._unavailable = error
        self._pool.refuse(
            PgError(
                SqlState.CANNOT_CONNECT_NOW, "the Spark engine is not available", detail=error.message, hint=error.hint
            )
        )
        if not self._started.done():
            failed, self._started = self._started, Future()  # whoever asks from now on waits for the next try
            failed.set_exception(error)

    def _serve_once(self) -> None:
        """One driver's life, from its start to its end. Any error is one of its start."""
        begun = time.monotonic()
        driver = self._spark.start(self._stopping)
        try:
            paths = {name: driver.path(name) for name in (f"slot-{number}" for number in range(self._sessions))}
            self._pool.open(paths, driver.cancel_jobs, driver.fell)
            self._unavailable = None
            _log.info("engine ready", seconds=round(time.monotonic() - begun, 2), pid=driver.pid)
            if not self._started.done():
                self._started.set_result(None)
            why = driver.wait()
            if not self._stopping.is_set():
                _log.warning("engine lost", pid=driver.pid, reason=why)
        finally:
            self._pool.shut()
            driver.close()


def _retrieve(future: asyncio.Future[None]) -> None:
    """Marks a future's exception as seen, for when whoever waited was cancelled."""
    if not future.cancelled():
        future.exception()


def _bug(error: Exception) -> EngineUnavailable:
    _log.error("engine failed", exc_info=error)
    return EngineUnavailable(f"{type(error).__name__}: {error}", "see the server's log")


def _closed() -> PgError:
    return PgError(SqlState.ADMIN_SHUTDOWN, "terminating connection due to administrator command")
