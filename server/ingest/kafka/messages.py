"""Messages of Kafka as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Messages:
    """Messages of one topic, ordered by offset within each partition. `timestamps` are in milliseconds."""

    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: Sequence[Headers] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, rows: slice) -> Messages:
        """Returns the messages of a slice with step 1, without copying them."""
        return Messages(
            self.partitions[rows],
            self.offsets[rows],
            self.timestamps[rows],
            self.keys[rows],
            self.values[rows],
            None if self.headers is None else self.headers[rows],
        )

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes + self.values.nbytes)

    @classmethod
    def of(cls, found: Sequence[Any], *, with_headers: bool = False) -> Messages:
        """Converts messages of confluent_kafka, none of which is an error."""
        count = len(found)
        return cls(
            np.fromiter((m.partition() for m in found), np.int32, count),
            np.fromiter((m.offset() for m in found), np.int64, count),
            np.fromiter((m.timestamp()[1] for m in found), np.int64, count),
            pa.array([m.key() for m in found], pa.binary()),
            pa.array([m.value() for m in found], pa.binary()),
            [m.headers() or () for m in found] if with_headers else None,
        )

    def take(self, rows: NDArray[np.intp]) -> Messages:
        indices = pa.array(rows)
        return Messages(
            self.partitions[rows],
            self.offsets[rows],
            self.timestamps[rows],
            self.keys.take(indices),
            self.values.take(indices),
            None if self.headers is None else [self.headers[row] for row in rows.tolist()],
        )

    @classmethod
    def joined(cls, parts: Sequence[Messages]) -> Messages:
        """The messages of all parts, in their order."""
        if len(parts) == 1:
            return parts[0]
        headers = [part.headers for part in parts]
        return cls(
            np.concatenate([part.partitions for part in parts]),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.timestamps for part in parts]),
            pa.concat_arrays([part.keys for part in parts]),
            pa.concat_arrays([part.values for part in parts]),
            None if None in headers else [header for own in headers for header in own or ()],
        )

    def in_order(self) -> Messages:
        """Returns the messages in the order of partition and offset."""
        order = np.lexsort((self.offsets, self.partitions))
        return self if (order[1:] > order[:-1]).all() else self.take(order)

    def next_offsets(self) -> dict[int, int]:
        """The offset after the last message, by partition."""
        return {int(p): int(self.offsets[self.partitions == p].max()) + 1 for p in np.unique(self.partitions)}
