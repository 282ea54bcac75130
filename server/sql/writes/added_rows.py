"""The rows of an INSERT of constants, which need neither a read nor Spark."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from catalog.objects.tables import Table
from catalog.updates import rows_schema
from protocol.pgwire.types import parse_type
from server.sql.constant import Constant, Evaluate
from server.sql.expressions import walk
from server.sql.plan import QueryPlan
from server.sql.row_rules import RowRules, Rule

CONDITION_CHARS_MAX = 200_000
"""The rows of an INSERT are checked on the event loop if their conditions have at most so many characters together."""
NODE_CHARS = 4
"""The characters for which a node of an expression counts in CONDITION_CHARS_MAX."""


@dataclass(frozen=True, slots=True)
class AddedRows:
    """The rows of an INSERT that need neither a read nor Spark. `schema`: that of the table's rows.

    `required`: the numbers of the NOT NULL columns. `conditions`: the CHECK constraints.
    """

    constant: Constant
    schema: pa.Schema
    required: tuple[int, ...]
    conditions: tuple[tuple[Rule, Evaluate], ...] = ()


def added_rows(table: Table, query: QueryPlan, rules: RowRules | None) -> AddedRows | None:
    """The rows that `query` adds to the table; None if they are not cheap constants, or their rules need Spark."""
    constant, types = query.constant, [parse_type(column.type).arrow for column in table.columns]
    if constant is None or not constant.is_cheap or not types or [type.arrow for type in constant.types] != types:
        return None
    if _condition_chars(table, rules) * len(constant.rows) > CONDITION_CHARS_MAX:
        return None
    required = tuple(number for number, column in enumerate(table.columns) if not column.nullable)
    conditions = rules.conditions() if rules is not None else ()
    return AddedRows(constant, rows_schema(types), required, conditions) if conditions is not None else None


def _condition_chars(table: Table, rules: RowRules | None) -> int:
    """The length of the conditions that each row of a table is checked with. Those of views count by their nodes."""
    of_views = rules.checks[len(rules.of_table.checks) :] if rules is not None else ()
    nodes = sum(1 for _, check in of_views for _ in walk(check))
    domains = (column.domain for column in table.columns)
    checks = (*table.checks, *(check for domain in domains if domain is not None for check in domain.checks))
    return sum(len(check.expression) for check in checks) + NODE_CHARS * nodes
