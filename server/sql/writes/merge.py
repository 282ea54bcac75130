"""The plan of MERGE: one query over the join of the target and the source.

Each row of the join gets the number of the clause that applies to it. The target's rows are numbered before the join,
so that a row that two source rows change is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from catalog.objects.tables import Table
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, INT4, INT8, TEXT, PgType, parse_type
from server.sql.bind import PlanContext, other_tables, relation_of
from server.sql.bind.select_list import returning_items
from server.sql.expressions import (
    Aggregate,
    Call,
    Case,
    Column,
    ColumnRef,
    Expression,
    InList,
    Literal,
    WindowCall,
    walk,
)
from server.sql.functions import syntax
from server.sql.functions.table import FUNCTIONS
from server.sql.grammar.statements.merges import Merge, MergeAction, MergeClause, Unmatched
from server.sql.grammar.statements.parts import Ident
from server.sql.plan import finished_plan, reject_deep_nesting
from server.sql.relations import Filter, Join, JoinKind, Project, Relation, Window
from server.sql.scope import Entry, Scope, in_clause
from server.sql.writes.plan import MergeColumns, WritePlan
from server.sql.writes.planner import WritePlanner, refuse_given
from server.sql.writes.target import WriteTarget


def plan_merge(statement: Merge, context: PlanContext, parameter_types: Sequence[PgType | None] = ()) -> WritePlan:
    """Plans a MERGE. PgError."""
    return reject_deep_nesting(lambda: _MergePlanner(statement, context, parameter_types).plan())


@dataclass(frozen=True, slots=True)
class _Sides:
    """The scopes of the clauses, and whether a row of the join has a row of each side."""

    matched: Scope
    by_target: Scope
    by_source: Scope
    in_target: Expression
    in_source: Expression

    def scope(self, unmatched: Unmatched | None) -> Scope:
        match unmatched:
            case None:
                return self.matched
            case Unmatched.BY_TARGET:
                return self.by_target
            case Unmatched.BY_SOURCE:
                return self.by_source

    def applies(self, unmatched: Unmatched | None) -> Expression:
        target, source = self.in_target, self.in_source
        if unmatched is Unmatched.BY_TARGET:
            target = Call(syntax.NOT, (target,), BOOL, False)
        elif unmatched is Unmatched.BY_SOURCE:
            source = Call(syntax.NOT, (source,), BOOL, False)
        return Call(syntax.AND, (target, source), BOOL, False)


_ACTION = "\0merge_action"
"""The name of the column that merge_action() returns. No name in a statement contains it."""


def _with_action(tree: exp.Expr) -> exp.Expr:
    """An item of RETURNING in which calls of merge_action() are columns."""

    def is_call(node: exp.Expr) -> bool:
        return isinstance(node, exp.Anonymous) and node.name.lower() == "merge_action"

    def column(node: exp.Expr) -> exp.Expr:
        if not is_call(node):
            return node
        if node.expressions:
            raise PgError(SqlState.UNDEFINED_FUNCTION, "function merge_action(...) does not exist")
        name = exp.to_identifier(_ACTION, quoted=True)
        return exp.column(name, table=name.copy())

    found = tree.transform(column)
    return exp.alias_(found, "merge_action") if is_call(tree) else found


class _MergePlanner(WritePlanner):
    def __init__(self, statement: Merge, context: PlanContext, parameter_types: Sequence[PgType | None]) -> None:
        super().__init__(statement, context, parameter_types)
        self.statement = statement

    def plan(self) -> WritePlan:
        statement = self.statement
        only_deletes = all(c.action in (MergeAction.DELETE, MergeAction.NOTHING) for c in statement.clauses)
        target = self._target(statement.table, "merge into", only_deletes=only_deletes)
        table = target.table
        width = len(table.columns)
        joined, sides, before, number = self._joined(target)
        old: list[Expression] = list(map(ColumnRef, before))
        rows = [self._row_of(target, clause, sides.scope(clause.unmatched), old) for clause in statement.clauses]
        conditions = [self._condition(clause, sides) for clause in statement.clauses]
        which = Case(
            tuple((c, Literal(at, INT4)) for at, c in enumerate(conditions, 1)), Literal(0, INT4), INT4
        )  # fmt: skip
        action = self.binder.new_column("", which)
        numbered = Project(joined, (*joined.columns, action), (*map(ColumnRef, joined.columns), which))
        changes = [at for at, c in enumerate(statement.clauses, 1) if c.action is not MergeAction.NOTHING]
        chosen = self._is_one_of(action, changes)
        changed = Filter(numbered, chosen)
        new = [self._value(table, at, action, rows) for at in range(width)]
        output = (*old, *new, ColumnRef(action), ColumnRef(number))
        columns = tuple(self.binder.new_column("", e) for e in output)
        others = self._source_columns(sides)
        computed = Project(changed, (*columns, *others), (*output, *map(ColumnRef, others)))
        row: Relation = self._generated(computed, target, width)
        returning = None
        if statement.returning:
            row, returning = self._returning(row, target, sides)
        query = finished_plan(self.binder, row, None)
        kinds = tuple(clause.action for clause in statement.clauses)
        return WritePlan(
            table.id,
            target,
            query,
            slice(0, width),
            slice(width, 2 * width),
            returning,
            self.inserts,
            self.updates,
            assigned=frozenset(range(width)),
            merge=MergeColumns(2 * width, 2 * width + 1, kinds),
            rules=self.rules,
        )

    def _source_columns(self, sides: _Sides) -> tuple[Column, ...]:
        """The columns of the source that RETURNING may name."""
        if not self.statement.returning:
            return ()
        named = [node for entry in sides.by_target.entries for node in walk(entry.expression)]
        return tuple({node.column.id: node.column for node in named if isinstance(node, ColumnRef)}.values())

    def _returning(self, row: Relation, target: WriteTarget, sides: _Sides) -> tuple[Relation, slice]:
        """The changed rows with the columns of RETURNING, and where these are.

        The target's columns are those of the new row, for DELETE those of the old row.
        """
        binder, statement, width = self.binder, self.statement, len(target.table.columns)
        action = row.columns[2 * width]
        clauses = list(enumerate(statement.clauses, 1))
        kinds = {kind: [at for at, clause in clauses if clause.action is kind] for kind in MergeAction}
        affected = row.columns[width : 2 * width]
        if kinds[MergeAction.DELETE]:
            is_deleted = self._is_one_of(action, kinds[MergeAction.DELETE])
            chosen = tuple(
                Case(((is_deleted, ColumnRef(old)),), ColumnRef(new), new.type)
                for old, new in zip(row.columns[:width], affected, strict=True)
            )
            affected = tuple(binder.new_column(column.name, e) for column, e in zip(affected, chosen, strict=True))
            row = Project(row, (*row.columns, *affected), (*map(ColumnRef, row.columns), *chosen))
        row, scope = self._shown(target, row, affected)
        branches = tuple(
            (self._is_one_of(action, numbers), Literal(kind.upper(), TEXT))
            for kind, numbers in kinds.items()
            if numbers and kind is not MergeAction.NOTHING
        )
        done = Case(branches, Literal(None, TEXT), TEXT)
        word = Entry(_ACTION, done, _ACTION, visible=False)
        scope.entries = [*sides.by_target.entries, *scope.entries, word]
        items = returning_items(binder, [_with_action(item.tree) for item in statement.returning], scope)
        kept = [ColumnRef(column) for column in row.columns[: 2 * width + 2]]
        columns = (
            *row.columns[: 2 * width + 2],
            *(binder.new_column(item.name, item.expression) for item in items),
        )
        expressions = (*kept, *(item.expression for item in items))
        return Project(row, columns, expressions), slice(len(kept), len(columns))

    def _joined(self, target: WriteTarget) -> tuple[Relation, _Sides, tuple[Column, ...], Column]:
        """The join, its scopes, the target's columns in it, and the number of the target's row, NULL without one."""
        binder, statement = self.binder, self.statement
        scan = relation_of(binder, target.table)
        rows, scope = self._shown(target, scan, scan.columns, filtered=True)
        (row_number,) = FUNCTIONS["row_number"]
        call = WindowCall(Aggregate(row_number, (), INT8, False), (), (), "")
        number = binder.new_column("", call)
        numbered = Window(rows, (call,), (*rows.columns, number))
        others = other_tables(binder, statement.source.tree, scope)
        name = self._name(target.relation)
        if any(entry.table == name for entry in others.entries):
            raise PgError(SqlState.DUPLICATE_ALIAS, f'table name "{name}" specified more than once')
        present = Literal(True, BOOL)
        mark = binder.new_column("", present)
        marked = Project(
            others.relation,
            (*others.relation.columns, mark),
            (*map(ColumnRef, others.relation.columns), present),
        )
        unmatched = {clause.unmatched for clause in statement.clauses}
        kind = {
            (False, False): JoinKind.INNER,
            (True, False): JoinKind.RIGHT,
            (False, True): JoinKind.LEFT,
            (True, True): JoinKind.FULL,
        }[Unmatched.BY_TARGET in unmatched, Unmatched.BY_SOURCE in unmatched]
        both = Scope([*scope.entries, *others.entries], common_tables=self.common_tables, real_names=scope.real_names)
        condition = binder.condition(statement.condition.tree, in_clause(both, "JOIN/ON"), "JOIN/ON")
        left_null, right_null = kind in (JoinKind.RIGHT, JoinKind.FULL), kind in (JoinKind.LEFT, JoinKind.FULL)
        columns = (
            *(replace(c, nullable=c.nullable or left_null) for c in numbered.columns),
            *(replace(c, nullable=c.nullable or right_null) for c in marked.columns),
        )
        by_id = {column.id: column for column in columns}
        ours, theirs = (
            [
                replace(e, expression=ColumnRef(by_id[e.expression.column.id]))
                if isinstance(e.expression, ColumnRef) and e.expression.column.id in by_id
                else e  # a constant, or a column that the statement does not name
                for e in entries
            ]
            for entries in (scope.entries, others.entries)
        )
        in_target = Call(syntax.IS_NOT_NULL, (ColumnRef(by_id[number.id]),), BOOL, False)
        in_source = Call(syntax.IS_NOT_NULL, (ColumnRef(by_id[mark.id]),), BOOL, False)

        def scope_of(entries: list[Entry]) -> Scope:
            names = scope.real_names
            return Scope(entries, common_tables=self.common_tables, real_names=names, clause="MERGE WHEN conditions")

        sides = _Sides(scope_of([*ours, *theirs]), scope_of(theirs), scope_of(ours), in_target, in_source)
        joined = Join(kind, numbered, marked, condition, columns, others.lateral)
        return joined, sides, tuple(by_id[c.id] for c in scan.columns), by_id[number.id]

    def _condition(self, clause: MergeClause, sides: _Sides) -> Expression:
        """Whether a clause applies to a row, if no earlier one does."""
        applies = sides.applies(clause.unmatched)
        if clause.condition is None:
            return applies
        bound = self.binder.condition(clause.condition.tree, sides.scope(clause.unmatched), "WHEN")
        return Call(syntax.AND, (applies, bound), BOOL, bound.nullable)

    def _row_of(
        self, target: WriteTarget, clause: MergeClause, scope: Scope, old: list[Expression]
    ) -> list[Expression] | None:
        """The new row of a clause, None if it has none."""
        match clause.action:
            case MergeAction.UPDATE:
                row, assigned = self._assigned_row(
                    target, old, clause.assignments, replace(scope, clause="UPDATE"), "merge into"
                )
                self.updates = assigned | (self.updates or frozenset())
                return row
            case MergeAction.INSERT:
                return self._inserted_row(target, clause.columns, clause, replace(scope, clause="VALUES"))
            case _:
                return None

    def _inserted_row(
        self, target: WriteTarget, columns: Sequence[Ident], clause: MergeClause, scope: Scope
    ) -> list[Expression]:
        targets = self._targets(target, columns)
        if clause.values is not None and len(clause.values) > len(targets):
            first = next(value for value in clause.values[len(targets) :] if value is not None)
            message = "INSERT has more expressions than target columns"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=first.position)
        given = dict(zip(targets, clause.values or (), strict=False))
        self.inserts = frozenset(given) | (self.inserts or frozenset())
        values: dict[int, Expression] = {}
        shown = target.columns
        for number, value in given.items():
            if value is not None:
                if (base := target.numbers[number]) is not None:
                    refuse_given(target.table.columns[base], clause.overriding)
                values[number] = self._assign(self.binder.expression(value.tree, scope), shown[number], value.tree)
        target.require_updatable(given, "merge into")
        row = self._assigned_once(target, values)
        return [
            self._default(target.table, number)
            if number not in row or (column.identity and clause.overriding == "user")
            else row[number]
            for number, column in enumerate(target.table.columns)
        ]

    def _value(self, table: Table, number: int, action: Column, rows: Sequence[list[Expression] | None]) -> Expression:
        """A column of the new row, by the clause that applies."""
        type = parse_type(table.columns[number].type)
        branches = tuple(
            (self._is_one_of(action, [at]), row[number]) for at, row in enumerate(rows, 1) if row is not None
        )
        return Case(branches, Literal(None, type), type) if branches else Literal(None, type)

    def _is_one_of(self, action: Column, numbers: Sequence[int]) -> Expression:
        """Whether the clause with one of these numbers applies."""
        if not numbers:
            return Literal(False, BOOL)
        return InList(ColumnRef(action), tuple(Literal(number, INT4) for number in numbers))
