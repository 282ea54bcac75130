"""The tables of batches that were read or written lately."""

from __future__ import annotations

from collections import OrderedDict

import pyarrow as pa

from catalog.batches import Batch

CACHE_BYTES = 256 * 1024 * 1024  # inline payloads kept decoded
MAPPED_MAX = 256  # payload files kept mapped and decoded; the page cache owns their memory
COLUMN_BYTES = 1_024  # memory that Arrow needs per column in addition to its values


class TableCache:
    """The tables that were used last: those of inline payloads up to CACHE_BYTES, and of MAPPED_MAX payload files.

    Not thread-safe, except for `has_inline`.
    """

    def __init__(self) -> None:
        self.inline_bytes = 0
        """The memory of the tables of inline payloads."""
        self._inline: OrderedDict[int, tuple[pa.Table, int]] = OrderedDict()  # with their memory
        self._mapped: OrderedDict[int, tuple[pa.Table, int]] = OrderedDict()  # with the files' sizes

    def has_inline(self, batch: Batch) -> bool:
        """Whether the table of a batch with an inline payload is in memory."""
        return batch.id in self._inline

    def inline(self, batch: Batch) -> pa.Table | None:
        """Returns the table of a batch with an inline payload; None if it is not in memory."""
        if (found := self._inline.get(batch.id)) is None:
            return None
        self._inline.move_to_end(batch.id)
        return found[0]

    def mapped(self, batch: Batch) -> tuple[pa.Table, int] | None:
        """Returns the table of a batch with a payload file, and the file's size when it was mapped.

        None if the table is not mapped.
        """
        found = self._mapped.get(batch.id)
        if found is not None:
            self._mapped.move_to_end(batch.id)
        return found

    def add(self, batch: Batch, table: pa.Table, size: int = 0) -> None:
        """Adds a batch's table. `size`: that of the batch's payload file in bytes."""
        self.remove(batch)  # another thread may have read it at the same time
        if batch.file is not None:
            self._mapped[batch.id] = table, size
            if len(self._mapped) > MAPPED_MAX:
                self._mapped.popitem(last=False)
            return
        memory = _memory_bytes(batch, table)
        self._inline[batch.id] = table, memory
        self.inline_bytes += memory
        while self.inline_bytes > CACHE_BYTES:
            _, (_, memory) = self._inline.popitem(last=False)
            self.inline_bytes -= memory

    def remove(self, batch: Batch) -> None:
        """Removes a batch's table, if it is there."""
        self._mapped.pop(batch.id, None)
        _, memory = self._inline.pop(batch.id, (None, 0))
        self.inline_bytes -= memory


def _memory_bytes(batch: Batch, table: pa.Table) -> int:
    """Estimated memory of a cached table. For small commits Arrow's overhead per column is most of it."""
    return batch.bytes + COLUMN_BYTES * (table.num_columns + 2)  # type: ignore[no-any-return]
