"""Writes `pg_dump/dump.sql`, what pg_dump 16 writes for the database of `pg_dump/shop.sql`.

`python -m tests.data.make_pg_dump`, with the PostgreSQL that the tests use.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg

from tests.fix_postgres import PostgresServer, binaries

DIRECTORY = Path(__file__).parent / "pg_dump"
SCHEMA = DIRECTORY / "shop.sql"
DUMP = DIRECTORY / "dump.sql"


def main() -> None:
    server = PostgresServer()
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE ROLE materialize SUPERUSER LOGIN")
            connection.execute("CREATE DATABASE shop OWNER materialize")
        dsn = server.dsn.replace("postgres@", "materialize@").replace("/postgres", "/shop")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(SCHEMA.read_bytes())
        dump = subprocess.run([binaries() / "pg_dump", dsn], check=True, capture_output=True).stdout
    finally:
        server.stop()
    DUMP.write_bytes(dump)


if __name__ == "__main__":
    main()
