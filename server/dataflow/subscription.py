"""One subscription: a snapshot, then every change as it commits, timestamp by timestamp, with progress messages.

The rules are `spec.md` 1.3-1.6 (seed 000): rows leave in order of time; a progress message at t promises that all
times before t are final; the first one stands at the AS OF, before the snapshot. SNAPSHOT true keeps times >= AS OF,
false keeps times > AS OF, both keep times < UP TO.

What is kept back for a reader that lags is bounded: beyond `waiting_bytes_max` the subscription ends with 54000.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pyarrow as pa

from catalog import updates
from catalog.objects import TIMESTAMP_MAX, Timestamp
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator import Joined
from server.dataflow.feed import Entry


@dataclass(frozen=True, slots=True)
class Progress:
    """All times before `time` are final."""

    time: int


Message = Entry | Progress


@dataclass(frozen=True, slots=True)
class Bounds:
    """`up_to` is exclusive, None for an endless stream."""

    up_to: int | None
    snapshot: bool
    progress: bool


class Subscription:
    """A place in a feed, with what came before it: the snapshot at AS OF and the changes between it and the feed.

    Batches of messages come from `next`, so that a caller can wait with a deadline; `close` releases what it holds.
    """

    def __init__(self, joined: Joined, bounds: Bounds, waiting_bytes_max: int) -> None:
        self._feed = joined.feed
        self._reader = joined.reader
        self._as_of = joined.as_of
        self._bounds = bounds
        self._waiting_bytes_max = waiting_bytes_max
        self._told = joined.as_of  # the greatest progress that was told
        self._first: list[Message] = []
        if bounds.progress:
            self._first.append(Progress(joined.as_of))
        if bounds.snapshot and not self._past(joined.as_of):
            rows = updates.consolidate(updates.with_diff(joined.rows, 1))
            if rows.num_rows:
                self._first.append(Entry(joined.as_of, rows))
        self._first.extend(self._wanted(joined.catch_up))
        self.finished = False

    def _wanted(self, entries: list[Entry]) -> list[Entry]:
        return [e for e in entries if e.time > self._as_of and not self._past(e.time)]

    def _past(self, time: int) -> bool:
        return self._bounds.up_to is not None and time >= self._bounds.up_to

    async def next(self) -> list[Message]:
        """The next messages, at least one unless the stream has `finished`. Raises what ended the feed.

        Cancel safety: no message is lost; the next call gives it.
        """
        while True:
            messages = self.ready()
            if messages or self.finished:
                return messages
            await self._feed.moved.wait()

    def ready(self) -> list[Message]:
        """What can be had without waiting."""
        if self.finished:
            return []
        if not self._first and self._reader.waiting_bytes > self._waiting_bytes_max:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                "subscription fell too far behind",
                detail=f"More than {self._waiting_bytes_max} bytes of changes waited for this client.",
                hint="Read faster, or raise subscription_waiting_bytes_max.",
            )
        messages, self._first = self._first, []
        messages.extend(self._wanted(self._reader.take()))
        upper = self._feed.upper
        if self._past(upper):
            self.close()
        elif upper > self._told:
            self._told = upper
            if self._bounds.progress:
                messages.append(Progress(upper))
        if not messages and not self.finished and self._feed.failure is not None:
            raise self._feed.failure
        return messages

    def close(self) -> None:
        """Releases the place in the feed. May be called twice."""
        self.finished = True
        self._reader.close()


class ConstantSubscription:
    """A relation that reads nothing: time does not pass, its rows come at the greatest time and the stream ends."""

    def __init__(self, rows: pa.Table, *, snapshot: bool, progress: bool) -> None:
        self._messages: list[Message] = []
        if progress:
            self._messages.append(Progress(TIMESTAMP_MAX))
        if snapshot and rows.num_rows:
            changes = updates.consolidate(updates.with_diff(rows, 1))
            self._messages.append(Entry(Timestamp(TIMESTAMP_MAX), changes))
        self.finished = False

    async def next(self) -> list[Message]:
        return self.ready()

    def ready(self) -> list[Message]:
        self.finished = True
        messages, self._messages = self._messages, []
        return messages

    def close(self) -> None:
        self.finished = True


AnySubscription = Subscription | ConstantSubscription


async def messages_of(subscription: AnySubscription) -> AsyncIterator[list[Message]]:
    """All batches of messages to the end of the stream."""
    while not subscription.finished:
        yield await subscription.next()
