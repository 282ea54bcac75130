"""LOAD GENERATOR COUNTER: the numbers 1, 2, 3, ..., one per tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.objects.columns import Column
from server.ingest.generators.columns import table
from server.ingest.option_values import OptionValues
from server.ingest.source_definition import Output


class Counter:
    """With MAX CARDINALITY c, tick n also removes the number n - c."""

    outputs = (Output("counter", "counter", (Column("counter", "int8", nullable=False),)),)
    snapshot_ticks = 0
    interval_us: int | None = 1_000_000

    def __init__(self, options: OptionValues) -> None:
        self._rows_max = options.integer("max cardinality", 0)

    def changes(self, references: Sequence[str], first: int, end: int, start_us: int) -> Mapping[str, list[pa.Table]]:
        tables = [table(np.arange(first + 1, end + 1, dtype=np.int64))]
        gone = np.arange(max(1, first + 1 - self._rows_max), end + 1 - self._rows_max, dtype=np.int64)
        if self._rows_max and len(gone):
            tables.append(updates.with_diff(table(gone), -1))
        return dict.fromkeys(references, tables)
