"""Accepts a connection of the JVM among connections of other local processes."""

from __future__ import annotations

import hmac
import select
import socket
import time
from contextlib import suppress

from server.spark.session_path import Disconnected

CONNECT_TIMEOUT_S = 30
PENDING_MAX = 64  # concurrent connections that have not sent the token; a further one closes the oldest


def accept(listener: socket.socket, token: bytes) -> socket.socket:
    """Returns the first connection that sends `token`, and closes the others: any local user can connect.

    Reads all connections concurrently, so that one that sends nothing does not delay the JVM's. Disconnected after
    CONNECT_TIMEOUT_S.
    """
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    listener.setblocking(False)
    with _PendingConnections(token) as pending:
        while (left_s := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([listener, *pending.received], [], [], left_s)
            for ready in readable:
                if ready is listener:
                    with suppress(OSError):  # the peer has disconnected already
                        connection, _ = listener.accept()
                        pending.add(connection)
                elif pending.has_sent_token(ready):
                    return ready
    raise Disconnected(f"the JVM did not connect within {CONNECT_TIMEOUT_S} s")


class _PendingConnections:
    """The connections that have not sent the token yet. Closes them when the `with` block ends."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.received: dict[socket.socket, bytes] = {}
        """The bytes received from each connection, the oldest connection first."""

    def __enter__(self) -> _PendingConnections:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.received:
            connection.close()

    def add(self, connection: socket.socket) -> None:
        """Adds a new connection. Closes the oldest one if there are PENDING_MAX."""
        connection.setblocking(False)
        if len(self.received) == PENDING_MAX:
            self._close(next(iter(self.received)))
        self.received[connection] = b""

    def has_sent_token(self, connection: socket.socket) -> bool:
        """Reads what the connection has sent. If that completes the token, the caller owns the connection.

        A connection that ends or sends something else is closed.
        """
        if connection not in self.received:  # closed by `add` since `select`
            return False
        received = self.received[connection]
        try:
            data = connection.recv(len(self._token) - len(received))
        except OSError:
            data = b""
        received += data
        if hmac.compare_digest(received, self._token):
            del self.received[connection]
            return True
        if not data or len(received) == len(self._token):
            self._close(connection)
        else:
            self.received[connection] = received
        return False

    def _close(self, connection: socket.socket) -> None:
        del self.received[connection]
        connection.close()
