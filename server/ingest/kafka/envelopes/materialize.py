"""ENVELOPE MATERIALIZE: messages are statements of CDCv2 about a history, in any order and any number of times."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from server.ingest.history import History
from server.ingest.kafka.changes_format import ChangesFormat
from server.ingest.kafka.envelopes.envelope import Envelope, Step, worked
from server.ingest.kafka.errors import Failures
from server.ingest.kafka.messages import Messages


class MaterializeEnvelope(Envelope):
    """Adds the changes of closed times. Keys, offsets and timestamps of messages have no effect."""

    def __init__(self, topic: str, format: ChangesFormat, history: History[int], failures: Failures) -> None:
        self.failures = failures
        self._topic = topic
        self._format = format
        self._history = history

    async def step(self, messages: Messages) -> Step:
        await self._format.prepare(messages.values)
        decoded = await worked(messages, self._format.decode, messages.values)
        partitions = np.unique(messages.partitions)
        first = {int(p): int(messages.offsets[messages.partitions == p].min()) for p in partitions}

        def place(row: int) -> str:
            return f'topic "{self._topic}", partition {messages.partitions[row]}, offset {messages.offsets[row]}'

        tables = await worked(messages, self._history.receive, decoded, first, place)
        return Step(tables, self._history.state(), self._history.closed)

    def resume_offsets(self, read: Mapping[int, int]) -> Mapping[int, int] | None:
        return self._history.positions(read)

    async def committed(self) -> None:
        """It does not read the output."""

    def partitions_added(self, count: int) -> None:
        """Every message is independent of its partition."""

    def close(self) -> None:
        """What it holds is read again."""
