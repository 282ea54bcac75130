"""COPY FROM with records without an end, records of ten million fields, and rows of one byte."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import psycopg
import pytest

from protocol.pgwire.copy_in import RECORD_BYTES_MAX
from tests.attacks.clients import bounded_session
from tests.fix_server import ServerProcess, server_without_spark
from tests.polling import until
from tests.server.frontend.raw_client import RawClient, frame, query, raw_client

pytestmark = pytest.mark.attacks

GROWTH_MAX = 400 << 20
MEGABYTE = 1_000_000
TOO_LONG = 2 * RECORD_BYTES_MAX // MEGABYTE
BINARY = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without Spark."""
    server = server_without_spark(tmp_path_factory.mktemp("server"))
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a text); CREATE TABLE u (a int, b text)")
    yield server
    assert server.stop() == 0


@pytest.fixture
def client(server: ServerProcess) -> Iterator[RawClient]:
    """A session. Afterwards the server's memory must be bounded, and no other session delayed."""
    with bounded_session(server, GROWTH_MAX) as client:
        yield client


def copied(client: RawClient, statement: str, *data: bytes) -> str:
    """The SQLSTATE of the error, or the tag. `data` are the CopyData messages."""
    client.send(query(statement))
    for chunk in data:
        client.send(chunk)
    answers = client.exchange(frame(b"c", b""))
    assert answers[-1][0] == "Z"
    failed = [body[1] for code, body in answers if code == "E"]
    return failed[0] if failed else next(bytes(body).rstrip(b"\0").decode() for code, body in answers if code == "C")


@pytest.mark.parametrize(
    ("format", "first", "chunk"),
    [
        ("text", b"", b"x"),
        ("text", b"", b"\\x41"),
        ("csv", b'"', b"x\n"),
        ("csv", b'"', b'""'),
        ("binary", BINARY + struct.pack(">hi", 1, 0x7FFFFFFF), b"x"),
        ("binary", BINARY[:-4] + b"\x7f\xff\xff\xff", b"x"),
    ],
    ids=["line", "escapes", "quoted lines", "quotes", "field", "header"],
)
def test_a_record_without_an_end_is_refused(client: RawClient, format: str, first: bytes, chunk: bytes) -> None:
    part = frame(b"d", chunk * (MEGABYTE // len(chunk)))
    state = copied(client, f"COPY t FROM STDIN (FORMAT {format})", frame(b"d", first), *[part] * TOO_LONG)
    assert state == "54000"


@pytest.mark.parametrize(
    "header",
    [
        b"1,2,3\n" * 100,
        b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 1 << 16, 0),
        b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 1 << 20, 0x7FFFFFFF),
        b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, -1),
    ],
    ids=["text", "oids", "flags", "negative length"],
)
def test_a_header_that_is_not_binary_is_refused_at_once(client: RawClient, header: bytes) -> None:
    """The length of a header is not awaited if what precedes it is wrong."""
    part = frame(b"d", b"x" * MEGABYTE)
    assert copied(client, "COPY t FROM STDIN (FORMAT binary)", frame(b"d", header), *[part] * TOO_LONG) == "22P04"


@pytest.mark.parametrize(
    ("format", "record"),
    [
        ("text", b"1\t" * 10 * MEGABYTE),
        ("csv", b"1," * 2 * MEGABYTE),
        ("text", b"1\t" + b"\\x41" * 2 * MEGABYTE),
        ("csv", b'1,x"' + b'""' * 2 * MEGABYTE + b'"'),
    ],
    ids=["text fields", "csv fields", "escapes", "quotes"],
)
def test_a_large_record_delays_no_other_session(client: RawClient, format: str, record: bytes) -> None:
    state = copied(client, f"COPY u FROM STDIN (FORMAT {format})", frame(b"d", record + b"\n"))
    assert state == ("COPY 1" if record[2:].count(b",") + record[2:].count(b"\t") == 0 else "22P04")


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize(
    "message",
    [query("SELECT 1"), frame(b"X", b""), frame(b"f", b"x" * 20_000 + b"\0"), b"d\0\0\0\1"],
    ids=["query", "terminate", "long failure", "wrong length"],
)
def test_a_message_that_must_not_arrive_ends_the_session(
    server: ServerProcess, client: RawClient, message: bytes, extended: bool
) -> None:
    """The client gets the error, and keeps neither its connection nor its session."""
    statement = "COPY t FROM STDIN"
    client.send(frame(b"P", b"\0%b\0\0\0" % statement.encode()) if extended else query(statement))
    if extended:
        client.send(frame(b"B", bytes(8)) + frame(b"E", bytes(5)))
    client.send(frame(b"d", b"x\n"))
    client.send(message)
    client.socket.settimeout(10)
    answers = list(client.messages())
    assert answers[-1][0] == "E"
    assert answers[-1][1][:2] == ("FATAL", "08P01")
    with psycopg.connect(server.dsn) as connection:
        sessions = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = ''"
        until(lambda: len(connection.execute(sessions).fetchall()) == 1)  # that of `watched`


def test_rows_of_one_byte_delay_no_other_session(client: RawClient) -> None:
    assert copied(client, "COPY t FROM STDIN", frame(b"d", b"\n" * MEGABYTE)) == f"COPY {MEGABYTE}"


def test_messages_without_data_take_no_memory(client: RawClient) -> None:
    assert copied(client, "COPY t FROM STDIN", *[frame(b"d", b"") * MEGABYTE] * 2) == "COPY 0"


def test_a_cancelled_copy_stops_its_thread(server: ServerProcess, client: RawClient) -> None:
    """Two threads decode data. Others could not use them while they worked on what nobody waits for."""
    client.exchange(query("SET statement_timeout = '300ms'"))
    for _ in range(4):
        state = copied(client, "COPY u FROM STDIN (FORMAT csv)", frame(b"d", b"1," * 10 * MEGABYTE + b"\n"))
        assert state == "57014"
    with raw_client(server.port) as other:
        other.start("materialize", "materialize")
        other.exchange(query("SET statement_timeout = '5s'"))
        assert copied(other, "COPY t FROM STDIN", frame(b"d", b"x\n" * MEGABYTE)) == f"COPY {MEGABYTE}"
