"""Servers that do not follow PostgreSQL's protocol during the login. asyncpg alone would end the process."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct

import pytest

from server.ingest.postgres.connection import Server
from server.ingest.postgres.protocol_guard import MESSAGE_BYTES_MAX
from server.ingest.upstream import UpstreamError
from tests.polling import HANG_S


def message(code: bytes, body: bytes = b"") -> bytes:
    return code + struct.pack(">i", 4 + len(body)) + body


def authentication(kind: int, body: bytes = b"") -> bytes:
    return message(b"R", struct.pack(">i", kind) + body)


SASL = authentication(10, b"SCRAM-SHA-256\0\0")
OK = authentication(0) + message(b"K", bytes(8)) + message(b"Z", b"I")
ANSWERS = {
    "continue first": authentication(11, b"r=1,s=eA==,i=1"),
    "final first": authentication(12, b"v=eA=="),
    "final without continue": SASL + authentication(12, b"v=eA=="),
    "continue twice": SASL + 2 * authentication(11, b"r=1,s=eA==,i=1"),
    "continue after the login": authentication(0) + authentication(11, b"r=1,s=eA==,i=1"),
    "no version": OK,
    "no login": message(b"Z"),
    "too long": b"S" + struct.pack(">i", MESSAGE_BYTES_MAX + 1),
    "too short": b"R" + struct.pack(">i", 3),
    "truncated": authentication(5),
    "random": random.Random(1).randbytes(10_000),
}


async def outcome(answer: bytes, *, pieces: int) -> str:
    """The message of the error with which a connection fails."""

    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(1_000)
            for at in range(0, len(answer), pieces):
                writer.write(answer[at : at + pieces])
                await asyncio.sleep(0)
            await reader.read(1_000)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        with pytest.raises(UpstreamError) as caught:
            await asyncio.wait_for(Server("127.0.0.1", port, "d", "u", "p", "disable").connect(), HANG_S)
        await asyncio.wait_for(ended.wait(), HANG_S)
        return caught.value.message
    finally:
        listener.close()


@pytest.mark.parametrize("pieces", [1_000_000, 3])
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_login_that_does_not_follow_the_protocol_fails(name: str, pieces: int) -> None:
    assert "could not connect to PostgreSQL" in await outcome(ANSWERS[name], pieces=pieces)
