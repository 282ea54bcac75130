"""The channels on which a session listens, and what its transaction changes about them at its commit."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.notifications import Notification, Notifications, Receiver

CHANNELS_MAX = 10_000  # per session
NOTIFICATIONS_MAX = 16_384  # per transaction
NOTIFICATION_BYTES_MAX = 16 << 20  # per transaction


class Nobody:
    """The receiver of a context without a session."""

    def notified(self, data: bytes) -> None:
        """Ignores the notifications."""


class Pending:
    """What a transaction does at its commit: LISTEN, UNLISTEN and NOTIFY, in order.

    As in PostgreSQL, equal notifications of a transaction are sent once.
    """

    __slots__ = ("_bytes", "_notifications", "changes")

    def __init__(self) -> None:
        self.changes: list[tuple[bool, str | None]] = []
        """Whether to listen, and the channel; None: all channels."""
        self._notifications: dict[Notification, bytes] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self.changes or self._notifications)

    @property
    def messages(self) -> Sequence[tuple[str, bytes]]:
        """The channel and the encoded message of each notification."""
        return [(notification.channel, message) for notification, message in self._notifications.items()]

    def notify(self, notification: Notification, process_id: int) -> None:
        """PgError 54000 if the transaction has too many notifications."""
        if notification in self._notifications:
            return
        message = notification.message(process_id)
        if len(self._notifications) >= NOTIFICATIONS_MAX or self._bytes + len(message) > NOTIFICATION_BYTES_MAX:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                "too many notifications in the NOTIFY queue",
                detail=f"A transaction can send at most {NOTIFICATIONS_MAX} notifications, "
                f"of at most {NOTIFICATION_BYTES_MAX >> 20} MiB together.",
            )
        self._notifications[notification] = message
        self._bytes += len(message)

    def listen(self, channel: str) -> None:
        """PgError 54000 if the transaction has too many changes."""
        self._add(True, channel)

    def unlisten(self, channel: str | None) -> None:
        """None: all channels. PgError 54000 if the transaction has too many changes."""
        self._add(False, channel)

    def _add(self, listens: bool, channel: str | None) -> None:
        if len(self.changes) >= CHANNELS_MAX:
            raise _too_many_channels()
        self.changes.append((listens, channel))

    def counts(self) -> tuple[int, int]:
        """The numbers of changes and notifications, for `truncate`."""
        return len(self.changes), len(self._notifications)

    def truncate(self, counts: tuple[int, int]) -> None:
        """Undoes what was added since `counts`."""
        changes, notifications = counts
        del self.changes[changes:]
        while len(self._notifications) > notifications:
            _, message = self._notifications.popitem()
            self._bytes -= len(message)


class Listening:
    """The channels of one session. `receiver`: gets their notifications."""

    def __init__(self, notifications: Notifications) -> None:
        self._notifications = notifications
        self._channels: dict[tuple[str, str], None] = {}
        self.receiver: Receiver = Nobody()

    @property
    def channels(self) -> list[str]:
        """The channels of committed LISTENs, in order."""
        return [channel for _, channel in self._channels]

    def check(self, pending: Pending) -> None:
        """PgError 54000 if the session would listen on too many channels after the changes."""
        listens = {channel for begins, channel in pending.changes if begins}
        if listens and len(self._channels) + len(listens) > CHANNELS_MAX:
            raise _too_many_channels()

    def commit(self, pending: Pending, database: str) -> None:
        """Applies the changes of a transaction that is committed, and sends its notifications."""
        for listens, channel in pending.changes:
            if channel is None:
                self.end()
            elif listens:
                self._channels[database, channel] = None
                self._notifications.listen(database, channel, self.receiver)
            else:
                self._channels.pop((database, channel), None)
                self._notifications.unlisten(database, channel, self.receiver)
        if messages := pending.messages:
            self._notifications.send(database, messages)

    def end(self) -> None:
        """Listens on no channel any more."""
        for database, channel in self._channels:
            self._notifications.unlisten(database, channel, self.receiver)
        self._channels.clear()

    def close(self) -> None:
        """As `end`, at the end of the session, when many others may end, too."""
        self._notifications.forget([*self._channels], self.receiver)
        self._channels.clear()


def _too_many_channels() -> PgError:
    return PgError(
        SqlState.PROGRAM_LIMIT_EXCEEDED,
        "too many channels",
        detail=f"A session can listen on at most {CHANNELS_MAX} channels.",
    )
