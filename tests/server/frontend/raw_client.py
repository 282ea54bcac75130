"""A client that writes protocol messages as bytes, for messages that no driver sends."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from protocol.pgwire.messages.frontend import Query
from protocol.pgwire.messages.startup import StartupMessage
from protocol.pgwire.messages.wire_format import HEADER, INT32
from tests.polling import HANG_S


def frame(code: bytes, body: bytes) -> bytes:
    """Returns a message with this type byte."""
    return code + INT32.pack(len(body) + 4) + body


class RawClient:
    """Returns messages as (type, body). The body of an ErrorResponse is (severity, SQLSTATE, message)."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
        self._received = b""

    def start(self, user: str, database: str | None = None) -> list[tuple[str, Any]]:
        """Sends the StartupMessage. Returns the messages up to ReadyForQuery or to the end of the connection."""
        parameters = {"user": user} if database is None else {"user": user, "database": database}
        self.send(StartupMessage(parameters).serialize())
        return self.until_ready()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yields the server's messages until it closes the connection."""
        while True:
            while len(self._received) >= 5:
                code, length = HEADER.unpack_from(self._received)
                if len(self._received) < length + 1:
                    break
                body, self._received = self._received[5 : length + 1], self._received[length + 1 :]
                yield chr(code), _error(body) if code == ord("E") else body
            data = self.socket.recv(65_536)
            if not data:
                return
            self._received += data

    def until_ready(self) -> list[tuple[str, Any]]:
        """Returns the messages up to ReadyForQuery or to the end of the connection."""
        found = []
        for message in self.messages():
            found.append(message)
            if message[0] == "Z":
                break
        return found

    def exchange(self, data: bytes) -> list[tuple[str, Any]]:
        self.send(data)
        return self.until_ready()


def _error(body: bytes) -> tuple[str, str, str]:
    fields = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
    return fields[b"V"], fields[b"C"], fields[b"M"]


@contextmanager
def raw_client(port: int) -> Iterator[RawClient]:
    """A connection before its startup. It is closed at the end."""
    client = RawClient(port)
    try:
        yield client
    finally:
        client.socket.close()


def query(text: str) -> bytes:
    """Returns a Query message."""
    return Query(text).serialize()
