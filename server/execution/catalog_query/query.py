"""Recognizes, plans and runs SELECTs over system relations alone, in the catalog engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from sqlglot import exp

from catalog import builtin
from catalog.objects.catalog_object import Item
from catalog.objects.system_tables import SystemTable
from protocol.pgwire.types import BOOL, JSON, OID, TEXT, PgType, array_of, named_type, numeric, parse_type
from server.execution.catalog_query.names import names_of
from server.execution.catalog_query.session_rows import catalog_rows, uncached_relations
from server.execution.catalog_query.signals import process_ids, sent, signals_of
from server.pg_catalog.database import SCHEMAS, is_function
from server.pg_catalog.outputs import Output
from server.pg_catalog.refusals import no_nested_arrays, no_row_values
from server.pg_catalog.rewrite import Rewritten, rewritten
from server.pg_catalog.static import BY_ID
from server.pg_catalog.types import CATALOG_TYPES, type_name, typed, wire_type
from server.session_state.context import Context
from server.session_state.prepared import CatalogPlan
from server.session_state.results import Result, TableRows
from server.session_state.signals import signal
from server.sql.bind.volatile import NAMES as VOLATILE_NAMES
from server.sql.functions.table import FUNCTIONS
from server.sql.grammar.lexer import words
from server.sql.grammar.statements.queries import Select
from server.sql.plan import Field

_PG_SCHEMAS = frozenset(schema.id for schema in builtin.PG_SCHEMAS.values())
_MZ_SCHEMAS = {builtin.MZ_CATALOG.id, builtin.MZ_INTERNAL.id}
_CATALOG_FUNCTIONS = ("pg_get_", "pg_table_", "pg_relation_", "pg_size_", "pg_database_", "to_reg")
_NO_RELATION = words(
    """
    current_schemas set_config format_type obj_description col_description shobj_description
    pg_encoding_to_char pg_total_relation_size pg_is_in_recovery pg_my_temp_schema
    has_function_privilege has_language_privilege has_tablespace_privilege
    has_foreign_data_wrapper_privilege has_server_privilege
    getdatabaseencoding pg_listening_channels acldefault aclexplode makeaclitem pg_blocking_pids
    """
)
"""Functions that make a query without relations a catalog query."""


def is_catalog_query(context: Context, statement: Select) -> bool:
    """Returns whether the catalog engine runs a SELECT.

    That is the case if all its relations are system relations, at least one of them PostgreSQL's, or if it names no
    relation but uses catalog functions or types.
    """
    if statement.as_of is not None:
        return False
    items = relations_of(context, statement.query.tree)
    if not items:
        return _uses_catalog_functions(statement.query.tree)
    schemas = {item.schema_id for item in items if item is not None}
    return None not in items and bool(schemas & _PG_SCHEMAS) and schemas <= _PG_SCHEMAS | _MZ_SCHEMAS


def relations_of(context: Context, tree: exp.Expr) -> list[Item | None]:
    """The relations that a query names; None for each that does not exist."""
    ctes = {cte.alias for cte in tree.find_all(exp.CTE)}
    names = [
        tuple(part.name for part in table.parts)
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not (not table.db and table.name in ctes)
    ]
    database, path = context.settings["database"], context.search_path
    return [context.state.resolve(parts, database, path) for parts in names]


def _uses_catalog_functions(tree: exp.Expr) -> bool:
    called = {node.name.lower() for node in tree.find_all(exp.Anonymous)}
    if not called.isdisjoint(VOLATILE_NAMES):
        return False  # as in nextval('s'::regclass)
    return any(map(is_catalog_node, tree.walk()))


def is_catalog_node(node: exp.Expr) -> bool:
    """Whether a node is a call of a catalog function, or a cast to a catalog type such as regclass."""
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        is_catalogs = name in _NO_RELATION or (name.startswith("pg_") and is_function(name))
        return (is_catalogs or name.startswith(_CATALOG_FUNCTIONS)) and name not in FUNCTIONS
    return isinstance(node, exp.Cast) and any(
        type.this == exp.DType.USERDEFINED and type_name(type) in CATALOG_TYPES
        for type in node.to.find_all(exp.DataType)
    )


def plan_catalog_query(context: Context, statement: Select, types: Sequence[PgType | None] = ()) -> CatalogPlan:
    """Plans a catalog query. Undescribed if the engine has not described it yet.

    PgError if the engine does not support it: 42883 and 0A000 for what the ordinary planner may support.
    """
    signals = signals_of(statement.query.tree)
    tree = process_ids(statement.query.tree, signals)
    described = rewritten(tree, names_of(context, running=False), types)
    found = context.catalog_engine.columns(described.sql)
    if isinstance(tree, exp.Query) and not tree.selects:
        return CatalogPlan(tree, _parameters(described, types), ())  # DuckDB's query has a placeholder column
    outputs = described.outputs
    if outputs is None or len(outputs) != len(found):
        outputs = [Output(name, None) for name, _ in found]
    fields = tuple(
        Field(output.name, BOOL, True)
        if number in signals
        else Field(output.name, _field_type(type, output.type), True, output.origin)
        for number, (output, (_, type)) in enumerate(zip(outputs, found, strict=True))
    )
    return CatalogPlan(tree, _parameters(described, types), fields, signals)


async def run_catalog_query(context: Context, plan: CatalogPlan, parameters: Sequence[object]) -> Result:
    """Runs a planned query over the catalog as the session sees it now. Allowed in any transaction."""
    made = rewritten(plan.tree, names_of(context, running=True), plan.parameters, parameters)
    rows, uncached = catalog_rows(context), await uncached_relations(context, made.sql)
    table = await context.catalog_engine.run(made.sql, rows.revision, rows.relation, uncached)
    table = sent(table, plan.signals, partial(signal, context))
    return Result("SELECT {}", TableRows(plan.columns, _shaped(table, plan.columns)))


async def relation_rows(context: Context, table: SystemTable) -> pa.Table:
    """Returns the rows of one of PostgreSQL's relations with the Arrow types of the planner; columns c0, c1, ..."""
    relation = BY_ID[table.id]
    query = f'SELECT * FROM {SCHEMAS[relation.schema]}."{relation.name}"'
    rows, uncached = catalog_rows(context), await uncached_relations(context, query)
    found = await context.catalog_engine.run(query, rows.revision, rows.relation, uncached)
    columns = [typed(found.column(n), parse_type(column.type)) for n, column in enumerate(table.columns)]
    return pa.table(columns, names=[f"c{number}" for number in range(len(columns))])


# -- planning -------------------------------------------------------------------------------------------------------


def _parameters(described: Rewritten, declared: Sequence[PgType | None]) -> tuple[PgType, ...]:
    count = max((*described.parameters, len(declared)), default=0)
    return tuple(
        (declared[n - 1] if n <= len(declared) else None) or described.parameters.get(n, TEXT)
        for n in range(1, count + 1)
    )


_FIELD_TYPES = {
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
    """Returns the type sent to the client, from DuckDB's type and PostgreSQL's type name, if `known`."""
    if duckdb_type.startswith("STRUCT("):
        raise no_row_values()
    declared = wire_type(known) if known is not None else None
    if duckdb_type.endswith("[][]"):
        raise no_nested_arrays()
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
    return named_type(name) if name is not None else TEXT


def _shaped(table: pa.Table, fields: Sequence[Field]) -> pa.Table:
    if not fields:
        return table.select([])
    columns = [_column(column, field.type) for column, field in zip(table.columns, fields, strict=True)]
    return pa.table(columns, names=[f"c{number}" for number in range(len(columns))])


def _column(column: pa.ChunkedArray, type: PgType) -> pa.ChunkedArray:
    if isinstance(column.type, pa.ExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column if type is JSON and pa.types.is_string(column.type) else typed(column, type)
