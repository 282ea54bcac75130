"""pg_cancel_backend(pid) and pg_terminate_backend(pid) for rows of pg_stat_activity.

The catalog engine returns the process ids, and the server sends the signals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from sqlglot import exp

from server.sql.constant import SIGNALS


def signals_of(tree: exp.Expr) -> dict[int, str]:
    """Returns the function that each column of a query calls, by the column's number; other columns are omitted.

    Only columns of the outermost SELECT are considered, and only if it has one row for each row of its relations:
    no DISTINCT, no groups.
    """
    if not isinstance(tree, exp.Select) or tree.args.get("distinct") or tree.args.get("group"):
        return {}
    calls = {number: _call(item) for number, item in enumerate(tree.expressions)}
    return {number: call.name.lower() for number, call in calls.items() if call is not None}


def process_ids(tree: exp.Expr, signals: Mapping[int, str]) -> exp.Expr:
    """Returns the query with the argument of each of `signals` in place of its call. The names of columns remain."""
    if not signals:
        return tree
    found = tree.copy()
    for number, name in signals.items():
        item = found.expressions[number]
        call = _call(item)
        assert call is not None
        process_id = exp.cast(call.expressions[0].copy(), exp.DType.INT)
        alias = item.args["alias"] if isinstance(item, exp.Alias) else exp.to_identifier(name)
        item.replace(exp.Alias(this=process_id, alias=alias))
    return found


def sent(table: pa.Table, signals: Mapping[int, str], send: Callable[[str, int], bool]) -> pa.Table:
    """Calls `send` with the function and the process id for each value of the columns in `signals`.

    Returns the table with the results in place of the process ids. PgError of `send`, which stops at that row.
    """
    for number, function in signals.items():
        results = [None if id is None else send(function, id) for id in table.column(number).to_pylist()]
        table = table.set_column(number, table.field(number).name, pa.chunked_array([pa.array(results, pa.bool_())]))
    return table


def _call(item: exp.Expr) -> exp.Anonymous | None:
    """Returns the call of a signal that an item of a SELECT list is; None if it is something else."""
    call = item.unalias()
    if isinstance(call, exp.Dot) and call.this.name == "pg_catalog":
        call = call.expression
    if isinstance(call, exp.Anonymous) and call.name.lower() in SIGNALS and len(call.expressions) == 1:
        return call
    return None
