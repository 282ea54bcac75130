"""Broadcasts: live subscriptions that get the same bytes for the same changes are served by one task.

For every commit, a subscription by itself costs a task that wakes, takes the entries, encodes them or finds the encoded
form, and writes. A broadcast does this once and costs one socket write per subscription. A subscription whose socket
is full leaves the broadcast, continues by itself from its position, and joins again when it is live.

A broadcast serves all feeds of a group. A step costs one write for each member of the feeds with new entries, together
with the progress that closes them. If the feeds are many, the progress of the other members is written at intervals.
If the members are many, progress without entries waits while a commit may follow, with which it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from contextlib import suppress
from pathlib import Path

from server.dataflow.stream.encoding import Data, Encode, Encoded, encoded
from server.dataflow.stream.envelope import Envelope
from server.dataflow.stream.feed import Entry, Feed, FeedGroup
from server.dataflow.stream.progress_row import ProgressRow
from server.dataflow.stream.subscription import Subscription
from server.dataflow.stream.transport import Transport
from server.timeline.frontiers import Pulse

BYTES_MAX = 256 * 1024  # of one round and feed; larger changes are written by each subscription by itself, in chunks
WRITES_MAX = 256  # without yielding to the event loop
AT_ONCE_MAX = 64  # up to this number of feeds, all members get each progress at once
PROGRESS_S = 0.5  # interval of progress for members without new entries of more feeds
LONG_ROUND_S = 0.005  # after a round that took longer, progress without entries waits for twice its duration

_running: dict[FeedGroup, dict[Hashable, Broadcast]] = {}
"""The broadcasts of each group, by envelope and format. A broadcast is removed when its last member leaves."""


def running(group: FeedGroup) -> Mapping[Hashable, Broadcast]:
    """Returns the running broadcasts of a group of feeds."""
    return _running.get(group, {})


class Member:
    """A subscription in a broadcast. `released` is done when it must continue by itself.

    `reported`: the progress that it was given. `sent`: the last progress that was written to it; 0 for none. `rows`:
    the number of rows written to it.
    """

    __slots__ = ("released", "reported", "rows", "sent", "subscription", "transport")

    def __init__(self, subscription: Subscription, transport: Transport) -> None:
        self.subscription = subscription
        self.transport = transport
        self.reported = subscription.reported
        self.sent = 0
        self.rows = 0
        self.released: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Lane:
    """The members that read one feed of the group, and their position in it."""

    __slots__ = ("feed", "members", "reader")

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.reader = feed.join()
        self.members: dict[Member, None] = {}


class Broadcast:
    """One per group of feeds and key, as long as it has members. Starts its own task."""

    def __init__(self, group: FeedGroup, key: Hashable, envelope: Envelope, encode: Encode) -> None:
        """`key` identifies the bytes: subscriptions with the same key get the same ones."""
        self._group = group
        self._key = key
        self._envelope = envelope
        self._encode = encode
        self._progress_row = ProgressRow(envelope, encode)
        self._upper = group.upper  # of the last round
        self._complete = True  # every member had the progress of the last round
        self._progress_at = asyncio.get_running_loop().time()  # when every member had the progress
        self._rested_at = 0.0  # until then, progress without entries waits
        self._in_round = False
        self.settled = Pulse()
        """Fires at the end of each round: a subscription that could not join may retry."""
        self._lanes: dict[Feed, _Lane] = {}
        self._members: dict[Member, None] = {}
        self._appended: dict[Feed, None] = {}  # the feeds with entries since the last round
        group.watch(self._appended)
        _running.setdefault(group, {})[key] = self
        self._task = asyncio.create_task(self._run())

    def join(self, subscription: Subscription, transport: Transport) -> Member | None:
        """Adds a live subscription. None during a round, or if other members of its feed are at an earlier position."""
        feed = subscription.feed
        lane = self._lanes.get(feed)
        if self._in_round or (lane is not None and lane.reader.next != subscription.reader.next):
            return None
        if lane is None:
            lane = self._lanes[feed] = _Lane(feed)
        member = Member(subscription, transport)
        self._members[member] = lane.members[member] = None
        feed.leave(subscription.reader)
        return member

    def leave(self, member: Member) -> None:
        """Removes a subscription, which continues at its feed's position. May be called twice."""
        if member not in self._members:
            return
        feed = member.subscription.feed
        lane = self._lanes[feed]
        del self._members[member], lane.members[member]
        member.subscription.continue_at(lane.reader, member.reported, member.sent)
        if not member.released.done():
            member.released.set_result(None)
        if not lane.members:
            del self._lanes[feed]
            lane.reader.close()
        if not self._members:
            self._end()

    def _end(self) -> None:
        self._task.cancel()
        self._group.unwatch(self._appended)
        if running(self._group).get(self._key) is self:
            del _running[self._group][self._key]
            if not _running[self._group]:
                del _running[self._group]

    async def _run(self) -> None:
        """Runs until there are no members. After an error each member continues by itself and reports it."""
        try:
            while self._group.failure is None:
                due = self._due_at
                if self._appended or (due is not None and asyncio.get_running_loop().time() >= due):
                    await self._round()
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(due):
                            await self._group.moved.wait()
        finally:
            self._in_round = False
            for member in list(self._members):
                self.leave(member)
            self.settled.fire()

    @property
    def _due_at(self) -> float | None:
        """When a round is due even without new entries; None if every member has the progress."""
        if self._group.upper > self._upper:
            return self._rested_at
        return None if self._complete else self._progress_at + PROGRESS_S

    async def _round(self) -> None:
        """Writes the new entries and the progress. Members whose entries exceed BYTES_MAX leave instead."""
        self._in_round = True
        begun = asyncio.get_running_loop().time()
        upper = self._group.upper
        lanes = [lane for feed in self._appended if (lane := self._lanes.get(feed)) is not None]
        self._appended.clear()
        untaken = [lane.reader.untaken() for lane in lanes]  # without an await: entries before `upper`
        closing = await self._progress_row.encoded(upper)
        for lane, entries in zip(lanes, untaken, strict=True):
            found = await self._encoded(entries, lane.feed.directory)
            if found is None:
                for member in list(lane.members):
                    self.leave(member)
                continue
            await self._write(lane.members, b"".join((*found.chunks, closing)), found.rows, upper)
            if lane.members:  # otherwise the lane's reader is closed
                lane.reader.take(count=len(entries))
        now = asyncio.get_running_loop().time()
        self._complete = len(self._lanes) <= AT_ONCE_MAX or now >= self._progress_at + PROGRESS_S
        if self._complete:
            await self._write(self._members, closing, 0, upper)
            self._progress_at = now
        self._upper = upper
        now = asyncio.get_running_loop().time()
        self._rested_at = now + 2 * (now - begun) if now - begun > LONG_ROUND_S else 0.0
        self._in_round = False
        self.settled.fire()

    async def _encoded(self, entries: list[Entry], directory: Path | None) -> Encoded | None:
        """The rows of the entries in wire format. None if they exceed BYTES_MAX."""
        chunks: list[Data] = []
        rows = size = 0
        for entry in entries:
            known = await encoded_entry(entry, self._key, self._envelope, self._encode, directory)
            rows, size = rows + known.rows, size + known.bytes
            chunks.extend(known.chunks)
            if size > BYTES_MAX:
                return None
        return Encoded(rows, tuple(chunks), size)

    async def _write(self, members: Mapping[Member, None], data: bytes, rows: int, upper: int) -> None:
        """Writes to the members that lack the progress `upper`. Those whose sockets are full leave.

        `data`: ends with the progress, if the envelope has any. `rows`: the number of rows before it.
        """
        for number, member in enumerate([member for member in members if member.reported < upper]):
            if number % WRITES_MAX == WRITES_MAX - 1:
                await asyncio.sleep(0)
            if data and member.transport.is_full:
                self.leave(member)
            elif not member.released.done():
                member.reported = upper
                member.rows += rows
                if data:
                    member.transport.write(data)
                if self._envelope.progress:
                    member.sent = upper
                    member.rows += 1


async def follow(
    subscription: Subscription, key: Hashable, envelope: Envelope, encode: Encode, transport: Transport
) -> int:
    """Serves a live subscription by a broadcast as long as possible. Returns the number of rows written to it.

    `key`: as in `Broadcast`. Cancel safety: the subscription continues by itself.
    """
    broadcast = running(subscription.feed.group).get(key)
    if broadcast is None:
        broadcast = Broadcast(subscription.feed.group, key, envelope, encode)
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
