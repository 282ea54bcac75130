"""The startup of a session: checks the client's startup parameters, and answers them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from catalog.ids import ObjectId
from catalog.roles import Privilege
from catalog.state import CatalogState
from protocol.pgwire.connection import Connection
from protocol.pgwire.errors import Notice, PgError, SqlState
from protocol.pgwire.messages.backend import BackendMessage, NoticeResponse, ParameterStatus, ReadyForQuery
from protocol.pgwire.messages.startup import AuthenticationOk, BackendKeyData
from server.authorization import privileges
from server.coordinator.coordinator import Coordinator
from server.dataflow.stream.transport import Transport
from server.evaluation.evaluator import Evaluator
from server.frontend.query_cache import QueryCache
from server.frontend.session import Session
from server.pg_catalog.engine import CatalogEngine
from server.session_state.context import Context
from server.session_state.observation import observed
from server.session_state.row_format import WIRE_ROWS, RowFormat
from server.session_state.transaction import Transaction
from server.settings.session_settings import Settings
from server.settings.variables import VARIABLES, checked_value
from server.spark import Engine

_KEEPALIVES = {
    "tcp_keepalives_idle": "TCP_KEEPIDLE",
    "tcp_keepalives_interval": "TCP_KEEPINTVL",
    "tcp_keepalives_count": "TCP_KEEPCNT",
    "tcp_user_timeout": "TCP_USER_TIMEOUT",
}
"""The socket options by setting. 0 is the system's default."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user who may connect. `notice`: that the session uses another database than the client requested."""

    user: str
    role: ObjectId
    is_superuser: bool
    settings: Settings
    notice: Notice | None

    @classmethod
    def of(cls, coordinator: Coordinator, startup_parameters: Mapping[str, str], *, any_user: bool) -> Login:
        """PgError if a parameter is invalid, or if there is no such role or database. `any_user`: see `login`."""
        parameters = dict(startup_parameters)
        user = user_of(parameters)
        del parameters["user"]
        if parameters.pop("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "replication connections are not supported",
                hint="Read changes with SUBSCRIBE, or send them elsewhere with CREATE SINK.",
            )
        settings = Settings(lambda: coordinator.state.settings)
        settings.start_with("session_authorization", user)
        requested = parameters.pop("database", "") or user
        database = _database_for(coordinator.state, requested, user)
        settings.start_with("database", database)
        for name, value in (*_options(parameters.pop("options", "")), *parameters.items()):
            if name.lower() == "database":  # the rules have accepted `requested`
                raise PgError(
                    SqlState.CANT_CHANGE_RUNTIME_PARAM,
                    'parameter "database" cannot be set by options of a connection',
                    hint="Connect to the database itself.",
                )
            checked_value(name, value)  # rejects `fixed` variables, which `start_with` would set
            settings.start_with(name, value)
        role = privileges.login(coordinator.state, user, any_user=any_user)
        is_superuser = privileges.is_superuser(coordinator.state, role)
        settings.start_with("is_superuser", "on" if is_superuser else "off")
        notice = None if database == requested else _other_database(requested, database)
        return cls(user, role, is_superuser, settings, notice)

    def check_database(self, state: CatalogState) -> None:
        """PgError 42501 if the role may not use the database."""
        database = state.database_named(self.settings["database"])
        if database is not None and not privileges.has(state, self.role, database.id, Privilege.USAGE):
            error = privileges.denied(state, database.id)
            error.detail = "User does not have USAGE privilege."
            raise error

    def answer(self, process_id: int, secret_key: int) -> Iterator[BackendMessage]:
        """Yields the messages that accept the client."""
        yield AuthenticationOk()
        for name, value in self.settings.reported().items():
            yield ParameterStatus(name, value)
        yield BackendKeyData(process_id, secret_key)
        if self.notice is not None:
            yield NoticeResponse.of(self.notice)
        yield ReadyForQuery("I")


class Sessions:
    """Opens sessions over the server's components. `signals`: see `Context`."""

    def __init__(
        self,
        coordinator: Coordinator,
        engine: Engine,
        evaluator: Evaluator,
        catalog_engine: CatalogEngine,
        *,
        signals: Mapping[str, Callable[[int], bool]],
    ) -> None:
        self.coordinator = coordinator
        self._engine = engine
        self._evaluator = evaluator
        self._catalog_engine = catalog_engine
        self._signals = signals
        self._query_cache = QueryCache()

    def set_keepalives(self, sock: socket.socket) -> None:
        """Makes the system probe an idle client, and end its connection if it does not answer."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, option in _KEEPALIVES.items():
            if hasattr(socket, option) and (value := int(self.coordinator.setting(name))):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def open(
        self,
        login: Login,
        process_id: int,
        connection: Connection,
        transport: Transport,
        row_format: RowFormat = WIRE_ROWS,
    ) -> Session:
        context = Context(
            self.coordinator,
            self._engine,
            self._evaluator,
            self._catalog_engine,
            login.settings,
            login.user,
            process_id,
            Transaction(login.settings.copy(), read_only=login.settings.read_only),
            signals=self._signals,
            authenticated=login.role,
        )
        self.coordinator.activity.observers[process_id] = partial(observed, context)
        return Session(context, connection, transport, self._query_cache, row_format)


def user_of(parameters: Mapping[str, str]) -> str:
    """The user in a StartupMessage. PgError 28000."""
    user = parameters.get("user", "")
    if not user:
        raise PgError(
            SqlState.INVALID_AUTHORIZATION_SPECIFICATION, "no PostgreSQL user name specified in startup packet"
        )
    return user


def effective_database(state: CatalogState, parameters: Mapping[str, str]) -> str:
    """The database that the session will use; the requested name if there is no such database."""
    user = parameters.get("user", "")
    requested = parameters.get("database", "") or user
    try:
        return _database_for(state, requested, user)
    except PgError:  # reported after the authentication
        return requested


def _database_for(state: CatalogState, requested: str, user: str) -> str:
    """Returns the database of a session that requests `requested`. PgError 3D000 if there is no such database.

    Drivers request a database with the user's name by default. If it does not exist, the session uses the default
    database.
    """
    if state.database_named(requested) is not None:
        return requested
    default = VARIABLES["database"].default
    if requested == user and state.database_named(default) is not None:
        return default
    raise PgError(
        SqlState.INVALID_CATALOG_NAME,
        f'database "{requested}" does not exist',
        hint=f'Connect to the database "{default}", where CREATE DATABASE can create it.',
    )


def _other_database(requested: str, database: str) -> Notice:
    return Notice(
        f'database "{requested}" does not exist, connected to "{database}" instead',
        sqlstate=SqlState.INVALID_CATALOG_NAME,
        hint=f'Connect with the database name "{database}", or create "{requested}" with CREATE DATABASE.',
    )


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
