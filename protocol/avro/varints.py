"""Avro's integers (int and long): zigzag numbers of seven bits per byte. Many at a time, with numpy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.columnar.buffers import starts_of

BYTES_MAX = 10
_SHIFTS = np.arange(BYTES_MAX, dtype=np.uint64) * np.uint64(7)


def encoded_varints(values: NDArray[np.int64]) -> pa.BinaryArray:
    """The bytes of each number."""
    if not len(values):
        return pa.array([], pa.binary())
    number = ((values << 1) ^ (values >> 63)).view(np.uint64)
    lengths = np.ones(len(values), np.int64)
    largest = int(number.max())
    for place in range(1, BYTES_MAX):
        if largest < 1 << (7 * place):
            break
        lengths += number >= np.uint64(1 << (7 * place))
    places = np.arange(int(lengths.max()))
    data = ((number[:, None] >> _SHIFTS[places]) & np.uint64(0x7F)).astype(np.uint8)
    data |= np.where(places < lengths[:, None] - 1, 0x80, 0).astype(np.uint8)
    buffers = [None, pa.py_buffer(starts_of(lengths)), pa.py_buffer(data[places < lengths[:, None]])]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def varint_bytes(*values: int) -> bytes:
    """The bytes of a few numbers."""
    found = bytearray()
    for value in values:
        number = (value << 1) ^ (value >> 63)
        while number >= 0x80:
            found.append(number & 0x7F | 0x80)
            number >>= 7
        found.append(number)
    return bytes(found)


def decoded_varints(data: bytes) -> NDArray[np.int64] | None:
    """The numbers of which the bytes consist; None if one has no end or more than 64 bits."""
    content = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(content < 0x80) + 1
    if not len(content):
        return np.empty(0, np.int64)
    if not len(ends) or ends[-1] != len(content):
        return None
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts
    if lengths.max() > BYTES_MAX or (content[ends[lengths == BYTES_MAX] - 1] > 1).any():
        return None
    place = np.arange(len(content)) - np.repeat(starts, lengths)
    parts = (content & 0x7F).astype(np.uint64) << _SHIFTS[place]
    number = np.add.reduceat(parts, starts)
    return (number >> np.uint64(1)).view(np.int64) ^ -(number & np.uint64(1)).view(np.int64)
