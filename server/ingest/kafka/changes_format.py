"""CDCv2 messages of a topic.

Avro: Confluent's wire format, or values of a fixed schema without it. JSON: the source's column list gives the types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.avro.encoder import EncodedColumn
from protocol.avro.schema import SchemaError, Type
from protocol.cdcv2.avro_form import AvroDecoder, CdcSchema
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.json_form import JsonDecoder
from protocol.cdcv2.messages import Progress
from server.ingest.kafka.avro_format import BROKEN, FRAME, distinct_ids, frame_reason, schema_ids
from server.ingest.kafka.registry import SchemaRegistry, Undecodable

_FIXED = -1


class ChangesDecoder(Protocol):
    """Decodes messages, each independently of the others."""

    def decode(self, data: pa.BinaryArray) -> Decoded:
        """NULL is an invalid message. May run in a thread."""
        ...


class ChangesFormat(Protocol):
    """The format of messages."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the updates."""
        ...

    async def decoder(self, data: pa.BinaryArray) -> ChangesDecoder:
        """The decoder of these messages. UpstreamError if a schema cannot be fetched for now."""
        ...


class JsonChanges:
    """Messages in JSON, whose data has these columns."""

    def __init__(self, columns: Sequence[EncodedColumn]) -> None:
        self._decoder = JsonDecoder(columns)

    @property
    def schema(self) -> pa.Schema:
        """As `ChangesFormat.schema`."""
        return self._decoder.schema

    async def decoder(self, data: pa.BinaryArray) -> JsonDecoder:
        """As `ChangesFormat.decoder`."""
        return self._decoder


class AvroChanges:
    """Messages in Avro, decoded to the columns of `schema`. It is that of all messages if there is no registry."""

    def __init__(self, schema: CdcSchema, registry: SchemaRegistry | None, *, framed: bool = True) -> None:
        """SchemaError if the columns have no SQL types."""
        own = AvroDecoder(schema)
        self._reader = schema
        self._registry = registry
        self._framed = framed
        self._decoders: dict[int, AvroDecoder | Undecodable] = {} if registry is not None else {_FIXED: own}
        self._updates = own.schema

    @property
    def schema(self) -> pa.Schema:
        """As `ChangesFormat.schema`."""
        return self._updates

    async def decoder(self, data: pa.BinaryArray) -> AvroChangesDecoder:
        """As `ChangesFormat.decoder`."""
        if self._registry is not None:
            ids = distinct_ids(data).tolist()
            self._decoders = await self._registry.decoders(ids, self._decoders, self._decoder_of)
        return AvroChangesDecoder(self._updates, self._decoders, self._framed, self._registry is not None)

    def _decoder_of(self, writer: Type) -> AvroDecoder | Undecodable:
        try:
            return AvroDecoder(CdcSchema.of(writer), self._reader)
        except SchemaError as error:
            return Undecodable(str(error))


@dataclass(frozen=True)
class AvroChangesDecoder:
    """Decodes messages in Avro. `decoders`: by schema id, or one with the id -1 if `with_ids` is False."""

    schema: pa.Schema
    decoders: Mapping[int, AvroDecoder | Undecodable]
    framed: bool
    with_ids: bool

    def decode(self, data: pa.BinaryArray) -> Decoded:
        """As `ChangesDecoder.decode`."""
        skip = FRAME if self.framed else 0
        ids = schema_ids(data) if self.framed else np.full(len(data), _FIXED)
        if not self.with_ids:
            ids = np.where(ids == BROKEN, BROKEN, _FIXED)
        valid = np.asarray(data.is_valid())
        failed = ~valid | (ids == BROKEN)
        parts: list[tuple[NDArray[np.intp], Decoded]] = []
        reasons: dict[int, str] = {}
        for id in np.unique(ids[~failed]).tolist():
            rows = np.flatnonzero(~failed & (ids == id))
            decoder = self.decoders[id]
            if isinstance(decoder, Undecodable):
                failed[rows] = True
                reasons[id] = decoder.reason
                continue
            parts.append((rows, decoder.decode(data.take(pa.array(rows)), skip)))
        for rows, found in parts:
            failed[rows] |= found.failed
        tables = [found.updates for _, found in parts]
        statements: Sequence[Progress] = [each for _, found in parts for each in found.statements]

        def reason(row: int) -> str:
            if not valid[row]:
                return "message without value"
            if ids[row] == BROKEN:
                return frame_reason(data[row].as_py())
            if (known := reasons.get(int(ids[row]))) is not None:
                return known
            rows, found = next(part for part in parts if row in part[0])
            return found.reason(int(np.searchsorted(rows, row)))

        return Decoded(pa.concat_tables([self.schema.empty_table(), *tables]), statements, failed, reason)
