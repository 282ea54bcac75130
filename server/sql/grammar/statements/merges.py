"""MERGE."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from server.sql.grammar.statements.parts import Expr, Ident, Name, Parsed, Query
from server.sql.grammar.statements.writes import Assignment


class MergeAction(StrEnum):
    """What a clause of MERGE does."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    NOTHING = "nothing"


class Unmatched(StrEnum):
    """Which row of a MERGE has no match: one of the source, or one of the target."""

    BY_TARGET = "by target"
    BY_SOURCE = "by source"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN [NOT] MATCHED ... THEN. `unmatched` None is MATCHED. `values` None of an INSERT is DEFAULT VALUES.

    `overriding`: as of an `Insert`.
    """

    unmatched: Unmatched | None
    condition: Expr | None
    action: MergeAction
    assignments: tuple[Assignment, ...] = ()
    columns: tuple[Ident, ...] = ()
    values: tuple[Expr | None, ...] | None = None
    overriding: str | None = None


@dataclass(frozen=True, slots=True)
class Merge(Parsed):
    """MERGE INTO table USING source ON condition clauses; `source` is a SELECT without a select list."""

    table: Name
    alias: Ident | None
    source: Query
    condition: Expr
    clauses: tuple[MergeClause, ...]
    common_tables: Query | None = None
    returning: tuple[Expr, ...] = ()
