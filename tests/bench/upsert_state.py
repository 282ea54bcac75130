"""The state of a source with ENVELOPE UPSERT: its memory, the time until the first step after a restart, and of steps.

The state is the arrangement of the output by key, which is filled from the log when the first message arrives. It
measures this process, in which the source runs without Kafka. Another process writes the rows before.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from catalog.source_definition import Envelope, Format
from server.ingest.kafka.layouts.layout import Schemas
from server.spark.engine import SparkEngine
from tests.bench import kafka_decode
from tests.bench.engines import with_engine
from tests.bench.processes import anonymous_bytes, own_bytes
from tests.bench.servers import Servers, Table
from tests.kafka.outputs import ID, Message, OutputRun
from tests.kafka.outputs import run as run_alone

HEADER = (
    "keys",
    "output",
    "memory",
    "per byte of output",
    "at most",
    "restart",
    "first step",
    "step of one message",
    "step of 1,000 messages",
)
BATCH = 50_000  # messages of a commit while the rows are written
STEPS = 20
SAMPLE_S = 0.02
MIB = 2**20


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--state-keys", type=int, nargs="+", default=[1_000_000, 10_000_000], help="numbers of keys")


def run(servers: Servers, options: argparse.Namespace) -> list[Table]:
    about = "A source with ENVELOPE UPSERT and rows of 200 bytes; times in milliseconds, those of steps are medians"
    rows = []
    for keys in options.state_keys:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            writer = multiprocessing.get_context("spawn").Process(target=_write, args=(directory, keys))
            writer.start()
            writer.join()
            if writer.exitcode:
                raise SystemExit(writer.exitcode)
            path = Path(directory)
            rows.append(with_engine(lambda engine, path=path, keys=keys: _measured(path, keys, engine)))
    return [Table("upsert_state", about, HEADER, rows)]


def _output(directory: Path, engine: SparkEngine | None) -> OutputRun:
    schemas = Schemas(json.dumps(kafka_decode.KEY), json.dumps(kafka_decode.VALUE))
    bare = kafka_decode.BARE
    return OutputRun(
        directory, Format(bare, bare, envelope=Envelope.UPSERT), schemas, engine, interval_s=kafka_decode.INTERVAL_S
    )


def _write(directory: str, keys: int) -> None:
    async def write() -> None:
        async with _output(Path(directory), None) as output:
            for start in range(0, keys, BATCH):
                stop = min(keys, start + BATCH)
                await output.apply([kafka_decode.upsert(id, 0) for id in range(start, stop)])

    run_alone(write())


async def _measured(directory: Path, keys: int, engine: SparkEngine) -> tuple[str, ...]:
    def messages(count: int, version: int) -> list[Message]:
        return [kafka_decode.upsert(number * 7_919 % keys, version) for number in range(count)]

    before = _memory()
    begun = time.perf_counter()
    output = _output(directory, engine)
    async with output:
        opened = time.perf_counter()
        with _Peak() as peak:
            await output.apply(messages(1, 1))
        stepped = time.perf_counter()
        memory = _memory() - before
        steps = [await _step_ms(output, messages(1, version)) for version in range(2, 2 + STEPS)]
        large = [await _step_ms(output, messages(1_000, version)) for version in range(100, 100 + STEPS)]
        coordinator = output.coordinator
        rows = await coordinator.reads.decoded_rows(ID, coordinator.latest_time())
        size = rows.nbytes
        assert rows.num_rows == keys
    return (
        f"{keys:,}",
        f"{size / MIB:,.0f} MiB",
        f"{memory / MIB:,.0f} MiB",
        f"{memory / size:.2f}",
        f"{(peak.bytes - before) / MIB:,.0f} MiB",
        f"{(opened - begun) * 1_000:,.0f}",
        f"{(stepped - opened) * 1_000:,.0f}",
        f"{statistics.median(steps):,.0f}",
        f"{statistics.median(large):,.0f}",
    )


class _Peak:
    """The greatest memory of this process without files, sampled by a thread while the body runs."""

    def __enter__(self) -> _Peak:
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.bytes = max(self.bytes, anonymous_bytes())

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()


def _memory() -> int:
    """Bytes of this process that are not in files, without what the allocator keeps for later."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    return own_bytes()


async def _step_ms(output: OutputRun, messages: Sequence[Message]) -> float:
    begun = time.perf_counter()
    await output.apply(messages)
    return (time.perf_counter() - begun) * 1_000
