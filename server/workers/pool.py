"""Worker processes: started on demand, used by one request at a time, killed to cancel it."""

from __future__ import annotations

import asyncio
import atexit
import os
import pickle
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import structlog

from protocol.pgwire.errors import PgError, SqlState
from server.workers.fork_server import ForkServer
from server.workers.forker import END
from server.workers.messages import CALL, FAILED, HEADER, REPLY, framed, out_of_memory

RESULT_BYTES_MAX = 64 * 1024 * 1024
REQUEST_S_MAX = 30.0
TURN_S = 1.0
"""After this time, in seconds, a request makes room for others that wait. See `WorkerPool.run`."""
MEMORY_BYTES = 512 * 1024 * 1024
FORK_SERVER = ForkServer()
atexit.register(FORK_SERVER.close)

Answer = Callable[[str, tuple[Any, ...]], Awaitable[Any]]
"""Answers a worker's CALL, given a name and arguments. A PgError is passed on to the worker."""

log = structlog.get_logger()


class _Displaced(Exception):
    """A request has to make room for another one."""


class _Turn:
    """A request that others may displace when it has used its turn, which begins when its worker has started."""

    def __init__(self) -> None:
        self._end_s: float | None = None
        self._limit = asyncio.timeout(None)
        self._is_displaced = False

    def begin(self) -> None:
        self._end_s = asyncio.get_running_loop().time() + TURN_S

    @property
    def is_used(self) -> bool:
        is_over = self._end_s is not None and asyncio.get_running_loop().time() >= self._end_s
        return is_over and not self._is_displaced

    def displace(self) -> None:
        self._is_displaced = True
        self._limit.reschedule(0)

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Raises _Displaced if the request is displaced."""
        try:
            async with self._limit:
                yield
        except TimeoutError:
            if self._is_displaced:
                raise _Displaced from None
            raise


async def _no_calls(name: str, arguments: tuple[Any, ...]) -> Any:
    raise AssertionError(name)


class WorkerPool:
    """Workers with one service. Call `close` at the end. Its methods are called from one event loop."""

    def __init__(
        self,
        service: str,
        workers_max: int,
        *,
        idle_max: int = 1,
        memory_bytes: int = MEMORY_BYTES,
        work: str = "evaluation",
        hint: str | None = "Make the statement's expressions cheaper.",
        takes_turns: bool = False,
    ) -> None:
        """`service`: what the workers run, as `worker.run` expects it. Requests beyond `workers_max` wait.

        `takes_turns`: a request that has run for TURN_S while others wait is run again from its beginning, by a worker
        for such requests, one after the other. The requests must not change anything.

        `idle_max`: how many workers are kept for later requests. `memory_bytes`: what a request may allocate, its
        result included. `work` and `hint`: for the error of a request that takes too long.
        """
        self._service = service
        self._work, self._hint = work, hint
        self._idle_max = idle_max
        self._memory_bytes = memory_bytes
        self._slots = asyncio.Semaphore(workers_max)
        self._long = asyncio.Semaphore(1)
        self._turns: list[_Turn] | None = [] if takes_turns else None  # the oldest first
        self._idle: list[_Worker] = []
        self._workers: set[_Worker] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, request: bytes, answer: Answer = _no_calls) -> bytes:
        """Returns the body of the answer to a framed request. `answer`: to the calls of the service, if it has some.

        PgError as the worker raises it; 53200 for a result beyond RESULT_BYTES_MAX, 54000 after REQUEST_S_MAX.
        Cancel safety: the worker is killed, which ends the work at once.
        """
        if self._turns is None:
            async with self._slots:
                return await self._run(request, answer)
        try:
            async with self._turn(self._turns) as turn:
                return await self._run(request, answer, turn)
        except _Displaced:
            async with self._long:
                return await self._run(request, answer)

    @asynccontextmanager
    async def _turn(self, turns: list[_Turn]) -> AsyncIterator[_Turn]:
        """Waits for a slot. Every TURN_S, the oldest request that has used its turn is displaced."""

        async def displace() -> None:
            while True:
                await asyncio.sleep(TURN_S)
                if (oldest := next((turn for turn in turns if turn.is_used), None)) is not None:
                    oldest.displace()

        displacing = asyncio.create_task(displace()) if self._slots.locked() else None
        try:
            await self._slots.acquire()
        finally:
            if displacing is not None:
                displacing.cancel()
        turn = _Turn()
        turns.append(turn)
        try:
            async with turn.limited():
                yield turn
        finally:
            turns.remove(turn)
            self._slots.release()

    async def _run(self, request: bytes, answer: Answer, turn: _Turn | None = None) -> bytes:
        worker = self._idle.pop() if self._idle else await self._start_worker()
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                return await worker.run(request, answer, turn)
        except TimeoutError:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f"{self._work} took longer than {REQUEST_S_MAX:.0f} s",
                hint=self._hint,
            ) from None
        finally:
            self._put_back(worker)

    async def prepare(self) -> None:
        """Starts a worker, so that the first request does not wait for it."""
        async with self._slots:
            if not self._idle:
                try:
                    self._put_back(await self._start_worker())
                except OSError as error:  # if starting a worker still fails, the first request reports it
                    log.warning("worker process not started", service=self._service, error=str(error))

    async def _start_worker(self) -> _Worker:
        worker = await _Worker.start(self._service, self._memory_bytes)
        self._workers.add(worker)
        return worker

    def _put_back(self, worker: _Worker) -> None:
        if worker.is_usable and len(self._idle) < self._idle_max:
            self._idle.append(worker)
        else:
            self._end(worker)

    def _end(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        task = asyncio.create_task(worker.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Ends all workers; a later request starts another one. No request may be running.

        Cancel safety: the workers end, and the next call waits for them.
        """
        self._idle.clear()
        for worker in tuple(self._workers):
            self._end(worker)
        await asyncio.shield(asyncio.gather(*self._ending))


class _Worker:
    """A worker process. `is_usable`: it can take a request."""

    def __init__(self, worker: _Streams, end: _Streams) -> None:
        self._reader, self._writer = worker
        self._end_reader, self._end_writer = end
        self._code: int | None = None
        self._is_started = False
        self.is_usable = True

    @classmethod
    async def start(cls, service: str, memory_bytes: int) -> _Worker:
        async with _streams() as (worker, socket_of_worker), _streams() as (end, socket_of_end):
            # After the last await, so that a cancelled start leaves no process behind.
            FORK_SERVER.start_worker(service, memory_bytes, socket_of_worker, socket_of_end)
            return cls(worker, end)

    async def run(self, request: bytes, answer: Answer, turn: _Turn | None) -> bytes:
        """Like `WorkerPool.run`. Any exception except a PgError of the worker leaves the worker unusable."""
        self.is_usable = False
        try:
            await self._send(request)
            if not self._is_started:
                await self._receive()  # STARTED
                self._is_started = True
            if turn is not None:
                turn.begin()
            while True:
                kind, last, body = await self._receive()
                if kind != CALL:
                    break
                await self._send(await _reply(body, answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self._crash() from None
        self.is_usable = not last
        if kind == FAILED:
            raise _error_of(pickle.loads(body))
        return body

    async def _send(self, message: bytes) -> None:
        self._writer.write(message)
        await self._writer.drain()

    async def _receive(self) -> tuple[bytes, bool, bytes]:
        kind, last, length = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        if length > RESULT_BYTES_MAX:
            raise out_of_memory()
        return kind, last, await self._reader.readexactly(length)

    async def _crash(self) -> PgError:
        """Returns the error for a process that has ended. A failed allocation in a library ends it by a signal.

        OSError if it could not be forked.
        """
        code = await self._exit_code()
        log.warning("worker process ended", code=code)
        return out_of_memory() if code < 0 else _internal_error()

    async def _exit_code(self) -> int:
        """Waits until the process has ended."""
        if self._code is None:
            try:
                is_forked, number = END.unpack(await self._end_reader.readexactly(END.size))
            except (asyncio.IncompleteReadError, ConnectionError):  # the forker has ended, and the worker, too
                is_forked, number = True, -signal.SIGKILL
            if not is_forked:
                raise OSError(number, os.strerror(number))
            self._code = number
        return self._code

    async def end(self) -> None:
        """Kills the process, and waits until it has ended."""
        self._writer.close()
        try:
            if self._code is None:
                self._end_writer.write_eof()
                await self._exit_code()
        except OSError:  # it has ended, or was not forked
            pass
        finally:
            self._end_writer.close()


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def _streams() -> AsyncIterator[tuple[_Streams, socket.socket]]:
    """The streams of one end of a pair of sockets, which an error closes, and the other end, which is always closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            yield (reader, writer), theirs
        except BaseException:
            writer.close()
            raise


async def _reply(call: bytes, answer: Answer) -> bytes:
    name, arguments = pickle.loads(call)
    try:
        return framed(REPLY, pickle.dumps(await answer(name, arguments)))
    except PgError as error:
        return framed(FAILED, pickle.dumps(error))


def _error_of(failure: Any) -> PgError:
    if isinstance(failure, PgError):
        return failure
    log.error("internal error in a worker process", trace=failure)
    return _internal_error()


def _internal_error() -> PgError:
    return PgError(SqlState.INTERNAL_ERROR, "internal error", hint="The server's log has more.")
