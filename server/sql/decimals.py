"""Precision and scale of numeric arithmetic within Spark's 38 digits.

PostgreSQL's numeric has no fixed precision, Spark's DECIMAL(p, s) does. If a result needs p > 38 digits, Spark silently
reduces its scale (`DecimalType.adjustPrecisionScale`): it becomes DECIMAL(38, max(38 - (p - s), min(s, 6))).

The functions here first choose the result's scale, by rules close to PostgreSQL's. They then choose the types to which
the operands are cast, so that Spark's result has exactly this scale. Values that do not fit raise 22003; nothing is
rounded silently.
"""

from __future__ import annotations

from decimal import Context, Decimal
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
        """The number of digits before the decimal point."""
        return self.precision - self.scale

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


class Operation(NamedTuple):
    """The shapes that the operands are cast to, and the shape of the result."""

    left: Shape
    right: Shape
    result: Shape


def add(left: Shape, right: Shape) -> Operation:
    """Addition and subtraction. The result is exact and has the larger scale."""
    scale = max(left.scale, right.scale)
    whole = max(left.whole, right.whole)
    if whole + scale + 1 <= MAX:
        return Operation(left, right, Shape(whole + scale + 1, scale))
    operand = Shape(MAX - 1, scale)
    return Operation(operand, operand, Shape(MAX, scale))


def multiply(left: Shape, right: Shape) -> Operation:
    """Multiplication. The result is exact if its digits fit in 38.

    Otherwise it is rounded to the largest of the operands' scales and min(sum of the scales, PRODUCT_SCALE).
    """
    if left.precision + right.precision + 1 <= MAX:
        return Operation(left, right, Shape(left.precision + right.precision + 1, left.scale + right.scale))
    scale = max(left.scale, right.scale, min(left.scale + right.scale, PRODUCT_SCALE))
    room = MAX - scale - 1  # the digits before the point that both operands have together
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
    """Division. The result is rounded to the largest of DIVISION_SCALE and the operands' scales.

    The divisor is cast to at most 9 decimals. The caller must divide in another way if this changes its value.
    """
    scale = max(DIVISION_SCALE, left.scale, right.scale)
    divisor = Shape(MAX, min(right.scale, 9))
    whole = MAX - scale - divisor.scale
    return Operation(Shape(min(whole + left.scale, MAX), left.scale), divisor, Shape(MAX, scale))


def remainder(left: Shape, right: Shape) -> Operation:
    """The remainder. The result is exact and has the larger scale."""
    scale = max(left.scale, right.scale)
    return Operation(left, right, Shape(min(left.whole, right.whole) + scale, scale))


_EXACT = Context(prec=400)


def division_scale(left: Decimal, right: Decimal) -> int:
    """The scale of PostgreSQL's quotient (select_div_scale): 16 significant digits, at least the operands' scale."""
    weights = [number.adjusted() // 4 for number in (left, right)]
    groups = [abs(int(n.scaleb(-4 * w, _EXACT))) for n, w in zip((left, right), weights, strict=True)]
    weight = weights[0] - weights[1] - (groups[0] <= groups[1])
    return max(16 - 4 * weight, *(-int(n.as_tuple().exponent) for n in (left, right)), 0)
