"""FROM FILE ... ENVELOPE MATERIALIZE: files with CDCv2 messages, one per line or as the values of Avro files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa

from catalog.source_state import State
from protocol.avro.encoder import EncodedColumn
from protocol.cdcv2.decoded import Decoded
from protocol.cdcv2.json_form import JsonDecoder
from protocol.pgwire.errors import PgError
from protocol.pgwire.types import parse_type
from server.ingest.decoder_pool import holds_lock
from server.ingest.history import History, keeps_times, stall_timeout_s
from server.ingest.source_definition import SourceDefinition, Target
from server.ingest.source_kind import SourceContext
from server.ingest.upstream import Changes, Upstream

SCHEMA = "schema"
"""The key of a source's state with the reader's schema of Avro files."""
_POSITION = "file:"  # prefix of the keys of positions in the source's state


class ChangesDecoder(Protocol):
    """Decodes the messages that were read last."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the updates."""
        ...

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """May run in a thread. PgError if the source cannot continue."""
        ...


def json_decoder(target: Target) -> ChangesDecoder:
    """The decoder of lines."""
    return JsonDecoder([EncodedColumn(c.name, parse_type(c.type), c.nullable) for c in target.output.columns])


class ChangesOfFiles:
    """An `Upstream` over one that reads messages as binary rows.

    The state of that one has the position in each file by its path, and the schema of Avro files at `SCHEMA`.
    """

    def __init__(
        self,
        messages: Upstream,
        decoder: ChangesDecoder,
        definition: SourceDefinition,
        target: Target,
        context: SourceContext,
        *,
        incomplete: Callable[[], str | None],
        cut_off: Callable[[float], PgError | None],
    ) -> None:
        """`incomplete`: a sentence about files that end within a message; None if there are none.

        `cut_off`: the error if a file has ended within a message for this many seconds.
        """
        self._messages = messages
        self._incomplete = incomplete
        self._cut_off = cut_off
        self._decoder = decoder
        self._target = target
        self._context = context
        self._stall_s = stall_timeout_s(definition.options)
        self._keeps_times = keeps_times(definition.options)
        self._read: dict[str, int] = {}  # by file, up to where it was received
        self._stored: dict[str, int] = {}  # by file, from where it is read after a restart
        self._history: History[str] | None = None

    async def open(self, state: State) -> None:
        stored = {key.removeprefix(_POSITION): value for key, value in state.items() if key.startswith(_POSITION)}
        self._read = self._stored = _positions(stored)
        await self._messages.open({**stored, **_schema(state)})
        history: History[str] = History(
            self._target.output.reference,
            self._decoder.schema,
            state,
            stall_s=self._stall_s,
            keeps_times=self._keeps_times,
            count_invalid=self._context.statistics.count_invalid,
            incomplete=self._incomplete,
            cut_off=self._cut_off,
        )
        if history.closed is not None:
            self._context.coordinator.upstream_times.resume(self._target.id, history.closed)
        self._history = history
        self._context.statistics.histories[self._target.id] = history.status

    def report_stall(self) -> None:
        """Logs that messages are missing, once. Called while no file has further messages."""
        if self._history is not None:
            self._history.report_stall()

    async def read(self, bytes_max: int) -> Changes:
        history = self._history
        assert history is not None
        found = await self._messages.read(bytes_max)
        after = _positions(found.state)
        first = {path: self._read.get(path, 0) for path in after}
        self._read = {**self._read, **after}
        tables = found.writes.get(self._target.id, [])
        messages = pa.concat_arrays(
            [pa.array([], pa.binary()), *(chunk for t in tables for chunk in t.column(0).chunks)]
        )
        place = ", ".join(f'file "{path}" after byte {position}' for path, position in first.items())
        decoded = await self._decoded(messages)
        changes = await asyncio.to_thread(history.receive, decoded, first, lambda row: f"{place}, message {row + 1}")
        positions = history.positions(self._read)
        moved = {path: position for path, position in positions.items() if self._stored.get(path) != position}
        self._stored = positions
        state = {f"{_POSITION}{path}": b"%d" % position for path, position in moved.items()}
        closed = {} if history.closed is None else {self._target.id: history.closed}
        return Changes(
            {self._target.id: changes} if changes else {},
            {**state, **_schema(found.state), **history.state()},
            closed=closed,
        )

    async def _decoded(self, messages: pa.BinaryArray) -> Decoded:
        if holds_lock(self._decoder, messages):
            return await self._context.decoders.decode(self._decoder, messages, holds_lock=True)
        return await asyncio.to_thread(self._decoder.decode, messages)

    async def committed(self, state: State) -> None:
        """The files keep what was read."""

    async def close(self) -> None:
        await self._messages.close()


def _positions(state: Mapping[str, bytes | None]) -> dict[str, int]:
    return {path: int(value) for path, value in state.items() if value is not None and path != SCHEMA}


def _schema(state: State) -> State:
    """The schema of a state, if it has one."""
    return {SCHEMA: state[SCHEMA]} if state.get(SCHEMA) is not None else {}
