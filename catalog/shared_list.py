"""An immutable sequence to which an item is appended in constant time.

The sequence with the item shares its list with the sequence before it: each is a prefix of the list. Readers of the
shorter one never see the item. Appending to a sequence that is not the longest of its list copies it.

Thread safety: any thread may read. Two threads must not append at the same time.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class SharedList(Generic[T]):
    """Items, of which those of a list with the same first items are shared."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def appended(self, item: T) -> SharedList[T]:
        """Returns the sequence followed by an item."""
        longer: SharedList[T] = SharedList()
        longer._items = self._items if len(self._items) == self._length else self._items[: self._length]
        longer._items.append(item)
        longer._length = self._length + 1
        return longer

    def bisect_left(self, value: int, key: Callable[[T], int]) -> int:
        return bisect_left(self._items, value, hi=self._length, key=key)

    def bisect_right(self, value: int, key: Callable[[T], int]) -> int:
        return bisect_right(self._items, value, hi=self._length, key=key)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return itertools.islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple([self._items[at] for at in range(self._length)[index]])
        return self._items[range(self._length)[index]]
