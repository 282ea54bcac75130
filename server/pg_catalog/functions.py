"""The rows of pg_proc, and of the helper table for functions such as pg_get_functiondef."""

from __future__ import annotations

from collections.abc import Iterator

from server.pg_catalog import oids
from server.pg_catalog.static import Row, static_rows, type_text, types_by_name
from server.pg_catalog.visible import Visible
from server.sql.functions import aggregates as _rows_of_the_function_table  # noqa: F401
from server.sql.functions.table import FUNCTIONS, Function, Kind
from server.sql.grammar.lexer import quote_identifier


def functions(_: Visible) -> Iterator[Row]:
    """pg_proc: the static rows that other system rows refer to, and the functions of the function table."""
    yield from static_rows("pg_proc")
    for same_name in FUNCTIONS.values():
        for function in same_name:
            row = _function(function)
            if row is not None:
                yield row


def _function(function: Function) -> Row | None:
    """Returns the row of a function; None if an argument or the result has a type without a row in pg_type."""
    types = types_by_name()
    names = [type.name for type in (*function.arguments, function.result)]
    if any(name not in types for name in names):
        return None
    *arguments, result = (types[name]["oid"] for name in names)
    return {
        "oid": oids.function_oid(str(function)),
        "proname": function.name,
        "pronamespace": oids.PG_CATALOG,
        "proowner": oids.OWNER,
        "prolang": 12,
        "procost": 1.0,
        "prorows": 0.0,
        "provariadic": arguments[-1] if function.variadic and arguments else 0,
        "prosupport": 0,
        "prokind": {Kind.SCALAR: "f", Kind.AGGREGATE: "a", Kind.WINDOW: "w"}[function.kind],
        "prosecdef": False,
        "proleakproof": False,
        "proisstrict": True,
        "proretset": False,
        "provolatile": "i",
        "proparallel": "s",
        "pronargs": len(arguments),
        "pronargdefaults": 0,
        "prorettype": result,
        "proargtypes": arguments,
        "prosrc": function.name,
    }


def function_texts(visible: Visible) -> Iterator[Row]:
    """tw_functions: the results of pg_get_functiondef and similar functions."""
    for row in functions(visible):
        texts = [type_text(type) for type in row["proargtypes"]]
        result = type_text(row["prorettype"])
        yield {
            "oid": row["oid"],
            "name": row["proname"],
            "arguments": ", ".join(texts),
            "result": result,
            "definition": f"CREATE OR REPLACE FUNCTION pg_catalog.{quote_identifier(row['proname'])}"
            f"({', '.join(texts)})\n RETURNS {result}\n LANGUAGE internal\n IMMUTABLE PARALLEL SAFE STRICT\n"
            f"AS $function${row['proname']}$function$\n",
        }
