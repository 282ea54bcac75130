"""Checks the constraints of a table's new rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.roles import Privilege
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.text_columns import DEFAULT_STYLE, value_text
from protocol.pgwire.types import parse_type
from server.authorization import privileges
from server.sql.bind.domains import violation
from server.sql.row_rules import Rule

VALUE_BYTES_MAX = 64  # of a value in the DETAIL of an error


class Reader(Protocol):
    """The session that wrote the rows."""

    @property
    def state(self) -> CatalogState: ...
    @property
    def role(self) -> ObjectId: ...


def check_not_null(reader: Reader, table: Table, rows: pa.Table, given: Iterable[int]) -> None:
    """PgError 23502 for the first of the rows with a NULL in a NOT NULL column. The columns of `rows` are c0, c1, ...

    `given`: the numbers of the columns to which the statement gives values.
    """
    found = first_null(table, rows)
    if found is not None:
        raise null_violation(reader, table, rows, found, given)


def first_null(table: Table, rows: pa.Table) -> tuple[int, int] | None:
    """The first row that has NULL in a NOT NULL column, and the first such column of it, by their numbers."""
    found = []
    for index, column in enumerate(table.columns):
        values = rows.column(index)
        if not column.nullable and values.null_count:
            found.append((pc.index(values.is_null(), True).as_py(), index))
    return min(found, default=None)


def null_violation(
    reader: Reader, table: Table, rows: pa.Table, found: tuple[int, int], given: Iterable[int]
) -> PgError:
    """The error for what `first_null` has found."""
    row, index = found
    column = table.columns[index]
    return PgError(
        SqlState.NOT_NULL_VIOLATION,
        f'null value in column "{column.name}" of relation "{table.name}" violates not-null constraint',
        detail=_failing_row(reader, table, rows.slice(row, 1), given),
        schema_name=reader.state.schemas[table.schema_id].name,
        table_name=table.name,
        column_name=column.name,
    )


def check_violation(reader: Reader, table: Table, rule: Rule, row: pa.Table, given: Iterable[int]) -> PgError:
    """The error for a row that violates a constraint, in PostgreSQL's words. `given`: as in `check_not_null`."""
    if rule.domain:
        return violation(rule.domain, rule.name)
    if rule.of_view:
        message = f'new row violates check option for view "{rule.name}"'
        detail = _failing_row(reader, table, row, given)
        return PgError(SqlState.WITH_CHECK_OPTION_VIOLATION, message, detail=detail)
    return PgError(
        SqlState.CHECK_VIOLATION,
        f'new row for relation "{table.name}" violates check constraint "{rule.name}"',
        detail=_failing_row(reader, table, row, given),
        schema_name=reader.state.schemas[table.schema_id].name,
        table_name=table.name,
        constraint_name=rule.name,
    )


def _failing_row(reader: Reader, table: Table, row: pa.Table, given: Iterable[int]) -> str | None:
    """The row, or those of its columns that the role may read or has given; None if there are none.

    A row may have values that the role has not given: defaults, and the old values of an UPDATE.
    """
    state, role = reader.state, reader.role
    if privileges.has(state, role, table.id, Privilege.SELECT):
        return f"Failing row contains ({_printed(table.columns, row)})."
    numbers = sorted(privileges.columns_with(state, role, table.id, Privilege.SELECT).union(given))
    if not numbers:
        return None
    columns = [table.columns[number] for number in numbers]
    names = ", ".join(column.name for column in columns)
    return f"Failing row contains ({names}) = ({_printed(columns, row.select(numbers))})."


def _printed(columns: Sequence[Column], row: pa.Table) -> str:
    """The values of the only row, of which long ones are truncated as in PostgreSQL."""
    texts = []
    for number, column in enumerate(columns):
        text = value_text(row.column(number), 0, parse_type(column.type), DEFAULT_STYLE)
        data = b"null" if text is None else text.encode()
        shown = data[:VALUE_BYTES_MAX].decode(errors="ignore")
        texts.append(shown if len(data) <= VALUE_BYTES_MAX else f"{shown}...")
    return ", ".join(texts)
