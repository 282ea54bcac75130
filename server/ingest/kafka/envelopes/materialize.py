"""ENVELOPE MATERIALIZE: messages are statements of CDCv2 about a history, in any order and any number of times."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.cdcv2.decoded import Decoded
from server.ingest.decoder_pool import DecoderPool, holds_lock
from server.ingest.history import History
from server.ingest.kafka.changes_format import ChangesFormat
from server.ingest.kafka.envelopes.envelope import Envelope, Step
from server.ingest.kafka.errors import Failures
from server.ingest.kafka.messages import Messages
from server.runtime import parallel

PART_BYTES_MIN = 256 * 1024  # below which more threads cost more than they save
LOOP_BYTES, LOOP_HELD = 16 * 1024, 4_096  # of messages and of the history, for a call on the event loop


class MaterializeEnvelope(Envelope):
    """Adds the changes of closed times. Keys, offsets and timestamps of messages have no effect."""

    def __init__(
        self, topic: str, format: ChangesFormat, history: History[int], failures: Failures, decoders: DecoderPool
    ) -> None:
        self.failures = failures
        self._decoders = decoders
        self._topic = topic
        self._format = format
        self._history = history

    async def ahead(self, messages: Messages) -> Decoded:
        decoder = await self._format.decoder(messages.values)
        parts = _parts(messages.values)
        if len(parts) == 1 and messages.nbytes <= LOOP_BYTES:
            return decoder.decode(messages.values)
        if holds_lock(decoder, messages.values):
            return await self._decoders.decode(decoder, messages.values, holds_lock=True)
        return Decoded.joined(await parallel.worked(decoder.decode, parts))

    async def step(self, messages: Messages, ahead: Decoded | None = None) -> Step:
        decoded = ahead or await self.ahead(messages)
        partitions = np.unique(messages.partitions)
        first = {int(p): int(messages.offsets[messages.partitions == p].min()) for p in partitions}

        def place(row: int) -> str:
            return f'topic "{self._topic}", partition {messages.partitions[row]}, offset {messages.offsets[row]}'

        if messages.nbytes <= LOOP_BYTES and self._history.held <= LOOP_HELD:
            tables = self._history.receive(decoded, first, place)
        else:
            tables = await asyncio.to_thread(self._history.receive, decoded, first, place)
        return Step(tables, self._history.state(), self._history.closed)

    def resume_offsets(self, read: Mapping[int, int]) -> Mapping[int, int] | None:
        return self._history.positions(read)

    async def committed(self) -> None:
        """Does nothing: the envelope does not read the output."""

    def partitions_added(self, count: int) -> None:
        """Does nothing: every message is independent of its partition."""

    def close(self) -> None:
        """Does nothing: messages whose changes are not committed are read again."""


def _parts(values: pa.BinaryArray) -> list[pa.BinaryArray]:
    """The messages in parts of about equal size, one for each thread; fewer if there is not enough to decode."""
    bounds = np.cumsum(pc.binary_length(values).fill_null(0).to_numpy())
    count = min(parallel.THREADS, int(bounds[-1]) // PART_BYTES_MIN) if len(bounds) else 1
    ends = np.searchsorted(bounds, bounds[-1] * np.arange(1, count) / count) + 1 if count > 1 else []
    starts = [0, *map(int, ends), len(values)]
    return [values[start:stop] for start, stop in pairwise(starts)]
