"""Delivers notifications (NOTIFY) to the sessions that listen on their channel, in the order of the commits.

A receiver gets the messages of a transaction that are for it as encoded bytes, which the receivers of the same
channels share.
Nothing is stored: a notification reaches the sessions that listen when its transaction commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.backend import NotificationResponse

CHANNEL_BYTES_MAX = 63  # NAMEDATALEN - 1
PAYLOAD_BYTES_MAX = 7_999


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
    """The receivers of all channels. A channel belongs to a database."""

    def __init__(self) -> None:
        self._receivers: dict[tuple[str, str], dict[Receiver, None]] = {}

    def listen(self, database: str, channel: str, receiver: Receiver) -> None:
        self._receivers.setdefault((database, channel), {})[receiver] = None

    def unlisten(self, database: str, channel: str, receiver: Receiver) -> None:
        """Ends the delivery to a receiver. Does nothing if it does not listen on the channel."""
        receivers = self._receivers.get((database, channel))
        if receivers is not None:
            receivers.pop(receiver, None)
            if not receivers:
                del self._receivers[database, channel]

    def send(self, database: str, notifications: Sequence[tuple[str, bytes]]) -> None:
        """Delivers the notifications of one transaction: the channel of each, and the encoded message."""
        channels: dict[Receiver, list[str]] = {}
        for channel in dict.fromkeys(channel for channel, _ in notifications):
            for receiver in self._receivers.get((database, channel), ()):
                channels.setdefault(receiver, []).append(channel)
        messages: dict[frozenset[str], bytes] = {}
        for receiver, names in channels.items():
            key = frozenset(names)
            if key not in messages:
                messages[key] = b"".join(message for channel, message in notifications if channel in key)
            receiver.notified(messages[key])
