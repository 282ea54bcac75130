"""A SELECT over system relations alone: recognised, planned, run in the catalog engine."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from catalog import builtin
from catalog.objects import SystemTable
from catalog.pg_catalog import PgRelation
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.types import JSON, OID, TEXT, PgType, array_of, numeric, parse_type
from server.context import Context
from server.pg_catalog import oids
from server.pg_catalog.database import SCHEMAS, Database, named_in
from server.pg_catalog.outputs import Output
from server.pg_catalog.rewrite import CATALOG_TYPES, Names, Rewritten, rewritten, type_name, wire_type
from server.pg_catalog.rows import (
    BY_NAME,
    HELPERS,
    CatalogRows,
    Viewpoint,
    helper_schema,
    schema_of,
    settings_rows,
    types_by_name,
)
from server.results import Result, TableRows
from server.sql.functions.table import FUNCTIONS
from server.sql.lexer import Kind, tokenize, words
from server.sql.plan import Field
from server.sql.statements import Select

_PG_SCHEMAS = frozenset(schema.id for schema in builtin.PG_SCHEMAS.values())
_MZ_SCHEMAS = {builtin.MZ_CATALOG.id, builtin.MZ_INTERNAL.id}
_CATALOG_FUNCTIONS = ("pg_get_", "pg_table_", "pg_relation_", "pg_size_", "pg_database_", "to_reg", "has_")
_NO_RELATION = words(
    """
    current_schemas set_config format_type obj_description col_description shobj_description
    pg_encoding_to_char pg_total_relation_size pg_is_in_recovery pg_my_temp_schema pg_has_role
    getdatabaseencoding
    """
)
"""Functions that ask the catalogs where a query names no relation."""


@dataclass(frozen=True, slots=True, eq=False)
class CatalogPlan:
    """A planned query. `parameters` are the types that values come in."""

    tree: exp.Expr
    parameters: tuple[PgType, ...]
    columns: tuple[Field, ...]


def is_catalog_query(context: Context, statement: Select) -> bool:
    """Whether a SELECT is over system relations alone, one of PostgreSQL's among them, or asks only their functions."""
    if statement.as_of is not None:
        return False
    tree = statement.query.tree
    ctes = {cte.alias for cte in tree.find_all(exp.CTE)}
    names = [
        tuple(part.name for part in table.parts)
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not (not table.db and table.name in ctes)
    ]
    if not names:
        return _asks_the_catalog(tree)
    database, path = context.settings["database"], context.settings.search_path
    items = [context.state.resolve(parts, database, path) for parts in names]
    schemas = {item.schema_id for item in items if item is not None}
    return None not in items and bool(schemas & _PG_SCHEMAS) and schemas <= _PG_SCHEMAS | _MZ_SCHEMAS


def _asks_the_catalog(tree: exp.Expr) -> bool:
    for node in tree.walk():
        if isinstance(node, exp.Anonymous):
            name = node.name.lower()
            if (name in _NO_RELATION or name.startswith(_CATALOG_FUNCTIONS)) and name not in FUNCTIONS:
                return True
        elif isinstance(node, exp.Cast) and type_name(node.to).removesuffix("[]") in CATALOG_TYPES:
            return True
    return False


def plan_catalog_query(context: Context, statement: Select, types: Sequence[PgType | None] = ()) -> CatalogPlan:
    """PgError for what the catalog engine does not take."""
    tree = statement.query.tree
    described = rewritten(tree, _names(context, running=False), types)
    try:
        found = _blank().columns(described.sql, _no_rows)
    except duckdb.Error as error:
        raise _told(error) from None
    outputs = described.outputs
    if outputs is None or len(outputs) != len(found):
        outputs = [Output(name, None) for name, _ in found]
    fields = tuple(
        Field(output.name, _field_type(type, output.type), True)
        for output, (_, type) in zip(outputs, found, strict=True)
    )
    return CatalogPlan(tree, _parameters(described, types), fields)


async def run_catalog_query(context: Context, plan: CatalogPlan, parameters: Sequence[object]) -> Result:
    """Runs a planned query, on the catalog as the session sees it now: that may stand in any transaction."""
    made = rewritten(plan.tree, _names(context, running=True), plan.parameters, parameters)
    rows, given = _rows(context), _present(context, made.sql)
    try:
        table = await asyncio.to_thread(_live().run, made.sql, rows.relation, given)
    except duckdb.Error as error:
        raise _told(error) from None
    return Result("SELECT {}", TableRows(plan.columns, _shaped(table, plan.columns)))


async def relation_rows(context: Context, table: SystemTable) -> pa.Table:
    """The rows of one of PostgreSQL's relations with the types that queries compute with."""
    relation = BY_NAME_BY_ID[table.id]
    query = f'SELECT * FROM {SCHEMAS[relation.schema]}."{relation.name}"'
    rows, given = _rows(context), _present(context, query)
    found = await asyncio.to_thread(_live().run, query, rows.relation, given)
    columns = [found.column(place).cast(parse_type(column.type).arrow) for place, column in enumerate(table.columns)]
    return pa.table(columns, names=[f"c{place}" for place in range(len(columns))])


BY_NAME_BY_ID: Mapping[str, PgRelation] = {relation.id: relation for relation in BY_NAME.values()}


# -- planning -------------------------------------------------------------------------------------------------------


def _parameters(described: Rewritten, declared: Sequence[PgType | None]) -> tuple[PgType, ...]:
    count = max((*described.parameters, len(declared)), default=0)
    return tuple(
        (declared[n - 1] if n <= len(declared) else None) or described.parameters.get(n, TEXT)
        for n in range(1, count + 1)
    )


_FIELD_TYPES: Mapping[str, str] = {
    "BOOLEAN": "bool",
    "TINYINT": "int2",
    "SMALLINT": "int2",
    "UTINYINT": "int2",
    "USMALLINT": "int4",
    "INTEGER": "int4",
    "BIGINT": "int8",
    "HUGEINT": "mz_timestamp",
    "UBIGINT": "mz_timestamp",
    "UHUGEINT": "mz_timestamp",
    "FLOAT": "float4",
    "DOUBLE": "float8",
    "BLOB": "bytea",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "INTERVAL": "interval",
    "UUID": "uuid",
    "JSON": "json",
}


def _field_type(duckdb_type: str, known: str | None) -> PgType:
    """The type that a client is told of, by DuckDB's and by PostgreSQL's name as far as that is known."""
    declared = wire_type(known) if known is not None else None
    if duckdb_type.endswith("[]"):
        return declared if declared is not None and declared.element else array_of(_field_type(duckdb_type[:-2], None))
    if duckdb_type == "UINTEGER":
        return OID
    if duckdb_type.startswith("DECIMAL("):
        precision, scale = map(int, duckdb_type[8:-1].split(","))
        return numeric(precision, scale)
    if declared is not None and duckdb_type == "VARCHAR":
        return declared
    name = _FIELD_TYPES.get(duckdb_type)
    return parse_type(name) if name is not None else TEXT


def _shaped(table: pa.Table, fields: Sequence[Field]) -> pa.Table:
    columns = [_column(column, field.type) for column, field in zip(table.columns, fields, strict=True)]
    return pa.table(columns, names=[f"c{place}" for place in range(len(columns))])


def _column(column: pa.ChunkedArray, type: PgType) -> pa.ChunkedArray:
    if isinstance(column.type, pa.ExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_struct(column.type):
        raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "rows as values are not supported over system catalogs")
    return column if type is JSON and pa.types.is_string(column.type) else column.cast(type.arrow)


_UNREAD = {"UINT32": "oid", "INT16": "smallint", "INT32": "integer", "INT64": "bigint", "BOOL": "boolean"}


def _told(error: duckdb.Error) -> PgError:
    """What DuckDB refuses, under PostgreSQL's codes."""
    text = str(error).partition("\n")[0]
    message = text.partition(": ")[2] or text
    if isinstance(error, duckdb.BinderException) and "not found" in text:
        return PgError(SqlState.UNDEFINED_COLUMN, message)
    if isinstance(error, duckdb.ConversionException):
        unread = re.fullmatch(r"Could not convert string '(.*)' to (\w+)", message)
        if unread is not None:
            type = _UNREAD.get(unread[2], unread[2].lower())
            message = f'invalid input syntax for type {type}: "{unread[1]}"'
        return PgError(SqlState.INVALID_TEXT_REPRESENTATION, message)
    if isinstance(error, duckdb.CatalogException):
        return PgError(SqlState.UNDEFINED_FUNCTION, message)
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        "this query over system catalogs is not supported",
        detail=message,
        hint="Ask for the same with joins instead of nested queries, or ask mz_objects and mz_columns.",
    )


# -- databases ------------------------------------------------------------------------------------------------------


def _no_rows(schema: str, name: str) -> pa.Table:
    """Relations without rows: what a query's columns are does not depend on them."""
    if schema == "mz":
        return _mz_schema(name).empty_table()
    if name in HELPERS:
        return helper_schema(name).empty_table()
    if name == "tw_sizes":
        return _SIZES.empty_table()
    return schema_of(BY_NAME["pg_catalog" if schema == "pg" else "information_schema", name]).empty_table()


@cache
def _blank() -> Database:
    """Where queries are described, without waiting for one that runs."""
    return Database()


@cache
def _live() -> Database:
    return Database()


_SIZES = pa.schema([("oid", pa.uint32()), ("database", pa.uint32()), ("bytes", pa.int64())])
_MZ_TABLES = {table.name: table for table in builtin.TABLES if table.schema_id in _MZ_SCHEMAS}
_ROWS_MAX = 8  # the catalog is looked at from few places at a time
_kept: OrderedDict[tuple[int, Viewpoint], CatalogRows] = OrderedDict()
_kept_lock = threading.Lock()


def _mz_schema(name: str) -> pa.Schema:
    return pa.schema([(column.name, parse_type(column.type).arrow) for column in _MZ_TABLES[name].columns])


def _viewpoint(context: Context) -> Viewpoint:
    return Viewpoint(context.settings["database"], context.settings.search_path, context.user)


def _rows(context: Context) -> CatalogRows:
    """The rows of the catalog as the session sees it; kept for the next query."""
    state, viewpoint = context.state, _viewpoint(context)
    key = (id(state), viewpoint)
    with _kept_lock:
        found = _kept.get(key)
        if found is None:
            found = _kept[key] = CatalogRows(state, viewpoint)
            if len(_kept) > _ROWS_MAX:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
        return found


def _present(context: Context, query: str) -> dict[tuple[str, str], pa.Table]:
    """What a query reads that the catalog does not tell: sessions, settings, sizes, Tidewire's own tables."""
    given: dict[tuple[str, str], pa.Table] = {}
    for schema, name in named_in(query):
        if schema == "mz" and name in _MZ_TABLES:
            table = context.coordinator.system_rows(_MZ_TABLES[name].id)
            given[schema, name] = table.rename_columns([column.name for column in _MZ_TABLES[name].columns])
        elif (schema, name) == ("pg", "pg_settings"):
            given[schema, name] = settings_rows(context.settings)
        elif (schema, name) == ("pg", "pg_stat_activity"):
            given[schema, name] = _activity(context)
        elif (schema, name) == ("fn", "current_setting"):
            given["pg", "pg_settings"] = settings_rows(context.settings)
        elif schema == "fn" and name.endswith("_size"):
            given["pg", "tw_sizes"] = _sizes(context)
    return given


def _activity(context: Context) -> pa.Table:
    database = context.settings["database"]
    found = context.state.database_named(database)
    rows = [
        {
            "datid": oids.oid_of(found.id) if found is not None and entry.process_id == context.process_id else None,
            "datname": database if entry.process_id == context.process_id else None,
            "pid": entry.process_id,
            "usesysid": oids.OWNER,
            "usename": entry.user,
            "client_addr": entry.client_ip,
            "backend_start": entry.connected_us,
            "state": "active" if entry.process_id == context.process_id else None,
            "backend_type": "client backend",
        }
        for entry in context.coordinator.activity.sessions.values()
    ]
    return pa.Table.from_pylist(rows, schema_of(BY_NAME["pg_catalog", "pg_stat_activity"]))


def _sizes(context: Context) -> pa.Table:
    state = context.state
    rows = []
    for id, (_, size) in context.coordinator.log.sizes().items():
        item = state.items.get(id)
        database = state.schemas[item.schema_id].database_id if item is not None else None
        if database is not None:
            rows.append({"oid": oids.oid_of(id), "database": oids.oid_of(database), "bytes": size})
    return pa.Table.from_pylist(rows, _SIZES)


# -- names ----------------------------------------------------------------------------------------------------------


def _names(context: Context, *, running: bool) -> Names:
    state, database, path = context.state, context.settings["database"], context.settings.search_path

    def relation(parts: tuple[str, ...]) -> tuple[SystemTable, PgRelation | None] | None:
        item = state.resolve(parts, database, path)
        return (item, BY_NAME_BY_ID.get(item.id)) if isinstance(item, SystemTable) else None

    def session(name: str, arguments: Sequence[exp.Expr], constant: Constant) -> exp.Expr | None:
        return _session_value(context, name, arguments, constant, running=running)

    return Names(relation, lambda kind, text: _registered(context, kind, text), session)


def _registered(context: Context, kind: str, text: str) -> int:
    """The OID that the text of a registered type means. PgError if there is none."""
    if text.strip().isdigit():
        return int(text)
    if text.strip() == "-":
        return 0
    rows = _rows(context)
    parts = [token.value for token in tokenize(text) if token.kind in (Kind.WORD, Kind.IDENT)]
    match kind:
        case "regclass":
            found = rows.named(parts)
            if found is None:
                raise PgError(SqlState.UNDEFINED_TABLE, f'relation "{".".join(parts)}" does not exist')
            return found
        case "regtype":
            return _type_oid(text)
        case "regnamespace":
            schema = next((s for s in rows.schemas if s.name == parts[-1]), None)
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
        case _:
            functions = rows["tw_functions"].to_pylist()
            for function in functions:
                if f"{function['name']}({function['arguments']})" == text.removeprefix("pg_catalog."):
                    return int(function["oid"])
            raise PgError(SqlState.UNDEFINED_FUNCTION, f'function "{text}" does not exist')


def _function_oid(rows: CatalogRows, name: str) -> int:
    found = [row["oid"] for row in rows["tw_functions"].to_pylist() if row["name"] == name]
    if not found:
        raise PgError(SqlState.UNDEFINED_FUNCTION, f'function "{name}" does not exist')
    if len(found) > 1:
        raise PgError(SqlState.AMBIGUOUS_FUNCTION, f'more than one function named "{name}"')
    return int(found[0])


def _type_oid(text: str) -> int:
    spelling = text.strip().removeprefix("pg_catalog.")
    row = types_by_name().get(spelling.strip('"'))
    if row is None and spelling.endswith("[]"):
        row = types_by_name().get(f"_{spelling[:-2]}")
    if row is not None:
        return int(row["oid"])
    try:
        return parse_type(spelling).oid
    except ValueError:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'type "{spelling}" does not exist') from None


Constant = Callable[[exp.Expr], Any]


def _session_value(
    context: Context, name: str, arguments: Sequence[exp.Expr], constant: Constant, *, running: bool
) -> exp.Expr | None:
    """The value of a function of the session; None if the function is another."""
    bindings = context.bindings()
    match name:
        case "current_database" | "current_catalog":
            return _text(bindings.database)
        case "current_schema":
            return _text(bindings.schema)
        case "current_user" | "user" | "session_user" | "current_role":
            return _text(bindings.user)
        case "version":
            return _text(bindings.version)
        case "pg_backend_pid":
            return exp.Literal.number(bindings.backend_pid)
        case "current_schemas":
            rows = _rows(context)
            implicit = isinstance(arguments[0], exp.Boolean) and arguments[0].this
            named = [s.name for s in rows.path if implicit or s.name in context.settings.search_path]
            return exp.Array(expressions=[exp.Literal.string(n) for n in named])
        case "now" | "current_timestamp" | "transaction_timestamp" | "statement_timestamp":
            moment = datetime.fromtimestamp(bindings.now_us / 1_000_000, UTC).isoformat()
            return exp.Cast(this=exp.Literal.string(moment), to=exp.DataType.build("TIMESTAMPTZ", dialect="duckdb"))
        case "current_setting" if not any(isinstance(argument, exp.Column) for argument in arguments):
            values = [constant(argument) for argument in arguments]
            return _text(_setting(context, values) if running else "")
        case "set_config":
            return _text(_set_config(context, [constant(argument) for argument in arguments], running=running))
        case _:
            return None


def _text(value: str | None) -> exp.Expr:
    if value is None:
        return exp.Cast(this=exp.Null(), to=exp.DataType.build("VARCHAR", dialect="duckdb"))
    return exp.Literal.string(value)


def _setting(context: Context, arguments: Sequence[Any]) -> str | None:
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
    if value is None:
        context.settings.reset(str(name))
    elif local and context.transaction.explicit:
        if context.transaction.local is None:
            context.transaction.local = context.settings.copy()
        context.settings.set(str(name), str(value))
    elif not local:
        context.settings.set(str(name), str(value))
    return context.settings[str(name)]
