"""What a worker process does: it reads requests from its socket and writes the answers to it.

The process is forked by `forker`. It exits at the end of its input, and is killed when the server ends.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from protocol.pgwire.errors import PgError, SqlState
from server.runtime.memory import data_bytes, limit_memory
from server.runtime.recursion import allow_nesting
from server.workers.messages import (
    CALL,
    FAILED,
    HEADER,
    REQUEST,
    RESULT,
    STARTED,
    Call,
    out_of_memory,
    read_message,
)

GROWTH_PART = 1 / 8  # of the memory of a request
NICENESS = 5
_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2)

Serve = Callable[[bytes, Call], bytes]
"""Serves the body of a request and returns the body of the answer. Raises PgError or MemoryError."""


@dataclass(frozen=True, slots=True)
class _Server:
    """The server, at the other end of the socket."""

    source: BinaryIO
    sink: BinaryIO

    def call(self, name: str, *arguments: Any) -> Any:
        self.send(CALL, pickle.dumps((name, arguments)))
        message = read_message(self.source)
        if message is None:
            raise SystemExit
        kind, body = message
        if kind == FAILED:
            raise pickle.loads(body)
        return pickle.loads(body)

    def send(self, kind: bytes, body: bytes, *, last: bool = False) -> None:
        """Does not copy the body, which may take most of the memory."""
        self.sink.write(HEADER.pack(kind, last, len(body)))
        self.sink.write(body)
        self.sink.flush()


def answer(serve: Serve, request: bytes, call: Call) -> tuple[bytes, bytes]:
    """Returns the kind and the body of the message that answers a request."""
    try:
        return RESULT, serve(request, call)
    except PgError as error:
        return FAILED, pickle.dumps(error)
    except MemoryError:
        return FAILED, pickle.dumps(out_of_memory())
    except RecursionError:
        hint = "Write the statement with less nesting."
        too_complex = PgError(SqlState.STATEMENT_TOO_COMPLEX, "stack depth limit exceeded", hint=hint)
        return FAILED, pickle.dumps(too_complex)
    except Exception:
        return FAILED, pickle.dumps(traceback.format_exc())


def serve_all(serve: Serve, source: BinaryIO, sink: BinaryIO, growth_max: int) -> None:
    """Answers requests until the input ends, memory has grown by `growth_max` bytes, or an answer is larger than that.

    With less free memory, the next request might fail because of the requests before it.
    """
    server = _Server(source, sink)
    used: int | None = None
    while (message := read_message(source)) is not None:
        kind, body = message
        assert kind == REQUEST
        kind, body = answer(serve, body, server.call)
        now = data_bytes() or 0
        used = now if used is None else used  # measured after the first request, which loads what all requests need
        last = now > used + growth_max or len(body) > growth_max
        server.send(kind, body, last=last)
        if last:
            return


def end_with_the_parent() -> None:
    """Makes the kernel kill this process when its parent ends, even during a request. Ctrl-C does not end it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def run(service: str, memory_bytes: int, source: BinaryIO, sink: BinaryIO) -> None:
    """Answers requests with a service.

    `service`: MODULE:FUNCTION. The function returns the service (`Serve`).
    `memory_bytes`: what a request, its result included, may allocate.
    """
    end_with_the_parent()
    os.nice(NICENESS)
    allow_nesting()
    serve: Serve = pkgutil.resolve_name(service)()
    limit_memory(memory_bytes)
    _Server(source, sink).send(STARTED, b"")
    serve_all(serve, source, sink, int(memory_bytes * GROWTH_PART))
