"""COPY TO and SELECT of a million rows (bigint, int, text(20), float8, timestamp), as text and binary.

The client reads the socket without parsing. The first rows of SELECT, COPY and SUBSCRIBE are measured on ten million
rows (bigint, int), which are stored in the order of the first column or in a random one.
"""

from __future__ import annotations

import socket
import statistics
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
MANY = 10_000_000
STEP = 7_919  # a prime, so that its multiples modulo MANY are all numbers below MANY


def _select(format: int, table: str = "m5") -> bytes:
    messages = (Parse("", f"SELECT * FROM {table}"), Bind("", "", (), (), (format,)), Execute(""), Sync())
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


FIRST_REQUESTS = {
    "SELECT": lambda table: _select(0, table),
    "COPY": lambda table: Query(f"COPY {table} TO STDOUT").serialize(),
    "SUBSCRIBE": lambda table: Query(f"COPY (SUBSCRIBE {table}) TO STDOUT").serialize(),
}


def many(*, ordered: bool) -> Iterator[bytes]:
    for start in range(0, MANY, CHUNK):
        numbers = range(start, start + CHUNK)
        yield "".join(f"{n if ordered else n * STEP % MANY}\t{n % 100_000}\n" for n in numbers).encode()


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


def first_row_s(port: int, request: bytes) -> float:
    """Returns the seconds from a request to its first row. The rest is not read."""
    with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as answers:

        def read_to(types: bytes) -> None:
            while (head := answers.read(5))[:1] not in types:
                assert head, "the server closed the connection"
                assert head[:1] != b"E", answers.read(struct.unpack("!i", head[1:])[0] - 4)
                answers.read(struct.unpack("!i", head[1:])[0] - 4)

        client.sendall(StartupMessage({"user": "materialize", "database": "materialize"}).serialize())
        read_to(b"Z")
        answers.read(1)
        return timed(lambda: (client.sendall(request), read_to(b"dD")))


def first_rows(servers: Servers) -> list[Line]:
    tidewire = servers.tidewire
    found = []
    for order in ("in order", "in random order"):
        table = order.replace(" ", "_")
        with psycopg.connect(tidewire.dsn, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {table} (a bigint, b int)")
            with cursor.copy(f"COPY {table} FROM STDIN") as copy:
                for chunk in many(ordered=order == "in order"):
                    copy.write(chunk)
        rounds = [
            {kind: first_row_s(tidewire.port, request(table)) for kind, request in FIRST_REQUESTS.items()}
            for _ in range(ROUNDS)
        ]
        medians = {kind: statistics.median(times[kind] for times in rounds) for kind in FIRST_REQUESTS}
        for kind in ("SELECT", "SUBSCRIBE"):
            ratio = statistics.median(times[kind] / times["COPY"] for times in rounds)
            found.append(
                Line(
                    f"first of {MANY:,} rows {order}: {kind} / COPY",
                    f"{medians[kind]:.3f} s",
                    f"{medians['COPY']:.3f} s",
                    f"{ratio:.2f} x",
                    "within 1 s",
                )
            )
    return found


def run(servers: Servers) -> list[Line]:
    return [*whole(servers), *first_rows(servers)]


def whole(servers: Servers) -> list[Line]:
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
