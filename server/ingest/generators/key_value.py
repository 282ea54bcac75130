"""LOAD GENERATOR KEY VALUE: keys with random values, which ticks replace (ENVELOPE UPSERT) or add to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.objects.columns import Column
from catalog.source_definition import Envelope, Format
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.generators.columns import Ints, random_bits, table
from server.ingest.option_values import OptionValues
from server.ingest.source_definition import Output

SNAPSHOT_BYTES = 4 * 1024 * 1024  # of values in one tick of the snapshot


class KeyValue:
    """The snapshot has a value for each key. Each later tick has a value for the next BATCH SIZE keys, cyclically."""

    interval_us: int | None = None

    def __init__(self, options: OptionValues, format: Format | None) -> None:
        self._seed = options.integer("seed", 0, 0)
        self._keys = options.integer("keys", 1_000)
        self._partitions = options.integer("partitions", 1, greatest=2**31 - 1)
        self._size = options.integer("value size", 16, greatest=1_000_000)
        self._batch = min(options.integer("batch size", 1, greatest=1_000_000), self._keys)
        self._per_tick = max(1, min(self._keys, SNAPSHOT_BYTES // self._size))
        self.snapshot_ticks = -(-self._keys // self._per_tick)
        envelope = format.envelope if format is not None else Envelope.NONE
        if envelope not in (Envelope.NONE, Envelope.UPSERT):
            message = f"ENVELOPE {envelope.upper()} of LOAD GENERATOR KEY VALUE is not supported"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="Use ENVELOPE UPSERT or NONE.")
        self._upserts = envelope is Envelope.UPSERT
        columns = (
            Column("partition", "int4", nullable=False),
            Column("key", "int8", nullable=False),
            Column("value", "bytea", nullable=False),
        )
        self.outputs = (Output("key_value", "key_value", columns, ("key",) if self._upserts else ()),)

    def changes(self, references: Sequence[str], first: int, end: int, start_us: int) -> Mapping[str, list[pa.Table]]:
        tables = []
        keys = np.arange(min(first * self._per_tick, self._keys), min(end * self._per_tick, self._keys), dtype=np.int64)
        tables.append(self._rows(keys, np.zeros_like(keys)))
        begun, done = (max(tick - self.snapshot_ticks, 0) for tick in (first, end))
        number = np.arange(begun * self._batch, done * self._batch, dtype=np.int64)
        rounds, keys = np.divmod(number, self._keys)
        tables.append(self._rows(keys, rounds + 1))
        if self._upserts and len(number):
            tables.append(updates.with_diff(self._rows(keys, rounds), -1))
        return dict.fromkeys(references, tables)

    def _rows(self, keys: Ints, rounds: Ints) -> pa.Table:
        """The rows of the keys with their values of these rounds."""
        words = -(-self._size // 8)
        rows = (rounds * self._keys + keys)[:, np.newaxis] * words + np.arange(words, dtype=np.int64)
        bits = random_bits(self._seed, 0, rows.reshape(-1)).astype("<u8").view(np.uint8).reshape(len(keys), words * 8)
        values = np.ascontiguousarray(bits[:, : self._size])
        fixed = pa.Array.from_buffers(pa.binary(self._size), len(keys), [None, pa.py_buffer(values)])
        return table(pa.array((keys % self._partitions).astype(np.int32)), keys, fixed.cast(pa.binary()))
