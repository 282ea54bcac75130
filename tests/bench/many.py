"""Many subscribers and many views of one server.

- A commit of 10,000 rows reaches 2,048 subscribers of one query. A bare uvloop server that writes as many bytes to as
  many sockets is the comparison.
- A step with 10,000 subscribers, each with a constant of its own in the same query, compared with ten of them.
- Freshness of ten views that a commit changes, among 200 views, compared with ten views.
- The server's processor time with 500 idle views.
- A commit that reaches 10,000 subscribers of one view over WebSockets, and the memory of each.

One process reads all sockets. It counts bytes and looks for a marker at the end of what it received.
"""

from __future__ import annotations

import argparse
import multiprocessing
import select
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import psycopg

from protocol.pgwire.messages.copying import CopyData
from protocol.pgwire.messages.frontend import Query
from protocol.pgwire.messages.startup import StartupMessage
from tests.bench.fan_out import floor_server
from tests.bench.processes import cpu_s, resident
from tests.bench.servers import Line, Servers, timed

CLIENTS = 2_048
LARGE_ROWS = 10_000
FEW_CONSTANTS, CONSTANTS = 10, 10_000
TOUCHED = 10  # constants, or views, that a commit changes
FEW_VIEWS, VIEWS = 10, 200
IDLE_VIEWS = 500
ROUNDS = 5
STEPS = 40
WARM = 5  # steps that are not measured
IDLE_S = 20.0
WEB_SOCKETS = 10_000
WEB_SOCKET_COMMITS = 20
TEXT = "x" * 12
PARTS = ("large", "constants", "views", "idle", "websockets")


class Reader:
    """Sockets that another process reads."""

    def __init__(self) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_read, args=(theirs,))
        self._process.start()

    def subscribe(self, port: int, statements: list[str]) -> None:
        """Connects one socket for each statement. Returns when every COPY has begun."""
        self._ask("subscribe", port, statements)

    def subscribe_web(self, port: int, relation: str, count: int) -> None:
        """Connects WebSockets that follow a relation. Returns when every stream has begun."""
        self._ask("subscribe web", port, relation, count)

    def connect(self, port: int, count: int) -> None:
        """Connects sockets that send nothing."""
        self._ask("connect", port, count)

    def expect(self, marker: str, count: int) -> None:
        """Begins to look for a marker, which `count` of the sockets will receive."""
        self._ask("expect", marker, count)

    def times(self) -> list[float]:
        """Waits until the marker has been received. Returns the times of `time.perf_counter`, ascending."""
        found = self._pipe.recv()
        assert isinstance(found, list)
        return found

    @property
    def received(self) -> int:
        """The number of bytes received so far."""
        return int(self._ask("received"))

    def close(self) -> None:
        self._pipe.send(("close",))
        self._process.join()

    def _ask(self, *command: object) -> int:
        self._pipe.send(command)
        answer: int = self._pipe.recv()
        return answer


def _read(pipe: Connection) -> None:
    """The process that reads. Answers commands, and reads all sockets at all times."""
    poll = select.epoll()
    poll.register(pipe.fileno(), select.EPOLLIN)
    sockets: dict[int, socket.socket] = {}
    tails: dict[int, bytes] = {}
    buffer = memoryview(bytearray(1 << 20))
    marker, count, received = b"", 0, 0
    times: list[float] = []
    while True:
        for fd, _ in poll.poll():
            if fd != pipe.fileno():
                size = sockets[fd].recv_into(buffer)
                assert size, "the server hung up"
                received += size
                if count:
                    tail = tails[fd] + bytes(buffer[max(0, size - 4096) : size])
                    tails[fd] = tail[-64:]
                    if marker in tail:
                        tails[fd] = b""
                        times.append(time.perf_counter())
                        if len(times) == count:
                            pipe.send(times)
                            times, count = [], 0
                continue
            match pipe.recv():
                case ("subscribe", port, statements):
                    for found in _subscribed(port, statements):
                        sockets[found.fileno()], tails[found.fileno()] = found, b""
                        poll.register(found.fileno(), select.EPOLLIN)
                    pipe.send(0)
                case ("subscribe web", port, relation, number):
                    for found in _web_sockets(port, relation, number):
                        sockets[found.fileno()], tails[found.fileno()] = found, b""
                        poll.register(found.fileno(), select.EPOLLIN)
                    pipe.send(0)
                case ("connect", port, number):
                    for _ in range(number):
                        found = socket.create_connection(("127.0.0.1", port))
                        sockets[found.fileno()], tails[found.fileno()] = found, b""
                        poll.register(found.fileno(), select.EPOLLIN)
                    pipe.send(0)
                case ("expect", text, number):
                    marker, count = text.encode(), number
                    tails = dict.fromkeys(tails, b"")
                    pipe.send(0)
                case ("received",):
                    pipe.send(received)
                case _:
                    for found in sockets.values():
                        found.close()
                    return


def _subscribed(port: int, statements: list[str]) -> Iterator[socket.socket]:
    """Connected sockets on which the COPY has begun, 64 at a time."""
    for first in range(0, len(statements), 64):
        group = []
        for statement in statements[first : first + 64]:
            s = socket.create_connection(("127.0.0.1", port))
            startup = StartupMessage({"user": "materialize", "database": "materialize"}).serialize()
            s.sendall(startup + Query(statement).serialize())
            group.append(s)
        for s in group:
            seen = b""
            while b"H\0\0\0" not in seen:
                part = s.recv(65536)
                assert part, seen
                seen += part
                assert b"ERROR" not in seen, seen
            yield s


def _web_sockets(port: int, relation: str, count: int) -> Iterator[socket.socket]:
    """WebSockets whose stream has begun, 64 at a time."""
    request = (
        f"GET /api/subscribe?query={relation}&snapshot=false HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()
    for first in range(0, count, 64):
        group = [socket.create_connection(("127.0.0.1", port)) for _ in range(first, min(first + 64, count))]
        for s in group:
            s.sendall(request)
        for s in group:
            seen = b""
            while b'"as_of"' not in seen:
                part = s.recv(65536)
                assert part, seen
                seen += part
            yield s


@contextmanager
def reading() -> Iterator[Reader]:
    reader = Reader()
    try:
        yield reader
    finally:
        reader.close()


def copied(query: str) -> str:
    return f"COPY (SUBSCRIBE ({query}) WITH (PROGRESS, SNAPSHOT false)) TO STDOUT"


# -- large commits ---------------------------------------------------------------------------------------------------


def bare(payload: bytes) -> list[float]:
    """Seconds in which a bare uvloop server writes the payload to all sockets."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=floor_server, args=(theirs, payload))
    process.start()
    seconds = []
    with reading() as reader:
        reader.connect(ours.recv(), CLIENTS)
        for _ in range(ROUNDS):
            time.sleep(0.5)
            reader.expect("end", CLIENTS)
            begun = time.perf_counter()
            ours.send("write")
            seconds.append(reader.times()[-1] - begun)
    ours.send("end")
    process.join()
    return seconds


def large(servers: Servers) -> list[Line]:
    server = servers.tidewire
    seconds, cpu = [], []
    with psycopg.connect(server.dsn, autocommit=True) as writer:
        writer.execute("CREATE TABLE large (n int, t text)")
    with psycopg.connect(server.dsn, autocommit=True) as writer, reading() as reader:
        reader.subscribe(server.port, [copied("SELECT n, t FROM large WHERE n >= 0")] * CLIENTS)
        time.sleep(2)
        received = 0
        for number in range(ROUNDS):
            time.sleep(0.5)
            reader.expect(f"end{number}", CLIENTS)
            before, received = cpu_s(server.process.pid), reader.received
            begun = time.perf_counter()
            with writer.cursor() as cursor, cursor.copy("COPY large FROM STDIN") as copy:
                copy.write("".join(f"{n}\t{TEXT}\n" for n in range(LARGE_ROWS - 1)) + f"{LARGE_ROWS}\tend{number}\n")
            seconds.append(reader.times()[-1] - begun)
            cpu.append(cpu_s(server.process.pid) - before)
            received = reader.received - received
    row = CopyData(f"1795246299321\tf\t1\t{LARGE_ROWS}\t{TEXT}\n".encode()).serialize()
    theirs = statistics.median(bare(row * (LARGE_ROWS - 1) + CopyData(b"end").serialize()))
    ours = statistics.median(seconds)
    megabytes = received / 1e6
    return [
        Line(
            f"{LARGE_ROWS:,} rows at once to {CLIENTS:,} subscribers ({megabytes:,.0f} MB) / bare sockets",
            f"{ours:.2f} s (greatest {max(seconds):.2f})",
            f"{theirs:.2f} s",
            f"{ours / theirs:.2f} x",
            "within 5 s",
        ),
        Line("of it: the server's processor time", f"{statistics.median(cpu):.2f} s", "", "", ""),
    ]


# -- constants -------------------------------------------------------------------------------------------------------


def stepped(servers: Servers, clients: int) -> tuple[float, float, float]:
    """Milliseconds from a commit that changes the rows of TOUCHED constants until their subscribers have them (p50),
    the server's CPU milliseconds per commit, and the bytes of memory per subscriber."""
    server = servers.tidewire
    pid = server.process.pid
    with psycopg.connect(server.dsn, autocommit=True) as writer, reading() as reader:
        before = resident(pid)
        reader.subscribe(
            server.port, [copied(f"SELECT account, n, t FROM events WHERE account = {k}") for k in range(clients)]
        )
        time.sleep(3)
        each = (resident(pid) - before) / clients
        delays = []
        idle = cpu_s(pid)
        time.sleep(5)
        idle = (cpu_s(pid) - idle) / 5
        used, begun_all = cpu_s(pid), time.perf_counter()
        for number in range(STEPS):
            time.sleep(0.05)
            rows = ", ".join(f"({k * (clients // TOUCHED)}, {number}, 'end{number}.')" for k in range(TOUCHED))
            reader.expect(f"end{number}.", TOUCHED)
            begun = time.perf_counter()
            writer.execute(f"INSERT INTO events VALUES {rows}".encode())
            delays.append(reader.times()[-1] - begun)
        spent = time.perf_counter() - begun_all
        used = (cpu_s(pid) - used - idle * spent) / STEPS
    time.sleep(2)
    return statistics.median(delays) * 1e3, used * 1e3, each


def constants(servers: Servers) -> list[Line]:
    with psycopg.connect(servers.tidewire.dsn, autocommit=True) as writer:
        writer.execute(f"ALTER SYSTEM SET max_connections = {CONSTANTS + 100}")
        writer.execute("CREATE TABLE events (account int, n int, t text)")
        writer.execute("INSERT INTO events SELECT n % 10000, n, 'x' FROM generate_series(1, 100000) n")
    stepped(servers, FEW_CONSTANTS)
    few_ms, few_cpu, _ = stepped(servers, FEW_CONSTANTS)
    many_ms, many_cpu, each = stepped(servers, CONSTANTS)
    return [
        Line(
            f"step that changes {TOUCHED} constants, {CONSTANTS:,} subscribed constants / {FEW_CONSTANTS}, p50",
            f"{many_ms:.1f} ms",
            f"{few_ms:.1f} ms",
            f"{many_ms / few_ms:.2f} x",
            "at most 1.5 x",
        ),
        Line("of it: the server's processor time", f"{many_cpu:.1f} ms", f"{few_cpu:.1f} ms", "", ""),
        Line("memory of a subscriber with a constant of its own", f"{each / 1e3:.0f} kB", "", "", "below 50 kB"),
    ]


# -- views -----------------------------------------------------------------------------------------------------------


def fresh(servers: Servers, views: int) -> tuple[float, float]:
    """Milliseconds from a commit that changes TOUCHED of the views until their subscribers have it (p50), and the
    server's CPU milliseconds per commit."""
    server = servers.tidewire
    with psycopg.connect(server.dsn, autocommit=True) as writer:
        writer.execute("CREATE TABLE many (k int, n int, t text)")
        for view in range(views):
            writer.execute(
                f"CREATE MATERIALIZED VIEW many_{view} AS SELECT n * 2 AS n, t || '.' AS t FROM many WHERE k = {view}"
            )
        with reading() as reader:
            reader.subscribe(server.port, [copied(f"SELECT * FROM many_{view}") for view in range(TOUCHED)])
            time.sleep(5)
            delays = []
            for number in range(WARM + STEPS):
                if number == WARM:
                    delays, used = [], cpu_s(server.process.pid)
                time.sleep(0.1)
                rows = ", ".join(f"({view}, {number}, 'end{number}')" for view in range(TOUCHED))
                reader.expect(f"end{number}.", TOUCHED)
                begun = time.perf_counter()
                writer.execute(f"INSERT INTO many VALUES {rows}".encode())
                delays.append(reader.times()[-1] - begun)
            used = (cpu_s(server.process.pid) - used) / STEPS
        writer.execute("DROP TABLE many CASCADE")
    return statistics.median(delays) * 1e3, used * 1e3


def views(servers: Servers) -> list[Line]:
    fresh(servers, FEW_VIEWS)
    few_ms, few_cpu = fresh(servers, FEW_VIEWS)
    many_ms, many_cpu = fresh(servers, VIEWS)
    return [
        Line(
            f"commit that changes {TOUCHED} of {VIEWS} views to their subscribers / of {FEW_VIEWS} views, p50",
            f"{many_ms:.0f} ms",
            f"{few_ms:.0f} ms",
            f"{many_ms / few_ms:.2f} x",
            "at most 2 x",
        ),
        Line("of it: the server's processor time", f"{many_cpu:.0f} ms", f"{few_cpu:.0f} ms", "", ""),
    ]


def idle(servers: Servers) -> list[Line]:
    server = servers.tidewire

    def used() -> float:
        """The share of a core that the server uses while nothing happens."""
        time.sleep(2)
        before = cpu_s(server.process.pid)
        seconds = timed(lambda: time.sleep(IDLE_S))
        return (cpu_s(server.process.pid) - before) / seconds

    with psycopg.connect(server.dsn, autocommit=True) as writer:
        without = used()
        writer.execute("CREATE TABLE idle (k int, n int)")
        for view in range(IDLE_VIEWS):
            writer.execute(f"CREATE MATERIALIZED VIEW idle_{view} AS SELECT n FROM idle WHERE k = {view}")
        with_views = used()
        writer.execute("DROP TABLE idle CASCADE")
    return [
        Line(
            f"processor time with {IDLE_VIEWS} idle views / without views",
            f"{with_views:.1%} of a core",
            f"{without:.1%}",
            "",
            "below 2 % of a core",
        )
    ]


# -- WebSockets ------------------------------------------------------------------------------------------------------


def websockets(servers: Servers) -> list[Line]:
    server = servers.tidewire
    pid = server.process.pid
    with psycopg.connect(server.dsn, autocommit=True) as writer, reading() as reader:
        writer.execute(f"ALTER SYSTEM SET max_connections = {WEB_SOCKETS + 100}")
        writer.execute("CREATE TABLE shown (n int, t text)")
        writer.execute("CREATE MATERIALIZED VIEW shown_view AS SELECT n, t FROM shown WHERE n >= 0")
        before = resident(pid)
        reader.subscribe_web(server.http_port, "shown_view", WEB_SOCKETS)
        time.sleep(3)
        each = (resident(pid) - before) / WEB_SOCKETS
        delays, used = [], 0.0
        for number in range(WARM + WEB_SOCKET_COMMITS):
            time.sleep(0.5)
            reader.expect(f"end{number}.", WEB_SOCKETS)
            begun, cpu = time.perf_counter(), cpu_s(pid)
            writer.execute(f"INSERT INTO shown VALUES ({number}, 'end{number}.')".encode())
            times = reader.times()
            if number >= WARM:
                delays += [at - begun for at in times]
                used += cpu_s(pid) - cpu
    delays.sort()
    p50, p99 = delays[len(delays) // 2] * 1e3, delays[int(len(delays) * 0.99)] * 1e3
    return [
        Line(f"commit to {WEB_SOCKETS:,} WebSockets, p99", f"{p99:.0f} ms (p50 {p50:.0f})", "", "", "below 500 ms"),
        Line("of it: the server's processor time", f"{used / WEB_SOCKET_COMMITS * 1e3:.0f} ms", "", "", ""),
        Line("memory of a WebSocket", f"{each / 1e3:.0f} kB", "", "", "below 50 kB"),
    ]


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument("--part", choices=PARTS, help="run only one part of the benchmark")


def run(servers: Servers, options: argparse.Namespace) -> list[Line]:
    parts = {"large": large, "constants": constants, "views": views, "idle": idle, "websockets": websockets}
    wanted = [options.part] if options.part else PARTS
    return [line for name in wanted for line in parts[name](servers)]
