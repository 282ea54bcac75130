"""PostgreSQL's system relations: names, OIDs and columns of PostgreSQL 16, read from `pg_catalog.tsv`.

`tests/data/make_pg_catalog.py` generates that file. `server/pg_catalog` computes the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from catalog.ids import ObjectId
from catalog.objects.columns import Column

INFORMATION_SCHEMA_DOMAINS = {
    "character_data": "varchar",
    "sql_identifier": "name",
    "yes_or_no": "varchar",
    "cardinal_number": "int4",
    "time_stamp": "timestamptz",
}
"""The domains that information_schema uses as column types, and their base types."""

_SHORT = {
    "bigint": "int8",
    "integer": "int4",
    "smallint": "int2",
    "boolean": "bool",
    "real": "float4",
    "double precision": "float8",
    "timestamp with time zone": "timestamptz",
}
_PLANNED = {
    "oid": "int8",
    "xid": "int8",
    "regproc": "int8",
    "int2vector": "int2[]",
    "oidvector": "int8[]",
    "oid[]": "int8[]",
    "inet": "inet",
    **{
        name: name
        for name in ("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "timestamptz", "interval", "bytea")
    },
}


@dataclass(frozen=True, slots=True)
class PgColumn:
    """`type` is PostgreSQL's type name, such as `oid`, `name`, `"char"`, `int2vector`."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class PgRelation:
    """`kind` is `r` for a table and `v` for a view."""

    schema: str
    name: str
    oid: int
    kind: str
    columns: tuple[PgColumn, ...]

    @property
    def id(self) -> ObjectId:
        return ObjectId(f"s{self.oid}")

    def planned_columns(self) -> tuple[Column, ...]:
        """The columns with the types used in queries: OIDs are numbers, names are text."""
        return tuple(Column(c.name, planned_type(c.type), c.nullable) for c in self.columns)


def planned_type(type: str) -> str:
    known = _PLANNED.get(type)
    if known is None:
        known = f"{planned_type(type[:-2])}[]" if type.endswith("[]") else "text"
    return known


def _column(text: str) -> PgColumn:
    name, _, type = text.strip().partition(" ")
    nullable = not type.endswith("!")
    type = type.removesuffix("!").removeprefix("information_schema.")
    array = "[]" if type.endswith("[]") else ""
    type = type.removesuffix("[]")
    return PgColumn(name, _SHORT.get(type, INFORMATION_SCHEMA_DOMAINS.get(type, type)) + array, nullable)


def _relation(line: str) -> PgRelation:
    schema, name, oid, kind, columns = line.split("\t")
    return PgRelation(schema, name, int(oid), kind, tuple(map(_column, columns.split(", "))))


RELATIONS: tuple[PgRelation, ...] = tuple(
    map(_relation, (Path(__file__).parent / "pg_catalog.tsv").read_text().splitlines())
)
