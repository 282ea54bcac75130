"""The result of a statement, and the interface through which its rows are taken in parts.

A portal takes a number of rows (Execute with max_rows, FETCH n). A simple query and COPY take all of them. The rows of
a stream may not exist yet. `take` serves all these cases for every kind of rows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from catalog import spill
from protocol.pgwire.encode import CopyEncoder
from protocol.pgwire.errors import PgError
from protocol.pgwire.messages.backend import FieldDescription, RowDescription
from server.dataflow.stream.broadcast import encoded_entry, follow
from server.dataflow.stream.consolidation import resident
from server.dataflow.stream.encoding import Encode, encoded_chunks
from server.dataflow.stream.envelope import Envelope
from server.dataflow.stream.feed import Entry
from server.dataflow.stream.subscription import AnySubscription, Message, PendingSubscription, Subscription
from server.pg_catalog.oids import oid_of
from server.session_state.sender import Sender
from server.sql.plan import Field

TAKEN_ROWS = 8_192  # rows that are taken from a result at a time; they may be sent in smaller chunks
SENT_BYTES = 1024 * 1024  # bytes of changes taken from the feed at a time; the rest counts against the reader's limit


class Rows(Protocol):
    """Rows that are taken from the front. `finished`: none are left."""

    fields: tuple[Field, ...]

    @property
    def finished(self) -> bool: ...

    async def take(self, limit: int | None) -> pa.Table:
        """Returns at most `limit` of the next rows, None: all that are available. Waits until there is at least one.

        The table is empty only at the end. Cancel safety: no rows are lost.
        """
        ...

    def close(self) -> None:
        """Releases what the rows hold. Idempotent."""
        ...


class TableRows:
    """Rows that are all available."""

    def __init__(self, fields: tuple[Field, ...], table: pa.Table) -> None:
        self.fields = fields
        self._rest = table
        self.is_on_disk = False

    @property
    def finished(self) -> bool:
        return bool(self._rest.num_rows == 0)

    @property
    def memory_bytes(self) -> int:
        """The size of what the rows keep in memory. Rows that were taken before may be part of it."""
        return 0 if self.is_on_disk else int(self._rest.get_total_buffer_size())

    def move_to_disk(self, directory: Path | None) -> None:
        """Keeps the rows in a memory-mapped file."""
        self._rest = spill.on_disk(self._rest, directory)
        self.is_on_disk = True

    async def take(self, limit: int | None) -> pa.Table:
        rows = self._rest.num_rows
        count = rows if limit is None else min(limit, rows)
        taken = self._rest.slice(0, count)
        self._rest = self._rest.slice(count, rows - count)  # without a length, pyarrow miscounts rows without columns
        return taken

    def close(self) -> None:
        self._rest = self._rest.slice(0, 0)


class NoRows:
    """The remainder of a result that was sent completely."""

    __slots__ = ("fields",)

    finished = True

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = fields

    async def take(self, limit: int | None) -> pa.Table:
        return pa.table([pa.array([], field.type.arrow) for field in self.fields], [f.name for f in self.fields])

    def close(self) -> None:
        """Holds nothing."""


class SubscriptionRows:
    """The messages of a subscription as rows, in the order in which they arrive."""

    def __init__(self, subscription: AnySubscription, envelope: Envelope) -> None:
        self.fields = envelope.fields
        self._subscription = subscription
        self._envelope = envelope
        self._messages: deque[Message] = deque()  # received, and not yet converted to rows
        self._rest = self._none = envelope.schema.empty_table()

    def interrupt_by(self, interrupt: Callable[[PgError], None]) -> None:
        """Sets the function to call with an error that ends the stream while it sends."""
        self._subscription.interrupt = interrupt

    @property
    def finished(self) -> bool:
        return self._rest.num_rows == 0 and not self._messages and self._subscription.finished

    def _settled(self) -> AnySubscription:
        """Returns the subscription; in place of a `PendingSubscription`, the one that it has started."""
        if isinstance(self._subscription, PendingSubscription):
            self._subscription = self._subscription.started or self._subscription
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
        """For FETCH ... WITH (TIMEOUT). Returns at `limit` rows or the timeout. Takes ready rows first."""
        tables: list[pa.Table] = []
        count = 0
        if self._rest.num_rows == 0:  # left-over rows are returned before an error that occurred meanwhile
            self._messages.extend(self._settled().ready())
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            await self._convert()
            async with asyncio.timeout_at(deadline):
                while limit is None or count < limit:
                    table = await self.take(None if limit is None else limit - count)
                    tables.append(table)
                    count += table.num_rows
                    if self.finished:
                        break
        except TimeoutError:
            pass  # the rows so far are the result
        except PgError:
            if not count:
                raise  # otherwise a later call raises the error, after these rows
        except BaseException:
            self._rest = pa.concat_tables([*tables, self._rest]) if tables else self._rest
            raise
        return pa.concat_tables(tables) if tables else self._none

    async def _drain(self) -> None:
        """Appends the available rows to the left-over rows. An error is raised later, after these rows."""
        try:
            self._messages.extend(self._settled().ready())
        except PgError:
            return
        await self._convert()

    async def _convert(self) -> None:
        """Converts the received messages to rows. Cancel safety: a message is removed when its rows exist."""
        while self._messages:
            rows = await self._envelope.rows(self._messages[0])
            self._subscription.sent(self._messages.popleft())
            self._rest = pa.concat_tables([self._rest, rows])

    async def send(self, key: Hashable, encode: Encode, sender: Sender, opening: CopyEncoder | None = None) -> int:
        """Encodes and writes the rows until the end of the stream. Returns their number.

        Readers with an equal `key` share the bytes of a change. Readers that have taken everything also share the
        writing (`broadcast`). `opening` adds the stream's header. Not cancel safe: rows that were taken are lost.
        """
        sender.flush()
        count = 0
        key = (key, self._envelope.form)
        while not self.finished:
            subscription = self._settled()
            await self._convert()
            if self._rest.num_rows:
                rest = await self.take(None)
                count += rest.num_rows
                await _write(rest, encode, sender, opening)
                continue
            if (
                isinstance(subscription, Subscription)
                and subscription.is_live
                and not sender.transport.is_full
                and (opening is None or opening.has_begun)
            ):
                count += await follow(subscription, key, self._envelope, encode, sender.transport)
                await sender.transport.drained()
                continue
            for message in await subscription.next(SENT_BYTES):
                count += await self._send(message, key, encode, sender, opening)
        return count

    async def _send(
        self, message: Message, key: Hashable, encode: Encode, sender: Sender, opening: CopyEncoder | None
    ) -> int:
        if isinstance(message, Entry) and message.shared and isinstance(self._subscription, Subscription):
            directory = self._subscription.feed.directory
            known = await encoded_entry(message, key, self._envelope, encode, directory)
            for chunk in known.chunks:
                await sender.write(chunk if opening is None else opening.frame(chunk))
            return known.rows
        rows = await self._envelope.rows(message)
        if self._envelope.copies and isinstance(self._subscription, Subscription):
            rows = await resident(rows, self._subscription.feed.directory)
        self._subscription.sent(message)
        await _write(rows, encode, sender, opening)
        return int(rows.num_rows)

    def close(self) -> None:
        self._subscription.close()


async def _write(rows: pa.Table, encode: Encode, sender: Sender, opening: CopyEncoder | None) -> None:
    async for chunk in encoded_chunks(rows, encode):
        await sender.write(chunk if opening is None else opening.frame(chunk))


@dataclass(slots=True)
class Result:
    """The outcome of a statement: its command tag, in which `{}` stands for the row count, and its rows, if any."""

    tag: str
    rows: Rows | None = None


def row_description(fields: Sequence[Field], formats: Sequence[int]) -> RowDescription:
    """Returns the message that describes the columns and their formats."""
    return RowDescription(tuple(starmap(_described, zip(fields, formats, strict=True))))


_oid_of = lru_cache(1024)(oid_of)  # 0.05 instead of 0.3 µs


def _described(field: Field, format: int) -> FieldDescription:
    if field.origin is None:
        return FieldDescription.of(field.name, field.type, format)
    relation, number = field.origin
    return FieldDescription.of(field.name, field.type, format, _oid_of(relation), number)
