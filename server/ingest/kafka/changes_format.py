"""CDCv2 messages of a topic.

Avro: Confluent's wire format, or values of a fixed schema without it. JSON: the source's column list gives the types.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class ChangesFormat(Protocol):
    """Decodes messages."""

    @property
    def schema(self) -> pa.Schema:
        """Of the updates."""
        ...

    async def prepare(self, data: pa.BinaryArray) -> None:
        """Fetches what `decode` needs. UpstreamError."""
        ...

    def decode(self, data: pa.BinaryArray) -> Decoded:
        """May run in a thread. NULL is an invalid message."""
        ...


class JsonChanges:
    """Decodes messages in JSON, whose data has these columns."""

    def __init__(self, columns: Sequence[EncodedColumn]) -> None:
        self._decoder = JsonDecoder(columns)

    @property
    def schema(self) -> pa.Schema:
        """As `ChangesFormat.schema`."""
        return self._decoder.schema

    async def prepare(self, data: pa.BinaryArray) -> None:
        """Nothing is fetched."""

    def decode(self, data: pa.BinaryArray) -> Decoded:
        """As `ChangesFormat.decode`."""
        return self._decoder.decode(data)


class AvroChanges:
    """Decodes messages to the columns of `schema`. It is that of all messages if there is no registry."""

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

    async def prepare(self, data: pa.BinaryArray) -> None:
        """As `ChangesFormat.prepare`."""
        if self._registry is None:
            return
        self._decoders = await self._registry.decoders(distinct_ids(data).tolist(), self._decoders, self._decoder)

    def _decoder(self, writer: Type) -> AvroDecoder | Undecodable:
        try:
            return AvroDecoder(CdcSchema.of(writer), self._reader)
        except SchemaError as error:
            return Undecodable(str(error))

    def decode(self, data: pa.BinaryArray) -> Decoded:
        """As `ChangesFormat.decode`."""
        skip = FRAME if self._framed else 0
        ids = schema_ids(data) if self._framed else np.full(len(data), _FIXED)
        if self._registry is None:
            ids = np.where(ids == BROKEN, BROKEN, _FIXED)
        valid = np.asarray(data.is_valid())
        failed = ~valid | (ids == BROKEN)
        parts: list[tuple[NDArray[np.intp], Decoded]] = []
        reasons: dict[int, str] = {}
        for id in np.unique(ids[~failed]).tolist():
            rows = np.flatnonzero(~failed & (ids == id))
            decoder = self._decoders[id]
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
