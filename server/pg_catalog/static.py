"""PostgreSQL's system relations as Arrow tables, and the rows that they have from the start: types and the like.

`static.json` is written by `tests/data/make_pg_catalog.py` from PostgreSQL 16.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from catalog.objects import Column
from catalog.pg_catalog import RELATIONS, PgRelation
from protocol.pgwire.types import parse_type, scalar

Row = dict[str, Any]

BY_NAME: Mapping[tuple[str, str], PgRelation] = {(r.schema, r.name): r for r in RELATIONS}

_ARROW = {
    "bool": pa.bool_(),
    "bytea": pa.binary(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "int2": pa.int16(),
    "int2vector": pa.list_(pa.int16()),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "interval": pa.month_day_nano_interval(),
    "numeric": pa.decimal128(38, 0),
    "oid": pa.uint32(),
    "oidvector": pa.list_(pa.uint32()),
    "regproc": pa.uint32(),
    "timestamptz": pa.timestamp("us", "UTC"),
    "xid": pa.uint32(),
}


BY_ID: Mapping[str, PgRelation] = {relation.id: relation for relation in RELATIONS}


def arrow_type(type: str) -> pa.DataType:
    """How a column of a system relation is carried; names and whatever else has no type of its own are text."""
    if type.endswith("[]"):
        return pa.list_(arrow_type(type[:-2]))
    return _ARROW.get(type, pa.string())


def schema_of(relation: PgRelation) -> pa.Schema:
    return pa.schema([(column.name, arrow_type(column.type)) for column in relation.columns])


@cache
def static() -> Mapping[str, list[list[Any]]]:
    loaded: dict[str, list[list[Any]]] = json.loads((Path(__file__).parent / "static.json").read_text())
    return loaded


def static_rows(name: str) -> list[Row]:
    """The rows of `static.json` with their columns' names; OIDs are numbers, those of functions, too."""
    columns = BY_NAME["pg_catalog", name].columns
    return [
        {column.name: _static_value(column.type, value) for column, value in zip(columns, row, strict=True)}
        for row in static().get(name, ())
    ]


def _static_value(type: str, value: Any) -> Any:
    if value is None:
        return None
    if type == "oid":
        return int(value)
    if type == "regproc":
        return 0 if value == "-" else _static_functions()[value]
    if type == "oidvector":
        return [int(oid) for oid in (value.split() if isinstance(value, str) else value)]
    return value


@cache
def _static_functions() -> Mapping[str, int]:
    """OIDs of the functions that the static rows name, by their names."""
    columns = [column.name for column in BY_NAME["pg_catalog", "pg_proc"].columns]
    oid, name = columns.index("oid"), columns.index("proname")
    return {row[name]: int(row[oid]) for row in static()["pg_proc"]}


@cache
def types_by_name() -> Mapping[str, Row]:
    return {row["typname"]: row for row in static_rows("pg_type")}


@cache
def types_by_oid() -> Mapping[int, Row]:
    return {row["oid"]: row for row in static_rows("pg_type")}


def column_type(column: Column) -> tuple[int, int]:
    """OID and modifier of the type of a column of the catalog."""
    type = parse_type(column.type)
    return type.oid, type.typmod


def system_type(type: str) -> tuple[int, int]:
    """OID and modifier of the type of a system relation's column."""
    name = type.strip('"').replace('"[]', "[]").replace('"', "")
    if name.endswith("[]"):
        name = f"_{name[:-2]}"
    return types_by_name()[name]["oid"] if name in types_by_name() else 25, -1


@cache
def operator_classes() -> dict[int, int]:
    """The btree operator class of each type."""
    return {row["opcintype"]: row["oid"] for row in static_rows("pg_opclass")}


_DISPLAY = {
    **{
        name: scalar(name).display for name in ("bool", "int2", "int4", "int8", "float4", "float8", "bpchar", "varchar")
    },
    **{name: scalar(name).display for name in ("time", "timestamp", "timestamptz")},
    "timetz": "time with time zone",
    "varbit": "bit varying",
    "char": '"char"',
}
"""Types that PostgreSQL calls otherwise than their rows of pg_type do."""


@cache
def type_text(oid: int) -> str:
    row = types_by_oid()[oid]
    if is_array(row):
        return f"{type_text(row['typelem'])}[]"
    return _DISPLAY.get(row["typname"]) or str(row["typname"])


def is_array(row: Row) -> bool:
    return bool(row["typcategory"] == "A" and row["typlen"] == -1 and row["typname"].startswith("_"))


def type_texts() -> Iterator[Row]:
    """What format_type makes a type's name from; of an array `base` is the element's type."""
    for row in static_rows("pg_type"):
        array = is_array(row)
        base = row["typelem"] if array else row["oid"]
        yield {"oid": row["oid"], "base": base, "text": type_text(base), "dimensions": "[]" if array else ""}
