"""A thousand subscribers of one table: when the last one has received the rows of a commit, and the cost of each.

For comparison, a bare uvloop server writes the same bytes to as many sockets. The same reader process counts lines in
both cases. The time of an INSERT without subscribers is shown, too.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

import psycopg
import uvloop

from protocol.pgwire.messages.copying import CopyData
from protocol.pgwire.messages.frontend import Query
from protocol.pgwire.messages.startup import StartupMessage
from tests.bench.processes import cpu_s, resident
from tests.bench.servers import Line, Servers

CLIENTS = 1_000
FEW = 100
ROWS = 100
BATCHES = 40
PAUSE_S = 0.1
FEW_STUCK, STUCK = 20, 220
STUCK_ROW = "y" * 1_000
STUCK_ROWS = 8_000  # 8 MB: more than the buffers of the sockets
TEXT = "x" * 60


class Crowd:
    """Many sockets that are read together."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self.sockets = sockets
        self._lines = {s.fileno(): 0 for s in sockets}
        self._by_fd = {s.fileno(): s for s in sockets}
        self._poll = select.epoll()
        for s in sockets:
            s.setblocking(False)
            self._poll.register(s, select.EPOLLIN)

    def wait(self, lines: int) -> list[float]:
        """Reads until each socket has received that many further lines. Returns the times at which each had, sorted."""
        waiting = dict.fromkeys(self._by_fd, lines)
        times = []
        while waiting:
            for fd, _ in self._poll.poll(30):
                data = self._by_fd[fd].recv(1 << 18)
                assert data, "the server hung up"
                if fd in waiting:
                    waiting[fd] -= data.count(b"\n")
                    if waiting[fd] <= 0:
                        del waiting[fd]
                        times.append(time.perf_counter())
        return times

    def close(self) -> None:
        self._poll.close()
        for s in self.sockets:
            s.close()


def subscriber(port: int, statement: str) -> socket.socket:
    """A connected socket on which the COPY has begun."""
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(StartupMessage({"user": "crowd", "database": "materialize"}).serialize())
    s.sendall(Query(statement).serialize())
    seen = b""
    while b"H\0\0\0" not in seen:
        seen += s.recv(65536)
    return s


def floor_server(commands: Connection, payload: bytes) -> None:
    """Writes `payload` to all connected sockets on command."""
    import asyncio

    async def serve() -> None:
        transports: list[Any] = []

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                transports.append(transport)

        loop = asyncio.get_running_loop()
        server = await loop.create_server(Protocol, "127.0.0.1", 0, backlog=2_000)
        done = asyncio.Event()

        def command() -> None:
            if commands.recv() == "write":
                for transport in transports:
                    transport.write(payload)
            else:
                done.set()

        loop.add_reader(commands.fileno(), command)
        commands.send(server.sockets[0].getsockname()[1])
        await done.wait()

    uvloop.run(serve())


def floor(clients: int) -> list[float]:
    """Seconds from the command until the last client has its rows, for each batch."""
    payload = (CopyData(f"1795246299321\t1\t1\t{TEXT}\n".encode()).serialize()) * ROWS
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=floor_server, args=(theirs, payload))
    process.start()
    port = ours.recv()
    crowd = Crowd([socket.create_connection(("127.0.0.1", port)) for _ in range(clients)])
    delays = []
    for _ in range(BATCHES):
        time.sleep(PAUSE_S)
        begun = time.perf_counter()
        ours.send("write")
        delays.append(crowd.wait(ROWS)[-1] - begun)
    crowd.close()
    ours.send("end")
    process.join()
    return delays


def insert(rows: int) -> bytes:
    values = ", ".join(f"({n}, '{TEXT}')" for n in range(rows))
    return f"INSERT INTO crowd VALUES {values}".encode()


def alone(servers: Servers) -> list[float]:
    """Seconds from an INSERT to its acknowledgement, without subscribers."""
    with psycopg.connect(servers.tidewire.dsn, autocommit=True) as writer:
        delays = []
        for _ in range(BATCHES):
            time.sleep(PAUSE_S)
            begun = time.perf_counter()
            writer.pgconn.exec_(insert(ROWS))
            delays.append(time.perf_counter() - begun)
        writer.execute("DELETE FROM crowd")
    return delays


def delivered(servers: Servers, clients: int) -> tuple[list[float], list[float], float]:
    """Seconds from an INSERT until the first and the last client have its rows, and the server's CPU seconds per
    batch."""
    tidewire = servers.tidewire
    with psycopg.connect(tidewire.dsn, autocommit=True) as writer:
        crowd = Crowd([subscriber(tidewire.port, "COPY (SUBSCRIBE crowd) TO STDOUT") for _ in range(clients)])
        first, last = [], []
        before = cpu_s(tidewire.process.pid)
        for _ in range(BATCHES):
            time.sleep(PAUSE_S)
            begun = time.perf_counter()
            writer.pgconn.send_query(insert(ROWS))
            times = crowd.wait(ROWS)
            first.append(times[0] - begun)
            last.append(times[-1] - begun)
            while writer.pgconn.get_result() is not None:
                pass
        used = (cpu_s(tidewire.process.pid) - before) / BATCHES
        crowd.close()
        writer.execute("DELETE FROM crowd")
    return first, last, used


def stuck_bytes(servers: Servers, clients: int) -> int:
    """The server's memory while that many clients are connected, subscribe, and do not read 8 MB of changes."""
    tidewire = servers.tidewire
    with psycopg.connect(tidewire.dsn, autocommit=True) as writer:
        crowd = [subscriber(tidewire.port, "COPY (SUBSCRIBE crowd) TO STDOUT") for _ in range(clients)]
        for first in range(0, STUCK_ROWS, ROWS):  # in commits of ordinary size
            with writer.cursor() as cursor, cursor.copy("COPY crowd FROM STDIN") as copy:
                for n in range(first, first + ROWS):
                    copy.write_row((n, STUCK_ROW))
        found = resident(tidewire.process.pid)
        for s in crowd:
            s.close()
        writer.execute("DELETE FROM crowd")
    return found


def run(servers: Servers) -> list[Line]:
    with psycopg.connect(servers.tidewire.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE crowd (n int, t text)")
    for _ in range(3):
        few = stuck_bytes(servers, FEW_STUCK)
    stuck = (stuck_bytes(servers, STUCK) - few) / (STUCK - FEW_STUCK)  # before larger runs, which leave free memory
    bare = floor(CLIENTS)
    inserts = alone(servers)
    first, last, used = delivered(servers, CLIENTS)
    _, _, used_by_few = delivered(servers, FEW)
    ours, theirs = statistics.median(last) * 1e3, statistics.median(bare) * 1e3
    p99 = sorted(last)[int(len(last) * 0.99)] * 1e3
    insert_ms, first_ms = statistics.median(inserts) * 1e3, statistics.median(first) * 1e3
    fan_out = statistics.median(b - a for a, b in zip(first, last, strict=True)) * 1e3
    each = (used - used_by_few) / (CLIENTS - FEW) * 1e6
    return [
        Line(
            f"{ROWS} rows inserted to the last of {CLIENTS:,} subscribers has them / bare sockets, p50 (p99)",
            f"{ours:.1f} ms ({p99:.1f})",
            f"{theirs:.1f} ms",
            f"{ours / theirs:.2f} x",
            "at most 2 x the bare sockets",
        ),
        Line("of it: the INSERT, when nobody subscribes", f"{insert_ms:.1f} ms", "", "", ""),
        Line("of it: to the first subscriber", f"{first_ms:.1f} ms", "", "", ""),
        Line("of it: from the first to the last", f"{fan_out:.1f} ms", "", "", ""),
        Line("CPU of a batch for one subscriber more", f"{each:.1f} us", "", "", ""),
        Line(
            "memory of a client that is stuck, in total",
            f"{max(stuck, 0) / 1024:.0f} KiB",
            "",
            "",
            "within the noise of 100 KiB",
        ),
    ]
