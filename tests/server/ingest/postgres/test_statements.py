"""CREATE SOURCE ... FROM POSTGRES with psql: connection, source, tables from it, changes, a restart, and DROP."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from tests.fix_server import ServerThread
from tests.psql_session import await_rows, psql
from tests.server.slow_engine import PassingEngine

SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"


def test_a_publication_is_read_by_statements(logical: str, tmp_path: Path) -> None:
    url = urlsplit(logical)
    with psycopg.connect(logical, autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    tmp_path.chmod(0o700)
    with psycopg.connect(url._replace(path="/shop").geturl(), autocommit=True) as connection:
        connection.execute("CREATE TABLE accounts (id int PRIMARY KEY, balance numeric(10,2))")
        connection.execute("CREATE TABLE log (line text)")
        connection.execute("CREATE PUBLICATION shop FOR TABLE accounts, log")
        connection.execute("INSERT INTO accounts VALUES (1, 10), (2, 20)")
        server = ServerThread(tmp_path, PassingEngine(), interval_s=0.02)
        try:
            address = f"HOST '{url.hostname}', PORT {url.port}, USER postgres, DATABASE shop"
            psql(
                server,
                f"CREATE CONNECTION c TO POSTGRES ({address}) WITH (VALIDATE)",
                "CREATE SOURCE pg FROM POSTGRES CONNECTION c (PUBLICATION 'shop') FOR TABLES (accounts AS a)",
                "CREATE TABLE lines FROM SOURCE pg (REFERENCE public.log)",
            )
            await_rows(server, "a", ["1|10.00", "2|20.00"])
            connection.execute("INSERT INTO log VALUES ('one')")
            connection.execute("INSERT INTO accounts VALUES (3, 30)")
            await_rows(server, "a", ["1|10.00", "2|20.00", "3|30.00"])
            await_rows(server, "lines", ["one"])
            assert psql(server, "SHOW SOURCES") == ["a|subsource", "pg|postgres"]
        finally:
            server.stop()
        connection.execute("INSERT INTO log VALUES ('two')")
        server = ServerThread(tmp_path, PassingEngine(), interval_s=0.02)
        try:
            await_rows(server, "lines", ["one", "two"])
            assert connection.execute(SLOTS).fetchone() == (1,)
            psql(server, "DROP SOURCE pg CASCADE")
            while connection.execute(SLOTS).fetchone() != (0,):
                connection.execute("SELECT pg_sleep(0.05)")  # PostgreSQL does not report a dropped slot
        finally:
            server.stop()
