"""TLS of one connection, between the bytes of its socket and those of the protocol. It does no IO.

asyncio's `start_tls` cannot be used: it cannot take bytes that were received before, which is how a connection that
begins with TLS is recognized (decision 061).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from time import monotonic
from typing import Any, Protocol

HANDSHAKE_BYTE = 0x16  # the first byte of a TLS connection; a startup packet begins with 0
HANDSHAKE_BYTES_MAX = 64 * 1024  # of the client, until the handshake is complete
READ_BYTES = 64 * 1024
ANSWER_BYTES_MAX = 16 * 1024
"""Of answers after the handshake: to about 600 KeyUpdates, which a client sends after gigabytes of data."""
PIECE_BYTES = 32 * 1024
WITHOUT_DATA_BYTES_MAX = 64 * 1024
"""Received without data in between. A record has less than 19 KiB, and OpenSSL refuses a sequence of empty ones."""
TURN_S = 0.005


class TlsStream:
    """The server's side. `receive` and `continue_handshake` until `is_established`, then `decrypted` and `receive`."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._handshake_bytes = 0
        self._received: list[bytes] = []  # after the handshake
        self._answer_bytes = 0
        self._without_data_bytes = 0
        self.is_established = False
        self.is_ended = False
        """Whether the client has closed its side."""

    def receive(self, data: bytes) -> None:
        """Takes bytes from the socket."""
        if self.is_established:
            self._received.append(data)
        else:
            self._handshake_bytes += len(data)
            self._in.write(data)

    @property
    def awaits_handshake(self) -> bool:
        """Whether the socket should not be read until `continue_handshake` has been called."""
        return not self.is_established and self._handshake_bytes > HANDSHAKE_BYTES_MAX

    def continue_handshake(self) -> None:
        """Does what can be done with the bytes received so far. ssl.SSLError if it fails or is too long."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            # If the handshake is complete, the rest of the bytes are those of the protocol.
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                raise ssl.SSLError("the handshake is too long") from None
            return
        self.is_established = True

    def decrypted(self) -> bytes:
        """Returns what was received, decrypted.

        ssl.SSLError if it was not encrypted by the client, or if the client sends messages of TLS without end.
        """
        parts: list[bytes] = []
        self._decrypt(parts)  # what followed the handshake
        received, self._received = self._received, []
        for data in received:
            view = memoryview(data)
            for begin in range(0, len(view), PIECE_BYTES):
                piece = view[begin : begin + PIECE_BYTES]
                self._in.write(piece)
                self._without_data_bytes = 0 if self._decrypt(parts) else self._without_data_bytes + len(piece)
                if self._without_data_bytes > WITHOUT_DATA_BYTES_MAX:
                    raise ssl.SSLError("too many messages without data")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _decrypt(self, parts: list[bytes]) -> bool:
        """Appends the data of the complete records. Returns whether there was any."""
        count, pending = len(parts), self._out.pending
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        # The client need not read the answers, so that they would fill the memory.
        self._answer_bytes += self._out.pending - pending
        if self._answer_bytes > ANSWER_BYTES_MAX:
            raise ssl.SSLError("too many messages that request an answer")
        return len(parts) > count

    def encrypt(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypts data for `to_send`."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]

    def end(self) -> None:
        """Tells the client that nothing follows."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # the client has not closed its side yet
                self._tls.unwrap()

    def to_send(self) -> bytes:
        """Returns bytes for the socket."""
        return self._out.read() if self._out.pending else b""

    @property
    def connection(self) -> ssl.SSLObject:
        """The connection, for those who ask for its properties."""
        return self._tls

    @property
    def protocol(self) -> str | None:
        """The protocol that was negotiated by ALPN."""
        return self._tls.selected_alpn_protocol()

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The client's certificate, which was verified; None if it has sent none."""
        return self._tls.getpeercert() or None


def reason_of(error: ssl.SSLError) -> str:
    """Why TLS has failed, for the log. Only the errors of OpenSSL have the attribute `reason`."""
    return (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()


class Handshaking(Protocol):
    """A client whose handshake can continue."""

    def continue_handshake(self) -> None: ...


class Handshakes:
    """Continues handshakes, for at most TURN_S in each iteration of the event loop.

    A step of a handshake takes up to a millisecond. Those of thousands of clients would block the others.
    """

    def __init__(self) -> None:
        self._clients: deque[Handshaking] = deque()

    def add(self, client: Handshaking) -> None:
        """Continues a client's handshake soon."""
        if not self._clients:
            asyncio.get_running_loop().call_soon(self._continue)
        self._clients.append(client)

    def _continue(self) -> None:
        turn_end = monotonic() + TURN_S
        try:
            while self._clients and monotonic() < turn_end:
                self._clients.popleft().continue_handshake()
        finally:
            if self._clients:
                asyncio.get_running_loop().call_soon(self._continue)
