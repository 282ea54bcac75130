"""Custom settings of a session whose names are those of Spark's."""

from __future__ import annotations

import psycopg
import pytest


@pytest.mark.long
def test_settings_with_names_of_spark_do_not_reach_it(dsn: str) -> None:
    """As any other name with a dot, they are settings of the session, which nothing but queries reads."""
    query = "SELECT extract(hour FROM at)::int, 10 / a FROM spoken"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE spoken (a int, at timestamptz)")
        connection.execute("INSERT INTO spoken VALUES (4, '2026-01-01 12:00+00')")
        connection.execute("SET spark.sql.ansi.enabled = false")
        connection.execute("SET spark.sql.session.timeZone = 'Asia/Tokyo'")
        assert connection.execute("SHOW spark.sql.ansi.enabled").fetchall() == [("false",)]
        assert connection.execute(query.encode()).fetchall() == [(12, 2)]
        connection.execute("INSERT INTO spoken VALUES (0, NULL)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute(query.encode())
