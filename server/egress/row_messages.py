"""Encodes the keys and values of many messages at a time, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog.source_definition import Envelope
from protocol.avro.encoder import EncodedColumn, encoded_records
from protocol.cdcv2.json_form import json_objects
from protocol.columnar.hashing import key_hashes
from server.egress.net_changes import NONE, Pairs

_JOIN = pc.JoinOptions("emit_null", "")
_NOTHING = pa.scalar(b"", pa.binary())

Rows = NDArray[np.int64]


class RecordForm(Protocol):
    """Encodes rows. The form's columns are the first columns of `rows`."""

    def records(self, rows: pa.Table) -> pa.BinaryArray:
        """Returns one message for each row."""
        ...

    def images(self, rows: pa.Table, before: Rows, after: Rows) -> pa.BinaryArray:
        """Returns messages with the fields `before` and `after`. The arguments are row numbers, or `NONE` for null."""
        ...


class AvroForm:
    """Avro records. Each message begins with `prefix`."""

    def __init__(self, columns: Sequence[EncodedColumn], prefix: bytes) -> None:
        self._columns = columns
        self._prefix = prefix

    def records(self, rows: pa.Table) -> pa.BinaryArray:
        return _joined(self._prefix, self._encoded(rows))

    def images(self, rows: pa.Table, before: Rows, after: Rows) -> pa.BinaryArray:
        images = [_optional(self._encoded, rows, image, b"\x02", b"\x00") for image in (before, after)]
        return _joined(self._prefix, *images)

    def _encoded(self, rows: pa.Table) -> pa.BinaryArray:
        return encoded_records(self._columns, rows)


class JsonForm:
    """JSON objects. Values are encoded as in `protocol.cdcv2.json_form`."""

    def __init__(self, columns: Sequence[EncodedColumn]) -> None:
        self._columns = columns

    def records(self, rows: pa.Table) -> pa.BinaryArray:
        return json_objects(self._columns, rows).view(pa.binary())

    def images(self, rows: pa.Table, before: Rows, after: Rows) -> pa.BinaryArray:
        old, new = (_optional(self.records, rows, image, b"", b"null") for image in (before, after))
        return _joined(b'{"before":', old, b',"after":', new, b"}")


@dataclass(frozen=True)
class Encoder:
    """Encodes pairs of old and new rows. `key`: the positions of the key's columns; None if messages have no keys."""

    envelope: Envelope
    key: tuple[int, ...] | None
    key_form: RecordForm | None
    value_form: RecordForm

    def keys(self, rows: pa.Table, pairs: Pairs) -> pa.BinaryArray | None:
        """The keys of the messages; None if they have no keys."""
        if self.key is None or self.key_form is None:
            return None
        return self.key_form.records(rows.select(list(self.key)).take(pa.array(either(pairs))))

    def values(self, rows: pa.Table, pairs: Pairs) -> pa.BinaryArray:
        """The values of the messages. With ENVELOPE UPSERT, NULL for a row that is deleted."""
        if self.envelope is Envelope.DEBEZIUM:
            return self.value_form.images(rows, pairs.before, pairs.after)
        return _taken(self.value_form.records, rows, pairs.after)

    def partitions(self, rows: pa.Table, pairs: Pairs, count: int) -> NDArray[np.int64] | None:
        """The partitions of messages without keys, the same for equal rows. None: the producer chooses them."""
        if self.key is not None or count == 1:
            return None
        hashes = key_hashes(rows.take(pa.array(either(pairs))), rows.column_names)
        return (hashes % np.uint64(count)).astype(np.int64)


def either(pairs: Pairs) -> Rows:
    """The row of each message: the new row of a pair, or the old one if there is no new one."""
    return np.where(pairs.after == NONE, pairs.before, pairs.after)


def _taken(encode: Any, rows: pa.Table, numbers: Rows) -> pa.BinaryArray:
    """The encoded rows with these numbers; NULL for `NONE`."""
    found = numbers != NONE
    if not found.any():
        return pa.nulls(len(numbers), pa.binary())
    encoded = encode(rows.take(pa.array(numbers[found])).combine_chunks())
    return encoded if found.all() else encoded.take(pa.array(np.cumsum(found) - 1, mask=~found))


def _optional(encode: Any, rows: pa.Table, numbers: Rows, some: bytes, none: bytes) -> pa.BinaryArray:
    """The encoded rows with these numbers, each prefixed with `some`; `none` for `NONE`."""
    return _joined(some, _taken(encode, rows, numbers)).fill_null(none)


def _joined(*parts: pa.BinaryArray | bytes) -> pa.BinaryArray:
    """The row-wise concatenation; NULL if one of the parts is NULL."""
    items = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.call_function("binary_join_element_wise", [*items, _NOTHING], _JOIN)
