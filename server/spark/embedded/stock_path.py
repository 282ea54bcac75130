"""Exchanges Arrow tables with a Spark session through PySpark's public interface: `createDataFrame` and `toArrow`.

The reference implementation for bridge_path.py. It is slower and always runs a job, but does not use Spark's internals.

PySpark stores its context and gateway in class variables and replaces py4j's error handling for the whole process.
`StockPaths` attaches PySpark to the JVM that the engine started and detaches it, so that the next JVM can be attached.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import py4j.java_gateway
import py4j.protocol
import pyarrow as pa
from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaObject

from server.spark.arrow_types import from_spark, spark_schema, to_spark
from server.spark.embedded.bridge import read_failure
from server.spark.embedded.python_udfs import register
from server.spark.python_functions import PythonFunctions
from server.spark.session_path import Disconnected


class StockPaths:
    """PySpark attached to one JVM. At most one instance may be attached in a process."""

    def __init__(self, gateway: ClientServer, bridge: JavaObject) -> None:
        from pyspark import SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        # Otherwise each failed query writes 20 KB of JSON to stderr.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        logging.getLogger("DataFrameQueryContextLogger").disabled = True
        parameters = gateway.java_parameters
        ours = {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
        os.environ.update(ours)
        try:
            own = launch_gateway()  # type: ignore[no-untyped-call]
        finally:
            for name in ours:
                del os.environ[name]
        # All later calls use this gateway, because job groups belong to its threads.
        context = own.jvm.org.apache.spark.SparkContext.getOrCreate()
        self._gateway = own
        self._bridge = bridge
        self._context = SparkContext(gateway=own, jsc=own.jvm.JavaSparkContext(context))
        self._session = SparkSession(self._context)

    def path(self, slot: str, functions: PythonFunctions) -> StockPath:
        session = self._session.newSession()
        register(self._gateway.jvm, session._jsparkSession, functions)
        stock = StockPath(session, self._bridge, slot)
        # SparkSession has replaced this function by one that converts exceptions through the process-wide context.
        py4j.java_gateway.get_return_value = py4j.protocol.get_return_value
        return stock

    def detach(self) -> None:
        """Detaches PySpark from a JVM that has ended."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        self._context._accumulatorServer.shutdown()
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        SparkSession._activeSession = None
        self._gateway.shutdown()


class StockPath:
    """One session; see `session_path.SessionPath`."""

    def __init__(self, session: Any, bridge: JavaObject, slot: str) -> None:
        self._session = session
        self._bridge = bridge
        self._slot = slot

    parts: Mapping[str, float] = {}

    def run(
        self, group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str], repeats: bool = False
    ) -> pa.Table:
        from pyspark.errors.exceptions.captured import CapturedException
        from pyspark.sql.types import StructType

        context = self._session.sparkContext
        try:
            context.setLocalProperty("spark.scheduler.pool", self._slot)
            context.setJobGroup(group, sql)
            for name in drop:
                self._session.catalog.dropTempView(name)
            for name, table in views.items():
                schema = StructType.fromJson(json.loads(spark_schema(table.schema)))
                self._session.createDataFrame(to_spark(table), schema).createOrReplaceTempView(name)
            return from_spark(self._session.sql(sql).toArrow())
        except py4j.protocol.Py4JJavaError as error:
            raise self._failure(group, error.java_exception) from None
        except CapturedException as error:
            raise self._failure(group, error._origin) from None
        except (py4j.protocol.Py4JError, OSError, EOFError) as error:
            raise Disconnected(str(error)) from error

    def close(self) -> None:
        """Nothing is held open."""

    def _failure(self, group: str, thrown: JavaObject) -> Exception:
        try:
            self._session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)
            return read_failure(bytes(self._bridge.describe(thrown)))
        except (py4j.protocol.Py4JError, OSError) as error:
            return Disconnected(str(error))
