"""DROP of objects on which others depend, compared with PostgreSQL's errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.fix_postgres import own_schema

Connection = psycopg.Connection[Any]

OBJECTS = """
    CREATE TABLE t (a int PRIMARY KEY);
    CREATE VIEW v AS SELECT a FROM t;
    CREATE VIEW w AS SELECT a FROM v;
    CREATE MATERIALIZED VIEW m AS SELECT a FROM w;
    CREATE SEQUENCE s;
    CREATE TABLE numbered (n int DEFAULT nextval('s'));
    CREATE TABLE referring (a int REFERENCES t);
"""


@pytest.fixture
def both(postgres: str, dsn: str) -> Iterator[tuple[Connection, Connection]]:
    with own_schema(postgres, "dropping") as theirs, psycopg.connect(dsn, autocommit=True) as ours:
        for connection in (theirs, ours):
            connection.execute(OBJECTS)
        yield theirs, ours


@pytest.mark.parametrize("dropping", ["TABLE t", "VIEW v", "VIEW w", "SEQUENCE s"])
def test_the_error_names_what_each_object_depends_on(both: tuple[Connection, Connection], dropping: str) -> None:
    answers = []
    for connection in both:
        with pytest.raises(errors.DependentObjectsStillExist) as refused:
            connection.execute(f"DROP {dropping}".encode())
        diagnosis = refused.value.diag
        detail = sorted((diagnosis.message_detail or "").splitlines())
        answers.append((diagnosis.message_primary, detail, diagnosis.message_hint))
    assert answers[1] == answers[0]


def test_the_error_names_the_subsource_that_a_view_reads(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE SOURCE auction FROM LOAD GENERATOR AUCTION (UP TO 1) FOR TABLES (bids, users)")
        connection.execute("CREATE VIEW v AS SELECT id FROM bids")
        with pytest.raises(errors.DependentObjectsStillExist) as refused:
            connection.execute("DROP SOURCE auction")
        assert refused.value.diag.message_detail == "view v depends on subsource bids"
