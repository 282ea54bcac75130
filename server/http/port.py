"""The HTTP port, on aiohttp.

Each connection serves one request. The port shares the event loop with the sessions.

aiohttp bounds the size of a request's head and closes a connection that does not send one in time. This module adds
bounds on the number of connections and on the time that a client may take to read an answer, and the check of the Host
header, which prevents DNS rebinding: a web page whose own name resolves to this server's address
could read the answers under that name. IP addresses cannot be rebound and are accepted. Names are accepted only if they
are known. `origins` refuses requests of other pages.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import cast

import structlog
from aiohttp import hdrs, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.typedefs import Handler

from protocol.pgwire.errors import PgError, SqlState
from server.frontend.client import client_ip
from server.frontend.half_open import HalfOpen
from server.http.origins import Origins
from server.http.request_limits import BODY_BYTES_MAX, RequestLimits
from server.http.responses import API, Refused, refusal, text_response
from server.http.tls_transport import TlsConnection
from server.runtime.tls_stream import Handshakes

LINE_BYTES_MAX = 16 * 1024  # of the request line, and of each header
HEADERS_MAX = 64
HEAD_BYTES_MAX = 64 * 1024  # of all headers
READ_BYTES = 16 * 1024  # of a body; so many are parsed before other clients are served
CONTROL_BYTES_MAX = 8 * 1024  # that a client of a WebSocket sends at once; aiohttp stops reading at READ_BYTES
CONTROL_BYTES_PER_S = 1024  # afterwards
REQUEST_S = 5.0  # from the connection to the end of the request's head
ANSWER_S = 10.0  # for the client to read an answer that is complete
LINGER_S = 2.0  # for the client to stop sending a body that is not read
SHUTDOWN_S = 0.5  # for the requests that are in progress at shutdown
CONNECTIONS_MAX = 500  # in addition to those that have a session, which `max_connections` limits

Check = Callable[[web.Request], Awaitable[None]]
"""Refused if the client may not have what it requests."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::\d{0,5})?")
_LARGE_HEAD = "the request's head is too large"
_GET_BODY = "a GET request must not have a body"
_FOREIGN_NAME = "this name is not one of the server's: use its IP address or localhost, or set --http-host-names"

_log = structlog.get_logger()
_aiohttp_log = logging.getLogger("tidewire.aiohttp")
_aiohttp_log.disabled = True  # it would log a stack trace for each malformed request
logging.getLogger("aiohttp.websocket").disabled = True  # it would log what clients send


class Kind(Enum):
    PUBLIC = "public"
    """Needs no authentication."""
    PAGE = "page"
    API = "API"
    """Has a session. Its answer may be of any length and take any time. Other origins may be accepted."""


@dataclass(frozen=True, slots=True)
class Route:
    path: str
    handler: Handler
    kind: Kind = Kind.PAGE
    method: str = hdrs.METH_GET
    """GET includes HEAD, except for the API."""


class HttpPort:
    """Serves `routes`."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        host_names: Iterable[str] = (),
        origins: Iterable[str] = (),
        check: Check | None = None,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        limits: RequestLimits | None = None,
    ) -> None:
        """`host_names`: the Host names that are accepted in addition to localhost and IP addresses.

        `origins`: of pages whose requests are accepted. `check`: who may have what is not public. `tls`: the
        certificate for a new connection; None for connections without TLS. `limits`: shared with the API's routes.
        """
        self._methods: dict[str, set[str]] = defaultdict(set)
        self._kinds: dict[str, Kind] = {}
        self._check = check
        self._origins = Origins(origins)
        self._tls = tls
        self._handshakes = Handshakes()
        self._limits = limits or RequestLimits()
        self._host_names = frozenset(name.lower().removesuffix(".") for name in ("localhost", *host_names))
        self._listener: asyncio.Server | None = None
        application = web.Application(middlewares=[self._answer], client_max_size=BODY_BYTES_MAX)
        application.on_response_prepare.append(self._complete)
        for route in routes:
            is_api = route.kind is Kind.API
            if route.method == hdrs.METH_GET:
                application.router.add_get(route.path, route.handler, allow_head=not is_api)
            else:
                application.router.add_route(route.method, route.path, route.handler)
            self._kinds[route.path] = route.kind
            self._methods[route.path].add(route.method)
            if route.method == hdrs.METH_GET and not is_api:
                self._methods[route.path].add(hdrs.METH_HEAD)
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=SHUTDOWN_S, handler_cancellation=True
        )

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Starts accepting. Returns the address, with the actual port if `port` is 0. OSError if it is in use."""
        await self._runner.setup()
        self._listener = await asyncio.get_running_loop().create_server(self._connection, host, port, backlog=2_000)
        address = self._listener.sockets[0].getsockname()
        return address[0], address[1]

    async def close(self) -> None:
        """Stops accepting, and ends the requests that are not answered within SHUTDOWN_S."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    def _connection(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        others = self._limits.without_session
        if len(others) >= CONNECTIONS_MAX and not others.end_one():
            return _Refusal()
        connection = _Connection(server, others)
        context = self._tls()
        if context is None:
            return connection
        return TlsConnection(connection, context, self._handshakes, others, REQUEST_S)

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The middleware of all requests."""
        try:
            response = self._malformed(request) or await self._handled(request, handler)
        except Refused as refused:
            response = refusal(request, refused)
        if not response.prepared:
            response.force_close()
        if request.transport is not None:
            asyncio.get_running_loop().call_later(ANSWER_S, request.transport.abort)
        return response

    async def _handled(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        kind = self._kinds.get(request.path, Kind.PAGE)
        if kind is not Kind.PUBLIC:
            self._origins.check(request, api=kind is Kind.API)
            if kind is Kind.API and request.method == hdrs.METH_OPTIONS:
                return self._origins.preflight(self._methods[request.path])
            if self._check is not None:
                await self._check(request)
        return await self._page(request, handler)

    def _malformed(self, request: web.Request) -> web.Response | None:
        """Returns the answer to a request that is malformed or has a foreign name; None if there is no such fault."""
        hosts = request.headers.getall("Host", [])
        if request.version < (1, 0) and request.transport is not None:
            request.transport.abort()  # HTTP/0.9 has neither a Host header nor a form for errors
        if not request.raw_path.startswith("/") or request.version < (1, 0):
            return text_response(400, "malformed HTTP request")
        if sum(len(name) + len(value) for name, value in request.raw_headers) > HEAD_BYTES_MAX:
            return text_response(431, _LARGE_HEAD)
        if len(hosts) > 1 or (not hosts and request.version >= (1, 1)):
            return text_response(400, "exactly one Host header is required")
        if request.body_exists and request.method in (hdrs.METH_GET, hdrs.METH_HEAD):
            return text_response(400, _GET_BODY)  # no route would read it, and the end of the connection is behind it
        return text_response(403, _FOREIGN_NAME) if hosts and not self._is_ours(hosts[0]) else None

    def _is_ours(self, host: str) -> bool:
        """Whether the value of a Host header is an IP address or an accepted name, with or without a port."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].strip("[]").lower().removesuffix(".")
        if name in self._host_names or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    async def _page(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPNotFound:
            error = PgError(SqlState.UNDEFINED_OBJECT, f"there are: {' '.join(sorted(self._kinds))}")
            raise Refused(404, error) from None
        except web.HTTPMethodNotAllowed:
            allowed = sorted(self._methods[request.path])
            error = PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                f"use {allowed[0]}",
                hint="The header Allow of the response has all methods of this path.",
            )
            raise Refused(405, error, {hdrs.ALLOW: ", ".join(allowed)}) from None
        except (Refused, ConnectionError):  # a client that has disconnected
            raise
        except Exception as bug:
            _log.error("http request failed", path=request.path, error=str(bug), exc_info=bug)
            raise Refused(500, PgError(SqlState.INTERNAL_ERROR, "the server's log says why")) from None

    async def _complete(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds the headers of all responses."""
        _with_headers(response)
        if request.path.startswith(API):
            response.headers.update(self._origins.headers(request))


def _with_headers(response: web.StreamResponse) -> web.StreamResponse:
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    response.headers[hdrs.SERVER] = "tidewire"  # instead of the versions of Python and aiohttp
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


class _Connection(web.RequestHandler):
    """aiohttp's connection, with the limits of this module.

    Its transport is read until the request is answered: otherwise the server would not notice that the client has
    disconnected, and its statement would run on.
    """

    __slots__ = ("_address", "_control_at", "_control_bytes", "_without_session", "received")

    def __init__(self, server: web.Server, without_session: HalfOpen) -> None:
        self.received = 0
        """The number of bytes that the client has sent."""
        self._control_bytes = float(CONTROL_BYTES_MAX)  # that the client of a WebSocket may send now
        self._control_at = monotonic()
        self._without_session = without_session
        self._address: str | None = None
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=REQUEST_S,
            lingering_time=LINGER_S,
            read_bufsize=READ_BYTES,
            auto_decompress=False,  # a small body could become a large one
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
            access_log=_aiohttp_log,
            logger=_aiohttp_log,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._address = client_ip(transport)
        self._without_session.add(self, self._address)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._without_session.remove(self, self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self._request_count > 1:  # what follows the request is not read
            return
        if self._upgraded and not self._may_send(len(data)):
            self.abort()
            return
        super().data_received(data)
        if self._upgraded and len(self._message_tail) > CONTROL_BYTES_MAX:  # was received with the head
            self.abort()
        if self._request_count == 0 and self.received > HEAD_BYTES_MAX and self.transport is not None:
            self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n")
            self.force_close()
        if self._request_count > 1 and self.transport is not None:
            self.transport.resume_reading()  # aiohttp does not read while many requests wait

    def _may_send(self, size: int) -> bool:
        """Whether the client of a WebSocket may send so many bytes. It needs few: for pings, and to close."""
        now = monotonic()
        allowed = self._control_bytes + (now - self._control_at) * CONTROL_BYTES_PER_S
        self._control_bytes = min(float(CONTROL_BYTES_MAX), allowed) - size
        self._control_at = now
        return self._control_bytes >= 0

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers a request whose head cannot be parsed. aiohttp's own answer would contain parts of the head."""
        if self.transport is not None:
            self.transport.pause_reading()
        if exc is not None:
            exc.__traceback__ = None  # a reference cycle that keeps what was received in memory
        if isinstance(exc, LineTooLong):
            response = text_response(431, _LARGE_HEAD)
        else:
            response = text_response(400, "malformed HTTP request")
        response.force_close()
        return _with_headers(response)


class _Refusal(asyncio.Protocol):
    """A connection beyond CONNECTIONS_MAX, all of which are new: is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
