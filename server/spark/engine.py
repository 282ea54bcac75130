"""The Spark engine's life: start, serve, notice death, start again, end.

One supervisor thread owns the JVM: it starts it, opens the pool, then sleeps in wait(2) until the JVM is gone, and
begins again, at once after a good life, with growing pauses after failed starts. Statements in flight survive in the
pool and run again: a query reads nothing but the tables that came with it. After START_TRIES failures in a row those
that wait are told so, while the supervisor goes on trying.

A second, slow JVM makes the class archive once, at the lowest priority (`_make_archive`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from py4j.protocol import Py4JError, Py4JJavaError

from protocol.pgwire.errors import PgError, SqlState
from server.spark import EngineUnavailable
from server.spark.arrow_path import DoorPath, SessionPath, compile_door
from server.spark.java import Java, find_java
from server.spark.jvm import ClassArchive, Jvm
from server.spark.pool import Pool, Statement
from server.spark.python_functions import PythonFunctions, register
from server.spark.stock_path import StockPaths

START_TRIES = 3
PAUSE_MAX_S = 30.0
GOOD_LIFE_S = 10.0  # a JVM that served this long did not die of its start
STOP_GRACE_S = 5.0
ARCHIVE_DELAY_S = 10.0  # lets the first statements have the processor
ARCHIVE_TIMEOUT_S = 300.0
ARCHIVE_ROUNDS = 24
ARCHIVE_MEMORY_MB = 1024
WARM_UP_ROUNDS = 300

_log = structlog.get_logger()


def default_memory_mb() -> int:
    """A quarter of the machine's memory, between 1 and 8 GiB."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1024, min(8192, physical // 4 // 2**20))


def spark_properties(master: str, memory_mb: int, scratch: Path) -> dict[str, str]:
    """Spark's settings; every session inherits them. Sources of the choices: measurements, see each line."""
    properties = {
        "spark.master": master,
        "spark.app.name": "tidewire",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.scheduler.mode": "FAIR",  # a long snapshot query does not starve ticks
        "spark.driver.maxResultSize": f"{memory_mb // 2}m",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.sql.ansi.enabled": "true",  # overflow, division by zero and bad casts are errors, as in PostgreSQL
        "spark.sql.caseSensitive": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.timeType.enabled": "true",  # its functions are off by default
        "spark.sql.cteRecursionLevelLimit": "10000",  # PostgreSQL has none; each level is a job of its own
        "spark.sql.adaptive.enabled": "false",  # costs a small aggregate a fifth more
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.leafNodeDefaultParallelism": "1",
        # What a plan holds as rows can fold without a job, but is slow to plan: from 10,000 rows on an RDD is faster,
        # at 10^6 rows ten times.
        "spark.sql.execution.arrow.localRelationThreshold": "256KB",
    }
    if master.startswith("local"):
        properties |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return properties


class Driver:
    """One JVM with Spark started in it: sessions come out of it, jobs are cancelled through it."""

    def __init__(self, jvm: Jvm, stopping: threading.Event, *, low_latency: bool, functions: PythonFunctions) -> None:
        """Waits until Spark is up. EngineUnavailable, or py4j's errors when Spark or its JVM give up on the way."""
        gateway = jvm.connect(stopping)
        with ThreadPoolExecutor(1, "tidewire-spark-door") as beside:  # takes a second of the start
            door = beside.submit(compile_door, gateway)
            self._context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
            self._session = gateway.jvm.org.apache.spark.sql.classic.SparkSession(self._context, {})
            self._door = door.result()
        self._stock = None if low_latency else StockPaths(gateway, self._door)
        self._jvm = gateway.jvm
        self._functions = functions

    def path(self, slot: str) -> SessionPath:
        """A session of its own: temporary views and settings are private, the JVM and its caches are shared."""
        if self._stock:
            return self._stock.path(slot, self._functions)
        session = self._session.newSession()
        register(self._jvm, session, self._functions)
        return DoorPath(self._door, session, slot)

    def cancel_jobs(self, group: str) -> None:
        """Cancels the group's jobs, those that run and those that are yet to come."""
        try:
            self._context.cancelJobGroupAndFutureJobs(group)
        except (Py4JError, OSError) as error:  # the JVM is gone, and with it the jobs
            _log.debug("jobs not cancelled", group=group, error=str(error))

    def forget(self) -> None:
        """After the JVM's end: makes PySpark forget it, if it knew."""
        if self._stock:
            self._stock.detach()


class SparkEngine:
    """The `Engine` that runs on a Spark of our own. Its methods may be called from any event loop."""

    def __init__(
        self,
        *,
        directory: Path,
        master: str = "local[*]",
        sessions: int = 4,
        memory_mb: int | None = None,
        archive: Path | None = None,
        low_latency: bool = True,
        functions: PythonFunctions | None = None,
    ) -> None:
        """`directory` takes `spark.log` and temporary files. `sessions`: how many statements run at once.

        `archive`: the directory of the class archives, which halve the start (`jvm.default_archive_directory`); None
        for none. `low_latency` False takes PySpark's public interface instead of `Door.java`. `functions`: what
        statements may call beside Spark's own.
        """
        self._directory = directory
        self._log_file = directory / "spark.log"
        self._master = master
        self._sessions = sessions
        self._memory_mb = memory_mb or default_memory_mb()
        self._archive = archive
        self._low_latency = low_latency
        self._functions = functions or {}
        self._pool = Pool()
        self._stopping = threading.Event()
        self._started: Future[None] = Future()
        self._jvm: Jvm | None = None
        self._threads: list[threading.Thread] = []
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it reports each lost connection with a trace; so do we

    @property
    def ready(self) -> bool:
        return self._pool.is_open

    @property
    def jvm_pid(self) -> int | None:
        jvm = self._jvm
        return jvm.pid if jvm else None

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
        if not self._threads:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._spawn(self._supervise, "supervisor")
        await asyncio.shield(asyncio.wrap_future(self._started))

    async def run(self, sql: str, views: Mapping[str, pa.Table], *, background: bool = False) -> pa.Table:
        """As `Engine.run`; a `background` statement waits until nothing else runs.

        A table that was sent before, the same object under the same name, is not sent again: do not change its buffers.
        """
        statement = Statement(sql, views, background=background)
        self._pool.submit(statement)
        try:
            return await asyncio.wrap_future(statement.future)
        except asyncio.CancelledError:
            self._pool.cancel(statement)
            raise

    async def warm_up(self) -> None:
        begun = time.monotonic()
        for sql, views in synthetic_ticks(WARM_UP_ROUNDS):
            await self.run(sql, views, background=True)
        _log.info("engine warm", rounds=WARM_UP_ROUNDS, seconds=round(time.monotonic() - begun, 1))

    async def close(self) -> None:
        """Cancel safety: the end goes on; the JVM is killed if it does not leave within STOP_GRACE_S."""
        await asyncio.shield(asyncio.to_thread(self._close))

    def _close(self) -> None:
        self._stopping.set()
        self._pool.refuse(_closed())
        if (jvm := self._jvm) is not None:
            jvm.stop(STOP_GRACE_S)
        for thread in self._threads:
            thread.join()

    def _spawn(self, work: Callable[..., None], name: str, *arguments: Any) -> None:
        thread = threading.Thread(target=work, name=f"tidewire-spark-{name}", args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _supervise(self) -> None:
        try:
            java = find_java()
        except EngineUnavailable as error:
            self._give_up(error)
            return
        failures = 0
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                self._serve_once(java)
            except Exception as error:  # whatever it was, this thread goes on
                failures += 1
                why = self._unavailable(error)
                _log.warning("engine did not start", reason=why.message, hint=why.hint, failures=failures)
                if failures >= START_TRIES:
                    self._give_up(why)
            else:
                failures = 0 if time.monotonic() - begun > GOOD_LIFE_S else failures + 1
            pause = min(PAUSE_MAX_S, 0.5 * 2**failures) if failures else 0.0
            if not self._stopping.wait(pause):
                _log.info("engine restarting", after_s=pause)
        self._give_up(EngineUnavailable("the engine was closed", "start another"))
        self._pool.refuse(_closed())

    def _unavailable(self, error: Exception) -> EngineUnavailable:
        if isinstance(error, EngineUnavailable):
            return error
        said = str(error)
        if isinstance(error, Py4JJavaError):  # its own text is a stack trace
            said = str(error).partition("\n: ")[2]
        line = next(iter(said.strip().splitlines()), type(error).__name__)
        return EngineUnavailable(f"Spark did not start: {line}", f"see {self._log_file}")

    def _give_up(self, error: EngineUnavailable) -> None:
        """Tells who waits. Later statements are refused too, until a later try has success."""
        self._pool.refuse(
            PgError(
                SqlState.CANNOT_CONNECT_NOW, "the Spark engine is not available", detail=error.message, hint=error.hint
            )
        )
        if not self._started.done():
            self._started.set_exception(error)

    def _serve_once(self, java: Java) -> None:
        """One JVM's life, from its start to its end. Any error is one of its start."""
        begun = time.monotonic()
        archive = ClassArchive.at(self._archive, java) if self._archive else None
        archive_flags = archive.use() if archive else []
        _log.info("engine starting", java=str(java.executable), version=java.major, archive=bool(archive_flags))
        self._jvm = jvm = self._launch(java, "spark-run", self._memory_mb, archive_flags)
        driver: Driver | None = None
        try:
            driver = Driver(jvm, self._stopping, low_latency=self._low_latency, functions=self._functions)
            paths = {name: driver.path(name) for name in (f"slot-{number}" for number in range(self._sessions))}
            self._pool.open(paths, driver.cancel_jobs, jvm.fell)
            _log.info("engine ready", seconds=round(time.monotonic() - begun, 2), pid=jvm.pid)
            if not self._started.done():
                self._started.set_result(None)
                if archive and not archive_flags:
                    self._spawn(self._make_archive, "archive", java, archive)
            code = jvm.process.wait()
            if not self._stopping.is_set():
                _log.warning("jvm died", pid=jvm.pid, code=code, log=str(jvm.log))
        except Exception as error:
            raise self._unavailable(error) from error  # now: a Java exception can be read while its JVM lives
        finally:
            self._pool.shut()
            jvm.kill()
            jvm.process.wait()
            if driver:
                driver.forget()
            jvm.forget()
            self._jvm = None

    def _launch(self, java: Java, name: str, memory_mb: int, extra_flags: list[str], niceness: int = 0) -> Jvm:
        scratch = self._directory / name
        master = self._master if niceness == 0 else "local[1]"
        return Jvm(
            java,
            memory_mb=memory_mb,
            properties=spark_properties(master, memory_mb, scratch),
            scratch=scratch,
            log=self._log_file,
            local=master.startswith("local"),
            extra_flags=extra_flags,
            niceness=niceness,
        )

    def _make_archive(self, java: Java, archive: ClassArchive) -> None:
        """Runs a second JVM through the ways that matter and lets it write the archive as it leaves."""
        if self._stopping.wait(ARCHIVE_DELAY_S):
            return
        begun = time.monotonic()
        archive.path.parent.mkdir(parents=True, exist_ok=True)
        part = archive.path.with_suffix(f".{os.getpid()}")
        jvm = self._launch(java, "spark-archive", ARCHIVE_MEMORY_MB, archive.make(part), niceness=19)
        try:
            path = Driver(jvm, self._stopping, low_latency=True, functions={}).path("slot-0")
            for sql, views in synthetic_ticks(ARCHIVE_ROUNDS):
                if self._stopping.is_set():
                    return
                path.run("archive", sql, views, [])
            path.close()
            jvm.leave()
            deadline = time.monotonic() + ARCHIVE_TIMEOUT_S
            while jvm.process.poll() is None and time.monotonic() < deadline:
                if self._stopping.wait(0.1):
                    return
            if jvm.process.returncode == 0 and part.exists():
                part.replace(archive.path)
                archive.sweep()
                _log.info("class archive made", path=str(archive.path), seconds=round(time.monotonic() - begun, 1))
            else:
                _log.warning("class archive not made", code=jvm.process.returncode, log=str(jvm.log))
        except Exception as error:  # the engine runs without it
            _log.warning("class archive not made", reason=self._unavailable(error).message)
        finally:
            jvm.kill()
            jvm.process.wait()
            jvm.forget()
            part.unlink(missing_ok=True)


def _closed() -> PgError:
    return PgError(SqlState.ADMIN_SHUTDOWN, "terminating connection due to administrator command")


def synthetic_ticks(rounds: int) -> Iterator[tuple[str, dict[str, pa.Table]]]:
    """Statements like those of small ticks, over new tables each time: they make the JVM compile what ticks use."""
    count = 100
    for number in range(rounds):
        values = np.arange(count, dtype=np.int64) + number
        table = pa.table(
            {
                "c0": values,
                "c1": values.astype(np.int32) % 7,
                "c2": pc.cast(pa.array(values), pa.string()),
                "c3": values / 3,
                "c4": pc.cast(pa.array(values), pa.timestamp("us")),
                "c5": pc.cast(pc.cast(pa.array(values), pa.decimal128(19, 0)), pa.decimal128(38, 18)),
                "diff": np.ones(count, dtype=np.int64),
            }
        )
        yield _TICKS[number % len(_TICKS)], {"warm_l": table, "warm_r": table.slice(0, 50)}


_TICKS = (
    "SELECT c0, upper(c2), c3 * 2, CAST(c0 AS STRING), diff FROM warm_l WHERE c1 <> 3 AND c2 LIKE '%1%'",
    "SELECT /*+ COALESCE(1) */ c1, sum(diff), sum(c3 * diff), min(c2), max(c4), sum(c5) FROM warm_l GROUP BY c1",
    "SELECT c1, count(*) AS n, avg(c3) AS a FROM warm_l GROUP BY c1 ORDER BY c1 LIMIT 5",
    "SELECT l.c0, r.c2, l.diff * r.diff AS diff FROM warm_l l JOIN warm_r r ON l.c0 = r.c0 WHERE l.c1 IN (1, 2, 3)",
    "SELECT l.c0, r.c2 FROM warm_l l LEFT JOIN warm_r r ON l.c1 = r.c1 AND l.c0 < r.c0",
    "SELECT DISTINCT c1, date_trunc('day', c4) AS d FROM warm_l UNION ALL SELECT c1, c4 FROM warm_r",
)
