"""JSON_OBJECT(key: value, ...) and JSON_ARRAY(value, ...) with their clauses, and JSON_ARRAY(query)."""

from __future__ import annotations

from protocol.pgwire.types import JSON, JSONB
from server.sql.bind.arrays import aggregate_of_query
from server.sql.bind.binder import Binder, form
from server.sql.bind.calls import applied
from server.sql.expressions import Expression
from server.sql.functions.resolve import Resolved
from server.sql.functions.table import ANY, GRAMMAR
from server.sql.grammar.json_constructors import JsonConstructor
from server.sql.scope import Scope


@form(JsonConstructor)
def json_constructor(binder: Binder, tree: JsonConstructor, scope: Scope) -> Expression:
    """JSON_OBJECT and JSON_ARRAY."""
    result = JSONB if tree.args["binary"] else JSON
    query = tree.args.get("query")
    if query is not None:
        return aggregate_of_query(binder, query, f"{result.name}_agg_strict", scope, tree)
    bound = [binder.expression(argument, scope) for argument in tree.expressions]
    clauses = [word for word in ("absent", "unique") if tree.args[word]]
    (function,) = GRAMMAR[" ".join([result.name, tree.this, *clauses])]
    return applied(binder, Resolved(function, (ANY,) * len(bound), result), bound, tree)
