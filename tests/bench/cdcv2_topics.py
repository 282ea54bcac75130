"""CDCv2 through Kafka: a sink writes a history into a topic, and a source reads it, for numbers of partitions.

The broker is Apache Kafka (`make test-kafka` downloads it) on the same machine. The sink is measured from its first
change until the brokers have acknowledged everything, without the log that it reads. The source is measured with its
commits, from its start until all rows are committed. The figures are the best of three turns.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import structlog
import uvloop

from catalog.objects import Column, ObjectId
from catalog.source_definition import Encoding, Envelope, Format
from server.egress.downstream import Written
from server.egress.kafka.kind import KafkaSink
from server.egress.sink_kind import SinkDefinition
from server.ingest.kafka.upstream import METADATA_S
from server.ingest.source_kind import SourceDefinition
from server.runtime import parallel
from tests.bench.cdcv2 import COLUMNS, PER_TIME, TYPES, _updates
from tests.bench.servers import Servers, Table
from tests.kafka.broker.broker import JARS, KafkaBroker
from tests.kafka.registry import RegistryThread
from tests.kafka.test_upstream import running
from tests.server.slow_engine import PassingEngine

PARTITIONS = (1, 2, 4, 8)
TURNS = 3
WRITE_UPDATES = 200_000  # of a call of the sink
REGISTRY = ObjectId("u99")
HEADER = ("form", "partitions", "threads", "sink", "ratio", "per core", "source", "ratio", "per core")


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--topic-updates", type=int, default=1_000_000, help="number of updates in each topic")


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
                        rate, cpu = found[at : at + 2]
                        cells += [f"{rate:,.0f}/s", f"{rate / first[at]:.2f}", f"{cpu:,.0f}/s"]
                    rows.append((form, str(partitions), str(threads), *cells))
        finally:
            kafka.kill()
    about = f"{count:,} updates of a bigint, a text and a double, {PER_TIME} at a time, on {cores} cores"
    return [Table("cdcv2 topics", about, HEADER, rows)]


def _best(
    kafka: KafkaBroker, registry: str, form: str, partitions: int, threads: int, count: int, path: Path, turns: int
) -> list[float]:
    """The greatest of each figure of `_measured`, of several turns."""
    found = []
    for turn in range(turns):
        own = path.with_name(f"{path.name}-{turn}")
        found.append(uvloop.run(_measured(kafka, registry, form, partitions, threads, count, own)))
        shutil.rmtree(own, ignore_errors=True)
    return [max(each) for each in zip(*found, strict=True)]


async def _measured(
    kafka: KafkaBroker, registry: str, form: str, partitions: int, threads: int, count: int, path: Path
) -> tuple[float, float, float, float]:
    """Updates per second, and per second of processor time: of the sink, and of the source."""
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
        written = await _timed(lambda: _write(sink, updates), count)
        read = await _timed(lambda: _read(path, source, count), count)
    kafka.delete_topic(topic)
    return *written, *read


async def _timed(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> tuple[float, float]:
    begun, cpu = perf_counter(), process_time()
    await work()
    return count / (perf_counter() - begun), count / (process_time() - cpu)


async def _write(definition: SinkDefinition, updates: pa.Table) -> None:
    sink = KafkaSink().downstream(definition, Written(), PassingEngine())
    try:
        await sink.open(None)
        for start in range(0, updates.num_rows, WRITE_UPDATES):
            part = updates.slice(start, WRITE_UPDATES)
            await sink.write(part, int(part["time"][-1].as_py()) + 1)  # type: ignore[arg-type]
    finally:
        await sink.close()


async def _read(directory: Path, definition: SourceDefinition, count: int) -> None:
    async with running(directory, definition, METADATA_S) as source:
        await source.until(lambda: source.ingestion.rows >= count)
        assert source.ingestion.rows == count
