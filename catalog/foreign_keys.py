"""FOREIGN KEY constraints of tables, as the catalog stores them. They are not enforced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from catalog.ids import ObjectId

FOREIGN_KEYS_MAX = 64  # per table


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A constraint on columns, by their names. `number`: one of its own among the table's foreign keys.

    `referenced`: the table that it references, and `others` its columns. `match`, `on_update`, `on_delete`: the letters
    of pg_constraint. `set_columns`: those of ON DELETE SET NULL or SET DEFAULT, if it names some.
    """

    number: int
    name: str
    columns: tuple[str, ...]
    referenced: ObjectId
    others: tuple[str, ...]
    match: str = "s"
    on_update: str = "a"
    on_delete: str = "a"
    set_columns: tuple[str, ...] = ()
    deferrable: bool = False
    deferred: bool = False
    comment: str | None = None

    def stored(self) -> dict[str, object]:
        return {
            "number": self.number,
            "name": self.name,
            "columns": self.columns,
            "referenced": self.referenced,
            "others": self.others,
            "match": self.match,
            "on_update": self.on_update,
            "on_delete": self.on_delete,
            "set_columns": self.set_columns,
            "deferrable": self.deferrable,
            "deferred": self.deferred,
            **({} if self.comment is None else {"comment": self.comment}),
        }

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        return cls(
            stored["number"],
            stored["name"],
            tuple(stored["columns"]),
            ObjectId(stored["referenced"]),
            tuple(stored["others"]),
            stored["match"],
            stored["on_update"],
            stored["on_delete"],
            tuple(stored["set_columns"]),
            stored["deferrable"],
            stored["deferred"],
            stored.get("comment"),
        )

    def renamed(self, own: bool, other: bool, old: str, new: str) -> Self:
        """The constraint after a column is renamed. `own`: of its table. `other`: of the referenced table."""

        def names(given: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(new if name == old else name for name in given)

        changed = self
        if own:
            changed = replace(changed, columns=names(changed.columns), set_columns=names(changed.set_columns))
        if other:
            changed = replace(changed, others=names(changed.others))
        return changed
