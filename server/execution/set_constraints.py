"""SET CONSTRAINTS: whether a block checks its deferrable keys at COMMIT or at the end of each statement.

Checks and other keys are not deferrable: each statement is checked when it is executed, and again at COMMIT. Foreign
keys may be declared deferrable, but are not enforced.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from catalog.ids import ObjectId
from catalog.objects.tables import Table
from catalog.objects.types import Domain
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.coordinator.key_indexes import enforced_keys
from server.execution.names import find_schema
from server.session_state.context import Context
from server.session_state.deferral import Deferral
from server.session_state.key_checks import check_deferred
from server.session_state.results import Result
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.statements.transactions import SetConstraints


@dataclass(slots=True)
class _Constraints:
    """The constraints of a schema that have one name: several tables can have constraints of a name."""

    deferrable: bool = True
    tables: list[ObjectId] = field(default_factory=list)
    """The tables of those that are enforced keys."""


_Named = dict[tuple[ObjectId, str], _Constraints]


async def set_constraints(context: Context, statement: SetConstraints) -> Result:
    """Executes SET CONSTRAINTS.

    PgError 42704 for an unknown name, 42809 for DEFERRED of what is not deferrable, 23505 for IMMEDIATE if two rows
    have the same key.
    """
    transaction = context.transaction
    if statement.names is None:
        deferral = Deferral(statement.deferred)
    else:
        constraints = _constraints(context.state)
        keys: list[str] = []
        for given in statement.names:
            found = _find(context, given, constraints)
            if statement.deferred and not found.deferrable:
                message = f'constraint "{given.parts[-1]}" is not deferrable'
                raise PgError(SqlState.WRONG_OBJECT_TYPE, message)
            for table in found.tables:
                keys += [key.id for key in enforced_keys(context.state, table) if key.name == given.parts[-1]]
        deferral = transaction.deferral.with_keys(keys, deferred=statement.deferred)
    await check_deferred(context, deferral)
    if transaction.explicit:
        transaction.deferral = deferral
    return Result("SET CONSTRAINTS")


def _constraints(state: CatalogState) -> _Named:
    found: _Named = {}

    def add(schema: ObjectId, name: str, deferrable: bool) -> _Constraints:
        same = found.setdefault((schema, name), _Constraints())
        same.deferrable = same.deferrable and deferrable
        return same

    for table in state.items_of(Table):
        for key in table.keys:
            same = add(table.schema_id, key.name, key.deferrable)
            if key.is_enforced:
                same.tables.append(table.id)
        for check in table.checks:
            add(table.schema_id, check.name, False)
        for reference in table.foreign_keys:
            add(table.schema_id, reference.name, reference.deferrable)
    for domain in state.items_of(Domain):
        for check in domain.checks:
            add(domain.schema_id, check.name, False)
    return found


def _find(context: Context, name: Name, constraints: _Named) -> _Constraints:
    """The constraints of a name: those of the first schema that has any. PgError 42704."""
    *qualifier, last = name.parts
    if qualifier:
        schemas = [find_schema(context, tuple(qualifier))]
    else:
        database = context.state.database_named(context.settings["database"])
        named = (
            context.state.schema_named(None if database is None else database.id, path) for path in context.search_path
        )
        schemas = [schema for schema in named if schema is not None]
    for schema in schemas:
        if (found := constraints.get((schema.id, last))) is not None:
            return found
    raise PgError(SqlState.UNDEFINED_OBJECT, f'constraint "{last}" does not exist')
