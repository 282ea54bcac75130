"""ON CONFLICT of INSERT: the unique keys that decide, and the plans for the rows that conflict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from catalog.ids import ObjectId
from catalog.objects.columns import Column
from catalog.objects.tables import Table
from catalog.objects.views import View
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import PgType
from server.sql.bind import PlanContext
from server.sql.columns import free_columns
from server.sql.conditions import parts
from server.sql.expressions import Expression
from server.sql.grammar.statements.parts import Expr
from server.sql.grammar.statements.writes import OnConflict
from server.sql.index_keys import StatementParameters, bound_condition, bound_key, index_condition, index_keys
from server.sql.plan import Field, QueryPlan
from server.sql.scope import XMAX
from server.sql.writes.target import WriteTarget

CONFLICTS, RETURNED = ObjectId("conflicts"), ObjectId("returned")
"""The relations that `update` and `returning` of a `ConflictPlan` read. They exist only in these plans."""


@dataclass(frozen=True, slots=True)
class ConflictPlan:
    """`keys`: the names of the unique keys whose duplicates are no errors. None: `clause` names them with parameters.

    `clause`: in the names of the table's columns.
    `update`: over `CONFLICTS`, whose columns are the existing row, the row that was to be inserted, and a number. Its
    rows have the columns of the existing and of the updated row, and the number. None: DO NOTHING.
    `returning`: over `RETURNED`, whose rows are the inserted and updated ones, and their `xmax`: 0 or 1.
    """

    keys: frozenset[str] | None
    clause: OnConflict
    update: QueryPlan | None
    returning: QueryPlan | None

    @property
    def fields(self) -> tuple[Field, ...] | None:
        """The columns of RETURNING."""
        return None if self.returning is None else self.returning.columns

    def keys_for(
        self, context: PlanContext, table: Table, types: Sequence[PgType], values: Sequence[object]
    ) -> frozenset[str]:
        """`keys` for these types and values of the statement's parameters. PgError 42P10."""
        if self.keys is not None:
            return self.keys
        return arbiters(context, table, self.clause, StatementParameters(list(types), values))


def conflicts_table(table: Table) -> Table:
    """The relation `CONFLICTS` for a table."""
    number = Column("", "int8", nullable=False)
    old = tuple(Column(column.name, column.type) for column in table.columns)
    return Table(CONFLICTS, table.schema_id, table.name, (*old, *old, number))


def returned_table(table: Table) -> Table:
    """The relation `RETURNED` for a table."""
    return Table(RETURNED, table.schema_id, table.name, (*table.columns, Column(XMAX, "int8", nullable=False)))


def in_columns_of_table(conflict: OnConflict, target: WriteTarget) -> OnConflict:
    """The clause of an INSERT into the target, with the names of the table's columns. PgError 42703, 42P10, 42704."""
    if not target.levels:
        return conflict
    relation, names = target.relation, {column.name: n for n, column in enumerate(target.relation.columns)}
    if conflict.constraint is not None:
        message = f'constraint "{conflict.constraint.name}" for table "{relation.name}" does not exist'
        raise PgError(SqlState.UNDEFINED_OBJECT, message)

    def in_table(expression: Expr) -> Expr:
        def column(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            if node.name not in names:
                message = f'column "{node.name}" does not exist'
                raise PgError(SqlState.UNDEFINED_COLUMN, message, position=expression.position)
            base = target.numbers[names[node.name]]
            if base is None:
                raise _no_arbiter()
            return exp.column(exp.to_identifier(target.table.columns[base].name, quoted=True))

        return replace(expression, tree=expression.tree.transform(column))

    condition = None if conflict.condition is None else in_table(conflict.condition)
    return replace(conflict, keys=tuple(map(in_table, conflict.keys)), condition=condition)


def _no_arbiter() -> PgError:
    message = "there is no unique or exclusion constraint matching the ON CONFLICT specification"
    return PgError(SqlState.INVALID_COLUMN_REFERENCE, message)


def has_parameters(conflict: OnConflict) -> bool:
    """Whether the values of parameters decide which keys ON CONFLICT names."""
    named = conflict.keys if conflict.condition is None else (*conflict.keys, conflict.condition)
    return any(expression.tree.find(exp.Parameter) is not None for expression in named)


def arbiter_columns(
    context: PlanContext, relation: Table | View, conflict: OnConflict, parameters: StatementParameters
) -> frozenset[int]:
    """The numbers of the columns that ON CONFLICT names, also by a constraint; none if it names no key."""
    constraint = conflict.constraint.name if conflict.constraint is not None else None
    keys = relation.keys if isinstance(relation, Table) else ()
    names = {name for key in keys if key.name == constraint for name in key.columns}
    found = {number for number, column in enumerate(relation.columns) if column.name in names}
    bound: list[int | Expression] = [bound_key(relation.columns, key, parameters, context) for key in conflict.keys]
    if conflict.condition is not None:
        bound.append(bound_condition(relation.columns, conflict.condition, parameters, context))
    for key in bound:
        found |= {key} if isinstance(key, int) else {column.id - 1 for column in free_columns(key)}
    return frozenset(found)


def arbiters(
    context: PlanContext, table: Table, conflict: OnConflict, parameters: StatementParameters
) -> frozenset[str]:
    """The names of the enforced keys that ON CONFLICT names; all of them if it names none. PgError."""
    names = _arbiters(context, table, conflict, parameters)
    if any(key.deferrable and key.name in names for key in table.keys):
        message = "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters"
        raise PgError(SqlState.OBJECT_NOT_IN_PREREQUISITE_STATE, message)
    return names


def _arbiters(
    context: PlanContext, table: Table, conflict: OnConflict, parameters: StatementParameters
) -> frozenset[str]:
    indexes = context.state.indexes_on(table.id)
    constraints = {key.name: frozenset(key.columns) for key in table.keys if key.is_enforced}
    if conflict.constraint is not None:
        name = conflict.constraint.name
        if name not in {key.name for key in table.keys}:
            message = f'constraint "{name}" for table "{table.name}" does not exist'
            raise PgError(SqlState.UNDEFINED_OBJECT, message)
        if name not in constraints:
            message = f'constraint "{name}" of table "{table.name}" is not enforced'
            hint = "Without enforcement there is no conflict. Drop the constraint, and add it again."
            raise PgError(SqlState.WRONG_OBJECT_TYPE, message, hint=hint)
        return frozenset((name,))
    if not conflict.keys:
        if conflict.assignments is not None:
            raise PgError(
                SqlState.SYNTAX_ERROR,
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                hint="For example, ON CONFLICT (column_name).",
                position=conflict.position,
            )
        return frozenset(constraints) | {index.name for index in indexes if index.is_unique}
    wanted = [bound_key(table.columns, key, parameters, context) for key in conflict.keys]
    numbers = {column.name: number for number, column in enumerate(table.columns)}
    found = {
        name for name, columns in constraints.items() if _has_keys([numbers[column] for column in columns], wanted)
    }
    given: list[Expression] = []
    if conflict.condition is not None:
        given = parts(bound_condition(table.columns, conflict.condition, parameters, context))
    for index in indexes:
        if index.is_unique and _has_keys(index_keys(table.columns, index.keys), wanted):
            condition = index_condition(table.columns, index.condition)
            if condition is None or all(part in given for part in parts(condition)):
                found.add(index.name)
    if not found:
        raise _no_arbiter()
    return frozenset(found)


def _has_keys(keys: Sequence[int | Expression], wanted: Sequence[int | Expression]) -> bool:
    """Whether the keys of an index are these, in any order and with any repetitions."""
    return all(key in wanted for key in keys) and all(key in keys for key in wanted)
