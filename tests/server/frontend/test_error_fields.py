"""The fields by which drivers tell which constraint a row violates, compared with PostgreSQL."""

from __future__ import annotations

import psycopg
import pytest

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread

OBJECTS = """
    CREATE DOMAIN positive AS int CONSTRAINT above CHECK (VALUE > 0);
    CREATE TABLE t (id int PRIMARY KEY, "Name" text NOT NULL, n int CONSTRAINT gain CHECK (n > 0), p positive);
    INSERT INTO t VALUES (1, 'a', 1, 1);
"""


def fields(connection: psycopg.Connection[object], statement: str) -> tuple[str | None, ...]:
    with pytest.raises(psycopg.Error) as raised:
        connection.execute(statement.encode())
    diag = raised.value.diag
    return raised.value.sqlstate, diag.table_name, diag.column_name, diag.constraint_name


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("INSERT INTO t VALUES (2, NULL, 1)", "23502"),
        ("INSERT INTO t VALUES (2, 'b', -1)", "23514"),
        ("INSERT INTO t VALUES (1, 'b', 1)", "23505"),
        ("INSERT INTO t VALUES (2, 'b', 1, -1)", "23514"),
    ],
)
def test_errors_name_what_a_row_violates(
    passing_server: ServerThread, postgres: str, statement: str, state: str
) -> None:
    with (
        psycopg.connect(passing_server.dsn(), autocommit=True) as ours,
        own_schema(postgres, "fields") as theirs,
    ):
        found = []
        for connection in (ours, theirs):
            for definition in filter(str.strip, OBJECTS.split(";\n")):
                connection.execute(definition.encode())
            found.append(fields(connection, statement))
    assert found[0] == found[1]
    assert found[0][0] == state
