"""PARTITION BY of a sink: an expression over the columns of its collection chooses the partition of each message."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from catalog.ids import ObjectId, Timestamp
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.dataflow.runtime.computation import compute
from server.egress.sink_kind import SinkDefinition
from server.spark import Runner
from server.sql.constant import Bindings
from server.sql.grammar.lexer import quote_identifier
from server.sql.grammar.parse import parse_expression, parse_query
from server.sql.plan import PlanContext, QueryPlan, plan_query
from server.sql.scope import ID_SCHEMA

OPTION = "partition by"
_TABLE = ObjectId("u0")
_INTEGERS = ("int2", "int4", "int8")


class PartitionExpression:
    """The expression of a sink. `check` must have been called when the sink was created."""

    def __init__(self, definition: SinkDefinition, runner: Runner) -> None:
        self._plan = _planned(definition)
        self._runner = runner

    async def partitions(self, rows: pa.Table, count: int) -> NDArray[np.int64]:
        """Returns for each row the expression's value modulo `count`, 0 for NULL. PgError if it cannot be computed.

        The columns of `rows` are c0, c1, ...
        """
        numbered = rows.append_column(f"c{rows.num_columns}", pa.array(np.arange(rows.num_rows)))

        async def read(id: ObjectId, as_of: Timestamp) -> pa.Table:
            return numbered

        found = await compute(self._plan, Bindings(), self._runner, read, Timestamp(0), patient=True)
        values = found.column(0).cast(pa.int64()).fill_null(0).to_numpy()
        partitions = np.empty(rows.num_rows, np.int64)
        partitions[found.column(1).to_numpy()] = values % count
        return partitions


def check(definition: SinkDefinition) -> None:
    """PgError if the expression is invalid, or if its type is no integer."""
    if OPTION in definition.options:
        _planned(definition)


def _planned(definition: SinkDefinition) -> QueryPlan:
    """Plans the expression and the number of the row, as a query of one relation."""
    text = definition.options[OPTION]
    if parse_expression(text).tree.find(exp.Query) is not None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "cannot use subquery in PARTITION BY",
            hint="Compute the value in a column of a materialized view, and name the column.",
        )
    number = "number"
    while number in (column.name for column in definition.columns):
        number += "_"
    columns = (*definition.columns, Column(number, "int8", False))
    state = CatalogState({}, {}, {_TABLE: Table(_TABLE, ObjectId(""), definition.on, columns)}, 1)
    # The name of the collection may change, so the expression cannot use it.
    relation = f'{quote_identifier(ID_SCHEMA)}.{quote_identifier(_TABLE)} AS "$row"'
    query = parse_query(f"SELECT ({text}\n), {quote_identifier(number)} FROM {relation}")
    plan = plan_query(query, PlanContext(state, "", (), ""), None, maintained=True)
    if plan.uses_session:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "functions of the session are not supported in PARTITION BY",
            hint="Use an expression over the columns only.",
        )
    if (type := plan.columns[0].type).name not in _INTEGERS:
        raise PgError(
            SqlState.DATATYPE_MISMATCH, f"argument of PARTITION BY must be type bigint, not type {type.display}"
        )
    return plan
