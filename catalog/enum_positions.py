"""Positions of the labels of an enumerated type: strings of hexadecimal digits that sort by bytes.

The first eight digits are a whole number, the others a fraction. A label at either end gets the next whole number, and
one between two labels a fraction, so there is always a position, and no other label changes its own.
"""

from __future__ import annotations

from collections.abc import Iterator

_WHOLE = 8
_FIRST = 1 << 31


def first_positions(count: int) -> tuple[str, ...]:
    """The positions of the labels of a new type."""
    return tuple(f"{_FIRST + number:0{_WHOLE}x}" for number in range(count))


def position_between(low: str | None, high: str | None) -> str:
    """A short position after `low` and before `high`. None: the end of the list of labels."""
    if low is None and high is None:
        return first_positions(1)[0]
    if high is None:
        assert low is not None
        return f"{int(low[:_WHOLE], 16) + 1:0{_WHOLE}x}"
    if low is None:
        return f"{int(high[:_WHOLE], 16) - 1:0{_WHOLE}x}"
    return next(position for position in _middles(low, high) if low < position < high)


def _middles(low: str, high: str) -> Iterator[str]:
    """The middle of two positions, rounded to an increasing number of digits."""
    digits = _WHOLE
    while True:
        ends = [int(end[:digits].ljust(digits, "0"), 16) for end in (low, high)]
        middle = f"{(ends[0] + ends[1] + 1) // 2:0{digits}x}"
        yield middle[:_WHOLE] + middle[_WHOLE:].rstrip("0")
        digits += 1
