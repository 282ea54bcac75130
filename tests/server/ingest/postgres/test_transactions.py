"""Streams of changes that PostgreSQL does not send are refused, also if the connection divides them in any way."""

from __future__ import annotations

import struct

import pytest

from protocol.pgoutput import BadMessage
from server.ingest.postgres.transactions import Transactions
from tests.server.ingest.postgres.test_replication import opened, sent

START = 50  # everything before was received
ROW = b"I" + struct.pack(">IcH", 7, b"N", 0)
RELATION = b"R" + struct.pack(">I", 7) + b"public\0t\0d" + bytes(2)


def begin(lsn: int) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, 0, 7)


def commit(lsn: int, end: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, end, 0)


def taken(*messages: bytes, at_once: bool) -> Transactions:
    """The transactions after all messages were taken: together, or one by one."""
    connection, transport = opened()
    found = Transactions(START)
    data = [sent("w", 0, message) for message in messages]
    for piece in [b"".join(data)] if at_once else data:
        transport.protocol.data_received(piece)
        received = connection._take()
        assert received is not None
        found.add(received)
        found.everything()
    return found


@pytest.mark.parametrize("at_once", [True, False])
def test_transactions_follow_each_other(at_once: bool) -> None:
    found = taken(begin(50), RELATION, ROW, commit(50, 58), b"M", begin(58), ROW, commit(58, 60), at_once=at_once)
    assert (found.lsn, found.is_inside) == (60, False)
    found = taken(begin(60), ROW, commit(60, 61), begin(70), ROW, at_once=at_once)
    assert (found.lsn, found.is_inside, found.next_lsn()) == (61, True, 70)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([commit(60, 61)], "a transaction begins within another one, or ends without a beginning"),
        (
            [begin(60), begin(60), commit(60, 61)],
            "a transaction begins within another one, or ends without a beginning",
        ),
        ([begin(60), commit(60, 61), commit(60, 61)], "ends without a beginning"),
        ([ROW], "a change outside of a transaction"),
        ([RELATION], "a change outside of a transaction"),
        ([begin(60), commit(60, 61), b"T" + bytes(5), begin(62)], "a change outside of a transaction"),
        ([begin(49), commit(49, 60)], "a transaction at 0/31 follows what ended at 0/32"),
        ([begin(60), commit(60, 70), begin(69), commit(69, 80)], "a transaction at 0/45 follows what ended at 0/46"),
        ([begin(60), ROW, commit(61, 62)], "a transaction ends at another position than its beginning says"),
        ([begin(60), commit(60, 60)], "a transaction ends before its commit"),
        ([begin(1 << 63), commit(1 << 63, (1 << 63) + 1)], "the log sequence number 80000000/0 is too large"),
        ([begin(60), commit(60, 1 << 63)], "the log sequence number 80000000/0 is too large"),
        ([begin(60)[:-1]], "does not have 21 bytes"),
        ([begin(60), commit(60, 61) + b"\0"], "does not have 26 bytes"),
        ([begin(60), b"?"], "unknown message"),
    ],
)
def test_other_streams_are_refused(messages: list[bytes], reason: str, at_once: bool) -> None:
    with pytest.raises(BadMessage, match=reason):
        taken(*messages, at_once=at_once)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"d" + struct.pack(">I", 3) + bytes(20), "the length of a message is less than 4"),
        (sent("w", 0, b""), "WAL data without a message"),
        (b"d" + struct.pack(">I", 14) + b"w" + bytes(9), "WAL data without a message"),
        (b"d" + struct.pack(">I", 9) + b"k" + bytes(4), "a keepalive does not have 18 bytes"),
        (sent("k", (1 << 64) - 1, False), "the log sequence number FFFFFFFF/FFFFFFFF is too large"),
    ],
)
async def test_malformed_messages_of_the_connection_are_refused(data: bytes, reason: str) -> None:
    connection, transport = opened()
    transport.protocol.data_received(data)
    with pytest.raises(BadMessage, match=reason):
        await connection.receive(wait=True)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"D" + struct.pack(">IH", 6, 3), "malformed DataRow"),
        (b"N" + struct.pack(">I", 4) + b"N" + struct.pack(">I", 5 << 20), "has more than 4194304 bytes"),
        ((b"N" + struct.pack(">I", 4)) * 1_000_000, "has more than 4194304 bytes"),
    ],
)
async def test_answers_to_commands_are_limited(answer: bytes, reason: str) -> None:
    connection, transport = opened()
    transport.pause_reading = transport.resume_reading = lambda: None  # type: ignore[attr-defined]
    transport.protocol.data_received(answer)
    with pytest.raises(BadMessage, match=reason):
        await connection.query("IDENTIFY_SYSTEM")
