"""Reads of collections and system tables at a timestamp."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import pyarrow as pa

from catalog.collection_errors import CollectionError, CollectionErrors
from catalog.ids import ObjectId, Timestamp
from catalog.layout import Altered
from catalog.log import Log
from catalog.objects.relations import Collection, DerivedRelation, WrittenCollection
from catalog.objects.system_tables import SystemTable
from catalog.updates import NegativeCount
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.committer import Committer
from server.coordinator.dataflows import Dataflows
from server.coordinator.snapshot_cache import SnapshotCache, collection_schema, layout_of
from server.coordinator.system_table_history import SystemTableHistory
from server.sql.key_conditions import Wanted, selected
from server.timeline.frontiers import Frontiers

LOOP_ROWS_MAX = 256  # more changes are read from the log in a thread


class Reads:
    """Reads relations by id. The caller holds the times that it reads; the latest time needs no hold."""

    def __init__(
        self,
        committer: Committer,
        log: Log,
        errors: CollectionErrors,
        frontiers: Frontiers,
        snapshots: SnapshotCache,
        system_tables: SystemTableHistory,
        dataflows: Dataflows,
    ) -> None:
        self._committer = committer
        self._log = log
        self._errors = errors
        self._frontiers = frontiers
        self._snapshots = snapshots
        self._system_tables = system_tables
        self._dataflows = dataflows
        self._negative: dict[ObjectId, tuple[Timestamp, NegativeCount]] = {}

    async def rows(
        self, id: ObjectId, as_of: Timestamp, wanted: Wanted = (), altered: Collection | None = None
    ) -> pa.Table:
        """Returns the rows of a collection at `as_of`, or the current rows of a system table; only the wanted ones.

        Waits until `as_of < upper`. PgError if the relation was dropped, is a materialized view that fails, or has an
        error at `as_of`. `altered`: its definition, if that is not the committed one.
        """
        item = altered or self._committer.state.items.get(id)
        match item:
            case SystemTable():
                return selected(self._system_tables.current_rows(item), wanted)
            case Collection():
                await self.final(item, as_of)
                self.check_errors((id,), as_of)
                if not wanted:
                    return await self._rows(item, as_of)
                await self.check_multiplicities(id, 1, as_of)
                try:
                    rows = await self._snapshots.selected(item, as_of, wanted)
                except Altered:
                    raise altered_error(item.name) from None
                self.require(item)
                return rows
            case _:
                raise _dropped()

    async def decoded_rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        """As `rows`, even if the collection has an error: the rows that could be decoded."""
        item = self._committer.state.items.get(id)
        if not isinstance(item, Collection):
            return await self.rows(id, as_of)
        await self.final(item, as_of)
        return await self._rows(item, as_of)

    def negative(self, id: ObjectId) -> NegativeCount | None:
        """The error of the last read of a collection that had to find its rows, if a multiplicity was negative."""
        found = self._negative.get(id)
        return None if found is None else found[1]

    async def _snapshot(self, item: Collection, time: Timestamp) -> pa.Table:
        """NegativeCount with the name of the collection, which is kept for `negative`."""
        try:
            rows = await self._snapshots.rows(item, time)
        except NegativeCount as error:
            named = NegativeCount(str(error), item.name)
            kept = {id: found for id, found in self._negative.items() if id in self._committer.state.items}
            self._negative = {**kept, item.id: (time, named)}
            raise named from None
        if item.id in self._negative and self._negative[item.id][0] <= time:
            del self._negative[item.id]
        return rows

    async def _rows(self, item: Collection, as_of: Timestamp) -> pa.Table:
        try:
            rows = await self._snapshot(item, as_of)
        except Altered:
            raise altered_error(item.name) from None
        self.require(item)
        return rows

    async def final(self, item: Collection, as_of: Timestamp) -> None:
        """Waits until `as_of < upper`. PgError if the collection was dropped, or is a materialized view that fails."""
        while self._frontiers.upper(item.id) <= as_of:
            if (error := self._dataflows.error_of([item.id], as_of)) is not None:
                raise error
            self.require(item)
            await self._frontiers.moved.wait()

    def require(self, item: Collection) -> None:
        """PgError 42P01 if the collection was dropped."""
        if item.id not in self._committer.state.items:
            raise _dropped(item.name)

    async def final_and_valid(self, id: ObjectId, as_of: Timestamp) -> None:
        """As `final`. PgError if the collection has an error, NegativeCount if a row has a negative multiplicity.

        Relations that are no collections are not checked.
        """
        item = self._committer.state.items.get(id)
        if isinstance(item, Collection):
            await self.final(item, as_of)
            self.check_errors((id,), as_of)
            await self.check_multiplicities(id, 1, as_of)

    async def check_multiplicities(self, id: ObjectId, lower: int, time: Timestamp) -> None:
        """NegativeCount if a row of a collection has a negative multiplicity at `time`.

        The caller knows that no multiplicity was negative before `lower`. The rows are read only if a transaction
        retracted rows that it had not read, at `lower` or later.
        """
        item = self._committer.state.items.get(id)
        if isinstance(item, WrittenCollection) and not self._committer.has_read_retractions(id, lower):
            await self._snapshot(item, time)

    def check_errors(self, ids: Iterable[ObjectId], time: int) -> None:
        """PgError if one of the collections has an error at `time`, or one that a materialized view reads."""
        for id in self._with_errors(ids):
            if (error := self._errors.at(id, time)) is not None:
                raise error_of(error)

    def error_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        """The times in [lower, upper) at which the result of `check_errors` may change."""
        return [time for found in self._with_errors((id,)) for time in self._errors.times(found, lower, upper)]

    def _with_errors(self, ids: Iterable[ObjectId]) -> Iterator[ObjectId]:
        """The collections, and those from which they are computed; nothing if no collection has an error."""
        if self._errors:
            yield from self._committer.state.collections(ids, through=DerivedRelation)

    def is_logged(self, id: ObjectId) -> bool:
        """Whether the relation is a collection of the log."""
        return isinstance(self._committer.state.items.get(id), Collection)

    def log_row_count(self, id: ObjectId, lower: int = 0, upper: int | None = None) -> int:
        """Returns the number of log rows of a collection in [lower, upper), 0 for a relation that is not in the log.

        `upper` None means all times from `lower` on. The number for all times approximates the number of rows.
        """
        return self._log.row_count(id, lower, upper) if self.is_logged(id) else 0

    def sizes(self, ids: Iterable[ObjectId]) -> dict[ObjectId, int]:
        """Returns the number of log rows per collection. Relations that are not in the log are omitted."""
        return {id: self.log_row_count(id) for id in ids if self.is_logged(id)}

    async def changes(self, id: ObjectId, lower: int, upper: int) -> pa.Table:
        """Returns a logged collection's consolidated changes in [lower, upper). The caller holds `lower - 1`."""
        item = self._committer.state.items.get(id)
        if not isinstance(item, Collection):
            raise _dropped()
        await self.final(item, Timestamp(upper - 1))
        schema, layout, log = collection_schema(item), layout_of(item), self._log
        if log.row_count(id, lower, upper) <= LOOP_ROWS_MAX and log.are_cached(id, lower, upper):
            return log.changes(id, lower, upper, schema, layout)
        return await asyncio.to_thread(log.changes, id, lower, upper, schema, layout)


class DataflowInputs:
    """The inputs of dataflows, as `Inputs`: collections of the log, and system tables while they have history."""

    def __init__(self, reads: Reads, log: Log, system_tables: SystemTableHistory) -> None:
        self.is_logged = reads.is_logged
        self.changes = reads.changes
        self.check = reads.check_multiplicities
        self.log_row_count = reads.log_row_count
        self._reads = reads
        self._log = log
        self._system_tables = system_tables

    async def rows(self, id: ObjectId, as_of: Timestamp) -> pa.Table:
        """As `Inputs.rows`."""
        if id in self._system_tables:
            return self._system_tables.rows(id, as_of)
        return await self._reads.decoded_rows(id, as_of)

    def change_times(self, id: ObjectId, lower: int, upper: int) -> list[Timestamp]:
        """As `Inputs.change_times`."""
        history = self._system_tables if id in self._system_tables else self._log
        times = history.times(id, lower, upper)
        errors = self._reads.error_times(id, lower, upper)
        return sorted({*times, *errors}) if errors else times

    def check_errors(self, ids: Iterable[ObjectId], times: Iterable[Timestamp]) -> None:
        """As `Inputs.check_errors`."""
        for time in times:
            self._reads.check_errors(ids, time)


def error_of(error: CollectionError) -> PgError:
    """The error of reads of a collection."""
    return PgError(SqlState.DATA_EXCEPTION, error.message, detail=error.detail, hint=error.hint or None)


class AlteredError(PgError):
    """The error if a table was altered after the planning of a statement that reads or writes it."""


def altered_error(name: str) -> AlteredError:
    """The error of a statement or a subscription that was planned for an earlier definition of a table."""
    return AlteredError(
        SqlState.SERIALIZATION_FAILURE,
        f'relation "{name}" was altered',
        detail="The statement was planned for an earlier definition of the relation.",
        hint="Execute the statement again.",
    )


def _dropped(name: str | None = None) -> PgError:
    """`name`: None if it is not known any more."""
    relation = "a relation of the query" if name is None else f'relation "{name}"'
    return PgError(SqlState.UNDEFINED_TABLE, f"{relation} was dropped")
