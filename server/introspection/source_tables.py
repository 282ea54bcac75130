"""Rows of the system tables about running sources: statuses and statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from catalog import builtin
from catalog.ids import ObjectId
from catalog.objects.kinds import object_type
from catalog.objects.sources import Source
from catalog.state import CatalogState
from catalog.updates import NegativeCount
from protocol.pgwire.errors import PgError
from server.coordinator.coordinator import Coordinator, SystemSource
from server.ingest.ingestion import Status
from server.ingest.source_kind import Statistics
from server.ingest.sources import RunningSource
from server.introspection.system_tables import moving
from server.runtime.errors import to_pg_error

Row = tuple[object, ...]
Running = Callable[[], Mapping[ObjectId, RunningSource]]


def source_tables(running: Running) -> dict[ObjectId, SystemSource]:
    """The tables. `running` returns the running sources by id."""
    return {
        builtin.MZ_SOURCE_STATUSES.id: moving(
            builtin.MZ_SOURCE_STATUSES, lambda coordinator: _statuses(coordinator, running())
        ),
        builtin.MZ_SOURCE_STATISTICS.id: moving(
            builtin.MZ_SOURCE_STATISTICS, lambda coordinator: _statistics(coordinator.state, running())
        ),
        builtin.MZ_SOURCE_FRONTIERS.id: moving(
            builtin.MZ_SOURCE_FRONTIERS, lambda coordinator: _frontiers(coordinator.state, running())
        ),
    }


def _statuses(coordinator: Coordinator, running: Mapping[ObjectId, RunningSource]) -> Iterator[Row]:
    """A row per source, subsource and table from a source. An output that failed alone has its own error."""
    state = coordinator.state
    for id, source in running.items():
        item = state.items.get(id)
        if not isinstance(item, Source):
            continue  # it was dropped, and its task has not ended yet
        parts = state.parts_of(id)
        status, error, changed_us = Status.STARTING, None, None
        if (ingestion := source.ingestion) is not None:
            status, error, changed_us = ingestion.status, ingestion.error, ingestion.status_changed_us
        elif not parts and not item.columns:
            status = Status.RUNNING
        for output in (item, *parts):
            type = item.system.replace(" ", "-") if output is item else object_type(output.kind)
            own = source.statistics.errors.get(output.id)
            stall = _stall(source.statistics, output.id) if status is Status.RUNNING else None
            shown = Status.FAILED if own is not None else Status.STALLED if stall is not None else status
            negative = coordinator.reads.negative(output.id)
            reason = own or error or stall or (None if negative is None else _negative_error(negative))
            message, hint = (reason.message, reason.hint) if reason is not None else (None, None)
            yield output.id, output.name, type, changed_us, shown.value, message, hint


def _stall(statistics: Statistics, id: ObjectId) -> PgError | None:
    """Why an output waits, although its source is running. None if it does not wait too long."""
    if (history := statistics.histories.get(id)) is not None:
        return history().stall
    stall = statistics.stalls.get(id)
    return None if stall is None else stall()


def _negative_error(found: NegativeCount) -> PgError:
    """The error of reads of a collection that has a row with a negative multiplicity. The source continues."""
    error = to_pg_error(found)
    error.hint = "The source has deleted a row that it had not inserted. Reads succeed after it has inserted the row."
    return error


def _frontiers(state: CatalogState, running: Mapping[ObjectId, RunningSource]) -> Iterator[Row]:
    """A row per output with ENVELOPE MATERIALIZE."""
    for source in running.values():
        for id, status in source.statistics.histories.items():
            if id in state.items:
                found = status()
                yield (
                    *(id, found.frontier, found.open_updates, found.missing_updates),
                    *(found.duplicates, found.invalid_messages),
                )


def _statistics(state: CatalogState, running: Mapping[ObjectId, RunningSource]) -> Iterator[Row]:
    for id, source in running.items():
        if id in state.items:
            found = source.statistics
            yield (
                id,
                found.messages_received,
                found.bytes_received,
                source.rows,
                found.snapshot_records_known,
                found.snapshot_records_staged,
                found.offset_known,
                found.offset_committed,
                found.invalid_messages,
                found.last_invalid_message,
            )
