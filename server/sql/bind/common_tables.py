"""WITH: common table expressions, including recursive ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BARE_NUMERIC_SCALE, NUMERIC, PgType
from server.sql import expressions as ex
from server.sql.bind.aggregates import is_aggregate
from server.sql.bind.binder import Binder
from server.sql.bind.from_item import check_width
from server.sql.bind.keys import groupable
from server.sql.bind.outputs import output_expressions, with_outputs
from server.sql.bind.paths import Paths
from server.sql.bind.shapes import function_name, is_named
from server.sql.expressions import Column, ColumnRef, Expression
from server.sql.relations import Project, Recursive, RecursiveRows, Relation
from server.sql.scope import CommonTable, CommonTables, Scope


class VolatileItem(PgError):
    """An item of WITH that calls a volatile function and is referenced more than once: it must be computed once."""

    def __init__(self, refusal: PgError, name: str) -> None:
        super().__init__(refusal.sqlstate, refusal.message, hint=refusal.hint, position=refusal.position)
        self.name = name


def with_common_tables(binder: Binder, tree: exp.Expr, scope: Scope) -> Scope:
    """The scope extended by the items of the query's WITH. Each item can reference those before it. 42712, 42P19."""
    clause = tree.args.get("with_")
    if clause is None:
        return scope
    items: dict[str, tuple[int, CommonTable]] = {}
    visible = CommonTables(items, 0, scope.common_tables)
    named = {table.name for table in clause.parent.find_all(exp.Table) if not table.args.get("db")}
    for item in clause.expressions:
        name = item.alias
        if name in items:
            message = f'WITH query name "{name}" specified more than once'
            raise PgError(SqlState.DUPLICATE_ALIAS, message, position=binder.at(item.args["alias"]))
        columns = tuple(c.name for c in item.args["alias"].args.get("columns") or ())
        recursive = bool(clause.args.get("recursive")) and is_named(item.this, name)
        search, cycle = item.args.get("search"), item.args.get("cycle")
        if (search or cycle) and not recursive:
            message = "WITH query is not recursive"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(item.args["alias"]))
        table = CommonTable(item.this, columns, visible, recursive, search=search, cycle=cycle)
        if name not in named:
            common_table(binder, table, name, scope, item)  # unreferenced, but must still be valid
        items[name] = len(items), table
        visible = CommonTables(items, len(items), scope.common_tables)
    return Scope(parent=scope.parent, common_tables=visible, entries=scope.entries)


def common_table(binder: Binder, table: CommonTable, name: str, scope: Scope, tree: exp.Expr) -> Relation:
    """The rows of a WITH query, bound once per reference. `tree`: the reference."""
    if table.rows is not None:
        columns = tuple(binder.new_column(c.name, ColumnRef(c)) for c in table.rows.columns)
        return replace(table.rows, columns=columns)
    known = len(binder.volatile_calls)
    if table.recursive:
        relation = _recursive(binder, table, name, scope, tree)
    else:
        relation = binder.query(table.query, Scope(parent=scope.parent, common_tables=table.visible))
    if calls := binder.volatile_calls[known:]:
        if id(table) in binder.volatile_tables:
            raise VolatileItem(
                binder.unsupported(
                    f"a WITH query that calls {calls[0]}() and is referenced more than once",
                    tree,
                    hint="Store its rows first, with CREATE TEMPORARY TABLE ... AS.",
                ),
                name,
            )
        binder.volatile_tables[id(table)] = table
    if table.recursive or not table.columns:
        return relation
    check_width(binder, relation, "WITH query", name, table.columns, tree)
    names = [*table.columns, *(c.name for c in relation.columns[len(table.columns) :])]
    refs = [ColumnRef(column) for column in relation.columns]
    columns = tuple(binder.new_column(n, ref) for n, ref in zip(names, refs, strict=True))
    return Project(relation, columns, tuple(refs))


def _recursive(binder: Binder, table: CommonTable, name: str, scope: Scope, tree: exp.Expr) -> Relation:
    """WITH RECURSIVE name AS (anchor UNION [ALL] step)."""
    union = table.query
    while isinstance(union, exp.Subquery):
        union = union.this
    fault = _recursion_fault(union, name)
    if fault is not None:
        raise PgError(SqlState.INVALID_RECURSION, fault.format(name=name), position=binder.at(tree))
    if any(union.args.get(k) for k in ("order", "limit", "offset", "with_")):
        raise binder.unsupported(
            "ORDER BY, LIMIT or WITH of a recursive query",
            tree,
            hint="Write ORDER BY and LIMIT in the query that reads the recursive one, and the items of WITH before it.",
        )
    around = Scope(parent=scope.parent, common_tables=table.visible)
    anchor = binder.query(union.this, around)
    check_width(binder, anchor, "WITH query", name, table.columns, tree)
    names = [*table.columns, *(c.name for c in anchor.columns[len(table.columns) :])]
    width = len(names)
    paths = Paths(binder, table.search, table.cycle, name, names, union)
    anchor = paths.of_anchor(anchor)
    names += paths.names
    step_tree, distinct = paths.step_tree(union.expression), bool(union.args.get("distinct"))
    while True:
        rows = RecursiveRows(binder.new_id(), _columns(binder, names, anchor), len(paths.names))
        itself = CommonTable(table.query, (), CommonTables(), rows=rows)
        visible = CommonTables({name: (0, itself)}, 1, table.visible)
        step = binder.query(step_tree, Scope(parent=scope.parent, common_tables=visible), keep_unknown=True)
        if len(step.columns) - len(paths.previous) != width:
            message = "each UNION query must have the same number of columns"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(union.expression))
        outputs: list[Expression] = []
        wider = set()  # the columns whose numbers get more decimals in the step
        step_outputs = output_expressions(step)
        for number, (have, output) in enumerate(zip(anchor.columns[:width], step_outputs[:width], strict=True)):
            common, (_, coerced) = binder.to_common([ColumnRef(have), output], "UNION", binder.at(union.expression))
            if common.without_modifiers != have.type.without_modifiers and common.name != "numeric":
                raise _other_type(name, number + 1, have.type, common)
            if common.name == "numeric":
                if have.type.name != "numeric" or (have.type.precision and common.scale != have.type.scale):
                    raise _other_type(name, number + 1, have.type, common)
                if (have.type.scale or 0) < min(common.scale or 0, BARE_NUMERIC_SCALE):
                    wider.add(number)
            outputs.append(ex.Cast(coerced, have.type) if common.name == "numeric" else coerced)
            if distinct:
                groupable(binder, coerced, union, by_keys=False)
        if not wider:
            step = paths.of_step(with_outputs(binder, step, [*outputs, *step_outputs[width:]]))
            return Recursive(rows.name, anchor, step, _columns(binder, names, anchor), distinct)
        anchor = with_outputs(
            binder,
            anchor,
            [ex.Cast(e, NUMERIC) if n in wider else e for n, e in enumerate(output_expressions(anchor))],
        )


def _columns(binder: Binder, names: Sequence[str], anchor: Relation) -> tuple[Column, ...]:
    """The columns of a recursive query. The digits of a numeric are not those of the first rows."""
    columns = (ColumnRef(replace(column, nullable=True)) for column in anchor.columns)
    return tuple(
        replace(binder.new_column(name, column), precision=0) for name, column in zip(names, columns, strict=True)
    )


def _other_type(name: str, number: int, have: PgType, common: PgType) -> PgError:
    return PgError(
        SqlState.DATATYPE_MISMATCH,
        f'recursive query "{name}" column {number} has type {have.display} in non-recursive term but type '
        f"{common.display} overall",
        hint="Cast the output of the non-recursive term to the correct type.",
    )


def _recursion_fault(query: exp.Expr, name: str) -> str | None:
    """The message for why PostgreSQL refuses a WITH RECURSIVE query; None if it does not (parse_cte.c)."""
    shape = 'recursive query "{name}" does not have the form non-recursive-term UNION [ALL] recursive-term'
    if not isinstance(query, exp.Union):
        return shape
    if is_named(query.this, name):
        return 'recursive reference to query "{name}" must not appear within its non-recursive term'
    found = [t for t in query.expression.find_all(exp.Table) if t.name == name and not t.args.get("db")]
    if len(found) > 1:
        return 'recursive reference to query "{name}" must not appear more than once'
    step = query.expression
    while isinstance(step, exp.Subquery) and not step.alias:
        step = step.this
    if isinstance(step, exp.Except):
        return 'recursive reference to query "{name}" must not appear within EXCEPT'
    if isinstance(step, exp.Intersect):
        return 'recursive reference to query "{name}" must not appear within INTERSECT'
    for table in found:
        node: exp.Expr = table
        while node is not step and node.parent is not None:
            parent = node.parent
            if isinstance(parent, exp.Join) and parent.args.get("side") in ("LEFT", "FULL") and node is parent.this:
                return 'recursive reference to query "{name}" must not appear within an outer join'
            if isinstance(parent, exp.Select) and isinstance(node, exp.From) and any(
                join.args.get("side") in ("RIGHT", "FULL") for join in parent.args.get("joins") or ()
            ):  # fmt: skip
                return 'recursive reference to query "{name}" must not appear within an outer join'
            if isinstance(node, exp.Subquery) and not isinstance(parent, (exp.From, exp.Join, exp.SetOperation)):
                return 'recursive reference to query "{name}" must not appear within a subquery'
            if isinstance(parent, (exp.Exists, exp.In)):
                return 'recursive reference to query "{name}" must not appear within a subquery'
            node = parent
    if isinstance(step, exp.Select) and any(
        is_aggregate(function_name(call)) and not isinstance(call.parent, exp.Window)
        for item in step.expressions
        for call in item.find_all(exp.Anonymous)
    ):
        return "aggregate functions are not allowed in a recursive query's recursive term"
    return None
