"""Debezium's topic of transaction metadata: messages of several topics are released by upstream transaction.

A message of status END names a transaction and the number of its events in each table. With n(T, c) the number for the
topic c, and Q(c, p) the messages of c's partition p that are not yet released, the front transaction T is complete if

    for each c:  Σ_p |{ m ∈ Q(c, p) before the first event of a later transaction : m ∈ T }| >= n(T, c)
                 or every Q(c, p) has an event of a later transaction

The second case occurs if events of T were deleted from the topic before they were read. The events of a partition are
in the order of commits. A row of a snapshot at a position after T's commit is treated like an event of a later
transaction: it was written by a connector that lost its position. Messages without a transaction (snapshots,
tombstones) are released with the message that precedes them.

A connector that is killed within T continues after the last event whose position it has stored, and all events before
that are in Kafka. It may write BEGIN again, and then counts from 1: n(T, c) is the number of events after the second
BEGIN. Events are numbered in their transaction and table, too. If T has several BEGINs, the sum in the formula is
therefore replaced by

    |{ number of m : m ∈ T in the topic c, not written before the last BEGIN, by Kafka's timestamps }| >= n(T, c)

and the earlier events have been read once every partition was read up to the end it had after the END was read, or has
an event of a later transaction. The second condition also applies to a transaction that follows one without END: the
events of both are released together. If T's END is repeated before T was released, the last one is used.

A transaction without END is released with the END of a later one. A snapshot that follows its events does not release
them: on demand, the connector writes a snapshot within a transaction, and continues the transaction afterwards. A
transaction without END is recognized by its BEGIN, or by an event that is the first one of its partition. If that event
is read after the later transaction was released, nothing is released until every partition was read up to its current
end or to an event of a later transaction, or BUFFER_BYTES_MAX of its topic are in memory.

Repetitions are dropped by position: events by their position in the database's log (`positions`), transactions by the
number in their id, which ascends. PostgreSQL's ids are `<transaction>:<LSN>`, and the LSN differs between the events
and the END of a transaction; the part before the colon identifies it. The LSN of an END is that of the commit, which
later events have as their last commit. MySQL's ids are GTIDs, or positions in the binlog. A message without value
(tombstone) directly after a repetition with the same key is dropped, too: the row may have been inserted again since.

For each domain (`positions`), one position per partition and one number are stored. The unreleased messages are in
memory: those of the front transaction, and about BUFFER_BYTES_MAX per topic of those after it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from server.ingest.kafka.messages import Messages
from server.ingest.kafka.positions import Highest, Positions, Upstream, in_order, place_numbers, transaction_numbers

BUFFER_BYTES_MAX = 32 * 1024 * 1024
ENDS_MAX = 100_000  # transactions that are not yet released

_LATER = np.iinfo(
    np.int64
).max  # the order of an event whose order is unknown: it is released only with its transaction


@dataclass(frozen=True, slots=True)
class End:
    """The END of a transaction. `key` is in the ids of its messages. Of one `domain`, `number` ascends.

    `counts`: the number of events by table, such as `public.orders`. `next_offset`: in the topic of transactions.
    `begun`: Kafka's timestamp of the last BEGIN if there are several, else None. `follows_open`: a transaction before
    it may have no END.
    """

    key: str
    domain: str
    number: int
    counts: Mapping[str, int]
    next_offset: int = 0
    begun: int | None = None
    follows_open: bool = False

    @classmethod
    def of(cls, upstream: Upstream, id: str, collections: str | None, next_offset: int = 0) -> End:
        """Reads a message's id and the JSON of its `data_collections`. ValueError if they are invalid."""
        counts = {part["data_collection"]: int(part["event_count"]) for part in json.loads(collections or "null") or []}
        domains, numbers, known = transaction_numbers(pa.array([id], pa.string()))
        if not known[0]:
            raise ValueError(f"invalid transaction id: {id}")
        domain = "" if upstream is Upstream.POSTGRES else domains[0]
        return cls(key_of(upstream, id), domain, int(numbers[0]), counts, next_offset)

    @property
    def is_exact(self) -> bool:
        """Whether `counts` are those of the whole transaction, and all before it have an END."""
        return self.begun is None and not self.follows_open

    def count_in(self, topic: str) -> int:
        """The number of events in a topic, `<prefix>.<schema>.<table>`."""
        return sum(n for table, n in self.counts.items() if topic == table or topic.endswith(f".{table}"))


def key_of(upstream: Upstream, id: str) -> str:
    """The part that the ids of all messages of a transaction have in common."""
    return id.partition(":")[0] if upstream is Upstream.POSTGRES else id


@dataclass(frozen=True, slots=True)
class Until:
    """The released transactions: up to a number by domain. `key`: that of the one that is released now, or None."""

    numbers: Mapping[str, int]
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """The transaction and the order of an event, as in `Events`."""

    key: str
    domain: str
    order: int

    def is_later(self, until: Until) -> bool:
        """Whether the event belongs to a transaction after `until`."""
        number = until.numbers.get(self.domain)
        return self.key != until.key and (number is None or self.order > number)


@dataclass(frozen=True)
class Events:
    """Messages of one partition. `keys`: of their transactions, None for a message without one.

    `numbers`: in their transaction and table. `orders`: an event with the domain of an END, and an order of at most its
    number, is not later than the transaction. `accepted`: False for repetitions.
    """

    messages: Messages
    keys: NDArray[np.object_]
    numbers: NDArray[np.int64]
    domains: NDArray[np.object_]
    orders: NDArray[np.int64]
    positions: Positions
    accepted: NDArray[np.bool_]

    def since(self, row: int) -> Events:
        """The messages from a row on. Does not copy them, because many transactions may be released one by one."""
        return Events(*(getattr(self, part.name)[row:] for part in fields(self)))

    @cached_property
    def first(self) -> Event | None:
        """The first event that is not a repetition."""
        for rows in self._blocks():
            found = np.flatnonzero(self.accepted[rows] & (self.keys[rows] != np.array(None)))
            if len(found):
                row = int(rows.start) + int(found[0])
                return Event(self.keys[row], self.domains[row], int(self.orders[row]))
        return None

    def first_later(self, until: Until) -> int | None:
        """The row of the first event of a transaction after `until`."""
        for rows in self._blocks():
            keys = self.keys[rows]
            is_later = self.accepted[rows] & (keys != np.array(None)) & (keys != until.key)
            for domain, number in until.numbers.items():
                is_later &= (self.domains[rows] != domain) | (self.orders[rows] > number)
            if is_later.any():
                return int(rows.start) + int(is_later.argmax())
        return None

    def _blocks(self) -> Iterator[slice]:
        """Slices of increasing size, because searches often end near the start."""
        start, size = 0, 64
        while start < len(self.keys):
            yield slice(start, start + size)
            start, size = start + size, 2 * size


@dataclass
class _Queue:
    """The unreleased messages of a partition. `highest`: the positions of all that were added.

    `stored`: those of the released ones. `end`: the offset up to which nothing follows them, if it is known. `last`:
    the key of the last message if it was the repetition of an event, else None. `read`: the offset before which all was
    added. `snapshot`: the highest position of a row of a snapshot, as numbers of END are, or -1.
    """

    parts: deque[Events] = field(default_factory=deque)
    highest: Highest = field(default_factory=dict)
    stored: Highest = field(default_factory=dict)
    end: int | None = None
    last: bytes | None = None
    read: int = 0
    snapshot: int = -1


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

    def __init__(self, upstream: Upstream, offsets: Mapping[int, int], positions: Mapping[int, Highest]) -> None:
        """`offsets`: of the next messages by partition. `positions`: as stored."""
        self._upstream = upstream
        self._queues = {
            partition: _Queue(highest=highest, stored=highest, read=offset)
            for partition, offset in offsets.items()
            for highest in (positions.get(partition, {}),)
        }

    @property
    def nbytes(self) -> int:
        """The size of the messages."""
        return sum(events.messages.nbytes for queue in self._queues.values() for events in queue.parts)

    def add(self, messages: Messages, ids: pa.Array, numbers: pa.Array, found: Positions) -> None:
        """Appends messages. `ids`: of their transactions, or NULL. `numbers`: in their transactions and tables."""
        keys, domains, orders = self._transactions(ids, found)
        numbers = numbers.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        snapshots = np.where(found.snapshot, place_numbers(self._upstream, found.places), -1)
        for partition in np.unique(messages.partitions).tolist():
            queue = self._queues.setdefault(partition, _Queue())
            rows = np.flatnonzero(messages.partitions == partition)
            accepted, queue.highest = in_order(found, rows, queue.highest)
            queue.end = None
            queue.snapshot = max(queue.snapshot, int(snapshots[rows].max()))
            own = messages.take(rows)
            queue.read = int(own.offsets[-1]) + 1
            accepted[_after_repetitions(own, accepted, queue.last)] = False
            queue.last = own.keys[-1].as_py() if own.values[-1].is_valid and not accepted[-1] else None
            own_positions = replace(found.take(rows), known=found.known[rows] & accepted)
            queue.parts.append(
                Events(own, keys[rows], numbers[rows], domains[rows], orders[rows], own_positions, accepted)
            )

    def reach(self, ends: Mapping[int, int]) -> None:
        """Notes the ends of partitions that were read to them. An end is stored when all before it is released."""
        for partition, end in ends.items():
            queue = self._queues.setdefault(partition, _Queue())
            queue.end, queue.read = end, max(queue.read, end)

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

    def has_all(self, end: End, until: Until, count: int, goals: Mapping[int, int] | None) -> bool:
        """Whether all events of a transaction have been read.

        `until`: the transaction. `count`: of its events. `goals`: the ends of partitions after the END was read, if
        they are known.
        """
        found, numbers = 0, [np.empty(0, np.int64)]
        all_blocked = is_read = True
        for partition in {*self._queues, *(goals or ())}:
            queue = self._queues.setdefault(partition, _Queue())
            is_blocked = end.domain == "" and queue.snapshot > end.number
            for events in queue.parts:
                later = events.first_later(until)
                is_blocked = is_blocked or later is not None
                if end.begun is not None:  # repetitions can follow events of a later transaction
                    own = events.keys == end.key
                    numbers.append(events.numbers[own & (events.messages.timestamps >= end.begun)])
                    continue
                found += int(((events.keys[:later] == end.key) & events.accepted[:later]).sum())
                if later is not None:
                    break
            all_blocked = all_blocked and is_blocked
            is_read = is_read and (is_blocked or (goals is not None and queue.read >= goals.get(partition, 0)))
        if end.begun is not None:
            found = len(np.unique(np.concatenate(numbers)))
        return (found >= count or all_blocked) and (end.is_exact or is_read)

    def has_open(self, until: Until) -> bool:
        """Whether the first event of some partition belongs to a transaction without END, before `until`."""
        for queue in self._queues.values():
            first = next((events.first for events in queue.parts if events.first is not None), None)
            if first is not None and first.key != until.key and not first.is_later(until):
                return True
        return False

    def release(self, until: Until, into: Release) -> None:
        """Moves the messages before the first event after `until` to `into`."""
        for partition, queue in self._queues.items():
            while queue.parts:
                events = queue.parts.popleft()
                later = events.first_later(until)
                stop = len(events.keys) if later is None else later
                if later is not None:
                    queue.parts.appendleft(events.since(later))
                if stop:
                    # A repetition at the end is read again after a restart, because a tombstone may follow it.
                    last, is_event = stop - 1, events.messages.values[stop - 1].is_valid
                    is_read = bool(events.accepted[last]) or not is_event
                    into.offsets[partition] = int(events.messages.offsets[last]) + is_read
                    if reached := events.positions.last(stop):
                        into.positions[partition] = queue.stored = {**queue.stored, **reached}
                    if len(accepted := np.flatnonzero(events.accepted[:stop])):
                        into.messages.append(events.messages.take(accepted))
                if later is not None:
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
        self._goals: dict[tuple[str, int], Mapping[str, Mapping[int, int]]] = {}
        self._added = dict(numbers)
        self._begun: dict[str, list[int]] = {}
        self._has_late = False
        """Whether events of a transaction without END were read after a later transaction had been released."""
        self._late_goals: Mapping[str, Mapping[int, int]] | None = None

    def begin(self, key: str, timestamp: int) -> None:
        """Notes the BEGIN of a transaction. `timestamp`: that of Kafka's message."""
        self._begun.setdefault(key, []).append(timestamp)

    def add(self, end: End) -> None:
        """Appends the END of a transaction. A repetition replaces one that is not released."""
        begun = self._begun.pop(end.key, [])
        if end.number > (last := self._added.get(end.domain, -1)):
            # Transactions are written one after another, so those that have begun have no END.
            follows_open = last == -1 or bool(self._begun)
            self._begun.clear()
            self._added[end.domain] = end.number
            last_begun = begun[-1] if len(begun) > 1 else None
            self._ends.append(replace(end, begun=last_begun, follows_open=follows_open or not begun))
        elif begun:
            self._replace(replace(end, begun=begun[-1]))

    def _replace(self, end: End) -> None:
        for place, known in enumerate(self._ends):
            if (known.key, known.number) == (end.key, end.number):
                # Other END messages are between the two in the topic.
                self._ends[place] = replace(end, next_offset=known.next_offset, follows_open=known.follows_open)
                self._goals.pop((end.domain, end.number), None)

    def accepts(self, topic: str) -> bool:
        """Whether messages of a topic should be read: few are in memory, or the front transaction is not complete."""
        if self._buffers[topic].nbytes < BUFFER_BYTES_MAX:
            return True
        return bool(self._ends) and not self._has_all(self._ends[0], topic)

    @property
    def accepts_ends(self) -> bool:
        """Whether messages of the transactions' topic should be read."""
        return len(self._ends) < ENDS_MAX

    @property
    def wants_goals(self) -> bool:
        """Whether transactions can only be released after a call of `reach`."""
        if self._has_late and self._late_goals is None:
            return True
        return any(not end.is_exact and (end.domain, end.number) not in self._goals for end in self._ends)

    def reach(self, goals: Mapping[str, Mapping[int, int]]) -> None:
        """Sets the current ends of the partitions of each topic, requested after the END messages were read."""
        if self._has_late and self._late_goals is None:
            self._late_goals = goals
        for end in self._ends:
            if not end.is_exact:
                self._goals.setdefault((end.domain, end.number), goals)

    @property
    def pending(self) -> int:
        """The number of transactions that are not released."""
        return len(self._ends)

    def _has_all(self, end: End, topic: str) -> bool:
        count = end.count_in(topic)
        if count == 0 and end.is_exact:
            return True
        goals = self._goals.get((end.domain, end.number))
        return self._buffers[topic].has_all(
            end, self._until(end), count, None if goals is None else goals.get(topic, {})
        )

    def _until(self, end: End) -> Until:
        return Until({**self.numbers, end.domain: end.number}, end.key)

    def release(self) -> dict[str, Release]:
        """The messages of the complete transactions at the front, by topic."""
        found = {topic: Release() for topic in self._buffers}
        if not self._has_all_late():
            return found
        for topic, buffer in self._buffers.items():
            buffer.release(Until(self.numbers), found[topic])
        while self._is_front_complete():
            end = self._ends.popleft()
            self._goals.pop((end.domain, end.number), None)
            self.numbers[end.domain] = end.number
            self.next_offset = end.next_offset
            for topic, buffer in self._buffers.items():
                buffer.release(self._until(end), found[topic])
        return found

    def _is_front_complete(self) -> bool:
        if not self._ends:
            return False
        end = self._ends[0]
        if end.is_exact and any(buffer.has_open(self._until(end)) for buffer in self._buffers.values()):
            self._ends[0] = end = replace(end, follows_open=True)
        return all(self._has_all(end, topic) for topic in self._buffers)

    def _has_all_late(self) -> bool:
        """Whether all events of transactions without END before the last released transaction have been read."""
        until = Until(self.numbers)
        self._has_late = any(buffer.has_open(until) for buffer in self._buffers.values())
        if not self._has_late:
            self._late_goals = None
            return True
        if (goals := self._late_goals) is None:
            return False
        end = End("", "", self.numbers.get("", _LATER), {}, follows_open=True)
        if not all(
            buffer.nbytes >= BUFFER_BYTES_MAX or buffer.has_all(end, until, 0, goals.get(topic, {}))
            for topic, buffer in self._buffers.items()
        ):
            return False
        self._has_late, self._late_goals = False, None
        return True
