"""Values that follow each other without separators, as in the blocks of a container file: where each one begins.

The values of several sequences are found together, one value of each sequence at a time. Those of a few sequences, and
values that contain arrays or maps, are found one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.avro.cursor import Cursor
from protocol.avro.plain import DecodeError, PlainReader
from protocol.avro.schema import Array, Map, Record, Type, Union
from protocol.avro.skipper import Skipper
from protocol.columnar.buffers import starts_of

LANES_MIN = 8  # of fewer sequences, the values are found one by one


class SequenceError(Exception):
    """A sequence does not consist of its number of values. `index`: its number. `value`: that of the invalid value."""

    def __init__(self, index: int, value: int, reason: str) -> None:
        super().__init__(reason)
        self.index, self.value, self.reason = index, value, reason


def split_sequences(type: Type, sequences: Sequence[bytes | memoryview], counts: Sequence[int]) -> pa.BinaryArray:
    """The values of all sequences, in their order. `counts`: how many each has. SequenceError for the first wrong one.

    All sequences together have less than 2 GiB.
    """
    found = _Found(type, sequences, counts)
    if len(sequences) >= LANES_MIN and not _has_items(type):
        found.advance_together()
    for index in found.unfinished():
        found.advance_one(index)
    return found.values()


class _Found:
    """The values that were found so far: the first `done[i]` of sequence i, which end at `position[i]`."""

    def __init__(self, type: Type, sequences: Sequence[bytes | memoryview], counts: Sequence[int]) -> None:
        self._type = type
        self._data = b"".join(sequences)
        self._bounds = starts_of(np.array([len(sequence) for sequence in sequences], np.int64))
        self._counts = np.array(counts, np.int64)
        self._first = np.cumsum(self._counts) - self._counts  # number of a sequence's first value
        self._starts = np.full(int(self._counts.sum()) + 1, len(self._data), np.int32)
        self._end = self._bounds[1:].astype(np.int64)
        self._position = self._bounds[:-1].astype(np.int64)
        self._done = np.zeros(len(self._counts), np.int64)

    def advance_together(self) -> None:
        """Finds values as long as enough sequences have some. A sequence with an invalid value stays before it."""
        data = pa.Array.from_buffers(
            pa.binary(), len(self._counts), [None, pa.py_buffer(self._bounds), pa.py_buffer(self._data)]
        )
        cursor, skipper = Cursor(data), Skipper(self._type)
        lanes: NDArray[np.intp] = np.flatnonzero(self._counts > 0)
        while len(lanes) >= LANES_MIN:
            begin = self._position[lanes]
            end = skipper.ends(cursor, begin, self._end[lanes])
            good = end <= self._end[lanes]
            lanes = lanes[good]
            self._starts[self._first[lanes] + self._done[lanes]] = begin[good]
            self._done[lanes] += 1
            self._position[lanes] = end[good]
            lanes = lanes[self._done[lanes] < self._counts[lanes]]

    def unfinished(self) -> list[int]:
        """The sequences of which values or bytes are left."""
        found: list[int] = np.flatnonzero((self._done < self._counts) | (self._position != self._end)).tolist()
        return found

    def advance_one(self, index: int) -> None:
        """Finds the other values of a sequence. SequenceError."""
        begin, number = int(self._first[index]), int(self._done[index])
        reader = PlainReader(self._data, int(self._position[index]), int(self._end[index]))
        count, starts = int(self._counts[index]), self._starts
        try:
            while number < count:
                starts[begin + number] = reader.position
                reader.skip(self._type)
                number += 1
            reader.finish()
        except DecodeError as error:
            raise SequenceError(index, number, str(error)) from None

    def values(self) -> pa.BinaryArray:
        buffers = [None, pa.py_buffer(self._starts), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(pa.binary(), len(self._starts) - 1, buffers)


def _has_items(type: Type) -> bool:
    """Whether values of a type contain arrays or maps."""
    match type:
        case Array() | Map():
            return True
        case Union(branches):
            return any(_has_items(branch) for branch in branches)
        case Record(_, fields):
            return any(_has_items(field.type) for field in fields)
    return False
