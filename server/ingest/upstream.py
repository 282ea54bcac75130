"""The external system of a source, as its ingestion uses it. Each kind of source implements `Upstream`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from catalog.batches import Payload
from catalog.collection_errors import CollectionError
from catalog.ids import ObjectId, Timestamp
from catalog.source_state import State


class UpstreamError(Exception):
    """The external system cannot be read for now. The ingestion opens it again after a pause.

    `message`, `hint`: as PostgreSQL words them; they name the broker, topic, partition or table, and no secret.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that are committed together, at one timestamp.

    `writes`: by collection, rows (c0, c1, ...) or changes with `catalog.updates.DIFF`, in any number of tables.
    `state`: what the source must know to continue after these changes. Keys that are not given keep their values.
    `payloads`: further rows or changes, which are too large for memory and already in files of the log.
    `read_at`: the collections whose retracted rows are known to exist, with the time at which they do. Others are
    checked for negative multiplicities when they are read.
    `closed`: collections with the timestamps of their upstream, with the upstream frontier. Their `writes` are changes
    with the column `protocol.cdcv2.messages.TIME`, all at times before the frontier. No other collection has changes.
    `errors`: the collections whose reads fail from now on, with the error, or no longer fail (None).
    """

    writes: Mapping[ObjectId, list[pa.Table]] = field(default_factory=dict)
    state: State = field(default_factory=dict)
    payloads: Sequence[tuple[ObjectId, Payload]] = ()
    read_at: Mapping[ObjectId, Timestamp] = field(default_factory=dict)
    errors: Mapping[ObjectId, CollectionError | None] = field(default_factory=dict)
    closed: Mapping[ObjectId, int] = field(default_factory=dict)


class Upstream(Protocol):
    """Reads an external system. One task uses it: `open`, any number of `read` and `committed`, `close`, `open` again.

    A PgError says that the source cannot continue before its definition or the external system is changed: the
    ingestion ends and reports it. UpstreamError: the ingestion retries.
    """

    async def open(self, state: State) -> None:
        """Connects, and continues after the changes that were committed with `state`; empty: from the beginning."""
        ...

    async def read(self, bytes_max: int) -> Changes:
        """Returns the next changes, about `bytes_max` of Arrow data at most. Waits until there are some.

        One transaction of the external system is never split. Cancel safety: changes that are not returned are read
        again after the next `open`.
        """
        ...

    async def committed(self, state: State) -> None:
        """Called when the changes with this state are on disk. The external system may forget what precedes it."""
        ...

    async def close(self) -> None:
        """Disconnects. Called after each `open`, also after one that failed."""
        ...
