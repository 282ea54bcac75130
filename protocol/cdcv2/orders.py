"""Partial orders of times, and antichains: the minimal elements of a set of times, which are its frontier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Order(Protocol[T]):
    """A partial order in which two times have a least upper bound, their join."""

    def less_equal(self, one: T, other: T) -> bool:
        """Whether `one <= other`."""
        ...

    def join(self, one: T, other: T) -> T:
        """The least time that is greater than or equal to both."""
        ...


class Total:
    """Integers."""

    def less_equal(self, one: int, other: int) -> bool:
        return one <= other

    def join(self, one: int, other: int) -> int:
        return max(one, other)


class Product:
    """Tuples of integers of the same length. A tuple is less than or equal to another if all its parts are."""

    def less_equal(self, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        return all(a <= b for a, b in zip(one, other, strict=True))

    def join(self, one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(max(a, b) for a, b in zip(one, other, strict=True))


def is_beyond(order: Order[T], frontier: Iterable[T], time: T) -> bool:
    """Whether a time is greater than or equal to an element of a frontier."""
    return any(order.less_equal(element, time) for element in frontier)


def minimal(order: Order[T], times: Sequence[T]) -> tuple[T, ...]:
    """The minimal elements, each once, in the order of their first appearance."""
    found: list[T] = []
    for time in times:
        if not is_beyond(order, found, time):
            found = [other for other in found if not order.less_equal(time, other)]
            found.append(time)
    return tuple(found)
