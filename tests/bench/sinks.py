"""Sinks into PostgreSQL, compared with COPY and UPDATE there, and sinks into Kafka, compared with produce().

Kafka topics are on librdkafka's mock brokers, which write nothing to disk. Bulk rates are measured in this process,
with a coordinator, without sessions and without Spark, which a sink does not use. Freshness is measured over the wire:
from the acknowledgement of an INSERT until a client of PostgreSQL sees the row.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import asyncpg
import confluent_kafka
import numpy as np
import psycopg
import pyarrow as pa
import uvloop

from catalog import updates
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.connections import Connection
from catalog.objects.sinks import Sink
from catalog.objects.tables import Table
from catalog.source_definition import Encoding, Envelope, Format
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.payloads import prepare_payloads
from server.egress.downstream import Written
from server.egress.sinks import Sinks
from tests.bench.servers import Line, Servers
from tests.fix_server import server_without_spark
from tests.kafka.mock_cluster import MockCluster
from tests.kafka.registry import RegistryThread
from tests.kafka.sinks import PROGRESS
from tests.server.egress.child import running
from tests.server.egress.postgres.child import SCHEMA

ROWS = 2_000_000
UPDATED = 500_000
COMMITS, COMMIT_S = 1_500, 0.01
ID = ObjectId("u12")
COLUMNS = (
    Column("id", "int8", nullable=False),
    Column("branch", "int4", nullable=False),
    Column("balance", "numeric(12,2)"),
    Column("opened", "timestamp"),
    Column("note", "text"),
)
TABLE = Table(ObjectId("u10"), SCHEMA, "t", COLUMNS, retain_ms=1)
DEFINED = "id int8 PRIMARY KEY, branch int4 NOT NULL, balance numeric(12, 2), opened timestamp, note text"


def run(servers: Servers) -> list[Line]:
    port = servers.postgres.port
    with tempfile.TemporaryDirectory(prefix="tidewire-bench-") as directory:
        lines = uvloop.run(_bulk(Path(directory) / "bulk", servers.postgres.dsn, port))
        lines += _topics(Path(directory))
        server = server_without_spark(Path(directory) / "data")
        try:
            lines.append(_freshness(server.dsn, servers.postgres.dsn, port))
        finally:
            server.stop()
    return lines


async def _bulk(directory: Path, dsn: str, port: int) -> list[Line]:
    target = await asyncpg.connect(dsn)
    coordinator, sinks = running(directory)
    await coordinator.start()
    sinks.start()
    rows = _rows(0)
    await _define(coordinator, TABLE)
    await _commit(coordinator, rows)
    begun, cpu = perf_counter(), process_time()
    await _define(coordinator, *_sink(port))
    await _reached(coordinator, sinks)
    ours, cpu = perf_counter() - begun, process_time() - cpu
    theirs = await _copied(target, rows)
    lines = [
        Line(
            f"a new sink from {ROWS:,} rows",
            f"{ROWS / ours:,.0f} rows/s, {ROWS / cpu:,.0f}/s per core",
            f"COPY (FORMAT binary): {ROWS / theirs:,.0f} rows/s",
            f"{theirs / ours:.2f} x the rate",
            "at least 100,000 rows/s",
        )
    ]
    changes = pa.concat_tables(
        [updates.with_diff(rows.slice(0, UPDATED), -1), updates.with_diff(_rows(1).slice(0, UPDATED), 1)]
    )
    begun, cpu = perf_counter(), process_time()
    await _commit(coordinator, changes)
    await _reached(coordinator, sinks)
    ours, cpu = perf_counter() - begun, process_time() - cpu
    begun = perf_counter()
    await target.execute(f"UPDATE plain SET balance = balance + 1 WHERE id < {UPDATED}")
    theirs = perf_counter() - begun
    lines.append(
        Line(
            f"{UPDATED:,} rows updated at one time",
            f"{UPDATED / ours:,.0f} rows/s, {UPDATED / cpu:,.0f}/s per core",
            f"UPDATE there: {UPDATED / theirs:,.0f} rows/s",
            f"{theirs / ours:.2f} x the rate",
            "",
        )
    )
    await sinks.close()
    await coordinator.close()
    await target.close()
    return lines


def _topics(directory: Path) -> list[Line]:
    lines = []
    with MockCluster() as kafka, RegistryThread() as registry:
        kafka.create_topic(PROGRESS)
        for envelope in (Envelope.UPSERT, Envelope.DEBEZIUM, Envelope.MATERIALIZE):
            kafka.create_topic(envelope)
            work = _topic(directory / envelope, kafka.address, registry.url, envelope)
            (ours, cpu), written = uvloop.run(work)
            baseline = ""
            ratio = ""
            if envelope is Envelope.UPSERT:
                theirs = _produced(kafka, written.messages, written.bytes // written.messages)
                baseline, ratio = f"produce() alone: {ROWS / theirs:,.0f} rows/s", f"{theirs / ours:.2f} x the rate"
            figure = f"{ROWS / ours:,.0f} rows/s, {ROWS / cpu:,.0f}/s per core"
            name = f"a new sink from {ROWS:,} rows into a topic, {envelope}, Avro"
            lines.append(Line(name, figure, baseline, ratio, "at least 100,000 rows/s"))
    return lines


async def _topic(directory: Path, address: str, url: str, envelope: Envelope) -> tuple[tuple[float, float], Written]:
    """The elapsed time and the CPU time of writing all rows at one timestamp, and the counters of the sink."""
    coordinator, sinks = running(directory)
    await coordinator.start()
    sinks.start()
    await _define(coordinator, TABLE)
    await _commit(coordinator, _rows(0))
    begun, cpu = perf_counter(), process_time()
    connections = [
        Connection(ObjectId("u13"), SCHEMA, "k", "kafka", {"broker": address}, {}),
        Connection(ObjectId("u14"), SCHEMA, "r", "confluent schema registry", {"url": url}, {}),
    ]
    format = Format(Encoding("avro", connections[1].id), envelope=envelope)
    key = () if envelope is Envelope.MATERIALIZE else ("id",)
    topic, identity = {"topic": str(envelope)}, str(envelope)
    sink = Sink(ID, SCHEMA, "s", TABLE.id, "kafka", topic, format, True, connections[0].id, key, identity)
    await _define(coordinator, *connections, sink)
    await _reached(coordinator, sinks)
    found = perf_counter() - begun, process_time() - cpu
    written = sinks.running[ID].written
    await sinks.close()
    await coordinator.close()
    return found, written


def _produced(kafka: MockCluster, count: int, size: int) -> float:
    """The time to produce messages of `size` bytes in one transaction."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.address, "transactional.id": "plain", "compression.type": "lz4"}
    )
    producer.init_transactions()
    kafka.create_topic("plain")
    value = bytes(size)
    begun = perf_counter()
    producer.begin_transaction()
    for number in range(count):
        try:
            producer.produce("plain", value, b"%d" % number)
        except BufferError:
            producer.poll(1)
            producer.produce("plain", value, b"%d" % number)
    producer.commit_transaction()
    return perf_counter() - begun


def _rows(added: int) -> pa.Table:
    ids = np.arange(ROWS)
    balance = pa.array((ids % 100_000 + added).astype(np.int32)).cast(pa.decimal128(12, 2))
    opened = pa.array(ids * 1_000_000 + 1_600_000_000_000_000, pa.timestamp("us"))
    notes = pa.array([f"account {number}" for number in range(ROWS)])
    columns = [pa.array(ids), pa.array((ids % 1_000).astype(np.int32)), balance, opened, notes]
    return pa.table(columns, [f"c{i}" for i in range(len(columns))])


def _sink(port: int) -> tuple[Connection, Sink]:
    options = {"host": "127.0.0.1", "port": str(port), "database": "postgres"}
    connection = Connection(ObjectId("u11"), SCHEMA, "pg", "postgres", options, {})
    table = {"schema": "public", "table": "kept"}
    return connection, Sink(
        ID, SCHEMA, "s", TABLE.id, "postgres", table, None, connection=connection.id, key=("id",), identity="bench"
    )


async def _define(coordinator: Coordinator, *items: Table | Connection | Sink) -> None:
    before = coordinator.state
    after = replace(before, version=before.version + 1)
    for item in items:
        after = after.with_item(item)
    await coordinator.commit(Request(catalog=(before, after)))


async def _commit(coordinator: Coordinator, changes: pa.Table) -> None:
    writes = await prepare_payloads(coordinator.log, {TABLE.id: [changes]})
    await coordinator.commit(Request(writes=writes, unchanged={TABLE.id: coordinator.latest_time()}))


async def _reached(coordinator: Coordinator, sinks: Sinks) -> None:
    """Returns when the sink has written all committed changes."""
    time = coordinator.latest_time()
    while (sinks.running[ID].frontier or 0) <= time:
        await coordinator.frontiers.moved.wait()


async def _copied(target: Any, rows: pa.Table) -> float:
    """The time to insert the same rows into an equal table, from memory."""
    file = io.BytesIO()
    await target.copy_from_table("kept", output=file, format="binary")
    await target.execute(f"CREATE TABLE plain ({DEFINED})")
    file.seek(0)
    begun = perf_counter()
    await target.copy_to_table("plain", source=file, format="binary")
    assert await target.fetchval("SELECT count(*) FROM plain") == rows.num_rows
    return perf_counter() - begun


def _freshness(dsn: str, postgres: str, port: int) -> Line:
    """The delays of commits at a fixed rate."""
    with (
        psycopg.connect(dsn, autocommit=True) as writer,
        psycopg.connect(postgres, autocommit=True) as reader,
    ):
        address = f"HOST '127.0.0.1', PORT {port}, USER postgres, DATABASE postgres"
        writer.execute(f"CREATE CONNECTION pg TO POSTGRES ({address})".encode())
        writer.execute("CREATE TABLE fresh (n bigint NOT NULL, note text)")
        writer.execute("CREATE SINK s FROM fresh INTO POSTGRES CONNECTION pg TABLE fresh KEY (n)")
        while reader.execute("SELECT to_regclass('fresh') IS NOT NULL").fetchone() != (True,):
            sleep(0.01)
        acknowledged: dict[int, float] = {}
        seen: dict[int, float] = {}

        def read() -> None:
            last = -1
            while last < COMMITS - 1:
                row = reader.execute("SELECT coalesce(max(n), -1) FROM fresh").fetchone()
                assert row is not None
                at = perf_counter()
                seen.update(dict.fromkeys(range(last + 1, row[0] + 1), at))
                last = row[0]

        thread = threading.Thread(target=read)
        thread.start()
        begun = perf_counter()
        for number in range(COMMITS):
            sleep(max(0.0, begun + number * COMMIT_S - perf_counter()))
            writer.execute("INSERT INTO fresh VALUES (%s, 'note')", (number,))
            acknowledged[number] = perf_counter()
        rate = COMMITS / (perf_counter() - begun)
        thread.join()
    delays = [max(0.0, (seen[n] - acknowledged[n]) * 1_000) for n in range(COMMITS)]
    return Line(
        f"INSERT to a reader of PostgreSQL at {rate:.0f} commits/s, p50",
        f"{statistics.median(delays):.1f} ms (p99 {statistics.quantiles(delays, n=100)[98]:.1f})",
        "",
        "",
        "p99 below 200 ms",
    )
