"""Registers Python functions in a session of an embedded driver."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaObject

from server.spark.python_functions import (
    MODULES,
    SQL_SCALAR_ARROW_UDF,
    PythonFunctions,
    modules_of,
    pickled,
    python_version,
    worker_python,
)


def register(jvm: Any, session: JavaObject, functions: PythonFunctions) -> None:
    """Makes `functions` callable in the session's SQL."""
    made = getattr(jvm, "org.apache.spark.sql.execution.python.UserDefinedPythonFunction")
    nothing = jvm.java.util.ArrayList()
    environ = jvm.java.util.HashMap()
    environ.put(MODULES, modules_of(functions))
    for name, (function, result) in functions.items():
        python = jvm.org.apache.spark.api.python.SimplePythonFunction(
            bytearray(pickled(function, result)),
            environ,
            nothing,
            worker_python(),
            python_version(),
            nothing,
            None,
        )
        udf = made(name, python, session.parseDataType(result), SQL_SCALAR_ARROW_UDF, True, nothing, nothing)
        session.udf().registerPython(name, udf)
