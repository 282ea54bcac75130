"""pg_operator and pg_cast, which psql's \\do and \\dC show: PostgreSQL's rows, as far as queries can use them."""

from __future__ import annotations

import psycopg
import pytest

from tests.fix_server import ServerThread

OPERATORS = (
    "SELECT oid, oprname, oprleft::regtype::text, oprright::regtype::text, oprresult::regtype::text FROM pg_operator"
)
CASTS = (
    "SELECT castsource::regtype::text, casttarget::regtype::text, castcontext, castmethod, castfunc = 0 FROM pg_cast"
)
DO = """
SELECT n.nspname as "Schema", o.oprname AS "Name",
  CASE WHEN o.oprkind='l' THEN NULL ELSE pg_catalog.format_type(o.oprleft, NULL) END AS "Left arg type",
  CASE WHEN o.oprkind='r' THEN NULL ELSE pg_catalog.format_type(o.oprright, NULL) END AS "Right arg type",
  pg_catalog.format_type(o.oprresult, NULL) AS "Result type"
FROM pg_catalog.pg_operator o LEFT JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
WHERE o.oprname OPERATOR(pg_catalog.~) '^(\\+)$' AND pg_catalog.pg_operator_is_visible(o.oid) ORDER BY 1, 2, 3, 4
"""
DC = """
SELECT pg_catalog.format_type(castsource, NULL) AS "Source type",
  pg_catalog.format_type(casttarget, NULL) AS "Target type",
  CASE WHEN c.castmethod = 'b' THEN '(binary coercible)' WHEN c.castmethod = 'i' THEN '(with inout)' ELSE p.proname
  END AS "Function",
  CASE WHEN c.castcontext = 'e' THEN 'no' WHEN c.castcontext = 'a' THEN 'in assignment' ELSE 'yes' END AS "Implicit?"
FROM pg_catalog.pg_cast c LEFT JOIN pg_catalog.pg_proc p ON c.castfunc = p.oid ORDER BY 1, 2
"""


@pytest.mark.parametrize(("query", "least"), [(OPERATORS, 300), (CASTS, 50), (DO, 20), (DC, 50)])
def test_all_rows_are_postgresqls(passing_server: ServerThread, postgres: str, query: str, least: int) -> None:
    with psycopg.connect(passing_server.dsn()) as ours, psycopg.connect(postgres) as theirs:
        found = ours.execute(query.encode()).fetchall()
        assert len(found) > least
        assert set(found) <= set(theirs.execute(query.encode()).fetchall())
