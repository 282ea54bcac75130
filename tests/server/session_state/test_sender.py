"""Rows are written together with the messages around them, and in chunks if they are many."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from protocol.pgwire.connection import Connection
from protocol.pgwire.messages.backend import CommandComplete
from server.frontend.client import Client
from server.session_state.sender import QUEUED_BYTES, Sender
from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine


class Socket:
    """A transport that records what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    async def drained(self) -> None:
        pass


def rows(count: int, text: str = "x") -> pa.Table:
    return pa.table({"a": [text] * count})


def encode(table: pa.Table) -> bytes:
    return "".join(table.column(0).to_pylist()).encode()


def opened() -> tuple[Sender, Socket]:
    socket = Socket()
    return Sender(Connection(), socket), socket  # type: ignore[arg-type]


async def test_few_rows_wait_for_the_messages_after_them() -> None:
    sender, socket = opened()
    await sender.write_table(rows(3), encode)
    await sender.write_table(rows(0), encode)
    assert socket.writes == []
    sender.connection.send(CommandComplete("SELECT 3"))
    sender.flush()
    assert socket.writes == [b"xxx" + CommandComplete("SELECT 3").serialize()]


async def test_queued_rows_are_bounded() -> None:
    sender, socket = opened()
    text, count, written = "x" * 1_000, 100, 0
    for number in range(1, count + 1):
        await sender.write_table(rows(1, text), encode)
        written = sum(map(len, socket.writes))
        assert number * len(text) - written <= QUEUED_BYTES
    assert len(socket.writes) <= 2 * count * len(text) / QUEUED_BYTES
    await sender.write_table(rows(1, text * 20), encode)
    assert sum(map(len, socket.writes)) == (count + 20) * len(text)


async def test_chunks_before_the_last_one_are_written() -> None:
    sender, socket = opened()
    sender.connection.send_encoded(b"description")
    await sender.write_table(rows(20_001), encode)
    sender.flush()
    assert socket.writes[0] == b"description"
    assert b"".join(socket.writes[1:]) == b"x" * 20_001
    assert all(len(data) <= 8_192 for data in socket.writes[1:])


def test_the_answer_to_a_small_query_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = Client.write

    def recorded(self: Client, data: bytes) -> None:
        written.append(len(data))
        write(self, data)

    monkeypatch.setattr(Client, "write", recorded)
    query = "SELECT typname FROM pg_type LIMIT 3"
    server = ServerThread(tmp_path, PassingEngine())
    try:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            for prepare, writes in ((False, 1), (True, 2), (True, 1)):  # the first Parse is sent alone
                written.clear()
                assert len(connection.execute(query, prepare=prepare).fetchall()) == 3
                assert len(written) == writes
            written.clear()
            with connection.cursor().copy(f"COPY ({query}) TO STDOUT") as copy:
                assert len(list(copy.rows())) == 3
            assert len(written) == 1
    finally:
        server.stop()
