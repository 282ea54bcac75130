"""The files of the console and the JavaScript client, which are part of the package."""

from __future__ import annotations

from pathlib import Path

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from server.http.port import Kind, Route

_DIRECTORY = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""Pages load from this server only, run no scripts in HTML, and are shown in no frame."""
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    hdrs.CACHE_CONTROL: "no-cache",
}


def files() -> list[Route]:
    """Returns the routes. The client needs no authentication: a program may load it before it has credentials."""
    routes = []
    for path in sorted(_DIRECTORY.iterdir()):
        address = "/" if path.name == "index.html" else f"/{path.name}"
        routes.append(Route(address, _file(path), Kind.PUBLIC if path.name == "client.js" else Kind.PAGE))
    return routes


def _file(path: Path) -> Handler:
    body = path.read_bytes()
    headers = {**_HEADERS, hdrs.CONTENT_TYPE: _TYPES[path.suffix]}

    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers=headers)

    return handle
