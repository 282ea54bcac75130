"""The routes of the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aiohttp import hdrs, web

from server.frontend.client_registry import ClientRegistry
from server.frontend.startup import Sessions
from server.http.access import ANY_USER, USER
from server.http.api_session import ApiSession, Peer
from server.http.openapi import DESCRIPTION
from server.http.port import Kind, Route
from server.http.request_limits import RequestLimits
from server.http.sql import sql_handler
from server.http.subscribe import subscribe_handler
from server.session_state.row_format import RowFormat


def api(sessions: Sessions, clients: ClientRegistry, limits: RequestLimits) -> list[Route]:
    """Returns the routes. The check of the port must have accepted a request (`http_access`)."""

    @contextmanager
    def open_session(
        request: web.Request, parameters: Mapping[str, str], row_format: RowFormat
    ) -> Iterator[ApiSession]:
        if request.transport is None:
            raise ConnectionResetError
        peer = Peer(request.transport, request.remote, request[USER], request[ANY_USER])
        with ApiSession(sessions, clients, peer, parameters, row_format) as session, limits.session(request):
            yield session

    async def describe(_: web.Request) -> web.Response:
        return web.json_response(DESCRIPTION)

    return [
        Route("/api/sql", sql_handler(open_session, limits), Kind.API, hdrs.METH_POST),
        Route("/api/subscribe", subscribe_handler(open_session), Kind.API),
        Route("/api/openapi.json", describe, Kind.API),
    ]
