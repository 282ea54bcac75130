"""Types in queries over system relations: maps PostgreSQL's type names to DuckDB's types and to wire types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from protocol.pgwire.decode import parse_text_column
from protocol.pgwire.errors import PgError, SqlState
from protocol.pgwire.scalars import format_text
from protocol.pgwire.types import (
    CHAR,
    INT2VECTOR,
    NAME,
    NETWORK_TYPES,
    OID,
    OIDVECTOR,
    TEXT,
    VARCHAR,
    PgType,
    array_of,
    named_type,
    scalar,
)

REGISTERED = ("regclass", "regtype", "regproc", "regprocedure", "regoper", "regoperator", "regnamespace", "regrole")
_PARAMETER_TYPES: Mapping[str, PgType] = {
    "oid": OID,
    "name": NAME,
    '"char"': CHAR,
    **dict.fromkeys(REGISTERED, TEXT),
}
_DUCKDB_TYPES = {
    "oid": "UINTEGER",
    "xid": "UINTEGER",
    "name": "VARCHAR",
    '"char"': "VARCHAR",
    "text": "VARCHAR",
    "varchar": "VARCHAR",
    "bpchar": "VARCHAR",
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "numeric": "DECIMAL(38,9)",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "interval": "INTERVAL",
    "uuid": "UUID",
    "bytea": "BLOB",
    "json": "JSON",
    "jsonb": "JSON",
    "int2vector": "SMALLINT[]",
    "oidvector": "UINTEGER[]",
    "pg_node_tree": "VARCHAR",
    "aclitem": "VARCHAR",
    **dict.fromkeys(NETWORK_TYPES, "VARCHAR"),
}
CATALOG_TYPES = frozenset(("oid", "name", '"char"', "xid", "int2vector", "oidvector", *REGISTERED))


def type_name(tree: exp.DataType) -> str:
    """Returns PostgreSQL's short name of a type in a parse tree: `int4`, `oid[]`, `regclass`, `"char"`."""
    if tree.this == exp.DType.ARRAY:
        return f"{type_name(tree.expressions[0])}[]" if tree.expressions else "text[]"
    if tree.this == exp.DType.USERDEFINED:
        kind = tree.args["kind"]
        name = kind if isinstance(kind, str) else kind.name
        name = name.removeprefix("pg_catalog.").removeprefix("information_schema.")
        return '"char"' if name == "char" else name
    spelling = exp.DataType(this=tree.this).sql("postgres").lower()
    if spelling == "char" and not tree.expressions:
        return "bpchar"
    try:
        return named_type(spelling).name
    except ValueError:
        return spelling


def parameter_type(name: str) -> PgType:
    """Returns the wire type of a parameter that is cast to the type `name`."""
    if name.endswith("[]"):
        return array_of(parameter_type(name[:-2]))
    known = _PARAMETER_TYPES.get(name)
    if known is not None:
        return known
    try:
        return named_type(name)
    except ValueError:
        return TEXT


def duckdb_type(name: str) -> str:
    """Returns DuckDB's type for a type of PostgreSQL. PgError 42704 if there is none."""
    if name.endswith("[]"):
        return f"{duckdb_type(name[:-2])}[]"
    known = _DUCKDB_TYPES.get(name)
    if known is None:
        raise PgError(SqlState.UNDEFINED_OBJECT, f'type "{name}" does not exist')
    return known


def value_tree(type: PgType, value: Any) -> exp.Expr:
    """Returns a Python value (of the classes in `protocol.pgwire.types`) as an expression of DuckDB's SQL."""
    if type.element is not None:
        to = f"{duckdb_type(type.element.name)}[]"
        if value is None:
            return cast_to(exp.Null(), to)
        return cast_to(exp.Array(expressions=[value_tree(type.element, item) for item in value]), to)
    if value is None:
        return cast_to(exp.Null(), duckdb_type(type.name))
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if type.name in ("int2", "int4", "int8", "oid", "float4", "float8", "numeric"):
        return cast_to(exp.Literal.string(str(value)), duckdb_type(type.name))
    if isinstance(value, str):
        return exp.Literal.string(value)
    if type.name in NETWORK_TYPES:
        return exp.Literal.string(format_text(type, value))
    raise PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"a parameter of type {type.display} is not supported here",
        hint="Convert the parameter to text in the statement: $1::text.",
    )


def typed(column: pa.ChunkedArray, type: PgType) -> pa.ChunkedArray:
    """Returns a column of DuckDB's result as a column of `type`. DuckDB has the texts of network addresses."""
    if type.name not in NETWORK_TYPES:
        return column.cast(type.arrow)
    return pa.chunked_array([parse_text_column(type, chunk) for chunk in column.chunks if len(chunk)], type.arrow)


def cast_to(tree: exp.Expr, to: str) -> exp.Cast:
    return exp.Cast(this=tree, to=exp.DataType.build(to, dialect="duckdb"))


def wire_type(name: str) -> PgType | None:
    """Returns the wire type of a type that DuckDB does not have; None for other types."""
    if name.endswith("[]"):
        element = wire_type(name[:-2])
        return array_of(element) if element is not None and element.name not in NETWORK_TYPES else None
    return _WIRE_TYPES.get(name)


_WIRE_TYPES = {
    "varchar": VARCHAR,
    "oid": OID,
    "name": NAME,
    '"char"': CHAR,
    "int2vector": INT2VECTOR,
    "oidvector": OIDVECTOR,
    **{name: scalar(name) for name in NETWORK_TYPES},
}
