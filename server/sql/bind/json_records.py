"""Rows from the members of JSON objects: json_to_record(), json_populate_record(), and their forms for sets and jsonb.

json_to_record() has a column definition list. The first argument of json_populate_record() is NULL::relation.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, INT4, RECORD, TEXT, PgType, parse_type, row_type
from server.sql.bind.binder import Binder
from server.sql.bind.calls import applied, call_of, operator, set_array
from server.sql.bind.casts import type_of
from server.sql.bind.from_item import FromItem
from server.sql.bind.shapes import function_name, unparenthesised
from server.sql.coerce import ASSIGNMENT, EXPLICIT
from server.sql.expressions import Call, Case, Column, ColumnRef, Expression, Literal
from server.sql.functions import syntax
from server.sql.functions.json import ARRAY_TEXT
from server.sql.functions.records import ROW
from server.sql.functions.resolve import Resolved, no_such
from server.sql.functions.table import ANY
from server.sql.relations import Project, Unnest, Values
from server.sql.scope import Entry, Scope, find_relation

POPULATE_RECORD = ("json_populate_record", "jsonb_populate_record")
_POPULATE = (*POPULATE_RECORD, "json_populate_recordset", "jsonb_populate_recordset")
RECORD_FUNCTIONS = ("json_to_record", "jsonb_to_record", "json_to_recordset", "jsonb_to_recordset", *_POPULATE)


def json_records(binder: Binder, call: exp.Expr, definitions: Sequence[exp.Expr], alias: str, scope: Scope) -> FromItem:
    """The rows of a function of RECORD_FUNCTIONS in FROM. Each column is converted from a member.

    `definitions`: the column definition list, or the column names of the alias.
    """
    name = function_name(call)
    is_typed = [isinstance(definition, exp.ColumnDef) for definition in definitions]
    if name in _POPULATE:
        if any(is_typed):
            message = "a column definition list is redundant for a function returning a named composite type"
            raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(call))
        fields, arguments = _fields_of_base(binder, call)
    elif not definitions or not all(is_typed):
        message = 'a column definition list is required for functions returning "record"'
        raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(call))
    else:
        fields = [(definition.name, type_of(binder, definition.args["kind"])) for definition in definitions]
        arguments = call.expressions
    array = set_array(binder, name, name, [binder.expression(a, scope) for a in arguments], call)
    element = array.type.element
    assert element is not None
    value = Column(binder.new_id(), "value", element, True)
    rows = Unnest(Values((), ((),)), (array,), (value,), outer=not name.endswith("set"))
    cells = [_member(binder, ColumnRef(value), *field, call) for field in fields]
    names = [*(definition.name for definition in definitions), *(name for name, _ in fields[len(definitions) :])]
    columns = tuple(binder.new_column(n, cell) for n, cell in zip(names, cells, strict=True))
    entries = [Entry(n, ColumnRef(column), alias) for n, column in zip(names, columns, strict=True)]
    return FromItem(Project(rows, columns, tuple(cells)), entries, True)


def populated_record(binder: Binder, call: exp.Anonymous, scope: Scope) -> Expression:
    """json_populate_record(NULL::relation, json) as a row; NULL if the JSON is."""
    name = function_name(call)
    fields, arguments = _fields_of_base(binder, call)
    array = set_array(binder, name, name, [binder.expression(a, scope) for a in arguments], call)
    element = array.type.element
    assert element is not None
    value = Call(syntax.SUBSCRIPT, (array, Literal(1, INT4)), element, True)
    cells = [_member(binder, value, *field, call) for field in fields]
    row = applied(binder, Resolved(ROW, (ANY,) * len(cells), RECORD), cells, call)
    type = row_type([name for name, _ in fields], [cell.type for cell in row.arguments])
    absent = Call(syntax.IS_NULL, (array,), BOOL, False)
    return Case(((absent, Literal(None, type)),), Call(ROW, row.arguments, type, False), type)


def _fields_of_base(binder: Binder, call: exp.Expr) -> tuple[list[tuple[str, PgType]], list[exp.Expr]]:
    """The columns of the relation in NULL::relation, the first argument; the other arguments. 42883, 42704, 0A000."""
    arguments = list(call.expressions)
    base = unparenthesised(arguments[0]) if arguments else None
    target = base.args.get("to") if isinstance(base, exp.Cast) else None
    kind = target.args.get("kind") if isinstance(target, exp.DataType) else None
    if not isinstance(base, exp.Cast) or not isinstance(kind, exp.Expr) or len(arguments) != 2:
        name = function_name(call)
        if len(arguments) != 2:
            raise no_such("function", f"{name}(...)", len(arguments), binder.at(call))
        hint = "Write NULL::relation, or use json_to_record() with a column definition list."
        raise binder.unsupported(f"{name}() whose first argument is not NULL::relation", call, hint=hint)
    if not isinstance(unparenthesised(base.this), exp.Null):
        raise binder.unsupported("a row with values as the first argument of this function", call, hint="Write NULL.")
    if not binder.takes_parameters:
        hint = "Use json_to_record() with a column definition list."
        raise binder.unsupported(f"{function_name(call)}() in the definition of an object", call, hint=hint)
    parts = kind.meta.get("parts") or (kind.name,)
    context = binder.context
    try:
        relation = find_relation(context.state, tuple(parts), context.database, context.search_path, binder.at(base))
    except PgError as error:
        if error.sqlstate is not SqlState.UNDEFINED_TABLE:
            raise
        message = f'type "{".".join(parts)}" does not exist'
        raise PgError(SqlState.UNDEFINED_OBJECT, message, position=binder.at(base)) from None
    return [(column.name, parse_type(column.type)) for column in relation.columns], arguments[1:]


def _member(binder: Binder, value: Expression, name: str, type: PgType, call: exp.Expr) -> Expression:
    """The member of the column's name as the column's type. A member that does not exist is NULL."""
    key = Literal(name, TEXT)
    if type.name in ("json", "jsonb"):
        return binder.coerce(operator(binder, "->", [value, key], call), type, EXPLICIT)
    if type.element is not None:
        member = operator(binder, "->", [value, key], call)
        text: Expression = call_of(ARRAY_TEXT, (binder.coerce(member, TEXT, EXPLICIT),), TEXT)
    else:
        text = operator(binder, "->>", [value, key], call)
    return binder.coerce(binder.coerce(text, type.without_modifiers, EXPLICIT), type, ASSIGNMENT)
