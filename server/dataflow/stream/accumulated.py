"""The sum of a stream of changes, with amortized work per change instead of work on all rows."""

from __future__ import annotations

import pyarrow as pa

from catalog import updates

FOLD_ROWS = 8_192  # up to this number changes are always buffered


class Accumulated:
    """Rows and a buffer of changes to apply to them: at most as many as there are rows, or FOLD_ROWS."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._changes: list[pa.Table] = []
        self._buffered = 0

    def add(self, changes: pa.Table) -> None:
        """Adds consolidated changes of the next time. Applies the buffer when it is too large."""
        if changes.num_rows:
            self._changes.append(changes)
            self._buffered += changes.num_rows
            if self._buffered > max(FOLD_ROWS, self._rows.num_rows):
                self.rows  # noqa: B018

    @property
    def rows(self) -> pa.Table:
        """The rows after all changes. NegativeCount if a row has a negative multiplicity."""
        if self._changes:
            changes = pa.concat_tables(self._changes)
            summed = updates.consolidate(changes) if updates.takes_away(changes) else changes.combine_chunks()
            self._rows = updates.apply(self._rows, summed)
            self._changes, self._buffered = [], 0
        return self._rows
