"""The interface of a kind of source: what CREATE SOURCE asks it, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from catalog.ids import ObjectId
from protocol.pgwire.errors import PgError
from server.coordinator.coordinator import Coordinator
from server.ingest.decoder_pool import DecoderPool
from server.ingest.history import HistoryStatus
from server.ingest.source_definition import Options, Output, SourceDefinition, Target
from server.ingest.upstream import Upstream
from server.spark import Engine


@dataclass(slots=True)
class Statistics:
    """What the upstream of a source has read since the start, for `mz_source_statistics`. None: unknown.

    `histories`: by output with ENVELOPE MATERIALIZE. `stalls`: by other outputs that can wait for what is missing, or
    for what removes an error, the reason why they wait, or None. `errors`: outputs that the upstream no longer fills
    although it continues with the others, with the reason. `invalid_messages`: those that could not be decoded; those
    that are read again count again. `last_invalid_message`: where the last one is, and the reason.
    """

    messages_received: int = 0
    bytes_received: int = 0
    offset_known: int | None = None
    offset_committed: int | None = None
    snapshot_records_known: int | None = None
    snapshot_records_staged: int | None = None
    errors: dict[ObjectId, PgError] = field(default_factory=dict)
    histories: dict[ObjectId, Callable[[], HistoryStatus]] = field(default_factory=dict)
    stalls: dict[ObjectId, Callable[[], PgError | None]] = field(default_factory=dict)
    invalid_messages: int = 0
    last_invalid_message: str | None = None

    def count_invalid(self, count: int, last: str) -> None:
        """Counts messages that could not be decoded. `last`: where the last one is, and the reason."""
        self.invalid_messages += count
        self.last_invalid_message = last


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What an upstream can use of the server."""

    source: ObjectId
    coordinator: Coordinator
    engine: Engine
    statistics: Statistics = field(default_factory=Statistics)
    decoders: DecoderPool = field(default_factory=lambda: DecoderPool(workers_max=0))


class SourceKind(Protocol):
    """A kind of source. Its methods do not block the event loop."""

    async def validate(self, connection: Options) -> None:
        """Contacts the external system of CREATE CONNECTION ... WITH (VALIDATE). PgError if it cannot be reached."""
        ...

    async def outputs(self, definition: SourceDefinition) -> Sequence[Output]:
        """Contacts the external system at CREATE: checks the definition and returns the collections. PgError otherwise.

        If `definition.tables` is empty, a kind with one output per source (a topic with a format, a file) returns that
        output, and another kind returns none. CREATE TABLE ... FROM SOURCE calls this with one reference in
        `definition.tables`, and with the format of the table.
        """
        ...

    async def fixed_options(self, definition: SourceDefinition) -> Mapping[str, str]:
        """The options of a new source. Those that mean something else later are replaced. Called after `outputs`."""
        ...

    def upstream(self, definition: SourceDefinition, targets: Sequence[Target], context: SourceContext) -> Upstream:
        """The external system as the ingestion reads it.

        `targets` may have changed since the state was stored: a new one is filled from its beginning, and what is left
        of one that was dropped is ignored.
        """
        ...

    async def dropped(self, definition: SourceDefinition) -> None:
        """Removes what the source created in the external system, after DROP SOURCE. UpstreamError is logged."""
        ...
