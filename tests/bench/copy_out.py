"""COPY TO of a million rows (bigint, int, text(20), float8, timestamp). The client reads the socket without parsing."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import psycopg

from protocol.pgwire.messages.frontend import Query
from protocol.pgwire.messages.startup import StartupMessage
from tests.bench.servers import Line, Servers, alternate, timed

ROWS = 1_000_000
ROUNDS = 7
CHUNK = 20_000


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


def drain(port: int, user: str, database: str) -> int:
    """Sends COPY ... TO STDOUT and reads until ReadyForQuery. Returns the number of bytes received."""
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
        client.sendall(Query("COPY m5 TO STDOUT").serialize())
        return read_to_end()


def run(servers: Servers) -> list[Line]:
    load(servers.tidewire.dsn)
    load(servers.postgres.dsn)
    with psycopg.connect(servers.postgres.dsn, autocommit=True) as connection:
        connection.execute("VACUUM (FREEZE, ANALYZE) m5")
    ours = lambda: timed(lambda: drain(servers.tidewire.port, "materialize", "materialize"))
    theirs = lambda: timed(lambda: drain(servers.postgres.port, "postgres", "postgres"))
    ours(), theirs()
    a, b, ratio = alternate(ours, theirs, ROUNDS)
    return [Line("COPY 1M rows out, wall", f"{a:.3f} s", f"{b:.3f} s", f"{ratio:.2f} x", "at most 1.0 x PostgreSQL")]
