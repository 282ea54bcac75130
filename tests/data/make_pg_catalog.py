"""Writes the parts of PostgreSQL's system catalogs that Tidewire uses: `python -m tests.data.make_pg_catalog`.

They are read from the PostgreSQL 16 that the tests use:
- `catalog/pg_catalog.tsv`: schema, relation, OID, kind, and columns as `name type`, with a `!` after NOT NULL columns;
- `server/pg_catalog/static.json`: the rows that are the same in every database, of types and other objects that
  Tidewire has.

PostgreSQL's licence permits both.
"""

from __future__ import annotations

import json
from pathlib import Path

import psycopg

from tests.fix_postgres import PostgresServer

ROOT = Path(__file__).parent.parent.parent
RELATIONS = ROOT / "catalog" / "pg_catalog.tsv"
STATIC = ROOT / "server" / "pg_catalog" / "static.json"

_RELATIONS = """
SELECT n.nspname, c.relname, c.oid::text, c.relkind::text,
       string_agg(a.attname || ' ' || format_type(a.atttypid, NULL) || CASE WHEN a.attnotnull THEN '!' ELSE '' END,
                  ', ' ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v') AND a.attnum > 0
  AND NOT (n.nspname = 'information_schema' AND (c.relkind = 'r' OR c.relname LIKE '\\_pg\\_%'))
GROUP BY n.nspname, c.relname, c.oid, c.relkind ORDER BY n.nspname, c.relname
"""
_TYPES = """typrelid = 0 AND oid < 10000 AND typtype IN ('b', 'p', 'r', 'm')
  AND NOT EXISTS (SELECT FROM pg_type e WHERE e.oid = pg_type.typelem AND e.typrelid <> 0)"""
_COMPUTED = """IN (SELECT oid FROM pg_type WHERE typname = ANY (string_to_array('bool int2 int4 int8 float4 float8
    numeric text varchar bpchar bytea date time timestamp timestamptz interval uuid json jsonb anyarray anyelement
    anycompatible anycompatiblearray anynonarray anyenum record _text', ' ')))"""
"""The types of values with which queries of users compute."""
_CASTS = f"castsource {_COMPUTED} AND casttarget {_COMPUTED}"
_STATIC = {
    "pg_type": _TYPES,
    "pg_cast": _CASTS,
    "pg_operator": f"oprright {_COMPUTED} AND (oprleft = 0 OR oprleft {_COMPUTED})",
    "pg_proc": f"""oid IN (
        SELECT castfunc FROM pg_cast WHERE {_CASTS} UNION
        SELECT unnest(ARRAY[typinput, typoutput, typreceive, typsend, typmodin, typmodout, typanalyze, typsubscript])
        FROM pg_type WHERE {_TYPES} UNION SELECT amhandler FROM pg_am
        UNION SELECT unnest(ARRAY[rngcanonical, rngsubdiff]) FROM pg_range)""",
    "pg_am": "true",
    "pg_collation": "oid IN (100, 950, 951)",
    "pg_language": "lanname IN ('internal', 'c', 'sql')",
    "pg_opclass": f"""opcintype IN (SELECT oid FROM pg_type WHERE {_TYPES})
        AND (opcdefault OR opcname IN ('cidr_ops', 'varchar_ops') OR opcname LIKE '%\\_pattern\\_ops'
            OR opcmethod NOT IN (403, 405))""",
    "pg_opfamily": "true",
    "pg_range": "true",
    "pg_tablespace": "true",
}


def main() -> None:
    server = PostgresServer()
    try:
        with psycopg.connect(server.dsn) as connection:
            rows = connection.execute(_RELATIONS).fetchall()
            RELATIONS.write_text("".join("\t".join(row) + "\n" for row in rows))
            static = {name: _rows(connection, name, where) for name, where in _STATIC.items()}
    finally:
        server.stop()
    tables = (
        f' "{name}": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n ]" for name, rows in static.items()
    )
    STATIC.write_text("{\n" + ",\n".join(tables) + "\n}\n")


def _rows(connection: psycopg.Connection, table: str, where: str) -> list[list[object]]:
    """Returns rows ordered by OID. Columns are in the order of the catalog; types that JSON lacks are texts."""
    query = f"SELECT to_jsonb(t) FROM (SELECT * FROM pg_catalog.{table} WHERE {where} ORDER BY 1) t"  # type: ignore[arg-type]
    names = [c.name for c in connection.execute(f"SELECT * FROM pg_catalog.{table} LIMIT 0").description or ()]  # type: ignore[arg-type]
    made = []
    for (row,) in connection.execute(query).fetchall():
        made.append([row[name] for name in names])
    return made


if __name__ == "__main__":
    main()
