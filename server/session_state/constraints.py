"""Checks the constraints of a table's new rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from catalog.objects import Table
from protocol.pgwire.copy_options import CopyOptions
from protocol.pgwire.encode import CopyEncoder
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import parse_type
from server.sql.bind.domains import violation
from server.sql.row_rules import Rule


def check_not_null(table: Table, rows: pa.Table) -> None:
    """PgError 23502, in PostgreSQL's words, if a NOT NULL column has a NULL. The columns of `rows` are c0, c1, ..."""
    for index, column in enumerate(table.columns):
        values = rows.column(index)
        if not column.nullable and values.null_count:
            bad = rows.slice(pc.index(values.is_null(), True).as_py(), 1)
            raise PgError(
                SqlState.NOT_NULL_VIOLATION,
                f'null value in column "{column.name}" of relation "{table.name}" violates not-null constraint',
                detail=f"Failing row contains ({_printed(table, bad)}).",
            )


def check_violation(table: Table, rule: Rule, row: pa.Table) -> PgError:
    """The error for a row that violates a constraint, in PostgreSQL's words."""
    if rule.domain:
        return violation(rule.domain, rule.name)
    return PgError(
        SqlState.CHECK_VIOLATION,
        f'new row for relation "{table.name}" violates check constraint "{rule.name}"',
        detail=f"Failing row contains ({_printed(table, row)}).",
    )


def _printed(table: Table, row: pa.Table) -> str:
    types = [parse_type(column.type) for column in table.columns]
    encoder = CopyEncoder(types, CopyOptions(null="null", delimiter="\t"))
    line = encoder.encode(row.combine_chunks().to_batches()[0])[5:].decode()
    return ", ".join(line.rstrip("\n").split("\t"))
