"""Broadcasts: live subscriptions of one feed that get the same bytes are served by one task.

For every commit, a subscription by itself costs a task that wakes, takes the entries, encodes them or finds the encoded
form, and writes. A broadcast does this once and costs one socket write per subscription. A subscription whose socket
is full leaves the broadcast, continues by itself from its position, and joins again when it is live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from pathlib import Path

from server.dataflow.stream.encoding import Data, Encode, Encoded, encoded
from server.dataflow.stream.envelope import Envelope
from server.dataflow.stream.feed import Entry, Feed
from server.dataflow.stream.subscription import Progress, Subscription
from server.dataflow.stream.transport import Transport
from server.timeline.frontiers import Pulse

BYTES_MAX = 256 * 1024  # of one round; larger changes are written by each subscription by itself, chunk by chunk
WRITES_MAX = 256  # without yielding to the event loop


_running: dict[Feed, dict[Hashable, Broadcast]] = {}
"""The broadcasts of each feed, by envelope and format. A broadcast is removed when its last member leaves."""


def running(feed: Feed) -> Mapping[Hashable, Broadcast]:
    """Returns the running broadcasts of a feed."""
    return _running.get(feed, {})


class Member:
    """A subscription in a broadcast. `released` is done when it must continue by itself."""

    __slots__ = ("released", "rows", "subscription", "transport")

    def __init__(self, subscription: Subscription, transport: Transport, rows: int) -> None:
        self.subscription = subscription
        self.transport = transport
        self.rows = -rows  # after `Broadcast.leave`, the number of rows written to it
        self.released: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Broadcast:
    """One per feed and key, as long as it has members. Starts its own task."""

    def __init__(self, subscription: Subscription, key: Hashable, envelope: Envelope, encode: Encode) -> None:
        """Begins at the position of `subscription`, which is live. `key`: equal for equal bytes."""
        self._feed = subscription.feed
        self._key = key
        self._envelope = envelope
        self._encode = encode
        self._reader = self._feed.join()
        self._reported = subscription.reported
        self._sent = 0
        self._rows = 0
        self._in_round = False
        self.settled = Pulse()
        """Fires at the end of each round: a subscription that could not join may retry."""
        self._members: dict[Member, None] = {}
        _running.setdefault(self._feed, {})[key] = self
        self._task = asyncio.create_task(self._run())

    def join(self, subscription: Subscription, transport: Transport) -> Member | None:
        """Adds a live subscription. None if it is not at the broadcast's position, or during a round."""
        if self._in_round or subscription.reader.next != self._reader.next or subscription.reported != self._reported:
            return None
        member = Member(subscription, transport, self._rows)
        self._members[member] = None
        self._feed.leave(subscription.reader)
        return member

    def leave(self, member: Member) -> None:
        """Removes a subscription, which continues at the broadcast's position. May be called twice."""
        if member not in self._members:
            return
        del self._members[member]
        member.subscription.continue_at(self._reader, self._reported, self._sent)
        member.rows += self._rows
        if not member.released.done():
            member.released.set_result(None)
        if not self._members:
            self._end()

    def _end(self) -> None:
        self._task.cancel()
        if running(self._feed).get(self._key) is self:
            del _running[self._feed][self._key]
            if not _running[self._feed]:
                del _running[self._feed]
        self._reader.close()

    async def _run(self) -> None:
        """Runs until there are no members. After an error each member continues by itself and reports it."""
        try:
            while self._feed.failure is None:
                if self._reader.is_at_end and self._feed.upper == self._reported:
                    await self._feed.moved.wait()
                elif not await self._round():
                    break
        finally:
            self._in_round = False
            for member in list(self._members):
                self.leave(member)
            self.settled.fire()

    async def _round(self) -> bool:
        """Writes the new entries to all members. Returns False and writes nothing if they exceed BYTES_MAX."""
        self._in_round = True
        entries, upper = self._reader.untaken(), self._feed.upper
        chunks: list[Data] = []
        rows = size = 0
        for entry in entries:
            known = await encoded_entry(entry, self._key, self._envelope, self._encode, self._feed.directory)
            rows, size = rows + known.rows, size + known.bytes
            chunks.extend(known.chunks)
            if size > BYTES_MAX:
                return False
        if self._envelope.progress and upper > self._reported:
            table = await self._envelope.rows(Progress(upper))
            chunks.append(self._encode(table))
            rows += 1
        if chunks:
            await self._write(b"".join(chunks))
        self._reader.take(count=len(entries))
        self._rows += rows
        self._reported = upper
        self._sent = upper if self._envelope.progress else 0
        self._in_round = False
        self.settled.fire()
        return True

    async def _write(self, data: bytes) -> None:
        for number, member in enumerate(list(self._members)):
            if number % WRITES_MAX == WRITES_MAX - 1:
                await asyncio.sleep(0)
            if member.transport.is_full:
                self.leave(member)
            elif not member.released.done():
                member.transport.write(data)


async def follow(
    subscription: Subscription, key: Hashable, envelope: Envelope, encode: Encode, transport: Transport
) -> int:
    """Serves a live subscription by a broadcast as long as possible. Returns the number of rows written to it.

    `key`: equal for equal bytes. Cancel safety: the subscription continues by itself.
    """
    broadcast = running(subscription.feed).get(key)
    if broadcast is None:
        broadcast = Broadcast(subscription, key, envelope, encode)
    member = broadcast.join(subscription, transport)
    if member is None:
        await broadcast.settled.wait()
        return 0
    try:
        await member.released
    finally:
        broadcast.leave(member)
    return member.rows


async def encoded_entry(
    entry: Entry, key: Hashable, envelope: Envelope, encode: Encode, directory: Path | None
) -> Encoded:
    """The entry's rows in wire format, encoded once per key."""
    task = entry.encoded.get(key)
    if task is None:

        async def work() -> Encoded:
            return await encoded(await envelope.rows(entry), encode, directory)

        task = entry.encoded[key] = asyncio.create_task(work())
    return await asyncio.shield(task)
