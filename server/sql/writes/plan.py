"""The plan of a write: one query computes the rows that it removes, adds and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from catalog.ids import ObjectId
from server.sql.grammar.statements.merges import MergeAction
from server.sql.plan import Field, QueryPlan
from server.sql.row_rules import RowRules
from server.sql.writes.added_rows import AddedRows
from server.sql.writes.conflict import ConflictPlan
from server.sql.writes.target import WriteTarget


@dataclass(frozen=True, slots=True)
class MergeColumns:
    """Further columns of the query of a MERGE, by their numbers, and what its clauses do.

    `clause`: the number of the clause that applies, from 1. `target`: the number of the target's row, NULL if there is
    none.
    """

    clause: int
    target: int
    actions: tuple[MergeAction, ...]


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A planned write to a table."""

    table: ObjectId
    target: WriteTarget
    """The table, or the view over it that the statement names."""
    query: QueryPlan
    """Computes the rows. Its `uses` are the other relations that the statement names. Its `reads` also have the columns
    of the target that a condition, a new value or RETURNING names.
    """
    old: slice | None
    """The columns of `query` with the row before the change. None for INSERT."""
    new: slice | None
    """The columns of `query` with the row after the change. None for DELETE."""
    returning: slice | None
    """The columns of `query` for RETURNING. None without RETURNING, and with `conflict`, which has the plan of it."""
    inserts: frozenset[int] | None = None
    """The numbers of the target's columns to which the write gives values in new rows. None if no part inserts."""
    updates: frozenset[int] | None = None
    """The numbers of the target's columns to which the write gives values in existing rows. None if no part updates."""
    added: AddedRows | None = None
    """The rows of an INSERT of cheap constants without RETURNING."""
    literals: Mapping[int, pa.ChunkedArray] | None = None
    """The values of an INSERT of many literal rows, by column number. `query` then has only the first row."""
    assigned: frozenset[int] = frozenset()
    """The numbers of the table's columns that an UPDATE assigns."""
    rules: RowRules | None = None
    """The rules of the table for new rows. None if it has none, and for DELETE."""
    conflict: ConflictPlan | None = None
    """Set for an INSERT with ON CONFLICT."""
    merge: MergeColumns | None = None
    """Set for a MERGE. Each row of `query` has a row before and one after, of which its clause uses one or both."""
    skips_locked: bool = False
    """Set for an UPDATE or DELETE whose rows a query with SKIP LOCKED over the same table has chosen by primary key."""

    @property
    def given(self) -> frozenset[int]:
        """The numbers of the table's columns to which the write gives values, in new or existing rows."""
        return self.target.in_table(self.inserts) | self.target.in_table(self.updates)

    @property
    def fields(self) -> tuple[Field, ...] | None:
        """The columns of RETURNING, None without it."""
        if self.conflict is not None:
            return self.conflict.fields
        return None if self.returning is None else self.query.columns[self.returning]
