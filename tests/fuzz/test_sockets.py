"""Damaged conversations over sockets of the SQL port. `tests/attacks/` has random bytes and single cases."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter
from random import Random

import pytest

from protocol.pgwire.messages.copying import CopyData, CopyDone, CopyFail
from protocol.pgwire.messages.frontend import Bind, Close, Describe, Execute, Flush, Parse, Query, Sync, Terminate
from protocol.pgwire.messages.startup import CancelRequest, SSLRequest, StartupMessage
from tests.fuzz.mutations import portion, rearranged, seeded
from tests.fuzz.servers import FuzzedServer, read_until
from tests.fuzz.test_wire import broken

pytestmark = pytest.mark.fuzz

STARTUP = StartupMessage({"user": "materialize", "database": "materialize", "application_name": "fuzz"}).serialize()
SCRIPTS = [
    [message.serialize() for message in messages]
    for messages in (
        (Query("SELECT 1; SELECT 'é', k FROM t WHERE k = 1"), Query("SHOW timezone"), Query("")),
        (Query("BEGIN"), Query("INSERT INTO t VALUES (3, 'b')"), Query("SELECT * FROM t"), Query("ROLLBACK")),
        (
            Parse("s", "SELECT $1::int + 1, $2::text", (23, 25)),
            Describe("S", "s"),
            Bind("", "s", (1, 0), (b"\0\0\0\x07", b"text"), (1,)),
            *(Execute("", 0), Sync(), Bind("", "s", (), (b"7", None), ()), Execute("", 0), Close("S", "s"), Sync()),
        ),
        (
            *(Parse("", "INSERT INTO t VALUES ($1, $2)", ()), Describe("S", "")),
            *(Bind("", "", (), (b"5", b"x"), ()), Execute("", 0), Bind("", "", (), (b"6", None), ()), Execute("", 0)),
            *(Flush(), Sync(), Query("DELETE FROM t WHERE k = 5")),
        ),
        (
            *(Query("BEGIN"), Parse("", "SELECT k FROM t", ()), Bind("p", "", (), (), ())),
            *(Describe("P", "p"), Execute("p", 1), Execute("p", 10), Close("P", "p"), Sync(), Query("COMMIT")),
        ),
        (
            Query("COPY t FROM STDIN"),
            CopyData(b"1\t2\n3"),
            CopyData(b"\t\\N\n"),
            CopyDone(),
            Query("COPY t TO STDOUT"),
            Query("TRUNCATE t"),
        ),
        (Query("COPY t FROM STDIN (FORMAT csv)"), CopyData(b'1,"a\n"\n'), CopyFail("stopped"), Sync()),
        (
            *(Query("COPY t FROM STDIN (FORMAT binary)"), CopyData(b"PGCOPY\n\xff\r\n\0" + bytes(8))),
            *(CopyData(b"\0\x02\0\0\0\4\0\0\0\1\0\0\0\1a"), CopyData(b"\xff\xff"), CopyDone()),
        ),
        (
            Query("BEGIN; DECLARE c CURSOR FOR SELECT * FROM t"),
            Query("FETCH 1 c; MOVE ALL c"),
            Query("CLOSE c; COMMIT"),
        ),
        (Query("COPY (SUBSCRIBE t WITH (PROGRESS)) TO STDOUT"),),
        (Query("SELECT sum(k) FROM t"),),  # waits for Spark
    )
]
SILENCE_S = 0.1  # most statements take a few milliseconds
COMMANDS = [message for script in SCRIPTS[:-2] for message in script]


def conversation(random: Random) -> bytes:
    """A few scripts after a startup, of which some messages are damaged, missing, repeated or exchanged."""
    found = [STARTUP]
    if random.random() < 0.1:
        found.insert(0, random.choice((SSLRequest(), CancelRequest(1, 2))).serialize())
    for _ in range(random.choice((1, 1, 2, 3))):
        found += random.choice(SCRIPTS if random.random() < 0.2 else SCRIPTS[:-2])
    if random.random() < 0.5:
        found = rearranged(found, COMMANDS, random)
    damages = random.choice((0, 1, 2, 4))
    found = [broken(message, random) if random.random() * len(found) < damages else message for message in found]
    return b"".join(found + [Terminate().serialize()] * (random.random() < 0.5))


async def attack(port: int, data: bytes) -> bytes:
    """Sends the bytes, and half-closes the connection when the server is silent. The server then closes it, too."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        seen, ended = await read_until(reader, silence_s=SILENCE_S, whole_s=2)
        if not ended:
            with contextlib.suppress(OSError):
                writer.write_eof()
            rest, ended = await read_until(reader, silence_s=10, whole_s=20)
            seen += rest
        assert ended, f"the connection has not ended after {seen[-200:]!r}"
        return seen
    finally:
        writer.transport.abort()


def test_damaged_conversations(fuzzed: FuzzedServer) -> None:
    seen: Counter[str] = Counter()

    def check(answer: bytes) -> None:
        """The messages are whole ones, and no error is internal."""
        at = len(answer) - len(answer.lstrip(b"N")) if answer[:1] == b"N" and answer[1:2] in b"NRE" else 0
        while at < len(answer):
            code, length = answer[at : at + 1], *struct.unpack_from(">i", answer, at + 1)
            body = answer[at + 5 : at + 1 + length]
            assert len(body) == length - 4, answer[at:]
            if code == b"E":
                state = body[body.index(b"\0C") + 2 :][:5].decode()
                seen[state] += 1
                assert not state.startswith("XX"), body
            else:
                seen[code.decode()] += 1
            at += 1 + length

    random = seeded("sockets")
    count = portion(4_000)
    fuzzed.run((conversation(random) for _ in range(count)), fuzzed.process.port, attack, check)
    print(seen)
    if count >= 1_000:
        assert {*"RZTDC123tnsGHdc", "08P01", "42601"} <= set(seen), seen
