"""Sends a session's notifications to its client: between transactions, even while the session is idle."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from protocol.pgwire.errors import PgError, Severity, SqlState
from server.session_state.sender import Sender

UNSENT_BYTES_MAX = 8 << 20
_ENTRY_BYTES = 64  # of memory, for each part of `_unsent`


class NotificationSender:
    """The notifications of one session that are not sent yet, in the order of their commits.

    If the client does not read them, or keeps a transaction open, they wait. If they become more than UNSENT_BYTES_MAX,
    the session ends with an error: a client that missed notifications could not know it.

    `is_idle`: whether the client may receive notifications now. `terminate` ends the session.
    """

    def __init__(self, sender: Sender, is_idle: Callable[[], bool], terminate: Callable[[PgError], None]) -> None:
        self._sender = sender
        self._is_idle = is_idle
        self._terminate = terminate
        self._unsent: deque[bytes] = deque()
        self._bytes = 0
        self._sending: asyncio.Task[None] | None = None
        self._has_failed = False

    def notified(self, data: bytes) -> None:
        if self._has_failed:
            return
        self._unsent.append(data)
        self._bytes += len(data) + _ENTRY_BYTES
        if self._bytes > UNSENT_BYTES_MAX:
            self._has_failed = True
            self._unsent.clear()
            asyncio.get_running_loop().call_soon(self._terminate, _fell_behind())
        elif self._is_idle():
            self._send_later()

    def send(self) -> None:
        """Sends what the socket accepts, after the queued messages. The rest is sent while the session is idle."""
        if self._unsent:
            self._write()
            if self._unsent:
                self._send_later()

    def close(self) -> None:
        self._has_failed = True
        self._unsent.clear()
        if self._sending is not None:
            self._sending.cancel()

    def _write(self) -> None:
        transport = self._sender.transport
        self._sender.flush()
        while self._unsent and not transport.is_full:
            data = self._unsent.popleft()
            self._bytes -= len(data) + _ENTRY_BYTES
            transport.write(data)

    def _send_later(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_while_idle())

    async def _send_while_idle(self) -> None:
        try:
            while self._unsent and self._is_idle():
                self._write()
                await self._sender.transport.drained()
        finally:
            self._sending = None


def _fell_behind() -> PgError:
    return PgError(
        SqlState.OUT_OF_MEMORY,
        "terminating connection because its notifications were not received",
        detail=f"More than {UNSENT_BYTES_MAX >> 20} MiB of notifications were waiting.",
        hint="Read notifications continuously, and do not keep a transaction open in a session that listens.",
        severity=Severity.FATAL,
    )
