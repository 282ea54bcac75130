"""Delivers notifications (NOTIFY) to the sessions that listen on their channel, in the order of the commits.

A receiver gets the messages of a transaction that are for it as encoded bytes, which the receivers of the same
channels share.
Nothing is stored: a notification reaches the sessions that listen when its transaction commits.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.backend import NotificationResponse
from server.runtime.offload import TURN_S

CHANNEL_BYTES_MAX = 63  # NAMEDATALEN - 1
PAYLOAD_BYTES_MAX = 7_999
WAITING_BYTES_MAX = 64 << 20  # of notifications that are committed and not delivered; further commits wait
_ENTRY_BYTES = 128  # of memory, for each notification


class Notification(NamedTuple):
    """What NOTIFY sends to the sessions that listen on a channel."""

    channel: str
    payload: str

    @classmethod
    def checked(cls, channel: str, payload: str) -> Notification:
        """PgError 22023 if the channel or the payload is too long, or the channel is empty."""
        if not channel:
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, "channel name cannot be empty")
        if len(channel.encode()) > CHANNEL_BYTES_MAX:
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, "channel name too long")
        if len(payload.encode()) > PAYLOAD_BYTES_MAX:
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, "payload string too long")
        return cls(channel, payload)

    def message(self, process_id: int) -> bytes:
        """The encoded message to a receiver. `process_id`: of the session that sends it."""
        return NotificationResponse(process_id, self.channel, self.payload).serialize()


class Receiver(Protocol):
    """A session that listens. `notified` must not raise."""

    def notified(self, data: bytes) -> None: ...


class Notifications:
    """The receivers of all channels. A channel belongs to a database.

    Delivery takes time for each receiver and each of its channels. It is done in turns of TURN_S, between which the
    event loop runs other sessions. What takes less than a turn is done when `send` returns, unless earlier work waits.
    """

    def __init__(self) -> None:
        self._receivers: dict[tuple[str, str], dict[Receiver, int]] = {}
        """By channel: each receiver, and the number of transactions that were sent before it began to listen."""
        self._sent = 0
        self._work: deque[tuple[Iterator[None], int]] = deque()
        """What is not done yet, in order. With the size of the messages in bytes."""
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_scheduled = False

    def listen(self, database: str, channel: str, receiver: Receiver) -> None:
        self._receivers.setdefault((database, channel), {}).setdefault(receiver, self._sent)

    def unlisten(self, database: str, channel: str, receiver: Receiver) -> None:
        """Ends the delivery to a receiver. Does nothing if it does not listen on the channel."""
        receivers = self._receivers.get((database, channel))
        if receivers is not None:
            receivers.pop(receiver, None)
            if not receivers:
                del self._receivers[database, channel]

    def forget(self, channels: Sequence[tuple[str, str]], receiver: Receiver) -> None:
        """As `unlisten` for these databases and channels, for a receiver that has ended. May be done later."""

        def unlisten() -> Iterator[None]:
            for database, channel in channels:
                self.unlisten(database, channel, receiver)
                yield

        self._do(unlisten(), 0)

    def send(self, database: str, notifications: Sequence[tuple[str, bytes]]) -> None:
        """Delivers the notifications of one transaction: the channel of each, and the encoded message."""
        self._sent += 1
        size = sum(len(message) + _ENTRY_BYTES for _, message in notifications)
        self._do(self._deliver(database, notifications, self._sent), size)

    async def wait_for_room(self) -> None:
        """Returns when at most WAITING_BYTES_MAX of notifications wait for their delivery. Await it before a commit."""
        while not self._has_room.is_set():
            await self._has_room.wait()

    def _deliver(self, database: str, notifications: Sequence[tuple[str, bytes]], number: int) -> Iterator[None]:
        """Delivers the notifications of the transaction with this number. Yields where other work may be done."""
        channels: dict[Receiver, list[str]] = {}
        for channel in dict.fromkeys(channel for channel, _ in notifications):
            for receiver in [*self._receivers.get((database, channel), ())]:
                channels.setdefault(receiver, []).append(channel)
                yield
        last: tuple[frozenset[str], bytes] = frozenset(), b""
        for receiver, names in channels.items():
            listening = [name for name in names if self._listens_since(database, name, receiver) < number]
            if not listening:
                continue
            if (key := frozenset(listening)) != last[0]:
                last = key, b"".join(message for channel, message in notifications if channel in key)
            receiver.notified(last[1])
            yield

    def _listens_since(self, database: str, channel: str, receiver: Receiver) -> float:
        """The number of transactions before the LISTEN; infinite if the receiver does not listen on the channel."""
        return self._receivers.get((database, channel), {}).get(receiver, math.inf)

    def _do(self, work: Iterator[None], size: int) -> None:
        self._work.append((work, size))
        self._bytes += size
        if self._bytes > WAITING_BYTES_MAX:
            self._has_room.clear()
        if not self._is_scheduled:
            self._take_turn()

    def _take_turn(self) -> None:
        self._is_scheduled = False
        turn_end = monotonic() + TURN_S
        while self._work:
            work, size = self._work[0]
            for _ in work:
                if monotonic() > turn_end:
                    self._is_scheduled = True
                    asyncio.get_running_loop().call_soon(self._take_turn)
                    return
            self._work.popleft()
            self._bytes -= size
            if self._bytes <= WAITING_BYTES_MAX:
                self._has_room.set()
