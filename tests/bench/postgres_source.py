"""PostgreSQL as a source, compared with PostgreSQL's own clients: snapshot, following of transactions, and latency.

Snapshots and following are measured in this process, with a coordinator, without sessions and without Spark, which a
source does not use. Latency is measured over the wire, until a subscriber has the row and a progress beyond its time:
from the acknowledgement of a COMMIT in PostgreSQL, and from the sending of its statement. The ratio to pg_recvlogical
is that of the latter, because pg_recvlogical often has a transaction before the acknowledgement.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import statistics
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
import structlog
import uvloop

from tests.bench.servers import Line, Servers, timed
from tests.fix_postgres import PostgresServer, binaries
from tests.server.ingest.postgres.harness import database, definition, running

COMMITS = 300  # of the measurement of latency
PAUSE_S = 0.005  # between two of them
SUSTAINED_PAUSE_S = 0.05
TRANSACTIONS = 10_000
CLIENTS, CLIENT_ROWS, SUSTAINED_S = 8, 100_000, 15
BULK_ROWS = 1_000_000
SETUP = """
CREATE TABLE accounts (id int8 PRIMARY KEY, branch int4 NOT NULL, balance numeric(12, 2) NOT NULL, opened timestamp,
    note text);
INSERT INTO accounts SELECT i, i % 1000, i / 7.0, timestamp '2020-01-01' + i * interval '1 second', 'account ' || i
FROM generate_series(1, {rows}) i;
CREATE TABLE marker (id int4 PRIMARY KEY, note text NOT NULL);
INSERT INTO marker VALUES (1, '');
ANALYZE accounts;
CREATE PUBLICATION pub FOR ALL TABLES
"""


def add_arguments(group: Any) -> None:
    group.add_argument("--snapshot-rows", type=int, default=10_000_000)


def run(servers: Servers, options: argparse.Namespace) -> list[Line]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    postgres = PostgresServer("wal_level=logical\nshared_buffers='512MB'\nmax_wal_size='8GB'\njit=off\nautovacuum=off")
    try:
        return uvloop.run(_measured(servers, postgres.dsn, options.snapshot_rows))
    finally:
        postgres.stop()


async def _measured(servers: Servers, dsn: str, rows: int) -> list[Line]:
    async with database(dsn, "bench") as (own, connection):
        await connection.execute(SETUP.format(rows=rows))
        await connection.execute("SELECT pg_create_logical_replication_slot('reference', 'pgoutput')")
        with tempfile.TemporaryDirectory(prefix="tidewire-bench-") as directory:
            lines = [await _snapshot(Path(directory), own, rows)]
            lines += [
                await _caught_up(
                    Path(directory),
                    own,
                    connection,
                    f"{BULK_ROWS:,} rows updated in one transaction",
                    f"UPDATE accounts SET balance = balance + 1 WHERE id <= {BULK_ROWS}",
                    BULK_ROWS,
                ),
                await _caught_up(
                    Path(directory),
                    own,
                    connection,
                    f"{BULK_ROWS:,} rows inserted in one transaction",
                    f"INSERT INTO accounts SELECT -i, 1, 1, NULL, 'note' FROM generate_series(1, {BULK_ROWS}) i",
                    BULK_ROWS,
                ),
                await _caught_up(
                    Path(directory),
                    own,
                    connection,
                    f"{TRANSACTIONS:,} transactions of one row",
                    f"DO $$ BEGIN FOR i IN 1..{TRANSACTIONS} LOOP "
                    "UPDATE accounts SET balance = balance + 1 WHERE id = i; COMMIT; END LOOP; END $$",
                    TRANSACTIONS,
                ),
            ]
            await connection.execute("SELECT pg_drop_replication_slot('reference')")
            async with _subscriber(servers.tidewire.dsn, own) as ours:
                await _delay(ours, connection, "first")
                lines.append(await _latency(ours, own, connection))
                lines.append(await _sustained(Path(directory), ours, own, connection))
                _tidewire(servers.tidewire.dsn, "DROP SOURCE bench CASCADE")
        return lines


async def _snapshot(directory: Path, dsn: str, rows: int) -> Line:
    copy = [binaries() / "psql", dsn, "-c", "COPY accounts TO STDOUT"]
    theirs = min(
        [timed(lambda: subprocess.run(copy, stdout=subprocess.DEVNULL, check=True)) for _ in range(2)]
    )  # the first one reads the table into the cache
    begun, cpu = perf_counter(), process_time()
    async with running(directory, definition(dsn)) as source:
        await source.until(lambda: source.statistics.offset_committed is not None)
        ours, cpu = perf_counter() - begun, process_time() - cpu
    return Line(
        f"snapshot of {rows:,} rows",
        f"{ours:.1f} s ({cpu:.1f} s of CPU)",
        f"COPY TO STDOUT > /dev/null: {theirs:.1f} s",
        f"{theirs / ours:.2f} x the rate",
        "at least 0.5 x",
    )


async def _caught_up(directory: Path, dsn: str, connection: Any, name: str, sql: str, rows: int) -> Line:
    """The time to follow what happened while the source was not running, compared with pg_recvlogical."""
    await connection.execute(sql)
    end = await connection.fetchval("SELECT pg_current_wal_lsn()::text")
    begun, cpu = perf_counter(), process_time()
    async with running(directory, definition(dsn)) as source:
        await source.reached(connection)
        ours, cpu = perf_counter() - begun, process_time() - cpu
    theirs = await asyncio.to_thread(timed, lambda: _received(dsn, end))
    return Line(
        name,
        f"{rows / ours:,.0f}/s, {rows / cpu:,.0f}/s per core",
        f"pg_recvlogical: {rows / theirs:,.0f}/s",
        f"{theirs / ours:.2f} x the rate",
        "at least 50,000 rows/s per core in large transactions",
    )


def _received(dsn: str, end: str) -> None:
    """Receives everything up to `end` with pg_recvlogical."""
    options = ["-o", "proto_version=1", "-o", "publication_names=pub", "--slot=reference", "--start", f"--endpos={end}"]
    subprocess.run([binaries() / "pg_recvlogical", "-d", dsn, *options, "-f", "/dev/null"], check=True)


class Receiver(Protocol):
    """Receives the changes of the table `marker`."""

    async def until(self, note: str) -> None:
        """Returns when the transaction has arrived that set the column to `note`."""


class _Subscriber:
    """A client that subscribes to `marker`."""

    def __init__(self, stream: AsyncIterator[Any]) -> None:
        self._stream = stream

    async def until(self, note: str) -> None:
        at = None
        async for time, progressed, diff, _, value in self._stream:
            if at is not None and progressed and time > at:
                return
            if not progressed and diff > 0 and value == note:
                at = time


class _Pipe:
    """The output of pg_recvlogical."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._data = b""

    async def until(self, note: str) -> None:
        await self._find(note.encode())
        await self._find(b"\nC")  # COMMIT

    async def _find(self, text: bytes) -> None:
        while text not in self._data:
            self._data = self._data[-len(text) :] + await self._reader.read(1 << 16)
        self._data = self._data.partition(text)[2]


@asynccontextmanager
async def _subscriber(tidewire: str, upstream: str) -> AsyncIterator[_Subscriber]:
    """A subscriber of a source with all tables."""
    url = urlsplit(upstream)
    address = f"HOST '{url.hostname}', PORT {url.port}, USER postgres, DATABASE {url.path[1:]}"
    _tidewire(
        tidewire,
        f"CREATE CONNECTION bench_postgres TO POSTGRES ({address})",
        "CREATE SOURCE bench FROM POSTGRES CONNECTION bench_postgres (PUBLICATION 'pub') FOR ALL TABLES",
    )
    connection = await psycopg.AsyncConnection.connect(tidewire, autocommit=True)
    try:
        yield _Subscriber(connection.cursor().stream("SUBSCRIBE marker WITH (PROGRESS)"))
    finally:
        await connection.close()  # the connection's own `async with` would wait for the end of the stream


def _tidewire(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@asynccontextmanager
async def _pg_recvlogical(dsn: str) -> AsyncIterator[_Pipe]:
    """pg_recvlogical with a new slot."""
    command = [str(binaries() / "pg_recvlogical"), "-d", dsn, "--slot=live"]
    options = ["-o", "proto_version=1", "-o", "publication_names=pub", "--start", "-F", "0", "-f", "-"]
    await _run(*command, "-P", "pgoutput", "--create-slot")
    child = await asyncio.create_subprocess_exec(
        *command, *options, stdout=subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, limit=1 << 24
    )
    assert child.stdout is not None
    try:
        yield _Pipe(child.stdout)
    finally:
        child.terminate()
        await child.communicate()
        await _run(*command, "--drop-slot")


async def _run(*command: str) -> bytes:
    """The output of a program."""
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
    output, _ = await child.communicate()
    assert child.returncode == 0, command
    return output


async def _delay(receiver: Receiver, connection: Any, note: str) -> tuple[float, float]:
    """How long after its acknowledgement, and after its sending, a transaction arrives."""
    sent = perf_counter()
    await connection.execute(f"UPDATE marker SET note = '{note}'")
    acknowledged = perf_counter()
    await receiver.until(note)
    arrived = perf_counter()
    return arrived - acknowledged, arrived - sent


async def _latency(ours: Receiver, dsn: str, connection: Any) -> Line:
    delays = []
    for number in range(COMMITS):
        delays.append(await _delay(ours, connection, f"ours-{number};"))
        await asyncio.sleep(PAUSE_S)
    theirs = []
    async with _pg_recvlogical(dsn) as pipe:
        for number in range(COMMITS):
            theirs.append(await _delay(pipe, connection, f"theirs-{number};"))
            await asyncio.sleep(PAUSE_S)
    acknowledged, sent = zip(*delays, strict=True)
    their_acknowledged, their_sent = zip(*theirs, strict=True)
    return Line(
        "UPDATE in PostgreSQL to a subscriber with its progress, p50 (after the acknowledgement)",
        _shown(sent, acknowledged),
        f"pg_recvlogical: {_shown(their_sent, their_acknowledged)}",
        f"{statistics.median(sent) / statistics.median(their_sent):.1f} x",
        "at most 3 x",
    )


def _shown(sent: Sequence[float], acknowledged: Sequence[float]) -> str:
    p50, later = (statistics.median(times) * 1_000 for times in (sent, acknowledged))
    return f"{p50:.2f} ms (p99 {_p99(sent):.1f}; {later:.2f} ms)"


async def _sustained(directory: Path, ours: Receiver, dsn: str, connection: Any) -> Line:
    """The delay of marked transactions while pgbench works, also of pg_recvlogical, which receives the same."""
    script = directory / "script.sql"
    script.write_text(f"\\set id random(1, {CLIENT_ROWS})\nUPDATE accounts SET balance = balance + 1 WHERE id = :id;\n")
    await connection.execute("UPDATE accounts SET balance = 0 WHERE id = 1")
    await _delay(ours, connection, "arranged")
    command = [str(binaries() / "pgbench"), "-n", "-f", str(script), "-c", str(CLIENTS), "-T", str(SUSTAINED_S), dsn]
    mine, theirs = [], []
    async with _pg_recvlogical(dsn) as pipe:
        output = asyncio.create_task(_run(*command))
        while not output.done():
            note = f"mark-{len(mine)};"
            await connection.execute(f"UPDATE marker SET note = '{note}'")
            begun = perf_counter()
            delays = await asyncio.gather(_until(ours, note, begun), _until(pipe, note, begun))
            mine.append(delays[0])
            theirs.append(delays[1])
            await asyncio.sleep(SUSTAINED_PAUSE_S)
        rate = re.search(rb"tps = ([\d.]+)", await output)
    assert rate is not None
    return Line(
        f"pgbench with {CLIENTS} clients at {float(rate[1]):,.0f} updates/s followed, freshness p50",
        f"{statistics.median(mine) * 1_000:.0f} ms (p99 {_p99(mine):.0f})",
        f"pg_recvlogical: {statistics.median(theirs) * 1_000:.0f} ms (p99 {_p99(theirs):.0f})",
        "",
        "p99 below 1 s",
    )


async def _until(receiver: Receiver, note: str, begun: float) -> float:
    await receiver.until(note)
    return perf_counter() - begun


def _p99(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=100)[98] * 1_000
