"""Debezium's topic of transaction metadata: messages of several topics are released by upstream transaction.

A message of status END names a transaction and the number of its events in each table. With n(T, c) the number for the
topic c, and Q(c, p) the messages of c's partition p that are not yet released, the front transaction T is complete if

    for each c:  Σ_p |{ m ∈ Q(c, p) before the first event of a later transaction : m ∈ T }| >= n(T, c)
                 or every Q(c, p) has an event of a later transaction

The second case occurs if events of T were deleted before they were read. The events of a partition are in the order of
commits. Messages without a transaction (snapshots, tombstones) are released with what precedes them.

Repetitions are dropped by position: events by their position in the database's log (`positions`), transactions by the
number in their id, which ascends. PostgreSQL's ids are `<transaction>:<LSN>`, and the LSN differs between the events
and the END of a transaction; the part before the colon identifies it. The LSN of an END is that of the commit, which
later events have as their last commit. MySQL's ids are GTIDs, or positions in the binlog. A message without value
(tombstone) that follows a repetition with the same key is one, too: the row may have been inserted again.

What is stored, for each domain (`positions`), is one position per partition and one number. In memory are the
unreleased messages: of the front transaction, and about BUFFER_BYTES_MAX of those after it per topic.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from server.ingest.kafka.messages import Messages
from server.ingest.kafka.positions import Highest, Positions, Upstream, in_order, transaction_numbers

BUFFER_BYTES_MAX = 32 * 1024 * 1024
ENDS_MAX = 100_000  # transactions whose events have not arrived

_LATER = np.iinfo(np.int64).max  # of an event whose order is not known: it is released only with its transaction


@dataclass(frozen=True, slots=True)
class End:
    """The END of a transaction. `key` is in the ids of its messages. Of one `domain`, `number` ascends.

    `counts`: the number of events by table, such as `public.orders`.
    """

    key: str
    domain: str
    number: int
    counts: Mapping[str, int]
    next_offset: int = 0  # in the topic of transactions

    @classmethod
    def of(cls, upstream: Upstream, id: str, collections: str | None, next_offset: int = 0) -> End:
        """From a message's id and the JSON of its `data_collections`. ValueError."""
        counts = {part["data_collection"]: int(part["event_count"]) for part in json.loads(collections or "null") or []}
        domains, numbers, known = transaction_numbers(pa.array([id], pa.string()))
        if not known[0]:
            raise ValueError(f"invalid transaction id: {id}")
        key, domain = (domains[0], "") if upstream is Upstream.POSTGRES else (id, domains[0])
        return cls(key, domain, int(numbers[0]), counts, next_offset)

    def count_in(self, topic: str) -> int:
        """The number of events in a topic, `<prefix>.<schema>.<table>`."""
        return sum(n for table, n in self.counts.items() if topic == table or topic.endswith(f".{table}"))


@dataclass(frozen=True, slots=True)
class Until:
    """The released transactions: up to a number by domain. `key`: that of the one that is released now, or None."""

    numbers: Mapping[str, int]
    key: str | None = None


@dataclass(frozen=True)
class Events:
    """Messages of one partition. `keys`: of their transactions, None for a message without one or a repetition.

    `orders`: an event with the domain of an END, and an order of at most its number, is not later than the transaction.
    """

    messages: Messages
    keys: NDArray[np.object_]
    domains: NDArray[np.object_]
    orders: NDArray[np.int64]
    positions: Positions
    accepted: NDArray[np.bool_]

    def take(self, rows: NDArray[np.intp]) -> Events:
        return Events(*(getattr(self, part.name).take(rows) for part in fields(self)))

    def later(self, until: Until) -> NDArray[np.intp]:
        """The events of transactions after `until`."""
        is_later = (self.keys != np.array(None)) & (self.keys != until.key)
        for domain, number in until.numbers.items():
            is_later &= (self.domains != domain) | (self.orders > number)
        return np.flatnonzero(is_later)


@dataclass
class _Queue:
    """The unreleased messages of a partition. `highest`: the positions of all that were added.

    `stored`: those of the released ones. `end`: the offset up to which nothing follows them, if it is known. `last`:
    the key of the last message if it was the repetition of an event, else None.
    """

    parts: deque[Events] = field(default_factory=deque)
    highest: Highest = field(default_factory=dict)
    stored: Highest = field(default_factory=dict)
    end: int | None = None
    last: bytes | None = None


@dataclass
class Release:
    """Messages of a topic that are released together.

    `offsets` and `positions`: of the partitions after them, to be stored.
    """

    messages: list[Messages] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    positions: dict[int, Highest] = field(default_factory=dict)


class TopicBuffer:
    """The unreleased messages of a topic."""

    def __init__(self, upstream: Upstream, partitions: Sequence[int], positions: Mapping[int, Highest]) -> None:
        """`positions`: as stored."""
        self.nbytes = 0
        self._upstream = upstream
        self._queues = {
            partition: _Queue(highest=positions.get(partition, {}), stored=positions.get(partition, {}))
            for partition in partitions
        }

    def add(self, messages: Messages, ids: pa.Array, found: Positions) -> None:
        """Appends messages. `ids`: of their transactions, or NULL."""
        keys, domains, orders = self._transactions(ids, found)
        for partition in np.unique(messages.partitions).tolist():
            queue = self._queues.setdefault(partition, _Queue())
            rows = np.flatnonzero(messages.partitions == partition)
            accepted, queue.highest = in_order(found, rows, queue.highest)
            queue.end = None
            own = messages.take(rows)
            accepted[_after_repetitions(own, accepted, queue.last)] = False
            queue.last = own.keys[-1].as_py() if own.values[-1].is_valid and not accepted[-1] else None
            own_keys = keys[rows]
            own_keys[~accepted] = None
            own_positions = replace(found.take(rows), known=found.known[rows] & accepted)
            queue.parts.append(Events(own, own_keys, domains[rows], orders[rows], own_positions, accepted))
            self.nbytes += own.nbytes

    def reach(self, ends: Mapping[int, int]) -> None:
        """Partitions were read to their ends, whose offsets are stored once the messages before them are released."""
        for partition, end in ends.items():
            self._queues.setdefault(partition, _Queue()).end = end

    def _transactions(
        self, ids: pa.Array, found: Positions
    ) -> tuple[NDArray[np.object_], NDArray[np.object_], NDArray[np.int64]]:
        domains, numbers, is_numbered = transaction_numbers(ids)
        keys = np.asarray(ids, object)
        if self._upstream is Upstream.POSTGRES:
            keys = np.where(ids.is_valid(), domains, np.array(None))
            domains = np.full(len(ids), "", object)
            numbers, is_numbered = found.coordinates[:, 0] + 1, found.known
        return keys, domains, np.where(is_numbered, numbers, _LATER)

    def has_all(self, until: Until, count: int) -> bool:
        """Whether the events of `until.key` are here, `count` of them, or those of a later one in each partition."""
        found, blocked = 0, True
        for queue in self._queues.values():
            is_blocked = False
            for events in queue.parts:
                later = events.later(until)
                stop = int(later[0]) if len(later) else len(events.keys)
                found += int((events.keys[:stop] == until.key).sum())
                if is_blocked := len(later) > 0:
                    break
            blocked = blocked and is_blocked
        return found >= count or blocked

    def release(self, until: Until, into: Release) -> None:
        """Moves the messages before the first event after `until` to `into`."""
        for partition, queue in self._queues.items():
            while queue.parts:
                events = queue.parts.popleft()
                later = events.later(until)
                stop = int(later[0]) if len(later) else len(events.keys)
                self.nbytes -= events.messages.nbytes
                if stop < len(events.keys):
                    rest = events.take(np.arange(stop, len(events.keys)))
                    queue.parts.appendleft(rest)
                    self.nbytes += rest.messages.nbytes
                if stop:
                    # A repetition at the end is read again after a restart, for the tombstone that may follow it.
                    last, is_event = stop - 1, events.messages.values[stop - 1].is_valid
                    is_read = bool(events.accepted[last]) or not is_event
                    into.offsets[partition] = int(events.messages.offsets[last]) + is_read
                    if reached := events.positions.last(stop):
                        into.positions[partition] = queue.stored = {**queue.stored, **reached}
                    if len(accepted := np.flatnonzero(events.accepted[:stop])):
                        into.messages.append(events.messages.take(accepted))
                if stop < len(events.keys):
                    break
            if not queue.parts and queue.end is not None and queue.last is None:
                into.offsets[partition], queue.end = queue.end, None


def _after_repetitions(messages: Messages, accepted: NDArray[np.bool_], last: bytes | None) -> NDArray[np.bool_]:
    """Where messages of a partition have no value, and the key of a repetition that directly precedes them.

    `last`: the key of the message before them if it was the repetition of an event.
    """
    keys = pa.concat_arrays([pa.array([last], pa.binary()), messages.keys])
    same = np.asarray(pc.equal(keys[1:], keys[:-1]).fill_null(False))
    repeated = np.concatenate([[last is not None], ~accepted[:-1]])
    found: NDArray[np.bool_] = np.asarray(messages.values.is_null()) & same & repeated
    return found


class TransactionMerger:
    """Releases the messages of several topics by transaction."""

    def __init__(self, buffers: Mapping[str, TopicBuffer], numbers: Mapping[str, int]) -> None:
        """`buffers`: by topic. `numbers`: of the last released END by domain, as stored."""
        self.numbers = dict(numbers)
        self.next_offset: int | None = None
        """In the topic of transactions, after the last END that was released; None if there was none."""
        self._buffers = buffers
        self._ends: deque[End] = deque()
        self._added = dict(numbers)

    def add(self, end: End) -> None:
        """Appends the END of a transaction. A repetition is dropped."""
        if end.number > self._added.get(end.domain, -1):
            self._added[end.domain] = end.number
            self._ends.append(end)

    def wants(self, topic: str) -> bool:
        """Whether messages of a topic should be read: it has few, or the front transaction misses some."""
        if self._buffers[topic].nbytes < BUFFER_BYTES_MAX:
            return True
        return bool(self._ends) and not self._has_all(self._ends[0], topic)

    @property
    def wants_ends(self) -> bool:
        """Whether messages of the transactions' topic should be read."""
        return len(self._ends) < ENDS_MAX

    @property
    def pending(self) -> int:
        """The number of transactions that are not released."""
        return len(self._ends)

    def _has_all(self, end: End, topic: str) -> bool:
        count = end.count_in(topic)
        return count == 0 or self._buffers[topic].has_all(self._until(end), count)

    def _until(self, end: End) -> Until:
        return Until({**self.numbers, end.domain: end.number}, end.key)

    def release(self) -> dict[str, Release]:
        """The messages of the complete transactions at the front, by topic."""
        found = {topic: Release() for topic in self._buffers}
        for topic, buffer in self._buffers.items():
            buffer.release(Until(self.numbers), found[topic])
        while self._ends and all(self._has_all(self._ends[0], topic) for topic in self._buffers):
            end = self._ends.popleft()
            self.numbers[end.domain] = end.number
            self.next_offset = end.next_offset
            for topic, buffer in self._buffers.items():
                buffer.release(self._until(end), found[topic])
        return found
