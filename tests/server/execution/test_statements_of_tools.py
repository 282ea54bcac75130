"""Statements that tools send: VACUUM, storage parameters, operator classes, ALTER TABLE of views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.fix_postgres import own_schema
from tests.fix_server import ServerThread
from tests.server.execution.test_write import done


@pytest.fixture
def theirs(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with own_schema(postgres, "tools") as connection:
        yield connection


def test_they_are_answered_as_by_postgresql(theirs: psycopg.Connection[Any], passing_server: ServerThread) -> None:
    with psycopg.connect(passing_server.dsn(), autocommit=True) as ours:
        for statement in (
            "CREATE TABLE t (a int, b text) WITH (fillfactor = 70, autovacuum_enabled = false)",
            "CREATE TABLE u (a int) WITH (fillfactor = 70, nonsense = 1)",
            "CREATE INDEX i ON t (b text_pattern_ops, a) WITH (fillfactor = 100)",
            "VACUUM t",
            "VACUUM (VERBOSE false, ANALYZE) t (a, b), t",
            "VACUUM FULL ANALYZE t",
            "VACUUM nowhere",
            "ANALYZE t (a)",
            "ANALYZE nowhere",
            "BEGIN",
            "ANALYZE t",
            "VACUUM t",
            "ROLLBACK",
            "CREATE VIEW v AS SELECT a FROM t",
            "ALTER TABLE v RENAME TO w",
            "ALTER TABLE i RENAME TO j",
            "ALTER TABLE IF EXISTS nowhere RENAME TO x",
            "ALTER TABLE nowhere RENAME TO x",
            "ALTER VIEW t RENAME TO x",
            "DROP VIEW w",
            "DROP INDEX j",
        ):
            assert done(ours, statement)[0] == done(theirs, statement)[0], statement
