"""SET CONSTRAINTS: checks the names of constraints. It changes nothing.

Keys and checks are not deferrable: each statement is checked when it is executed, and again at COMMIT. Foreign keys may
be declared deferrable, but are not enforced.
"""

from __future__ import annotations

from collections.abc import Iterator

from catalog.ids import ObjectId
from catalog.objects.tables import Table
from catalog.objects.types import Domain
from catalog.state import CatalogState
from protocol.pgwire.errors import PgError, SqlState
from server.execution.names import find_schema
from server.session_state.context import Context
from server.session_state.results import Result
from server.sql.grammar.statements.parts import Name
from server.sql.grammar.statements.transactions import SetConstraints

Constraints = dict[tuple[ObjectId, str], bool]


def set_constraints(context: Context, statement: SetConstraints) -> Result:
    """Executes SET CONSTRAINTS. PgError 42704 for an unknown name, 42809 for DEFERRED of what is not deferrable."""
    if statement.names is not None:
        constraints: Constraints = {}
        for schema, name, is_deferrable in _constraints(context.state):
            constraints[schema, name] = constraints.get((schema, name), True) and is_deferrable
        for given in statement.names:
            is_deferrable = _find(context, given, constraints)
            if statement.deferred and not is_deferrable:
                message = f'constraint "{given.parts[-1]}" is not deferrable'
                raise PgError(SqlState.WRONG_OBJECT_TYPE, message)
    return Result("SET CONSTRAINTS")


def _constraints(state: CatalogState) -> Iterator[tuple[ObjectId, str, bool]]:
    """Yields schema, name and whether it is deferrable. Several tables of a schema can have constraints of a name."""
    for table in state.items_of(Table):
        for key in table.keys:
            yield table.schema_id, key.name, False
        for check in table.checks:
            yield table.schema_id, check.name, False
        for reference in table.foreign_keys:
            yield table.schema_id, reference.name, reference.deferrable
    for domain in state.items_of(Domain):
        for check in domain.checks:
            yield domain.schema_id, check.name, False


def _find(context: Context, name: Name, constraints: Constraints) -> bool:
    """Whether the constraints of a name are deferrable: those of the first schema that has any. PgError 42704."""
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
