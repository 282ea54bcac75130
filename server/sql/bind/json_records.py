"""json_to_record(), json_to_recordset() and their forms for jsonb, with a column definition list."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import TEXT
from server.sql.bind.binder import Binder
from server.sql.bind.calls import call_of, operator, set_array
from server.sql.bind.casts import type_of
from server.sql.bind.from_item import FromItem
from server.sql.bind.shapes import function_name
from server.sql.coerce import EXPLICIT
from server.sql.expressions import Column, ColumnRef, Expression, Literal
from server.sql.functions.json import ARRAY_TEXT
from server.sql.relations import Project, Unnest, Values
from server.sql.scope import Entry, Scope

RECORD_FUNCTIONS = ("json_to_record", "jsonb_to_record", "json_to_recordset", "jsonb_to_recordset")


def json_records(
    binder: Binder, call: exp.Anonymous, definitions: Sequence[exp.Expr], alias: str, scope: Scope
) -> FromItem:
    """The rows of a function of RECORD_FUNCTIONS in FROM: a column for each definition, converted from a member."""
    name = function_name(call)
    if not definitions or not all(isinstance(d, exp.ColumnDef) for d in definitions):
        message = 'a column definition list is required for functions returning "record"'
        raise PgError(SqlState.SYNTAX_ERROR, message, position=binder.at(call))
    array = set_array(binder, name, name, [binder.expression(a, scope) for a in call.expressions], call)
    element = array.type.element
    assert element is not None
    value = Column(binder.new_id(), "value", element, True)
    rows = Unnest(Values((), ((),)), (array,), (value,))
    cells = [_member(binder, value, definition, call) for definition in definitions]
    names = [definition.name for definition in definitions]
    columns = tuple(binder.new_column(n, cell) for n, cell in zip(names, cells, strict=True))
    entries = [Entry(n, ColumnRef(column), alias) for n, column in zip(names, columns, strict=True)]
    return FromItem(Project(rows, columns, tuple(cells)), entries, True)


def _member(binder: Binder, value: Column, definition: exp.Expr, call: exp.Anonymous) -> Expression:
    """The member of the column's name as the column's type. A member that does not exist is NULL."""
    type = type_of(binder, definition.args["kind"])
    key = Literal(definition.name, TEXT)
    if type.name in ("json", "jsonb"):
        return binder.coerce(operator(binder, "->", [ColumnRef(value), key], call), type, EXPLICIT)
    if type.element is not None:
        member = operator(binder, "->", [ColumnRef(value), key], call)
        return binder.coerce(call_of(ARRAY_TEXT, (binder.coerce(member, TEXT, EXPLICIT),), TEXT), type, EXPLICIT)
    return binder.coerce(operator(binder, "->>", [ColumnRef(value), key], call), type, EXPLICIT)
