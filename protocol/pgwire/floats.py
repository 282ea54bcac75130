"""Text of float4 and float8 as PostgreSQL prints it (extra_float_digits = 1): the shortest digits that round-trip.

PostgreSQL's Ryu (src/common/d2s.c, f2s.c) differs from Python's repr and Arrow's cast in two ways. It uses exponents
from 1e15 (float4: 1e6) and below 1e-4. It never prints digits exactly half-way between two floats, although they would
be read as the even one: 1e23 is printed as 9.999999999999999e+22.
A half-way point is short enough to matter only where neighbouring floats differ by at least 1. Ordinary values
are therefore not checked; for the others the check is exact (integer arithmetic).
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.buffers import fixed_values, patched

_CAST = pc.CastOptions.unsafe(pa.string())
_EXACT8, _EXACT4 = 2.0**53, 2.0**24  # beyond these, neighbouring floats differ by whole numbers
_SPECIAL = {math.inf: "Infinity", -math.inf: "-Infinity"}


def float8_text(value: float) -> str:
    """One float8 as PostgreSQL prints it."""
    size = abs(value)
    if 1e-4 <= size < 1e15 or size == 0:
        text = repr(value)
        return text[:-2] if text.endswith(".0") else text
    if not math.isfinite(value):
        return _SPECIAL.get(value, "NaN")
    # Python's exponent form equals PostgreSQL's, but Python uses it only from 1e16.
    text = repr(value) if not 1e15 <= size < 1e16 else _scientific(repr(value))
    if _EXACT8 < size < 1e41:  # an odd 54-bit half-way point has at most 23 factors of five
        return _off_boundary(value, text, math.nextafter(size, math.inf), math.nextafter(size, 0))
    return text


def _float4_text(value: float, shortest: str) -> str:
    """One float4 as PostgreSQL prints it. `shortest`: the shortest digits that round-trip, in any notation."""
    if not math.isfinite(value):
        return _SPECIAL.get(value, "NaN")
    decimal, size = float(shortest), abs(value)  # exact enough: it has at most nine digits
    if 1e-4 <= size < 1e6 or size == 0:
        return float8_text(decimal)
    text = _exponent_form(f"{decimal:.8e}")
    if _EXACT4 < size < 1e20:
        single = np.abs(np.float32(value))
        above, below = (float(np.nextafter(single, np.float32(to))) for to in (np.inf, 0))
        return _off_boundary(value, text, above, below)
    return text


def _scientific(plain: str) -> str:
    """Converts a number >= 1 (absolute value) from positional notation to the exponent form."""
    sign = "-" if plain[0] == "-" else ""
    whole, _, fraction = plain.lstrip("-").partition(".")
    return sign + _exponent_form(f"{whole[0]}.{whole[1:]}{fraction}e+{len(whole) - 1:02d}")


def _exponent_form(text: str) -> str:
    """Python's %e form without the mantissa's trailing zeros."""
    mantissa, exponent = text.split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"


def _off_boundary(value: float, text: str, above: float, below: float) -> str:
    """`text`, unless it is half-way to a neighbouring float: then the shortest, nearest digits inside the interval.

    `text` is the whole number `value` in exponent form. `above` and `below` are the neighbours of its absolute value.
    """
    mantissa, exponent = text.lstrip("-").split("e")
    digits = mantissa.replace(".", "")
    printed, exact = int(digits) * 10 ** (int(exponent) + 1 - len(digits)), abs(int(value))
    low, high = exact + int(below), exact + int(above)  # both doubled
    if 2 * printed not in (low, high):
        return text
    unit = 10 ** len(str(exact))
    while True:
        unit //= 10
        floor = exact - exact % unit
        inside = [c for c in (floor, floor + unit) if low < 2 * c < high]
        if inside:
            nearest = min(inside, key=lambda c: (abs(c - exact), c // unit % 2))
            return _scientific(str(nearest if value > 0 else -nearest))


def float8_column(array: pa.Array) -> pa.Array:
    """The text of a float64 array with at least one row; nulls stay null."""
    values = fixed_values(array, np.float64)
    text = pc.cast(array, options=_CAST)
    sizes = np.abs(values)
    if sizes.min() >= 1e-4 and sizes.max() < 1e10:
        return text
    odd = ~(((sizes >= 1e-4) & (sizes < 1e10)) | (sizes == 0))
    if not odd.any():
        return text
    whole = np.where(odd & (sizes < 1e15), values, 0.5)
    is_whole = whole == np.rint(whole)
    is_whole &= sizes >= 1e10
    if is_whole.any():
        integers = pc.cast(pa.array(np.where(is_whole, values, 0).astype(np.int64)), options=_CAST)
        text = pc.if_else(pa.array(is_whole), integers, text)
        odd &= ~is_whole
    return patched(array, text, odd, lambda rows: [float8_text(value) for value in values[rows].tolist()])


def float4_column(array: pa.Array) -> pa.Array:
    """The text of a float32 array with at least one row; nulls stay null."""
    values, text = fixed_values(array, np.float32), pc.cast(array, options=_CAST)
    sizes = np.abs(values)
    odd = ~(((sizes >= np.float32(1e-4)) & (sizes < np.float32(1e6))) | (sizes == 0))

    def shown(rows: NDArray[np.intp]) -> list[str]:
        return list(map(_float4_text, values[rows].tolist(), text.take(pa.array(rows)).to_pylist()))

    return patched(array, text, odd, shown)
