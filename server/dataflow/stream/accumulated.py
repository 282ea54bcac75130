"""The sum of a stream of changes, with amortized work per change instead of work on all rows."""

from __future__ import annotations

import pyarrow as pa

from catalog import updates
from server.runtime.threads import in_thread

FOLD_ROWS = 8_192  # up to this number changes are always buffered


class Accumulated:
    """Rows, and a buffer of changes to apply to them.

    After `fold`, the buffer has at most as many changes as there are rows, or FOLD_ROWS if these are fewer.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._changes: list[pa.Table] = []
        self._buffered = 0

    def add(self, changes: pa.Table) -> None:
        """Adds consolidated changes of the next time. `fold` is to follow."""
        if changes.num_rows:
            self._changes.append(changes)
            self._buffered += changes.num_rows

    async def fold(self) -> None:
        """Applies the buffer if it is too large. Cancel safety: the buffer is applied completely or not at all."""
        if self._buffered > max(FOLD_ROWS, self._rows.num_rows):
            await self.current()

    async def current(self) -> pa.Table:
        """As `rows`, with the work on many rows in a thread."""
        if buffer := self._changes:
            count, merged = len(buffer), pa.concat_tables(buffer)
            found = await in_thread(_applied, self._rows, merged)
            if self._changes is buffer:  # else `rows` has replaced both meanwhile
                self._rows, self._changes = found, buffer[count:]
                self._buffered -= merged.num_rows
        return self.rows

    @property
    def rows(self) -> pa.Table:
        """The rows after all changes. NegativeCount if a row has a negative multiplicity."""
        if self._changes:
            self._rows = _applied(self._rows, pa.concat_tables(self._changes))
            self._changes, self._buffered = [], 0
        return self._rows


def _applied(rows: pa.Table, changes: pa.Table) -> pa.Table:
    summed = updates.consolidate(changes) if updates.has_retractions(changes) else changes.combine_chunks()
    return updates.apply(rows, summed)
