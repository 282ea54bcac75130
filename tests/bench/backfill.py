"""Backfills of a set of files, of a Kafka topic and of a PostgreSQL table, read by the server or by Spark tasks.

- server: the source as it runs in the server, until all rows are committed
- two threads: two threads decode the same parts, and write payload files of the log
- rows from tasks: Spark tasks decode the parts and return the rows, which this process writes to payload files
- files from tasks: Spark tasks decode the parts and write the payload files

The last three do not commit. Spark has two cores: in the driver, or in two executors. Each way decodes one
part before it is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import fastavro
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import structlog
from pyspark.sql import SparkSession

from catalog.ids import ObjectId
from catalog.objects.tables import Table as CatalogTable
from catalog.payloads import Payloads
from catalog.source_definition import Encoding, Format
from server.coordinator.committer import Request
from server.ingest.files.file_source import FileSource
from server.ingest.ingestion import Ingestion
from server.ingest.kafka.kind import KafkaKind
from server.ingest.source_definition import Output, SourceDefinition, Target
from server.ingest.source_kind import SourceContext, SourceKind
from server.spark.embedded.java_runtime import find_java
from tests.bench.backfill_reader import COLUMNS, VALUE, Backfill, Part, written
from tests.bench.servers import Servers, Table
from tests.fix_postgres import PostgresServer
from tests.kafka.broker.broker import JARS, KafkaBroker
from tests.kafka.records import Record, produce
from tests.server.ingest.postgres.harness import definition, opened, running

HEADER = ("backfill", "server", "two threads", "rows from tasks", "files from tasks", "on executors: rows", "files")
PARTS = 8
CORES = 2
MASTERS = (f"local[{CORES}]", f"local-cluster[{CORES},1,1024]")
ID = ObjectId("u10")


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--backfill-rows", type=int, default=1_000_000, help="rows of 200 bytes of each backfill")
    kinds = ["parquet", "csv", *(["kafka"] if JARS.exists() else []), "postgres"]
    group.add_argument("--backfill-kinds", nargs="+", default=kinds, help="kafka needs `make test-kafka`")


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rows = options.backfill_rows
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="tidewire-bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        with _inputs(directory, rows, options.backfill_kinds) as inputs:
            for kind, (parts, serve) in inputs.items():
                found[kind] = [_shown(_timed(serve)), _shown(_timed(lambda parts=parts: _threads(parts, directory)))]
            for master in MASTERS:
                with _spark(master, directory) as spark:
                    for kind, (parts, _) in inputs.items():
                        for way in (_rows_from_tasks, _files_from_tasks):
                            way(spark, parts[:1], directory)
                            found[kind].append(
                                _shown(_timed(lambda way=way, parts=parts: way(spark, parts, directory)))
                            )
    about = f"Seconds of backfills of {rows:,} rows of 200 bytes in {PARTS} parts, with {CORES} cores"
    return [Table("backfill", about, HEADER, [(kind, *cells) for kind, cells in found.items()])]


def _shown(seconds: float) -> str:
    return f"{seconds:.1f}"


def _timed(act: Callable[[], int]) -> float:
    """Seconds of `act`, which returns the number of rows."""
    begun = perf_counter()
    act()
    return perf_counter() - begun


def _table(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    columns = [
        pa.array(ids),
        pa.array([f"customer number {id:010}" for id in ids.tolist()]),
        pa.array(1_700_000_000_000_000 + ids).cast(pa.timestamp("us")),
        pa.array(np.full(count, 1, np.int32)),
        pa.array(ids / 8),
        pa.array(["x" * 140] * count),
    ]
    return pa.table(columns, [column.name for column in COLUMNS])


Inputs = dict[str, tuple[list[Part], Callable[[], int]]]


@contextmanager
def _inputs(directory: Path, rows: int, kinds: Sequence[str]) -> Iterator[Inputs]:
    """The parts, and a function that runs the server's source and returns its number of rows, by kind."""
    inputs: Inputs = {}
    each = rows // PARTS
    starts = range(0, each * PARTS, each)
    kafka = postgres = None
    try:
        for kind in kinds:
            if kind in ("parquet", "csv"):
                (directory / kind).mkdir()
                paths = [directory / kind / f"{start:010}" for start in starts]
                for start, path in zip(starts, paths, strict=True):
                    if kind == "parquet":
                        pq.write_table(_table(start, each), path)
                    else:
                        pacsv.write_csv(_table(start, each), path, pacsv.WriteOptions(include_header=False))
                parts = [Part(kind, (str(path),)) for path in paths]
                source = SourceDefinition(
                    "file", {}, {"path": str(directory / kind / "*")}, Format(value=Encoding(kind)), columns=COLUMNS
                )
                inputs[kind] = parts, _server(FileSource(), source, each * PARTS)
            elif kind == "kafka":
                (directory / "broker").mkdir()
                kafka = KafkaBroker(directory / "broker")
                kafka.create_topic("backfill", PARTS)
                writer = fastavro.parse_schema(VALUE)
                produce(kafka.address, "backfill", _records(writer, starts, each))
                parts = [Part(kind, (kafka.address, "backfill"), number) for number in range(PARTS)]
                bare = Encoding("avro", schema=json.dumps(VALUE), options={"confluent wire format": "false"})
                connection = {"broker": kafka.address}
                source = SourceDefinition("kafka", connection, {"topic": "backfill"}, Format(value=bare))
                inputs[kind] = parts, _server(KafkaKind(), source, each * PARTS)
            else:
                postgres = PostgresServer("wal_level=logical\nshared_buffers='512MB'\nautovacuum=off\njit=off")
                with psycopg.connect(postgres.dsn, autocommit=True) as connection:
                    connection.execute(
                        "CREATE TABLE backfill (id int8 PRIMARY KEY, name text, at timestamp, quantity int4, "
                        "price float8, note text)"
                    )
                    with connection.cursor().copy("COPY backfill FROM STDIN (FORMAT csv)") as copy:
                        for start in starts:
                            buffer = io.BytesIO()
                            pacsv.write_csv(_table(start, each), buffer, pacsv.WriteOptions(include_header=False))
                            copy.write(buffer.getvalue())
                    connection.execute("VACUUM ANALYZE backfill")
                    connection.execute("CREATE PUBLICATION pub FOR ALL TABLES")
                    (pages,) = connection.execute("SELECT relpages FROM pg_class WHERE relname = 'backfill'").fetchone()
                step = -(-pages // PARTS)
                parts = [
                    Part(kind, (postgres.dsn, f"ctid >= '({n * step},0)' AND ctid < '({(n + 1) * step},0)'"))
                    for n in range(PARTS)
                ]
                inputs[kind] = parts, lambda dsn=postgres.dsn: _snapshot(dsn)
        yield inputs
    finally:
        if kafka is not None:
            kafka.kill()
        if postgres is not None:
            postgres.stop()


def _records(schema: Any, starts: range, each: int) -> Iterator[Record]:
    for number, start in enumerate(starts):
        for row in _table(start, each).to_pylist():
            buffer = io.BytesIO()
            row["at"] = 1_700_000_000_000_000 + row["id"]
            fastavro.schemaless_writer(buffer, schema, row)
            yield Record(None, buffer.getvalue(), number)


def _server(kind: SourceKind, source: SourceDefinition, rows: int) -> Callable[[], int]:
    async def work() -> int:
        with tempfile.TemporaryDirectory(prefix="tidewire-bench-", ignore_cleanup_errors=True) as directory:
            coordinator = opened(Path(directory))
            await coordinator.start()
            (output,) = await kind.outputs(source)
            before = coordinator.state
            table = CatalogTable(ID, ObjectId("u2"), "backfill", output.columns, retain_ms=0)
            after = replace(before.with_item(table), version=before.version + 1)
            await coordinator.commit(Request(catalog=(before, after)))
            context = SourceContext(ID, coordinator, None)  # type: ignore[arg-type]
            target = Target(ID, Output(output.reference, "backfill", output.columns), source.format)
            ingestion = Ingestion(ID, kind.upstream(source, [target], context), coordinator)
            task = asyncio.create_task(ingestion.run())
            while ingestion.rows < rows:
                assert ingestion.status not in ("failed", "stalled"), ingestion.error
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
            await coordinator.close()
            return ingestion.rows

    return lambda: asyncio.run(work())


def _snapshot(dsn: str) -> int:
    async def work() -> int:
        with tempfile.TemporaryDirectory(prefix="tidewire-bench-", ignore_cleanup_errors=True) as directory:
            async with running(Path(directory), definition(dsn)) as source:
                await source.until(lambda: source.statistics.offset_committed is not None)
                return source.statistics.messages_received

    return asyncio.run(work())


def _threads(parts: Sequence[Part], directory: Path) -> int:
    Payloads(directory / "payloads", create=True)
    with ThreadPoolExecutor(CORES) as pool:
        return sum(rows for _, _, rows in pool.map(lambda part: written(part, str(directory / "payloads")), parts))


@contextmanager
def _spark(master: str, directory: Path) -> Iterator[Any]:
    """A Spark session, whose driver is a separate process."""
    os.environ.setdefault("JAVA_HOME", str(find_java().executable.parents[1]))
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for name, value in {
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.maxResultSize": "2g",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", os.getcwd()),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.dataSource.register(Backfill)
    try:
        yield session
    finally:
        session.stop()


def _frame(spark: Any, parts: Sequence[Part], **options: str) -> Any:
    texts = json.dumps([(part.kind, part.place, part.number) for part in parts])
    return spark.read.format("backfill").options(parts=texts, **options).load()


def _rows_from_tasks(spark: Any, parts: Sequence[Part], directory: Path) -> int:
    found = _frame(spark, parts).toArrow()
    payloads = Payloads(directory / "payloads", create=True)
    payloads.write(found.schema, found.to_batches())
    return int(found.num_rows)


def _files_from_tasks(spark: Any, parts: Sequence[Part], directory: Path) -> int:
    return sum(row.rows for row in _frame(spark, parts, directory=str(directory / "payloads")).collect())
