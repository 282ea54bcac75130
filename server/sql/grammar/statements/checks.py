"""CHECK and REFERENCES constraints."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Expr, Ident, Name


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """`name` None: it gets a name. `is_valid` False: NOT VALID."""

    name: Ident | None
    expression: Expr
    is_valid: bool = True


@dataclass(frozen=True, slots=True)
class Reference:
    """REFERENCES table (others). `columns`: those of FOREIGN KEY, or the column with the constraint.

    `match`, `on_update`, `on_delete`: the letters of pg_constraint. `set_columns`: those of ON DELETE SET NULL or SET
    DEFAULT, if it names some. `not_enforced`: whether NOT ENFORCED is given.
    """

    columns: tuple[Ident, ...]
    table: Name
    others: tuple[Ident, ...]
    name: Ident | None = None
    match: str = "s"
    on_update: str = "a"
    on_delete: str = "a"
    set_columns: tuple[Ident, ...] = ()
    deferrable: bool = False
    deferred: bool = False
    not_enforced: bool = False
