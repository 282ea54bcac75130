"""The limits on the connections without a session, and on the memory that the bodies of requests take.

A client may send a body slowly, and does not need to send its end. So the bodies that are being received have limits in
common, beyond which the server ends one that takes longer than SLOW_S. An attacker so replaces its own requests, and
the requests of others, which take less time, are not affected.

A large body is parsed in a thread, one at a time. `json` holds Python's global lock while it parses, so the number of
values of a body is limited, too: they are counted before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np
from aiohttp import web

from protocol.pgwire.errors import PgError, SqlState
from server.frontend.half_open import SLOW_S, Abortable, HalfOpen
from server.http.responses import Refused

BODY_BYTES_MAX = 16 * 1024 * 1024
BODIES_BYTES_MAX = 16 * BODY_BYTES_MAX  # of all bodies that are received or wait to be parsed
BODY_S = 60.0  # to the end of the request's body
FRAMING_BYTES_MAX = 512 * 1024
"""How many bytes a client may send in addition to 5/4 of the body: the head, what was received but is not yet parsed,
and the lengths of chunks. A chunk of one byte takes six bytes, and as much time as a larger one."""
THREAD_BYTES = 64 * 1024  # from this length on a body is parsed in a thread
VALUES_MAX = 500_000
"""The number of elements of the arrays and objects of a body. json parses so many within 0.2 s."""

_QUOTE = ord('"')
_BEGINS_VALUE = np.zeros(256, bool)
_BEGINS_VALUE[list(b",[{")] = True

_Parsed = TypeVar("_Parsed")


@dataclass(eq=False, slots=True)
class _Receiving:
    """A body that is being received. Its request fails when the deadline is set to the current time."""

    request: web.Request
    data: bytearray
    since: float
    deadline: asyncio.Timeout


class _Connection(Abortable, Protocol):
    """A connection. `received`: the number of bytes that the client has sent."""

    received: int


class RequestLimits:
    """The requests of one port."""

    def __init__(self) -> None:
        self.without_session = HalfOpen()
        """The connections of the port that have no session."""
        self._bytes = 0
        self._receiving: dict[_Receiving, None] = {}  # the oldest first
        self._ending: _Receiving | None = None  # has been ended to make room, which is not there yet
        self._parsing = asyncio.Lock()

    @contextmanager
    def session(self, request: web.Request) -> Iterator[None]:
        """Counts the connection of a request as one that has a session."""
        connection, address = cast(_Connection, request.protocol), request.remote
        self.without_session.remove(connection, address)
        try:
            yield
        finally:
            if request.transport is not None:  # else the connection has been lost
                self.without_session.add(connection, address)

    @asynccontextmanager
    async def body(self, request: web.Request) -> AsyncIterator[bytearray]:
        """Yields the body of a request. Refused if it is too long or takes too long.

        It counts until the context is left.
        """
        if (request.content_length or 0) > BODY_BYTES_MAX:
            raise _too_long()
        data = bytearray()
        try:
            await self._receive(request, data)
            yield data
        finally:
            self._bytes -= len(data)

    async def _receive(self, request: web.Request, data: bytearray) -> None:
        """Appends the body to `data`. If that fails, `data` becomes empty, since the exception's traceback keeps it."""
        try:
            async with asyncio.timeout(BODY_S) as deadline:
                connection = cast(_Connection, request.protocol)
                receiving = _Receiving(request, data, asyncio.get_running_loop().time(), deadline)
                self._receiving[receiving] = None
                try:
                    async for chunk in request.content.iter_any():
                        if len(data) + len(chunk) > BODY_BYTES_MAX:
                            raise _too_long()
                        self._reserve(len(chunk), is_small=len(data) + len(chunk) <= THREAD_BYTES)
                        data += chunk
                        if connection.received > FRAMING_BYTES_MAX + len(data) * 5 // 4:
                            raise _refused(400, SqlState.PROTOCOL_VIOLATION, "the chunks of the body are too small")
                        await asyncio.sleep(0)  # the rest may be there already
                except BaseException:
                    self._bytes -= len(data)
                    data.clear()
                    raise
                finally:
                    self._receiving.pop(receiving, None)
                    if self._ending is receiving:
                        self._ending = None
        except TimeoutError:
            raise _refused(408, SqlState.PROTOCOL_VIOLATION, "the body took too long") from None
        except web.RequestPayloadError:
            raise _refused(400, SqlState.PROTOCOL_VIOLATION, "malformed body") from None

    def _reserve(self, size: int, *, is_small: bool) -> None:
        """Counts `size` more bytes of a body. Refused if there is no room for them. A small body always has room."""
        if self._bytes + size > BODIES_BYTES_MAX and not is_small and not self._end_largest():
            error = PgError(
                SqlState.OUT_OF_MEMORY,
                "out of memory",
                detail=f"The bodies of the requests in progress have {self._bytes} bytes.",
                hint="Try again later, or send smaller bodies.",
            )
            raise Refused(503, error)
        self._bytes += size

    def _end_largest(self) -> bool:
        """Ends the largest body, unless one is being ended. False if none takes longer than SLOW_S."""
        if self._ending is not None:
            return True
        now = asyncio.get_running_loop().time()
        slow = (body for body in self._receiving if now - body.since > SLOW_S and not body.deadline.expired())
        body = max(slow, key=lambda body: len(body.data), default=None)
        if body is None:
            return False
        self._ending = body
        del self._receiving[body]
        body.deadline.reschedule(now)
        return True

    async def parsed(self, parse: Callable[[bytearray], _Parsed], data: bytearray) -> _Parsed:
        """Returns what `parse` returns. PgError 54000 if the body has too many values.

        A thread cannot be cancelled: the next large body is parsed when it has ended, even if this request has ended.
        """
        if len(data) < THREAD_BYTES:
            return parse(data)

        def work() -> _Parsed:
            check_values(data)
            return parse(data)

        await self._parsing.acquire()
        running = asyncio.get_running_loop().run_in_executor(None, work)
        running.add_done_callback(lambda _: self._parsing.release())
        return await asyncio.shield(running)


def check_values(data: bytes | bytearray) -> None:
    """PgError 54000 if a JSON text has more than VALUES_MAX values."""
    if (count := count_values(data)) > VALUES_MAX:
        raise PgError(
            SqlState.PROGRAM_LIMIT_EXCEEDED,
            f"number of JSON values exceeds the maximum allowed ({VALUES_MAX})",
            detail=f"The body has {count} values.",
            hint="Pass large arrays and objects as strings.",
        )


def count_values(data: bytes | bytearray) -> int:
    """Returns the number of arrays, objects, and further elements of a JSON text. Commas and brackets in strings do not
    count.

    If the text is not valid, the result is no less than the number in the part before the first error.
    """
    text = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    characters = np.frombuffer(text, np.uint8)
    in_string = np.logical_xor.accumulate(characters == _QUOTE)
    return int(np.count_nonzero(_BEGINS_VALUE[characters] & ~in_string))


def _too_long() -> Refused:
    return _refused(413, SqlState.PROGRAM_LIMIT_EXCEEDED, f"the body is longer than {BODY_BYTES_MAX} bytes")


def _refused(status: int, sqlstate: SqlState, message: str) -> Refused:
    return Refused(status, PgError(sqlstate, message))
