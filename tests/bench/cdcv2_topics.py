"""CDCv2 through Kafka: a sink writes a history into a topic, and a source reads it, for numbers of partitions.

The broker is Apache Kafka (`make test-kafka` downloads it) on the same machine. The sink is measured from its first
change until the brokers have acknowledged everything, without the log that it reads. The source is measured with its
commits, from its start until all rows are committed. The figures are the best of two turns.

A second table has the stages of a source alone, without a broker, by processor time: the messages of partitions, of
which as many are fetched in turn as a consumer does, are decoded, and then given to the reader.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, zip_longest
from math import inf
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import structlog
import uvloop

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format
from protocol.avro.encoder import EncodedColumn
from protocol.avro.schema import parse_schema
from protocol.cdcv2.avro_form import AvroDecoder, AvroEncoder, CdcSchema, schema_text
from protocol.cdcv2.json_form import JsonDecoder, JsonEncoder
from protocol.cdcv2.writer import Writer
from protocol.pgwire.types import parse_type
from server.egress.downstream import Written
from server.egress.kafka.kind import KafkaSink
from server.egress.sink_kind import SinkDefinition
from server.ingest.history import History
from server.ingest.kafka.consumer import FETCH_BYTES, PARTITION_FETCH_BYTES_MIN
from server.ingest.kafka.upstream import METADATA_S
from server.ingest.source_definition import SourceDefinition
from server.runtime import parallel
from tests.bench.cdcv2 import COLUMNS, PER_TIME, TYPES, _updates
from tests.bench.processes import cpu_s
from tests.bench.servers import Servers, Table
from tests.kafka.broker.broker import JARS, KafkaBroker
from tests.kafka.registry import RegistryThread
from tests.kafka.test_upstream import running
from tests.server.slow_engine import PassingEngine

PARTITIONS = (1, 2, 4, 8)
TURNS = 2
STAGE_TURNS = 5
POLLED = 4 << 20  # bytes of one call of a source
WRITE_UPDATES = 200_000  # of a call of the sink
REGISTRY = ObjectId("u99")
HEADER = ("form", "partitions", "threads", "sink", "ratio", "CPU", "source", "ratio", "CPU", "CPU of the broker")
STAGES = ("form", "partitions", "decoders, 1 thread", "2 threads", "ratio", "reader", "ratio", "open updates at most")


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--topic-updates", type=int, default=4_000_000, help="number of updates in each topic")


def run(_: Servers, options: argparse.Namespace) -> list[Table]:
    if not JARS.exists():
        raise SystemExit("cdcv2_topics needs Apache Kafka: run `make test-kafka`")
    count = options.topic_updates
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    rows = []
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="tidewire-bench-") as directory, RegistryThread() as registry:
        kafka = KafkaBroker(Path(directory))
        try:
            _best(kafka, registry.url, "json", 1, cores, count // 4, Path(directory) / "first", 1)
            for form in ("avro", "json"):
                first: list[float] = []
                for partitions, threads in [(1, 1), *((each, cores) for each in PARTITIONS)]:
                    path = Path(directory) / f"{form}-{partitions}-{threads}"
                    found = _best(kafka, registry.url, form, partitions, threads, count, path, TURNS)
                    first = first or found
                    cells = []
                    for at in (0, 2):
                        rate, cpu = count / found[at], found[at + 1]
                        cells += [f"{rate:,.0f}/s", f"{first[at] / found[at]:.2f}", f"{cpu:.1f} s"]
                    rows.append((form, str(partitions), str(threads), *cells, f"{found[4]:.1f} s"))
        finally:
            kafka.kill()
    about = f"{count:,} updates of a bigint, a text and a double, {PER_TIME} at a time, on {cores} cores"
    stages = [_stages(form, partitions, count // 4) for form in ("avro", "json") for partitions in PARTITIONS]
    alone = f"Updates per second of processor time of the stages of a source, of {count // 4:,} such updates"
    return [
        Table("cdcv2 topics", about, HEADER, rows),
        Table(
            "cdcv2 stages",
            alone,
            STAGES,
            [(*row[:6], f"{row[6] / stages[n // 4 * 4][6]:.2f}", row[7]) for n, row in enumerate(stages)],
        ),
    ]


def _best(
    kafka: KafkaBroker, registry: str, form: str, partitions: int, threads: int, count: int, path: Path, turns: int
) -> tuple[float, ...]:
    """As `_measured`: the sink of the fastest of several turns, and the source of the fastest."""
    found = []
    for turn in range(turns):
        own = path.with_name(f"{path.name}-{turn}")
        found.append(uvloop.run(_measured(kafka, registry, form, partitions, threads, count, own)))
        shutil.rmtree(own, ignore_errors=True)
    return *min(found)[:2], *min(turn[2:] for turn in found)


async def _measured(
    kafka: KafkaBroker, registry: str, form: str, partitions: int, threads: int, count: int, path: Path
) -> tuple[float, ...]:
    """Seconds, and seconds of processor time: of the sink, and of the source; then of the broker meanwhile."""
    topic = path.name
    kafka.create_topic(topic, partitions)
    columns = tuple(Column(name, type, nullable=False) for name, type in zip(COLUMNS, TYPES, strict=True))
    encoding = Encoding("json") if form == "json" else Encoding("avro", REGISTRY)
    format = Format(encoding, envelope=Envelope.MATERIALIZE)
    connection, registries = {"broker": kafka.address}, {REGISTRY: {"url": registry}}
    updates = _updates(np.arange(count))
    sink = SinkDefinition(
        "s", "t", columns, connection, {"topic": topic}, format, identity=topic, registries=registries
    )
    source = SourceDefinition(
        "kafka", connection, {"topic": topic}, format, columns=columns if form == "json" else (), registries=registries
    )
    with mock.patch.object(parallel, "THREADS", threads):
        written = await _write(sink, updates)
        broker = cpu_s(kafka.pid)
        read = await _read(path, source, count)
    broker = cpu_s(kafka.pid) - broker
    kafka.delete_topic(topic)
    return *written, *read, broker


async def _write(definition: SinkDefinition, updates: pa.Table) -> tuple[float, float]:
    sink = KafkaSink().downstream(definition, Written(), PassingEngine())
    try:
        await sink.open(None)
        begun, cpu = perf_counter(), process_time()
        for start in range(0, updates.num_rows, WRITE_UPDATES):
            part = updates.slice(start, WRITE_UPDATES)
            await sink.write(part, int(part["time"][-1].as_py()) + 1)  # type: ignore[arg-type]
        return perf_counter() - begun, process_time() - cpu
    finally:
        await sink.close()


async def _read(directory: Path, definition: SourceDefinition, count: int) -> tuple[float, float]:
    begun, cpu = perf_counter(), process_time()
    async with running(directory, definition, METADATA_S) as source:
        await source.until(lambda: source.ingestion.rows >= count)
        found = perf_counter() - begun, process_time() - cpu
        assert source.ingestion.rows == count
    return found


def _stages(form: str, partitions: int, count: int) -> tuple[Any, ...]:
    """The cells of a row; the rate of the reader as a number before its ratio is known."""
    columns = [EncodedColumn(name, parse_type(type)) for name, type in zip(COLUMNS, TYPES, strict=True)]
    decoder: AvroDecoder | JsonDecoder = JsonDecoder(columns)
    encoder: AvroEncoder | JsonEncoder = JsonEncoder(columns)
    if form == "avro":
        decoder = AvroDecoder(CdcSchema.of(parse_schema(schema_text(columns))))
        encoder = AvroEncoder(columns)
    calls = [pa.array(call, pa.binary()) for call in _polls(_messages(encoder, count), partitions)]
    seconds, reading, decoded = {1: inf, 2: inf}, inf, []
    for _ in range(STAGE_TURNS):
        for threads in seconds:
            with ThreadPoolExecutor(threads) as pool:
                begun = process_time()
                decoded = list(pool.map(decoder.decode, calls))
                seconds[threads] = min(seconds[threads], process_time() - begun)
        history: History[int] = History("t", decoder.schema, {})
        begun, rows, most = process_time(), 0, 0
        for number, found in enumerate(decoded):
            rows += sum(table.num_rows for table in history.receive(found, {0: number}, str))
            most = max(most, history.status().open_updates)
        reading = min(reading, process_time() - begun)
        assert rows == count
    rates = [count / seconds[threads] for threads in seconds]
    decoders = (f"{rates[0]:,.0f}/s", f"{rates[1]:,.0f}/s", f"{rates[1] / rates[0]:.2f}")
    return form, str(partitions), *decoders, f"{count / reading:,.0f}/s", count / reading, f"{most:,}"


def _messages(encoder: AvroEncoder | JsonEncoder, count: int) -> list[bytes]:
    """As a sink writes them."""
    writer, updates, found = Writer(), _updates(np.arange(count)), []
    for start in range(0, count, WRITE_UPDATES):
        part = updates.slice(start, WRITE_UPDATES)
        writer.add(part)
        statement = writer.advance(int(part["time"][-1].as_py()) + 1)
        assert statement is not None
        found += [*encoder.updates(part), encoder.progress(statement)]
    return found


def _polls(messages: list[bytes], partitions: int) -> list[list[bytes]]:
    """The messages of each call of a source, whose consumer fetches from all partitions in turn."""
    fetches: list[list[list[bytes]]] = []
    for partition in range(partitions):
        own = messages[partition::partitions]  # as a sink writes them
        fetches.append(_cut(own, max(FETCH_BYTES // partitions, PARTITION_FETCH_BYTES_MIN)))
    turns = zip_longest(*fetches, fillvalue=list[bytes]())
    return _cut([message for turn in turns for fetch in turn for message in fetch], POLLED)


def _cut(messages: list[bytes], size: int) -> list[list[bytes]]:
    """Consecutive parts of about `size` bytes."""
    ends = np.cumsum([len(message) for message in messages]) // size
    starts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(messages)]
    return [messages[start:end] for start, end in pairwise(starts)]
