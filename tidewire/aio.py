"""`tidewire.aio.subscribe` over asyncpg: asynchronous iteration.

asyncpg has no row-by-row reading of a plain SUBSCRIBE, so there were two ways:

- `copy_from_query` streams, but as text or COPY's binary format: every type would have to be decoded here.
- A cursor that is asked again and again, DECLARE and FETCH: rows come typed, as from any query of asyncpg.

This is the second. FETCH without TIMEOUT waits on the server for the first row and takes what is ready, so a change
comes as soon as a pushed one would, and many that are ready come in one round trip. A consumer that does not ask gets
nothing: what waits is on the server, within the limit it sets; here are the rows of the timestamp that is not complete
yet, and one answer of at most `_FETCH`. asyncpg's own `connection.cursor` would wait for the last of a fixed number of
rows. The price is a transaction that stays open, and idle while the consumer is busy: an
`idle_in_transaction_session_timeout` would end it, so it is switched off for this session.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self, Unpack

import asyncpg

from tidewire.batches import AnyBatch, Progress, Snapshot, Update
from tidewire.following import Following, Options
from tidewire.query import Token

_FETCH = 1000
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)  # OSError: TimeoutError too


class Subscription:
    """An asynchronous iterator of batches that survives its connections. It connects when the first batch is awaited.

    It ends when nothing more can come, and with `aclose`.

    Cancel safety: a cancelled `anext` closes the connection and loses nothing; the next one connects anew and goes on
    behind the last batch, as after any exception.
    """

    def __init__(self, dsn: str, query: str, silence_s: float | None, options: Options) -> None:
        self._dsn = dsn
        self._silence_s = silence_s
        self._following = Following(query, options)
        self._connection: Any = None
        self._holding: Any = None  # runs ALTER HOLD
        self._closed = asyncio.Event()

    @property
    def token(self) -> Token | None:
        """Behind the last batch; None before the snapshot."""
        return self._following.reader.token

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyBatch:
        following, batch = self._following, None
        following.acknowledge_last()
        try:
            while not self._closed.is_set():
                await self._advance_hold(final=following.ended)
                if (batch := following.next_batch()) is not None:
                    return batch
                if following.ended:
                    break
                await self._read()
        finally:
            if batch is None:
                self._disconnect()
        raise StopAsyncIteration

    async def run(
        self,
        on_snapshot: Callable[[Snapshot], object] | None = None,
        on_update: Callable[[Update], object] | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> None:
        """Calls back for each batch, to the end of the stream, and closes. What a callback returns is awaited."""
        async with self:
            async for batch in self:
                result: object = None
                match batch:
                    case Snapshot() if on_snapshot is not None:
                        result = on_snapshot(batch)
                    case Update() if on_update is not None:
                        result = on_update(batch)
                    case Progress() if on_progress is not None:
                        result = on_progress(batch)
                if isinstance(result, Awaitable):
                    await result

    async def aclose(self) -> None:
        """Ends the subscription, and the iteration, also one that waits in another task. May be called twice."""
        self._closed.set()
        self._disconnect()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            with contextlib.suppress(RuntimeError):  # the loop has been closed before
                self._disconnect()

    async def _connect(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        if self._closed.is_set():
            connection.terminate()
            return
        self._connection = connection
        statement = self._following.reader.statement()
        await connection.execute("SET idle_in_transaction_session_timeout = 0")
        await connection.execute(f"BEGIN; DECLARE tidewire CURSOR FOR {statement}")

    async def _read(self) -> None:
        """Takes the rows that are ready, at least one, from a new connection if there is none."""
        try:
            if new := self._connection is None:
                await self._connect()
            if self._closed.is_set():
                return
            rows = await self._connection.fetch(f"FETCH {_FETCH} FROM tidewire", timeout=self._silence_s)
            if not rows:
                self._following.finished()
            elif new:
                self._following.reader.describe(tuple(rows[0].keys()))
            for row in rows:
                self._following.reader.receive(tuple(row))
        except _ERRORS as error:
            self._disconnect()
            if not self._closed.is_set():
                delay_s = self._following.failed(error, _sqlstate(error))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), delay_s)

    def _disconnect(self) -> None:
        """Without a word to the server, which ends the SUBSCRIBE when it sees the connection closed."""
        connections, self._connection, self._holding = (self._connection, self._holding), None, None
        for connection in connections:
            if connection is not None:
                connection.terminate()

    async def _advance_hold(self, *, final: bool) -> None:
        hold = self._following.hold
        if hold is None or (statement := hold.advance(time.monotonic(), final=final)) is None:
            return
        try:
            if self._holding is None:
                self._holding = await asyncpg.connect(self._dsn)
            await self._holding.execute(statement, timeout=self._silence_s)
        except _ERRORS as error:
            if self._holding is not None:
                self._holding.terminate()
                self._holding = None
            hold.failed(error, _sqlstate(error))


def _sqlstate(error: Exception) -> str | None:
    """None for a lost connection. Raises the driver's own complaints, which no other connection would mend."""
    if isinstance(error, ValueError):
        raise error
    sqlstate: str | None = getattr(error, "sqlstate", None)
    return sqlstate


def subscribe(dsn: str, query: str, *, silence_s: float | None = 60.0, **options: Unpack[Options]) -> Subscription:
    """Follows `query`, the name of a relation or a SELECT, as it changes. The options are those of `Options`.

    A stream in which nothing comes for `silence_s` counts as lost: progress comes about every second from a server that
    lives, unless it was set up to be slower.
    """
    return Subscription(dsn, query, silence_s, options)
