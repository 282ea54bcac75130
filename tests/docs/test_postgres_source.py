"""The statements of docs/postgres-source.md, executed in PostgreSQL and in Tidewire."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import psycopg

from tests.docs.pages import examples, executes
from tests.fix_postgres import PostgresServer
from tests.fix_server import ServerThread
from tests.server.slow_engine import PassingEngine


@executes("postgres-source.md", "sql")
def test_the_page_shows_statements_that_work(tmp_path: Path) -> None:
    postgres = PostgresServer("wal_level=logical")
    server = ServerThread(tmp_path, PassingEngine(), interval_s=0.02)
    try:
        with psycopg.connect(postgres.dsn, autocommit=True) as upstream, psycopg.connect(server.dsn()) as tidewire:
            tidewire.autocommit = True
            for block in examples("postgres-source.md", "sql"):
                place, _, statements = block.replace("PORT 5432", f"PORT {postgres.port}").partition("\n")
                assert place in ("-- in PostgreSQL", "-- in Tidewire")
                for statement in statements.split(";"):
                    # The query of the page would need Spark to sort.
                    if statement.strip() and not statement.strip().startswith("SELECT"):
                        (upstream if place == "-- in PostgreSQL" else tidewire).execute(statement.encode())
            rows: Counter[tuple] = Counter()
            with tidewire.transaction():
                tidewire.execute("DECLARE c CURSOR FOR SUBSCRIBE (TABLE accounts)")
                while Counter({(int(row[0]), int(row[2])): n for row, n in rows.items() if n}) != {
                    (1, 90): 1,
                    (2, 60): 1,
                }:
                    for _, diff, *row in tidewire.execute("FETCH ALL c").fetchall():
                        rows[tuple(row)] += diff
    finally:
        server.stop()
        postgres.stop()
