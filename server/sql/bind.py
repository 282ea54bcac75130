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
from protocol.pgwire.types import BOOL, INT4, INT8, UNKNOWN, PgType, array_of, parse_type
from server.sql import expressions as ex
from server.sql.bind_scalar import (
    ScalarBinder,
    conjunction,
    function_name,
    is_aggregate,
    session_name,
    trim_name,
    type_spelling,
)
from server.sql.bind_scalar import row_of as _row_of
from server.sql.coerce import ASSIGNMENT
from server.sql.decorrelate import free_columns
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
    walk,
)
from server.sql.functions import resolve, syntax
from server.sql.functions.sets import SETS
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
    Recursive,
    RecursiveRows,
    Relation,
    Scan,
    Series,
    SetKind,
    SetOperation,
    Sort,
    Unnest,
    Values,
    Window,
)
from server.sql.scope import CommonTable, Entry, Scope, find_relation, located, no_table
from server.sql.statements import Query

GROUPING_SETS_MAX = 4096  # as in PostgreSQL
CUBE_MAX = 12  # as in PostgreSQL
INT8_MAX = (1 << 63) - 1
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
    """`lateral`: it may name columns of what stands to its left."""

    relation: Relation
    entries: list[Entry]
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class _Groups:
    """GROUP BY: all keys, and for each grouping set the numbers of its keys."""

    keys: list[Expression]
    sets: list[tuple[int, ...]]


class _Grouping:
    """Rewrites expressions over the input of an Aggregate into expressions over its output, then makes the node.

    Several grouping sets are the union of as many aggregates: so the empty set has its row without any input.
    """

    def __init__(self, binder: Binder, relation: Relation, groups: _Groups) -> None:
        self.binder = binder
        self.relation = relation
        self.keys = groups.keys
        self.sets = groups.sets
        self.key_columns = [binder.new_column(getattr(key, "written", ""), key) for key in self.keys]
        if any(len(numbers) < len(self.keys) for numbers in self.sets):
            self.key_columns = [replace(column, nullable=True) for column in self.key_columns]
        self.inputs = frozenset(column.id for column in relation.columns)
        self.calls: list[Aggregate] = []
        self.call_columns: list[Column] = []
        self.markers: list[tuple[int, ...]] = []  # the arguments of each GROUPING()
        self.marker_columns: list[Column] = []

    def node(self) -> Relation:
        columns = (*self.key_columns, *self.call_columns)
        if len(self.sets) == 1 and len(self.sets[0]) == len(self.keys) and not self.markers:
            return AggregateNode(self.relation, tuple(self.keys), tuple(self.calls), columns)
        result: Relation | None = None
        for numbers in self.sets:
            arm = self._arm(numbers)
            if result is None:
                result = arm
            else:
                both = tuple(self.binder.new_column(c.name, ColumnRef(c)) for c in (*columns, *self.marker_columns))
                result = SetOperation(SetKind.UNION, True, result, arm, both)
        assert result is not None
        refs = tuple(ColumnRef(c) for c in result.columns)
        return Project(result, (*columns, *self.marker_columns), refs)

    def _arm(self, numbers: tuple[int, ...]) -> Project:
        """The groups of one grouping set; the keys that it has not are NULL."""
        inner = {number: self.binder.new_column("", self.keys[number]) for number in numbers}
        calls = [self.binder.new_column("", call) for call in self.calls]
        keys = tuple(self.keys[number] for number in numbers)
        node = AggregateNode(self.relation, keys, tuple(self.calls), (*inner.values(), *calls))
        expressions: list[Expression] = [
            ColumnRef(inner[number]) if number in inner else Literal(None, key.type)
            for number, key in enumerate(self.keys)
        ]
        expressions += [ColumnRef(column) for column in calls]
        for marker in self.markers:
            bits = "".join("0" if number in inner else "1" for number in marker)
            expressions.append(Literal(int(bits, 2), INT4))
        return Project(node, tuple(self.binder.new_column("", e) for e in expressions), tuple(expressions))

    def _marker(self, call: Call) -> ColumnRef:
        if any(argument not in self.keys for argument in call.arguments):
            message = "arguments to GROUPING must be grouping expressions of the associated query level"
            position = next((getattr(a, "position", None) for a in call.arguments if a not in self.keys), None)
            raise PgError(SqlState.GROUPING_ERROR, message, position=position)
        marker = tuple(self.keys.index(argument) for argument in call.arguments)
        if marker not in self.markers:
            self.markers.append(marker)
            self.marker_columns.append(self.binder.new_column("grouping", call))
        return ColumnRef(self.marker_columns[self.markers.index(marker)])

    def rewrite(self, expression: Expression) -> Expression:
        return transform(expression, self._change)

    def _change(self, node: Any) -> Any | None:
        for key, column in zip(self.keys, self.key_columns, strict=True):
            if node == key:
                return ColumnRef(column, getattr(node, "written", ""), getattr(node, "position", None))
        match node:
            case Call(function=syntax.GROUPING):
                return self._marker(node)
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
        """In a subquery: its own aggregates are its own, but our columns must be grouped there too, and an aggregate
        of nothing but our columns is ours."""
        if isinstance(node, Aggregate) and (named := _named_columns(node)) and named <= self.inputs:
            return self._call(node)
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
        parameters: Sequence[PgType | None] | None = (),
        *,
        text: str = "",
        offset: int = 0,
        maintained: bool = False,
    ) -> None:
        """`text` is the statement's, which begins at `offset` of what the client sent; for error positions.

        `parameters` None: there can be none (42P02).
        """
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
        visible = dict(scope.common_tables)
        seen: set[str] = set()
        named = {table.name for table in clause.parent.find_all(exp.Table) if not table.args.get("db")}
        for item in clause.expressions:
            name = item.alias
            if name in seen:
                message = f'WITH query name "{name}" specified more than once'
                raise PgError(SqlState.DUPLICATE_ALIAS, message, position=self.at(item.args["alias"]))
            seen.add(name)
            columns = tuple(c.name for c in item.args["alias"].args.get("columns") or ())
            recursive = bool(clause.args.get("recursive")) and _is_named(item.this, name)
            if recursive and self.maintained:
                raise self.unsupported("WITH RECURSIVE in a query whose result is kept up to date", item)
            table = CommonTable(item.this, columns, dict(visible), recursive)
            if name not in named:
                self._common_table(table, name, scope, item)  # nobody reads it, yet it must be right
            visible[name] = table
        return Scope(parent=scope.parent, common_tables=visible, entries=scope.entries)

    def _common_table(self, table: CommonTable, name: str, scope: Scope, tree: exp.Expr) -> Relation:
        if table.rows is not None:
            columns = tuple(self.new_column(c.name, ColumnRef(c)) for c in table.rows.columns)
            return replace(table.rows, columns=columns)
        if table.recursive:
            return self._recursive(table, name, scope, tree)
        relation = self.query(table.query, Scope(parent=scope.parent, common_tables=table.visible))
        if not table.columns:
            return relation
        self._check_width(relation, "WITH query", name, table.columns, tree)
        names = [*table.columns, *(c.name for c in relation.columns[len(table.columns) :])]
        refs = [ColumnRef(column) for column in relation.columns]
        columns = tuple(self.new_column(n, ref) for n, ref in zip(names, refs, strict=True))
        return Project(relation, columns, tuple(refs))

    def _recursive(self, table: CommonTable, name: str, scope: Scope, tree: exp.Expr) -> Relation:
        """WITH RECURSIVE name AS (anchor UNION [ALL] step)."""
        union = table.query
        while isinstance(union, exp.Subquery):
            union = union.this
        fault = _recursion_fault(union, name)
        if fault is not None:
            raise PgError(SqlState.INVALID_RECURSION, fault.format(name=name), position=self.at(tree))
        if any(union.args.get(k) for k in ("order", "limit", "offset", "with_")):
            raise self.unsupported("ORDER BY, LIMIT or WITH of a recursive query", tree)
        if union.args.get("distinct"):
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                "WITH RECURSIVE with UNION is not supported",
                hint="Use UNION ALL, and a condition that ends the recursion.",
                position=self.at(tree),
            )
        around = Scope(parent=scope.parent, common_tables=table.visible)
        anchor = self.query(union.this, around)
        self._check_width(anchor, "WITH query", name, table.columns, tree)
        names = [*table.columns, *(c.name for c in anchor.columns[len(table.columns) :])]
        self._last_column += 1
        rows = RecursiveRows(self._last_column, tuple(
            self.new_column(n, ColumnRef(replace(c, nullable=True))) for n, c in zip(names, anchor.columns, strict=True)
        ))  # fmt: skip
        visible = {**table.visible, name: CommonTable(table.query, (), {}, rows=rows)}
        step = self.query(union.expression, Scope(parent=scope.parent, common_tables=visible), keep_unknown=True)
        if len(step.columns) != len(anchor.columns):
            message = "each UNION query must have the same number of columns"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(union.expression))
        outputs = []
        for number, (have, output) in enumerate(zip(anchor.columns, _outputs(step), strict=True), 1):
            common, (_, coerced) = self.to_common([ColumnRef(have), output], "UNION", self.at(union.expression))
            if common.without_modifiers != have.type.without_modifiers and common.name != "numeric":
                raise self._other_type(name, number, have.type, common)
            if common.name == "numeric" and (have.type.name != "numeric" or common.scale != have.type.scale):
                if have.type.name != "numeric":
                    raise self._other_type(name, number, have.type, common)
                raise self.unsupported("a recursive query whose numbers get more decimals in each round", tree)
            outputs.append(ex.Cast(coerced, have.type) if common.name == "numeric" else coerced)
        step = self._with_outputs(step, outputs)
        columns = tuple(
            self.new_column(n, ColumnRef(replace(c, nullable=True))) for n, c in zip(names, anchor.columns, strict=True)
        )
        return Recursive(rows.name, anchor, step, columns)

    @staticmethod
    def _other_type(name: str, number: int, have: PgType, common: PgType) -> PgError:
        return PgError(
            SqlState.DATATYPE_MISMATCH,
            f'recursive query "{name}" column {number} has type {have.display} in non-recursive term but type '
            f"{common.display} overall",
            hint="Cast the output of the non-recursive term to the correct type.",
        )

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
        scope.windows = self._named_windows(tree)
        sets: list[tuple[Column, Expression]] = []
        scope.sets = sets
        relation = source.relation
        where = tree.args.get("where")
        if where is not None:
            relation = Filter(relation, self.condition(where.this, _in_clause(scope, "WHERE"), "WHERE"))
        items = self._select_list(tree.expressions, scope)
        if not keep_unknown:
            for item in items:
                item.expression = self.default_unknown(item.expression)
        groups = self._groups(tree.args.get("group"), items, scope)
        having_tree = tree.args.get("having")
        inner = replace(scope, sets=None)
        having = self.condition(having_tree.this, inner, "HAVING") if having_tree is not None else None
        if having is not None and _has(having, WindowCall):
            message = "window functions are not allowed in HAVING"
            raise PgError(SqlState.WINDOWING_ERROR, message, position=self.at(having_tree))
        order = self._order_terms(tree.args.get("order"), items, scope)
        distinct = tree.args.get("distinct")
        on = self._distinct_on(distinct, items, scope)

        bound: list[Expression] = [item.expression for item in items]
        bound += [key.expression for key in order]
        bound += on or []
        bound += [array for _, array in sets]
        inputs = frozenset(column.id for column in relation.columns)
        if groups is not None or having is not None or any(_is_aggregated(e, inputs) for e in bound):
            grouping = _Grouping(self, relation, groups or _Groups([], [()]))
            for item in items:
                item.expression = grouping.rewrite(item.expression)
            order = [replace(key, expression=grouping.rewrite(key.expression)) for key in order]
            on = None if on is None else [grouping.rewrite(e) for e in on]
            having = None if having is None else grouping.rewrite(having)
            sets = [(column, grouping.rewrite(array)) for column, array in sets]
            relation = grouping.node()
            if having is not None:
                relation = Filter(relation, having)
        relation, items, order = self._window_node(relation, items, order)
        if sets:
            relation, order = self._expanded(relation, sets, order, ordered=bool(order) and distinct is None)

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

    def _expanded(
        self, relation: Relation, sets: Sequence[tuple[Column, Expression]], order: list[SortKey], *, ordered: bool
    ) -> tuple[Relation, list[SortKey]]:
        """The rows that the select list's set-returning functions make, in their order."""
        place = self.new_column("ordinality", Literal(1, INT8))
        arrays = tuple(array for _, array in sets)
        if any(_has(array, WindowCall) for array in arrays):
            raise self.unsupported("a window function inside a set-returning function")
        columns = (*relation.columns, *(column for column, _ in sets), *((place,) if ordered else ()))
        node = Unnest(relation, arrays, columns, ordered)
        return node, [*order, SortKey(ColumnRef(place), False, False)] if ordered else order

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
            found = [entry for entry in scope.entries if entry.visible and not entry.is_row]
        return [Item(entry.name, located(entry, position), tree) for entry in found]

    def _column(self, tree: exp.Column, scope: Scope) -> Expression:
        self._forget_schema(tree)
        return super()._column(tree, scope)

    def _forget_schema(self, tree: exp.Expr) -> None:
        """schema.table.column is stored as table.column: the table keeps its alias, not its schema."""
        qualifiers = [tree.args[k] for k in ("catalog", "db", "table") if tree.args.get(k) is not None]
        schema = tree.args.get("db")
        if schema is not None and all(schema.name != s.name for s in self.context.state.schemas.values()):
            message = f'invalid reference to FROM-clause entry for table "{qualifiers[-1].name}"'
            raise PgError(SqlState.UNDEFINED_TABLE, message, position=self.at(tree))
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
        hidden = frozenset(self._real_names(tree).values())
        outer = Scope([], outer.parent, outer.common_tables, hidden=hidden)
        result: _From | None = None
        group = self._from_item(from_.this, outer, [])
        for join in tree.args.get("joins") or ():
            before = result.entries if result is not None else []
            if _is_comma(join):
                result = group if result is None else self._cross(result, group)
                group = self._from_item(join.this, outer, result.entries)
            else:
                group = self._join(group, join, outer, before)
        result = group if result is None else self._cross(result, group)
        self._check_aliases(tree, outer)
        return result

    def other_tables(self, tree: exp.Expr, scope: Scope) -> _From:
        """FROM of an UPDATE, USING of a DELETE; what is LATERAL there sees the table that is written."""
        return self._from_clause(tree, Scope(parent=scope.parent, common_tables=scope.common_tables))

    @staticmethod
    def _cross(left: _From, right: _From) -> _From:
        columns = left.relation.columns + right.relation.columns
        node = Join(JoinKind.CROSS, left.relation, right.relation, None, columns, right.lateral)
        return _From(node, left.entries + right.entries, left.lateral)

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

    def _from_item(self, tree: exp.Expr, outer: Scope, before: list[Entry]) -> _From:
        """One item of FROM with its alias. What is LATERAL, as functions always are, sees `before`."""
        if tree.args.get("sample"):
            raise self.unsupported("TABLESAMPLE", tree)
        seeing = Scope(before, outer.parent, outer.common_tables, hidden=outer.hidden)
        match tree:
            case exp.Lateral():
                if isinstance(tree.this, (exp.Subquery, exp.Values)):
                    relation = self.query(tree.this, Scope(parent=seeing, common_tables=outer.common_tables))
                    return _From(relation, self._aliased(relation, tree, ""), True)
                function = tree.this
                if not isinstance(function, (exp.Anonymous, exp.Unnest)):
                    raise self.unsupported("this LATERAL item", tree)
                return self._functions([function], tree, seeing)
            case exp.Table() if tree.args.get("rows_from"):
                calls = [t if isinstance(t, exp.Unnest) else t.this for t in tree.args["rows_from"]]
                return self._functions(calls, tree, seeing)
            case exp.Table() if isinstance(tree.this, exp.Anonymous):
                return self._functions([tree.this], tree, seeing)
            case exp.Unnest():
                return self._functions([tree], tree, seeing)
            case exp.Table() if tree.args.get("joins"):
                return self._joined(tree, outer, before)
            case exp.Table():
                relation, default = self._table(tree, outer), tree.name
            case exp.Subquery() if _is_join(tree):
                return self._parenthesised(tree, outer, before)
            case exp.Subquery():
                around = Scope(parent=outer.parent, hidden=outer.hidden)
                relation, default = self.query(tree, Scope(parent=around, common_tables=outer.common_tables)), ""
            case exp.Values():
                relation, default = self._values(tree, _alone(outer), False), ""
            case _:
                raise self.unsupported("this item of FROM", tree)
        return _From(relation, self._aliased(relation, tree, default))

    def _aliased(self, relation: Relation, tree: exp.Expr, default: str) -> list[Entry]:
        """The columns under the names that the alias gives them."""
        alias = tree.alias or default
        names = _column_aliases(tree)
        self._check_width(relation, "table", alias, names, tree)
        shown = names + [column.name for column in relation.columns[len(names) :]]
        return [
            Entry(name, ColumnRef(column), alias or None) for name, column in zip(shown, relation.columns, strict=True)
        ]

    def _joined(self, tree: exp.Table, outer: Scope, before: list[Entry]) -> _From:
        """A table that sqlglot hung joins on: `(a JOIN b ON ...)`."""
        bare = tree.copy()
        joins = bare.args.pop("joins")
        result = self._from_item(bare, outer, before)
        for join in joins:
            if _is_comma(join):
                result = self._cross(result, self._from_item(join.this, outer, before + result.entries))
            else:
                result = self._join(result, join, outer, before)
        return result

    def _parenthesised(self, tree: exp.Subquery, outer: Scope, before: list[Entry]) -> _From:
        result = self._from_item(tree.this, outer, before)
        for join in tree.args.get("joins") or ():
            result = self._join(result, join, outer, before)
        if not tree.alias:
            return result
        visible = [entry for entry in result.entries if entry.visible]
        names = _column_aliases(tree)
        if len(names) > len(visible):
            raise PgError(
                SqlState.INVALID_COLUMN_REFERENCE,
                f'join expression "{tree.alias}" has {len(visible)} columns available but {len(names)} columns '
                "specified",
                position=self.at(tree),
            )
        shown = names + [entry.name for entry in visible[len(names) :]]
        entries = [Entry(name, entry.expression, tree.alias) for name, entry in zip(shown, visible, strict=True)]
        return _From(result.relation, entries, result.lateral)

    def _functions(self, calls: Sequence[exp.Expr], tree: exp.Expr, scope: Scope) -> _From:
        """Functions in FROM, side by side: ROWS FROM, or one alone."""
        inner = Scope(scope.entries, scope.parent, scope.common_tables, "functions in FROM", hidden=scope.hidden)
        offset = calls[0].args.get("offset") if len(calls) == 1 else None
        ordinality = bool(tree.args.get("ordinality") or offset)
        name = _called(calls[0])
        alias = tree.alias or name
        constant = self._series(calls[0], inner) if len(calls) == 1 and not ordinality else None
        if constant is not None:
            relation: Relation = constant
        else:
            found = [
                column
                for call in calls
                for column in self._set_columns(call, inner, alias if len(calls) == 1 else _called(call))
            ]
            columns = [self._element(name, array) for name, array in found]
            if ordinality:
                columns.append(self.new_column("ordinality", Literal(1, INT8)))
            arrays = tuple(array for _, array in found)
            relation = Unnest(Values((), ((),)), arrays, tuple(columns), ordinality)
        names = _column_aliases(tree) + ([offset.name] if isinstance(offset, exp.Identifier) else [])
        if any(isinstance(c, exp.ColumnDef) for c in _alias_columns(tree)):
            raise self.unsupported("a column definition list", tree)
        if len(names) > len(relation.columns):
            self._check_width(relation, "table", alias, names, tree)
        if not names and len(calls) == 1 and len(relation.columns) == 1 + ordinality and tree.alias:
            first = relation.columns[0]
            names = [tree.alias] if first.name in (name, alias) else []
        shown = names + [column.name for column in relation.columns[len(names) :]]
        entries = [Entry(n, ColumnRef(c), alias) for n, c in zip(shown, relation.columns, strict=True)]
        if len(entries) == 1 and entries[0].name != alias:  # the row of a function that gives no rows is its value
            entries.append(replace(entries[0], name=alias, is_row=True))
        return _From(relation, entries, True)

    def _element(self, name: str, array: Expression) -> Column:
        """The column of an array's elements."""
        element = array.type.element
        assert element is not None
        column = self.new_column(name, Literal(None, element))
        return replace(column, precision=(element.precision or 38) if element.name == "numeric" else 0)

    def _set_columns(self, tree: exp.Expr, scope: Scope, alias: str) -> list[tuple[str, Expression]]:
        """The columns of a function's result: name and values, as an array."""
        name = "unnest" if isinstance(tree, exp.Unnest) else function_name(tree)  # type: ignore[arg-type]
        if name == "unnest":
            arrays = [self.expression(a, scope) for a in tree.expressions]
            for array in arrays:
                if array.type.element is None:
                    shown = f"unnest({', '.join(a.type.base_display for a in arrays)})"
                    if array.type == UNKNOWN:
                        message = f"function {shown} is not unique"
                        hint = "Could not choose a best candidate function. You might need to add explicit type casts."
                        raise PgError(SqlState.AMBIGUOUS_FUNCTION, message, hint=hint, position=self.at(tree))
                    raise resolve.no_such("function", shown, len(arrays), self.at(tree))
            if not arrays:
                raise resolve.no_such("function", "unnest()", 0, self.at(tree))
            return [(alias if len(arrays) == 1 else "unnest", array) for array in arrays]
        known = SETS.get(name)
        if known is None:
            value = self.default_unknown(self.expression(tree, scope))
            if value.type.element is not None:
                raise self.unsupported(f"{name} in FROM", tree)
            return [(alias, ex.Array((value,), array_of(value.type)))]
        bound = [self.expression(a, scope) for a in tree.expressions]
        if any(isinstance(a, exp.Star) for a in tree.expressions):
            raise resolve.no_such("function", f"{name}()", 0, self.at(tree))
        columns = zip(known.columns, known.arrays, strict=True)
        return [(column or alias, self.set_array(name, array, bound, tree)) for column, array in columns]

    def set_returning(self, tree: exp.Anonymous, scope: Scope) -> Expression:
        if scope.sets is None:
            where = scope.clause or "this place"
            message = f"set-returning functions are not allowed in {where}"
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=self.at(tree))
        name = function_name(tree)
        found = self._set_columns(tree, scope, name)
        if len(found) > 1:
            raise self.unsupported("a row as a value", tree)
        ((_, array),) = found
        nested = {column.id for column, _ in scope.sets}
        if any(isinstance(n, ColumnRef) and n.column.id in nested for n in walk(array)):
            raise self.unsupported("a set-returning function inside another", tree)
        column = self._element(name, array)
        scope.sets.append((column, array))
        return ColumnRef(column)

    def _table(self, tree: exp.Table, outer: Scope) -> Relation:
        if isinstance(tree.this, exp.Dot):
            message = f"improper qualified name (too many dotted names): {tree.sql()}"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(tree))
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

    def _series(self, tree: exp.Expr, scope: Scope) -> Series | None:
        """generate_series of integers that depend on no row: Spark counts them without an array."""
        if isinstance(tree, exp.Unnest) or function_name(tree) != "generate_series":  # type: ignore[arg-type]
            return None
        if not all(isinstance(_unparenthesised(a), (exp.Literal, exp.Neg, exp.Parameter)) for a in tree.expressions):
            return None
        arguments = [self.expression(a, scope) for a in tree.expressions]
        if len(arguments) not in (2, 3) or any(a.type.name not in ("int2", "int4", "int8") for a in arguments):
            return None
        type = INT8 if any(a.type == INT8 for a in arguments) else INT4
        bounds = [self.coerce(a, type) for a in arguments]
        step = bounds[2] if len(bounds) == 3 else Literal(1, type)
        if isinstance(step, Literal) and step.value == 0:
            raise PgError(SqlState.INVALID_PARAMETER_VALUE, "step size cannot equal zero")
        if not isinstance(step, Literal) or any(isinstance(b, Literal) and abs(b.value) >= INT8_MAX for b in bounds):
            return None  # Spark's range() wants a bound beyond the last
        self._last_column += 1
        return Series((Column(self._last_column, "generate_series", type, False),), bounds[0], bounds[1], step)

    def _values(self, tree: exp.Values, scope: Scope, keep_unknown: bool) -> Relation:
        inner = _in_clause(scope, "VALUES")
        for cell in (c for row in tree.expressions for c in row.expressions if isinstance(c, exp.Var)):
            message = "DEFAULT is not allowed in this context"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(cell))
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

    def _join(self, left: _From, join: exp.Join, outer: Scope, before: list[Entry]) -> _From:
        right = self._from_item(join.this, outer, before + left.entries)
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
        if len(set(names)) < len(names):
            twice = next(n for n in names if names.count(n) > 1)
            message = f'column name "{twice}" appears more than once in USING clause'
            raise PgError(SqlState.DUPLICATE_COLUMN, message)
        if names:
            merged = [(n, self._using(n, left, "left"), self._using(n, right, "right")) for n in names]
            condition = conjunction([self.operator("=", [a.expression, b.expression], join) for _, a, b in merged])
        elif join.args.get("on") is not None:
            scope = Scope(left.entries + right.entries, outer.parent, outer.common_tables, clause="JOIN conditions")
            seen = {entry.table for entry in scope.entries}
            names_here = self._real_names(join.parent) if join.parent is not None else {}
            scope.real_names = {real: alias for real, alias in names_here.items() if alias in seen}
            scope.hidden = outer.hidden - seen
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
        if right.lateral and join_kind in (JoinKind.RIGHT, JoinKind.FULL):
            self._check_lateral(left, right)
        node = Join(join_kind, left.relation, right.relation, condition, columns, right.lateral)
        if not names:
            return _From(node, left_entries + right_entries, left.lateral)
        entries = self._merged(merged, left_entries, right_entries, left, right, join_kind)
        if (alias := join.args.get("alias")) is not None:
            entries += [replace(entry, table=alias.name, visible=False) for entry in entries[: len(merged)]]
        return _From(node, entries, left.lateral)

    @staticmethod
    def _check_lateral(left: _From, right: _From) -> None:
        known = {entry.expression.column.id: entry.table for entry in left.entries if isinstance(
            entry.expression, ColumnRef)}  # fmt: skip
        for column in free_columns(right.relation):
            if column.id in known:
                raise PgError(
                    SqlState.INVALID_COLUMN_REFERENCE,
                    f'invalid reference to FROM-clause entry for table "{known[column.id]}"',
                    detail="The combining JOIN type must be INNER or LEFT for a LATERAL reference.",
                )

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

    def _groups(self, tree: exp.Expr | None, items: Sequence[Item], scope: Scope) -> _Groups | None:
        """None: no GROUP BY. A name means an input column first, then an output column; a number an item."""
        if tree is None:
            return None
        if any(tree.args.get(k) for k in ("grouping_sets", "cube", "rollup", "totals")):
            raise self.unsupported("this GROUP BY", tree)
        keys: list[Expression] = []
        sets: list[tuple[int, ...]] = [()]
        for term in tree.expressions:
            found = self._grouping_sets(term, items, scope, keys)
            if len(sets) * len(found) > GROUPING_SETS_MAX:
                message = f"too many grouping sets present (maximum {GROUPING_SETS_MAX})"
                raise PgError(SqlState.STATEMENT_TOO_COMPLEX, message, position=self.at(tree))
            sets = [(*a, *(n for n in b if n not in a)) for a in sets for b in found]
        if tree.args.get("all") is False:  # GROUP BY DISTINCT
            sets = [s for i, s in enumerate(sets) if set(s) not in [set(other) for other in sets[:i]]]
        return _Groups(keys, sets)

    def _grouping_sets(
        self, tree: exp.Expr, items: Sequence[Item], scope: Scope, keys: list[Expression]
    ) -> list[tuple[int, ...]]:
        """The grouping sets that one term stands for, by the numbers of their keys in `keys`."""
        if isinstance(tree, exp.GroupingSets):
            return [found for e in tree.expressions for found in self._grouping_sets(e, items, scope, keys)]
        if isinstance(tree, (exp.Rollup, exp.Cube)):
            parts = [self._grouping_sets(e, items, scope, keys)[0] for e in tree.expressions]
            if isinstance(tree, exp.Rollup):
                chosen = [parts[:size] for size in range(len(parts), -1, -1)]
            elif len(parts) > CUBE_MAX:
                message = f"CUBE is limited to {CUBE_MAX} elements"
                raise PgError(SqlState.TOO_MANY_COLUMNS, message, position=self.at(tree))
            else:
                chosen = [
                    [part for i, part in enumerate(parts) if mask >> (len(parts) - 1 - i) & 1]
                    for mask in range((1 << len(parts)) - 1, -1, -1)
                ]
            return [tuple(dict.fromkeys(number for part in some for number in part)) for some in chosen]
        bare = _unparenthesised(tree)
        terms = _row_of(bare)
        numbers = [self._group_key(term, items, scope, keys) for term in (terms if terms is not None else [bare])]
        return [tuple(dict.fromkeys(numbers))]

    def _group_key(self, tree: exp.Expr, items: Sequence[Item], scope: Scope, keys: list[Expression]) -> int:
        """The number of one key, which is put among `keys` if it is new."""
        bare = _unparenthesised(tree)
        expression = self._positional(bare, items, "GROUP BY")
        if (
            expression is None
            and _is_bare_name(bare)
            and not any(e.name == bare.name and e.visible for e in scope.entries)
        ):
            expression = self._output_named(bare, items, "GROUP BY")
        if expression is None:
            expression = self.default_unknown(self.expression(bare, _in_clause(scope, "GROUP BY")))
        if _has(expression, Aggregate):
            message = "aggregate functions are not allowed in GROUP BY"
            raise PgError(SqlState.GROUPING_ERROR, message, position=self.at(tree))
        if any(isinstance(n, ColumnRef) and n.column.id == c.id for c, _ in scope.sets or () for n in walk(expression)):
            raise self.unsupported("a set-returning function in GROUP BY", tree)
        self.groupable(expression, tree)
        if expression not in keys:
            keys.append(expression)
        return keys.index(expression)

    def _positional(self, tree: exp.Expr, items: Sequence[Item], clause: str) -> Expression | None:
        sign = -1 if isinstance(tree, exp.Neg) else 1
        bare = tree.this if isinstance(tree, exp.Neg) else tree
        if isinstance(tree, (exp.Null, exp.Boolean)) or (
            isinstance(bare, exp.Literal) and (bare.is_string or not bare.this.isdigit())
        ):
            message = f"non-integer constant in {clause}"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.at(tree))
        if not isinstance(bare, exp.Literal):
            return None
        number = sign * int(bare.this)
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

    def _named_windows(self, tree: exp.Select) -> dict[str, exp.Expr]:
        windows: dict[str, exp.Expr] = {}
        for window in tree.args.get("windows") or ():
            if window.this.name in windows:
                message = f'window "{window.this.name}" is already defined'
                raise PgError(SqlState.WINDOWING_ERROR, message, position=self.at(window.this))
            windows[window.this.name] = window
        return windows

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
        if isinstance(on, exp.Tuple) and not on.expressions:
            raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near ")"')
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
                if expression is None and isinstance(bare, exp.Column) and bare.table:
                    raise no_table(_alone(scope), bare.table, self.at(bare))
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
            if options is not None and options.args.get("percent"):
                raise self.unsupported("FETCH ... PERCENT", tree)
            count = limit_tree.args.get("count")
            limit = self._bound(count, scope, "LIMIT") if count is not None else Literal(1, INT8)
            if options is not None and options.args.get("with_ties"):
                offset = self._bound(offset_tree.expression, scope, "OFFSET") if offset_tree is not None else None
                return self._with_ties(relation, limit, offset, tree)
        elif limit_tree is not None:
            value = limit_tree.expression
            if not (isinstance(value, exp.Var) and value.name.upper() == "ALL"):
                limit = self._bound(value, scope, "LIMIT")
        if offset_tree is not None:
            offset = self._bound(offset_tree.expression, scope, "OFFSET")
        return relation if limit is None and offset is None else Limit(relation, limit, offset)

    def _with_ties(self, relation: Relation, limit: Expression, offset: Expression | None, tree: exp.Expr) -> Relation:
        """The first rows in the order, and those that are equal to the last of them in it."""
        if isinstance(relation, Project):
            return replace(relation, input=self._with_ties(relation.input, limit, offset, tree))
        if not isinstance(relation, Sort):
            message = "WITH TIES cannot be specified without ORDER BY clause"
            raise PgError(SqlState.SYNTAX_ERROR, message)
        bounds = [bound for bound in (limit, offset) if bound is not None]
        if any(not isinstance(bound, Literal) or bound.value is None for bound in bounds):
            raise self.unsupported("FETCH ... WITH TIES of anything but constants", tree)
        start, count = (int(b.value) if isinstance(b, Literal) else 0 for b in (offset, limit))
        calls = []
        for name in ("rank", "row_number"):
            resolved = resolve.resolve_function(name, ())
            assert resolved is not None
            calls.append(WindowCall(Aggregate(resolved.function, (), INT8, False), (), relation.keys, ""))
        columns = [self.new_column("", call.call) for call in calls]
        window = Window(relation.input, tuple(calls), (*relation.input.columns, *columns))
        tests = [
            self.operator("<=", [ColumnRef(columns[0]), Literal(start + count, INT8)], tree),
            self.operator(">", [ColumnRef(columns[1]), Literal(start, INT8)], tree),
        ]
        kept = Filter(window, conjunction(tests))
        only = Project(kept, relation.columns, tuple(ColumnRef(c) for c in relation.columns))
        return Sort(only, relation.keys)

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
        if isinstance(tree.this, exp.Select) and any(tree.this.args.get(k) for k in ("order", "limit", "offset")):
            raise PgError(SqlState.SYNTAX_ERROR, f'syntax error at or near "{kind}"')  # it needs brackets
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


def _named_columns(node: Any) -> set[int]:
    return {inner.column.id for inner in walk(node) if isinstance(inner, ColumnRef)}


def _is_aggregated(expression: Expression, inputs: frozenset[int]) -> bool:
    """Whether an aggregate of this query stands in it: one of its columns or of none, or in a subquery one of nothing
    but its columns."""
    if any(isinstance(n, Call) and n.function is syntax.GROUPING for n in walk(expression)):
        return True
    stack: list[tuple[Any, bool]] = [(expression, False)]
    while stack:
        node, below = stack.pop()
        if isinstance(node, Aggregate):
            named = _named_columns(node)
            if named <= inputs if below and named else not below and (not named or bool(named & inputs)):
                return True
        if isinstance(node, WindowCall):
            inside = (*node.call.arguments, *node.partition, *(key.expression for key in node.order))
            stack.extend((child, below) for child in inside)
        elif isinstance(node, Subquery):
            stack.extend((operand, below) for operand in node.operands)
            stack.append((node.relation, True))
        else:
            stack.extend((child, below) for child in children(node))
    return False


def _called(tree: exp.Expr) -> str:
    """The name of a function in FROM."""
    return function_name(tree) if isinstance(tree, exp.Anonymous) else "unnest"


def _alias_columns(tree: exp.Expr) -> list[exp.Expr]:
    alias = tree.args.get("alias")
    return list(alias.args.get("columns") or ()) if alias is not None else []


def _column_aliases(tree: exp.Expr) -> list[str]:
    return [column.name for column in _alias_columns(tree)]


def _is_join(tree: exp.Expr) -> bool:
    """Whether brackets in FROM hold a table or joins, not a query."""
    while isinstance(tree, exp.Subquery):
        if tree.args.get("joins"):
            return True
        tree = tree.this
    return isinstance(tree, exp.Table)


def _recursion_fault(query: exp.Expr, name: str) -> str | None:
    """Why PostgreSQL would not take a WITH RECURSIVE query, None if it does (parse_cte.c)."""
    shape = 'recursive query "{name}" does not have the form non-recursive-term UNION [ALL] recursive-term'
    if not isinstance(query, exp.Union):
        return shape
    if _is_named(query.this, name):
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
        case exp.Filter() | exp.WithinGroup() | exp.Window() | exp.Paren() | exp.Bracket() | exp.Collate():
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
        case exp.Overlay():
            return "overlay", 2
        case exp.Is(expression=exp.Column(name="normalized")):
            return "is_normalized", 2
        case exp.StrPosition():
            return "position", 2
        case exp.Trim():
            return trim_name(tree), 2
        case exp.AtTimeZone():
            return "timezone", 2
        case exp.Overlaps():
            return "overlaps", 2
        case exp.CurrentDate() | exp.CurrentTimestamp() | exp.Localtimestamp() | exp.Localtime() | exp.CurrentUser():
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
