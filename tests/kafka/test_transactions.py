"""Messages of several topics are released by upstream transaction, although topics and END messages are repeated."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.ingest.kafka import transactions
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.positions import Highest, Positions, Upstream
from server.ingest.kafka.transactions import End, Release, TopicBuffer, TransactionMerger, Until

TOPICS = ("kc.public.a", "kc.public.b")
Event = tuple[str, str | None, int, int]
"""Topic, transaction, LSN of the last commit, LSN."""


class Server:
    """A PostgreSQL with two tables: the events of each topic, and the END messages, in the order of commits."""

    def __init__(self, random: random.Random, count: int) -> None:
        self.events: dict[str, list[Event]] = {topic: [] for topic in TOPICS}
        self.ends: list[tuple[str, str]] = []
        lsn, commit = 100, 50
        for number in range(count):
            counts = dict.fromkeys(TOPICS, 0)
            for _ in range(random.randint(1, 6)):
                topic = random.choice(TOPICS)
                lsn += random.randint(1, 5)
                # Concurrent transactions: an LSN may be less than that of the commit before.
                self.events[topic].append((topic, f"{number}:{lsn + random.randint(0, 9)}", commit, lsn))
                counts[topic] += 1
            commit = lsn = lsn + 1
            collections = [
                {"data_collection": topic.removeprefix("kc."), "event_count": n} for topic, n in counts.items() if n
            ]
            self.ends.append((f"{number}:{commit}", json.dumps(collections)))


def replayed(items: Sequence[object], random: random.Random) -> list[object]:
    """The items as a connector writes them that crashes some times."""
    found: list[object] = []
    begin = 0
    for _ in range(random.randint(0, 3)):
        crash = random.randint(begin, len(items))
        found += items[begin:crash]
        begin = max(0, crash - random.randint(0, 6))
    return found + list(items[begin:])


def batch_of(events: Sequence[tuple[int, Event]]) -> tuple[Messages, pa.Array, Positions]:
    """Events with their offsets as the merger gets them."""
    count = len(events)
    nothing = pa.array([None] * count, pa.binary())
    values = pa.array([f"{id}/{lsn}".encode() for _, (_, id, _, lsn) in events], pa.binary())
    offsets = np.array([offset for offset, _ in events], np.int64)
    messages = Messages(np.zeros(count, np.int32), offsets, np.zeros(count, np.int64), nothing, values)
    coordinates = np.array([(commit, lsn, 2) for _, (_, _, commit, lsn) in events], np.int64).reshape(count, 3)
    known = np.array([id is not None for _, (_, id, _, _) in events], np.bool_)
    domains, invalid = np.full(count, "", object), np.zeros(count, np.bool_)
    found = Positions(coordinates, domains, known, ~known, invalid, coordinates[:, :2])
    return messages, pa.array([id for _, (_, id, _, _) in events], pa.string()), found


class Run:
    """Reads the topics in random order, releases, and may begin again with what it has stored."""

    def __init__(self, topics: dict[str, list[Event]], ends: list[tuple[str, str]]) -> None:
        self.topics, self.ends = topics, ends
        self.offsets = dict.fromkeys(TOPICS, 0)
        self.positions: dict[str, dict[int, Highest]] = {topic: {} for topic in TOPICS}
        self.numbers: dict[str, int] = {}
        self.released: list[dict[str, list[str]]] = []
        self.restart()

    def restart(self) -> None:
        self.buffers = {topic: TopicBuffer(Upstream.POSTGRES, [0], self.positions[topic]) for topic in TOPICS}
        self.merger = TransactionMerger(self.buffers, self.numbers)
        self.read = dict(self.offsets)
        self.ends_read = 0  # the topic of transactions is read again: its repetitions are dropped

    def poll(self, random: random.Random) -> bool:
        """Reads some messages; False if all are read."""
        left = [topic for topic in TOPICS if self.read[topic] < len(self.topics[topic])]
        ends_left = self.ends_read < len(self.ends)
        if not left and not ends_left:
            return False
        if left and (not ends_left or random.random() < 0.6):
            topic = random.choice(left)
            start = self.read[topic]
            end = self.read[topic] = min(len(self.topics[topic]), start + random.randint(1, 4))
            self.buffers[topic].add(*batch_of(list(enumerate(self.topics[topic]))[start:end]))
        else:
            self.merger.add(End.of(Upstream.POSTGRES, *self.ends[self.ends_read]))
            self.ends_read += 1
        self._commit(self.merger.release())
        return True

    def _commit(self, found: dict[str, Release]) -> None:
        commit: dict[str, list[str]] = {}
        for topic, release in found.items():
            self.offsets[topic] = release.offsets.get(0, self.offsets[topic])
            self.positions[topic].update(release.positions)
            values = [value.decode() for part in release.messages for value in part.values.to_pylist()]
            if values:
                commit[topic] = values
        self.numbers = dict(self.merger.numbers)
        if commit:
            self.released.append(commit)


@given(st.integers(0, 10**9))
def test_a_release_has_whole_transactions_and_each_event_once(seed: int) -> None:
    generator = random.Random(seed)
    server = Server(generator, generator.randint(1, 12))
    topics = {topic: replayed(events, generator) for topic, events in server.events.items()}
    run = Run(topics, replayed(server.ends, generator))  # type: ignore[arg-type]
    while run.poll(generator):
        if generator.random() < 0.1:
            run.restart()
    for topic, events in server.events.items():
        values = [value for commit in run.released for value in commit.get(topic, [])]
        assert values == [f"{id}/{lsn}" for _, id, _, lsn in events]
    seen: set[str] = set()
    for commit in run.released:
        own = {value.partition(":")[0] for values in commit.values() for value in values}
        assert not own & seen, "a transaction was divided"
        seen |= own
    assert run.merger.pending == 0
    assert all(buffer.nbytes == 0 for buffer in run.buffers.values())


def test_messages_without_transaction_are_released_at_once() -> None:
    run = Run({TOPICS[0]: [(TOPICS[0], None, 0, 5)] * 3, TOPICS[1]: []}, [])
    while run.poll(random.Random(0)):
        pass
    assert sum(len(values) for commit in run.released for values in commit.values()) == 3


def test_transactions_before_the_first_end_do_not_block() -> None:
    """The topic of transactions begins later, or has lost its first messages."""
    server = Server(random.Random(1), 8)
    run = Run(server.events, server.ends[4:])
    while run.poll(random.Random(1)):
        pass
    found = sum(len(values) for commit in run.released for values in commit.values())
    assert found == sum(map(len, server.events.values()))


def test_a_topic_that_is_added_later_is_released_up_to_the_last_transaction() -> None:
    server = Server(random.Random(4), 8)
    run = Run({TOPICS[0]: server.events[TOPICS[0]], TOPICS[1]: []}, server.ends)
    while run.poll(random.Random(4)):
        pass
    late = TopicBuffer(Upstream.POSTGRES, [0], {})
    late.add(*batch_of(list(enumerate(server.events[TOPICS[1]]))))
    release = TransactionMerger({TOPICS[1]: late}, {"": int(server.ends[-1][0].partition(":")[2])}).release()
    assert sum(map(len, release[TOPICS[1]].messages)) == len(server.events[TOPICS[1]])


def test_events_that_were_deleted_do_not_block() -> None:
    server = Server(random.Random(2), 8)
    topics = {topic: events[3:] for topic, events in server.events.items()}
    run = Run(topics, server.ends)
    while run.poll(random.Random(2)):
        pass
    assert run.merger.pending <= 1  # the last one, which no later transaction follows


def test_the_memory_of_topics_that_are_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "BUFFER_BYTES_MAX", 20)
    server = Server(random.Random(3), 12)
    run = Run(server.events, server.ends)
    topic = TOPICS[0]
    polls = 0
    while run.merger.wants(topic):
        start = run.read[topic]
        run.read[topic] = start + 1
        run.buffers[topic].add(*batch_of(list(enumerate(server.events[topic]))[start : start + 1]))
        polls += 1
    assert polls < len(server.events[topic])
    run.merger.add(End.of(Upstream.POSTGRES, "0:1", json.dumps([{"data_collection": "public.b", "event_count": 1}])))
    assert not run.merger.wants(topic)  # the front transaction has no event in it
    assert run.merger.wants(TOPICS[1])


@pytest.mark.parametrize(
    ("id", "domain", "number"),
    [
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:23", "3e11fa47-71ca-11e1-9e33-c80aa9429562", 23),
        ("12345678-1234-1234-1234-123456789012:7", "12345678-1234-1234-1234-123456789012", 7),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:tag:23", "3e11fa47-71ca-11e1-9e33-c80aa9429562:tag", 23),
        ("0-17-230", "0", 230),  # MariaDB
        ("file=binlog.000003,pos=339", "", (3 << 36) + 339),  # without GTIDs
    ],
)
def test_ids_of_mysql(id: str, domain: str, number: int) -> None:
    end = End.of(Upstream.MYSQL, id, None)
    assert (end.key, end.domain, end.number, end.counts) == (id, domain, number, {})


def test_an_unknown_form_of_an_id() -> None:
    with pytest.raises(ValueError, match="invalid transaction id: x"):
        End.of(Upstream.MYSQL, "x", None)


def test_the_end_of_a_partition_is_stored_after_its_messages() -> None:
    """The marks of Kafka's transactions are between the last message and the end."""
    buffer = TopicBuffer(Upstream.POSTGRES, [0], {})
    batch = batch_of([(0, (TOPICS[0], "1:10", 5, 10))])
    buffer.add(*batch)
    buffer.reach({0: 2})
    buffer.release(Until({}), release := Release())
    assert release.offsets == {}
    buffer.release(Until({"": 100}, "1"), release)
    assert release.offsets == {0: 2}
    buffer.release(Until({"": 100}), release := Release())
    assert release.offsets == {}


@pytest.mark.parametrize("restart", range(1, 7))
def test_a_repeated_tombstone_does_not_delete_a_row_that_was_inserted_again(restart: int) -> None:
    """A row is deleted and inserted again, and the connector repeats both. The reader restarts after `restart`."""
    written = [("d", 10), (None, 0), ("c", 20), ("d", 10), (None, 0), ("c", 20)]
    state: dict[int, Highest] = {}
    read: list[str | None] = []
    offset = 0
    for stop in (restart, len(written)):
        buffer = TopicBuffer(Upstream.POSTGRES, [0], state)
        for number in range(offset, stop):
            operation, lsn = written[number]
            event = (TOPICS[0], None if operation is None else f"1:{lsn}", 5, lsn)
            messages, ids, found = batch_of([(number, event)])
            if operation is None:
                found.known[:] = False
            values = pa.array([operation and operation.encode()], pa.binary())
            buffer.add(replace(messages, keys=pa.array([b"k"], pa.binary()), values=values), ids, found)
            buffer.reach({0: number + 1})
            buffer.release(Until({"": 100}), release := Release())
            offset = release.offsets.get(0, offset)
            state.update(release.positions)
            read += [value.as_py() for part in release.messages for value in part.values]
    assert read == [b"d", None, b"c"]
