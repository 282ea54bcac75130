"""Which web pages may use the HTTP port: those of its own origin, and those of the configured origins.

A browser sends the user's requests with the user's credentials, or from the user's address, for every page that asks
it to. It says which page asks: by the header Origin for requests of scripts and WebSockets, and by Sec-Fetch-Site for
all requests. Other clients send neither header.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import hdrs, web

from protocol.pgwire.errors import PgError, SqlState
from server.http.responses import Refused

_FETCH_SITE, _FETCH_MODE = "Sec-Fetch-Site", "Sec-Fetch-Mode"
_OWN_SITES = ("same-origin", "none")  # none: the user entered the address
_PREFLIGHT_S = 600  # for which a browser may keep the answer to a preflight request


class Origins:
    """`others`: the origins that are accepted in addition to the server's own, such as `https://app.example`."""

    def __init__(self, others: Iterable[str]) -> None:
        self._others = frozenset(others)

    def check(self, request: web.Request, *, api: bool) -> None:
        """Refused if another page sent the request. A link on another page may lead to a page that is not the API's."""
        origins = request.headers.getall(hdrs.ORIGIN, [])
        if origins:
            if len(origins) > 1 or not (origins[0] in self._others or origins[0] == _own(request)):
                raise _foreign(f'requests from pages of the origin "{origins[0]}" are not accepted')
            return
        site = request.headers.get(_FETCH_SITE)
        if site is None or site in _OWN_SITES:
            return
        if api or request.headers.get(_FETCH_MODE) != "navigate":
            raise _foreign("requests from other pages are not accepted")

    def headers(self, request: web.Request) -> dict[str, str]:
        """The headers that let a page of a configured origin read the response."""
        origin = request.headers.get(hdrs.ORIGIN)
        if not self._others:
            return {}
        if origin not in self._others:
            return {hdrs.VARY: hdrs.ORIGIN}
        return {hdrs.VARY: hdrs.ORIGIN, hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: str(origin)}

    def preflight(self, methods: Iterable[str]) -> web.Response:
        """The answer to an OPTIONS request that `check` has accepted."""
        return web.Response(
            status=204,
            headers={
                hdrs.ACCESS_CONTROL_ALLOW_METHODS: ", ".join(sorted(methods)),
                hdrs.ACCESS_CONTROL_ALLOW_HEADERS: "Authorization, Content-Type, Last-Event-ID",
                hdrs.ACCESS_CONTROL_MAX_AGE: str(_PREFLIGHT_S),
            },
        )


def _own(request: web.Request) -> str:
    is_encrypted = request.transport is not None and request.transport.get_extra_info("ssl_object") is not None
    return f"{'https' if is_encrypted else 'http'}://{request.headers.get(hdrs.HOST, '').lower()}"


def _foreign(message: str) -> Refused:
    hint = "Origins of pages are accepted with --http-origins."
    return Refused(403, PgError(SqlState.INVALID_AUTHORIZATION_SPECIFICATION, message, hint=hint))
