"""hashtext() and hashtextextended(), with which applications make numbers for advisory locks.

The values are PostgreSQL's on a little-endian machine: Bob Jenkins' lookup3, with PostgreSQL's initial value and seed
(src/common/hashfn.c).
"""

from __future__ import annotations

from server.sql.functions.table import FUNCTIONS, row

_WORD = 0xFFFFFFFF
_INITIAL = 0x9E3779B9 + 3923095


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _WORD


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    a, c = (a - c & _WORD) ^ _rotated(c, 4), c + b & _WORD
    b, a = (b - a & _WORD) ^ _rotated(a, 6), a + c & _WORD
    c, b = (c - b & _WORD) ^ _rotated(b, 8), b + a & _WORD
    a, c = (a - c & _WORD) ^ _rotated(c, 16), c + b & _WORD
    b, a = (b - a & _WORD) ^ _rotated(a, 19), a + c & _WORD
    c, b = (c - b & _WORD) ^ _rotated(b, 4), b + a & _WORD
    return a, b, c


def _hash(text: str, seed: int) -> int:
    """The 64 bits of hash_bytes_extended(); the lower half is hash_bytes() if `seed` is 0."""
    data = text.encode()
    a = b = c = _INITIAL + len(data) & _WORD
    if seed:
        a, b, c = _mixed(a + (seed >> 32) & _WORD, b + seed & _WORD, c)
    rest = len(data) - len(data) % 12
    for start in range(0, rest, 12):
        words = (int.from_bytes(data[at : at + 4], "little") for at in range(start, start + 12, 4))
        a, b, c = _mixed(*(old + word & _WORD for old, word in zip((a, b, c), words, strict=True)))
    a = a + int.from_bytes(data[rest : rest + 4], "little") & _WORD
    b = b + int.from_bytes(data[rest + 4 : rest + 8], "little") & _WORD
    c = c + (int.from_bytes(data[rest + 8 :], "little") << 8) & _WORD  # the lowest byte is that of the length
    c = (c ^ b) - _rotated(b, 14) & _WORD
    a = (a ^ c) - _rotated(c, 11) & _WORD
    b = (b ^ a) - _rotated(a, 25) & _WORD
    c = (c ^ b) - _rotated(b, 16) & _WORD
    a = (a ^ c) - _rotated(c, 4) & _WORD
    b = (b ^ a) - _rotated(a, 14) & _WORD
    c = (c ^ b) - _rotated(b, 24) & _WORD
    return b << 32 | c


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def _hashtext(text: str) -> int:
    return _signed(_hash(text, 0) & _WORD, 32)


def _hashtextextended(text: str, seed: int) -> int:
    return _signed(_hash(text, seed & (1 << 64) - 1), 64)


row(FUNCTIONS, "hashtext", "text", "int4", python=_hashtext)
row(FUNCTIONS, "hashtextextended", "text int8", "int8", python=_hashtextextended)
