"""Rows of the system tables about running sources: statuses and statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from catalog import builtin
from catalog.ids import ObjectId
from catalog.objects.kinds import object_type
from catalog.objects.sources import Source, SourcePart
from catalog.state import CatalogState
from server.coordinator.coordinator import SystemSource
from server.ingest.ingestion import Status
from server.ingest.sources import RunningSource
from server.introspection.system_tables import moving

Row = tuple[object, ...]
Running = Callable[[], Mapping[ObjectId, RunningSource]]


def source_tables(running: Running) -> dict[ObjectId, SystemSource]:
    """The tables. `running` returns the running sources by id."""
    return {
        builtin.MZ_SOURCE_STATUSES.id: moving(
            builtin.MZ_SOURCE_STATUSES, lambda coordinator: _statuses(coordinator.state, running())
        ),
        builtin.MZ_SOURCE_STATISTICS.id: moving(
            builtin.MZ_SOURCE_STATISTICS, lambda coordinator: _statistics(coordinator.state, running())
        ),
        builtin.MZ_SOURCE_FRONTIERS.id: moving(
            builtin.MZ_SOURCE_FRONTIERS, lambda coordinator: _frontiers(coordinator.state, running())
        ),
    }


def _statuses(state: CatalogState, running: Mapping[ObjectId, RunningSource]) -> Iterator[Row]:
    """A row per source, subsource and table from a source. An output that failed alone has its own error."""
    for id, source in running.items():
        item = state.items.get(id)
        if not isinstance(item, Source):
            continue  # it was dropped, and its task has not ended yet
        parts = [part for part in state.items_of(SourcePart) if part.source == id]
        status, error, changed_us = Status.STARTING, None, None
        if (ingestion := source.ingestion) is not None:
            status, error, changed_us = ingestion.status, ingestion.error, ingestion.status_changed_us
        elif not parts and not item.columns:
            status = Status.RUNNING
        for output in (item, *parts):
            type = item.system.replace(" ", "-") if output is item else object_type(output.kind)
            own = source.statistics.errors.get(output.id)
            history = source.statistics.histories.get(output.id)
            stall = history().stall if history is not None and status is Status.RUNNING else None
            shown = Status.FAILED if own is not None else Status.STALLED if stall is not None else status
            reason = own or error or stall
            message, hint = (reason.message, reason.hint) if reason is not None else (None, None)
            yield output.id, output.name, type, changed_us, shown.value, message, hint


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
