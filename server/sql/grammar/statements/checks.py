"""CHECK and REFERENCES constraints, and ALTER TABLE for check constraints."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Definition, Expr, Ident, Name, Parsed


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """`name` None: it gets a name. `is_valid` False: NOT VALID."""

    name: Ident | None
    expression: Expr
    is_valid: bool = True


@dataclass(frozen=True, slots=True)
class Reference:
    """REFERENCES table (others). `columns`: those of FOREIGN KEY, or the column with the constraint."""

    columns: tuple[Ident, ...]
    table: Name
    others: tuple[Ident, ...]


@dataclass(frozen=True, slots=True)
class AddCheck(Parsed):
    """ALTER TABLE ... ADD [CONSTRAINT name] CHECK."""

    table: Name
    check: CheckConstraint
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ValidateCheck(Parsed):
    """ALTER TABLE ... VALIDATE CONSTRAINT."""

    table: Name
    name: Ident
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AddReference(Definition):
    """ALTER TABLE ... ADD [CONSTRAINT name] FOREIGN KEY."""

    tag = "ALTER TABLE"

    table: Name
    reference: Reference
    if_exists: bool
