"""The feed of a subscribed query: the sink of the query's dataflow."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from catalog.ids import Timestamp
from protocol.pgwire.errors import PgError
from server.dataflow.stream.accumulated import Accumulated
from server.dataflow.stream.feed import Feed


class QueryFeed(Feed):
    """A query's rows at one time, and its changes at each later time. After an error the feed has failed."""

    retries = False
    awaited = None
    _accumulated: Accumulated | None = None

    @property
    def hydrated(self) -> bool:
        return self._accumulated is not None

    @property
    def current_rows(self) -> pa.Table:
        """The rows at `upper - 1`. Requires `hydrated`."""
        assert self._accumulated is not None
        return self._accumulated.rows

    def first_time(self, time: Timestamp) -> Timestamp:
        """As `Sink.first_time`: subscribers need the rows at `time`."""
        return time

    async def rows(self) -> pa.Table | None:
        """As `Sink.rows`."""
        return None if self._accumulated is None else await self._accumulated.current()

    async def begin(self, time: Timestamp, rows: pa.Table, stored: pa.Table | None) -> None:
        """As `Sink.begin`. The rows are no entry: readers take them from `current_rows`."""
        self._accumulated = Accumulated(rows)
        self.advance(Timestamp(time + 1))

    async def write(self, changes: Sequence[tuple[Timestamp, pa.Table]]) -> None:
        """As `Sink.write`."""
        accumulated = self._accumulated
        assert accumulated is not None
        for time, table in changes:
            self.append(time, table)  # the last reader may be overrun, so that the feed is released
            accumulated.add(table)
            self.advance(Timestamp(time + 1))
            await accumulated.fold()

    def failed(self, error: PgError, upper: Timestamp) -> None:
        """As `Sink.failed`."""
        self.fail(error)

    def close(self) -> None:
        """As `Sink.close`. Readers may still take entries."""

    def release(self) -> None:
        """Frees the rows, when there are neither readers nor a dataflow any more.

        The session's objects, which refer to the feed, are freed later, by the collection of cyclic garbage.
        """
        self._accumulated = None
