"""Rounds the seconds of Arrow values, as for columns of type timestamp(n), time(n) and interval(n)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from protocol.pgwire.datetime_output import INFINITY, MINUS_INFINITY

_EPOCH_2000_US = 946_684_800_000_000  # PostgreSQL rounds timestamps away from 2000-01-01
_NS = 1_000


def rounded_seconds(values: pa.Array, digits: int) -> pa.Array:
    """Times, timestamps, intervals, or arrays of them, with `digits` decimals of a second. Ties are rounded away from
    zero.
    """
    if digits >= 6:
        return values
    if pa.types.is_list(values.type):
        lists = pa.concat_arrays([values])  # has no offset, which `mask` does not allow
        elements = rounded_seconds(lists.values, digits)
        return pa.ListArray.from_arrays(lists.offsets, elements, type=lists.type, mask=lists.is_null())
    unit = 10 ** (6 - digits)
    if pa.types.is_interval(values.type):
        rows = [
            None
            if value is None
            else pa.MonthDayNano((value.months, value.days, _rounded_one(value.nanoseconds, unit)))
            for value in values.to_pylist()
        ]
        return pa.array(rows, values.type)
    origin = _EPOCH_2000_US if pa.types.is_timestamp(values.type) else 0
    given = np.asarray(values.cast(pa.int64()).fill_null(0))
    numbers = given - origin
    rounded = np.sign(numbers) * ((np.abs(numbers) + unit // 2) // unit * unit) + origin
    if origin:
        rounded = np.where((given == INFINITY) | (given == MINUS_INFINITY), given, rounded)
    return pa.array(rounded, mask=np.asarray(values.is_null())).cast(values.type)


def _rounded_one(nanoseconds: int, unit: int) -> int:
    microseconds = nanoseconds // _NS
    rounded = (abs(microseconds) + unit // 2) // unit * unit
    return (-rounded if microseconds < 0 else rounded) * _NS
