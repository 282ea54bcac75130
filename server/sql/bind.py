"""sqlglot's query trees to relational nodes: FROM, WHERE, GROUP BY, windows, DISTINCT, ORDER BY, LIMIT, set operations.

The order of the clauses is the order of `_select`, and PostgreSQL's (parse_clause.c, parse_agg.c). Views and common
table expressions are bound anew wherever they are named, so every column of the plan has an id of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlglot import exp

from catalog.objects import CatalogState, ObjectId, View
from catalog.objects import Relation as CatalogRelation
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, INT4, INT8, UNKNOWN, PgType, parse_type
from server.sql import expressions as ex
from server.sql.bind_scalar import ScalarBinder, conjunction, function_name, session_name, trim_name, type_spelling
from server.sql.coerce import ASSIGNMENT
from server.sql.expressions import (
    Aggregate,
    Call,
    Column,
    ColumnRef,
    Expression,
    Literal,
    SortKey,
    Subquery,
    WindowCall,
    children,
    transform,
)
from server.sql.functions import resolve, syntax
from server.sql.functions.table import FUNCTIONS
from server.sql.parse import parse_query
from server.sql.relations import Aggregate as AggregateNode
from server.sql.relations import (
    Distinct,
    DistinctOn,
    Filter,
    Join,
    JoinKind,
    Limit,
    Project,
    Relation,
    Scan,
    Series,
    SetKind,
    SetOperation,
    Sort,
    Values,
    Window,
)
from server.sql.scope import CommonTable, Entry, Scope, find_relation, located, no_table
from server.sql.statements import Query

_SET_KINDS: dict[type[exp.Expr], SetKind] = {
    exp.Union: SetKind.UNION,
    exp.Intersect: SetKind.INTERSECT,
    exp.Except: SetKind.EXCEPT,
}


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What a statement is planned against. `search_path` is without the system schemas, which come first."""

    state: CatalogState
    database: str
    search_path: tuple[str, ...]
    user: str
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Replacement:
    """A name in the query's text, from `start` to `end` (exclusive) in the whole text, and what stores it by id."""

    start: int
    end: int
    text: str


@dataclass(slots=True)
class Item:
    """One item of a select list."""

    name: str
    expression: Expression
    tree: exp.Expr


@dataclass(slots=True)
class _From:
    relation: Relation
    entries: list[Entry]


class _Grouping:
    """Rewrites expressions over the input of an Aggregate into expressions over its output, then makes the node."""

    def __init__(self, binder: Binder, relation: Relation, keys: list[Expression]) -> None:
        self.binder = binder
        self.relation = relation
        self.keys = keys
        self.key_columns = [binder.new_column(getattr(key, "written", ""), key) for key in keys]
        self.inputs = frozenset(column.id for column in relation.columns)
        self.calls: list[Aggregate] = []
        self.call_columns: list[Column] = []

    def node(self) -> AggregateNode:
        columns = (*self.key_columns, *self.call_columns)
        return AggregateNode(self.relation, tuple(self.keys), tuple(self.calls), columns)

    def rewrite(self, expression: Expression) -> Expression:
        return transform(expression, self._change)

    def _change(self, node: Any) -> Any | None:
        for key, column in zip(self.keys, self.key_columns, strict=True):
            if node == key:
                return ColumnRef(column, getattr(node, "written", ""), getattr(node, "position", None))
        match node:
            case Aggregate():
                return self._call(node)
            case WindowCall(call=call):
                arguments = tuple(self.rewrite(a) for a in call.arguments)
                return replace(
                    node,
                    call=replace(call, arguments=arguments),
                    partition=tuple(self.rewrite(p) for p in node.partition),
                    order=tuple(replace(k, expression=self.rewrite(k.expression)) for k in node.order),
                )
            case Subquery():
                return replace(
                    node,
                    operands=tuple(self.rewrite(o) for o in node.operands),
                    relation=transform(node.relation, self._change_inside),
                )
        self._check_grouped(node)
        return None

    def _change_inside(self, node: Any) -> Any | None:
        """In a subquery: its own aggregates are its own, but our columns must be grouped there too."""
        for key, column in zip(self.keys, self.key_columns, strict=True):
            if node == key:
                return ColumnRef(column)
        self._check_grouped(node, "subquery uses ungrouped column {} from outer query")
        return None

    def _check_grouped(
        self,
        node: Any,
        message: str = "column {} must appear in the GROUP BY clause or be used in an aggregate function",
    ) -> None:
        if isinstance(node, ColumnRef) and node.column.id in self.inputs:
            shown = f'"{node.written}"'
            raise PgError(SqlState.GROUPING_ERROR, message.format(shown), position=node.position)

    def _call(self, call: Aggregate) -> ColumnRef:
        for known, column in zip(self.calls, self.call_columns, strict=True):
            if known == call:
                return ColumnRef(column)
        column = self.binder.new_column(call.function.name, call)
        self.calls.append(call)
        self.call_columns.append(column)
        return ColumnRef(column)


class Binder(ScalarBinder):
    """Binds one statement. Afterwards `inputs`, `uses`, `replacements` and `parameters` tell what it met."""

    def __init__(
        self,
        context: PlanContext,
        parameters: Sequence[PgType | None] = (),
        *,
        text: str = "",
        offset: int = 0,
        maintained: bool = False,
    ) -> None:
        """`text` is the statement's, which begins at `offset` of what the client sent; for error positions."""
        super().__init__(parameters, context.timezone, maintained=maintained)
        self.context = context
        self.source, self.offset = text, offset
        self.inputs: set[ObjectId] = set()
        self.uses: set[ObjectId] = set()
        self.replacements: list[Replacement] = []

    # -- queries ----------------------------------------------------------------------------------------------------

    def query(self, tree: exp.Expr, scope: Scope, *, keep_unknown: bool = False) -> Relation:
        """A query expression. `scope`: the one around it. `keep_unknown`: untyped output columns stay so (INSERT)."""
        scope = self._with_common_tables(tree, scope)
        match tree:
            case exp.Select():
                return self._select(tree, scope, keep_unknown)
            case exp.SetOperation():
                return self._set_operation(tree, scope)
            case exp.Values():
                relation = self._values(tree, scope, keep_unknown)
                return self._output_order(relation, tree, scope, "VALUES")
            case exp.Subquery() if not tree.args.get("joins"):
                relation = self.query(tree.this, scope, keep_unknown=keep_unknown)
                return self._output_order(relation, tree, scope, "this query")
        raise self.unsupported("this query", tree)

    def subquery(self, tree: exp.Expr, scope: Scope) -> Relation:
        return self.query(tree, Scope(parent=scope, common_tables=scope.common_tables))

    def _with_common_tables(self, tree: exp.Expr, scope: Scope) -> Scope:
        clause = tree.args.get("with_")
        if clause is None:
            return scope
        if clause.args.get("recursive"):
            raise self.unsupported("WITH RECURSIVE", clause)
        visible = dict(scope.common_tables)
        seen: set[str] = set()
        for item in clause.expressions:
            name = item.alias
            if name in seen:
                message = f'WITH query name "{name}" specified more than once'
                raise PgError(SqlState.DUPLICATE_ALIAS, message, position=self.at(item.args["alias"]))
            seen.add(name)
            columns = tuple(c.name for c in item.args["alias"].args.get("columns") or ())
            table = CommonTable(item.this, columns, dict(visible))
            if not _is_named(clause.parent, name):
                self._common_table(table, name, scope, item)  # nobody reads it, yet it must be right
            visible[name] = table
        return Scope(parent=scope.parent, common_tables=visible, entries=scope.entries)

    def _common_table(self, table: CommonTable, name: str, scope: Scope, tree: exp.Expr) -> Relation:
        relation = self.query(table.query, Scope(parent=scope.parent, common_tables=table.visible))
        if not table.columns:
            return relation
        self._check_width(relation, "WITH query", name, table.columns, tree)
        names = [*table.columns, *(c.name for c in relation.columns[len(table.columns) :])]
        refs = [ColumnRef(column) for column in relation.columns]
        columns = tuple(self.new_column(n, ref) for n, ref in zip(names, refs, strict=True))
        return Project(relation, columns, tuple(refs))

    def _check_width(self, relation: Relation, what: str, table: str, names: Sequence[str], tree: exp.Expr) -> None:
        if len(names) > len(relation.columns):
            raise PgError(
                SqlState.INVALID_COLUMN_REFERENCE,
                f'{what} "{table}" has {len(relation.columns)} columns available but {len(names)} columns specified',
                position=self.at(tree),
            )

    def _select(self, tree: exp.Select, outer: Scope, keep_unknown: bool) -> Relation:
        for clause in ("into", "locks", "sample", "qualify", "connect", "match", "laterals", "pivots", "hint"):
            if tree.args.get(clause):
                raise self.unsupported(f"{clause.upper()} in SELECT", tree)
        source = self._from_clause(tree, outer)
        scope = Scope(source.entries, outer.parent, outer.common_tables, real_names=self._real_names(tree))
        scope.windows = {w.this.name: w for w in tree.args.get("windows") or ()}
        relation = source.relation
        where = tree.args.get("where")
        if where is not None:
            relation = Filter(relation, self.condition(where.this, _in_clause(scope, "WHERE"), "WHERE"))
        items = self._select_list(tree.expressions, scope)
        if not keep_unknown:
            for item in items:
                item.expression = self.default_unknown(item.expression)
        keys = self._group_keys(tree.args.get("group"), items, scope)
        having_tree = tree.args.get("having")
        having = self.condition(having_tree.this, scope, "HAVING") if having_tree is not None else None
        order = self._order_terms(tree.args.get("order"), items, scope)
        distinct = tree.args.get("distinct")
        on = self._distinct_on(distinct, items, scope)

        bound: list[Expression] = [item.expression for item in items]
        bound += [key.expression for key in order]
        bound += on or []
        if keys is not None or having is not None or any(_has(e, Aggregate) for e in bound):
            grouping = _Grouping(self, relation, keys or [])
            for item in items:
                item.expression = grouping.rewrite(item.expression)
            order = [replace(key, expression=grouping.rewrite(key.expression)) for key in order]
            on = None if on is None else [grouping.rewrite(e) for e in on]
            having = None if having is None else grouping.rewrite(having)
            relation = grouping.node()
            if having is not None:
                relation = Filter(relation, having)
        relation, items, order = self._window_node(relation, items, order)

        if on is not None:
            self._check_distinct_on(on, order, tree)
            relation = DistinctOn(relation, tuple(on), tuple(order))
        if distinct is None or on is not None:
            if order:
                relation = Sort(relation, tuple(order))
            relation = self._project(relation, items)
        else:
            relation = self._distinct_rows(relation, items, order, tree)
        return self._limited(relation, tree, scope)

    def _project(self, relation: Relation, items: Sequence[Item]) -> Project:
        columns = tuple(self.new_column(item.name, item.expression) for item in items)
        return Project(relation, columns, tuple(item.expression for item in items))

    def _distinct_rows(
        self, relation: Relation, items: Sequence[Item], order: Sequence[SortKey], tree: exp.Expr
    ) -> Relation:
        project = self._project(relation, items)
        for item in items:
            self.groupable(item.expression, item.tree)
        keys = []
        for key in order:
            for item, column in zip(items, project.columns, strict=True):
                if item.expression == key.expression:
                    keys.append(replace(key, expression=ColumnRef(column)))
                    break
            else:
                message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list"
                raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=self.at(tree.args["order"]))
        distinct = Distinct(project)
        return Sort(distinct, tuple(keys)) if keys else distinct

    # -- select list ------------------------------------------------------------------------------------------------

    def _select_list(self, trees: Sequence[exp.Expr], scope: Scope) -> list[Item]:
        items: list[Item] = []
        for tree in trees:
            if isinstance(tree, exp.Star) or (isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star)):
                items += self._star(tree, scope)
            elif isinstance(tree, exp.Alias):
                items.append(Item(tree.alias, self.expression(tree.this, scope), tree))
            else:
                items.append(Item(output_name(tree), self.expression(tree, scope), tree))
        return items

    def select_items(self, trees: Sequence[exp.Expr], scope: Scope) -> list[Item]:
        """A RETURNING list: as a select list, without aggregates."""
        items = self._select_list(trees, _in_clause(scope, "RETURNING"))
        for item in items:
            item.expression = self.default_unknown(item.expression)
        return items

    def _star(self, tree: exp.Expr, scope: Scope) -> list[Item]:
        table = tree.table if isinstance(tree, exp.Column) else ""
        position = self.at(tree)
        if table:
            self._forget_schema(tree)
            for level in scope.chain:
                if level.has_table(table):
                    found = level.table_entries(table)
                    break
            else:
                raise no_table(scope, table, position)
        else:
            if not scope.entries and not scope.real_names:
                message = "SELECT * with no tables specified is not valid"
                raise PgError(SqlState.SYNTAX_ERROR, message, position=position)
            found = [entry for entry in scope.entries if entry.visible]
        return [Item(entry.name, located(entry, position), tree) for entry in found]

    def _column(self, tree: exp.Column, scope: Scope) -> Expression:
        self._forget_schema(tree)
        return super()._column(tree, scope)

    def _forget_schema(self, tree: exp.Expr) -> None:
        """schema.table.column is stored as table.column: the table keeps its alias, not its schema."""
        qualifiers = [tree.args[k] for k in ("catalog", "db", "table") if tree.args.get(k) is not None]
        if len(qualifiers) > 1 and not self.inside_view:
            self._replace(qualifiers, quoted(qualifiers[-1].name))

    def _replace(self, identifiers: Sequence[exp.Expr], text: str) -> None:
        spans = [(i.meta["start"], i.meta["end"]) for i in identifiers if "start" in i.meta]
        if spans:
            self.replacements.append(Replacement(min(s for s, _ in spans), max(e for _, e in spans) + 1, text))

    # -- FROM -------------------------------------------------------------------------------------------------------

    def _from_clause(self, tree: exp.Expr, outer: Scope) -> _From:
        from_ = tree.args.get("from_")
        if from_ is None:
            return _From(Values((), ((),)), [])
        # a comma binds less tightly than JOIN: each starts a group of joins of its own
        groups = [self._from_item(from_.this, outer)]
        for join in tree.args.get("joins") or ():
            if _is_comma(join):
                groups.append(self._from_item(join.this, outer))
            else:
                groups[-1] = self._join(groups[-1], join, outer)
        result = groups[0]
        for group in groups[1:]:
            result = self._cross(result, group)
        self._check_aliases(tree, outer)
        return result

    @staticmethod
    def _cross(left: _From, right: _From) -> _From:
        columns = left.relation.columns + right.relation.columns
        return _From(Join(JoinKind.CROSS, left.relation, right.relation, None, columns), left.entries + right.entries)

    def _real_names(self, tree: exp.Expr) -> dict[str, str]:
        """Of the tables in FROM: the relation's own name to the alias it was given."""
        names = {}
        for table in _tables_of(tree):
            if isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier):
                names[table.name] = table.alias or table.name
            elif table.alias:
                names[table.alias] = table.alias
        return names

    def _check_aliases(self, tree: exp.Expr, outer: Scope) -> None:
        seen = set()
        for table in _tables_of(tree):
            name = table.alias or (table.name if isinstance(table, exp.Table) else "")
            if name and name in seen:
                message = f'table name "{name}" specified more than once'
                raise PgError(SqlState.DUPLICATE_ALIAS, message)
            seen.add(name)

    def _from_item(self, tree: exp.Expr, outer: Scope) -> _From:
        """One item of FROM with its alias. Items do not see one another: LATERAL is refused."""
        if tree.args.get("sample"):
            raise self.unsupported("TABLESAMPLE", tree)
        match tree:
            case exp.Table() if isinstance(tree.this, exp.Anonymous):
                relation, default = self._table_function(tree.this, outer), function_name(tree.this)
            case exp.Table():
                relation, default = self._table(tree, outer), tree.name
                if tree.args.get("joins"):
                    return self._joined(tree, outer)
            case exp.Subquery() if isinstance(tree.this, exp.Table) or tree.args.get("joins"):
                return self._parenthesised(tree, outer)
            case exp.Subquery():
                relation, default = self.query(tree, _alone(outer)), ""
            case exp.Values():
                relation, default = self._values(tree, outer, False), ""
            case exp.Lateral():
                raise self.unsupported("LATERAL", tree)
            case exp.Unnest():
                raise self.unsupported("unnest in FROM", tree)
            case _:
                raise self.unsupported("this item of FROM", tree)
        alias = tree.alias or default
        names = [c.name for c in (tree.args["alias"].args.get("columns") or ())] if tree.args.get("alias") else []
        self._check_width(relation, "table", alias, names, tree)
        if isinstance(relation, Series) and tree.alias and not names:
            names = [tree.alias]  # a function's one column is called after the table's alias
        shown = names + [column.name for column in relation.columns[len(names) :]]
        entries = [
            Entry(name, ColumnRef(column), alias or None) for name, column in zip(shown, relation.columns, strict=True)
        ]
        return _From(relation, entries)

    def _joined(self, tree: exp.Table, outer: Scope) -> _From:
        """A table that sqlglot hung joins on: `(a JOIN b ON ...)`."""
        bare = tree.copy()
        joins = bare.args.pop("joins")
        result = self._from_item(bare, outer)
        for join in joins:
            result = self._cross(result, self._from_item(join.this, outer)) if _is_comma(join) else self._join(
                result, join, outer)  # fmt: skip
        return result

    def _parenthesised(self, tree: exp.Subquery, outer: Scope) -> _From:
        inner = tree.this
        result = self._from_item(inner, outer)
        for join in tree.args.get("joins") or ():
            result = self._join(result, join, outer)
        if tree.alias:
            raise self.unsupported("an alias of a join", tree)
        return result

    def _table(self, tree: exp.Table, outer: Scope) -> Relation:
        parts = tuple(tree.args[k].name for k in ("catalog", "db", "this") if tree.args.get(k) is not None)
        if len(parts) == 1 and parts[0] in outer.common_tables:
            return self._common_table(outer.common_tables[parts[0]], parts[0], outer, tree)
        item = find_relation(self.context.state, parts, self.context.database, self.context.search_path, self.at(tree))
        if not self.inside_view:
            self.uses.add(item.id)
            identifiers = [tree.args[k] for k in ("catalog", "db", "this") if tree.args.get(k) is not None]
            alias = "" if tree.alias else f" AS {quoted(item.name)}"
            self._replace(identifiers, f'"$id".{quoted(item.id)}{alias}')
        return self.relation(item)

    def relation(self, item: CatalogRelation) -> Relation:
        """The rows of a catalog relation; a view's query in its place."""
        if isinstance(item, View):
            return self._view(item)
        self.inputs.add(item.id)
        columns = []
        for column in item.columns:
            self._last_column += 1
            type = parse_type(column.type)
            columns.append(Column(self._last_column, column.name, type, column.nullable, _digits(type)))
        return Scan(item.id, tuple(columns))

    def _view(self, view: View) -> Relation:
        self.inside_view += 1
        try:
            relation = self.query(stored_query(view.query), Scope())
        finally:
            self.inside_view -= 1
        exprs: list[Expression] = []
        for column, declared in zip(relation.columns, view.columns, strict=True):
            exprs.append(self.rescale(ColumnRef(column), parse_type(declared.type)))
        columns = tuple(
            replace(self.new_column(declared.name, e)) for declared, e in zip(view.columns, exprs, strict=True)
        )
        return Project(relation, columns, tuple(exprs))

    def _table_function(self, tree: exp.Anonymous, outer: Scope) -> Relation:
        name = function_name(tree)
        scope = Scope(parent=outer.parent, common_tables=outer.common_tables, clause="functions in FROM")
        arguments = [self.expression(a, scope) for a in tree.expressions]
        if name != "generate_series":
            if name in FUNCTIONS:
                raise self.unsupported(f"{name} in FROM", tree)
            shown = f"{name}({', '.join(a.type.base_display for a in arguments)})"
            raise resolve.no_such("function", shown, len(arguments), self.at(tree))
        if len(arguments) not in (2, 3):
            shown = f"{name}({', '.join(a.type.base_display for a in arguments)})"
            raise resolve.no_such("function", shown, len(arguments), self.at(tree))
        type = INT8 if any(a.type == INT8 for a in arguments) else INT4
        if any(a.type not in (INT4, INT8, UNKNOWN, parse_type("int2")) for a in arguments):
            raise self.unsupported("generate_series of anything but integers", tree)
        bounds = [self.coerce(a, type) for a in arguments]
        if any(_has(bound, ColumnRef) or _has(bound, Subquery) for bound in bounds):
            raise self.unsupported("generate_series of anything but constants", tree)
        step = bounds[2] if len(bounds) == 3 else Literal(1, type)
        if isinstance(step, Literal) and step.value == 0:
            message = "step size cannot equal zero"
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, message, position=self.at(tree))
        self._last_column += 1
        return Series((Column(self._last_column, name, type, False),), bounds[0], bounds[1], step)

    def _values(self, tree: exp.Values, scope: Scope, keep_unknown: bool) -> Relation:
        inner = _in_clause(scope, "VALUES")
        rows = [[self.expression(cell, inner) for cell in row.expressions] for row in tree.expressions]
        for row, row_tree in zip(rows, tree.expressions, strict=True):
            if len(row) != len(rows[0]):
                message = "VALUES lists must all be the same length"
                raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(row_tree))
        return self.values(rows, keep_unknown, tree)

    def values(self, rows: Sequence[Sequence[Expression]], keep_unknown: bool, tree: exp.Expr) -> Values:
        """Rows of bound cells as a relation, each column of one type."""
        cells: list[list[Expression]] = []
        for column in zip(*rows, strict=True):
            if keep_unknown and len(rows) == 1:
                cells.append(list(column))
            else:
                cells.append(self.to_common(column, "VALUES", self.at(tree))[1])
        columns = []
        for number, column_cells in enumerate(cells, 1):
            self._last_column += 1
            first = column_cells[0]
            columns.append(
                Column(
                    self._last_column,
                    f"column{number}",
                    first.type,
                    any(c.nullable for c in column_cells),
                    max(ex.precision(c) for c in column_cells) if first.type.name == "numeric" else 0,
                )
            )
        return Values(tuple(columns), tuple(zip(*cells, strict=True)))

    # -- joins ------------------------------------------------------------------------------------------------------

    def _join(self, left: _From, join: exp.Join, outer: Scope) -> _From:
        right = self._from_item(join.this, outer)
        side, kind = (join.args.get(k) or "" for k in ("side", "kind"))
        names = [i.name for i in join.args.get("using") or ()]
        natural = join.args.get("method") == "NATURAL"
        if natural:
            visible = {e.name for e in right.entries if e.visible}
            names = [e.name for e in left.entries if e.visible and e.name in visible]
        if kind not in ("", "INNER", "OUTER", "CROSS") or join.args.get("method") not in (None, "", "NATURAL"):
            raise self.unsupported(f"{kind} JOIN", join)
        join_kind = JoinKind(side) if side else JoinKind.CROSS if kind == "CROSS" else JoinKind.INNER
        merged: list[tuple[str, Entry, Entry]] = []
        condition: Expression | None = None
        if names:
            merged = [(n, self._using(n, left, "left"), self._using(n, right, "right")) for n in names]
            condition = conjunction([self.operator("=", [a.expression, b.expression], join) for _, a, b in merged])
        elif join.args.get("on") is not None:
            scope = Scope(left.entries + right.entries, outer.parent, outer.common_tables, clause="JOIN conditions")
            scope.real_names = self._real_names(join.parent) if join.parent is not None else {}
            condition = self.condition(join.args["on"], scope, "JOIN/ON")
        if condition is None and join_kind is not JoinKind.CROSS:
            condition = Literal(True, BOOL)
        left_entries = _maybe_null(left.entries, join_kind in (JoinKind.RIGHT, JoinKind.FULL))
        right_entries = _maybe_null(right.entries, join_kind in (JoinKind.LEFT, JoinKind.FULL))
        columns = tuple(
            replace(c, nullable=c.nullable or nulls)
            for relation, nulls in (
                (left.relation, join_kind in (JoinKind.RIGHT, JoinKind.FULL)),
                (right.relation, join_kind in (JoinKind.LEFT, JoinKind.FULL)),
            )
            for c in relation.columns
        )
        node = Join(join_kind, left.relation, right.relation, condition, columns)
        if not names:
            return _From(node, left_entries + right_entries)
        return _From(node, self._merged(merged, left_entries, right_entries, left, right, join_kind))

    def _using(self, name: str, side: _From, which: str) -> Entry:
        found = [e for e in side.entries if e.name == name and e.visible]
        if not found:
            message = f'column "{name}" specified in USING clause does not exist in {which} table'
            raise PgError(SqlState.UNDEFINED_COLUMN, message)
        if len(found) > 1:
            message = f'common column name "{name}" appears more than once in {which} table'
            raise PgError(SqlState.AMBIGUOUS_COLUMN, message)
        return found[0]

    def _merged(
        self,
        merged: Sequence[tuple[str, Entry, Entry]],
        left_entries: list[Entry],
        right_entries: list[Entry],
        left: _From,
        right: _From,
        kind: JoinKind,
    ) -> list[Entry]:
        """The merged columns first, once each; then the rest of both sides. The merged stay known by table."""
        result = []
        for name, a, b in merged:
            after_a = left_entries[left.entries.index(a)].expression
            after_b = right_entries[right.entries.index(b)].expression
            _, (x, y) = self.to_common([after_a, after_b], "JOIN/USING")
            expression: Expression = y if kind is JoinKind.RIGHT else x
            if kind is JoinKind.FULL:
                expression = Call(syntax.COALESCE, (x, y), x.type, a.expression.nullable and b.expression.nullable)
            result.append(Entry(name, expression, None))
        hidden_left = {left.entries.index(a) for _, a, _ in merged}
        hidden_right = {right.entries.index(b) for _, _, b in merged}
        result += [replace(e, visible=e.visible and i not in hidden_left) for i, e in enumerate(left_entries)]
        result += [replace(e, visible=e.visible and i not in hidden_right) for i, e in enumerate(right_entries)]
        return result

    # -- GROUP BY, aggregates, windows ------------------------------------------------------------------------------

    def _group_keys(self, tree: exp.Expr | None, items: Sequence[Item], scope: Scope) -> list[Expression] | None:
        """None: no GROUP BY. A name means an input column first, then an output column; a number an item."""
        if tree is None:
            return None
        if any(tree.args.get(k) for k in ("grouping_sets", "cube", "rollup", "totals", "all")):
            raise self.unsupported("GROUPING SETS", tree)
        keys: list[Expression] = []
        inner = _in_clause(scope, "GROUP BY")
        for term in tree.expressions:
            if isinstance(term, (exp.Rollup, exp.Cube, exp.GroupingSets)):
                raise self.unsupported("GROUPING SETS", term)
            bare = _unparenthesised(term)
            if isinstance(bare, exp.Tuple):
                keys += [self.default_unknown(self.expression(e, inner)) for e in bare.expressions]
                continue
            expression = self._positional(bare, items, "GROUP BY")
            if (
                expression is None
                and _is_bare_name(bare)
                and not any(e.name == bare.name and e.visible for e in scope.entries)
            ):
                expression = self._output_named(bare, items, "GROUP BY")
            if expression is None:
                expression = self.default_unknown(self.expression(bare, inner))
            if _has(expression, Aggregate):
                message = "aggregate functions are not allowed in GROUP BY"
                raise PgError(SqlState.GROUPING_ERROR, message, position=self.at(term))
            self.groupable(expression, term)
            if expression not in keys:
                keys.append(expression)
        return keys

    def _positional(self, tree: exp.Expr, items: Sequence[Item], clause: str) -> Expression | None:
        if not isinstance(tree, exp.Literal):
            return None
        if tree.is_string or not tree.this.isdigit():
            message = f"non-integer constant in {clause}"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(tree))
        number = int(tree.this)
        if not 1 <= number <= len(items):
            message = f"{clause} position {number} is not in select list"
            raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=self.at(tree))
        return items[number - 1].expression

    def _output_named(self, tree: exp.Expr, items: Sequence[Item], clause: str) -> Expression | None:
        found: list[Expression] = []
        for item in items:
            if item.name == tree.name and item.expression not in found:
                found.append(item.expression)
        if len(found) > 1:
            message = f'{clause} "{tree.name}" is ambiguous'
            raise PgError(SqlState.AMBIGUOUS_COLUMN, message, position=self.at(tree))
        return found[0] if found else None

    def _window_node(
        self, relation: Relation, items: list[Item], order: list[SortKey]
    ) -> tuple[Relation, list[Item], list[SortKey]]:
        calls: list[WindowCall] = []
        columns: list[Column] = []

        def change(node: Any) -> Any | None:
            if isinstance(node, Subquery):
                return node
            if not isinstance(node, WindowCall):
                return None
            if any(_has(child, WindowCall) for child in children(node)):
                message = "window function calls cannot be nested"
                raise PgError(SqlState.WINDOWING_ERROR, message, position=node.position)
            if node not in calls:
                calls.append(node)
                columns.append(self.new_column(node.call.function.name, node))
            return ColumnRef(columns[calls.index(node)])

        for item in items:
            item.expression = transform(item.expression, change)
        order = [replace(key, expression=transform(key.expression, change)) for key in order]
        if calls:
            relation = Window(relation, tuple(calls), (*relation.columns, *columns))
        return relation, items, order

    # -- DISTINCT ON, ORDER BY, LIMIT -------------------------------------------------------------------------------

    def _distinct_on(self, tree: exp.Expr | None, items: Sequence[Item], scope: Scope) -> list[Expression] | None:
        if tree is None or tree.args.get("on") is None:
            return None
        on = tree.args["on"]
        terms = on.expressions if isinstance(on, exp.Tuple) else [on]
        keys = [self._term(term, items, scope, "SELECT DISTINCT ON") for term in terms]
        for key, term in zip(keys, terms, strict=True):
            self.groupable(key, term)
        return keys

    def _check_distinct_on(self, on: Sequence[Expression], order: Sequence[SortKey], tree: exp.Expr) -> None:
        leading = [key.expression for key in order[: len(on)]]
        if any(e not in on for e in leading):
            message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions"
            raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=self.at(tree.args["distinct"]))

    def _term(self, tree: exp.Expr, items: Sequence[Item], scope: Scope, clause: str) -> Expression:
        """A term of ORDER BY or DISTINCT ON: an output column's name, a number, or any expression."""
        bare = _unparenthesised(tree)
        found = self._positional(bare, items, clause)
        if found is None and _is_bare_name(bare):
            found = self._output_named(bare, items, clause)
        return found if found is not None else self.default_unknown(self.expression(bare, scope))

    def _order_terms(self, tree: exp.Expr | None, items: Sequence[Item], scope: Scope) -> list[SortKey]:
        if tree is None:
            return []
        keys: list[SortKey] = []
        for term in tree.expressions:
            key = self.sort_key(term, self.default_unknown(self._term(term.this, items, scope, "ORDER BY")))
            if all(key.expression != other.expression for other in keys):
                keys.append(key)
        return keys

    def _output_order(self, relation: Relation, tree: exp.Expr, scope: Scope, what: str) -> Relation:
        """ORDER BY and LIMIT behind a set operation, VALUES or parentheses: over the output columns only."""
        order = tree.args.get("order")
        if order is not None:
            keys = []
            items = [Item(c.name, ColumnRef(c), tree) for c in relation.columns]
            for term in order.expressions:
                bare = _unparenthesised(term.this)
                expression = self._positional(bare, items, "ORDER BY")
                if expression is None and _is_bare_name(bare):
                    expression = self._output_named(bare, items, "ORDER BY")
                    if expression is None:
                        message = f'column "{bare.name}" does not exist'
                        raise PgError(SqlState.UNDEFINED_COLUMN, message, position=self.at(bare))
                if expression is None:
                    raise PgError(
                        SqlState.FEATURE_NOT_SUPPORTED,
                        "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                        detail="Only result column names can be used, not expressions or functions.",
                        hint="Add the expression/function to every SELECT, or move the UNION into a FROM clause.",
                        position=self.at(bare),
                    )
                keys.append(self.sort_key(term, expression))
            relation = Sort(relation, tuple(keys))
        return self._limited(relation, tree, scope)

    def _limited(self, relation: Relation, tree: exp.Expr, scope: Scope) -> Relation:
        limit_tree, offset_tree = tree.args.get("limit"), tree.args.get("offset")
        limit = offset = None
        if isinstance(limit_tree, exp.Fetch):
            options = limit_tree.args.get("limit_options")
            if options is not None and (options.args.get("with_ties") or options.args.get("percent")):
                raise self.unsupported("FETCH ... WITH TIES", tree)
            count = limit_tree.args.get("count")
            limit = self._bound(count, scope, "LIMIT") if count is not None else Literal(1, INT8)
        elif limit_tree is not None:
            value = limit_tree.expression
            if not (isinstance(value, exp.Var) and value.name.upper() == "ALL"):
                limit = self._bound(value, scope, "LIMIT")
        if offset_tree is not None:
            offset = self._bound(offset_tree.expression, scope, "OFFSET")
        return relation if limit is None and offset is None else Limit(relation, limit, offset)

    def _bound(self, tree: exp.Expr, scope: Scope, clause: str) -> Expression:
        bound = self.expression(tree, Scope(parent=scope, clause=clause))
        if bound.type != UNKNOWN and bound.type.name not in ("int2", "int4", "int8", "numeric", "float4", "float8"):
            message = f"argument of {clause} must be type bigint, not type {bound.type.base_display}"
            raise PgError(SqlState.DATATYPE_MISMATCH, message, position=self.at(tree))
        if _has(bound, ColumnRef):
            message = f"argument of {clause} must not contain variables"
            raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message, position=self.at(tree))
        number = self.coerce(bound, INT8, ASSIGNMENT, self.at(tree))
        if isinstance(number, Literal) and number.value is not None and number.value < 0:
            state = (
                SqlState.INVALID_ROW_COUNT_IN_LIMIT_CLAUSE
                if clause == "LIMIT"
                else SqlState.INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE
            )
            raise PgError(state, f"{clause} must not be negative")
        return number

    # -- set operations ---------------------------------------------------------------------------------------------

    def _set_operation(self, tree: exp.SetOperation, scope: Scope) -> Relation:
        if tree.args.get("by_name") or tree.args.get("side") or tree.args.get("kind") or tree.args.get("on"):
            raise self.unsupported("this set operation", tree)
        kind = _SET_KINDS[type(tree)]
        left = self.query(tree.this, _alone(scope), keep_unknown=True)
        right = self.query(tree.expression, _alone(scope), keep_unknown=True)
        if len(left.columns) != len(right.columns):
            message = f"each {kind} query must have the same number of columns"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(tree.expression))
        left_outputs, right_outputs = _outputs(left), _outputs(right)
        sides: tuple[list[Expression], list[Expression]] = ([], [])
        every = not tree.args.get("distinct")
        columns = []
        for a, b, column in zip(left_outputs, right_outputs, left.columns, strict=True):
            common, (x, y) = self.to_common([a, b], str(kind), self.at(tree.expression))
            if not every:
                self.groupable(x, tree)
            sides[0].append(x)
            sides[1].append(y)
            self._last_column += 1
            columns.append(
                Column(
                    self._last_column,
                    column.name,
                    common,
                    x.nullable or y.nullable,
                    (common.scale is not None and 38) or 0,
                )
            )
        if any(c.type.name == "numeric" for c in columns):  # both sides' decimals must be of one precision
            for side in sides:
                for i, c in enumerate(columns):
                    if c.type.name == "numeric" and ex.precision(side[i]) != 38:
                        side[i] = ex.Cast(side[i], c.type)
        left = self._with_outputs(left, sides[0])
        right = self._with_outputs(right, sides[1])
        relation: Relation = SetOperation(kind, every, left, right, tuple(columns))
        return self._output_order(relation, tree, scope, str(kind))

    def _with_outputs(self, relation: Relation, outputs: Sequence[Expression]) -> Relation:
        """A relation whose output expressions (`_outputs`) have become others."""
        if _outputs(relation) == list(outputs) and all(c.type != UNKNOWN for c in relation.columns):
            return relation
        if isinstance(relation, Project):
            columns = tuple(self.new_column(c.name, e) for c, e in zip(relation.columns, outputs, strict=True))
            return Project(relation.input, columns, tuple(outputs))
        return self.projected(relation, outputs)

    def assigned(self, relation: Relation, outputs: Callable[[int, Expression], Expression]) -> Relation:
        """The relation with every output column passed through `outputs` (its number, its expression)."""
        changed = [outputs(i, e) for i, e in enumerate(_outputs(relation))]
        return self._with_outputs(relation, changed)


def _outputs(relation: Relation) -> list[Expression]:
    """What the columns of a relation are, as far as they can still be coerced: the expressions of a projection or of
    a row of VALUES, else references."""
    if isinstance(relation, Project):
        return list(relation.expressions)
    return [ColumnRef(column) for column in relation.columns]


def _alone(scope: Scope) -> Scope:
    return Scope(parent=scope.parent, common_tables=scope.common_tables)


def _in_clause(scope: Scope, clause: str) -> Scope:
    return Scope(scope.entries, scope.parent, scope.common_tables, clause, scope.real_names, scope.windows)


def _digits(type: PgType) -> int:
    return (type.precision or 38) if type.name == "numeric" else 0


def _maybe_null(entries: list[Entry], nulls: bool) -> list[Entry]:
    """The entries behind an outer join that may fill their side with NULLs."""
    if not nulls:
        return entries
    inner = {}
    for entry in entries:
        expression = entry.expression

        def change(node: Any) -> Any | None:
            return ColumnRef(replace(node.column, nullable=True)) if isinstance(node, ColumnRef) else None

        inner[id(entry)] = replace(entry, expression=transform(expression, change))
    return [inner[id(entry)] for entry in entries]


def _has(expression: Any, kind: type) -> bool:
    """Whether a node of that class stands in an expression, queries inside it aside."""
    stack = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, kind):
            return True
        if isinstance(node, Subquery):
            stack.extend(node.operands)
        elif isinstance(node, WindowCall):
            stack.extend(node.call.arguments)
            stack.extend(node.partition)
            stack.extend(key.expression for key in node.order)
        else:
            stack.extend(children(node))
    return False


def _is_comma(join: exp.Join) -> bool:
    return not any(join.args.get(k) for k in ("kind", "side", "method", "on", "using"))


def _is_named(tree: exp.Expr | None, name: str) -> bool:
    return tree is not None and any(t.name == name and not t.args.get("db") for t in tree.find_all(exp.Table))


def _tables_of(tree: exp.Expr) -> list[exp.Expr]:
    from_ = tree.args.get("from_")
    tables = [from_.this] if from_ is not None else []
    return tables + [join.this for join in tree.args.get("joins") or ()]


def _is_bare_name(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Column) and not tree.table and not isinstance(tree.this, exp.Star)


def _unparenthesised(tree: exp.Expr) -> exp.Expr:
    while isinstance(tree, exp.Paren):
        tree = tree.this
    return tree


def quoted(name: str) -> str:
    """A name as a quoted identifier of PostgreSQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


@lru_cache(maxsize=1024)
def stored_query(text: str) -> exp.Expr:
    """The tree of a view's stored text. It is read, never changed."""
    query: Query = parse_query(text)
    return query.tree


# -- output names ---------------------------------------------------------------------------------------------------

_NAMELESS = "?column?"


def output_name(tree: exp.Expr) -> str:
    """What PostgreSQL calls an output column without AS (FigureColname)."""
    return _figured(tree)[0]


def _figured(tree: exp.Expr) -> tuple[str, int]:
    """A name and how much it is worth: 0 none, 1 a type's or CASE, 2 a real one."""
    match tree:
        case exp.Column():
            return tree.name, 2
        case exp.Anonymous():
            return function_name(tree), 2
        case exp.Dot():
            return _figured(tree.expression)
        case exp.Filter() | exp.Window() | exp.Paren() | exp.Bracket() | exp.Collate():
            return _figured(tree.this)
        case exp.Cast():
            name, worth = _figured(tree.this)
            return (name, worth) if worth == 2 else (_type_name(tree.args["to"]), 1)
        case exp.Interval():
            return "interval", 1
        case exp.Case():
            default = tree.args.get("default")
            name, worth = _figured(default) if default is not None else (_NAMELESS, 0)
            return (name, worth) if worth == 2 else ("case", 1)
        case exp.Array():
            return "array", 2
        case exp.Exists():
            return "exists", 2
        case exp.Subquery():
            inner: exp.Expr = tree
            while isinstance(inner, (exp.Subquery, exp.SetOperation)):
                inner = inner.this
            if isinstance(inner, exp.Select) and inner.expressions:
                first = inner.expressions[0]
                return (first.alias, 2) if isinstance(first, exp.Alias) else _figured(first)
            return ("column1", 2) if isinstance(inner, exp.Values) else (_NAMELESS, 0)
        case exp.Extract():
            return "extract", 2
        case exp.Substring():
            return "substring", 2
        case exp.StrPosition():
            return "position", 2
        case exp.Trim():
            return trim_name(tree), 2
        case exp.AtTimeZone():
            return "timezone", 2
        case exp.CurrentDate() | exp.CurrentTimestamp() | exp.Localtimestamp() | exp.CurrentUser():
            return session_name(tree), 2
        case exp.SessionUser() | exp.CurrentCatalog() | exp.CurrentSchema() | exp.CurrentRole():
            return session_name(tree), 2
    return _NAMELESS, 0


def _type_name(tree: exp.Expr) -> str:
    spelling = type_spelling(tree).removesuffix("[]")
    try:
        return parse_type(spelling).name
    except ValueError:
        return spelling.partition("(")[0]
