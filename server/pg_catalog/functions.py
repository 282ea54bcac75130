"""The rows of pg_proc, pg_operator and pg_cast, and of the helper table for functions such as pg_get_functiondef."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.pgwire.errors import PgError
from protocol.pgwire.types import scalar
from server.pg_catalog import oids
from server.pg_catalog.static import Row, static_rows, type_text, types_by_name
from server.pg_catalog.visible import Visible
from server.sql.casts import find_cast
from server.sql.functions import aggregates as _rows_of_the_function_table  # noqa: F401
from server.sql.functions.resolve import resolve_operator
from server.sql.functions.table import FUNCTIONS, OPERATORS, Function, Kind
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


def operators(_: Visible) -> Iterator[Row]:
    """pg_operator: those of PostgreSQL's operators that queries can use."""
    names = {row["oid"]: row["typname"] for row in static_rows("pg_type")} | {0: None}
    for row in static_rows("pg_operator"):
        operands = [names[row[side]] for side in ("oprleft", "oprright") if row[side]]
        if _has_operator(row["oprname"], operands):
            yield row


def _has_operator(name: str, operands: list[str]) -> bool:
    if any([type.name for type in function.arguments] == operands for function in OPERATORS.get(name, ())):
        return True
    try:
        types = tuple(scalar("int4" if operand == "anynonarray" else operand) for operand in operands)
        return resolve_operator(name, types) is not None
    except (PgError, KeyError):
        return False  # there is none, or a type is not one of values


def casts(_: Visible) -> Iterator[Row]:
    """pg_cast: those of PostgreSQL's casts that queries can use."""
    names = {row["oid"]: row["typname"] for row in static_rows("pg_type")}
    for row in static_rows("pg_cast"):
        if find_cast(scalar(names[row["castsource"]]), scalar(names[row["casttarget"]])) is not None:
            yield row


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
