"""One subscription: a snapshot, then every change as it commits, timestamp by timestamp, with progress messages.

The rules are those of docs/subscribe.md: rows leave in order of time; a progress message at t promises that all
times before t are final; the first one stands at the AS OF, before the snapshot. SNAPSHOT true keeps times >= AS OF,
false keeps times > AS OF, both keep times < UP TO.

What waits for a reader that lags is bounded once its snapshot is delivered: beyond `waiting_bytes_max` the
subscription ends with 54000, also while its session waits at a socket that takes nothing (`on_overrun`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catalog import updates
from catalog.objects import TIMESTAMP_MAX, Timestamp
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.feed import Entry, Feed, Reader
from server.dataflow.prelude import Prelude
from server.failures import evaluation_error


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

    def past(self, time: int) -> bool:
        """Whether the stream ends before `time`."""
        return self.up_to is not None and time >= self.up_to


class Subscription:
    """A place in a feed, with what comes before it, its prelude, which has begun.

    Batches of messages come from `next`, so that a caller can wait with a deadline; `close` releases what it holds.
    """

    def __init__(
        self, feed: Feed, reader: Reader, prelude: Prelude, as_of: Timestamp, bounds: Bounds, waiting_bytes_max: int
    ) -> None:
        self.feed = feed
        self.reader = reader
        self._prelude = prelude
        self._as_of = as_of
        self._bounds = bounds
        self._waiting_bytes_max = waiting_bytes_max
        self.told = int(as_of)
        """The greatest progress that was told, or would have been with PROGRESS."""
        self._sent = 0  # the last progress that a caller has sent, beyond AS OF: a point to resume from
        self.on_overrun: Callable[[PgError], None] | None = None
        self.reader.on_overrun = self._overran
        self._first: list[Message] = [Progress(as_of)] if bounds.progress else []
        self.finished = False

    def opened(self) -> None:
        """The first progress has been told already."""
        self._first.clear()

    def _wanted(self, entries: list[Entry]) -> list[Entry]:
        return [e for e in entries if e.time > self._as_of and not self._bounds.past(e.time)]

    async def next(self, bytes_max: int | None = None) -> list[Message]:
        """The next messages, at least one unless the stream has `finished`. Raises what ended the feed.

        `bytes_max`: no more than about so much of what there is. Cancel safety: no message is lost; the next call
        gives it.
        """
        while True:
            messages = self.ready(bytes_max)
            if messages or self.finished:
                return messages
            await (self.feed.moved if self._prelude.finished else self._prelude.moved).wait()

    def ready(self, bytes_max: int | None = None) -> list[Message]:
        """What can be had without waiting."""
        if self.finished:
            return []
        if self.reader.overrun:
            raise self._fell_behind()
        messages, self._first = self._first, []
        if not self._prelude.finished:
            messages.extend(self._prelude.take())
            if not self._prelude.finished:
                return messages
        elif self.reader.limit is None:
            self.reader.bound(self._waiting_bytes_max)  # from now on: the snapshot has been taken
        messages.extend(self._wanted(self.reader.take(bytes_max)))
        if not self.reader.is_at_end:
            return messages
        upper = self.feed.upper
        if self._bounds.past(upper):
            self.close()
        elif upper > self.told:
            self.told = upper
            if self._bounds.progress:
                messages.append(Progress(upper))
        if not messages and not self.finished and self.feed.failure is not None:
            raise evaluation_error(self.feed.failure)
        return messages

    @property
    def is_live(self) -> bool:
        """Everything there is has been taken, and what comes is the same for all who are live in this feed."""
        return (
            self.told == self.feed.upper
            and self.told > self._as_of
            and self._prelude.finished
            and self.reader.is_at_end
            and not self.reader.overrun
            and not self.finished
            and self._bounds.up_to is None
            and self.feed.failure is None
        )

    def follows(self, reader: Reader, told: int, sent: int) -> None:
        """Takes the place of another reader of the feed, through which this one was told of times before `told`.

        `sent`: the last progress that a caller has sent meanwhile, 0 for none.
        """
        self.feed.rejoin(self.reader, reader)
        if self.reader.limit is None:
            self.reader.bound(self._waiting_bytes_max)
        self.told = told
        self._sent = max(self._sent, sent)

    def sent(self, message: Message) -> None:
        """The caller has put a message into its byte stream, in which an error would stand behind it."""
        if isinstance(message, Progress) and message.time > self._as_of:
            self._sent = message.time

    def _overran(self) -> None:
        if self.on_overrun is not None:
            self.on_overrun(self._fell_behind())

    def _fell_behind(self) -> PgError:
        """The hint is true of the byte stream: it names what stands before the error there."""
        resume = (
            f"The last progress before this error is {self._sent}: SUBSCRIBE ... WITH (PROGRESS, SNAPSHOT false) "
            f"AS OF {self._sent - 1} goes on from there, as long as that time can be read."
            if self._sent
            else "No progress was told before this error: subscribe anew."
        )
        return PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            "subscription fell too far behind",
            detail=f"More than {self._waiting_bytes_max} bytes of changes waited for this client.",
            hint=f"{resume} Read faster, or raise subscription_waiting_bytes_max.",
        )

    def close(self) -> None:
        """Releases the place in the feed. May be called twice."""
        self.finished = True
        self._prelude.close()
        self.reader.close()


class ConstantSubscription:
    """A relation that reads nothing: time does not pass, its rows come at the greatest time and the stream ends."""

    def __init__(self, rows: pa.Table, *, snapshot: bool, progress: bool, time: int = TIMESTAMP_MAX) -> None:
        self.on_overrun: Callable[[PgError], None] | None = None  # never: it is all here
        self._messages: list[Message] = []
        if progress:
            self._messages.append(Progress(time))
        if snapshot and rows.num_rows:
            changes = updates.consolidate(updates.with_diff(rows, 1))
            self._messages.append(Entry(Timestamp(time), changes))
        self.finished = False

    async def next(self, bytes_max: int | None = None) -> list[Message]:
        return self.ready(bytes_max)

    def sent(self, message: Message) -> None:
        """Nothing can fail behind it."""

    def ready(self, bytes_max: int | None = None) -> list[Message]:
        self.finished = True
        messages, self._messages = self._messages, []
        return messages

    def close(self) -> None:
        self.finished = True


class ComingSubscription:
    """One as of a time that has not come: the first progress is told at once, the rest when it has `begun`."""

    def __init__(self, begin: Coroutine[Any, Any, Subscription], as_of: int, *, progress: bool) -> None:
        self.on_overrun: Callable[[PgError], None] | None = None
        self._messages: list[Message] = [Progress(as_of)] if progress else []
        self._beginning = asyncio.create_task(begin)
        self.finished = False

    @property
    def begun(self) -> Subscription | None:
        """What to go on with from here. Raises what kept it from beginning."""
        if not self._beginning.done() or self.finished:
            return None
        subscription = self._beginning.result()
        subscription.opened()
        subscription.on_overrun = self.on_overrun
        return subscription

    async def next(self, bytes_max: int | None = None) -> list[Message]:
        """As a subscription's, but an empty list may mean that it has begun."""
        if not self._messages:
            await asyncio.wait([self._beginning])
        return self.ready(bytes_max)

    def ready(self, bytes_max: int | None = None) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

    def sent(self, message: Message) -> None:
        """The first progress is no point to resume from."""

    def close(self) -> None:
        self.finished = True
        self._beginning.cancel()
        self._beginning.add_done_callback(_closed)


def _closed(beginning: asyncio.Task[Subscription]) -> None:
    if not beginning.cancelled() and beginning.exception() is None:
        beginning.result().close()


AnySubscription = Subscription | ConstantSubscription | ComingSubscription
