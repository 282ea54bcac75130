"""ON CONFLICT of INSERT: the unique keys that decide, and the plans for the rows that conflict."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.objects import Column, ObjectId, Table
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.sql.grammar.statements.writes import OnConflict
from server.sql.index_keys import key_column
from server.sql.plan import Field, QueryPlan

CONFLICTS, RETURNED = ObjectId("conflicts"), ObjectId("returned")
"""The relations that `update` and `returning` of a `ConflictPlan` read. They exist only in these plans."""


@dataclass(frozen=True, slots=True)
class ConflictPlan:
    """`keys`: the names of the unique keys whose duplicates are no errors.

    `update`: over `CONFLICTS`, whose columns are the existing row, the row that was to be inserted, and a number. Its
    rows have the columns of the existing and of the updated row, and the number. None: DO NOTHING.
    `returning`: over `RETURNED`, whose rows are the inserted and updated ones.
    """

    keys: frozenset[str]
    update: QueryPlan | None
    returning: QueryPlan | None

    @property
    def fields(self) -> tuple[Field, ...] | None:
        """The columns of RETURNING."""
        return None if self.returning is None else self.returning.columns


def conflicts_table(table: Table) -> Table:
    """The relation `CONFLICTS` for a table."""
    number = Column("", "int8", nullable=False)
    old = tuple(Column(column.name, column.type) for column in table.columns)
    return Table(CONFLICTS, table.schema_id, table.name, (*old, *old, number))


def returned_table(table: Table) -> Table:
    """The relation `RETURNED` for a table."""
    return Table(RETURNED, table.schema_id, table.name, table.columns)


def arbiter_columns(table: Table, conflict: OnConflict) -> frozenset[int]:
    """The numbers of the columns that ON CONFLICT names, also by a constraint; none if it names no key."""
    names = {column.name for column in conflict.columns}
    if conflict.constraint is not None:
        names |= {name for key in table.keys if key.name == conflict.constraint.name for name in key.columns}
    return frozenset(number for number, column in enumerate(table.columns) if column.name in names)


def arbiters(state: CatalogState, table: Table, conflict: OnConflict) -> frozenset[str]:
    """The names of the enforced keys that ON CONFLICT names; all of them if it names none. PgError."""
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
    keys = dict(constraints)
    for index in state.indexes_on(table.id):
        if index.is_unique:
            numbers = [key_column(key, table.columns) for key in index.keys]
            keys[index.name] = frozenset(table.columns[number].name for number in numbers if number is not None)
    if not conflict.columns:
        if conflict.assignments is not None:
            raise PgError(
                SqlState.SYNTAX_ERROR,
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                hint="For example, ON CONFLICT (column_name).",
                position=conflict.position,
            )
        return frozenset(keys)
    names = {column.name for column in table.columns}
    for column in conflict.columns:
        if column.name not in names:
            message = f'column "{column.name}" does not exist'
            raise PgError(SqlState.UNDEFINED_COLUMN, message, position=column.position)
    wanted = frozenset(column.name for column in conflict.columns)
    found = frozenset(name for name, columns in keys.items() if columns == wanted)
    if not found:
        message = "there is no unique or exclusion constraint matching the ON CONFLICT specification"
        raise PgError(SqlState.INVALID_COLUMN_REFERENCE, message)
    return found
