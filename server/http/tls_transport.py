"""TLS for the HTTP port: an asyncio transport over another one.

asyncio's own TLS cannot be used. `create_server(ssl=...)` does not count the connections whose handshake is not
complete, and `start_tls` loses what arrives before it has begun.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any, cast

from server.frontend.client import client_ip
from server.frontend.half_open import HalfOpen
from server.runtime.limited_log import unauthenticated
from server.runtime.tls_stream import Handshakes, TlsStream, reason_of


class TlsTransport(asyncio.Transport):
    """The transport of a protocol whose bytes `stream` encrypts for the transport `below`."""

    def __init__(self, stream: TlsStream, below: asyncio.Transport) -> None:
        super().__init__()
        self._stream = stream
        self._below = below

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._below.is_closing():
            return
        self._stream.encrypt(data)
        self._below.write(self._stream.to_send())

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._below.is_closing():
            self._stream.end()
            self._below.write(self._stream.to_send())
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._below.is_closing()

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        self._below.resume_reading()

    def is_reading(self) -> bool:
        return self._below.is_reading()

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._below.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`peercert`: the verified certificate of the client, or None."""
        match name:
            case "ssl_object":
                return self._stream.connection
            case "peercert":
                return self._stream.certificate
            case _:
                return self._below.get_extra_info(name, default)


class TlsConnection(asyncio.Protocol):
    """A connection: `protocol` takes part in it when the handshake is complete, which must take at most `timeout_s`.

    Until then, it is one of the connections `without_session`.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        without_session: HalfOpen,
        timeout_s: float,
    ) -> None:
        self._protocol = protocol
        self._stream = TlsStream(context)
        self._handshakes = handshakes
        self._without_session = without_session
        self._timeout_s = timeout_s
        self._below: asyncio.Transport | None = None
        self._address: str | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        self._address = client_ip(transport)
        self._without_session.add(self, self._address)
        self._deadline = asyncio.get_running_loop().call_later(self._timeout_s, self._fail, "timeout")

    def data_received(self, data: bytes) -> None:
        assert self._below is not None
        try:
            self._stream.receive(data)
            if self._stream.is_established:
                self._receive()
                return
        except ssl.SSLError as error:
            self._fail(reason_of(error))
            return
        if self._stream.awaits_handshake and self._below.is_reading():
            self._below.pause_reading()
        self._handshakes.add(self)

    def continue_handshake(self) -> None:
        """Continues the handshake with what was received. `Handshakes` calls it."""
        below = self._below
        if below is None or below.is_closing() or self._stream.is_established:
            return
        try:
            self._stream.continue_handshake()
            if data := self._stream.to_send():
                below.write(data)
            if self._stream.is_established:
                if not below.is_reading():
                    below.resume_reading()
                self._stop_deadline()
                self._protocol.connection_made(TlsTransport(self._stream, below))
                self._receive()
        except ssl.SSLError as error:
            self._fail(reason_of(error))

    def _receive(self) -> None:
        assert self._below is not None
        data = self._stream.decrypted()
        if reply := self._stream.to_send():
            self._below.write(reply)
        if data:
            self._protocol.data_received(data)
        if self._stream.is_ended and not self._below.is_closing():
            self._protocol.eof_received()
            self._below.close()

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received() if self._stream.is_established else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        if self._stream.is_established:
            self._protocol.connection_lost(exc)

    def abort(self) -> None:
        if self._below is not None:
            self._below.abort()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def _fail(self, reason: str) -> None:
        """Closes the connection, after the alert that says why."""
        if self._below is None or self._below.is_closing():
            return
        unauthenticated.info("TLS failed", port="http", reason=reason)
        if data := self._stream.to_send():
            self._below.write(data)
        self._below.close()

    def _stop_deadline(self) -> None:
        self._without_session.remove(self, self._address)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
