"""Calls by name: functions with their own binding, then scalar, aggregate and window functions."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, TEXT, UNKNOWN
from server.sql.bind.aggregates import aggregate_call, grouping_call, is_aggregate
from server.sql.bind.arrays import array_query, filled_array
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import applied, call_or_cast, resolved_function
from server.sql.bind.casts import precision_of, rounded
from server.sql.bind.conditionals import SAME_TYPE_FORMS, nullif, same_type
from server.sql.bind.grammar import normal_form
from server.sql.bind.hypothetical_sets import HYPOTHETICAL_SETS, hypothetical_set
from server.sql.bind.json_constructors import name_of_aggregate
from server.sql.bind.json_records import POPULATE_RECORD, populated_record
from server.sql.bind.rows import record, selected_field, selected_field_of_value
from server.sql.bind.session import (
    SESSION_FUNCTIONS,
    current_setting,
    privilege_function,
    session_value,
    signal,
    waiting,
)
from server.sql.bind.shapes import function_name, unparenthesised
from server.sql.bind.table_functions import set_returning
from server.sql.bind.variadic import variadic_call
from server.sql.bind.volatile import NAMES as VOLATILE_NAMES
from server.sql.bind.volatile import serial_sequence, volatile
from server.sql.bind.written_calls import WrittenCall, ordered_set_call, written_call
from server.sql.constant import PRIVILEGE_FUNCTIONS, SIGNALS
from server.sql.expressions import Expression, Literal
from server.sql.functions import intervals, resolve
from server.sql.functions.aggregates import ORDERED_SETS
from server.sql.functions.sets import SETS
from server.sql.functions.table import Kind
from server.sql.grammar.json_constructors import JsonAggregate
from server.sql.scope import Scope, in_clause
from server.sql.waiting import WAITING


@form(exp.Anonymous, JsonAggregate, exp.Filter, exp.WithinGroup)
def function(binder: Binder, tree: exp.Expr, scope: Scope, *, over: bool = False) -> Expression:
    """A call by name with its FILTER and WITHIN GROUP. `over`: OVER follows, so a window function is allowed.

    42883, 42725; 42809 if a clause after the call does not match the kind of function.
    """
    call = written_call(binder, tree)
    position = binder.at(call.tree)
    if call.arguments and isinstance(call.arguments[-1], exp.Variadic):
        return variadic_call(binder, call, scope)
    if call.within is not None and call.name in HYPOTHETICAL_SETS and not (call.is_distinct or call.order):
        return hypothetical_set(binder, call, call.within, scope)
    if call.within is not None or call.name in ORDERED_SETS:
        call = ordered_set_call(binder, call)
    if call.has_star and call.is_distinct:
        raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near "*"', position=position)
    own = _own_form(binder, call, scope)
    if own is not None:
        return own
    nests = is_aggregate(call.name) and scope.clause is None and not over
    inner = in_clause(scope, clause="aggregate function calls") if nests else scope
    bound = _bound_arguments(binder, call, inner)
    if call.has_star and call.name != "count":
        raise resolve.no_such("function", f"{call.name}()", 2, position)
    if isinstance(call.tree, JsonAggregate):
        call = replace(call, name=name_of_aggregate(call.tree, bound))
    resolved = resolved_function(binder, call.name, tuple(a.type.without_modifiers for a in bound), call.tree)
    if resolved is None:
        return call_or_cast(binder, call.name, bound, call.tree)
    if resolved.function.kind is Kind.SCALAR:
        if call.condition is not None or call.is_distinct or call.order:
            what = "FILTER" if call.condition is not None else "DISTINCT" if call.is_distinct else "ORDER BY"
            message = f"{what} specified, but {call.name} is not an aggregate function"
            raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=position)
        return applied(binder, resolved, bound, call.tree)
    if resolved.function.kind is Kind.WINDOW and not over:
        message = f"window function {call.name} requires an OVER clause"
        raise PgError(SqlState.WRONG_OBJECT_TYPE, message, position=position)
    return aggregate_call(binder, resolved, call, bound, scope, inner, over=over)


def _bound_arguments(binder: Binder, call: WrittenCall, scope: Scope) -> list[Expression]:
    """The arguments, with those that the call omits or names by a keyword."""
    arguments = call.arguments
    if call.name == "make_interval":
        arguments = intervals.positional(list(arguments))
    elif any(isinstance(argument, exp.Kwarg) for argument in arguments):
        raise binder.unsupported(
            f"a named argument of {call.name}", call.tree, hint="Write the arguments in their order, without names."
        )
    if call.name == "normalize" and len(arguments) == 2 and isinstance(arguments[1], exp.Column):
        arguments = [arguments[0], normal_form(binder, arguments[1])]
    bound = [binder.expression(a, scope) for a in arguments]
    if call.name == "age" and len(bound) == 1:
        if bound[0].type == UNKNOWN:
            message = "function age(unknown) is not unique"
            raise PgError(SqlState.AMBIGUOUS_FUNCTION, message, position=binder.at(call.tree))
        bound.insert(0, session_value(binder, "current_date", call.tree))
    return bound


def _own_form(binder: Binder, written: WrittenCall, scope: Scope) -> Expression | None:
    """Functions whose arguments do not follow a row of the function table; None for all other functions."""
    call, name, arguments, star = written.tree, written.name, list(written.arguments), written.has_star
    if name in SETS or name == "unnest":
        return set_returning(binder, call, scope)
    if name == "grouping":
        return grouping_call(binder, call, scope)
    if name == "array" and len(arguments) == 1 and isinstance(arguments[0], (exp.Query, exp.Values)):
        return array_query(binder, arguments[0], scope, call)
    if name == "row":
        return record(binder, call, scope)
    if name == "array_fill" and len(arguments) in (2, 3) and not star:
        return filled_array(binder, [binder.expression(a, scope) for a in arguments], call)
    if name in POPULATE_RECORD:
        return populated_record(binder, call, scope)
    if name in SESSION_FUNCTIONS and not arguments and not star:
        return session_value(binder, name, call)
    if name in ("current_timestamp", "localtimestamp", "localtime", "current_time") and len(arguments) == 1:
        return rounded(binder, session_value(binder, name, call), precision_of(binder, arguments, call), call)
    if name in SAME_TYPE_FORMS and not arguments:
        raise PgError(SqlState.SYNTAX_ERROR, 'syntax error at or near ")"', position=binder.at(call))
    if name in SAME_TYPE_FORMS:
        inner = replace(scope, sets=None)
        return same_type(binder, name, [binder.expression(a, inner) for a in arguments], call)
    if name == "nullif":
        return nullif(binder, [binder.expression(a, scope) for a in arguments], call)
    if name == "pg_typeof" and len(arguments) == 1:
        return Literal(binder.expression(arguments[0], scope).type.base_display, TEXT)
    if name == "pg_is_in_recovery" and not arguments:
        return Literal(False, BOOL)
    if name == "current_setting" and len(arguments) in (1, 2):
        return current_setting(binder, arguments, scope, call)
    if name == "pg_reload_conf" and not arguments:
        return signal(binder, name, exp.Literal.number(0), scope, call)
    if name in SIGNALS and name != "pg_reload_conf" and len(arguments) == 1 and not star:
        return signal(binder, name, arguments[0], scope, call)
    if name in WAITING and not star:
        return waiting(binder, name, arguments, scope, call)
    if name == "pg_get_serial_sequence" and len(arguments) == 2:
        return serial_sequence(binder, arguments, call)
    if name in VOLATILE_NAMES and not star:
        return volatile(binder, name, arguments, scope, call)
    widths = (3, 4) if name == "has_column_privilege" else (2, 3)
    if name in PRIVILEGE_FUNCTIONS and len(arguments) in widths and not star:
        return privilege_function(binder, name, arguments, scope, call)
    return None


@form(exp.Dot)
def qualified_function(binder: Binder, tree: exp.Dot, scope: Scope) -> Expression:
    """pg_catalog.name(...), or (row).field. 3F000 for another schema."""
    if isinstance(tree.expression, exp.Anonymous) and tree.this.name == "pg_catalog":
        return function(binder, tree.expression, scope)
    if (field := selected_field(binder, tree, scope)) is not None:
        return field
    called = unparenthesised(tree.this)
    if (
        isinstance(called, exp.Anonymous)
        and function_name(called) in SETS
        and isinstance(tree.expression, exp.Identifier)
    ):
        return set_returning(binder, called, scope, tree.expression.name)
    if isinstance(tree.expression, exp.Anonymous) and isinstance(tree.this, exp.Identifier):
        message = f'schema "{tree.this.name}" does not exist'
        raise PgError(SqlState.INVALID_SCHEMA_NAME, message, position=binder.at(tree))
    if (field := selected_field_of_value(binder, tree, scope)) is not None:
        return field
    raise binder.unsupported("field selection", tree, hint="Name the column in the query that makes the row.")
