"""A session with adbc: each step is a function, whose docstring is its title in docs/clients.md."""

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from steps import URL, run

TABLE = pa.table({"n": pa.array([1, 2], pa.int64()), "s": ["a", None]})


def ingest():
    """`adbc_ingest`"""
    with adbc.connect(URL) as connection, connection.cursor() as cursor:
        assert cursor.adbc_ingest("adbc_table", TABLE, mode="create") == 2
        cursor.adbc_ingest("adbc_table", TABLE, mode="append")
        connection.commit()


def queries():
    """Queries with parameters, as Arrow"""
    with adbc.connect(URL) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE adbc_own (n bigint, s text, d numeric(8,2), at timestamptz)")
        cursor.executemany("INSERT INTO adbc_own (n, s) VALUES ($1, $2)", [(1, "a"), (2, "b")])
        cursor.execute("SELECT n, s FROM adbc_own WHERE n >= $1 ORDER BY n", (1,))
        assert cursor.fetch_arrow_table().to_pydict() == {"n": [1, 2], "s": ["a", "b"]}
        connection.commit()


def objects():
    """`adbc_get_objects`, `adbc_get_table_schema`"""
    with adbc.connect(URL) as connection:
        objects = connection.adbc_get_objects(depth="all", db_schema_filter="public").read_all().to_pylist()
        schemas = [schema for catalog in objects for schema in catalog["catalog_db_schemas"] or ()]
        tables = [table["table_name"] for schema in schemas for table in schema["db_schema_tables"] or ()]
        assert "adbc_own" in tables, objects
        assert connection.adbc_get_table_schema("adbc_own").names == ["n", "s", "d", "at"]
        assert connection.adbc_get_info()["vendor_name"]


run(queries, objects, ingest)
