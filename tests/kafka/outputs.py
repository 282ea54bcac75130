"""Runs envelopes on collections of a real coordinator, without Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from catalog import source_state
from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.source_definition import Format
from protocol.pgwire.errors import PgError
from server.coordinator.committer import Request
from server.coordinator.coordinator import Coordinator
from server.coordinator.payloads import prepare_payloads
from server.ingest.kafka.envelopes.envelope import Envelope
from server.ingest.kafka.layouts.by_envelope import layout_of
from server.ingest.kafka.layouts.layout import Layout, Schemas
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.upstream import envelope_of
from server.ingest.source_definition import Output, Target
from server.ingest.source_kind import SourceContext
from server.runtime.metrics import Metrics
from tests.server.slow_engine import PassingEngine

ID = ObjectId("u10")
TOPIC = "topic"


class JoinEngine(PassingEngine):
    """Compares the keys of a step as Spark does, in Python. Returns the input of other statements unchanged."""

    async def run(
        self, sql: str, views: Mapping[str, pa.Table], *, patient: bool = False, background: bool = False
    ) -> pa.Table:
        if "<=>" not in sql:
            return await super().run(sql, views, patient=patient, background=background)
        first, *others = (list(zip(*views[name].to_pydict().values(), strict=True)) for name in sorted(views))
        if not others:  # pairs
            width = len(views["d0"].column_names) // 2
            equal = [row[-1] for row in first if _normal(row[:width]) == _normal(row[width:-1])]
            return pa.table({"c0": pa.array(equal, pa.int64())})
        numbers = {_normal(row[:-1]): row[-1] for row in others[0]}
        pairs = [(row[-1], numbers[_normal(row[:-1])]) for row in first if _normal(row[:-1]) in numbers]
        return pa.table(
            {"c0": pa.array([a for a, _ in pairs], pa.int64()), "c1": pa.array([b for _, b in pairs], pa.int64())}
        )


def _normal(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key with one value for all NaN."""
    return tuple("NaN" if value != value else value for value in key)


@dataclass(frozen=True, slots=True)
class Message:
    key: bytes | None
    value: bytes | None
    partition: int = 0


@dataclass
class Topic:
    """Numbers the messages of each partition."""

    ends: dict[int, int] = field(default_factory=dict)

    def messages(self, batch: Sequence[Message]) -> Messages:
        offsets = []
        for message in batch:
            offsets.append(self.ends.get(message.partition, 0))
            self.ends[message.partition] = offsets[-1] + 1
        return Messages(
            np.array([m.partition for m in batch], np.int32),
            np.array(offsets, np.int64),
            np.zeros(len(batch), np.int64),
            pa.array([m.key for m in batch], pa.binary()),
            pa.array([m.value for m in batch], pa.binary()),
        )


class OutputRun:
    """A collection that an envelope fills: `async with OutputRun(...) as output`."""

    def __init__(
        self,
        directory: Path,
        format: Format,
        schemas: Schemas,
        engine: Any = None,
        partitions: int = 1,
        columns: Sequence[Column] = (),
        interval_s: float = 0.01,
    ) -> None:
        """`interval_s`: as `--timestamp-interval`; also between two compactions of the log."""
        self.format = format
        self.layout: Layout = layout_of(format, schemas, {"key": None, "value": None}, columns)
        self._columns = columns
        self._directory = directory
        self._engine = engine or JoinEngine()
        self._schemas = schemas
        self._partitions = partitions
        self._interval_s = interval_s
        self.topic = Topic()
        self.coordinator: Coordinator
        self.envelope: Envelope

    async def __aenter__(self) -> OutputRun:
        await self._open()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.envelope.close()
        await self.coordinator.close()

    async def _open(self) -> None:
        self.coordinator = Coordinator(
            self._directory, engine=self._engine, metrics=Metrics(), interval_s=self._interval_s, system_tables={}
        )
        await self.coordinator.start()
        before = self.coordinator.state
        if ID not in before.items:
            table = Table(ID, ObjectId("u2"), "t", self.layout.columns)
            after = replace(before.with_item(table), version=before.version + 1)
            await self.coordinator.commit(Request(catalog=(before, after)))
        self.resume()

    def resume(self) -> None:
        """A new envelope with the committed state, as after an error of the upstream."""
        state = source_state.load(self.coordinator.store, ID)
        layout = layout_of(self.format, self._schemas, {"key": None, "value": None}, self._columns)
        target = Target(ID, Output(TOPIC, "t", layout.columns), self.format)
        context = SourceContext(ID, self.coordinator, self._engine)
        self.envelope = envelope_of(target, self.format, layout, state, context, partitions=self._partitions)

    async def restart(self) -> None:
        """Closes the server's state and opens it again."""
        self.envelope.close()
        await self.coordinator.close()
        await self._open()

    async def apply(self, batch: Sequence[Message]) -> None:
        """Commits the changes of new messages."""
        await self.commit(self.topic.messages(batch))

    async def commit(self, messages: Messages) -> None:
        """Commits the changes of messages."""
        step = await self.envelope.step(messages)
        payloads = await prepare_payloads(self.coordinator.log, {ID: list(step.tables)} if step.tables else {})
        known = self.coordinator.errors.latest(ID)
        error = self.envelope.failures.error(known)
        errors = {} if error == known else {ID: error}
        await self.coordinator.commit(Request(writes=payloads, source_state={ID: dict(step.state)}, errors=errors))
        await self.envelope.committed()

    async def rows(self) -> list[dict[str, Any]]:
        """The committed rows, by the names of the columns. Also while there are errors."""
        found = await self.coordinator.reads.decoded_rows(ID, self.coordinator.latest_time())
        return found.rename_columns([column.name for column in self.layout.columns]).to_pylist()

    async def error(self) -> PgError | None:
        """The error of reads of the collection."""
        try:
            await self.coordinator.reads.rows(ID, self.coordinator.latest_time())
        except PgError as error:
            return error
        return None

    @property
    def errors(self) -> list[str]:
        """The messages of the live errors."""
        return sorted(failure.message for failure in self.envelope.failures.live.values())


def run(work: Any) -> None:
    """Runs a coroutine in a loop of its own: property tests are not async functions."""
    asyncio.run(work)
