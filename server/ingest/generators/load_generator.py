"""LOAD GENERATOR: the kind of source, and the upstream that calls a generator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from catalog.ids import ObjectId
from catalog.source_definition import Envelope
from catalog.source_state import State
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.generators.auction import Auction
from server.ingest.generators.counter import Counter
from server.ingest.generators.generator import Generator
from server.ingest.generators.key_value import KeyValue
from server.ingest.generators.tpch import Tpch
from server.ingest.option_values import OptionValues
from server.ingest.source_definition import Options, Output, SourceDefinition, Target
from server.ingest.source_kind import SourceContext, Statistics
from server.ingest.upstream import Changes, Upstream

TICKS_MAX = 10_000  # in one commit
_START = "start"


class LoadGenerator:
    """The kind of source of FROM LOAD GENERATOR."""

    async def validate(self, connection: Options) -> None:
        """There is nothing to contact."""

    async def outputs(self, definition: SourceDefinition) -> Sequence[Output]:
        known = _generator(definition).outputs
        tables = definition.tables
        if tables.schemas:
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "FOR SCHEMAS of a load generator is not supported",
                hint="Use FOR ALL TABLES or FOR TABLES.",
            )
        if tables.all:
            if len(known) == 1:
                name = definition.options["generator"].upper()
                hint = "Omit FOR ALL TABLES."
                raise PgError(SqlState.FEATURE_NOT_SUPPORTED, f"LOAD GENERATOR {name} has one output", hint=hint)
            return known
        if not tables.tables:
            return known if len(known) == 1 else ()
        by_reference = {output.reference: output for output in known}
        found = []
        for reference, alias in tables.tables:
            output = by_reference.get(reference.rpartition(".")[2])
            if output is None:
                message = f'load generator has no table "{reference}"'
                hint = f"Its tables are {', '.join(by_reference)}."
                raise PgError(SqlState.UNDEFINED_TABLE, message, hint=hint)
            found.append(replace(output, name=alias or output.name))
        return found

    async def fixed_options(self, definition: SourceDefinition) -> Mapping[str, str]:
        return definition.options

    def upstream(self, definition: SourceDefinition, targets: Sequence[Target], context: SourceContext) -> Upstream:
        return _Ticks(_generator(definition), OptionValues(definition.options), targets, context.statistics)

    async def dropped(self, definition: SourceDefinition) -> None:
        """There is nothing to remove."""


def _generator(definition: SourceDefinition) -> Generator:
    """The generator with its options. PgError 22023 for an invalid value, 0A000 for a format."""
    options = OptionValues(definition.options)
    options.microseconds("tick interval")
    options.integer("up to", 0, 0)
    name, format = definition.options["generator"], definition.format
    if name == "key value":
        return KeyValue(options, format)
    if format is not None and (format.value is not None or format.envelope is not Envelope.NONE or format.include):
        message = f"FORMAT, INCLUDE and ENVELOPE of LOAD GENERATOR {name.upper()} are not supported"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="Omit them: the generator has fixed columns.")
    match name:
        case "counter":
            return Counter(options)
        case "auction":
            return Auction(options)
        case _:
            return Tpch(options)


class _Ticks:
    """Generates the changes of the ticks that are due. The state has the next tick of each target, and the start.

    A target that was added later is first filled up to the tick of the others.
    """

    def __init__(
        self, generator: Generator, options: OptionValues, targets: Sequence[Target], statistics: Statistics
    ) -> None:
        self._generator = generator
        self._interval_us = options.microseconds("tick interval")
        if self._interval_us is None:
            self._interval_us = generator.interval_us
        up_to = options.integer("up to", -1, 0)
        if self._interval_us is None and up_to < 0:
            up_to = 0  # only the snapshot
        self._end = generator.snapshot_ticks + up_to if up_to >= 0 else None
        self._targets = targets
        self._statistics = statistics
        self._next: dict[ObjectId, int] = {}
        self._start_us = 0
        self._due_s = 0.0  # when the next tick is due

    async def open(self, state: State) -> None:
        self._next = {target.id: int(state.get(target.id) or b"0") for target in self._targets}
        self._start_us = int(state.get(_START) or time.time_ns() // 1_000)
        interval_s = (self._interval_us or 0) / 1e6
        is_new = max(self._next.values()) <= self._generator.snapshot_ticks
        self._due_s = asyncio.get_running_loop().time() + (0 if is_new else interval_s)

    async def read(self, bytes_max: int) -> Changes:
        position = max(self._next.values())
        behind = [target for target in self._targets if self._next[target.id] < position]
        if behind:
            first = self._next[behind[0].id]
            targets = [target for target in behind if self._next[target.id] == first]
            end = self._limited(first, min(position, first + TICKS_MAX))
        else:
            targets, first = list(self._targets), position
            end = await self._due(position)
        references = list(dict.fromkeys(target.output.reference for target in targets))
        changes = await asyncio.to_thread(self._generator.changes, references, first, end, self._start_us)
        writes: dict[ObjectId, list[pa.Table]] = {t.id: list(changes.get(t.output.reference, ())) for t in targets}
        self._count(writes, end)
        for target in targets:
            self._next[target.id] = end
        state: dict[str, bytes | None] = {target.id: b"%d" % end for target in targets}
        state[_START] = b"%d" % self._start_us
        return Changes({id: tables for id, tables in writes.items() if tables}, state)

    async def committed(self, state: State) -> None:
        self._statistics.offset_committed = max(self._next.values())

    async def close(self) -> None:
        """There is nothing to close."""

    async def _due(self, position: int) -> int:
        """Waits until the tick `position` is due. Returns the end of the ticks that are."""
        if self._end is not None and position >= self._end:
            await asyncio.Event().wait()
        if position < self._generator.snapshot_ticks:
            return position + 1
        if not self._interval_us:
            return self._limited(position, position + TICKS_MAX)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._due_s - loop.time()))
        interval_s, late_s = self._interval_us / 1e6, max(0.0, loop.time() - self._due_s)
        ticks = min(int(late_s / interval_s) + 1, TICKS_MAX)
        self._due_s += ticks * interval_s
        return self._limited(position, position + ticks)

    def _limited(self, first: int, end: int) -> int:
        """The end of the ticks to generate at once: one of the snapshot, and none beyond UP TO."""
        if first < self._generator.snapshot_ticks:
            return first + 1
        return end if self._end is None else min(end, self._end)

    def _count(self, writes: Mapping[ObjectId, Sequence[pa.Table]], end: int) -> None:
        statistics, snapshot = self._statistics, self._generator.snapshot_ticks
        tables = [table for tables in writes.values() for table in tables]
        rows = sum(table.num_rows for table in tables)
        statistics.messages_received += rows
        statistics.bytes_received += sum(table.nbytes for table in tables)
        statistics.offset_known = self._end if self._end is not None else end
        if end <= snapshot:
            statistics.snapshot_records_staged = (statistics.snapshot_records_staged or 0) + rows
