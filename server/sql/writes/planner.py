"""The planner of one INSERT, UPDATE, DELETE or MERGE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeVar

from sqlglot import exp

from catalog.objects.columns import Column as CatalogColumn
from catalog.objects.relations import Relation as CatalogRelation
from catalog.objects.tables import Table
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT8, JSONB, PgType, parse_type
from server.sql.bind import Binder, Item, PlanContext, assigned, other_tables, relation_of, returning_items, values
from server.sql.bind.arrays import array_index, json_path
from server.sql.bind.calls import call_of
from server.sql.bind.casts import column_value
from server.sql.bind.common_tables import with_common_tables
from server.sql.bind.row_locks import is_chosen
from server.sql.expressions import (
    Aggregate,
    Column,
    ColumnRef,
    Expression,
    Literal,
    SortKey,
    Subquery,
    SubqueryKind,
    WindowCall,
    walk,
)
from server.sql.functions.arrays import SET_ELEMENT
from server.sql.functions.json import SET_JSON_ELEMENT
from server.sql.functions.syntax import conjuncts
from server.sql.functions.table import FUNCTIONS
from server.sql.grammar.parse import parse_expression
from server.sql.grammar.statements.merges import Merge
from server.sql.grammar.statements.parts import Expr, Ident, Name
from server.sql.grammar.statements.writes import Assignment, Delete, Insert, OnConflict, RowAssignment, Update
from server.sql.index_keys import StatementParameters
from server.sql.plan import QueryPlan, finished_plan, reject_deep_nesting
from server.sql.relations import DistinctOn, Filter, Join, JoinKind, Project, Relation, Scan, Values, Window
from server.sql.row_rules import RowRules, over
from server.sql.scope import XMAX, Entry, Scope, find_relation, in_clause
from server.sql.writes.added_rows import added_rows
from server.sql.writes.check_options import rules_through
from server.sql.writes.conflict import (
    CONFLICTS,
    RETURNED,
    ConflictPlan,
    arbiter_columns,
    arbiters,
    conflicts_table,
    has_parameters,
    in_columns_of_table,
    returned_table,
)
from server.sql.writes.plan import WritePlan
from server.sql.writes.target import WriteTarget, filtered_rows, names_in, shown, write_target

Assigned = TypeVar("Assigned", Expression, Expression | None)


def planned_insert(statement: Insert, context: PlanContext, parameter_types: Sequence[PgType | None] = ()) -> WritePlan:
    """The plan of an INSERT whose values are parsed (`rows` is None)."""
    return reject_deep_nesting(lambda: WritePlanner(statement, context, parameter_types).insert(statement))


class WritePlanner:
    """Plans one INSERT, UPDATE, DELETE or MERGE."""

    def __init__(
        self,
        statement: Insert | Update | Delete | Merge,
        context: PlanContext,
        parameter_types: Sequence[PgType | None],
    ) -> None:
        self._text, self._alias = statement.text, statement.alias
        self.context = context = replace(context, views_expanded=True)
        self.rules: RowRules | None = None
        self.names: frozenset[str] | None = None  # the names in a statement that writes through a view
        self.inserts: frozenset[int] | None = None
        self.updates: frozenset[int] | None = None
        self.binder = Binder(context, parameter_types, text=statement.text, offset=statement.offset)
        scope, query = Scope(), statement.common_tables
        self.common_tables = (with_common_tables(self.binder, query.tree, scope) if query else scope).common_tables

    def insert(self, statement: Insert) -> WritePlan:
        target = self._target(statement.table, "insert into")
        table = target.table
        targets = self._targets(target, statement.columns)
        width = len(table.columns)
        given = self._source(statement, target, targets)
        self.inserts = frozenset(targets[: len(given.columns)] if statement.source is not None else ())
        refs = self._assigned_once(target, dict(zip(targets, map(ColumnRef, given.columns), strict=False)))
        if statement.overriding == "user":
            refs = {number: ref for number, ref in refs.items() if not table.columns[number].identity}
        new = [refs.get(i) or self._default(table, i) for i in range(width)]
        relation = self._generated(self._row(given, new, table), target, 0)
        if statement.conflict is not None:
            return self._with_conflict(statement, statement.conflict, target, relation)
        return self._with_returning(statement, target, relation, relation.columns, slice(0, 0), slice(0, width))

    def defaults(self, statement: Insert, numbers: Set[int]) -> QueryPlan:
        table = self._target(statement.table, "insert into").table
        row = [
            self._default(table, number) if number in numbers else Literal(None, parse_type(column.type))
            for number, column in enumerate(table.columns)
        ]
        return of_table(finished_plan(self.binder, self._row(Values((), ((),)), row, table), None), table)

    def _with_conflict(self, statement: Insert, conflict: OnConflict, target: WriteTarget, row: Relation) -> WritePlan:
        """The plan of an INSERT of the rows of `row` with ON CONFLICT."""
        table = target.table
        parameters = StatementParameters(self.binder.parameters)
        read_columns = arbiter_columns(self.context, target.relation, conflict, parameters)
        clause = in_columns_of_table(conflict, target)
        keys = None if has_parameters(clause) else arbiters(self.context, table, clause, parameters)
        self.binder.reads.update((target.relation.id, number) for number in read_columns)
        update = self._conflict_update(statement, conflict, target) if conflict.assignments is not None else None
        returning: Relation | None = None
        if statement.returning:
            made = relation_of(self.binder, returned_table(table))
            width = len(table.columns)
            scan, scope = self._shown(target, made, made.columns[:width])
            if not target.levels:
                xmax = ColumnRef(made.columns[width])
                scope.entries.append(Entry(XMAX, xmax, self._name(table), is_listed=False))
            items = returning_items(self.binder, [item.tree for item in statement.returning], scope)
            columns = tuple(self.binder.new_column(item.name, item.expression) for item in items)
            returning = Project(scan, columns, tuple(item.expression for item in items))
        read = self.binder.inputs - {CONFLICTS, RETURNED}
        plans: list[QueryPlan | None] = []
        for relation in (row, update, returning):  # all are bound, so that the types of the parameters are known
            plan = None if relation is None else finished_plan(self.binder, relation, None)
            own = frozenset() if plan is None else frozenset(n.id for n in walk(plan.relation) if isinstance(n, Scan))
            plans.append(None if plan is None else replace(plan, inputs=frozenset(own & read)))
        query, updates, returned = plans
        assert query is not None
        query = of_table(query, table)
        conflicts = ConflictPlan(keys, clause, updates, returned)
        new = slice(0, len(table.columns))
        return WritePlan(
            table.id,
            target,
            query,
            None,
            new,
            None,
            inserts=self.inserts,
            updates=self.updates,
            rules=self.rules,
            conflict=conflicts,
        )

    def _conflict_update(self, statement: Insert, conflict: OnConflict, target: WriteTarget) -> Relation:
        """The rows of `ConflictPlan.update`."""
        table = target.table
        width = len(table.columns)
        scan = relation_of(self.binder, conflicts_table(table))
        name = self._name(target.relation)
        if name == "excluded":
            raise PgError(SqlState.DUPLICATE_ALIAS, 'table name "excluded" specified more than once')
        rows, existing = shown(self.binder, target, scan, scan.columns[:width], self.names)
        rows, excluded = shown(self.binder, target, rows, scan.columns[width : 2 * width], self.names)
        names = [column.name for column in target.relation.columns]
        entries = [Entry(n, ColumnRef(c), name) for n, c in zip(names, existing, strict=True)]
        entries += [Entry(n, ColumnRef(c), "excluded") for n, c in zip(names, excluded, strict=True)]
        scope = Scope(entries, common_tables=self.common_tables, real_names={target.relation.name: name})
        new, self.updates = self._assigned_row(
            target,
            list(map(ColumnRef, scan.columns[:width])),
            conflict.assignments or (),
            replace(scope, clause="UPDATE"),
            "insert into",
        )
        matched = self._filtered(rows, conflict.where, scope)
        old: list[Expression] = list(map(ColumnRef, scan.columns[:width]))
        number = scan.columns[2 * width]
        return self._generated(self._row(matched, old + new, table, (number,)), target, width)

    def _assigned_row(
        self,
        target: WriteTarget,
        row: list[Expression],
        assignments: Sequence[Assignment | RowAssignment],
        scope: Scope,
        verb: str,
    ) -> tuple[list[Expression], frozenset[int]]:
        """The table's row after the assignments, and the numbers of the target's assigned columns.

        `row`: before them.
        """
        table, columns = target.table, target.columns
        given: dict[int, Expression | None] = {}
        elements: set[int] = set()  # the columns of which only elements are assigned
        for column, value, tree, subscripts in self._assignments(assignments, scope):
            number = self._column_number(target, column)
            if subscripts and value is not None and (number not in given or number in elements):
                base = target.numbers[number]
                if base is None or target.levels:
                    message = "an assignment to an element of a view's column"
                    raise self.binder.unsupported(message, tree, hint="Update the table that the view reads.")
                elements.add(number)
                current = given.get(number) or row[base]
                given[number] = self._with_element(current, columns[number], subscripts, value, tree, scope)
                continue
            if number in given:
                message = f'multiple assignments to same column "{column.name}"'
                raise PgError(SqlState.SYNTAX_ERROR, message, position=column.position)
            if value is None and target.levels:  # as in PostgreSQL, the column of a view has no default
                value = Literal(None, parse_type(columns[number].type))
            given[number] = None if value is None else self._assign(value, columns[number], tree)
        target.require_updatable(given.keys(), verb)
        new = list(row)
        for number, value in self._assigned_once(target, given).items():
            if value is not None and (detail := _why_not_given(table.columns[number])) is not None:
                message = f'column "{table.columns[number].name}" can only be updated to DEFAULT'
                raise PgError(SqlState.GENERATED_ALWAYS, message, detail=detail)
            new[number] = self._default(table, number) if value is None else value
        return new, frozenset(given)

    def update(self, statement: Update) -> WritePlan:
        target = self._target(statement.table, "update")
        table = target.table
        scan, relation, scope, others = self._matched(target, statement)
        row_before: list[Expression] = [ColumnRef(column) for column in scan.columns]
        inner = replace(scope, clause="UPDATE")
        new, self.updates = self._assigned_row(target, row_before, statement.assignments, inner, "update")
        width = len(table.columns)
        old: list[Expression] = [ColumnRef(column) for column in scan.columns]
        row = self._generated(
            self._row(relation, old + new, table, others if statement.returning else ()), target, width
        )
        plan = self._with_returning(
            statement, target, row, row.columns[width : 2 * width], slice(0, width), slice(width, 2 * width),
            scope.entries[len(target.relation.columns) :],
        )  # fmt: skip
        skips = self._skips_locked(plan, target, scan, relation)
        return replace(plan, assigned=target.in_table(self.updates), skips_locked=skips)

    def delete(self, statement: Delete) -> WritePlan:
        target = self._target(statement.table, "delete from", only_deletes=True)
        table = target.table
        scan, relation, scope, others = self._matched(target, statement)
        width = len(table.columns)
        old: list[Expression] = [ColumnRef(column) for column in scan.columns]
        row = self._row(relation, old, table, others if statement.returning else ())
        others_of = scope.entries[len(target.relation.columns) :]
        plan = self._with_returning(
            statement, target, row, row.columns[:width], slice(0, width), slice(0, 0), others_of
        )
        return replace(plan, skips_locked=self._skips_locked(plan, target, scan, relation))

    # -- parts ------------------------------------------------------------------------------------------------------

    def _target(self, name: Name, verb: str, *, only_deletes: bool = False) -> WriteTarget:
        item: CatalogRelation = find_relation(
            self.context.state, name.parts, self.context.database, self.context.search_path, name.position
        )
        target = write_target(self.binder, item, verb, name.position, only_deletes=only_deletes)
        if target.levels:
            self.names = names_in(self._text, self._name(item))
        return target

    def _column_number(self, target: WriteTarget, column: Ident) -> int:
        for number, known in enumerate(target.relation.columns):
            if known.name == column.name:
                return number
        message = f'column "{column.name}" of relation "{target.relation.name}" does not exist'
        raise PgError(SqlState.UNDEFINED_COLUMN, message, position=column.position)

    def _assigned_once(self, target: WriteTarget, values: Mapping[int, Assigned]) -> dict[int, Assigned]:
        """The values by the numbers of the table's columns. Read-only columns have none. PgError 42601."""
        found: dict[int, Assigned] = {}
        for number, value in values.items():
            base = target.numbers[number]
            if base in found:
                message = f'multiple assignments to same column "{target.table.columns[base].name}"'
                raise PgError(SqlState.SYNTAX_ERROR, message)
            if base is not None:
                found[base] = value
        return found

    def _targets(self, target: WriteTarget, columns: Sequence[Ident]) -> list[int]:
        if not columns:
            return list(range(len(target.relation.columns)))
        numbers: list[int] = []
        for column in columns:
            number = self._column_number(target, column)
            if number in numbers:
                message = f'column "{column.name}" specified more than once'
                raise PgError(SqlState.DUPLICATE_COLUMN, message, position=column.position)
            numbers.append(number)
        return numbers

    def _source(self, statement: Insert, target: WriteTarget, targets: Sequence[int]) -> Relation:
        """The rows to insert, cast to the target columns' types."""
        query = statement.source
        if query is None:
            return Values((), ((),))
        if isinstance(query.tree, exp.Values) and not any(
            query.tree.args.get(k) for k in ("order", "limit", "offset", "with_")
        ):
            return self._values(query.tree, statement, target, targets)
        relation = self.binder.query(query.tree, Scope(common_tables=self.common_tables), keep_unknown=True)
        given = targets[: len(relation.columns)]
        for base in (target.numbers[number] for number in given):
            if base is not None:
                refuse_given(target.table.columns[base], statement.overriding)
        self._check_width(len(relation.columns), statement, targets, query.tree)
        columns = target.columns
        rows = assigned(self.binder, relation, lambda number, e: self._assign(e, columns[targets[number]], query.tree))
        target.require_updatable(given, "insert into")
        return rows

    def _values(self, tree: exp.Values, statement: Insert, target: WriteTarget, targets: Sequence[int]) -> Relation:
        scope = Scope(common_tables=self.common_tables, clause="VALUES")
        columns, rows = target.columns, []
        for row in tree.expressions:
            cells = row.expressions
            if len(cells) != len(tree.expressions[0].expressions):
                message = "VALUES lists must all be the same length"
                raise PgError(SqlState.SYNTAX_ERROR, message, position=self.binder.at(row))
            self._check_width(len(cells), statement, targets, cells[-1])
            line = []
            for cell, number in zip(cells, targets, strict=False):
                base = target.numbers[number]
                if not _is_default(cell):
                    if base is not None:
                        refuse_given(target.table.columns[base], statement.overriding)
                    line.append(self._assign(self.binder.expression(cell, scope), columns[number], cell))
                elif base is None:
                    line.append(Literal(None, parse_type(columns[number].type)))
                else:
                    line.append(self._default(target.table, base))
            rows.append(line)
        target.require_updatable(targets[: len(rows[0])], "insert into")
        return values(self.binder, rows, True, tree)

    def _check_width(self, given: int, statement: Insert, targets: Sequence[int], tree: exp.Expr) -> None:
        if given > len(targets):
            message = "INSERT has more expressions than target columns"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=self.binder.at(tree))
        if given < len(targets) and statement.columns:
            message = "INSERT has more target columns than expressions"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=statement.columns[given].position)

    def _assign(self, value: Expression, column: CatalogColumn, tree: exp.Expr | None) -> Expression:
        return column_value(self.binder, value, column, self.binder.at(tree), "expression")

    def _default(self, table: Table, number: int) -> Expression:
        column = table.columns[number]
        if (default := column.effective_default) is None:
            return Literal(None, parse_type(column.type))
        expression: Expr = parse_expression(default)
        self.binder.inside_view += 1  # positions in the default's text are not positions in the client's text
        self.binder.implied_calls = bool(column.identity)
        try:
            value = self.binder.expression(expression.tree, Scope(clause="DEFAULT expressions"))
            return self._assign(value, column, None)
        finally:
            self.binder.inside_view -= 1
            self.binder.implied_calls = False

    def _row(
        self, relation: Relation, expressions: Sequence[Expression], table: Table, others: Sequence[Column] = ()
    ) -> Project:
        """The output row of a write, followed by the columns of `others` for RETURNING."""
        names = [column.name for column in table.columns] * 2
        columns = tuple(self.binder.new_column(n, e) for n, e in zip(names, expressions, strict=False))
        return Project(relation, (*columns, *others), (*expressions, *map(ColumnRef, others)))

    def _generated(self, row: Project, target: WriteTarget, first: int) -> Project:
        """The row with the generated columns, computed from the others. `first`: the place of the new row's columns."""
        table = target.table
        self.rules = rules = rules_through(target, self.context)
        if rules is None or not rules.generated:
            return row
        given = row.columns[first : first + len(table.columns)]
        expressions: list[Expression] = [ColumnRef(column) for column in row.columns]
        columns = list(row.columns)
        for number, expression in rules.generated:
            value = over(expression, rules.columns, given)
            expressions[first + number] = value
            columns[first + number] = self.binder.new_column(table.columns[number].name, value)
        return Project(row, tuple(columns), tuple(expressions))

    def _matched(
        self, target: WriteTarget, statement: Update | Delete
    ) -> tuple[Relation, Relation, Scope, tuple[Column, ...]]:
        """Returns the table's scan, the matched rows, the scope, and the columns of the other tables.

        As in PostgreSQL, a row that joins with several rows of the other tables is changed once, with any one of them.
        Rows are therefore numbered before the join, and DISTINCT ON the number is applied after it.
        """
        scan = relation_of(self.binder, target.table)
        rows, scope = self._shown(target, scan, scan.columns, filtered=True)
        if statement.others is None:
            return scan, self._filtered(rows, statement.where, scope), scope, ()
        (row_number,) = FUNCTIONS["row_number"]
        call = WindowCall(Aggregate(row_number, (), INT8, False), (), (), "")
        number = self.binder.new_column("", call)
        numbered = Window(rows, (call,), (*rows.columns, number))
        others = other_tables(self.binder, statement.others.tree, scope)
        name = self._name(target.relation)
        if any(entry.table == name for entry in others.entries):
            message = f'table name "{name}" specified more than once'
            raise PgError(SqlState.DUPLICATE_ALIAS, message)
        columns = (*numbered.columns, *others.relation.columns)
        joined = Join(JoinKind.CROSS, numbered, others.relation, None, columns, others.lateral)
        scope.entries.extend(others.entries)
        matched = self._filtered(joined, statement.where, scope)
        ref = ColumnRef(number)
        return scan, DistinctOn(matched, (ref,), (SortKey(ref, False, False),)), scope, others.relation.columns

    def _skips_locked(self, plan: WritePlan, target: WriteTarget, scan: Relation, matched: Relation) -> bool:
        """Whether a SELECT with SKIP LOCKED, the only other one that reads the table, chooses the rows by their key."""
        locks, table = self.binder.row_locks, target.table
        if locks is None or locks.key is None or locks.tables != {table.id} or target.levels:
            return False
        scans = [node for node in walk(plan.query.relation) if isinstance(node, Scan) and node.id == table.id]
        rows = matched.input if isinstance(matched, DistinctOn) else matched
        if len(scans) != 2 or not isinstance(rows, Filter) or locks.key in target.in_table(self.updates):
            return False
        key = ColumnRef(scan.columns[locks.key])
        return any(is_chosen(condition, key, self.binder.locked_keys) for condition in conjuncts(rows.predicate))

    def _assignments(
        self, assignments: Sequence[Assignment | RowAssignment], scope: Scope
    ) -> Iterator[tuple[Ident, Expression | None, exp.Expr | None, Sequence[exp.Expr]]]:
        """Each assigned column with its new value (None: its default), the value's tree, and those of subscripts."""
        for assignment in assignments:
            if isinstance(assignment, RowAssignment):
                tree = assignment.query.tree
                relation = self.binder.subquery(tree, scope)
                if len(relation.columns) != len(assignment.columns):
                    message = "number of columns does not match number of values"
                    raise PgError(SqlState.SYNTAX_ERROR, message, position=assignment.columns[0].position)
                for column, value in zip(assignment.columns, relation.columns, strict=True):
                    one = Project(relation, (value,), (ColumnRef(value),))
                    yield column, Subquery(
                        SubqueryKind.SCALAR, one, value.type, True, precision=value.precision), tree, ()  # fmt: skip
            elif assignment.value is None:
                yield assignment.column, None, None, ()
            else:
                tree = assignment.value.tree
                subscripts = [subscript.tree for subscript in assignment.subscripts]
                yield assignment.column, self.binder.expression(tree, scope), tree, subscripts

    def _with_element(
        self,
        whole: Expression,
        column: CatalogColumn,
        subscripts: Sequence[exp.Expr],
        value: Expression,
        tree: exp.Expr | None,
        scope: Scope,
    ) -> Expression:
        """The value of an array or jsonb column with another value of an element. PgError 42804, 0A000."""
        type, binder = parse_type(column.type), self.binder
        if type == JSONB:
            path = json_path(binder, subscripts, scope)
            return call_of(SET_JSON_ELEMENT, (whole, *path, self._element(value, column, type, tree)), type)
        if type.element is None:
            message = f"cannot subscript type {type.base_display} because it does not support subscripting"
            raise PgError(SqlState.DATATYPE_MISMATCH, message, position=binder.at(subscripts[0]))
        if type.dimensions > 1 or len(subscripts) > 1:
            what = "an assignment to an element of an array of more than one dimension"
            raise binder.unsupported(what, subscripts[0], hint="Assign the whole array.")
        index = array_index(binder, subscripts[0], scope)
        return call_of(SET_ELEMENT, (whole, index, self._element(value, column, type.element, tree)), whole.type)

    def _element(self, value: Expression, column: CatalogColumn, type: PgType, tree: exp.Expr | None) -> Expression:
        """The value as an element of a column, which has this type. PgError 42804."""
        try:
            return self._assign(value, replace(column, type=str(type)), tree)
        except PgError as error:
            if error.sqlstate is not SqlState.DATATYPE_MISMATCH:
                raise
            message = f'subscripted assignment to "{column.name}" requires type {type.base_display} but expression is'
            message += f" of type {value.type.base_display}"
            raise PgError(error.sqlstate, message, hint=error.hint, position=error.position) from None

    def _name(self, relation: CatalogRelation) -> str:
        """The name by which the statement names the columns of the relation that it writes to."""
        return relation.name if self._alias is None else self._alias.name

    def _shown(
        self, target: WriteTarget, rows: Relation, columns: Sequence[Column], *, filtered: bool = False
    ) -> tuple[Relation, Scope]:
        """The rows with the columns of the target's relation, and the scope of these columns: see `shown`."""
        relation, name = target.relation, self._name(target.relation)
        rows, found = shown(self.binder, target, rows, columns, self.names, filtered=filtered)
        entries = [Entry(own.name, ColumnRef(c), name) for own, c in zip(relation.columns, found, strict=True)]
        return rows, Scope(entries, common_tables=self.common_tables, real_names={relation.name: name})

    def _filtered(self, rows: Relation, where: Expr | None, scope: Scope) -> Relation:
        if where is None:
            return rows
        return filtered_rows(rows, self.binder.condition(where.tree, in_clause(scope, "WHERE"), "WHERE"))

    def _with_returning(
        self,
        statement: Insert | Update | Delete,
        target: WriteTarget,
        row: Relation,
        visible: Sequence[Column],
        old: slice,
        new: slice,
        others: Sequence[Entry] = (),
    ) -> WritePlan:
        table, returning = target.table, None
        relation = row
        if statement.returning:
            row, scope = self._shown(target, row, visible)
            if isinstance(statement, Insert) and not target.levels:
                scope.entries.append(Entry(XMAX, Literal(0, INT8), self._name(table), is_listed=False))
            scope.entries.extend(others)
            items = returning_items(self.binder, [item.tree for item in statement.returning], scope)
            width = max(old.stop, new.stop)
            kept = [Item(column.name, ColumnRef(column), exp.Null()) for column in row.columns[:width]]
            columns = tuple(self.binder.new_column(i.name, i.expression) for i in kept + items)
            relation = Project(row, columns, tuple(i.expression for i in kept + items))
            returning = slice(len(kept), len(kept) + len(items))
        query = of_table(finished_plan(self.binder, relation, None), table)
        return WritePlan(
            table.id,
            target,
            query,
            old if old != slice(0, 0) else None,
            new if new != slice(0, 0) else None,
            returning,
            self.inserts,
            self.updates,
            added=added_rows(table, query, self.rules) if isinstance(statement, Insert) and returning is None else None,
            rules=self.rules,
        )


def of_table(query: QueryPlan, table: Table) -> QueryPlan:
    """The plan of a query whose rows are written to a table, which must also be unaltered when the plan is executed."""
    return query if table in query.tables else replace(query, tables=(*query.tables, table))


def _is_default(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Var) and tree.name.upper() == "DEFAULT"


def refuse_given(column: CatalogColumn, overriding: str | None) -> None:
    """PgError 428C9 if INSERT may not give a value for a column."""
    if (detail := _why_not_given(column)) is not None and not (column.identity and overriding is not None):
        raise PgError(
            SqlState.GENERATED_ALWAYS,
            f'cannot insert a non-DEFAULT value into column "{column.name}"',
            detail=detail,
            hint="Use OVERRIDING SYSTEM VALUE to override." if column.identity else None,
        )


def _why_not_given(column: CatalogColumn) -> str | None:
    """The reason why only DEFAULT may be assigned to a column; None if any value may."""
    if column.generated:
        return f'Column "{column.name}" is a generated column.'
    if column.identity == "a":
        return f'Column "{column.name}" is an identity column defined as GENERATED ALWAYS.'
    return None
