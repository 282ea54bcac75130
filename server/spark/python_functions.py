"""Python functions that Spark SQL can call by name, registered in a session without PySpark's own objects.

They are scalar Arrow UDFs: Spark sends columns to a Python worker and takes a column back. The function goes there
pickled; the worker is the Python that runs this process, with the same packages.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

from py4j.java_gateway import JavaObject

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
    from pyspark.sql.types import _parse_datatype_json_string

    return function, _parse_datatype_json_string(result)


def register(jvm: Any, session: JavaObject, functions: PythonFunctions) -> None:
    """Makes them callable in a session's SQL."""
    made = getattr(jvm, "org.apache.spark.sql.execution.python.UserDefinedPythonFunction")
    nothing = jvm.java.util.ArrayList()
    for name, (function, result) in functions.items():
        python = jvm.org.apache.spark.api.python.SimplePythonFunction(
            bytearray(pickle.dumps(_Command(function, result))),
            jvm.java.util.HashMap(),
            nothing,
            sys.executable,
            f"{sys.version_info.major}.{sys.version_info.minor}",
            nothing,
            None,
        )
        udf = made(name, python, session.parseDataType(result), SQL_SCALAR_ARROW_UDF, True, nothing, nothing)
        session.udf().registerPython(name, udf)
