"""ENVELOPE NONE: each message adds a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from catalog.collection_errors import CollectionError
from server.ingest.decoder_pool import DecoderPool
from server.ingest.kafka.envelopes.envelope import Decoded, Envelope, Errors, Step, decode, permanent, worked
from server.ingest.kafka.errors import LASTING_HINT, Failures, identity
from server.ingest.kafka.layouts.layout import Layout
from server.ingest.kafka.messages import Messages


class AppendEnvelope(Envelope):
    """Adds a row for each message with a value. A message that cannot be decoded is an error that stays."""

    def __init__(self, topic: str, layout: Layout, failures: Failures, decoders: DecoderPool) -> None:
        self.failures = failures
        self._topic = topic
        self._layout = layout
        self._decoders = decoders

    async def ahead(self, messages: Messages) -> Decoded:
        return await decode(self._layout, messages, self._decoders)

    async def step(self, messages: Messages, ahead: Decoded | None = None) -> Step:
        decoded = ahead or await self.ahead(messages)
        rows, changed = await worked(messages, self._rows, decoded)
        return Step([rows], self.failures.changed(changed))

    def _rows(self, decoded: Decoded) -> tuple[pa.Table, Errors]:
        """The rows of the messages, and those that could not be decoded."""
        messages = decoded.messages
        empty = np.asarray(messages.values.is_null())
        failed = decoded.value.failed & ~empty
        changed = permanent(decoded, np.flatnonzero(failed), self._topic, "Decode error: ")
        key_failed = np.zeros(len(messages), np.bool_)
        if decoded.key is not None:
            key_failed = decoded.key.failed & np.asarray(messages.keys.is_valid())
            for row in np.flatnonzero(key_failed).tolist():
                place = f"{messages.partitions[row]}/{messages.offsets[row]}"
                changed[identity("message", place.encode())] = CollectionError(
                    f"Decode error: {decoded.key.reason(row)}",
                    decoded.detail(row, self._topic, of_key=True),
                    LASTING_HINT,
                )
        for row in np.flatnonzero(empty & np.asarray(messages.keys.is_valid())).tolist():
            place = f"{messages.partitions[row]}/{messages.offsets[row]}"
            changed[identity("message", place.encode())] = CollectionError(
                "Envelope error: Flat: Value not present for message", decoded.detail(row, self._topic), LASTING_HINT
            )
        rows = self._layout.rows(messages, decoded.key, decoded.value)
        good = ~(empty | failed | key_failed)
        return rows if good.all() else rows.filter(pa.array(good)), changed

    async def committed(self) -> None:
        """Does nothing: the envelope does not read the output."""

    def partitions_added(self, count: int) -> None:
        """Does nothing: every message is independent of the others."""

    def close(self) -> None:
        """Does nothing: there is nothing to release."""
