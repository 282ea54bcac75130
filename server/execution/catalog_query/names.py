"""Resolves names in a query over system relations: relations, registered objects (regclass etc.), session functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc
from sqlglot import exp

from catalog.objects.system_tables import SystemTable
from catalog.objects.types import EnumType
from catalog.pg_catalog import PgRelation
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import format_text
from protocol.pgwire.types import INET, INT4, TEXT, TIMESTAMPTZ, PgType, named_type
from server.execution.catalog_query.privilege_calls import privilege_of_columns
from server.execution.catalog_query.session_rows import catalog_rows
from server.pg_catalog import oids
from server.pg_catalog.rewrite import Names
from server.pg_catalog.rows import CatalogRows
from server.pg_catalog.static import BY_ID, types_by_name
from server.session_state.context import Context
from server.session_state.facts import fact
from server.session_state.setting_changes import reset_setting, set_setting
from server.settings.variables import checked_value
from server.sql.constant import FACTS, PRIVILEGE_FUNCTIONS
from server.sql.grammar.lexer import Kind, tokenize
from server.sql.sequence_names import name_parts
from server.sql.type_names import find_type


def names_of(context: Context, *, running: bool) -> Names:
    """Returns the name resolution of a session.

    `running` False: the query is only described, so settings and privileges are neither read nor changed.
    """
    state, database, path = context.state, context.settings["database"], context.search_path

    def relation(parts: tuple[str, ...]) -> tuple[SystemTable, PgRelation | None] | None:
        item = state.resolve(parts, database, path)
        return (item, BY_ID.get(item.id)) if isinstance(item, SystemTable) else None

    def session(name: str, arguments: Sequence[exp.Expr], constant: Constant) -> exp.Expr | None:
        return _session_value(context, name, arguments, constant, running=running)

    def privilege(name: str, arguments: Sequence[exp.Expr]) -> exp.Expr | None:
        return privilege_of_columns(context, name, arguments)

    return Names(relation, lambda kind, text: _registered(context, kind, text), session, privilege)


def _registered(context: Context, kind: str, text: str) -> int:
    """Returns the OID for the text of a registered type. PgError if the object does not exist."""
    if text.strip().isdigit():
        return int(text)
    if text.strip() == "-":
        return 0
    rows = catalog_rows(context)
    parts = [token.value for token in tokenize(text) if token.kind in (Kind.WORD, Kind.IDENT)]
    if not parts:
        raise PgError(SqlState.INVALID_NAME, "invalid name syntax")
    match kind:
        case "regclass":
            found = rows.visible.named(parts)
            if found is None:
                raise PgError(SqlState.UNDEFINED_TABLE, f'relation "{".".join(parts)}" does not exist')
            return found
        case "regtype":
            return _type_oid(context, text)
        case "regnamespace":
            schema = next((s for s in rows.visible.schemas if s.name == parts[-1]), None)
            if schema is None:
                raise PgError(SqlState.INVALID_SCHEMA_NAME, f'schema "{parts[-1]}" does not exist')
            return oids.oid_of(schema.id)
        case "regrole":
            role = next((r["oid"] for r in rows["pg_authid"].to_pylist() if r["rolname"] == parts[-1]), None)
            if role is None:
                raise PgError(SqlState.UNDEFINED_OBJECT, f'role "{parts[-1]}" does not exist')
            return int(role)
        case "regproc":
            return _function_oid(rows, parts[-1])
        case "regoperator" | "regoper":
            raise PgError(SqlState.UNDEFINED_FUNCTION, f"operator does not exist: {text}")
        case _:
            return _signature_oid(context, rows, text)


def _function_oid(rows: CatalogRows, name: str) -> int:
    found = [row["oid"] for row in rows["tw_functions"].to_pylist() if row["name"] == name]
    if not found:
        raise PgError(SqlState.UNDEFINED_FUNCTION, f'function "{name}" does not exist')
    if len(found) > 1:
        raise PgError(SqlState.AMBIGUOUS_FUNCTION, f'more than one function named "{name}"')
    return int(found[0])


def _signature_oid(context: Context, rows: CatalogRows, text: str) -> int:
    """The function with a name and types of arguments: `lower(text)`. 42704 for an unknown type."""
    name, parenthesis, rest = text.removeprefix("pg_catalog.").partition("(")
    listed = rest.strip().removesuffix(")").strip()
    if not parenthesis or not rest.rstrip().endswith(")"):
        raise PgError(SqlState.INVALID_TEXT_REPRESENTATION, "expected a left parenthesis")
    wanted = [_type_oid(context, type) for type in listed.split(",")] if listed else []
    functions = rows["pg_proc"].select(["oid", "proname", "proargtypes"])
    same_name = functions.filter(pc.equal(functions["proname"], name.strip().strip('"'))).to_pylist()
    found = next((int(row["oid"]) for row in same_name if row["proargtypes"] == wanted), None)
    if found is None:
        raise PgError(SqlState.UNDEFINED_FUNCTION, f'function "{text}" does not exist')
    return found


def _type_oid(context: Context, text: str) -> int:
    spelling = text.strip().removeprefix("pg_catalog.")
    row = types_by_name().get(spelling.strip('"'))
    if row is None and spelling.endswith("[]"):
        row = types_by_name().get(f"_{spelling[:-2]}")
    if row is not None:
        return int(row["oid"])
    try:
        return named_type(spelling).oid
    except ValueError:
        parts = name_parts(spelling.removesuffix("[]"))
        found = find_type(context.state, parts, context.settings["database"], context.search_path)
        is_array = spelling.endswith("[]")
        if found is None and parts[-1].startswith("_") and not is_array:  # the name of an array type in pg_type
            is_array = True
            name = (*parts[:-1], parts[-1][1:])
            found = find_type(context.state, name, context.settings["database"], context.search_path)
        if isinstance(found, EnumType):
            return oids.oid_of(found.array_id if is_array else found.id)
        if found is not None and not is_array:
            return oids.oid_of(found.id)
        raise PgError(SqlState.UNDEFINED_OBJECT, f'type "{spelling}" does not exist') from None


def _timestamptz(us: int) -> exp.Expr:
    text = datetime.fromtimestamp(us / 1_000_000, UTC).isoformat()
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build("TIMESTAMPTZ", dialect="duckdb"))


Constant = Callable[[exp.Expr], Any]


def _session_value(
    context: Context, name: str, arguments: Sequence[exp.Expr], constant: Constant, *, running: bool
) -> exp.Expr | None:
    """Returns the value of a session function as SQL; None if `name` is not a session function."""
    bindings = context.bindings()
    match name:
        case "current_database" | "current_catalog":
            return _text(bindings.database)
        case "current_schema":
            return _text(bindings.schema)
        case "current_user" | "user" | "session_user" | "current_role":
            return _text(bindings.session_user if name == "session_user" else bindings.user)
        case "version":
            return _text(bindings.version)
        case "pg_backend_pid":
            return exp.Literal.number(bindings.backend_pid)
        case "pg_postmaster_start_time":
            return _timestamptz(bindings.started_us)
        case _ if name in FACTS and not arguments:
            value = fact(context, name) if running else None
            return _literal(value, FACTS[name])
        case "pg_listening_channels" if not arguments:
            channels = [exp.Literal.string(channel) for channel in context.listening.channels if running]
            texts = exp.Cast(this=exp.Array(expressions=channels), to=exp.DataType.build("VARCHAR[]", dialect="duckdb"))
            return exp.Anonymous(this="unnest", expressions=[texts])
        case "current_schemas":
            rows = catalog_rows(context)
            implicit = isinstance(arguments[0], exp.Boolean) and arguments[0].this
            named = [s.name for s in rows.visible.path if implicit or s.name in context.search_path]
            return exp.Array(expressions=[exp.Literal.string(n) for n in named])
        case "now" | "current_timestamp" | "transaction_timestamp" | "statement_timestamp" | "clock_timestamp":
            # Planning always has the same time: otherwise each plan would be another query, whose columns are unknown.
            us = {"statement_timestamp": bindings.statement_us, "clock_timestamp": bindings.clock_us}
            return _timestamptz(us.get(name, bindings.now_us) if running else 0)
        case "current_setting" if not any(isinstance(argument, exp.Column) for argument in arguments):
            values = [constant(argument) for argument in arguments]
            return _text(_setting(context, values) if running else "")
        case "set_config":
            return _text(_set_config(context, [constant(argument) for argument in arguments], running=running))
        case _ if name in PRIVILEGE_FUNCTIONS and all(map(_is_constant, arguments)):
            return _privilege(context, name, [constant(argument) for argument in arguments], running=running)
        case _:
            return None


def _is_constant(tree: exp.Expr) -> bool:
    """Whether it is a text or a parameter. A number is an OID, which is looked up like a column."""
    return isinstance(tree, exp.Parameter) or (isinstance(tree, exp.Literal) and tree.is_string)


def _privilege(context: Context, name: str, arguments: Sequence[Any], *, running: bool) -> exp.Expr:
    """The value of has_table_privilege or a similar function with constant arguments."""
    evaluate = context.bindings().privilege_function
    found = evaluate(name, arguments) if running and evaluate is not None else None
    return exp.Cast(this=exp.Null() if found is None else exp.Boolean(this=found), to=exp.DataType.build("BOOLEAN"))


def _literal(value: Any, type: PgType) -> exp.Expr:
    """The value of a session function of this type."""
    if type is TEXT:
        return _text(value)
    if type is INET:
        return _text(None if value is None else format_text(type, value))
    if type is TIMESTAMPTZ:
        return exp.cast(exp.Null(), exp.DType.TIMESTAMPTZ) if value is None else _timestamptz(value)
    number = exp.Null() if value is None else exp.Literal.number(value)
    return exp.Cast(this=number, to=exp.DataType.build("INTEGER" if type is INT4 else "BIGINT", dialect="duckdb"))


def _text(value: str | None) -> exp.Expr:
    if value is None:
        return exp.Cast(this=exp.Null(), to=exp.DataType.build("VARCHAR", dialect="duckdb"))
    return exp.Literal.string(value)


def _setting(context: Context, arguments: Sequence[Any]) -> str | None:
    if None in arguments:
        return None
    name = str(arguments[0])
    value: str | None = context.settings.get(name)
    if value is None and not (len(arguments) > 1 and arguments[1]):
        context.settings[name]  # raises
    return value


def _set_config(context: Context, arguments: Sequence[Any], *, running: bool) -> str | None:
    if len(arguments) != 3:
        raise PgError(SqlState.UNDEFINED_FUNCTION, "function set_config takes three arguments")
    name, value, local = arguments
    if not running:
        return ""
    if name is None:
        raise PgError(SqlState.NULL_VALUE_NOT_ALLOWED, "SET requires parameter name")
    if value is None:
        reset_setting(context, str(name), local=bool(local))
    elif context.transaction.explicit or not local:
        set_setting(context, str(name), str(value), local=bool(local))
    else:
        return checked_value(str(name), str(value))  # it would last until the end of this statement
    return context.settings[str(name)]
