"""What `tidewire top` reads: the rows of some system tables, at about the same time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

# Each statement scans one table, which the server answers without Spark. The rows are combined here.
_TABLES = {
    "objects": "mz_catalog.mz_objects",
    "frontiers": "mz_internal.mz_frontiers",
    "dataflows": "mz_internal.mz_dataflows",
    "lags": "mz_internal.mz_dataflow_lags",
    "hydrations": "mz_internal.mz_hydration_statuses",
    "arrangements": "mz_internal.mz_arrangements",
    "holds": "mz_catalog.mz_holds",
    "held": "mz_catalog.mz_hold_objects",
    "sources": "mz_internal.mz_source_statuses",
    "source_counts": "mz_internal.mz_source_statistics",
    "sinks": "mz_internal.mz_sink_statuses",
    "sink_counts": "mz_internal.mz_sink_statistics",
    "sessions": "mz_internal.mz_sessions",
    "subscriptions": "mz_internal.mz_subscriptions",
    "activity": "pg_catalog.pg_stat_activity",
}
# The columns of tables of which only superusers may read all.
_PUBLIC = {
    "dataflows": "id, object_id, rule, write_frontier, hydrated, "
    "steps, last_step_ms, mean_step_ms, max_step_ms, steps_ms",
    "lags": "dataflow_id, lag_ms, holds_writers",
    "sources": "id, name, type, last_status_change_at, status",
    "sinks": "id, name, type, status, frontier, held_at",
}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows of the tables by their names in `_TABLES`.

    `taken_s`: the time of this computer's monotonic clock, in seconds. `hidden`: the tables that the role may not read.
    """

    taken_s: float
    tables: Mapping[str, Sequence[Row]]
    hidden: Sequence[str] = field(default=())

    def by(self, table: str, column: str) -> dict[Any, list[Row]]:
        """The rows of a table, grouped by a column."""
        groups: dict[Any, list[Row]] = defaultdict(list)
        for row in self.tables[table]:
            groups[row[column]].append(row)
        return groups

    def first(self, table: str, column: str, value: object) -> Row | None:
        """The first row of a table with this value in a column."""
        return next((row for row in self.tables[table] if row[column] == value), None)

    def name(self, id: str | None) -> str:
        """The name of an object, or its id if it does not exist any more."""
        found = self.first("objects", "id", id)
        return str(found["name"]) if found is not None else str(id)


async def read(connection: Any) -> Reading:
    """The tables as they are now. asyncpg's errors if the connection is lost."""
    tables: dict[str, Sequence[Row]] = {}
    hidden = []
    for name, table in _TABLES.items():
        for columns in ("*", *([_PUBLIC[name]] if name in _PUBLIC else [])):
            try:
                tables[name] = await connection.fetch(f"SELECT {columns} FROM {table}")
                break
            except asyncpg.InsufficientPrivilegeError:
                pass
        else:
            tables[name] = []
            hidden.append(table)
    return Reading(time.monotonic(), tables, hidden)
