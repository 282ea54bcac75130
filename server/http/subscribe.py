"""GET /api/subscribe: the rows of SUBSCRIBE as server-sent events or over a WebSocket.

The events are the same: `start` with the columns and AS OF, `rows`, `progress` with the token from which to resume,
`notice`, `failure` with an error, and `end`. Rows are encoded once for all subscribers of a change (`JSON_UPDATES`). A
reader that is too slow fills its session's buffer, and is then handled as any other slow client of SUBSCRIBE.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from aiohttp import WSCloseCode, WSMsgType, hdrs, web

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.messages.backend import CommandComplete, ErrorResponse, NoticeResponse, RowDescription
from protocol.pgwire.messages.copying import CopyData
from protocol.pgwire.messages.frontend import Bind, Describe, Execute, Parse, Sync
from server.http.access import database_of
from server.http.api_session import ApiSession
from server.http.responses import Refused, error_object, json_bytes, status_of
from server.http.row_formats import JSON_UPDATES, ROWS
from server.http.sql import OpenSession, columns_of, described, error_of, parameters_of
from server.http.subscription_query import SubscriptionQuery

EVENT_STREAM = "text/event-stream"
RECEIVED_BYTES_MAX = 4 * 1024  # of a message that a client sends over a WebSocket: it has nothing to say
CLOSE_S = 5.0  # for the client to answer the end of a WebSocket


class Event(NamedTuple):
    """`data`: JSON without line breaks. `token`: of progress."""

    name: str
    data: bytes
    token: str | None = None


def subscribe_handler(open_session: OpenSession) -> Callable[[web.Request], Any]:
    """Returns the handler of GET /api/subscribe."""

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            max_msg_size=RECEIVED_BYTES_MAX, compress=False, timeout=CLOSE_S, decode_text=False
        )
        send = _over_socket if _is_handshake(request, socket) else _as_events
        try:
            query = SubscriptionQuery.of(request.query, request.headers.get("Last-Event-ID"))
            try:
                parameters = parameters_of([] if query.parameters is None else json.loads(query.parameters))
            except (ValueError, RecursionError):
                message = '"parameters" must be a JSON array'
                raise PgError(SqlState.INVALID_PARAMETER_VALUE, message) from None
            with open_session(request, {"database": database_of(request)}, JSON_UPDATES) as session:
                session.send(
                    Parse("", query.statement()), Bind("", "", (), parameters), Describe("P", ""), Execute(""), Sync()
                )
                events = _events(session, query)
                first = await anext(events)  # an error before the first row has a status of its own
                return await send(request, socket, first, events)
        except PgError as error:
            raise Refused(status_of(error.sqlstate), error) from None

    return handle


def _is_handshake(request: web.Request, socket: web.WebSocketResponse) -> bool:
    """Whether the request is the handshake of a WebSocket."""
    try:
        return bool(socket.can_prepare(request))
    except ValueError:  # aiohttp cannot handle headers that are not ASCII
        return False


async def _events(session: ApiSession, query: SubscriptionQuery) -> AsyncIterator[Event]:
    """Yields the events of a stream. PgError instead of the first one if the stream does not begin."""
    columns: list[dict[str, Any]] | None = None
    has_begun = False
    async for answer in session.answers():
        match answer.code:
            case RowDescription.code:
                columns = [column for column in columns_of(described(answer)) if column["name"] != "mz_progressed"]
            case CopyData.code if answer.body[0] == ROWS:
                yield Event("rows", b"".join((b"[", answer.body[1:], b"]")))
            case CopyData.code:
                time = int(answer.body[1:].tobytes())
                if has_begun:
                    token = query.token(time)
                    yield Event("progress", json_bytes({"progress": time, "token": token}), token)
                else:
                    has_begun = True
                    yield Event(
                        "start", json_bytes({"columns": columns, "as_of": time, "fingerprint": query.fingerprint})
                    )
            case NoticeResponse.code:
                yield Event("notice", json_bytes(error_object(error_of(answer))))
            case ErrorResponse.code:
                error = error_of(answer)
                if error.position is not None:
                    error.position = query.position(error.position)
                if not has_begun:
                    raise error
                yield Event("failure", json_bytes(error_object(error)))
                return
            case CommandComplete.code:
                yield Event("end", b"{}")
                return


async def _as_events(
    request: web.Request, _: web.WebSocketResponse, first: Event, events: AsyncIterator[Event]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: EVENT_STREAM, "X-Accel-Buffering": "no"})
    response.force_close()
    await response.prepare(request)
    await response.write(_event_text(first))
    async for event in events:
        await response.write(_event_text(event))
    await response.write_eof()
    return response


def _event_text(event: Event) -> bytes:
    id = b"" if event.token is None else b"id: %b\n" % event.token.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (id, event.name.encode(), event.data)


async def _over_socket(
    request: web.Request, socket: web.WebSocketResponse, first: Event, events: AsyncIterator[Event]
) -> web.StreamResponse:
    await socket.prepare(request)
    receiving = asyncio.create_task(_receive(socket))
    sending = asyncio.create_task(_send(socket, first, events))
    try:
        await asyncio.wait((receiving, sending), return_when=asyncio.FIRST_COMPLETED)
        code = receiving.result() if receiving.done() else WSCloseCode.OK
    finally:
        for task in (receiving, sending):
            task.cancel()
        await asyncio.gather(receiving, sending, return_exceptions=True)
    await socket.close(code=code)
    return socket


async def _send(socket: web.WebSocketResponse, first: Event, events: AsyncIterator[Event]) -> None:
    await socket.send_frame(_message_text(first), WSMsgType.TEXT)
    async for event in events:
        await socket.send_frame(_message_text(event), WSMsgType.TEXT)


async def _receive(socket: web.WebSocketResponse) -> int:
    """Returns the code with which to close when the client closes, or sends what it must not send."""
    message = await socket.receive()
    return WSCloseCode.OK if message.type in _ENDS else WSCloseCode.POLICY_VIOLATION


_ENDS = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR)


def _message_text(event: Event) -> bytes:
    return b'{"event":"%b","data":%b}' % (event.name.encode(), event.data)
