"""The values of sequences: shared by all sessions, never returned twice, and not rolled back.

Values are reserved on disk before they are returned: the file has the last reserved value as the last value. A restart
after a crash therefore continues behind it, and up to `AHEAD_MAX` values are never returned. `close` stores the values
that were returned, so that a regular restart leaves no gap.

A reserved value is taken on the event loop without waiting (`State.next`). A transaction of SQLite reserves at least
`AHEAD` values, as PostgreSQL logs 32 values ahead. It reserves more while a sequence is used quickly.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import structlog

from catalog import sequence_state
from catalog.ids import ObjectId
from catalog.objects.sequences import Sequence
from catalog.sequence_state import Position
from catalog.store import MustEnd, Store
from protocol.pgwire.errors import PgError, SqlState

AHEAD = 32
AHEAD_MAX = 4_096
QUICK_S = 1.0  # if a reservation is used up within this time, the next one is twice as large

log = structlog.get_logger()


def limit_reached(sequence: Sequence) -> PgError:
    """The error of nextval() after the last value of a sequence without CYCLE."""
    bound, value = ("maximum", sequence.maximum) if sequence.increment > 0 else ("minimum", sequence.minimum)
    message = f'nextval: reached {bound} value of sequence "{sequence.name}" ({value})'
    return PgError(SqlState.SEQUENCE_GENERATOR_LIMIT_EXCEEDED, message)


@dataclass(slots=True, eq=False)
class State:
    """The state of one generation of a sequence. `remaining`: the reserved values, for an increment of `step`.

    `store` None: the sequence was created or restarted by a transaction that is not committed, which stores the state.
    """

    id: ObjectId
    generation: int
    value: int
    is_called: bool
    store: Store | None
    remaining: int = 0
    step: int = 0
    _ahead: int = AHEAD
    _reserved_at: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def next(self, sequence: Sequence) -> int | None:
        """Takes the next value if one is reserved; None: call `reserve`."""
        if self.remaining == 0 or self.step != sequence.increment:
            return None
        self.value = self._following(sequence)
        self.is_called = True
        self.remaining -= 1
        return self.value

    async def take(self, sequence: Sequence, count: int) -> list[tuple[int, int]]:
        """Takes the next `count` values: runs of a first value and a number of values. PgError 2200H."""
        runs: list[tuple[int, int]] = []
        while count:
            length = min(count, self.remaining) if self.step == sequence.increment else 0
            if length:
                first = self._following(sequence)
                runs.append((first, length))
                self.value = first + (length - 1) * sequence.increment
                self.is_called = True
                self.remaining -= length
                count -= length
            else:
                await self.reserve(sequence, count)
        return runs

    async def reserve(self, sequence: Sequence, count: int) -> None:
        """Reserves at least one value, and `count` unless the sequence has fewer. PgError 2200H if it has none."""
        async with self._lock:
            if self.step == sequence.increment and self.remaining:
                return
            first, step = self._following(sequence), sequence.increment
            length = _length(sequence, first)
            if length == 0:
                if not sequence.cycle:
                    raise limit_reached(sequence)
                first = sequence.minimum if step > 0 else sequence.maximum
                length = _length(sequence, first)
            if self.store is not None:
                is_quick = monotonic() - self._reserved_at < QUICK_S
                self._ahead = min(2 * self._ahead, AHEAD_MAX) if is_quick else AHEAD
                length = min(length, count + self._ahead)
                await self._save((first + (length - 1) * step, True))
                self._reserved_at = monotonic()
            self.value, self.is_called, self.remaining, self.step = first, False, length, step

    async def set(self, value: int, *, is_called: bool) -> None:
        """Sets the last value, which must be within the bounds. `is_called` False: it is the next value."""
        async with self._lock:
            if self.store is not None:
                await self._save((value, is_called))
            self.value, self.is_called, self.remaining = value, is_called, 0

    async def _save(self, position: Position) -> None:
        assert self.store is not None
        await self.store.transaction(lambda tx: sequence_state.save(tx, self.id, self.generation, position))

    def _following(self, sequence: Sequence) -> int:
        return self.value + sequence.increment if self.is_called else self.value

    @property
    def position(self) -> Position:
        return self.value, self.is_called


def _length(sequence: Sequence, first: int) -> int:
    """The number of values from `first` to the bound."""
    distance = sequence.maximum - first if sequence.increment > 0 else first - sequence.minimum
    return max(distance // abs(sequence.increment) + 1, 0)


class Sequences:
    """The states of the committed sequences, by id and generation.

    A transaction that creates or restarts a sequence stores the state with its commit, from where it is loaded.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._states: dict[tuple[ObjectId, int], State] = {}

    def state(self, sequence: Sequence) -> State:
        """The state of a committed sequence."""
        key = sequence.id, sequence.generation
        found = self._states.get(key)
        if found is None:
            position = sequence_state.load(self._store, *key) or (sequence.first, False)
            found = self._states[key] = State(*key, *position, self._store)
        return found

    def forget(self, is_current: Callable[[ObjectId, int], bool]) -> None:
        """Forgets the states of dropped sequences and of earlier generations."""
        for key in [key for key in self._states if not is_current(*key)]:
            del self._states[key]

    async def close(self) -> None:
        """Stores the last values that were returned, so that no reserved value is lost. A full disk loses these."""
        states = [state for state in self._states.values() if state.remaining]

        def act(tx: sqlite3.Connection) -> None:
            for state in states:
                sequence_state.save(tx, state.id, state.generation, state.position)

        if states:
            try:
                await self._store.transaction(act)
            except (sqlite3.Error, MustEnd) as error:  # the reserved values are skipped, as after a crash
                log.warning("values of sequences not stored", error=str(error))
