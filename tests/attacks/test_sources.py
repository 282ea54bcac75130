"""Hostile sources: files, a schema registry and a PostgreSQL. An error ends the source only, and DROP SOURCE works."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from tests.attacks.clients import resident_bytes, watched
from tests.fix_server import ServerProcess
from tests.polling import HANG_S, until

pytestmark = pytest.mark.attacks

MIB = 1024 * 1024
DROP_S = 2.0  # for DROP SOURCE
POLL = "(POLL INTERVAL '20ms')"


@pytest.fixture
def sql(own_server: ServerProcess) -> Iterator[psycopg.Connection]:
    with psycopg.connect(own_server.dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '20s'")
        yield connection
        connection.execute("DROP SOURCE IF EXISTS s")
        connection.execute("DROP CONNECTION IF EXISTS c")


def status(sql: psycopg.Connection) -> tuple[str, str]:
    rows = sql.execute("SELECT * FROM mz_internal.mz_source_statuses").fetchall()  # without Spark: no expressions
    (row,) = rows
    assert row[1] == "s"
    return row[4], row[5] or ""


def drop(sql: psycopg.Connection) -> None:
    begun = time.monotonic()
    sql.execute("DROP SOURCE s")
    assert time.monotonic() - begun < DROP_S


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["TEXT", "JSON", "CSV"])
def test_a_line_without_an_end(format: str, own_server: ServerProcess, sql: psycopg.Connection, tmp_path: Path) -> None:
    """It waits for its end. What it contains does not matter."""
    file = tmp_path / "long"
    columns = "(a text)" if format == "CSV" else ""
    with file.open("wb") as out:
        for _ in range(64):
            out.write(b'"{[,' * (MIB // 4))
    before = resident_bytes(own_server.process.pid)
    with watched(own_server):
        sql.execute(f"CREATE SOURCE s {columns} FROM FILE '{file}' {POLL} FORMAT {format}".encode())
        most = 0
        for _ in range(100):
            time.sleep(0.02)
            most = max(most, resident_bytes(own_server.process.pid))
        assert status(sql) == ("running", "")
        drop(sql)
    assert most - before < 384 * MIB


def test_a_line_that_is_too_long(own_server: ServerProcess, sql: psycopg.Connection, tmp_path: Path) -> None:
    """The file has holes: it takes no space."""
    file = tmp_path / "endless.csv"
    with file.open("wb") as out:
        out.write(b'"')
        out.truncate(1 << 40)
    sql.execute(f"CREATE SOURCE s (a text) FROM FILE '{file}' {POLL} FORMAT CSV".encode())
    before = resident_bytes(own_server.process.pid)
    most = 0

    def is_failed() -> bool:
        nonlocal most
        most = max(most, resident_bytes(own_server.process.pid))
        return status(sql)[0] == "failed"

    with watched(own_server):
        until(is_failed)
    assert "is too long" in status(sql)[1]
    assert most - before < 768 * MIB
    drop(sql)


def test_values_that_cannot_be_read(own_server: ServerProcess, sql: psycopg.Connection, tmp_path: Path) -> None:
    contents = {
        "JSON": (b"[" * 1_000_000 + b"\n", ""),
        "JSON ENVELOPE MATERIALIZE": (b"[" * 1_000_000 + b"\n", "(a int)"),
        "CSV": (b"," * 1_000_000 + b"\n", "(a int, b int)"),
        "PARQUET": (b"PAR1" + bytes(100) + struct.pack("<i", 2**31 - 1) + b"PAR1", "(a int)"),
    }
    with watched(own_server):
        for number, (format, (content, columns)) in enumerate(contents.items()):
            file = tmp_path / str(number)
            file.write_bytes(content)
            sql.execute(f"CREATE SOURCE s {columns} FROM FILE '{file}' {POLL} FORMAT {format}".encode())
            if "MATERIALIZE" in format:  # such lines are counted
                counted = "SELECT invalid_messages FROM mz_internal.mz_source_frontiers"
                until(lambda query=counted: sql.execute(query.encode()).fetchall() == [(1,)])  # type: ignore[misc]
            else:
                until(lambda: status(sql)[0] in ("failed", "stalled"))
            drop(sql)


def test_headers_with_too_many_columns(own_server: ServerProcess, sql: psycopg.Connection, tmp_path: Path) -> None:
    file = tmp_path / "wide.csv"
    file.write_bytes(b",".join(b"c%d" % number for number in range(1_000_000)) + b"\n")
    with watched(own_server):
        for format in ("CSV WITH HEADER", "CSV WITH 2000000000 COLUMNS"):
            with pytest.raises(errors.TooManyColumns):
                sql.execute(f"CREATE SOURCE s FROM FILE '{file}' FORMAT {format}".encode())


@pytest.mark.parametrize("change", ["truncated", "shorter", "directory", "fifo", "device", "removed"])
def test_a_file_that_changes(change: str, own_server: ServerProcess, sql: psycopg.Connection, tmp_path: Path) -> None:
    file = tmp_path / "changing"
    file.write_bytes(b"line\n" * 1_000_000)
    with watched(own_server):
        sql.execute(f"CREATE SOURCE s FROM FILE '{file}' {POLL} FORMAT TEXT".encode())
        received = "SELECT messages_received FROM mz_internal.mz_source_statistics"
        until(lambda: sql.execute(received.encode()).fetchall() != [(0,)])
        if change == "truncated":
            os.truncate(file, 7)
        else:
            file.unlink()
        if change == "shorter":
            file.write_bytes(b"other\n")
        elif change == "directory":
            file.mkdir()
        elif change == "fifo":
            os.mkfifo(file)
        elif change == "device":
            file.symlink_to("/dev/zero")
        if change in ("truncated", "shorter"):
            until(lambda: status(sql)[0] == "failed")
            assert "was truncated" in status(sql)[1]
        else:
            time.sleep(0.3)
            assert status(sql)[0] in ("running", "stalled")
        drop(sql)


@pytest.mark.parametrize("format", ["CSV WITH HEADER", "PARQUET", "AVRO"])
@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_a_source_of_what_is_no_file(
    format: str, kind: str, own_server: ServerProcess, sql: psycopg.Connection, tmp_path: Path
) -> None:
    file = tmp_path / "none"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")
    with watched(own_server):
        begun = time.monotonic()
        with pytest.raises(errors.InvalidParameterValue, match="it is not a regular file"):
            sql.execute(f"CREATE SOURCE s FROM FILE '{file}' FORMAT {format}".encode())
        assert time.monotonic() - begun < DROP_S


# -- other servers ----------------------------------------------------------------------------------------------------


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that answers each connection in a thread of its own. Yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    clients: list[socket.socket] = []

    def answer(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            serve(client)
        client.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                client.settimeout(60)
                clients.append(client)
                threads.append(threading.Thread(target=answer, args=(client,)))
                threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for client in clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in (acceptor, *threads):
            thread.join(HANG_S)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def _slow(client: socket.socket) -> None:
    client.recv(10_000)
    for byte in HEAD + b"Content-Length: 1000\r\n\r\n" + b" " * 1_000:
        client.sendall(bytes([byte]))
        time.sleep(0.5)


def _endless(client: socket.socket) -> None:
    client.recv(10_000)
    client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        client.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")


def _large(client: socket.socket) -> None:
    client.recv(10_000)
    client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (100 * MIB))
    for _ in range(100):
        client.sendall(b'"' * MIB)


def _nested(client: socket.socket) -> None:
    client.recv(10_000)
    client.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n" + b"[" * 1_000_000)


def _compressed(client: socket.socket) -> None:
    client.recv(10_000)
    client.sendall(HEAD + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
    packer = zlib.compressobj(9, wbits=31)
    while True:
        part = packer.compress(b" " * (64 * MIB))
        client.sendall(b"%x\r\n%s\r\n" % (len(part), part))


def _headers(client: socket.socket) -> None:
    client.recv(10_000)
    client.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        client.sendall(b"X-A: " + b"a" * 1_000 + b"\r\n")


@pytest.mark.parametrize("serve", [_slow, _endless, _large, _nested, _compressed, _headers])
def test_a_schema_registry(
    serve: Callable[[socket.socket], None], own_server: ServerProcess, sql: psycopg.Connection
) -> None:
    """The whole answer has a time of ten seconds and a length of 4 MiB."""
    before = resident_bytes(own_server.process.pid)
    with listening(serve) as port, watched(own_server):
        create = f"CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL 'http://127.0.0.1:{port}') WITH (VALIDATE)"
        begun = time.monotonic()
        if serve in (_endless, _large):  # the registry can be reached
            sql.execute(create.encode())
        else:
            with pytest.raises(errors.ConnectionFailure, match="schema registry"):
                sql.execute(create.encode())
        assert time.monotonic() - begun < 15
    assert resident_bytes(own_server.process.pid) - before < 64 * MIB


@pytest.mark.parametrize("target", ["http://127.0.0.1:{}/subjects", "//127.0.0.1:{}/subjects", "file:///etc/passwd"])
def test_redirections_of_a_schema_registry(target: str, own_server: ServerProcess, sql: psycopg.Connection) -> None:
    """They are not followed: another host gets no credentials."""
    asked: list[bytes] = []

    def redirect(client: socket.socket) -> None:
        asked.append(client.recv(10_000))
        location = target.format(other).encode()
        client.sendall(b"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n")

    others: list[bytes] = []
    with listening(lambda client: others.append(client.recv(10_000))) as other, listening(redirect) as port:
        options = f"(URL 'http://127.0.0.1:{port}', USERNAME 'a', PASSWORD SECRET p) WITH (VALIDATE)"
        sql.execute("CREATE SECRET p AS 'secret'")
        try:
            with pytest.raises(errors.ConnectionFailure, match="answered with status 307"):
                sql.execute(f"CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY {options}".encode())
        finally:
            sql.execute("DROP SECRET p")
    assert len(asked) == 1
    assert others == []


def _silent(client: socket.socket) -> None:
    client.recv(1)
    client.recv(1_000_000)
    time.sleep(0.1)
    while client.recv(1_000):
        pass


def _random(client: socket.socket) -> None:
    client.recv(1_000)
    client.sendall(b"N")
    client.recv(1_000)
    client.sendall(random.Random(3).randbytes(100_000))


def _out_of_order(client: socket.socket) -> None:
    client.recv(1_000)
    client.sendall(b"N")
    client.recv(1_000)
    client.sendall(b"R" + struct.pack(">ii", 16, 11) + b"r=1,s=x=")
    client.recv(1_000)


def _endless_message(client: socket.socket) -> None:
    client.recv(1_000)
    client.sendall(b"N")
    client.recv(1_000)
    client.sendall(b"S" + struct.pack(">i", 2**31 - 1))
    while True:
        client.sendall(bytes(MIB))


@pytest.mark.parametrize("serve", [_random, _out_of_order, _endless_message])
def test_a_postgresql(
    serve: Callable[[socket.socket], None], own_server: ServerProcess, sql: psycopg.Connection
) -> None:
    before = resident_bytes(own_server.process.pid)
    with listening(serve) as port, watched(own_server):
        address = f"HOST '127.0.0.1', PORT {port}, USER u, DATABASE d"
        for _ in range(3):
            with pytest.raises(errors.ConnectionFailure, match="could not connect to PostgreSQL"):
                sql.execute(f"CREATE CONNECTION c TO POSTGRES ({address}) WITH (VALIDATE)".encode())
    assert resident_bytes(own_server.process.pid) - before < 64 * MIB


def test_a_silent_postgresql(own_server: ServerProcess, sql: psycopg.Connection) -> None:
    """Statements that wait for it can be cancelled."""
    with listening(_silent) as port, watched(own_server):
        address = f"HOST '127.0.0.1', PORT {port}, USER u, DATABASE d"
        sql.execute(f"CREATE CONNECTION c TO POSTGRES ({address})".encode())
        sql.execute("SET statement_timeout = '500ms'")
        begun = time.monotonic()
        for statement in (
            "VALIDATE CONNECTION c",
            "CREATE SOURCE s FROM POSTGRES CONNECTION c (PUBLICATION 'p') FOR ALL TABLES",
        ):
            with pytest.raises(errors.QueryCanceled):
                sql.execute(statement.encode())
        assert time.monotonic() - begun < 5


def test_a_role_cannot_reach_addresses_of_its_choice(own_server: ServerProcess, sql: psycopg.Connection) -> None:
    """Neither the server itself, which lets it in as a superuser, nor another service of the machine is contacted."""
    accepted: list[socket.socket] = []
    sql.execute("CREATE ROLE probing LOGIN")
    sql.execute("GRANT CREATE ON SCHEMA public TO probing")
    with listening(accepted.append) as port:
        to_postgres = f"CREATE CONNECTION c TO POSTGRES (HOST '127.0.0.1', PORT {port}, USER u, DATABASE d)"
        itself = to_postgres.replace(str(port), str(own_server.port)).replace("USER u", "USER materialize")
        kafka = f"CREATE CONNECTION c TO KAFKA (BROKER '127.0.0.1:{port}', SECURITY PROTOCOL PLAINTEXT)"
        registry = f"CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL 'http://127.0.0.1:{port}')"
        with psycopg.connect(own_server.dsn, user="probing", autocommit=True) as role:
            for statement in (to_postgres, itself, kafka, registry):
                for option in ("", " WITH (VALIDATE)", " WITH (VALIDATE = false)"):
                    with pytest.raises(errors.InsufficientPrivilege, match='denied to create connection "c"'):
                        role.execute((statement + option).encode())
            sql.execute(itself.encode())
            with pytest.raises(errors.InsufficientPrivilege, match="denied for connection c"):
                role.execute("VALIDATE CONNECTION c")
            sql.execute("ALTER CONNECTION c OWNER TO probing")
            for option in ("", " WITH (VALIDATE)"):
                with pytest.raises(errors.InsufficientPrivilege, match='denied to alter connection "c"'):
                    role.execute(f"ALTER CONNECTION c SET (PORT {port}){option}".encode())
        assert not accepted
    sql.execute("DROP OWNED BY probing CASCADE")
    sql.execute("DROP ROLE probing")
