"""The worker process: reads requests from its standard input, evaluates them, and writes the answers.

`python -m server.evaluation.worker`. It ends when its input ends, and with the server.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from protocol.pgwire.errors import PgError, SqlState
from server.memory import data_bytes, limit_memory
from server.evaluation.messages import CALL, FAILED, REQUEST, ROWS, fields_of, framed, out_of_memory, read_message
from server.sql import functions as _functions  # noqa: F401  functions and temporal fill the tables of functions
from server.sql import temporal as _temporal  # noqa: F401
from server.sql.constant import Bindings, compiled
from server.sql.relations import Relation

MEMORY_MAX = 512 * 1024 * 1024  # bytes that one evaluation may allocate, its result included
NICENESS = 5
GROWTH_MAX = 64 * 1024 * 1024  # bytes
_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2)


@dataclass(frozen=True, slots=True)
class _Session:
    """The functions of the server's session that an expression may call."""

    source: BinaryIO
    sink: BinaryIO

    def signal(self, function: str, process_id: int) -> bool:
        return bool(self._call("signal", (function, process_id)))

    def inquire(self, function: str, arguments: Sequence[str | None]) -> bool | None:
        result: bool | None = self._call("inquire", (function, arguments))
        return result

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.sink.write(framed(CALL, pickle.dumps((name, arguments))))
        self.sink.flush()
        message = read_message(self.source)
        if message is None:
            raise SystemExit
        kind, body = message
        if kind == FAILED:
            raise PgError(**pickle.loads(body))
        return pickle.loads(body)


def evaluate(request: bytes, session: _Session) -> pa.RecordBatch:
    """The rows of a request. PgError as evaluation raises it, MemoryError."""
    relation: Relation
    bindings: Bindings
    relation, bindings = pickle.loads(request)
    constant = compiled(relation, bounded=False)
    assert constant is not None
    return constant.evaluate(bindings._replace(signal=session.signal, inquire=session.inquire))


def answer(request: bytes, session: _Session) -> tuple[bytes, bytes]:
    """The kind and the body of the message that answers a request."""
    try:
        batch = evaluate(request, session)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return ROWS, sink.getvalue().to_pybytes()
    except PgError as error:
        return FAILED, pickle.dumps(fields_of(error))
    except MemoryError:
        return FAILED, pickle.dumps(fields_of(out_of_memory()))
    except RecursionError:
        hint = "Write the statement with less nesting."
        too_complex = PgError(SqlState.STATEMENT_TOO_COMPLEX, "stack depth limit exceeded", hint=hint)
        return FAILED, pickle.dumps(fields_of(too_complex))
    except Exception:
        return FAILED, pickle.dumps(traceback.format_exc())


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answers requests until the input ends or the memory has grown, which the next evaluation could not have."""
    session = _Session(source, sink)
    used = data_bytes()
    while (message := read_message(source)) is not None:
        kind, body = message
        assert kind == REQUEST
        kind, body = answer(body, session)
        last = (data_bytes() or 0) > (used or 0) + GROWTH_MAX
        sink.write(framed(kind, body, last=last))
        sink.flush()
        if last:
            return


def _end_with_the_server() -> None:
    """Has the kernel kill this process when the server ends, also in the middle of an evaluation."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def main() -> None:
    _end_with_the_server()
    os.nice(NICENESS)
    limit_memory(MEMORY_MAX)
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
