"""Subscriptions: a snapshot, then every change as it commits, in order of timestamp, with progress messages.

docs/subscribe.md specifies them. Rows are sent in order of time. A progress message at t means that all times before t
are final. The first progress message is at AS OF and precedes the snapshot. Rows are sent at times t with
`AS OF <= t < UP TO`; with SNAPSHOT false with `AS OF < t < UP TO`.

After the snapshot is delivered, the changes buffered for a lagging reader are limited: beyond `buffered_bytes_max` the
subscription ends with 54000, even while its session is blocked by a full socket (`interrupt`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from catalog import updates
from catalog.ids import TIMESTAMP_MAX, Timestamp
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.stream.feed import Entry, Feed, Reader
from server.dataflow.stream.snapshot_stream import SnapshotStream
from server.runtime.errors import evaluation_error


@dataclass(frozen=True, slots=True)
class Progress:
    """All times before `time` are final."""

    time: int


Message = Entry | Progress


@dataclass(frozen=True, slots=True)
class Bounds:
    """The options of a SUBSCRIBE that limit its stream. `up_to` is exclusive, None for an endless stream."""

    up_to: int | None
    snapshot: bool
    progress: bool

    def past(self, time: int) -> bool:
        """Whether the stream ends before `time`."""
        return self.up_to is not None and time >= self.up_to


class Subscription:
    """A reader of a feed, and a started snapshot stream: the snapshot and the changes before the reader's position.

    `next` returns batches of messages, so that a caller can wait with a deadline. `close` releases the reader.
    """

    def __init__(
        self,
        feed: Feed,
        reader: Reader,
        snapshot_stream: SnapshotStream,
        as_of: Timestamp,
        bounds: Bounds,
        buffered_bytes_max: int,
    ) -> None:
        self.feed = feed
        self.reader = reader
        self._snapshot_stream: SnapshotStream | None = snapshot_stream  # until it is finished
        self._as_of = as_of
        self._bounds = bounds
        self._buffered_bytes_max = buffered_bytes_max
        self.reported = int(as_of)
        """The greatest progress returned so far; without PROGRESS, the one that would have been returned."""
        self._sent = 0  # the last progress > AS OF that the caller has sent: a point to resume from; 0 for none
        self.interrupt: Callable[[PgError], None] | None = None
        """Called with the error that ends the stream, while the rows are being sent."""
        self._error: PgError | None = None
        self.reader.on_overrun = self._overran
        self._first: list[Message] = [Progress(as_of)] if bounds.progress else []
        self.finished = False

    def skip_first_progress(self) -> None:
        """Called before the first `next` if the client has the first progress already."""
        self._first.clear()

    def _wanted(self, entries: list[Entry]) -> list[Entry]:
        return [e for e in entries if e.time > self._as_of and not self._bounds.past(e.time)]

    async def next(self, bytes_max: int | None = None) -> list[Message]:
        """Waits for the next messages: at least one unless the stream has `finished`. Raises the feed's failure.

        `bytes_max`: an approximate limit of their size. Cancel safety: no message is lost; the next call returns it.
        """
        while True:
            messages = self.ready(bytes_max)
            if messages or self.finished:
                return messages
            await (self.feed if self._snapshot_stream is None else self._snapshot_stream).moved.wait()

    def ready(self, bytes_max: int | None = None) -> list[Message]:
        """The messages that are available without waiting, as `next`."""
        if self.finished:
            return []
        if self._error is not None:
            raise self._error
        if self.reader.overrun:
            raise self._fell_behind()
        messages, self._first = self._first, []
        if self._snapshot_stream is not None:
            messages.extend(self._snapshot_stream.take())
            if not self._snapshot_stream.finished:
                return messages
            self._snapshot_stream = None
        elif self.reader.limit is None:
            self.reader.bound(self._buffered_bytes_max)  # from now on, as the snapshot is delivered
        messages.extend(self._wanted(self.reader.take(bytes_max)))
        if not self.reader.is_at_end:
            return messages
        upper = self.feed.upper
        if self._bounds.past(upper):
            self.close()
        elif upper > self.reported:
            self.reported = upper
            if self._bounds.progress:
                messages.append(Progress(upper))
        if not messages and not self.finished and self.feed.failure is not None:
            raise evaluation_error(self.feed.failure)
        return messages

    @property
    def is_live(self) -> bool:
        """Whether every available message was taken, so that all live subscriptions get the same from now on."""
        return (
            self.reported == self.feed.upper
            and self.reported > self._as_of
            and self._snapshot_stream is None
            and self.reader.is_at_end
            and not self.reader.overrun
            and self._error is None
            and not self.finished
            and self._bounds.up_to is None
            and self.feed.failure is None
        )

    def continue_at(self, reader: Reader, reported: int, sent: int) -> None:
        """Continues at the position of another reader, which delivered the times before `reported` to this client.

        `sent`: the last progress that was sent meanwhile, 0 for none.
        """
        self.feed.rejoin(self.reader, reader)
        if self.reader.limit is None:
            self.reader.bound(self._buffered_bytes_max)
        self.reported = reported
        self._sent = max(self._sent, sent)

    def sent(self, message: Message) -> None:
        """Called when the message is in the client's byte stream: a later error follows it there."""
        if isinstance(message, Progress) and message.time > self._as_of:
            self._sent = message.time

    def _overran(self) -> None:
        if self.interrupt is not None:
            self.interrupt(self._fell_behind())

    def end(self, error: PgError) -> None:
        """Ends the stream with an error. The client gets no change that it has not received yet."""
        if self._error is None and not self.finished:
            self._error = error
            if self._snapshot_stream is not None:
                self._snapshot_stream.moved.fire()
            self.feed.moved.fire()
            if self.interrupt is not None:
                self.interrupt(error)

    def _fell_behind(self) -> PgError:
        """54000. The hint names the last progress that precedes the error in the byte stream."""
        resume = (
            f"The last progress before this error is {self._sent}: SUBSCRIBE ... WITH (PROGRESS, SNAPSHOT false) "
            f"AS OF {self._sent - 1} continues from there, as long as that time can be read."
            if self._sent
            else "No progress was reported before this error: a new subscription is needed."
        )
        return PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            "subscription fell too far behind",
            detail=f"More than {self._buffered_bytes_max} bytes of changes were buffered for this client.",
            hint=f"{resume} Read faster, or raise subscription_waiting_bytes_max.",
        )

    def close(self) -> None:
        """Releases the reader and the snapshot stream. May be called twice."""
        self.finished = True
        if self._snapshot_stream is not None:
            self._snapshot_stream.close()
        self.reader.close()


class ConstantSubscription:
    """A subscription to a relation without inputs: its rows are sent at `time`, then the stream ends."""

    def __init__(self, rows: pa.Table, *, snapshot: bool, progress: bool, time: int = TIMESTAMP_MAX) -> None:
        self.interrupt: Callable[[PgError], None] | None = None  # never called: nothing is buffered
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
        """Does nothing: no error can follow."""

    def ready(self, bytes_max: int | None = None) -> list[Message]:
        self.finished = True
        messages, self._messages = self._messages, []
        return messages

    def close(self) -> None:
        self.finished = True


class PendingSubscription:
    """A subscription that is not `started` yet, because AS OF is in the future or its query is being computed.

    `first`: the first progress, if the time of the snapshot is known already. It is the only message; afterwards the
    caller continues with `started`.
    """

    def __init__(self, starting: asyncio.Task[Subscription], first: Progress | None) -> None:
        self.interrupt: Callable[[PgError], None] | None = None
        self._messages: list[Message] = [] if first is None else [first]
        self._first = first
        self._starting = starting
        self.finished = False

    @property
    def started(self) -> Subscription | None:
        """The subscription to continue with; None before it has started. Raises the error of starting it."""
        if not self._starting.done() or self.finished:
            return None
        subscription = self._starting.result()
        if self._first is not None and not self._messages:
            subscription.skip_first_progress()
        subscription.interrupt = self.interrupt
        return subscription

    async def started_within(self, timeout_s: float) -> Subscription | PendingSubscription:
        """Waits for the subscription; returns itself after the timeout. Raises the error of starting it."""
        try:
            await asyncio.wait([self._starting], timeout=timeout_s)
        except BaseException:
            self.close()
            raise
        return self.started or self

    async def next(self, bytes_max: int | None = None) -> list[Message]:
        """As `Subscription.next`, but returns an empty list when the subscription has started."""
        if not self._messages:
            await asyncio.wait([self._starting])
        return self.ready(bytes_max)

    def ready(self, bytes_max: int | None = None) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

    def sent(self, message: Message) -> None:
        """Does nothing: the first progress is not a point to resume from."""

    def close(self) -> None:
        self.finished = True
        self._starting.cancel()
        self._starting.add_done_callback(_closed)


def _closed(starting: asyncio.Task[Subscription]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()


AnySubscription = Subscription | ConstantSubscription | PendingSubscription
