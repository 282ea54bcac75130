"""Connections to the PostgreSQL of a source, and its errors.

asyncpg connects and authenticates, also for replication (`replication`). Values are exchanged as text in fixed formats
(`SESSION`), which do not depend on settings of the role or the database.
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from catalog.objects.secrets import Secret
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.postgres import protocol_guard
from server.ingest.source_definition import Options
from server.ingest.upstream import UpstreamError
from server.runtime.cancellation import raise_if_cancelled

protocol_guard.install()

# asyncpg raises InternalClientError, too, if a connection is lost between two messages of a COPY.
LOST = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
CONNECT_S = 30.0
KEEPALIVES = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}
"""Options of sockets: a server whose machine vanished is noticed after two minutes. Otherwise a query waits forever."""
DEFAULT_PORT = 5432
TEXT_MAX = 1_000  # characters of an error of the server that are shown
MASK = "********"

SESSION = {
    "application_name": "tidewire",
    "bytea_output": "hex",
    "datestyle": "ISO, YMD",
    "extra_float_digits": "3",
    "idle_in_transaction_session_timeout": "0",
    "intervalstyle": "postgres",
    "lock_timeout": "0",
    "row_security": "off",  # a policy that would hide rows from the snapshot is an error
    "search_path": "pg_catalog",
    "statement_timeout": "0",
    "timezone": "UTC",
}

_OPTIONS = frozenset(
    (
        "host",
        "port",
        "user",
        "password",
        "database",
        "ssl mode",
        "ssl certificate authority",
        "ssl certificate",
        "ssl key",
    )
)
_MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
_NEEDS_CHANGE = ("0A", "22", "3F", "42", "54")  # SQLSTATE classes of errors that a retry does not repair
_CONNECT_HINTS = {
    "28P01": "Change the password of the connection: ALTER SECRET ... AS ..., which the source uses at once.",
    "28000": "Allow it in the server's pg_hba.conf, or change the connection: ALTER CONNECTION ... SET (...).",
    "3D000": "Create it there, or change the connection: ALTER CONNECTION ... SET (DATABASE = ...).",
    "42501": "Let the user replicate there: ALTER ROLE ... REPLICATION.",
    "53300": "Raise max_connections or max_wal_senders there.",
}


@dataclass(frozen=True)
class Server:
    """The options of a CREATE CONNECTION ... TO POSTGRES. `str` names host, port and database, and no secret."""

    host: str
    port: int
    database: str
    user: str
    password: str | None = field(repr=False)
    ssl_mode: str
    authority: str | None = field(repr=False, default=None)
    certificate: str | None = field(repr=False, default=None)
    key: str | None = field(repr=False, default=None)

    @classmethod
    def of(cls, options: Options) -> Server:
        """PgError if an option is unknown, missing or invalid."""
        for name in options:
            if name not in _OPTIONS:
                raise _invalid(
                    f"invalid connection option {name.upper()}", "A connection to PostgreSQL has: " + _listed(_OPTIONS)
                )
        values = {name: value.reveal() if isinstance(value, Secret) else value for name, value in options.items()}
        for name in ("host", "database"):
            if not values.get(name):
                raise _invalid(f"connection option {name.upper()} is required")
        mode = values.get("ssl mode", "prefer").lower().replace("_", "-")
        if mode not in _MODES:
            raise _invalid(f'invalid SSL MODE "{mode}"', "The modes are: " + _listed(_MODES))
        port = values.get("port", str(DEFAULT_PORT))
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise _invalid(f'invalid port "{port}"')
        if ("ssl certificate" in values) != ("ssl key" in values):
            raise _invalid("SSL CERTIFICATE and SSL KEY must be given together")
        server = cls(
            values["host"],
            int(port),
            values["database"],
            values.get("user", "postgres"),
            values.get("password"),
            mode,
            values.get("ssl certificate authority"),
            values.get("ssl certificate"),
            values.get("ssl key"),
        )
        server.ssl()
        return server

    def __str__(self) -> str:
        return f'PostgreSQL "{self.host}:{self.port}", database "{self.database}"'

    def ssl(self) -> ssl.SSLContext | str | bool:
        """The argument `ssl` of asyncpg. PgError if a certificate or key is not valid PEM."""
        if self.ssl_mode == "disable":
            return False
        if self.ssl_mode == "prefer" and self.authority is None and self.certificate is None:
            return "prefer"
        # libpq verifies the certificate in mode `require`, too, if there is an authority.
        verifies = self.ssl_mode.startswith("verify") or self.authority is not None
        try:
            context = ssl.create_default_context(cadata=self.authority)
            context.check_hostname = self.ssl_mode == "verify-full"
            context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
            if self.certificate is not None and self.key is not None:
                with _file(self.certificate + "\n" + self.key) as path:
                    context.load_cert_chain(path, password="")
        except (ssl.SSLError, ValueError) as error:
            raise _invalid("invalid SSL certificate or key", "They must be in PEM format.") from error
        return context

    async def connect(self, connection_class: type[Any] = asyncpg.Connection, **settings: str) -> Any:
        """A new connection with the settings `SESSION` and others. UpstreamError if the server cannot be reached."""
        try:
            connection = await asyncpg.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password or "",
                database=self.database,
                ssl=self.ssl(),
                timeout=CONNECT_S,
                statement_cache_size=0,
                server_settings=SESSION | settings,
                connection_class=connection_class,
            )
            _set_keepalives(connection)
            return connection
        except (asyncpg.PostgresError, *LOST) as error:
            reason, hint = self._shown(_reason(error)), _CONNECT_HINTS.get(getattr(error, "sqlstate", None) or "")
            if isinstance(error, ConnectionRefusedError | TimeoutError):
                hint = "Is the server running on that host and accepting TCP/IP connections?"
            raise UpstreamError(f'could not connect to {self} as user "{self.user}": {reason}', hint) from error
        except Exception as error:  # asyncpg raises IndexError, AttributeError and others if it is no PostgreSQL
            raise_if_cancelled()
            reason = "the server does not follow PostgreSQL's protocol"
            raise UpstreamError(f'could not connect to {self} as user "{self.user}": {reason}') from error

    def error(self, sqlstate: str, message: str, hint: str | None = None) -> PgError | UpstreamError:
        """The error for one that the server reports: a PgError if a retry cannot repair it."""
        text = f"{self}: {self._shown(message)}"
        hint = None if hint is None else self._shown(hint)
        if sqlstate.startswith(_NEEDS_CHANGE):
            known = sqlstate in tuple(SqlState)
            return PgError(SqlState(sqlstate) if known else SqlState.CONNECTION_FAILURE, text, hint=hint)
        return UpstreamError(text, hint)

    @contextmanager
    def reporting(self, *others: type[Exception]) -> Iterator[None]:
        """Converts errors of asyncpg in its body, except `others`."""
        try:
            yield
        except others:
            raise
        except asyncpg.PostgresError as error:
            raise self.error(error.sqlstate or "", str(error), getattr(error, "hint", None)) from error
        except LOST as error:
            raise UpstreamError(f"{self}: {error or type(error).__name__}") from error

    @contextmanager
    def understanding(self) -> Iterator[None]:
        """Reports answers in its body that do not have the columns, types and values of the queries."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            reason = "the answer to a query does not have the rows that PostgreSQL returns"
            raise UpstreamError(f"{self}: {reason}") from error

    def _shown(self, text: str) -> str:
        """A text of the server as it is shown: without the password, which the server may know, and not too long."""
        if self.password:
            text = text.replace(self.password, MASK)
        return shortened(text)


def shortened(text: str) -> str:
    """A text with at most TEXT_MAX characters of the given one."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."


def _reason(error: Exception) -> str:
    """Why a connection failed, without the number of the operating system's error."""
    number = error.errno if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
    return os.strerror(number) if number is not None and number > 0 else str(error) or type(error).__name__


def _set_keepalives(connection: Any) -> None:
    """Makes the system probe the server, and end the connection if its machine does not answer."""
    sock = connection._transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVES.items():
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


@contextmanager
def _file(text: str) -> Iterator[str]:
    """The path of a file with this text, readable by this user only, in the body: OpenSSL reads keys from files."""
    descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) + "."


def _invalid(message: str, hint: str | None = None) -> PgError:
    return PgError(SqlState.INVALID_PARAMETER_VALUE, message, hint=hint)
