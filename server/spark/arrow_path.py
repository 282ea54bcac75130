"""Arrow into a Spark session and out of it, with low latency.

Goal: a small statement costs one round trip to the JVM, and no Spark job at all when its plan folds to rows that the
driver already has; bulk data never passes py4j, which moves bytes as base64 text.

How: `DoorPath` talks over a socket to `Door.java`, one thread of the JVM for one of ours. Tables go in as serialized
record batches and become LocalRelations (an RDD when they are large); rows come back from
`executeCollect`, which asks a job only if the plan needs one. A statement that comes again over other small tables is
not planned again, and mostly needs no job: Prepared.java. These are internals of Spark 4.3; stock_path.py does the same
with public ones only, and tests hold the two together.

Warning: Spark lays its own types over the buffers of a record batch without looking, so a table is cast to exactly
Spark's Arrow layout first (time in nanoseconds, timestamps in microseconds, 32-bit offsets). Spark can neither hand
over its own intervals nor compare them: there an interval is a struct {months, days, us}, and no other struct exists.
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

BATCH_ROWS_MAX = 1 << 16  # of an answer; a table that is sent has at most SENT_BATCHES_MAX batches of at least as many
BATCH_BYTES_MAX = 64 << 20
SENT_BATCHES_MAX = 16  # each becomes a partition when the table is too large for a LocalRelation
SENT_BYTES_MAX = 64 << 20  # more batches than that if one would be larger: an executor's task may have 128 MiB
CONNECT_TIMEOUT_S = 30
STRANGERS_MAX = 64  # connections at a time that have not sent the token yet; the oldest is closed for a further one
END, FAILED = -1, -2  # as in Door.java
PARTS = ("tables", "planning", "execution")  # whose times follow END
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
    """The JVM's end hung up in the middle of a statement: this session is of no use any more."""


class SessionPath(Protocol):
    """How one thread exchanges statements and tables with one Spark session. Used by that thread only."""

    @property
    def parts(self) -> Mapping[str, float]:
        """What the last statement's seconds were spent on, as far as this path can tell."""

    def run(self, group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str]) -> pa.Table:
        """Drops the temporary views `drop`, makes `views`, runs `sql`, returns its rows with the house's types.

        All its Spark jobs belong to the job group `group`; when it ends, however it ends, none of them goes on.
        `errors.Failure` when Spark says no; the views may then exist or not. `Disconnected` when the JVM is gone.
        """

    def close(self) -> None:
        """Hangs up; the session is not used again."""


class DoorPath:
    """The low-latency path."""

    def __init__(self, door: JavaObject, session: JavaObject, slot: str, scratch: Path) -> None:
        """`door` comes from `compile_door`. The JVM connects to a port of this process and sends a token first.

        Connections without the token are closed. Disconnected if the JVM does not connect within CONNECT_TIMEOUT_S.
        An answer that is too large for memory is kept in `scratch`, as `catalog.spill` keeps it.
        """
        self._scratch = scratch
        self.parts: Mapping[str, float] = {}
        token = secrets.token_hex(32)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            door.open(session, slot, listener.getsockname()[1], token, BATCH_ROWS_MAX, BATCH_BYTES_MAX)
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
            return kept((to_house(pa.ipc.open_stream(block).read_all()) for block in blocks), self._scratch)
        finally:
            for _ in blocks:  # an answer that could not be kept is read all the same: behind it begins the next
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
    """Returns the connection that sends `token` first. Any local user can connect: others are closed.

    All are read at once, so that one that sends nothing does not delay the JVM's.
    """
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    came: dict[socket.socket, bytes] = {}
    listener.setblocking(False)
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([listener, *came], [], [], left_s)
            for ready in readable:
                if ready is listener:
                    with suppress(OSError):  # it has gone again
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


def compile_door(gateway: ClientServer) -> JavaObject:
    """Compiles Door.java, and what it needs, inside the JVM; the object opens doors and describes exceptions."""
    loader = gateway.jvm.Thread.currentThread().getContextClassLoader()
    for source in ("Prepared.java", "Door.java"):
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(files(__package__).joinpath(source).read_text())
        loader = compiler.getClassLoader()
    return loader.loadClass("tidewire.Door").newInstance()


def _request(group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str]) -> Iterator[bytes | pa.Buffer]:
    """The message that Door.java describes, in parts; a large part is a buffer that is not copied."""
    head = bytearray(_text(group) + struct.pack("!i", len(drop)))
    for name in drop:
        head += _text(name)
    head += struct.pack("!i", len(views))
    for name, table in views.items():
        size = rows_per_batch(table)
        starts = range(0, table.num_rows, size)
        head += _text(name) + _text(spark_schema(table.schema)) + struct.pack("!i", len(starts))
        for start in starts:  # one at a time is in memory: the table itself may be a mapped file
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
    """How many rows of a table are sent as one batch."""
    fair: int = max(BATCH_ROWS_MAX, -(-table.num_rows // SENT_BATCHES_MAX))
    small: int = table.num_rows * SENT_BYTES_MAX // max(1, table.nbytes)
    return max(1, min(fair, small))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("!i", len(encoded)) + encoded


def read_failure(block: bytes) -> Failure:
    """Decodes what `Door.describe` wrote."""
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
    """The table in the Arrow layout that Spark lays its types over. TypeError for a type that Spark has not."""
    return _cast(table, _schema(table.schema, "ns"))


def to_house(table: pa.Table) -> pa.Table:
    """The table with the types of protocol.pgwire.types: time in microseconds, plain offsets, nothing but names.

    22008 for an interval that those do not hold.
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
    """Intervals to their parts, parts to intervals, also inside lists."""
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
    """22008 for microseconds beyond Arrow's nanoseconds."""
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
    """Spark's StructType, as JSON, for a table with that Arrow schema. TypeError for a type that Spark has not."""
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
