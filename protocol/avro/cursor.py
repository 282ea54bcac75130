"""Reads primitive values of many messages together: one position per message, one numpy operation for all of them.

A message whose bytes end too early or whose lengths are invalid is marked in `failed`, at the latest by `finish`. It
then reads zeros. `rows` are the messages to read, as row numbers; None means all.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.columnar.buffers import string_parts

Rows = NDArray[np.intp] | None
Integers = NDArray[np.int64]

_PADDING = 16  # zeros after the last message, so that reading a word never leaves the buffer
_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = ~_HIGH_BITS
_INLINE = 12  # bytes of a value that a binary view contains itself


def _u(value: int) -> np.uint64:
    return np.uint64(value)


# Pairs of groups of 7, 14 and 28 bits are merged: the distance, and the masks of the lower and of the upper groups.
_MERGES = (
    (_u(1), _u(0x007F007F007F007F), _u(0x7F007F007F007F00)),
    (_u(2), _u(0x00003FFF00003FFF), _u(0x3FFF00003FFF0000)),
    (_u(4), _u(0x000000000FFFFFFF), _u(0x0FFFFFFF00000000)),
)


class Cursor:
    """The positions in messages, the values of a binary array. NULL is an empty message."""

    def __init__(self, messages: pa.BinaryArray, skip: int = 0) -> None:
        """`skip`: bytes at the beginning of each message that precede the Avro value."""
        count = len(messages)
        offsets, data = string_parts(messages) if count else (np.zeros(1, np.int32), np.empty(0, np.uint8))
        first, last = int(offsets[0]), int(offsets[-1])
        self.data = np.zeros(last - first + _PADDING, np.uint8)
        self.data[: last - first] = data[first:last]
        self._words: NDArray[np.uint64] = np.lib.stride_tricks.as_strided(
            self.data[:8].view("<u8"), (len(self.data) - 7,), (1,), writeable=False
        )
        self.size = last - first
        """The number of bytes of all messages. The bytes of `data` after them are 0."""
        self.end = offsets[1:].astype(np.int64) - first
        self.position = np.minimum(offsets[:-1].astype(np.int64) - first + skip, self.end)
        self.failed = np.zeros(count, np.bool_)
        self.wrong_fields: dict[int, str] = {}

    def over(self, start: Integers, end: Integers) -> Cursor:
        """A cursor whose messages are parts of the same bytes."""
        found = copy(self)
        found.position, found.end = start, end
        found.failed, found.wrong_fields = np.zeros(len(start), np.bool_), {}
        return found

    def __len__(self) -> int:
        return len(self.end)

    def finish(self) -> None:
        """Marks the messages that have bytes left, or too few."""
        self.failed |= self.position != self.end

    def at(self, rows: Rows) -> Integers:
        return self.position if rows is None else self.position[rows]

    def move(self, rows: Rows, position: Integers) -> None:
        if rows is None:
            self.position = position
        else:
            self.position[rows] = position

    def fail(self, rows: Rows, wrong: NDArray[np.bool_]) -> None:
        """Marks some of `rows` as failed."""
        if wrong.any():
            failed = np.flatnonzero(wrong) if rows is None else rows[wrong]
            self.failed[failed] = True
            self.position = self.position.copy()
            self.position[failed] = self.end[failed] = self.size

    def mark(self, rows: Rows, wrong: NDArray[np.bool_], field: str) -> None:
        """Marks some of `rows` as failed because of the value of a field, which has been read."""
        failed = np.flatnonzero(wrong) if rows is None else rows[wrong]
        self.failed[failed] = True
        for row in failed.tolist():
            self.wrong_fields.setdefault(row, field)

    def advance(self, rows: Rows, lengths: Integers | int) -> Integers:
        """Returns the positions and moves by `lengths`. A length that is negative or leaves the message fails it."""
        start = self.at(rows)
        end = self.end if rows is None else self.end[rows]
        stop = start + lengths
        wrong = (stop > end) | (stop < start)
        if wrong.any():
            stop = np.where(wrong, self.size, stop)
            start = np.where(wrong, self.size, start)
            self.move(rows, stop)
            self.fail(rows, wrong)
        else:
            self.move(rows, stop)
        return start

    # -- values -------------------------------------------------------------------------------------------------

    def longs(self, rows: Rows) -> Integers:
        """Values of the types int and long: zigzag varints of at most ten bytes."""
        value, position = self.longs_at(self.at(rows))
        self.move(rows, position)
        return value

    def longs_at(self, position: Integers) -> tuple[Integers, Integers]:
        """The values of type int or long at these positions, and the positions after them.

        What is after all bytes is 0. A value of more than 64 bits ends after all bytes.
        """
        first = self.data.take(position, mode="clip")
        if not len(first) or first.max() < 0x80:
            narrow = first.astype(np.int64)
            return (narrow >> 1) ^ -(narrow & 1), position + 1
        word, keep, count = self._first_bytes(position)
        word &= keep
        word &= _LOW_BITS
        longest = count.max()
        for shift, low, high in _MERGES[: 1 + (longest > 2) + (longest > 4)]:
            upper = word & high
            upper >>= shift
            word &= low
            word |= upper
        stop = position + count
        if longest == 8:
            long, ninth, tenth, stop[long] = self._long(position, count)
            word[long] |= (ninth & _u(0x7F)) << _u(56)
            word[long] |= np.where(ninth >= _u(0x80), tenth << _u(63), _u(0))
        value = word.view(np.int64)
        sign = -(value & 1)
        word >>= _u(1)
        value ^= sign
        return value, stop

    def after_longs(self, position: Integers) -> Integers:
        """The positions of `longs_at`, without the values."""
        first = self.data.take(position, mode="clip")
        if not len(first) or first.max() < 0x80:
            return position + 1
        _, _, count = self._first_bytes(position)
        stop: Integers = position + count
        if count.max() == 8:
            long, _, _, stop[long] = self._long(position, count)
        return stop

    def _first_bytes(self, position: Integers) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]:
        """Eight bytes at these positions, a mask of those that belong to the value there, and their number."""
        word = self._words[np.minimum(position, self.size)]
        ends = ~word
        ends &= _HIGH_BITS
        keep = ends - _u(1)
        keep ^= ends  # up to the high bit of the first byte without a continuation
        return word, keep, np.bitwise_count(keep) >> 3

    def _long(
        self, position: Integers, count: NDArray[np.uint8]
    ) -> tuple[Rows, NDArray[np.uint64], NDArray[np.uint64], Integers]:
        """The rows of values of nine or ten bytes, the ninth and tenth bytes, and where the values end."""
        rows = np.flatnonzero(count == 8)
        rows = rows[self.data[np.minimum(position[rows] + 7, self.size)] >= 0x80]
        after = position[rows] + 8
        ninth, tenth = (self.data[np.minimum(after + more, self.size)].astype(np.uint64) for more in (0, 1))
        more = ninth >= _u(0x80)
        stop: Integers = np.where(more & (tenth > _u(1)), self.size + 1, after + 1 + more)
        return rows, ninth, tenth, stop

    def common_long_at(self, position: Integers) -> int | None:
        """The value of type int or long at all these positions, if it is the same and has one byte."""
        first = self.data.take(position, mode="clip")
        value = int(first[0]) if len(first) else 0x80
        return (value >> 1) ^ -(value & 1) if value < 0x80 and (first == value).all() else None

    def fixed(self, rows: Rows, dtype: str) -> NDArray[Any]:
        """Values of float and double (`<f4`, `<f8`), and booleans (`u1`)."""
        size = np.dtype(dtype).itemsize
        start = self.advance(rows, size)
        if size == 1:
            return self.data[start]
        word = self._words[np.minimum(start, self.size)]
        return word.view(dtype) if size == 8 else word.astype(np.uint32).view(dtype)

    def strings(self, rows: Rows) -> pa.BinaryArray:
        """Values of bytes and string."""
        lengths = self.longs(rows)
        return self.slices(self.advance(rows, lengths), lengths, rows)

    def slices(self, start: Integers, lengths: Integers, rows: Rows) -> pa.BinaryArray:
        """The bytes at these positions. Those of failed messages are arbitrary."""
        failed = self.failed if rows is None else self.failed[rows]
        if failed.any():
            lengths = np.where(failed, 0, lengths)
            start = np.where(failed, 0, start)
        count = len(start)
        views = np.zeros((count, 4), np.uint32)
        views[:, 0] = lengths
        views[:, 1] = self._words[start].astype(np.uint32)  # the first four bytes
        views[:, 3] = start
        short = np.flatnonzero(lengths <= _INLINE)
        if len(short):
            inline = np.zeros((len(short), 2), np.uint64)
            at, size = start[short], lengths[short].astype(np.uint64)
            inline[:, 0] = self._words[at] & _mask(size)
            inline[:, 1] = self._words[at + 8] & _mask(size - np.minimum(size, _u(8)))
            views[short, 1:] = inline.view(np.uint32)[:, :3]
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary_view(), count, buffers).cast(pa.binary())


def _mask(sizes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Selects the first min(size, 8) bytes of a little-endian word."""
    bits = np.minimum(sizes, _u(8)) * _u(8)
    return np.where(bits == 0, _u(0), _u(0xFFFFFFFFFFFFFFFF) >> (_u(64) - np.maximum(bits, _u(8))))
