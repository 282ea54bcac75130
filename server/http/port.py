"""The HTTP port, on aiohttp.

It answers GET and HEAD, one request per connection. It shares the event loop with the sessions.

aiohttp bounds the size of a request's head and closes a connection that does not send one in time. This module adds a
bound on the number of connections, a bound on the time that a client may take to read an answer, and the check of the
Host header, which prevents DNS rebinding: a web page whose own name resolves to this server's address could read the
answers under that name. IP addresses cannot be rebound and are accepted. Names are accepted only if they are known.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.typedefs import Handler

from server.introspection.tls_transport import TlsConnection
from server.runtime.tls_stream import Handshakes

LINE_BYTES_MAX = 16 * 1024  # of the request line, and of each header
HEADERS_MAX = 64
REQUEST_S = 5.0  # from the connection to the end of the request's head
ANSWER_S = 10.0  # for the client to read the answer
SHUTDOWN_S = 0.5  # for the requests that are in progress at shutdown
CONNECTIONS_MAX = 64

Check = Callable[[web.Request], Awaitable[web.Response | None]]
"""Returns the refusal of a request, None if it may be answered."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::\d{0,5})?")
_FOREIGN_NAME = "this name is not one of the server's: use its IP address or localhost, or set --http-host-names"

_log = structlog.get_logger()
_aiohttp_log = logging.getLogger("tidewire.aiohttp")
_aiohttp_log.disabled = True  # it would log a stack trace for each malformed request


def text_response(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _last(response: web.StreamResponse) -> web.StreamResponse:
    """Completes the headers of the only response of a connection."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["Server"] = "tidewire"  # instead of the versions of Python and aiohttp
    response.force_close()
    return response


class HttpPort:
    """Serves `pages` by path."""

    def __init__(
        self,
        pages: Mapping[str, Handler],
        *,
        host_names: Iterable[str] = (),
        check: Check | None = None,
        public: Iterable[str] = (),
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        """`host_names`: the Host names that are accepted in addition to localhost and IP addresses.

        `check`: who may have the pages, except those whose paths are `public`. `tls`: the certificate for a new
        connection; None for connections without TLS.
        """
        self._pages = pages
        self._check = check
        self._public = frozenset(public)
        self._tls = tls
        self._handshakes = Handshakes()
        self._pending: set[TlsConnection] = set()
        self._host_names = frozenset(name.lower().removesuffix(".") for name in ("localhost", *host_names))
        self._listener: asyncio.Server | None = None
        application = web.Application(middlewares=[self._answer])
        for path, page in pages.items():
            application.router.add_get(path, page)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_S)

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Starts accepting. Returns the address, with the actual port if `port` is 0. OSError if it is in use."""
        await self._runner.setup()
        self._listener = await asyncio.get_running_loop().create_server(self._connection, host, port)
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
        if len(server.connections) + len(self._pending) >= CONNECTIONS_MAX:
            return _Refusal()
        connection = _Connection(server)
        context = self._tls()
        if context is None:
            return connection
        return TlsConnection(connection, context, self._handshakes, self._pending, REQUEST_S)

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The middleware of all requests."""
        refusal = self._refusal(request)
        if refusal is None and self._check is not None and request.path not in self._public:
            refusal = await self._check(request)
        response = _last(refusal or await self._page(request, handler))
        if request.transport is not None:
            asyncio.get_running_loop().call_later(ANSWER_S, request.transport.abort)
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Returns the answer to a request that is malformed or has a foreign name; None if there is no such fault."""
        hosts = request.headers.getall("Host", [])
        if request.version < (1, 0) and request.transport is not None:
            request.transport.abort()  # HTTP/0.9 has neither a Host header nor a form for errors
        if not request.raw_path.startswith("/") or request.version < (1, 0):
            return text_response(400, "malformed HTTP request")
        if len(hosts) > 1 or (not hosts and request.version >= (1, 1)):
            return text_response(400, "exactly one Host header is required")
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
            return text_response(404, f"there are: {' '.join(sorted(self._pages))}")
        except web.HTTPMethodNotAllowed:
            return web.Response(status=405, text="use GET\n", headers={"Allow": "GET, HEAD"})
        except Exception as error:
            _log.error("http request failed", path=request.path, error=str(error), exc_info=error)
            return text_response(500, "the server's log says why")


class _Connection(web.RequestHandler):
    """aiohttp's connection, with the limits of this module."""

    __slots__ = ()

    def __init__(self, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=REQUEST_S,
            lingering_time=0,  # does not read the body of a request
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
            access_log=_aiohttp_log,
            logger=_aiohttp_log,
        )

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
            return _last(text_response(431, "the request's head is too large"))
        return _last(text_response(400, "malformed HTTP request"))


class _Refusal(asyncio.Protocol):
    """A connection beyond CONNECTIONS_MAX: is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
