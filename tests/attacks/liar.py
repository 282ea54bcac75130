"""A proxy of a PostgreSQL that lies, falls silent, or closes connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from tests.polling import HANG_S

Say = Callable[[bytes], None]


class Liar:
    """A proxy of a PostgreSQL. If there is a `lie`, it is the answer to commands that contain `about`.

    `lie(say)`: sends bytes with `say`, and then the connection remains open. OSError when the source closes it.
    `answered_max`: of the bytes of a connection that the PostgreSQL sends, so many are passed on. Then it is closed.
    """

    def __init__(self, port: int) -> None:
        self.lie: Callable[[Say], None] | None = None
        self.about = b"START_REPLICATION"
        self.hears_commands = True
        self.answered_max: int | None = None
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Ends all connections."""
        for open in self._sockets:
            with contextlib.suppress(OSError):
                open.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(HANG_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += [client, server]
                for work in (self._requests, self._answers):
                    self._threads.append(threading.Thread(target=work, args=(client, server)))
                    self._threads[-1].start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self.lie is not None and data.startswith(b"Q") and self.about in data:
                    kind = b"W" if self.about == b"START_REPLICATION" else b"H"  # CopyBothResponse or CopyOutResponse
                    client.sendall(kind + struct.pack(">ibh", 7, 0, 0))
                    self.lie(client.sendall)
                elif self.hears_commands or data[:1] not in (b"Q", b"P"):
                    server.sendall(data)
        _end(client, server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            left = self.answered_max
            while data := server.recv(1 << 16 if left is None else min(left, 1 << 16)):
                client.sendall(data)
                if left is not None:
                    left -= len(data)
        _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
