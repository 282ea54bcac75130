"""PRIMARY KEY and UNIQUE constraints of tables, as the catalog stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

KEYS_MAX = 32  # per table


@dataclass(frozen=True, slots=True)
class Key:
    """A constraint on columns, by their names. `number`: one of its own among the table's keys.

    `is_enforced`: False for NOT ENFORCED, and for keys of tables from before keys were enforced.
    `nulls_distinct`: rows whose key contains a NULL differ from all others. `deferrable`: SET CONSTRAINTS chooses
    whether a block is checked at the end of each statement or at COMMIT. `deferred`: at COMMIT if it does not.
    """

    number: int
    name: str
    columns: tuple[str, ...]
    is_primary: bool
    is_enforced: bool = True
    nulls_distinct: bool = True
    comment: str | None = None
    deferrable: bool = False
    deferred: bool = False

    @property
    def is_immediate(self) -> bool:
        """Whether no statement can see two rows with the same key."""
        return self.is_enforced and not self.deferrable

    @property
    def attributes(self) -> str:
        """What follows the columns in the constraint's text: each attribute after a space."""
        deferral = (" DEFERRABLE" if self.deferrable else "") + (" INITIALLY DEFERRED" if self.deferred else "")
        return deferral + ("" if self.is_enforced else " NOT ENFORCED")

    def stored(self) -> dict[str, object]:
        return {
            "number": self.number,
            "name": self.name,
            "columns": self.columns,
            "primary": self.is_primary,
            "enforced": self.is_enforced,
            "nulls_distinct": self.nulls_distinct,
            **({} if self.comment is None else {"comment": self.comment}),
            **({"deferred": self.deferred} if self.deferrable else {}),
        }

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        return cls(
            stored["number"],
            stored["name"],
            tuple(stored["columns"]),
            stored["primary"],
            stored["enforced"],
            stored["nulls_distinct"],
            stored.get("comment"),
            "deferred" in stored,
            stored.get("deferred", False),
        )


def restored_keys(table: str, required: frozenset[str], stored: Sequence[Any]) -> tuple[Key, ...]:
    """The keys of a table. `required`: its NOT NULL columns.

    Catalogs of format 9 and earlier have only lists of column names. These keys were never enforced, so that there may
    be duplicates. The first one of NOT NULL columns was shown as the primary key.
    """
    if not stored or isinstance(stored[0], Mapping):
        return tuple(map(Key.restored, stored))
    primary = next((number for number, names in enumerate(stored) if required.issuperset(names)), None)
    return tuple(
        Key(
            number,
            f"{table}_pkey" if number == primary else f"{table}_{'_'.join(names)}_key",
            tuple(names),
            number == primary,
            is_enforced=False,
        )
        for number, names in enumerate(stored)
    )
