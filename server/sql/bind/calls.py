"""Operators and functions over bound arguments: resolution in the function table, and the call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.nested_lists import flattened as flattened_list
from protocol.pgwire.types import (
    BOOL,
    INET,
    NUMERIC,
    RECORD,
    RECORD_ARRAY,
    TEXT,
    PgType,
    array_of,
    bare_numeric,
    is_row,
    named_type,
    with_dimensions,
)
from server.sql.bind.binder import Binder
from server.sql.coerce import EXPLICIT, IMPLICIT, check_same_rows
from server.sql.expressions import Call, Case, Expression, Literal, precision
from server.sql.functions import resolve, syntax
from server.sql.functions.networks import TEXT_OF_INET
from server.sql.functions.resolve import Resolved
from server.sql.functions.table import ANY, COMPARISONS, POLYMORPHIC, Function, Nulls, flattened
from server.sql.scope import Scope
from server.sql.temporal import in_milliseconds, is_now


def operator(binder: Binder, name: str, arguments: list[Expression], tree: exp.Expr | None) -> Expression:
    """An operator over bound operands. 42883, 42725."""
    if len(arguments) == 2 and any(map(is_now, arguments)):
        arguments = [in_milliseconds(argument, compared=name in COMPARISONS) for argument in arguments]
    types = tuple(a.type.without_modifiers for a in arguments)
    try:
        resolved = resolve.resolve_operator(name, plain_types(types))
    except PgError as error:
        raise _placed(error, operator_position(binder, tree)) from None
    if resolved is None:
        shown = resolve.operator_text(name, types)
        raise resolve.no_such("operator", shown, len(types), operator_position(binder, tree))
    return applied(binder, resolved, arguments, tree)


def operator_position(binder: Binder, tree: exp.Expr | None) -> int | None:
    """The position of an operator, which sqlglot does not record: the next character that can begin an operator, after
    the last token of the left operand, or before the first token of a prefix operator's operand."""
    if tree is None or binder.inside_view:
        return None
    if tree.args.get("expression") is None:
        start = binder.at(tree)
        return (
            None if start is None else len(binder.source[: start - 1 - binder.offset].rstrip(" (\n\t")) + binder.offset
        )
    ends = [node.meta["end"] + 1 for node in tree.this.find_all(exp.Expr) if "end" in node.meta]
    if not ends:
        return binder.at(tree)
    rest = binder.source[max(ends) - binder.offset :]
    return int(max(ends) + len(rest) - len(rest.lstrip(" )]\n\t")) + 1)


def call(binder: Binder, name: str, arguments: Sequence[exp.Expr], scope: Scope, tree: exp.Expr) -> Expression:
    """Binds the arguments, then applies the function."""
    return apply(binder, name, [binder.expression(a, scope) for a in arguments], tree)


def apply(binder: Binder, name: str, arguments: list[Expression], tree: exp.Expr) -> Expression:
    """A function over bound arguments. 42883, 42725, 0A000. An aggregate has no DISTINCT, ORDER BY or FILTER yet."""
    types = tuple(a.type.without_modifiers for a in arguments)
    resolved = resolved_function(binder, name, types, tree)
    if resolved is None:
        return call_or_cast(binder, name, arguments, tree)
    return applied(binder, resolved, arguments, tree)


def resolved_function(binder: Binder, name: str, types: tuple[PgType, ...], tree: exp.Expr) -> Resolved | None:
    """The row of the function table; None if none matches these types. 42725 if several match."""
    with placed_at(binder, tree):
        return resolve.resolve_function(name, plain_types(types))


def set_array(binder: Binder, name: str, array: str, arguments: list[Expression], tree: exp.Expr) -> Expression:
    """One column of a set-returning function's result as an array; `array` names the row that computes it."""
    types = tuple(a.type.without_modifiers for a in arguments)
    with placed_at(binder, tree):
        resolved = resolve.resolve_set_array(array, plain_types(types))
    if resolved is None:
        shown = f"{name}({', '.join(a.type.base_display for a in arguments)})"
        raise resolve.no_such("function", shown, len(arguments), binder.at(tree))
    if resolved.result.name != "_numeric":
        return applied(binder, resolved, arguments, tree)
    numbers = [binder.coerce(a, NUMERIC) for a in arguments]
    scale = max(number.type.scale or 0 for number in numbers)
    exact = tuple(binder.rescale(number, bare_numeric(scale)) for number in numbers)
    return Call(resolved.function, exact, array_of(bare_numeric(scale)), True)


def call_or_cast(binder: Binder, name: str, arguments: list[Expression], tree: exp.Expr) -> Expression:
    """date(x), text(x), int4(x): a type name called with one argument is a cast."""
    if len(arguments) == 1:
        try:
            return binder.coerce(arguments[0], named_type(name), EXPLICIT, binder.at(tree))
        except ValueError:
            pass  # neither a type nor a function
    shown = f"{name}({', '.join(a.type.base_display for a in arguments)})"
    raise resolve.no_such("function", shown, len(arguments), binder.at(tree))


def applied(binder: Binder, resolved: Resolved, arguments: Sequence[Expression], tree: exp.Expr | None) -> Call:
    """The call with its arguments cast to the row's types and prepared."""
    function = resolved.function
    targets = [binder.fitting(a, target) for a, target in zip(arguments, resolved.arguments, strict=True)]
    with placed_at(binder, tree):
        resolved = resolve.with_dimensions_of(resolved, targets)
    context = EXPLICIT if function.name == "||" else IMPLICIT  # || converts any type to text
    coerced = tuple(
        binder.default_unknown(argument) if target == ANY else binder.coerce(argument, target, context)
        for argument, target in zip(arguments, resolved.arguments, strict=True)
    )
    with placed_at(binder, tree):
        check_available(binder, function)
        if function.prepare is not None:
            coerced = function.prepare(coerced)
        if function.dimensions is flattened:
            coerced = tuple(map(flat, coerced))
        if function.variadic and not function.typed:
            coerced = tuple(_output_of(binder, argument) for argument in coerced)
        coerced, result = polymorphic(binder, resolved, coerced)
        made = call_of(function, coerced, result)
        return replace(made, timezone=binder.timezone) if function.zoned else made


def flat(array: Expression) -> Expression:
    """The elements of an array of several dimensions, as an array of one. Other expressions are unchanged."""
    if array.type.dimensions == 1:
        return array
    type = with_dimensions(array.type, 1)
    if isinstance(array, Literal):
        return replace(array, value=array.value and flattened_list(array.value, array.type.dimensions), type=type)
    return Call(syntax.FLATTEN, (array,), type, array.nullable)


def polymorphic(
    binder: Binder, resolved: Resolved, arguments: tuple[Expression, ...]
) -> tuple[tuple[Expression, ...], PgType]:
    """Rescales numerics that share a pseudo-type to one scale, which is also the result's scale."""
    result = resolved.result
    declared_rows = zip(arguments, resolved.function.arguments, strict=False)
    rows = [a.type.element or a.type for a, declared in declared_rows if declared in POLYMORPHIC and is_row(a.type)]
    if rows and resolved.function.result in POLYMORPHIC:
        check_same_rows(rows)
        return arguments, array_of(rows[0], result.dimensions) if result.element is not None else rows[0]
    shared = [
        argument
        for argument, declared in zip(arguments, resolved.function.arguments, strict=False)
        if declared in POLYMORPHIC and (argument.type.element or argument.type).name == "numeric"
    ]
    if not shared:
        return arguments, result
    valued = [e for e in shared if not (isinstance(e, Literal) and e.value is None)]
    scale = max(((e.type.element or e.type).scale or 0 for e in valued or shared), default=0)
    scalar = bare_numeric(scale)
    if len(shared) > 1:
        arguments = tuple(
            binder.rescale(e, scalar if e.type.element is None else array_of(scalar, e.type.dimensions))
            if any(e is other for other in shared)
            else e
            for e in arguments
        )
    if (result.element or result).name == "numeric" and resolved.function.result in POLYMORPHIC:
        result = scalar if result.element is None else array_of(scalar, result.dimensions)
    return arguments, result


def _output_of(binder: Binder, argument: Expression) -> Expression:
    """A value converted to text as by concat(): by the output function of its type.

    A boolean is t or f, char(n) keeps its padding, and an inet has its mask only if it is not a single address.
    """
    if argument.type.name == "bpchar":
        return argument
    if argument.type == INET:  # the cast adds the mask to single addresses
        return Call(TEXT_OF_INET, (argument,), TEXT, argument.nullable)
    if argument.type != BOOL:
        return binder.coerce(argument, TEXT, EXPLICIT)
    letters = Literal("t", TEXT), Literal("f", TEXT)
    is_false = Call(syntax.NOT, (argument,), BOOL, argument.nullable)
    return Case(((argument, letters[0]), (is_false, letters[1])), Literal(None, TEXT), TEXT)


def check_available(binder: Binder, function: Function) -> None:
    """0A000 for a function that is not implemented, or not in the session's time zone."""
    if function.spark is None and function.python is None:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"{function} is not supported",
            hint="The functions that can be called are listed by \\df in psql.",
        )
    if function.zoned:
        if function.python is None and not binder.is_utc:
            message = f"{function} in a session whose TimeZone is not UTC is not supported"
            raise PgError(
                SqlState.FEATURE_NOT_SUPPORTED,
                message,
                hint="Use SET TimeZone = 'UTC', or convert the value with AT TIME ZONE first.",
            )
        binder.check_zone(str(function))


@contextmanager
def placed_at(binder: Binder, tree: exp.Expr | None) -> Iterator[None]:
    """Sets the position of a PgError without one. The position is computed only on error: it requires a tree walk."""
    try:
        yield
    except PgError as error:
        raise _placed(error, binder.at(tree)) from None


def _placed(error: PgError, position: int | None) -> PgError:
    if error.position is None:
        error.position = position
    return error


def call_of(function: Function, arguments: tuple[Expression, ...], result: PgType) -> Call:
    """The call with its result type, scale and nullability."""
    nullable = {
        Nulls.STRICT: any(a.nullable for a in arguments),
        Nulls.OPTIONAL: True,
        Nulls.MAYBE: True,
        Nulls.NEVER: False,
    }[function.nulls]
    if function.shape is not None:
        shape = function.shape(arguments)
        return Call(function, arguments, replace(result, precision=None, scale=shape.scale), nullable, shape.precision)
    if result.name == "numeric" and function.result in POLYMORPHIC:
        elements = [a.type.element.precision or 0 if a.type.element is not None else precision(a) for a in arguments
                    if (a.type.element or a.type).name == "numeric"]  # fmt: skip
        return Call(function, arguments, result, nullable, elements[0] if len(elements) == 1 else 0)
    return Call(function, arguments, result, nullable)


def plain_types(types: tuple[PgType, ...]) -> tuple[PgType, ...]:
    """Removes the scale of numerics and the fields of rows, so that types are equal if their names are."""
    return tuple(with_dimensions(_PLAIN.get(type.name, type), type.dimensions) for type in types)


_PLAIN = {type.name: type for type in (NUMERIC, array_of(NUMERIC), RECORD, RECORD_ARRAY)}
