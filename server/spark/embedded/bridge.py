"""The Java object in Spark's JVM that opens paths to sessions and describes errors: `java/SparkBridge.java`."""

from __future__ import annotations

import struct
from importlib.resources import files

from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaObject

from server.spark.errors import Failure, Fault

_SOURCES = (
    "PreparedArrow",
    "PreparedPlan",
    "StatementCache",
    "CodeCache",
    "RunningStatements",
    "MemoryGuard",
    "DiskGuard",
    "SparkBridge",
)
"""The classes, each after those that it uses."""


def compile_bridge(gateway: ClientServer) -> JavaObject:
    """Compiles the Java sources inside the JVM. Returns a `SparkBridge`, which opens paths and describes errors."""
    loader = gateway.jvm.Thread.currentThread().getContextClassLoader()
    for source in _SOURCES:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(files("server.spark").joinpath("java", f"{source}.java").read_text())
        loader = compiler.getClassLoader()
    return loader.loadClass("tidewire.SparkBridge").newInstance()


def read_failure(block: bytes) -> Failure:
    """Decodes the output of `SparkBridge.describe`."""
    at = 0

    def number() -> int:
        nonlocal at
        at += 4
        return int(struct.unpack_from("!i", block, at - 4)[0])

    def text() -> str:
        nonlocal at
        length = number()
        at += length
        return block[at - length : at].decode(errors="replace")

    spark_stopped = bool(number())
    chain = tuple(
        Fault(text(), text(), text(), text(), {text(): text() for _ in range(number())}) for _ in range(number())
    )
    return Failure(chain, text(), spark_stopped=spark_stopped)
