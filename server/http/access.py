"""Who may use the HTTP port: the rules for clients of PostgreSQL's protocol, with HTTP Basic authentication.

A request without credentials is one of the role that its certificate names, or without a certificate one of role
`materialize`, which a rule may trust. The database is that of the query string's parameter `database`, by default the
default one. A password is accepted only over TLS, also where the rule is `scram-sha-256`: the client sends the password
itself.
"""

from __future__ import annotations

from aiohttp import BasicAuth, web

from catalog.roles import MATERIALIZE
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.utf8 import check_text
from server.authentication.access import Access, ConnectingClient
from server.authentication.rules import Method
from server.authentication.tls import common_name
from server.authorization import privileges
from server.coordinator.coordinator import Coordinator
from server.frontend.startup import effective_database
from server.http.port import Check
from server.http.responses import Refused
from server.settings.variables import VARIABLES

USER, ANY_USER = web.RequestKey("user", str), web.RequestKey("any_user", bool)
"""What the check adds to a request that it accepts: the user, and whether any name is accepted (`privileges.login`)."""

_CHALLENGE = {"WWW-Authenticate": 'Basic realm="tidewire", charset="UTF-8"'}


def http_access(access: Access, coordinator: Coordinator) -> Check:
    """Returns the check of requests."""

    async def check(request: web.Request) -> None:
        try:
            credentials = _credentials(request)
        except ValueError:
            raise _refused(400, SqlState.PROTOCOL_VIOLATION, "malformed Authorization header") from None
        # A zero would end the name in the session's StartupMessage, so that the session would have another one.
        for requested in (database_of(request), "" if credentials is None else credentials.login):
            try:
                check_text(requested)
            except PgError as invalid:
                raise Refused(400, invalid) from None
        transport = request.transport
        is_encrypted = transport is not None and transport.get_extra_info("ssl_object") is not None
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        name = common_name(certificate)
        user = (name or MATERIALIZE.name) if credentials is None else credentials.login
        client = ConnectingClient(request.remote, is_encrypted, certificate is not None, name)
        state = coordinator.state
        request[USER], request[ANY_USER] = user, False
        try:
            database = effective_database(state, {"user": user, "database": database_of(request)})
            rule = access.rule(client, database, user, state)
            if rule.method is Method.TRUST:
                request[ANY_USER] = rule.accepts_any_user
                privileges.login(state, user, any_user=rule.accepts_any_user)
                return
            if rule.method is Method.CERT:  # the certificate is that of the user
                privileges.login(state, user, any_user=False)
                return
            if not is_encrypted:
                message = "passwords are only accepted over TLS: use --tls-cert and --tls-key"
                raise _refused(403, SqlState.INVALID_AUTHORIZATION_SPECIFICATION, message)
            if credentials is None:
                error = PgError(SqlState.INVALID_AUTHORIZATION_SPECIFICATION, "authentication required")
                raise Refused(401, error, _CHALLENGE)
            await access.check_password(client, user, credentials.password, state)
            privileges.login(coordinator.state, user, any_user=False)
        except PgError as error:
            raise Refused(401, error, _CHALLENGE) from None

    return check


def is_superuser(request: web.Request, coordinator: Coordinator) -> bool:
    """Whether an accepted request is one of a superuser. PgError 28000 if the role has been dropped since."""
    role = privileges.login(coordinator.state, request[USER], any_user=request[ANY_USER])
    return privileges.is_superuser(coordinator.state, role)


def database_of(request: web.Request) -> str:
    """The database that a request names, or the default one."""
    return request.query.get("database") or VARIABLES["database"].default


def _credentials(request: web.Request) -> BasicAuth | None:
    """ValueError if the header is malformed."""
    header = request.headers.get("Authorization")
    return None if header is None else BasicAuth.decode(header, encoding="utf-8")


def _refused(status: int, sqlstate: SqlState, message: str) -> Refused:
    return Refused(status, PgError(sqlstate, message))
