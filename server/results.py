"""What a statement gives back, and how its rows are taken in pieces.

A portal takes rows by count (Execute with max_rows, FETCH n), a simple query and COPY take all of them; a stream may
have to be waited for. Each kind of rows does these with one call, `take`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from protocol.pgwire.encode import CopyEncoder
from protocol.pgwire.errors import PgError
from protocol.pgwire.messages import FieldDescription, RowDescription
from server.dataflow.broadcast import encoded_entry, follow
from server.dataflow.encoded import Encode, encoded_chunks
from server.dataflow.envelope import Envelope
from server.dataflow.feed import Entry
from server.dataflow.pieces import resident
from server.dataflow.subscription import AnySubscription, ComingSubscription, Message, Subscription
from server.outlet import Outlet
from server.sql.plan import Field

TAKEN_ROWS = 8_192  # of a result at once; what goes out at once may be less
SENT_BYTES = 1024 * 1024  # of changes taken from the feed at once: the rest waits there, and counts


class Rows(Protocol):
    """Rows to be taken from the front. `finished`: nothing is left."""

    fields: tuple[Field, ...]

    @property
    def finished(self) -> bool: ...

    async def take(self, limit: int | None) -> pa.Table:
        """At most `limit` of the next rows, None: whatever can be had at once. Waits for one where none is there.

        An empty table only at the end. Cancel safety: rows that were not returned are still there.
        """
        ...

    def close(self) -> None:
        """Releases what the rows hold. May be called twice."""
        ...


class TableRows:
    """Rows that are all here."""

    def __init__(self, fields: tuple[Field, ...], table: pa.Table) -> None:
        self.fields = fields
        self._rest = table

    @property
    def finished(self) -> bool:
        return bool(self._rest.num_rows == 0)

    async def take(self, limit: int | None) -> pa.Table:
        rows = self._rest.num_rows
        count = rows if limit is None else min(limit, rows)
        taken = self._rest.slice(0, count)
        self._rest = self._rest.slice(count, rows - count)  # pyarrow counts wrong without columns and without a length
        return taken

    def close(self) -> None:
        self._rest = self._rest.slice(0, 0)


class NoRows:
    """The rest of a result that was sent whole."""

    __slots__ = ("fields",)

    finished = True

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = fields

    async def take(self, limit: int | None) -> pa.Table:
        return pa.table([pa.array([], field.type.arrow) for field in self.fields], [f.name for f in self.fields])

    def close(self) -> None:
        """Nothing is held."""


class SubscriptionRows:
    """A subscription's messages as rows, as they come."""

    def __init__(self, subscription: AnySubscription, envelope: Envelope) -> None:
        self.fields = envelope.fields
        self._subscription = subscription
        self._envelope = envelope
        self._messages: deque[Message] = deque()  # came, and are not rows yet
        self._rest = self._none = envelope.schema.empty_table()

    def interrupt_by(self, interrupt: Callable[[PgError], None]) -> None:
        """What is to be called, with the error to tell, when the reader falls too far behind while it sends."""
        self._subscription.on_overrun = interrupt

    @property
    def finished(self) -> bool:
        return self._rest.num_rows == 0 and not self._messages and self._subscription.finished

    def _settled(self) -> AnySubscription:
        """The subscription, once it has begun the one that it has become."""
        if isinstance(self._subscription, ComingSubscription):
            self._subscription = self._subscription.begun or self._subscription
        return self._subscription

    async def take(self, limit: int | None) -> pa.Table:
        if limit == 0:
            return self._none
        if self._rest.num_rows and (limit is None or self._rest.num_rows < limit):
            await self._drain()
        while self._rest.num_rows == 0 and not self.finished:
            if not self._messages:
                self._messages.extend(await self._settled().next())
            await self._convert()
        taken = self._rest if limit is None else self._rest.slice(0, limit)
        self._rest = self._rest.slice(taken.num_rows)
        return taken

    async def take_ready(self, limit: int | None, timeout_s: float) -> pa.Table:
        """As FETCH ... WITH (TIMEOUT): until `limit` rows are there or the time has passed; ready rows come first."""
        pieces: list[pa.Table] = []
        count = 0
        if self._rest.num_rows == 0:  # what is left over goes out before an error that came meanwhile
            self._messages.extend(self._settled().ready())
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            await self._convert()
            async with asyncio.timeout_at(deadline):
                while limit is None or count < limit:
                    piece = await self.take(None if limit is None else limit - count)
                    pieces.append(piece)
                    count += piece.num_rows
                    if self.finished:
                        break
        except TimeoutError:
            pass  # what came in time is the answer
        except PgError:
            if not count:
                raise  # else the stream's end is told when what came before it has been taken
        except BaseException:
            self._rest = pa.concat_tables([*pieces, self._rest]) if pieces else self._rest
            raise
        return pa.concat_tables(pieces) if pieces else self._none

    async def _drain(self) -> None:
        """Puts what is ready behind the rows that are left over; an error is told when they have been taken."""
        try:
            self._messages.extend(self._settled().ready())
        except PgError:
            return
        await self._convert()

    async def _convert(self) -> None:
        """Makes rows of what came. Cancel safety: a message leaves when its rows are there."""
        while self._messages:
            rows = await self._envelope.rows(self._messages[0])
            self._subscription.sent(self._messages.popleft())
            self._rest = pa.concat_tables([self._rest, rows])

    async def send(self, key: Hashable, encode: Encode, outlet: Outlet, opening: CopyEncoder | None = None) -> int:
        """Encodes and writes the rows to the stream's end; returns their number.

        Equal readers, by `key`, share a change's bytes, and while they have all there is, also the act of writing
        (`broadcast`). `opening` adds what this stream begins with. For a reader that ends when it is cancelled: what
        was taken is not put back.
        """
        outlet.flush()
        count = 0
        key = (key, self._envelope.form)
        while not self.finished:
            subscription = self._settled()
            await self._convert()
            if self._rest.num_rows:
                rest = await self.take(None)
                count += rest.num_rows
                await _write(rest, encode, outlet, opening)
                continue
            if (
                isinstance(subscription, Subscription)
                and subscription.is_live
                and not outlet.transport.is_full
                and (opening is None or opening.has_begun)
            ):
                count += await follow(subscription, key, self._envelope, encode, outlet.transport)
                await outlet.transport.drained()
                continue
            for message in await subscription.next(SENT_BYTES):
                count += await self._send(message, key, encode, outlet, opening)
        return count

    async def _send(
        self, message: Message, key: Hashable, encode: Encode, outlet: Outlet, opening: CopyEncoder | None
    ) -> int:
        if isinstance(message, Entry) and message.shared and isinstance(self._subscription, Subscription):
            directory = self._subscription.feed.directory
            known = await encoded_entry(message, key, self._envelope, encode, directory)
            for chunk in known.chunks:
                await outlet.write(chunk if opening is None else opening.frame(chunk))
            return known.rows
        rows = await self._envelope.rows(message)
        if self._envelope.copies and isinstance(self._subscription, Subscription):
            rows = await resident(rows, self._subscription.feed.directory)
        self._subscription.sent(message)
        await _write(rows, encode, outlet, opening)
        return int(rows.num_rows)

    def close(self) -> None:
        self._subscription.close()


async def _write(rows: pa.Table, encode: Encode, outlet: Outlet, opening: CopyEncoder | None) -> None:
    async for chunk in encoded_chunks(rows, encode):
        await outlet.write(chunk if opening is None else opening.frame(chunk))


@dataclass(slots=True)
class Result:
    """A statement's outcome: its command tag, with the row count put in place of `{}`, and rows if it has any."""

    tag: str
    rows: Rows | None = None


def row_description(fields: Sequence[Field], formats: Sequence[int]) -> RowDescription:
    """What columns come, in which formats."""
    return RowDescription(
        tuple(FieldDescription.of(f.name, f.type, format) for f, format in zip(fields, formats, strict=True))
    )
