"""System tables."""

from __future__ import annotations

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


@dataclass(frozen=True)
class SystemTable(Relation):
    """A built-in relation, which is not stored. Its rows are computed from the server's memory when it is read."""

    kind = "system table"
    plural = "tables"
    relkind = "r"
    is_indexable = False

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        """Numbers of rows are shown to superusers only: the tables that have them show all relations."""
        return frozenset() if self.name in _NUMBERS_OF_ROWS else SELECT_ONLY
