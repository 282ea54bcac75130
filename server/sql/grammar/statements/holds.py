"""Holds."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Definition, Expr, Name, Parsed


@dataclass(frozen=True, slots=True)
class CreateHold(Definition):
    """CREATE HOLD name ON objects [AT time] [WITH (MAX LAG = interval)]."""

    tag = "CREATE HOLD"

    name: Name
    on: tuple[Name, ...]
    at: Expr | None
    max_lag: Expr | None
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class AlterHold(Definition):
    """ALTER HOLD name SET (MAX LAG = interval)."""

    tag = "ALTER HOLD"

    name: Name
    max_lag: Expr
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AdvanceHold(Parsed):
    """ALTER HOLD name ADVANCE [TO time]. It advances a hold and does not change a definition."""

    name: Name
    to: Expr | None
    if_exists: bool
