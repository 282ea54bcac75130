"""Reads primitive values of many messages together: one position per message, one numpy operation for all of them.

A message whose bytes end too early or whose lengths are invalid is marked in `failed`; it then reads zeros. `rows` are
the messages to read, as row numbers; None means all.
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
_INLINE = 12  # bytes of a value that a binary view contains itself


def _u(value: int) -> np.uint64:
    return np.uint64(value)


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
        self._zeros = last - first
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
            self.position[failed] = self.end[failed] = self._zeros

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
            stop = np.where(wrong, self._zeros, stop)
            start = np.where(wrong, self._zeros, start)
            self.move(rows, stop)
            self.fail(rows, wrong)
        else:
            self.move(rows, stop)
        return start

    # -- values -------------------------------------------------------------------------------------------------

    def longs(self, rows: Rows) -> Integers:
        """Values of the types int and long: zigzag varints of at most ten bytes."""
        position = np.minimum(self.at(rows), self._zeros)
        first = self.data[position]
        if not (first & 0x80).any():
            self.move(rows, position + 1)
            narrow = first.astype(np.int64)
            short: Integers = (narrow >> 1) ^ -(narrow & 1)
            return short
        word = self._words[position]
        ends = ~word & _HIGH_BITS
        last = ends & (~ends + _u(1))  # the lowest bit: the high bit of the first byte without a continuation
        keep = last | (last - _u(1))
        count = (np.bitwise_count(keep) >> 3).astype(np.int64)
        x = word & keep & ~_HIGH_BITS
        x = (x & _u(0x007F007F007F007F)) | ((x & _u(0x7F007F007F007F00)) >> _u(1))
        x = (x & _u(0x00003FFF00003FFF)) | ((x & _u(0x3FFF00003FFF0000)) >> _u(2))
        x = (x & _u(0x000000000FFFFFFF)) | ((x & _u(0x0FFFFFFF00000000)) >> _u(4))
        wrong = None
        if (long := ends == 0).any():  # nine or ten bytes
            where = np.flatnonzero(long)
            at = position[where] + 8
            low = self._words[position[where]] & ~_HIGH_BITS
            low = (low & _u(0x007F007F007F007F)) | ((low & _u(0x7F007F007F007F00)) >> _u(1))
            low = (low & _u(0x00003FFF00003FFF)) | ((low & _u(0x3FFF00003FFF0000)) >> _u(2))
            low = (low & _u(0x000000000FFFFFFF)) | ((low & _u(0x0FFFFFFF00000000)) >> _u(4))
            ninth = self.data[np.minimum(at, self._zeros)].astype(np.uint64)
            tenth = self.data[np.minimum(at + 1, self._zeros)].astype(np.uint64)
            more = ninth >= _u(0x80)
            x[where] = low | ((ninth & _u(0x7F)) << _u(56)) | np.where(more, tenth << _u(63), _u(0))
            count[where] = 9 + more
            wrong = np.zeros(len(x), np.bool_)
            wrong[where] = more & (tenth > _u(1))
        self.move(rows, position + count)
        value: Integers = (x >> _u(1)).astype(np.int64) ^ -(x & _u(1)).astype(np.int64)
        if wrong is not None:
            self.fail(rows, wrong)
        return value

    def fixed(self, rows: Rows, dtype: str) -> NDArray[Any]:
        """Values of float and double (`<f4`, `<f8`), and booleans (`u1`)."""
        size = np.dtype(dtype).itemsize
        start = self.advance(rows, size)
        if size == 1:
            return self.data[start]
        word = self._words[np.minimum(start, self._zeros)]
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
