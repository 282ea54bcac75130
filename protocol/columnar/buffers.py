"""Views of Arrow buffers as numpy arrays, and Arrow arrays built from new buffers. Arrays may be slices.

Arrays must have at least one row: Arrow may omit the buffers of an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int32]

_STRING = pa.string()
_EMIT_NULL = pc.JoinOptions("emit_null", "")
_NOTHING = pa.scalar("")


def fixed_values(array: pa.Array, dtype: Any) -> NDArray[Any]:
    """The values buffer of a fixed-width array, without a copy. Values at nulls are arbitrary."""
    dtype = np.dtype(dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def offsets_of(array: pa.Array) -> Offsets:
    """The n + 1 offsets of a string, binary or list array, without a copy."""
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def string_parts(array: pa.Array) -> tuple[Offsets, Bytes]:
    """The offsets of a string or binary array, and the bytes that they index; without a copy."""
    values = array.buffers()[2]
    return offsets_of(array), np.frombuffer(values, np.uint8) if values is not None else np.empty(0, np.uint8)


def starts_of(lengths: NDArray[Any]) -> Offsets:
    """Converts n lengths to n + 1 offsets."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def string_array(offsets: Offsets, values: Any, like: pa.Array) -> pa.Array:
    """A string array over new buffers with the nulls of `like`."""
    buffers = [validity(like), pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(_STRING, len(like), buffers, like.null_count)


def validity(array: pa.Array) -> pa.Buffer | None:
    """The validity bitmap, starting at bit 0; None if the array has no nulls."""
    if not array.null_count:
        return None
    return pa.py_buffer(np.packbits(np.asarray(array.is_valid()), bitorder="little"))


def joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The row-wise concatenation of string parts; null if one of the parts is null."""
    return pc.call_function("binary_join_element_wise", [*parts, _NOTHING], _EMIT_NULL)


def patched(
    array: pa.Array, text: pa.Array, odd: NDArray[np.bool_], of: Callable[[NDArray[np.intp]], list[str]]
) -> pa.Array:
    """`text` with some rows replaced: those in the mask `odd` that are not null in `array`.

    `of` maps row numbers to the replacement strings.
    """
    if array.null_count:
        odd = odd & np.asarray(array.is_valid())
    if not odd.any():
        return text
    return pc.replace_with_mask(text, pa.array(odd), pa.array(of(np.flatnonzero(odd)), _STRING))
