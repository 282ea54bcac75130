"""Finds where many values of one type end, without decoding them.

The type is flattened to steps. A step moves one position per value, with a few numpy operations for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from protocol.avro.cursor import Cursor, Integers
from protocol.avro.plain import DecodeError, PlainReader
from protocol.avro.schema import Array, Enum, Fixed, Map, Primitive, Record, Type, Union

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class Skipper:
    """Moves positions over values of a type."""

    def __init__(self, type: Type) -> None:
        self._steps = _merged(_steps(type))

    def ends(self, cursor: Cursor, start: Integers, limit: Integers) -> Integers:
        """The ends of the values that begin at `start`. An invalid value ends after all bytes of the cursor.

        `limit`: the ends of the messages. A value can end after its message: the caller compares.
        """
        return _moved(self._steps, cursor, start, limit)


class _Step(Protocol):
    def moved(self, cursor: Cursor, position: Integers, limit: Integers) -> Integers:
        """The positions after the values at these. They may be after all bytes; those that are remain there."""


def _moved(steps: Sequence[_Step], cursor: Cursor, position: Integers, limit: Integers) -> Integers:
    for step in steps:
        position = step.moved(cursor, position, limit)
    return position


@dataclass(frozen=True)
class _Sized:
    """Values that have the same number of bytes."""

    size: int

    def moved(self, cursor: Cursor, position: Integers, limit: Integers) -> Integers:
        return position + self.size


class _Long:
    def moved(self, cursor: Cursor, position: Integers, limit: Integers) -> Integers:
        return cursor.after_longs(position)


class _Bytes:
    """A length and as many bytes."""

    def moved(self, cursor: Cursor, position: Integers, limit: Integers) -> Integers:
        lengths, start = cursor.longs_at(position)
        beyond = cursor.size + 1
        wrong = (lengths < 0) | (lengths > cursor.size)
        return np.where(wrong, beyond, start + lengths) if wrong.any() else start + lengths


@dataclass(frozen=True)
class _Branches:
    """The number of a branch of a union, and a value of this branch."""

    branches: Sequence[Sequence[_Step]]

    def moved(self, cursor: Cursor, position: Integers, limit: Integers) -> Integers:
        common = cursor.common_long_at(position)
        if common is not None and 0 <= common < len(self.branches):
            return _moved(self.branches[common], cursor, position + 1, limit)
        index, position = cursor.longs_at(position)
        for number, steps in enumerate(self.branches):
            rows = np.flatnonzero(index == number) if steps else ()
            if len(rows):
                position[rows] = _moved(steps, cursor, position[rows], limit[rows])
        wrong = (index < 0) | (index >= len(self.branches))
        if wrong.any():
            position[wrong] = cursor.size + 1
        return position


@dataclass(frozen=True)
class _Nested:
    """Arrays and maps, which are read one by one."""

    type: Type

    def moved(self, cursor: Cursor, position: Integers, limit: Integers) -> Integers:
        found = position.copy()
        for row, (start, end) in enumerate(zip(position.tolist(), limit.tolist(), strict=True)):
            reader = PlainReader(cursor.data[start:end].tobytes())
            try:
                reader.read(self.type)
                found[row] = start + reader.position
            except DecodeError:
                found[row] = cursor.size + 1
        return found


def _steps(type: Type) -> Iterator[_Step]:
    match type:
        case Primitive("int" | "long") | Enum():
            yield _Long()
        case Primitive("bytes" | "string"):
            yield _Bytes()
        case Primitive(name):
            yield _Sized(_SIZES[name])
        case Fixed(_, size):
            yield _Sized(size)
        case Record(_, fields):
            for field in fields:
                yield from _steps(field.type)
        case Union(branches):
            yield _Branches([_merged(_steps(branch)) for branch in branches])
        case Array() | Map():
            yield _Nested(type)


def _merged(steps: Iterator[_Step]) -> list[_Step]:
    """The steps, with one for adjacent values of known sizes, and none for values without bytes."""
    found: list[_Step] = []
    for step in steps:
        if isinstance(step, _Sized) and found and isinstance(last := found[-1], _Sized):
            found[-1] = _Sized(last.size + step.size)
        elif step != _Sized(0):
            found.append(step)
    return found
