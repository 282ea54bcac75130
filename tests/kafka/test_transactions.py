"""Messages of several topics are released by upstream transaction, although topics and END messages are repeated."""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.ingest.kafka import transactions
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.positions import Highest, Positions, Upstream
from server.ingest.kafka.transactions import End, Release, TopicBuffer, TransactionMerger, Until, key_of

TOPICS = ("kc.public.a", "kc.public.b", "kc.public.c")
PARTITIONS = {TOPICS[0]: 2, TOPICS[1]: 1, TOPICS[2]: 1}


@dataclass(frozen=True, slots=True)
class Event:
    """A change. `id`: of its transaction, None for a row of a snapshot. `commit`: LSN of the last commit."""

    topic: str
    partition: int
    id: str | None
    commit: int
    lsn: int
    number: int = 0
    timestamp: int = 0

    @property
    def value(self) -> str:
        return f"{self.id}/{self.lsn}"


@dataclass(frozen=True, slots=True)
class Mark:
    """A message of the topic of transactions."""

    status: str
    id: str
    collections: str = ""
    timestamp: int = 0


@dataclass
class Transaction:
    """A transaction of the upstream database."""

    id: int
    events: list[Event]
    commit: int


def transactions_of(random: random.Random, count: int) -> list[Transaction]:
    """What a PostgreSQL writes, in the order of commits."""
    found: list[Transaction] = []
    lsn, commit = 100, 50
    for number in range(count):
        events = []
        for _ in range(random.randint(1, 6)):
            topic = random.choice(TOPICS)
            lsn += random.randint(1, 5)
            # Concurrent transactions: an LSN may be less than that of the commit before.
            id = f"{number}:{lsn + random.randint(0, 9)}"
            events.append(Event(topic, random.randrange(PARTITIONS[topic]), id, commit, lsn))
        commit = lsn = lsn + 1
        found.append(Transaction(number, events, commit))
    return found


class Kafka:
    """Partitions, and the messages that producers have sent to their leaders, which may arrive later."""

    def __init__(self) -> None:
        self.events: dict[str, list[list[Event]]] = {topic: [[] for _ in range(n)] for topic, n in PARTITIONS.items()}
        self.marks: list[Mark] = []
        self._sent: dict[tuple[str, int] | None, deque[tuple[int, Event | Mark]]] = {}
        self._acknowledged: set[int] = set()

    def send(self, sequence: int, message: Event | Mark) -> None:
        place = (message.topic, message.partition) if isinstance(message, Event) else None
        self._sent.setdefault(place, deque()).append((sequence, message))

    def deliver(self, random: random.Random) -> None:
        """One of the sent messages arrives."""
        places = [place for place, sent in self._sent.items() if sent]
        if places:
            sequence, message = self._sent[random.choice(places)].popleft()
            self._acknowledged.add(sequence)
            if isinstance(message, Event):
                self.events[message.topic][message.partition].append(message)
            else:
                self.marks.append(message)

    def deliver_all(self, random: random.Random) -> None:
        while any(self._sent.values()):
            self.deliver(random)

    def lose(self, random: random.Random) -> None:
        """The producer is killed: some of the sent messages still arrive, the others do not."""
        for _ in range(random.randint(0, sum(map(len, self._sent.values())))):
            self.deliver(random)
        self._sent.clear()

    def is_acknowledged(self, sequence: int) -> bool:
        return sequence in self._acknowledged

    def append(self, items: Sequence[Transaction]) -> None:
        """The messages of transactions whose connector was never killed."""
        connector = Connector(self, items, Restart.CONTINUES)
        while connector.write(random.Random(0)):
            pass
        self.deliver_all(random.Random(0))


class Restart(Enum):
    """What a connector does that was killed within a transaction.

    RESETS: BEGIN is written again, and the events after it are counted (PostgreSQL). END of earlier transactions may
    be written again, too, without their events. CONTINUES: the counts are restored. LOSES: it continues with a later
    transaction, after a snapshot.
    """

    RESETS = 1
    CONTINUES = 2
    LOSES = 3


class Connector:
    """A Debezium: writes transactions, may be killed, and continues after the last position that it has stored."""

    def __init__(self, kafka: Kafka, transactions: Sequence[Transaction], restart: Restart) -> None:
        self._kafka, self._transactions, self._restart = kafka, transactions, restart
        self._clock = 0
        self._last = -1  # the last transaction of which something was sent
        self._sequence = 0
        self._stored = (0, -1, Counter[str]())
        """The next transaction, the last event that is written (-1: not even BEGIN), and the counts up to it."""
        self._unstored: deque[tuple[int, tuple[int, int, Counter[str]]]] = deque()
        self._messages = self._run(self._stored, None)

    def _run(
        self, begin: tuple[int, int, Counter[str]], random: random.Random | None
    ) -> Iterator[tuple[Event | Mark, tuple[int, int, Counter[str]]]]:
        """The messages with the positions after them."""
        number, done, counts = begin
        if random is not None and self._restart is Restart.LOSES:
            number, done = min(max(self._last, 0) + random.randint(1, 2), len(self._transactions)), -1
            if number < len(self._transactions):
                self._last = number - 1
                commit = self._transactions[number - 1].commit
                for topic, partitions in PARTITIONS.items():
                    for partition in range(partitions):
                        yield Event(topic, partition, None, commit, commit + 1), (number, -1, Counter())
        elif random is not None and self._restart is Restart.RESETS:
            for earlier in self._transactions[max(0, number - random.randint(0, 2)) : number]:
                for status in ("BEGIN", "END"):
                    yield self._mark(status, earlier, Counter()), begin
        for transaction in self._transactions[number:]:
            self._last = max(self._last, transaction.id)
            if done == -1 or self._restart is Restart.RESETS:
                counts = Counter()
                yield self._mark("BEGIN", transaction, counts), (transaction.id, max(done, 0), counts)
            for event in transaction.events[max(done, 0) :]:
                counts = counts + Counter([event.topic])
                done = max(done, 0) + 1
                yield replace(event, number=counts[event.topic]), (transaction.id, done, counts)
            yield self._mark("END", transaction, counts), (transaction.id + 1, -1, Counter())
            done = -1

    def _mark(self, status: str, transaction: Transaction, counts: Counter[str]) -> Mark:
        collections = [{"data_collection": t.removeprefix("kc."), "event_count": n} for t, n in counts.items()]
        return Mark(status, f"{transaction.id}:{transaction.commit}", json.dumps(collections))

    def write(self, random: random.Random) -> bool:
        """Sends a message; False if all are sent."""
        found = next(self._messages, None)
        if found is None:
            return False
        message, position = found
        self._clock += random.randint(0, 1)
        self._kafka.send(self._sequence, replace(message, timestamp=self._clock))
        self._unstored.append((self._sequence, position))
        self._sequence += 1
        return True

    def store(self) -> None:
        """Stores the position before which all messages were acknowledged."""
        while self._unstored and self._kafka.is_acknowledged(self._unstored[0][0]):
            self._stored = self._unstored.popleft()[1]

    def kill(self, random: random.Random) -> None:
        self._kafka.lose(random)
        self._unstored.clear()
        self._clock += 1
        self._messages = self._run(self._stored, random)


def batch_of(events: Sequence[tuple[int, Event]]) -> tuple[Messages, pa.Array, pa.Array, Positions]:
    """Events of a partition with their offsets as the merger gets them."""
    count = len(events)
    nothing = pa.array([None] * count, pa.binary())
    values = pa.array([event.value.encode() for _, event in events], pa.binary())
    offsets = np.array([offset for offset, _ in events], np.int64)
    partitions = np.array([event.partition for _, event in events], np.int32)
    timestamps = np.array([event.timestamp for _, event in events], np.int64)
    messages = Messages(partitions, offsets, timestamps, nothing, values)
    coordinates = np.array([(event.commit, event.lsn, 2) for _, event in events], np.int64).reshape(count, 3)
    known = np.array([event.id is not None for _, event in events], np.bool_)
    domains, invalid = np.full(count, "", object), np.zeros(count, np.bool_)
    found = Positions(coordinates, domains, known, ~known, invalid, coordinates[:, :2])
    ids = pa.array([event.id for _, event in events], pa.string())
    return messages, ids, pa.array([event.number for _, event in events], pa.int64()), found


class Run:
    """Reads the topics in random order, releases, and may begin again with what it has stored."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.offsets = {topic: dict.fromkeys(range(count), 0) for topic, count in PARTITIONS.items()}
        self.positions: dict[str, dict[int, Highest]] = {topic: {} for topic in TOPICS}
        self.numbers: dict[str, int] = {}
        self.next_offset = 0
        self.released: list[dict[str, list[str]]] = []
        self.restart()

    def restart(self) -> None:
        self.buffers = {
            topic: TopicBuffer(Upstream.POSTGRES, self.offsets[topic], self.positions[topic]) for topic in TOPICS
        }
        self.merger = TransactionMerger(self.buffers, self.numbers)
        self.read = {topic: dict(offsets) for topic, offsets in self.offsets.items()}
        self.marks_read = self.next_offset

    def poll(self, random: random.Random) -> bool:
        """Reads some messages; False if all are read."""
        left = [
            (topic, partition)
            for topic, partitions in self.kafka.events.items()
            for partition, events in enumerate(partitions)
            if self.read[topic][partition] < len(events)
        ]
        marks = self.kafka.marks[self.marks_read :]
        if not left and not marks:
            return False
        if left and (not marks or random.random() < 0.6):
            self.poll_topic(*random.choice(left), random.randint(1, 4))
        else:
            self.poll_marks(random.randint(1, 3))
        self.commit()
        return True

    def poll_marks(self, count: int) -> None:
        for mark in self.kafka.marks[self.marks_read :][:count]:
            self.marks_read += 1
            if mark.status == "BEGIN":
                self.merger.begin(key_of(Upstream.POSTGRES, mark.id), mark.timestamp)
            else:
                self.merger.add(End.of(Upstream.POSTGRES, mark.id, mark.collections, self.marks_read))

    def poll_topic(self, topic: str, partition: int, count: int) -> None:
        start = self.read[topic][partition]
        events = list(enumerate(self.kafka.events[topic][partition]))[start : start + count]
        self.read[topic][partition] += len(events)
        self.buffers[topic].add(*batch_of(events))

    def poll_all(self, seed: int) -> None:
        while self.poll(random.Random(seed)):
            pass

    def commit(self) -> None:
        """Stores what can be released, once the merger knows the ends that it wants."""
        self._store(self.merger.release())
        while self.merger.wants_goals:
            topics = self.kafka.events.items()
            self.merger.reach({topic: {p: len(log) for p, log in enumerate(logs)} for topic, logs in topics})
            self._store(self.merger.release())

    def _store(self, found: dict[str, Release]) -> None:
        commit: dict[str, list[str]] = {}
        for topic, release in found.items():
            self.offsets[topic].update(release.offsets)
            self.positions[topic].update(release.positions)
            values = [value.decode() for part in release.messages for value in part.values.to_pylist()]
            if values:
                commit[topic] = values
        self.numbers = dict(self.merger.numbers)
        if self.merger.next_offset is not None:
            self.next_offset = self.merger.next_offset
        if commit:
            self.released.append(commit)

    def values(self, topic: str) -> list[str]:
        return [value for commit in self.released for value in commit.get(topic, [])]

    @property
    def count(self) -> int:
        return sum(len(values) for commit in self.released for values in commit.values())


@pytest.mark.parametrize("restart", Restart)
@given(st.integers(0, 10**9))
def test_a_release_has_whole_transactions_and_each_event_once(restart: Restart, seed: int) -> None:
    generator = random.Random(seed)
    transactions = transactions_of(generator, generator.randint(1, 8))
    kafka = Kafka()
    connector = Connector(kafka, transactions, restart)
    run = Run(kafka)
    kills = generator.randint(0, 4)
    writes = True
    while writes:
        match generator.randrange(16):
            case 0 if kills:
                kills -= 1
                connector.kill(generator)
            case 1:
                run.restart()
            case 2 | 3:
                connector.store()
            case 4 | 5 | 6 | 7 | 8:
                writes = connector.write(generator)
            case 9 | 10 | 11:
                kafka.deliver(generator)
            case _:
                run.poll(generator)
    kafka.deliver_all(generator)
    while run.poll(generator):
        if generator.random() < 0.1:
            run.restart()
    seen: set[str] = set()
    for commit in run.released:
        own = {value.partition(":")[0] for values in commit.values() for value in values if value[0] != "N"}
        assert not own & seen, "a transaction was divided"
        seen |= own
    if restart is Restart.LOSES:
        return
    for topic, partitions in PARTITIONS.items():
        for partition in range(partitions):
            place = (topic, partition)
            events = [e.value for t in transactions for e in t.events if (e.topic, e.partition) == place]
            assert [value for value in run.values(topic) if value in events] == events
        assert len(run.values(topic)) == sum(event.topic == topic for t in transactions for event in t.events)
    assert run.merger.pending == 0
    assert all(buffer.nbytes == 0 for buffer in run.buffers.values())


def written(seed: int, count: int = 8) -> tuple[Kafka, list[Transaction]]:
    """Topics whose connector was never killed."""
    kafka, transactions = Kafka(), transactions_of(random.Random(seed), count)
    kafka.append(transactions)
    return kafka, transactions


def test_a_count_that_begins_again_does_not_divide_a_transaction() -> None:
    """The connector was killed after two of three events. The last one has not arrived when END is read."""
    topic = TOPICS[1]
    events = [Event(topic, 0, "1:10", 5, lsn, number, lsn) for lsn, number in ((10, 1), (11, 2), (12, 1))]
    kafka = Kafka()
    kafka.events[topic][0] = events[:2]
    counts = json.dumps([{"data_collection": "public.b", "event_count": 1}])
    kafka.marks = [Mark("BEGIN", "1:9", timestamp=9), Mark("BEGIN", "1:9", timestamp=12), Mark("END", "1:20", counts)]
    run = Run(kafka)
    run.poll_all(0)
    assert run.count == 0
    kafka.events[topic][0] = events
    run.poll_all(0)
    assert run.count == 3
    assert len(run.released) == 1


def lost_begin() -> tuple[Kafka, Run]:
    """Kafka never got BEGIN and END of a transaction. The later one is released before its events are read."""
    kafka, (a, b, _) = Kafka(), TOPICS
    kafka.events[a] = [[Event(a, 0, "1:10", 5, 10)], [Event(a, 1, "1:11", 5, 11)]]
    kafka.events[b][0] = [Event(b, 0, "2:22", 20, 22)]
    counts = json.dumps([{"data_collection": "public.b", "event_count": 1}])
    kafka.marks = [Mark("BEGIN", "0:1"), Mark("END", "0:5"), Mark("BEGIN", "2:22"), Mark("END", "2:25", counts)]
    run = Run(kafka)
    run.numbers = {"": 5}
    run.restart()
    run.poll_topic(b, 0, 1)
    run.poll_marks(4)
    run.commit()
    assert run.released == [{b: ["2:22/22"]}]
    return kafka, run


def test_late_events_of_a_transaction_without_begin_and_end_are_released_together() -> None:
    _, run = lost_begin()
    run.poll_topic(TOPICS[0], 0, 1)
    run.commit()
    assert run.count == 1
    run.poll_topic(TOPICS[0], 1, 1)
    run.commit()
    assert run.released[1:] == [{TOPICS[0]: ["1:10/10", "1:11/11"]}]


def test_the_memory_of_late_events_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "BUFFER_BYTES_MAX", 20)
    kafka, run = lost_begin()
    kafka.events[TOPICS[0]][0] = [Event(TOPICS[0], 0, "1:10", 5, lsn) for lsn in range(10, 100)]
    while run.merger.accepts(TOPICS[0]):
        run.poll_topic(TOPICS[0], 0, 1)
    run.commit()
    assert 1 < run.count < 90


def test_a_snapshot_of_a_later_position_ends_the_wait_for_events() -> None:
    """END was written, and the event was lost with the connector's position."""
    kafka = Kafka()
    topic = TOPICS[1]
    counts = json.dumps([{"data_collection": "public.b", "event_count": 1}])
    kafka.marks = [Mark("BEGIN", "1:9"), Mark("END", "1:20", counts)]
    run = Run(kafka)
    kafka.events[topic][0] = [Event(topic, 0, None, 5, 20)]  # as of the commit: before it
    run.poll_all(0)
    assert run.merger.pending == 1
    kafka.events[topic][0].append(Event(topic, 0, None, 20, 30))
    run.poll_all(0)
    assert run.merger.pending == 0


def test_messages_without_transaction_are_released_at_once() -> None:
    kafka = Kafka()
    kafka.events[TOPICS[0]][0] = [Event(TOPICS[0], 0, None, 0, 5)] * 3
    run = Run(kafka)
    run.poll_all(0)
    assert run.count == 3


def test_transactions_before_the_first_end_do_not_block() -> None:
    """The topic of transactions begins later, or has lost its first messages."""
    kafka, transactions = written(1)
    kafka.marks = kafka.marks[8:]
    run = Run(kafka)
    run.poll_all(1)
    assert run.count == sum(len(transaction.events) for transaction in transactions)


def test_a_topic_that_is_added_later_is_released_up_to_the_last_transaction() -> None:
    kafka, transactions = written(4)
    topic = TOPICS[1]
    late = TopicBuffer(Upstream.POSTGRES, {0: 0}, {})
    late.add(*batch_of(list(enumerate(kafka.events[topic][0]))))
    merger = TransactionMerger({topic: late}, {"": transactions[-1].commit})
    assert not merger.release()[topic].messages
    assert merger.wants_goals
    merger.reach({topic: {0: len(kafka.events[topic][0])}})
    release = merger.release()
    assert sum(map(len, release[topic].messages)) == len(kafka.events[topic][0]) > 0


def test_events_that_were_deleted_do_not_block() -> None:
    kafka, _ = written(2, 16)
    for partitions in kafka.events.values():
        for events in partitions:
            del events[:3]
    run = Run(kafka)
    run.poll_all(2)
    assert run.merger.pending <= 1  # the last one, which no later transaction follows


def test_the_memory_of_topics_that_are_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "BUFFER_BYTES_MAX", 20)
    kafka, _ = written(3, 12)
    run = Run(kafka)
    topic = TOPICS[1]
    polls = 0
    while run.merger.accepts(topic):
        run.poll_topic(topic, 0, 1)
        polls += 1
    assert polls < len(kafka.events[topic][0])
    run.merger.begin("0", 0)
    run.merger.add(End("0", "", 1, {"public.a": 1}))
    run.merger.reach({topic: {} for topic in TOPICS})
    assert not run.merger.accepts(topic)  # the front transaction has no event in it
    assert run.merger.accepts(TOPICS[0])


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
    buffer = TopicBuffer(Upstream.POSTGRES, {0: 0}, {})
    batch = batch_of([(0, Event(TOPICS[0], 0, "1:10", 5, 10))])
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
        buffer = TopicBuffer(Upstream.POSTGRES, {0: offset}, state)
        for number in range(offset, stop):
            operation, lsn = written[number]
            event = Event(TOPICS[0], 0, None if operation is None else f"1:{lsn}", 5, lsn)
            messages, ids, numbers, found = batch_of([(number, event)])
            if operation is None:
                found.known[:] = found.snapshot[:] = False
            values = pa.array([operation and operation.encode()], pa.binary())
            messages = replace(messages, keys=pa.array([b"k"], pa.binary()), values=values)
            buffer.add(messages, ids, numbers, found)
            buffer.reach({0: number + 1})
            buffer.release(Until({"": 100}), release := Release())
            offset = release.offsets.get(0, offset)
            state.update(release.positions)
            read += [value.as_py() for part in release.messages for value in part.values]
    assert read == [b"d", None, b"c"]
