"""System tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from catalog.objects.catalog_object import SELECT_ONLY
from catalog.objects.relations import Relation
from catalog.roles import Privilege

_NUMBERS_OF_ROWS = frozenset(
    (
        "mz_arrangements",
        "mz_dataflow_operators",
        "mz_hydration_statuses",
        "mz_sink_statistics",
        "mz_source_statistics",
    )
)
_OF_ROWS: Mapping[str, frozenset[str]] = {
    "mz_dataflow_lags": frozenset(("commits", "bytes")),
    "mz_dataflows": frozenset(("error",)),
    "mz_sink_statuses": frozenset(("error", "hint")),
    "mz_source_frontiers": frozenset(("open_updates", "missing_updates", "duplicate_updates", "invalid_messages")),
    "mz_source_statuses": frozenset(("error", "hint")),
}
"""The columns of other tables that have numbers of rows, or values of rows, as in the text of an error."""


@dataclass(frozen=True)
class SystemTable(Relation):
    """A built-in relation, which is not stored. Its rows are computed from the server's memory when it is read."""

    kind = "system table"
    plural = "tables"
    relkind = "r"
    is_indexable = False

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        """Numbers and values of rows are shown to superusers only: the tables that have them show all relations."""
        return frozenset() if self.name in _NUMBERS_OF_ROWS or self.name in _OF_ROWS else SELECT_ONLY

    @property
    def public_columns(self) -> frozenset[int]:
        """The numbers, from 0, of the columns that every role may read, if it may not read all."""
        hidden = _OF_ROWS.get(self.name)
        if hidden is None:
            return frozenset()
        return frozenset(number for number, column in enumerate(self.columns) if column.name not in hidden)
