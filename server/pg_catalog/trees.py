"""Trees of calls in DuckDB's SQL."""

from __future__ import annotations

from sqlglot import exp


def defined_function(name: str, *arguments: exp.Expr) -> exp.Expr:
    """The call of a function that `functions.sql` defines with PostgreSQL's name."""
    return exp.Dot(this=exp.to_identifier("fn"), expression=exp.Anonymous(this=name, expressions=[*arguments]))


def helper(name: str, *arguments: exp.Expr) -> exp.Expr:
    """The call of a function that `functions.sql` defines for the rewrite."""
    return exp.Dot(this=exp.to_identifier("tw"), expression=exp.Anonymous(this=name, expressions=[*arguments]))


def list_length(array: exp.Expr) -> exp.Expr:
    """The number of elements of a copy of `array`."""
    return exp.Anonymous(this="len", expressions=[array.copy()])
