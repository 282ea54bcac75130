"""The server's side of evaluation: decides where a constant is evaluated, and owns the worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any

import pyarrow as pa
import structlog

from protocol.pgwire.errors import PgError, SqlState
from server.evaluation.messages import CALL, FAILED, HEADER, REPLY, REQUEST, fields_of, framed, out_of_memory
from server.sql.constant import Bindings, Constant, NotCheap
from server.sql.functions.worker import scalars
from server.sql.relations import Relation

EVALUATION_S_MAX = 30.0
RESULT_BYTES_MAX = 64 * 1024 * 1024
WORKERS_MAX = 4
IDLE_WORKERS_MAX = 1

log = structlog.get_logger()


class Evaluator:
    """Evaluates constants. `close` at the end. Its methods are called from one event loop."""

    def __init__(self, workers_max: int = WORKERS_MAX) -> None:
        """Workers start when they are first needed. Evaluations beyond `workers_max` wait."""
        self._slots = asyncio.Semaphore(workers_max)
        self._idle: list[_Worker] = []
        self._workers: set[_Worker] = set()

    async def evaluate(self, constant: Constant, bindings: Bindings) -> pa.Table:
        """All rows; the columns are c0, c1, ...

        PgError of the expression; 53200 beyond `worker.MEMORY_MAX` or RESULT_BYTES_MAX; 54000 after EVALUATION_S_MAX.
        Cancel safety: the evaluation ends at once.
        """
        if constant.is_literal:
            return await asyncio.to_thread(constant.literal_rows)
        with contextlib.suppress(NotCheap):
            return pa.Table.from_batches([constant.evaluate(bindings)])
        request = await asyncio.to_thread(_request, constant.relation, bindings)
        async with self._slots:
            worker = self._idle.pop() if self._idle else await self._start_worker()
            try:
                async with asyncio.timeout(EVALUATION_S_MAX):
                    rows = await worker.evaluate(request, bindings)
            except TimeoutError:
                raise PgError(
                    SqlState.PROGRAM_LIMIT_EXCEEDED,
                    f"evaluation of a constant expression took longer than {EVALUATION_S_MAX:.0f} s",
                ) from None
            finally:
                self._put_back(worker)
        return rows

    async def value(self, constant: Constant, bindings: Bindings) -> object:
        """The one value of a constant of one row and column, as a Python scalar. Errors as `evaluate`."""
        with contextlib.suppress(NotCheap):
            (value,) = constant.evaluate_row(bindings)
            return value
        column = (await self.evaluate(constant, bindings)).column(0).combine_chunks()
        (type,) = constant.types
        return column[0].as_py() if type.name == "interval" else scalars(type, column)[0]

    async def prepare(self) -> None:
        """Starts a worker, so that the first evaluation need not wait for it."""
        async with self._slots:
            if not self._idle:
                try:
                    self._put_back(await self._start_worker())
                except OSError as error:  # the first evaluation reports it, if it still fails then
                    log.warning("evaluation worker not started", error=str(error))

    async def _start_worker(self) -> _Worker:
        worker = await _Worker.start()
        self._workers.add(worker)
        return worker

    def _put_back(self, worker: _Worker) -> None:
        if worker.is_usable and len(self._idle) < IDLE_WORKERS_MAX:
            self._idle.append(worker)
        else:
            self._workers.discard(worker)
            worker.kill()

    async def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*(worker.ended() for worker in self._workers))


def _request(relation: Relation, bindings: Bindings) -> bytes:
    settings = {name.lower(): value for name, value in bindings.settings.items()}
    return framed(REQUEST, pickle.dumps((relation, bindings._replace(settings=settings, signal=None, inquire=None))))


class _Worker:
    """A worker process. `is_usable`: it waits for a request."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.is_usable = True

    @classmethod
    async def start(cls) -> _Worker:
        command = (sys.executable, "-m", "server.evaluation.worker")
        # A session of its own: Ctrl-C in a terminal reaches the server, which ends its workers.
        return cls(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True))

    async def evaluate(self, request: bytes, bindings: Bindings) -> pa.Table:
        """The rows of a request. The worker is not usable any more if this raises, but for a PgError of a value."""
        self.is_usable = False
        try:
            await self._send(request)
            while True:
                kind, last, body = await self._receive()
                if kind != CALL:
                    break
                await self._send(_reply(body, bindings))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self._crash() from None
        self.is_usable = not last
        if kind == FAILED:
            raise _error_of(pickle.loads(body))
        return await asyncio.to_thread(_rows, body)

    async def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(message)
        await self._process.stdin.drain()

    async def _receive(self) -> tuple[bytes, bool, bytes]:
        assert self._process.stdout is not None
        kind, last, length = HEADER.unpack(await self._process.stdout.readexactly(HEADER.size))
        if length > RESULT_BYTES_MAX:
            raise out_of_memory()
        return kind, last, await self._process.stdout.readexactly(length)

    async def _crash(self) -> PgError:
        """The error for a process that ended: an allocation that failed inside a library ends it, too."""
        self.kill()
        code = await self._process.wait()
        log.warning("evaluation worker ended", code=code)
        return out_of_memory() if code < 0 else _internal_error()

    def kill(self) -> None:
        self.is_usable = False
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> None:
        await self._process.wait()


def _reply(call: bytes, bindings: Bindings) -> bytes:
    """The answer to a CALL: what the session's function returns, or its error."""
    name, arguments = pickle.loads(call)
    function = {"signal": bindings.signal, "inquire": bindings.inquire}[name]
    try:
        return framed(REPLY, pickle.dumps(None if function is None else function(*arguments)))
    except PgError as error:
        return framed(FAILED, pickle.dumps(fields_of(error)))


def _error_of(failure: Any) -> PgError:
    if isinstance(failure, dict):
        return PgError(**failure)
    log.error("internal error in an evaluation worker", trace=failure)
    return _internal_error()


def _internal_error() -> PgError:
    return PgError(SqlState.INTERNAL_ERROR, "internal error", hint="The server's log has more.")


def _rows(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()
