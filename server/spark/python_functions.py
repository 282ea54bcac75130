"""Python functions that Spark SQL can call by name, pickled without PySpark's own objects.

They are scalar Arrow UDFs: Spark sends columns to a Python worker, which returns a column. Functions are pickled by
reference, so the worker must be able to import them. The worker runs the same Python as this process, or, on a cluster,
one with the same Tidewire installed.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from server.runtime.memory import limit_memory
from server.runtime.recursion import allow_nesting

MEMORY_MAX = 1024 * 1024 * 1024  # memory limit of a worker in bytes; see also `functions.worker.Kernel`
SQL_SCALAR_ARROW_UDF = 250  # pyspark.util.PythonEvalType
DAEMON = {"spark.python.daemon.module": "server.spark.worker_daemon"}
MODULES = "TIDEWIRE_WORKER_MODULES"
"""The environment variable with the names of the modules that workers need; see `worker_daemon`."""

PythonFunctions = Mapping[str, tuple[Callable[..., Any], str]]
"""Function name -> (picklable function over Arrow columns, Spark's result type as JSON)."""


class _Command:
    """The pickled command of a UDF. The worker unpickles it to (function, result type) by calling `command`.

    Therefore PySpark is imported only in the worker.
    """

    def __init__(self, function: Callable[..., Any], result: str) -> None:
        self._parts = function, result

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Callable[..., Any], str]]:
        return command, self._parts


def command(function: Callable[..., Any], result: str) -> tuple[Callable[..., Any], Any]:
    """Returns (function, result type). Called in a worker at the start of each task."""
    from pyspark.sql.types import _parse_datatype_json_string

    found = function, _parse_datatype_json_string(result)
    _prepare_worker()
    return found


@cache
def _prepare_worker() -> None:
    """Limits the worker's memory and recursion, and excludes imported modules from garbage collection.

    The worker collects garbage after every task. With the imported modules that would delay the next task by tens of
    milliseconds.
    """
    limit_memory(MEMORY_MAX)
    allow_nesting()  # for jsonb values that the server has accepted
    gc.freeze()


def pickled(function: Callable[..., Any], result: str) -> bytes:
    """Returns the pickled command of a UDF. `result` is Spark's type as JSON."""
    return pickle.dumps(_Command(function, result))


def modules_of(functions: PythonFunctions) -> str:
    """Returns the value of MODULES for these functions."""
    return " ".join(sorted({function.__module__ for function, _ in functions.values()}))


def python_version() -> str:
    """Returns the Python version that workers must have, such as "3.11"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def worker_python() -> str:
    """Returns the workers' Python executable: PYSPARK_PYTHON (for a cluster with other paths), or this process's."""
    return os.environ.get("PYSPARK_PYTHON") or sys.executable
