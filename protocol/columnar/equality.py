"""Equality of rows, as the log and CDCv2 define it: equal bytes; NULL = NULL; all NaN are equal; 0.0 is not -0.0."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from protocol.columnar.buffers import fixed_values


def equal_rows(left: pa.Table, right: pa.Table) -> NDArray[np.bool_]:
    """A mask of the rows that are equal in two tables with equal schemas and numbers of rows."""
    found = np.ones(left.num_rows, np.bool_)
    if not len(found):
        return found
    for one, other in zip(left.columns, right.columns, strict=True):
        found &= _equal_values(one.combine_chunks(), other.combine_chunks())
    return found


def _equal_values(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    if pa.types.is_nested(left.type):  # the codes of lists are comparable only within one array
        codes = comparable(pa.concat_arrays([left, right])).dictionary_encode(null_encoding="encode").indices
        numbers = codes.to_numpy()
        same: NDArray[np.bool_] = numbers[: len(left)] == numbers[len(left) :]
        return same
    if pa.types.is_interval(left.type):  # Arrow cannot compare them
        parts = [fixed_values(array, "V16").view(np.uint64).reshape(-1, 2) for array in (left, right)]
        equal = pa.array((parts[0] == parts[1]).all(axis=1), mask=np.asarray(pc.or_(left.is_null(), right.is_null())))
    else:
        equal = pc.equal(comparable(left), comparable(right))
    if equal.null_count:
        equal = pc.or_(equal.fill_null(False), pc.and_(left.is_null(), right.is_null()))
    return np.asarray(equal)


def comparable(column: pa.Array) -> pa.Array:
    """An array with equal values exactly where `column` has equal values, of a type that Arrow can group."""
    type = column.type
    if pa.types.is_floating(type):
        one_nan = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), type), column)
        return one_nan.view(pa.int64() if pa.types.is_float64(type) else pa.int32())
    if pa.types.is_list(type):
        return _list_codes(column)
    return column


def _list_codes(column: pa.ListArray) -> pa.Array:
    """Each list as the bytes of its elements' dictionary codes: equal lists have equal bytes; NULL equals NULL."""
    offsets = column.offsets.to_numpy()
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    codes = comparable(values).dictionary_encode(null_encoding="encode").indices
    data = np.ascontiguousarray(codes.to_numpy().astype(np.int32))
    starts = ((offsets - offsets[0]) * 4).astype(np.int64)
    bytes_ = pa.Array.from_buffers(pa.large_binary(), len(column), [None, pa.py_buffer(starts), pa.py_buffer(data)])
    if column.null_count == 0:
        return bytes_
    return pc.if_else(column.is_valid(), bytes_, pa.scalar(None, pa.large_binary()))
