"""The HTTP port for monitoring: /metrics, /healthz, /readyz.

It answers GET and HEAD, one request per connection, with a bounded head and no body. It shares the event loop with the
sessions and does not block it: disk reads run in a thread.

The Host header is checked to prevent DNS rebinding. A web page whose own name resolves to this server's address could
read the answers under that name. IP addresses cannot be rebound and are accepted. Names are accepted only if they are
known.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

HEAD_BYTES_MAX = 16 * 1024
REQUEST_S = 5.0  # from the connection to the end of the request's head
ANSWER_S = 10.0  # for the client to read the answer
CONNECTIONS_MAX = 64

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Response:
    status: str
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, status: str, text: str) -> Response:
        return cls(status, f"{text}\n".encode())

    def encoded(self, *, with_body: bool) -> bytes:
        head = [
            f"HTTP/1.1 {self.status}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return "\r\n".join([*head, "", ""]).encode() + (self.body if with_body else b"")


Page = Callable[[], Awaitable[Response]]

_REQUEST_LINE = re.compile(rb"([A-Z]+) (/[!-~]*) HTTP/1\.([01])")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::\d{0,5})?")


class HttpPort:
    """Serves `pages` by path."""

    def __init__(self, pages: Mapping[str, Page], *, host_names: Iterable[str] = ()) -> None:
        """`host_names`: the Host names that are accepted in addition to localhost and IP addresses."""
        self._pages = pages
        self._host_names = frozenset(name.lower().removesuffix(".") for name in ("localhost", *host_names))
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Starts accepting. Returns the address, with the actual port if `port` is 0. OSError if it is in use."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=HEAD_BYTES_MAX)
        address = self._server.sockets[0].getsockname()
        return address[0], address[1]

    async def close(self) -> None:
        """Stops accepting and ends the requests that are not answered yet."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves the one request of a connection."""
        try:
            method, response = await self._answer(reader)
            writer.write(response.encoded(with_body=method != "HEAD"))
            async with asyncio.timeout(ANSWER_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError):
            pass  # the client has disconnected, or is too slow
        finally:
            writer.transport.abort()

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

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[str, Response]:
        """Returns the request's method and the response. EOFError or TimeoutError if the request is incomplete."""
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "", Response.of("431 Request Header Fields Too Large", "the request's head is too large")
        request = _REQUEST_LINE.fullmatch(head.partition(b"\r\n")[0])
        if request is None:
            return "", Response.of("400 Bad Request", "malformed HTTP request")
        method, path = request[1].decode(), request[2].decode().partition("?")[0]
        hosts = _values(head, b"host")
        if len(hosts) > 1 or (not hosts and request[3] == b"1"):
            return method, Response.of("400 Bad Request", "exactly one Host header is required")
        if hosts and not self._is_ours(hosts[0]):
            text = "this name is not one of the server's: use its IP address or localhost, or set --http-host-names"
            return method, Response.of("403 Forbidden", text)
        page = self._pages.get(path)
        if page is None:
            return method, Response.of("404 Not Found", f"there are: {' '.join(sorted(self._pages))}")
        if method not in ("GET", "HEAD"):
            return method, Response("405 Method Not Allowed", b"use GET\n", headers=(("Allow", "GET, HEAD"),))
        try:
            return method, await page()
        except Exception as error:
            log.error("http request failed", path=path, error=str(error), exc_info=error)
            return method, Response.of("500 Internal Server Error", "the server's log says why")


def _values(head: bytes, name: bytes) -> list[str]:
    """Returns the values of a header, in the order of the request's lines."""
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return [value.strip().decode("latin-1") for key, _, value in pairs if key.strip().lower() == name]
