"""`tidewire.aio.subscribe` over asyncpg: asynchronous iteration.

asyncpg cannot read a plain SUBSCRIBE row by row. There are two alternatives:

- `copy_from_query` streams, but in text or COPY's binary format, so every type would have to be decoded here.
- A cursor, with DECLARE and repeated FETCH, returns decoded rows like any query of asyncpg.

This module uses a cursor. FETCH without TIMEOUT waits on the server for the first row and returns all rows that are
ready, at most `_FETCH`. A change therefore arrives without polling delay, and several that are ready arrive in one
round trip. While the consumer does not read, rows are buffered on the server, within the server's limit. The client
buffers one answer and the rows of the timestamp that is not complete yet. asyncpg's `connection.cursor` is not used
because it would wait for a fixed number of rows. The transaction stays open, and is idle while the consumer is busy,
so `idle_in_transaction_session_timeout` is disabled for the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Self

import asyncpg

from tidewire.batches import AnyBatch, Progress, Row, Snapshot, Update
from tidewire.columns import ColumnType
from tidewire.errors import Retry
from tidewire.query import Envelope, Query, Token
from tidewire.resumption import Options, ResumableStream
from tidewire.rows import R
from tidewire.together import AnyJointBatch, JointOptions, Merge

_FETCH = 1000
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)  # OSError: TimeoutError too


class Subscription(Generic[R]):
    """An asynchronous iterator of batches that reconnects after lost connections. It connects on the first `anext`.

    It ends when the server ends the stream, or with `aclose`.

    Cancel safety: a cancelled `anext` closes the connection and loses no batch. As after any exception, the next
    `anext` reconnects and resumes after the last batch.
    """

    def __init__(self, dsn: str, stream: ResumableStream[R], silence_s: float | None) -> None:
        self._dsn = dsn
        self._silence_s = silence_s
        self._stream = stream
        self._connection: Any = None
        self._fetch: Any = None  # the prepared FETCH of the connection
        self._holding: Any = None  # runs ALTER HOLD
        self._closed = asyncio.Event()

    @property
    def token(self) -> Token | None:
        """The token of the last batch; None before the snapshot."""
        return self._stream.reader.token

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyBatch[R]:
        stream, batch = self._stream, None
        stream.acknowledge_last()
        try:
            while not self._closed.is_set():
                await self._advance_hold(final=stream.ended)
                if (batch := stream.next_batch()) is not None:
                    return batch
                if stream.ended:
                    break
                await self._read()
        finally:
            if batch is None:
                self._disconnect()
        raise StopAsyncIteration

    async def run(
        self,
        on_snapshot: Callable[[Snapshot[R]], object] | None = None,
        on_update: Callable[[Update[R]], object] | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> None:
        """Calls the callback for each batch until the stream ends, then closes. A callback may be asynchronous."""
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
        """Ends the subscription and a running iteration, even one that waits in another task. Idempotent."""
        self._closed.set()
        self._disconnect()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            with contextlib.suppress(RuntimeError):  # the event loop is already closed
                self._disconnect()

    async def _connect(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        if self._closed.is_set():
            connection.terminate()
            return
        self._connection = connection
        statement = self._stream.reader.statement()
        await connection.execute("SET idle_in_transaction_session_timeout = 0")
        await connection.execute(f"BEGIN; DECLARE tidewire CURSOR FOR {statement}")

    async def _read(self) -> None:
        """Reads the rows that are ready, at least one unless the stream ends. Connects first if necessary."""
        try:
            if new := self._connection is None:
                await self._connect()
            if self._closed.is_set():
                return
            if new:
                fetch = f"FETCH {_FETCH} FROM tidewire"
                self._fetch = await self._connection.prepare(fetch, timeout=self._silence_s)
            rows = await self._fetch.fetch(timeout=self._silence_s)
            if not rows:
                self._stream.finished()
            elif new:
                attributes = self._fetch.get_attributes()
                self._stream.reader.describe(
                    [attribute.name for attribute in attributes],
                    [ColumnType(attribute.type.oid, json_text=True) for attribute in attributes],
                )
            for row in rows:
                self._stream.reader.receive(tuple(row))
        except _ERRORS as error:
            self._disconnect()
            if not self._closed.is_set():
                delay_s = self._stream.failed(error, _sqlstate(error))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), delay_s)

    def _disconnect(self) -> None:
        """Closes without a cancel request: the server ends the SUBSCRIBE when the connection closes."""
        connections = (self._connection, self._holding)
        self._connection = self._fetch = self._holding = None
        for connection in connections:
            if connection is not None:
                connection.terminate()

    async def _advance_hold(self, *, final: bool) -> None:
        hold = self._stream.hold
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


class JointSubscription:
    """An asynchronous iterator of the batches of several queries.

    It connects, reconnects, ends and can be cancelled as a `Subscription`.
    """

    def __init__(self, dsn: str, merge: Merge, silence_s: float | None) -> None:
        self._merge = merge
        self._parts = {name: Subscription(dsn, stream, silence_s) for name, stream in merge.streams.items()}
        self._first = next(iter(self._parts.values()))  # advances the hold
        self._closed = asyncio.Event()

    @property
    def token(self) -> Token | None:
        """The token of the last batch; None before the snapshot."""
        return self._merge.token

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyJointBatch:
        merge, batch = self._merge, None
        merge.acknowledge_last()
        try:
            while not self._closed.is_set():
                await self._first._advance_hold(final=merge.ended)
                if (batch := merge.next_batch()) is not None:
                    return batch
                if (behind := merge.behind()) is None:
                    break
                await self._parts[behind]._read()
                if merge.reset_together():
                    self._disconnect()
        finally:
            if batch is None:
                self._disconnect()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends the subscription and a running iteration, even one that waits in another task. Idempotent."""
        self._closed.set()
        for part in self._parts.values():
            await part.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _disconnect(self) -> None:
        for part in self._parts.values():
            part._disconnect()


def _sqlstate(error: Exception) -> str | None:
    """Returns None for a lost connection. Raises an error of the driver itself, which would recur on any connection."""
    if isinstance(error, ValueError):
        raise error
    sqlstate: str | None = getattr(error, "sqlstate", None)
    return sqlstate


def subscribe(
    dsn: str,
    query: str,
    *,
    row_type: type[R] | None = None,
    key: Sequence[str] = (),
    envelope: Envelope | None = None,
    order_by: str | None = None,
    as_of: int | None = None,
    up_to: int | None = None,
    token: Token | str | None = None,
    rows: Mapping[Row, Row] | None = None,
    on_too_old: Literal["raise", "reset"] = "raise",
    retry: Retry = Retry(),  # noqa: B008, an immutable value
    hold: str | None = None,
    hold_every_s: float = 1.0,
    auto_ack: bool = True,
    silence_s: float | None = 60.0,
) -> Subscription[R]:
    """Subscribes to `query`, the name of a relation or a SELECT. Connects when the first batch is requested.

    - `row_type`: a dataclass, NamedTuple or pydantic model. `change.row` is an instance of it. Columns and fields are
      matched by name. Before the first batch, RowTypeMismatch names missing and surplus columns.
    - `key`: columns that identify a row. `batch.rows` is then a map from key to the values of the other columns.
    - `envelope`: "upsert" or "debezium". Batches have `key_changes` instead of `changes`. Requires `key`.
    - `order_by`: the order of the changes within a timestamp: the ORDER BY list of SQL, over columns and `mz_diff`.
    - `as_of`: the time of the snapshot, in ms since 1970. None is the present.
    - `up_to`: the subscription ends before this time, in ms since 1970.
    - `token`: resume after the batch with this token, without a snapshot.
    - `rows`: required with `token` and `key`: the value of `batch.rows` at the token.
    - `on_too_old`: what to do if the history after the token has been compacted. "raise" raises TokenTooOld; "reset"
      reads a new snapshot, which has `reset` set.
    - `retry`: how often and with which delays to reconnect.
    - `hold`: the SQL name of a HOLD that is advanced as batches are acknowledged.
    - `hold_every_s`: the minimum interval between two advances of the hold, in seconds.
    - `auto_ack`: whether requesting the next batch acknowledges the previous one. Otherwise call `batch.ack()`.
    - `silence_s`: a stream without any row for this number of seconds counts as lost. A server sends progress about
      every second unless it is configured otherwise. None disables the check.

    ValueError if the parameters contradict each other. WrongToken if the token belongs to another query.
    """
    return Subscription(
        dsn,
        ResumableStream(
            query,
            Options(
                row_type=row_type,
                key=key,
                envelope=envelope,
                order_by=order_by,
                as_of=as_of,
                up_to=up_to,
                token=token,
                rows=rows,
                on_too_old=on_too_old,
                retry=retry,
                hold=hold,
                hold_every_s=hold_every_s,
                auto_ack=auto_ack,
            ),
        ),
        silence_s,
    )


def follow_together(
    dsn: str,
    queries: Mapping[str, str | Query],
    *,
    row_types: Mapping[str, type] | None = None,
    as_of: int | None = None,
    up_to: int | None = None,
    token: Token | str | None = None,
    rows: Mapping[str, Mapping[Row, Row]] | None = None,
    on_too_old: Literal["raise", "reset"] = "raise",
    retry: Retry = Retry(),  # noqa: B008, an immutable value
    hold: str | None = None,
    hold_every_s: float = 1.0,
    auto_ack: bool = True,
    silence_s: float | None = 60.0,
) -> JointSubscription:
    """Follows several queries: each batch has the changes of all of them at one timestamp.

    `queries` maps names to relations, SELECTs, or `Query` objects, which may have a key, an envelope and an order. The
    batches are `JointSnapshot`, `JointUpdate` and `Progress`. There is one connection for each query.

    - `row_types`: the `row_type` of each query that has one, by name.
    - `token`: resume after the batch with this token, which is one for all queries.
    - `rows`: required with `token` for queries with a key: the values of `parts[name].rows` at the token, by name.
    - `hold`: the SQL name of a HOLD on all relations that the queries read.

    The other parameters are those of `subscribe`, for all queries.
    """
    return JointSubscription(
        dsn,
        Merge(
            queries,
            JointOptions(
                row_types=row_types,
                as_of=as_of,
                up_to=up_to,
                token=token,
                rows=rows,
                on_too_old=on_too_old,
                retry=retry,
                hold=hold,
                hold_every_s=hold_every_s,
                auto_ack=auto_ack,
            ),
        ),
        silence_s,
    )
