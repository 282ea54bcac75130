"""Tables that clients write."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Self

from catalog.foreign_keys import ForeignKey
from catalog.ids import ObjectId, types_in
from catalog.keys import Key, restored_keys
from catalog.layout import Numbering
from catalog.objects.catalog_object import StoredItem
from catalog.objects.columns import Check, stored_checks
from catalog.objects.relations import WrittenCollection


class OnCommit(StrEnum):
    """What happens to a temporary table when a transaction ends."""

    DELETE_ROWS = "delete rows"
    DROP = "drop"


@dataclass(frozen=True)
class Table(WrittenCollection):
    """A user's table. `keys` are its PRIMARY KEY and UNIQUE constraints, the primary key first.

    `numbering`: how its columns are stored; None if ALTER TABLE never changed which columns or types there are.
    `on_commit`: for temporary tables.
    """

    keys: tuple[Key, ...] = ()
    checks: tuple[Check, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    numbering: Numbering | None = field(default=None, kw_only=True)
    on_commit: OnCommit | None = field(default=None, kw_only=True)

    kind = "table"
    plural = "tables"
    relkind = "r"

    def stored(self) -> dict[str, object]:
        options = {number: given for number, column in enumerate(self.columns) if (given := column.options())}
        stored: dict[str, object] = {"keys": [key.stored() for key in self.keys], "retain_ms": self.retain_ms}
        if options:
            stored["columns"] = options
        if self.checks:
            stored["checks"] = stored_checks(self.checks)
        if self.foreign_keys:
            stored["foreign_keys"] = [key.stored() for key in self.foreign_keys]
        if self.numbering is not None:
            stored["numbering"] = self.numbering.stored()
        if self.on_commit is not None:
            stored["on_commit"] = self.on_commit
        return stored

    @classmethod
    def restored(cls, row: StoredItem) -> Self:
        required = frozenset(column.name for column in row.columns if not column.nullable)
        keys = restored_keys(row.name, required, row.definition["keys"])
        options = row.definition.get("columns", {})
        columns = tuple(column.with_options(options.get(str(n), {})) for n, column in enumerate(row.columns))
        checks = tuple(Check(*check) for check in row.definition.get("checks", ()))
        foreign_keys = tuple(map(ForeignKey.restored, row.definition.get("foreign_keys", ())))
        numbering, on_commit = row.definition.get("numbering"), row.definition.get("on_commit")
        return cls(
            row.id,
            row.schema_id,
            row.name,
            columns,
            keys,
            checks,
            foreign_keys,
            retain_ms=row.definition.get("retain_ms"),
            numbering=None if numbering is None else Numbering.restored(numbering),
            on_commit=None if on_commit is None else OnCommit(on_commit),
        )

    @property
    def primary_key_column(self) -> int | None:
        """The number of the column that is the enforced primary key. None if there is none, or with several columns."""
        names = next((key.columns for key in self.keys if key.is_primary and key.is_enforced), ())
        return next((n for n, column in enumerate(self.columns) if names == (column.name,)), None)

    @property
    def depends_on(self) -> frozenset[ObjectId]:
        return self._types_of_expressions | super().depends_on

    @cached_property
    def _types_of_expressions(self) -> frozenset[ObjectId]:
        """The user-defined types in defaults, generated columns and CHECK constraints."""
        texts = [c.default or c.generated for c in self.columns] + [check.expression for check in self.checks]
        return frozenset().union(*map(types_in, filter(None, texts)))

    def accepts_rows_of(self, before: Table) -> bool:
        """Whether rows that were computed for the definition `before` can be written, and plans for it be executed."""
        same = self.columns == before.columns and self.numbering == before.numbering
        return self is before or (same and self.checks == before.checks)
