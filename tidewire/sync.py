"""`tidewire.subscribe` over psycopg 3: blocking iteration.

Reads a plain SUBSCRIBE with `cursor.stream`, which uses libpq's single-row mode: each row is decoded when it is read,
and unread rows stay in the socket, so a slow consumer applies back-pressure to the server. The client buffers only the
rows of the timestamp that is not complete yet.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Generic, Literal, Self

import psycopg
from psycopg.conninfo import make_conninfo

from tidewire.batches import AnyBatch, Progress, Row, Snapshot, Update
from tidewire.columns import ColumnType
from tidewire.errors import Retry
from tidewire.query import Envelope, Query, Token
from tidewire.resumption import Options, ResumableStream
from tidewire.rows import R
from tidewire.together import AnyJointBatch, JointOptions, Merge

# Detects a dead peer after 10 + 3 * 5 = 25 s. The DSN can override each value.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


class Subscription(Iterator[AnyBatch[R]], Generic[R]):
    """An iterator of batches that reconnects after lost connections. It connects when the first batch is requested.

    It ends when the server ends the stream, or with `close`. Any exception closes the connection and keeps the
    position after the last batch; requesting another batch reconnects. Only one thread may iterate; `close` and
    `batch.ack` may be called from other threads.
    """

    def __init__(self, dsn: str, stream: ResumableStream[R]) -> None:
        self._dsn = dsn
        self._stream = stream
        self._connection: psycopg.Connection[Row] | None = None
        self._rows: Iterator[Row] | None = None
        self._holding: psycopg.Connection[Row] | None = None  # runs ALTER HOLD
        self._closed = threading.Event()
        self._guard = threading.RLock()  # protects `_iterating` and `_connection`
        self._iterating = False  # True: only the iterating thread may close the connection

    @property
    def token(self) -> Token | None:
        """The token of the last batch; None before the snapshot."""
        return self._stream.reader.token

    def __next__(self) -> AnyBatch[R]:
        stream, batch = self._stream, None
        stream.acknowledge_last()
        self._begin()
        try:
            while not self._closed.is_set():
                self._advance_hold(final=stream.ended)
                if (batch := stream.next_batch()) is not None:
                    return batch
                if stream.ended:
                    break
                self._read()
        finally:
            self._end(disconnect=batch is None)
        raise StopIteration

    def _begin(self) -> None:
        with self._guard:
            self._iterating = True

    def _end(self, *, disconnect: bool) -> None:
        with self._guard:
            self._iterating = False
            if disconnect or self._closed.is_set():
                self._disconnect()

    def run(
        self,
        on_snapshot: Callable[[Snapshot[R]], object] | None = None,
        on_update: Callable[[Update[R]], object] | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> None:
        """Calls the callback for each batch until the stream ends, then closes."""
        with self:
            for batch in self:
                match batch:
                    case Snapshot() if on_snapshot is not None:
                        on_snapshot(batch)
                    case Update() if on_update is not None:
                        on_update(batch)
                    case Progress() if on_progress is not None:
                        on_progress(batch)

    def close(self) -> None:
        """Ends the subscription and a running iteration, even one that blocks in another thread. Idempotent."""
        self._closed.set()
        with self._guard:
            if not self._iterating:
                self._disconnect()
            elif self._connection is not None:
                # The iterating thread closes the connection. Shutting down the socket ends its blocking read.
                with (
                    contextlib.suppress(psycopg.Error, OSError),
                    socket.socket(fileno=os.dup(self._connection.fileno())) as wire,
                ):
                    wire.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_iterating"):
            self._disconnect()

    def _connect(self) -> None:
        connection = _connect(self._dsn)
        with self._guard:
            self._connection = connection
        cursor = connection.cursor()
        self._rows = cursor.stream(self._stream.reader.statement().encode())
        if not self._closed.is_set() and (row := next(self._rows, None)) is not None:
            description = cursor.description or ()
            self._stream.reader.describe(
                [column.name for column in description],
                [ColumnType(column.type_code, column.precision, column.scale) for column in description],
            )
            self._stream.reader.receive(row)

    def _read(self) -> None:
        """Reads rows until a timestamp may be complete. Connects first if there is no connection."""
        try:
            if self._rows is None:
                self._connect()
            assert self._rows is not None
            for row in self._rows:
                if self._stream.reader.receive(row) or self._closed.is_set():
                    return
            self._stream.finished()
        except (psycopg.Error, OSError) as error:
            with self._guard:
                self._disconnect()
            if not self._closed.is_set():
                self._closed.wait(self._stream.failed(error, _sqlstate(error)))

    def _disconnect(self) -> None:
        """Closes without a cancel request: the server ends the SUBSCRIBE when the connection closes."""
        for connection in (self._connection, self._holding):
            if connection is not None:
                connection.close()
        if isinstance(self._rows, Generator):
            self._rows.close()  # after its connection, so that the generator does not try to cancel the query
        self._connection = self._rows = self._holding = None

    def _advance_hold(self, *, final: bool) -> None:
        hold = self._stream.hold
        if hold is None or (statement := hold.advance(time.monotonic(), final=final)) is None:
            return
        try:
            if self._holding is None:
                self._holding = _connect(self._dsn)
            self._holding.execute(statement.encode())
        except (psycopg.Error, OSError) as error:
            if self._holding is not None:
                self._holding.close()
                self._holding = None
            hold.failed(error, _sqlstate(error))


class JointSubscription(Iterator[AnyJointBatch]):
    """An iterator of the batches of several queries. It connects, reconnects and ends as a `Subscription` does."""

    def __init__(self, dsn: str, merge: Merge) -> None:
        self._merge = merge
        self._parts = {name: Subscription(dsn, stream) for name, stream in merge.streams.items()}
        self._first = next(iter(self._parts.values()))  # advances the hold
        self._closed = threading.Event()

    @property
    def token(self) -> Token | None:
        """The token of the last batch; None before the snapshot."""
        return self._merge.token

    def __next__(self) -> AnyJointBatch:
        merge, batch = self._merge, None
        merge.acknowledge_last()
        for part in self._parts.values():
            part._begin()
        try:
            while not self._closed.is_set():
                self._first._advance_hold(final=merge.ended)
                if (batch := merge.next_batch()) is not None:
                    return batch
                if (behind := merge.behind()) is None:
                    break
                self._parts[behind]._read()
                if merge.reset_together():
                    for part in self._parts.values():
                        part._disconnect()
        finally:
            for part in self._parts.values():
                part._end(disconnect=batch is None)
        raise StopIteration

    def close(self) -> None:
        """Ends the subscription and a running iteration, even one that blocks in another thread. Idempotent."""
        self._closed.set()
        for part in self._parts.values():
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connect(dsn: str) -> psycopg.Connection[Row]:
    keepalive = {name: seconds for name, seconds in _KEEPALIVE.items() if name not in dsn}
    return psycopg.connect(make_conninfo(dsn, **keepalive), autocommit=True)


def _sqlstate(error: psycopg.Error | OSError) -> str | None:
    """Returns None for a lost connection. Raises an error of the driver itself, which would recur on any connection."""
    sqlstate = getattr(error, "sqlstate", None)
    if sqlstate is None and not isinstance(error, psycopg.OperationalError | OSError):
        raise error
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
    )
