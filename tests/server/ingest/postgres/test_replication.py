"""The stream of a replication connection: what arrives in any pieces is received as the messages that were sent."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import psycopg
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from protocol.pgoutput.stream import LSN_MAX
from server.ingest.postgres import replication
from server.ingest.postgres.connection import Server
from server.ingest.postgres.replication import Replication
from server.ingest.upstream import UpstreamError

LSN = st.integers(0, LSN_MAX)
WAL = st.tuples(st.just("w"), LSN, st.binary(min_size=1, max_size=12))
KEEPALIVE = st.tuples(st.just("k"), LSN, st.booleans())
NOTICE = st.tuples(st.just("N"), st.just(0), st.binary(max_size=3))


def in_order(stream: list[tuple[str, int, Any]]) -> list[tuple[str, int, Any]]:
    """The messages with ascending positions, as PostgreSQL sends them."""
    positions = sorted(lsn for _, lsn, _ in stream)
    return [(kind, lsn, rest) for (kind, _, rest), lsn in zip(stream, positions, strict=True)]


STREAM = st.lists(WAL | KEEPALIVE | NOTICE, max_size=20).map(in_order)


class Transport:
    """Keeps what is written, and the protocol that receives."""

    def __init__(self) -> None:
        self.written = b""
        self.protocol: Any = asyncio.Protocol()

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.written += data


def sent(kind: str, lsn: int, rest: Any) -> bytes:
    match kind:
        case "w":
            body = b"w" + struct.pack(">QQQ", 0, lsn, 0) + rest
        case "k":
            body = b"k" + struct.pack(">QQB", lsn, 0, rest)
        case _:
            return kind.encode() + struct.pack(">I", len(rest) + 4) + rest
    return b"d" + struct.pack(">I", len(body) + 4) + body


def opened() -> tuple[Replication, Transport]:
    server, transport = Server.of({"host": "h", "database": "d"}), Transport()
    return Replication(server, None, transport), transport  # type: ignore[arg-type]


def test_a_lost_connection_is_reported_and_can_be_closed(logical: str) -> None:
    """On the server's event loop, which refuses writes to a closed transport."""

    async def main() -> None:
        options = psycopg.conninfo.conninfo_to_dict(logical)
        names = {"host": "host", "port": "port", "user": "user", "database": "dbname"}
        connection = await Replication.open(Server.of({name: str(options[key]) for name, key in names.items()}))
        ((process,),) = await connection.query("SELECT pg_backend_pid()")
        async with await psycopg.AsyncConnection.connect(logical, autocommit=True) as other:
            await other.execute("SELECT pg_terminate_backend(%s)", [process])
        with pytest.raises(UpstreamError, match=r"terminating connection|was closed"):
            await connection.query("SELECT 1")
        with pytest.raises(UpstreamError, match="was closed"):
            await connection.query("SELECT 1")
        connection.close()
        connection.close()

    uvloop.run(main())


@given(STREAM, st.lists(st.integers(1, 40), max_size=20), st.integers(1, 60))
def test_messages_do_not_depend_on_how_their_bytes_are_divided(
    stream: list[tuple[str, int, Any]], sizes: list[int], taken_at_once: int
) -> None:
    async def main() -> None:
        connection, transport = opened()
        data, found, wal_end, keepalive = b"".join(sent(*message) for message in stream), [], 0, 0
        for size in [*sizes, len(data)]:
            piece, data = data[:size], data[size:]
            transport.protocol.data_received(piece)
            while (received := await connection.receive(wait=False)) is not None:
                starts, ends = received.starts.tolist(), received.ends.tolist()
                found += [received.data[start:end] for start, end in zip(starts, ends, strict=True)]
                wal_end, keepalive = max(wal_end, received.wal_end), max(keepalive, received.keepalive)
        assert found == [rest for kind, _, rest in stream if kind == "w"]
        assert wal_end == max((lsn for kind, lsn, _ in stream if kind in "wk"), default=0)
        assert keepalive == max((lsn for kind, lsn, _ in stream if kind == "k"), default=0)
        assert bool(transport.written) == any(kind == "k" and asks for kind, _, asks in stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replication, "TAKE_BYTES", taken_at_once)
        asyncio.run(main())


@pytest.mark.parametrize(
    ("message", "error"),
    [(sent("E", 0, b"C57P01\0Mthe reason\0\0"), "the reason"), (sent("c", 0, b""), "was closed")],
)
async def test_the_end_of_the_stream(message: bytes, error: str) -> None:
    connection, transport = opened()
    transport.protocol.data_received(sent("k", 1, False) + message)
    with pytest.raises(UpstreamError, match=error):
        await connection.receive(wait=True)
