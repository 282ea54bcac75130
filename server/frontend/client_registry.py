"""The connected clients: the limits of their number, and cancelling and terminating them by process id."""

from __future__ import annotations

import asyncio
import itertools
import resource
import secrets
import sys
from collections.abc import Iterator
from typing import Protocol

import structlog

from catalog.roles import Role
from protocol.pgwire.errors import PgError, Severity, SqlState
from server.coordinator.coordinator import Coordinator
from server.frontend.half_open import HalfOpen
from server.timeline.frontiers import Pulse

log = structlog.get_logger()

RESERVED_DESCRIPTORS = 128  # not used for sessions: for files, and half of them for clients that are refused
HALF_OPEN_MAX = 500  # connections without a session
LOGGED_S = 10.0  # the shortest interval between two log entries about a lack of descriptors


class RegisteredClient(Protocol):
    """What the registry needs of a client. `process_id` and `secret_key` are 0 before it is registered."""

    process_id: int
    secret_key: int

    @property
    def address(self) -> str | None: ...

    @property
    def buffered_bytes(self) -> int: ...

    def cancel(self) -> None: ...

    def terminate(self, error: PgError) -> None: ...

    def abort(self) -> None: ...


class ClientRegistry:
    """The connected clients of one server. Those with a session have a process id."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._clients: set[RegisteredClient] = set()
        self._by_process_id: dict[int, RegisteredClient] = {}
        self._process_ids = itertools.count(1)
        self._half_open = HalfOpen()
        self._left = Pulse()
        self._lack_logged = float("-inf")  # the time of the last log entry about a lack of descriptors

    def __iter__(self) -> Iterator[RegisteredClient]:
        return iter(tuple(self._clients))

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, client: RegisteredClient) -> None:
        """Adds a client without a session. If there are too many of them, one that is slow is disconnected."""
        self._clients.add(client)
        if len(self._half_open) >= HALF_OPEN_MAX:
            self._half_open.end_one()
        self._half_open.add(client, client.address)

    def remove(self, client: RegisteredClient) -> None:
        """Called when the connection is lost."""
        self._clients.discard(client)
        self._half_open.remove(client, client.address)
        self._coordinator.activity.disconnected(client.process_id)
        self._by_process_id.pop(client.process_id, None)
        self._left.fire()

    async def wait_until_one_leaves(self) -> None:
        await self._left.wait()

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were written and that the clients' sockets have not accepted yet."""
        return sum(client.buffered_bytes for client in self._clients)

    def register(self, client: RegisteredClient) -> None:
        """Gives the client the process id and the secret key by which it can be cancelled."""
        self._half_open.remove(client, client.address)
        client.process_id, client.secret_key = next(self._process_ids), secrets.randbits(32)
        self._by_process_id[client.process_id] = client

    # -- limits -------------------------------------------------------------------------------------------------

    def refusal(self, descriptor: int) -> PgError | None:
        """Returns the error for a new connection with this descriptor that must be refused before its startup, or None.

        The kernel assigns the lowest free descriptor, so a descriptor close to the limit means that few are left.
        """
        if descriptor >= descriptors_max() - RESERVED_DESCRIPTORS // 2:
            return self._lack_of_descriptors()
        # PostgreSQL has the same bound: a full server still accepts CancelRequests.
        if len(self._clients) > 2 * int(self._coordinator.setting("max_connections")):
            return _too_many_clients()
        return None

    def check_room(self, descriptor: int, *, is_superuser: bool) -> None:
        """PgError 53300 if no session may be opened on the socket with this descriptor."""
        sessions, sessions_max = len(self._by_process_id), int(self._coordinator.setting("max_connections"))
        if descriptor >= descriptors_max() - RESERVED_DESCRIPTORS:
            raise self._lack_of_descriptors()
        if sessions >= sessions_max:
            raise _too_many_clients()
        reserved = int(self._coordinator.setting("superuser_reserved_connections"))
        if not is_superuser and sessions >= sessions_max - reserved:
            raise PgError(
                SqlState.TOO_MANY_CONNECTIONS,
                "remaining connection slots are reserved for roles with the SUPERUSER attribute",
            )

    def check_role(self, role: Role) -> None:
        """PgError 53300 if the role has as many sessions as CONNECTION LIMIT allows. Superusers have no limit."""
        if role.connection_limit < 0 or role.superuser:
            return
        sessions = self._coordinator.activity.sessions.values()
        if sum(session.role == role.id for session in sessions) >= role.connection_limit:
            raise PgError(SqlState.TOO_MANY_CONNECTIONS, f'too many connections for role "{role.name}"')

    def _lack_of_descriptors(self) -> PgError:
        now = asyncio.get_running_loop().time()
        if now - self._lack_logged >= LOGGED_S:
            self._lack_logged = now
            log.error("out of file descriptors", limit=descriptors_max(), clients=len(self._clients))
        error = _too_many_clients()
        error.detail = f"The server may open {descriptors_max()} files and sockets, and nearly all are in use."
        error.hint = "Raise the limit (ulimit -n) under which the server runs, or close connections."
        return error

    # -- signals ------------------------------------------------------------------------------------------------

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
        asyncio.get_running_loop().call_soon(client.terminate, terminated())
        return True


def terminated() -> PgError:
    """The error of a session that the server ends."""
    message = "terminating connection due to administrator command"
    return PgError(SqlState.ADMIN_SHUTDOWN, message, severity=Severity.FATAL)


def _too_many_clients() -> PgError:
    return PgError(SqlState.TOO_MANY_CONNECTIONS, "sorry, too many clients already")


def descriptors_max() -> int:
    """The number of files and sockets that the process may have open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
