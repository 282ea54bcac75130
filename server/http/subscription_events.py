"""The events of GET /api/subscribe, and their forms in a stream of server-sent events and over a WebSocket."""

from __future__ import annotations

from typing import Any, NamedTuple

from protocol.pgwire.messages.backend import CommandComplete, ErrorResponse, NoticeResponse, RowDescription
from protocol.pgwire.messages.copying import CopyData
from server.http.api_session import Answer
from server.http.responses import error_object, json_bytes
from server.http.row_formats import ROWS
from server.http.sql import columns_of, described, error_of
from server.http.subscription_query import SubscriptionQuery, token_of


class Event(NamedTuple):
    """`data`: JSON without line breaks. `token`: of progress."""

    name: str
    data: bytes
    token: str | None = None


class SubscriptionEvents:
    """Makes the events of one stream from the answers of its session."""

    def __init__(self, query: SubscriptionQuery) -> None:
        self._query = query
        self._fingerprint = query.fingerprint
        self._columns: list[dict[str, Any]] | None = None
        self._has_begun = False
        self.has_ended = False
        """Whether the last event of the stream has been made."""

    def of(self, answer: Answer) -> Event | None:
        """The event of an answer, if it has one. PgError instead of the first event if the stream does not begin."""
        match answer.code:
            case CopyData.code if answer.body[0] == ROWS:
                return Event("rows", b"".join((b"[", answer.body[1:], b"]")))
            case CopyData.code:
                return self._progress(int(answer.body[1:].tobytes()))
            case RowDescription.code:
                self._columns = [
                    column for column in columns_of(described(answer)) if column["name"] != "mz_progressed"
                ]
            case NoticeResponse.code:
                return Event("notice", json_bytes(error_object(error_of(answer))))
            case ErrorResponse.code:
                error = error_of(answer)
                if error.position is not None:
                    error.position = self._query.position(error.position)
                if not self._has_begun:
                    raise error
                self.has_ended = True
                return Event("failure", json_bytes(error_object(error)))
            case CommandComplete.code:
                self.has_ended = True
                return Event("end", b"{}")
        return None

    def _progress(self, time: int) -> Event:
        """The first progress is AS OF."""
        if self._has_begun:
            token = token_of(self._fingerprint, time)
            return Event("progress", b'{"progress":%d,"token":"%b"}' % (time, token.encode()), token)
        self._has_begun = True
        start = {"columns": self._columns, "as_of": time, "fingerprint": self._fingerprint}
        return Event("start", json_bytes(start))


def event_text(event: Event) -> bytes:
    """The form of an event in a stream of server-sent events."""
    id = b"" if event.token is None else b"id: %b\n" % event.token.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (id, event.name.encode(), event.data)


def message_text(event: Event) -> bytes:
    """The message of an event over a WebSocket."""
    return b'{"event":"%b","data":%b}' % (event.name.encode(), event.data)


_FINAL_TEXT = 0x81
_LENGTH_16, _LENGTH_64 = 126, 127


def frame(message: bytes) -> bytes:
    """The frame of a server's text message over a WebSocket (RFC 6455, section 5.2)."""
    size = len(message)
    if size < _LENGTH_16:
        head = bytes((_FINAL_TEXT, size))
    elif size < 1 << 16:
        head = bytes((_FINAL_TEXT, _LENGTH_16)) + size.to_bytes(2, "big")
    else:
        head = bytes((_FINAL_TEXT, _LENGTH_64)) + size.to_bytes(8, "big")
    return head + message
