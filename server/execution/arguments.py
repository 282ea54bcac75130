"""The arguments of EXECUTE: constant expressions that become the parameters of a prepared statement."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.nested_lists import wrong_dimensions
from protocol.pgwire.types import INT8, NAME, OID, TEXT, PgType
from server.execution.planning import plan_expression
from server.session_state.context import Context
from server.sql.grammar.statements.parts import Expr


async def execute_arguments(
    context: Context, name: str, arguments: Sequence[Expr], types: Sequence[PgType]
) -> tuple[object, ...]:
    """Returns the values as Python scalars of `types`. PgError 42601 if the number of arguments is wrong."""
    if len(arguments) != len(types):
        raise PgError(
            SqlState.SYNTAX_ERROR,
            f'wrong number of parameters for prepared statement "{name}"',
            detail=f"Expected {len(types)} parameters but got {len(arguments)}.",
        )
    return tuple([await _value(context, argument, type) for argument, type in zip(arguments, types, strict=True)])


_COMPUTED_AS = {OID: INT8, NAME: TEXT}
"""The types of the system catalogs, and those as which Spark's expressions have their values."""


async def _value(context: Context, argument: Expr, type: PgType) -> object:
    plan = plan_expression(argument, context.plan_context(), _COMPUTED_AS.get(type, type))
    if plan.constant is None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            "EXECUTE arguments must be constants",
            hint="Put the computation into the prepared statement.",
            position=argument.position,
        )
    value = await context.evaluator.value(plan.constant, context.bindings())
    found = plan.columns[0].type.dimensions
    if value and type.element is not None and found != type.dimensions:
        raise wrong_dimensions(found, type)
    return value
