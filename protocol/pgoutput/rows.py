"""The messages of `pgoutput` that change rows of one relation, many at a time: INSERT, UPDATE and DELETE.

    I relation            N tuple
    U relation [K|O tuple] N tuple      K: the key of the old row, only if it changed; O: the old row
    D relation  K|O tuple
    tuple: the number of columns, then for each n (NULL), u (a TOASTed value that did not change) or t length text

`decode` walks through all messages at once, one column after the other: the work per row is done by numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.columnar.buffers import starts_of
from protocol.pgoutput import BadMessage, BadText
from protocol.pgoutput.messages import DELETE, INSERT, UPDATE

Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NEW, _KEY, _OLD = ord("N"), ord("K"), ord("O")
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_NO_TEXTS = pa.array([], pa.string())
_SHIFTS = np.array([24, 16, 8, 0], np.int64)
_LARGE_BYTES = 256
"""Texts of this average length are copied one by one, because an index of their bytes has eight times their size."""


@dataclass(frozen=True, slots=True)
class Tuples:
    """The tuples of those messages that have one.

    `messages`: their numbers, ascending. `columns`: the texts of each column; null for NULL and for a value that was
    not sent. `unchanged`: for each column, where the value did not change and was not sent; None if nowhere.
    """

    messages: Positions
    columns: tuple[pa.Array, ...]
    unchanged: tuple[Mask | None, ...]


@dataclass(frozen=True, slots=True)
class RowMessages:
    """Changes of one relation in the order of the messages.

    `kinds`: INSERT, UPDATE or DELETE. `new`: of INSERT and UPDATE. `keys`, `old`: of DELETE and UPDATE, the old keys
    (only the columns of the replica identity are set) and the old rows.
    """

    kinds: NDArray[np.uint8]
    new: Tuples
    keys: Tuples
    old: Tuples


def relations_of(data: NDArray[np.uint8], starts: Positions) -> Positions:
    """The relation's id of each message, which begin at `starts` in `data`. BadMessage if one is too short."""
    return _uint32(data, starts + 1)


def decode(data: NDArray[np.uint8], starts: Positions, ends: Positions, width: int) -> RowMessages:
    """Decodes messages `data[start:end]` of one relation with `width` columns.

    The texts are UTF-8, or BadText is raised. BadMessage if a message is malformed, ends early or has another width.
    Takes memory in proportion to the size of the messages, even if their lengths are not true.
    """
    kinds = _bytes(data, starts)
    if not ((kinds == INSERT) | (kinds == UPDATE) | (kinds == DELETE)).all():
        raise BadMessage("a message does not change rows")
    markers = _bytes(data, starts + 5)
    has_key, has_old = markers == _KEY, markers == _OLD
    before = has_key | has_old
    if (before & (kinds == INSERT)).any() or (~before & (kinds == DELETE)).any():
        raise BadMessage("the old row of an INSERT, or a DELETE without an old row")
    at = starts + 6  # where the next tuple begins
    keys, at = _tuples(data, np.flatnonzero(has_key), at, ends, width)
    old, at = _tuples(data, np.flatnonzero(has_old), at, ends, width)
    again = np.flatnonzero(before & (kinds == UPDATE))
    markers[again] = _bytes(data, at[again])
    at[again] += 1
    after = kinds != DELETE
    if (markers[after] != _NEW).any():
        raise BadMessage("the new row is missing")
    new, at = _tuples(data, np.flatnonzero(after), at, ends, width)
    if (at != ends).any():
        raise BadMessage("a message is longer or shorter than its tuples")
    return RowMessages(kinds, new, keys, old)


def _tuples(
    data: NDArray[np.uint8], messages: Positions, at: Positions, ends: Positions, width: int
) -> tuple[Tuples, Positions]:
    """The tuples of these messages, which begin at `at[messages]`; and `at` with the ends of these tuples.

    BadMessage if one of the tuples ends after its message.
    """
    if not len(messages):
        return Tuples(messages, (_NO_TEXTS,) * width, (None,) * width), at
    position, last = at[messages], ends[messages]
    if (_bytes(data, position).astype(np.int64) << 8 | _bytes(data, position + 1) != width).any():
        raise BadMessage(f"a tuple does not have {width} columns")
    position = position + 2
    columns: list[pa.Array] = []
    unchanged: list[Mask | None] = []
    for _ in range(width):
        kinds = _bytes(data, position)
        position = position + 1
        is_text = kinds == _TEXT
        is_unchanged = kinds == _UNCHANGED
        if is_text.all():
            lengths = _uint32(data, position)
            first = position + 4
            position = first + lengths
        else:
            if not (is_text | is_unchanged | (kinds == _NULL)).all():
                raise BadMessage("a value is neither text nor NULL nor unchanged")
            lengths = np.zeros(len(messages), np.int64)
            lengths[is_text] = _uint32(data, position[is_text])
            first = position + 4
            position = np.where(is_text, first + lengths, position)
        if (position > last).any():
            raise BadMessage("a value ends after its message")
        columns.append(_texts(data, first, lengths, is_text))
        unchanged.append(is_unchanged if is_unchanged.any() else None)
    following = at.copy()
    following[messages] = position
    return Tuples(messages, tuple(columns), tuple(unchanged)), following


def _texts(data: NDArray[np.uint8], first: Positions, lengths: Positions, valid: Mask) -> pa.Array:
    """The texts `data[first:first + length]`, which do not overlap, as a string array, null where not `valid`."""
    if int(lengths.sum()) > np.iinfo(np.int32).max:
        raise BadMessage("the values of a column are too long")
    offsets = starts_of(lengths)
    content: NDArray[np.uint8] | bytes
    if offsets[-1] > _LARGE_BYTES * len(first):
        view = data.data
        content = b"".join([view[a:b] for a, b in zip(first.tolist(), (first + lengths).tolist(), strict=True)])
    else:
        index = np.arange(offsets[-1], dtype=np.int64)
        index += np.repeat(first - offsets[:-1], lengths)
        content = data[index]
    all_valid = bool(valid.all())
    bitmap = None if all_valid else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(content)]
    try:
        return pa.Array.from_buffers(pa.binary(), len(first), buffers).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise BadText(f"a value is not UTF-8: {error}") from None


def _bytes(data: NDArray[np.uint8], positions: Positions) -> NDArray[np.uint8]:
    try:
        return data[positions]
    except IndexError:
        raise BadMessage("a message ends early") from None


def _uint32(data: NDArray[np.uint8], positions: Positions) -> Positions:
    values: NDArray[np.int64] = (_bytes(data, positions[:, None] + np.arange(4)).astype(np.int64) << _SHIFTS).sum(
        axis=1
    )
    return values
