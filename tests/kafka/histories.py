"""A history in a topic that a test writes, and what a topic of a sink says."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence

import pyarrow as pa

from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.json_form import JsonDecoder, JsonEncoder
from protocol.cdcv2.messages import DIFF_FIELD, TIME_FIELD
from protocol.cdcv2.reader import Reader
from protocol.cdcv2.writer import Writer
from protocol.pgwire.types import parse_type
from tests.kafka.records import Record, produce
from tests.kafka.sinks import read_topic

COLUMNS = [EncodedColumn("n", parse_type("int8"), False), EncodedColumn("v", parse_type("text"))]
SCHEMA = pa.schema([pa.field("c0", pa.int64()), pa.field("c1", pa.string()), TIME_FIELD, DIFF_FIELD])
Update = tuple[int, str | None, int, int]
"""n, v, time, diff"""
PAUSE_S = 0.02  # between two times


class HistoryWriter:
    """Writes random updates at the present time to a topic, in any order and with repetitions, until it is closed."""

    def __init__(self, address: str, topic: str, partitions: int, seed: int) -> None:
        self.updates: list[Update] = []
        """Those whose time is closed, or about to be."""
        self._place = (address, topic, partitions)
        self._choice = random.Random(seed)
        self._encoder = JsonEncoder(COLUMNS)
        self._writer = Writer()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        choice, rows, last = self._choice, list[tuple[int, str | None]](), 0
        while not self._ended.wait(PAUSE_S):
            now = max(time.time_ns() // 1_000_000, last + 1)
            found: dict[tuple[int, str | None], int] = {}
            for _ in range(choice.randrange(4)):
                if rows and choice.random() < 0.45:
                    row, diff = rows.pop(choice.randrange(len(rows))), -1
                else:
                    row, diff = (choice.randrange(1, 9), choice.choice(["a", "b", None])), 1
                    rows.append(row)
                found[row] = found.get(row, 0) + diff
            self.write([(*row, now, diff) for row, diff in found.items() if diff], now + 1)
            last = now

    def write(self, updates: Sequence[Update], frontier: int) -> None:
        """Writes updates and the statement for the times before `frontier`."""
        table = pa.table(list(zip(*updates, strict=True)) or [[]] * 4, SCHEMA)
        self._writer.add(table)
        statement = self._writer.advance(frontier)
        assert statement is not None
        messages = [*self._encoder.updates(table), self._encoder.progress(statement)]
        messages += self._choice.sample(messages, self._choice.randrange(len(messages)))
        self._choice.shuffle(messages)
        address, topic, partitions = self._place
        self.updates += updates
        produce(address, topic, [Record(None, message, self._choice.randrange(partitions)) for message in messages])

    def close(self) -> None:
        """Ends the history at the last time. May be called twice."""
        self._ended.set()
        self._thread.join()


def read_history(address: str, topic: str) -> tuple[int, list[Update]]:
    """The frontier of a topic, and the updates before it."""
    decoder = JsonDecoder(COLUMNS)
    found = decoder.decode(pa.array([message.value for message in read_topic(address, topic)], pa.binary()))
    assert not found.failed.any()
    reader = Reader(decoder.schema)
    batch = reader.receive(found.updates, found.statements)
    assert reader.waiting().contradiction is None
    if batch is None:
        return 0, []
    return batch.frontier, sorted((tuple(row.values()) for row in batch.updates.to_pylist()), key=order)


def order(update: Update) -> tuple[object, ...]:
    return update[2], update[0], str(update[1]), update[3]


def as_of(updates: Sequence[Update], begin: int) -> list[Update]:
    """The history that begins with the rows at a time."""
    counts: dict[tuple[int, str | None], int] = {}
    for n, v, at, diff in updates:
        if at <= begin:
            counts[n, v] = counts.get((n, v), 0) + diff
    rows = [(n, v, begin, count) for (n, v), count in counts.items() if count]
    return sorted([*rows, *(update for update in updates if update[2] > begin)], key=order)
