"""What a stream of changes adds up to, without work on all rows at each change."""

from __future__ import annotations

import pyarrow as pa

from catalog import updates

FOLD_ROWS = 8_192  # fewer changes than this wait in any case


class Accumulated:
    """Rows, and changes that are yet to be applied to them: at most as many as there are rows, or FOLD_ROWS."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._changes: list[pa.Table] = []
        self._waiting = 0

    def add(self, changes: pa.Table) -> None:
        """Consolidated changes of the next time. Applied when as many wait as there are rows: each once, amortized."""
        if changes.num_rows:
            self._changes.append(changes)
            self._waiting += changes.num_rows
            if self._waiting > max(FOLD_ROWS, self._rows.num_rows):
                self.rows  # noqa: B018

    @property
    def rows(self) -> pa.Table:
        """The rows now. NegativeCount if more was taken away than there was."""
        if self._changes:
            changes = updates.consolidate(pa.concat_tables(self._changes))
            self._rows = updates.apply(self._rows, changes)
            self._changes, self._waiting = [], 0
        return self._rows
