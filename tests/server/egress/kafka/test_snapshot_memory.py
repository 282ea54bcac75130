"""The first snapshot of a sink into Kafka is one transaction, and needs the memory of a part of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from catalog import spill
from catalog.ids import Timestamp
from catalog.objects.columns import Column
from catalog.source_definition import Encoding, Envelope, Format
from protocol.cdcv2.messages import DIFF, TIME
from protocol.pgwire.errors import PgError
from server.egress import row_changes
from server.egress.downstream import Written
from server.egress.kafka.producer import TopicProducer
from server.egress.kafka.row_topic import RowTopic
from server.egress.kafka.schemas import key_columns
from server.egress.kafka.topic import WrittenTopic
from server.egress.net_changes import Pairs, paired
from server.egress.row_messages import Encoder, JsonForm
from server.egress.sink_kind import SinkDefinition
from server.ingest.kafka.consumer import TopicConsumer

ROWS = 2_000_000
COLUMNS = (Column("n", "int8", nullable=False), Column("v", "text"))


class Counted:
    """A producer that counts messages, and their keys."""

    def __init__(self) -> None:
        self.transactions = 0
        self.committed = 0
        self.seen = np.zeros(ROWS, np.bool_)
        self.sent = 0

    async def begin(self) -> None:
        self.transactions += 1

    async def send(
        self,
        values: Iterable[bytes | None],
        keys: Iterable[bytes | None] | None = None,
        *_: Any,
        topic: str | None = None,
    ) -> None:
        if topic is None:
            found = [int(key[5:-1]) for key in keys or () if key is not None]
            self.sent += len(list(values))
            self.seen[found] = True

    async def commit(self) -> None:
        self.committed += 1


def row_topic(
    scratch: Path,
    producer: Counted,
    envelope: Envelope = Envelope.UPSERT,
    key: tuple[str, ...] = ("n",),
    **options: str,
) -> RowTopic:
    format = Format(Encoding("json"), envelope=envelope)
    given = {"topic": "t", **{name.replace("_", " "): value for name, value in options.items()}}
    definition = SinkDefinition("s", "t", COLUMNS, {"broker": "none"}, given, format, key)
    topic = RowTopic(definition, Written(), scratch=scratch)
    topic._producer = cast(TopicProducer, producer)
    topic._written_topic = WrittenTopic(cast(TopicConsumer, None), 1, None)
    keys = JsonForm(key_columns(definition)) if key else None
    topic._encoder = Encoder(envelope, definition.key_positions, keys, JsonForm(definition.encoded_columns))
    return topic


def rows_on_disk(numbers: Iterable[np.ndarray], scratch: Path) -> pa.Table:
    def batches() -> Iterator[pa.RecordBatch]:
        for each in numbers:
            text = pc.binary_join_element_wise("a long name " * 20, pa.array(each).cast(pa.string()), "")
            yield pa.record_batch([pa.array(each), text], ["c0", "c1"])

    schema = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
    return spill.mapped(schema, batches(), scratch).read_all()


def shuffled(count: int) -> Iterator[np.ndarray]:
    """Numbers below `ROWS` in an order that no range of a column divides."""
    for start in range(0, count, 100_000):
        yield np.arange(start, min(start + 100_000, count)) * 1_000_003 % ROWS


@contextmanager
def anonymous_memory() -> Iterator[list[int]]:
    """Appends by how many bytes the memory of the process without files grows at most."""
    begun, most, ended = _anonymous(), 0, threading.Event()
    found: list[int] = []

    def watch() -> None:
        nonlocal most
        while not ended.is_set():
            most = max(most, _anonymous() - begun)
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()
        found.append(most)


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


@pytest.mark.long
async def test_the_memory_of_a_snapshot_is_bounded(tmp_path: Path) -> None:
    rows = rows_on_disk(shuffled(ROWS), tmp_path)
    assert rows.nbytes > 4 * spill.MEMORY_BYTES_MAX
    producer = Counted()
    with anonymous_memory() as grown:
        await row_topic(tmp_path, producer).begin(rows, Timestamp(1))
    assert (producer.transactions, producer.committed, producer.sent) == (1, 1, ROWS)
    assert producer.seen.all()
    assert grown[0] < rows.nbytes // 2, f"{grown[0] >> 20} MiB for {rows.nbytes >> 20} MiB"


async def test_a_key_of_two_rows_far_apart_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "MEMORY_BYTES_MAX", 1 << 16)
    monkeypatch.setattr(spill, "PARTITION_BYTES", 1 << 14)
    last = np.array([7])
    rows = rows_on_disk([*shuffled(20_000), last], tmp_path)
    rows = pa.concat_tables([rows.slice(0, 20_000), rows.slice(20_000).set_column(1, "c1", pa.array(["another"]))])
    first = int(rows["c0"][0].as_py())
    rows = rows.set_column(0, "c0", pa.concat_arrays([rows["c0"].slice(0, 20_000).combine_chunks(), pa.array([first])]))
    producer = Counted()
    with pytest.raises(PgError, match=rf'several rows of "t" have the key \(n\)=\({first}\)'):
        await row_topic(tmp_path, producer).begin(rows, Timestamp(1))
    assert producer.committed == 0


async def test_copies_of_a_row_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without KEY each copy is a message. They are not in memory at the same time."""
    monkeypatch.setattr(row_changes, "COPIES_MAX", 1_000)
    widest = 0

    def pairs(changes: pa.Table, *args: Any, **options: Any) -> Pairs:
        nonlocal widest
        found = paired(changes, *args, **options)
        widest = max(widest, len(found.group))
        return found

    monkeypatch.setattr(row_changes, "paired", pairs)
    diffs = [1, 2_500, -700, 400, 600, 1, -3_000, 1_000]
    columns = [pa.array(range(len(diffs))), pa.array(["x"] * len(diffs)), pa.array([1] * len(diffs)), pa.array(diffs)]
    changes = pa.table(columns, ["c0", "c1", TIME, DIFF])
    producer = Counted()
    await row_topic(tmp_path, producer, Envelope.DEBEZIUM, ()).write(changes, Timestamp(2))
    assert (producer.sent, widest) == (sum(map(abs, diffs)), 1_000)


async def test_too_many_copies_with_a_key_are_refused(tmp_path: Path) -> None:
    changes = pa.table([[1], ["x"], [1], [2**62]], ["c0", "c1", TIME, DIFF])
    topic = row_topic(tmp_path, Counted(), Envelope.DEBEZIUM, key_not_enforced="true")
    with pytest.raises(PgError, match='rows of "t" have more than 1000000 copies at one time'):
        await topic.write(changes, Timestamp(2))
