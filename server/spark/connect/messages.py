"""Spark Connect's generated messages and gRPC stubs, imported without PySpark's client.

The protocol needs only grpcio and protobuf. The generated messages are in `pyspark.sql.connect.proto`, but the
`__init__` of `pyspark.sql.connect` requires pandas and all libraries of the client. During the import an empty package
replaces `pyspark.sql.connect`, so that only the modules of `proto` are loaded.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any

from server.spark import EngineUnavailable
from server.spark.installation import spark_home

_PACKAGE = "pyspark.sql.connect"


class Messages:
    """The imported modules. ImportError if a library is not installed."""

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
    """Returns the imported modules. EngineUnavailable if a library is not installed."""
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
