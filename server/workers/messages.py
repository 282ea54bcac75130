"""Messages between the server and a worker process. A message is a kind, a mark of the last one, a length and a body.

    server -> worker   REQUEST   a request, in the format of the kind of worker
                       REPLY     a pickled value, the answer to a CALL; FAILED if it failed
    worker -> server   STARTED   the first message: it will answer requests
                       CALL      a pickled (name, arguments): a function of the server
                       RESULT    the answer, in the format of the request: an Arrow stream, or pickled columns
                       FAILED    a pickled PgError, or str, the trace of an internal error

A worker whose memory has grown exits after an answer, which it marks as its last one. Both sides are the same program
on one machine, and nothing that is unpickled comes from a client.
"""

from __future__ import annotations

import copyreg
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa

from protocol.pgwire.errors import PgError, SqlState

Call = Callable[..., Any]
"""Calls a function of the server: its name, then its arguments."""
HEADER = struct.Struct("!c?Q")
REQUEST, REPLY, STARTED, CALL, RESULT, FAILED = b"Q", b"A", b"S", b"C", b"R", b"F"


def _interval(months: int, days: int, nanoseconds: int) -> pa.MonthDayNano:
    return pa.MonthDayNano([months, days, nanoseconds])


copyreg.pickle(pa.MonthDayNano, lambda value: (_interval, tuple(value)))


def framed(kind: bytes, body: bytes) -> bytes:
    return HEADER.pack(kind, False, len(body)) + body


def read_message(source: BinaryIO) -> tuple[bytes, bytes] | None:
    """Returns the kind and body of the next message; None at the end of the stream."""
    header = source.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    kind, _, length = HEADER.unpack(header)
    return kind, source.read(length)


def out_of_memory() -> PgError:
    return PgError(
        SqlState.OUT_OF_MEMORY,
        "out of memory",
        detail="An expression needs more memory than one statement may use.",
        hint="Make the expression's values smaller.",
    )


def arrow_stream(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
