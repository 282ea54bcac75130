"""Sizes in bytes as text, and the reverse (chapter 9.27). Ports of src/backend/utils/adt/dbsize.c, version 16."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import exact_numeric
from protocol.pgwire.types import PgType
from server.sql.casts import text_form
from server.sql.functions.arithmetic import in_range
from server.sql.functions.table import FUNCTIONS, row

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_UNIT_BITS = {"": 0, "b": 0} | {unit.lower(): 10 * number for number, unit in enumerate(_UNITS)}
_BYTES_END = 10 * 1024  # sizes from here on are shown in kB
_UNIT_END = 20 * 1024 - 1  # from so many half units on, the next unit is used
_SIZE = re.compile(r"[ \t\n\v\f\r]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[ \t\n\v\f\r]*+(.*)",
                   re.ASCII | re.DOTALL)  # fmt: skip
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, rounding=ROUND_HALF_UP)


def _size_pretty(size: int | Decimal, types: Sequence[PgType]) -> str:
    """The size in the smallest unit in which it has at most five digits; halves are rounded up."""
    value = Decimal(size)
    if value.copy_abs() < _BYTES_END:
        return f"{text_form(types[0], size)} bytes"
    halves, exponent = int(value.copy_abs()) >> 9, 1  # of the unit, truncated
    while halves >= _UNIT_END and exponent + 1 < len(_UNITS):
        halves, exponent = halves >> 10, exponent + 1
    return f"{'-' if size < 0 else ''}{(halves + 1) // 2} {_UNITS[exponent]}"


def _size_bytes(text: str) -> int:
    """The number of bytes in a text such as `12 MB`, rounded. 22023, 22003."""
    match = _SIZE.fullmatch(text)
    unit = match[2].rstrip(" \t\n\v\f\r") if match is not None else ""
    bits = _UNIT_BITS.get(unit.lower())
    if match is None or bits is None:
        raise PgError(
            SqlState.INVALID_PARAMETER_VALUE,
            f'invalid size: "{text}"',
            detail=None if match is None else f'Invalid size unit: "{unit}".',
            hint=None if match is None else 'Valid units are "bytes", "B", "kB", "MB", "GB", "TB", and "PB".',
        )
    size = _EXACT.multiply(exact_numeric(match[1]), Decimal(1 << bits))
    return in_range("int8", int(size.quantize(Decimal(1), context=_EXACT)))


for _type in ("int4", "int8"):
    row(FUNCTIONS, "pg_size_pretty", _type, "text", typed=True, python=_size_pretty)
row(FUNCTIONS, "pg_size_pretty", "numeric", "text", typed=True, python=_size_pretty)
row(FUNCTIONS, "pg_size_bytes", "text", "int8", python=_size_bytes)
