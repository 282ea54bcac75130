"""Functions in FROM, and set-returning functions in a select list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import INT4, INT8, UNKNOWN, VOID, array_of
from server.sql import expressions as ex
from server.sql.bind.binder import Binder
from server.sql.bind.calls import flat, set_array
from server.sql.bind.from_item import FromItem, alias_columns, check_width, column_aliases
from server.sql.bind.json_records import RECORD_FUNCTIONS, json_records
from server.sql.bind.output_names import output_name
from server.sql.bind.session import SESSION_NAMES
from server.sql.bind.shapes import function_name, unparenthesised
from server.sql.coerce import INT8_MAX
from server.sql.expressions import Column, ColumnRef, Expression, Literal, walk
from server.sql.functions import resolve
from server.sql.functions.sets import SETS
from server.sql.functions.table import INTEGERS
from server.sql.relations import Project, Relation, Series, Unnest, Values
from server.sql.scope import Entry, Scope
from server.sql.waiting import WAITING

_WORDS = {name: function for function, name in SESSION_NAMES.items()}

# What to do instead of RisingWave's functions of a table, its column and intervals.
_WINDOWS = {
    "hop": "Join the table with generate_series(), and subtract multiples of the step from date_bin().",
    "tumble": "GROUP BY date_bin(size, column, origin) makes windows of this size.",
}


def special_call(tree: exp.Table) -> exp.Expr | None:
    """The function of special syntax that an item of FROM is, such as current_date or CAST(...). None of others."""
    match tree.this:
        case exp.Identifier(quoted=False) as word if not tree.args.get("db"):
            function = _WORDS.get(word.name)
            return None if function is None else function()
        case exp.Func() as call:
            return call
    return None


def functions_in_from(binder: Binder, calls: Sequence[exp.Expr], tree: exp.Expr, scope: Scope) -> FromItem:
    """Functions in FROM: one alone, or several in parallel by ROWS FROM."""
    inner = Scope(
        scope.entries, scope.parent, scope.common_tables, "functions in FROM", hidden=scope.hidden, level=scope.level
    )
    offset = calls[0].args.get("offset") if len(calls) == 1 else None
    ordinality = bool(tree.args.get("ordinality") or offset)
    name = _called(calls[0])
    if name in _WINDOWS:
        raise binder.unsupported(f"{name.upper()} in FROM", tree, hint=_WINDOWS[name])
    alias = tree.alias or name
    if len(calls) == 1 and name in RECORD_FUNCTIONS:
        if ordinality:
            raise binder.unsupported(
                "WITH ORDINALITY with a column definition list",
                tree,
                hint="Number the rows with row_number() OVER () in an outer query.",
            )
        return json_records(binder, calls[0], alias_columns(tree), alias, inner)
    is_alone = len(calls) == 1 and not ordinality
    constant = (_series(binder, calls[0], inner) or _effect(binder, calls[0], inner)) if is_alone else None
    if constant is not None:
        relation: Relation = constant
    else:
        found = [
            column
            for call in calls
            for column in _set_columns(binder, call, inner, alias if len(calls) == 1 else _called(call))
        ]
        columns = [_element(binder, name, array) for name, array in found]
        if ordinality:
            columns.append(binder.new_column("ordinality", Literal(1, INT8)))
        arrays = tuple(array for _, array in found)
        relation = Unnest(Values((), ((),)), arrays, tuple(columns), ordinality)
    names = column_aliases(tree) + ([offset.name] if isinstance(offset, exp.Identifier) else [])
    if any(isinstance(c, exp.ColumnDef) for c in alias_columns(tree)):
        raise binder.unsupported(
            "a column definition list",
            tree,
            hint="Only json_to_record() and the like have one. Cast the columns in the select list.",
        )
    if len(names) > len(relation.columns):
        check_width(binder, relation, "table", alias, names, tree)
    if not names and len(calls) == 1 and len(relation.columns) == 1 + ordinality and tree.alias:
        first = relation.columns[0]
        names = [tree.alias] if first.name in (name, alias) else []
    shown = names + [column.name for column in relation.columns[len(names) :]]
    entries = [Entry(n, ColumnRef(c), alias) for n, c in zip(shown, relation.columns, strict=True)]
    if len(entries) == 1 and entries[0].name != alias:  # as a whole row, the alias denotes the single column's value
        entries.append(replace(entries[0], name=alias, is_row=True))
    return FromItem(relation, entries, True)


def _effect(binder: Binder, tree: exp.Expr, scope: Scope) -> Relation | None:
    """The row of a function that waits, or has another effect than its result, such as pg_sleep(). None of others."""
    if not isinstance(tree, exp.Anonymous) or function_name(tree) not in {*WAITING, "setseed"}:
        return None
    value = binder.expression(tree, scope)
    return Project(Values((), ((),)), (binder.new_column(function_name(tree), value),), (value,))


def _element(binder: Binder, name: str, array: Expression) -> Column:
    """The column of an array's elements."""
    element = array.type.element
    assert element is not None
    column = binder.new_column(name, Literal(None, element))
    return replace(column, precision=(element.precision or 38) if element.name == "numeric" else 0)


def _set_columns(binder: Binder, tree: exp.Expr, scope: Scope, alias: str) -> list[tuple[str, Expression]]:
    """The columns of a function's result: names, and values as arrays."""
    name = _called(tree)
    if name == "unnest":
        arrays = [binder.expression(a, scope) for a in tree.expressions]
        for array in arrays:
            if array.type.element is None:
                shown = f"unnest({', '.join(a.type.base_display for a in arrays)})"
                if array.type == UNKNOWN:
                    message = f"function {shown} is not unique"
                    hint = "Could not choose a best candidate function. You might need to add explicit type casts."
                    raise PgError(SqlState.AMBIGUOUS_FUNCTION, message, hint=hint, position=binder.at(tree))
                raise resolve.no_such("function", shown, len(arrays), binder.at(tree))
        if not arrays:
            raise resolve.no_such("function", "unnest()", 0, binder.at(tree))
        return [(alias if len(arrays) == 1 else "unnest", flat(array)) for array in arrays]
    known = SETS.get(name)
    if known is None:
        value = binder.default_unknown(binder.expression(tree, scope))
        if value.type.element is not None:
            raise binder.unsupported(
                f"{name} in FROM", tree, hint="Write unnest(...) for its elements, or call it in a select list."
            )
        if value.type.name == "record":
            raise binder.unsupported(
                "a function in FROM that returns a record", tree, hint="Call it in a select list, and name the fields."
            )
        if value.type == VOID:
            hint = "Call it in a select list, or alone in FROM."
            raise binder.unsupported(f"{name} in FROM WITH ORDINALITY or ROWS FROM", tree, hint=hint)
        return [(alias, ex.Array((value,), array_of(value.type)))]
    bound = [binder.expression(a, scope) for a in tree.expressions]
    if any(isinstance(a, exp.Star) for a in tree.expressions):
        raise resolve.no_such("function", f"{name}()", 0, binder.at(tree))
    columns = zip(known.columns, known.arrays, strict=True)
    return [(column or alias, set_array(binder, name, array, bound, tree)) for column, array in columns]


def set_returning(binder: Binder, tree: exp.Anonymous, scope: Scope, field: str | None = None) -> Expression:
    """A set-returning function in a select list: the column of its rows, or the one named `field`. 0A000 elsewhere."""
    if scope.sets is None:
        where = scope.clause or "this context"
        message = f"set-returning functions are not allowed in {where}"
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, position=binder.at(tree))
    name = function_name(tree)
    found = _set_columns(binder, tree, scope, name)
    if field is not None:
        found = [pair for pair in found if pair[0] == field]
        if not found:
            message = f'could not identify column "{field}" in record data type'
            raise PgError(SqlState.UNDEFINED_COLUMN, message, position=binder.at(tree))
    if len(found) > 1:
        raise binder.unsupported(f"{name}() as a row", tree, hint=f"Call it in FROM, or write ({name}(...)).*.")
    ((_, array),) = found
    nested = {column.id for column, _ in scope.sets}
    if any(isinstance(n, ColumnRef) and n.column.id in nested for n in walk(array)):
        raise binder.unsupported(
            "a set-returning function inside another",
            tree,
            hint="Call the inner function in FROM, and the outer one in LATERAL after it.",
        )
    column = _element(binder, field or name, array)
    scope.sets.append((column, array))
    return ColumnRef(column)


def _series(binder: Binder, tree: exp.Expr, scope: Scope) -> Series | None:
    """generate_series of integers that do not depend on rows: Spark generates them without an array. Else None."""
    if not isinstance(tree, exp.Anonymous) or function_name(tree) != "generate_series":
        return None
    if not all(isinstance(unparenthesised(a), (exp.Literal, exp.Neg, exp.Parameter)) for a in tree.expressions):
        return None
    arguments = [binder.expression(a, scope) for a in tree.expressions]
    if len(arguments) not in (2, 3) or any(a.type.name not in INTEGERS for a in arguments):
        return None
    type = INT8 if any(a.type == INT8 for a in arguments) else INT4
    bounds = [binder.coerce(a, type) for a in arguments]
    step = bounds[2] if len(bounds) == 3 else Literal(1, type)
    if isinstance(step, Literal) and step.value == 0:
        raise PgError(SqlState.INVALID_PARAMETER_VALUE, "step size cannot equal zero")
    if not isinstance(step, Literal) or any(isinstance(b, Literal) and abs(b.value) >= INT8_MAX for b in bounds):
        return None  # Spark's range() needs an exclusive bound, which would overflow
    return Series((Column(binder.new_id(), "generate_series", type, False),), bounds[0], bounds[1], step)


def _called(tree: exp.Expr) -> str:
    """The name of a function in FROM."""
    return "unnest" if isinstance(tree, exp.Unnest) else output_name(tree)
