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

    Reads all connections concurrently, so that one that sends nothing does not delay the JVM's.
    """
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    pending: dict[socket.socket, bytes] = {}
    listener.setblocking(False)
    try:
        while (left_s := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([listener, *pending], [], [], left_s)
            for ready in readable:
                if ready is listener:
                    with suppress(OSError):  # the peer has disconnected already
                        connection, _ = listener.accept()
                        connection.setblocking(False)
                        if len(pending) == PENDING_MAX:
                            oldest = next(iter(pending))
                            del pending[oldest]
                            oldest.close()
                        pending[connection] = b""
                elif ready in pending:
                    try:
                        data = ready.recv(len(token) - len(pending[ready]))
                    except OSError:
                        data = b""
                    pending[ready] += data
                    if hmac.compare_digest(pending[ready], token):
                        del pending[ready]
                        return ready
                    if not data or len(pending[ready]) == len(token):
                        del pending[ready]
                        ready.close()
    finally:
        for connection in pending:
            connection.close()
    raise Disconnected(f"the JVM did not connect within {CONNECT_TIMEOUT_S} s")
