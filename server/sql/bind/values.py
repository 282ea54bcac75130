"""VALUES."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from server.sql import expressions as ex
from server.sql.bind.binder import Binder, query_form
from server.sql.bind.common_tables import with_common_tables
from server.sql.bind.order import ordered_output
from server.sql.bind.row_locks import lock_name
from server.sql.expressions import Column, Expression
from server.sql.relations import Relation, Values
from server.sql.scope import Scope, in_clause
from server.sql.volatile import raised


def written_values(binder: Binder, tree: exp.Values, scope: Scope, keep_unknown: bool) -> Relation:
    """VALUES without ORDER BY and LIMIT. `keep_unknown`: untyped cells of a single row stay untyped (INSERT)."""
    inner = in_clause(scope, "VALUES")
    for cell in (c for row in tree.expressions for c in row.expressions if isinstance(c, exp.Var)):
        message = "DEFAULT is not allowed in this context"
        raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(cell))
    rows = [[binder.expression(cell, inner) for cell in row.expressions] for row in tree.expressions]
    for row, row_tree in zip(rows, tree.expressions, strict=True):
        if len(row) != len(rows[0]):
            message = "VALUES lists must all be the same length"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(row_tree))
    return values(binder, rows, keep_unknown, tree)


def values(binder: Binder, rows: Sequence[Sequence[Expression]], keep_unknown: bool, tree: exp.Expr) -> Relation:
    """Rows of bound cells as a relation. The cells of a column are cast to their common type."""
    cells: list[list[Expression]] = []
    columns = []
    for number, written in enumerate(zip(*rows, strict=True), 1):
        if keep_unknown and len(rows) == 1:
            type, column_cells = written[0].type, list(written)
        else:
            type, column_cells = binder.to_common(written, "VALUES", binder.at(tree))
        precision = max(map(ex.precision, column_cells)) if type.name == "numeric" else 0
        nullable = any(cell.nullable for cell in column_cells)
        cells.append(column_cells)
        columns.append(Column(binder.new_id(), f"column{number}", type, nullable, precision))
    rows_of_cells = Values(tuple(columns), tuple(zip(*cells, strict=True)))
    return raised(rows_of_cells, lambda expression: binder.new_column("", expression))


@query_form(exp.Values)
def values_query(binder: Binder, tree: exp.Values, scope: Scope, keep_unknown: bool) -> Relation:
    """VALUES (...), (...) ORDER BY ... LIMIT ... PgError 0A000 with FOR UPDATE."""
    for clause in tree.args.get("locks") or ():
        message = f"{lock_name(clause)} cannot be applied to VALUES"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message)
    scope = with_common_tables(binder, tree, scope)
    return ordered_output(binder, written_values(binder, tree, scope, keep_unknown), tree, scope)
