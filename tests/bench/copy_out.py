"""COPY TO and SELECT of a million rows (bigint, int, text(20), float8, timestamp), as text and binary.

The client reads the socket without parsing.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from functools import partial

import psycopg

from protocol.pgwire.messages.frontend import Bind, Execute, Parse, Query, Sync
from protocol.pgwire.messages.startup import StartupMessage
from tests.bench.servers import Line, Servers, alternate, timed

ROWS = 1_000_000
ROUNDS = 7
CHUNK = 20_000


def _select(format: int) -> bytes:
    messages = (Parse("", "SELECT * FROM m5"), Bind("", "", (), (), (format,)), Execute(""), Sync())
    return b"".join(message.serialize() for message in messages)


REQUESTS = {
    "COPY 1M rows out, wall": Query("COPY m5 TO STDOUT").serialize(),
    "COPY 1M rows out, binary, wall": Query("COPY m5 TO STDOUT (FORMAT binary)").serialize(),
    "SELECT of 1M rows, text, wall": _select(0),
    "SELECT of 1M rows, binary, wall": _select(1),
}


def lines() -> Iterator[bytes]:
    for start in range(0, ROWS, CHUNK):
        yield "".join(
            f"{n * 7919}\t{n % 100_000}\ttext{n:016d}\t{n / 10_000:.4f}\t"
            f"2013-{n % 12 + 1:02d}-{n % 28 + 1:02d} {n % 24:02d}:{n % 60:02d}:{n // 60 % 60:02d}\n"
            for n in range(start, start + CHUNK)
        ).encode()


def load(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE m5 (a bigint, b int, c text, d float8, e timestamp)")
        with cursor.copy("COPY m5 FROM STDIN") as copy:
            for chunk in lines():
                copy.write(chunk)


def drain(port: int, user: str, database: str, request: bytes) -> int:
    """Sends a request and reads until ReadyForQuery. Returns the number of bytes received."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(StartupMessage({"user": user, "database": database}).serialize())
        end = b"Z" + struct.pack("!i", 5) + b"I"
        buffer = bytearray(1 << 20)
        view = memoryview(buffer)

        def read_to_end() -> int:
            total, tail = 0, b""
            while True:
                count = client.recv_into(buffer)
                assert count, "the server closed the connection"
                total += count
                tail = (tail + bytes(view[max(0, count - 6) : count]))[-6:]
                if tail == end:
                    return total

        read_to_end()
        client.sendall(request)
        return read_to_end()


def run(servers: Servers) -> list[Line]:
    load(servers.tidewire.dsn)
    load(servers.postgres.dsn)
    with psycopg.connect(servers.postgres.dsn, autocommit=True) as connection:
        connection.execute("VACUUM (FREEZE, ANALYZE) m5")
    tidewire, postgres = servers.tidewire.port, servers.postgres.port
    found = []
    for name, request in REQUESTS.items():
        ours = partial(timed, partial(drain, tidewire, "materialize", "materialize", request))
        theirs = partial(timed, partial(drain, postgres, "postgres", "postgres", request))
        ours(), theirs()
        a, b, ratio = alternate(ours, theirs, ROUNDS)
        found.append(Line(name, f"{a:.3f} s", f"{b:.3f} s", f"{ratio:.2f} x", "at most 0.8 x PostgreSQL"))
    return found
