"""The history of a collection as CDCv2 messages. Those after the committed frontier may be repeated.

Several sinks may write the same history, also of different servers. The statements of a sink with CONTINUE begin after
its first time, and say nothing about the times before. The first one is of no time at all: it is in the file when the
frontier is committed, so that a file without it is known to have lost messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from catalog.ids import Timestamp
from protocol.cdcv2.avro_form import AvroEncoder
from protocol.cdcv2.json_form import JsonEncoder
from protocol.cdcv2.messages import TIME_FIELD, Progress
from protocol.cdcv2.writer import Writer
from server.dataflow.stream.consolidation import consolidated
from server.egress.downstream import Written
from server.egress.parts import parts
from server.runtime import parallel

Encoder = AvroEncoder | JsonEncoder


class MessageOutput(Protocol):
    """The destination of messages. Its methods raise the errors of `Downstream`."""

    @property
    def target(self) -> str | None:
        """As that of `Downstream`."""
        ...

    async def open(self, committed: Timestamp | None, target: str | None) -> Encoder:
        """Connects, and returns the encoder of the messages. The arguments are those of `Downstream.open`."""
        ...

    async def append(self, messages: Iterable[bytes]) -> tuple[int, int]:
        """Writes messages, and iterates over them in a thread. Returns their number and size in bytes."""
        ...

    async def flush(self) -> None:
        """Returns when all appended messages are durable."""
        ...

    async def close(self) -> None:
        """Disconnects. Called after each `open`, even after one that failed."""
        ...


class History:
    """Appends changes and progress statements to an output."""

    keeps_frontier = False

    def __init__(
        self, output: MessageOutput, written: Written, *, continues: bool = False, scratch: Path | None = None
    ) -> None:
        """`scratch`: the directory for rows that are too large for memory."""
        self._scratch = scratch
        self._output = output
        self._encoder: Encoder | None = None
        self._writer = Writer()
        self._written = written
        self._continues = continues

    @property
    def target(self) -> str | None:
        return self._output.target

    async def open(self, committed: Timestamp | None, target: str | None = None) -> Timestamp | None:
        self._encoder = await self._output.open(committed, target)
        self._writer = Writer(committed or 0)
        return committed

    async def begin(self, rows: pa.Table | None, as_of: Timestamp) -> None:
        if self._continues:
            self._writer = Writer(as_of + 1)
            await self._announce(Progress.of([as_of + 1], [as_of + 1], []))
            return
        if rows is not None:
            async with aclosing(consolidated([rows], self._scratch)) as chunks:
                async for changes in chunks:
                    times = pa.array(np.full(changes.num_rows, as_of, np.int64))
                    await self._append(changes.add_column(changes.num_columns - 1, TIME_FIELD, times))
        await self._advance(as_of + 1)

    async def write(self, changes: pa.Table, upper: Timestamp) -> None:
        await self._append(changes)
        await self._advance(upper)

    async def close(self) -> None:
        await self._output.close()

    async def _append(self, changes: pa.Table) -> None:
        encoder = self._encoder
        assert encoder is not None
        self._writer.add(changes)
        encoded = parallel.in_order(lambda part: list(encoder.updates(part)), parts(changes))
        await self._send(message for messages in encoded for message in messages)
        self._written.updates += changes.num_rows

    async def _advance(self, upper: int) -> None:
        """Writes the progress statement for the times before `upper`. Returns when it is durable."""
        statement = self._writer.advance(upper)
        if statement is not None:
            await self._announce(statement)

    async def _announce(self, statement: Progress) -> None:
        """Writes a progress statement. Returns when it is durable."""
        assert self._encoder is not None
        await self._send([self._encoder.progress(statement)])
        await self._output.flush()

    async def _send(self, messages: Iterable[bytes]) -> None:
        count, size = await self._output.append(messages)
        self._written.messages += count
        self._written.bytes += size
