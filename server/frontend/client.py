"""One client's connection: its socket, its startup, and the flow control of its input and output.

Received bytes go to the `Connection`, and written bytes to asyncio's transport. A session awaits `drained` to wait
until the socket has accepted enough. The transport's high-water mark plus one chunk bounds the bytes in between.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Coroutine
from typing import Any, cast

from protocol.pgwire.connection import EOF, NEED_DATA, Connection
from protocol.pgwire.errors import PgError, Severity, SqlState
from protocol.pgwire.messages.backend import ErrorResponse
from protocol.pgwire.messages.frontend import Terminate
from protocol.pgwire.messages.sasl import SASLInitialResponse, SASLResponse
from protocol.pgwire.messages.startup import (
    CancelRequest,
    GSSENCRequest,
    PasswordMessage,
    SSLRequest,
    StartupMessage,
)
from server.authentication.access import Access, ConnectingClient
from server.authentication.tls import ALPN, Tls, common_name
from server.coordinator.endpoints import Endpoints
from server.dataflow.stream.encoding import Data
from server.frontend.authentication import Authentication
from server.frontend.client_registry import ClientRegistry
from server.frontend.session import Session
from server.frontend.startup import Login, Sessions
from server.frontend.write_pause import WritePause
from server.runtime.errors import to_pg_error
from server.runtime.limited_log import unauthenticated
from server.runtime.tls_stream import HANDSHAKE_BYTE, Handshakes, TlsStream, reason_of
from server.settings.parsers import milliseconds

WRITE_HIGH_BYTES = 256 * 1024
SEND_BUFFER_BYTES = 256 * 1024  # the kernel's default holds 4 MB for a client that does not read
INPUT_HIGH_BYTES = 4 * 1024 * 1024  # unhandled input at which a busy session stops reading the socket
LINGER_S = 2.0  # how long a refused client may take to read the error and stop sending
HANDSHAKE_S = 10.0


class OutputQueue:
    """The clients with output for their transports. It is sent after the events that the loop has received by now.

    Waking a client process that waits for its answer costs more than everything else about a short answer. When several
    answers are sent together, the first one wakes the client, and the others find it awake. A client that was the only
    one the last time does not wait for others.
    """

    def __init__(self) -> None:
        self._clients: list[Client] = []
        self._only: Client | None = None

    def add(self, client: Client) -> bool:
        """Adds a client whose output is no longer empty. False if the client should send at once."""
        if not self._clients:
            if client is self._only:
                return False
            asyncio.get_running_loop().call_soon(self._send)
        self._clients.append(client)
        return True

    def forget(self, client: Client) -> None:
        """Removes a client that is disconnected."""
        if client is self._only:
            self._only = None

    def _send(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            client.send_written()
        self._only = clients[0] if len(clients) == 1 else None


class Client(asyncio.Protocol):
    """One connection. Implements the session's `Transport`."""

    def __init__(
        self, clients: ClientRegistry, sessions: Sessions, access: Access, output: OutputQueue, handshakes: Handshakes
    ) -> None:
        self._clients = clients
        self._sessions = sessions
        self._access = access
        self._output = output
        self._handshakes = handshakes
        self._connection = Connection()
        self._certificates: Tls | None = None  # those of `_tls`
        self._tls: TlsStream | None = None
        self._begins_with_tls = False
        self._authentication: Authentication | None = None
        self._checking: asyncio.Task[None] | None = None  # of the password
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._write_pause = WritePause()
        self._reading = True
        self._is_refused = False  # further input is dropped
        self._has_received = False
        self._deadline: asyncio.TimerHandle | None = None  # of the startup, later of the linger
        self._handshake_deadline: asyncio.TimerHandle | None = None
        self._out: list[Data] = []  # written, and not yet passed to the transport
        self._out_bytes = 0
        self.process_id = 0
        self.secret_key = 0
        self.address: str | None = None

    # -- asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._sessions.set_keepalives(sock)
        self.address = client_ip(self._transport)
        self._clients.add(self)
        refusal = self._clients.refusal(sock.fileno())
        if refusal is not None:
            self._refuse(refusal)
            return
        timeout_s = milliseconds(self._sessions.coordinator.setting("authentication_timeout")) / 1_000
        self._deadline = asyncio.get_running_loop().call_later(timeout_s, self._authentication_timed_out)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._tls is None and data[0] == HANDSHAKE_BYTE and not self._has_received:
            self._begin_tls_at_once()
        self._has_received = True
        if self._tls is None:
            self._received(data)
        else:
            self._received_encrypted(self._tls, data)

    def _received(self, data: bytes) -> None:
        """Handles bytes of the protocol."""
        self._connection.receive_data(data)
        if self._session is not None:
            self._session.received()
        else:
            self._start_up()

    def eof_received(self) -> bool:
        self._connection.receive_eof()
        if self._session is not None and not self._is_refused:
            self._session.received()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_deadline()
        self._stop_handshake_deadline()
        if self._checking is not None:
            self._checking.cancel()
        self._clients.remove(self)
        self._output.forget(self)
        self._write_pause.end()
        if self._session is not None:
            self._session.lost()

    def pause_writing(self) -> None:
        self._write_pause.begin()

    def resume_writing(self) -> None:
        self._write_pause.end()

    # -- the session's side -------------------------------------------------------------------------------------

    def write(self, data: Data) -> None:
        """Writes with the `OutputQueue`, or at once if more than WRITE_HIGH_BYTES are queued."""
        waits = bool(self._out) or self._output.add(self)
        self._out.append(data)
        self._out_bytes += len(data)
        if not waits or self._out_bytes > WRITE_HIGH_BYTES:
            self.send_written()

    def send_written(self) -> None:
        """Passes the queued data to the transport."""
        if self._out and self._transport is not None and not self._transport.is_closing():
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            if self._tls is not None and self._tls.is_established:
                try:
                    self._tls.encrypt(data)
                except ssl.SSLError:  # TLS has ended
                    self.abort()
                    return
                data = self._tls.to_send()
            self._transport.write(data)

    @property
    def buffered_bytes(self) -> int:
        in_transport = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return in_transport + self._out_bytes

    def close(self) -> None:
        assert self._transport is not None
        self._send_end()
        self._transport.close()

    def _send_end(self) -> None:
        """Sends what was written, and the end of TLS."""
        assert self._transport is not None
        self.send_written()
        if self._tls is not None and not self._transport.is_closing():
            self._tls.end()
            if data := self._tls.to_send():
                self._transport.write(data)

    def close_when_read(self) -> None:
        """Closes when the client has closed its end, or after LINGER_S. Drops further input.

        Closing a socket with unread input resets the connection, and the client loses what was written.
        """
        assert self._transport is not None
        self._is_refused = True
        self._send_end()
        if self._transport.is_closing():
            return
        self._set_reading(True)
        self._transport.write_eof()
        self._stop_deadline()
        self._deadline = asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def _refuse(self, error: PgError) -> None:
        """Refuses a connection that has no session yet."""
        error.severity = Severity.FATAL
        self._connection.send(ErrorResponse.of(error))
        self._flush()
        self.close_when_read()

    def _authentication_timed_out(self) -> None:
        unauthenticated.info("authentication timed out", client=self.address)
        if self._tls is not None and not self._tls.is_established:
            self.abort()
            return
        self._refuse(PgError(SqlState.QUERY_CANCELED, "canceling authentication due to timeout"))

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    @property
    def is_full(self) -> bool:
        return self._write_pause.is_active

    async def drained(self) -> None:
        """Returns when the socket has accepted enough. Cancel safety: no data is lost."""
        await self._write_pause.over()

    def limit_input(self, waiting: int) -> None:
        """Reads from the socket only while fewer than INPUT_HIGH_BYTES wait to be handled."""
        self._set_reading(waiting < INPUT_HIGH_BYTES)

    def _set_reading(self, wanted: bool) -> None:
        """Reads from the socket, or stops reading."""
        assert self._transport is not None
        if wanted is not self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def abort_if_stuck(self, seconds: float) -> None:
        """Aborts the connection if its socket is full now and stays full for the given time."""
        self._write_pause.abort_if_stuck(seconds, self.abort)

    # -- startup ------------------------------------------------------------------------------------------------

    def _start_up(self) -> None:
        """Handles the startup messages until a session is open."""
        try:
            while self._session is None and self._checking is None:
                event = self._connection.next_event()
                match event:
                    case SSLRequest() if self._access.tls is not None:
                        self._connection.accept_tls()
                        self._flush()
                        self.send_written()
                        self._begin_tls(self._access.tls)
                        return
                    case SSLRequest() | GSSENCRequest():
                        self._connection.send_encoded(b"N")
                    case CancelRequest(process_id=process_id, secret_key=secret_key):
                        self._clients.cancel(process_id, secret_key)
                        self.close()
                        return
                    case StartupMessage():
                        self._authentication = self._new_authentication()
                        self._authentication.begin()
                        self._open_if_authenticated()
                    case PasswordMessage() | SASLInitialResponse() | SASLResponse() if self._authentication is not None:
                        work = self._authentication.received(event)
                        if work is not None:
                            self._check_later(work)
                        self._open_if_authenticated()
                    case _ if event is NEED_DATA:
                        self._flush()
                        return
                    case _ if event is EOF or isinstance(event, Terminate):
                        self.close()
                        return
                    case _:
                        raise PgError(SqlState.PROTOCOL_VIOLATION, "unexpected message", severity=Severity.FATAL)
        except PgError as error:
            self._refuse(error)
            return
        self._flush()
        if self._session is not None:
            self._stop_deadline()
            self._session.received()

    def _new_authentication(self) -> Authentication:
        certificate = self._tls.certificate if self._tls is not None else None
        peer = ConnectingClient(self.address, self._tls is not None, certificate is not None, common_name(certificate))
        return Authentication(self._access, self._sessions.coordinator, self._connection, peer, self._certificates)

    def _open_if_authenticated(self) -> None:
        if self._authentication is not None and self._authentication.is_done:
            self._session = self._open_session(any_user=self._authentication.accepts_any_user)
            self._authentication = None

    def _check_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Checks a password. The socket is not read meanwhile."""
        self._set_reading(False)
        self._checking = asyncio.create_task(work)
        self._checking.add_done_callback(self._checked)

    def _checked(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._transport is None or self._transport.is_closing() or self._is_refused:
            return
        self._checking = None
        self._set_reading(True)
        try:
            task.result()
            self._open_if_authenticated()
        except Exception as error:
            self._refuse(to_pg_error(error))
            return
        self._start_up()

    # -- TLS ----------------------------------------------------------------------------------------------------

    def _begin_tls_at_once(self) -> None:
        """Begins TLS without an SSLRequest. Without certificates, the bytes are handled as a startup packet."""
        if self._access.tls is not None:
            self._begins_with_tls = True
            self._connection.encrypted()
            self._begin_tls(self._access.tls)

    def _begin_tls(self, tls: Tls) -> None:
        self._certificates = tls
        self._tls = TlsStream(tls.context)
        self._handshake_deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._end_handshake, "timeout")

    def _received_encrypted(self, tls: TlsStream, data: bytes) -> None:
        try:
            tls.receive(data)
            if tls.is_established:
                self._received_decrypted(tls)
            else:
                self._set_reading(not tls.awaits_handshake)
                self._handshakes.add(self)
        except ssl.SSLError as error:
            self._end_handshake(reason_of(error))

    def continue_handshake(self) -> None:
        """Continues the handshake with what was received. `Handshakes` calls it."""
        tls = self._tls
        if tls is None or tls.is_established or self._transport is None or self._transport.is_closing():
            return
        try:
            tls.continue_handshake()
        except ssl.SSLError as error:
            self._end_handshake(reason_of(error))
            return
        if data := tls.to_send():
            self._transport.write(data)
        if not tls.is_established:
            return
        self._set_reading(True)
        self._stop_handshake_deadline()
        if self._begins_with_tls and tls.protocol != ALPN:
            self._end_handshake("no ALPN protocol of PostgreSQL")
            return
        try:
            self._received_decrypted(tls)
        except ssl.SSLError as error:
            self._end_handshake(reason_of(error))

    def _received_decrypted(self, tls: TlsStream) -> None:
        assert self._transport is not None
        data = tls.decrypted()
        if reply := tls.to_send():
            self._transport.write(reply)
        if data:
            self._received(data)
        if tls.is_ended and not self._is_refused:
            self.eof_received()
            if self._session is None:
                self.close()

    def _end_handshake(self, reason: str) -> None:
        """Ends a connection whose TLS fails, after the alert that says why."""
        if self._transport is None or self._transport.is_closing():
            return
        unauthenticated.info("TLS failed", client=self.address, reason=reason)
        self._is_refused = True
        if self._tls is not None and (data := self._tls.to_send()):
            self._transport.write(data)
        self._transport.close()

    def _stop_handshake_deadline(self) -> None:
        if self._handshake_deadline is not None:
            self._handshake_deadline.cancel()
            self._handshake_deadline = None

    def _flush(self) -> None:
        data = self._connection.data_to_send()
        if data:
            self.write(data)

    def _open_session(self, *, any_user: bool) -> Session:
        assert self._transport is not None
        coordinator, connection = self._sessions.coordinator, self._connection
        login = Login.of(coordinator, connection.parameters, any_user=any_user)
        descriptor = self._transport.get_extra_info("socket").fileno()
        self._clients.check_room(descriptor, is_superuser=login.is_superuser)
        self._clients.check_role(coordinator.state.roles[login.role])
        login.check_database(coordinator.state)
        self._clients.register(self)
        endpoints = Endpoints.of(self._transport, None if self._tls is None else self._tls.connection)
        coordinator.activity.connected(self.process_id, login.user, login.role, endpoints)
        connection.send(*login.answer(self.process_id, self.secret_key))
        return self._sessions.open(login, self.process_id, connection, self)

    # -- the registry's side ------------------------------------------------------------------------------------

    def cancel(self) -> None:
        if self._session is not None:
            self._session.cancel()

    def terminate(self, error: PgError) -> None:
        if self._session is not None:
            self._session.terminate(error)
        else:
            self.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def client_ip(transport: asyncio.BaseTransport) -> str | None:
    """The address of the other side. None for a socket that has no IP address."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else None
