"""A TCP proxy that breaks its connections on request, also in the middle of a message from the server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

from tests.polling import HANG_S


class Proxy:
    """`budget()` returns the number of the server's bytes that a new connection forwards before it breaks; None: all.

    Connections with the server are opened one at a time, in the order of the clients' connections. A client's
    connection is closed immediately if there is no server. `retarget` is for a server that is restarted on another
    port.
    """

    def __init__(self, dsn: str, budget: Callable[[], int | None] = lambda: None) -> None:
        parts = urlsplit(dsn)
        self._target: tuple[str | None, int | None] | None = (parts.hostname, parts.port)
        self._budget = budget
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{self._listener.getsockname()[1]}"))
        self.accepted = 0
        self.broken = 0
        self._links: list[tuple[socket.socket, socket.socket]] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        # Closing a socket does not wake a blocked accept: a last connection does.
        address = self._listener.getsockname()
        self._target = None
        socket.create_connection(address).close()
        self._threads[0].join(HANG_S)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(HANG_S)
            assert not thread.is_alive()

    def retarget(self, port: int) -> None:
        """New connections are forwarded to this port of the same host."""
        assert self._target is not None
        self._target = (self._target[0], port)

    def cut(self) -> None:
        """Breaks all open connections."""
        for link in self._links:
            _break(*link)
        self._links.clear()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._target is None:
                client.close()
                return
            self.accepted += 1
            try:
                server = socket.create_connection(self._target)
            except ConnectionRefusedError:
                client.close()
                continue
            self._links.append((client, server))
            for pump in (
                threading.Thread(target=self._pump, args=(client, server, None)),
                threading.Thread(target=self._pump, args=(server, client, self._budget())),
            ):
                self._threads.append(pump)
                pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, budget: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096 if budget is None else min(4096, budget)):
                sink.sendall(data)
                if budget is not None:
                    budget -= len(data)
                    if budget == 0:
                        self.broken += 1
                        break
        _break(source, sink)


def _break(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
