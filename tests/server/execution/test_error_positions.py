"""Where an error points to in statements whose expressions are planned on their own: arguments, options and keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[Any]


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("PREPARE p (int, numeric) AS SELECT $1, $2")
        yield connection


@pytest.mark.parametrize(
    ("statement", "sqlstate"),
    [
        ("EXECUTE p (1, @nosuch)", "42703"),
        ("EXECUTE p (1, @'abc')", "22P02"),
        ("EXECUTE p (1 + @nosuch, 2)", "42703"),
        ("CREATE HOLD a_long_name ON t WITH (MAX LAG @nosuch)", "42703"),
        ("CREATE HOLD a_long_name ON t WITH (MAX LAG = @'often')", "22007"),
        ("CREATE HOLD h ON t WITH (MAX LAG @S)", "42703"),  # S is also the first character of SELECT
        ("CREATE HOLD h ON t AT @nosuch", "42703"),
        ("SELECT * FROM t AS OF 1 + @nosuch", "42703"),
        ("CREATE INDEX a_long_name ON t ((a + @nosuch))", "42703"),
        ("CREATE INDEX a_long_name ON t (a, (a @|| 1))", "42883"),
        ("CREATE INDEX a_long_name ON t (@nosuch)", "42703"),
    ],
)
def test_errors_point_to_the_part_of_the_statement(db: Connection, statement: str, sqlstate: str) -> None:
    """`@` marks the expected place."""
    with pytest.raises(psycopg.Error) as refused:
        db.execute(statement.replace("@", ""))  # type: ignore[call-overload]
    position = refused.value.diag.statement_position
    assert (refused.value.sqlstate, position) == (sqlstate, str(statement.index("@") + 1))
