"""GET /api/subscribe: the rows of SUBSCRIBE as server-sent events or over a WebSocket.

The events are the same: `start` with the columns and AS OF, `rows`, `progress` with the token from which to resume,
`notice`, `failure` with an error, and `end`. Rows are encoded once for all subscribers of a change (`JSON_UPDATES`). A
reader that is too slow fills its session's buffer, and is then handled as any other slow client of SUBSCRIBE.

While a WebSocket is not full, the session's answers are written to it without its task, in one write for each commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, hdrs, web

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.frontend import Bind, Describe, Execute, Parse, Sync
from server.http.access import database_of
from server.http.api_session import Answer, ApiSession, serialized
from server.http.responses import Refused, status_of
from server.http.row_formats import JSON_UPDATES
from server.http.sql import OpenSession, loads, parameters_of
from server.http.subscription_events import Event, SubscriptionEvents, event_text, frame, message_text
from server.http.subscription_query import SubscriptionQuery

EVENT_STREAM = "text/event-stream"
RECEIVED_BYTES_MAX = 4 * 1024  # of a message that a client sends over a WebSocket: it has nothing to say
CLOSE_S = 5.0  # for the client to answer the end of a WebSocket


def subscribe_handler(open_session: OpenSession) -> Callable[[web.Request], Any]:
    """Returns the handler of GET /api/subscribe."""

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            max_msg_size=RECEIVED_BYTES_MAX, compress=False, timeout=CLOSE_S, decode_text=False
        )
        stream = _over_socket if _is_handshake(request, socket) else _as_events
        try:
            query = SubscriptionQuery.of(request.query, request.headers.get("Last-Event-ID"))
            try:
                parameters = parameters_of([] if query.parameters is None else loads(query.parameters))
            except (ValueError, RecursionError):
                message = '"parameters" must be a JSON array'
                raise PgError(SqlState.INVALID_PARAMETER_VALUE, message) from None
            with open_session(request, {"database": database_of(request)}, JSON_UPDATES) as session:
                bind = Bind("", "", (), parameters)
                session.send(serialized(Parse("", query.statement()), bind, Describe("P", ""), Execute(""), Sync()))
                return await stream(request, socket, session, SubscriptionEvents(query))
        except PgError as error:
            raise Refused(status_of(error.sqlstate), error) from None

    return handle


def _is_handshake(request: web.Request, socket: web.WebSocketResponse) -> bool:
    """Whether the request is the handshake of a WebSocket."""
    try:
        return bool(socket.can_prepare(request))
    except ValueError:  # aiohttp cannot handle headers that are not ASCII
        return False


async def _events(session: ApiSession, events: SubscriptionEvents) -> AsyncIterator[Event]:
    """Yields the events of a stream. PgError instead of the first one if the stream does not begin."""
    async for answer in session.answers():
        event = events.of(answer)
        if event is not None:
            yield event
        if events.has_ended:
            return


async def _as_events(
    request: web.Request, _: web.WebSocketResponse, session: ApiSession, made: SubscriptionEvents
) -> web.StreamResponse:
    events = _events(session, made)
    first = await anext(events)  # an error before the first row has a status of its own
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: EVENT_STREAM, "X-Accel-Buffering": "no"})
    response.force_close()
    await response.prepare(request)
    await response.write(event_text(first))
    async for event in events:
        await response.write(event_text(event))
    await response.write_eof()
    return response


async def _over_socket(
    request: web.Request, socket: web.WebSocketResponse, session: ApiSession, made: SubscriptionEvents
) -> web.StreamResponse:
    events = _events(session, made)
    first = await anext(events)
    await socket.prepare(request)
    receiving = asyncio.create_task(_receive(socket))
    sending = asyncio.create_task(_send(socket, session, made, first, events))
    try:
        await asyncio.wait((receiving, sending), return_when=asyncio.FIRST_COMPLETED)
        code = receiving.result() if receiving.done() else WSCloseCode.OK
    finally:
        session.pass_rows(None)
        for task in (receiving, sending):
            task.cancel()
        await asyncio.gather(receiving, sending, return_exceptions=True)
    if request.transport is not None:  # a client that reads nothing does not get as far as the end
        asyncio.get_running_loop().call_later(CLOSE_S, request.transport.abort)
    await socket.close(code=code)
    return socket


async def _send(
    socket: web.WebSocketResponse,
    session: ApiSession,
    made: SubscriptionEvents,
    first: Event,
    events: AsyncIterator[Event],
) -> None:
    def frames(answers: list[Answer]) -> bytes:
        if socket.closed:  # no frame may follow that of closing
            return b""
        return b"".join(frame(message_text(event)) for answer in answers if (event := made.of(answer)) is not None)

    await socket.send_frame(message_text(first), WSMsgType.TEXT)
    session.pass_rows(frames)
    async for event in events:
        await socket.send_frame(message_text(event), WSMsgType.TEXT)


async def _receive(socket: web.WebSocketResponse) -> int:
    """Returns the code with which to close when the client closes, or sends what it must not send."""
    message = await socket.receive()
    return WSCloseCode.OK if message.type in _ENDS else WSCloseCode.POLICY_VIOLATION


_ENDS = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)
