"""The changes of rows as pairs of old and new rows, for ENVELOPE UPSERT and DEBEZIUM."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog import updates
from catalog.ids import Timestamp
from catalog.source_definition import Envelope
from protocol.cdcv2.messages import TIME, TIME_FIELD
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.stream.consolidation import consolidated
from server.egress.downstream import Written
from server.egress.key_errors import key_error
from server.egress.net_changes import KeyViolation, Pairs, check_unique, paired
from server.egress.parts import PART_BYTES, PART_ROWS, parts
from server.egress.sink_kind import SinkDefinition

FEW_ROWS = 1_000  # more changes than these are paired in a thread
COPIES_MAX = 1_000_000  # of rows that are in memory at a time

Send = Callable[[pa.Table, Pairs], Awaitable[None]]
"""Sends the messages of pairs. The table has the rows, c0, c1, ..., that the pairs name by their numbers."""


class RowChanges:
    """Passes the changes of a sink with UPSERT or DEBEZIUM to `send`, in order of time and in parts of bounded size."""

    def __init__(self, definition: SinkDefinition, written: Written, send: Send, scratch: Path | None = None) -> None:
        """`scratch`: the directory for rows that are too large for memory."""
        assert definition.format is not None
        self._definition = definition
        self._envelope = definition.format.envelope
        self._key = definition.key_positions
        self._is_unique = self._key is not None and "key not enforced" not in definition.options
        self._written = written
        self._send_pairs = send
        self._scratch = scratch

    async def snapshot(self, rows: pa.Table, as_of: Timestamp) -> None:
        """Sends the rows at the first time. PgError if two of them have the same key."""
        key = None if self._key is None else [f"c{position}" for position in self._key]
        async with aclosing(consolidated([rows], self._scratch, by=key)) as chunks:
            async for changes in chunks:
                if self._is_unique:
                    await self._check_unique(changes)
                for part in parts(changes):
                    times = pa.array(np.full(part.num_rows, as_of, np.int64))
                    await self.send(part.add_column(part.num_columns - 1, TIME_FIELD, times))

    async def send(self, changes: pa.Table) -> None:
        """Sends changes with times. Those of the same key and time must be passed together."""
        for part in _of_bounded_copies(changes) if self._key is None else (changes,):
            await self._send_part(part)
        self._written.updates += changes.num_rows

    async def _check_unique(self, changes: pa.Table) -> None:
        assert self._key is not None
        try:
            several = pc.greater(changes[updates.DIFF], 1)
            if pc.any(several).as_py():
                raise KeyViolation(changes.select(list(self._key)).filter(several).slice(0, 1))
            await asyncio.to_thread(check_unique, changes, self._key)
        except KeyViolation as error:
            raise self._violated(error) from None

    async def _send_part(self, changes: pa.Table) -> None:
        try:
            pairs = (
                await asyncio.to_thread(self._paired, changes) if changes.num_rows > FEW_ROWS else self._paired(changes)
            )
        except KeyViolation as error:
            raise self._violated(error) from None
        rows = updates.rows_of(changes).drop_columns([TIME])
        step = _part_rows(rows)
        for start in range(0, len(pairs.group), step):
            await self._send_pairs(rows, pairs.slice(start, step))

    def _paired(self, changes: pa.Table) -> Pairs:
        if self._envelope is not Envelope.UPSERT:
            if self._key is not None and not self._is_unique:
                self._check_copies(changes)
            return paired(changes, self._key, is_unique=self._is_unique)
        if not self._is_unique:  # copies of a row are one message
            signs = pc.sign(changes[updates.DIFF]).cast(pa.int64())
            changes = changes.set_column(changes.num_columns - 1, updates.DIFF_FIELD, signs)
        return paired(changes, self._key, is_unique=self._is_unique).latest()

    def _check_copies(self, changes: pa.Table) -> None:
        """PgError if the copies of rows, which are paired by key in memory, are too many."""
        most = pc.max(pc.abs(changes[updates.DIFF])).as_py() or 0
        if most > COPIES_MAX or pc.sum(pc.abs(changes[updates.DIFF])).as_py() - changes.num_rows > COPIES_MAX:
            raise PgError(
                SqlState.PROGRAM_LIMIT_EXCEEDED,
                f'rows of "{self._definition.on}" have more than {COPIES_MAX} copies at one time',
                hint="Create the sink from a materialized view with GROUP BY and count(*).",
            )

    def _violated(self, error: KeyViolation) -> PgError:
        return key_error(error, self._definition, "Create the sink with another KEY, or with KEY (...) NOT ENFORCED.")


def _of_bounded_copies(changes: pa.Table) -> Iterator[pa.Table]:
    """The changes, in parts of at most COPIES_MAX copies of rows. A row with more copies is in several parts."""
    diffs = changes[updates.DIFF].to_numpy()
    copies = np.abs(diffs.astype(np.float64)).cumsum()
    start = 0
    while start < len(diffs):
        begin = copies[start - 1] if start else 0.0
        stop = int(np.searchsorted(copies, begin + COPIES_MAX, "right"))
        if stop > start:
            yield changes.slice(start, stop - start)
        else:
            row, left, stop = changes.slice(start, 1), int(diffs[start]), start + 1
            sign = 1 if left > 0 else -1
            while left:
                some = sign * min(abs(left), COPIES_MAX)
                yield row.set_column(row.num_columns - 1, updates.DIFF_FIELD, pa.array([some]))
                left -= some
        start = stop


def _part_rows(rows: pa.Table) -> int:
    """The number of rows to encode at a time, by their average size."""
    return max(1, min(PART_ROWS, int(PART_BYTES * rows.num_rows // max(rows.nbytes, 1))))
