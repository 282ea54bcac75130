"""FORMAT AVRO: Confluent's wire format, or values of a fixed schema without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.avro.decoder import Decoder, Path, Wanted
from protocol.avro.schema import SchemaError, Type
from protocol.columnar.buffers import string_parts
from protocol.columnar.reasons import joined_reasons
from server.ingest.decoder_service import MessageDecoder
from server.ingest.kafka.registry import SchemaRegistry, Undecodable

FRAME = 5  # bytes: a zero and the schema's id
SHOWN_BYTES_MAX = 1_024  # of a message in an error

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Part:
    """The keys or the values of messages, decoded. The columns are arbitrary where a message failed or is NULL.

    `reason` says why a message failed, by its row.
    """

    columns: Mapping[Path, pa.Array]
    failed: Mask
    reason: Callable[[int], str]

    @classmethod
    def joined(cls, parts: Sequence[Part]) -> Part:
        """The parts one after another."""
        columns = {path: pa.concat_arrays([part.columns[path] for part in parts]) for path in parts[0].columns}
        reason = joined_reasons([(len(part.failed), part.reason) for part in parts])
        return cls(columns, np.concatenate([part.failed for part in parts]), reason)


class PartFormat(Protocol):
    """The format of keys or values."""

    @property
    def holds_lock(self) -> bool:
        """As `DecoderPool.decode` expects it."""
        ...

    async def decoder(self, data: pa.BinaryArray) -> MessageDecoder[Part]:
        """The decoder of these messages. UpstreamError if a schema cannot be fetched for now."""
        ...


@dataclass
class AvroFormat:
    """Avro, decoded to the wanted columns. `schema`: that of all messages if there is no `registry`."""

    wanted: Wanted
    registry: SchemaRegistry | None = None
    schema: Type | None = None
    framed: bool = True
    _decoders: dict[int, Decoder | Undecodable] = field(default_factory=dict)

    @property
    def holds_lock(self) -> bool:
        return self.wanted.is_nested

    async def decoder(self, data: pa.BinaryArray) -> AvroPartDecoder:
        if self.registry is not None:
            ids = distinct_ids(data).tolist()
            self._decoders = await self.registry.decoders(ids, self._decoders, self._decoder_of)
            return AvroPartDecoder(self.wanted, self._decoders, framed=self.framed)
        if not self._decoders:
            assert self.schema is not None
            self._decoders = {_NO_ID: self._decoder_of(self.schema)}
        return AvroPartDecoder(self.wanted, self._decoders, framed=self.framed, with_ids=False)

    def _decoder_of(self, writer: Type) -> Decoder | Undecodable:
        try:
            return Decoder(writer, self.wanted)
        except SchemaError as error:
            return Undecodable(str(error))


@dataclass(frozen=True)
class AvroPartDecoder:
    """Decodes Avro. `decoders`: by schema id, or one with the id -1 if `with_ids` is False."""

    wanted: Wanted
    decoders: Mapping[int, Decoder | Undecodable]
    framed: bool
    with_ids: bool = True

    def decode(self, data: pa.BinaryArray) -> Part:
        count = len(data)
        skip = FRAME if self.framed else 0
        ids = schema_ids(data) if self.framed else np.full(count, _NO_ID)
        valid = np.asarray(data.is_valid())
        parts: list[tuple[NDArray[np.intp], Mapping[Path, pa.Array]]] = []
        failed = valid & (ids == BROKEN)
        decoders: dict[int, tuple[Decoder | Undecodable, Mapping[int, str]]] = {}
        for id in np.unique(ids[valid & ~failed]).tolist():
            rows = np.flatnonzero(valid & (ids == id))
            decoder = self.decoders[id if self.with_ids else _NO_ID]
            if isinstance(decoder, Undecodable):
                failed[rows] = True
                decoders[id] = decoder, {}
                continue
            found = decoder.decode(data if len(rows) == count else data.take(pa.array(rows)), skip)
            failed[rows] |= found.failed
            decoders[id] = decoder, {int(rows[row]): name for row, name in found.wrong_fields.items()}
            parts.append((rows, found.columns))

        def reason(row: int) -> str:
            message = data[row].as_py()
            if ids[row] == BROKEN:
                inner = frame_reason(message)
            else:
                decoder, fields = decoders[int(ids[row])]
                if isinstance(decoder, Undecodable):
                    inner = decoder.reason
                else:
                    inner = decoder.reason(message[skip:], fields.get(row))
            return f"avro deserialization error: {inner} {original(message)}"

        return Part(_joined(parts, count, self.wanted), failed, reason)


def schema_id(message: bytes | None) -> int | None:
    """The id in the frame of a message, for error messages."""
    return int.from_bytes(message[1:FRAME], "big") if message is not None and message[:1] == b"\0" else None


def original(message: bytes) -> str:
    """The message as error messages show it."""
    shown = message[:SHOWN_BYTES_MAX]
    text = shown.decode(errors="replace").replace("\0", "\ufffd")
    return f'(original text: {text}, original bytes: "{shown.hex()}")'


_NO_ID, BROKEN = -1, -2


def schema_ids(data: pa.BinaryArray) -> NDArray[np.int64]:
    """The schema id of each message; -2 if it has no valid frame. Arbitrary for NULL."""
    if len(data) == 0:
        return np.empty(0, np.int64)
    offsets, values = string_parts(data)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    framed = lengths >= FRAME
    at = np.where(framed, starts, 0)
    if len(values) < FRAME:
        return np.full(len(data), BROKEN)
    ids = np.zeros(len(data), np.int64)
    for place in range(1, FRAME):
        ids = (ids << 8) | values[at + place]
    return np.where(framed & (values[at] == 0), ids, BROKEN)


def distinct_ids(data: pa.BinaryArray) -> NDArray[np.int64]:
    """The `schema_ids` that occur, ascending. NULLs are ignored."""
    return np.unique(schema_ids(data)[np.asarray(data.is_valid())])


def frame_reason(message: bytes) -> str:
    """Why a message has no valid frame."""
    if len(message) < FRAME:
        return f"Confluent-style avro datum is too few bytes: expected at least {FRAME} bytes, got {len(message)}"
    return f"wrong Confluent-style avro serialization magic: expected 0, got {message[0]}"


def _joined(
    parts: list[tuple[NDArray[np.intp], Mapping[Path, pa.Array]]], count: int, wanted: Wanted
) -> dict[Path, pa.Array]:
    """The columns of all messages, in their order."""
    if len(parts) == 1 and len(parts[0][0]) == count:
        return dict(parts[0][1])
    types = wanted.types()
    if not parts:
        return {path: pa.nulls(count, type) for path, type in types.items()}
    indices = np.full(count, -1)
    rows = np.concatenate([rows for rows, _ in parts])
    indices[rows] = np.arange(len(rows))
    taken = pa.array(indices, mask=indices < 0)
    return {path: pa.concat_arrays([columns[path] for _, columns in parts]).take(taken) for path in types}
