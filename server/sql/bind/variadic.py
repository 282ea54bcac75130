"""VARIADIC array: the elements of an array as the last arguments of a call."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.nested_lists import flattened
from protocol.pgwire.types import JSON, JSONB, TEXT, UNKNOWN, array_of
from server.sql.bind.binder import Binder
from server.sql.bind.calls import applied, apply, operator, resolved_function
from server.sql.bind.written_calls import WrittenCall
from server.sql.expressions import Array, Expression, Literal
from server.sql.functions import resolve
from server.sql.scope import Scope

ELEMENTS_MAX = 100  # of an array whose elements become arguments: as many as a call can have
_EXTRACTIONS = {
    "json_extract_path": (JSON, "#>"),
    "jsonb_extract_path": (JSONB, "#>"),
    "json_extract_path_text": (JSON, "#>>"),
    "jsonb_extract_path_text": (JSONB, "#>>"),
}
"""The type of the first argument, and the operator that takes the path as an array."""


def variadic_call(binder: Binder, call: WrittenCall, scope: Scope) -> Expression:
    """A call whose last argument is VARIADIC array. 42804 if that is no array; 42883.

    0A000 if neither is there a function of the array, nor are its elements known when the query is planned.
    """
    *first, last = call.arguments
    arguments = [binder.expression(argument, scope) for argument in first]
    array = binder.expression(last.this, scope)
    if array.type == UNKNOWN and call.name in _EXTRACTIONS:
        array = binder.coerce(array, array_of(TEXT))
    if array.type.element is None:
        message = "VARIADIC argument must be an array"
        raise PgError(SqlState.DATATYPE_MISMATCH, message, position=binder.at(last.this))
    if len(arguments) == 1 and call.name == "concat_ws":
        return apply(binder, "array_to_string", [array, *arguments], call.tree)
    if not arguments and call.name == "concat":
        return apply(binder, "array_to_string", [array, Literal("", TEXT)], call.tree)
    if len(arguments) == 1 and call.name in _EXTRACTIONS:
        type, name = _EXTRACTIONS[call.name]
        return operator(binder, name, [binder.coerce(arguments[0], type), array], call.tree)
    one = (*(a.type.without_modifiers for a in arguments), array.type.element.without_modifiers)
    resolved = resolved_function(binder, call.name, one, call.tree)
    if resolved is None or not resolved.function.variadic or len(one) != len(resolved.function.arguments):
        shown = f"{call.name}({', '.join(a.type.base_display for a in (*arguments, array))})"
        raise resolve.no_such("function", shown, len(one), binder.at(call.tree))
    if isinstance(array, Literal) and array.value is None and call.name != "format":
        return Literal(None, resolved.result)
    elements = _elements(array)
    if elements is not None and len(elements) <= ELEMENTS_MAX:
        spread = [*arguments, *elements]
        types = tuple(a.type.without_modifiers for a in spread)
        if (resolved := resolved_function(binder, call.name, types, call.tree)) is not None:
            return applied(binder, resolved, spread, call.tree)
    raise binder.unsupported(
        f"VARIADIC in {call.name}() with an array whose elements are not known when the query is planned",
        call.tree,
        hint=f"Write the elements as arguments, or as VARIADIC ARRAY[...] of 1 to {ELEMENTS_MAX} elements.",
    )


def _elements(array: Expression) -> Sequence[Expression] | None:
    """The elements of a constant or of ARRAY[...]; none for NULL. None if they are not known."""
    if isinstance(array, Literal):
        assert array.type.element is not None
        return [Literal(value, array.type.element) for value in flattened(array.value or [], array.type.dimensions)]
    return array.elements if isinstance(array, Array) and array.type.dimensions == 1 else None
