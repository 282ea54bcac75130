"""A Spark driver in a JVM that this process starts. The executors run in it or where the master places them.

If there is no class archive yet, a second JVM with the lowest priority writes it (`_make_archive`).
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import structlog
from py4j.protocol import Py4JError, Py4JJavaError

from catalog.free_space import RESERVED_BYTES_MAX, RESERVED_SHARE
from server.spark import EngineUnavailable
from server.spark.driver import SESSION_PROPERTIES
from server.spark.embedded.bridge import compile_bridge
from server.spark.embedded.bridge_path import BridgePath
from server.spark.embedded.java_runtime import Java, find_java
from server.spark.embedded.jvm import NULL_CHECK_OFF, ClassArchive, Jvm
from server.spark.embedded.local_cluster import executor_flags, is_local_cluster
from server.spark.embedded.python_udfs import register
from server.spark.embedded.stock_path import StockPaths
from server.spark.python_functions import DAEMON, PythonFunctions, worker_python
from server.spark.session_path import SessionPath
from server.spark.warm_up import synthetic_statements

ARCHIVE_DELAY_S = 10.0  # does not compete with the first statements for the processor
ARCHIVE_TIMEOUT_S = 300.0
ARCHIVE_ROUNDS = 24
ARCHIVE_MEMORY_MB = 1024
CLEANING_THREADS = 4  # in each of the two pools with which Spark removes broadcasts and shuffles
EXECUTOR_FLAGS = ("-Xss4m", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8", NULL_CHECK_OFF)  # as the driver's

_log = structlog.get_logger()


# Unix sockets between a JVM and its Python workers. Over TCP every task would take 40 ms longer: the kernel holds back
# the JVM's second message until the first is acknowledged, and delays the acknowledgement at the worker's end. The
# directory is relative because a socket's path is limited to 107 bytes. A worker starts in the working directory of its
# JVM: its own directory, or the directory of the executor.
WORKER_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": "."}


# Spark's ports deserialize the Java objects that they receive, and every local user can connect to them. Therefore
# clients must authenticate with a secret. Of Spark's two authentication protocols, the one with encryption is enabled
# and the other (SASL) is disabled.
AUTHENTICATION = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
}

# Tasks in the driver's own JVM return their results as objects. Spark's default is to send those of more than 1 MiB
# through a socket of its own, encrypted, which takes more processor time than a join.
DIRECT_RESULTS = {"spark.task.maxDirectResultSize": "1g", "spark.rpc.message.maxSize": "1024"}

# Spark compiles the classes of a statement again if it has generated so many others meanwhile. Its default of 100 is
# less than an application's statements need. `java/CodeCache.java` limits their memory in the driver's JVM.
GENERATED_CLASSES = {"spark.sql.codegen.cache.maxEntries": "2000"}


def spark_properties(master: str, memory_mb: int, directory: Path) -> dict[str, str]:
    """Returns Spark's settings for a JVM that this server starts. Spark writes temporary files to `directory`.

    With `local-cluster` the settings contain a new random secret.
    """
    properties = {
        "spark.master": master,
        "spark.app.name": "tidewire",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.executor.heartbeatInterval": "1s",  # the age of the numbers with which DiskGuard.java finds the cause
        "spark.scheduler.mode": "FAIR",  # a long query does not starve short ones
        "spark.driver.maxResultSize": f"{memory_mb // 2}m",
        "spark.pyspark.python": worker_python(),
        **DAEMON,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.artifact.isolation.enabled": "false",
        **SESSION_PROPERTIES,
    }
    if master.startswith("local"):
        properties |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **AUTHENTICATION}
    if is_local_cluster(master):  # with `local[N]` Spark generates the secret itself
        properties["spark.authenticate.secret"] = secrets.token_hex(32)
    elif master.startswith("local"):
        properties |= DIRECT_RESULTS | GENERATED_CLASSES
    executors = [*EXECUTOR_FLAGS, *(executor_flags(directory) if is_local_cluster(master) else [])]
    properties["spark.executor.extraJavaOptions"] = " ".join(map(shlex.quote, executors))
    return properties


def _unavailable(error: BaseException, log: Path) -> EngineUnavailable:
    """Returns the error of a start in one line. A Java exception can be read only while its JVM runs."""
    if isinstance(error, EngineUnavailable):
        return error
    text = str(error)
    if isinstance(error, Py4JJavaError):  # its own text is a stack trace
        text = text.partition("\n: ")[2]
    line = next(iter(text.strip().splitlines()), type(error).__name__)
    return EngineUnavailable(f"Spark did not start: {line}", f"see {log}")


class EmbeddedDriver:
    """One JVM with Spark started in it; see `spark.Driver`."""

    def __init__(
        self,
        jvm: Jvm,
        stopping: threading.Event,
        *,
        low_latency: bool,
        functions: PythonFunctions,
        spill_directory: Path,
    ) -> None:
        """Returns when Spark is ready. Raises EngineUnavailable, or an error of py4j if Spark or its JVM fails."""
        gateway = jvm.connect(stopping)
        with ThreadPoolExecutor(
            1, "tidewire-compile-bridge"
        ) as compiler:  # compiling takes a second; Spark starts meanwhile
            bridge = compiler.submit(compile_bridge, gateway)
            self._context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
            self._session = gateway.jvm.org.apache.spark.sql.classic.SparkSession(self._context, {})
            self._bridge = bridge.result()
        self._bridge.boundThreads(self._context, CLEANING_THREADS)
        self._bridge.guardMemory(self._context)
        self._bridge.guardDisk(self._context, RESERVED_SHARE, RESERVED_BYTES_MAX)
        self._stock = None if low_latency else StockPaths(gateway, self._bridge)
        self._process = jvm
        self._jvm = gateway.jvm
        self._functions = functions
        self._spill_directory = spill_directory

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def path(self, slot: str) -> SessionPath:
        try:
            if self._stock:
                return self._stock.path(slot, self._functions)
            session = self._session.newSession()
            register(self._jvm, session, self._functions)
            return BridgePath(self._bridge, session, slot, self._spill_directory)
        except Exception as error:
            raise _unavailable(error, self._process.log) from error

    def cancel_jobs(self, group: str) -> None:
        try:
            self._bridge.cancel(self._context, group)
        except (Py4JError, OSError) as error:  # the JVM has ended, and its jobs with it
            _log.debug("jobs not cancelled", group=group, error=str(error))

    def terminate(self) -> bool:
        return self._process.terminate()

    def wait(self) -> str:
        code = self._process.process.wait()
        return f"Java ended with code {code}; see {self._process.log}"

    def close(self) -> None:
        self._process.kill()
        self._process.process.wait()
        if self._stock:
            self._stock.detach()
        self._process.clean_up()


class EmbeddedSpark:
    """See `spark.Spark`."""

    pause_max_s = 30.0

    def __init__(
        self,
        *,
        directory: Path,
        master: str,
        memory_mb: int,
        archive: Path | None,
        low_latency: bool,
        functions: PythonFunctions,
        conf: Mapping[str, str],
    ) -> None:
        """See `SparkEngine` for the parameters."""
        self._directory = directory
        self._log_file = directory / "spark.log"
        self._master = master
        self._memory_mb = memory_mb
        self._archive = archive
        self._low_latency = low_latency
        self._functions = functions
        self._conf = conf
        self._java: Java | None = None
        self._jvm: Jvm | None = None
        self._archive_thread: threading.Thread | None = None
        self._archive_jvm: Jvm | None = None
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs a stack trace for each lost connection

    @property
    def pid(self) -> int | None:
        jvm = self._jvm
        return jvm.pid if jvm else None

    def prepare(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._java = find_java()

    def start(self, stopping: threading.Event) -> EmbeddedDriver:
        java = self._java
        assert java is not None
        archive = ClassArchive.at(self._archive, java) if self._archive else None
        archive_flags = archive.use() if archive else []
        if archive:
            archive.sweep()
        _log.info("Spark starting", java=str(java.executable), version=java.major, archive=bool(archive_flags))
        self._jvm = jvm = self._launch(java, "spark-run", self._memory_mb, archive_flags)
        try:
            driver = EmbeddedDriver(
                jvm, stopping, low_latency=self._low_latency, functions=self._functions, spill_directory=self._directory
            )
        except BaseException as error:
            unavailable = _unavailable(error, self._log_file)  # reads the exception, which needs the JVM
            jvm.kill()
            jvm.process.wait()
            jvm.clean_up()
            raise unavailable from error
        if archive and not archive_flags and self._archive_thread is None:
            self._archive_thread = threading.Thread(
                target=self._make_archive, name="tidewire-spark-archive", args=(java, archive, stopping), daemon=True
            )
            self._archive_thread.start()
        return driver

    def stop(self, grace_s: float) -> None:
        if (jvm := self._jvm) is not None:
            jvm.stop(grace_s)
        if self._archive_thread is not None:
            if (jvm := self._archive_jvm) is not None:
                jvm.kill()  # it has the lowest priority: on a busy machine a statement can take long
            self._archive_thread.join()

    def _launch(self, java: Java, name: str, memory_mb: int, extra_flags: list[str], niceness: int = 0) -> Jvm:
        directory = self._directory / name
        master = self._master if niceness == 0 else "local[1]"
        # Without low latency, PySpark runs in this process and would look for the sockets in its working directory.
        sockets = WORKER_SOCKETS if self._low_latency else {}
        return Jvm(
            java,
            memory_mb=memory_mb,
            properties={**spark_properties(master, memory_mb, directory), **sockets, **self._conf},
            directory=directory,
            log=self._log_file,
            master=master,
            extra_flags=extra_flags,
            niceness=niceness,
        )

    def _make_archive(self, java: Java, archive: ClassArchive, stopping: threading.Event) -> None:
        """Runs synthetic statements in a second JVM, which writes the archive when it exits."""
        if stopping.wait(ARCHIVE_DELAY_S):
            return
        begun = time.monotonic()
        archive.path.parent.mkdir(parents=True, exist_ok=True)
        part = archive.part(os.getpid())
        jvm = self._launch(java, "spark-archive", ARCHIVE_MEMORY_MB, archive.make(part), niceness=19)
        self._archive_jvm = jvm
        try:
            driver = EmbeddedDriver(jvm, stopping, low_latency=True, functions={}, spill_directory=self._directory)
            with closing(driver.path("slot-0")) as path:
                for sql, views in synthetic_statements(ARCHIVE_ROUNDS):
                    if stopping.is_set():
                        return
                    path.run("archive", sql, views, [])
            jvm.request_exit()
            deadline = time.monotonic() + ARCHIVE_TIMEOUT_S
            while jvm.process.poll() is None and time.monotonic() < deadline:
                if stopping.wait(0.1):
                    return
            if jvm.process.returncode == 0 and part.exists():
                part.replace(archive.path)
                _log.info(
                    "class-data archive written", path=str(archive.path), seconds=round(time.monotonic() - begun, 1)
                )
            else:
                _log.warning("class-data archive not written", code=jvm.process.returncode, log=str(jvm.log))
        except Exception as error:  # the engine runs without it
            if not stopping.is_set():
                _log.warning("class-data archive not written", reason=_unavailable(error, self._log_file).message)
        finally:
            self._archive_jvm = None
            jvm.kill()
            jvm.process.wait()
            jvm.clean_up()
            part.unlink(missing_ok=True)
