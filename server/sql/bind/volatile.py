"""Volatile functions, currval() and lastval()."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from catalog.objects.sequences import Sequence as SequenceItem
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import BOOL, INT8, TEXT
from server.sql.bind.binder import Binder, Replacement
from server.sql.expressions import Column, ColumnRef, Expression, Literal, SessionValue, Subquery, Volatile, walk
from server.sql.functions.resolve import no_such
from server.sql.grammar.lexer import quote_identifier
from server.sql.relations import Values
from server.sql.scope import Scope, find_relation
from server.sql.sequence_names import by_id, find_sequence, name_parts
from server.sql.volatile import SEQUENCE_FUNCTIONS, VOLATILE, unplaced

_SAME = {"uuid_generate_v4": "gen_random_uuid"}
"""A function of the extension uuid-ossp, which ORMs use as a default, and the built-in one that is equal to it."""
NAMES = (*VOLATILE, *_SAME, "currval", "lastval")
SEQUENCE_ROW = (INT8, INT8, BOOL)
"""The types of the columns of a sequence."""


def volatile(binder: Binder, name: str, arguments: Sequence[exp.Expr], scope: Scope, tree: exp.Expr) -> Expression:
    """A call of a function of NAMES. 42883, 42P01, 42809; 0A000 in a maintained query."""
    if binder.maintained:
        raise PgError(
            SqlState.FEATURE_NOT_SUPPORTED,
            f"cannot materialize call to {name}()",
            hint="Its value would differ each time the query is computed. Store the value in a column of a table, "
            "for example as its default.",
            position=binder.at(tree),
        )
    if name == "lastval" and not arguments:
        return SessionValue(name, INT8)
    name = _SAME.get(name, name)
    sequence = _sequence(binder, name, arguments)
    rest = list(arguments[1:] if sequence is not None else arguments)
    bound = [binder.expression(argument, scope) for argument in rest]
    if name == "currval" and len(arguments) == 1:
        return _currval(binder, sequence, bound, tree)
    forms = VOLATILE.get(name, (INT8, ()))[1]
    given = tuple(bound) if sequence is None else (Literal(f"{sequence.name}", TEXT), *bound)
    types = next((form for form in forms if len(form) == len(given)), None)
    if types is None:
        shown = f"{name}({', '.join(a.type.base_display for a in given)})"
        raise no_such("function", shown, len(given), binder.at(tree))
    values = tuple(binder.coerce(a, to) for a, to in zip(given, types, strict=True))
    if sequence is not None:
        values = values[1:]
    if any(isinstance(node, Volatile) for value in values for node in walk(value)):
        raise unplaced(name, binder.at(tree))
    id = sequence.id if sequence is not None else None
    binder.volatile_calls.append(name)
    return Volatile(name, values, VOLATILE[name][0], binder.new_id(), id, binder.implied_calls)


def serial_sequence(binder: Binder, arguments: Sequence[exp.Expr], tree: exp.Expr) -> Expression:
    """pg_get_serial_sequence(table, column) of constants. 42P01, 42703; 0A000 for other arguments."""
    if not all(isinstance(argument, exp.Literal) and argument.is_string for argument in arguments):
        raise binder.unsupported(
            "pg_get_serial_sequence() of columns or parameters here",
            tree,
            hint="Pass literals: pg_get_serial_sequence('table', 'column').",
        )
    context, (name, column) = binder.context, (argument.this for argument in arguments)
    state = context.state
    table = find_relation(state, name_parts(name), context.database, context.search_path, binder.at(tree))
    if all(known.name != column for known in table.columns):
        message = f'column "{column}" of relation "{table.name}" does not exist'
        raise PgError(SqlState.UNDEFINED_COLUMN, message)
    for sequence in state.items_of(SequenceItem):
        if sequence.owner_table == table.id and sequence.owner_column == column:
            schema = state.schemas[sequence.schema_id].name
            return Literal(f"{quote_identifier(schema)}.{quote_identifier(sequence.name)}", TEXT)
    return Literal(None, TEXT)


def _currval(binder: Binder, sequence: SequenceItem | None, bound: list[Expression], tree: exp.Expr) -> Expression:
    named = Literal(by_id(sequence.id)[1:-1], TEXT) if sequence is not None else binder.coerce(bound[0], TEXT)
    if any(isinstance(node, ColumnRef | Subquery | Volatile) for node in walk(named)):
        raise unplaced("currval", binder.at(tree))
    return SessionValue("currval", INT8, named)


def _sequence(binder: Binder, name: str, arguments: Sequence[exp.Expr]) -> SequenceItem | None:
    """The sequence that a literal as the first argument names; None if it is no literal. The stored text has its id."""
    if name not in SEQUENCE_FUNCTIONS or not arguments:
        return None
    literal = arguments[0]
    while isinstance(literal, exp.Cast | exp.Paren):
        literal = literal.this
    if not isinstance(literal, exp.Literal) or not literal.is_string:
        return None
    context = binder.context
    sequence = find_sequence(context.state, literal.this, context.database, context.search_path, binder.at(literal))
    binder.sequences.add(sequence.id)
    if not binder.inside_view and "start" in literal.meta:
        start, end = literal.meta["start"], literal.meta["end"] + 1
        binder.replacements.append(Replacement(start, end, by_id(sequence.id)))
    return sequence


def sequence_row(binder: Binder, sequence: SequenceItem) -> Values:
    """The only row of a sequence in FROM."""
    if binder.maintained:
        message = f'cannot materialize a query of sequence "{sequence.name}"'
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, message, hint="Read the sequence in a query of its own.")
    columns, cells = [], []
    for column, type in zip(sequence.columns, SEQUENCE_ROW, strict=True):
        columns.append(Column(binder.new_id(), column.name, type, False))
        cells.append(SessionValue(column.name, type, Literal(sequence.id, TEXT)))
    return Values(tuple(columns), (tuple(cells),))
