"""`SharedList` is a tuple to which items are appended in constant time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.shared_list import SharedList

NUMBERS = st.lists(st.integers(0, 9), max_size=6)


@given(NUMBERS, st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), max_size=20))
def test_each_sequence_keeps_its_items(first: list[int], appended: list[tuple[int, int]]) -> None:
    """Items are appended to any of the earlier sequences."""
    lists, tuples = [SharedList(first)], [tuple(first)]
    for at, item in appended:
        lists.append(lists[at % len(lists)].appended(item))
        tuples.append((*tuples[at % len(tuples)], item))
    assert [tuple(found) for found in lists] == tuples
    assert list(map(len, lists)) == list(map(len, tuples))


@given(NUMBERS, NUMBERS, st.slices(8), st.integers(-9, 9), st.integers(0, 9))
def test_items_and_slices_are_those_of_a_tuple(
    first: list[int], later: list[int], part: slice, index: int, value: int
) -> None:
    expected = tuple(sorted(first))
    found = longer = SharedList(expected)
    for item in later:
        longer = longer.appended(item)
    assert found[part] == expected[part]
    if -len(expected) <= index < len(expected):
        assert found[index] == expected[index]
    else:
        with pytest.raises(IndexError):
            found[index]
    assert found.bisect_left(value, key=int) == bisect_left(expected, value)
    assert found.bisect_right(value, key=int) == bisect_right(expected, value)


def test_appending_to_the_longest_sequence_copies_nothing() -> None:
    longest = SharedList([1])
    items = longest._items
    for number in range(100):
        longest = longest.appended(number)
    assert longest._items is items
    assert longest.appended(0)._items is items
    assert longest.appended(1)._items is not items
