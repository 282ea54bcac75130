"""JSON_OBJECT(key: value, ...) and JSON_ARRAY(value, ...) with their clauses, and JSON_ARRAY(query)."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import JSON, JSONB, UNKNOWN, PgType
from server.sql.bind.arrays import aggregate_of_query
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import applied
from server.sql.coerce import EXPLICIT
from server.sql.expressions import Expression
from server.sql.functions.resolve import Resolved
from server.sql.functions.table import ANY, GRAMMAR
from server.sql.grammar.json_constructors import JsonAggregate, JsonConstructor, JsonFormat
from server.sql.scope import Scope


@form(JsonConstructor)
def json_constructor(binder: Binder, tree: JsonConstructor, scope: Scope) -> Expression:
    """JSON_OBJECT and JSON_ARRAY."""
    query = tree.args.get("query")
    if query is not None:
        return aggregate_of_query(
            binder, query, lambda column: f"{_result(tree, [column]).name}_agg_strict", scope, tree
        )
    bound = [binder.expression(argument, scope) for argument in tree.expressions]
    result = _result(tree, [argument.type for argument in bound])
    clauses = [word for word in ("absent", "unique") if tree.args[word]]
    (function,) = GRAMMAR[" ".join([result.name, tree.this, *clauses])]
    return applied(binder, Resolved(function, (ANY,) * len(bound), result), bound, tree)


@form(JsonFormat)
def json_format(binder: Binder, tree: JsonFormat, scope: Scope) -> Expression:
    """value FORMAT JSON: a text that is JSON. 42804 for a value of another type."""
    value = binder.expression(tree.this, scope)
    if value.type in (JSON, JSONB):
        return value
    if not (value.type == UNKNOWN or value.type.is_string_family):
        message = "cannot use non-string types with explicit FORMAT JSON clause"
        raise PgError(SqlState.DATATYPE_MISMATCH, message, position=binder.at(tree))
    return binder.coerce(value, JSON, EXPLICIT)


def name_of_aggregate(tree: JsonAggregate, arguments: Sequence[Expression]) -> str:
    """The aggregate that JSON_OBJECTAGG or JSON_ARRAYAGG calls."""
    name = str(tree.this)
    return name.replace("json", _result(tree, [argument.type for argument in arguments]).name, 1)


def _result(tree: JsonConstructor | JsonAggregate, types: Sequence[PgType]) -> PgType:
    """Without RETURNING, jsonb if an argument is one."""
    returned = tree.args["returned"] or ("jsonb" if JSONB in types else "json")
    return JSONB if returned == "jsonb" else JSON
