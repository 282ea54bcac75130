"""The server's side of the process that forks workers (`forker`). Each server has one, for all of its pools."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future

import structlog

from server.runtime.allocator import configure_allocator
from server.workers.forker import message

log = structlog.get_logger()


class ForkServer:
    """Starts the process when the first worker is started, and again if it has ended. Its methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None

    def start_worker(self, service: str, memory_bytes: int, worker: socket.socket, end: socket.socket) -> None:
        """Has a worker forked, with these sockets. Blocks for a few milliseconds.

        OSError if the process cannot be started.
        """
        with self._lock:
            for is_second in (False, True):
                if self._control is None:
                    self._control = _started()
                try:
                    socket.send_fds(self._control, [message(service, memory_bytes)], [worker.fileno(), end.fileno()])
                    return
                except (BrokenPipeError, ConnectionResetError):  # the process has ended
                    self._control.close()
                    self._control = None
                    if is_second:
                        raise

    def close(self) -> None:
        """Ends the process and its workers. A later call of `start_worker` starts another one."""
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None


def _started() -> socket.socket:
    """Starts the process and returns a socket to it."""
    ours, theirs = socket.socketpair()
    started: Future[None] = Future()
    # The process ends with the thread that has started it: `PR_SET_PDEATHSIG` means a thread.
    threading.Thread(target=_run, args=(theirs, started), name="tidewire-fork-server", daemon=True).start()
    try:
        started.result()
    except OSError:
        ours.close()
        raise
    return ours


def _run(control: socket.socket, started: Future[None]) -> None:
    # Another allocator reserves a gigabyte at once, of which a worker's limit would not count what the worker uses.
    environment = dict(os.environ)
    configure_allocator(environment)
    with control:
        try:
            # A session of its own, because Ctrl-C in a terminal is meant for the server. Python 3.12 warns of a fork
            # with threads, even if they are those of libraries.
            process = subprocess.Popen(
                (sys.executable, "-W", "ignore::DeprecationWarning", "-m", "server.workers.forker"),
                stdin=control.fileno(),
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            started.set_exception(error)
            return
    started.set_result(None)
    if code := process.wait():
        log.warning("the process that forks workers ended", code=code)
