"""Exchanges Arrow tables with a Spark session at low latency.

Goals: a small statement takes one round trip to the JVM, and no Spark job if its plan folds to rows that the driver
already has. Bulk data does not pass through py4j, which transfers bytes as base64 text.

`BridgePath` exchanges messages with `SparkBridge.java` over a socket; one Python thread is connected to one thread of
the JVM. Tables are sent as serialized record batches and become LocalRelations (RDDs if they are large). Rows are
returned by `executeCollect`, which runs a job only if the plan needs one. A repeated statement over other small tables
is not planned again and usually needs no job; see PreparedPlan.java. Both use internals of Spark 4.3. stock_path.py
implements the same interface with public APIs only, and tests compare the two.

Warning: Spark reads the buffers of a record batch as its own types without a check. Therefore each table is first cast
to exactly Spark's Arrow layout (time in nanoseconds, timestamps in microseconds, 32-bit offsets). Spark can neither
export its intervals to Arrow nor compare them, so an interval is sent as a struct {months, days, us}. There are no
other structs.
"""

from __future__ import annotations

import hmac
import json
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaObject

from catalog.spill import kept
from protocol.pgwire.errors import PgError, SqlState
from server.spark.errors import Failure, Fault

BATCH_ROWS_MAX = 1 << 16  # maximum rows of a batch in an answer, and minimum rows of a batch that is sent
BATCH_BYTES_MAX = 64 << 20  # maximum size of a batch in an answer
SENT_BATCHES_MAX = 16  # per table; each becomes a partition if the table is too large for a LocalRelation
SENT_BYTES_MAX = 64 << 20  # per batch; takes precedence over SENT_BATCHES_MAX: a task is limited to 128 MiB
CONNECT_TIMEOUT_S = 30
STRANGERS_MAX = 64  # concurrent connections that have not sent the token; a further one closes the oldest
END, FAILED = -1, -2  # as in SparkBridge.java
PARTS = ("tables", "planning", "execution")  # the phases whose durations follow END
UTC = "UTC"

_SPARK_NAMES: dict[pa.DataType, str] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time64("ns"): "time(6)",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", UTC): "timestamp",
}
_INTERVAL = pa.month_day_nano_interval()
_PARTS = pa.struct([("months", pa.int32()), ("days", pa.int32()), ("us", pa.int64())])
_PARTS_TYPES = {"months": "integer", "days": "integer", "us": "long"}
_INTERVAL_LAYOUT = np.dtype([("months", np.int32), ("days", np.int32), ("ns", np.int64)])
_INTERVAL_US_MAX = ((1 << 63) - 1) // 1000


class Disconnected(Exception):
    """The connection to Spark was lost during a statement. The session cannot be used any more."""


class SessionPath(Protocol):
    """Exchanges statements and tables with one Spark session. Used by one thread only."""

    @property
    def parts(self) -> Mapping[str, float]:
        """The durations of the last statement's phases in seconds; empty if this path does not measure them."""

    def run(self, group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str]) -> pa.Table:
        """Drops the temporary views `drop`, creates `views`, runs `sql`, and returns its rows (types as `from_spark`).

        All Spark jobs of the statement belong to the job group `group`. None of them runs after `run` has returned or
        raised. `errors.Failure` for an error of Spark; the views may then exist or not. `Disconnected` if the
        connection to Spark is lost.
        """

    def close(self) -> None:
        """Closes the connection. The session is not used again."""


class BridgePath:
    """The low-latency `SessionPath`, over a socket to `SparkBridge.java`."""

    def __init__(self, bridge: JavaObject, session: JavaObject, slot: str, scratch: Path) -> None:
        """`bridge`: the result of `compile_bridge`. The JVM connects to a port of this process and sends a token first.

        Connections without the token are closed. Disconnected if the JVM does not connect within CONNECT_TIMEOUT_S.
        An answer that is too large for memory is stored in `scratch` by `catalog.spill`.
        """
        self._scratch = scratch
        self.parts: Mapping[str, float] = {}
        token = secrets.token_hex(32)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            bridge.open(session, slot, listener.getsockname()[1], token, BATCH_ROWS_MAX, BATCH_BYTES_MAX)
            self._socket = _accepted(listener, token.encode())
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb", 1 << 16)

    def run(self, group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str]) -> pa.Table:
        try:
            for part in _request(group, sql, views, drop):
                self._socket.sendall(part)
        except OSError as error:
            raise Disconnected(str(error)) from error
        blocks = self._blocks()
        try:
            return kept((from_spark(pa.ipc.open_stream(block).read_all()) for block in blocks), self._scratch)
        finally:
            for _ in blocks:  # reads the rest of an answer that could not be stored: the next answer follows it
                pass

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def _blocks(self) -> Iterator[bytes]:
        while (length := self._int()) >= 0:
            yield self._exactly(length)
        if length == FAILED:
            raise read_failure(self._exactly(self._int()))
        times = struct.unpack(f"!{len(PARTS)}q", self._exactly(8 * len(PARTS)))
        self.parts = {part: nanoseconds / 1e9 for part, nanoseconds in zip(PARTS, times, strict=True)}

    def _int(self) -> int:
        return int(struct.unpack("!i", self._exactly(4))[0])

    def _exactly(self, length: int) -> bytes:
        try:
            read: bytes = self._answers.read(length)
        except OSError as error:
            raise Disconnected(str(error)) from error
        if len(read) < length:
            raise Disconnected("the JVM hung up")
        return read


def _accepted(listener: socket.socket, token: bytes) -> socket.socket:
    """Returns the first connection that sends `token`, and closes the others: any local user can connect.

    Reads all connections concurrently, so that one that sends nothing does not delay the JVM's.
    """
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    came: dict[socket.socket, bytes] = {}
    listener.setblocking(False)
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([listener, *came], [], [], left_s)
            for ready in readable:
                if ready is listener:
                    with suppress(OSError):  # the peer has disconnected already
                        connection, _ = listener.accept()
                        connection.setblocking(False)
                        if len(came) == STRANGERS_MAX:
                            oldest = next(iter(came))
                            del came[oldest]
                            oldest.close()
                        came[connection] = b""
                elif ready in came:
                    try:
                        data = ready.recv(len(token) - len(came[ready]))
                    except OSError:
                        data = b""
                    came[ready] += data
                    if hmac.compare_digest(came[ready], token):
                        del came[ready]
                        return ready
                    if not data or len(came[ready]) == len(token):
                        del came[ready]
                        ready.close()
    finally:
        for stranger in came:
            stranger.close()
    raise Disconnected(f"the JVM did not connect within {CONNECT_TIMEOUT_S} s")


def compile_bridge(gateway: ClientServer) -> JavaObject:
    """Compiles the Java sources inside the JVM. Returns a `SparkBridge`, which opens paths and describes errors."""
    loader = gateway.jvm.Thread.currentThread().getContextClassLoader()
    for source in ("PreparedPlan.java", "SparkBridge.java"):
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(files(__package__).joinpath("java", source).read_text())
        loader = compiler.getClassLoader()
    return loader.loadClass("tidewire.SparkBridge").newInstance()


def _request(group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str]) -> Iterator[bytes | pa.Buffer]:
    """Yields the request that SparkBridge.java describes, in parts. Large record batches are yielded without a copy."""
    head = bytearray(_text(group) + struct.pack("!i", len(drop)))
    for name in drop:
        head += _text(name)
    head += struct.pack("!i", len(views))
    for name, table in views.items():
        size = rows_per_batch(table)
        starts = range(0, table.num_rows, size)
        head += _text(name) + _text(spark_schema(table.schema)) + struct.pack("!i", len(starts))
        for start in starts:  # one batch at a time is in memory: the table itself may be a mapped file
            (batch,) = to_spark(table.slice(start, size)).combine_chunks().to_batches()
            block = batch.serialize()
            head += struct.pack("!i", block.size)
            if block.size > len(head):
                yield bytes(head)
                yield block
                head = bytearray()
            else:
                head += memoryview(block)
    yield bytes(head + _text(sql))


def rows_per_batch(table: pa.Table) -> int:
    """Returns the number of rows per batch when the table is sent."""
    fair: int = max(BATCH_ROWS_MAX, -(-table.num_rows // SENT_BATCHES_MAX))
    small: int = table.num_rows * SENT_BYTES_MAX // max(1, table.nbytes)
    return max(1, min(fair, small))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("!i", len(encoded)) + encoded


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

    engine_gone = bool(number())
    chain = tuple(
        Fault(text(), text(), text(), text(), {text(): text() for _ in range(number())}) for _ in range(number())
    )
    return Failure(chain, text(), engine_gone=engine_gone)


def to_spark(table: pa.Table) -> pa.Table:
    """Returns the table in Spark's Arrow layout, with intervals as structs."""
    return _cast(table, _schema(table.schema, "ns"))


def from_spark(table: pa.Table) -> pa.Table:
    """Returns the table with the Arrow types of protocol.pgwire.types: time in us, 32-bit offsets, no metadata.

    PgError 22008 for an interval whose microseconds do not fit into 64-bit nanoseconds.
    """
    return _cast(table, _schema(table.schema, "us"))


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema, check_metadata=True):
        return table
    columns = [_cast_column(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def _cast_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if _innermost(kind) in (_INTERVAL, _PARTS) and column.type != kind:
        return pa.chunked_array([_cast_intervals(chunk) for chunk in column.chunks], kind)
    return column.cast(kind)


def _innermost(kind: pa.DataType) -> pa.DataType:
    return _innermost(kind.value_type) if pa.types.is_list(kind) else kind


def _cast_intervals(array: pa.Array) -> pa.Array:
    """Converts intervals to structs and structs to intervals, also inside lists."""
    if pa.types.is_list(array.type):
        values = _cast_intervals(array.values)
        kind = pa.list_(values.type)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[values])
    return _parts_to_intervals(array) if pa.types.is_struct(array.type) else _intervals_to_parts(array)


def _intervals_to_parts(array: pa.Array) -> pa.Array:
    data = array.buffers()[1]
    values = np.frombuffer(data or b"", _INTERVAL_LAYOUT)[array.offset :][: len(array)]
    columns = [pa.array(values["months"]), pa.array(values["days"]), pa.array(values["ns"] // 1000)]
    return pa.StructArray.from_arrays(columns, fields=list(_PARTS), mask=array.is_null())


def _parts_to_intervals(array: pa.Array) -> pa.Array:
    """PgError 22008 if the microseconds overflow Arrow's 64-bit nanoseconds."""
    months, days, us = (pc.fill_null(array.field(i), 0).to_numpy() for i in range(3))
    if len(us) and (us.max() > _INTERVAL_US_MAX or us.min() < -_INTERVAL_US_MAX):
        raise PgError(SqlState.DATETIME_FIELD_OVERFLOW, "interval out of range")
    values = np.empty(len(array), _INTERVAL_LAYOUT)
    values["months"], values["days"], values["ns"] = months, days, us * 1000
    valid = array.is_valid().buffers()[1]
    return pa.Array.from_buffers(_INTERVAL, len(array), [valid, pa.py_buffer(values)])


@lru_cache(1024)
def _schema(schema: pa.Schema, time_unit: str) -> pa.Schema:
    return pa.schema([pa.field(column.name, _plain(column.type, time_unit)) for column in schema])


def _plain(kind: pa.DataType, time_unit: str) -> pa.DataType:
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_plain(kind.value_type, time_unit))
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_time(kind):
        return pa.time64(time_unit)
    if types.is_timestamp(kind):
        return pa.timestamp("us", UTC if kind.tz else None)
    if kind == _INTERVAL or types.is_struct(kind):
        return _INTERVAL if time_unit == "us" else _PARTS
    return kind


@lru_cache(1024)
def spark_schema(schema: pa.Schema) -> str:
    """Returns Spark's StructType for an Arrow schema, as JSON. TypeError for a type that Spark does not have."""
    columns = [
        {"name": column.name, "type": _spark_type(column.type), "nullable": True, "metadata": {}}
        for column in _schema(schema, "ns")
    ]
    return json.dumps({"type": "struct", "fields": columns})


def _spark_type(kind: pa.DataType) -> str | dict[str, Any]:
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _spark_type(kind.value_type), "containsNull": True}
    if kind == _PARTS:
        fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _PARTS_TYPES.items()]
        return {"type": "struct", "fields": fields}
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if kind not in _SPARK_NAMES:
        raise TypeError(f"Spark has no type for Arrow's {kind}")
    return _SPARK_NAMES[kind]
