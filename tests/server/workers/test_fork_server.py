"""The process from which worker processes are forked: what they share with it, and their ends."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import psutil
import pytest

from protocol.pgwire.errors import PgError, SqlState
from server.workers import pool
from server.workers.fork_server import ForkServer
from server.workers.forker import END, Forker, message
from server.workers.messages import REQUEST, Call, framed
from server.workers.pool import WorkerPool
from server.workers.worker import Serve
from tests.polling import HANG_S, until

pytestmark = pytest.mark.slow

SERVICE = f"{__name__}:parents"
IMPORTED_BY = os.getpid()


def parents() -> Serve:
    """A service that names its process, the process that has imported this module, and its parent."""

    def serve(request: bytes, call: Call) -> bytes:
        if request == b"wait":
            signal.pause()
        return f"{os.getpid()} {IMPORTED_BY} {os.getppid()}".encode()

    return serve


@pytest.fixture
def fork_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """A fork server of its own."""
    found = ForkServer()
    monkeypatch.setattr(pool, "FORK_SERVER", found)
    yield found
    found.close()


@pytest.fixture
async def workers(fork_server: ForkServer) -> AsyncIterator[WorkerPool]:
    found = WorkerPool(SERVICE, 2)
    yield found
    await found.close()


async def asked(workers: WorkerPool) -> list[int]:
    return [int(word) for word in (await workers.run(framed(REQUEST, b""))).split()]


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_workers_of_all_pools_are_forked_from_the_process_that_has_imported_their_modules(
    workers: WorkerPool,
) -> None:
    others = WorkerPool(SERVICE, 1)
    try:
        (first, *of_first), (second, *of_second) = await asked(workers), await asked(others)
        assert first != second
        assert of_first == of_second
        assert of_first[0] == of_first[1]
        assert psutil.Process(first).name() == "test_fork_serve"  # 15 characters
        assert psutil.Process(of_first[1]).ppid() == os.getpid()
    finally:
        await others.close()


async def test_a_worker_has_no_other_descriptors_than_its_socket(workers: WorkerPool) -> None:
    """Otherwise it would keep the sockets of others open, which then would not notice the server's end."""
    other = asyncio.create_task(workers.run(framed(REQUEST, b"wait")))
    worker, *_ = await asked(workers)
    links = [os.readlink(f"/proc/{worker}/fd/{name}") for name in os.listdir(f"/proc/{worker}/fd")]
    assert len([link for link in links if link.startswith("socket:")]) == 1
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_a_cancelled_request_ends_its_worker(workers: WorkerPool) -> None:
    worker, _, forker = await asked(workers)
    task = asyncio.create_task(workers.run(framed(REQUEST, b"wait")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.to_thread(until, lambda: not psutil.pid_exists(worker))
    assert psutil.Process(forker).children() == []


async def test_another_process_forks_after_the_end_of_the_first(workers: WorkerPool) -> None:
    worker, _, forker = await asked(workers)
    os.kill(forker, signal.SIGKILL)
    await asyncio.to_thread(until, lambda: _has_ended(forker) and _has_ended(worker))
    await workers.close()
    again, _, other = await asked(workers)
    assert (again, other) != (worker, forker)
    assert other != forker


async def test_a_request_that_is_larger_than_the_memory_is_53200(fork_server: ForkServer) -> None:
    workers = WorkerPool(SERVICE, 1, memory_bytes=16 << 20)
    try:
        with pytest.raises(PgError) as caught:
            await workers.run(framed(REQUEST, bytes(32 << 20)))
    finally:
        await workers.close()
    assert caught.value.sqlstate == SqlState.OUT_OF_MEMORY


def test_workers_end_with_the_server() -> None:
    program = (
        "import asyncio, sys, time; from server.workers.messages import REQUEST, framed\n"
        "from server.workers.pool import WorkerPool\n"
        f"async def main(): print((await WorkerPool({SERVICE!r}, 1).run(framed(REQUEST, b''))).decode(), flush=True); "
        "time.sleep(600)\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        worker, _, forker = map(int, server.stdout.readline().split())
        server.kill()
    until(lambda: _has_ended(worker) and _has_ended(forker))


def test_a_worker_that_cannot_be_forked_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    handler, descriptor = signal.getsignal(signal.SIGCHLD), signal.set_wakeup_fd(-1)
    ours, theirs = socket.socketpair()
    (worker, of_worker), (end, of_end) = socket.socketpair(), socket.socketpair()
    try:
        with ours, of_worker, of_end:
            socket.send_fds(ours, [message(SERVICE, 1 << 20)], [of_worker.fileno(), of_end.fileno()])
        with closing(Forker(theirs)) as forker:
            forker.run()
    finally:
        signal.signal(signal.SIGCHLD, handler)
        signal.set_wakeup_fd(descriptor)
    with worker, end:
        assert END.unpack(end.recv(END.size)) == (False, errno.EAGAIN)
        assert worker.recv(1) == b""


async def test_a_request_whose_worker_cannot_be_forked_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(ForkServer):
        def start_worker(self, service: str, memory_bytes: int, worker: socket.socket, end: socket.socket) -> None:
            end.sendall(END.pack(False, errno.EAGAIN))

    monkeypatch.setattr(pool, "FORK_SERVER", Refusing())
    workers = WorkerPool(SERVICE, 1)
    with pytest.raises(BlockingIOError):
        await workers.run(framed(REQUEST, b""))
    await workers.close()


async def test_a_cancelled_start_leaves_no_worker(workers: WorkerPool) -> None:
    _, _, forker = await asked(workers)
    await workers.close()
    for steps in range(6):
        task = asyncio.create_task(workers.run(framed(REQUEST, b"wait")))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), HANG_S)
        await workers.close()
    deadline = time.monotonic() + HANG_S
    while psutil.Process(forker).children():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
