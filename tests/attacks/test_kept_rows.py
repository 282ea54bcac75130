"""What a session keeps between two statements: portals, cursors, and the names of both and of prepared statements."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from server.session_state.portals import PORTAL_BYTES_MIN, PORTALS_BYTES_MAX
from server.session_state.transaction import SAVEPOINTS_MAX
from tests.attacks.clients import bounded_session
from tests.fix_server import ServerProcess, server_without_spark
from tests.server.frontend.raw_client import RawClient, frame, query

pytestmark = pytest.mark.attacks

MEGABYTE = 1_000_000
GROWTH_MAX = 250 << 20
SYNC = frame(b"S", b"")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without Spark."""
    server = server_without_spark(tmp_path_factory.mktemp("server"))
    yield server
    assert server.stop() == 0


@pytest.fixture
def client(server: ServerProcess) -> Iterator[RawClient]:
    """A session in a transaction block. Afterwards its memory must be bounded, and no other session delayed."""
    with bounded_session(server, GROWTH_MAX) as client:
        client.exchange(query("BEGIN"))
        yield client


def parse(name: bytes, text: bytes) -> bytes:
    return frame(b"P", name + b"\0" + text + b"\0" + struct.pack(">h", 0))


def bind(portal: bytes, statement: bytes, *parameters: bytes) -> bytes:
    values = b"".join(struct.pack(">i", len(value)) + value for value in parameters)
    count = struct.pack(">h", len(parameters))
    return frame(
        b"B", portal + b"\0" + statement + b"\0" + struct.pack(">h", 0) + count + values + struct.pack(">h", 0)
    )


def execute(portal: bytes, rows: int) -> bytes:
    return frame(b"E", portal + b"\0" + struct.pack(">i", rows))


def refusal(client: RawClient, data: bytes) -> str | None:
    """The SQLSTATE of the first error in the answers."""
    return next((body[1] for code, body in client.exchange(data) if code == "E"), None)


@pytest.mark.parametrize("size", [20 * MEGABYTE, 1])
def test_portals_are_limited_by_their_parameters(client: RawClient, size: int) -> None:
    assert refusal(client, parse(b"s", b"SELECT $1::text") + SYNC) is None
    value, count = b"x" * size, 1 + PORTALS_BYTES_MAX // max(size, PORTAL_BYTES_MIN)
    bound = [bind(b"p%d" % number, b"s", value) for number in range(count)]
    assert refusal(client, b"".join(bound) + SYNC) == "53200"


def test_savepoints_do_not_multiply_portals(client: RawClient) -> None:
    count = PORTALS_BYTES_MAX // PORTAL_BYTES_MIN - 1
    opened = parse(b"s", b"SELECT 1") + b"".join(bind(b"p%d" % number, b"s") for number in range(count // 2))
    assert refusal(client, opened + SYNC) is None
    assert refusal(client, query("SAVEPOINT s;" * SAVEPOINTS_MAX)) is None
    assert refusal(client, bind(b"last", b"s") + SYNC + query("ROLLBACK TO s")) is None
    client.until_ready()
    assert refusal(client, execute(b"p1", 0) + SYNC) is None
    assert refusal(client, execute(b"last", 0) + SYNC) == "34000"


@pytest.mark.parametrize(
    "named", [lambda name: parse(name, b"SELECT 1"), lambda name: bind(name, b"s")], ids=["statements", "portals"]
)
def test_names_of_statements_count(client: RawClient, named: object) -> None:
    assert refusal(client, parse(b"s", b"SELECT 1") + SYNC) is None
    assert callable(named)
    names = (b"%d" % number + b"n" * (30 * MEGABYTE) for number in range(3))
    assert [refusal(client, named(name) + SYNC) for name in names][-1] in ("54000", "53200", "25P02")


def test_rows_of_cursors_and_portals_are_on_disk(client: RawClient) -> None:
    for number in range(40):
        text = f"DECLARE c{number} CURSOR FOR SELECT repeat('x', {8 * MEGABYTE})"
        assert refusal(client, query(text)) is None
    text = f"SELECT repeat('x', {2 * MEGABYTE}) FROM pg_class LIMIT 4"
    assert refusal(client, parse(b"s", text.encode()) + SYNC) is None
    for number in range(40):
        portal = b"p%d" % number
        answers = client.exchange(bind(portal, b"s") + execute(portal, 3) + SYNC)
        assert [code for code, _ in answers] == ["2", "D", "D", "D", "s", "Z"]
    (answer,) = [body for code, body in client.exchange(execute(b"p39", 0) + SYNC) if code == "D"]
    assert answer.endswith(b"x" * 2 * MEGABYTE)
    (answer,) = [body for code, body in client.exchange(query("FETCH c39")) if code == "D"]
    assert answer.endswith(b"x" * 8 * MEGABYTE)
