"""A collection that CDCv2 messages describe: its reader, and from where the messages must be read again.

Updates are committed when their upstream time is closed, and never a part of a time. Several closed times can share a
commit: after each commit, with F the frontier that is stored with it,

    committed rows = sum of the upstream updates at times before F

With TIMESTAMPS = 'upstream', each change is committed at its upstream time (`server.coordinator.upstream_times`).

Updates and statements that are received and not closed are not stored. The stored positions are those of the first
message that has such updates or statements, so that they are read again after a restart. Repetitions are ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import structlog

from catalog import updates
from catalog.objects.sources import TIMESTAMPS, UPSTREAM
from catalog.source_definition import Envelope, Format
from catalog.source_state import State
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.messages import DIFF, END, TIME, interval
from protocol.cdcv2.reader import Batch, Incomplete, Reader, Waiting
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.option_values import OptionValues

CALLS_MAX = 1_000  # with positions of their own; more are merged in pairs
MULTIPLICITY_MAX = 1_000_000  # of a change: a row is read as often as its multiplicity
HELD_BYTES_MAX = 1 << 30  # of updates and counts at times that are not closed
HELD_STATEMENTS_MAX = 1_000_000
STALL_S = 60.0  # default of STALL TIMEOUT
K = TypeVar("K", bound=Hashable)
Positions = Mapping[K, int]

log = structlog.get_logger()


def keeps_times(options: Mapping[str, str]) -> bool:
    """The option TIMESTAMPS: whether changes are committed at their upstream times. PgError 22023."""
    given = options.get(TIMESTAMPS, "server")
    if given not in ("server", UPSTREAM):
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f'invalid value for option TIMESTAMPS: "{given}"',
            hint="Use 'server' or 'upstream'.",
        )
    return given == UPSTREAM


def check_timestamps(options: Mapping[str, str], format: Format | None) -> None:
    """PgError if the option TIMESTAMPS is invalid, or if the source has no history."""
    if keeps_times(options) and (format is None or format.envelope is not Envelope.MATERIALIZE):
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "option TIMESTAMPS = 'upstream' requires ENVELOPE MATERIALIZE",
            detail="Messages of other formats do not have the times of the changes.",
            hint="Add ENVELOPE MATERIALIZE. For several topics, use FOR TABLES (...).",
        )


def stall_timeout_s(options: Mapping[str, str]) -> float:
    """The option STALL TIMEOUT in seconds. PgError 22023."""
    given_us = OptionValues(options).microseconds("stall timeout")
    return STALL_S if given_us is None else given_us / 1e6


@dataclass(frozen=True, slots=True)
class HistoryStatus:
    """The state of a history, as `mz_source_frontiers` shows it."""

    frontier: int | None
    open_updates: int
    missing_updates: int
    duplicates: int
    invalid_messages: int
    stall: PgError | None


class History(Generic[K]):
    """Takes decoded messages and returns closed changes. `name`: of the topic or files, for messages."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        state: State,
        prefix: str = "",
        *,
        stall_s: float = STALL_S,
        keeps_times: bool = False,
        count_invalid: Callable[[int, str], None] | None = None,
        incomplete: Callable[[], str | None] = lambda: None,
        cut_off: Callable[[float], PgError | None] = lambda _: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`state`, `prefix`: of the source, and of the collection's keys in it. `keeps_times`: see `receive`.

        `count_invalid`: called with the number of invalid messages, and with the place and the reason of the last one.
        `incomplete`: a sentence about messages of which only a part was read; None if there are none. `cut_off`: the
        error if there have been some for this many seconds. They are called in the thread of the caller.
        """
        self._name = name
        self._key = f"{prefix}frontier"
        stored = state.get(self._key)
        self._reader = Reader(schema, 0 if stored is None else int(stored))
        self._calls: deque[tuple[int, dict[K, int]]] = deque()  # numbers, and first positions of calls up to them
        self._earliest: dict[K, int] = {}  # the first position of all of them
        self._arrival = 0
        self._invalid = 0
        self._last_invalid: str | None = None
        self._count_invalid = count_invalid
        self._incomplete = incomplete
        self._cut_off = cut_off
        self._stall_s = stall_s
        self._keeps_times = keeps_times
        self._clock = clock
        self._advanced_at = clock()
        self._is_reported = False
        self._waiting: Waiting | None = None  # as of the last call; None if nothing is held

    def receive(self, found: Decoded, first: Positions[K], place: Callable[[int], str]) -> list[pa.Table]:
        """The changes that messages close. `first`: the first position of the messages, by partition or file.

        The changes of each time are consolidated, and have the column TIME, if the history keeps times. Otherwise those
        of all times are.

        `place(row)`: where a message is, for the log. PgError if a change cannot be committed.
        """
        self._arrival += 1
        self._calls.append((self._arrival, dict(first)))
        self._log_invalid(found, place)
        before = self._reader.frontier
        batch = self._reader.receive(found.updates, found.statements, self._arrival)
        self._check_held()
        self._forget(self._reader.oldest())
        held_nothing = self._waiting is None
        self._waiting = self._reader.waiting() if self._calls else None
        if batch is not None or held_nothing:
            self._advanced_at, self._is_reported = self._clock(), False
        else:
            self.report_stall()
        return [] if batch is None or not batch.updates.num_rows else [self._changes(batch, before)]

    def report_stall(self) -> None:
        """Logs that the frontier does not advance, once until it advances."""
        if (stall := self._stall()) is not None and not self._is_reported:
            self._is_reported = True
            log.warning(
                "history is incomplete", name=self._name, error=stall.message, detail=stall.detail, hint=stall.hint
            )

    @property
    def held(self) -> int:
        """The number of updates, counts and statements that are open: the most that a small message can close."""
        return self._reader.open_updates + self._reader.open_times + self._reader.open_statements

    @property
    def closed(self) -> int | None:
        """The frontier; None if the changes do not have their times."""
        return self._reader.frontier if self._keeps_times else None

    def state(self) -> dict[str, bytes | None]:
        """The frontier, to be committed with the changes."""
        return {self._key: b"%d" % self._reader.frontier}

    def positions(self, read: Positions[K]) -> dict[K, int]:
        """From where to read after a restart. `read`: the positions up to which everything was received."""
        return {key: self._earliest.get(key, position) for key, position in read.items()}

    def status(self) -> HistoryStatus:
        """What is known and what is awaited now. May be called while `receive` runs in a thread, and does not wait."""
        reader, waiting = self._reader, self._waiting
        return HistoryStatus(
            None if reader.frontier == END else reader.frontier,
            reader.open_updates,
            0 if waiting is None else waiting.missing,
            reader.duplicates,
            self._invalid,
            self._stall(),
        )

    def _check_held(self) -> None:
        """PgError if the open updates and statements take too much memory."""
        reader = self._reader
        if reader.nbytes > HELD_BYTES_MAX or reader.open_statements > HELD_STATEMENTS_MAX:
            waiting = reader.waiting()
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f'too much of the history of "{self._name}" is incomplete to be held in memory',
                detail=f"{reader.open_updates} updates and {reader.open_statements} progress statements are held. "
                f"The history is incomplete at time {waiting.frontier}{_shortfall(waiting)}.",
            )

    def _forget(self, oldest: int | None) -> None:
        """Forgets the positions of calls of which nothing is held."""
        forgotten = False
        while self._calls and (oldest is None or self._calls[0][0] < oldest):
            self._calls.popleft()
            forgotten = True
        if len(self._calls) > CALLS_MAX:
            calls = list(self._calls)
            pairs = zip(calls[::2], calls[1::2], strict=False)
            merged = [(number, {**later, **first}) for (_, first), (number, later) in pairs]
            self._calls = deque([*merged, *(calls[-1:] if len(calls) % 2 else [])])
        if forgotten:
            self._earliest = {}
            for _, first in reversed(self._calls):
                self._earliest.update(first)
        elif self._calls:
            self._earliest = {**self._calls[-1][1], **self._earliest}

    def _changes(self, batch: Batch, before: int) -> pa.Table:
        """The consolidated changes of a batch."""
        found = updates.consolidate(batch.updates if self._keeps_times else batch.updates.drop_columns([TIME]))
        diffs = found[DIFF].to_numpy()
        if (len(diffs) and int(np.abs(diffs).max()) > MULTIPLICITY_MAX) or (diffs == np.iinfo(np.int64).min).any():
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f'change of "{self._name}" has a multiplicity of more than {MULTIPLICITY_MAX}',
                detail=f"It is at a time in {interval(before, batch.frontier)}.",
            )
        return found

    def _log_invalid(self, found: Decoded, place: Callable[[int], str]) -> None:
        failed = np.flatnonzero(found.failed)
        self._invalid += len(failed)
        if len(failed):
            row = int(failed[0])
            log.warning(
                "invalid messages", name=self._name, count=len(failed), first=place(row), error=found.reason(row)
            )
            last = int(failed[-1])
            self._last_invalid = f"{place(last)}: {found.reason(last)}"
            if self._count_invalid is not None:
                self._count_invalid(len(failed), self._last_invalid)

    def _stall(self) -> PgError | None:
        waiting = self._waiting
        if waiting is None:
            return self._cut_off(self._stall_s)
        if self._clock() - self._advanced_at < self._stall_s:
            return None
        return PgError(
            SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
            f'the history of "{self._name}" is incomplete at time {waiting.frontier}{_shortfall(waiting)}',
            detail=_detail(waiting),
            hint=" ".join([_hint(waiting), *self._unread()]),
        )

    def _unread(self) -> Iterator[str]:
        """Sentences about what was not read: the messages that are invalid, and those that are not complete."""
        if self._last_invalid is not None:
            count = "1 message was invalid" if self._invalid == 1 else f"{self._invalid} messages were invalid"
            yield f"{count}, at last {self._last_invalid}."
        if (sentence := self._incomplete()) is not None:
            yield sentence


def _shortfall(waiting: Waiting) -> str:
    if waiting.contradiction == waiting.frontier:
        return ": progress statements disagree"
    if (first := _first(waiting)) is None:
        return ": no progress statement covers it"
    if first.received > first.announced:
        return f": more updates have arrived ({first.received}) than progress statements count ({first.announced})"
    return f": {first.received} of {first.announced} updates have arrived"


def _detail(waiting: Waiting) -> str:
    found = []
    if waiting.contradiction == waiting.frontier:
        found.append(f"Two progress statements have different counts for time {waiting.frontier}.")
    surplus = [(each.received - each.announced, each.time) for each in waiting.times if each.received > each.announced]
    if surplus:
        found.append(f"More updates than counted have arrived: {_at_times(surplus)}.")
    if waiting.missing:
        missing = [(each.announced - each.received, each.time) for each in waiting.times]
        missing = [(number, time) for number, time in missing if number > 0]
        is_all = sum(number for number, _ in missing) >= waiting.missing
        updates = "1 update is" if waiting.missing == 1 else f"{waiting.missing} updates are"
        before = "" if waiting.uncovered == END else f" at times before {waiting.uncovered}"
        found.append(f"{updates} missing{before}: {_at_times(missing)}{'' if is_all else ', and more at later times'}.")
    if waiting.queued is not None:
        found.append(f"There is no progress statement about times from {waiting.uncovered} to {waiting.queued}.")
    elif waiting.uncovered == waiting.frontier:
        found.append(f"There is no progress statement about times from {waiting.uncovered} on.")
    return " ".join(found)


def _at_times(numbers: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{number} at time {time}" for number, time in numbers)


def _hint(waiting: Waiting) -> str:
    """What to do. No further message corrects a count that is too small, or statements that disagree."""
    if waiting.contradiction == waiting.frontier:
        wrong = "statement"
    elif (first := _first(waiting)) is not None and first.received > first.announced:
        wrong = "update or count"
    else:
        return "Write the missing messages again: repetitions are ignored."
    return (
        f"No further message can complete this time. Remove the message with the wrong {wrong}, or write the history "
        "to another place, and create the source again."
    )


def _first(waiting: Waiting) -> Incomplete | None:
    """The numbers of updates at the frontier, if they differ."""
    return waiting.times[0] if waiting.times and waiting.times[0].time == waiting.frontier else None
