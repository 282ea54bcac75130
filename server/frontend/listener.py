"""The listener: accepts connections, performs their startup, cancels and terminates sessions, and shuts down in order.

Each connection is an `asyncio.Protocol`. Received bytes go to its `Connection`, and written bytes to its transport. A
session awaits `drained` to wait until the socket has accepted enough. The transport's high-water mark plus one chunk
bounds the bytes in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
import secrets
import socket
import sys
from typing import cast

import structlog

from catalog.objects import CatalogState, ObjectId
from catalog.roles import Privilege
from protocol.pgwire.connection import EOF, NEED_DATA, Connection
from protocol.pgwire.errors import Notice, PgError, Severity, SqlState
from protocol.pgwire.messages import backend, startup
from server.authorization import privileges
from server.coordinator.coordinator import Coordinator
from server.dataflow.stream.encoding import Data
from server.evaluation.evaluator import Evaluator
from server.frontend.query_cache import QueryCache
from server.frontend.session import Session
from server.pg_catalog.engine import CatalogEngine
from server.session_state.context import Context
from server.session_state.transaction import Transaction
from server.settings import VARIABLES, Settings, checked_value, milliseconds
from server.spark import Engine
from server.timeline.frontiers import Pulse

log = structlog.get_logger()

WRITE_HIGH_BYTES = 256 * 1024
SEND_BUFFER_BYTES = 256 * 1024  # the kernel's default holds 4 MB for a client that does not read
INPUT_HIGH_BYTES = 4 * 1024 * 1024  # unhandled input at which a busy session stops reading the socket
LINGER_S = 2.0  # how long a refused client may take to read the error and stop sending
RESERVED_DESCRIPTORS = 128  # not used for sessions: for files, and half of them for clients that are refused
LOGGED_S = 10.0  # the shortest interval between two log entries about a lack of descriptors
KEEPALIVE_IDLE_S = 60  # below the 350 s after which common NATs forget an idle connection


class Client(asyncio.Protocol):
    """One connection. Implements the session's `Transport`."""

    def __init__(self, server: Listener) -> None:
        self._server = server
        self._connection = Connection()
        self._session: Session | None = None
        self._transport: asyncio.Transport | None = None
        self._resumed: asyncio.Future[None] | None = None
        self._reading = True
        self._is_refused = False  # further input is dropped
        self._deadline: asyncio.TimerHandle | None = None  # of the startup, later of the linger
        self._out: list[Data] = []  # written, and not yet passed to the transport
        self._out_bytes = 0
        self.process_id = 0
        self.secret_key = 0

    # -- asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        self._server.clients.add(self)
        refusal = self._server.refusal(sock.fileno())
        if refusal is not None:
            self._refuse(refusal)
            return
        timeout_s = milliseconds(self._server.coordinator.setting("authentication_timeout")) / 1_000
        self._deadline = asyncio.get_running_loop().call_later(timeout_s, self._authentication_timed_out)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._connection.receive_data(data)
        if self._session is not None:
            self._session.received()
        else:
            self._greet()

    def eof_received(self) -> bool:
        self._connection.receive_eof()
        if self._session is not None and not self._is_refused:
            self._session.received()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_deadline()
        self._server.forget(self)
        self.resume_writing()
        if self._session is not None:
            self._session.lost()

    def pause_writing(self) -> None:
        self._resumed = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._resumed is not None:
            resumed, self._resumed = self._resumed, None
            if not resumed.done():
                resumed.set_result(None)

    # -- the session's side -------------------------------------------------------------------------------------

    def write(self, data: Data) -> None:
        """Writes when the events that the loop has received by now are handled, or when WRITE_HIGH_BYTES are queued.

        Waking a client process that waits for its answer costs more than everything else about a short answer. When
        several answers are sent together, the first one wakes the client, and the others find it awake.
        """
        if not self._out:
            self._server.has_to_send(self)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > WRITE_HIGH_BYTES:
            self.send_written()

    def send_written(self) -> None:
        """Passes the queued data to the transport."""
        if self._out and self._transport is not None and not self._transport.is_closing():
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            self._transport.write(data)

    @property
    def buffered_bytes(self) -> int:
        in_transport = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return in_transport + self._out_bytes

    def close(self) -> None:
        assert self._transport is not None
        self.send_written()
        self._transport.close()

    def close_when_read(self) -> None:
        """Closes when the client has closed its end, or after LINGER_S. Drops further input.

        Closing a socket with unread input resets the connection, and the client loses what was written.
        """
        assert self._transport is not None
        self._is_refused = True
        self.send_written()
        if self._transport.is_closing():
            return
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
        self._transport.write_eof()
        self._stop_deadline()
        self._deadline = asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def _refuse(self, error: PgError) -> None:
        """Refuses a connection that has no session yet."""
        error.severity = Severity.FATAL
        self._connection.send(backend.ErrorResponse.of(error))
        self._flush()
        self.close_when_read()

    def _authentication_timed_out(self) -> None:
        assert self._transport is not None
        log.info("authentication timed out", client=_client_ip(self._transport))
        self._refuse(PgError(SqlState.QUERY_CANCELED, "canceling authentication due to timeout"))

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    @property
    def is_full(self) -> bool:
        return self._resumed is not None

    async def drained(self) -> None:
        """Returns when the socket has accepted enough. Cancel safety: no data is lost."""
        if self._resumed is not None:
            await asyncio.shield(self._resumed)

    def limit_input(self, waiting: int) -> None:
        """Reads from the socket only while fewer than INPUT_HIGH_BYTES wait to be handled."""
        assert self._transport is not None
        wanted = waiting < INPUT_HIGH_BYTES
        if wanted is not self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def abort_if_stuck(self, seconds: float) -> None:
        """Aborts the connection if its socket is full now and stays full for the given time."""
        stuck = self._resumed

        def look_again() -> None:
            if stuck is not None and not stuck.done():
                self.abort()

        asyncio.get_running_loop().call_later(seconds, look_again)

    # -- startup ------------------------------------------------------------------------------------------------

    def _greet(self) -> None:
        """Handles the startup messages until a session is open."""
        try:
            while self._session is None:
                event = self._connection.next_event()
                match event:
                    case startup.SSLRequest() | startup.GSSENCRequest():
                        self._connection.send_encoded(b"N")
                    case startup.CancelRequest(process_id=process_id, secret_key=secret_key):
                        self._server.cancel(process_id, secret_key)
                        self.close()
                        return
                    case startup.StartupMessage():
                        self._session = self._open_session()
                    case _ if event is NEED_DATA:
                        self._flush()
                        return
                    case _ if event is EOF:
                        self.close()
                        return
                    case _:
                        raise PgError(SqlState.PROTOCOL_VIOLATION, "unexpected message", severity=Severity.FATAL)
        except PgError as error:
            self._refuse(error)
            return
        self._stop_deadline()
        self._flush()
        self._session.received()

    def _flush(self) -> None:
        data = self._connection.data_to_send()
        if data:
            self.write(data)

    def _open_session(self) -> Session:
        parameters = dict(self._connection.parameters)
        user = parameters.pop("user", "")
        if not user:
            raise PgError(
                SqlState.INVALID_AUTHORIZATION_SPECIFICATION, "no PostgreSQL user name specified in startup packet"
            )
        if parameters.pop("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "replication connections are not supported")
        coordinator = self._server.coordinator
        settings = Settings(lambda: coordinator.state.settings)
        settings.start_with("session_authorization", user)
        asked = parameters.pop("database", "") or user
        database = _database_for(coordinator.state, asked, user)
        settings.start_with("database", database)
        for name, value in (*_options(parameters.pop("options", "")), *parameters.items()):
            checked_value(name, value)  # rejects `fixed` variables, which `start_with` would set
            settings.start_with(name, value)
        role = privileges.login(coordinator.state, user)
        is_superuser = privileges.is_superuser(coordinator.state, role)
        settings.start_with("is_superuser", "on" if is_superuser else "off")
        server = self._server
        assert self._transport is not None
        server.check_room(self._transport.get_extra_info("socket").fileno(), is_superuser=is_superuser)
        _check_database(coordinator.state, role, database)
        self.process_id, self.secret_key = server.register(self)
        server.coordinator.activity.connected(self.process_id, user, _client_ip(self._transport), role)
        context = Context(
            server.coordinator,
            server.engine,
            server.evaluator,
            server.catalog_engine,
            settings,
            user,
            self.process_id,
            Transaction(settings.copy()),
            signals={"pg_cancel_backend": server.cancel_backend, "pg_terminate_backend": server.terminate_backend},
            login=role,
        )
        connection = self._connection
        connection.send(startup.AuthenticationOk())
        connection.send(*(backend.ParameterStatus(name, value) for name, value in settings.reported().items()))
        connection.send(startup.BackendKeyData(self.process_id, self.secret_key))
        if database != asked:
            notice = Notice(
                f'database "{asked}" does not exist, connected to "{database}" instead',
                sqlstate=SqlState.INVALID_CATALOG_NAME,
                hint=f'Connect with the database name "{database}", or create "{asked}" with CREATE DATABASE.',
            )
            connection.send(backend.NoticeResponse.of(notice))
        connection.send(backend.ReadyForQuery("I"))
        return Session(context, connection, self, server.query_cache)

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


def _database_for(state: CatalogState, asked: str, user: str) -> str:
    """Returns the database of a session that requests `asked`. PgError 3D000 if there is no such database.

    Drivers request a database with the user's name by default. If it does not exist, the session uses the default
    database.
    """
    if state.database_named(asked) is not None:
        return asked
    default = VARIABLES["database"].default
    if asked == user and state.database_named(default) is not None:
        return default
    raise PgError(
        SqlState.INVALID_CATALOG_NAME,
        f'database "{asked}" does not exist',
        hint=f'Connect to the database "{default}", where CREATE DATABASE can create it.',
    )


def _check_database(state: CatalogState, role: ObjectId, name: str) -> None:
    database = state.database_named(name)
    if database is not None and not privileges.has(state, role, database.id, Privilege.USAGE):
        error = privileges.denied(state, database.id)
        error.detail = "User does not have USAGE privilege."
        raise error


def _too_many_clients() -> PgError:
    return PgError(SqlState.TOO_MANY_CONNECTIONS, "sorry, too many clients already")


def descriptors_max() -> int:
    """The number of files and sockets that the process may have open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _client_ip(transport: asyncio.Transport) -> str | None:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else None


def _terminated() -> PgError:
    message = "terminating connection due to administrator command"
    return PgError(SqlState.ADMIN_SHUTDOWN, message, severity=Severity.FATAL)


def _options(text: str) -> list[tuple[str, str]]:
    """Parses `-c name=value` and `--name=value` in the startup parameter `options`, which libpq sets from PGOPTIONS."""
    words = iter(text.replace("\\ ", "\0").split())
    found = []
    for word in words:
        setting = next(words, "") if word == "-c" else word.removeprefix("--").removeprefix("-c")
        name, equals, value = setting.replace("\0", " ").partition("=")
        if not equals:
            raise PgError(SqlState.SYNTAX_ERROR, f"invalid command-line argument for server process: {word}")
        found.append((name.replace("-", "_"), value))
    return found


class Listener:
    """Accepts connections and keeps track of them."""

    def __init__(
        self, coordinator: Coordinator, engine: Engine, evaluator: Evaluator, catalog_engine: CatalogEngine
    ) -> None:
        self.coordinator = coordinator
        self.engine = engine
        self.evaluator = evaluator
        self.catalog_engine = catalog_engine
        self.query_cache = QueryCache()
        self.clients: set[Client] = set()
        self._left = Pulse()
        self._have_to_send: list[Client] = []
        self._by_process_id: dict[int, Client] = {}
        self._process_ids = itertools.count(1)
        self._lack_logged = float("-inf")  # the time of the last log entry about a lack of descriptors
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Starts accepting. Returns the address, with the actual port if `port` is 0. OSError if it is in use."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Client(self), host, port, backlog=2_000)
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    def register(self, client: Client) -> tuple[int, int]:
        """Returns the process id and the secret key by which the client can be cancelled."""
        process_id = next(self._process_ids)
        self._by_process_id[process_id] = client
        return process_id, secrets.randbits(32)

    def refusal(self, descriptor: int) -> PgError | None:
        """Returns the error for a new connection with this descriptor that must be refused before its startup, or None.

        The kernel assigns the lowest free descriptor, so a descriptor close to the limit means that few are left.
        """
        if descriptor >= descriptors_max() - RESERVED_DESCRIPTORS // 2:
            return self._lack_of_descriptors()
        # PostgreSQL has the same bound: a full server still accepts CancelRequests.
        if len(self.clients) > 2 * int(self.coordinator.setting("max_connections")):
            return _too_many_clients()
        return None

    def check_room(self, descriptor: int, *, is_superuser: bool) -> None:
        """PgError 53300 if no session may be opened on the socket with this descriptor."""
        sessions, sessions_max = len(self._by_process_id), int(self.coordinator.setting("max_connections"))
        if descriptor >= descriptors_max() - RESERVED_DESCRIPTORS:
            raise self._lack_of_descriptors()
        if sessions >= sessions_max:
            raise _too_many_clients()
        reserved = int(self.coordinator.setting("superuser_reserved_connections"))
        if not is_superuser and sessions >= sessions_max - reserved:
            raise PgError(
                SqlState.TOO_MANY_CONNECTIONS,
                "remaining connection slots are reserved for roles with the SUPERUSER attribute",
            )

    def _lack_of_descriptors(self) -> PgError:
        now = asyncio.get_running_loop().time()
        if now - self._lack_logged >= LOGGED_S:
            self._lack_logged = now
            log.error("out of file descriptors", limit=descriptors_max(), clients=len(self.clients))
        error = _too_many_clients()
        error.detail = f"The server may open {descriptors_max()} files and sockets, and nearly all are in use."
        error.hint = "Raise the limit (ulimit -n) under which the server runs, or close connections."
        return error

    def has_to_send(self, client: Client) -> None:
        """Registers a client whose output was empty and now is not."""
        if not self._have_to_send:
            asyncio.get_running_loop().call_soon(self._send)
        self._have_to_send.append(client)

    def _send(self) -> None:
        clients, self._have_to_send = self._have_to_send, []
        for client in clients:
            client.send_written()

    @property
    def is_listening(self) -> bool:
        return self._server is not None and self._server.is_serving()

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were written and that the clients' sockets have not accepted yet."""
        return sum(client.buffered_bytes for client in self.clients)

    def forget(self, client: Client) -> None:
        self.clients.discard(client)
        self.coordinator.activity.disconnected(client.process_id)
        self._left.fire()
        self._by_process_id.pop(client.process_id, None)

    def cancel(self, process_id: int, secret_key: int) -> None:
        """Handles a CancelRequest. One with a wrong key is ignored."""
        client = self._by_process_id.get(process_id)
        if client is not None and secrets.compare_digest(
            client.secret_key.to_bytes(4, "big"), (secret_key & 0xFFFFFFFF).to_bytes(4, "big")
        ):
            client.cancel()

    def cancel_backend(self, process_id: int) -> bool:
        """Cancels like a CancelRequest. False if there is no such session."""
        client = self._by_process_id.get(process_id)
        if client is None:
            return False
        client.cancel()
        return True

    def terminate_backend(self, process_id: int) -> bool:
        """Ends a session with 57P01 after the current callback has returned. False if there is no such session."""
        client = self._by_process_id.get(process_id)
        if client is None:
            return False
        asyncio.get_running_loop().call_soon(client.terminate, _terminated())
        return True

    async def close(self, grace_s: float) -> None:
        """Stops accepting, ends every session with 57P01, and aborts the connections that remain after `grace_s`."""
        if self._server is not None:
            self._server.close()
        for client in list(self.clients):
            client.terminate(_terminated())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self.clients:
                    await self._left.wait()
        for client in list(self.clients):
            client.abort()
