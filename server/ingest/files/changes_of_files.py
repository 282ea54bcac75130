"""FROM FILE ... FORMAT JSON ENVELOPE MATERIALIZE: files with a CDCv2 message on each line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pyarrow as pa

from catalog.source_state import State
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.json_form import JsonDecoder
from protocol.pgwire.types import parse_type
from server.ingest.history import History, keeps_times, stall_timeout_s
from server.ingest.source_kind import SourceContext, SourceDefinition, Target
from server.ingest.upstream import Changes, Upstream

_POSITION = "file:"  # prefix of the keys of positions in the source's state


class ChangesOfFiles:
    """An `Upstream` over one that reads lines as binary rows, and whose state has the position in each file."""

    def __init__(self, lines: Upstream, definition: SourceDefinition, target: Target, context: SourceContext) -> None:
        columns = [EncodedColumn(c.name, parse_type(c.type), c.nullable) for c in target.output.columns]
        self._lines = lines
        self._decoder = JsonDecoder(columns)
        self._target = target
        self._context = context
        self._stall_s = stall_timeout_s(definition.options)
        self._keeps_times = keeps_times(definition.options)
        self._read: dict[str, int] = {}  # by file, up to where it was received
        self._stored: dict[str, int] = {}  # by file, from where it is read after a restart
        self._history: History[str] | None = None

    async def open(self, state: State) -> None:
        history: History[str] = History(
            self._target.output.reference,
            self._decoder.schema,
            state,
            stall_s=self._stall_s,
            keeps_times=self._keeps_times,
        )
        if history.closed is not None:
            self._context.coordinator.upstream_times.resume(self._target.id, history.closed)
        self._history = history
        self._context.statistics.histories[self._target.id] = history.status
        stored = {key.removeprefix(_POSITION): value for key, value in state.items() if key.startswith(_POSITION)}
        self._read = self._stored = _positions(stored)
        await self._lines.open(stored)

    async def read(self, bytes_max: int) -> Changes:
        history = self._history
        assert history is not None
        found = await self._lines.read(bytes_max)
        after = _positions(found.state)
        first = {path: self._read.get(path, 0) for path in after}
        self._read = {**self._read, **after}
        tables = found.writes.get(self._target.id, [])
        lines = pa.concat_arrays([pa.array([], pa.binary()), *(chunk for t in tables for chunk in t.column(0).chunks)])
        place = ", ".join(f'file "{path}" after byte {position}' for path, position in first.items())
        decoded = await asyncio.to_thread(self._decoder.decode, lines)
        changes = await asyncio.to_thread(history.receive, decoded, first, lambda row: f"{place}, line {row + 1}")
        positions = history.positions(self._read)
        moved = {path: position for path, position in positions.items() if self._stored.get(path) != position}
        self._stored = positions
        state = {f"{_POSITION}{path}": b"%d" % position for path, position in moved.items()}
        closed = {} if history.closed is None else {self._target.id: history.closed}
        return Changes({self._target.id: changes} if changes else {}, {**state, **history.state()}, closed=closed)

    async def committed(self, state: State) -> None:
        """The files keep what was read."""

    async def close(self) -> None:
        await self._lines.close()


def _positions(state: Mapping[str, bytes | None]) -> dict[str, int]:
    return {path: int(value) for path, value in state.items() if value is not None}
