"""ENVELOPE DEBEZIUM: each message says what it retracts (`before`) and what it adds (`after`).

Debezium repeats messages after a crash. A message that is not a row of a snapshot is a repetition if its position in
the log of the upstream database is not higher than all positions before it in its partition:

    accepted(m) = position(m) > max { position(m') : m' before m in the partition, of the same domain }

Rows of a snapshot all have one position. While a partition has only rows of a snapshot, a row whose key is in the
output already is a repetition; the output itself is the set of keys. After that, the state is one position per
partition. A snapshot with another position is a new one, which replaces the output.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catalog import updates
from catalog.collection_errors import CollectionError
from protocol.pgwire.errors import PgError, SqlState
from server.ingest.decoder_pool import DecoderPool
from server.ingest.kafka.envelopes.envelope import (
    Decoded,
    Envelope,
    Errors,
    Mask,
    Step,
    decode,
    permanent,
    replaced,
    unavailable,
    worked,
)
from server.ingest.kafka.errors import LASTING_HINT, Failures, identity
from server.ingest.kafka.layouts.debezium import AFTER, BEFORE, OP, SOURCE
from server.ingest.kafka.layouts.layout import Layout
from server.ingest.kafka.messages import Messages
from server.ingest.kafka.positions import Highest, Positions, Upstream, in_order, positions, restored
from server.ingest.key_join import KeyJoin, key_numbers

_STATE = "deduplication/"
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a partition. `highest`: the positions of its changes. `snapshot`: the place of its snapshot."""

    highest: Highest = field(default_factory=dict)
    snapshot: tuple[int, int] | None = None
    streaming: bool = False

    def stored(self) -> bytes:
        return json.dumps([self.highest, self.snapshot, self.streaming]).encode()

    @classmethod
    def restored(cls, value: bytes, origin: Upstream) -> Progress:
        highest, snapshot, streaming = json.loads(value)
        return cls(restored(origin, highest), tuple(snapshot) if snapshot else None, streaming)


class DebeziumEnvelope(Envelope):
    """The changes that Debezium describes, without repetitions."""

    def __init__(
        self,
        topic: str,
        layout: Layout,
        failures: Failures,
        decoders: DecoderPool,
        output: Callable[[], KeyJoin],
        current: Callable[[], Awaitable[pa.Table]],
        state: Mapping[str, bytes | None],
        *,
        partitions: int,
    ) -> None:
        """`output` returns the rows of the collection by key. `current` returns all of them. `state`: as stored."""
        assert layout.origin is not None
        self.failures = failures
        self._topic = topic
        self._layout = layout
        self._decoders = decoders
        self._origin = layout.origin
        self._open = output
        self._output: KeyJoin | None = None
        self._current = current
        self._partitions = partitions
        start = failures.prefix + _STATE
        self._progress = {
            int(key[len(start) :]): Progress.restored(value, self._origin)
            for key, value in state.items()
            if key.startswith(start) and value is not None
        }

    async def ahead(self, messages: Messages) -> Decoded:
        return await decode(self._layout, messages.in_order(), self._decoders)

    async def step(self, messages: Messages, ahead: Decoded | None = None) -> Step:
        decoded = ahead or await self.ahead(messages)
        messages = decoded.messages
        value = decoded.value
        tombstone = np.asarray(messages.values.is_null())
        failed = value.failed & ~tombstone
        changed = permanent(decoded, np.flatnonzero(failed), self._topic, "Decode error: ")
        operations = np.asarray(value.columns[(OP,)].fill_null(""), object)
        usable = ~tombstone & ~failed & (operations != "m")
        if (operations[usable] == "t").any():
            raise self._refused("has the TRUNCATE of a table, which ENVELOPE DEBEZIUM does not support")
        source = {path[1]: column for path, column in value.columns.items() if len(path) == 2 and path[0] == SOURCE}
        if np.asarray(pc.equal(source["snapshot"].cast(pa.string()), "incremental").fill_null(False))[usable].any():
            raise self._refused("has an incremental snapshot, which ENVELOPE DEBEZIUM does not support")
        found = await worked(messages, positions, self._origin, source, value.columns[(OP,)])
        invalid = found.invalid & usable
        changed.update(self._invalid(decoded, np.flatnonzero(invalid), source))
        accepted, replaces = await self._accepted(decoded, found, usable & ~invalid)
        tables = await worked(messages, self._changes, decoded, accepted, found.snapshot, operations)
        if replaces:
            tables.append(updates.with_diff(await self._current(), -1))
        state = self.failures.changed(changed)
        for partition in np.unique(messages.partitions).tolist():
            state[f"{self.failures.prefix}{_STATE}{partition}"] = self._progress[partition].stored()
        if self._output is not None and all(progress.streaming for progress in self._progress.values()):
            self.close()
        if self._output is not None:
            self._output.rows.keep()
        return Step(tables, state)

    # -- repetitions --------------------------------------------------------------------------------------------

    async def _accepted(self, decoded: Decoded, found: Positions, usable: Mask) -> tuple[Mask, bool]:
        """A mask of the messages that are no repetitions, and whether they replace the output by a new snapshot."""
        messages = decoded.messages
        accepted = np.zeros(len(messages), np.bool_)
        unseen = np.zeros(len(messages), np.bool_)  # rows of a snapshot that are accepted if their key is new
        replaces = False
        for partition in np.unique(messages.partitions).tolist():
            rows = np.flatnonzero((messages.partitions == partition) & usable)
            progress = self._progress.get(partition, Progress())
            for row in self._snapshot_starts(rows, found):
                own = found.place(row)
                if progress.snapshot in (None, own):
                    if progress.snapshot is None and progress.streaming:
                        raise self._refused("has the rows of a snapshot after changes")
                    progress = replace(progress, snapshot=own)
                    continue
                if self._partitions > 1:
                    raise self._refused("has a second snapshot, and several partitions")
                # Everything before the new snapshot is superseded by it.
                replaces, progress = True, Progress(snapshot=own)
                accepted[:row] = unseen[:row] = False
                rows = rows[rows >= row]
            stream = rows[~found.snapshot[rows]]
            own_snapshot = rows[found.snapshot[rows]]
            first = int(stream[0]) if len(stream) else len(messages)
            if not progress.streaming:
                unseen[own_snapshot[own_snapshot < first]] = True  # the later ones are repetitions
            is_new, highest = in_order(found, stream, progress.highest)
            accepted[stream] = is_new
            self._progress[partition] = replace(
                progress, highest=highest, streaming=progress.streaming or len(stream) > 0
            )
        if unseen.any():
            accepted[await self._first_of_keys(decoded, np.flatnonzero(unseen), is_empty=replaces)] = True
        return accepted, replaces

    def _snapshot_starts(self, rows: Rows, found: Positions) -> list[int]:
        """The rows of snapshots at which the place of the snapshot changes."""
        own = rows[found.snapshot[rows]]
        if len(own) == 0:
            return []
        steps = np.any(np.diff(found.places[own], axis=0) != 0, axis=1)
        return [int(own[0]), *own[1:][steps].tolist()]

    async def _first_of_keys(self, decoded: Decoded, rows: Rows, *, is_empty: bool) -> Rows:
        """The first of `rows` with each key that is not in the output. `is_empty`: the output will be replaced."""
        assert decoded.key is not None
        if (decoded.key.failed | np.asarray(decoded.messages.keys.is_null()))[rows].any():
            raise self._refused("has a row without a key that can be decoded")
        columns = [decoded.key.columns[path].take(pa.array(rows)) for _, path in self._layout.key]
        keys = pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
        first = np.sort(np.unique(key_numbers(keys), return_index=True)[1])
        if is_empty:
            return rows[first]
        if self._output is None:
            self._output = self._open()
        _, seen = await self._output.find(keys.take(pa.array(first)))
        return np.delete(rows[first], seen)

    # -- changes ------------------------------------------------------------------------------------------------

    def _changes(
        self, decoded: Decoded, accepted: Mask, snapshot: Mask, operations: NDArray[np.object_]
    ) -> list[pa.Table]:
        value = decoded.value
        has_before = np.asarray(value.columns[(BEFORE,)].fill_null(False)) & accepted & ~snapshot
        has_after = np.asarray(value.columns[(AFTER,)].fill_null(False)) & accepted
        changes = accepted & ~snapshot & np.isin(operations, ("u", "d"))
        if (missing := np.flatnonzero(changes & ~has_before)).size:
            raise PgError(
                SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
                f'topic "{self._topic}" has a change without the old row',
                detail=decoded.detail(int(missing[0]), self._topic),
                hint="Execute ALTER TABLE ... REPLICA IDENTITY FULL upstream (MySQL: binlog_row_image = FULL) and "
                "create the source again, or use ENVELOPE DEBEZIUM UPSERT.",
            )
        after = self._layout.rows(decoded.messages, None, value)
        before = self._layout.rows(decoded.messages, None, value, BEFORE) if has_before.any() else None
        for position, _ in self._layout.values:
            marked = unavailable(after.column(position)) & has_after
            if marked.any() and before is not None:
                known = marked & has_before
                after = replaced(after, position, known, before.column(position).filter(pa.array(known)))
        after = after.filter(pa.array(has_after))
        if before is None:
            return [after]
        return [updates.with_diff(before.filter(pa.array(has_before)), -1), updates.with_diff(after, 1)]

    def _invalid(self, decoded: Decoded, rows: Rows, source: Mapping[str, pa.Array]) -> Errors:
        names = ["sequence"] if self._origin is Upstream.POSTGRES else ["file", "gtid"]
        found: Errors = {}
        for row in rows.tolist():
            place = f"{decoded.messages.partitions[row]}/{decoded.messages.offsets[row]}"
            given = ", ".join(f"{name}: {source[name][row].as_py()}" for name in names if name in source)
            text = f"Debezium: invalid {given}"
            detail = decoded.detail(row, self._topic)
            found[identity("message", place.encode())] = CollectionError(text, detail, LASTING_HINT)
        return found

    def _refused(self, reason: str) -> PgError:
        return PgError(
            SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE,
            f'topic "{self._topic}" {reason}',
            hint="Create the source again, or use ENVELOPE DEBEZIUM UPSERT.",
        )

    async def committed(self) -> None:
        if self._output is not None:
            await self._output.rows.committed()

    def partitions_added(self, count: int) -> None:
        self._partitions = count

    def close(self) -> None:
        if self._output is not None:
            self._output.rows.close()
            self._output = None
