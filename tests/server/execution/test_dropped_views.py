"""A subscription ends when a view that it names is dropped or replaced."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tests.fix_server import ServerThread


@pytest.mark.parametrize("query", ["v", "(SELECT a FROM w)"])
@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("DROP VIEW v CASCADE", "was dropped"),
        ("CREATE OR REPLACE VIEW v AS SELECT 7 AS a, 'x'::text AS b", "was altered"),
    ],
)
def test_a_subscription_ends_with_its_view(
    passing_server: ServerThread, query: str, definition: str, message: str
) -> None:
    with (
        psycopg.connect(passing_server.dsn(), autocommit=True) as other,
        psycopg.connect(passing_server.dsn(), autocommit=True) as ours,
    ):
        other.execute(
            "CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'); CREATE VIEW v AS SELECT a, b FROM t"
        )
        if query != "v":
            other.execute("CREATE VIEW w AS SELECT a FROM v")
        ours.execute(f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {query}".encode())
        assert len(ours.execute("FETCH 1 c").fetchall()) == 1
        other.execute(definition.encode())
        with pytest.raises((errors.UndefinedObject, errors.SerializationFailure), match=message):
            ours.execute("FETCH ALL c WITH (TIMEOUT '10s')")
