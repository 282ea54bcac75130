"""The interface of envelopes, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog.collection_errors import CollectionError
from protocol.avro.columns import UNAVAILABLE
from server.ingest.decoder_pool import DecoderPool
from server.ingest.kafka.avro_format import Part, PartFormat, schema_id
from server.ingest.kafka.errors import LASTING_HINT, Failures, identity
from server.ingest.kafka.layouts.layout import Layout
from server.ingest.kafka.messages import Messages

MESSAGES_ON_LOOP = 1_024  # work on more messages than these is done in a thread
BYTES_ON_LOOP = 64 * 1024  # the same for their size: nested values are decoded one by one

Mask = NDArray[np.bool_]
Errors = dict[str, CollectionError | None]
"""Changes of live errors by their identity; None: retracted."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Step:
    """The changes of an output for some messages, and the envelope's state after them. `closed`: as in `Changes`."""

    tables: Sequence[pa.Table]
    state: Mapping[str, bytes | None] = field(default_factory=dict)
    closed: int | None = None


class Envelope(Protocol):
    """Converts messages to changes. The caller commits each step and calls `committed` before it takes the next one."""

    failures: Failures

    async def ahead(self, messages: Messages) -> Any:
        """The part of `step` that does not depend on earlier messages, which may be committed meanwhile.

        Raises what `step` raises.
        """
        return None

    async def step(self, messages: Messages, ahead: Any = None) -> Step:
        """PgError if the topic cannot be read on. UpstreamError if something else cannot be reached.

        `ahead`: the result of `ahead` for these messages, or None.
        """
        ...

    async def committed(self) -> None:
        """Called when the last step is committed."""
        ...

    def partitions_added(self, count: int) -> None:
        """Called when partitions were added to the topic, which has `count` of them now."""

    def resume_offsets(self, read: Mapping[int, int]) -> Mapping[int, int] | None:
        """The offsets to commit if messages before `read`, which were received, are needed again; None if none are."""
        return None

    def close(self) -> None:
        """Releases the rows of the output. May be called twice."""


@dataclass(frozen=True)
class Decoded:
    """Messages with their decoded keys and values."""

    messages: Messages
    key: Part | None
    value: Part

    def detail(self, row: int, topic: str, *, of_key: bool = False) -> str:
        messages = self.messages
        data = (messages.keys if of_key else messages.values)[row].as_py()
        id = schema_id(data)
        return (
            f'Topic "{topic}", partition {messages.partitions[row]}, offset {messages.offsets[row]}'
            f"{'' if id is None else f', schema id {id}'}."
        )


async def decode(layout: Layout, messages: Messages, decoders: DecoderPool) -> Decoded:
    """Decodes messages. UpstreamError if a schema cannot be fetched for now."""

    async def part(format: PartFormat, data: pa.BinaryArray) -> Part:
        return await decoders.decode(await format.decoder(data), data, holds_lock=format.holds_lock)

    key = None if layout.key_format is None else await part(layout.key_format, messages.keys)
    return Decoded(messages, key, await part(layout.value_format, messages.values))


async def worked(messages: Messages, work: Callable[..., Result], *args: Any) -> Result:
    """Returns `work(*args)`, which concerns all messages. It runs in a thread if they are many or large."""
    size = messages.keys.nbytes + messages.values.nbytes
    is_large = len(messages) > MESSAGES_ON_LOOP or size > BYTES_ON_LOOP
    return await asyncio.to_thread(work, *args) if is_large else work(*args)


def permanent(decoded: Decoded, rows: NDArray[np.intp], topic: str, text: str) -> Errors:
    """Failures of the values of messages that no later message retracts. `text` precedes the reason."""
    found: Errors = {}
    for row in rows.tolist():
        place = f"{decoded.messages.partitions[row]}/{decoded.messages.offsets[row]}"
        failure = CollectionError(f"{text}{decoded.value.reason(row)}", decoded.detail(row, topic), LASTING_HINT)
        found[identity("message", place.encode())] = failure
    return found


def unavailable(column: pa.ChunkedArray) -> Mask:
    """Where a column has Debezium's placeholder for a value that PostgreSQL did not log."""
    if pa.types.is_string(column.type):
        marker = pa.scalar(UNAVAILABLE.decode(), column.type)
    elif pa.types.is_binary(column.type):
        marker = pa.scalar(UNAVAILABLE, column.type)
    else:
        return np.zeros(len(column), np.bool_)
    return np.asarray(pc.equal(column, marker).fill_null(False))


def replaced(rows: pa.Table, column: int, where: Mask, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The rows with other values of a column in the rows of a mask; one value for each of them."""
    array = rows.column(column).combine_chunks()
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return rows.set_column(column, rows.schema.field(column), pc.replace_with_mask(array, pa.array(where), values))
