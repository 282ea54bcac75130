"""Which type a value leaves: in PostgreSQL's words, from Spark's computation as from the server's own."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

pytestmark = pytest.mark.spark

SETUP = """
CREATE TABLE o (s int2, i int4, b int8, n numeric(20), d float8, f float4, one int4);
INSERT INTO o VALUES (32767, 2147483647, 9223372036854775807, 99999999999999999999, 1e308, 3e38, 1);
"""
EXPRESSIONS = (
    *("s + s", "s - (-s)", "s * s", "- (-s - 1::int2)", "abs(-s - 1::int2)", "(-s - 1::int2) / (-1::int2)"),
    *("i + one", "i - (-one)", "i * 2", "s * i", "i + s", "-(-i - 1)", "abs(-i - 1)", "@ (-i - 1)"),
    *("(-i - 1) / (-one)", "i + one + b", "max(i) + 1", "case when one = 1 then i + 1 else 0 end", "length('a') + i"),
    *("b + 1", "b - (-1)", "b * 2", "i + b", "-(-b - 1)", "abs(-b - 1)", "(-b - 1) / (-1)", "count(*) + max(b)"),
    *("i::int2", "b::int4", "b::int2", "n::int8", "n::int4", "d::int8", "f::int4", "d::float4", "(sum(b) * 2)::int8"),
    *("d * 10", "f * 10::float4", "sum(i) over () + b", "(i + one)::int8", "i % 0", "i / 0", "power(d, 2)"),
)


def error_of(connection: psycopg.Connection[Any], sql: str) -> tuple[str | None, str | None]:
    with pytest.raises(psycopg.Error) as raised:
        connection.execute(sql.encode()).fetchall()
    return raised.value.sqlstate, raised.value.diag.message_primary


def test_overflows_are_told_as_postgresql_tells_them(dsn: str, postgres: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as ours, psycopg.connect(postgres, autocommit=True) as theirs:
        for statement in filter(str.strip, SETUP.split(";")):
            ours.execute(statement.encode())
            theirs.execute(statement.replace("TABLE", "TEMP TABLE").encode())
        queries = [f"SELECT {expression} FROM o" for expression in EXPRESSIONS]
        told = {query: error_of(theirs, query) for query in queries}
        assert {query: error_of(ours, query) for query in queries} == told
        for expression in ("i + 1", "b + 1", "s + s"):
            state, message = told.get(query := f"SELECT {expression} FROM o") or error_of(theirs, query)
            with ours.transaction(force_rollback=True):
                ours.execute(f"DECLARE c CURSOR FOR SUBSCRIBE ({query})".encode())
                assert error_of(ours, "FETCH 1 c") == (state, f"Evaluation error: {message}")
