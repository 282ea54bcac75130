"""Spark Connect's messages and gRPC, without PySpark's client around them.

Goal: speak the protocol with what is needed for it, grpcio and protobuf. `pyspark.sql.connect` holds the generated
messages, but its `__init__` asks for pandas and for every library of the client; a bare package of that name stands in
for it, so that only the modules of `proto` are imported.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any

from server.spark import EngineUnavailable
from server.spark.jvm import spark_home

_PACKAGE = "pyspark.sql.connect"


class Messages:
    """The modules that a connection needs."""

    def __init__(self) -> None:
        import grpc
        from google.rpc import error_details_pb2, status_pb2
        from pyspark.sql.connect.proto import (
            base_pb2,
            base_pb2_grpc,
            catalog_pb2,
            commands_pb2,
            expressions_pb2,
            relations_pb2,
            types_pb2,
        )

        self.grpc: Any = grpc
        self.base: Any = base_pb2
        self.service: Any = base_pb2_grpc
        self.catalog: Any = catalog_pb2
        self.commands: Any = commands_pb2
        self.expressions: Any = expressions_pb2
        self.relations: Any = relations_pb2
        self.types: Any = types_pb2
        self.status: Any = status_pb2
        self.error_details: Any = error_details_pb2


@cache
def messages() -> Messages:
    """EngineUnavailable when a library is not installed."""
    ours = _PACKAGE not in sys.modules
    if ours:
        bare = ModuleType(_PACKAGE)
        bare.__path__ = [str(spark_home() / "sql" / "connect")]
        sys.modules[_PACKAGE] = bare
    try:
        return Messages()
    except ImportError as error:
        raise EngineUnavailable(
            f"Spark Connect needs a package that is not installed: {error}", "run: pip install 'tidewire[connect]'"
        ) from error
    finally:
        if ours:
            del sys.modules[_PACKAGE]
