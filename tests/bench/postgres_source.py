"""PostgreSQL as a source, beside PostgreSQL's own clients: snapshot, following of transactions, and latency.

The source runs in this process with a coordinator, without sessions and without Spark, which it does not use.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import asyncpg
import structlog
import uvloop

from tests.bench.servers import Line, Servers, timed
from tests.fix_postgres import PostgresServer, binaries
from tests.server.ingest.postgres.harness import Source, database, definition, running

COMMITS = 300  # of the measurement of latency
TRANSACTIONS = 10_000
CLIENTS, CLIENT_ROWS, SUSTAINED_S = 8, 100_000, 15
BULK_ROWS = 1_000_000
SETUP = """
CREATE TABLE accounts (id int8 PRIMARY KEY, branch int4 NOT NULL, balance numeric(12, 2) NOT NULL, opened timestamp,
    note text);
INSERT INTO accounts SELECT i, i % 1000, i / 7.0, timestamp '2020-01-01' + i * interval '1 second', 'account ' || i
FROM generate_series(1, {rows}) i;
ANALYZE accounts;
CREATE PUBLICATION pub FOR ALL TABLES
"""


def add_arguments(group: Any) -> None:
    group.add_argument("--snapshot-rows", type=int, default=10_000_000)


def run(servers: Servers, options: argparse.Namespace) -> list[Line]:
    del servers
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    postgres = PostgresServer("wal_level=logical\nshared_buffers='512MB'\nmax_wal_size='8GB'\njit=off\nautovacuum=off")
    try:
        return uvloop.run(_measured(postgres.dsn, options.snapshot_rows))
    finally:
        postgres.stop()


async def _measured(dsn: str, rows: int) -> list[Line]:
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
            lines.append(await _latency(Path(directory), own, connection))
            lines.append(await _sustained(Path(directory), own, connection))
        return lines


async def _snapshot(directory: Path, dsn: str, rows: int) -> Line:
    copy = [binaries() / "psql", dsn, "-c", "COPY accounts TO STDOUT"]
    theirs = min(
        [timed(lambda: subprocess.run(copy, stdout=subprocess.DEVNULL, check=True)) for _ in range(2)]
    )  # the first one reads the table into the cache
    begun, cpu = perf_counter(), process_time()
    async with running(directory, definition(dsn)) as source:
        await _until(source, lambda: source.statistics.offset_committed is not None)
        ours, cpu = perf_counter() - begun, process_time() - cpu
    return Line(
        f"snapshot of {rows:,} rows",
        f"{ours:.1f} s ({cpu:.1f} s of CPU)",
        f"COPY TO STDOUT > /dev/null: {theirs:.1f} s",
        f"{theirs / ours:.2f} x the rate",
        "at least 0.5 x",
    )


async def _caught_up(directory: Path, dsn: str, connection: Any, name: str, sql: str, rows: int) -> Line:
    """The time to follow what happened while the source was not running, beside pg_recvlogical."""
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


async def _latency(directory: Path, dsn: str, connection: Any) -> Line:
    async with running(directory, definition(dsn)) as source:
        await source.reached(connection)
        await connection.execute("UPDATE accounts SET balance = 0 WHERE id = 1")  # arranges the rows
        await source.reached(connection)
        ours = []
        for _ in range(COMMITS):
            seen = len(source.times("accounts"))
            await connection.execute("UPDATE accounts SET balance = balance + 1 WHERE id = 1")
            begun = perf_counter()
            await _until(source, lambda seen=seen: len(source.times("accounts")) != seen)  # type: ignore[misc]
            ours.append(perf_counter() - begun)
    theirs = await asyncio.to_thread(_latencies, dsn)
    mine, other = (statistics.median(times) * 1_000 for times in (ours, theirs))
    return Line(
        "COMMIT in PostgreSQL to rows at a closed time, p50",
        f"{mine:.2f} ms (p99 {_p99(ours):.1f})",
        f"pg_recvlogical: {other:.2f} ms (p99 {_p99(theirs):.1f})",
        f"{mine / other:.1f} x",
        "at most 3 x",
    )


async def _sustained(directory: Path, dsn: str, connection: Any) -> Line:
    """How long after a moment of pgbench's work the source has committed everything that preceded it."""
    script = directory / "script.sql"
    script.write_text(f"\\set id random(1, {CLIENT_ROWS})\nUPDATE accounts SET balance = balance + 1 WHERE id = :id;\n")
    command = [binaries() / "pgbench", "-n", "-f", script, "-c", str(CLIENTS), "-T", str(SUSTAINED_S), dsn]
    async with running(directory, definition(dsn)) as source:
        await connection.execute("UPDATE accounts SET balance = 0 WHERE id = 1")  # arranges the rows
        await source.reached(connection)
        before, times = source.ingestion.rows, []
        quiet = asyncio.subprocess.DEVNULL
        bench = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
        while bench.returncode is None:
            begun = perf_counter()
            await source.reached(connection)
            times.append(perf_counter() - begun)
            await asyncio.sleep(0.02)
        rate = (source.ingestion.rows - before) / 2 / SUSTAINED_S
    return Line(
        f"pgbench with {CLIENTS} clients followed, freshness p50",
        f"{statistics.median(times) * 1_000:.0f} ms (p99 {_p99(times):.0f}) at {rate:,.0f} updates/s",
        "",
        "",
        "p99 below 1 s",
    )


def _latencies(dsn: str) -> list[float]:
    return asyncio.run(_latencies_of_pg_recvlogical(dsn))


async def _latencies_of_pg_recvlogical(dsn: str) -> list[float]:
    """From the acknowledgement of each commit to the arrival of its last byte."""
    connection = await asyncpg.connect(dsn)
    end = await connection.fetchval("SELECT pg_current_wal_lsn()::text")
    await asyncio.to_thread(_received, dsn, end)
    with _streaming(dsn) as child:
        assert child.stdout is not None
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), child.stdout)
        times = []
        for _ in range(COMMITS):
            await connection.execute("UPDATE accounts SET balance = balance + 1 WHERE id = 1")
            begun = perf_counter()
            data = b""
            while b"\nC" not in data:
                data += await reader.read(1 << 16)
            times.append(perf_counter() - begun)
            await asyncio.sleep(0.002)
    await connection.close()
    return times


@contextmanager
def _streaming(dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    options = ["-o", "proto_version=1", "-o", "publication_names=pub", "--slot=reference", "--start", "-F", "0"]
    with subprocess.Popen(
        [binaries() / "pg_recvlogical", "-d", dsn, *options, "-f", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        try:
            yield child
        finally:
            child.terminate()


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98] * 1_000


async def _until(source: Source, condition: Any) -> None:
    await source.until(condition)
