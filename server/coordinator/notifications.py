"""Delivers notifications (NOTIFY) to the sessions that listen on their channel, in the order of the commits.

A receiver gets the messages of a transaction that are for it as encoded bytes, which the receivers of a channel share.
Nothing is stored: a notification reaches the sessions that listen when its transaction commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple, Protocol

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.backend import NotificationResponse

CHANNEL_BYTES_MAX = 63  # NAMEDATALEN - 1
PAYLOAD_BYTES_MAX = 7_999


class Notification(NamedTuple):
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
        """Does nothing if the receiver does not listen on the channel."""
        receivers = self._receivers.get((database, channel))
        if receivers is not None:
            receivers.pop(receiver, None)
            if not receivers:
                del self._receivers[database, channel]

    def send(self, database: str, process_id: int, notifications: Iterable[Notification]) -> None:
        """Delivers the notifications of one transaction. `process_id`: of the session that sends them."""
        for channel, of_channel in groupby(notifications, lambda notification: notification.channel):
            receivers = self._receivers.get((database, channel))
            if receivers:
                data = b"".join(NotificationResponse(process_id, *sent).serialize() for sent in of_channel)
                for receiver in list(receivers):
                    receiver.notified(data)
