"""The session of one request of the HTTP API.

An `ApiSession` is to its `Session` what a socket and a client of PostgreSQL's protocol are to others: it sends messages
and receives the answers, in this process. So privileges, settings, limits, timeouts, transactions and flow control are
those of all sessions, and the session is in `pg_stat_activity` and can be cancelled there.

    with ApiSession(...) as session:
        session.send(serialized(Query("SELECT 1")))
        async for message in session.answers():
            ...  # until ReadyForQuery

Answers are kept until the request's handler has written them to the socket. When there are WRITE_HIGH_BYTES of them,
the session waits. Leaving the context ends the session and its statement.

A stream can take rows without being woken: `pass_rows`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple, Self

from protocol.pgwire.connection import Connection
from protocol.pgwire.errors import PgError
from protocol.pgwire.messages.backend import ReadyForQuery
from protocol.pgwire.messages.copying import CopyData
from protocol.pgwire.messages.frontend import FrontendMessage
from protocol.pgwire.messages.startup import StartupMessage
from protocol.pgwire.messages.wire_format import HEADER
from server.coordinator.endpoints import Endpoints
from server.dataflow.stream.encoding import Data
from server.frontend.client import WRITE_HIGH_BYTES
from server.frontend.client_registry import ClientRegistry
from server.frontend.session import Session
from server.frontend.startup import Login, Sessions
from server.frontend.write_pause import WritePause
from server.session_state.row_format import RowFormat

WRITE_LOW_BYTES = WRITE_HIGH_BYTES // 4

_READY, _ROWS = ReadyForQuery.code, CopyData.code


class Peer(NamedTuple):
    """The connection of a request. `any_user`: see `privileges.login`."""

    transport: asyncio.Transport
    address: str | None
    user: str
    any_user: bool


class Answer(NamedTuple):
    """A message of the server: its type byte and its body."""

    code: bytes
    body: memoryview


def serialized(*messages: FrontendMessage) -> bytes:
    return b"".join(message.serialize() for message in messages)


def _answers_of(data: Data) -> list[Answer]:
    """`data`: complete messages."""
    view = memoryview(data)
    answers, at = [], 0
    while at < len(view):
        code, length = HEADER.unpack_from(view, at)
        end = at + 1 + length
        answers.append(Answer(bytes((code,)), view[at + HEADER.size : end]))
        at = end
    return answers


class ApiSession:
    """Implements the session's `Transport` and the registry's `RegisteredClient`."""

    def __init__(
        self,
        sessions: Sessions,
        clients: ClientRegistry,
        peer: Peer,
        parameters: Mapping[str, str],
        row_format: RowFormat,
    ) -> None:
        """`parameters`: those of a StartupMessage, without the user. PgError if the session may not be opened."""
        self.process_id = self.secret_key = 0
        self.address = peer.address
        self._peer = peer.transport
        self._clients = clients
        self._answers: deque[Answer] = deque()
        self._bytes = 0  # of the answers
        self._encode_rows: Callable[[list[Answer]], bytes] | None = None
        self._arrived = asyncio.Event()  # there are answers, or the session has ended
        self._write_pause = WritePause()  # while there are too many answers
        self._is_closed = False
        coordinator = sessions.coordinator
        self._connection = Connection()
        startup = StartupMessage({**parameters, "user": peer.user})
        self._connection.receive_data(startup.serialize())
        self._connection.next_event()
        login = Login.of(coordinator, self._connection.parameters, any_user=peer.any_user)
        sock: socket.socket = peer.transport.get_extra_info("socket")
        clients.check_room(sock.fileno(), is_superuser=login.is_superuser)
        clients.check_role(coordinator.state.roles[login.role])
        login.check_database(coordinator.state)
        sessions.set_keepalives(sock)
        clients.add(self)
        clients.register(self)
        endpoints = Endpoints.of(peer.transport, peer.transport.get_extra_info("ssl_object"))
        coordinator.activity.connected(self.process_id, login.user, login.role, endpoints)
        self._connection.send(*login.answer(self.process_id, self.secret_key))
        self._connection.data_to_send()
        self._session: Session = sessions.open(login, self.process_id, self._connection, self, row_format)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._write_pause.end()
        self._clients.remove(self)
        self._session.lost()

    def send(self, messages: bytes) -> None:
        """Sends serialized messages to the session."""
        self._connection.receive_data(messages)
        self._session.received()

    def pass_rows(self, encode: Callable[[list[Answer]], bytes] | None) -> None:
        """Makes `write` pass encoded rows to the socket if it takes them at once. Otherwise they are kept as answers.

        They are kept, too, while earlier answers are.
        """
        self._encode_rows = encode

    async def answers(self) -> AsyncIterator[Answer]:
        """Yields the answers up to ReadyForQuery, which is omitted, or to the end of the session."""
        while True:
            while self._answers:
                answer = self._answers.popleft()
                if answer.code == _READY:
                    return
                yield answer  # while it is written, it counts as kept
                self._bytes -= len(answer.body)
                if self._bytes < WRITE_LOW_BYTES:
                    self._write_pause.end()
            if self._is_closed:
                return
            self._arrived.clear()
            await self._arrived.wait()

    # -- the session's side -------------------------------------------------------------------------------------

    def write(self, data: Data) -> None:
        """Takes complete messages."""
        if self._is_closed:
            return
        answers = _answers_of(data)
        if self._encode_rows is not None and not self._answers and self._takes_at_once(answers):
            self._peer.write(self._encode_rows(answers))
            return
        self._answers.extend(answers)
        self._bytes += sum(len(answer.body) for answer in answers)
        self._arrived.set()
        if self._bytes >= WRITE_HIGH_BYTES:
            self._write_pause.begin()

    def _takes_at_once(self, answers: list[Answer]) -> bool:
        """Whether the answers are rows, and the socket is neither full nor closed."""
        if any(answer.code != _ROWS for answer in answers):
            return False
        return not self._peer.get_write_buffer_size() and not self._peer.is_closing()

    @property
    def is_full(self) -> bool:
        return self._write_pause.is_active

    async def drained(self) -> None:
        await self._write_pause.over()

    def close(self) -> None:
        """The session ends. What it has written is still answered."""
        self._is_closed = True
        self._arrived.set()

    close_when_read = close

    def limit_input(self, waiting: int) -> None:
        """Does nothing: the size of a request is limited."""

    def abort_if_stuck(self, seconds: float) -> None:
        """Aborts the connection if the answers are not taken for the given time."""
        self._write_pause.abort_if_stuck(seconds, self.abort)

    # -- the registry's side ------------------------------------------------------------------------------------

    @property
    def buffered_bytes(self) -> int:
        return self._bytes + self._peer.get_write_buffer_size()

    def cancel(self) -> None:
        self._session.cancel()

    def terminate(self, error: PgError) -> None:
        self._session.terminate(error)

    def abort(self) -> None:
        self._peer.abort()
