"""The values of arrays: lists, nested once for each dimension after the first.

All lists of one dimension have the same length, and no list is NULL. An empty array is `[]`, whatever its dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType, with_dimensions


def mapped(function: Callable[[Any], Any], value: Sequence[Any], dimensions: int) -> list[Any]:
    """The array with `function` applied to every element, also to NULL."""
    if dimensions == 1:
        return list(map(function, value))
    return [mapped(function, item, dimensions - 1) for item in value]


def flattened(value: Sequence[Any], dimensions: int) -> list[Any]:
    """The elements in the order in which PostgreSQL stores them: the last subscript varies fastest."""
    flat = list(value)
    for _ in range(dimensions - 1):
        flat = [item for part in flat for item in part]
    return flat


def sizes(value: Sequence[Any], dimensions: int) -> tuple[int, ...]:
    """The length of each dimension; empty for an empty array, which has no dimensions."""
    if not value:
        return ()
    return (len(value),) if dimensions == 1 else (len(value), *sizes(value[0], dimensions - 1))


def nested(flat: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
    """The array with these elements and the length of each dimension."""
    rest = list(flat)
    for length in reversed(lengths[1:]):
        rest = [rest[start : start + length] for start in range(0, len(rest), length)]
    return rest


def wrong_dimensions(found: int, type: PgType) -> PgError:
    """Error 0A000 for an array whose number of dimensions is not that of the type that it should have."""
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"an array of {found} dimension{'s' * (found > 1)} as a value of type {type.declaration} is not supported",
        hint=f"Declare the type as {with_dimensions(type, found).declaration}: "
        "the number of dimensions is a part of the type.",
    )
