"""A fake PostgreSQL that accepts logins, and returns the answers that a test has prepared."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, NamedTuple

from tests.polling import HANG_S

BOOL, CHAR, NAME, INT8, INT4, TEXT, OID, OIDS = 16, 18, 19, 20, 23, 25, 26, 1028
LOGIN = {"server_version": "16.1", "client_encoding": "UTF8", "integer_datetimes": "on", "TimeZone": "UTC"}
READY = b"Z" + struct.pack(">i", 5) + b"I"


def message(code: bytes, body: bytes = b"") -> bytes:
    return code + struct.pack(">i", 4 + len(body)) + body


def error(text: str, sqlstate: str = "XX000") -> bytes:
    fields = (b"SERROR", b"VERROR", b"C" + sqlstate.encode(), b"M" + text.encode())
    return message(b"E", b"\0".join(fields) + b"\0\0")


def row(*values: bytes | None) -> bytes:
    parts = (b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value for value in values)
    return message(b"D", struct.pack(">H", len(values)) + b"".join(parts))


def description(*columns: tuple[str, int]) -> bytes:
    fields = (name.encode() + b"\0" + struct.pack(">ihihih", 0, 0, type, -1, -1, 1) for name, type in columns)
    return message(b"T", struct.pack(">H", len(columns)) + b"".join(fields))


class Answer(NamedTuple):
    """The columns of a query, and its messages before CommandComplete, which are sent one by one."""

    columns: Sequence[tuple[str, int]]
    messages: Callable[[], Iterable[bytes]]


def rows(columns: Sequence[tuple[str, int]], *values: Sequence[bytes | None]) -> Answer:
    return Answer(columns, lambda: [row(*each) for each in values])


class FakePostgres:
    """A server. `answers`: what it says to a query that contains a text; the first one applies.

    To other queries it answers with an error, also to those of the replication protocol.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(HANG_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                self._threads.append(threading.Thread(target=self._serve, args=(client,)))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), client:
            received = client.makefile("rb")
            while _startup(received) == 80_877_103:  # SSLRequest
                client.sendall(b"N")
            statuses = (message(b"S", f"{name}\0{value}\0".encode()) for name, value in LOGIN.items())
            client.sendall(message(b"R", bytes(4)) + b"".join(statuses) + message(b"K", bytes(8)) + READY)
            query, steps = "", b""
            while code := received.read(1):
                (length,) = struct.unpack(">i", received.read(4))
                body = received.read(length - 4)
                if code == b"P":
                    query = body.split(b"\0")[1].decode()
                elif code == b"Q":
                    query = body[:-1].decode()
                steps += code
                if code in b"SHQ":
                    self._answer(client, query, steps)
                    steps = b""

    def _answer(self, client: socket.socket, query: str, steps: bytes) -> None:
        """Answers the messages up to Sync, Flush or a Query."""
        if steps == b"S":
            client.sendall(READY)
            return
        self.asked.append(query)
        ready = b"" if steps.endswith(b"H") else READY
        answer = next((answer for text, answer in self.answers.items() if text in query), None)
        if b"Q" in steps:  # a command without rows
            client.sendall(message(b"C", b"OK\0") if answer is None else b"")
        if answer is None:
            client.sendall((b"" if b"Q" in steps else error("unexpected query")) + ready)
            return
        if b"P" in steps:
            client.sendall(message(b"1"))
        if b"D" in steps:
            type = OIDS if "::oid[]" in query else OID if "::oid" in query else TEXT
            types = [type] * _count(query)
            parameters = struct.pack(f">H{len(types)}I", len(types), *types)
            client.sendall(message(b"t", parameters) + description(*answer.columns))
        if b"B" in steps:
            client.sendall(message(b"2"))
        if b"E" in steps:
            for part in answer.messages():
                client.sendall(part)
            client.sendall(message(b"C", b"SELECT 1\0"))
        client.sendall(ready)


def _count(query: str) -> int:
    """The number of parameters of a query."""
    return max((int(number) for number in re.findall(r"\$(\d+)", query)), default=0)


def _startup(received: BinaryIO) -> int:
    """Reads a startup packet. Returns its code. EOFError if there is none."""
    length = received.read(4)
    if len(length) < 4:
        raise EOFError
    return int(struct.unpack_from(">i", received.read(struct.unpack(">i", length)[0] - 4))[0])
