"""Damage to bytes, sequences and JSON that leaves most of their structure intact."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from random import Random, randrange
from typing import Any, TypeVar

from protocol.avro.varints import varint_bytes

MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "1000000"))
SEED = int(os.environ.get("FUZZ_SEED") or randrange(2**32))

_NUMBERS = (*range(6), 127, 128, 255, 256, 1_664, 32_767, 32_768, 65_535, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
_UTF8 = (b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80")  # invalid
_BYTES = (*_UTF8, b"\0", b"\xff", b"'", b"%", b"\\", b"\n", b"\r\n", b"9" * 40)

T = TypeVar("T")


def portion(count: int) -> int:
    """How many inputs a test has that has `count` of them for a million messages."""
    return max(MESSAGES * count // 1_000_000, 1)


def seeded(*of: object) -> Random:
    """A source of randomness for one test, from SEED."""
    return Random(f"{SEED} {of}")


def damaged(data: bytes, random: Random) -> bytes:
    """The bytes with one to three changes: flipped, replaced, inserted, repeated or missing ones, or another number."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(found) + 1)
        end = min(at + random.choice((1, 1, 2, 4, 8, 30)), len(found))
        match random.randrange(7):
            case 0 if at < len(found):
                found[at] ^= 1 << random.randrange(8)
            case 1:
                found[at:end] = random.choice(_BYTES)
            case 2:
                found[at:at] = random.choice(_BYTES)
            case 3:
                del found[at:end]
            case 4:
                found[at:at] = found[at:end]
            case 5:
                width = random.choice((1, 2, 4))
                found[at : at + width] = (random.choice(_NUMBERS) % 256**width).to_bytes(width, "big")
            case 6:
                found[at:end] = random.randbytes(end - at)
    return bytes(found)


def rearranged(items: Sequence[T], others: Sequence[T], random: Random) -> list[T]:
    """The sequence with one to three changes: missing, repeated, exchanged or moved items, or some of `others`."""
    found = list(items)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(found) + 1)
        end = min(at + random.choice((1, 1, 1, 2, 5)), len(found))
        other = random.randrange(len(others)) if others else 0
        match random.randrange(6):
            case 0:
                del found[at:end]
            case 1:
                found[at:at] = found[at:end]
            case 2:
                found[at:end] = others[other : other + random.choice((1, 1, 3))]
            case 3:
                found[at:at] = others[other : other + random.choice((1, 1, 3))]
            case 4:
                moved = found[at:end]
                del found[at:end]
                to = random.randrange(len(found) + 1)
                found[to:to] = moved
            case 5:
                found[at:end] = found[at:end][::-1]
    return found


def pieces(data: bytes, random: Random) -> Iterator[bytes]:
    """The bytes as a socket may deliver them: all at once, or in parts."""
    if random.random() < 0.5:
        yield data
        return
    at = 0
    while at < len(data):
        size = random.choice((1, 3, 5, 17, 100, 1_000))
        yield data[at : at + size]
        at += size


def damaged_avro(message: bytes, random: Random) -> bytes:
    """The bytes of an Avro value with another number or length in them, or damaged as any bytes."""
    if random.random() < 0.5:
        return damaged(message, random)
    at = random.randrange(len(message) + 1)
    number = random.choice((0, -1, 1, -2, 63, 64, 1_000, 10**6, 2**31, 2**40, -(2**40), 2**62, 2**63 - 1, -(2**63)))
    return message[:at] + varint_bytes(number) + message[at + random.choice((0, 1, 1, 1)) :]


def damaged_json(value: Any, random: Random, others: Sequence[Any] = ()) -> Any:
    """The value with one change in one of its parts: another, missing or repeated one. `others` are added parts."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        name = random.choice(list(value))
        match random.randrange(12):
            case 0:
                return {key: part for key, part in value.items() if key != name}
            case 1:
                return {**value, random.choice(list(value)): value[name]}
            case 2:
                return {(random.choice(("", "type", "x", "é")) if key == name else key): v for key, v in value.items()}
            case _:
                return {**value, name: damaged_json(value[name], random, others)}
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.randrange(len(value))
        if random.random() < 0.2:
            return rearranged(value, others, random)
        return [*value[:at], damaged_json(value[at], random, others), *value[at + 1 :]]
    changed = [None, True, "", "x", "\0", -1, 0.5, 1e400, [], {}, [value], random.choice(_NUMBERS), -(2**63), 10**30]
    if isinstance(value, str) and value:
        changed += [value[:-1], value.upper(), value * 2, value + "\ud800"]
    if isinstance(value, int):
        changed += [value + 1, -value, str(value)]
    return random.choice([*changed, *others])
