"""The authentication of one client, from its StartupMessage on: the messages to it and its answers."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from catalog.state import CatalogState
from protocol.pgwire.connection import Connection
from protocol.pgwire.errors import PgError, Severity, SqlState
from protocol.pgwire.messages.frontend import FrontendMessage
from protocol.pgwire.messages.sasl import (
    AuthenticationSASL,
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    SASLInitialResponse,
    SASLResponse,
)
from protocol.pgwire.messages.startup import AuthenticationCleartextPassword, PasswordMessage
from server.authentication import access
from server.authentication.rules import Method
from server.authentication.scram import ScramExchange, WrongProof
from server.authentication.tls import Tls
from server.coordinator.coordinator import Coordinator
from server.frontend.startup import effective_database, user_of


class Authentication:
    """`begin`, then `received` with each message, until `is_done`.

    PgError 28000, 28P01 or 08P01 if the client is refused.
    """

    def __init__(
        self,
        access: access.Access,
        coordinator: Coordinator,
        connection: Connection,
        client: access.ConnectingClient,
        tls: Tls | None,
    ) -> None:
        """`tls`: the certificates that the connection uses."""
        self._access = access
        self._coordinator = coordinator
        self._connection = connection
        self._client = client
        self._binding = tls.binding if tls is not None else None
        self._user = ""
        self._scram: ScramExchange | None = None
        self._reason: str | None = None
        self.is_done = False
        self.accepts_any_user = False
        """See `privileges.login`."""

    def begin(self) -> None:
        """Handles the StartupMessage: requests what the rule requires."""
        parameters, state = self._connection.parameters, self._state
        self._user = user_of(parameters)
        rule = self._access.rule(self._client, effective_database(state, parameters), self._user, state)
        match rule.method:
            case Method.SCRAM:
                self._access.check_rate(self._client)
                verifier, self._reason = self._access.verifier(self._user, state)
                self._scram = ScramExchange(verifier, self._binding)
                self._connection.send(AuthenticationSASL(tuple(self._scram.mechanisms)))
            case Method.PASSWORD:
                self._access.check_rate(self._client)
                self._connection.send(AuthenticationCleartextPassword())
            case _:
                self.accepts_any_user = rule.accepts_any_user
                self.is_done = True

    def received(self, message: FrontendMessage) -> Coroutine[Any, Any, None] | None:
        """Handles a message. Returns work that must be awaited before the next message, None if there is none."""
        match message:
            case PasswordMessage(password=password):
                return self._check(password)
            case SASLInitialResponse(mechanism=mechanism, data=data) if self._scram is not None:
                self._connection.send(AuthenticationSASLContinue(self._scram.first(mechanism, data)))
            case SASLResponse(data=data) if self._scram is not None:
                self._access.check_rate(self._client)  # others of this address may have failed since `begin`
                try:
                    answer = self._scram.final(data)
                except WrongProof:
                    raise self._access.failed(self._client, self._user, self._reason) from None
                self._connection.send(AuthenticationSASLFinal(answer))
                self.is_done = True
            case _:
                raise PgError(SqlState.PROTOCOL_VIOLATION, "unexpected message", severity=Severity.FATAL)
        return None

    async def _check(self, password: str) -> None:
        await self._access.check_password(self._client, self._user, password, self._state)
        self.is_done = True

    @property
    def _state(self) -> CatalogState:
        return self._coordinator.state
