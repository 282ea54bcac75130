"""Spark Connect's generated messages and gRPC stubs, imported without PySpark's client.

The protocol needs only grpcio and protobuf. The generated messages are in `pyspark.sql.connect.proto`, but the
`__init__` of `pyspark.sql.connect` requires pandas and all libraries of the client. During the import an empty package
replaces `pyspark.sql.connect`, so that only the modules of `proto` are loaded.

The import raises ImportError if a library is not installed: they are the extra `connect`.
"""

from __future__ import annotations

import sys
from types import ModuleType

from server.spark.installation import spark_home

_PACKAGE = "pyspark.sql.connect"
_is_replaced = _PACKAGE not in sys.modules
if _is_replaced:
    _empty = ModuleType(_PACKAGE)
    _empty.__path__ = [str(spark_home() / "sql" / "connect")]
    sys.modules[_PACKAGE] = _empty
try:
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
finally:
    if _is_replaced:
        del sys.modules[_PACKAGE]

__all__ = [
    "base_pb2",
    "base_pb2_grpc",
    "catalog_pb2",
    "commands_pb2",
    "error_details_pb2",
    "expressions_pb2",
    "grpc",
    "relations_pb2",
    "status_pb2",
    "types_pb2",
]
