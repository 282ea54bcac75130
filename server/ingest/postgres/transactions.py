"""Received messages, divided at the boundaries of transactions. No IO.

Everywhere, BadMessage says that they are not what PostgreSQL sends: transactions one after the other, each with a
greater position than the one before, and changes only within them. Otherwise changes could be lost or repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from protocol.pgoutput import BadMessage
from protocol.pgoutput.messages import DELETE, INSERT, UPDATE, Begin, Commit, Relation, Truncate, parse
from protocol.pgoutput.rows import Positions
from protocol.pgoutput.stream import checked_lsn, format_lsn
from server.ingest.postgres.replication import Received

_BEGIN: Final = ord("B")
_COMMIT: Final = ord("C")
_BEGIN_BYTES, _COMMIT_BYTES = 21, 26
_CHANGES: Final = [INSERT, UPDATE, DELETE, ord("R"), ord("T")]
NEVER: Final = 1 << 64
"""Greater than all log sequence numbers."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages that change rows, `data[start:end]` each, in order."""

    data: bytes
    starts: Positions
    ends: Positions


Item = Stretch | Relation | Truncate


class Transactions:
    """The messages that were received and not taken yet."""

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn
        """All transactions that committed before it have been taken."""
        self.bytes = 0
        self.is_inside = False
        """Whether the messages that were taken end within a transaction."""
        self._commit_lsn = 0  # of that transaction
        self._parts: list[Received] = []
        self._begins: list[NDArray[np.int64]] = []  # in each part: the numbers of its messages
        self._commits: list[NDArray[np.int64]] = []

    def add(self, received: Received) -> None:
        if not len(received.starts):
            return
        kinds = _kinds(received)
        self._parts.append(received)
        self._begins.append(np.flatnonzero(kinds == _BEGIN))
        self._commits.append(np.flatnonzero(kinds == _COMMIT))
        self.bytes += len(received.data)

    def advance(self, lsn: int) -> None:
        """Notes that everything that committed before `lsn` was received. Ignored if not all of it was taken."""
        if not self._parts and not self.is_inside:
            self.lsn = max(self.lsn, lsn)

    @property
    def has_complete(self) -> bool:
        """Whether the end of a transaction has arrived."""
        return any(len(commits) for commits in self._commits)

    def next_lsn(self) -> int:
        """All transactions that committed before it have been taken, and no other is known to be earlier."""
        if self.is_inside:
            return self._commit_lsn
        for part, begins in zip(self._parts, self._begins, strict=True):
            if len(begins):
                return _begin(part, int(begins[0])).commit_lsn
        return self.lsn

    def complete(self, before: int = NEVER) -> list[Item] | None:
        """Takes all complete transactions that committed before `before`. None if there are none."""
        for number in reversed(range(len(self._parts))):
            for commit in self._commits[number][::-1].tolist():
                if _commit(self._parts[number], commit).commit_lsn < before:
                    return list(self._take(number, commit + 1))
        return None

    def everything(self) -> list[Item]:
        """Takes all messages, also those of a transaction whose end has not arrived."""
        return list(self._take(len(self._parts) - 1, len(self._parts[-1].starts))) if self._parts else []

    def _take(self, last: int, count: int) -> Iterator[Item]:
        """Takes the parts before `last`, and the first `count` messages of that one."""
        parts, rest = self._parts[: last + 1], self._parts[last]
        starts = [*(part.starts for part in parts[:-1]), rest.starts[:count]]
        ends = [*(part.ends for part in parts[:-1]), rest.ends[:count]]
        offsets = np.cumsum([0, *(len(part.data) for part in parts[:-1])])
        data = b"".join(part.data for part in parts)
        taken = Received(
            data,
            np.concatenate([s + offset for s, offset in zip(starts, offsets, strict=True)]),
            np.concatenate([e + offset for e, offset in zip(ends, offsets, strict=True)]),
            rest.wal_end,
            rest.keepalive,
        )
        self._parts, self._begins, self._commits = self._parts[last:], self._begins[last:], self._commits[last:]
        self._forget(count)
        return self._divided(taken)

    def _forget(self, count: int) -> None:
        """Removes the first messages of the first part, and the part if it has no others."""
        part = self._parts[0]
        if count < len(part.starts):
            self._parts[0] = Received(part.data, part.starts[count:], part.ends[count:], part.wal_end, part.keepalive)
            for numbers in (self._begins, self._commits):
                numbers[0] = numbers[0][numbers[0] >= count] - count
        else:
            del self._parts[0], self._begins[0], self._commits[0]
        self.bytes = sum(len(part.data) for part in self._parts)

    def _divided(self, taken: Received) -> Iterator[Item]:
        """The messages in order, without those of BEGIN and COMMIT, whose positions are noted."""
        kinds = _kinds(taken)
        self._note(taken, kinds)
        changes_rows = (kinds == INSERT) | (kinds == UPDATE) | (kinds == DELETE)
        first = 0
        others = np.flatnonzero(~changes_rows & (kinds != _BEGIN) & (kinds != _COMMIT))
        for number in [*others.tolist(), len(kinds)]:
            rows = first + np.flatnonzero(changes_rows[first:number])
            if len(rows):
                yield Stretch(taken.data, taken.starts[rows], taken.ends[rows])
            if number < len(kinds):
                message = parse(taken.data[taken.starts[number] : taken.ends[number]])
                if isinstance(message, Relation | Truncate):
                    yield message
            first = number + 1

    def _note(self, taken: Received, kinds: NDArray[np.uint8]) -> None:
        """Checks the order of the messages, and notes the positions of the transactions."""
        is_begin, is_commit = kinds == _BEGIN, kinds == _COMMIT
        boundaries = is_commit[is_begin | is_commit]
        if (boundaries != (np.arange(len(boundaries)) + self.is_inside) % 2).any():
            raise BadMessage("a transaction begins within another one, or ends without a beginning")
        depth = np.cumsum(is_begin) - np.cumsum(is_commit) + self.is_inside
        if ((depth == 0) & np.isin(kinds, _CHANGES)).any():
            raise BadMessage("a change outside of a transaction")
        begun = _lsns(taken, np.flatnonzero(is_begin), _BEGIN_BYTES, 1)
        if self.is_inside:
            begun = np.concatenate([np.array([self._commit_lsn], np.int64), begun])
        commits = np.flatnonzero(is_commit)
        committed, ended = (_lsns(taken, commits, _COMMIT_BYTES, offset) for offset in (2, 10))
        if (begun[: len(committed)] != committed).any():
            raise BadMessage("a transaction ends at another position than its beginning says")
        before = np.concatenate([np.array([self.lsn], np.int64), ended])[: len(begun)]
        if (wrong := np.flatnonzero(begun < before)).size:
            found, end = (format_lsn(int(lsns[wrong[0]])) for lsns in (begun, before))
            raise BadMessage(f"a transaction at {found} follows what ended at {end}")
        if (ended <= committed).any():
            raise BadMessage("a transaction ends before its commit")
        if len(ended):
            self.lsn = int(ended[-1])
        self.is_inside = len(begun) > len(committed)
        if self.is_inside:
            self._commit_lsn = int(begun[-1])


def _lsns(received: Received, numbers: Positions, size: int, offset: int) -> Positions:
    """The log sequence number at an offset of each of these messages, which have `size` bytes."""
    starts = received.starts[numbers]
    if (received.ends[numbers] - starts != size).any():
        raise BadMessage(f"the beginning or the end of a transaction does not have {size} bytes")
    at = starts[:, None] + np.arange(offset, offset + 8)
    found = np.ascontiguousarray(np.frombuffer(received.data, np.uint8)[at]).view(">u8").ravel()
    if len(found):
        checked_lsn(int(found.max()))
    return found.astype(np.int64)


def _kinds(received: Received) -> NDArray[np.uint8]:
    return np.frombuffer(received.data, np.uint8)[received.starts]


def _begin(received: Received, number: int) -> Begin:
    message = parse(received.data[received.starts[number] : received.ends[number]])
    assert isinstance(message, Begin)
    return message


def _commit(received: Received, number: int) -> Commit:
    message = parse(received.data[received.starts[number] : received.ends[number]])
    assert isinstance(message, Commit)
    return message
