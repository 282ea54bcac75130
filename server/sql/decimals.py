"""Arithmetic of numerics inside Spark's 38 digits.

PostgreSQL's numeric grows as it needs to; Spark's DECIMAL(p, s) is fixed, and when a result would need more than 38
digits Spark silently keeps fewer decimals (`DecimalType.adjustPrecisionScale`). Here the result's scale is decided
first, by rules close to PostgreSQL's, and the operands are then cast so that Spark arrives at exactly that scale: what
does not fit raises (22003), nothing is rounded away behind our back.

Spark's result of p > 38 digits, s of them decimals, is DECIMAL(38, max(38 - (p - s), min(s, 6))).
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.pgwire.types import NUMERIC_PRECISION_MAX as MAX

DIVISION_SCALE = 16  # PostgreSQL gives at least 16 significant digits
PRODUCT_SCALE = 18


class Shape(NamedTuple):
    """DECIMAL(precision, scale)."""

    precision: int
    scale: int

    @property
    def whole(self) -> int:
        """Digits before the point."""
        return self.precision - self.scale

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


class Operation(NamedTuple):
    """The operands' shapes to cast to, and the result's."""

    left: Shape
    right: Shape
    result: Shape


def add(left: Shape, right: Shape) -> Operation:
    """Also subtraction: exact, of the larger scale."""
    scale = max(left.scale, right.scale)
    whole = max(left.whole, right.whole)
    if whole + scale + 1 <= MAX:
        return Operation(left, right, Shape(whole + scale + 1, scale))
    operand = Shape(MAX - 1, scale)
    return Operation(operand, operand, Shape(MAX, scale))


def multiply(left: Shape, right: Shape) -> Operation:
    """Exact while the product's digits fit; beyond that rounded to the larger of the scales, at least 18."""
    if left.precision + right.precision + 1 <= MAX:
        return Operation(left, right, Shape(left.precision + right.precision + 1, left.scale + right.scale))
    scale = max(left.scale, right.scale, min(left.scale + right.scale, PRODUCT_SCALE))
    room = MAX - scale - 1  # whole digits that both operands share
    right_whole = min(right.whole, room - min(left.whole, room - room // 2))
    left_whole = room - right_whole  # the sum must be exact for Spark to arrive at `scale`
    excess = left_whole + left.scale - MAX
    if excess > 0:
        left_whole, right_whole = left_whole - excess, right_whole + excess
    return Operation(
        Shape(left_whole + left.scale, left.scale),
        Shape(min(right_whole + right.scale, MAX), right.scale),
        Shape(MAX, scale),
    )


def divide(left: Shape, right: Shape) -> Operation:
    """Rounded to the larger of 16 and the scales. A divisor of more than 9 decimals is refused by its cast."""
    scale = max(DIVISION_SCALE, left.scale, right.scale)
    divisor = Shape(MAX, min(right.scale, 9))
    whole = MAX - scale - divisor.scale
    return Operation(Shape(min(whole + left.scale, MAX), left.scale), divisor, Shape(MAX, scale))


def remainder(left: Shape, right: Shape) -> Operation:
    """Exact, of the larger scale."""
    scale = max(left.scale, right.scale)
    return Operation(left, right, Shape(min(left.whole, right.whole) + scale, scale))
