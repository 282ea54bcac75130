"""A SELECT under construction. It holds the clauses of several nodes if the order of clauses allows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class Stage(IntEnum):
    """The last clause of a block. A clause can be added if its stage is not before the block's."""

    FROM = 0
    WHERE = 1
    ORDER = 2  # by columns of the source
    SELECT = 3
    DISTINCT = 4
    ORDER_OUTPUT = 5  # by columns of the select list
    LIMIT = 6


@dataclass(slots=True)
class Block:
    """A SELECT under construction. `select` None: all columns of `source`."""

    source: str
    stage: Stage = Stage.FROM
    select: list[str] | None = None
    where: list[str] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    distinct: bool = False
    limit: str | None = None
    offset: str | None = None
    is_join: bool = False
    hint: str = ""

    def text(self) -> str:
        """The whole SELECT."""
        parts = [f"SELECT /*+ {self.hint} */ " if self.hint else "SELECT "]
        if self.distinct:
            parts.append("DISTINCT ")
        parts.append("*" if self.select is None else ", ".join(self.select))
        if self.source:
            parts.append(f" FROM {self.source}")
        if self.where:
            parts.append(f" WHERE {' AND '.join(self.where)}")
        if self.group:
            parts.append(f" GROUP BY {', '.join(self.group)}")
        if self.order:
            parts.append(f" ORDER BY {', '.join(self.order)}")
        if self.limit is not None:
            parts.append(f" LIMIT {self.limit}")
        if self.offset is not None:
            parts.append(f" OFFSET {self.offset}")
        return "".join(parts)

    @property
    def as_source(self) -> str:
        """The block as an item of FROM: its source if it is a bare FROM, otherwise a subquery."""
        bare = self.stage is Stage.FROM and self.select is None and not self.hint
        return self.source if bare and self.source else f"({self.text()})"
