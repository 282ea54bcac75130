"""The process that forks workers, with the modules of their services imported.

A worker that imports them itself takes up to a second of processor time before its first request. A worker that is
forked takes a tenth of that, and shares their memory (decision 091).

    server -> forker   a service and the memory of a worker, with two sockets: of the worker, and of its end
    forker -> server   through the socket of the end: an `END`, when the worker has ended or could not be forked

The worker is killed when the server has shut down the socket of its end. The process exits when the server ends, and so
do the workers. It has no threads of Python. OpenBLAS and jemalloc start threads, and have handlers for forks.

Usage: `python -m server.workers.forker`, with a socket of the server as standard input.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pkgutil
import selectors
import signal
import socket
import struct
import sys
import traceback
from contextlib import suppress

from server.runtime.hidden_pandas import hide_pandas
from server.workers.worker import end_with_the_parent, run

END = struct.Struct("!?i")
"""Whether the worker was forked, and its exit code; otherwise the errno."""
MESSAGE_BYTES = 1024
_SET_NAME = 15  # prctl(2)


def message(service: str, memory_bytes: int) -> bytes:
    """A message for the forker, which is sent with the two sockets."""
    return f"{service} {memory_bytes}".encode()


class Forker:
    """Forks workers and reports their ends."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._signals, signalled = socket.socketpair()
        self._signalled = signalled
        for end in (self._signals, signalled):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(self._signals, selectors.EVENT_READ)
        self._ends: dict[int, socket.socket] = {}

    def run(self) -> None:
        """Returns when the server has ended."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._signals:
                    self._signals.recv(MESSAGE_BYTES)
                    self._report_ends()
                elif key.fileobj is not self._control:
                    self._kill(key.data, key.fileobj)
                elif not self._take_message():
                    return

    def close(self) -> None:
        """Closes everything but the sockets of workers' ends."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for end in (self._control, self._signals, self._signalled):
            end.close()

    def _take_message(self) -> bool:
        """Returns whether there was a message. A message ends at its sockets, also if others follow."""
        data, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 2)
        if not data:
            return False
        service, memory_bytes = data.decode().split()
        worker, end = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        _import(service)
        with worker:
            try:
                pid = os.fork()
            except OSError as error:
                _send_end(end, False, error.errno or 0)
                return True
            if pid == 0:
                self._become_worker(worker, end, service, int(memory_bytes))
        self._ends[pid] = end
        self._selector.register(end, selectors.EVENT_READ, pid)
        return True

    def _become_worker(self, worker: socket.socket, end: socket.socket, service: str, memory_bytes: int) -> None:
        """Does not return."""
        code = 1
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.close()
            for other in (end, *self._ends.values()):
                other.close()
            _set_name(service)
            gc.enable()
            with worker.makefile("rb") as source, worker.makefile("wb") as sink:
                run(service, memory_bytes, source, sink)
            code = 0
        except SystemExit:
            code = 0
        except MemoryError:  # of a request that is larger than the memory; the server takes a signal for this
            os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _kill(self, pid: int, end: object) -> None:
        """Kills a worker, unless it has ended. `_report_ends` removes it when its process id becomes free."""
        if self._ends.get(pid) is end:
            self._selector.unregister(self._ends[pid])
            os.kill(pid, signal.SIGKILL)

    def _report_ends(self) -> None:
        while self._ends:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            end = self._ends.pop(pid)
            with suppress(KeyError):  # it was killed
                self._selector.unregister(end)
            _send_end(end, True, os.waitstatus_to_exitcode(status))


def _import(service: str) -> None:
    """Imports a service's module, if it is not imported."""
    if service.partition(":")[0] in sys.modules:
        return
    with suppress(Exception):  # the worker imports it again, and its error becomes visible
        pkgutil.resolve_name(service)
    gc.freeze()  # a collection in a worker would copy the memory of what it looks at


def _send_end(end: socket.socket, is_forked: bool, number: int) -> None:
    with end, suppress(OSError):  # the server may have closed it
        end.sendall(END.pack(is_forked, number))


def _set_name(service: str) -> None:
    """Sets the name that `ps` and `top` show: `constants`, `pg_catalog`, `decoder_service` or `reader_service`."""
    if sys.platform == "linux":
        name = service.partition(":")[0].removesuffix(".service").rpartition(".")[2]
        ctypes.CDLL(None).prctl(_SET_NAME, name.encode()[:15])


def main() -> None:
    end_with_the_parent()
    hide_pandas()
    gc.disable()  # imports create no garbage; workers enable it
    control = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    Forker(control).run()
    os._exit(0)  # without what libraries print about objects that `gc.freeze` has kept


if __name__ == "__main__":
    main()
