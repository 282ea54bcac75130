"""Checks what another server sends during a login, before asyncpg reads it.

asyncpg 0.32 follows a null pointer, which ends the process, if AuthenticationSASLContinue or AuthenticationSASLFinal
comes without the message before it. It keeps a message of up to 2 GiB until it is complete, and the socket open if the
server has not sent its version.
"""

from __future__ import annotations

import struct
from typing import Any

import asyncpg

MESSAGE_BYTES_MAX = 64 * 1024  # of a message during the login

_AUTHENTICATION, _PARAMETER, _READY = b"RSZ"
_SASL, _CONTINUE, _FINAL = 10, 11, 12
_AFTER = {struct.pack(">i", _SASL): _CONTINUE, struct.pack(">i", _CONTINUE): _FINAL}
_HEADER = struct.Struct(">ci")


class GuardedProtocol(asyncpg.protocol.Protocol):  # type: ignore[misc]
    """asyncpg's protocol. It aborts a connection whose login does not follow PostgreSQL's protocol."""

    _transport: Any = None
    _login: bytes | None = b""  # the incomplete message at the end of what was received; None after the login
    _expected = 0  # _CONTINUE or _FINAL, if this message may follow
    _is_authenticated = False
    _has_version = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._login is None:
            super().data_received(data)
            return
        data = self._login + data
        end = 0
        while self._login is not None and len(data) - end >= _HEADER.size:
            code, length = _HEADER.unpack_from(data, end)
            body = data[end + _HEADER.size : end + 1 + length]
            if not 4 <= length <= MESSAGE_BYTES_MAX or not self._follows(code[0], body):
                self._transport.abort()
                return
            if len(data) - end < 1 + length:
                break
            self._received(code[0], body)
            if code[0] == _READY:
                self._login = None
            end += 1 + length
        if self._login is None:
            super().data_received(data)
            return
        self._login = data[end:]
        if end:
            super().data_received(data[:end])

    def _follows(self, code: int, body: bytes) -> bool:
        """Whether a message may follow. `body` may be incomplete, and is checked again when it is complete."""
        if code == _READY:
            return self._is_authenticated and self._has_version
        if code != _AUTHENTICATION or len(body) < 4:
            return True
        (kind,) = struct.unpack_from(">i", body)
        return kind not in (_CONTINUE, _FINAL) or kind == self._expected

    def _received(self, code: int, body: bytes) -> None:
        if code == _AUTHENTICATION:
            self._expected = _AFTER.get(body[:4], 0)
            self._is_authenticated = body[:4] == bytes(4)
        elif code == _PARAMETER and body.startswith(b"server_version\0"):
            self._has_version = True


def install() -> None:
    """Makes `asyncpg.connect` use the guard."""
    asyncpg.protocol.Protocol = GuardedProtocol
