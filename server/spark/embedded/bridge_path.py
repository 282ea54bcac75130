"""Exchanges Arrow tables with a Spark session at low latency.

Goals: a small statement takes one round trip to the JVM, and no Spark job if its plan folds to rows that the driver
already has. Bulk data does not pass through py4j, which transfers bytes as base64 text.

`BridgePath` exchanges messages with `SparkBridge.java` over a socket; one Python thread is connected to one thread of
the JVM. Tables are sent as serialized record batches and become LocalRelations (RDDs if they are large). Rows are
returned by `executeCollect`, which runs a job only if the plan needs one. A repeated statement over other small tables
is not planned again and usually needs no job; see PreparedPlan.java. Both use internals of Spark 4.3. stock_path.py
implements the same interface with public APIs only, and tests compare the two.
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from py4j.java_gateway import JavaObject

from catalog.spill import collected
from catalog.updates import size_of
from server.spark.arrow_types import from_spark, spark_schema, to_spark
from server.spark.embedded.bridge import read_failure
from server.spark.embedded.token_listener import accept
from server.spark.session_path import Disconnected

BATCH_ROWS_MAX = 1 << 16  # maximum rows of a batch in an answer, and minimum rows of a batch that is sent
BATCH_BYTES_MAX = 64 << 20  # maximum size of a batch in an answer
SENT_BATCHES_MAX = 16  # per table; each becomes a partition if the table is too large for a LocalRelation
SENT_BYTES_MAX = 64 << 20  # per batch; takes precedence over SENT_BATCHES_MAX: a task is limited to 128 MiB
END, FAILED = -1, -2  # as in SparkBridge.java
_READ_OPTIONS = pa.ipc.IpcReadOptions()  # Arrow's default is read from the environment each time
PHASES = ("tables", "planning", "execution")  # their durations follow END


class BridgePath:
    """The low-latency `SessionPath`, over a socket to `SparkBridge.java`."""

    def __init__(self, bridge: JavaObject, session: JavaObject, slot: str, spill_directory: Path) -> None:
        """`bridge`: the result of `compile_bridge`. The JVM connects to a port of this process and sends a token first.

        Connections without the token are closed. Disconnected if the JVM does not connect within CONNECT_TIMEOUT_S.
        An answer that is too large for memory is stored in `spill_directory` by `catalog.spill`.
        """
        self._spill_directory = spill_directory
        self.parts: Mapping[str, float] = {}
        token = secrets.token_hex(32)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            bridge.open(session, slot, listener.getsockname()[1], token, BATCH_ROWS_MAX, BATCH_BYTES_MAX)
            self._socket = accept(listener, token.encode())
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb", 1 << 16)

    def run(
        self, group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str], repeats: bool = False
    ) -> pa.Table:
        try:
            for part in _request(group, sql, views, drop, repeats):
                self._socket.sendall(part)
        except OSError as error:
            raise Disconnected(str(error)) from error
        blocks = self._blocks()
        try:
            return collected(
                (from_spark(pa.ipc.open_stream(block, options=_READ_OPTIONS).read_all()) for block in blocks),
                self._spill_directory,
            )
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
        times = struct.unpack(f"!{len(PHASES)}q", self._exactly(8 * len(PHASES)))
        self.parts = {part: nanoseconds / 1e9 for part, nanoseconds in zip(PHASES, times, strict=True)}

    def _int(self) -> int:
        return int(struct.unpack("!i", self._exactly(4))[0])

    def _exactly(self, length: int) -> bytes:
        try:
            read: bytes = self._answers.read(length)
        except OSError as error:
            raise Disconnected(str(error)) from error
        if len(read) < length:
            raise Disconnected("the JVM has closed the connection")
        return read


def _request(
    group: str, sql: str, views: Mapping[str, pa.Table], drop: Sequence[str], repeats: bool
) -> Iterator[bytes | pa.Buffer]:
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
    yield bytes(head + struct.pack("!?", repeats) + _text(sql))


def rows_per_batch(table: pa.Table) -> int:
    """Returns the number of rows per batch when the table is sent."""
    fair: int = max(BATCH_ROWS_MAX, -(-table.num_rows // SENT_BATCHES_MAX))
    small: int = table.num_rows * SENT_BYTES_MAX // max(1, size_of(table))
    return max(1, min(fair, small))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("!i", len(encoded)) + encoded
