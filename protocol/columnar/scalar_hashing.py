"""The hashes of `hashing.key_hashes` for single rows of Python scalars, without numpy's cost per call."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from protocol.columnar.hashing import LONG_BYTES

_SEED = 0x2545F4914F6CDD1D
_ALL = 0xFFFFFFFFFFFFFFFF


def row_hash(values: Iterable[int | str | bytes]) -> int:
    """The hash of a row of integers, booleans, strings and binary values."""
    found = _SEED
    for value in values:
        hashed = _mixed(value & _ALL) if isinstance(value, int) else _bytes_hash(value)
        found = _mixed(found ^ (((hashed << 23) | (hashed >> 41)) & _ALL))
    return found


def _bytes_hash(value: str | bytes) -> int:
    data = value.encode() if isinstance(value, str) else value
    length = len(data)
    if length > LONG_BYTES:
        return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
    found = _mixed(length ^ _SEED)
    for start in range(0, length, 8):
        found = _mixed(found ^ int.from_bytes(data[start : start + 8], "little"))
    return found


def _mixed(x: int) -> int:
    x ^= x >> 30
    x = (x * 0xBF58476D1CE4E5B9) & _ALL
    x ^= x >> 27
    x = (x * 0x94D049BB133111EB) & _ALL
    return x ^ (x >> 31)
