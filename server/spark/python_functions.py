"""Python functions that Spark SQL can call by name, registered in a session without PySpark's own objects.

They are scalar Arrow UDFs: Spark sends columns to a Python worker and takes a column back. The function goes there
pickled by reference, so the worker must be able to import it: it is the Python that runs this process, or on a cluster
one that has the same Tidewire installed.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from py4j.java_gateway import JavaObject

from server.memory import limit_memory

MEMORY_MAX = 1024 * 1024 * 1024  # bytes that a worker may allocate; see also `functions.worker.Kernel`
SQL_SCALAR_ARROW_UDF = 250  # pyspark.util.PythonEvalType

PythonFunctions = Mapping[str, tuple[Callable[..., Any], str]]
"""By name: a function of Arrow columns, picklable, and its result type as Spark's JSON."""


class _Command:
    """What a worker is sent. It becomes the pair of function and type there, so that only there PySpark is imported."""

    def __init__(self, function: Callable[..., Any], result: str) -> None:
        self._parts = function, result

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Callable[..., Any], str]]:
        return command, self._parts


def command(function: Callable[..., Any], result: str) -> tuple[Callable[..., Any], Any]:
    """In a worker, at each task."""
    from pyspark.sql.types import _parse_datatype_json_string

    found = function, _parse_datatype_json_string(result)
    _prepare_worker()
    return found


@cache
def _prepare_worker() -> None:
    """Limits the worker's memory, and excludes what it has imported from garbage collection.

    The worker collects garbage behind every task. Over its imports that takes tens of milliseconds, for which the next
    task waits.
    """
    limit_memory(MEMORY_MAX)
    gc.freeze()


def pickled(function: Callable[..., Any], result: str) -> bytes:
    """What a worker unpickles; `result` is the type as Spark's JSON."""
    return pickle.dumps(_Command(function, result))


def python_version() -> str:
    """What the worker's Python must be: 3.11, for instance."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def worker_python(environ: Mapping[str, str] = os.environ) -> str:
    """The Python that runs workers: PYSPARK_PYTHON, for a cluster whose nodes have it elsewhere, or our own."""
    return environ.get("PYSPARK_PYTHON") or sys.executable


def register(jvm: Any, session: JavaObject, functions: PythonFunctions) -> None:
    """Makes them callable in a session's SQL."""
    made = getattr(jvm, "org.apache.spark.sql.execution.python.UserDefinedPythonFunction")
    nothing = jvm.java.util.ArrayList()
    for name, (function, result) in functions.items():
        python = jvm.org.apache.spark.api.python.SimplePythonFunction(
            bytearray(pickled(function, result)),
            jvm.java.util.HashMap(),
            nothing,
            worker_python(),
            python_version(),
            nothing,
            None,
        )
        udf = made(name, python, session.parseDataType(result), SQL_SCALAR_ARROW_UDF, True, nothing, nothing)
        session.udf().registerPython(name, udf)
