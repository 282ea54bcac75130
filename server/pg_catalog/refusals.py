"""Errors for what queries over system catalogs cannot contain."""

from __future__ import annotations

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState


def no_row_values() -> PgError:
    """0A000 for a row as a value."""
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        "rows as values are not supported over system catalogs",
        hint="Select the columns of the row, or convert it: row_to_json(t).",
    )


def no_nested_arrays() -> PgError:
    """0A000 for an array of several dimensions."""
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        "arrays of more than one dimension are not supported over system catalogs",
        hint="Use them in a query over tables and views, or nest the arrays in a jsonb.",
    )


def no_function(call: exp.Expr, schema: str = "") -> PgError:
    """42883 for a function that no query over system catalogs can call."""
    start = call.meta.get("start")
    name = f"{schema}.{call.name.lower()}" if schema else call.name.lower()
    return PgError(
        SqlState.UNDEFINED_FUNCTION,
        f"function {name} does not exist in queries over system catalogs",
        position=start + 1 if start is not None else None,
    )


def not_supported(what: str, *, hint: str) -> PgError:
    """0A000. `what` is the subject of the message."""
    return PgError(SqlState.FEATURE_NOT_SUPPORTED, f"{what} is not supported over system catalogs", hint=hint)
