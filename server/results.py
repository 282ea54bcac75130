"""What a statement gives back, and how its rows are taken in pieces.

A portal takes rows by count (Execute with max_rows, FETCH n), a simple query and COPY take all of them; a stream may
have to be waited for. Each kind of rows does these with one call, `take`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from protocol.pgwire.messages import FieldDescription, RowDescription
from server.dataflow.envelope import DiffEnvelope
from server.dataflow.feed import Entry
from server.dataflow.subscription import AnySubscription
from server.sql.plan import Field


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
        taken = self._rest if limit is None else self._rest.slice(0, limit)
        self._rest = self._rest.slice(taken.num_rows)
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


Encode = Callable[[pa.Table], bytes]


class SubscriptionRows:
    """A subscription's messages as rows, as they come."""

    def __init__(self, subscription: AnySubscription, envelope: DiffEnvelope) -> None:
        self.fields = envelope.fields
        self._subscription = subscription
        self._envelope = envelope
        self._rest = self._none = envelope.schema.empty_table()

    @property
    def finished(self) -> bool:
        return self._rest.num_rows == 0 and self._subscription.finished

    async def take(self, limit: int | None) -> pa.Table:
        if limit == 0:
            return self._none
        while self._rest.num_rows == 0 and not self._subscription.finished:
            messages = await self._subscription.next()
            if messages:
                self._rest = pa.concat_tables([self._envelope.table(m) for m in messages])
        taken = self._rest if limit is None else self._rest.slice(0, limit)
        self._rest = self._rest.slice(taken.num_rows)
        return taken

    async def take_ready(self, limit: int | None, timeout_s: float) -> pa.Table:
        """As FETCH ... WITH (TIMEOUT): until `limit` rows are there or the time has passed; ready rows come first."""
        pieces: list[pa.Table] = []
        count = 0
        self._pull()
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                while limit is None or count < limit:
                    piece = await self.take(None if limit is None else limit - count)
                    pieces.append(piece)
                    count += piece.num_rows
                    if self.finished:
                        break
        except TimeoutError:
            pass  # what came in time is the answer
        except BaseException:
            self._rest = pa.concat_tables([*pieces, self._rest]) if pieces else self._rest
            raise
        return pa.concat_tables(pieces) if pieces else self._none

    def _pull(self) -> None:
        """Takes what the stream has ready behind what is left over, so that a deadline of zero gets it too."""
        messages = self._subscription.ready()
        if messages:
            self._rest = pa.concat_tables([self._rest, *(self._envelope.table(m) for m in messages)])

    async def take_encoded(self, key: Hashable, encode: Encode) -> tuple[int, list[bytes]]:
        """The next rows, counted and encoded. Whoever has the same `key` shares a change's bytes."""
        if self._rest.num_rows:
            return self._rest.num_rows, [encode(await self.take(None))]
        count, pieces = 0, []
        for message in await self._subscription.next():
            if isinstance(message, Entry):
                count += message.changes.num_rows
                if key not in message.encoded:
                    message.encoded[key] = encode(self._envelope.table(message))
                pieces.append(message.encoded[key])
            else:
                count += 1
                pieces.append(encode(self._envelope.table(message)))
        return count, pieces

    def close(self) -> None:
        self._subscription.close()


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
