"""A PostgreSQL that is connected through a proxy, which answers START_REPLICATION itself, and lies.

A lie ends in a status of the source that reads it, and nothing of it is committed. Afterwards the source has the rows
of its table, each once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.pgoutput.messages import Relation, RelationColumn, ReplicaIdentity
from server.ingest.postgres import upstream
from tests.attacks.clients import PAUSE_MAX_S
from tests.attacks.liar import Liar, Say
from tests.fix_postgres import PostgresServer
from tests.polling import HANG_S
from tests.protocol.pgoutput.plain import Change, relation_message, written
from tests.server.ingest.postgres.harness import Source, database, definition, running

BUSY_MAX_S = 2 * PAUSE_MAX_S  # the garbage of all earlier tests is collected in this process

pytestmark = pytest.mark.attacks

MIB = 1024 * 1024
FAR = 1 << 40  # a position after all that the real server has


@pytest.fixture(scope="module")
def logical() -> Iterator[PostgresServer]:
    server = PostgresServer("wal_level=logical")
    yield server
    server.stop()


class Attack:
    """A source that reads the table `t (id int4 PRIMARY KEY, v text)` through the liar."""

    def __init__(self, source: Source, liar: Liar, sql: Any, oid: int) -> None:
        self.source, self.liar, self.sql, self.oid = source, liar, sql, oid

    async def status(self, status: str, message: str) -> None:
        """Waits for a status with a message."""
        found = self.source.ingestion
        async with asyncio.timeout(HANG_S):
            while found.status != status or message not in str(found.error):
                assert found.status != "failed", found.error
                await asyncio.sleep(0.005)

    async def tell(self, lie: Callable[[Say], None], message: str) -> None:
        """Tells a lie until the source has the status, then the truth until it has the rows of the table."""
        self.liar.lie = lie
        self.liar.cut()
        await self.status("stalled", message)
        self.liar.lie = None
        self.liar.cut()
        await self.sql.execute("INSERT INTO t SELECT count(*), 'x' FROM t")
        async with asyncio.timeout(HANG_S):
            await self.source.reached(self.sql)
        await self.source.same(self.sql, "t")
        assert not self.source.statistics.errors


@pytest.fixture
async def attack(logical: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Attack]:
    monkeypatch.setattr(upstream, "IDLE_LSN_S", 0.0)
    async with database(logical.dsn, "lies") as (dsn, sql):
        await sql.execute("CREATE TABLE t (id int4 PRIMARY KEY, v text); CREATE PUBLICATION pub FOR ALL TABLES")
        liar = Liar(logical.port)
        try:
            found = definition(dsn)
            through = replace(found, connection={**found.connection, "port": str(liar.port)})
            async with _prompt(), running(tmp_path, through) as source:
                await source.reached(sql)
                yield Attack(source, liar, sql, await sql.fetchval("SELECT 't'::regclass::oid::int8"))
        finally:
            liar.close()


@asynccontextmanager
async def _prompt() -> AsyncIterator[None]:
    """Fails if the event loop was busy for BUSY_MAX_S of its processor time at once."""
    worst = 0.0

    async def probe() -> None:
        nonlocal worst
        while True:
            used = time.thread_time()
            await asyncio.sleep(0.001)
            worst = max(worst, time.thread_time() - used)

    probing = asyncio.create_task(probe())
    try:
        yield
    finally:
        probing.cancel()
    assert worst < BUSY_MAX_S, f"the event loop was busy for {worst:.1f} s"


def copied(message: bytes) -> bytes:
    return b"d" + struct.pack(">I", len(message) + 4) + message


def wal(*messages: bytes) -> bytes:
    return b"".join(copied(b"w" + struct.pack(">QQQ", FAR, FAR, 0) + message) for message in messages)


def keepalive(lsn: int, asks: bool = False) -> bytes:
    return copied(b"k" + struct.pack(">QQB", lsn, 0, asks))


def begin(lsn: int = FAR) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, 0, 7)


def commit(lsn: int = FAR, end: int = FAR + 8) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, end, 0)


def described(oid: int, width: int = 2) -> bytes:
    types = [RelationColumn("id", 23, -1, True), RelationColumn("v", 25, -1, False)]
    others = [RelationColumn(f"c{number}", 25, -1, False) for number in range(width)]
    return relation_message(
        Relation(oid, "public", "t", ReplicaIdentity.DEFAULT, tuple((types + others)[:width])),
    )


def inserted(oid: int, *values: str) -> bytes:
    return written(Change("I", oid, None, values))


async def test_lies_in_the_stream_of_changes(attack: Attack) -> None:
    oid, row = attack.oid, inserted(attack.oid, "77", "lie")
    protocol = "the replication stream does not follow PostgreSQL's protocol: "
    lies = {
        wal(begin(), b"?", commit()): protocol + "unknown message",
        wal(described(oid), row, commit()): protocol + "a transaction begins within another one, or ends without",
        wal(described(oid), row, begin(), commit()): protocol + "a change outside of a transaction",
        wal(begin(1), described(oid), row, commit(1, 2)): protocol + "a transaction at 0/1 follows what ended at ",
        wal(begin(), row, described(oid), commit()): f"changes of relation {oid}, which was not described",
        wal(begin(), described(oid), inserted(oid, "77"), commit()): protocol + "a tuple does not have 2 columns",
        wal(begin(), described(oid, 60_000), commit()): f"relation {oid} has 60000 columns, more than 1600",
        b"d" + struct.pack(">I", 2**32 - 1) + bytes(100): "a message has more than 1073741824 bytes",
        keepalive(2**64 - 1): "the log sequence number FFFFFFFF/FFFFFFFF is too large",
        random.Random(1).randbytes(1000): protocol,
    }
    for lie, message in lies.items():
        await attack.tell(lambda say, lie=lie: say(lie), message)  # type: ignore[misc]


async def test_lengths_that_are_not_true_take_no_memory(attack: Attack) -> None:
    """Each value says that it has the size of everything that was received: together more than a gigabyte."""
    oid = attack.oid
    text = wal(inserted(oid, "1", "x" * 10_000))
    count = 6 * MIB // len(text)
    size = count * len(text) // 2
    row = inserted(oid, "1", "x" * 10_000)
    claimed = row[:-10_004] + struct.pack(">I", size) + row[-10_000:]
    lie = wal(begin(), described(oid), *[claimed] * (count // 2), *[row] * (count // 2), commit())
    with bounded_growth(256 * MIB):
        await attack.tell(lambda say: say(lie), "a value ends after its message")


async def test_messages_that_cost_more_than_their_size(attack: Attack) -> None:
    """Descriptions of relations that nobody reads and of wide ones, and a hundred thousand messages without changes."""
    oid = attack.oid
    others = [described(1 << 20 | number, 30) for number in range(3_000)]
    wide = [described(oid + 1 + number % 2, 1_600) for number in range(100)]
    types = [b"Y" + struct.pack(">I", number) + b"a\0b\0" for number in range(100_000)]
    for messages in (others, wide, types):
        lie = wal(begin(), *messages, b"?", commit())
        await attack.tell(lambda say, lie=lie: say(lie), "unknown message")  # type: ignore[misc]


async def test_keepalives_without_end(attack: Attack) -> None:
    """The liar asks for answers and does not read them."""

    def endless(say: Say) -> None:
        while True:
            say(keepalive(0, asks=True))

    attack.liar.lie = endless
    attack.liar.cut()
    with bounded_growth(32 * MIB):
        await asyncio.sleep(1)
    attack.liar.lie = None
    attack.liar.cut()


async def test_silence(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is connected and sends nothing more, and one that does not answer commands."""
    monkeypatch.setattr(upstream, "STATUS_S", 0.05)
    monkeypatch.setattr(upstream, "SILENT_UPDATES", 8)
    monkeypatch.setattr(upstream, "ANSWER_S", 1.0)
    await attack.tell(lambda say: None, "does not answer")
    attack.liar.hears_commands = False
    attack.liar.cut()
    await attack.status("stalled", "was closed")
    await attack.status("stalled", "does not answer")
    attack.liar.hears_commands = True
    await attack.status("running", "")


@contextlib.contextmanager
def bounded_growth(bytes_max: int) -> Iterator[None]:
    """Fails if the resident memory of this process grows by more."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = _peak()
    yield
    assert _peak() - before < bytes_max, (_peak() - before) / MIB


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError
