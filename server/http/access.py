"""Who may use the HTTP port: the rules for clients of PostgreSQL's protocol, with HTTP Basic authentication.

A request without credentials is one of role `materialize`, which a rule may trust. The database is the default one. A
password is accepted only over TLS, also where the rule is `scram-sha-256`: the client sends the password itself.
"""

from __future__ import annotations

from aiohttp import BasicAuth, web

from catalog.roles import MATERIALIZE
from protocol.pgwire.errors import PgError
from server.authentication.access import Access, Client
from server.authentication.rules import Method
from server.authorization import privileges
from server.coordinator.coordinator import Coordinator
from server.introspection.http import Check, text_response
from server.settings import VARIABLES

_CHALLENGE = {"WWW-Authenticate": 'Basic realm="tidewire", charset="UTF-8"'}
_NOT_ENCRYPTED = "passwords are only accepted over TLS: use --tls-cert and --tls-key"


def http_access(access: Access, coordinator: Coordinator) -> Check:
    """Returns the check of requests."""

    async def check(request: web.Request) -> web.Response | None:
        try:
            credentials = _credentials(request)
        except ValueError:
            return text_response(400, "malformed Authorization header")
        user = MATERIALIZE.name if credentials is None else credentials.login
        is_encrypted = request.transport is not None and request.transport.get_extra_info("ssl_object") is not None
        client = Client(request.remote, is_encrypted)
        state = coordinator.state
        try:
            rule = access.rule(client, VARIABLES["database"].default, user, state)
            if rule.method is Method.TRUST:
                privileges.login(state, user, any_user=rule.accepts_any_user)
                return None
            if rule.method not in (Method.SCRAM, Method.PASSWORD):
                return text_response(403, f'authentication method "{rule.method}" is not supported for HTTP')
            if not is_encrypted:
                return text_response(403, _NOT_ENCRYPTED)
            if credentials is None:
                return _challenge("authentication required")
            await access.check_password(client, user, credentials.password, state)
            privileges.login(coordinator.state, user, any_user=False)
        except PgError as error:
            return _challenge(error.message)
        return None

    return check


def _credentials(request: web.Request) -> BasicAuth | None:
    """ValueError if the header is malformed."""
    header = request.headers.get("Authorization")
    return None if header is None else BasicAuth.decode(header, encoding="utf-8")


def _challenge(reason: str) -> web.Response:
    response = text_response(401, reason)
    response.headers.update(_CHALLENGE)
    return response
