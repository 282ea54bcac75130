"""Messages in Avro, with the names of Materialize's schema: a union of an array of updates and a progress record.

An array's blocks are written with their sizes in bytes, so that a reader finds the blocks without decoding their items,
and decodes the items of all blocks together. Arrays of other writers may have no sizes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.avro.columns import AvroColumn, columns_of
from protocol.avro.cursor import Cursor
from protocol.avro.decoder import Decoder, Wanted
from protocol.avro.encoder import EncodedColumn, encoded_records, fields_of
from protocol.avro.plain import DecodeError, PlainReader
from protocol.avro.schema import Array, Primitive, Record, SchemaError, Type, Union, describe
from protocol.avro.skipper import Skipper
from protocol.avro.varints import decoded_varints, encoded_varints, varint_bytes
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.messages import DIFF, DIFF_FIELD, END, TIME, TIME_FIELD, MessageError, Progress, message_bounds
from protocol.columnar.buffers import string_parts
from protocol.pgwire.types import parse_type

NAMESPACE = "com.materialize.cdc"
PROGRESS_BRANCH = varint_bytes(1)
"""The first bytes of progress messages in the schema of `schema_text`: the branch of the union."""
BLOCK_UPDATES = 32  # updates of a block of its array
LANES_MIN = 8  # the blocks of fewer arrays, and the items of fewer blocks, are found one by one
_LONG = Primitive("long")
_LONGS = (_LONG, Primitive("int"))


# -- schema -----------------------------------------------------------------------------------------------------------


def schema_text(columns: Sequence[EncodedColumn]) -> str:
    """The schema of messages whose data has these columns. ValueError if Avro does not allow a name."""
    longs = {"type": "array", "items": "long"}
    data = {"type": "record", "name": "data", "fields": fields_of(columns)}
    update = {
        "type": "record",
        "name": "update",
        "namespace": NAMESPACE,
        "fields": [{"name": "data", "type": data}, {"name": "time", "type": "long"}, {"name": "diff", "type": "long"}],
    }
    count = {
        "type": "record",
        "name": "counts",
        "fields": [{"name": "time", "type": "long"}, {"name": "count", "type": "long"}],
    }
    progress = {
        "type": "record",
        "name": "progress",
        "namespace": NAMESPACE,
        "fields": [
            {"name": "lower", "type": longs},
            {"name": "upper", "type": longs},
            {"name": "counts", "type": {"type": "array", "items": count}},
        ],
    }
    return json.dumps([{"type": "array", "items": update}, progress])


@dataclass(frozen=True)
class CdcSchema:
    """A schema of messages. `updates`, `progress`: the branches of the union."""

    union: Union
    update: Record
    data: Record
    updates: int
    progress: int

    @classmethod
    def of(cls, type: Type) -> CdcSchema:
        """SchemaError if the type is not that of CDCv2's messages."""
        if not isinstance(type, Union) or len(type.branches) != 2:
            raise _other(f"it is not a union of two types but {describe(type)}")
        arrays = [at for at, branch in enumerate(type.branches) if isinstance(branch, Array)]
        if len(arrays) != 1:
            raise _other("it has no branch that is an array of updates")
        updates, progress = arrays[0], 1 - arrays[0]
        branch = type.branches[updates]
        update = branch.items if isinstance(branch, Array) else branch
        if not isinstance(update, Record) or {f.name for f in update.fields} != {"data", "time", "diff"}:
            raise _other("an update is not a record of data, time and diff")
        types = {field.name: field.type for field in update.fields}
        if types["time"] not in _LONGS or types["diff"] not in _LONGS:
            raise _other("time and diff of an update are not long")
        data = types["data"]
        if not isinstance(data, Record):
            raise _other("the data of an update is not a record")
        _check_progress(type.branches[progress])
        return cls(type, update, data, updates, progress)

    def columns(self) -> tuple[AvroColumn, ...]:
        """The columns of the data."""
        return columns_of(self.data)


def _check_progress(type: Type) -> None:
    expected = "lower, upper and counts"
    if not isinstance(type, Record) or [field.name for field in type.fields] != ["lower", "upper", "counts"]:
        raise _other(f"progress is not a record of {expected}")
    for field in type.fields:
        items = field.type.items if isinstance(field.type, Array) else None
        if field.name == "counts" and isinstance(items, Record):
            if [(f.name, f.type in _LONGS) for f in items.fields] != [("time", True), ("count", True)]:
                raise _other("counts of progress are not records of time and count")
        elif field.name == "counts" or items not in _LONGS:
            raise _other(f"{field.name} of progress is not the array that it should be")


def _other(reason: str) -> SchemaError:
    return SchemaError(f"schema is not that of CDCv2 messages: {reason}")


# -- reading ----------------------------------------------------------------------------------------------------------


class AvroDecoder:
    """Decodes messages of a writer's schema to the columns of a reader's. SchemaError if they do not match."""

    def __init__(self, writer: CdcSchema, reader: CdcSchema | None = None) -> None:
        reader = reader or writer
        columns = columns_of(reader.update)
        fields: dict[str, Any] = {name: tuple(c for c in columns if c.name == name) for name in ("time", "diff")}
        fields["data"] = Wanted.all_of(reader.data, ("data",))
        self._schema = writer
        self._decoder = Decoder(writer.update, Wanted(fields))
        self._skipper = Skipper(writer.update)
        self._data = [("data", column.name) for column in reader.columns()]
        types = [parse_type(column.meaning.type).arrow for column in reader.columns()]
        self.schema = pa.schema([*(pa.field(f"c{i}", t) for i, t in enumerate(types)), TIME_FIELD, DIFF_FIELD])
        """The schema of the updates."""

    def decode(self, messages: pa.BinaryArray, skip: int = 0) -> Decoded:
        """`skip`: the number of bytes before each message's value. NULL is an invalid message."""
        cursor = Cursor(messages, skip)
        branch = cursor.longs(None)
        cursor.fail(None, (cursor.position > cursor.end) | ~np.isin(branch, (0, 1)))
        arrays = np.flatnonzero(~cursor.failed & (branch == self._schema.updates))
        updates = self._updates(cursor, arrays)
        statements = []
        reasons: dict[int, str] = {}
        for row in np.flatnonzero(~cursor.failed & (branch == self._schema.progress)).tolist():
            begin, end = int(cursor.position[row]), int(cursor.end[row])
            try:
                statements.append(decoded_progress(cursor.data[begin:end].tobytes()))
            except MessageError as error:
                cursor.failed[row] = True
                reasons[row] = str(error)

        def reason(row: int) -> str:
            return reasons.get(row) or self._reason(messages[row].as_py(), skip)

        return Decoded(updates, statements, cursor.failed, reason)

    def _updates(self, cursor: Cursor, arrays: NDArray[np.intp]) -> pa.Table:
        """The updates of the arrays that begin at the positions of these messages. Marks the messages that fail."""
        owners, starts, ends = self._items(cursor, arrays)
        if not len(owners):
            return self.schema.empty_table()
        items = self._decoder.decode_at(cursor.over(starts, ends))
        times: NDArray[np.int64] = items.columns[("time",)].to_numpy()
        cursor.failed[owners[items.failed | (times < 0)]] = True
        columns = [items.columns[path] for path in (*self._data, ("time",), ("diff",))]
        updates = pa.table(columns, schema=self.schema)
        wrong = cursor.failed[owners]
        return updates.filter(pa.array(~wrong)) if wrong.any() else updates

    def _items(
        self, cursor: Cursor, arrays: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        """The message, begin and end of each item, in their order."""
        every, found = arrays, []
        blocks: list[tuple[NDArray[Any], ...]] = []  # of known size: message, begin, end, number of items
        while len(arrays) >= LANES_MIN:
            counts = cursor.longs(arrays)
            sized = counts < 0
            if sized.any():
                rows = arrays[sized]
                sizes = cursor.longs(rows)
                begin = cursor.advance(rows, np.maximum(sizes, -1))
                cursor.fail(rows, (sizes < 0) | (-counts[sized] > sizes) | (counts[sized] == np.iinfo(np.int64).min))
                good = ~cursor.failed[rows]
                blocks.append((rows[good], begin[good], (begin + sizes)[good], -counts[sized][good]))
            cursor.fail(arrays, counts > cursor.end[arrays] - cursor.position[arrays])  # an item has two bytes or more
            unsized = (counts > 0) & ~cursor.failed[arrays]
            if unsized.any():
                rows = arrays[unsized]
                found.append(_Items(rows, counts[unsized]))
                end = self._move(cursor, found[-1], cursor.position[rows], cursor.end[rows])
                cursor.move(rows, end)
            cursor.fail(arrays, cursor.position[arrays] > cursor.end[arrays])
            arrays = arrays[(counts != 0) & ~cursor.failed[arrays]]
        for array in arrays.tolist():
            self._walk(cursor, array, blocks, found)
        cursor.fail(every, cursor.position[every] != cursor.end[every])
        if blocks:
            rows, begin, end, counts = (np.concatenate(part) for part in zip(*blocks, strict=True))
            order = np.argsort(begin, kind="stable")
            rows, begin, end, counts = rows[order], begin[order], end[order], counts[order]
            found.append(_Items(rows, counts))
            cursor.fail(rows, self._move(cursor, found[-1], begin, end) != end)
        if not found:
            nothing = np.empty(0, np.int64)
            return nothing, nothing, nothing
        owners, begin, end = found[0].columns()
        if len(found) > 1:
            owners, begin, end = (np.concatenate(part) for part in zip(*map(_Items.columns, found), strict=True))
            order = np.argsort(begin, kind="stable")
            owners, begin, end = owners[order], begin[order], end[order]
        if cursor.failed.any():
            good = ~cursor.failed[owners]
            owners, begin, end = owners[good], begin[good], end[good]
        return owners, begin, end

    def _walk(self, cursor: Cursor, array: int, blocks: list[tuple[NDArray[Any], ...]], found: list[_Items]) -> None:
        """Adds the blocks of known size of one array, and the items of its other blocks, which are read one by one."""
        start = int(cursor.position[array])
        reader = PlainReader(cursor.data[start : int(cursor.end[array])].tobytes())
        sized: list[tuple[int, int, int]] = []
        begin: list[int] = []
        end: list[int] = []
        try:
            while count := reader.read(_LONG):
                if count > 0:
                    for _ in range(count):
                        begin.append(reader.position)
                        reader.read(self._schema.update)
                        end.append(reader.position)
                    continue
                size = reader.read(_LONG)
                if not -count <= size <= reader.end - reader.position:
                    raise DecodeError("a block is longer than its message")
                sized.append((reader.position, reader.position + size, -count))
                reader.position += size
        except DecodeError:
            cursor.fail(np.array([array]), np.ones(1, np.bool_))
            return
        cursor.position[array] = start + reader.position
        if sized:
            begins, ends, counts = np.array(sized).T
            blocks.append((np.full(len(sized), array), start + begins, start + ends, counts))
        if begin:
            found.append(_Items(np.array([array]), np.array([len(begin)])))
            found[-1].begin[:], found[-1].end[:] = np.array(begin) + start, np.array(end) + start

    def _move(
        self, cursor: Cursor, items: _Items, position: NDArray[np.int64], limit: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Finds the items of blocks that begin at `position`, one of each block at a time. Returns the blocks' ends.

        A block whose items are invalid or beyond `limit`, the end of its bytes, ends after all bytes.
        """
        found = np.full(len(position), cursor.size + 1)
        lanes, left, slots = np.arange(len(position)), items.counts.copy(), items.first.copy()
        while len(lanes) >= LANES_MIN:
            items.begin[slots] = position
            position = self._skipper.ends(cursor, position, limit)
            slots += 1
            left -= 1
            going = (left > 0) & (position <= limit)
            if not going.all():
                done = (left == 0) & (position <= limit)
                found[lanes[done]] = position[done]
                lanes, left, slots = lanes[going], left[going], slots[going]
                position, limit = position[going], limit[going]
        rest = (part.tolist() for part in (lanes, left, slots, position, limit))
        for lane, count, slot, begin, end in zip(*rest, strict=True):
            reader = PlainReader(cursor.data[begin:end].tobytes())
            try:
                for at in range(slot, slot + count):
                    items.begin[at] = begin + reader.position
                    reader.read(self._schema.update)
            except DecodeError:
                continue
            found[lane] = begin + reader.position
        items.end[:-1] = items.begin[1:]
        items.end[items.first + items.counts - 1] = found
        return found

    def _reason(self, message: bytes | None, skip: int) -> str:
        if message is None:
            return "message is NULL"
        reader = PlainReader(message, skip)
        try:
            value = reader.read(self._schema.union)
            reader.finish()
        except DecodeError as error:
            return str(error)
        negative = [item["time"] for item in value if item["time"] < 0] if isinstance(value, list) else []
        if negative:
            return f"update at time {negative[0]}, which is negative"
        return "value is out of range or invalid for its column"


class _Items:
    """The items of blocks. `owners`, `counts`: by block, its message and the number of its items.

    `begin`, `end`: the places of the items. `first`: by block, the index of its first item.
    """

    def __init__(self, owners: NDArray[np.intp], counts: NDArray[np.int64]) -> None:
        ends = np.cumsum(counts)
        self.owners, self.counts, self.first = owners, counts, ends - counts
        self.begin, self.end = np.empty((2, int(ends[-1]) if len(ends) else 0), np.int64)

    def columns(self) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        """The message, begin and end of each item. Those of failed messages are arbitrary."""
        return np.repeat(self.owners, self.counts), self.begin, self.end


def decoded_progress(data: bytes) -> Progress:
    """The progress record that these bytes are. It consists of integers only. MessageError."""
    numbers = decoded_varints(data)
    if numbers is None:
        raise MessageError("unexpected end of the message, or an integer of more than 64 bits")
    lower, at = _array(numbers, 0, 1)
    upper, at = _array(numbers, at, 1)
    counts, at = _array(numbers, at, 2)
    if at != len(numbers):
        raise MessageError(f"{len(numbers) - at} integers left over after the value")
    return Progress.of_arrays(lower, upper, counts[::2], counts[1::2])


def _array(numbers: NDArray[np.int64], at: int, width: int) -> tuple[NDArray[np.int64], int]:
    """The integers of an array whose items have `width` of them, and the position after it."""
    parts = [numbers[:0]]
    while at < len(numbers):
        count = int(numbers[at])
        at += 1 if count >= 0 else 2
        if count == 0:
            return np.concatenate(parts), at
        end = at + abs(count) * width
        if end > len(numbers):
            break
        parts.append(numbers[at:end])
        at = end
    raise MessageError("unexpected end of the message")


# -- writing ----------------------------------------------------------------------------------------------------------


class AvroEncoder:
    """Encodes messages whose data has these columns. `prefix` precedes each message."""

    def __init__(self, columns: Sequence[EncodedColumn], prefix: bytes = b"") -> None:
        long = parse_type("int8")
        self._columns = [*columns, EncodedColumn(TIME, long, False), EncodedColumn(DIFF, long, False)]
        self._prefix = prefix

    def updates(self, updates: pa.Table) -> Iterator[bytes]:
        """Messages as `message_bounds` cuts them. Together they must have less than 2 GiB."""
        if not updates.num_rows:
            return
        offsets, values = string_parts(encoded_records(self._columns, updates))
        places, data = offsets.tolist(), values.data
        for start, stop in message_bounds(offsets):
            parts: list[Any] = [self._prefix, varint_bytes(0)]
            for begin in range(start, stop, BLOCK_UPDATES):
                end = min(begin + BLOCK_UPDATES, stop)
                parts.append(varint_bytes(begin - end, places[end] - places[begin]))
                parts.append(data[places[begin] : places[end]])
            parts.append(varint_bytes(0))
            yield b"".join(parts)

    def progress(self, statement: Progress) -> bytes:
        """The message of a statement."""
        parts = [self._prefix, PROGRESS_BRANCH]
        for frontier in (statement.lower, statement.upper):
            parts.append(varint_bytes(0) if frontier == END else varint_bytes(1, frontier, 0))
        if len(statement.times):
            pairs = np.stack([statement.times, statement.counts], axis=1).reshape(-1)
            offsets, data = string_parts(encoded_varints(pairs))
            parts += [varint_bytes(len(statement.times)), data[offsets[0] : offsets[-1]].tobytes()]
        parts.append(varint_bytes(0))
        return b"".join(parts)
