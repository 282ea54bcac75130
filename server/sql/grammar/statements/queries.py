"""Queries."""

from __future__ import annotations

from dataclasses import dataclass

from server.sql.grammar.statements.parts import Expr, Parsed, Query


@dataclass(frozen=True, slots=True)
class AsOf:
    """AS OF [AT LEAST] time."""

    time: Expr
    at_least: bool


@dataclass(frozen=True, slots=True)
class Select(Parsed):
    """SELECT, VALUES, WITH ... SELECT, TABLE t, [AS OF ...]."""

    query: Query
    as_of: AsOf | None = None
